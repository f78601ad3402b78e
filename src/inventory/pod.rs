//! Containers and their pods as far as the inventory knows them: what it reports to later stages.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::Arc,
    time::SystemTime,
};

use crate::ids::{ContainerId, ImageRef, PodUid, SandboxId};

pub use crate::proto::trim::KUBELETS_UID;

/// One pod sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// The sandbox's id; a pod gets a new one with each attempt.
    pub sandbox_id: SandboxId,
    /// The uid by which the pod is known: the one that its client gave, unless that is empty or another pod's; then one
    /// that is made from the sandbox's id.
    pub uid: PodUid,
    /// The uid that its client gave, if another pod has the same.
    pub copied_uid: Option<PodUid>,
    /// The pod's name.
    pub name: Arc<str>,
    /// The pod's namespace.
    pub namespace: Arc<str>,
    /// The attempt number of this sandbox.
    pub attempt: u32,
    /// False once it was stopped.
    pub is_ready: bool,
    /// Whether a kubelet manages it: it has the label [`KUBELETS_UID`].
    pub is_kubelets: bool,
    /// The addresses of its containers.
    pub network: PodNetwork,
    /// As the runtime reports them; if there are more than `proto::trim` keeps, the shortest.
    pub labels: BTreeMap<String, String>,
    /// As the runtime reports them, but only those that are used; if there are more than `proto::trim` keeps, the
    /// shortest.
    pub annotations: BTreeMap<String, String>,
    /// How many labels and annotations were left out because they did not fit.
    pub omitted: u32,
}

impl Pod {
    /// The same without labels, annotations and addresses: for showing calls, and for remembering a removed pod.
    #[must_use]
    pub fn brief(&self) -> Self {
        Self {
            sandbox_id: self.sandbox_id.clone(),
            uid: self.uid.clone(),
            copied_uid: self.copied_uid.clone(),
            name: Arc::clone(&self.name),
            namespace: Arc::clone(&self.namespace),
            attempt: self.attempt,
            is_ready: self.is_ready,
            is_kubelets: self.is_kubelets,
            network: PodNetwork::Unknown,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            omitted: 0,
        }
    }
}

/// The addresses of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodNetwork {
    /// Not known yet, or the runtime reports none.
    Unknown,
    /// In the node's own network.
    Host,
    /// Its own addresses, the primary one first; never empty.
    Pod(Vec<IpAddr>),
}

/// One container and its pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// The runtime's id; a restarted container has a new one.
    pub id: ContainerId,
    /// Its name within the pod.
    pub name: Arc<str>,
    /// The attempt number of this container.
    pub attempt: u32,
    /// As the user named it: as in the manifest, if a kubelet created the container.
    pub image: Arc<str>,
    /// As the container's definition in the runtime names it, by name or ID. Unlike `image`, this is the same however
    /// the container became known.
    pub image_spec: Arc<str>,
    /// As the runtime knows it, by its ID if it is reported; empty until then.
    pub image_ref: ImageRef,
    /// Its state.
    pub state: ContainerState,
    /// Whether it runs and its processes are frozen. Only containerd reports this; false if it is not known.
    pub is_paused: bool,
    /// When it was created.
    pub created_at: Option<SystemTime>,
    /// When its process was started, as the runtime reports it.
    pub started_at: Option<SystemTime>,
    /// How it ended, once it has exited and the runtime has reported it.
    pub end: Option<Arc<ContainerEnd>>,
    /// Where its output is written, as the runtime reports it; empty until then.
    pub log_path: Arc<str>,
    /// Like those of its pod.
    pub annotations: BTreeMap<String, String>,
    /// How many annotations were left out because they did not fit.
    pub omitted: u32,
    /// The pod it belongs to.
    pub pod: Arc<Pod>,
}

/// What the runtime reports of the end of a container beside its exit code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerEnd {
    /// When that was.
    pub finished_at: Option<SystemTime>,
    /// In a word: `OOMKilled`, `Error`, `Completed`; at most `proto::trim::MAX_NAME` bytes.
    pub reason: Arc<str>,
    /// In words, mostly empty; at most 1,024 bytes.
    pub message: Arc<str>,
}

impl ContainerEnd {
    /// The reason of a container that the kernel killed because its memory was used up.
    pub const OOM_KILLED: &str = "OOMKilled";

    /// The runtime's word for an end, where it says more than the exit code.
    #[must_use]
    pub fn telling(&self) -> Option<&str> {
        Some(&*self.reason).filter(|reason| !matches!(*reason, "" | "Error" | "Completed"))
    }

    /// Whether the kernel killed it, or one of its processes, because its memory was used up.
    #[must_use]
    pub fn is_oom_killed(&self) -> bool {
        *self.reason == *Self::OOM_KILLED
    }
}

/// A container's life goes one way: created, running, exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// Created, not started.
    Created,
    /// Its process runs.
    Running,
    /// Its process ended.
    Exited {
        /// As the runtime reports it; `None` until then.
        exit_code: Option<i32>,
    },
    /// The runtime does not know.
    Unknown,
}

/// The stops that clients began and that have not failed, as far as is known: the number for each container and pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenStops {
    /// Of containers.
    pub containers: HashMap<ContainerId, u32>,
    /// Of pods.
    pub pods: HashMap<SandboxId, u32>,
}
