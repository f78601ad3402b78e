//! What the prober asks of the stage that acts, and what that stage may ask in return. Only shapes: the roster decides.

use std::{sync::Arc, time::SystemTime};

use crate::{
    ids::ProbeKey,
    inventory::pod::Container,
    spec::{ProbeSpec, acting::Acting},
};

/// A reason to act on a container. While it lasts it is repeated: one that is lost comes again.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    /// The liveness or startup probe that asks for the act.
    pub key: ProbeKey,
    /// Its definition.
    pub spec: Arc<ProbeSpec>,
    /// What it may do; never a definition that asks only for a report.
    pub acting: Acting,
    /// The container, as it was then.
    pub view: Arc<Container>,
    pub cause: Cause,
}

/// What the demand comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A verdict of failure from fresh attempts: so many failures in a row.
    Verdict {
        /// At least the failure threshold.
        failures: u32,
    },
    /// The container exited by itself. Only of containers that the probe would restart.
    Exited {
        /// As far as the runtime reports it.
        exit_code: Option<i32>,
    },
}

/// Whether a demand is still valid, and whose the container is.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The container, as it is now.
    pub view: Arc<Container>,
    /// The definition as it is now.
    pub spec: Arc<ProbeSpec>,
    /// What it may do now.
    pub acting: Acting,
    /// Whether its verdict is failure, from fresh attempts on this container.
    pub is_failing: bool,
    /// Since when an operator has paused the probe, if so.
    pub paused_since: Option<SystemTime>,
    /// What a client did with the container since, if anything: then it is the client's.
    pub claim: Option<Claim>,
}

/// What makes a container a client's own business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// A client began to stop or remove it.
    Stopped,
    /// A client began to stop or remove its pod, or the sandbox is not ready any more.
    PodStopped,
    /// There is a newer container of that name in the pod, with this id.
    Replaced,
}
