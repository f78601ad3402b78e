//! Events about acts on containers: what the stage that acts noticed in; the kubelet's reason and message, where it has
//! one, out. Pure.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{EventReason, EventType};
use crate::{ids::ProbeKind, results::text::BoundedText, spec::OnFailure};

/// What was noticed about an act on a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActNotice {
    /// It is stopped, or made again after it exited.
    Killing {
        /// Why.
        cause: ActCause,
        /// Whether it is created and started again by us.
        is_restarted: bool,
    },
    /// Its successor runs.
    Restarted {
        /// Counts the containers of its name.
        attempt: u32,
    },
    /// An act is asked for, and does not begin yet. Reported once for each reason, not each time that it is asked for.
    Withheld {
        /// What is asked for.
        action: OnFailure,
        /// Why it does not begin.
        reason: BoundedText,
    },
    /// A step of an act failed.
    Failed {
        /// What was to be done.
        action: OnFailure,
        /// Why it was not.
        reason: BoundedText,
    },
    /// It was given up on the way.
    GivenUp {
        /// What was to be done.
        action: OnFailure,
        /// Why: whose the container is now.
        reason: BoundedText,
    },
    /// A dry run: this would have been done.
    WouldAct {
        /// Why.
        cause: ActCause,
        /// What.
        action: OnFailure,
    },
    /// The preStop hook failed; the container is stopped all the same.
    HookFailed {
        /// Why.
        reason: BoundedText,
    },
    /// `onFailureCommand` ended; the act goes on, however it ended.
    CommandEnded {
        /// None if it did not end in time, or could not be run.
        exit_code: Option<i32>,
        /// What it printed; if it could not be run, why.
        output: BoundedText,
    },
}

/// What an act is done for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ActCause {
    /// A verdict of failure of a probe of this type.
    Probe(ProbeKind),
    /// The container exited by itself.
    Exited {
        /// As far as the runtime reports it.
        exit_code: Option<i32>,
    },
}

impl ActCause {
    /// What an act comes after: `liveness failure`, `exit with code 1`.
    pub fn as_noun(self) -> String {
        match self {
            Self::Probe(kind) => format!("{kind} failure"),
            Self::Exited { exit_code: Some(code) } => format!("exit with code {code}"),
            Self::Exited { exit_code: None } => "exit".to_owned(),
        }
    }
}

impl ActNotice {
    pub(super) fn reason(&self) -> EventReason {
        match self {
            Self::Killing { .. } => EventReason::Killing,
            Self::Restarted { .. } => EventReason::Restarted,
            Self::Withheld { .. } => EventReason::ActWithheld,
            Self::Failed { .. } => EventReason::ActFailed,
            Self::GivenUp { .. } => EventReason::ActGivenUp,
            Self::WouldAct { .. } => EventReason::WouldAct,
            Self::HookFailed { .. } => EventReason::FailedPreStopHook,
            Self::CommandEnded { .. } => EventReason::FailureCommand,
        }
    }

    pub(super) fn severity(&self) -> EventType {
        match self {
            Self::Killing { .. }
            | Self::Restarted { .. }
            | Self::GivenUp { .. }
            | Self::WouldAct { .. }
            | Self::CommandEnded { exit_code: Some(0), .. } => EventType::Normal,
            Self::Withheld { .. }
            | Self::Failed { .. }
            | Self::HookFailed { .. }
            | Self::CommandEnded { .. } => EventType::Warning,
        }
    }

    /// In words, about a container of this name.
    pub(super) fn message(&self, container: &str) -> String {
        match self {
            Self::Killing { cause, is_restarted: false } => format!("Container {container} {cause}"),
            Self::Killing { cause, is_restarted: true } => {
                format!("Container {container} {cause}, will be restarted")
            }
            Self::Restarted { attempt } => {
                format!("Container {container} was restarted as attempt {attempt}")
            }
            Self::Withheld { action, reason } => {
                format!("{} of container {container} is withheld: {reason}", action.as_str())
            }
            Self::Failed { action, reason } => {
                format!("{} of container {container} failed: {reason}", action.as_str())
            }
            Self::GivenUp { action, reason } => {
                format!("{} of container {container} was given up: {reason}", action.as_str())
            }
            Self::WouldAct { cause, action } => {
                format!("Container {container} {cause}: would be {} (act.dryRun)", done(*action))
            }
            Self::HookFailed { reason } => format!("preStop hook of container {container} failed: {reason}"),
            Self::CommandEnded { exit_code: Some(code), output } if output.trim().is_empty() => {
                format!("onFailureCommand of container {container} exited with code {code}")
            }
            Self::CommandEnded { exit_code: Some(code), output } => {
                format!("onFailureCommand of container {container} exited with code {code}: {output}")
            }
            Self::CommandEnded { exit_code: None, output } => {
                format!("onFailureCommand of container {container} failed: {output}")
            }
        }
    }
}

