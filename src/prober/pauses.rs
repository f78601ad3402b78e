//! Which probes are paused, and since when: keys in, whether one is paused out. A pause binds to the key, and so outlives the container
//! and the probe itself. Pure.

use std::{
    collections::{HashMap, VecDeque},
    time::SystemTime,
};

use crate::ids::ProbeKey;

/// 1,024 pauses are kept of probes that are gone, as they may come back with the next container. Beyond that the one
/// whose probe went first is forgotten.
const MAX_ABSENT: usize = 1024;

/// The keys of all paused probes, each with the time of its pause; those that are there, and the last that went.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    keys: HashMap<ProbeKey, SystemTime>,
    absent: VecDeque<ProbeKey>,
}

impl Pauses {
    /// Pauses a probe that is there; one that is paused already stays so since then.
    pub(super) fn insert(&mut self, key: &ProbeKey, now: SystemTime) {
        self.keys.entry(key.clone()).or_insert(now);
    }

    /// Since when a probe is paused, if it is.
    pub(super) fn since(&self, key: &ProbeKey) -> Option<SystemTime> {
        self.keys.get(key).copied()
    }

    /// All of them, each with the time of its pause, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = (&ProbeKey, SystemTime)> {
        self.keys.iter().map(|(key, since)| (key, *since))
    }

    /// Ends the pause of a probe that is there.
    pub(super) fn remove(&mut self, key: &ProbeKey) {
        self.keys.remove(key);
    }

    /// Notes that a probe came to be, or came back; returns whether it is paused.
    pub(super) fn enter(&mut self, key: &ProbeKey) -> bool {
        let is_paused = self.keys.contains_key(key);
        if is_paused {
            self.absent.retain(|other| other != key);
        }
        is_paused
    }

    /// Notes that a probe went.
    pub(super) fn leave(&mut self, key: &ProbeKey) {
        if !self.keys.contains_key(key) || self.absent.contains(key) {
            return;
        }
        self.absent.push_back(key.clone());
        if self.absent.len() > MAX_ABSENT
            && let Some(oldest) = self.absent.pop_front()
        {
            self.keys.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ids::ProbeKind;

    fn key(name: usize) -> ProbeKey {
        ProbeKey { pod: "p".into(), container: name.to_string().into(), kind: ProbeKind::Liveness }
    }

    #[test]
    fn a_pause_outlives_its_probe_and_the_oldest_of_too_many_is_forgotten() {
        let mut pauses = Pauses::default();
        for name in 0..=MAX_ABSENT {
            pauses.insert(&key(name), SystemTime::UNIX_EPOCH);
        }
        (0..MAX_ABSENT).for_each(|name| pauses.leave(&key(name)));
        pauses.leave(&key(5));
        pauses.leave(&key(MAX_ABSENT + 5));
        assert!(pauses.enter(&key(1)), "it came back");
        pauses.leave(&key(1));
        assert!(pauses.enter(&key(0)), "as many as there may be");
        pauses.leave(&key(0));
        pauses.leave(&key(MAX_ABSENT));
        assert!(!pauses.enter(&key(2)), "the one that went first");
        assert!([0, 1, 3, MAX_ABSENT].into_iter().all(|name| pauses.enter(&key(name))));
        pauses.remove(&key(1));
        assert!(!pauses.enter(&key(1)));
        assert!(pauses.absent.len() <= MAX_ABSENT && pauses.keys.len() <= MAX_ABSENT);
    }
    #[test]
    fn a_second_pause_does_not_move_the_first() {
        let (first, later) = (SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + Duration::from_secs(1));
        let mut pauses = Pauses::default();
        pauses.insert(&key(1), first);
        pauses.insert(&key(1), later);
        assert_eq!((pauses.since(&key(1)), pauses.since(&key(2))), (Some(first), None));
        pauses.remove(&key(1));
        pauses.insert(&key(1), later);
        assert_eq!(pauses.since(&key(1)), Some(later));
    }
}
