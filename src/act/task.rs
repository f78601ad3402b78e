//! The loop of the stage that acts: demands, ends of acts and settings in; acts, events and the status out. The guard
//! decides what begins; each act is a task of its own.

use std::{
    collections::{HashMap, HashSet},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use tokio::{
    sync::{Mutex, mpsc, watch},
    task::JoinSet,
    time,
};
use tokio_util::sync::CancellationToken;

use super::{
    ActHandle, ActSettings, Demands, News,
    board::Board,
    counts::{ActCounts, ActResult},
    guard::{Ask, Guard},
    ledger::{IntentStep, Ledger, LedgerFile, describe},
    perform::{NotNow, OnEndClaimed, Performer, Prepared, cause_of},
    recipe::RecipeStore,
    status::{ActEnd, ActRecord, Current, Place, Step},
};
use crate::{
    clock,
    ids::{ContainerId, PodUid},
    inventory::pod::Container,
    prober::{
        ProberHandle, ProberSettings,
        demand::{Cause, Demand},
    },
    results::event::{ActNotice, ProbeEvent},
    runtime::Runtime,
    spec::OnFailure,
    stage::Tasks,
};

/// 256 news of acts wait for the loop; an act that has more waits.
const NEWS: usize = 256;

/// 1 s: how soon a record of acts that could not be read is read again.
const LOAD_AGAIN: Duration = Duration::from_secs(1);

/// 60 s: how soon an act that panicked goes on.
const AFTER_PANIC: Duration = Duration::from_secs(60);

/// 3 pods of a namespace, or 3 namespaces, with containers that were stopped and do not come back keep others from being stopped to be
/// restarted.
const STUCK: usize = 3;

/// 5 min: for how long one of them counts. After that it has a fault of its own, and others are not kept from being healed.
const STUCK_LATELY: Duration = Duration::from_secs(300);

/// 10 s: how soon it is looked again whether they have come back.
const STUCK_FOR: Duration = Duration::from_secs(10);

/// 10 minutes: how long what would be done to a container is not reported again.
const SAID: Duration = Duration::from_secs(600);

/// 1,024 containers are remembered of which that was reported; beyond that it may be reported more often.
const MOST_SAID: usize = 1024;

/// What the stage works with.
pub(crate) struct Deps<E> {
    /// The settings in effect; they may change at any time.
    pub settings: watch::Receiver<ActSettings>,
    /// Those of the prober, for hooks and commands.
    pub probing: watch::Receiver<ProberSettings>,
    pub runtime: Runtime,
    pub prober: ProberHandle,
    /// What the prober asks for.
    pub demands: Demands,
    /// How containers are made again.
    pub recipes: RecipeStore,
    /// Keeps intents over restarts.
    pub ledger: LedgerFile,
    /// Ends the stage: acts in progress are dropped, and the next start goes on with them.
    pub stop: CancellationToken,
    pub counts: ActCounts,
    /// Is called with each event, on the stage's task. Must not block.
    pub on_event: E,
    pub on_end_claimed: OnEndClaimed,
}

/// Starts the stage.
pub(crate) fn spawn<E: FnMut(ProbeEvent) + Send + 'static>(deps: Deps<E>, tasks: &mut Tasks) -> ActHandle {
    let Deps {
        settings,
        probing,
        runtime,
        prober,
        demands,
        recipes,
        ledger,
        stop,
        counts,
        on_event,
        on_end_claimed,
    } = deps;
    let board = Board::default();
    let handle = ActHandle { status: board.subscribe() };
    let (news_sender, news) = mpsc::channel(NEWS);
    let handlers = prober.handlers();
    let performer = Arc::new(Performer {
        runtime,
        prober,
        recipes,
        ledger: Mutex::new(Ledger::new(ledger)),
        board,
        handlers,
        settings: settings.clone(),
        probing,
        news: news_sender,
        on_end_claimed,
    });
    let mut channels = Channels { settings, demands, news, stop, counts, on_event };
    let stop = channels.stop.clone();
    tasks.spawn(tasks.supervise_until("act", stop, async move || run(&mut channels, &performer).await));
    handle
}

/// The stage's ends of its channels, which survive a panic of its task.
struct Channels<E> {
    settings: watch::Receiver<ActSettings>,
    demands: Demands,
    news: mpsc::Receiver<News>,
    stop: CancellationToken,
    counts: ActCounts,
    on_event: E,
}

