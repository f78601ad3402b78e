//! What is known of the node: facts in, changes out. Pure: never does IO, reads a clock, or logs.
//!
//! Lists, passing calls and events race. Three rules keep them in order:
//! - A list speaks for the moment its request was sent: it removes nothing that was seen since.
//! - What was seen to be removed stays removed for lists sent before.
//! - A container's life goes one way (created, running, exited); an older report never turns it back.
//!
//! An id that nobody has explained is looked up, never dropped.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use super::{
    convert,
    fact::{Fact, Lookup},
    view::{ContainerState, ContainerView, Env, PodNetwork, PodView},
};
use crate::{
    ids::{ContainerId, PodUid, SandboxId},
    proto::cri,
};

/// 2 min: how long it is remembered that something was removed; longer than any list may be under way.
const MEMORY: Duration = Duration::from_secs(120);

/// What the stages after the inventory are told.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A container appeared, or something about it or its pod changed.
    Container(Arc<ContainerView>),
    /// A container is no more.
    ContainerGone(ContainerId),
    /// A client began to stop it.
    ContainerStopping(ContainerId),
    /// A client began to stop its pod.
    PodStopping(SandboxId),
}

/// Pods and containers.
#[derive(Debug, Default)]
pub struct Model {
    sandboxes: HashMap<SandboxId, Sandbox>,
    containers: HashMap<ContainerId, Container>,
    /// What was removed, and when that was seen.
    removed: HashMap<String, Instant>,
    /// Ids to be asked for, in order.
    lookups: BTreeSet<Lookup>,
    changes: Vec<Change>,
    dirty: BTreeSet<ContainerId>,
}

#[derive(Debug)]
struct Sandbox {
    view: Arc<PodView>,
    /// The latest moment for which it is known to exist.
    seen: Instant,
    state_as_of: Instant,
}

#[derive(Debug)]
struct Container {
    sandbox: SandboxId,
    name: Arc<str>,
    attempt: u32,
    image: Arc<str>,
    state: ContainerState,
    created_at: Option<SystemTime>,
    started_at: Option<SystemTime>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    env: Option<Env>,
    seen: Instant,
    state_as_of: Instant,
    /// What was last told of it.
    told: Option<Arc<ContainerView>>,
}

impl Model {
    /// Takes in a fact that was observed at `at`; for answers of the runtime that is when the question was sent.
    pub fn apply(&mut self, fact: Fact, at: Instant) {
        match fact {
            Fact::SandboxRun { id, config } => self.sandbox_run(id, *config, at),
            Fact::SandboxStopping(id) => self.changes.push(Change::PodStopping(id)),
            Fact::SandboxStopped(id) => self.sandbox_stopped(&id, at),
            Fact::SandboxRemoved(id) => self.sandbox_removed(&id, at),
            Fact::ContainerCreated { id, request } => self.container_created(id, *request, at),
            Fact::ContainerStarted(id) => self.container_moved(&id, ContainerState::Running, at),
            Fact::ContainerStopping(id) => self.changes.push(Change::ContainerStopping(id)),
            Fact::ContainerExited { id, exit_code } => {
                self.container_moved(&id, ContainerState::Exited { exit_code }, at);
            }
            Fact::ContainerRemoved(id) => self.container_removed(&id, at),
            Fact::Mentioned(id) => self.mentioned(&id, at),
            Fact::SandboxesListed(items) => self.sandboxes_listed(items, at),
            Fact::ContainersListed(items) => self.containers_listed(items, at),
            Fact::SandboxReported(status) => self.sandbox_reported(*status, at),
            Fact::ContainerReported(answer) => self.container_reported(*answer, at),
            Fact::NotFound(id) => self.not_found(&id, at),
        }
    }

