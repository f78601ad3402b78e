//! What the inventory tells the stages after it: one container with its pod, as far as it is known now.

use std::{collections::BTreeMap, fmt, net::IpAddr, sync::Arc, time::SystemTime};

use crate::ids::{ContainerId, ImageRef, PodUid, SandboxId};

/// One pod sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
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

impl PodView {
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
pub struct ContainerView {
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
    /// Its environment as the client set it; `None` until the runtime has told, and where it is too large to be kept.
    pub env: Option<Env>,
    /// The pod it belongs to.
    pub pod: Arc<PodView>,
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

/// A container's environment, one value a name, sorted by name: a lookup is quick however many there are. Holds secrets:
/// prints its size only.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Env(Arc<[(String, String)]>);

impl Env {
    /// All pairs, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// About how many bytes it takes.
    pub fn weight(&self) -> usize {
        self.0.iter().map(|(key, value)| size_of::<(String, String)>() + key.len() + value.len()).sum()
    }

    /// The last value given for a name, compared byte for byte.
    pub fn get(&self, name: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(key, _)| key.as_str().cmp(name)).ok()?;
        Some(&self.0[at].1)
    }
}

impl FromIterator<(String, String)> for Env {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(pairs: T) -> Self {
        let mut pairs: Vec<_> = pairs.into_iter().collect();
        // Sorting keeps the order of equal names, so that the last value given comes first of them and is kept.
        pairs.reverse();
        pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
        pairs.dedup_by(|(a, _), (b, _)| a == b);
        Self(pairs.into())
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Env({} variables)", self.0.len())
    }
}
