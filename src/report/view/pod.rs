//! One pod with its containers in the API.

use serde::{Deserialize, Serialize};

use super::{ActView, EventView, PausedProbeView, ProbeView, ProbesView, Time, text_size};
use crate::prober::status::ProbePhase;

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
    /// What is wrong with its annotations and belongs to no probe, a sentence each; absent if nothing is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// Whether it turned its probes off by annotation, except those of enforced rules; absent if it did not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub probes_off: bool,
    /// By name.
    pub containers: Vec<ContainerView>,
}

impl PodView {
    /// The first that is known of it: when the oldest of its containers was made, or one before them started.
    pub(crate) fn known_since(&self) -> Option<Time> {
        let made = self.containers.iter().filter_map(|container| container.created_at);
        let exits = self.containers.iter().flat_map(|container| &container.exits);
        made.chain(exits.filter_map(|exit| exit.started_at)).min()
    }

    /// What it takes, in bytes.
    pub fn size(&self) -> usize {
        let texts = [&self.namespace, &self.pod, &self.pod_uid, &self.sandbox_id, &self.reason];
        let texts = texts.into_iter().chain(&self.problems);
        let containers = self.containers.iter().map(|container| {
            let texts = [&container.container, &container.container_id, &container.image].into_iter();
            let optional = [&container.exit_reason, &container.exit_message, &container.log_path];
            size_of::<ContainerView>()
                + texts.chain(optional.into_iter().flatten()).map(text_size).sum::<usize>()
                + container.exits.iter().map(ExitView::size).sum::<usize>()
                + container.act.as_ref().map_or(0, ActView::text_size)
                + container.paused_probes.iter().map(PausedProbeView::size).sum::<usize>()
                + container.failing_probes.iter().map(FailingProbeView::size).sum::<usize>()
        });
        size_of::<Self>()
            + texts.map(|text| size_of::<String>() + text_size(text)).sum::<usize>()
            + containers.sum::<usize>()
    }
}

/// One pod in full.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PodDetailView {
    /// What the list shows of it.
    #[serde(flatten)]
    pub pod: PodView,
    /// Those of its containers, ours and clients' own: by container, then startup, readiness, liveness.
    pub probes: Vec<ProbeView>,
    /// Those of its events that are kept, oldest first.
    pub events: Vec<EventView>,
}

/// The end of a container that had this name before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExitView {
    /// Counts the containers of this name.
    pub attempt: u32,
    /// The runtime's id of it.
    pub container_id: String,
    /// When its process was started; null if it never was.
    pub started_at: Option<Time>,
    /// When it exited; null while that is not known.
    pub finished_at: Option<Time>,
    /// Null if the runtime has not reported it.
    pub exit_code: Option<i32>,
    /// In the runtime's word: `OOMKilled`, `Error`, `Completed`; empty if it reported none.
    pub reason: String,
}

impl ExitView {
    /// What it takes, in bytes.
    fn size(&self) -> usize {
        size_of::<Self>() + text_size(&self.container_id) + text_size(&self.reason)
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
    /// Whether it has exited and a client stopped it, as far as that was seen; absent if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped_by_client: bool,
    /// When it exited, if it has and the runtime has reported it; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// Why it exited, in the runtime's word: `OOMKilled`, `Error`, `Completed`; absent if it has not, or without a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_reason: Option<String>,
    /// What the runtime says of its exit, up to 1,024 bytes; absent if it says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_message: Option<String>,
    /// Where its output is written, as the runtime reports it; absent until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_path: Option<String>,
    /// How the containers ended that had its name before, oldest first, up to 5; absent if there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exits: Vec<ExitView>,
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
    /// Its probes that an operator paused; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paused_probes: Vec<PausedProbeView>,
    /// Its probes that fail, and then those whose definition is wrong; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failing_probes: Vec<FailingProbeView>,
}

/// A probe that fails, or whose definition is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailingProbeView {
    /// `startup`, `readiness`, `liveness`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it is doing; `invalid` where its definition is wrong.
    pub phase: ProbePhase,
    /// Since when.
    pub since: Time,
    /// Why, in one short sentence.
    pub reason: String,
}

impl FailingProbeView {
    /// What it takes, in bytes.
    fn size(&self) -> usize {
        size_of::<Self>() + text_size(&self.kind) + text_size(&self.reason)
    }
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
