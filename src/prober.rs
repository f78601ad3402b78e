//! Runs the probes: what the inventory and the plan report in; results and events out. Never acts on a verdict, and
//! never decides which probes there are.
//!
//! `roster` is the whole of the decisions, pure: it keeps one `worker` per probe, informs each about its `containers`,
//! wakes it by the `schedule`, and lets it run when the `pool` has place. `task` is the one loop around it, `attempt`
//! what a worker's attempt does.

mod answers;
pub(crate) mod attempt;
pub(crate) mod command;
mod containers;
#[allow(dead_code)]
pub(crate) mod demand;
pub(crate) mod handle;
mod lateness;
pub(crate) mod made;
mod outputs;
pub(crate) mod pauses;
mod pool;
mod quota;
pub(crate) mod readiness;
mod roster;
mod schedule;
pub(crate) mod state;
pub(crate) mod status;
pub(crate) mod task;
mod timing;
pub(crate) mod totals;
mod trust;
mod variables;
pub(crate) mod worker;

#[cfg(test)]
pub(crate) mod fixtures;

use std::{
    collections::HashSet,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use crate::{
    clock,
    ids::{ContainerId, ProbeKey, SandboxId},
    inventory::pod::{Container, OpenStops},
    results::{history::HistoryLimits, text::BoundedText},
    spec::{ExecModeSetting, need::Budget, plan::Planned, policy::Limits},
};

pub use command::{CommandRefusal, ProbeCommand, TriggerEnd};
pub(crate) use handle::Listed;
pub use handle::{ProberHandle, Question};
pub use pauses::PauseTerms;
pub(crate) use readiness::ContainerStatus;
pub(crate) use state::Saved;
pub(crate) use status::{ProbeCounts, ProbeStatus};
pub(crate) use task::{Deps, spawn};

/// What the inventory and the plan report to the prober.
#[derive(Debug)]
pub enum Input {
    /// A container was made or changed, and these are the probes planned for it. May be said any number of times.
    Container {
        /// The container as it is now.
        view: Arc<Container>,
        /// At most one a type.
        probes: Vec<Planned>,
    },
    /// All containers were planned again. Sent together, so that probes that come to be together are seen to, and are
    /// spread where they are too many.
    Replanned(Vec<(Arc<Container>, Vec<Planned>)>),
    /// A container is gone from the runtime.
    ContainerGone(ContainerId),
    /// A client began to stop a container: its liveness and startup probes end before it does, as a kubelet's do.
    ContainerStopping(ContainerId),
    /// That stop failed, or ended without an answer: if the container still runs, its probes go on.
    ContainerStopFailed(ContainerId),
    /// A client began to stop a pod: likewise for all its containers.
    PodStopping(SandboxId),
    /// That stop failed, or ended without an answer: likewise for all its containers.
    PodStopFailed(SandboxId),
    /// These are all stops that clients began and that have not failed: what was known of stops before is void.
    StopsListed(Arc<OpenStops>),
    /// An act on a container begins: its liveness and startup probes are held until another container runs in its place.
    ActBegan(ContainerId),
    /// An act on a container was given up: they go on.
    ActEnded(ContainerId),
    /// Something was done to the container of a probe because of it, or printed this: it is kept in its history.
    ActNote {
        /// The probe that asked for the act.
        key: ProbeKey,
        /// `stop after liveness failure`.
        text: BoundedText,
    },
    /// Since when the runtime is away; none while it answers. No command can be run meanwhile.
    RuntimeAway(Option<SystemTime>),
    /// The runtime answers again after it did not: what it did not answer before says nothing any more.
    RuntimeAnswers,
    /// The runtime's containers, all of them: others are gone, and what was saved of others will soon be forgotten.
    Listed(Arc<HashSet<ContainerId>>),
}

/// The operator's part of how probes run. All of it but the seed may change while they do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProberSettings {
    /// Attempts in flight at most; what comes due beyond that waits its turn.
    pub workers: usize,
    /// Exec attempts in flight at most; they count among the workers, too.
    pub exec_workers: usize,
    /// How long after its timeout an exec attempt is given up, if the runtime is still silent.
    pub exec_grace: Duration,
    /// How the commands of exec probes are run.
    pub exec_mode: ExecModeSetting,
    /// Probes of one pod at most; what is planned beyond that is listed as invalid.
    pub max_per_pod: usize,
    /// Probes of all pods at most; likewise.
    pub max_per_node: usize,
    /// Attempts per second of one pod at most; likewise. Rules count, and are not held to it.
    pub max_rate_per_pod: usize,
    /// Attempts per second of all pods at most; likewise.
    pub max_rate_per_node: usize,
    /// Where pods in the node's own network are reached.
    pub node_ip: Option<IpAddr>,
    /// What an operator's own attempt must keep; probes were checked when planned.
    pub limits: Limits,
    /// How much each probe keeps of its attempts, where no rule says otherwise.
    pub history: HistoryLimits,
    /// Spreads probes that would come due together.
    pub seed: u64,
}

impl ProberSettings {
    /// What the probes of one pod may take together, and those of all pods.
    pub fn budgets(&self) -> (Budget, Budget) {
        let of_pod = Budget::of_pod(self.max_per_pod, self.max_rate_per_pod);
        (of_pod, Budget::of_node(self.max_per_node, self.max_rate_per_node))
    }

    /// The shortest period that the only probe of a pod may have.
    fn least_period(&self) -> Duration {
        let rate = u32::try_from(self.max_rate_per_pod).unwrap_or(u32::MAX).max(1);
        self.limits.min_period.max(Duration::from_secs(1) / rate)
    }
}

impl Default for ProberSettings {
    fn default() -> Self {
        Self {
            workers: 64,
            exec_workers: 16,
            exec_grace: Duration::from_secs(5),
            exec_mode: ExecModeSetting::default(),
            max_per_pod: 32,
            max_per_node: 5000,
            max_rate_per_pod: 50,
            max_rate_per_node: 5000,
            node_ip: None,
            limits: Limits::default(),
            history: HistoryLimits::default(),
            seed: 0,
        }
    }
}

/// One moment on both clocks: the monotonic one decides, the wall's is shown and compared with the runtime's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Monotonic.
    pub at: Instant,
    /// Wall clock.
    pub wall: SystemTime,
}

impl Moment {
    /// This moment.
    pub(crate) fn now() -> Self {
        Self { at: clock::now(), wall: clock::wall() }
    }

    /// The wall clock's time of another moment, if the wall clock is not set meanwhile; this one's, if there is no such
    /// time.
    fn wall_of(self, at: Instant) -> SystemTime {
        let (ahead, behind) = (at.saturating_duration_since(self.at), self.at.saturating_duration_since(at));
        self.wall.checked_add(ahead).and_then(|at| at.checked_sub(behind)).unwrap_or(self.wall)
    }
}
