//! The model's containers. Pure.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Instant, SystemTime},
};

use super::{
    super::{
        convert,
        fact::{Lookup, Target},
        pod::{Container, ContainerEnd, ContainerState},
    },
    Change, Model,
    removed::Was,
};
use crate::{
    ids::{ContainerId, ImageRef, SandboxId},
    proto::{cri, trim::Trimmed},
    runtime::lists::ContainerItem,
};

/// 2: how often a status is requested again of a container that has exited, while the runtime has not reported when it
/// started: containerd may handle the exit of a short-lived one before its start. One that did not start at all has no
/// such time.
const START_AWAITED: u8 = 2;

/// 20, 100 ms apart: how often a status is requested again between two lists. A runtime's event can come before its status
/// changes, by more than a second on a busy node.
const ASKED_AGAIN: u8 = 20;

#[derive(Debug)]
pub(super) struct KnownContainer {
    pub(super) sandbox: SandboxId,
    pub(super) name: Arc<str>,
    pub(super) attempt: u32,
    pub(super) image: Arc<str>,
    pub(super) image_spec: Arc<str>,
    /// Whether this is what a list reported: the client's own metadata may contain more than the runtime keeps.
    is_listed: bool,
    /// Empty until the runtime has reported it. The first value stays: list and status may report different names of
    /// one image.
    pub(super) image_ref: ImageRef,
    pub(super) state: ContainerState,
    pub(super) created_at: Option<SystemTime>,
    pub(super) started_at: Option<SystemTime>,
    /// How it ended, as it was reported last.
    pub(super) end: Option<Arc<ContainerEnd>>,
    /// Whether that is all that the runtime knows of it.
    is_end_known: bool,
    pub(super) log_path: Arc<str>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) omitted: u32,
    /// The latest moment at which it is known to exist.
    pub(super) seen: Instant,
    state_as_of: Instant,
    /// How often its status was requested again since the last list.
    asked_again: u8,
    /// The last view that was reported.
    pub(super) reported: Option<Arc<Container>>,
}

impl KnownContainer {
    /// Whether the runtime's status of it is still needed.
    pub(super) fn lacks_something(&self) -> bool {
        match self.state {
            ContainerState::Running => self.started_at.is_none(),
            ContainerState::Exited { exit_code } => exit_code.is_none() || !self.is_end_known,
            ContainerState::Created | ContainerState::Unknown => false,
        }
    }

    /// Applies a state as of `at`. Returns whether it changed: its life goes one way, and only an exit code may be
    /// added. What the runtime could not report for a while, it reports later.
    fn settle(&mut self, to: ContainerState, at: Instant) -> bool {
        let is_news = match (self.state, to) {
            (ContainerState::Exited { exit_code: None }, ContainerState::Exited { exit_code: Some(_) }) => {
                true
            }
            (ContainerState::Exited { .. } | ContainerState::Unknown, ContainerState::Unknown) => false,
            (_, ContainerState::Unknown) => self.state_as_of < at,
            (ContainerState::Unknown, _) => self.state_as_of <= at,
            (from, to) => rank(to) > rank(from),
        };
        if is_news {
            self.state = to;
            self.state_as_of = at.max(self.state_as_of);
        }
        is_news
    }

    /// Applies how it ended, or that the runtime does not report it as exited yet. One whose end the runtime does not
    /// report, although it was asked often enough, ended without a known reason.
    fn learn_end(&mut self, end: Option<ContainerEnd>) {
        self.is_end_known = end.is_some();
        let has_code = matches!(self.state, ContainerState::Exited { exit_code: Some(_) });
        let is_overdue = self.asked_again >= ASKED_AGAIN && has_code && self.end.is_none();
        if let Some(end) = end.or_else(|| is_overdue.then(ContainerEnd::default)) {
            self.end = Some(Arc::new(end));
        }
    }

    /// Applies the runtime's name for its image: runtimes before cri-api 0.28 report no ID beside the reference.
    fn learn_image(&mut self, id: String, reference: String) {
        if self.image_ref.is_empty() {
            self.image_ref = if id.is_empty() { reference.into() } else { id.into() };
        }
    }

