//! The pods and containers on the node, as the runtime and the relayed calls show them.
//!
//! In: the events of the taps, and the runtime's events, lists and statuses. Out: changes for the later stages, and
//! each call with the names of its pod and container. The runtime's list is the truth; relayed calls only make the
//! inventory faster.

mod brevity;
mod convert;
mod fact;
#[cfg(test)]
pub(crate) mod fixtures;
mod model;
pub mod pod;
mod resync;

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    time::sleep_until,
};

use brevity::without_brief_stops;
use fact::{Fact, Lost};
use model::Model;
use resync::Resync;

pub(crate) use self::model::{Census, Change, Stops};
use crate::{
    clock,
    ids::{ConnId, ContainerId},
    relay::{
        RelayHandle,
        output::{LostEnds, Missed, Observations},
    },
    runtime::{Runtime, events::Events, link::Link, turns::Backlog},
    stage::{Asker, SharedAnswer, Tasks, Unanswered},
    tap::{
        Call, EndedCall, TapEvent,
        cri::{CriRequest, CriResponse, ExecCommand},
    },
};

/// 1 ms between two batches: under load, one wake-up handles many calls, and a batch stays short.
const BREATH: Duration = Duration::from_millis(1);

/// 1 s: how long the name of a container in which commands run is not looked up again.
const NAMED: Duration = Duration::from_secs(1);

/// 10 s between two log lines about stops that found no room: clients decide how many there are.
const LINES: Duration = Duration::from_secs(10);

/// What the task works with.
#[derive(Debug)]
pub(crate) struct InventorySources {
    /// The events of the taps.
    pub observations: Observations,
    /// The relay: while one of its connections is blind, lists are read more often.
    pub relay: RelayHandle,
    /// The client of the runtime.
    pub runtime: Runtime,
    /// Whether the runtime answers.
    pub link: watch::Receiver<Link>,
    /// The runtime's events.
    pub events: Events,
    /// The stops that clients began. No list of the runtime shows them, so they survive a panic.
    pub stops: Stops,
}

/// Observes calls and changes, on the inventory's own task. Must not block.
pub(crate) trait Observer {
    /// A call began.
    fn call_begun(&mut self, call: &Call);
    /// A command began in this container.
    fn command_begun(&mut self, call: &Call, container: &ContainerId);
    /// Calls passed unseen.
    fn calls_missed(&mut self);
    fn call_ended(&mut self, call: TracedCall);
    /// The ends of some calls are not known: those of one connection, or any.
    fn ends_lost(&mut self, conn: Option<ConnId>);
    /// A container or a pod changed.
    fn changed(&mut self, change: &Change);
}

/// What other stages can query from the inventory. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct InventoryHandle {
    pods: Asker<oneshot::Sender<Arc<Pods>>>,
    health: watch::Receiver<Health>,
    replay: Arc<Notify>,
}

pub(crate) type Pods = Vec<Arc<pod::Pod>>;

impl InventoryHandle {
    /// All sandboxes, unordered; a quarter of a second old at most.
    ///
    /// # Errors
    /// The inventory did not answer.
    pub(crate) async fn pods(&self) -> Result<Arc<Pods>, Unanswered> {
        self.pods.ask(|answer| answer).await
    }

    /// Its state.
    pub(crate) fn health(&self) -> Health {
        *self.health.borrow()
    }

    /// Reports everything again, for a stage that was restarted and has lost its state.
    pub(crate) fn replay(&self) {
        self.replay.notify_one();
    }
}

/// 1,024 changes may be on their way to the planner; beyond that, the inventory waits, and the queue of the taps fills.
const CHANGES: usize = 1024;

/// Starts the inventory: a handle, and the changes for the stage after it.
pub(crate) fn spawn(
    sources: InventorySources,
    observer: impl Observer + Send + 'static,
    tasks: &mut Tasks,
) -> (InventoryHandle, mpsc::Receiver<Change>) {
    let (changes, changed) = mpsc::channel(CHANGES);
    let (pods, pods_asked) = Asker::channel("inventory");
    let (health, replay) = (watch::Sender::new(Health::default()), Arc::new(Notify::new()));
    let handle = InventoryHandle { pods, health: health.subscribe(), replay: replay.clone() };
    let mut channels = Channels { sources, pods_asked, replay, changes, health, observer };
    tasks.spawn(tasks.supervise("inventory", async move || run(&mut channels).await));
    (handle, changed)
}

