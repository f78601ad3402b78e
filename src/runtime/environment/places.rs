//! Which verbose statuses are requested now: requests that begin to wait and that end, in; those that may be sent, out. So
//! statuses that the runtime never sends delay those of other namespaces by about a second.
//!
//! [`Order`] is the whole of the decisions, pure; [`Places`] lets requests wait for them.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};
use tonic::{Code, Status};

use super::{QUICK, Subject, VariablesError};
use crate::{
    clock,
    runtime::turns::{Owner, PATIENCE, TurnLimits, Turns},
};

/// 4 statuses are requested at once, and 2 more may be under way that the runtime does not answer at once. Those that find
/// no place within [`QUICK`], or beyond 4,096 that wait, are errors of ours.
const FIRST: TurnLimits = TurnLimits { quick: 4, slow: 2, tried: 0, all: 4096 };

/// 1, and 1 more, of containers whose last status the runtime did not answer: a shim that hangs does not answer the next
/// one either. With those above, 8 statuses are under way, which take at most 64 MiB.
const AGAIN: TurnLimits = TurnLimits { quick: 1, slow: 1, tried: 0, all: 4096 };

/// 10 min: how long such a container is remembered. The longest interval of a probe that is not answered is half of that.
const REMEMBERED: Duration = Duration::from_secs(600);

/// 4,096 of them are remembered; a further one replaces the oldest.
const MOST_REMEMBERED: usize = 4096;

/// Identifies one request.
type Ticket = u64;

/// Lets requests wait until they may be sent.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    order: Order,
    wakes: HashMap<Ticket, oneshot::Sender<()>>,
}

/// The requests that wait or are under way. Each is added, started and ended once.
#[derive(Debug)]
struct Order {
    first: Turns<Ticket>,
    again: Turns<Ticket>,
    /// When the runtime last did not answer about a container.
    unanswered: HashMap<Box<str>, Instant>,
    issued: Ticket,
}

/// One request, until it has ended.
struct Place<'a> {
    places: &'a Places,
    ticket: Ticket,
    container: &'a str,
    /// Of a container whose last status was not answered.
    is_again: bool,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    /// Without an answer so far.
    Sent,
    Answered,
}

impl Places {
    /// Waits for the request's turn, and sends it. It is given up after [`PATIENCE`] if too many others take as long.
    ///
    /// # Errors
    /// That of the request; DeadlineExceeded if it was given up; [`VariablesError::NoPlace`] if its turn did not come.
    pub(super) async fn run<T>(
        &self,
        of: Subject<'_>,
        request: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, VariablesError> {
        let (mut place, turn) = self.enter(of).ok_or(VariablesError::NoPlace)?;
        match timeout(QUICK, turn).await {
            Ok(Ok(())) => place.stage = Stage::Sent,
            _ if place.is_again => return Err(unanswered().into()),
            _ => return Err(VariablesError::NoPlace),
        }
        let mut request = pin!(request);
        let answer = tokio::select! {
            answer = &mut request => answer,
            () = sleep(PATIENCE) => {
                if self.give_up(place.ticket, clock::now()) { Err(unanswered()) } else { request.await }
            }
        };
        if !matches!(&answer, Err(status) if status.code() == Code::DeadlineExceeded) {
            place.stage = Stage::Answered;
        }
        Ok(answer?)
    }

    fn enter<'a>(&'a self, of: Subject<'a>) -> Option<(Place<'a>, oneshot::Receiver<()>)> {
        let (now, (wake, turn)) = (clock::now(), oneshot::channel());
        let mut waiting = self.waiting();
        let (ticket, is_again) = waiting.order.add(of, now)?;
        waiting.wakes.insert(ticket, wake);
        waiting.start(now);
        let stage = Stage::Waiting;
        Some((Place { places: self, ticket, container: of.container, is_again, stage }, turn))
    }