    /// Like `settle`, for a report of the runtime as of `sent`. An end without an exit code may have been concluded
    /// from a client's stop: a newer report that it runs reverts it.
    fn settle_reported(&mut self, to: ContainerState, sent: Instant) -> bool {
        let is_concluded =
            self.state == ContainerState::Exited { exit_code: None } && self.state_as_of < sent;
        if is_concluded && matches!(to, ContainerState::Created | ContainerState::Running) {
            self.state = to;
            self.state_as_of = sent;
            return true;
        }
        self.settle(to, sent)
    }
}

impl Model {
    pub(super) fn container_created(
        &mut self,
        id: ContainerId,
        request: Trimmed<cri::CreateContainerRequest>,
        at: Instant,
    ) {
        let (omitted, request) = (request.omitted(), request.into_inner());
        let Some(config) = request.config else { return self.mentioned(id.as_str(), at) };
        let sandbox = self.full_sandbox(&request.pod_sandbox_id);
        if self.removed.is_since(id.as_str(), at) || self.removed.is_since(sandbox.as_str(), at) {
            return;
        }
        if !self.containers.contains_key(&id) && self.containers_as_of.is_some_and(|as_of| as_of > at) {
            return;
        }
        self.explain_sandbox(&sandbox);
        let metadata = config.metadata.unwrap_or_default();
        let is_new = !self.containers.contains_key(&id);
        if is_new {
            self.members.insert((sandbox.clone(), id.clone()));
        }
        let container = self.containers.entry(id.clone()).or_insert_with(|| KnownContainer {
            sandbox,
            name: metadata.name.into(),
            attempt: metadata.attempt,
            image_spec: config.image.as_ref().map(|spec| spec.image.as_str()).unwrap_or_default().into(),
            is_listed: false,
            image: convert::image(config.image),
            image_ref: ImageRef::default(),
            state: ContainerState::Created,
            created_at: None,
            started_at: None,
            end: None,
            is_end_known: false,
            log_path: Arc::default(),
            annotations: config.annotations.into_iter().collect(),
            omitted,
            seen: at,
            state_as_of: at,
            asked_again: 0,
            reported: None,
        });
        container.seen = container.seen.max(at);
        self.revision += 1;
        self.dirty.insert(id.clone());
        if is_new {
            self.recognised(&Target::Container(id));
        }
    }

    /// A container's state advanced. Other data is requested from the runtime.
    pub(super) fn container_moved(&mut self, id: &ContainerId, to: ContainerState, at: Instant) {
        let Some(container) = self.containers.get_mut(id) else {
            return self.mentioned(id.as_str(), at);
        };
        container.seen = container.seen.max(at);
        let is_news = container.settle(to, at);
        // The runtime's event may come before its status changes: a repeated event requests it again.
        if container.lacks_something() && rank(container.state) == rank(to) {
            self.lookups.insert(Lookup::Container(id.clone()));
        }
        if !is_news {
            return;
        }
        self.revision += 1;
        self.dirty.insert(id.clone());
        // A pod whose container starts is up, whatever the last report was.
        let sandbox = container.sandbox.clone();
        if to == ContainerState::Running
            && self.sandboxes.get(&sandbox).is_some_and(|known| !known.view.is_ready)
        {
            self.lookups.insert(Lookup::Sandbox(sandbox));
        }
    }

    /// A client stopped it, or its pod. If it was running, it has ended, with an exit code that only the runtime knows.
    /// If it was never started, it has not ended, and may still be started.
    pub(super) fn container_stopped(&mut self, id: &ContainerId, at: Instant) {
        match self.containers.get(id).map(|container| (container.state, container.state_as_of)) {
            // Some runtimes report success for any ID.
            None => self.named(id.as_str(), at),
            Some((ContainerState::Running, as_of)) if as_of < at => {
                self.container_moved(id, ContainerState::Exited { exit_code: None }, at);
            }
            Some((ContainerState::Exited { exit_code: Some(_) }, _)) => {}
            Some(_) => drop(self.lookups.insert(Lookup::Container(id.clone()))),
        }
    }

