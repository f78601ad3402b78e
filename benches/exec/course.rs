//! What is measured, and in which order: attempts at each rate and each way, the opening of sessions, and idle sessions.

use std::{path::Path, thread, time::Duration};

use anyhow::{Context as _, Result};

use crate::{
    accounts::{Look, Used},
    attempts::Attempts,
    probing::{Probes, Probing, Way},
    rig::{Pods, Rig},
};

/// 50 pods with a container each.
const PODS: usize = 50;

/// 1, 10, 100 and 500 attempts a second, with one probe in a container.
const LOADS: [Probes; 4] = [
    Probes { count: 1, pod: "exec-0", container: "*", period: Duration::from_secs(1) },
    Probes { count: 10, pod: "exec-?", container: "*", period: Duration::from_secs(1) },
    Probes { count: 10, pod: "exec-?", container: "*", period: Duration::from_millis(100) },
    Probes { count: PODS, pod: "exec-*", container: "*", period: Duration::from_millis(100) },
];

/// 10 attempts a second: ExecSync keeps them, too.
pub(crate) const MODEST: f64 = 10.0;

/// The most attempts a second that are asked for.
pub(crate) const MOST: f64 = 500.0;

/// No probe.
const NONE: Probes = Probes { count: 0, pod: "", container: "", period: Duration::from_secs(1) };

/// Each container once, for the opening of sessions.
const ONCE: Duration = Duration::from_secs(10);

/// 60 s: the period of the probes of idle sessions.
const SELDOM: Duration = Duration::from_secs(60);

/// 3 s: by then probes have found their places in their periods, and what a former daemon left has ended.
const SETTLING: Duration = Duration::from_secs(3);

/// 20 containers in each pod of idle sessions: a shim for each pod is most of what they take.
const CROWD: usize = 20;

/// What can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// ExecSync with runc
    Runc,
    /// Sessions, with runc
    Session,
    /// The opening of sessions; needs both of the above
    Opening,
    /// ExecSync with crun
    Crun,
    /// The memory of idle sessions
    Memory,
}

/// Where, what, and how long.
pub(crate) struct Setting<'a> {
    /// Only these; all if there are none.
    pub(crate) only: &'a [Part],
    pub(crate) criprobe: &'a Path,
    pub(crate) window: Duration,
    /// How often sessions are opened in each of the 50 containers.
    pub(crate) rounds: u32,
    /// Idle sessions.
    pub(crate) sessions: usize,
}

/// What was found. What could not be measured is missing, and stderr says why.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) idle: Option<Idle>,
    pub(crate) windows: Vec<Window>,
    pub(crate) opening: Option<Opening>,
    pub(crate) memory: Option<Memory>,
}

/// CPU time a second without attempts.
#[derive(Clone, Copy)]
pub(crate) struct Idle {
    /// Without criprobe.
    pub(crate) without: Used,
    /// With criprobe, which has no probe.
    pub(crate) with: Used,
}

/// One way at one rate.
pub(crate) struct Window {
    pub(crate) way: Way,
    pub(crate) asked: f64,
    pub(crate) used: Used,
    pub(crate) attempts: Attempts,
}

impl Window {
    /// What one attempt took of this.
    pub(crate) fn each(&self, used: Duration) -> Duration {
        used.checked_div(u32::try_from(self.attempts.count()).unwrap_or(u32::MAX)).unwrap_or_default()
    }

    pub(crate) fn rate(&self) -> f64 {
        self.attempts.count() as f64 / self.used.took.as_secs_f64()
    }
}

/// What a session takes beside its attempts, in CPU time.
#[derive(Clone, Copy)]
pub(crate) struct Opening {
    pub(crate) opening: Duration,
    pub(crate) closing: Duration,
}

/// Resident memory in octets: of criprobe, and of containerd with its shims.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) sessions: usize,
    pub(crate) without: [u64; 2],
    pub(crate) with: [u64; 2],
}

