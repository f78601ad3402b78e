//! When to read the configuration after a change: changes in, the moment to read out. Pure: the time is an argument.
//! Files are often written in several steps, and must not be read in between.

use std::time::{Duration, Instant};

/// 200 ms without a further change: then the writer is done.
const QUIET: Duration = Duration::from_millis(200);

/// 1 s after the first change at the latest: a file that is written all the time is read all the same.
const LATEST: Duration = Duration::from_secs(1);

/// What happened since the last reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Debounce(Option<Burst>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Burst {
    first: Instant,
    last: Instant,
}

impl Debounce {
    /// Something changed.
    pub(super) fn on_change(&mut self, now: Instant) {
        let first = self.0.map_or(now, |burst| burst.first);
        self.0 = Some(Burst { first, last: now });
    }

    /// When to read; none while nothing changed.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.map(|burst| (burst.last + QUIET).min(burst.first + LATEST))
    }

    /// What changed so far is about to be read.
    pub(super) fn clear(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn it_waits_for_quiet_but_not_for_ever() {
        let start = clock::now();
        for (changes, deadline, rule) in [
            (&[][..], None, "nothing changed"),
            (&[0], Some(200), "one change"),
            (&[0, 50, 100], Some(300), "a burst: after its last"),
            (&[0, 199, 398, 597, 796, 995], Some(1000), "one that does not end: after its first"),
            (&[0, 1500], Some(1000), "and what comes later does not put it off"),
        ] {
            let mut debounce = Debounce::default();
            changes.iter().for_each(|ms| debounce.on_change(start + Duration::from_millis(*ms)));
            assert_eq!(debounce.deadline(), deadline.map(|ms| start + Duration::from_millis(ms)), "{rule}");
            debounce.clear();
            assert_eq!(debounce, Debounce::default(), "{rule}, and then read");
        }
    }
}
