//! How far a probe is trusted to give its place back soon: how long its attempts held their places in, a [`Trust`] out.
//! Pure.

use std::time::Duration;

use crate::spec::Handler;

/// 1 s: an attempt that took longer is slow. That is Kubernetes' default timeout, so a probe that is healthy by that default
/// never counts as slow.
pub(super) const SLOW: Duration = Duration::from_secs(1);

/// 64: the longest run of quick attempts that is asked for. With it, a probe that is quick only to be given a place that
/// it can hold for long again must first answer for a minute at a period of a second.
const LONGEST_RUN: u32 = 64;

/// What an attempt does, as far as it matters to how many there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Runs a command through the runtime.
    Exec,
    /// Opens a connection of our own.
    Dial,
}

impl Kind {
    /// What a handler does.
    pub(super) fn of(handler: &Handler) -> Self {
        match handler {
            Handler::Exec { .. } => Self::Exec,
            Handler::TcpSocket { .. } | Handler::HttpGet(_) | Handler::Grpc { .. } => Self::Dial,
        }
    }
}

/// How far a probe is trusted; the less, the fewer places it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trust {
    /// Its last attempt was slow, or was given up, when it was not trusted either.
    Slow,
    /// It has not made an attempt yet, or not enough quick ones since a slow one.
    Unproven,
    /// It answers quickly.
    Proven,
}

/// What is known of one probe's attempts.
///
/// A probe that was trusted and then held its place for long must be quick twice as often as the last time before it is
/// trusted again, up to [`LONGEST_RUN`]; a run of that length makes good for everything. It counts as slow from its second
/// slow attempt on: what is slow may have to wait until the timeouts of others end, and on a busy node any command takes a
/// second once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Quick attempts in a row.
    run: u32,
    /// How many of them make it trusted.
    needed: u32,
    is_slow: bool,
}

impl Default for Record {
    fn default() -> Self {
        Self { run: 0, needed: 1, is_slow: false }
    }
}

impl Record {
    /// Notes how long an attempt held its place.
    pub(super) fn note(&mut self, held: Duration) {
        if held >= SLOW {
            let was_trusted = self.trust_by_run() == Trust::Proven;
            if was_trusted {
                self.needed = (2 * self.needed).min(LONGEST_RUN);
            }
            self.is_slow = !was_trusted;
            self.run = 0;
            return;
        }
        self.is_slow = false;
        self.run = self.run.saturating_add(1);
        if self.run >= LONGEST_RUN {
            self.needed = 1;
        }
    }

    /// How far it is trusted now.
    pub(super) fn trust(&self) -> Trust {
        if self.is_slow { Trust::Slow } else { self.trust_by_run() }
    }

    fn trust_by_run(&self) -> Trust {
        if self.run >= self.needed { Trust::Proven } else { Trust::Unproven }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_trusted_once_it_was_quick_and_not_after_a_slow_attempt() {
        let mut record = Record::default();
        assert_eq!(record.trust(), Trust::Unproven);
        record.note(SLOW);
        assert_eq!(record.trust(), Trust::Slow);
        record.note(SLOW / 2);
        assert_eq!(record.trust(), Trust::Proven, "it never misused a place");
    }

    #[test]
    fn row_04_one_slow_attempt_among_quick_ones_does_not_make_a_probe_wait_for_what_hangs() {
        let mut record = Record::default();
        record.note(Duration::ZERO);
        for trust in [Trust::Unproven, Trust::Slow, Trust::Slow] {
            record.note(SLOW);
            assert_eq!(record.trust(), trust);
        }
    }

    #[test]
    fn quick_attempts_between_slow_ones_count_for_less_and_less() {
        let mut record = Record::default();
        let mut runs = Vec::new();
        for _ in 0..8 {
            let mut run = 0;
            while record.trust() != Trust::Proven {
                record.note(Duration::ZERO);
                run += 1;
            }
            runs.push(run);
            record.note(SLOW);
        }
        // The last run asked for is as long as one that makes good for everything.
        assert_eq!(runs, [1, 2, 4, 8, 16, 32, 64, 2]);
    }
}
