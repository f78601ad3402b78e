//! The roster over a restart: what was saved in, and given to the probes that it was saved of; what they are now out, to
//! be saved. Pure, as all of the roster.

use std::time::Instant;

use super::{Moment, ProbeKey, Restoring, Roster, WorkerEvent};
use crate::{
    ids::ContainerId,
    prober::state::{Saved, SavedProbe},
};

impl Roster {
    /// Goes on from what was saved; to be called before the first input.
    pub(in crate::prober) fn restore(&mut self, saved: Saved) {
        self.restoring = Restoring::new(saved);
    }

    /// When [`Roster::save`] is to be called next; none while nothing changed.
    pub(in crate::prober) fn save_deadline(&self) -> Option<Instant> {
        self.saving.deadline()
    }

    /// What a restart is to survive: the checkpoints of the probes, what is paused, and what was saved before and is still
    /// waited for.
    pub(in crate::prober) fn save(&mut self, now: Moment) -> Saved {
        self.saving.take(self.working, now.at);
        self.restoring.forget_late(now.at);
        let (checkpoints, paused) = self.restoring.rest();
        let mut probes: Vec<SavedProbe> = Vec::with_capacity(self.working + checkpoints.len());
        for (key, entry) in &self.entries {
            let checkpoint =
                entry.worker.as_ref().zip(entry.definition).and_then(|(worker, of)| worker.checkpoint(of));
            // One that waits for its container while a former one is looked at still has what was saved of it.
            let checkpoint = checkpoint.or_else(|| checkpoints.get(key).cloned());
            let pause = self.pauses.get(key).cloned();
            if checkpoint.is_some() || pause.is_some() {
                probes.push(SavedProbe { key: key.clone(), pause, checkpoint });
            }
        }
        let is_absent = |key: &ProbeKey| !self.entries.contains_key(key);
        for (key, checkpoint) in checkpoints.iter().filter(|(key, _)| is_absent(key)) {
            let pause = paused.get(key).or_else(|| self.pauses.get(key)).cloned();
            probes.push(SavedProbe { key: key.clone(), pause, checkpoint: Some(checkpoint.clone()) });
        }
        let absent = self.pauses.all().chain(paused);
        for (key, pause) in absent.filter(|(key, _)| is_absent(key) && !checkpoints.contains_key(*key)) {
            probes.push(SavedProbe { key: key.clone(), pause: Some(pause.clone()), checkpoint: None });
        }
        Saved { probes }
    }

    /// Gives a probe its checkpoint on a container from before a restart, if one was saved.
    pub(super) fn restore_checkpoint(&mut self, key: &ProbeKey, container: &ContainerId, now: Moment) {
        let Some(entry) = self.entries.get(key).filter(|entry| entry.worker.is_some()) else { return };
        let Some(definition) = entry.definition else { return };
        if let Some(checkpoint) = self.restoring.take_checkpoint(key, container, definition, now.at) {
            self.send(key, WorkerEvent::Restored(checkpoint), now);
        }
    }

    /// Gives a probe back its pause, if it had one before a restart.
    pub(super) fn restore_pause(&mut self, key: &ProbeKey, now: Moment) {
        if let Some(pause) = self.restoring.take_pause(key, now.at) {
            self.pauses.restore(key, pause, now);
        }
    }
}

#[cfg(test)]
mod tests;
