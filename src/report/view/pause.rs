//! Pauses and triggered attempts in the API.

use serde::{Deserialize, Serialize};

use super::{AttemptView, ProbeView, Time, text_size};
use crate::prober::pauses::Pause;

/// A pause of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PauseView {
    /// When it began.
    pub since: Time,
    /// When it ends by itself; absent if only an operator ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// The operator's words; may be empty.
    pub reason: String,
}

/// A paused probe of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PausedProbeView {
    /// `startup`, `readiness`, `liveness`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its pause.
    #[serde(flatten)]
    pub pause: PauseView,
}

/// A probe after an attempt that an operator triggered and waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TriggeredView {
    /// As it is then.
    #[serde(flatten)]
    pub probe: ProbeView,
    /// The attempt that was triggered. `last` may be a later one.
    pub triggered: AttemptView,
}

/// A probe after a command of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandedView {
    /// As it is then.
    #[serde(flatten)]
    pub probe: ProbeView,
    /// Whether it was paused before; absent if that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was_paused: Option<bool>,
}

impl PausedProbeView {
    /// What it takes, in bytes.
    pub fn size(&self) -> usize {
        size_of::<Self>() + text_size(&self.kind) + text_size(&self.pause.reason)
    }
}

impl From<&Pause> for PauseView {
    fn from(Pause { since, until, reason }: &Pause) -> Self {
        Self { since: (*since).into(), until: until.map(Into::into), reason: reason.to_string() }
    }
}
