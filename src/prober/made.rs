//! An attempt as whoever wants to see each of them gets it. Pure.

use std::sync::Arc;

use crate::{
    ids::ProbeKey,
    inventory::pod::Container,
    results::{AttemptRecord, Results, Verdict},
    spec::ProbeSpec,
};

/// An attempt that ended with an outcome.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MadeAttempt {
    /// Of which probe.
    pub key: ProbeKey,
    /// The container that the probe looks at.
    pub view: Arc<Container>,
    /// What it did.
    pub spec: Arc<ProbeSpec>,
    /// What came of it, with as much of what it said as the history keeps.
    pub record: AttemptRecord,
    /// The verdict after it.
    pub state: Verdict,
}

impl MadeAttempt {
    /// The last one of a probe, if there is one.
    pub(super) fn last_of(
        key: &ProbeKey,
        view: &Arc<Container>,
        spec: &Arc<ProbeSpec>,
        results: &Results,
    ) -> Option<Self> {
        let output = results.history().newest_output().cloned().unwrap_or_default();
        Some(Self {
            key: key.clone(),
            view: view.clone(),
            spec: spec.clone(),
            record: AttemptRecord { output, ..results.last()?.clone() },
            state: results.verdict().unwrap_or(Verdict::Unknown),
        })
    }
}
