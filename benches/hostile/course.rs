//! The course of the bench: windows without and with a hostile pod, in turn, on one criprobe; then many hostile pods
//! that come and go; then what is left of them. Settings in, what was found out.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use criprobe::clock;
use serde_json::Value;

use crate::{
    caller::{Calls, calls_while},
    daemon::Daemon,
    good::{self, Good},
    runtime::Runtime,
    schedule::Window,
    servers::Servers,
    tricks::{self, COUNT, Family},
    visitor::{Visitor, Way},
};

/// 3 s after a change, probes have found their places and attempts of pods that are gone have ended.
const SETTLING: Duration = Duration::from_secs(3);

/// The relay's threads, by the beginning of their names.
const RELAY: &str = "relay-";

/// 32 attempts of each well-behaved probe fill its history (docs/configuration.md): what criprobe holds grows until then, without
/// any hostile pod.
const HISTORY: u64 = 32;

/// 15 s: then they go, and others come.
const TURN: Duration = Duration::from_secs(15);

/// 60 s: what is not gone this long after the last hostile pod is left over.
const QUIET: Duration = Duration::from_secs(60);

/// 50 ms between two looks at descriptors and threads; the fewest in [`SETTLING`] count, as attempts come and go.
const LOOK: Duration = Duration::from_millis(50);

/// 10 s: a process that aborted has given its memory back by then, gigabytes included.
const ENDING: Duration = Duration::from_secs(10);

/// 2 MiB: what memory may grow by in the second half of the attempts. Histories and events have reached their bounds by
/// then, and the allocator keeps as much as it ever will: what still grows is a leak.
pub(crate) const MEMORY_GROWN: f64 = 2.0;

/// How it runs.
#[derive(Clone, Debug)]
pub(crate) struct Setting<'a> {
    /// The program under test.
    pub(crate) criprobe: &'a Path,
    /// Pairs of windows.
    pub(crate) rounds: u32,
    /// How long each window is, without the hostile pod and with it. A percentile of a short window depends more on chance
    /// than one of a long window, so windows that are compared have the same length.
    pub(crate) window: Duration,
    /// How many hostile pods are there at a time while an hour's worth of attempts is made.
    pub(crate) crowd: usize,
    /// How long that may take.
    pub(crate) crowded: Duration,
    /// What hostile pods do.
    pub(crate) families: &'a [Family],
}

/// What was found in one window.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) window: Window,
    /// By way of criprobe.
    pub(crate) relayed: Calls,
    /// Past it, to show what the machine and the runtime do to calls.
    pub(crate) direct: Calls,
    /// The most memory of criprobe, in MiB.
    pub(crate) peak: f64,
    /// Of one core.
    pub(crate) cores: f64,
    /// How long the relay's threads waited for a processor, all together.
    pub(crate) waited: Duration,
    /// Attempts of well-behaved probes that it counted: all, and those that did not succeed.
    pub(crate) counted: (u64, u64),
}

/// What criprobe holds when nothing happens but the well-behaved probes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holdings {
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
    /// In MiB.
    pub(crate) memory: f64,
}

/// What all comes to.
#[derive(Debug)]
pub(crate) struct Course {
    pub(crate) without: Vec<Found>,
    pub(crate) with: Vec<Found>,
    /// When each well-behaved probe's attempts came.
    pub(crate) attempts: Vec<Vec<Instant>>,
    /// The tricks that hostile pods had, and those of them that were attempted at least once, or refused.
    pub(crate) tricks: (usize, Vec<usize>),
    /// Attempts of the one hostile pod in the windows, as criprobe counted them.
    pub(crate) hostile: u64,
    /// Those of all hostile pods.
    pub(crate) hostile_in_all: u64,
    /// How many hostile pods there were.
    pub(crate) pods: usize,
    pub(crate) before: Holdings,
    /// When half of the attempts after the windows were made, without any hostile pod.
    pub(crate) halfway: Holdings,
    pub(crate) after: Holdings,
    /// Connections to hostile servers, and their commands, that have not ended.
    pub(crate) open: usize,
    /// Probes of hostile pods that criprobe still lists.
    pub(crate) listed: usize,
    /// How long after the last hostile pod nothing was left over; none if something was.
    pub(crate) quiet_after: Option<Duration>,
}

