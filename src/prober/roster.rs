//! All probes and their turns: inputs, ends of attempts and the time in; attempts to make and events out. Never does IO,
//! never reads a clock: `task` is the loop around it.

mod acting;
mod answers;
mod commands;
mod continuity;
mod gate;
mod limits;
mod memory;
mod silence;
mod spread;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use memory::{Memory, Remembered};
use silence::Silence;

use super::{
    Input, Moment, ProberSettings,
    attempt::{AttemptOutcome, Job},
    containers::{Containers, Known, Place},
    demand::{self, Demand},
    lateness::{Lateness, LatenessNews},
    made::MadeAttempt,
    outputs::Outputs,
    pauses::Pauses,
    pool::{Lane, Pool},
    quota::Quota,
    schedule::Schedule,
    state::due::{Cause, Saving, Urgency},
    state::pending::Restoring,
    status,
    totals::AttemptTotals,
    trust::Kind,
    variables::{Room, Variables},
    worker::{
        Worker,
        event::{Action, Seen, WorkerEvent},
    },
};
use crate::{
    ids::{ProbeKey, ProbeKind},
    inventory::pod::{Container, ContainerState},
    results::event::{Notice, ProbeEvent},
    spec::{identity::Definition, need::Class, plan::Planned},
};

/// The prober without its loop.
#[derive(Debug)]
pub(super) struct Roster {
    began: Moment,
    seed: u64,
    containers: Containers,
    entries: HashMap<ProbeKey, Entry>,
    schedule: Schedule,
    pool: Pool,
    lateness: Lateness,
    /// Which probes there is room for, among those whose definitions are valid.
    quota: Quota,
    /// Which of the others are listed. Those that are not are counted.
    listing: Quota,
    /// The least time between attempts of a probe that operators ask for.
    spacing: Duration,
    /// What operators have asked for lately.
    asked: commands::Asked,
    /// How many are at work.
    working: usize,
    pauses: Pauses,
    restoring: Restoring,
    saving: Saving,
    memory: Memory,
    /// For the variables of all commands.
    room: Arc<Room>,
    /// What is to be started now; taken by `advance`.
    jobs: Vec<Job>,
    silence: Silence,
    /// Whose attempts in flight are to be given up; taken by `take_given_up`.
    given_up: Vec<ProbeKey>,
    /// What is to be reported; taken by `take_events`.
    events: Vec<ProbeEvent>,
    /// The attempts that have ended with an outcome; taken by `take_attempts`.
    attempts: Vec<MadeAttempt>,
    /// What is asked of the stage that acts; taken by `take_demands`.
    demands: Vec<Demand>,
    exits: acting::Exits,
    totals: AttemptTotals,
}

/// One probe.
#[derive(Debug)]
struct Entry {
    planned: Arc<Planned>,
    /// What its definition is known by over restarts; none if that is invalid.
    definition: Option<Definition>,
    /// The container that it looks at.
    view: Arc<Container>,
    /// What its command needs of that container's environment.
    variables: Arc<Variables>,
    /// When it came to be.
    since: SystemTime,
    /// Whether it ran on this container before a restart of ours.
    is_restored: bool,
    /// Has the definition. None if it cannot run: its definition is invalid, or one too many.
    worker: Option<Worker>,
}

impl Entry {
    /// Whether an enforced rule asks for it.
    fn is_enforced(&self) -> bool {
        self.planned.source.class() == Class::Enforced
    }

    /// Whether the author of the pod or of its image asks for it.
    fn is_of_author(&self) -> bool {
        self.planned.source.class() == Class::Author
    }
}

impl Roster {
    /// Without any probe yet.
    pub(super) fn new(settings: &ProberSettings, now: Moment) -> Self {
        Self {
            began: now,
            seed: settings.seed,
            containers: Containers::default(),
            entries: HashMap::new(),
            schedule: Schedule::default(),
            pool: Pool::new(settings.workers, settings.exec_workers),
            lateness: Lateness::default(),
            quota: Quota::new(settings.budgets()),
            listing: Quota::new(settings.budgets()),
            spacing: settings.least_period(),
            asked: commands::Asked::default(),
            working: 0,
            pauses: Pauses::default(),
            restoring: Restoring::default(),
            saving: Saving::default(),
            memory: Memory::new(settings.history),
            room: Arc::default(),
            jobs: Vec::new(),
            silence: Silence::default(),
            given_up: Vec::new(),
            events: Vec::new(),
            attempts: Vec::new(),
            demands: Vec::new(),
            exits: acting::Exits::default(),
            totals: AttemptTotals::default(),
        }
    }

