//! What of a worker outlives a restart, and whether that changed. Pure.

use super::Worker;
use crate::{
    ids::ContainerId,
    prober::{
        Moment,
        state::{Checkpoint, due::Mark},
    },
    results::Results,
    spec::identity::Definition,
};

impl Worker {
    /// Its progress on its container, to be saved; none before that has run. `definition` is that of its spec.
    pub(crate) fn checkpoint(&self, definition: Definition) -> Option<Checkpoint> {
        let target = self.target.as_ref().filter(|target| target.has_run || target.is_restored)?;
        let (run, run_here) = (self.results.run(), self.results.run_here().count);
        Some(Checkpoint {
            container: target.seen.id.clone(),
            definition,
            verdict: self.results.verdict(),
            since: self.results.since(),
            run,
            run_here: (run_here > run.count).then_some(run_here),
            counts: self.results.counts(),
            is_held: self.is_held,
            last: self.results.last().map(Into::into),
            errors: self.errors_saved(),
        })
    }

    /// What of it is worth saving, to be compared with what it is later.
    pub(in crate::prober) fn mark(&self) -> Mark {
        let run = self.results.run();
        Mark {
            container: self.target.as_ref().map(|target| target.seen.id.clone()),
            verdict: self.results.verdict(),
            is_held: self.is_held,
            run,
            threshold: self.threshold(run.verdict),
        }
    }

    /// Begins on another container, or continues where it was on this one before a restart of ours. Returns whether it
    /// continued.
    pub(super) fn take_up(&mut self, container: &ContainerId, now: Moment) -> bool {
        let restored = self.checkpoint.take().filter(|checkpoint| checkpoint.container == *container);
        let is_restored = restored.is_some();
        self.is_held = restored.as_ref().is_some_and(|checkpoint| checkpoint.holds(self.spec.kind));
        (self.is_said_untried, self.own_errors) = (false, 0);
        match restored {
            Some(checkpoint) => {
                // A clock that was set back meanwhile must not make it stand since a time to come.
                let since = checkpoint.since.min(now.wall);
                let last = checkpoint.last.map(|last| last.into_record(now.wall));
                let errors = self.errors_restored(checkpoint.errors, now.wall);
                let run_here = checkpoint.run_here.unwrap_or(checkpoint.run.count);
                let found = (checkpoint.run, run_here, checkpoint.counts);
                self.results = Results::restored(checkpoint.verdict, since, found, (last, errors));
            }
            // One that ran before our restart and never since was replaced while we were away: all starts again, as it
            // does where the former one is gone already.
            None if self.target.as_ref().is_some_and(|target| target.is_restored && !target.has_run) => {
                self.results = Results::new(now.wall);
            }
            None => self.results.start_container(now.wall),
        }
        self.results.limit(self.limits);
        is_restored
    }
}
