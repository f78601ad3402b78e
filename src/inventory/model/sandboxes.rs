//! The model's sandboxes. Pure.

use std::{collections::HashMap, sync::Arc, time::Instant};

use super::{
    super::{
        convert,
        fact::{Lookup, Target},
        pod::{KUBELETS_UID, Pod, PodNetwork},
    },
    Model,
    identities::Identities,
    removed::Was,
};
use crate::{
    ids::{PodUid, SandboxId},
    proto::{cri, trim::Trimmed},
    runtime::lists::SandboxItem,
};

#[derive(Debug)]
pub(super) struct Sandbox {
    pub(super) view: Arc<Pod>,
    /// The uid that its client gave; possibly empty, or another pod's.
    given_uid: PodUid,
    /// Nanoseconds since the epoch; the maximum until a list has reported it.
    created_at: i64,
    /// The same in brief.
    pub(super) brief: Arc<Pod>,
    /// The latest moment at which it is known to exist.
    pub(super) seen: Instant,
    state_as_of: Instant,
}

impl Sandbox {
    /// Whether it is up, and its address is unknown.
    pub(super) fn lacks_address(&self) -> bool {
        self.view.is_ready && self.view.network == PodNetwork::Unknown
    }
}

impl Model {
    pub(super) fn sandbox_run(&mut self, id: SandboxId, config: Trimmed<cri::PodSandboxConfig>, at: Instant) {
        if !self.sandboxes.contains_key(&id) && self.sandboxes_as_of.is_some_and(|as_of| as_of > at) {
            return;
        }
        let options = config
            .linux
            .as_ref()
            .and_then(|linux| linux.security_context.as_ref()?.namespace_options.as_ref());
        let is_host = options.is_some_and(|options| options.network == cri::NamespaceMode::Node as i32);
        let network = if is_host { PodNetwork::Host } else { PodNetwork::Unknown };
        let (omitted, config) = (config.omitted(), config.into_inner());
        let texts = (config.labels, config.annotations, omitted);
        let view = pod_view(id.clone(), config.metadata, true, network, texts);
        self.put_sandbox(view, at);
        self.ask_for_address(id);
    }

    /// A client stopped it, and the runtime stopped its containers with it.
    pub(super) fn sandbox_stopped(&mut self, id: &SandboxId, at: Instant) {
        if !self.sandboxes.contains_key(id) {
            // Some runtimes report success for any ID.
            return self.named(id.as_str(), at);
        }
        self.sandbox_exited(id, at);
        for container in self.containers_of(id) {
            self.container_stopped(&container, at);
        }
    }

    /// Its own process ended. Its containers may still run.
    pub(super) fn sandbox_exited(&mut self, id: &SandboxId, at: Instant) {
        let Some(sandbox) = self.sandboxes.get_mut(id) else { return };
        if sandbox.state_as_of > at {
            return;
        }
        sandbox.state_as_of = at;
        if sandbox.view.is_ready {
            self.revision += 1;
            Arc::make_mut(&mut sandbox.view).is_ready = false;
            self.dirty.extend(self.containers_of(id));
        }
    }

    pub(super) fn sandbox_removed(&mut self, id: &SandboxId, at: Instant) {
        for container in self.containers_of(id) {
            self.container_removed(&container, at);
        }
        let sandbox = self.sandboxes.remove(id);
        if let Some(sandbox) = &sandbox {
            self.revision += 1;
            self.identities.release(&sandbox.view);
        }
        self.stops.forget(&Target::Sandbox(id.clone()));
        let was = Was { container: None, pod: sandbox.map(|sandbox| sandbox.brief) };
        self.removed.note(id.as_str(), at, was);
    }