/// Runs all of it.
pub(crate) fn run(setting: &Setting<'_>) -> Result<Course> {
    let good = std::sync::Arc::new(Good::listen().context("listen for well-behaved probes")?);
    let servers = Servers::listen().context("listen for hostile probes")?;
    let folder = tempfile::Builder::new().prefix("criprobe-bench-").tempdir()?;
    crate::process::remove_when_interrupted(folder.path().to_owned());
    let socket = folder.path().join("runtime.sock");
    let runtime = Runtime::start(&socket, good.clone())?;
    // All tricks at once, ten times a second each.
    let settings = [("CRIPROBE_PROBER_MAX_RATE_PER_POD", "320")];
    let mut daemon = Daemon::start(setting.criprobe, &socket, folder.path(), &settings)?;
    daemon.wait_for(good::PROBES)?;
    let own = tricks::of(setting.families);
    let visitor = Visitor::new(&daemon.socket, &socket, own.clone(), servers.ports)?;
    thread::sleep(SETTLING);
    let mut node =
        Node { daemon, good: &good, runtime: &runtime, servers: &servers, visitor, socket: &socket };
    node.run(setting, &own).map_err(|error| node.cause(error))
}

/// Everything that is at work.
struct Node<'a> {
    daemon: Daemon,
    good: &'a Good,
    runtime: &'a Runtime,
    servers: &'a Servers,
    visitor: Visitor,
    /// The runtime's.
    socket: &'a Path,
}