impl Memory {
    /// What 1,000 sessions take of it, in MiB.
    pub(crate) fn of_thousand(&self) -> [f64; 2] {
        [0, 1].map(|whose| {
            let more = self.with[whose].saturating_sub(self.without[whose]);
            more as f64 / self.sessions as f64 * 1000.0 / f64::from(1 << 20)
        })
    }
}

impl Found {
    pub(crate) fn window(&self, way: Way, asked: f64) -> Option<&Window> {
        self.windows.iter().find(|window| window.way == way && window.asked == asked)
    }

    /// The CPU time of an attempt where ExecSync keeps up.
    pub(crate) fn each(&self, way: Way) -> Option<Duration> {
        self.window(way, MODEST).map(|window| window.each(window.used.shares.total()))
    }
}

/// Measures all of it.
///
/// # Errors
/// The rig does not work.
pub(crate) fn run(setting: &Setting<'_>) -> Result<Found> {
    let mut rig = Rig::start()?;
    let mut found = Found::default();
    let pods = rig.run_pods("runc", PODS, 1)?;
    found.idle = kept("idle", || setting.idle(&rig, &pods));
    for (part, way) in [(Part::Runc, Way::SyncRunc), (Part::Session, Way::SessionRunc)] {
        if setting.wants(part) {
            found.windows.extend(setting.windows(&rig, &pods, way));
        }
    }
    if setting.wants(Part::Opening) {
        found.opening = kept("opening sessions", || {
            let each = found.each(Way::SyncRunc).zip(found.each(Way::SessionRunc));
            let (sync, session) = each.context("the parts runc and session have to be measured, too")?;
            setting.opening(&rig, &pods, sync, session)
        });
    }
    rig.remove(pods)?;
    if setting.wants(Part::Crun) {
        found.windows.extend(kept("crun", || setting.with_crun(&mut rig)).into_iter().flatten());
    }
    if setting.wants(Part::Memory) {
        found.memory = kept("idle sessions", || setting.memory(&rig));
    }
    Ok(found)
}

/// Says on stderr what is measured, and why it could not be.
fn kept<T>(what: &str, measure: impl FnOnce() -> Result<T>) -> Option<T> {
    eprintln!("{what}");
    measure().inspect_err(|error| eprintln!("left out: {what}: {error:#}")).ok()
}