async fn run<E: FnMut(ProbeEvent)>(channels: &mut Channels<E>, performer: &Arc<Performer>) {
    let Channels { settings, demands, news, stop, counts, on_event } = channels;
    let settings_now = settings.borrow_and_update().clone();
    // What a former run of the stage left on its way.
    while news.try_recv().is_ok() {}
    let mut stage = Stage {
        guard: Guard::new(settings_now.budget(), [], clock::now()),
        settings: settings_now,
        acting: HashSet::new(),
        stuck: HashMap::new(),
        demands: HashMap::new(),
        shown: HashMap::new(),
        reported: HashSet::new(),
        trying: None,
        said: HashMap::new(),
        board: &performer.board,
        counts,
        on_event,
    };
    let (mut acts, mut attempts) = (JoinSet::new(), JoinSet::new());
    let (mut may_change, mut is_loaded) = (true, false);
    loop {
        if !is_loaded {
            is_loaded = stop.run_until_cancelled(stage.load(performer, &mut acts)).await.unwrap_or_default();
        }
        let is_trying = stage.trying.is_some();
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            changed = settings.changed(), if may_change => {
                may_change = changed.is_ok();
                stage.set(settings.borrow_and_update().clone());
            }
            Some(piece) = news.recv() => stage.take(piece),
            Some(ended) = acts.join_next() => stage.ended(ended.ok(), performer, &mut acts).await,
            Some(prepared) = attempts.join_next() => {
                if let Some((container, prepared)) = stage.tried(prepared.unwrap_or(Err(NotNow::Withdrawn))) {
                    let performer = performer.clone();
                    stage.spawn(&mut acts, container, async move { performer.carry_out(*prepared).await });
                }
            }
            Some(demand) = demands.0.recv() => stage.demanded(demand),
            () = time::sleep(LOAD_AGAIN), if !is_loaded => {}
            () = clock::until(stage.guard.deadline(clock::now())), if is_loaded && !is_trying => {}
        }
        // Nothing is tried before it is known what a former run has left.
        if is_loaded
            && stage.trying.is_none()
            && let Some(demand) = stage.next()
        {
            stage.trying = Some(demand.view.id.clone());
            // In a task of its own: it holds the ledger while the disk works, and this loop may want it, too.
            let performer = performer.clone();
            attempts.spawn(async move { performer.prepare(demand).await });
        }
        stage.show();
    }
}

/// A container that was stopped, and cannot be created or started again for now.
#[derive(Debug)]
struct Stuck {
    namespace: Arc<str>,
    pod: PodUid,
    since: Instant,
}

/// How the task of an act ended.
struct Ended {
    container: ContainerId,
    /// Whether it did not panic.
    is_well: bool,
}

/// What the loop keeps.
struct Stage<'a, E> {
    guard: Guard,
    settings: ActSettings,
    /// The containers that are acted on, also those that wait for their back-off.
    acting: HashSet<ContainerId>,
    /// Those of them that cannot be created or started.
    stuck: HashMap<ContainerId, Stuck>,
    /// Those that the guard has.
    demands: HashMap<ContainerId, Demand>,
    /// Of demands that are shown as withheld: why.
    shown: HashMap<ContainerId, (Place, String)>,
    /// The demands of which it was reported that they are withheld.
    reported: HashSet<ContainerId>,
    /// The one demand of which it is being found out whether it is still valid.
    trying: Option<ContainerId>,
    /// When it was last reported what would be done to a container.
    said: HashMap<ContainerId, Instant>,
    board: &'a Board,
    counts: &'a ActCounts,
    on_event: &'a mut E,
}

