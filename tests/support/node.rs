//! A node with a real systemd for tests: boots the rig of `tests/lab/systemd.sh`, with criprobe installed as its packaging
//! installs it, in front of a real containerd.
//!
//! Where it cannot run, [`lab::is_available`] decides what the tests do.

use std::{
    fs,
    path::{Path, PathBuf},
    process,
};

use anyhow::{Context as _, Result, ensure};
use hyper::{Method, StatusCode};
use serde_json::Value;

use super::{
    PATIENCE,
    containerd::Lab,
    cri::{self, Cri},
    daemon::ask,
    eventually, lab,
};

/// The rig's script.
const SCRIPT: &str = "systemd.sh";

/// The daemon's unit.
pub(crate) const SERVICE: &str = "criprobe.service";

/// One booted node. Dropped, it prints criprobe's log, which cargo shows of tests that fail, and ends.
pub(crate) struct Node {
    /// Below the system's temporary directory. The script removes it.
    dir: PathBuf,
    /// Its files, as this machine sees them.
    root: PathBuf,
}

impl Node {
    /// Boots one whose default runtime is the containerd of `lab`, and installs the packaging's files and the binary that
    /// the tests use. Starts nothing of criprobe. `None` where this machine cannot run it.
    ///
    /// # Errors
    /// When it could run but did not, and where it cannot run although `CI` is `true`.
    pub(crate) fn boot(lab: &Lab) -> Result<Option<Self>> {
        Self::boot_before(lab.dir())
    }

    /// The same whose default runtime is the socket `containerd.sock` in this folder.
    pub(crate) fn boot_before(runtime: &Path) -> Result<Option<Self>> {
        if !lab::is_available(SCRIPT)? {
            return Ok(None);
        }
        let dir = tempfile::Builder::new().prefix("criprobe-node-").tempdir()?.keep();
        let runtime = format!("{}:/run/containerd", runtime.display());
        let pid = lab::script(SCRIPT, &["up", path(&dir), &process::id().to_string(), &runtime])?;
        let node = Self { dir, root: Path::new("/proc").join(pid).join("root") };
        node.install(Path::new(env!("CARGO_BIN_EXE_criprobe")))?;
        Ok(Some(node))
    }

    /// Installs this binary, in place of the one that is there, and the units.
    pub(crate) fn install(&self, binary: &Path) -> Result<()> {
        let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging");
        let new = self.file("/usr/bin/.criprobe.new");
        fs::copy(binary, &new)?;
        fs::rename(new, self.file("/usr/bin/criprobe"))?;
        fs::create_dir_all(self.file("/etc/criprobe/conf.d"))?;
        fs::copy(packaging.join("config.yaml"), self.file("/etc/criprobe/config.yaml"))?;
        for unit in fs::read_dir(packaging)? {
            let unit = unit?.path();
            if unit.extension().is_some_and(|kind| kind == "service" || kind == "socket") {
                let name = unit.file_name().context("a unit has a name")?;
                fs::copy(&unit, self.file("/etc/systemd/system").join(name))?;
            }
        }
        self.run(&["systemctl", "daemon-reload"]).map(drop)
    }

    /// Runs a command on it, and returns what that printed on stdout.
    ///
    /// # Errors
    /// What it printed on stderr, if it failed.
    pub(crate) fn run(&self, command: &[&str]) -> Result<String> {
        let args: Vec<_> = ["run", path(&self.dir)].iter().chain(command).copied().collect();
        lab::script(SCRIPT, &args).with_context(|| command.join(" "))
    }

    /// Runs a verb of systemctl on criprobe's service.
    pub(crate) fn service(&self, verb: &str) -> Result<()> {
        self.run(&["systemctl", verb, SERVICE]).map(drop)
    }

    /// A property of a unit, as systemctl shows it.
    pub(crate) fn property(&self, unit: &str, name: &str) -> Result<String> {
        self.run(&["systemctl", "show", "--value", "--property", name, unit])
    }

    /// Its path of a file of the node.
    pub(crate) fn file(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Writes a drop-in of a unit, and has systemd read it.
    pub(crate) fn drop_in(&self, unit: &str, text: &str) -> Result<()> {
        let folder = self.file("/etc/systemd/system").join(format!("{unit}.d"));
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("test.conf"), text)?;
        self.run(&["systemctl", "daemon-reload"]).map(drop)
    }

    /// The clients' socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.file("/run/criprobe/criprobe.sock")
    }

    /// A client on a new connection through the relay.
    pub(crate) async fn client(&self) -> Result<Cri> {
        cri::connect(&self.socket()).await
    }

    /// A client of which a first call has been answered.
    pub(crate) async fn client_that_is_answered(&self) -> Result<Cri> {
        eventually("criprobe relays a call", PATIENCE, async || {
            let Ok(mut client) = self.client().await else { return Ok(None) };
            Ok(cri::version(&mut client).await.is_ok().then_some(client))
        })
        .await
    }

    /// What a path of the API answers.
    pub(crate) async fn get(&self, path: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.text(path).await?)?)
    }

    /// What a path of the API answers that has JSON a line.
    pub(crate) async fn lines(&self, path: &str) -> Result<Vec<Value>> {
        let text = self.text(path).await?;
        text.lines().map(|line| serde_json::from_str(line).with_context(|| format!("parse {line}"))).collect()
    }

    async fn text(&self, path: &str) -> Result<String> {
        let (status, text) = ask(&self.file("/run/criprobe/api.sock"), Method::GET, path, "").await?;
        ensure!(status == StatusCode::OK, "{path} answered {status}: {text}");
        Ok(text)
    }

    /// What the service has logged.
    pub(crate) fn log(&self) -> Result<String> {
        self.run(&["journalctl", "--no-pager", "--output=cat", "--unit", SERVICE])
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        match self.log() {
            Ok(log) => eprintln!("criprobe's log:\n{log}"),
            Err(error) => eprintln!("cannot read criprobe's log: {error:#}"),
        }
        if let Err(error) = lab::script(SCRIPT, &["down", path(&self.dir)]) {
            eprintln!("a rig is left in {}: {error}", self.dir.display());
        }
    }
}

fn path(dir: &Path) -> &str {
    dir.to_str().expect("the temporary directory has a name in UTF-8")
}
