//! Which operator commands are logged one by one, so that a client of the API cannot flood the log: commands and the
//! passing of minutes in, what to log out. Never logs, never reads a clock.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// 100 commands are logged one by one, as when a script pauses the probes of a node; of further ones only the number.
const MOST: u32 = 100;

/// 6 more may be logged with each minute that passes, up to [`MOST`].
const MORE_PER_MINUTE: u32 = 6;

/// Counts commands; clones are the same.
#[derive(Clone, Debug)]
pub(super) struct CommandLog(Arc<Mutex<Counts>>);

#[derive(Debug)]
struct Counts {
    /// How many may still be logged.
    left: u32,
    /// How many were not, since that was logged last.
    unlogged: u64,
}

impl CommandLog {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Counts { left: MOST, unlogged: 0 })))
    }

    /// Counts a command; whether it is to be logged.
    pub(super) fn admit(&self) -> bool {
        let mut counts = self.counts();
        match counts.left.checked_sub(1) {
            Some(left) => {
                counts.left = left;
                true
            }
            None => {
                counts.unlogged += 1;
                false
            }
        }
    }

    /// A minute has passed. How many commands were not logged in it.
    pub(super) fn minute(&self) -> u64 {
        let mut counts = self.counts();
        counts.left = (counts.left + MORE_PER_MINUTE).min(MOST);
        mem::take(&mut counts.unlogged)
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_a_few_are_logged_each_minute() {
        let log = CommandLog::new();
        let admitted = |commands: u32| (0..commands).filter(|_| log.admit()).count() as u32;
        assert_eq!(admitted(MOST), MOST);
        assert_eq!(admitted(17_000), 0);
        assert_eq!(log.minute(), 17_000);
        assert_eq!(admitted(10), MORE_PER_MINUTE);
        assert_eq!(log.minute(), 4);
        for _ in 0..100 {
            assert_eq!(log.minute(), 0);
        }
        assert_eq!(admitted(MOST + 1), MOST, "after a quiet time as at first");
    }
}
