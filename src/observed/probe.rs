//! One observed probe: its attempts in, its rhythm and results out. Pure: never does IO, never reads a clock.

use std::time::{Duration, Instant};

use super::{
    attempt::{Attempt, TRIED_AGAIN_WITHIN},
    rhythm::{Fit, Rhythm},
};
use crate::results::{Results, Verdict, history::ChangeReason};

/// A client's own probe.
#[derive(Debug)]
pub(super) struct Probe {
    /// Numbers those of a container, from 1.
    pub(super) number: u32,
    pub(super) rhythm: Rhythm,
    results: Results,
    /// The last attempt, while it may be tried again: only then is its result needed.
    open: Option<Attempt>,
}

impl Probe {
    /// Of attempts that return regularly, oldest first; none of fewer than two.
    pub(super) fn new(number: u32, attempts: Vec<Attempt>) -> Option<Self> {
        let times: Vec<_> = attempts.iter().map(|attempt| (attempt.began, attempt.ended)).collect();
        let rhythm = Rhythm::of(&times)?;
        let results = Results::new(attempts.first()?.at);
        let mut probe = Self { number, rhythm, results, open: None };
        attempts.into_iter().for_each(|attempt| probe.take(attempt));
        Some(probe)
    }

    /// The next attempt was made, and fits so.
    pub(super) fn attempted(&mut self, fit: Fit, attempt: Attempt) {
        self.rhythm.advance(fit, attempt.began, attempt.ended);
        self.take(attempt);
    }

    /// An attempt was made that started its rhythm again.
    pub(super) fn shifted(&mut self, attempt: Attempt) {
        self.rhythm.shift(attempt.began, attempt.ended);
        self.take(attempt);
    }

    /// Whether a call that began then is another try of its last attempt.
    pub(super) fn may_be_tried_again(&self, began: Instant, within: Duration) -> bool {
        self.open.as_ref().is_some_and(|open| open.may_be_tried_again(began, within))
    }

    /// The last attempt was tried again.
    pub(super) fn tried_again(&mut self, next: Attempt) {
        self.rhythm.prolong(next.ended);
        if let Some(open) = &mut self.open {
            open.tried_again(next);
            if !open.is_open() {
                self.settle();
            }
        }
    }

    /// Its results at that moment.
    pub(super) fn results(&mut self, now: Instant) -> &Results {
        let is_over = |open: &Attempt| now.saturating_duration_since(open.ended) > TRIED_AGAIN_WITHIN;
        if self.open.as_ref().is_some_and(is_over) {
            self.settle();
        }
        &self.results
    }

    /// Whether it ended because it has found out all that it is for: a startup probe ends with its first success, and any
    /// other probe goes on.
    pub(super) fn is_done(&mut self, now: Instant) -> bool {
        let results = self.results(now);
        let counts = results.counts();
        results.verdict() == Some(Verdict::Success) && counts.success + counts.warning <= 1
    }

    fn take(&mut self, attempt: Attempt) {
        self.settle();
        self.open = Some(attempt);
        if self.open.as_ref().is_some_and(|attempt| !attempt.is_open()) {
            self.settle();
        }
    }

    /// What the last attempt found holds. The state is that of the last result, as the client's
    /// thresholds are unknown; an error leaves it.
    fn settle(&mut self) {
        let Some(attempt) = self.open.take() else { return };
        let record = attempt.record();
        let at = record.at;
        self.results.record(record, true);
        if let Some(verdict) = attempt.result.verdict() {
            let run = self.results.prolong_run(verdict);
            self.results.set(verdict, ChangeReason::Results(run), at);
        }
    }
}