fn done(action: OnFailure) -> &'static str {
    match action {
        OnFailure::Report => "reported",
        OnFailure::Stop => "stopped",
        OnFailure::Kill => "killed",
        OnFailure::Restart => "restarted",
    }
}

/// What the container did: `failed liveness probe`, `exited with code 1`.
impl fmt::Display for ActCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Probe(kind) => write!(f, "failed {kind} probe"),
            Self::Exited { exit_code: Some(code) } => write!(f, "exited with code {code}"),
            Self::Exited { exit_code: None } => f.write_str("exited"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::UNIX_EPOCH};

    use super::*;
    use crate::{
        inventory::{fixtures, pod::Container},
        results::event::{MESSAGE_LIMIT, ProbeEvent},
    };

    fn event(notice: &ActNotice) -> ProbeEvent {
        let view = Container { name: "app".into(), ..fixtures::container("c1", fixtures::pod()) };
        ProbeEvent::of_act(notice, ProbeKind::Liveness, view.id.clone(), &view, UNIX_EPOCH)
    }

    #[test]
    fn messages_are_the_kubelets_where_it_has_one() {
        let liveness = ActCause::Probe(ProbeKind::Liveness);
        let startup = ActCause::Probe(ProbeKind::Startup);
        let exited = |exit_code| ActCause::Exited { exit_code };
        let reason = BoundedText::from;
        for (notice, reported) in [
            (
                ActNotice::Killing { cause: liveness, is_restarted: false },
                "Normal Killing: Container app failed liveness probe",
            ),
            (
                ActNotice::Killing { cause: startup, is_restarted: true },
                "Normal Killing: Container app failed startup probe, will be restarted",
            ),
            (
                ActNotice::Killing { cause: exited(Some(1)), is_restarted: true },
                "Normal Killing: Container app exited with code 1, will be restarted",
            ),
            (
                ActNotice::Killing { cause: exited(None), is_restarted: true },
                "Normal Killing: Container app exited, will be restarted",
            ),
            (
                ActNotice::Restarted { attempt: 3 },
                "Normal Restarted: Container app was restarted as attempt 3",
            ),
            (
                ActNotice::Withheld { action: OnFailure::Stop, reason: reason("busy") },
                "Warning ActWithheld: stop of container app is withheld: busy",
            ),
            (
                ActNotice::Failed { action: OnFailure::Restart, reason: reason("no image") },
                "Warning ActFailed: restart of container app failed: no image",
            ),
            (
                ActNotice::WouldAct { cause: liveness, action: OnFailure::Stop },
                "Normal WouldAct: Container app failed liveness probe: would be stopped (act.dryRun)",
            ),
            (
                ActNotice::WouldAct { cause: exited(Some(7)), action: OnFailure::Restart },
                "Normal WouldAct: Container app exited with code 7: would be restarted (act.dryRun)",
            ),
            (
                ActNotice::HookFailed { reason: reason("timeout") },
                "Warning FailedPreStopHook: preStop hook of container app failed: timeout",
            ),
            (
                ActNotice::CommandEnded { exit_code: Some(0), output: reason("dumped") },
                "Normal FailureCommand: onFailureCommand of container app exited with code 0: dumped",
            ),
            (
                ActNotice::CommandEnded { exit_code: Some(2), output: reason("\n") },
                "Warning FailureCommand: onFailureCommand of container app exited with code 2",
            ),
            (
                ActNotice::CommandEnded { exit_code: None, output: reason("no such file") },
                "Warning FailureCommand: onFailureCommand of container app failed: no such file",
            ),
        ] {
            let event = event(&notice);
            let (severity, word) = (event.severity.as_str(), event.reason.as_str());
            assert_eq!(format!("{severity} {word}: {}", event.message), reported);
            assert_eq!((&*event.container, event.kind), ("app", ProbeKind::Liveness));
        }
    }

    #[test]
    fn a_message_is_bounded_whatever_its_parts_are() {
        let view = Container {
            name: Arc::from("x".repeat(2 * MESSAGE_LIMIT)),
            ..fixtures::container("c1", fixtures::pod())
        };
        let notice = ActNotice::HookFailed { reason: BoundedText::from("late") };
        let event = ProbeEvent::of_act(&notice, ProbeKind::Startup, view.id.clone(), &view, UNIX_EPOCH);
        assert_eq!(event.message.len(), MESSAGE_LIMIT);
    }
}
