//! Asks the runtime: for everything now and then, and for single things where something is unclear. In: wishes and the
//! state of the link; out: facts, each with the moment at which its question was sent. Decides nothing about them.

mod due;
mod question;
mod waiting;

use std::time::{Duration, Instant};

use tokio::{
    task::{Id, JoinError, JoinSet},
    time::sleep_until,
};
use tonic::Status;

use due::Due;
use question::Reply;
use waiting::{Waiting, Wish};

use super::fact::{Fact, Lookup};
use crate::{
    clock,
    runtime::{Runtime, events::EventSource, link::Link},
};

/// 30 s between two lists where events and taps tell everything.
const CALM: Duration = Duration::from_secs(30);

/// 10 s between two lists while something is not seen: a blind connection, a runtime without events, or none now.
const WARY: Duration = Duration::from_secs(10);

/// 1 s until a list that failed is asked for again.
const RETRY: Duration = Duration::from_secs(1);

/// 3 lists in a row that failed are worth a warning: one or two are those of a runtime that is restarted.
const WORTH_A_WARNING: u32 = 3;

/// 8 statuses are asked for at once; the others wait their turn.
const LOOKUPS: usize = 8;

/// What came back.
#[derive(Debug, Default)]
pub struct Answer {
    /// What it says, and when the question was sent.
    pub facts: Vec<(Fact, Instant)>,
    /// Whether these are the complete lists.
    pub is_full: bool,
}

/// The questions that are due, waiting, and under way.
#[derive(Debug)]
pub struct Resync {
    runtime: Runtime,
    generation: u64,
    is_up: bool,
    /// When the lists are next asked for.
    due: Due,
    /// The task that asks for the lists, if they are being asked for.
    listing: Option<Id>,
    /// How many lists in a row failed.
    failures: u32,
    period: Duration,
    waiting: Waiting,
    /// Whether some found no room to wait since the lists were asked for because of that.
    has_turned_away: bool,
    looking_up: usize,
    under_way: JoinSet<Done>,
}

#[derive(Debug)]
enum Done {
    Listed(Result<Vec<(Fact, Instant)>, Status>),
    LookedUp(Wish, Reply),
}

impl Resync {
    /// Nothing is due until the link is up.
    pub fn new(runtime: Runtime) -> Self {
        Self {
            runtime,
            generation: 0,
            is_up: false,
            due: Due::default(),
            listing: None,
            failures: 0,
            period: CALM,
            waiting: Waiting::default(),
            has_turned_away: false,
            looking_up: 0,
            under_way: JoinSet::new(),
        }
    }

    /// Takes note of the link: a new generation asks for the lists at once.
    pub fn follow(&mut self, link: &Link, has_blind: bool, now: Instant) {
        let is_wary = has_blind || matches!(link.source, EventSource::None | EventSource::Unsupported);
        let period = if is_wary { WARY } else { CALM };
        if period < self.period {
            self.due.at(now + period);
        }
        self.period = period;
        if link.is_up && (!self.is_up || self.generation != link.generation) {
            self.soon(now);
        }
        self.is_up = link.is_up;
        self.generation = link.generation;
    }

    /// The lists are wanted now.
    pub fn soon(&mut self, now: Instant) {
        self.due.at(now);
    }

    /// The lists are wanted now, and once more when whatever is under way has settled.
    pub fn soon_and_later(&mut self, now: Instant) {
        self.due.at(now);
        self.due.after(now);
    }

    /// Single things are wanted. Those that find no room ask for the lists instead, once nothing waits any more: lists
    /// name again what is still to be looked up, and until then there would be no room for it either.
    pub fn look_up(&mut self, lookups: Vec<Lookup>, now: Instant) {
        for lookup in lookups {
            if lookup == Lookup::List {
                self.soon(now);
            } else if !self.waiting.add(Wish::new(lookup), now) {
                self.has_turned_away = true;
            }
        }
    }

