//! What of a worker outlives a restart, and whether that changed. Pure.

use super::Worker;
use crate::{
    prober::state::{Checkpoint, due::Mark},
    spec::identity::Definition,
};

impl Worker {
    /// Its progress on its container, to be saved; none before that has run. `definition` is that of its spec.
    pub(crate) fn checkpoint(&self, definition: Definition) -> Option<Checkpoint> {
        let target = self.target.as_ref().filter(|target| target.has_run || target.is_restored)?;
        Some(Checkpoint {
            container: target.seen.id.clone(),
            definition,
            verdict: self.results.verdict(),
            since: self.results.since(),
            run: self.results.run(),
            counts: self.results.counts(),
            is_held: self.is_held,
            last: self.results.last().map(Into::into),
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
}
