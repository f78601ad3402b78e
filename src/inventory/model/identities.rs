//! By which uid each pod is known: what clients gave in, a uid that no other pod has out. Pure.
//!
//! Probes, pauses, quotas and saved verdicts are kept by a pod's uid. A kubelet's uids are unique; a client such as crictl may
//! give none, or one that another pod has. Who comes first keeps it.

use std::collections::{HashMap, HashSet};

use crate::{
    ids::{PodUid, SandboxId},
    inventory::pod::Pod,
};

/// What a uid begins with that is made of a sandbox's id. No client can give such a one.
const OF_SANDBOX: &str = "sandbox:";

/// The pods that have the uids that their clients gave. As many as there are sandboxes at most.
#[derive(Debug, Default)]
pub(super) struct Identities {
    owners: HashMap<PodUid, Owner>,
}

/// A pod; its sandboxes share its uid.
#[derive(Debug)]
struct Owner {
    namespace: String,
    name: String,
    sandboxes: HashSet<SandboxId>,
}

impl Identities {
    /// Decides the uid that the pod of a new sandbox is known by: the one that was given, if there is one and no other pod
    /// has it; else one made of the sandbox's id.
    pub(super) fn identify(&mut self, given: &PodUid, pod: &mut Pod) {
        pod.uid = self.claim(given, pod);
        let is_copied = pod.uid != *given && !given.is_empty() && !given.as_str().starts_with(OF_SANDBOX);
        pod.copied_uid = is_copied.then(|| given.clone());
    }

    fn claim(&mut self, given: &PodUid, pod: &Pod) -> PodUid {
        if given.is_empty() || given.as_str().starts_with(OF_SANDBOX) {
            return of_sandbox(&pod.sandbox_id);
        }
        let owner = self.owners.entry(given.clone()).or_insert_with(|| Owner {
            namespace: pod.namespace.to_string(),
            name: pod.name.to_string(),
            sandboxes: HashSet::new(),
        });
        if (&*owner.namespace, &*owner.name) != (&*pod.namespace, &*pod.name) {
            return of_sandbox(&pod.sandbox_id);
        }
        owner.sandboxes.insert(pod.sandbox_id.clone());
        given.clone()
    }

    /// A sandbox is no more. When it was its pod's last, others may have the uid.
    pub(super) fn release(&mut self, pod: &Pod) {
        let Some(owner) = self.owners.get_mut(&pod.uid) else { return };
        owner.sandboxes.remove(&pod.sandbox_id);
        if owner.sandboxes.is_empty() {
            self.owners.remove(&pod.uid);
        }
    }
}

fn of_sandbox(sandbox: &SandboxId) -> PodUid {
    PodUid::from(format!("{OF_SANDBOX}{sandbox}"))
}
