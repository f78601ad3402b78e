//! The roster over a restart: what was saved in, and given to the probes that it was saved of; what they are now out, to
//! be saved. Pure, as all of the roster.

use std::time::Instant;

use super::{Event, Moment, ProbeKey, Restoring, Roster};
use crate::{
    ids::ContainerId,
    prober::saved::{Saved, SavedProbe},
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

    /// What a restart is to survive: where the probes stand, what is paused, and what was saved before and is still
    /// waited for.
    pub(in crate::prober) fn save(&mut self, now: Moment) -> Saved {
        self.saving.take(self.working, now.at);
        self.restoring.forget_late(now.at);
        let (stands, paused) = self.restoring.rest();
        let mut probes: Vec<SavedProbe> = Vec::with_capacity(self.working + stands.len());
        for (key, entry) in &self.entries {
            let stand = entry.worker.as_ref().zip(entry.definition).and_then(|(worker, of)| worker.stand(of));
            // One that waits for its container while a former one is looked at still has what was saved of it.
            let stand = stand.or_else(|| stands.get(key).cloned());
            let paused_since = self.pauses.since(key);
            if stand.is_some() || paused_since.is_some() {
                probes.push(SavedProbe { key: key.clone(), paused_since, stand });
            }
        }
        let is_absent = |key: &ProbeKey| !self.entries.contains_key(key);
        for (key, stand) in stands.iter().filter(|(key, _)| is_absent(key)) {
            let paused_since = paused.get(key).copied().or_else(|| self.pauses.since(key));
            probes.push(SavedProbe { key: key.clone(), paused_since, stand: Some(stand.clone()) });
        }
        let waited_for = paused.iter().map(|(key, since)| (key, *since));
        let absent = self.pauses.all().chain(waited_for);
        for (key, since) in absent.filter(|(key, _)| is_absent(key) && !stands.contains_key(*key)) {
            probes.push(SavedProbe { key: key.clone(), paused_since: Some(since), stand: None });
        }
        Saved { probes }
    }

    /// Gives a probe back where it stood on a container before a restart, if that was saved.
    pub(super) fn restore_stand(&mut self, key: &ProbeKey, container: &ContainerId, now: Moment) {
        let Some(entry) = self.entries.get(key).filter(|entry| entry.worker.is_some()) else { return };
        let Some(definition) = entry.definition else { return };
        if let Some(stand) = self.restoring.take_stand(key, container, definition, now.at) {
            self.tell(key, Event::Restored(stand), now);
        }
    }

    /// Gives a probe back its pause, if it had one before a restart.
    pub(super) fn restore_pause(&mut self, key: &ProbeKey, now: Moment) {
        if let Some(since) = self.restoring.take_pause(key, now.at) {
            self.pauses.insert(key, since);
        }
    }
}

#[cfg(test)]
mod tests;
