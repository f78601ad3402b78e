//! Where the time of a command went that a runtime ran in a container. Plain values.
//!
//! call complete --queue--> added --start--> process runs --run--> exited --drain--> answered

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

/// 500 ms: a command that takes as long is slow, and shown with the reason. The runtime takes 20 to 100 ms to start one, on a
/// busy node several times that, which needs no action. After 500 ms, half of the default timeout of a probe is over.
const SLOW: Duration = Duration::from_millis(500);

/// Whether a command that took so long was slow.
pub(crate) fn is_slow(took: Duration) -> bool {
    took >= SLOW
}

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

/// Where the time of a call went, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// All of it.
    Known(Phases),
    /// Why it is not, and the part that took most, and how long at least, if that is certain.
    Unknown(Unknown, Option<(Part, Duration)>),
}

/// Why phases are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// There never were events.
    NoEvents,
    /// The connection that brings events was away.
    EventsLost,
    /// Marks did not come, or their times are in the wrong order.
    NoMarks,
    /// Its exec may be that of another call, or that of no call.
    Overlap,
    /// Calls passed that were not decoded.
    CallsUnseen,
    /// More than are kept, or for longer than they are.
    TooMany,
    /// An error came so soon that its marks were not awaited.
    Refused,
}

/// The part of a call that took most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Until the runtime took the command up.
    Queue,
    /// Until its process ran: queue and start.
    BeforeRun,
    /// Until its process ended.
    Run,
    /// Until the runtime answered.
    Drain,
}

impl Split {
    /// The phases, if they are known.
    pub fn phases(self) -> Option<Phases> {
        match self {
            Self::Known(phases) => Some(phases),
            Self::Unknown(..) => None,
        }
    }
}

impl Unknown {
    const ALL: [Self; 7] = [
        Self::NoEvents,
        Self::EventsLost,
        Self::NoMarks,
        Self::Overlap,
        Self::CallsUnseen,
        Self::TooMany,
        Self::Refused,
    ];

    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoEvents => "the runtime sends no events about commands",
            Self::EventsLost => "events of the runtime were lost",
            Self::NoMarks => "events of the runtime are missing, or the clock was changed",
            Self::Overlap => "another command in the container cannot be distinguished from it",
            Self::CallsUnseen => "other calls could not be decoded",
            Self::TooMany => "too many commands, or one of more than 10 minutes",
            Self::Refused => "the runtime refused it at once",
        }
    }
}

impl Part {
    const ALL: [Self; 4] = [Self::Queue, Self::BeforeRun, Self::Run, Self::Drain];
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

    /// What took most, and how long.
    pub fn longest(&self) -> (Part, Duration) {
        let [queue, before, run, drain] = Part::ALL.map(|part| self.took(part));
        if before >= run.max(drain) {
            if queue > before - queue { (Part::Queue, queue) } else { (Part::BeforeRun, before) }
        } else if run >= drain {
            (Part::Run, run)
        } else {
            (Part::Drain, drain)
        }
    }

    /// What took most, and how long at least, whichever of these is true.
    pub(crate) fn at_least(each: &[Self]) -> Option<(Part, Duration)> {
        let mut parts = each.iter().map(|phases| phases.longest().0);
        let first = parts.next()?;
        let part = parts.try_fold(first, |part, other| match (part, other) {
            (part, other) if part == other => Some(part),
            (Part::Queue | Part::BeforeRun, Part::Queue | Part::BeforeRun) => Some(Part::BeforeRun),
            _ => None,
        })?;
        Some((part, each.iter().map(|phases| phases.took(part)).min()?))
    }

    fn took(&self, part: Part) -> Duration {
        match part {
            Part::Queue => self.queue,
            Part::BeforeRun => self.queue + self.start.unwrap_or_default(),
            Part::Run => self.run.unwrap_or_default(),
            Part::Drain => self.drain.unwrap_or_default(),
        }
    }
}

/// Where the time of an attempt went, as soon as that is known: a little after its result. Clones are the same. Small, as
/// histories hold 200,000 attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhasesSlot(Arc<OnceLock<[u32; 4]>>);

