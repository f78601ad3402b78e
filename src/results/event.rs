//! The journal's events about probes: observations in; the kubelet's reasons and messages out (docs/kubelet-prober.md
//! 11). Pure. Never escapes a message: the code that shows it does.

mod act;

use std::{sync::Arc, time::SystemTime};

use serde::{Deserialize, Serialize};

use super::{Verdict, errors::Errors, history::ChangeReason, text::BoundedText};
use crate::{
    ids::{ContainerId, PodUid, ProbeKind},
    inventory::pod::Container,
};
pub(crate) use act::{ActCause, ActNotice};

/// 11 KiB: 10 KiB of what an attempt said, and the words before it. A longer message, of a container with an endless name,
/// is cut at a character.
pub(crate) const MESSAGE_LIMIT: usize = 11 << 10;

/// Something that happened to a probe and that people want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeEvent {
    /// When it happened.
    pub at: SystemTime,
    /// Whether it is bad news.
    pub severity: EventType,
    /// What happened, in one word.
    pub reason: EventReason,
    /// In words, unescaped, at most [`MESSAGE_LIMIT`] bytes. The command as it was defined, never expanded.
    pub message: String,
    /// The pod's namespace.
    pub namespace: Arc<str>,
    /// The pod's name.
    pub pod: Arc<str>,
    pub pod_uid: PodUid,
    /// The container's name.
    pub container: Arc<str>,
    /// The container that it happened to.
    pub container_id: ContainerId,
    /// The probe's type.
    pub kind: ProbeKind,
}

impl ProbeEvent {
    /// Puts what was noticed about a probe of a container into words. `container_id` may be one of a former
    /// container of the same name.
    pub fn new(
        notice: &Notice,
        kind: ProbeKind,
        container_id: ContainerId,
        view: &Container,
        at: SystemTime,
    ) -> Self {
        let message = notice.message(kind, &view.name);
        Self::about(view, container_id, kind, (notice.severity(), notice.reason(), message), at)
    }

    /// Puts what was noticed about an act on a container into words: of the probe that asked for it.
    pub fn of_act(
        notice: &ActNotice,
        kind: ProbeKind,
        container_id: ContainerId,
        view: &Container,
        at: SystemTime,
    ) -> Self {
        let message = notice.message(&view.name);
        Self::about(view, container_id, kind, (notice.severity(), notice.reason(), message), at)
    }

    fn about(
        view: &Container,
        container_id: ContainerId,
        kind: ProbeKind,
        (severity, reason, message): (EventType, EventReason, String),
        at: SystemTime,
    ) -> Self {
        Self {
            at,
            severity,
            reason,
            message: bounded(message),
            namespace: view.pod.namespace.clone(),
            pod: view.pod.name.clone(),
            pod_uid: view.pod.uid.clone(),
            container: view.name.clone(),
            container_id,
            kind,
        }
    }
}

/// Kubernetes' two types of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventType {
    /// Good to know.
    Normal,
    /// May need attention.
    Warning,
}

impl EventType {
    /// `Normal`, `Warning`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// What happened to a probe, in one word: the kubelet's if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventReason {
    /// An attempt failed, or could not be made.
    Unhealthy,
    /// An attempt succeeded with a doubt.
    ProbeWarning,
    /// The verdict is another one.
    VerdictChanged,
    /// The definition cannot be used, or is one more than the operator allows.
    InvalidProbe,
    /// An annotation means nothing, or names a container that the pod does not have.
    InvalidAnnotation,
    /// A container is stopped because of a verdict, or made again because it exited.
    Killing,
    /// A container that was stopped or exited runs again.
    Restarted,
    /// An act is asked for, and does not begin yet.
    ActWithheld,
    /// A step of an act failed.
    ActFailed,
    /// An act was given up, because the container is a client's business now.
    ActGivenUp,
    /// A dry run would have acted.
    WouldAct,
    /// A preStop hook failed.
    FailedPreStopHook,
    /// An `onFailureCommand` ended.
    FailureCommand,
    /// An operator paused a probe.
    Paused,
    /// A pause ended.
    Resumed,
    /// An attempt returned after errors in a row.
    TriedAgain,
}

