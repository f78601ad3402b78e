//! Rate limit for log lines that many connections would repeat: one per second of each kind. In: moments. Out: whether
//! a line is due, and how many were left out since the last one. Never logs, never waits.

use std::{
    num::NonZero,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use crate::clock;

/// 1 s between two lines of one kind. Lines in between are counted, and the next line contains their number.
const SPACING: Duration = Duration::from_secs(1);

/// When a line of one kind was last written, and how many were left out since.
#[derive(Debug)]
pub(super) struct Notice {
    start: Instant,
    /// The end of the current silence, in milliseconds since `start`.
    silent_until: AtomicU64,
    passed_over: AtomicU64,
}

impl Default for Notice {
    fn default() -> Self {
        Self { start: clock::now(), silent_until: AtomicU64::new(0), passed_over: AtomicU64::new(0) }
    }
}

impl Notice {
    /// Whether a line is due; if so, how many were left out since the last one, if any.
    pub(super) fn due(&self, now: Instant) -> Option<Option<NonZero<u64>>> {
        let now = now.saturating_duration_since(self.start).as_millis() as u64;
        let until = self.silent_until.load(Ordering::Relaxed);
        let next = now + SPACING.as_millis() as u64;
        let is_due = now >= until
            && self.silent_until.compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if !is_due {
            self.passed_over.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(NonZero::new(self.passed_over.swap(0, Ordering::Relaxed)))
    }
}

/// The kinds of line that clients can cause at any rate.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// A connection turned blind while no call was open, as when it carries another protocol.
    pub(super) blind: Notice,
    /// A connection turned blind while calls were open.
    pub(super) blind_in_calls: Notice,
    /// A connection was lost before it started.
    pub(super) lost: Notice,
    /// A client was dropped without a connection to the runtime.
    pub(super) let_go: Notice,
    /// A connection was aborted at the end.
    pub(super) cut: Notice,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line_a_second_and_a_count() {
        let notice = Notice::default();
        let at = |millis| notice.start + Duration::from_millis(millis);
        assert_eq!(notice.due(at(0)), Some(None));
        assert_eq!([1, 500, 999].map(|millis| notice.due(at(millis))), [None; 3]);
        assert_eq!(notice.due(at(1000)), Some(NonZero::new(3)));
        assert_eq!(notice.due(at(5000)), Some(None));
    }
}
