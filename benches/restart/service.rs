//! criprobe as a service of a node: which builds it is restarted from and to, what is in its trace afterwards, and what it says
//! of its handovers.

use std::{
    collections::HashSet,
    env, fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use criprobe::clock;
use serde_json::Value;

use crate::{idle, node::Node};

const PROGRAM: &str = "/usr/bin/criprobe";
const SOCKET: &str = "/run/criprobe/criprobe.sock";
const TRACE: &str = "/var/log/criprobe/calls.jsonl";

/// 10 s: how long the last lines of the trace may take.
const WRITTEN: Duration = Duration::from_secs(10);

/// One handover, in milliseconds.
pub(crate) struct Handover {
    /// What the process before took after it had stopped relaying, and the next one before it relayed.
    pub(crate) own: f64,
    /// What systemd and the kernel took in between.
    pub(crate) between: f64,
}

/// What is in the trace.
pub(crate) struct Traced {
    pub(crate) lines: usize,
    /// Lines of calls that have one already.
    pub(crate) doubled: usize,
}

/// criprobe on a node.
pub(crate) struct Service<'a> {
    node: &'a Node,
    /// What it had logged before.
    logged: usize,
}

impl<'a> Service<'a> {
    /// Starts this build, with these lines in the unit's section `Service`. Its trace begins anew.
    pub(crate) fn start(node: &'a Node, binary: &Path, lines: &str) -> Result<Self> {
        node.install(binary, PROGRAM)?;
        node.set_service(lines)?;
        let trace = node.file(TRACE);
        if trace.exists() {
            fs::remove_file(trace)?;
        }
        let settings = node.file("/etc/criprobe/conf.d/50-bench.yaml");
        fs::write(settings, format!("trace:\n  file: {TRACE}\n"))?;
        let logged = node.log()?.len();
        node.service("start")?;
        Ok(Self { node, logged })
    }

    /// Where clients connect.
    pub(crate) fn socket(&self) -> PathBuf {
        self.node.file(SOCKET)
    }

    /// Restarts it, after an upgrade if another build is given.
    pub(crate) fn restart(&self, binary: Option<&Path>) -> Result<()> {
        if let Some(binary) = binary {
            self.node.install(binary, PROGRAM)?;
        }
        self.node.service("restart")
    }

    /// Its trace, as soon as it has so many lines, and no later than after [`WRITTEN`].
    pub(crate) fn traced(&self, calls: usize) -> Result<Traced> {
        let deadline = clock::now() + WRITTEN;
        loop {
            let text = fs::read_to_string(self.node.file(TRACE))?;
            let lines = text.lines().count();
            if lines < calls && clock::now() < deadline {
                thread::sleep(Duration::from_millis(100));
                continue;
            }
            let mut ids = HashSet::new();
            for line in text.lines() {
                let call: Value = serde_json::from_str(line).context("a line of the trace is no JSON")?;
                ids.insert(call["id"].as_str().context("a line has no id")?.to_owned());
            }
            return Ok(Traced { lines, doubled: lines - ids.len() });
        }
    }

    /// What it says of its handovers, in their order. A build that does not say how long one took leaves it out.
    pub(crate) fn handovers(&self) -> Result<Vec<Option<Handover>>> {
        let log = self.node.log()?;
        let (mut handovers, mut before) = (Vec::new(), 0.0);
        for line in log.get(self.logged..).unwrap_or(&log).lines() {
            let field = |name: &str| -> Option<f64> {
                line.split_once(name)?.1.split_whitespace().next()?.parse().ok()
            };
            let stalled = field("stalled_millis=");
            if line.contains("handed over") {
                before = stalled.unwrap_or_default();
                handovers.push(None);
            } else if let (Some(stalled), Some(starting), Some(last)) =
                (stalled, field("starting_millis="), handovers.last_mut())
            {
                let own = before + starting;
                *last = Some(Handover { own, between: stalled - own });
            }
        }
        Ok(handovers)
    }

    /// Prints what it logged beyond what it does when all is well.
    pub(crate) fn print_trouble(&self) -> Result<()> {
        let log = self.node.log()?;
        let log = log.get(self.logged..).unwrap_or(&log);
        for line in log.lines().filter(|line| line.contains("WARN") || line.contains("ERROR")) {
            eprintln!("  {line}");
        }
        Ok(())
    }

    /// Ends it.
    pub(crate) fn stop(self) -> Result<()> {
        self.node.service("stop")
    }
}

/// A service that does nothing, under criprobe's unit.
pub(crate) struct Idle<'a>(&'a Node);

impl<'a> Idle<'a> {
    pub(crate) fn start(node: &'a Node) -> Result<Self> {
        node.install(&env::current_exe()?, idle::PROGRAM)?;
        node.set_service(&format!("ExecStart=\nExecStart={} {}\n", idle::PROGRAM, idle::ARGUMENT))?;
        node.service("start")?;
        Ok(Self(node))
    }

    pub(crate) fn restart(&self) -> Result<()> {
        self.0.service("restart")
    }

    /// Ends it; returns how long each restart took systemd and the kernel.
    pub(crate) fn stop(self) -> Result<Vec<Duration>> {
        self.0.service("stop")?;
        let gaps = idle::gaps(&self.0.file(idle::TIMES))?;
        ensure!(!gaps.is_empty(), "the service that does nothing was not restarted");
        Ok(gaps)
    }
}