impl EventReason {
    /// `Unhealthy`, `ProbeWarning`, `VerdictChanged`, `InvalidProbe`; of acts `Killing`, `Restarted`, `ActWithheld` and so on.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unhealthy => "Unhealthy",
            Self::ProbeWarning => "ProbeWarning",
            Self::VerdictChanged => "VerdictChanged",
            Self::InvalidProbe => "InvalidProbe",
            Self::InvalidAnnotation => "InvalidAnnotation",
            Self::Killing => "Killing",
            Self::Restarted => "Restarted",
            Self::ActWithheld => "ActWithheld",
            Self::ActFailed => "ActFailed",
            Self::ActGivenUp => "ActGivenUp",
            Self::WouldAct => "WouldAct",
            Self::FailedPreStopHook => "FailedPreStopHook",
            Self::FailureCommand => "FailureCommand",
            Self::Paused => "Paused",
            Self::Resumed => "Resumed",
            Self::TriedAgain => "TriedAgain",
        }
    }
}

/// What was noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An attempt failed, also one below the threshold.
    Failed {
        /// What it said.
        output: BoundedText,
    },
    /// An attempt could not be made.
    Errored {
        /// `unknown`, or `failure` where it was the container that made it impossible.
        state: &'static str,
        /// Why.
        error: BoundedText,
    },
    /// An attempt succeeded with a doubt.
    Warned {
        /// What it said.
        output: BoundedText,
    },
    /// Attempts turned the verdict.
    VerdictChanged {
        /// What it is now.
        to: Verdict,
        /// After which results.
        after: ChangeReason,
    },
    /// So many attempts in a row were errors as failures would make a verdict.
    CannotBeTried {
        /// How many.
        count: u32,
        /// Why the last one was.
        error: BoundedText,
    },
    /// An attempt returned after that.
    TriedAgain {
        /// How many errors in a row there were.
        count: u32,
    },
    /// The container does not run any more, which makes every verdict a failure.
    NotRunning {
        /// How it ended, as far as that is known; may be empty.
        how: String,
        /// Whether a client stopped it.
        is_clients: bool,
    },
    /// The probe is one more than the operator allows, and is not run.
    Refused {
        /// Which limit that is.
        reason: String,
    },
    /// An operator paused the probe.
    Paused {
        /// For how long, as `10m0s`; empty if only an operator ends it.
        length: String,
        /// The operator's words; may be empty.
        reason: Arc<str>,
    },
    /// A pause ended.
    Resumed {
        /// Whether its time was over; otherwise an operator ended it.
        is_over: bool,
    },
}

impl Notice {
    /// The end of a container, which is still to be described.
    pub fn not_running(is_clients: bool) -> Self {
        Self::NotRunning { how: String::new(), is_clients }
    }

    fn reason(&self) -> EventReason {
        match self {
            Self::Failed { .. } | Self::Errored { .. } | Self::CannotBeTried { .. } => EventReason::Unhealthy,
            Self::Warned { .. } => EventReason::ProbeWarning,
            Self::VerdictChanged { .. } | Self::NotRunning { .. } => EventReason::VerdictChanged,
            Self::Refused { .. } => EventReason::InvalidProbe,
            Self::Paused { .. } => EventReason::Paused,
            Self::Resumed { .. } => EventReason::Resumed,
            Self::TriedAgain { .. } => EventReason::TriedAgain,
        }
    }