impl Setting<'_> {
    fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    fn idle(&self, rig: &Rig, pods: &Pods) -> Result<Idle> {
        thread::sleep(SETTLING);
        let (before, after) = self.pass(|| rig.accounts(pods, None).look())?;
        let without = after.since(&before);
        let probing = Probing::start(self.criprobe, &rig.socket(), Way::SyncRunc, NONE)?;
        thread::sleep(SETTLING);
        let (before, after) = self.pass(|| rig.accounts(pods, Some(&probing.cgroup)).look())?;
        Ok(Idle { without, with: after.since(&before) })
    }

    fn windows(&self, rig: &Rig, pods: &Pods, way: Way) -> Vec<Window> {
        let window = |probes: Probes| {
            let what = format!("{} at {} a second", way.title(), probes.rate());
            kept(&what, || self.measure(rig, pods, way, probes))
        };
        LOADS.into_iter().filter_map(window).collect()
    }

    fn with_crun(&self, rig: &mut Rig) -> Result<Vec<Window>> {
        rig.add_crun()?;
        let pods = rig.run_pods("crun", PODS, 1)?;
        let windows = self.windows(rig, &pods, Way::SyncCrun);
        rig.remove(pods)?;
        Ok(windows)
    }

    /// One way at one rate.
    fn measure(&self, rig: &Rig, pods: &Pods, way: Way, probes: Probes) -> Result<Window> {
        let mut probing = Probing::start(self.criprobe, &rig.socket(), way, probes)?;
        // What goes by no session is part of what is measured.
        if let Err(error) = probing.wait_until_attempted(pods) {
            eprintln!("  {error:#}");
        }
        thread::sleep(SETTLING);
        let (before, after) = self.pass(|| rig.accounts(pods, Some(&probing.cgroup)).look())?;
        let attempts = Attempts::of(&probing.end()?, before.wall, after.wall)?;
        if way.is_session() && attempts.by_session() < attempts.count() {
            eprintln!("  {:?}", attempts.routes);
        }
        // The runtime ends the commands that it still runs.
        thread::sleep(SETTLING);
        Ok(Window { way, asked: probes.rate(), used: after.since(&before), attempts })
    }

    /// Looks, lets the window pass, and looks again.
    fn pass(&self, look: impl Fn() -> Result<Look>) -> Result<(Look, Look)> {
        let before = look()?;
        thread::sleep(self.window);
        Ok((before, look()?))
    }

    /// Starts daemons that attempt each probe once, without and with sessions. What differs is what sessions take, less what
    /// the attempts differ by: one costs `sync` or `session`.
    fn opening(&self, rig: &Rig, pods: &Pods, sync: Duration, session: Duration) -> Result<Opening> {
        let (mut without, mut with) = ([Duration::ZERO; 2], [Duration::ZERO; 2]);
        for round in 0..self.rounds {
            eprintln!("  round {} of {}", round + 1, self.rounds);
            for (way, sum) in [(Way::SyncRunc, &mut without), (Way::SessionRunc, &mut with)] {
                let used = self.once(rig, pods, way, [sync, session])?;
                *sum = [sum[0] + used[0], sum[1] + used[1]];
            }
        }
        let count = self.rounds * u32::try_from(pods.cgroups.len())?;
        let each = |which: usize| with[which].saturating_sub(without[which]) / count;
        Ok(Opening { opening: each(0), closing: each(1) })
    }

    /// What a daemon's start takes without what its attempts cost, and what its end takes.
    fn once(
        &self,
        rig: &Rig,
        pods: &Pods,
        way: Way,
        [sync, session]: [Duration; 2],
    ) -> Result<[Duration; 2]> {
        let probes = Probes { count: pods.cgroups.len(), pod: "exec-*", container: "app-*", period: ONCE };
        let accounts = rig.accounts(pods, None);
        let before = accounts.look()?;
        let mut probing = Probing::start(self.criprobe, &rig.socket(), way, probes)?;
        probing.wait_until_attempted(pods)?;
        thread::sleep(SETTLING);
        let after = rig.accounts(pods, Some(&probing.cgroup)).look()?;
        let ending = accounts.look()?;
        let attempts = Attempts::of(&probing.end()?, before.wall, after.wall)?;
        thread::sleep(SETTLING);
        let ended = accounts.look()?.since(&ending).shares.total();
        let by_session = attempts.by_session();
        let cost =
            sync * u32::try_from(attempts.count() - by_session)? + session * u32::try_from(by_session)?;
        Ok([after.since(&before).shares.total().saturating_sub(cost), ended])
    }

    fn memory(&self, rig: &Rig) -> Result<Memory> {
        let pods = rig.run_pods("runc", self.sessions.div_ceil(CROWD), CROWD)?;
        let count = pods.cgroups.len();
        eprintln!("  {count} containers run");
        let probes = Probes { count, pod: "exec-*", container: "app-*", period: SELDOM };
        let resident = |way: Way| -> Result<[u64; 2]> {
            let mut probing = Probing::start(self.criprobe, &rig.socket(), way, probes)?;
            probing.wait_until_attempted(&pods)?;
            thread::sleep(SETTLING);
            let resident = [probing.resident()?, rig.accounts(&pods, None).resident()?];
            eprintln!("  {}: {resident:?} bytes in criprobe, and in containerd and its shims", way.title());
            Ok(resident)
        };
        let without = resident(Way::SyncRunc)?;
        let with = resident(Way::SessionRunc)?;
        Ok(Memory { sessions: count, without, with })
    }
}
