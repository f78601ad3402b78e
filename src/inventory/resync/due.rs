//! When the lists are read next: requests in, one moment out. However many requests there are, only two moments are
//! kept. Pure.

use std::time::{Duration, Instant};

/// 100 ms: the minimum between the starts of two lists, however many requests there are.
const SPACING: Duration = Duration::from_millis(100);

/// 2 s: how long the runtime may still work on a call that ended without an answer.
const SETTLING: Duration = Duration::from_secs(2);

/// The moments at which the lists are requested.
#[derive(Debug, Default)]
pub(super) struct Due {
    earliest: Option<Instant>,
    /// When the latest call without an answer has settled.
    settled: Option<Instant>,
    /// Not before this, because a list has just started.
    spaced: Option<Instant>,
}

impl Due {
    /// Requests them at this moment.
    pub(super) fn at(&mut self, at: Instant) {
        self.earliest = Some(self.earliest.map_or(at, |earliest| earliest.min(at)));
    }

    /// Requests them when current operations have settled.
    pub(super) fn after(&mut self, now: Instant) {
        self.settled = Some(now + SETTLING);
    }

    /// When they are due next.
    pub(super) fn next(&self) -> Option<Instant> {
        let wanted = [self.earliest, self.settled].into_iter().flatten().min()?;
        Some(self.spaced.map_or(wanted, |spaced| spaced.max(wanted)))
    }

    /// They are being read now, which satisfies all requests until now.
    pub(super) fn start(&mut self, now: Instant) {
        self.earliest = self.earliest.filter(|at| *at > now);
        self.settled = self.settled.filter(|at| *at > now);
        self.spaced = Some(now + SPACING);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_wish_counts_and_a_start_grants_all_until_then() {
        let start = crate::clock::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut due = Due::default();
        assert_eq!(due.next(), None);
        due.at(at(30_000));
        due.at(at(10_000));
        due.at(at(20_000));
        assert_eq!(due.next(), Some(at(10_000)));
        due.start(at(10_000));
        assert_eq!(due.next(), None);
    }

    #[test]
    fn what_has_to_settle_is_asked_for_now_and_later() {
        let start = crate::clock::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut due = Due::default();
        due.at(at(0));
        due.after(at(0));
        due.start(at(0));
        assert_eq!(due.next(), Some(at(2_000)));
        due.after(at(500));
        assert_eq!(due.next(), Some(at(2_500)), "the latest has to settle, too");
    }

    #[test]
    fn a_flood_of_wishes_is_spaced_out() {
        let start = crate::clock::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut due = Due::default();
        due.start(at(0));
        (1..1_000).for_each(|micros| due.at(start + Duration::from_micros(micros)));
        assert_eq!(due.next(), Some(at(100)));
    }
}
