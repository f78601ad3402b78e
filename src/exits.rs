//! What containers died of: changes of the inventory in; events about containers, and the earlier exits of each container
//! name, out. Never does IO, never reads a clock.
//!
//! A container's life gives at most one event for each step: `Replaced` when it takes the place of another one, `Started`,
//! and `Exited` or `OOMKilled`. What ran, or had ended, before criprobe started is remembered, and is no event.

mod event;
mod kept;

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

pub(crate) use event::ContainerEvent;
use event::{Death, Stopper};
use kept::Kept;

use crate::{
    ids::{ContainerId, PodUid, SandboxId},
    inventory::{
        Change,
        pod::{Container, ContainerEnd, ContainerState, OpenStops},
    },
};

/// The containers of one name in one pod.
type Place = (PodUid, Arc<str>);

/// One container that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    pub container: ContainerId,
    /// Counts the containers of this name.
    pub attempt: u32,
    pub started_at: Option<SystemTime>,
    pub finished_at: Option<SystemTime>,
    /// As the runtime reported it; `None` if it never did.
    pub exit_code: Option<i32>,
    /// In a word: `OOMKilled`, `Error`, `Completed`; empty if the runtime reported none.
    pub reason: Arc<str>,
}

/// Where changes are noted and exits are looked up. Clones are the same. A lock is held for one change or one look-up.
#[derive(Clone, Debug)]
pub(crate) struct ExitsHandle(Arc<Mutex<Exits>>);

impl ExitsHandle {
    /// Knows nothing yet. What ended before `began` is no event.
    pub(crate) fn new(began: SystemTime) -> Self {
        Self(Arc::new(Mutex::new(Exits::new(began))))
    }

    /// Takes a change in. Returns what people want to know of it.
    pub(crate) fn changed(&self, change: &Change, now: SystemTime) -> Vec<ContainerEvent> {
        self.lock().on(change, now)
    }

    /// Whether it is the doing of an act of ours if this container ends from now on: that is no news.
    pub(crate) fn note_act(&self, container: &ContainerId, is_ours: bool) {
        if let Some(life) = self.lock().lives.get_mut(container) {
            life.is_ours = is_ours;
        }
    }

    /// The exits of the containers that had the name of this one before, oldest first, 5 at most.
    pub(crate) fn earlier(&self, view: &Container) -> Vec<Arc<Exit>> {
        self.lock().kept.others(&place(view), &view.id)
    }

    /// Whether a client stopped this container or its pod, or is about to.
    pub(crate) fn is_clients(&self, container: &ContainerId) -> bool {
        self.lock().stopper(container) == Some(Stopper::Client)
    }

    fn lock(&self) -> MutexGuard<'_, Exits> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All containers of the inventory, and the exits that are kept.
#[derive(Debug)]
struct Exits {
    began: SystemTime,
    /// As many as the inventory has.
    lives: HashMap<ContainerId, Life>,
    /// Of those that have containers.
    sandboxes: HashMap<SandboxId, Sandbox>,
    /// Stops of containers that are not reported yet, and of pods of which no container is.
    early_stops: HashMap<ContainerId, u32>,
    early_pod_stops: HashMap<SandboxId, u32>,
    kept: Kept,
}

/// 1,024 containers, and as many pods, whose stop begins before they are reported: a runtime may take long to report the status
/// of containers. The stop of a further one is not noticed, so that its exit is a warning.
const EARLY_STOPS: usize = 1_024;

#[derive(Debug, Default)]
struct Sandbox {
    containers: usize,
    /// Stops of it that clients began and that have not failed.
    stops: u32,
}

/// One container, as far as its life was seen.
#[derive(Debug)]
struct Life {
    view: Arc<Container>,
    /// Whether it was seen before it ended: then its end is news.
    was_alive: bool,
    /// Whether it was seen running.
    has_run: bool,
    /// Whether its end is kept.
    has_ended: bool,
    /// Whether its end was an event.
    is_reported: bool,
    /// Stops of it that clients began and that have not failed.
    stops: u32,
    /// When the last of them was noticed.
    stopped_at: Option<SystemTime>,
    /// Whether an act of ours stops it, or is about to.
    is_ours: bool,
}

impl Life {
    fn new(view: Arc<Container>, stops: u32) -> Self {
        Self {
            view,
            was_alive: false,
            has_run: false,
            has_ended: false,
            is_reported: false,
            stops,
            stopped_at: None,
            is_ours: false,
        }
    }
}

fn place(view: &Container) -> Place {
    (view.pod.uid.clone(), Arc::clone(&view.name))
}

impl Exits {
    fn new(began: SystemTime) -> Self {
        Self {
            began,
            lives: HashMap::new(),
            sandboxes: HashMap::new(),
            early_stops: HashMap::new(),
            early_pod_stops: HashMap::new(),
            kept: Kept::default(),
        }
    }