    pub(super) fn sandboxes_listed(&mut self, mut items: Vec<SandboxItem>, sent: Instant) {
        self.revision += 1;
        let is_first = self.sandboxes_as_of.is_none();
        self.removed.forget_before(sent);
        // Of pods with the same uid, the first one keeps it.
        items.sort_by(|a, b| (a.brief.created_at, &a.brief.id).cmp(&(b.brief.created_at, &b.brief.id)));
        self.sandboxes_as_of = self.sandboxes_as_of.max(Some(sent));
        for item in items {
            self.sandbox_listed(&item, sent);
        }
        // Everything listed was seen at `sent` at the latest.
        let gone = self.sandboxes.iter().filter(|(_, known)| known.seen < sent);
        for id in gone.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            self.sandbox_removed(&id, sent);
        }
        if is_first {
            self.identify_all();
        }
        self.settle_pod_stops(sent, None);
    }

    /// Assigns all pods' uids by the age of their sandboxes: before the first list, they were reported in another
    /// order, and a restart of ours must not give a uid to another pod.
    fn identify_all(&mut self) {
        let mut ids: Vec<_> =
            self.sandboxes.iter().map(|(id, known)| (known.created_at, id.clone())).collect();
        ids.sort();
        self.identities = Identities::default();
        for (_, id) in ids {
            let Some(known) = self.sandboxes.get_mut(&id) else { continue };
            let mut view = Pod::clone(&known.view);
            self.identities.identify(&known.given_uid, &mut view);
            if view != *known.view {
                known.view = Arc::new(view);
                known.brief = Arc::new(known.view.brief());
                self.dirty.extend(self.containers_of(&id));
            }
        }
    }

    /// The runtime reported this sandbox, or all of them, as of `sent`: this ends stops that are over.
    fn settle_pod_stops(&mut self, sent: Instant, of: Option<&Target>) {
        let runs = |target: &Target| match target {
            Target::Sandbox(id) => match self.sandboxes.get(id) {
                Some(known) => (known.state_as_of <= sent).then_some(known.view.is_ready),
                None => Some(false),
            },
            Target::Container(_) => None,
        };
        let failed = self.stops.settle(sent, of, runs);
        self.report_stops_failed(failed);
    }

    /// Except for its state, what a list reports of a sandbox never changes.
    fn sandbox_listed(&mut self, item: &SandboxItem, sent: Instant) {
        let id = item.brief.id.as_str();
        if self.removed.is_since(id, sent) {
            return;
        }
        let is_ready = item.brief.state == cri::PodSandboxState::SandboxReady as i32;
        match self.sandboxes.get_mut(id) {
            Some(known) => {
                known.seen = known.seen.max(sent);
                known.created_at = item.brief.created_at;
                if known.state_as_of <= sent {
                    known.state_as_of = sent;
                    if known.view.is_ready != is_ready {
                        Arc::make_mut(&mut known.view).is_ready = is_ready;
                        self.dirty.extend(self.containers_of(&id.into()));
                    }
                }
            }
            None => {
                let Ok(whole) = item.whole() else { return self.mentioned(id, sent) };
                let (omitted, whole) = (whole.omitted(), whole.into_inner());
                let (id, network) = (SandboxId::from(whole.id), PodNetwork::Unknown);
                let texts = (whole.labels, whole.annotations, omitted);
                let view = pod_view(id, whole.metadata, is_ready, network, texts);
                self.put_sandbox(view, sent);
                if let Some(known) = self.sandboxes.get_mut(item.brief.id.as_str()) {
                    known.created_at = item.brief.created_at;
                }
            }
        }
        // Lists contain no addresses.
        if self.sandboxes.get(id).is_some_and(Sandbox::lacks_address) {
            self.lookups.insert(Lookup::Sandbox(id.into()));
        }
    }

    /// An address that the runtime does not have yet is requested again with the next list, not at once.
    pub(super) fn sandbox_reported(&mut self, status: Trimmed<cri::PodSandboxStatus>, sent: Instant) {
        let network = convert::network(&status);
        let (omitted, status) = (status.omitted(), status.into_inner());
        let is_ready = status.state == cri::PodSandboxState::SandboxReady as i32;
        let id = SandboxId::from(status.id);
        if !self.sandboxes.contains_key(&id) && self.sandboxes_as_of.is_some_and(|as_of| as_of > sent) {
            return self.mentioned(id.as_str(), sent);
        }
        let texts = (status.labels, status.annotations, omitted);
        self.put_sandbox(pod_view(id.clone(), status.metadata, is_ready, network, texts), sent);
        self.settle_pod_stops(sent, Some(&Target::Sandbox(id)));
    }

    /// A container's sandbox is unknown.
    pub(super) fn explain_sandbox(&mut self, id: &SandboxId) {
        if !self.sandboxes.contains_key(id) {
            self.lookups.insert(Lookup::Sandbox(id.clone()));
        }
    }

    /// Adds or updates a sandbox. Keeps its network if the new report has less, its state if the report is older, and
    /// its pod's uid for as long as it exists.
    fn put_sandbox(&mut self, mut view: Pod, at: Instant) {
        if self.removed.is_since(view.sandbox_id.as_str(), at) {
            return;
        }
        let id = view.sandbox_id.clone();
        let (mut seen, mut state_as_of, mut created_at) = (at, at, i64::MAX);
        let given_uid = view.uid.clone();
        let known = self.sandboxes.get(&id);
        if let Some(known) = known {
            if view.network == PodNetwork::Unknown {
                view.network = known.view.network.clone();
            }
            if known.state_as_of > at {
                view.is_ready = known.view.is_ready;
                state_as_of = known.state_as_of;
            }
            seen = seen.max(known.seen);
            created_at = known.created_at;
            (view.uid, view.copied_uid) = (known.view.uid.clone(), known.view.copied_uid.clone());
        } else {
            self.identities.identify(&given_uid, &mut view);
        }
        let is_new = known.is_none();
        if known.is_none_or(|known| *known.view != view) {
            self.revision += 1;
            self.dirty.extend(self.containers_of(&id));
        }
        let (brief, view) = (Arc::new(view.brief()), Arc::new(view));
        let sandbox = Sandbox { view, brief, given_uid, created_at, seen, state_as_of };
        self.sandboxes.insert(id.clone(), sandbox);
        if is_new {
            self.recognised(&Target::Sandbox(id));
        }
    }

    fn ask_for_address(&mut self, id: SandboxId) {
        if self.sandboxes.get(&id).is_some_and(Sandbox::lacks_address) {
            self.lookups.insert(Lookup::Sandbox(id));
        }
    }
}

fn pod_view(
    sandbox_id: SandboxId,
    metadata: Option<cri::PodSandboxMetadata>,
    is_ready: bool,
    network: PodNetwork,
    (labels, annotations, omitted): (HashMap<String, String>, HashMap<String, String>, u32),
) -> Pod {
    let metadata = metadata.unwrap_or_default();
    Pod {
        sandbox_id,
        uid: PodUid::from(metadata.uid),
        name: metadata.name.into(),
        namespace: metadata.namespace.into(),
        attempt: metadata.attempt,
        copied_uid: None,
        is_ready,
        is_kubelets: labels.contains_key(KUBELETS_UID),
        network,
        labels: labels.into_iter().collect(),
        annotations: annotations.into_iter().collect(),
        omitted,
    }
}
