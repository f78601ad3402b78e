//! Asks the runtime: for everything now and then, and for single things where something is unclear. In: wishes and the
//! state of the link; out: facts, each with the moment at which its question was sent. Decides nothing about them.

use std::{
    collections::{BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use tokio::{task::JoinSet, time::sleep_until};
use tonic::{Code, Status};

use super::fact::{Fact, Lookup};
use crate::{
    clock,
    runtime::{Runtime, events::EventSource, link::Link},
};

/// 30 s between two lists where events and taps tell everything.
const CALM: Duration = Duration::from_secs(30);

/// 10 s between two lists while something is not seen: a blind connection, a runtime without events.
const WARY: Duration = Duration::from_secs(10);

/// 1 s until a list that failed is asked for again.
const RETRY: Duration = Duration::from_secs(1);

/// 2 s: after a call that ended without an answer the runtime may still be at it.
const LATER: Duration = Duration::from_secs(2);

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
    due: BTreeSet<Instant>,
    is_listing: bool,
    period: Duration,
    lookups: VecDeque<Lookup>,
    looking_up: usize,
    under_way: JoinSet<Done>,
}

#[derive(Debug)]
enum Done {
    Listed(Result<Vec<(Fact, Instant)>, Status>),
    LookedUp(Vec<(Fact, Instant)>),
}

impl Resync {
    /// Nothing is due until the link is up.
    pub fn new(runtime: Runtime) -> Self {
        Self {
            runtime,
            generation: 0,
            is_up: false,
            due: BTreeSet::new(),
            is_listing: false,
            period: CALM,
            lookups: VecDeque::new(),
            looking_up: 0,
            under_way: JoinSet::new(),
        }
    }

    /// Takes note of the link: a new generation asks for the lists at once.
    pub fn follow(&mut self, link: &Link, has_blind: bool, now: Instant) {
        let is_wary = has_blind || link.source == EventSource::Unsupported;
        let period = if is_wary { WARY } else { CALM };
        if period < self.period {
            self.due.insert(now + period);
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
        self.due.insert(now);
    }

    /// The lists are wanted now, and once more when whatever is under way has settled.
    pub fn soon_and_later(&mut self, now: Instant) {
        self.due.insert(now);
        self.due.insert(now + LATER);
    }

    /// Single things are wanted.
    pub fn look_up(&mut self, lookups: Vec<Lookup>) {
        for lookup in lookups {
            if lookup == Lookup::List {
                self.due.insert(clock::now());
            } else if !self.lookups.contains(&lookup) {
                self.lookups.push_back(lookup);
            }
        }
    }

    /// Asks what is due and waits for the next answer. Safe to be dropped and called again.
    pub async fn next(&mut self) -> Answer {
        loop {
            self.start_lookups();
            let due = self.due.first().copied().filter(|_| self.is_up && !self.is_listing);
            tokio::select! {
                () = async { sleep_until(due.unwrap_or_else(clock::now).into()).await }, if due.is_some() => self.start_list(),
                Some(done) = self.under_way.join_next() => {
                    if let Some(answer) = self.finish(done.unwrap_or(Done::LookedUp(Vec::new()))) {
                        return answer;
                    }
                }
                else => std::future::pending().await,
            }
        }
    }

    fn start_list(&mut self) {
        let now = clock::now();
        self.due.retain(|due| *due > now);
        self.is_listing = true;
        let runtime = self.runtime.clone();
        self.under_way.spawn(async move { Done::Listed(list(&runtime).await) });
    }

    fn start_lookups(&mut self) {
        while self.is_up
            && self.looking_up < LOOKUPS
            && let Some(lookup) = self.lookups.pop_front()
        {
            self.looking_up += 1;
            let runtime = self.runtime.clone();
            self.under_way.spawn(async move { Done::LookedUp(look_up(&runtime, lookup).await) });
        }
    }

    fn finish(&mut self, done: Done) -> Option<Answer> {
        match done {
            Done::LookedUp(facts) => {
                self.looking_up -= 1;
                Some(Answer { facts, is_full: false })
            }
            Done::Listed(Ok(facts)) => {
                self.is_listing = false;
                self.due.insert(clock::now() + self.period);
                self.due = self.due.iter().copied().take(4).collect();
                Some(Answer { facts, is_full: true })
            }
            Done::Listed(Err(status)) => {
                self.is_listing = false;
                self.due.insert(clock::now() + RETRY);
                tracing::debug!(error = status.message(), "lists are not to be had");
                None
            }
        }
    }
}

async fn list(runtime: &Runtime) -> Result<Vec<(Fact, Instant)>, Status> {
    let sent = clock::now();
    let sandboxes = (Fact::SandboxesListed(runtime.sandboxes().await?), sent);
    let sent = clock::now();
    let containers = (Fact::ContainersListed(runtime.containers().await?), sent);
    Ok(vec![sandboxes, containers])
}

/// Asks for one thing. An answer that cannot be had says nothing; the next list will ask again.
async fn look_up(runtime: &Runtime, lookup: Lookup) -> Vec<(Fact, Instant)> {
    let sent = clock::now();
    let answer = match &lookup {
        Lookup::List => return Vec::new(),
        Lookup::Container(id) => container(runtime, id.as_str()).await,
        Lookup::Sandbox(id) => sandbox(runtime, id.as_str()).await,
        Lookup::Unexplained(id) => match container(runtime, id).await {
            Err(status) if is_unknown(&status) => sandbox(runtime, id).await,
            answer => answer,
        },
    };
    let fact = match (answer, lookup) {
        (Ok(fact), _) => fact,
        (Err(status), Lookup::Container(id)) if is_unknown(&status) => Fact::NotFound(id.as_str().to_owned()),
        (Err(status), Lookup::Sandbox(id)) if is_unknown(&status) => Fact::NotFound(id.as_str().to_owned()),
        (Err(status), lookup) => {
            tracing::debug!(?lookup, error = status.message(), "status is not to be had");
            return Vec::new();
        }
    };
    vec![(fact, sent)]
}

async fn container(runtime: &Runtime, id: &str) -> Result<Fact, Status> {
    Ok(Fact::ContainerReported(Box::new(runtime.container_status(id).await?)))
}

async fn sandbox(runtime: &Runtime, id: &str) -> Result<Fact, Status> {
    let answer = runtime.sandbox_status(id).await?;
    Ok(answer.status.map_or(Fact::NotFound(id.to_owned()), |status| Fact::SandboxReported(Box::new(status))))
}

/// What runtimes say of an id that they do not know.
fn is_unknown(status: &Status) -> bool {
    status.code() == Code::NotFound || status.message().contains("not found")
}
