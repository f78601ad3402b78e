//! The uid of each pod: the clients' uids in, a unique uid per pod out. Pure.
//!
//! Probes, pauses, quotas and saved verdicts are stored by a pod's uid. A kubelet's uids are unique; a client such as
//! crictl may give none, or one that another pod has. The first pod keeps it.

use std::collections::{HashMap, HashSet};

use crate::{
    ids::{PodUid, SandboxId},
    inventory::pod::Pod,
};

/// The prefix of a uid that is made from a sandbox's id. Clients cannot give such a uid.
const OF_SANDBOX: &str = "sandbox:";

/// The pods that have their clients' uids; at most one per sandbox.
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
    /// Decides the uid of the pod of a new sandbox: the given one, if there is one and no other pod has it; otherwise
    /// one made from the sandbox's id.
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

    /// A sandbox was removed. If it was its pod's last, the uid is free again.
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
