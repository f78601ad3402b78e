//! One requested attempt in the API: its result, and the container.

use serde::{Deserialize, Serialize};

use super::{AttemptResult, ExecRouteView, Seconds};

/// One attempt that was made at once and is recorded nowhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunView {
    /// How it ended.
    pub result: AttemptResult,
    /// How long all its tries took together.
    pub duration_seconds: Seconds,
    /// Of an exec that ended by itself; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Of an HTTP answer that was judged; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The route of the command of its last try.
    #[serde(flatten)]
    pub route: ExecRouteView,
    /// What it said: up to 10 KiB; of an error, why.
    pub output: String,
    /// 1 to 3: an error is tried again.
    pub tries: u32,
    /// `exec`, `httpGet`, `tcpSocket`, `grpc`.
    pub handler: String,
    /// On what.
    pub container: ContainerRef,
}

/// Which container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerRef {
    /// `NAMESPACE/POD/CONTAINER`, as [`joined`](super::joined) makes it.
    pub id: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's uid.
    pub pod_uid: String,
    /// The pod's sandbox.
    pub sandbox_id: String,
    /// The container's name.
    pub container: String,
    /// The runtime's id.
    pub container_id: String,
    /// Counts the containers of this name.
    pub attempt: u32,
}
