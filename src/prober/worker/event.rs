//! A worker's events, its actions, and what may prevent an attempt. Only shapes: no decision is made here.

use std::time::{Duration, Instant, SystemTime};

use crate::{
    ids::ContainerId,
    inventory::pod::{Container, ContainerState},
    prober::{attempt::AttemptOutcome, state::Checkpoint},
    results::event::Notice,
};

/// What happened, for a worker.
#[derive(Clone, Debug)]
pub(crate) enum WorkerEvent {
    /// Its checkpoint from before a restart of ours, on the container that it sees next.
    Restored(Checkpoint),
    /// This is the container now.
    Seen(Seen),
    /// Whether the container counts as started: true once its startup probe succeeded, or if it has none.
    Started(bool),
    /// Whether somebody stops the container or its pod.
    Stopping(Option<Stopping>),
    /// Whether an act on the container is in progress.
    Acting(bool),
    /// Whether an operator wants no attempts for now.
    Paused(bool),
    /// An operator wants an attempt now, or so much later at the earliest.
    Triggered(Duration),
    /// The deadline came.
    Due,
    /// The deadline came among too many others: make it so much later.
    Spread(Duration),
    /// Likewise of a probe whose last result is from before a restart of ours: make one so much later, so that it is known
    /// soon whether that still holds, and then the one that was due.
    TryEarly {
        /// To the early one.
        after: Duration,
        /// To the one that was due.
        then: Duration,
    },
    /// The runtime answers again: an attempt that it did not answer is made again so much later at the latest.
    RuntimeAnswers(Duration),
    /// There is place for the attempt now.
    SlotFreed,
    /// This is the outcome of the attempt in flight. It keeps its place until it ends: its timeout is over, and the
    /// runtime still works at it.
    Judged(AttemptOutcome),
    /// The attempt in flight ended; with nothing to report if it was judged before, panicked or was given up.
    Finished(Option<AttemptOutcome>),
}

/// What a worker wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Notify it when there is place for its attempt.
    Enqueue,
    /// Make one attempt on the container seen last, and report to it how that ended.
    StartAttempt,
    /// Put this into the journal, as something about this container.
    Report(ContainerId, Notice),
    /// Act on the container, if the definition may: so many failures in a row from fresh attempts on it, and the verdict
    /// is failure. Repeated at each further threshold's worth of them.
    Demand { failures: u32 },
}

/// One look at a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Another one than before is another container.
    pub id: ContainerId,
    /// Counts the containers of its name.
    pub attempt: u32,
    /// Where it is in its life.
    pub state: ContainerState,
    /// Whether its processes are frozen.
    pub is_paused: bool,
    /// When it was made, if that is known.
    pub created_at: Option<SystemTime>,
    /// When its process was started, if that is known.
    pub started_at: Option<SystemTime>,
}

impl From<&Container> for Seen {
    fn from(view: &Container) -> Self {
        Self {
            id: view.id.clone(),
            attempt: view.attempt,
            state: view.state,
            is_paused: view.is_paused,
            created_at: view.created_at,
            started_at: view.started_at,
        }
    }
}

/// Why liveness and startup probes stop before their container does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopping {
    /// A client's StopContainer began.
    Container,
    /// A client's StopPodSandbox began, or the sandbox is not ready any more.
    Pod,
}

/// What prevents an attempt, in the order in which it is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// There is no container.
    NoContainer,
    /// An operator paused the probe.
    Paused,
    /// A client stops it.
    Stopping(Stopping),
    /// Startup succeeded, or an act on this container is in progress: there is nothing to find out before another one runs.
    Held,
    /// It does not run.
    NotRunning(ContainerState),
    /// Its processes are frozen: an attempt would say nothing about its health.
    ContainerPaused,
    /// It has not run for long enough.
    Delayed(Instant),
    /// Its startup probe has not succeeded yet.
    NotStarted,
    /// Its startup probe has nothing left to find out.
    AlreadyStarted,
}