    /// Takes in what the inventory and the plan report.
    pub(super) fn accept(&mut self, input: Input, now: Moment) {
        match input {
            Input::Container { view, probes } => {
                let place = Place::of(&view);
                if self.containers.place(&view.id).is_some_and(|former| former != place) {
                    self.accept(Input::ContainerGone(view.id.clone()), now);
                }
                let id = view.id.clone();
                let exits = self.containers.upsert(view, probes);
                self.refresh(&place, now);
                if exits {
                    self.exited(id, now);
                }
            }
            Input::Replanned(all) => {
                for (view, probes) in all {
                    self.accept(Input::Container { view, probes }, now);
                }
            }
            Input::ContainerGone(id) => {
                let place = self.containers.place(&id);
                self.containers.remove(&id);
                place.iter().for_each(|place| self.refresh(place, now));
            }
            Input::ContainerStopping(id) => {
                let place = self.containers.note_stopping(&id);
                place.iter().for_each(|place| self.refresh(place, now));
            }
            Input::ContainerStopFailed(id) => {
                let place = self.containers.note_stop_failed(&id);
                place.iter().for_each(|place| self.refresh(place, now));
            }
            Input::PodStopping(sandbox) => {
                let places = self.containers.note_pod_stopping(&sandbox);
                places.iter().for_each(|place| self.refresh(place, now));
            }
            Input::PodStopFailed(sandbox) => {
                let places = self.containers.note_pod_stop_failed(&sandbox);
                places.iter().for_each(|place| self.refresh(place, now));
            }
            Input::StopsListed(open) => {
                let places = self.containers.set_stops(&open);
                places.iter().for_each(|place| self.refresh(place, now));
            }
            Input::ActBegan(id) => self.note_act(&id, true, now),
            Input::ActEnded(id) => self.note_act(&id, false, now),
            Input::ActNote { key, text } => self.remember_act(&key, &text, now),
            Input::RuntimeAway(since) => self.silence.away = since,
            Input::RuntimeAnswers => self.runtime_answers(now),
            Input::Listed(all) => {
                for id in self.containers.without(&all) {
                    self.accept(Input::ContainerGone(id), now);
                }
                self.restoring.listed(now.at);
            }
        }
        self.settle(now);
    }

    /// Takes in the outcome of an attempt that keeps its place: the runtime still works at it.
    pub(super) fn judge(&mut self, key: &ProbeKey, outcome: AttemptOutcome, now: Moment) {
        self.heed_silence(key, Some(&outcome), now);
        self.send(key, WorkerEvent::Judged(outcome), now);
    }

    /// Takes in the end of an attempt; with nothing to report if it was judged before, panicked or was given up.
    pub(super) fn finish(&mut self, key: &ProbeKey, outcome: Option<AttemptOutcome>, now: Moment) {
        self.heed_silence(key, outcome.as_ref(), now);
        let gave_way = self.pool.finish(key, now.at);
        let worker = self.entries.get(key).and_then(|entry| entry.worker.as_ref());
        let is_overtaken = worker.is_none_or(Worker::is_overtaken);
        let gave_way = gave_way.filter(|_| !is_overtaken);
        let outcome = self.in_outage(key, outcome, gave_way);
        self.send(key, WorkerEvent::Finished(outcome), now);
        self.forget(key);
    }

    /// Lets what is due run as far as there is place; returns what is to be started.
    pub(super) fn advance(&mut self, now: Moment) -> Vec<Job> {
        self.remind_of_exits(now);
        self.end_pauses(now);
        while let Some(key) = self.schedule.take_due(now.at) {
            let event = self.put_off(&key, now).unwrap_or(WorkerEvent::Due);
            self.send(&key, event, now);
        }
        self.pool.age(now.at);
        while let Some(key) = self.pool.start(now.at) {
            let before = self.jobs.len();
            self.send(&key, WorkerEvent::SlotFreed, now);
            if self.jobs.len() == before {
                self.pool.finish(&key, now.at);
            }
        }
        self.given_up.extend(self.pool.give_way());
        std::mem::take(&mut self.jobs)
    }

    /// When `advance` is to be called next, at the latest.
    pub(super) fn deadline(&mut self) -> Option<Instant> {
        let own = [self.schedule.deadline(), self.lateness.deadline(), self.pool.deadline()];
        own.into_iter().chain([self.exits.deadline(), self.pauses.deadline()]).flatten().min()
    }

