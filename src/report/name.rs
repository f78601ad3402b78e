//! How a probe is asked for: by its id, which sandboxes of one name share, or by its key.

use std::{fmt, mem::take};

use super::view::{probe_id, probe_key};
use crate::prober::status::ProbeStatus;

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
        kind: String,
    },
    /// `POD_UID/CONTAINER/TYPE`: one probe and no other.
    Key {
        /// The pod's uid.
        pod_uid: String,
        /// The container's name.
        container: String,
        /// The probe's type.
        kind: String,
    },
}

impl ProbeName {
    /// Takes the parts of a path: four of an id, three of a key.
    pub fn of_parts(parts: &[String]) -> Option<Self> {
        Some(match parts.to_vec().as_mut_slice() {
            [namespace, pod, container, kind] => Self::Id {
                namespace: take(namespace),
                pod: take(pod),
                container: take(container),
                kind: take(kind),
            },
            [pod_uid, container, kind] => {
                Self::Key { pod_uid: take(pod_uid), container: take(container), kind: take(kind) }
            }
            _ => return None,
        })
    }

    /// Whether a probe has this name.
    pub fn is_of(&self, probe: &ProbeStatus) -> bool {
        let (container, kind) = match self {
            Self::Id { container, kind, .. } | Self::Key { container, kind, .. } => (container, kind),
        };
        let is_there = match self {
            Self::Id { namespace, pod, .. } => *probe.namespace == **namespace && *probe.pod == **pod,
            Self::Key { pod_uid, .. } => probe.key.pod.as_str() == pod_uid,
        };
        is_there && *probe.key.container == **container && probe.key.kind.as_str() == kind
    }
}

impl fmt::Display for ProbeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&match self {
            Self::Id { namespace, pod, container, kind } => probe_id(namespace, pod, container, kind),
            Self::Key { pod_uid, container, kind } => probe_key(pod_uid, container, kind),
        })
    }
}