    /// The kernel killed one of its processes. If it has exited, the runtime may have reported its end without that.
    pub(super) fn container_out_of_memory(&mut self, id: &ContainerId) {
        let Some(container) = self.containers.get_mut(id) else { return };
        if matches!(container.state, ContainerState::Exited { .. }) {
            container.is_end_known = false;
            self.lookups.insert(Lookup::ContainerAgain(id.clone()));
        }
    }

    /// Its processes were frozen, or run on.
    pub(super) fn container_paused(&mut self, id: ContainerId, is_paused: bool, at: Instant) {
        self.mentioned(id.as_str(), at);
        if self.pauses.note(&id, is_paused, at) {
            self.revision += 1;
            self.dirty.insert(id);
        }
    }

    pub(super) fn container_removed(&mut self, id: &ContainerId, at: Instant) {
        self.stops.forget(&Target::Container(id.clone()));
        self.dirty.remove(id);
        self.pauses.forget(id);
        let container = self.containers.remove(id);
        if let Some(container) = &container {
            self.revision += 1;
            self.members.remove(&(container.sandbox.clone(), id.clone()));
        }
        let was = container.as_ref().map_or_else(Was::default, |container| Was {
            container: Some(Arc::clone(&container.name)),
            pod: self.pod(&container.sandbox).cloned(),
        });
        self.removed.note(id.as_str(), at, was);
        if container.is_some_and(|container| container.reported.is_some()) {
            self.changes.push(Change::ContainerGone(id.clone()));
        }
    }

