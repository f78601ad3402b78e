//! criprobe, which probes the rig's containers by commands: which of them, how often and which way in; the daemon at work out.

use std::{fmt::Write as _, fs, path::Path, thread, time::Duration};

use anyhow::{Result, ensure};
use criprobe::clock;
use tempfile::TempDir;

use crate::{
    accounts::{Cgroup, population},
    daemon::Daemon,
    process::remove_when_interrupted,
    rig::Pods,
};

/// 30 s, and half a second for each probe: how long first attempts and the opening of sessions may take.
const PATIENCE: Duration = Duration::from_secs(30);
const PATIENCE_FOR_EACH: Duration = Duration::from_millis(500);

/// Where the daemon writes its attempts, in its folder.
const ATTEMPTS: &str = "attempts.jsonl";

/// Which way commands go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    SyncRunc,
    SyncCrun,
    SessionRunc,
}

impl Way {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::SyncRunc => "ExecSync, runc",
            Self::SyncCrun => "ExecSync, crun",
            Self::SessionRunc => "session, runc",
        }
    }

    pub(crate) fn is_session(self) -> bool {
        self == Self::SessionRunc
    }
}

/// What is probed: one command in each container that matches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probes {
    pub(crate) count: usize,
    /// Patterns of names.
    pub(crate) pod: &'static str,
    pub(crate) container: &'static str,
    pub(crate) period: Duration,
}

impl Probes {
    /// How many attempts a second they ask for.
    pub(crate) fn rate(self) -> f64 {
        self.count as f64 / self.period.as_secs_f64()
    }

    /// The configuration that has them; with the defaults of all that decides what an attempt costs.
    fn configuration(self, way: Way, attempts: &Path) -> String {
        let mut text = format!("attempts: {{file: {}, maxBytes: 256MiB}}\n", attempts.display());
        if way.is_session() {
            text += "prober: {execMode: session}\n";
        }
        if self.count > 0 {
            let Self { pod, container, period, .. } = self;
            write!(
                text,
                "rules:\n- name: bench\n  match: {{namespace: default, pod: \"{pod}\", container: \"{container}\"}}\n  \
                 liveness: {{exec: {{command: [/bin/cat, /etc/hostname]}}, period: {}ms, timeout: 10s}}\n",
                period.as_millis(),
            )
            .expect("a string takes what is written");
        }
        text
    }
}

/// The daemon at work, in a cgroup of its own. The fields are dropped in this order.
pub(crate) struct Probing {
    daemon: Daemon,
    pub(crate) cgroup: Cgroup,
    probes: usize,
    /// How many containers have to have a session.
    sessions: usize,
    /// With its files.
    folder: TempDir,
}

impl Probing {
    /// Starts it.
    pub(crate) fn start(program: &Path, runtime: &Path, way: Way, probes: Probes) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("criprobe-bench-").tempdir()?;
        remove_when_interrupted(folder.path().to_owned());
        let file = folder.path().join("config.yaml");
        fs::write(&file, probes.configuration(way, &folder.path().join(ATTEMPTS)))?;
        let file = file.display().to_string();
        let cgroup = Cgroup::make("criprobe")?;
        let daemon = Daemon::start(program, runtime, folder.path(), &[("CRIPROBE_CONFIG", &file)])?;
        cgroup.adopt(daemon.process.id())?;
        let sessions = if way.is_session() { probes.count } else { 0 };
        Ok(Self { daemon, cgroup, probes: probes.count, sessions, folder })
    }

    /// Ends it; returns a line of JSON for each attempt that it has made.
    pub(crate) fn end(self) -> Result<String> {
        let Self { daemon, cgroup, folder, .. } = self;
        drop((daemon, cgroup));
        Ok(fs::read_to_string(folder.path().join(ATTEMPTS))?)
    }

    /// Waits until each probe has made an attempt, and until each has a session if it is to have one.
    pub(crate) fn wait_until_attempted(&mut self, pods: &Pods) -> Result<()> {
        let patience = PATIENCE + PATIENCE_FOR_EACH * u32::try_from(self.probes)?;
        let deadline = clock::now() + patience;
        loop {
            self.daemon.process.ensure_running()?;
            let attempts = self.daemon.counted().map_or(0, |(_, all)| all);
            let sessions = pods.cgroups.iter().filter(|cgroup| is_helped(cgroup)).count();
            if attempts >= self.probes as u64 && sessions >= self.sessions {
                return Ok(());
            }
            ensure!(
                clock::now() < deadline,
                "after {} s, {} probes have made {attempts} attempts, and {sessions} of {} sessions are open",
                patience.as_secs(),
                self.probes,
                self.sessions
            );
            thread::sleep(Duration::from_millis(250));
        }
    }

    /// Its memory, in octets.
    pub(crate) fn resident(&self) -> Result<u64> {
        self.daemon.process.resident()
    }
}

/// Whether a session's processes are in a container, beside its only one and a command.
fn is_helped(cgroup: &Path) -> bool {
    population(cgroup) > 2
}
