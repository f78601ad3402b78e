//! One pod with its containers in the API.

use serde::{Deserialize, Serialize};

use super::{ActView, ProbesView, Time, text_size};

/// One pod: its newest sandbox, and the newest container of each name in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodView {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's uid.
    pub pod_uid: String,
    /// The sandbox's id.
    pub sandbox_id: String,
    /// Counts the sandboxes of this pod.
    pub attempt: u32,
    /// Whether the sandbox is up.
    pub sandbox_ready: bool,
    /// Whether the kubelet would report it as ready, as far as CRI shows.
    pub ready: bool,
    /// Why it is not ready, in words, what is done to its containers, and whether its UID is a copy; empty where there is
    /// nothing to say.
    pub reason: String,
    /// By name.
    pub containers: Vec<ContainerView>,
}

impl PodView {
    /// What it takes, in bytes.
    pub fn size(&self) -> usize {
        let texts = [&self.namespace, &self.pod, &self.pod_uid, &self.sandbox_id, &self.reason];
        let containers = self.containers.iter().map(|container| {
            let texts = [&container.container, &container.container_id, &container.image];
            size_of::<ContainerView>()
                + texts.into_iter().map(text_size).sum::<usize>()
                + container.act.as_ref().map_or(0, ActView::text_size)
        });
        size_of::<Self>() + texts.into_iter().map(text_size).sum::<usize>() + containers.sum::<usize>()
    }
}

/// One container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerView {
    /// Its name.
    pub container: String,
    /// The runtime's id of it.
    pub container_id: String,
    /// As the client named it.
    pub image: String,
    /// Where it is in its life.
    pub state: ContainerStateView,
    /// Whether it runs and its processes are frozen, as far as the runtime reports that.
    #[serde(default)]
    pub paused: bool,
    /// The exit code, if it has exited and the runtime has reported it; null otherwise.
    pub exit_code: Option<i32>,
    /// When it was made; null while that is not known.
    pub created_at: Option<Time>,
    /// When its process was started; null while that is not known.
    pub started_at: Option<Time>,
    /// Whether its startup probe has succeeded, or it has none and runs.
    pub started: bool,
    /// Whether it has started, and its readiness probe says success, or it has none.
    pub ready: bool,
    /// How many containers of its name came before it in this pod, as the client counts them.
    pub restarts: u32,
    /// Its probes by state and by phase.
    pub probes: ProbesView,
    /// What is done to it now, or withheld; absent if nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub act: Option<ActView>,
}

/// Where a container is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContainerStateView {
    /// Made, not started.
    Created,
    /// Its process runs.
    Running,
    /// Its process ended.
    Exited,
    /// The runtime does not know.
    Unknown,
}

impl ContainerStateView {
    /// `created`, `running`, `exited`, `unknown`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Exited => "exited",
            Self::Unknown => "unknown",
        }
    }
}
