//! One attempt in the file that attempts are written to.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{ExecRouteView, Seconds, Time, Verdict};
use crate::{ids::ProbeKind, results::AttemptResult};

/// A line of the file `attempts.file`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptLineView {
    /// When it began.
    pub at: Time,
    /// The pod's namespace.
    pub namespace: Arc<str>,
    /// The pod's name.
    pub pod: Arc<str>,
    /// The pod's uid.
    pub pod_uid: String,
    /// The container's name.
    pub container: Arc<str>,
    /// The container's id.
    pub container_id: String,
    /// `startup`, `readiness`, `liveness`.
    #[serde(rename = "type")]
    pub kind: ProbeKind,
    /// How it ended.
    pub result: AttemptResult,
    /// How long it took.
    pub duration_seconds: Seconds,
    /// How long after it was due it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_seconds: Option<Seconds>,
    /// Of an exec that ended by itself; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Of an HTTP response; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The route of its command.
    #[serde(flatten)]
    pub route: ExecRouteView,
    /// The verdict after it.
    pub state: Verdict,
    /// What it said, as much as the history keeps.
    pub output: Arc<str>,
}