    /// What changed since this was last asked, in order.
    pub fn take_changes(&mut self) -> Vec<Change> {
        for id in std::mem::take(&mut self.dirty) {
            let Some(view) = self.view(&id) else { continue };
            if let Some(container) = self.containers.get_mut(&id)
                && container.told.as_deref() != Some(&view)
            {
                let view = Arc::new(view);
                container.told = Some(Arc::clone(&view));
                self.changes.push(Change::Container(view));
            }
        }
        std::mem::take(&mut self.changes)
    }

    /// What is to be asked of the runtime, since this was last asked.
    pub fn take_lookups(&mut self) -> Vec<Lookup> {
        std::mem::take(&mut self.lookups).into_iter().collect()
    }

    /// A container's name and pod, as soon as both are known.
    pub fn whereabouts(&self, id: &ContainerId) -> Option<(Arc<str>, Arc<PodView>)> {
        let container = self.containers.get(id)?;
        Some((Arc::clone(&container.name), Arc::clone(self.pod(&container.sandbox)?)))
    }

    /// Whether an id is a sandbox's.
    pub fn is_sandbox(&self, id: &str) -> bool {
        self.sandboxes.contains_key(&SandboxId::from(id))
    }

    /// A pod by its sandbox's id.
    pub fn pod(&self, id: &SandboxId) -> Option<&Arc<PodView>> {
        Some(&self.sandboxes.get(id)?.view)
    }

    /// How much there is of everything.
    pub fn census(&self) -> Census {
        Census {
            pods: self.sandboxes.values().filter(|sandbox| sandbox.view.is_ready).count(),
            sandboxes: self.sandboxes.len(),
            running: self
                .containers
                .values()
                .filter(|container| container.state == ContainerState::Running)
                .count(),
            containers: self.containers.len(),
        }
    }

    fn sandbox_run(&mut self, id: SandboxId, config: cri::PodSandboxConfig, at: Instant) {
        let options = config
            .linux
            .as_ref()
            .and_then(|linux| linux.security_context.as_ref()?.namespace_options.as_ref());
        let is_host = options.is_some_and(|options| options.network == cri::NamespaceMode::Node as i32);
        let network = if is_host { PodNetwork::Host } else { PodNetwork::Unknown };
        let view = pod_view(id, config.metadata, true, network, config.labels, config.annotations);
        self.put_sandbox(view, at);
    }

    /// Adds or refreshes a sandbox; its network is kept where the new report knows less.
    fn put_sandbox(&mut self, mut view: PodView, at: Instant) {
        if self.is_removed_since(view.sandbox_id.as_str(), at) {
            return;
        }
        let id = view.sandbox_id.clone();
        let mut seen = at;
        let mut state_as_of = at;
        if let Some(known) = self.sandboxes.get(&id) {
            if view.network == PodNetwork::Unknown {
                view.network = known.view.network.clone();
            }
            if known.state_as_of > at {
                view.is_ready = known.view.is_ready;
                state_as_of = known.state_as_of;
            }
            seen = seen.max(known.seen);
        }
        let is_new = self.sandboxes.get(&id).is_none_or(|known| *known.view != view);
        let lacks_address = view.network == PodNetwork::Unknown && view.is_ready;
        if lacks_address && is_new {
            self.lookups.insert(Lookup::Sandbox(id.clone()));
        }
        self.sandboxes.insert(id.clone(), Sandbox { view: Arc::new(view), seen, state_as_of });
        if is_new {
            self.touch_containers_of(&id);
        }
    }

    fn sandbox_stopped(&mut self, id: &SandboxId, at: Instant) {
        if let Some(sandbox) = self.sandboxes.get_mut(id) {
            sandbox.state_as_of = sandbox.state_as_of.max(at);
            if sandbox.view.is_ready {
                Arc::make_mut(&mut sandbox.view).is_ready = false;
            }
        }
        // Its containers ended with it; with which code only the runtime knows.
        let ended: Vec<_> = self.containers_of(id).collect();
        for container in ended {
            self.container_moved(&container, ContainerState::Exited { exit_code: None }, at);
        }
        self.touch_containers_of(id);
    }

