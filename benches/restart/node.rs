//! A node: a private systemd (tests/lab/systemd.sh) with criprobe as its packaging installs it. Ends with this bench, however
//! that ends.

use std::{
    fs,
    path::{Path, PathBuf},
    process,
};

use anyhow::{Context, Result};

use crate::lab::{repository, script, text};

/// The script that makes it.
const SCRIPT: &str = "systemd.sh";

/// The daemon's unit.
const SERVICE: &str = "criprobe.service";

/// What the bench adds to the unit.
const DROP_IN: &str = "/etc/systemd/system/criprobe.service.d/bench.conf";

/// A booted node.
pub(crate) struct Node {
    /// The script removes it.
    dir: PathBuf,
    /// Its files, as this machine sees them.
    root: PathBuf,
}

impl Node {
    /// Boots one. Its default runtime is the socket `containerd.sock` in this folder.
    pub(crate) fn boot(runtime: &Path) -> Result<Self> {
        script(SCRIPT, &["check"])?;
        let dir = tempfile::Builder::new().prefix("criprobe-node-").tempdir()?.keep();
        let bind = format!("{}:/run/containerd", runtime.display());
        let pid = script(SCRIPT, &["up", text(&dir)?, &process::id().to_string(), &bind])?;
        let node = Self { dir, root: Path::new("/proc").join(pid).join("root") };
        fs::create_dir_all(node.file("/etc/criprobe/conf.d"))?;
        fs::copy(repository("packaging/config.yaml"), node.file("/etc/criprobe/config.yaml"))?;
        for unit in ["criprobe.service", "criprobe.socket"] {
            let place = node.file("/etc/systemd/system").join(unit);
            fs::copy(repository("packaging").join(unit), place)?;
        }
        Ok(node)
    }

    /// Installs a program, in place of the one that is there.
    pub(crate) fn install(&self, binary: &Path, path: &str) -> Result<()> {
        let (new, place) = (self.file(&format!("{path}.new")), self.file(path));
        fs::copy(binary, &new).with_context(|| format!("install {}", binary.display()))?;
        Ok(fs::rename(new, place)?)
    }

    /// Sets what the bench adds to the unit's section `Service`.
    pub(crate) fn set_service(&self, lines: &str) -> Result<()> {
        let place = self.file(DROP_IN);
        fs::create_dir_all(place.parent().context("it is in a folder")?)?;
        fs::write(place, format!("[Service]\n{lines}"))?;
        self.run(&["systemctl", "daemon-reload"]).map(drop)
    }

    /// Runs a verb of systemctl on criprobe's unit.
    pub(crate) fn service(&self, verb: &str) -> Result<()> {
        self.run(&["systemctl", verb, SERVICE]).map(drop)
    }

    /// What the service has logged.
    pub(crate) fn log(&self) -> Result<String> {
        self.run(&["journalctl", "--no-pager", "--output=cat", "--unit", SERVICE])
    }

    /// Runs a command on it, and returns what it printed.
    pub(crate) fn run(&self, command: &[&str]) -> Result<String> {
        let arguments: Vec<_> = ["run", text(&self.dir)?].iter().chain(command).copied().collect();
        script(SCRIPT, &arguments).with_context(|| command.join(" "))
    }

    /// A file of the node.
    pub(crate) fn file(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Err(error) = text(&self.dir).and_then(|dir| script(SCRIPT, &["down", dir])) {
            eprintln!("a node is left in {}: {error:#}", self.dir.display());
        }
    }
}
