//! The containers that the prober knows: those of one name in one pod stand together, and the newest of them is
//! the one that is probed. Pure.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, OnceLock},
};

use super::{demand::Claim, handle::Listed, worker::event::Stopping};
use crate::{
    ids::{ContainerId, PodUid, ProbeKey, ProbeKind, SandboxId},
    inventory::pod::{Container, ContainerState, OpenStops},
    spec::{plan::Planned, ports::DeclaredPorts},
};

/// All known containers, by id, by place and by sandbox. As many as the inventory has.
#[derive(Debug, Default)]
pub(super) struct Containers {
    by_id: HashMap<ContainerId, Known>,
    by_place: HashMap<Place, Vec<ContainerId>>,
    by_sandbox: HashMap<SandboxId, HashSet<ContainerId>>,
    /// Those on which acts are in progress; they may become known later. As many as the stage that acts has at work.
    acted_on: HashSet<ContainerId>,
}

/// What a container and those that replace it share: the pod and the name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pod: PodUid,
    name: Arc<str>,
}

impl Place {
    /// Where a container is.
    pub(super) fn of(view: &Container) -> Self {
        Self { pod: view.pod.uid.clone(), name: view.name.clone() }
    }

    /// The key of its probe of a type.
    pub(super) fn key(&self, kind: ProbeKind) -> ProbeKey {
        ProbeKey { pod: self.pod.clone(), container: self.name.clone(), kind }
    }
}

/// One container.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// As it was reported last.
    pub(super) view: Arc<Container>,
    probes: Vec<Arc<Planned>>,
    stops: Stops,
    /// Whether it has exited and a client began to stop or remove it or its pod: whatever becomes of that stop, the
    /// container is the client's.
    is_clients: bool,
    /// Whether we have seen it run, and not seen it exit since.
    may_exit: bool,
    /// Read by the first attempt that needs them; in memory about as long as the annotation, whose length is bounded.
    ports: Arc<OnceLock<DeclaredPorts>>,
}

/// The stops that clients began and that have not failed. A kubelet whose stop took too long begins another one, so
/// they are counted; one that succeeded is left standing, as what it stopped runs no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stops {
    of_container: u32,
    of_pod: u32,
}

impl Known {
    /// The probe of a type that is planned for it.
    pub(super) fn planned(&self, kind: ProbeKind) -> Option<&Arc<Planned>> {
        self.probes.iter().find(|planned| planned.kind == kind)
    }

    /// Notes a change of its stops; returns its place, if that changes whether it is being stopped.
    fn note(&mut self, note: impl Fn(&mut Stops)) -> Option<Place> {
        let before = self.stopping();
        note(&mut self.stops);
        self.note_claim();
        (self.stopping() != before).then(|| Place::of(&self.view))
    }

    fn note_claim(&mut self) {
        let has_exited = matches!(self.view.state, ContainerState::Exited { .. });
        self.is_clients |= has_exited && (self.stops.of_container > 0 || self.stops.of_pod > 0);
    }

    /// Whether a client stops it or its pod, or has done so: what its probes find out then is no news.
    pub(super) fn is_stopped_by_client(&self) -> bool {
        self.is_clients || self.stopping().is_some()
    }

    /// Whether it is being stopped, as far as CRI shows.
    pub(super) fn stopping(&self) -> Option<Stopping> {
        if self.stops.of_pod > 0 || !self.view.pod.is_ready {
            Some(Stopping::Pod)
        } else {
            (self.stops.of_container > 0).then_some(Stopping::Container)
        }
    }
}

impl Containers {
    /// Those that are not among these.
    pub(super) fn without(&self, all: &HashSet<ContainerId>) -> Vec<ContainerId> {
        let known = self.by_id.keys().chain(self.acted_on.iter().filter(|id| !self.by_id.contains_key(*id)));
        known.filter(|id| !all.contains(*id)).cloned().collect()
    }