    fn sandbox_removed(&mut self, id: &SandboxId, at: Instant) {
        self.removed.insert(id.as_str().to_owned(), at);
        self.sandboxes.remove(id);
        let gone: Vec<_> = self.containers_of(id).collect();
        for container in gone {
            self.container_removed(&container, at);
        }
    }

    fn container_created(&mut self, id: ContainerId, request: cri::CreateContainerRequest, at: Instant) {
        let Some(config) = request.config else { return };
        let metadata = config.metadata.unwrap_or_default();
        let sandbox = SandboxId::from(request.pod_sandbox_id);
        if self.is_removed_since(id.as_str(), at) {
            return;
        }
        self.explain_sandbox(&sandbox);
        let env = convert::env(&config.envs);
        let container = self.containers.entry(id.clone()).or_insert_with(|| Container {
            sandbox,
            name: metadata.name.into(),
            attempt: metadata.attempt,
            image: config.image.map(|image| image.image).unwrap_or_default().into(),
            state: ContainerState::Created,
            created_at: None,
            started_at: None,
            labels: config.labels.into_iter().collect(),
            annotations: config.annotations.into_iter().collect(),
            env: None,
            seen: at,
            state_as_of: at,
            told: None,
        });
        container.env.get_or_insert(env);
        container.seen = container.seen.max(at);
        self.dirty.insert(id);
    }

    /// A container's life went on. What a runtime reports besides is asked for.
    fn container_moved(&mut self, id: &ContainerId, to: ContainerState, at: Instant) {
        let Some(container) = self.containers.get_mut(id) else {
            return self.mentioned(id.as_str(), at);
        };
        container.seen = container.seen.max(at);
        // The runtime's event may come before its status knows of the start: whoever says so again asks again.
        if to == ContainerState::Running && to == container.state && container.started_at.is_none() {
            self.lookups.insert(Lookup::Container(id.clone()));
        }
        if rank(to) <= rank(container.state) && !completes(to, container.state) {
            return;
        }
        container.state = to;
        container.state_as_of = at;
        let lacks = match to {
            ContainerState::Running => container.started_at.is_none(),
            ContainerState::Exited { exit_code } => exit_code.is_none(),
            ContainerState::Created | ContainerState::Unknown => false,
        };
        if lacks {
            self.lookups.insert(Lookup::Container(id.clone()));
        }
        self.dirty.insert(id.clone());
    }

    fn container_removed(&mut self, id: &ContainerId, at: Instant) {
        self.removed.insert(id.as_str().to_owned(), at);
        self.dirty.remove(id);
        if self.containers.remove(id).is_some_and(|container| container.told.is_some()) {
            self.changes.push(Change::ContainerGone(id.clone()));
        }
    }

    /// Something happened to an id: where nobody has explained it, it is looked up.
    fn mentioned(&mut self, id: &str, at: Instant) {
        let is_known = self.containers.contains_key(&ContainerId::from(id))
            || self.sandboxes.contains_key(&SandboxId::from(id));
        if !is_known && !id.is_empty() && !self.is_removed_since(id, at) {
            self.lookups.insert(Lookup::Unexplained(id.to_owned()));
        }
    }

    fn sandboxes_listed(&mut self, items: Vec<cri::PodSandbox>, sent: Instant) {
        self.removed.retain(|_, removed_at| sent.saturating_duration_since(*removed_at) < MEMORY);
        let listed: BTreeSet<&str> = items.iter().map(|item| item.id.as_str()).collect();
        let gone: Vec<_> = self
            .sandboxes
            .iter()
            .filter(|(id, sandbox)| sandbox.seen < sent && !listed.contains(id.as_str()))
            .map(|(id, _)| id.clone())
            .collect();
        for id in gone {
            self.sandbox_removed(&id, sent);
        }
        for item in items {
            let is_ready = item.state == cri::PodSandboxState::SandboxReady as i32;
            let id = SandboxId::from(item.id);
            let view = pod_view(
                id.clone(),
                item.metadata,
                is_ready,
                PodNetwork::Unknown,
                item.labels,
                item.annotations,
            );
            self.put_sandbox(view, sent);
            // No list says where a pod is reached.
            if self
                .sandboxes
                .get(&id)
                .is_some_and(|sandbox| sandbox.view.is_ready && sandbox.view.network == PodNetwork::Unknown)
            {
                self.lookups.insert(Lookup::Sandbox(id));
            }
        }
    }