    /// The probes whose attempts in flight are to be given up, since this was asked last: their containers, or the probes
    /// themselves, are no more, or they give way to others. Each still ends with [`Roster::finish`], and has its place until then.
    pub(super) fn take_given_up(&mut self) -> Vec<ProbeKey> {
        std::mem::take(&mut self.given_up)
    }

    /// Whether probes began to wait for a place for too long, or no longer do.
    pub(super) fn lateness_news(&mut self, now: Moment) -> Option<LatenessNews> {
        self.lateness.news(now.at)
    }

    /// What happened since this was asked last.
    pub(super) fn take_events(&mut self) -> Vec<ProbeEvent> {
        std::mem::take(&mut self.events)
    }

    /// The attempts that have ended with an outcome since this was asked last.
    pub(super) fn take_attempts(&mut self) -> Vec<MadeAttempt> {
        std::mem::take(&mut self.attempts)
    }

    /// Brings the probes of a place in line with its current container and what is planned for that.
    fn refresh(&mut self, place: &Place, now: Moment) {
        let current = self.containers.current(place).cloned();
        // Startup comes first, so that the others learn whether they are released before they look.
        for kind in ProbeKind::ALL {
            let key = place.key(kind);
            let Some((known, planned)) =
                current.as_ref().and_then(|known| known.planned(kind).map(|planned| (known, planned)))
            else {
                self.remove(&key, now);
                continue;
            };
            self.enter(&key, planned, &known.view, now);
            if kind != ProbeKind::Startup {
                let is_started = self.is_started(&key);
                self.send(&key, WorkerEvent::Started(is_started), now);
            }
            let view = &known.view;
            self.restore_checkpoint(&key, &view.id, now);
            self.send(&key, WorkerEvent::Seen(Seen::from(&**view)), now);
            self.send(&key, WorkerEvent::Stopping(known.stopping()), now);
            let is_acted_on = self.containers.is_acted_on(&view.id);
            self.send(&key, WorkerEvent::Acting(is_acted_on), now);
            let worker = self.entries.get(&key).and_then(|entry| entry.worker.as_ref());
            if worker.is_some_and(Worker::is_overtaken) {
                self.given_up.push(key);
            }
        }
    }

    /// Makes sure that a probe is there, and runs if it may. One whose definition changed is another probe.
    fn enter(&mut self, key: &ProbeKey, planned: &Arc<Planned>, view: &Arc<Container>, now: Moment) {
        let known = self.entries.get_mut(key);
        let definition = planned.spec.as_ref().ok().map(|outline| outline.definition);
        let is_same = known.as_ref().is_some_and(|entry| entry.definition == definition);
        let is_restored =
            definition.is_some_and(|definition| self.restoring.knows(key, &view.id, definition));
        let (planned, view) = (planned.clone(), view.clone());
        if let Some(entry) = known.filter(|_| is_same) {
            // A rule may ask for more than an annotation. Another container is read anyway, as the number of its definition
            // says nothing against someone who makes two definitions of one number.
            if let Some(worker) = &mut entry.worker
                && (entry.view.id != view.id || entry.planned.spec != planned.spec)
                && let Ok(spec) = planned.definition(&view)
            {
                worker.redefine(spec);
            }
            if entry.view.id != view.id {
                entry.is_restored = is_restored;
            }
            let was_enforced = entry.is_enforced();
            (entry.planned, entry.view) = (planned, view);
            entry.limit(&mut self.memory);
            if entry.is_enforced()
                && !was_enforced
                && let Some(worker) = entry.worker.as_ref().filter(|worker| worker.waits_since().is_some())
            {
                self.pool.enqueue(key.clone(), &entry.view.pod.namespace, true, lane(worker));
            }
            return self.place(key, now);
        }
        self.take_out(key);
        let entry = Entry {
            planned,
            definition,
            view,
            variables: Arc::new(Variables::within(&self.room)),
            since: now.wall,
            is_restored,
            worker: None,
        };
        let is_valid = entry.planned.spec.is_ok();
        self.entries.insert(key.clone(), entry);
        self.restore_pause(key, now);
        self.pauses.enter(key);
        self.place(key, now);
        if is_valid && !self.runs(key) {
            self.report_refusal(key, now);
        }
    }

    fn remove(&mut self, key: &ProbeKey, now: Moment) {
        self.note_progress(key, now);
        self.take_out(key);
        self.pauses.leave(key);
    }