    fn on(&mut self, change: &Change, now: SystemTime) -> Vec<ContainerEvent> {
        let mut events = Vec::new();
        match change {
            Change::Container(view) => self.seen(view, now, &mut events),
            Change::ContainerGone(id) => self.gone(id, now, &mut events),
            Change::Listed(all) => {
                let gone: Vec<_> = self.lives.keys().filter(|id| !all.contains(*id)).cloned().collect();
                gone.iter().for_each(|id| self.gone(id, now, &mut events));
            }
            Change::ContainerStopping(id) => {
                self.note_stop(id, |stops| stops.saturating_add(1));
                if let Some(life) = self.lives.get_mut(id) {
                    life.stopped_at = Some(now);
                }
            }
            Change::ContainerStopFailed(id) => self.note_stop(id, |stops| stops.saturating_sub(1)),
            Change::PodStopping(id) => self.note_pod_stop(id, |stops| stops.saturating_add(1)),
            Change::PodStopFailed(id) => self.note_pod_stop(id, |stops| stops.saturating_sub(1)),
            Change::StopsListed(open) => self.set_stops(open),
            Change::RuntimeAnswers => {}
        }
        events
    }

    fn seen(&mut self, view: &Arc<Container>, now: SystemTime, events: &mut Vec<ContainerEvent>) {
        match self.lives.get(&view.id).map(|life| Arc::clone(&life.view)) {
            None => {
                let is_new = view.created_at.is_none_or(|at| at >= self.began);
                if is_new && self.kept.knows(&place(view)) {
                    events.push(ContainerEvent::replaced(view, now));
                }
                let stops = self.early_stops.remove(&view.id).unwrap_or_default();
                self.lives.insert(view.id.clone(), Life::new(Arc::clone(view), stops));
                self.link(view);
            }
            // Its pod became known by another uid, or its sandbox by its full id.
            Some(former)
                if former.pod.uid != view.pod.uid || former.pod.sandbox_id != view.pod.sandbox_id =>
            {
                // In this order: what is known of its sandbox stays if that is the same.
                self.link(view);
                self.unlink(&former);
            }
            Some(_) => {}
        }
        let began = self.began;
        let Some(life) = self.lives.get_mut(&view.id) else { return };
        let was_oom_killed = life.view.end.as_ref().is_some_and(|end| end.is_oom_killed());
        life.view = Arc::clone(view);
        match view.state {
            ContainerState::Created => life.was_alive = true,
            ContainerState::Running if !life.has_run => {
                // A stop before the start changes nothing: the container starts all the same. The start is reported
                // late, so that the stop may have come after it.
                let is_before = |at: SystemTime| view.started_at.is_none_or(|started| at < started);
                if life.stopped_at.is_some_and(is_before) {
                    life.stops = 0;
                }
                if life.was_alive || view.started_at.is_some_and(|at| at >= began) {
                    events.push(ContainerEvent::started(view, now));
                }
                (life.was_alive, life.has_run) = (true, true);
            }
            ContainerState::Exited { .. } => {
                let Some(end) = view.end.clone() else { return };
                let is_news = if life.has_ended {
                    life.is_reported && end.is_oom_killed() && !was_oom_killed
                } else {
                    life.was_alive || end.finished_at.is_some_and(|at| at >= began)
                };
                // One that ended at once may never have been seen running.
                if is_news && !life.has_run && view.started_at.is_some_and(|at| at >= began) {
                    events.push(ContainerEvent::started(view, now));
                }
                life.has_run = true;
                life.has_ended = true;
                self.ended(view, &end, is_news, now, events);
            }
            ContainerState::Running | ContainerState::Unknown => {}
        }
    }

