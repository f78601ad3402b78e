//! What the roster asks of the stage that acts, and what it answers that: verdicts and exits of containers in; demands, and
//! whether they still stand, out. Pure, as all of the roster.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Moment, Roster};
use crate::{
    ids::{ContainerId, ProbeKey, ProbeKind},
    inventory::pod::{Container, ContainerState},
    prober::{
        containers::Place,
        demand::{Cause, Demand, Standing},
        worker::Worker,
    },
    spec::{OnFailure, acting::Acting, plan::Planned},
};

/// The types whose verdicts act, in the order in which they answer for an exit.
const ACTING: [ProbeKind; 2] = [ProbeKind::Liveness, ProbeKind::Startup];

/// 60 s: how often it is said again that an exited container is to be restarted, for as long as it is: its exit is seen only
/// once, and what is asked for may be withheld for long.
const REMIND: Duration = Duration::from_secs(60);

/// The containers whose exits asked for a restart.
#[derive(Debug, Default)]
pub(super) struct Exits {
    /// As many as there are exited containers at most.
    containers: HashSet<ContainerId>,
    /// When they are mentioned again.
    remind_at: Option<Instant>,
}

impl Exits {
    /// When [`Roster::remind_of_exits`] is to be called next.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.remind_at
    }
}

/// What is done, or in a dry run would be done.
fn wanted(acting: Acting) -> OnFailure {
    if acting.refusal.is_some() { OnFailure::Report } else { acting.asked }
}

impl Roster {
    /// What the stage that acts is asked for, since this was called last: at most one for each attempt that ended and each
    /// container that exited.
    pub(in crate::prober) fn take_demands(&mut self) -> Vec<Demand> {
        std::mem::take(&mut self.demands)
    }

    /// Notes that an act on a container began or was given up.
    pub(super) fn note_act(&mut self, container: &ContainerId, is_in_progress: bool, now: Moment) {
        let place = self.containers.note_act(container, is_in_progress);
        place.iter().for_each(|place| self.refresh(place, now));
    }

    /// Asks for a container that exited now to be restarted, if it did so by itself and one of its probes would restart it.
    pub(super) fn exited(&mut self, container: ContainerId, now: Moment) {
        let demand = self.demand_after_exit(&container);
        if demand.is_some() && !self.containers.is_acted_on(&container) {
            self.demands.extend(demand);
            self.exits.containers.insert(container);
            self.exits.remind_at.get_or_insert(now.at + REMIND);
        }
    }

    /// Asks again for what still is to be restarted.
    pub(super) fn remind_of_exits(&mut self, now: Moment) {
        if self.exits.remind_at.is_none_or(|at| now.at < at) {
            return;
        }
        let containers = std::mem::take(&mut self.exits.containers);
        for container in containers {
            let demand = self.demand_after_exit(&container);
            if demand.is_some() {
                self.demands.extend(demand.filter(|_| !self.containers.is_acted_on(&container)));
                self.exits.containers.insert(container);
            }
        }
        self.exits.remind_at = (!self.exits.containers.is_empty()).then_some(now.at + REMIND);
    }

    /// What is asked for of a container that exited by itself; nothing if it is a client's business, or gone.
    fn demand_after_exit(&self, container: &ContainerId) -> Option<Demand> {
        let known = self.containers.get(container)?;
        let ContainerState::Exited { exit_code } = known.view.state else { return None };
        if self.containers.claim(known).is_some() {
            return None;
        }
        let place = Place::of(&known.view);
        ACTING.into_iter().find_map(|kind| {
            let key = place.key(kind);
            let entry = self.entries.get(&key).filter(|entry| entry.view.id == *container)?;
            let worker = entry.worker.as_ref()?;
            let restarts = wanted(entry.planned.acting) == OnFailure::Restart;
            let cause = Cause::Exited { exit_code };
            demand(&key, &entry.planned, &entry.view, worker, cause).filter(|_| restarts)
        })
    }

    /// Whether a demand on a container is still valid, and whose the container is; none if the container or its probe is not known any more.
    pub(in crate::prober) fn standing(&self, key: &ProbeKey, container: &ContainerId) -> Option<Standing> {
        let known =
            self.containers.get(container).filter(|known| Place::of(&known.view).key(key.kind) == *key)?;
        let planned = known.planned(key.kind)?;
        let entry = self.entries.get(key).filter(|entry| entry.view.id == *container);
        let worker = entry.and_then(|entry| entry.worker.as_ref());
        Some(Standing {
            view: known.view.clone(),
            spec: worker
                .map_or_else(|| planned.definition(&known.view).ok(), |worker| Some(worker.spec().clone()))?,
            acting: planned.acting,
            is_failing: worker.is_some_and(Worker::is_failing),
            paused_since: self.pauses.get(key).map(|pause| pause.since),
            claim: self.containers.claim(known),
        })
    }
}

/// What is asked of the stage that acts; nothing where the probe only reports.
pub(super) fn demand(
    key: &ProbeKey,
    planned: &Planned,
    view: &Arc<Container>,
    worker: &Worker,
    cause: Cause,
) -> Option<Demand> {
    let acting = planned.acting;
    (wanted(acting) != OnFailure::Report).then(|| Demand {
        key: key.clone(),
        spec: worker.spec().clone(),
        acting,
        view: view.clone(),
        cause,
    })
}
