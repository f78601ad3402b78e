//! Queries the runtime: for everything from time to time, and for single objects if something is unclear. In: requests
//! and the state of the link. Out: facts, each with the time of its query. Makes no decisions about them.

mod due;
mod question;

use std::{
    collections::HashMap,
    time::{Duration, Instant, SystemTime},
};

use tokio::{
    sync::oneshot,
    task::{AbortHandle, Id, JoinError, JoinSet},
    time::sleep_until,
};
use tonic::Status;

use due::Due;
use question::Reply;

use super::fact::{Fact, Lookup};
use crate::{
    clock,
    runtime::{
        Runtime,
        events::EventSource,
        link::Link,
        turns::{Backlog, News, Owner, TurnLimits, Turns},
    },
};

/// 30 s between two lists while events and taps see everything.
const CALM: Duration = Duration::from_secs(30);

/// 10 s between two lists while something is not seen: a blind connection, or no events from the runtime.
const WARY: Duration = Duration::from_secs(10);

/// 1 s until lists that failed, that of what is paused among them, are requested again.
const RETRY: Duration = Duration::from_secs(1);

/// 3 failed lists in a row cause a warning: one or two are normal during a restart of the runtime.
const WORTH_A_WARNING: u32 = 3;

/// 8 statuses are requested at once; the others wait. 24 more may be in flight that the runtime does not answer
/// quickly, which costs little; 8 of these were tried before. 4,096 wait at most: as many as on a node that is adopted
/// with 3,000 containers. Lookups beyond that are refused; [`REFUSED`] later, lists show what is still to be looked up.
const LOOKUPS: TurnLimits = TurnLimits { quick: 8, slow: 24, tried: 8, all: 4_096 };

/// 256 IDs that only clients named wait apart from these, and 4 are in flight: clients can name any number of IDs that do
/// not exist. Further ones are not looked up: what exists is in the next list.
const NAMED: TurnLimits = TurnLimits { quick: 2, slow: 2, tried: 1, all: 256 };

/// 20 ms: the minimum between two lookups of such IDs. Each costs the runtime two statuses.
const NAMED_SPACING: Duration = Duration::from_millis(20);

/// 5 s after a lookup was refused, or a stop found no room, the lists are read.
const REFUSED: Duration = Duration::from_secs(5);

/// 100 ms until a status that the runtime could not report yet is requested again; twice as long each further time.
const PAUSE: Duration = Duration::from_millis(100);

/// 3: how often an unknown id is looked up again. A runtime's event can come before the runtime itself knows the id.
const TRIES: u32 = 3;

#[derive(Debug, Default)]
pub(super) struct ResyncAnswer {
    /// Its facts, and the time of the query.
    pub facts: Vec<(Fact, Instant)>,
    /// Whether these are the complete lists.
    pub is_full: bool,
}

/// The queries that are due, waiting, and in flight.
#[derive(Debug)]
pub(super) struct Resync {
    runtime: Runtime,
    generation: u64,
    is_up: bool,
    /// When that last changed.
    link_since: Option<SystemTime>,
    /// When the lists are read next.
    due: Due,
    /// Whether the runtime is containerd, which reports what is paused.
    reports_pauses: bool,
    /// Whether that is to be requested with the next lists: events of it may have been missed.
    wants_paused: bool,
    /// The task that requests it, if one does.
    asking_paused: Option<Id>,
    /// How often in a row that failed.
    paused_failures: u32,
    /// The task that reads the lists, if they are being read.
    listing: Option<Id>,
    /// How many lists in a row failed.
    failures: u32,
    period: Duration,
    lookups: Turns<Lookup>,
    /// Those of IDs that only clients named.
    named: Turns<Lookup>,
    /// What is being looked up, by its task.
    asked: HashMap<Id, (Lookup, AbortHandle)>,
    under_way: JoinSet<Done>,
}

#[derive(Debug)]
enum Done {
    Listed(Result<Vec<(Fact, Instant)>, Status>),
    LookedUp(Reply),
    /// What is paused, if the lists did not wait for it any longer.
    Paused(Option<(Fact, Instant)>),
}

