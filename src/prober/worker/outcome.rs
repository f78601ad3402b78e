//! What the outcome of an attempt does to its worker: steps 11 to 16 of the kubelet's, and when the next attempt is due. Pure.

use std::time::Duration;

use super::{Attempt, Flight, Worker, event::Action};
use crate::{
    ids::ProbeKind,
    prober::{Moment, attempt::AttemptOutcome, timing::tick_after, trust::SLOW},
    results::{AttemptRecord, AttemptResult, Verdict, event::Notice, history::ChangeReason},
};

/// How an attempt of ours ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::prober) enum Ended {
    /// With a result, which is in the history.
    WithResult,
    /// Without one: it panicked, was given up, or its container was paused meanwhile.
    GivenUp,
}

impl Worker {
    pub(super) fn judge(&mut self, outcome: &AttemptOutcome, now: Moment, actions: &mut Vec<Action>) {
        match self.flight.take() {
            Some(Flight::Own(attempt)) if !attempt.is_void => {
                self.settle(outcome, &attempt, now, actions);
                self.flight = Some(Flight::Judged(attempt));
            }
            other => self.flight = other,
        }
    }

    pub(super) fn finish(&mut self, outcome: Option<AttemptOutcome>, now: Moment, actions: &mut Vec<Action>) {
        let triggered = self.triggered.take();
        let (attempt, outlasted) = match self.flight.take() {
            Some(Flight::Own(attempt)) => (attempt, Duration::ZERO),
            // Its timeout was over before the runtime answered: not quick, however short the timeout.
            Some(Flight::Judged(attempt)) => (attempt, SLOW),
            Some(Flight::Foreign) | None => return,
        };
        self.record.note(now.at.saturating_duration_since(attempt.began.at).max(outlasted));
        // An attempt that panicked, or was given up, changes nothing (docs/kubelet-prober.md 3.6). Nor does one whose
        // container was paused meanwhile: a frozen process does not answer.
        if let Some(outcome) = outcome.filter(|_| outlasted.is_zero() && !attempt.is_void) {
            self.settle(&outcome, &attempt, now, actions);
        } else if outlasted.is_zero() {
            self.ended = Some((attempt.began.at, Ended::GivenUp));
        }
        let is_current = self.is_current(&attempt);
        // Another container has its own first attempt; the same one has its next at the next tick that is to come:
        // those that passed meanwhile are dropped, not caught up.
        if let Some(next) = self.next.filter(|_| is_current) {
            let due = next.checked_sub(attempt.beat).unwrap_or(next);
            let tick = tick_after(due, self.spacing(now.at), now.at);
            self.next = Some(triggered.map_or(tick, |from| from.max(now.at).min(tick)));
        }
    }

    fn settle(
        &mut self,
        outcome: &AttemptOutcome,
        attempt: &Attempt,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        let Attempt { container, began, lag, is_forgiven, is_fresh, .. } = attempt;
        let is_current = self.is_current(attempt);
        self.unanswered = if outcome.is_unanswered { self.unanswered.saturating_add(1) } else { 0 };
        // Section 5: what each result reports; every failing attempt does, also below its threshold. An outage of the runtime
        // is one event, not one of each probe.
        let said = outcome.output.clone();
        let notice = match outcome.result {
            AttemptResult::Success => None,
            AttemptResult::Warning => Some(Notice::Warned { output: said }),
            AttemptResult::Failure => Some(Notice::Failed { output: said }),
            AttemptResult::Error if outcome.is_outage => None,
            AttemptResult::Error => Some(Notice::Errored { state: outcome.error_state, error: said }),
        };
        let record = AttemptRecord {
            at: began.wall,
            result: outcome.result,
            duration: now.at.saturating_duration_since(began.at),
            lag: Some(*lag),
            exit_code: outcome.exit_code,
            status: outcome.status,
            container_attempt: Some(attempt.container_attempt),
            is_first: false,
            output: outcome.output.shared(),
            phases: outcome.phases.clone(),
            route: outcome.route,
        };
        let errors = self.results.errors();
        self.results.record(record, is_current);
        self.ended = Some((began.at, Ended::WithResult));
        actions.extend(notice.map(|notice| Action::Report(container.clone(), notice)));
        self.own_errors = match outcome.result {
            AttemptResult::Error => self.own_errors.saturating_add(u32::from(!outcome.is_outage)),
            _ => 0,
        };
        let is_own = self.own_errors >= self.spec.failure_threshold;
        let turned = match (self.is_said_untried, self.cannot_try()) {
            (false, true) if is_own && !outcome.is_outage => {
                self.is_said_untried = true;
                let count = self.results.errors().map_or(0, |errors| errors.count);
                Some(Notice::CannotBeTried { count, error: outcome.output.clone() })
            }
            (true, false) => {
                self.is_said_untried = false;
                errors.map(|errors| Notice::TriedAgain { count: errors.count })
            }
            (false | true, false | true) => None,
        };
        actions.extend(turned.map(|notice| Action::Report(container.clone(), notice)));

        // Step 11: an error is thrown away; it does not even break a run. Neither does what a pause or an act
        // overtook.
        let is_overtaken = self.is_paused || self.is_acted_on;
        let Some(verdict) = outcome.result.verdict().filter(|_| !is_overtaken) else { return };
        // Ours, and Docker's: a failure while it starts is reported, and does not count.
        if *is_forgiven && verdict == Verdict::Failure {
            return;
        }
        // The kubelet's worker sees nothing that happens while it probes, and sets the verdict of what was; ours has seen it
        // already, so what comes late says nothing of a container that is replaced, ended, or being stopped.
        let counts = is_current && self.stopping.is_none() && self.is_running();
        self.note_fresh(verdict, *is_fresh && counts);
        // Step 12, metrics, is the results' part. Step 13: equal results prolong the run, others begin one.
        let run = self.results.prolong_run(verdict);
        // Step 14: below its threshold a run changes nothing.
        let is_threshold_reached = run >= self.threshold(verdict);
        if is_threshold_reached {
            // Step 15.
            let why = ChangeReason::of_run(run, self.results.run_here().count);
            if counts && self.results.set(verdict, why, now.wall) {
                let notice = Notice::VerdictChanged { to: verdict, after: why };
                actions.push(Action::Report(container.clone(), notice));
            }
            self.end_run(verdict, counts);
        }
        if verdict == Verdict::Failure && counts {
            self.demand(is_threshold_reached, actions);
        }
    }

    /// Step 16: a verdict that ends the kubelet's work on this container ends its run. Ours goes on after a failure until
    /// an act on the container begins: where the verdict only reports, the container is not replaced, and may recover.
    fn end_run(&mut self, verdict: Verdict, counts: bool) {
        match (self.spec.kind, verdict) {
            (ProbeKind::Startup, Verdict::Success) => {
                self.is_held |= counts;
                self.results.reset_run();
            }
            (ProbeKind::Startup | ProbeKind::Liveness, Verdict::Failure) => self.results.restart_run(),
            (ProbeKind::Liveness, Verdict::Success) | (ProbeKind::Readiness, _) | (_, Verdict::Unknown) => {}
        }
    }

    /// Whether an attempt is on the container seen last.
    fn is_current(&self, attempt: &Attempt) -> bool {
        self.target.as_ref().is_some_and(|target| target.seen.id == attempt.container)
    }

    /// The length of a run that makes a verdict.
    pub(super) fn threshold(&self, verdict: Verdict) -> u32 {
        match verdict {
            Verdict::Success => self.spec.success_threshold,
            Verdict::Failure | Verdict::Unknown => self.spec.failure_threshold,
        }
    }
}
