//! Probes whose exec attempts the runtime did not answer, and so are spaced out: ends of attempts, and that the runtime is
//! there again, in; those that go on at their own pace out. Pure, as all of the roster.

use std::{
    collections::HashSet,
    time::{Duration, Instant, SystemTime},
};

use super::{AttemptOutcome, Moment, ProbeKey, Roster, Worker, WorkerEvent};
use crate::results::AttemptResult;

/// The probes that were not answered while none was. One whose own container alone hangs is not among them: that the
/// runtime answers others says nothing of it.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// When the runtime last answered an attempt.
    answered: Option<Instant>,
    /// Since when the runtime is away, if it is.
    pub(super) away: Option<SystemTime>,
    probes: HashSet<ProbeKey>,
}

impl Roster {
    /// Notes how an attempt that was in flight since then ended. An answer lets those go on that were not answered while
    /// none was.
    pub(super) fn heed_silence(&mut self, key: &ProbeKey, outcome: Option<&AttemptOutcome>, now: Moment) {
        let worker = self.entries.get(key).and_then(|entry| entry.worker.as_ref());
        let Some(began) = worker.filter(|worker| worker.runs_command()).and_then(Worker::flight_since) else {
            return;
        };
        match outcome {
            Some(outcome) if outcome.is_unanswered => {
                if self.silence.answered.is_none_or(|at| at < began) {
                    self.silence.probes.insert(key.clone());
                }
            }
            Some(outcome) if outcome.result != AttemptResult::Error => {
                self.silence.answered = Some(now.at);
                for key in std::mem::take(&mut self.silence.probes) {
                    self.resume_pace(&key, now);
                }
            }
            Some(_) | None => {}
        }
    }

    /// How an attempt ended, if it did not panic and was not given up; `gave_way`: it held its place for so long, and others
    /// needed that. What goes wrong with a command while the runtime is away is of the outage.
    pub(super) fn in_outage(
        &self,
        key: &ProbeKey,
        outcome: Option<AttemptOutcome>,
        gave_way: Option<Duration>,
    ) -> Option<AttemptOutcome> {
        let worker = self.entries.get(key).and_then(|entry| entry.worker.as_ref());
        let is_away = self.silence.away.is_some() && worker.is_some_and(Worker::runs_command);
        let outcome = outcome.or_else(|| gave_way.map(|held| AttemptOutcome::gave_way(held, is_away)))?;
        Some(AttemptOutcome { is_outage: outcome.is_outage || is_away, ..outcome })
    }

    /// The runtime is there again: every probe goes on at its own pace.
    pub(super) fn runtime_answers(&mut self, now: Moment) {
        self.silence.probes.clear();
        for key in self.entries.keys().cloned().collect::<Vec<_>>() {
            self.resume_pace(&key, now);
        }
    }

    /// Spread over the time from one attempt to the next, so that not all of them come at once.
    fn resume_pace(&mut self, key: &ProbeKey, now: Moment) {
        let worker = self.entries.get(key).and_then(|entry| entry.worker.as_ref());
        if let Some(by) = worker.map(|worker| self.offset(key, worker.beat(now.at))) {
            self.send(key, WorkerEvent::RuntimeAnswers(by), now);
        }
    }
}