    /// Asks what is due and waits for the next answer; those that came with it are in it, too. Safe to be dropped and
    /// called again.
    pub async fn next(&mut self) -> Answer {
        loop {
            self.start_lookups(clock::now());
            let list_at = self.due.next().filter(|_| self.is_up && self.listing.is_none());
            let lookup_at = self.waiting.next().filter(|_| self.is_up && self.looking_up < LOOKUPS);
            let wake_at = [list_at, lookup_at].into_iter().flatten().min();
            tokio::select! {
                () = async { sleep_until(wake_at.unwrap_or_else(clock::now).into()).await }, if wake_at.is_some() => {
                    let now = clock::now();
                    if list_at.is_some_and(|at| at <= now) {
                        self.start_list(now);
                    }
                }
                Some(done) = self.under_way.join_next() => {
                    let now = clock::now();
                    let mut answer = Answer::default();
                    self.finish(done, &mut answer, now);
                    while let Some(done) = self.under_way.try_join_next() {
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
        let runtime = self.runtime.clone();
        let task = self.under_way.spawn(async move { Done::Listed(question::list(&runtime).await) });
        self.listing = Some(task.id());
    }

    fn start_lookups(&mut self, now: Instant) {
        if self.has_turned_away && self.waiting.is_empty() {
            self.has_turned_away = false;
            self.soon(now);
        }
        while self.is_up
            && self.looking_up < LOOKUPS
            && let Some(wish) = self.waiting.take(now)
        {
            self.looking_up += 1;
            let runtime = self.runtime.clone();
            self.under_way.spawn(async move {
                let reply = question::look_up(&runtime, &wish.lookup).await;
                Done::LookedUp(wish, reply)
            });
        }
    }

    fn finish(&mut self, done: Result<Done, JoinError>, answer: &mut Answer, now: Instant) {
        match done {
            Ok(Done::LookedUp(wish, reply)) => {
                self.looking_up -= 1;
                match reply {
                    Reply::Told(fact, sent) => answer.facts.push((fact, sent)),
                    Reply::Unknown => {
                        if let Some(again) = wish.again() {
                            self.waiting.add(again, now);
                        }
                    }
                    Reply::Failed => {}
                }
            }
            Ok(Done::Listed(Ok(facts))) => {
                self.listing = None;
                if self.failures >= WORTH_A_WARNING {
                    tracing::info!(failures = self.failures, "runtime's lists are to be had again");
                }
                self.failures = 0;
                self.due.at(now + self.period);
                answer.facts.extend(facts);
                answer.is_full = true;
            }
            Ok(Done::Listed(Err(status))) => self.list_failed(status.message(), now),
            Err(panicked) => self.give_up(panicked.id(), now),
        }
    }

    /// A question whose task panicked has no answer. The lists are asked for again; a single thing is with them.
    fn give_up(&mut self, task: Id, now: Instant) {
        if self.listing == Some(task) {
            self.list_failed("asking panicked", now);
        } else {
            self.looking_up -= 1;
            self.soon(now);
        }
    }

    /// Lists that are not to be had time and again are told once, until they are: the inventory then lives on what
    /// passes by alone.
    fn list_failed(&mut self, error: &str, now: Instant) {
        self.listing = None;
        self.failures = self.failures.saturating_add(1);
        self.due.at(now + RETRY);
        if self.failures == WORTH_A_WARNING {
            tracing::warn!(error, "runtime's lists are not to be had: asking every second");
        } else {
            tracing::debug!(error, "runtime's lists are not to be had");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, path::Path};

    use tokio::time::timeout;

    use super::*;

    /// A resync whose questions nobody asks but the test.
    fn resync() -> Resync {
        Resync::new(Runtime::new(Path::new("/nonexistent")))
    }

    async fn wait(resync: &mut Resync) -> Option<Answer> {
        timeout(Duration::from_millis(500), resync.next()).await.ok()
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
    async fn a_lookup_that_panicked_leaves_its_place_to_the_next_and_the_list_running() {
        let mut resync = resync();
        resync.under_way.spawn(async { panic!("this panic belongs to the test") });
        resync.looking_up = 1;
        resync.listing = Some(resync.under_way.spawn(pending()).id());
        assert!(wait(&mut resync).await.is_none());
        assert_eq!((resync.looking_up, resync.listing.is_some()), (0, true));
        assert!(resync.due.next().is_some(), "the list tells what the lookup did not");
    }

    #[tokio::test(start_paused = true)]
    async fn a_spell_of_failures_ends_with_the_first_list() {
        let mut resync = resync();
        let mut answer = Answer::default();
        for failures in 1..=5 {
            let failed = Done::Listed(Err(Status::out_of_range("too large")));
            resync.finish(Ok(failed), &mut answer, clock::now());
            assert_eq!((resync.failures, answer.is_full), (failures, false));
        }
        resync.finish(Ok(Done::Listed(Ok(vec![]))), &mut answer, clock::now());
        assert_eq!((resync.failures, answer.is_full), (0, true));
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_at_once_is_one_answer() {
        let mut resync = resync();
        let told = |id: &str| {
            let (lookup, fact) = (Lookup::Unexplained(id.into()), Fact::NotFound(id.into()));
            Done::LookedUp(Wish::new(lookup), Reply::Told(fact, clock::now()))
        };
        for id in ["a", "b", "c"] {
            let done = told(id);
            resync.under_way.spawn(async { done });
            resync.looking_up += 1;
        }
        tokio::task::yield_now().await;
        let answer = wait(&mut resync).await.expect("there are answers");
        assert_eq!((answer.facts.len(), answer.is_full, resync.looking_up), (3, false, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_finds_no_room_asks_for_the_lists_once_nothing_waits() {
        let mut resync = resync();
        let lookups = (0..5_000).map(|number| Lookup::Unexplained(number.to_string())).collect();
        resync.look_up(lookups, clock::now());
        resync.start_lookups(clock::now());
        assert_eq!(resync.due.next(), None, "the lists would find no room either");
        while resync.waiting.take(clock::now()).is_some() {}
        resync.start_lookups(clock::now());
        assert!(resync.due.next().is_some());
    }
}