impl<E: FnMut(ProbeEvent)> Stage<'_, E> {
    /// Reads what a former run has recorded, and goes on with it. Returns false if it cannot be read now: meanwhile nothing
    /// can be recorded, and so nothing is done.
    async fn load(&mut self, performer: &Arc<Performer>, acts: &mut JoinSet<Ended>) -> bool {
        let mut ledger = performer.ledger.lock().await;
        if let Err(error) = ledger.load().await {
            let trouble = describe(&error);
            if self.settings.is_enabled && self.board.set_trouble(&trouble) {
                tracing::warn!(trouble, "nothing acts until the record of acts can be read");
            }
            return false;
        }
        let (content, wall, now) = (ledger.content(), clock::wall(), clock::now());
        self.board.restore(content.last().map(|(place, record)| (place.clone(), record.clone())));
        for (place, _) in content.back_off.saved() {
            self.board.back_off(place, content.back_off.next(place));
        }
        self.guard = Guard::new(self.settings.budget(), content.recent(wall), now);
        for intent in content.intents.clone() {
            let (performer, container) = (performer.clone(), intent.container.clone());
            if intent.step <= IntentStep::Stopping {
                self.guard.adopt(container.clone());
            }
            self.spawn(acts, container, async move { performer.resume(intent).await });
        }
        true
    }

    /// Starts the task of an act. Meanwhile nothing else is done to the container.
    fn spawn(
        &mut self,
        acts: &mut JoinSet<Ended>,
        container: ContainerId,
        act: impl Future<Output = ()> + Send + 'static,
    ) {
        self.acting.insert(container.clone());
        acts.spawn(async move {
            let is_well = AssertUnwindSafe(act).catch_unwind().await.is_ok();
            Ended { container, is_well }
        });
    }

    /// The task of an act ended. After a panic it goes on a little later with what is on record, as after a restart.
    async fn ended(&mut self, ended: Option<Ended>, performer: &Arc<Performer>, acts: &mut JoinSet<Ended>) {
        let Some(Ended { container, is_well }) = ended else { return };
        self.guard.release(&container, clock::now());
        self.acting.remove(&container);
        self.stuck.remove(&container);
        if is_well {
            return;
        }
        tracing::error!(container.id = %container, "an act panicked");
        let intent = performer
            .ledger
            .lock()
            .await
            .content()
            .intents
            .iter()
            .find(|one| one.container == container)
            .cloned();
        if let Some(intent) = intent {
            let performer = performer.clone();
            self.spawn(acts, container, async move {
                time::sleep(AFTER_PANIC).await;
                performer.resume(intent).await;
            });
        }
    }

    fn set(&mut self, settings: ActSettings) {
        self.guard.set(settings.budget());
        self.settings = settings;
    }

    /// The prober asks for an act.
    fn demanded(&mut self, demand: Demand) {
        if self.acting.contains(&demand.view.id) {
            return;
        }
        if let Cause::Exited { exit_code } = demand.cause
            && !self.settings.restart_on_exit.restarts(exit_code)
        {
            return;
        }
        if demand.acting.is_dry_run {
            return self.say_what_would_be_done(&demand);
        }
        let Container { id, name, pod, .. } = &*demand.view;
        let place = (pod.uid.clone(), name.clone());
        self.guard.ask(Ask { place, container: id.clone(), namespace: pod.namespace.clone() }, clock::now());
        if self.guard.waits(id) {
            self.demands.insert(id.clone(), demand);
        }
    }

    fn say_what_would_be_done(&mut self, demand: &Demand) {
        let (now, id) = (clock::now(), &demand.view.id);
        self.said.retain(|_, at| now.saturating_duration_since(*at) < SAID);
        if self.said.contains_key(id) {
            return;
        }
        if self.said.len() < MOST_SAID {
            self.said.insert(id.clone(), now);
        }
        let (action, cause) = (demand.acting.asked, cause_of(demand));
        self.report(demand, &ActNotice::WouldAct { action, cause });
        self.counts.ended(action, ActResult::DryRun);
        let place = (demand.view.pod.uid.clone(), demand.view.name.clone());
        let record = ActRecord {
            at: clock::wall(),
            container: id.clone(),
            action,
            cause,
            end: Some(ActEnd::DryRun),
            took: Duration::ZERO,
            command: None,
        };
        self.board.begin(&place, record);
    }

    fn report(&mut self, demand: &Demand, notice: &ActNotice) {
        let (kind, id) = (demand.key.kind, demand.view.id.clone());
        (self.on_event)(ProbeEvent::of_act(notice, kind, id, &demand.view, clock::wall()));
    }

    /// The demand that is to be tried now.
    fn next(&mut self) -> Option<Demand> {
        loop {
            let now = clock::now();
            let container = self.guard.next(now)?;
            let Some(demand) = self.demands.get(&container) else {
                self.guard.withdraw(&container);
                continue;
            };
            // One that has ended is down already.
            let would_stop = demand.acting.effective() == OnFailure::Restart
                && matches!(demand.cause, Cause::Verdict { .. });
            match held_back(&self.stuck, &demand.view.pod.namespace, now).filter(|_| would_stop) {
                Some(reason) => self.guard.defer(&container, reason, now + STUCK_FOR),
                None => return Some(demand.clone()),
            }
        }
    }

    /// It was found out whether a demand is valid; returns what is to be carried out, and on which container.
    fn tried(&mut self, prepared: Result<Box<Prepared>, NotNow>) -> Option<(ContainerId, Box<Prepared>)> {
        let container = self.trying.take()?;
        match prepared {
            Ok(prepared) => {
                self.guard.begin(&container, clock::now());
                return Some((container, prepared));
            }
            Err(NotNow::Withdrawn) => self.guard.withdraw(&container),
            Err(NotNow::Withheld { reason, until }) => self.guard.defer(&container, reason, until),
        }
        None
    }

    /// An act has news.
    fn take(&mut self, news: News) {
        match news {
            News::Event(event) => (self.on_event)(*event),
            News::Freed(container) => self.guard.release(&container, clock::now()),
            News::Stuck { container, namespace, pod } => {
                let since = clock::now();
                self.stuck.entry(container).or_insert(Stuck { namespace, pod, since });
            }
            News::Ended { action, result } => self.counts.ended(action, result),
        }
    }

    /// Brings what is shown in line with what is so.
    fn show(&mut self) {
        let now = clock::now();
        let mut withheld: HashMap<_, _> = self
            .guard
            .withheld(now)
            .map(|(ask, reason)| (ask.container.clone(), (ask.place.clone(), reason)))
            .collect();
        // It stays as it is shown until it is found out whether it stands.
        if let Some(container) = &self.trying
            && let Some(shown) = self.shown.get(container)
        {
            withheld.entry(container.clone()).or_insert_with(|| shown.clone());
        }
        self.demands.retain(|container, _| self.guard.waits(container));
        self.reported.retain(|container| self.guard.waits(container));
        for (container, (place, _)) in &self.shown {
            if !withheld.contains_key(container) {
                self.board.leave_withheld(place, container);
            }
        }
        let demands = &self.demands;
        let mut news = Vec::new();
        for (container, (place, reason)) in &withheld {
            let known = self.shown.get(container);
            let Some(demand) = demands.get(container) else { continue };
            if known.is_none_or(|(_, known)| known != reason) {
                let (action, cause) = (demand.acting.effective(), cause_of(demand));
                let until =
                    self.guard.free_at(now).filter(|at| *at > now).map(|at| clock::wall() + (at - now));
                let step = Step::Withheld { reason: reason.clone(), until };
                let current =
                    Current { container: container.clone(), action, cause, since: clock::wall(), step };
                self.board.enter(place, current);
            }
            // Once for each demand: the reason may change with each act of others.
            if self.reported.insert(container.clone()) {
                let action = demand.acting.effective();
                news.push((demand.clone(), ActNotice::Withheld { action, reason: reason.as_str().into() }));
            }
        }
        for (demand, notice) in news {
            self.report(&demand, &notice);
        }
        let (last_minute, in_progress) = (self.guard.last_minute(now), self.guard.in_progress());
        self.counts.withheld(withheld.len());
        self.board.summarize(last_minute, in_progress, withheld.len());
        self.shown = withheld;
    }
}