/// The ends of the inventory's channels, which survive a panic of its task.
struct Channels<O> {
    sources: InventorySources,
    pods_asked: mpsc::Receiver<oneshot::Sender<Arc<Pods>>>,
    replay: Arc<Notify>,
    changes: mpsc::Sender<Change>,
    health: watch::Sender<Health>,
    observer: O,
}

/// The state of the inventory, for users.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Health {
    /// How many pods and containers there are.
    pub census: Census,
    /// Calls that have ended.
    pub calls: u64,
    /// How often something was not seen.
    pub gaps: u64,
    /// How often the runtime's lists were applied.
    pub resyncs: u64,
    /// When they last were; `None` before the first time.
    pub last_resync: Option<SystemTime>,
    /// Whether they cannot be read, time and again.
    pub lists_fail: bool,
    /// The containers and pods whose status the runtime has not reported yet.
    pub waiting: Backlog,
}

/// A call that ended, with the names of its pod and container if they are known.
#[derive(Debug)]
pub(crate) struct TracedCall {
    /// When it began.
    pub at: SystemTime,
    /// The call and its end.
    pub ended: EndedCall,
    pub pod: Option<Arc<pod::Pod>>,
    /// The container's name.
    pub container: Option<Arc<str>>,
    pub container_id: Option<ContainerId>,
}

/// Keeps the inventory until no stage needs its changes any more. After a panic, it starts from the runtime's lists,
/// which also show what was removed in the meantime, and from the stops that were in progress.
async fn run<O: Observer>(channels: &mut Channels<O>) {
    let Channels { sources, pods_asked, replay, changes, health, observer } = channels;
    let InventorySources { observations, relay, runtime, link, events, stops } = sources;
    let mut task = Task {
        counted: None,
        target: None,
        model: Model::new(std::mem::take(stops)),
        stops,
        resync: Resync::new(runtime.clone()),
        health: *health.borrow(),
        is_listed: false,
        stops_left_out: 0,
        silent_until: None,
        observer,
    };
    let mut batch = Vec::new();
    let mut pods = SharedAnswer::default();
    let mut next_batch_at = clock::now();
    let mut has_link = true;
    loop {
        let link_now = link.borrow_and_update().clone();
        let is_blind = relay.connections.has_blind();
        if is_blind {
            task.observer.calls_missed();
        }
        if task.resync.follow(&link_now, is_blind, clock::now()) {
            task.model.report_answering();
        }
        tokio::select! {
            missed = async { sleep_until(next_batch_at.into()).await; observations.next_batch(&mut batch).await } => {
                task.take_observations(missed, &mut batch);
                next_batch_at = clock::now() + BREATH;
            }
            Some(event) = events.next() => {
                let now = clock::now();
                let fact = Fact::of_event(event, |id| task.model.is_sandbox(id));
                task.model.apply(fact, now);
                if events.take_missed() {
                    task.gap(now);
                    task.resync.events_missed(now);
                }
            }
            answer = task.resync.next() => task.take_answer(answer),
            Some(asker) = pods_asked.recv(), if pods.has_room() => pods.ask(asker),
            () = clock::until(pods.deadline()) => {}
            () = replay.notified() => {
                // Before the first lists, everything is still to be reported.
                if task.is_listed {
                    task.model.report_all();
                }
            }
            changed = link.changed(), if has_link => has_link = changed.is_ok(),
        }
        task.resync.look_up(task.model.take_lookups(), clock::now());
        for change in without_brief_stops(task.model.take_changes()) {
            task.observer.changed(&change);
            if changes.send(change).await.is_err() {
                return;
            }
        }
        task.report_stops_left_out();
        task.count();
        task.health.waiting = task.resync.backlog();
        task.health.lists_fail = task.resync.lists_fail();
        health.send_replace(task.health);
        pods.answer(|| task.model.pods(), clock::now);
    }
}

struct Task<'a, O> {
    /// The revision of the model when it was last counted.
    counted: Option<u64>,
    /// Where the last command ran: the next one usually runs there, too.
    target: Option<Target>,
    model: Model,
    /// Receives the model's stops when this ends.
    stops: &'a mut Stops,
    resync: Resync,
    health: Health,
    /// Whether the runtime's lists were applied.
    is_listed: bool,
    /// Stops that found no room since the last log line about them, and when the next line is due.
    stops_left_out: u64,
    silent_until: Option<Instant>,
    observer: &'a mut O,
}

