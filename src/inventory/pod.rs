//! What the inventory reports to later stages: containers and their pods, as far as they are known now.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::Arc,
    time::SystemTime,
};

use crate::ids::{ContainerId, ImageRef, PodUid, SandboxId};

/// One pod sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// The sandbox's id; a pod gets a new one with each attempt.
    pub sandbox_id: SandboxId,
    /// The uid that the pod is known by: the one that its client gave, unless that is none or another pod's; then one that
    /// is made of the sandbox's id.
    pub uid: PodUid,
    /// The uid that its client gave, where that is another pod's.
    pub copied_uid: Option<PodUid>,
    /// The pod's name.
    pub name: Arc<str>,
    /// The pod's namespace.
    pub namespace: Arc<str>,
    /// Counts the sandboxes of this pod.
    pub attempt: u32,
    /// False once it was stopped.
    pub is_ready: bool,
    /// Where its containers are reached.
    pub network: PodNetwork,
    /// As the runtime has them; of more than `proto::trim` keeps, the shortest.
    pub labels: BTreeMap<String, String>,
    /// As the runtime has them, but only those that something reads; of more than `proto::trim` keeps, the shortest.
    pub annotations: BTreeMap<String, String>,
    /// How many labels and annotations there was no room for.
    pub omitted: u32,
}

impl Pod {
    /// The same without labels, annotations and addresses: what calls about it are shown with, and what is remembered of
    /// one that was removed.
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
            network: PodNetwork::Unknown,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            omitted: 0,
        }
    }
}

/// Where a pod is reached.
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
    /// Counts the containers of this name.
    pub attempt: u32,
    /// As people named it: as it stands in the manifest, where a kubelet made the container.
    pub image: Arc<str>,
    /// As the runtime's definition of the container names it, by a name or by its id. Unlike `image`, this is the same
    /// however the container became known.
    pub image_spec: Arc<str>,
    /// As the runtime knows it, its id where it tells that; empty until it has told.
    pub image_ref: ImageRef,
    /// Where it is in its life.
    pub state: ContainerState,
    /// When it was made.
    pub created_at: Option<SystemTime>,
    /// When its process was started, as the runtime reports it.
    pub started_at: Option<SystemTime>,
    /// As those of its pod.
    pub annotations: BTreeMap<String, String>,
    /// How many annotations there was no room for.
    pub omitted: u32,
    /// The pod it belongs to.
    pub pod: Arc<Pod>,
}

/// A container's life goes one way: created, running, exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// Made, not started.
    Created,
    /// Its process runs.
    Running,
    /// Its process ended.
    Exited {
        /// As the runtime reports it; `None` until it has.
        exit_code: Option<i32>,
    },
    /// The runtime cannot tell.
    Unknown,
}

/// The stops that clients began and that have not failed, as far as is known: how many of each container and pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenStops {
    /// Of containers.
    pub containers: HashMap<ContainerId, u32>,
    /// Of pods.
    pub pods: HashMap<SandboxId, u32>,
}
