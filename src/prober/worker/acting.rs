//! When a probe asks for an act on its container, and how an act in progress holds it. Pure.

use super::{Flight, Worker, event::Action};
use crate::{ids::ProbeKind, results::Verdict};

impl Worker {
    /// An act on the container began, or was given up. It ends the run, as step 16 does at a kubelet. What is found out while
    /// the container is being stopped says nothing, and one that was not stopped after all has to fail again.
    pub(super) fn set_acted_on(&mut self, is_acted_on: bool) {
        match (self.is_acted_on, is_acted_on) {
            (false, true) => self.results.reset_run(),
            (true, false) => self.stale(),
            (false, false) | (true, true) => {}
        }
        self.is_acted_on = is_acted_on;
    }

    /// Makes the failures so far, and that of the attempt in flight, no reason to act: something happened since that may
    /// have mended the container, or may have been their cause. The verdict and its run go on.
    pub(super) fn stale(&mut self) {
        self.fresh = 0;
        if let Some(Flight::Own(attempt) | Flight::Judged(attempt)) = &mut self.flight {
            attempt.is_fresh = false;
        }
    }

    /// Counts the failures in a row from fresh attempts. `counts`: this attempt is one, and says something of the container.
    pub(super) fn note_fresh(&mut self, verdict: Verdict, counts: bool) {
        match verdict {
            Verdict::Failure if counts => self.fresh = self.fresh.saturating_add(1),
            Verdict::Failure => {}
            Verdict::Success | Verdict::Unknown => self.fresh = 0,
        }
    }

    /// Asks for an act after a failure that counts, if there are enough fresh ones: as soon as there are, and each time
    /// that a run reaches its threshold.
    pub(super) fn demand(&self, is_threshold_reached: bool, actions: &mut Vec<Action>) {
        let is_first = self.fresh == self.spec.failure_threshold;
        if self.spec.kind != ProbeKind::Readiness && self.is_failing() && (is_first || is_threshold_reached) {
            actions.push(Action::Demand { failures: self.fresh });
        }
    }

    /// Whether the verdict is failure, from fresh attempts on this container.
    pub(in crate::prober) fn is_failing(&self) -> bool {
        self.results.verdict() == Some(Verdict::Failure) && self.fresh >= self.spec.failure_threshold
    }

    /// Whether an act on its container is in progress.
    pub(in crate::prober) fn is_acted_on(&self) -> bool {
        self.is_acted_on
    }
}