impl Resync {
    /// Nothing is due until the link is up.
    pub(super) fn new(runtime: Runtime) -> Self {
        Self {
            runtime,
            generation: 0,
            is_up: false,
            link_since: None,
            due: Due::default(),
            reports_pauses: false,
            wants_paused: false,
            asking_paused: None,
            paused_failures: 0,
            listing: None,
            failures: 0,
            period: CALM,
            lookups: Turns::new(LOOKUPS),
            named: Turns::new(NAMED).spaced(NAMED_SPACING),
            asked: HashMap::new(),
            under_way: JoinSet::new(),
        }
    }

    /// Records the state of the link: a new generation requests the lists at once. Returns whether the runtime was away
    /// and is back.
    pub(super) fn follow(&mut self, link: &Link, has_blind: bool, now: Instant) -> bool {
        let is_wary = has_blind || matches!(link.source, EventSource::None | EventSource::Unsupported);
        let period = if is_wary { WARY } else { CALM };
        if period < self.period {
            self.due.at(now + period);
        }
        self.period = period;
        self.reports_pauses = EventSource::of(&link.version) == EventSource::Containerd;
        if link.is_up && (!self.is_up || self.generation != link.generation) {
            self.events_missed(now);
        }
        let is_back = link.is_up && self.link_since.replace(link.since) != Some(link.since);
        if is_back {
            self.lookups.forgive(now);
            self.named.forgive(now);
        }
        self.is_up = link.is_up;
        self.generation = link.generation;
        is_back
    }

    /// Requests the lists now, and what is paused, which no list contains.
    pub(super) fn events_missed(&mut self, now: Instant) {
        self.wants_paused = self.reports_pauses;
        self.soon(now);
    }

    /// Requests the lists now.
    pub(super) fn soon(&mut self, now: Instant) {
        self.due.at(now);
    }

    /// Requests the lists now, and again when current operations have settled.
    pub(super) fn soon_and_later(&mut self, now: Instant) {
        self.due.at(now);
        self.due.after(now);
    }

    /// Requests the lists a little later: something found no room.
    pub(super) fn after_refusal(&mut self, now: Instant) {
        self.due.at(now + REFUSED);
    }

    /// Requests single objects. If some are refused, the lists name them again a little later, unless only a client named
    /// them.
    pub(super) fn look_up(&mut self, lookups: Vec<(Lookup, Owner)>, now: Instant) {
        for (lookup, owner) in lookups {
            let (lookup, pause) = match lookup {
                Lookup::List => {
                    self.soon(now);
                    continue;
                }
                Lookup::ContainerAgain(id) => (Lookup::Container(id), PAUSE),
                lookup => (lookup, Duration::ZERO),
            };
            let is_named = matches!(lookup, Lookup::Named(_));
            if !self.turns(&lookup).add(lookup, owner, pause, now) && !is_named {
                self.after_refusal(now);
            }
        }
    }

