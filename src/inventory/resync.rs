//! Asks the runtime: for everything now and then, and for single things where something is unclear. In: wishes and the
//! state of the link; out: facts, each with the moment at which its question was sent. Decides nothing about them.

mod due;
mod question;
mod waiting;

use std::time::{Duration, Instant};

use tokio::{task::JoinSet, time::sleep_until};
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

/// 8 statuses are asked for at once; the others wait their turn.
const LOOKUPS: usize = 8;

/// What came back.
#[derive(Debug)]
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
    is_listing: bool,
    period: Duration,
    waiting: Waiting,
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
            is_listing: false,
            period: CALM,
            waiting: Waiting::default(),
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

    /// Single things are wanted. Those that find no room ask for the lists instead.
    pub fn look_up(&mut self, lookups: Vec<Lookup>, now: Instant) {
        for lookup in lookups {
            if lookup == Lookup::List || !self.waiting.add(Wish::new(lookup), now) {
                self.soon(now);
            }
        }
    }

    /// Asks what is due and waits for the next answer. Safe to be dropped and called again.
    pub async fn next(&mut self) -> Answer {
        loop {
            self.start_lookups(clock::now());
            let list_at = self.due.next().filter(|_| self.is_up && !self.is_listing);
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
                    // No task here panics or is aborted; were it so, its question would be asked again with the next list.
                    if let Some(answer) = done.ok().and_then(|done| self.finish(done, clock::now())) {
                        return answer;
                    }
                }
                else => std::future::pending().await,
            }
        }
    }

    fn start_list(&mut self, now: Instant) {
        self.due.start(now);
        self.is_listing = true;
        let runtime = self.runtime.clone();
        self.under_way.spawn(async move { Done::Listed(question::list(&runtime).await) });
    }

    fn start_lookups(&mut self, now: Instant) {
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

    fn finish(&mut self, done: Done, now: Instant) -> Option<Answer> {
        match done {
            Done::LookedUp(wish, reply) => {
                self.looking_up -= 1;
                match reply {
                    Reply::Told(fact, sent) => {
                        return Some(Answer { facts: vec![(fact, sent)], is_full: false });
                    }
                    Reply::Unknown => {
                        if let Some(again) = wish.again() {
                            self.waiting.add(again, now);
                        }
                    }
                    Reply::Failed => {}
                }
                None
            }
            Done::Listed(Ok(facts)) => {
                self.is_listing = false;
                self.due.at(now + self.period);
                Some(Answer { facts, is_full: true })
            }
            Done::Listed(Err(status)) => {
                self.is_listing = false;
                self.due.at(now + RETRY);
                tracing::debug!(error = status.message(), "lists are not to be had");
                None
            }
        }
    }
}