    fn give_up(&self, ticket: Ticket, now: Instant) -> bool {
        let mut waiting = self.waiting();
        let is_given_up = waiting.order.is_given_up(ticket, now);
        waiting.start(now);
        is_given_up
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn start(&mut self, now: Instant) {
        while let Some(ticket) = self.order.start(now) {
            // One that has just left ends when its place is dropped.
            let _ = self.wakes.remove(&ticket).map(|wake| wake.send(()));
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let (mut waiting, now) = (self.places.waiting(), clock::now());
        waiting.wakes.remove(&self.ticket);
        waiting.order.end(self.ticket, self.container, self.stage, now);
        waiting.start(now);
    }
}

impl Default for Order {
    fn default() -> Self {
        let (first, again) = (Turns::new(FIRST), Turns::new(AGAIN));
        Self { first, again, unanswered: HashMap::new(), issued: 0 }
    }
}

impl Order {
    /// A request begins to wait, if there is room. Returns whether the last one about this container was not answered.
    fn add(&mut self, of: Subject<'_>, now: Instant) -> Option<(Ticket, bool)> {
        let is_again = self
            .unanswered
            .get(of.container)
            .is_some_and(|&at| now.saturating_duration_since(at) < REMEMBERED);
        let turns = if is_again { &mut self.again } else { &mut self.first };
        let owner = Owner { namespace: of.namespace.clone(), pod: of.pod.into() };
        self.issued += 1;
        turns.add(self.issued, owner, Duration::ZERO, now).then_some((self.issued, is_again))
    }

    /// Takes the next request to be sent, if there is a place for it.
    fn start(&mut self, now: Instant) -> Option<Ticket> {
        self.first.start(now).or_else(|| self.again.start(now))
    }

    /// Whether a request that has been under way for [`PATIENCE`] is to end; otherwise it has a slow place now.
    fn is_given_up(&mut self, ticket: Ticket, now: Instant) -> bool {
        self.first.overdue(now).contains(&ticket) || self.again.overdue(now).contains(&ticket)
    }

    /// A request has ended in this stage.
    fn end(&mut self, ticket: Ticket, container: &str, stage: Stage, now: Instant) {
        self.first.answered(&ticket, now);
        self.again.answered(&ticket, now);
        match stage {
            Stage::Waiting => {}
            Stage::Answered => drop(self.unanswered.remove(container)),
            Stage::Sent => {
                if self.unanswered.len() >= MOST_REMEMBERED && !self.unanswered.contains_key(container) {
                    let oldest = self.unanswered.iter().min_by_key(|(_, at)| **at).map(|(id, _)| id.clone());
                    oldest.map(|id| self.unanswered.remove(&id));
                }
                self.unanswered.insert(container.into(), now);
            }
        }
    }
}

fn unanswered() -> Status {
    Status::deadline_exceeded("the runtime does not answer")
}

#[cfg(test)]
mod tests {
    use std::{future::pending, sync::Arc};

    use futures_util::FutureExt as _;
    use tokio::task::JoinSet;

    use super::*;

    /// A request about a container of a pod in this namespace, which the runtime answers at once, or never.
    async fn request(
        places: &Places,
        (namespace, pod, container): (&str, &str, &str),
        is_answered: bool,
    ) -> Result<(), VariablesError> {
        let of = Subject { container, pod, namespace: &Arc::from(namespace) };
        let answer = async {
            if !is_answered {
                pending::<()>().await;
            }
            Ok(())
        };
        places.run(of, timeout(QUICK, answer).map(|ended| ended.unwrap_or_else(|_| Err(unanswered())))).await
    }

    /// Requests that the runtime never answers, of six pods in two namespaces.
    fn hang(
        places: &Arc<Places>,
        containers: impl IntoIterator<Item = usize>,
        tasks: &mut JoinSet<Result<(), VariablesError>>,
    ) {
        for number in containers {
            let places = places.clone();
            tasks.spawn(async move {
                let (pod, container) = (format!("hung-{}", number % 6), format!("hung-{number}"));
                request(&places, (&format!("n{}", number % 2), &pod, &container), false).await
            });
        }
    }

    #[tokio::test(start_paused = true)]
    async fn row_20_statuses_that_never_come_delay_those_of_another_namespace_by_a_second() {
        let (places, mut hung) = (Arc::new(Places::default()), JoinSet::new());
        hang(&places, 0..96, &mut hung);
        sleep(Duration::from_millis(10)).await;
        let began = clock::now();
        request(&places, ("shop", "web", "c1"), true).await.unwrap();
        let took = clock::now() - began;
        assert!(took <= PATIENCE + Duration::from_millis(10), "{took:?}");
        // From then on they are known, and another container finds a place at once.
        while hung.join_next().await.is_some() {}
        let known = places.waiting().order.unanswered.clone();
        assert!(known.len() >= 18, "{}", known.len());
        hang(&places, (0..96).filter(|number| known.contains_key(&*format!("hung-{number}"))), &mut hung);
        sleep(Duration::from_millis(10)).await;
        let began = clock::now();
        for number in 0..100 {
            request(&places, ("n0", "web", &number.to_string()), true).await.unwrap();
        }
        assert_eq!(clock::now() - began, Duration::ZERO);
        hung.shutdown().await;
        let waiting = places.waiting();
        assert_eq!((waiting.wakes.len(), waiting.order.first.backlog().count), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn row_20_a_status_that_finds_no_place_is_no_silence_of_the_runtime_and_few_are_under_way() {
        let (places, mut hung) = (Arc::new(Places::default()), JoinSet::new());
        hang(&places, 0..96, &mut hung);
        let (mut unanswered, mut no_place) = (0, 0);
        while let Some(ended) = hung.join_next().await {
            match ended.unwrap() {
                Err(VariablesError::NoPlace) => no_place += 1,
                Err(VariablesError::Runtime(status)) if status.code() == Code::DeadlineExceeded => {
                    unanswered += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(unanswered + no_place, 96);
        // Four a second, and two that take five.
        assert!((18..=30).contains(&unanswered), "{unanswered}");
        assert_eq!(places.waiting().order.unanswered.len(), unanswered);
        request(&places, ("n0", "hung-0", "hung-0"), true).await.unwrap();
        assert!(!places.waiting().order.unanswered.contains_key("hung-0"), "it answers again");
    }
}