    fn severity(&self) -> EventType {
        match self {
            Self::VerdictChanged { to: Verdict::Success, .. }
            | Self::NotRunning { is_clients: true, .. }
            | Self::Paused { .. }
            | Self::Resumed { .. }
            | Self::TriedAgain { .. } => EventType::Normal,
            Self::VerdictChanged { .. }
            | Self::Failed { .. }
            | Self::Errored { .. }
            | Self::CannotBeTried { .. }
            | Self::NotRunning { is_clients: false, .. }
            | Self::Warned { .. }
            | Self::Refused { .. } => EventType::Warning,
        }
    }

    fn message(&self, kind: ProbeKind, container: &str) -> String {
        let title = kind.title();
        match self {
            Self::Failed { output } => format!("{title} probe failed: {output}"),
            Self::Errored { state, error } => {
                format!("{title} probe errored and resulted in {state} state: {error}")
            }
            Self::Warned { output } => format!("{title} probe warning: {output}"),
            Self::VerdictChanged { to, after } => {
                format!("{kind} of {container} is now {to} after {}", after.in_words(*to))
            }
            Self::CannotBeTried { count, error } => {
                format!("{kind} of {container} cannot be tried: {}: {error}", Errors::counted(*count))
            }
            Self::TriedAgain { count } => {
                format!("{kind} of {container} can be tried again after {}", Errors::counted(*count))
            }
            Self::NotRunning { how, .. } => {
                let how = if how.is_empty() { "the container is not running" } else { how };
                format!("{kind} of {container} is now failure: {how}")
            }
            Self::Refused { reason } => format!("{title} probe is invalid: {reason}"),
            Self::Paused { length, reason } => {
                let length = if length.is_empty() { String::new() } else { format!(" for {length}") };
                let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
                format!("{kind} of {container} is paused by an operator{length}{reason}")
            }
            Self::Resumed { is_over: true } => format!("{kind} of {container} is resumed: the pause is over"),
            Self::Resumed { is_over: false } => format!("{kind} of {container} is resumed by an operator"),
        }
    }
}

/// A message as it may be kept, whatever its parts contain.
pub(crate) fn bounded(mut message: String) -> String {
    message.truncate(message.floor_char_boundary(MESSAGE_LIMIT));
    message.shrink_to_fit();
    message
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    /// One row of `tests/data/prober/events.json`.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Row {
        id: String,
        rule: String,
        kind: ProbeKind,
        notice: String,
        #[serde(default)]
        text: String,
        reason: String,
        severity: String,
        message: String,
    }

    #[test]
    fn messages_are_the_kubelets_where_it_has_one() {
        let rows: Vec<Row> =
            serde_json::from_str(include_str!("../../tests/data/prober/events.json")).unwrap();
        for row in rows {
            let text = BoundedText::from(&*row.text);
            let notice = match &row.notice.split(' ').collect::<Vec<_>>()[..] {
                ["failed"] => Notice::Failed { output: text },
                ["errored"] => Notice::Errored { state: "unknown", error: text },
                ["errored", "failure"] => Notice::Errored { state: "failure", error: text },
                ["warned"] => Notice::Warned { output: text },
                ["turned", "failure", after] => Notice::VerdictChanged {
                    to: Verdict::Failure,
                    after: ChangeReason::Results(after.parse().unwrap()),
                },
                ["turned", "success", after] => Notice::VerdictChanged {
                    to: Verdict::Success,
                    after: ChangeReason::Results(after.parse().unwrap()),
                },
                ["not", "running"] => Notice::NotRunning { how: row.text.clone(), is_clients: false },
                ["stopped"] => Notice::NotRunning { how: row.text.clone(), is_clients: true },
                ["untried", count] => Notice::CannotBeTried { count: count.parse().unwrap(), error: text },
                ["tried", count] => Notice::TriedAgain { count: count.parse().unwrap() },
                other => panic!("no such notice: {other:?}"),
            };
            let reported =
                (notice.reason().as_str(), notice.severity().as_str(), notice.message(row.kind, "app"));
            assert_eq!(reported, (&*row.reason, &*row.severity, row.message), "{}: {}", row.id, row.rule);
        }
    }
}
