//! Which probes wait for a place for too long: since when each waits in, whether any is late, and news of that, out. Pure.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use super::schedule::Schedule;
use crate::ids::ProbeKey;

/// 2 periods: a probe that waits longer for a place has missed two of its turns.
const PATIENCE: u32 = 2;

/// 30 s: how long no probe must be late before that is over, so that a log that is written once at the beginning and
/// once at the end gets two lines in that time at most.
const OVER: Duration = Duration::from_secs(30);

/// The probes that wait for a place. As many as there are probes at most.
#[derive(Debug, Default)]
pub(super) struct Lateness {
    /// When those that wait will be late.
    waiting: Schedule,
    late: HashSet<ProbeKey>,
    /// Since when the places do not suffice, and the most that were late at once since then.
    trouble: Option<(Instant, usize)>,
    /// Since when none is late, while that is not over.
    relief: Option<Instant>,
}

/// What is worth a line in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LatenessNews {
    /// Probes began to be late.
    Began,
    /// No probe is late any more.
    Ended {
        /// How long probes were late.
        lasted: Duration,
        /// The most at once.
        most: usize,
    },
}

/// Whether a probe of this beat that waits for so long is late.
pub(super) fn is_late(waited: Duration, beat: Duration) -> bool {
    waited > beat.saturating_mul(PATIENCE)
}

impl Lateness {
    /// Notes since when a probe waits for a place, if it does.
    pub(super) fn note(&mut self, key: &ProbeKey, waits_since: Option<Instant>, beat: Duration) {
        if waits_since.is_none() {
            self.late.remove(key);
        }
        let late_at = waits_since.filter(|_| !self.late.contains(key));
        self.waiting.set(key, late_at.map(|since| since + beat.saturating_mul(PATIENCE)));
    }

    /// When [`Lateness::news`] may have some next.
    pub(super) fn deadline(&mut self) -> Option<Instant> {
        let over = self.relief.map(|since| since + OVER);
        [self.waiting.deadline(), over].into_iter().flatten().min()
    }

    pub(super) fn news(&mut self, now: Instant) -> Option<LatenessNews> {
        while let Some(key) = self.waiting.take_due(now) {
            self.late.insert(key);
        }
        match (&mut self.trouble, self.late.len()) {
            (None, 0) => None,
            (None, late) => {
                self.trouble = Some((now, late));
                Some(LatenessNews::Began)
            }
            (Some((since, most)), 0) => {
                let relief = *self.relief.get_or_insert(now);
                if now.saturating_duration_since(relief) < OVER {
                    return None;
                }
                let lasted = relief.saturating_duration_since(*since);
                let news = LatenessNews::Ended { lasted, most: *most };
                (self.trouble, self.relief) = (None, None);
                Some(news)
            }
            (Some((_, most)), late) => {
                *most = late.max(*most);
                self.relief = None;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock, ids::ProbeKind};

    const SECOND: Duration = Duration::from_secs(1);

    fn key(pod: &str) -> ProbeKey {
        ProbeKey { pod: pod.into(), container: "app".into(), kind: ProbeKind::Liveness }
    }

    #[test]
    fn the_first_that_is_late_is_news_and_that_nobody_was_for_a_while() {
        let (mut lateness, began) = (Lateness::default(), clock::now());
        let at = |seconds: u64| began + Duration::from_secs(seconds);
        lateness.note(&key("a"), Some(began), SECOND);
        lateness.note(&key("b"), Some(began), 5 * SECOND);
        assert_eq!((lateness.news(at(1)), lateness.deadline()), (None, Some(at(2))));
        assert_eq!(lateness.news(at(2)), Some(LatenessNews::Began));
        lateness.note(&key("a"), Some(began), SECOND);
        assert_eq!((lateness.news(at(3)), lateness.deadline()), (None, Some(at(10))));
        assert_eq!(lateness.news(at(10)), None, "one more is no news");
        lateness.note(&key("a"), None, SECOND);
        lateness.note(&key("b"), None, SECOND);
        assert_eq!((lateness.news(at(11)), lateness.deadline()), (None, Some(at(41))));
        lateness.note(&key("a"), Some(at(12)), SECOND);
        assert_eq!(lateness.news(at(14)), None, "again, and it was not over");
        lateness.note(&key("a"), None, SECOND);
        assert_eq!((lateness.news(at(15)), lateness.news(at(44))), (None, None));
        assert_eq!(lateness.news(at(45)), Some(LatenessNews::Ended { lasted: 13 * SECOND, most: 2 }));
        assert_eq!((lateness.news(at(46)), lateness.deadline()), (None, None));
    }

    #[test]
    fn a_probe_that_got_its_place_in_time_was_never_late() {
        let (mut lateness, began) = (Lateness::default(), clock::now());
        lateness.note(&key("a"), Some(began), SECOND);
        lateness.note(&key("a"), None, SECOND);
        assert_eq!((lateness.news(began + 9 * SECOND), lateness.deadline()), (None, None));
    }
}