    /// Adds or updates one. Returns whether it has run, and exits now.
    pub(super) fn upsert(&mut self, view: Arc<Container>, probes: Vec<Planned>) -> bool {
        let (id, place, sandbox) = (view.id.clone(), Place::of(&view), view.pod.sandbox_id.clone());
        if self.by_id.get(&id).is_some_and(|former| former.view.pod.sandbox_id != sandbox) {
            self.leave_sandbox(&id);
        }
        self.by_sandbox.entry(sandbox).or_default().insert(id.clone());
        let (mut stops, mut ports) = (Stops::default(), Arc::default());
        let (mut is_clients, mut has_run) = (false, false);
        if let Some(former) = self.by_id.get(&id) {
            (stops, is_clients, has_run) = (former.stops, former.is_clients, former.may_exit);
            if former.view.annotations == view.annotations {
                ports = former.ports.clone();
            }
            // A stop before the start changes nothing: the container starts all the same.
            if (former.view.state, view.state) == (ContainerState::Created, ContainerState::Running) {
                stops.of_container = 0;
            }
        }
        let probes = probes.into_iter().map(Arc::new).collect();
        let exits = has_run && matches!(view.state, ContainerState::Exited { .. });
        let may_exit = !exits && (has_run || view.state == ContainerState::Running);
        let mut known = Known { view, probes, stops, is_clients, may_exit, ports };
        known.note_claim();
        self.by_id.insert(id.clone(), known);
        let ids = self.by_place.entry(place).or_default();
        if !ids.contains(&id) {
            ids.push(id);
        }
        exits
    }

    /// Forgets one.
    pub(super) fn remove(&mut self, id: &ContainerId) {
        self.leave_sandbox(id);
        self.acted_on.remove(id);
        let Some(known) = self.by_id.remove(id) else { return };
        let place = Place::of(&known.view);
        if let Some(ids) = self.by_place.get_mut(&place) {
            ids.retain(|other| other != id);
            if ids.is_empty() {
                self.by_place.remove(&place);
            }
        }
    }

    fn leave_sandbox(&mut self, id: &ContainerId) {
        let Some(sandbox) = self.by_id.get(id).map(|known| &known.view.pod.sandbox_id) else { return };
        if let Some(members) = self.by_sandbox.get_mut(sandbox) {
            members.remove(id);
            if members.is_empty() {
                self.by_sandbox.remove(sandbox);
            }
        }
    }

    /// All of them, in no order.
    pub(super) fn all(&self) -> Vec<Listed> {
        let listed = |known: &Known| Listed { view: known.view.clone(), probes: known.probes.clone() };
        self.by_id.values().map(listed).collect()
    }

    /// Where a container is, if it is known.
    pub(super) fn place(&self, id: &ContainerId) -> Option<Place> {
        self.by_id.get(id).map(|known| Place::of(&known.view))
    }

    /// The ports that a container declares.
    pub(super) fn ports(&self, id: &ContainerId) -> Arc<OnceLock<DeclaredPorts>> {
        self.by_id.get(id).map(|known| known.ports.clone()).unwrap_or_default()
    }

    /// Notes that an act on a container began or ended; returns its place, if that is news of a known one.
    pub(super) fn note_act(&mut self, id: &ContainerId, is_in_progress: bool) -> Option<Place> {
        let is_news =
            if is_in_progress { self.acted_on.insert(id.clone()) } else { self.acted_on.remove(id) };
        self.place(id).filter(|_| is_news)
    }

    /// Whether an act on a container is in progress.
    pub(super) fn is_acted_on(&self, id: &ContainerId) -> bool {
        self.acted_on.contains(id)
    }

    /// A container, if it is known.
    pub(super) fn get(&self, id: &ContainerId) -> Option<&Known> {
        self.by_id.get(id)
    }

    /// What makes a container a client's own business, if anything does.
    pub(super) fn claim(&self, known: &Known) -> Option<Claim> {
        let is_current = |current: &Known| current.view.id == known.view.id;
        if known.stopping() == Some(Stopping::Pod) {
            Some(Claim::PodStopped)
        } else if known.is_clients || known.stops.of_container > 0 {
            Some(Claim::Stopped)
        } else {
            let current = self.current(&Place::of(&known.view));
            (!current.is_some_and(is_current)).then_some(Claim::Replaced)
        }
    }

    /// Notes that a stop of a container began; returns its place, if that changes whether it is being stopped.
    pub(super) fn note_stopping(&mut self, id: &ContainerId) -> Option<Place> {
        let known = self.by_id.get_mut(id)?;
        known.note(|stops| stops.of_container = stops.of_container.saturating_add(1))
    }

    /// Notes that a stop of a container failed; likewise.
    pub(super) fn note_stop_failed(&mut self, id: &ContainerId) -> Option<Place> {
        let known = self.by_id.get_mut(id)?;
        known.note(|stops| stops.of_container = stops.of_container.saturating_sub(1))
    }

