//! What of a worker outlives a restart, and whether that changed. Pure.

use super::Worker;
use crate::{
    ids::ContainerId,
    prober::state::Checkpoint,
    results::{Run, Verdict},
    spec::identity::Definition,
};

/// What of a worker is worth saving, and where its run leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The container that it looks at.
    pub container: Option<ContainerId>,
    /// The verdict on it.
    pub verdict: Option<Verdict>,
    /// Whether that ended the work on it.
    pub is_held: bool,
    /// The results in a row.
    pub run: Run,
    /// How long such a run must get to be a verdict.
    pub threshold: u32,
}

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
        })
    }

    /// What of it is worth saving, to be compared with what it is later.
    pub(crate) fn mark(&self) -> Mark {
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
