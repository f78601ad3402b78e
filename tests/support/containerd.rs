//! A private, real containerd for tests: starts, stops and removes the rig of `tests/lab/containerd.sh`.
//!
//! Where it cannot run, [`lab::is_available`] decides what the tests do.

use std::{
    path::{Path, PathBuf},
    process,
    sync::LazyLock,
};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};

use super::{
    PATIENCE,
    cri::{self, Cri},
    eventually, lab,
};

/// The rig's script.
const SCRIPT: &str = "containerd.sh";

/// One running rig. Dropped, it takes containerd, its containers and everything they left with it; a rig whose process
/// ends without dropping it (the shared one, or one of a test that was killed) goes half a second later by itself.
pub(crate) struct Lab {
    /// Below the system's temporary directory, with a short name: sockets lie in it. The script removes it.
    dir: PathBuf,
}

/// The rig of all tests that leave containerd running; made when the first one asks.
static SHARED: LazyLock<Result<Option<Lab>, String>> =
    LazyLock::new(|| Lab::start().map_err(|error| format!("{error:#}")));

impl Lab {
    /// Starts a rig of the caller's own, or gives `None` where this machine cannot run one.
    ///
    /// # Errors
    /// When it could run but did not, and where it cannot run although `CI` is `true`.
    pub(crate) fn start() -> Result<Option<Self>> {
        if !lab::is_available(SCRIPT)? {
            return Ok(None);
        }
        let lab = Self { dir: tempfile::Builder::new().prefix("criprobe-lab-").tempdir()?.keep() };
        script(["up", lab.path(), &process::id().to_string()])?;
        Ok(Some(lab))
    }

    /// The rig that the tests of this binary share. They must not stop it, and distinguish their pods by name.
    ///
    /// # Errors
    /// As [`Lab::start`], the same for each test.
    pub(crate) fn shared() -> Result<Option<&'static Self>> {
        SHARED.as_ref().map(Option::as_ref).map_err(|error| anyhow::anyhow!("{error}"))
    }

    /// Adds an image like that of the rig, in Docker's format, with this HEALTHCHECK.
    pub(crate) fn add_image(&self, name: &str, healthcheck: &str) -> Result<()> {
        script(["image", self.path(), name, healthcheck]).map(drop)
    }

    /// The shared rig with three images more: `localhost/dash:1` and `localhost/bash:1`, where these are `/bin/sh`, and
    /// `localhost/no-shell:1`.
    ///
    /// # Errors
    /// As [`Lab::start`], the same for each test.
    pub(crate) fn shared_with_shells() -> Result<Option<&'static Self>> {
        static ADDED: LazyLock<Result<(), String>> = LazyLock::new(|| match Lab::shared() {
            Ok(Some(lab)) => lab.add_shells().map_err(|error| format!("{error:#}")),
            Ok(None) | Err(_) => Ok(()),
        });
        ADDED.as_ref().map_err(|error| anyhow::anyhow!("{error}"))?;
        Self::shared()
    }

    /// Adds those images.
    pub(crate) fn add_shells(&self) -> Result<()> {
        script(["shells", self.path()]).map(drop)
    }

    /// The folder of its socket.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where containerd listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join("containerd.sock")
    }

    /// Ends containerd; its containers run on.
    pub(crate) fn stop(&self) -> Result<()> {
        script(["stop", self.path()]).map(drop)
    }

    /// Starts containerd again. Its gRPC server answers by then; its CRI service may need some milliseconds more.
    pub(crate) fn resume(&self) -> Result<()> {
        script(["start", self.path()]).map(drop)
    }

    /// Has containerd stand still until what is returned is dropped; its containers run on.
    pub(crate) fn freeze(&self) -> Result<Frozen> {
        let pid = std::fs::read_to_string(self.dir.join("containerd.pid"))?;
        let pid = pid.trim().parse().ok().and_then(Pid::from_raw).context("containerd has a pid")?;
        kill_process(pid, Signal::STOP)?;
        Ok(Frozen(pid))
    }

    /// A client on containerd's own socket, made when its CRI service answers.
    pub(crate) async fn client(&self) -> Result<Cri> {
        let mut client = cri::connect(&self.socket()).await?;
        eventually("the CRI service of containerd answers", PATIENCE, async || {
            Ok(cri::version(&mut client).await.ok())
        })
        .await?;
        Ok(client)
    }

    fn path(&self) -> &str {
        self.dir.to_str().expect("the temporary directory has a name in UTF-8")
    }
}

/// A containerd that stands still.
pub(crate) struct Frozen(Pid);

impl Drop for Frozen {
    fn drop(&mut self) {
        if let Err(error) = kill_process(self.0, Signal::CONT) {
            eprintln!("containerd stands still for good: {error}");
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Err(error) = script(["down", self.path()]) {
            eprintln!("a rig is left in {}: {error}", self.path());
        }
    }
}

/// Runs a verb of the rig's script, and gives what it said on stdout.
fn script<const N: usize>(args: [&str; N]) -> Result<String> {
    lab::script(SCRIPT, &args)
}
