//! The roster's memory of attempts, and of what they and acts said: limits, and the probe whose attempt ended last, in; what
//! exceeds the bounds on all of them is forgotten. Pure, as all of the roster.

use super::{Entry, Moment, Outputs, ProbeKey, Roster};
use crate::{
    prober::worker::Worker,
    results::{history::HistoryLimits, text::BoundedText},
};

/// What all probes remember.
#[derive(Debug)]
pub(super) struct Memory {
    texts: Outputs,
    pub(super) attempts: Outputs,
    /// What the operator lets each probe keep, where no rule says otherwise.
    limits: HistoryLimits,
}

/// What one probe remembers: bytes of texts, and attempts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Remembered {
    texts: usize,
    attempts: usize,
}

impl Memory {
    pub(super) fn new(limits: HistoryLimits) -> Self {
        Self { texts: Outputs::of_texts(), attempts: Outputs::of_attempts(), limits }
    }

    /// Notes what one probe remembers now, and remembered before.
    pub(super) fn changed(&mut self, before: Remembered, after: Remembered) {
        self.texts.changed(before.texts, after.texts);
        self.attempts.changed(before.attempts, after.attempts);
    }

    /// Changes a probe, and notes what it remembers then.
    fn change(&mut self, worker: &mut Worker, change: impl FnOnce(&mut Worker)) {
        let before = Remembered::of(worker);
        change(worker);
        self.changed(before, Remembered::of(worker));
    }

    /// What exceeds the shares of so many probes goes, of this one.
    fn forget(&mut self, worker: &mut Worker, probes: usize) {
        if let Some(share) = self.attempts.share(probes) {
            self.change(worker, |worker| worker.trim(share));
        }
        if let Some(share) = self.texts.share(probes) {
            self.change(worker, |worker| worker.forget(share));
        }
    }

    fn is_full(&self, probes: usize) -> bool {
        self.attempts.share(probes).is_some() || self.texts.share(probes).is_some()
    }
}

impl Remembered {
    /// That of a probe.
    pub(super) fn of(worker: &Worker) -> Self {
        let results = worker.results();
        Self { texts: results.output_bytes(), attempts: results.attempts_room() }
    }
}

impl Roster {
    /// Keeps in a probe's history what was done because of it.
    pub(super) fn remember_act(&mut self, key: &ProbeKey, text: &BoundedText, now: Moment) {
        let Some(worker) = self.entries.get_mut(key).and_then(|entry| entry.worker.as_mut()) else { return };
        self.memory.change(worker, |worker| worker.note_act(text, now.wall));
        self.forget(key);
    }

    /// Forgets what attempts said where all together said too much, and attempts where there are too many: of the probe that
    /// made one last, and if that is not enough of all. Those that make one after that are the only ones above their
    /// share, so it is enough.
    pub(super) fn forget(&mut self, last: &ProbeKey) {
        if !self.memory.is_full(self.working) {
            return;
        }
        let Self { entries, memory, working, .. } = self;
        if let Some(worker) = entries.get_mut(last).and_then(|entry| entry.worker.as_mut()) {
            memory.forget(worker, *working);
        }
        if memory.is_full(*working) {
            let (texts, attempts) = (memory.texts.share(*working), memory.attempts.share(*working));
            for worker in entries.values_mut().filter_map(|entry| entry.worker.as_mut()) {
                memory.change(worker, |worker| {
                    attempts.into_iter().for_each(|share| worker.trim(share));
                    texts.into_iter().for_each(|share| worker.forget(share));
                });
            }
        }
    }

    /// Lets probes keep so much from now on, where no rule says otherwise.
    pub(super) fn set_history(&mut self, limits: HistoryLimits) {
        if self.memory.limits != limits {
            self.memory.limits = limits;
            let Self { entries, memory, .. } = self;
            entries.values_mut().for_each(|entry| entry.limit(memory));
        }
    }

    /// Lets a probe keep what it may.
    pub(super) fn limit(&mut self, key: &ProbeKey) {
        let Self { entries, memory, .. } = self;
        entries.get_mut(key).into_iter().for_each(|entry| entry.limit(memory));
    }
}

impl Entry {
    /// Lets it keep what its rule says, or else the operator for all.
    pub(super) fn limit(&mut self, memory: &mut Memory) {
        let of_rule = self.planned.history;
        let limits = HistoryLimits {
            attempts: of_rule.attempts.unwrap_or(memory.limits.attempts),
            output_bytes: of_rule.output_bytes.unwrap_or(memory.limits.output_bytes),
        };
        if let Some(worker) = &mut self.worker {
            memory.change(worker, |worker| worker.limit(limits));
        }
    }
}
