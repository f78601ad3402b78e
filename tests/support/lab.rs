//! The scripts of `tests/lab`: runs them, and decides what a test does where they cannot run.

use std::{
    env,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};

/// Whether this machine can run what a script starts, after installing what is missing.
///
/// # Errors
/// It cannot, and `CI` is `true`. Elsewhere the reason goes to stderr, and the test passes; `tests/lab/run-tests.sh`
/// repeats it at its end.
pub(crate) fn is_available(name: &str) -> Result<bool> {
    let Err(reason) = script(name, &["check"]).and_then(|_| script(name, &["install"])) else {
        return Ok(true);
    };
    if env::var("CI").is_ok_and(|ci| ci == "true") {
        bail!("{reason}");
    }
    eprintln!("skipped: {reason}");
    Ok(false)
}

/// Runs a verb of a script, and returns what it printed on stdout.
///
/// # Errors
/// What it printed on stderr, if it failed.
pub(crate) fn script(name: &str, args: &[&str]) -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab").join(name);
    let output = Command::new(&path)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("run {}", path.display()))?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        bail!("{}", if why.is_empty() { said } else { why });
    }
    Ok(said)
}
