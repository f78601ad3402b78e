//! How a probe is addressed: by its id, which several sandboxes of one name can share, or by its key.

use std::{fmt, mem::take};

use super::view::{probe_id, probe_key};
use crate::{
    ids::{ProbeKey, ProbeType},
    inventory::pod::Container,
    observed::ObservedStatus,
    prober::status::ProbeStatus,
};

/// A name of a probe; its parts are decoded.
///
/// Prints as the API shows it: what splits or escapes is percent-encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeName {
    /// `NAMESPACE/POD/CONTAINER/TYPE`: the probe of the newest sandbox of that name.
    Id {
        /// The pod's namespace.
        namespace: String,
        /// The pod's name.
        pod: String,
        /// The container's name.
        container: String,
        /// The probe's type.
        kind: ProbeType,
    },
    /// `POD_UID/CONTAINER/TYPE`: one probe and no other.
    Key {
        /// The pod's uid.
        pod_uid: String,
        /// The container's name.
        container: String,
        /// The probe's type.
        kind: ProbeType,
    },
}

impl ProbeName {
    /// Takes the parts of a path: four of an id, three of a key. None where the last of them is no type.
    pub fn of_parts(parts: &[String]) -> Option<Self> {
        Some(match parts.to_vec().as_mut_slice() {
            [namespace, pod, container, kind] => Self::Id {
                namespace: take(namespace),
                pod: take(pod),
                container: take(container),
                kind: kind.parse().ok()?,
            },
            [pod_uid, container, kind] => {
                Self::Key { pod_uid: take(pod_uid), container: take(container), kind: kind.parse().ok()? }
            }
            _ => return None,
        })
    }

    /// The type of what it names.
    pub fn kind(&self) -> ProbeType {
        match self {
            Self::Id { kind, .. } | Self::Key { kind, .. } => *kind,
        }
    }

    /// Whether a probe of ours has this name.
    pub fn is_of(&self, probe: &ProbeStatus) -> bool {
        let ProbeKey { pod: uid, container, kind } = &probe.key;
        self.is(ProbeType::Kind(*kind), (&probe.namespace, &probe.pod), uid.as_str(), container)
    }

    /// Whether a client's own probe has this name.
    pub fn is_of_observed(&self, probe: &ObservedStatus) -> bool {
        probe.kind == self.kind() && self.is_in(&probe.container)
    }

    /// Whether it names a probe in this container.
    pub fn is_in(&self, container: &Container) -> bool {
        let Container { name, pod, .. } = container;
        self.is(self.kind(), (&pod.namespace, &pod.name), pod.uid.as_str(), name)
    }

    fn is(&self, its_kind: ProbeType, its_pod: (&str, &str), its_uid: &str, its_container: &str) -> bool {
        match self {
            Self::Id { namespace, pod, container, kind } => {
                (&**namespace, &**pod) == its_pod && container == its_container && *kind == its_kind
            }
            Self::Key { pod_uid, container, kind } => {
                pod_uid == its_uid && container == its_container && *kind == its_kind
            }
        }
    }
}

impl fmt::Display for ProbeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&match self {
            Self::Id { namespace, pod, container, kind } => {
                probe_id(namespace, pod, container, &kind.to_string())
            }
            Self::Key { pod_uid, container, kind } => probe_key(pod_uid, container, &kind.to_string()),
        })
    }
}