    pub(super) fn containers_listed(&mut self, items: Vec<ContainerItem>, sent: Instant) {
        self.revision += 1;
        self.containers_as_of = self.containers_as_of.max(Some(sent));
        for item in items {
            self.container_listed(&item, sent);
        }
        // Everything listed was seen at `sent` at the latest.
        let gone = self.containers.iter().filter(|(_, known)| known.seen < sent);
        for id in gone.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            self.container_removed(&id, sent);
        }
        self.pauses.forget_before(sent, |id| self.containers.contains_key(id));
        self.settle_stops(sent, None);
    }

    /// The runtime reported this container, or all of them, as of `sent`: this ends stops that are over.
    fn settle_stops(&mut self, sent: Instant, of: Option<&Target>) {
        let runs = |target: &Target| match target {
            Target::Container(id) => {
                match self.containers.get(id).map(|container| container.state) {
                    // One that was only made can still be started: a stop that is over has not ended it.
                    Some(ContainerState::Running | ContainerState::Created) => Some(true),
                    Some(ContainerState::Exited { exit_code: Some(_) }) | None => Some(false),
                    // Created may be reverted, and unknown says nothing.
                    Some(ContainerState::Exited { exit_code: None } | ContainerState::Unknown) => None,
                }
            }
            Target::Sandbox(_) => None,
        };
        let failed = self.stops.settle(sent, of, runs);
        self.report_stops_failed(failed);
    }

    fn container_listed(&mut self, item: &ContainerItem, sent: Instant) {
        let sandbox = item.brief.pod_sandbox_id.as_str();
        if self.removed.is_since(&item.brief.id, sent) || self.removed.is_since(sandbox, sent) {
            return;
        }
        if !self.sandboxes.contains_key(sandbox) {
            self.explain_sandbox(&sandbox.into());
        }
        let state = convert::state(item.brief.state, None);
        let Some(container) = self.containers.get_mut(item.brief.id.as_str()) else {
            return self.add_listed(item, state, sent);
        };
        container.seen = container.seen.max(sent);
        let mut is_news = container.settle_reported(state, sent);
        if container.sandbox.as_str() != sandbox {
            // A client may have named it by a beginning that was not known yet.
            let former = std::mem::replace(&mut container.sandbox, sandbox.into());
            let id = ContainerId::from(item.brief.id.as_str());
            self.members.remove(&(former, id.clone()));
            self.members.insert((sandbox.into(), id));
            is_news = true;
        }
        if (container.image_ref.is_empty() || !container.is_listed)
            && let Ok(whole) = item.whole()
        {
            let whole = whole.into_inner();
            container.is_listed = true;
            container.image_spec = convert::image(whole.image);
            container.learn_image(whole.image_id, whole.image_ref);
            is_news = true;
        }
        container.asked_again = 0;
        if container.lacks_something() {
            self.lookups.insert(Lookup::Container(item.brief.id.as_str().into()));
        }
        if is_news {
            self.dirty.insert(item.brief.id.as_str().into());
        }
    }

    /// A new container. Except for its state, what a list reports of it never changes.
    fn add_listed(&mut self, item: &ContainerItem, state: ContainerState, sent: Instant) {
        let Ok(whole) = item.whole() else { return self.mentioned(&item.brief.id, sent) };
        let (omitted, whole) = (whole.omitted(), whole.into_inner());
        let id = ContainerId::from(whole.id);
        let metadata = whole.metadata.unwrap_or_default();
        let image = convert::image(whole.image);
        let mut container = KnownContainer {
            sandbox: whole.pod_sandbox_id.into(),
            name: metadata.name.into(),
            attempt: metadata.attempt,
            image_spec: Arc::clone(&image),
            is_listed: true,
            image,
            image_ref: ImageRef::default(),
            state,
            created_at: convert::time(whole.created_at),
            started_at: None,
            end: None,
            is_end_known: false,
            log_path: Arc::default(),
            annotations: whole.annotations.into_iter().collect(),
            omitted,
            seen: sent,
            state_as_of: sent,
            asked_again: 0,
            reported: None,
        };
        container.learn_image(whole.image_id, whole.image_ref);
        self.members.insert((container.sandbox.clone(), id.clone()));
        self.containers.insert(id.clone(), container);
        self.lookups.insert(Lookup::Container(id.clone()));
        self.dirty.insert(id.clone());
        self.recognised(&Target::Container(id));
    }

    pub(super) fn container_reported(&mut self, status: cri::ContainerStatus, sent: Instant) {
        let end = convert::end(&status);
        let id = ContainerId::from(status.id);
        if self.removed.is_since(id.as_str(), sent) {
            return;
        }
        let Some(container) = self.containers.get_mut(&id) else {
            // A status has no field for its sandbox; the list does.
            self.lookups.insert(Lookup::List);
            return;
        };
        container.seen = container.seen.max(sent);
        container.created_at = convert::time(status.created_at).or(container.created_at);
        container.started_at = convert::time(status.started_at).or(container.started_at);
        container.learn_image(status.image_id, status.image_ref);
        if !status.log_path.is_empty() && *container.log_path != status.log_path {
            container.log_path = status.log_path.into();
        }
        container.settle_reported(convert::state(status.state, Some(status.exit_code)), sent);
        let is_start_awaited = container.started_at.is_none() && container.asked_again < START_AWAITED;
        container.learn_end(end.filter(|_| !is_start_awaited));
        // The runtime does not know the missing values yet, but will soon.
        if container.lacks_something() && container.asked_again < ASKED_AGAIN {
            container.asked_again += 1;
            self.lookups.insert(Lookup::ContainerAgain(id.clone()));
        }
        self.revision += 1;
        self.dirty.insert(id.clone());
        self.settle_stops(sent, Some(&Target::Container(id)));
    }

    pub(super) fn containers_of(&self, sandbox: &SandboxId) -> Vec<ContainerId> {
        self.members_of(sandbox).cloned().collect()
    }
}

/// How far a container's life has progressed.
fn rank(state: ContainerState) -> u8 {
    match state {
        ContainerState::Unknown => 0,
        ContainerState::Created => 1,
        ContainerState::Running => 2,
        ContainerState::Exited { .. } => 3,
    }
}