    /// Forgets lookups that are no longer needed.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(&Lookup) -> bool) {
        self.lookups.retain(is_wanted);
    }

    /// The lookups without an answer, of what is known to exist.
    pub(super) fn backlog(&self) -> Backlog {
        self.lookups.backlog()
    }

    /// Sends the queries that are due and waits for the next answer; the result also contains answers that arrived at
    /// the same time. Safe to drop and call again.
    pub(super) async fn next(&mut self) -> ResyncAnswer {
        loop {
            self.start_lookups(clock::now());
            let list_at = self.due.next().filter(|_| self.is_up && self.listing.is_none());
            let lookup_at = [self.lookups.deadline(), self.named.deadline()].into_iter().flatten().min();
            let wake_at = [list_at, lookup_at.filter(|_| self.is_up)].into_iter().flatten().min();
            tokio::select! {
                () = async { sleep_until(wake_at.unwrap_or_else(clock::now).into()).await }, if wake_at.is_some() => {
                    let now = clock::now();
                    if list_at.is_some_and(|at| at <= now) {
                        self.start_list(now);
                    }
                }
                Some(done) = self.under_way.join_next_with_id() => {
                    let now = clock::now();
                    let mut answer = ResyncAnswer::default();
                    self.finish(done, &mut answer, now);
                    while let Some(done) = self.under_way.try_join_next_with_id() {
                        self.finish(done, &mut answer, now);
                    }
                    if answer.is_full || !answer.facts.is_empty() {
                        return answer;
                    }
                }
                else => std::future::pending().await,
            }
        }
    }

    fn start_list(&mut self, now: Instant) {
        self.due.start(now);
        let (runtime, (answer, paused)) = (self.runtime.clone(), oneshot::channel());
        if self.wants_paused && self.asking_paused.is_none() {
            let runtime = runtime.clone();
            let asked = async move { Done::Paused(answer.send(question::paused(&runtime).await).err()) };
            self.asking_paused = Some(self.under_way.spawn(asked).id());
            self.wants_paused = false;
        }
        let task = self.under_way.spawn(async move { Done::Listed(question::list(&runtime, paused).await) });
        self.listing = Some(task.id());
    }

    fn start_lookups(&mut self, now: Instant) {
        if !self.is_up {
            return;
        }
        let mut given_up = self.lookups.overdue(now);
        given_up.extend(self.named.overdue(now));
        self.asked
            .values()
            .filter(|(lookup, _)| given_up.contains(lookup))
            .for_each(|(_, task)| task.abort());
        while let Some(lookup) = self.lookups.start(now).or_else(|| self.named.start(now)) {
            let (runtime, asked) = (self.runtime.clone(), lookup.clone());
            let task = self
                .under_way
                .spawn(async move { Done::LookedUp(question::look_up(&runtime, &asked).await) });
            self.asked.insert(task.id(), (lookup, task));
        }
        match self.lookups.news(now) {
            Some(News::Began(Backlog { count, .. })) => tracing::warn!(
                count,
                "runtime does not report the status of containers or pods: new ones are not probed until it does"
            ),
            Some(News::Ended) => {
                tracing::info!("runtime reports the status of containers and pods again");
            }
            None => {}
        }
    }

    fn finish(&mut self, done: Result<(Id, Done), JoinError>, answer: &mut ResyncAnswer, now: Instant) {
        match done {
            Ok((task, Done::LookedUp(reply))) => {
                let Some((lookup, _)) = self.asked.remove(&task) else { return };
                let turns = self.turns(&lookup);
                let failures = turns.failures(&lookup);
                let is_doubtful = matches!(lookup, Lookup::Unexplained(_) | Lookup::Named(_));
                let is_hopeless = is_doubtful && failures >= TRIES;
                match reply {
                    Reply::Fact(fact, sent) => {
                        turns.answered(&lookup, now);
                        answer.facts.push((fact, sent));
                    }
                    Reply::Unknown | Reply::Failed if is_hopeless => turns.answered(&lookup, now),
                    Reply::Unknown => turns.put_off(&lookup, PAUSE * 2u32.pow(failures), now),
                    Reply::Failed => turns.failed(&lookup, now),
                }
            }
            Ok((_, Done::Listed(Ok(facts)))) => {
                self.listing = None;
                if self.lists_fail() {
                    tracing::info!(failures = self.failures, "runtime's lists can be read again");
                }
                self.failures = 0;
                self.due.at(now + self.period);
                self.take_facts(facts, answer, now);
                answer.is_full = true;
            }
            Ok((_, Done::Paused(late))) => {
                self.asking_paused = None;
                if self.wants_paused {
                    self.due.at(now);
                }
                self.take_facts(late, answer, now);
            }
            Ok((_, Done::Listed(Err(status)))) => self.list_failed(status.message(), now),
            Err(ended) if self.asking_paused == Some(ended.id()) => {
                self.asking_paused = None;
                self.paused_failed(now);
            }
            // It panicked, or was given up.
            Err(ended) => match self.asked.remove(&ended.id()) {
                Some((lookup, _)) => self.turns(&lookup).failed(&lookup, now),
                None => self.list_failed("the request panicked", now),
            },
        }
    }

    /// What the runtime failed to report as paused is soon requested again: until then, what was paused before is probed.
    fn take_facts(
        &mut self,
        facts: impl IntoIterator<Item = (Fact, Instant)>,
        answer: &mut ResyncAnswer,
        now: Instant,
    ) {
        for (fact, sent) in facts {
            match fact {
                Fact::PausedListed(None) => self.paused_failed(now),
                Fact::PausedListed(Some(_)) => self.paused_failures = 0,
                _ => {}
            }
            answer.facts.push((fact, sent));
        }
    }

    /// Each further failure in a row doubles the pause.
    fn paused_failed(&mut self, now: Instant) {
        self.wants_paused = true;
        let pause = RETRY.saturating_mul(2_u32.saturating_pow(self.paused_failures));
        self.due.at(now + pause.min(self.period));
        self.paused_failures = self.paused_failures.saturating_add(1);
    }

    /// The queue of a lookup.
    fn turns(&mut self, lookup: &Lookup) -> &mut Turns<Lookup> {
        if matches!(lookup, Lookup::Named(_)) { &mut self.named } else { &mut self.lookups }
    }

    /// Whether lists fail repeatedly.
    pub(super) fn lists_fail(&self) -> bool {
        self.failures >= WORTH_A_WARNING
    }

    /// Lists that fail repeatedly are reported once, until they succeed: meanwhile, the inventory only knows what it
    /// sees in relayed calls.
    fn list_failed(&mut self, error: &str, now: Instant) {
        self.listing = None;
        self.failures = self.failures.saturating_add(1);
        // What is paused may have been reported to this request only.
        self.wants_paused = self.reports_pauses;
        self.due.at(now + RETRY);
        if self.failures == WORTH_A_WARNING {
            tracing::warn!(error, "cannot read the runtime's lists: trying again every second");
        } else {
            tracing::debug!(error, "cannot read the runtime's lists");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, path::Path};

    use tokio::time::timeout;

    use super::*;

    /// A resync whose queries only the test makes.
    fn resync() -> Resync {
        Resync::new(Runtime::new(Path::new("/nonexistent")))
    }

    async fn wait(resync: &mut Resync) -> Option<ResyncAnswer> {
        timeout(Duration::from_millis(500), resync.next()).await.ok()
    }

    /// A lookup in flight, as the task reports it.
    fn ask(resync: &mut Resync, id: &str, task: impl Future<Output = Done> + Send + 'static) {
        let lookup = Lookup::Unexplained(id.to_owned());
        resync.look_up(vec![(lookup.clone(), Owner::default())], clock::now());
        assert_eq!(resync.lookups.start(clock::now()), Some(lookup.clone()));
        let task = resync.under_way.spawn(task);
        resync.asked.insert(task.id(), (lookup, task));
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_panicked_is_asked_for_again() {
        let mut resync = resync();
        let task = resync.under_way.spawn(async { panic!("this panic belongs to the test") });
        resync.listing = Some(task.id());
        assert!(wait(&mut resync).await.is_none());
        assert_eq!((resync.listing, resync.failures), (None, 1));
        assert!(resync.due.next().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn only_containerd_is_asked_what_is_paused_whenever_events_may_have_been_missed() {
        for (name, is_asked) in [("containerd", true), ("cri-o", false)] {
            let (mut resync, mut link) = (resync(), Link::default());
            link.version.name = name.to_owned();
            for generation in 1..=2 {
                (link.is_up, link.generation) = (true, generation);
                resync.follow(&link, false, clock::now());
                assert_eq!(resync.wants_paused, is_asked, "{name}, generation {generation}");
                resync.start_list(clock::now());
                assert_eq!(
                    (resync.wants_paused, resync.asking_paused.is_some()),
                    (false, is_asked),
                    "{name}"
                );
                (resync.listing, resync.asking_paused) = (None, None);
                resync.follow(&link, false, clock::now());
                assert!(!resync.wants_paused, "{name}: not with every list");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_paused_is_asked_one_at_a_time_and_again_until_there_is_an_answer() {
        let mut resync = resync();
        resync.reports_pauses = true;
        let panicked = resync.under_way.spawn(async { panic!("this panic belongs to the test") });
        resync.asking_paused = Some(panicked.id());
        assert!(wait(&mut resync).await.is_none());
        assert_eq!((resync.asking_paused, resync.wants_paused, resync.failures), (None, true, 0));

        let slow = resync.under_way.spawn(pending()).id();
        resync.asking_paused = Some(slow);
        resync.start_list(clock::now());
        assert_eq!((resync.asking_paused, resync.wants_paused), (Some(slow), true), "one at a time");
        let (mut answer, now) = (ResyncAnswer::default(), clock::now());
        let late = Done::Paused(Some((Fact::PausedListed(Some(vec![])), now)));
        resync.finish(Ok((slow, late)), &mut answer, now);
        assert_eq!((resync.asking_paused, answer.facts.len(), answer.is_full), (None, 1, false));
        assert!(resync.due.next().is_some(), "what came up meanwhile is asked at once");

        for (paused, is_asked_again) in [(Some(vec![]), false), (None, true)] {
            (resync.wants_paused, resync.due, resync.paused_failures) = (false, Due::default(), 0);
            let facts = vec![(Fact::PausedListed(paused), now)];
            resync.finish(Ok((slow, Done::Listed(Ok(facts)))), &mut answer, now);
            assert_eq!(resync.wants_paused, is_asked_again);
            assert_eq!(resync.due.next() <= Some(now + RETRY), is_asked_again, "soon");
        }
        resync.wants_paused = false;
        resync.finish(Ok((slow, Done::Listed(Err(Status::unavailable("away"))))), &mut answer, now);
        assert!(resync.wants_paused, "the answer may have been lost with the lists");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lookup_that_panicked_leaves_its_place_to_the_next_and_the_list_running() {
        let mut resync = resync();
        ask(&mut resync, "a", async { panic!("this panic belongs to the test") });
        resync.listing = Some(resync.under_way.spawn(pending()).id());
        assert!(wait(&mut resync).await.is_none());
        assert_eq!((resync.asked.len(), resync.listing.is_some()), (0, true));
        assert_eq!(
            resync.lookups.failures(&Lookup::Unexplained("a".to_owned())),
            1,
            "it is asked again later"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_id_that_nobody_knows_is_asked_for_three_more_times() {
        let mut resync = resync();
        let mut answer = ResyncAnswer::default();
        let mut asked = 0;
        ask(&mut resync, "x", async { Done::LookedUp(Reply::Unknown) });
        while let Some(done) = resync.under_way.join_next_with_id().await {
            asked += 1;
            resync.finish(done, &mut answer, clock::now());
            tokio::time::advance(PAUSE * 10).await;
            if let Some(lookup) = resync.lookups.start(clock::now()) {
                let task = resync.under_way.spawn(async { Done::LookedUp(Reply::Unknown) });
                resync.asked.insert(task.id(), (lookup, task));
            }
        }
        assert_eq!((asked, resync.backlog().count), (4, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_spell_of_failures_ends_with_the_first_list() {
        let mut resync = resync();
        let mut answer = ResyncAnswer::default();
        let id = resync.under_way.spawn(pending()).id();
        for failures in 1..=5 {
            let failed = Done::Listed(Err(Status::out_of_range("too large")));
            resync.finish(Ok((id, failed)), &mut answer, clock::now());
            assert_eq!((resync.failures, answer.is_full), (failures, false));
            assert_eq!(resync.lists_fail(), failures >= WORTH_A_WARNING);
        }
        resync.finish(Ok((id, Done::Listed(Ok(vec![])))), &mut answer, clock::now());
        assert_eq!((resync.failures, answer.is_full), (0, true));
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_at_once_is_one_answer() {
        let mut resync = resync();
        for id in ["a", "b", "c"] {
            let reported = Done::LookedUp(Reply::Fact(Fact::NotFound(id.into()), clock::now()));
            ask(&mut resync, id, async { reported });
        }
        tokio::task::yield_now().await;
        let answer = wait(&mut resync).await.expect("there are answers");
        assert_eq!((answer.facts.len(), answer.is_full, resync.backlog().count), (3, false, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_finds_no_room_asks_for_the_lists_soon_whatever_else_waits() {
        let mut resync = resync();
        let lookup = |number: u32| (Lookup::Sandbox(number.to_string().into()), Owner::default());
        resync.look_up((0..4_096).map(lookup).collect(), clock::now());
        assert_eq!(resync.due.next(), None);
        resync.look_up(vec![lookup(4_096)], clock::now());
        assert_eq!(resync.due.next(), Some(clock::now() + REFUSED));
    }

    #[tokio::test(start_paused = true)]
    async fn ids_that_clients_named_take_no_room_from_others_and_are_looked_up_at_a_pace() {
        let mut resync = resync();
        let named = |number: u32| (Lookup::Named(number.to_string()), Owner::default());
        resync.look_up((0..10_000).map(named).collect(), clock::now());
        assert_eq!((resync.due.next(), resync.backlog().count, resync.named.backlog().count), (None, 0, 256));
        let pod = (Lookup::Sandbox("s".into()), Owner::default());
        resync.look_up(vec![pod.clone()], clock::now());
        resync.is_up = true;
        resync.start_lookups(clock::now());
        let mut asked: Vec<_> = resync.asked.values().map(|(lookup, _)| lookup.clone()).collect();
        asked.sort();
        assert_eq!(asked, [pod.0, Lookup::Named("0".to_owned())], "each has its own place");
        assert_eq!(resync.named.deadline(), Some(clock::now() + NAMED_SPACING));
    }
}
