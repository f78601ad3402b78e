//! Acts on verdicts of failure where definitions ask for it and the operator allows it: demands of the prober in; stopped
//! and restarted containers, and events, out. Never judges a container: the prober does.
//!
//! `guard` decides which demands begin, and `back_off` when a container may come back: pure. `perform` carries an act out,
//! and `ledger` has each step on record before it is taken. `task` is the loop around them.

mod back_off;
mod board;
pub(crate) mod counts;
mod grace;
mod guard;
mod hook;
pub(crate) mod ledger;
mod perform;
pub(crate) mod recipe;
pub(crate) mod status;
mod task;

use std::{sync::Arc, time::Duration};

use tokio::sync::{mpsc, watch};

#[cfg(feature = "faults")]
pub use self::recipe::rebuilt::{Remade, remake_for_test};
use self::{counts::ActResult, guard::GuardSettings};
pub(crate) use self::{
    status::ActsStatus,
    task::{Deps, spawn},
};
use crate::{
    ids::{ContainerId, PodUid},
    prober::demand::Demand,
    results::event::ProbeEvent,
    spec::{OnFailure, acting::RestartOnExit},
};

/// 1,024 demands are on their way at most. Further ones are dropped: they come again.
const DEMANDS: usize = 1024;

/// The operator's part of how the stage acts. All of it may change while it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ActSettings {
    /// Whether anything may act.
    pub is_enabled: bool,
    /// Acts that begin within any 60 s at most.
    pub max_per_minute: usize,
    /// Acts in progress at once at most.
    pub max_concurrent: usize,
    /// How long a container has to end, where neither its probe nor its pod says so.
    pub grace: Duration,
    /// Whether containers that exit by themselves are restarted.
    pub restart_on_exit: RestartOnExit,
}

impl ActSettings {
    fn budget(&self) -> GuardSettings {
        GuardSettings { max_per_minute: self.max_per_minute, max_concurrent: self.max_concurrent }
    }
}

/// A handle to the stage. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ActHandle {
    status: watch::Receiver<Arc<ActsStatus>>,
}

impl ActHandle {
    /// The stage as it is now.
    pub(crate) fn status(&self) -> Arc<ActsStatus> {
        self.status.borrow().clone()
    }
}

/// Where the prober leaves its demands.
#[derive(Clone, Debug)]
pub(crate) struct DemandQueue(mpsc::Sender<Demand>);

/// Where the stage takes them.
#[derive(Debug)]
pub(crate) struct Demands(mpsc::Receiver<Demand>);

/// Both ends of the way from the prober to the stage.
pub(crate) fn demands() -> (DemandQueue, Demands) {
    let (sender, receiver) = mpsc::channel(DEMANDS);
    (DemandQueue(sender), Demands(receiver))
}

impl DemandQueue {
    /// Never waits.
    pub(crate) fn push(&self, demand: Demand) {
        // Full, or at the end: a demand that lasts comes again.
        let _ = self.0.try_send(demand);
    }
}

/// What an act in progress has to say to the loop.
#[derive(Debug)]
enum News {
    /// For the journal.
    Event(Box<ProbeEvent>),
    /// It no longer counts among those in progress.
    Freed(ContainerId),
    /// Its container is stopped, and cannot be created or started again for now.
    Stuck { container: ContainerId, namespace: Arc<str>, pod: PodUid },
    /// It ended, or a step of it failed.
    Ended { action: OnFailure, result: ActResult },
}
