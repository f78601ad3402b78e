//! What the stage that acts reports of itself: shapes only. `report` shows them.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};

use crate::{
    ids::{ContainerId, PodUid},
    prober::state::time,
    results::{event::ActCause, text::BoundedText},
    spec::OnFailure,
};

/// The containers of one name in one pod.
pub(crate) type Place = (PodUid, Arc<str>);

/// The stage as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ActsStatus {
    /// Acts that began in the last minute.
    pub last_minute: usize,
    /// Acts in progress. One that waits for its back-off does not count.
    pub in_progress: usize,
    /// Demands that are withheld now.
    pub withheld: usize,
    /// Why acts cannot be recorded, and so are withheld; empty if they can.
    pub trouble: String,
    /// Of each container with an act now or before; 1,024 at most, those without a current one make room, the oldest first.
    pub places: HashMap<Place, PlaceStatus>,
}

/// The acts on the containers of one place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlaceStatus {
    /// What is going on now.
    pub current: Option<Current>,
    /// The last act that began.
    pub last: Option<ActRecord>,
    /// From when on the next restart is allowed, if a back-off or the budget delays it.
    pub next_allowed: Option<SystemTime>,
    /// The back-off before the next restart; zero if the next one comes at once.
    pub back_off: Duration,
}

/// Something that is asked for, or in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Current {
    /// The container.
    pub container: ContainerId,
    /// What is done, or asked for.
    pub action: OnFailure,
    /// Why.
    pub cause: ActCause,
    /// Since when it is in this step.
    pub since: SystemTime,
    pub step: Step,
}

/// How far an act is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It has not begun.
    Withheld {
        /// Why.
        reason: String,
        /// When the budget allows it, if it is that of the minute.
        until: Option<SystemTime>,
    },
    /// `onFailureCommand` runs.
    Command,
    /// The preStop hook runs.
    Hook,
    /// The runtime stops the container.
    Stopping,
    /// The container is stopped; its successor is created at this time.
    BackOff(SystemTime),
    /// Its successor is created and started.
    Creating,
    /// That failed for this reason, and is tried again at this time.
    Retrying {
        /// Why it failed.
        reason: String,
        /// When it is tried again; none where that is when the runtime answers again.
        at: Option<SystemTime>,
    },
}

impl Step {
    /// When the next step is allowed, if it waits for that.
    pub(super) fn until(&self) -> Option<SystemTime> {
        match self {
            Self::BackOff(at) => Some(*at),
            Self::Withheld { until: at, .. } | Self::Retrying { at, .. } => *at,
            Self::Command | Self::Hook | Self::Stopping | Self::Creating => None,
        }
    }
}

/// One act, as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ActRecord {
    /// When it began.
    #[serde(with = "time")]
    pub at: SystemTime,
    /// The container that it was done to.
    pub container: ContainerId,
    /// What was done.
    pub action: OnFailure,
    /// Why.
    pub cause: ActCause,
    /// How it ended; none while it is in progress.
    pub end: Option<ActEnd>,
    /// How long it took until then.
    pub took: Duration,
    /// What `onFailureCommand` printed, and how it ended; none if there was none. Not saved: it may hold secrets.
    #[serde(skip)]
    pub command: Option<CommandReport>,
}

/// How an act ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ActEnd {
    /// The container was stopped.
    Stopped,
    /// This container runs in its place.
    Restarted(ContainerId),
    /// Only what would have been done was reported.
    DryRun,
    /// It was given up, for this reason: a client's doing, or an error before anything was changed.
    GivenUp(String),
}

/// How `onFailureCommand` ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandReport {
    /// Its exit code; none if it did not end in time, or could not be run.
    pub exit_code: Option<i32>,
    /// What it printed; if it could not be run, why.
    pub output: BoundedText,
    /// How long it took.
    pub took: Duration,
}

impl CommandReport {
    /// In one text, for the history: `onFailureCommand exited with code 0: dumped`.
    pub(super) fn in_words(&self) -> BoundedText {
        match self.exit_code {
            Some(code) => {
                BoundedText::of(format_args!("onFailureCommand exited with code {code}: {}", self.output))
            }
            None => BoundedText::of(format_args!("onFailureCommand failed: {}", self.output)),
        }
    }
}
