//! The scripts of `tests/lab`, which make real runtimes and nodes: a verb in, what it printed out.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

/// A path of this repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Runs a verb of a script, and returns what it printed.
pub(crate) fn script(name: &str, arguments: &[&str]) -> Result<String> {
    let path = repository("tests/lab").join(name);
    let output = Command::new(&path).args(arguments).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("run {}", path.display()))?;
    let printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        bail!("{}", if why.is_empty() { printed } else { why });
    }
    Ok(printed)
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> Result<&str> {
    path.to_str().context("the temporary directory has a name in UTF-8")
}
