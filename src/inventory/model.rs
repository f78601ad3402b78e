//! The state of the node: facts in, changes out. Pure: never does IO, reads a clock, or logs.
//!
//! Lists, relayed calls and events race. Four rules keep them in order:
//! - A list describes the moment its request was sent: it removes nothing that was seen since.
//! - What was seen to be removed stays removed for lists sent before.
//! - A container's life goes one way (created, running, exited); an older report never turns it back.
//! - Whether a container is paused is kept apart from that, also for ids that are not known yet (`pauses`).
//!
//! A late report that is older than the last list, of something that was not on that list, is ignored or, if uncertain,
//! looked up.
//!
//! An unknown id is looked up, never dropped. If a lookup fails, the next list repeats it.

mod containers;
mod identities;
mod pauses;
mod removed;
mod sandboxes;
mod stops;

use std::{
    borrow::Borrow,
    collections::{BTreeMap, BTreeSet, HashSet},
    ops::Bound,
    sync::Arc,
    time::Instant,
};

use containers::KnownContainer;
use identities::Identities;
use pauses::Pauses;
use removed::Removed;
use sandboxes::Sandbox;
use stops::Begun;
pub(crate) use stops::Stops;

use super::{
    fact::{CallId, Fact, Lookup, Target},
    pod::{Container, ContainerState, OpenStops, Pod},
};
use crate::{
    ids::{ContainerId, SandboxId},
    runtime::turns::Owner,
};

/// 256 IDs that only clients named are looked up between two calls of [`Model::take_lookups`]. Further ones are not: the
/// next list shows what exists.
const NAMED: usize = 256;

/// The changes that later stages receive.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// A container appeared, or it or its pod changed.
    Container(Arc<Container>),
    /// A container was removed.
    ContainerGone(ContainerId),
    /// The runtime was listed, and these are all containers. Reported after the first lists, and whenever a stage that
    /// lost its state requests everything.
    Listed(Arc<HashSet<ContainerId>>),
    /// A client began to stop it.
    ContainerStopping(ContainerId),
    /// A client's stop of it is over, and it still runs: the stop failed, or a report of the runtime shows that it
    /// runs.
    ContainerStopFailed(ContainerId),
    /// A client began to stop its pod.
    PodStopping(SandboxId),
    /// A client's stop of its pod is over, and the pod is still ready: the stop failed, or a report of the runtime
    /// shows that it is ready.
    PodStopFailed(SandboxId),
    /// These are all stops that are not over. Reported before [`Change::Listed`].
    StopsListed(Arc<OpenStops>),
    /// The runtime answers again after it did not.
    RuntimeAnswers,
}

/// Pods and containers.
#[derive(Debug, Default)]
pub(super) struct Model {
    /// Ordered, so that an ID is found by its beginning.
    sandboxes: BTreeMap<SandboxId, Sandbox>,
    identities: Identities,
    containers: BTreeMap<ContainerId, KnownContainer>,
    /// The containers of each sandbox.
    members: BTreeSet<(SandboxId, ContainerId)>,
    removed: Removed,
    pauses: Pauses,
    stops: Stops,
    /// The request times of the last list of sandboxes and of the last list of containers.
    sandboxes_as_of: Option<Instant>,
    containers_as_of: Option<Instant>,
    /// What to ask the runtime for.
    lookups: BTreeSet<Lookup>,
    /// IDs that only clients named, to be looked up.
    named: BTreeSet<String>,
    changes: Vec<Change>,
    /// Containers that may have changed.
    dirty: BTreeSet<ContainerId>,
    revision: u64,
}

impl Model {
    /// A model that knows nothing except these stops, which clients began before.
    pub(super) fn new(stops: Stops) -> Self {
        Self { stops, ..Self::default() }
    }

    /// Takes the stops out, for the model that replaces this one.
    pub(super) fn take_stops(&mut self) -> Stops {
        std::mem::take(&mut self.stops)
    }