    /// Keeps the end of a container, and reports it where it is news.
    fn ended(
        &mut self,
        view: &Arc<Container>,
        end: &ContainerEnd,
        is_news: bool,
        now: SystemTime,
        events: &mut Vec<ContainerEvent>,
    ) {
        let exit_code = match view.state {
            ContainerState::Exited { exit_code } => exit_code,
            ContainerState::Created | ContainerState::Running | ContainerState::Unknown => None,
        };
        let exit = Exit {
            container: view.id.clone(),
            attempt: view.attempt,
            started_at: view.started_at,
            finished_at: end.finished_at,
            exit_code,
            reason: Arc::clone(&end.reason),
        };
        if is_news {
            let by = self.stopper(&view.id);
            let death = Death { exit: &exit, end, by };
            events.push(ContainerEvent::ended(view, &death, now));
            if let Some(life) = self.lives.get_mut(&view.id) {
                life.is_reported = true;
            }
        }
        self.kept.keep(&place(view), exit, now);
    }

    /// Who stops a container.
    fn stopper(&self, id: &ContainerId) -> Option<Stopper> {
        let life = self.lives.get(id)?;
        let of_pod = self.sandboxes.get(&life.view.pod.sandbox_id).map_or(0, |sandbox| sandbox.stops);
        if life.stops > 0 || of_pod > 0 {
            Some(Stopper::Client)
        } else {
            life.is_ours.then_some(Stopper::Act)
        }
    }

    /// The runtime lists it no more. If its end was not reported, it is what is known of it by then.
    fn gone(&mut self, id: &ContainerId, now: SystemTime, events: &mut Vec<ContainerEvent>) {
        let Some(life) = self.lives.get(id) else { return };
        let view = Arc::clone(&life.view);
        let has_run = life.has_run || matches!(view.state, ContainerState::Exited { .. });
        if has_run && !life.has_ended && life.was_alive {
            let end = view.end.as_deref().cloned();
            let end =
                end.unwrap_or_else(|| ContainerEnd { finished_at: Some(now), ..ContainerEnd::default() });
            self.ended(&view, &end, true, now, events);
        }
        self.lives.remove(id);
        self.unlink(&view);
    }

    fn link(&mut self, view: &Container) {
        let id = &view.pod.sandbox_id;
        let early = self.early_pod_stops.remove(id).unwrap_or_default();
        let sandbox = self.sandboxes.entry(id.clone()).or_default();
        sandbox.containers += 1;
        sandbox.stops = sandbox.stops.saturating_add(early);
        self.kept.enter(&place(view));
    }

    fn unlink(&mut self, view: &Container) {
        if let Some(sandbox) = self.sandboxes.get_mut(&view.pod.sandbox_id) {
            sandbox.containers -= 1;
            if sandbox.containers == 0 {
                self.sandboxes.remove(&view.pod.sandbox_id);
            }
        }
        self.kept.leave(&place(view));
    }

    fn note_stop(&mut self, id: &ContainerId, note: impl Fn(u32) -> u32) {
        if let Some(life) = self.lives.get_mut(id) {
            life.stops = note(life.stops);
        } else {
            note_early(&mut self.early_stops, id, note);
        }
    }

    fn note_pod_stop(&mut self, id: &SandboxId, note: impl Fn(u32) -> u32) {
        if let Some(sandbox) = self.sandboxes.get_mut(id) {
            sandbox.stops = note(sandbox.stops);
        } else {
            note_early(&mut self.early_pod_stops, id, note);
        }
    }

    fn set_stops(&mut self, open: &OpenStops) {
        let early = open.containers.iter().filter(|(id, _)| !self.lives.contains_key(*id));
        self.early_stops = early.take(EARLY_STOPS).map(|(id, &stops)| (id.clone(), stops)).collect();
        let early = open.pods.iter().filter(|(id, _)| !self.sandboxes.contains_key(*id));
        self.early_pod_stops = early.take(EARLY_STOPS).map(|(id, &stops)| (id.clone(), stops)).collect();
        for (id, life) in &mut self.lives {
            life.stops = open.containers.get(id).copied().unwrap_or_default();
        }
        for (id, sandbox) in &mut self.sandboxes {
            sandbox.stops = open.pods.get(id).copied().unwrap_or_default();
        }
    }
}

fn note_early<K: Clone + Eq + Hash>(early: &mut HashMap<K, u32>, id: &K, note: impl Fn(u32) -> u32) {
    if early.len() < EARLY_STOPS || early.contains_key(id) {
        let stops = note(early.remove(id).unwrap_or_default());
        if stops > 0 {
            early.insert(id.clone(), stops);
        }
    }
}

#[cfg(test)]
mod tests;
