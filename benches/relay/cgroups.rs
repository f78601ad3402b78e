//! Two cgroups, as on a node: one for what stands in the middle, one for this program, which is client and runtime.
//!
//! Under systemd every service has a cgroup, and the kernel shares the cores among cgroups before niceness counts. A
//! process that shares a cgroup with its peers takes their time instead, which no node does.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{self, Command},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use criprobe::clock;

/// Where cgroups are: the `cpu` hierarchy of version 1, or the only one of version 2 (cgroups(7)).
const HIERARCHIES: [&str; 2] = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"];

/// 1 s: for the end of what was killed.
const END: Duration = Duration::from_secs(1);

/// Both of them, in use; removed when dropped.
pub(crate) struct Cgroups {
    /// The one that this program came from.
    origin: PathBuf,
    peers: PathBuf,
    middle: PathBuf,
}

impl Cgroups {
    /// Makes them and moves this program into its own.
    ///
    /// # Errors
    /// No `cpu` controller is mounted there, or this user may not make cgroups.
    pub(crate) fn enter() -> Result<Self> {
        let mounted = HIERARCHIES.into_iter().map(Path::new).find(|path| path.join("cgroup.procs").exists());
        let top = mounted.context("no hierarchy of cgroups is mounted")?;
        if top.join("cgroup.controllers").exists() {
            let control = top.join("cgroup.subtree_control");
            fs::write(&control, "+cpu").with_context(|| format!("write to {}", control.display()))?;
        }
        let origin = origin(top, &fs::read_to_string("/proc/self/cgroup")?)?;
        let named = |what: &str| top.join(format!("criprobe-bench-{}-{what}", process::id()));
        let cgroups = Self { origin, peers: named("peers"), middle: named("middle") };
        for folder in [&cgroups.peers, &cgroups.middle] {
            fs::create_dir(folder).with_context(|| format!("make the cgroup {}", folder.display()))?;
        }
        join(&cgroups.peers)?;
        Ok(cgroups)
    }

    /// Has a command start in the cgroup of the middle, and with it all that it forks.
    pub(crate) fn wrap(&self, command: &Command) -> Command {
        let mut wrapped = Command::new("/bin/sh");
        wrapped.args(["-c", r#"echo $$ >"$0" && exec "$@""#]).arg(self.middle.join("cgroup.procs"));
        wrapped.arg(command.get_program()).args(command.get_args());
        wrapped.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        wrapped
    }

    /// Leaves and removes them. A process that was killed may be in one for a moment.
    pub(crate) fn leave(&self) {
        let _ = join(&self.origin);
        for folder in [&self.peers, &self.middle] {
            let deadline = clock::now() + END;
            while fs::remove_dir(folder).is_err() && folder.exists() && clock::now() < deadline {
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        self.leave();
    }
}

fn join(folder: &Path) -> Result<()> {
    let procs = folder.join("cgroup.procs");
    fs::write(&procs, process::id().to_string()).with_context(|| format!("write to {}", procs.display()))
}

/// The folder of the cgroup that /proc/PID/cgroup names for this hierarchy: `3:cpu,cpuacct:/user` or `0::/user`.
fn origin(top: &Path, listed: &str) -> Result<PathBuf> {
    let is_first = top.join("cgroup.controllers").exists();
    for line in listed.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        if let (Some(controllers), Some(path)) = (fields.next(), fields.next())
            && (is_first && controllers.is_empty() || controllers.split(',').any(|name| name == "cpu"))
        {
            return Ok(top.join(path.trim_start_matches('/')));
        }
    }
    bail!("/proc/self/cgroup names no cgroup with the cpu controller")
}