    /// Notes that a probe changed that could be found out again.
    fn note_progress(&mut self, key: &ProbeKey, now: Moment) {
        if let Some(entry) = self.entries.get(key) {
            let cause = Cause { pod: &key.pod, namespace: &entry.view.pod.namespace };
            self.saving.note(Urgency::Progress, cause, now.at);
        }
    }

    fn take_out(&mut self, key: &ProbeKey) {
        self.end(key);
        self.entries.remove(key);
        self.quota.withdraw(key);
        self.listing.withdraw(key);
        // By itself the map keeps the room of the most probes that there ever were, half a kilobyte each.
        if self.entries.len() < self.entries.capacity() / 8 {
            self.entries.shrink_to(2 * self.entries.len());
        }
    }

    /// Has a probe that can run do so, as it comes to be now.
    fn begin(&mut self, key: &ProbeKey, now: Moment) {
        let is_busy = self.pool.is_in_flight(key);
        let Some(entry) = self.entries.get_mut(key) else { return };
        let Ok(spec) = entry.planned.definition(&entry.view) else { return };
        entry.worker = Some(Worker::new(spec, self.began, is_busy, now));
        self.working += 1;
        self.limit(key);
        if self.pauses.get(key).is_some() {
            self.send(key, WorkerEvent::Paused(true), now);
        }
    }

    /// Ends the work of a probe.
    fn end(&mut self, key: &ProbeKey) {
        let worker = self.entries.get_mut(key).and_then(|entry| entry.worker.take());
        if let Some(worker) = worker {
            self.memory.changed(Remembered::of(&worker), Remembered::default());
            self.working -= 1;
        }
        if self.pool.is_in_flight(key) {
            self.given_up.push(key.clone());
        }
        self.schedule.set(key, None);
        self.lateness.note(key, None, Duration::ZERO);
    }

    /// Passes an event to a worker, and does what it wants done.
    fn send(&mut self, key: &ProbeKey, event: WorkerEvent, now: Moment) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let is_enforced = entry.is_enforced();
        let Some(worker) = entry.worker.as_mut() else { return };
        let (before, has_ended) =
            (worker.mark(), matches!(event, WorkerEvent::Judged(_) | WorkerEvent::Finished(_)));
        let (remembered, made) = (Remembered::of(worker), worker.results().tally().total());
        let actions = worker.on(event, now);
        self.memory.changed(remembered, Remembered::of(worker));
        if let Some(last) = worker.results().last().filter(|_| worker.results().tally().total() > made) {
            self.totals.note(key.kind, worker.spec().handler.name(), last);
            self.attempts.extend(MadeAttempt::last_of(key, &entry.view, worker.spec(), worker.results()));
        }
        if let Some(urgency) = Urgency::of(&before, &worker.mark(), has_ended) {
            let cause = Cause { pod: &key.pod, namespace: &entry.view.pod.namespace };
            self.saving.note(urgency, cause, now.at);
        }
        self.schedule.set(key, worker.deadline());
        self.lateness.note(key, worker.waits_since(), worker.beat(now.at));
        for action in actions {
            match action {
                Action::Enqueue => {
                    self.pool.enqueue(key.clone(), &entry.view.pod.namespace, is_enforced, lane(worker));
                }
                Action::StartAttempt => {
                    let (spec, view) = (worker.spec().clone(), entry.view.clone());
                    let (variables, ports) = (entry.variables.clone(), self.containers.ports(&view.id));
                    self.jobs.push(Job { key: key.clone(), spec, view, variables, ports });
                }
                Action::Report(container, mut notice) => {
                    if let Notice::NotRunning { how, is_clients } = &mut notice {
                        if matches!(entry.view.state, ContainerState::Exited { .. }) {
                            *how = status::not_running(&entry.view);
                        }
                        // The worker of a readiness probe does not hear of stops.
                        let known = self.containers.get(&container);
                        *is_clients |= known.is_some_and(Known::is_stopped_by_client);
                    }
                    self.events.push(ProbeEvent::new(&notice, key.kind, container, &entry.view, now.wall));
                }
                Action::Demand { failures } => {
                    let cause = demand::Cause::Verdict { failures };
                    self.demands.extend(acting::demand(key, &entry.planned, &entry.view, worker, cause));
                }
            }
        }
        if key.kind == ProbeKind::Startup {
            self.release(key, now);
        }
    }
}

/// Where the next attempt of a probe waits.
fn lane(worker: &Worker) -> Lane {
    Lane { kind: Kind::of(&worker.spec().handler), trust: worker.trust() }
}

#[cfg(test)]
mod tests;