    fn containers_listed(&mut self, items: Vec<cri::Container>, sent: Instant) {
        let listed: BTreeSet<&str> = items.iter().map(|item| item.id.as_str()).collect();
        let gone: Vec<_> = self
            .containers
            .iter()
            .filter(|(id, container)| container.seen < sent && !listed.contains(id.as_str()))
            .map(|(id, _)| id.clone())
            .collect();
        for id in gone {
            self.container_removed(&id, sent);
        }
        for item in items {
            self.container_listed(item, sent);
        }
    }

    fn container_listed(&mut self, item: cri::Container, sent: Instant) {
        if self.is_removed_since(&item.id, sent) {
            return;
        }
        let id = ContainerId::from(item.id);
        let state = convert::state(item.state, None);
        if !self.containers.contains_key(&id) {
            let sandbox = SandboxId::from(item.pod_sandbox_id);
            self.explain_sandbox(&sandbox);
            let metadata = item.metadata.unwrap_or_default();
            let container = Container {
                sandbox,
                name: metadata.name.into(),
                attempt: metadata.attempt,
                image: item.image.map(|image| image.image).unwrap_or_default().into(),
                state: ContainerState::Created,
                created_at: convert::time(item.created_at),
                started_at: None,
                labels: item.labels.into_iter().collect(),
                annotations: item.annotations.into_iter().collect(),
                env: None,
                seen: sent,
                state_as_of: sent,
                told: None,
            };
            self.containers.insert(id.clone(), container);
            // The environment is in no list.
            self.lookups.insert(Lookup::Container(id.clone()));
            self.dirty.insert(id.clone());
        }
        self.container_state(&id, state, sent);
    }

    /// A state that a list or status reported for the moment `sent`.
    fn container_state(&mut self, id: &ContainerId, state: ContainerState, sent: Instant) {
        if state != ContainerState::Unknown {
            return self.container_moved(id, state, sent);
        }
        if let Some(container) = self.containers.get_mut(id)
            && container.state_as_of < sent
        {
            container.state = ContainerState::Unknown;
            container.state_as_of = sent;
            self.dirty.insert(id.clone());
        }
    }

    fn sandbox_reported(&mut self, status: cri::PodSandboxStatus, sent: Instant) {
        let network = convert::network(&status);
        let is_ready = status.state == cri::PodSandboxState::SandboxReady as i32;
        let id = SandboxId::from(status.id);
        let view =
            pod_view(id.clone(), status.metadata, is_ready, network, status.labels, status.annotations);
        self.put_sandbox(view, sent);
        // An address that the runtime does not have now is asked for again with the next resync, not at once.
        self.lookups.remove(&Lookup::Sandbox(id));
    }

    fn container_reported(&mut self, answer: cri::ContainerStatusResponse, sent: Instant) {
        let Some(status) = answer.status else { return };
        let id = ContainerId::from(status.id.clone());
        if self.is_removed_since(id.as_str(), sent) {
            return;
        }
        let exit_code = Some(status.exit_code);
        let state = convert::state(status.state, exit_code);
        if !self.containers.contains_key(&id) {
            // A status does not say which sandbox it belongs to in a field of its own; the list does.
            self.lookups.insert(Lookup::List);
            return;
        }
        if let Some(container) = self.containers.get_mut(&id) {
            container.seen = container.seen.max(sent);
            container.created_at = convert::time(status.created_at).or(container.created_at);
            container.started_at = convert::time(status.started_at).or(container.started_at);
            if container.env.is_none() {
                container.env = Some(convert::env_of_info(&answer.info).unwrap_or_default());
            }
            self.dirty.insert(id.clone());
        }
        self.container_state(&id, state, sent);
        // Whatever it still lacks, the runtime does not know now.
        self.lookups.remove(&Lookup::Container(id));
    }