    /// Applies a fact that was observed at `at`; for answers of the runtime, this is the time of the request.
    pub(super) fn apply(&mut self, fact: Fact, at: Instant) {
        match fact {
            Fact::SandboxRun { id, config } => self.sandbox_run(id, Arc::unwrap_or_clone(config), at),
            Fact::StopBegun { call, target } => self.stop_begun(call, &target),
            Fact::StopFailed(call) => {
                let target = self.stops.failed(call);
                self.report_stops_failed(target);
            }
            Fact::StopDone(call) => self.stops.done(call, at),
            Fact::EndsLost(lost) => {
                if self.stops.lost(lost, at) {
                    self.lookups.insert(Lookup::List);
                }
            }
            Fact::SandboxStopped(id) => self.sandbox_stopped(&self.full_sandbox(id.as_str()), at),
            Fact::SandboxExited(id) => self.sandbox_exited(&id, at),
            Fact::SandboxRemoved(id) => self.sandbox_removed(&self.full_sandbox(id.as_str()), at),
            Fact::ContainerCreated { id, request } => {
                self.container_created(id, Arc::unwrap_or_clone(request), at);
            }
            Fact::ContainerStarted(id) => {
                self.container_moved(&self.full_container(id.as_str()), ContainerState::Running, at);
            }
            Fact::ContainerStopped(id) => self.container_stopped(&self.full_container(id.as_str()), at),
            Fact::ContainerExited { id, exit_code } => {
                self.container_moved(&id, ContainerState::Exited { exit_code }, at);
            }
            Fact::OutOfMemory(id) => self.container_out_of_memory(&id),
            Fact::ContainerRemoved(id) => self.container_removed(&self.full_container(id.as_str()), at),
            Fact::ContainerPaused(id) => self.container_paused(id, true, at),
            Fact::ContainerResumed(id) => self.container_paused(id, false, at),
            Fact::PausedListed(paused) => {
                let changed = self.pauses.list(paused.unwrap_or_default(), at);
                self.revision += 1;
                self.dirty.extend(changed);
            }
            Fact::Mentioned(id) => self.mentioned(&id, at),
            Fact::Named(id) => self.named(&id, at),
            Fact::SandboxesListed(items) => self.sandboxes_listed(items, at),
            Fact::ContainersListed(items) => self.containers_listed(items, at),
            Fact::SandboxReported(status) => self.sandbox_reported(*status, at),
            Fact::ContainerReported(status) => self.container_reported(*status, at),
            Fact::NotFound(id) => self.not_found(&id, at),
        }
    }

    /// Counts what changed: what was read from the model is valid while this number does not change. Calls for IDs that
    /// are not known change nothing.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Reports that the runtime answers again.
    pub(super) fn report_answering(&mut self) {
        self.report(Change::RuntimeAnswers);
    }

    /// Reports every container again, and then that these are all.
    pub(super) fn report_all(&mut self) {
        for container in self.containers.values_mut() {
            container.reported = None;
        }
        self.dirty.extend(self.containers.keys().cloned());
        self.report_listed();
    }

    /// Reports which stops are open, and which containers exist.
    pub(super) fn report_listed(&mut self) {
        let open = self.stops.open();
        self.report(Change::StopsListed(Arc::new(open)));
        let all = self.containers.keys().cloned().collect();
        self.report(Change::Listed(Arc::new(all)));
    }

    /// The changes since the last call, in order.
    pub(super) fn take_changes(&mut self) -> Vec<Change> {
        self.report_containers();
        std::mem::take(&mut self.changes)
    }

    /// What to ask the runtime for since the last call, and the object of each query.
    pub(super) fn take_lookups(&mut self) -> Vec<(Lookup, Owner)> {
        let named = std::mem::take(&mut self.named).into_iter().map(Lookup::Named);
        let lookups = std::mem::take(&mut self.lookups).into_iter().chain(named);
        lookups.map(|lookup| (lookup.clone(), self.owner(&lookup))).collect()
    }

    /// Whether the answer to a lookup is still needed, according to the last lists.
    pub(super) fn wants(&self, lookup: &Lookup) -> bool {
        match lookup {
            Lookup::Container(id) | Lookup::ContainerAgain(id) => {
                self.containers.get(id).is_some_and(KnownContainer::lacks_something)
            }
            Lookup::Sandbox(id) => match self.sandboxes.get(id) {
                Some(sandbox) => !sandbox.view.is_ready || sandbox.lacks_address(),
                None => self.members_of(id).next().is_some(),
            },
            Lookup::List | Lookup::Unexplained(_) | Lookup::Named(_) => true,
        }
    }