/// A container in which commands run, as far as it is known.
struct Target {
    /// Its name in the client's request.
    asked: Box<[u8]>,
    /// When it was looked up.
    looked_at: Instant,
    /// The revision of the model at that time.
    revision: u64,
    container_id: ContainerId,
    container: Option<Arc<str>>,
    pod: Option<Arc<pod::Pod>>,
}

impl Target {
    fn of(command: &ExecCommand, model: &Model, now: Instant) -> Self {
        let container_id = model.full_container(command.container());
        let (container, pod) = model.whereabouts(&container_id).unzip();
        let (asked, revision) = (command.container_bytes().into(), model.revision());
        Self { asked, looked_at: now, revision, container_id, container, pod }
    }

    fn is_named_by(&self, command: &ExecCommand) -> bool {
        *self.asked == *command.container_bytes()
    }
}

impl<O> Drop for Task<'_, O> {
    fn drop(&mut self) {
        *self.stops = self.model.take_stops();
    }
}

impl<O: Observer> Task<'_, O> {
    fn take_observations(&mut self, missed: Missed, batch: &mut Vec<TapEvent>) {
        let now = clock::now();
        let wall = clock::wall();
        if missed.events > 0 {
            self.gap(now);
        }
        for event in batch.drain(..) {
            match event {
                TapEvent::Begun(call) | TapEvent::Resumed(call) => {
                    self.observer.call_begun(&call);
                    let was_named = self.was_just_named(&call.request, now);
                    if let (CriRequest::ExecSync(_), Some(target)) = (&call.request, &self.target) {
                        self.observer.command_begun(&call, &target.container_id);
                    }
                    if !was_named && let Some(fact) = Fact::of_begun(&call) {
                        self.model.apply(fact, call.began);
                    }
                }
                TapEvent::Ended(ended) => self.take_call(ended, now, wall),
                TapEvent::Untracked(_) => self.gap(now),
                TapEvent::Blinded { conn, .. } => {
                    self.gap(now);
                    self.ends_lost(Some(conn), now);
                }
                TapEvent::Closed { conn } => self.ends_lost(Some(conn), now),
            }
        }
        // After the batch: what began in it may also have ended unseen.
        match missed.ends {
            LostEnds::Of(connections) => {
                for conn in connections {
                    self.ends_lost(Some(conn), now);
                }
            }
            LostEnds::Any => self.ends_lost(None, now),
        }
    }

    fn ends_lost(&mut self, conn: Option<ConnId>, now: Instant) {
        self.model.apply(Fact::EndsLost(conn.map_or(Lost::Any, Lost::Connection)), now);
        self.observer.ends_lost(conn);
    }

    /// Whether a command runs in the same container as the last one: then its name needs no lookup, and an unknown name
    /// is not asked for again with each command.
    fn was_just_named(&mut self, request: &CriRequest, now: Instant) -> bool {
        let CriRequest::ExecSync(command) = request else { return false };
        let is_fresh = |target: &Target| now.saturating_duration_since(target.looked_at) < NAMED;
        if self.target.as_ref().is_some_and(|target| target.is_named_by(command) && is_fresh(target)) {
            return true;
        }
        self.target = Some(Target::of(command, &self.model, now));
        false
    }

    /// A command ended: it changes nothing that we know of, and many come from the same container.
    fn take_command(&mut self, at: SystemTime, ended: EndedCall, now: Instant) {
        let CriRequest::ExecSync(command) = &ended.call.request else { return };
        let target = match self.target.take() {
            Some(target) if !target.is_named_by(command) => Target::of(command, &self.model, now),
            Some(target) if target.revision == self.model.revision() => target,
            Some(Target { looked_at, .. }) => Target { looked_at, ..Target::of(command, &self.model, now) },
            None => Target::of(command, &self.model, now),
        };
        let Target { container, pod, container_id, .. } = &target;
        let (container, pod) = (container.clone(), pod.clone());
        let container_id = Some(container_id.clone());
        self.end_call(TracedCall { at, ended, pod, container, container_id });
        self.target = Some(target);
    }

    fn take_call(&mut self, ended: EndedCall, now: Instant, wall: SystemTime) {
        let age = now.saturating_duration_since(ended.call.began);
        let at = wall.checked_sub(age).unwrap_or(wall);
        if matches!(ended.call.request, CriRequest::Skipped) {
            return self.end_call(TracedCall { at, ended, pod: None, container: None, container_id: None });
        }
        if matches!(ended.call.request, CriRequest::ExecSync(_)) {
            return self.take_command(at, ended, now);
        }
        // For a removal, the names are known only before it; for a creation, only after it.
        let named = ended.call.request.container().map(|id| self.model.full_container(id));
        let before = self.whereabouts(&ended, named.as_ref());
        let conclusion = Fact::of_ended(&ended);
        if let Some(fact) = Fact::of_stop_ended(&ended) {
            self.model.apply(fact, ended.at);
        }
        if let Some(fact) = conclusion.fact {
            self.model.apply(fact, ended.at);
        }
        if conclusion.needs_resync {
            self.resync.soon_and_later(now);
        }
        let (container, pod) = match before {
            (None, None) if ended.call.method.kind.is_mutating() => self.whereabouts(&ended, named.as_ref()),
            known => known,
        };
        let container_id = match &ended.response {
            CriResponse::Container(id) => Some(id.clone()),
            CriResponse::Skipped
            | CriResponse::Undecoded
            | CriResponse::Sandbox(_)
            | CriResponse::Exec(_) => named,
        };
        self.end_call(TracedCall { at, ended, pod, container, container_id });
    }

    /// The container's name and the pod of a call; `named` is the container that its request named.
    fn whereabouts(
        &self,
        ended: &EndedCall,
        named: Option<&ContainerId>,
    ) -> (Option<Arc<str>>, Option<Arc<pod::Pod>>) {
        let container = match &ended.response {
            CriResponse::Container(id) => Some(id),
            CriResponse::Skipped
            | CriResponse::Undecoded
            | CriResponse::Sandbox(_)
            | CriResponse::Exec(_) => named,
        };
        if let Some((name, pod)) = container.and_then(|id| self.model.whereabouts(id)) {
            return (Some(name), Some(pod));
        }
        let sandbox = match &ended.response {
            CriResponse::Sandbox(id) => Some(id.clone()),
            CriResponse::Skipped
            | CriResponse::Undecoded
            | CriResponse::Container(_)
            | CriResponse::Exec(_) => ended.call.request.sandbox(),
        };
        (None, sandbox.and_then(|id| self.model.pod(&self.model.full_sandbox(id.as_str())).cloned()))
    }

    fn take_answer(&mut self, answer: resync::ResyncAnswer) {
        if answer.is_full {
            self.health.resyncs += 1;
            self.health.last_resync = Some(clock::wall());
        }
        for (fact, sent) in answer.facts {
            self.model.apply(fact, sent);
        }
        if answer.is_full {
            self.resync.retain(|lookup| self.model.wants(lookup));
            if !std::mem::replace(&mut self.is_listed, true) {
                self.model.report_listed();
            }
        }
    }

    /// Counts pods and containers if anything changed: under load, this is called a thousand times a second.
    fn count(&mut self) {
        if self.counted.replace(self.model.revision()) != Some(self.model.revision()) {
            self.health.census = self.model.census();
        }
    }

    /// Stops that found no room count as gaps. The lists show what has ended nevertheless.
    fn report_stops_left_out(&mut self) {
        let left_out = self.model.take_stops_left_out();
        self.stops_left_out += left_out;
        if self.stops_left_out == 0 {
            return;
        }
        let now = clock::now();
        if left_out > 0 {
            self.health.gaps += left_out;
            self.resync.after_refusal(now);
        }
        if self.silent_until.is_none_or(|until| until <= now) {
            let count = std::mem::take(&mut self.stops_left_out);
            self.silent_until = Some(now + LINES);
            tracing::warn!(
                count,
                "clients have too many stops in progress: some are not tracked, and their containers are probed until they end"
            );
        }
    }

    fn end_call(&mut self, call: TracedCall) {
        self.health.calls += 1;
        self.observer.call_ended(call);
    }

    fn gap(&mut self, now: Instant) {
        self.health.gaps += 1;
        self.observer.calls_missed();
        self.resync.soon(now);
    }
}