    fn not_found(&mut self, id: &str, sent: Instant) {
        let container = ContainerId::from(id);
        if self.containers.get(&container).is_some_and(|known| known.seen < sent) {
            self.container_removed(&container, sent);
        }
        let sandbox = SandboxId::from(id);
        if self.sandboxes.get(&sandbox).is_some_and(|known| known.seen < sent) {
            self.sandbox_removed(&sandbox, sent);
        }
    }

    fn explain_sandbox(&mut self, id: &SandboxId) {
        if !self.sandboxes.contains_key(id) {
            self.lookups.insert(Lookup::Sandbox(id.clone()));
        }
    }

    fn is_removed_since(&self, id: &str, at: Instant) -> bool {
        self.removed.get(id).is_some_and(|removed_at| *removed_at >= at)
    }

    fn containers_of(&self, sandbox: &SandboxId) -> impl Iterator<Item = ContainerId> {
        self.containers
            .iter()
            .filter(move |(_, container)| container.sandbox == *sandbox)
            .map(|(id, _)| id.clone())
    }

    fn touch_containers_of(&mut self, sandbox: &SandboxId) {
        let touched: Vec<_> = self.containers_of(sandbox).collect();
        self.dirty.extend(touched);
    }

    /// What can be told of a container; `None` while its pod is unknown, or while it runs and the runtime has not yet
    /// said since when and with which environment.
    fn view(&self, id: &ContainerId) -> Option<ContainerView> {
        let container = self.containers.get(id)?;
        let pod = Arc::clone(&self.sandboxes.get(&container.sandbox)?.view);
        let is_explained = container.started_at.is_some() && container.env.is_some();
        if container.state == ContainerState::Running && !is_explained {
            return None;
        }
        Some(ContainerView {
            id: id.clone(),
            name: Arc::clone(&container.name),
            attempt: container.attempt,
            image: Arc::clone(&container.image),
            state: container.state,
            created_at: container.created_at,
            started_at: container.started_at,
            labels: container.labels.clone(),
            annotations: container.annotations.clone(),
            env: container.env.clone(),
            pod,
        })
    }
}

/// How much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Sandboxes that are ready.
    pub pods: usize,
    /// Sandboxes of any state.
    pub sandboxes: usize,
    /// Containers that run.
    pub running: usize,
    /// Containers of any state.
    pub containers: usize,
}

fn pod_view(
    sandbox_id: SandboxId,
    metadata: Option<cri::PodSandboxMetadata>,
    is_ready: bool,
    network: PodNetwork,
    labels: HashMap<String, String>,
    annotations: HashMap<String, String>,
) -> PodView {
    let metadata = metadata.unwrap_or_default();
    PodView {
        sandbox_id,
        uid: PodUid::from(metadata.uid),
        name: metadata.name.into(),
        namespace: metadata.namespace.into(),
        attempt: metadata.attempt,
        is_ready,
        network,
        labels: labels.into_iter().collect(),
        annotations: annotations.into_iter().collect(),
    }
}

/// How far a container's life has gone.
fn rank(state: ContainerState) -> u8 {
    match state {
        ContainerState::Unknown => 0,
        ContainerState::Created => 1,
        ContainerState::Running => 2,
        ContainerState::Exited { .. } => 3,
    }
}

/// Whether a report adds the exit code that was missing.
fn completes(report: ContainerState, known: ContainerState) -> bool {
    matches!(
        (report, known),
        (ContainerState::Exited { exit_code: Some(_) }, ContainerState::Exited { exit_code: None })
    )
}