    fn owner(&self, lookup: &Lookup) -> Owner {
        let sandbox = match lookup {
            Lookup::Sandbox(id) => Some(id),
            Lookup::Container(id) | Lookup::ContainerAgain(id) => {
                self.containers.get(id).map(|container| &container.sandbox)
            }
            Lookup::List | Lookup::Unexplained(_) | Lookup::Named(_) => None,
        };
        let pod = sandbox.and_then(|id| self.sandboxes.get(id)).map(|known| &known.view);
        pod.map_or_else(Owner::default, |pod| Owner {
            namespace: Arc::clone(&pod.namespace),
            pod: pod.sandbox_id.as_str().into(),
        })
    }

    /// The container that a client named: runtimes accept the unique beginning of an id.
    pub(super) fn full_container(&self, named: &str) -> ContainerId {
        full(&self.containers, named)
    }

    /// The sandbox that a client named: runtimes accept the unique beginning of an id.
    pub(super) fn full_sandbox(&self, named: &str) -> SandboxId {
        full(&self.sandboxes, named)
    }

    /// A container's name and pod in brief, once both are known, and for a while after it was removed.
    pub(super) fn whereabouts(&self, id: &ContainerId) -> Option<(Arc<str>, Arc<Pod>)> {
        if let Some(container) = self.containers.get(id) {
            return Some((Arc::clone(&container.name), Arc::clone(self.pod(&container.sandbox)?)));
        }
        let was = self.removed.was(id.as_str())?;
        Some((was.container.clone()?, was.pod.clone()?))
    }

    /// Whether an id is a sandbox's.
    pub(super) fn is_sandbox(&self, id: &str) -> bool {
        self.sandboxes.contains_key(id)
    }

    /// A pod in brief by its sandbox's id, also for a while after it was removed.
    pub(super) fn pod(&self, id: &SandboxId) -> Option<&Arc<Pod>> {
        match self.sandboxes.get(id) {
            Some(sandbox) => Some(&sandbox.brief),
            None => self.removed.was(id.as_str())?.pod.as_ref(),
        }
    }

    /// All sandboxes, unordered.
    pub(super) fn pods(&self) -> Vec<Arc<Pod>> {
        self.sandboxes.values().map(|sandbox| Arc::clone(&sandbox.view)).collect()
    }

    /// How many of each there are.
    pub(super) fn census(&self) -> Census {
        let is_running = |container: &&KnownContainer| container.state == ContainerState::Running;
        Census {
            pods: self.sandboxes.values().filter(|sandbox| sandbox.view.is_ready).count(),
            sandboxes: self.sandboxes.len(),
            running: self.containers.values().filter(is_running).count(),
            containers: self.containers.len(),
        }
    }

    /// The containers of a sandbox.
    fn members_of(&self, sandbox: &SandboxId) -> impl Iterator<Item = &ContainerId> {
        let all = self.members.range((sandbox.clone(), ContainerId::default())..);
        all.take_while(move |(of, _)| of == sandbox).map(|(_, id)| id)
    }

    /// How many stops of known containers and pods found no room since the last call.
    pub(super) fn take_stops_left_out(&mut self) -> u64 {
        self.stops.take_left_out()
    }

    /// The runtime mentioned an id: if it is unknown, it is looked up.
    fn mentioned(&mut self, id: &str, at: Instant) {
        if let Some(sandbox) = self.sandboxes.get(id) {
            // Only a part of it was known: the change may have completed it.
            if !sandbox.view.is_ready || sandbox.lacks_address() {
                self.lookups.insert(Lookup::Sandbox(id.into()));
            }
            return;
        }
        if self.is_unexplained(id, at) {
            self.lookups.insert(Lookup::Unexplained(id.to_owned()));
        }
    }

    /// A client named an id: if it is unknown, it is looked up, but apart from what is known to exist.
    fn named(&mut self, id: &str, at: Instant) {
        if self.named.len() < NAMED && self.is_unexplained(id, at) {
            self.named.insert(id.to_owned());
        }
    }

    fn is_unexplained(&self, id: &str, at: Instant) -> bool {
        let is_known = self.containers.contains_key(self.full_container(id).as_str())
            || self.sandboxes.contains_key(self.full_sandbox(id).as_str());
        !is_known && !id.is_empty() && !self.removed.is_since(id, at)
    }

    fn not_found(&mut self, id: &str, sent: Instant) {
        if self.containers.get(id).is_some_and(|known| known.seen < sent) {
            self.container_removed(&id.into(), sent);
        }
        if self.sandboxes.get(id).is_some_and(|known| known.seen < sent) {
            self.sandbox_removed(&id.into(), sent);
        }
    }

