//! Makes packages with `packaging/build.sh`, each once for all tests of this binary.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Mutex,
};

use anyhow::{Context as _, Result, anyhow, ensure};

use crate::{man, support::lab};

/// The version that is installed first.
pub(crate) const FIRST: &str = "0.0.1";

/// The one that it is upgraded to.
pub(crate) const SECOND: &str = "0.0.2";

/// The folder of the project.
pub(crate) fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The package of this kind, `deb` or `rpm`, of this version. `None` where this machine has no tools for it.
///
/// # Errors
/// What the script printed on stderr, and where the tools are missing although `CI` is `true`.
pub(crate) fn package(kind: &str, version: &str) -> Result<Option<PathBuf>> {
    static MADE: Mutex<Option<HashMap<String, PathBuf>>> = Mutex::new(None);
    if !lab::is_available("packagers.sh")? {
        return Ok(None);
    }
    // Held while it is made: two at once would write the same files.
    let mut made = MADE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let made = made.get_or_insert_default();
    let key = format!("{kind} {version}");
    if let Some(file) = made.get(&key) {
        return Ok(Some(file.clone()));
    }
    let folder = folder("packages");
    // Here rather than by the script, for which cargo would build most of criprobe again.
    man::write_all(&folder.join("man")).map_err(|error| anyhow!("write the man pages: {error}"))?;
    let file = build(kind, version, Path::new(env!("CARGO_BIN_EXE_criprobe")), &folder)?;
    made.insert(key, file.clone());
    Ok(Some(file))
}

/// A folder of these tests below cargo's target folder.
pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Runs the script, and returns the path that it printed last.
///
/// # Errors
/// What it printed on stderr.
pub(crate) fn build(kind: &str, version: &str, binary: &Path, folder: &Path) -> Result<PathBuf> {
    let made = output(
        Command::new(project().join("packaging/build.sh"))
            .arg(kind)
            .env("BINARY", binary)
            .env("VERSION", version)
            .env("OUT", folder)
            .env("MAN", folder.join("man"))
            .env_remove("TRIPLE")
            .env_remove("SOURCE_DATE_EPOCH"),
    )?;
    Ok(made.lines().last().context("the script prints a path")?.into())
}

/// What a command prints on stdout.
///
/// # Errors
/// What it printed, if it failed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("run {command:?}"))?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    Ok(out.into_owned())
}
