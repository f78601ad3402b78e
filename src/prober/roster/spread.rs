//! First attempts that are put off, so that not all come at once; and those of probes that go on after a restart, which come
//! early, so that what they found before is not shown for long. Pure, as all of the roster.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use super::{Entry, Moment, ProbeKey, Roster, Worker, WorkerEvent, lane};

/// 10 s: first attempts that find too many others of their namespace waiting are spread over one period, and over so long at
/// most: 5,000 probes are 500 a second.
pub(super) const SPREAD: Duration = Duration::from_secs(10);

/// 20 s: a probe that goes on after a restart of ours, and whose next attempt is later than this, is tried once before,
/// within [`SPREAD`]: what it found before the restart may be long out of date.
const FAR: Duration = Duration::from_secs(20);

/// 1 s: a probe that is looked at later than this after it was due shows that the process stood still.
const STOOD_STILL: Duration = Duration::from_secs(1);

impl Roster {
    /// What is done about an attempt that is due, if it is to be put off.
    pub(super) fn put_off(&self, key: &ProbeKey, now: Moment) -> Option<WorkerEvent> {
        let entry = self.entries.get(key)?;
        let worker = entry.worker.as_ref().filter(|worker| self.is_to_be_spread(entry, worker, now))?;
        let beat = worker.beat(now.at);
        let over = if worker.wants_jitter(now) { beat } else { beat.min(SPREAD) };
        let by = self.offset(key, over);
        Some(if entry.is_restored && by > FAR {
            WorkerEvent::TryEarly { after: self.offset(key, SPREAD), then: by }
        } else {
            WorkerEvent::Spread(by)
        })
    }

    /// Whether an attempt that is due is put off to some time within its period: one of a container that was there
    /// before us; and the first of a container, or one that the whole process was late for, if too many come at once.
    fn is_to_be_spread(&self, entry: &Entry, worker: &Worker, now: Moment) -> bool {
        let late = worker.next().map_or(Duration::ZERO, |due| now.at.saturating_duration_since(due));
        let may_spread = worker.may_spread() || late > STOOD_STILL;
        let is_crowded = || self.pool.is_crowded(&entry.view.pod.namespace, lane(worker));
        worker.wants_jitter(now) || (may_spread && is_crowded())
    }

    /// A share of the time from one attempt to the next, the same for the same seed and key.
    pub(super) fn offset(&self, key: &ProbeKey, beat: Duration) -> Duration {
        let mut hasher = DefaultHasher::new();
        (self.seed, key).hash(&mut hasher);
        let share = f64::from(u32::try_from(hasher.finish() >> 32).unwrap_or_default()) / 2f64.powi(32);
        beat.mul_f64(share)
    }
}
