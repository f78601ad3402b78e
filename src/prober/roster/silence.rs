//! Probes whose exec attempts the runtime did not answer, and so are spaced out: ends of attempts, and that the runtime is
//! there again, in; those that go on at their own pace out. Pure, as all of the roster.

use std::{collections::HashSet, time::Instant};

use super::{AttemptOutcome, Moment, ProbeKey, Roster, Worker, WorkerEvent};
use crate::{results::AttemptResult, spec::Handler};

/// The probes that were not answered while none was. One whose own container alone hangs is not among them: that the
/// runtime answers others says nothing of it.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// When the runtime last answered an attempt.
    answered: Option<Instant>,
    probes: HashSet<ProbeKey>,
}

impl Roster {
    /// Notes how an attempt that was in flight since then ended. An answer lets those go on that were not answered while
    /// none was.
    pub(super) fn heed_silence(&mut self, key: &ProbeKey, outcome: Option<&AttemptOutcome>, now: Moment) {
        let worker = self.entries.get(key).and_then(|entry| entry.worker.as_ref());
        let is_exec = |worker: &&Worker| matches!(worker.spec().handler, Handler::Exec { .. });
        let Some(began) = worker.filter(is_exec).and_then(Worker::flight_since) else { return };
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
