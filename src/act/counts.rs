//! What the stage that acts counts, as metrics. Cheap to clone: all clones count together.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};

use crate::spec::OnFailure;

/// The metrics of acts.
#[derive(Clone, Debug, Default)]
pub struct ActCounts {
    ended: Family<ActLabels, Counter>,
    withheld: Gauge,
}

/// The labels of acts that ended: closed sets, twelve of them at most.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ActLabels {
    action: &'static str,
    result: &'static str,
}

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
        let labels = ActLabels { action: action.as_str(), result: result.as_str() };
        self.ended.get_or_create_owned(&labels).inc();
    }

    /// So many demands are withheld now.
    pub(crate) fn withheld(&self, count: usize) {
        self.withheld.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// The counter of acts and the gauge of withheld demands, for the registry; each kind of act is there from the
    /// start, so that a rate shows its first one.
    pub(crate) fn metrics(&self) -> (Family<ActLabels, Counter>, Gauge) {
        for action in [OnFailure::Stop, OnFailure::Kill, OnFailure::Restart] {
            for result in ActResult::ALL {
                let labels = ActLabels { action: action.as_str(), result: result.as_str() };
                drop(self.ended.get_or_create_owned(&labels));
            }
        }
        (self.ended.clone(), self.withheld.clone())
    }
}
