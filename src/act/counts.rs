//! What the stage that acts counts. Cheap to clone: all clones count together.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::spec::OnFailure;

/// The acts that ended, by action and result, and those that are withheld.
#[derive(Clone, Debug, Default)]
pub struct ActCounts(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    ended: [[AtomicU64; ActResult::ALL.len()]; ACTIONS.len()],
    withheld: AtomicU64,
}

/// What is counted; a failure that is only reported is no act.
const ACTIONS: [OnFailure; 3] = [OnFailure::Stop, OnFailure::Kill, OnFailure::Restart];

/// How an act ended, as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActResult {
    /// What was asked for was done.
    Done,
    /// A step failed: each try of a restart counts.
    Failed,
    /// A client took the container over, or the act could not begin.
    GivenUp,
    /// It was only reported.
    DryRun,
}

impl ActResult {
    const ALL: [Self; 4] = [Self::Done, Self::Failed, Self::GivenUp, Self::DryRun];

    fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::GivenUp => "given_up",
            Self::DryRun => "dry_run",
        }
    }
}

impl ActCounts {
    /// Counts an act that ended.
    pub(crate) fn ended(&self, action: OnFailure, result: ActResult) {
        let results = ACTIONS.iter().position(|known| *known == action).map(|at| &self.0.ended[at]);
        let count = ActResult::ALL.iter().position(|known| *known == result).zip(results);
        if let Some((at, results)) = count {
            results[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// So many demands are withheld now.
    pub(crate) fn withheld(&self, count: usize) {
        self.0.withheld.store(count as u64, Ordering::Relaxed);
    }

    /// Each action and result with how many acts ended so, also where none did, so that a rate shows the first one.
    pub(crate) fn all(&self) -> impl Iterator<Item = ([&'static str; 2], u64)> {
        ACTIONS.iter().zip(&self.0.ended).flat_map(|(action, results)| {
            ActResult::ALL
                .iter()
                .zip(results)
                .map(|(result, count)| ([action.as_str(), result.as_str()], count.load(Ordering::Relaxed)))
        })
    }

    /// How many demands are withheld now.
    pub(crate) fn withheld_now(&self) -> u64 {
        self.0.withheld.load(Ordering::Relaxed)
    }
}
