//! Where the time of a command went that a runtime ran in a container. Plain values.
//!
//! call complete --queue--> added --start--> process runs --run--> exited --drain--> answered

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

/// 100 ms: a command that took longer is asked why.
pub(crate) const SLOW: Duration = Duration::from_millis(100);

/// Where the time of a call went. The phases that it did not reach are absent; together they are its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Phases {
    /// Until the runtime took the command up.
    pub queue: Duration,
    /// Until its process ran: the runtime's shim and its OCI runtime at work.
    pub start: Option<Duration>,
    /// Until its process ended.
    pub run: Option<Duration>,
    /// Until the runtime answered: mostly, another process held the output open.
    pub drain: Option<Duration>,
}

/// One phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Until the runtime took the command up.
    Queue,
    /// Until its process ran.
    Start,
    /// Until its process ended.
    Run,
    /// Until the runtime answered.
    Drain,
}

impl Phase {
    /// `queue`, `start`, `run`, `drain`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Start => "start",
            Self::Run => "run",
            Self::Drain => "drain",
        }
    }
}

impl Phases {
    /// The phases that were reached, in order.
    pub fn each(&self) -> impl Iterator<Item = (Phase, Duration)> + use<> {
        let others = [(Phase::Start, self.start), (Phase::Run, self.run), (Phase::Drain, self.drain)];
        let others = others.into_iter().filter_map(|(phase, took)| Some((phase, took?)));
        std::iter::once((Phase::Queue, self.queue)).chain(others)
    }
}

/// Where the phases of an attempt will be, once they are known: a little after its result. Clones are the same. Small, as
/// histories hold 200,000 attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhasesSlot(Arc<OnceLock<[u32; 4]>>);

/// Of a phase that was not reached. Others are in microseconds, 71 minutes at most.
const NOT_REACHED: u32 = u32::MAX;

impl PhasesSlot {
    /// They are known. The first ones count.
    pub fn set(&self, phases: Phases) {
        // An error means that there are some.
        let _ = self.0.set([Some(phases.queue), phases.start, phases.run, phases.drain].map(|took| {
            let micros = |took: Duration| u32::try_from(took.as_micros()).unwrap_or(NOT_REACHED - 1);
            took.map_or(NOT_REACHED, micros)
        }));
    }

    /// They, if they are known by now.
    pub fn get(&self) -> Option<Phases> {
        let took = |micros: u32| (micros != NOT_REACHED).then(|| Duration::from_micros(micros.into()));
        let [queue, start, run, drain] = self.0.get()?.map(took);
        Some(Phases { queue: queue?, start, run, drain })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_comes_back() {
        let slot = PhasesSlot::default();
        assert_eq!(slot.get(), None);
        let millis = Duration::from_millis;
        let phases =
            Phases { queue: millis(5), start: Some(Duration::ZERO), run: Some(millis(600_000)), drain: None };
        slot.set(phases);
        slot.set(Phases::default());
        assert_eq!(slot.get(), Some(phases));
    }
}