/// Why no further container of a namespace is stopped to be restarted, if that is so: others do not come back, and the reason may
/// be one that they share. A namespace can hold back no other one alone.
fn held_back(stuck: &HashMap<ContainerId, Stuck>, namespace: &str, now: Instant) -> Option<String> {
    let fresh = || stuck.values().filter(|one| now.saturating_duration_since(one.since) < STUCK_LATELY);
    let of_namespace = fresh().filter(|one| *one.namespace == *namespace);
    let pods = of_namespace.map(|one| &one.pod).collect::<HashSet<_>>().len();
    let namespaces = fresh().map(|one| &one.namespace).collect::<HashSet<_>>().len();
    (pods.max(namespaces) >= STUCK).then(|| {
        format!("{} containers that were stopped cannot be created or started again", fresh().count())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_that_do_not_come_back_hold_others_back_but_no_namespace_does_alone() {
        let now = clock::now();
        for (stuck, namespace, is_held_back) in [
            (&[("a", "p"), ("a", "q")][..], "a", false),
            (&[("a", "p"), ("a", "p"), ("a", "p")], "a", false),
            (&[("a", "p"), ("a", "q"), ("a", "r")], "a", true),
            (&[("a", "p"), ("a", "q"), ("a", "r"), ("a", "s")], "b", false),
            (&[("a", "p"), ("b", "q"), ("b", "r")], "c", false),
            (&[("a", "p"), ("b", "q"), ("c", "r")], "d", true),
        ] {
            let stuck = stuck.iter().enumerate().map(|(number, (namespace, pod))| {
                let one = Stuck { namespace: Arc::from(*namespace), pod: (*pod).into(), since: now };
                (ContainerId::from(number.to_string()), one)
            });
            let stuck = stuck.collect();
            assert_eq!(held_back(&stuck, namespace, now).is_some(), is_held_back, "{stuck:?} {namespace}");
            assert_eq!(held_back(&stuck, namespace, now + STUCK_LATELY), None);
        }
    }
}