/// Of a phase that was not reached. Others are in microseconds, 71 minutes at most. All calls reach the first one: in its
/// place it means that they are not known; the numbers of the reason and of the part follow, and how long that took.
const NOT_REACHED: u32 = u32::MAX;

impl PhasesSlot {
    /// Sets it, once it is known, or never will be. The first one counts.
    pub fn set(&self, split: Split) {
        let micros = |took: Duration| u32::try_from(took.as_micros()).unwrap_or(NOT_REACHED - 1);
        let words = match split {
            Split::Known(phases) => [Some(phases.queue), phases.start, phases.run, phases.drain]
                .map(|took| took.map_or(NOT_REACHED, micros)),
            Split::Unknown(why, least) => {
                let (part, took) = least.unzip();
                let part = part.map_or(NOT_REACHED, |part| number(&Part::ALL, part));
                [NOT_REACHED, number(&Unknown::ALL, why), part, took.map_or(0, micros)]
            }
        };
        // An error means that there is one.
        let _ = self.0.set(words);
    }

    /// What is known by now.
    pub fn get(&self) -> Option<Split> {
        let words = *self.0.get()?;
        let took = |micros: u32| (micros != NOT_REACHED).then(|| Duration::from_micros(micros.into()));
        if let [NOT_REACHED, why, part, least] = words {
            let least = numbered(&Part::ALL, part).zip(took(least));
            return Some(Split::Unknown(numbered(&Unknown::ALL, why)?, least));
        }
        let [queue, start, run, drain] = words.map(took);
        Some(Split::Known(Phases { queue: queue?, start, run, drain }))
    }
}

fn number<T: Copy + PartialEq>(all: &[T], one: T) -> u32 {
    let at = all.iter().position(|other| *other == one);
    at.and_then(|at| u32::try_from(at).ok()).unwrap_or(NOT_REACHED)
}

fn numbered<T: Copy>(all: &[T], number: u32) -> Option<T> {
    all.get(usize::try_from(number).ok()?).copied()
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
        slot.set(Split::Known(phases));
        slot.set(Split::Known(Phases::default()));
        assert_eq!(slot.get(), Some(Split::Known(phases)));
        for why in Unknown::ALL {
            let parts = Part::ALL.map(|part| Some((part, millis(700))));
            for least in parts.into_iter().chain([None]) {
                let slot = PhasesSlot::default();
                slot.set(Split::Unknown(why, least));
                assert_eq!(slot.get(), Some(Split::Unknown(why, least)));
            }
        }
    }

    #[test]
    fn what_took_most_at_least_is_true_of_all() {
        let of = |times: [u64; 4]| {
            let [queue, start, run, drain] = times.map(Duration::from_millis);
            Phases { queue, start: Some(start), run: Some(run), drain: Some(drain) }
        };
        for (each, expected) in [
            (vec![], None),
            (vec![[900, 5, 5, 5]], Some((Part::Queue, 900))),
            (vec![[900, 5, 5, 5], [800, 50, 5, 60]], Some((Part::Queue, 800))),
            (vec![[900, 5, 5, 5], [300, 500, 5, 110]], Some((Part::BeforeRun, 800))),
            (vec![[300, 500, 5, 110], [900, 5, 5, 5], [700, 5, 5, 205]], Some((Part::BeforeRun, 705))),
            (vec![[5, 5, 900, 5], [5, 5, 600, 305]], Some((Part::Run, 600))),
            (vec![[5, 5, 5, 900], [5, 5, 300, 605]], Some((Part::Drain, 605))),
            (vec![[900, 5, 5, 5], [5, 5, 900, 5]], None),
            (vec![[5, 5, 5, 900], [5, 5, 900, 5]], None),
        ] {
            let phases: Vec<_> = each.iter().copied().map(of).collect();
            let expected = expected.map(|(part, took)| (part, Duration::from_millis(took)));
            assert_eq!(Phases::at_least(&phases), expected, "{each:?}");
        }
    }
}
