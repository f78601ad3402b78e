//! What of a worker outlives a restart, and whether that changed. Pure.

use super::Worker;
use crate::{
    ids::ContainerId,
    prober::saved::Stand,
    results::{Run, Verdict},
    spec::identity::Definition,
};

/// What of a worker is worth saving, and where its run leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
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
    /// Where it stands on its container, to be saved; none before that has run. `definition` is that of its spec.
    pub fn stand(&self, definition: Definition) -> Option<Stand> {
        let target = self.target.as_ref().filter(|target| target.has_run || target.is_restored)?;
        Some(Stand {
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
    pub fn mark(&self) -> Mark {
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