impl Node<'_> {
    fn run(&mut self, setting: &Setting<'_>, own: &[usize]) -> Result<Course> {
        eprintln!("waiting until the histories of the well-behaved probes are full");
        while self.probes(good::NAMESPACE)?.iter().any(|probe| attempts(probe).0 < HISTORY) {
            thread::sleep(SETTLING);
            self.daemon.process.ensure_running()?;
        }
        let (mut without, mut with) = (Vec::new(), Vec::new());
        let (mut before, mut hostile, mut answered) = (None, 0, [false; COUNT]);
        for round in 0..setting.rounds {
            eprintln!("round {} of {}: without the hostile pod", round + 1, setting.rounds);
            without.push(self.measure(|_| {
                thread::sleep(setting.window);
                Ok(())
            })?);
            if before.is_none() {
                before = Some(self.holdings()?);
            }
            eprintln!("round {} of {}: with it", round + 1, setting.rounds);
            let way = if round % 2 == 0 { Way::Through } else { Way::Past };
            with.push(self.measure(|node| {
                hostile += node.visit(1, way, setting.window, &mut answered)?;
                Ok(())
            })?);
            thread::sleep(SETTLING);
        }
        let before = before.context("no round was measured")?;
        let stayed: f64 = with.iter().map(|found| found.window.length().as_secs_f64()).sum();
        let hour = (hostile as f64 / stayed * 3600.0) as u64;
        let (mut hostile_in_all, mut turns, mut pods) = (hostile, 0_u32, setting.rounds as usize);
        let (half_of_attempts, half_of_time) = (hostile.midpoint(hour), clock::now() + setting.crowded / 2);
        let (mut halfway, end) = (None, clock::now() + setting.crowded);
        while hostile_in_all < hour && clock::now() < end {
            eprintln!("{hostile_in_all} of {hour} attempts of hostile pods");
            let way = if turns % 2 == 0 { Way::Past } else { Way::Through };
            hostile_in_all += self.visit(setting.crowd, way, TURN, &mut answered)?;
            (turns, pods) = (turns + 1, pods + setting.crowd);
            self.daemon.process.ensure_running()?;
            let is_halfway = hostile_in_all >= half_of_attempts || clock::now() >= half_of_time;
            if halfway.is_none() && is_halfway {
                self.wait_until_quiet(before)?;
                halfway = Some(self.holdings()?);
            }
        }
        eprintln!(
            "{hostile_in_all} of {hour} attempts of hostile pods; waiting until nothing is left of them"
        );
        let quiet_after = self.wait_until_quiet(before)?;
        let met = |trick: &usize| {
            let (runtime, servers) = (self.runtime.seen(), self.servers.seen());
            answered[*trick] || runtime.came(*trick) > 0 || servers.came(*trick) > 0
        };
        Ok(Course {
            without,
            with,
            attempts: self.good.take(),
            tricks: (own.len(), own.iter().copied().filter(met).collect()),
            hostile,
            hostile_in_all,
            pods,
            before,
            halfway: halfway.context("hostile pods came once only: more --seconds are needed")?,
            after: self.holdings()?,
            open: self.open(),
            listed: self.probes(tricks::NAMESPACES)?.len(),
            quiet_after,
        })
    }

    /// Why criprobe ended, if it did: that says more than what could not be asked of it any more.
    fn cause(&mut self, error: anyhow::Error) -> anyhow::Error {
        let end = clock::now() + ENDING;
        while clock::now() < end {
            if let Err(ended) = self.daemon.process.ensure_running() {
                return ended.context("criprobe is gone");
            }
            thread::sleep(LOOK);
        }
        error
    }

    /// Measures while `work` is done.
    fn measure(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<Found> {
        let (relayed, direct) = (self.daemon.socket.clone(), self.socket.to_owned());
        let before = self.counted()?;
        self.daemon.process.reset_peak()?;
        let (cpu, waited, start) =
            (self.daemon.process.cpu(), self.daemon.process.waited(RELAY), clock::now());
        let done = calls_while([relayed.as_path(), direct.as_path()], || work(self));
        let ([relayed, direct], ()) = done?;
        let end = clock::now();
        let used = self.daemon.process.cpu().saturating_sub(cpu);
        let waited = self.daemon.process.waited(RELAY).saturating_sub(waited);
        let peak = self.daemon.process.peak()? as f64 / f64::from(1 << 20);
        let after = self.counted()?;
        Ok(Found {
            window: Window { start, end },
            relayed,
            direct,
            peak,
            cores: used.as_secs_f64() / (end - start).as_secs_f64(),
            waited,
            counted: (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1)),
        })
    }

    /// Hostile pods come, stay and go. How many attempts they had comes out; whose probes were attempted, or
    /// refused as invalid, is noted.
    fn visit(&mut self, pods: usize, way: Way, stay: Duration, answered: &mut [bool; COUNT]) -> Result<u64> {
        let start = clock::now();
        let visit = self.visitor.arrive(pods, way)?;
        while clock::now() < start + stay {
            thread::sleep(LOOK.min(stay));
            self.daemon.process.ensure_running()?;
        }
        let probes = self.probes(tricks::NAMESPACES)?;
        for (trick, answered) in answered.iter_mut().enumerate() {
            let (container, kind) = tricks::place(trick);
            let own = |probe: &&Value| probe["container"] == container.as_str() && probe["type"] == kind;
            let is_met = |probe: &Value| attempts(probe).0 > 0 || probe["phase"] == "invalid";
            *answered |= probes.iter().filter(own).any(is_met);
        }
        self.visitor.leave(visit)?;
        Ok(probes.iter().map(|probe| attempts(probe).0).sum())
    }

    /// Attempts of well-behaved probes that criprobe counted: all, and those that did not succeed.
    fn counted(&self) -> Result<(u64, u64)> {
        let probes = self.probes(good::NAMESPACE)?;
        let each = probes.iter().map(attempts);
        Ok(each.fold((0, 0), |sum, (all, bad)| (sum.0 + all, sum.1 + bad)))
    }

    fn probes(&self, namespace: &str) -> Result<Vec<Value>> {
        let probes = self.daemon.get(&format!("/v1/probes?namespace={namespace}"));
        match probes.with_context(|| format!("ask for the probes of {namespace}"))? {
            Value::Array(probes) => Ok(probes),
            other => anyhow::bail!("the probes are no list: {other}"),
        }
    }

    /// What has begun for hostile pods and not ended, as they and the runtime see it.
    fn open(&self) -> usize {
        self.runtime.seen().open() + self.servers.seen().open()
    }

    fn holdings(&self) -> Result<Holdings> {
        let end = clock::now() + SETTLING;
        let mut least = self.look()?;
        while clock::now() < end {
            thread::sleep(LOOK);
            let now = self.look()?;
            least.descriptors = least.descriptors.min(now.descriptors);
            least.threads = least.threads.min(now.threads);
            least.memory = now.memory;
        }
        Ok(least)
    }

    fn look(&self) -> Result<Holdings> {
        let process = &self.daemon.process;
        Ok(Holdings {
            descriptors: process.descriptors()?,
            threads: process.threads()?,
            memory: process.resident()? as f64 / f64::from(1 << 20),
        })
    }

    /// Waits until no more is there than was before.
    fn wait_until_quiet(&self, before: Holdings) -> Result<Option<Duration>> {
        let start = clock::now();
        while clock::now() < start + QUIET {
            let now = self.look()?;
            let is_quiet =
                now.descriptors <= before.descriptors && now.threads <= before.threads && self.open() == 0;
            if is_quiet {
                return Ok(Some(clock::now() - start));
            }
            thread::sleep(LOOK);
        }
        Ok(None)
    }
}

/// Of a probe: all attempts, and those that did not succeed.
fn attempts(probe: &Value) -> (u64, u64) {
    let of = |name: &str| probe["counts"][name].as_u64().unwrap_or(0);
    let bad = of("warning") + of("failure") + of("error");
    (of("success") + bad, bad)
}