    fn stop_begun(&mut self, call: CallId, target: &Target) {
        let (target, is_known) = match target {
            Target::Container(id) => {
                let id = self.full_container(id.as_str());
                let is_known = self.containers.contains_key(&id);
                (Target::Container(id), is_known)
            }
            Target::Sandbox(id) => {
                let id = self.full_sandbox(id.as_str());
                let is_known = self.sandboxes.contains_key(&id);
                (Target::Sandbox(id), is_known)
            }
        };
        let begun = self.stops.begun(call, target.clone(), is_known);
        self.report_begun(begun, &target);
    }

    /// A container or pod is known from now on, and so are its stops.
    fn recognised(&mut self, target: &Target) {
        let begun = self.stops.recognised(target);
        self.report_begun(begun, target);
    }

    fn report_begun(&mut self, begun: Begun, target: &Target) {
        self.report_stops_failed(begun.left_out);
        for _ in 0..begun.news {
            self.report(match target {
                Target::Container(id) => Change::ContainerStopping(id.clone()),
                Target::Sandbox(id) => Change::PodStopping(id.clone()),
            });
        }
    }

    /// Reports that the stop of something has ended without effect.
    fn report_stops_failed(&mut self, targets: impl IntoIterator<Item = Target>) {
        for target in targets {
            self.report(match target {
                Target::Container(id) => Change::ContainerStopFailed(id),
                Target::Sandbox(id) => Change::PodStopFailed(id),
            });
        }
    }

    /// Reports a change that is not a view, after the views before it.
    fn report(&mut self, change: Change) {
        self.report_containers();
        self.changes.push(change);
    }

    /// Reports each view that differs from the last one reported.
    fn report_containers(&mut self) {
        for id in std::mem::take(&mut self.dirty) {
            let Some(view) = self.view(&id) else { continue };
            if let Some(container) = self.containers.get_mut(&id)
                && container.reported.as_deref() != Some(&view)
            {
                let view = Arc::new(view);
                container.reported = Some(Arc::clone(&view));
                self.changes.push(Change::Container(view));
            }
        }
    }

    /// The view of a container; `None` while its pod is unknown, or while it runs and the runtime has not yet reported
    /// its start time.
    fn view(&self, id: &ContainerId) -> Option<Container> {
        let container = self.containers.get(id)?;
        let pod = Arc::clone(&self.sandboxes.get(&container.sandbox)?.view);
        if container.state == ContainerState::Running && container.lacks_something() {
            return None;
        }
        Some(Container {
            id: id.clone(),
            name: Arc::clone(&container.name),
            attempt: container.attempt,
            image: Arc::clone(&container.image),
            image_spec: Arc::clone(&container.image_spec),
            image_ref: container.image_ref.clone(),
            state: container.state,
            is_paused: container.state == ContainerState::Running && self.pauses.is_paused(id),
            created_at: container.created_at,
            started_at: container.started_at,
            end: container.end.clone(),
            log_path: Arc::clone(&container.log_path),
            annotations: container.annotations.clone(),
            omitted: container.omitted,
            pod,
        })
    }
}

/// How many of each there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    /// Sandboxes that are ready.
    pub pods: usize,
    /// Sandboxes of any state.
    pub sandboxes: usize,
    /// Containers that run.
    pub running: usize,
    /// Containers of any state.
    pub containers: usize,
}

/// The known id that begins with the given text, if there is exactly one; otherwise the text itself. Clients can name
/// anything at any rate, so this does not look at all ids.
fn full<I, T>(known: &BTreeMap<I, T>, named: &str) -> I
where
    I: Clone + Ord + Borrow<str> + for<'a> From<&'a str>,
{
    let mut from = known.range::<str, _>((Bound::Included(named), Bound::Unbounded)).map(|(id, _)| id);
    let is_like_it = |id: &&I| Borrow::<str>::borrow(*id).starts_with(named);
    match from.next().filter(is_like_it) {
        Some(id) if Borrow::<str>::borrow(id) == named => id.clone(),
        Some(id) if !named.is_empty() && !from.next().is_some_and(|next| is_like_it(&next)) => id.clone(),
        Some(_) | None => named.into(),
    }
}

#[cfg(test)]
mod tests;