    /// Notes that a stop of a pod began; returns the places of its containers for which that changes something.
    pub(super) fn note_pod_stopping(&mut self, sandbox: &SandboxId) -> Vec<Place> {
        self.note_of_pod(sandbox, |stops| stops.of_pod = stops.of_pod.saturating_add(1))
    }

    /// Notes that a stop of a pod failed; likewise.
    pub(super) fn note_pod_stop_failed(&mut self, sandbox: &SandboxId) -> Vec<Place> {
        self.note_of_pod(sandbox, |stops| stops.of_pod = stops.of_pod.saturating_sub(1))
    }

    /// Takes these for all stops that are open; returns where containers stand for which that is news.
    pub(super) fn set_stops(&mut self, open: &OpenStops) -> Vec<Place> {
        let of = |known: &Known| Stops {
            of_container: open.containers.get(&known.view.id).copied().unwrap_or_default(),
            of_pod: open.pods.get(&known.view.pod.sandbox_id).copied().unwrap_or_default(),
        };
        let mut changed = Vec::new();
        for known in self.by_id.values_mut() {
            let stops = of(known);
            if std::mem::replace(&mut known.stops, stops) != stops {
                known.note_claim();
                changed.push(Place::of(&known.view));
            }
        }
        changed
    }

    /// Clients decide how often this happens: it looks only at the containers of the pod.
    fn note_of_pod(&mut self, sandbox: &SandboxId, note: impl Fn(&mut Stops)) -> Vec<Place> {
        let members = self.by_sandbox.get(sandbox).into_iter().flatten();
        members.filter_map(|id| self.by_id.get_mut(id)?.note(&note)).collect()
    }

    /// All of them, in no order.
    pub(super) fn views(&self) -> impl Iterator<Item = &Arc<Container>> {
        self.by_id.values().map(|known| &known.view)
    }

    /// The container of a place that is probed: of the newest sandbox, then of the newest attempt, then made last.
    pub(super) fn current(&self, place: &Place) -> Option<&Known> {
        let ids = self.by_place.get(place)?;
        ids.iter().filter_map(|id| self.by_id.get(id)).max_by_key(|known| {
            let view = &known.view;
            (view.pod.attempt, view.attempt, view.created_at, &view.id)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{inventory::fixtures::texts, prober::fixtures::container};

    #[test]
    fn row_12_stops_of_a_pod_are_news_only_for_its_own_containers_and_only_the_first_and_the_last() {
        let mut containers = Containers::default();
        for (pod, id) in [("web", "c1"), ("web", "c2"), ("other", "c3")] {
            containers.upsert(Arc::new(container(pod, id, 0)), Vec::new());
        }
        let web = SandboxId::from("web-sandbox");
        let begun: Vec<_> = (0..3).map(|_| containers.note_pod_stopping(&web).len()).collect();
        assert_eq!(begun, [2, 0, 0]);
        assert_eq!(containers.note_stopping(&"c1".into()), None, "its pod is being stopped already");
        let failed: Vec<_> = (0..3).map(|_| containers.note_pod_stop_failed(&web).len()).collect();
        assert_eq!(failed, [0, 0, 2]);
        assert!(containers.note_stop_failed(&"c1".into()).is_some());
        let mut moved = container("web", "c2", 0);
        Arc::make_mut(&mut moved.pod).sandbox_id = "other-sandbox".into();
        containers.upsert(Arc::new(moved), Vec::new());
        assert_eq!(containers.note_pod_stopping(&web).len(), 1);
        assert_eq!(containers.note_pod_stopping(&"other-sandbox".into()).len(), 2);
        ["c1", "c2", "c3"].iter().for_each(|id| containers.remove(&(*id).into()));
        assert!(containers.by_sandbox.is_empty() && containers.by_place.is_empty());
    }

    #[test]
    fn ports_are_read_once_for_a_container_and_again_if_its_annotations_change() {
        let mut containers = Containers::default();
        let view = container("web", "c1", 0);
        let changed = Container { annotations: texts(&[("a", "b")]), ..view.clone() };
        let mut ports = |view: &Container| {
            containers.upsert(Arc::new(view.clone()), Vec::new());
            containers.ports(&view.id)
        };
        let first = ports(&view);
        assert!(Arc::ptr_eq(&first, &ports(&Container { state: ContainerState::Created, ..view.clone() })));
        assert!(!Arc::ptr_eq(&first, &ports(&changed)));
        assert!(!Arc::ptr_eq(&ports(&changed), &ports(&container("web", "c2", 0))));
    }
}
