//! Which probes are paused, since when, until when and why: keys in, whether one is paused out. A pause binds to the key,
//! and so outlives the container and the probe itself. Pure.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use super::Moment;
use crate::ids::ProbeKey;

/// 1,024 pauses are kept of probes that are gone, as they may come back with the next container. Beyond that the one
/// whose probe went first is forgotten.
const MAX_ABSENT: usize = 1024;

/// 256 bytes of an operator's reason: a line of a terminal or two. The API refuses a longer one; of one that was saved, the
/// rest is cut off.
pub(crate) const MAX_REASON: usize = 256;

/// A pause of one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// When it began.
    pub since: SystemTime,
    /// When it ends by itself; none if only an operator ends it.
    pub until: Option<SystemTime>,
    /// The operator's words, at most [`MAX_REASON`] bytes; may be empty.
    pub reason: Arc<str>,
}

/// What an operator asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct PauseTerms {
    /// After how long it ends by itself.
    pub length: Option<Duration>,
    /// As of a pause.
    pub reason: Arc<str>,
}

impl From<SystemTime> for Pause {
    /// One without an end and without a reason.
    fn from(since: SystemTime) -> Self {
        Self { since, until: None, reason: Arc::default() }
    }
}

/// The keys of all paused probes; those that are there, and the last that went.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    keys: HashMap<ProbeKey, Kept>,
    /// When pauses end by themselves.
    ends: BTreeSet<(Instant, ProbeKey)>,
    absent: VecDeque<ProbeKey>,
}

#[derive(Debug)]
struct Kept {
    pause: Pause,
    /// The same moment as its `until`, by the clock that cannot be set.
    ends_at: Option<Instant>,
}

impl Pauses {
    /// Pauses a probe that is there. One that is paused already stays so since then, under the new terms. Returns whether
    /// anything is different now.
    pub(super) fn insert(&mut self, key: &ProbeKey, terms: PauseTerms, now: Moment) -> bool {
        let former = self.remove(key);
        let since = former.as_ref().map_or(now.wall, |former| former.since);
        let until = terms.length.and_then(|length| now.wall.checked_add(length));
        let pause = Pause { since, until, reason: terms.reason };
        let is_new = former.as_ref() != Some(&pause);
        self.restore(key, pause, now);
        is_new
    }

    /// Takes up a pause of before a restart. One whose end has passed ends at once.
    pub(super) fn restore(&mut self, key: &ProbeKey, pause: Pause, now: Moment) {
        let left = pause.until.map(|until| until.duration_since(now.wall).unwrap_or_default());
        let ends_at = left.and_then(|left| now.at.checked_add(left));
        self.ends.extend(ends_at.map(|at| (at, key.clone())));
        self.keys.insert(key.clone(), Kept { pause, ends_at });
    }

    /// The pause of a probe, if it is paused.
    pub(super) fn get(&self, key: &ProbeKey) -> Option<&Pause> {
        self.keys.get(key).map(|kept| &kept.pause)
    }

    /// All of them, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = (&ProbeKey, &Pause)> {
        self.keys.iter().map(|(key, kept)| (key, &kept.pause))
    }

    /// Ends the pause of a probe that is there, and returns it.
    pub(super) fn remove(&mut self, key: &ProbeKey) -> Option<Pause> {
        let Kept { pause, ends_at } = self.keys.remove(key)?;
        if let Some(at) = ends_at {
            self.ends.remove(&(at, key.clone()));
        }
        Some(pause)
    }

    /// When the next pause ends by itself.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.ends.first().map(|(at, _)| *at)
    }

    /// Ends the first pause whose end has passed, and returns its key.
    pub(super) fn take_ended(&mut self, now: Instant) -> Option<ProbeKey> {
        let (_, key) = self.ends.first().filter(|(at, _)| *at <= now)?.clone();
        self.remove(&key);
        self.absent.retain(|other| *other != key);
        Some(key)
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
            self.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ProbeKind;

    const SECOND: Duration = Duration::from_secs(1);

    fn key(name: usize) -> ProbeKey {
        ProbeKey { pod: "p".into(), container: name.to_string().into(), kind: ProbeKind::Liveness }
    }

    #[test]
    fn a_pause_outlives_its_probe_and_the_oldest_of_too_many_is_forgotten() {
        let (mut pauses, now) = (Pauses::default(), Moment::now());
        for name in 0..=MAX_ABSENT {
            pauses.insert(&key(name), PauseTerms::default(), now);
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
    fn a_second_pause_has_its_own_terms_and_does_not_move_the_beginning_of_the_first() {
        let first = Moment::now();
        let later = Moment { at: first.at + SECOND, wall: first.wall + SECOND };
        let mut pauses = Pauses::default();
        let terms = |seconds: u32| PauseTerms { length: Some(seconds * SECOND), reason: "deploy".into() };
        assert!(pauses.insert(&key(1), PauseTerms::default(), first));
        assert!(!pauses.insert(&key(1), PauseTerms::default(), later), "nothing is different");
        assert_eq!(pauses.get(&key(1)), Some(&Pause::from(first.wall)));
        assert!(pauses.insert(&key(1), terms(9), later));
        let bounded =
            Pause { since: first.wall, until: Some(later.wall + 9 * SECOND), reason: "deploy".into() };
        assert_eq!((pauses.get(&key(1)), pauses.get(&key(2))), (Some(&bounded), None));
        assert!(pauses.insert(&key(1), PauseTerms::default(), later));
        assert_eq!(pauses.deadline(), None, "the former end means nothing any more");
        assert_eq!(pauses.remove(&key(1)), Some(Pause::from(first.wall)));
        assert!(pauses.insert(&key(1), PauseTerms::default(), later));
        assert_eq!(pauses.get(&key(1)), Some(&Pause::from(later.wall)));
    }

    #[test]
    fn a_pause_ends_when_its_time_is_over_however_the_clock_is_set_and_whether_its_probe_is_there() {
        let (mut pauses, now) = (Pauses::default(), Moment::now());
        let until =
            |seconds: u32| Pause { until: Some(now.wall + seconds * SECOND), ..Pause::from(now.wall) };
        pauses.restore(&key(1), until(5), now);
        pauses.restore(&key(2), until(3), now);
        let late = Moment { wall: now.wall + 9 * SECOND, ..now };
        pauses.restore(&key(3), until(4), late);
        pauses.leave(&key(2));
        assert_eq!(pauses.deadline(), Some(now.at));
        assert_eq!(pauses.take_ended(now.at), Some(key(3)), "it ended during the restart");
        assert_eq!((pauses.take_ended(now.at), pauses.deadline()), (None, Some(now.at + 3 * SECOND)));
        assert_eq!(pauses.take_ended(now.at + 6 * SECOND), Some(key(2)));
        assert!(pauses.absent.is_empty());
        assert_eq!(pauses.take_ended(now.at + 6 * SECOND), Some(key(1)));
        assert!(pauses.keys.is_empty() && pauses.ends.is_empty());
    }
}
