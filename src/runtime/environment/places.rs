//! Which verbose statuses are requested now: requests that begin to wait and that end, in; those that may be sent, out. So
//! statuses that the runtime never sends delay those of other namespaces by about a second, and statuses that cost the
//! runtime much, or that it cannot send, leave it most of its time.
//!
//! [`Order`] is the whole of the decisions, pure; [`Places`] lets requests wait for them.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::{
    sync::{Notify, oneshot},
    time::{sleep, sleep_until},
};
use tonic::{Code, Status};

use super::{super::socket::SocketError, QUICK, Subject, VariablesError};
use crate::{
    clock,
    runtime::turns::{Owner, PATIENCE, TurnLimits, Turns},
};

/// 4 statuses are requested at once, and 2 more may be under way that the runtime does not answer at once. Those that find
/// no place within [`QUICK`], or beyond 4,096 that wait, are errors of ours.
const FIRST: TurnLimits = TurnLimits { quick: 4, slow: 2, tried: 0, all: 4096 };

/// 1, and 1 more, of containers whose status was costly lately: a shim that hangs does not answer the next one either, and a
/// status that is too large stays so. With those above, 8 statuses are under way, which take at most 64 MiB.
const AGAIN: TurnLimits = TurnLimits { quick: 1, slow: 1, tried: 0, all: 4096 };

/// 2 of these places for one namespace, and 1 for a pod, whatever is free: the others are there at once for others.
const OF_NAMESPACE: usize = 2;
const OF_POD: usize = 1;

/// 3: a place, and its share of the pod and the namespace, rests three times as long as the runtime took for an answer, but
/// no longer than [`PATIENCE`]. To make a status of 22 MB takes containerd 150 ms of a core, even if it is too large to
/// be sent. So all places together take one core of the runtime's, and no more than half their number if each answer takes
/// the longest.
const REST: u32 = 3;

/// 16: a namespace has one status although places rest, as long as no more are under way than there are places, if none of
/// it is under way, nor was for sixteen times as long as the runtime took for its last one, up to 16 s. So rests that only
/// others have caused do not delay it. Sixteen namespaces that all do so make the runtime work twice as much at most, and 64
/// about three times.
const NEWCOMER: u32 = 16;

/// 1 s to 5 min until the status of a container is requested again after it failed, twice as long each time; for all probes
/// of the container, which share the error meanwhile. The environment of a container does not change: a status that cannot
/// be sent cannot be sent later. What says nothing of the container is no reason for a longer pause: that the runtime is
/// not there, which costs it nothing; and that it does not answer, after which the interval of the probe itself grows
/// until the runtime answers.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// 100 ms: a status that fails later than that was costly; so is one that is not answered. What fails sooner holds a place
/// for 400 ms at most, which others can wait for. So a runtime that answers everything with an error for some seconds is no
/// reason to ask for any container's status later than for another's.
const COSTLY: Duration = Duration::from_millis(100);

/// 10 min: how long such a container is remembered. The longest interval of a probe that is not answered, and the longest
/// pause, are half of that.
const REMEMBERED: Duration = Duration::from_secs(600);

/// 4,096 of them are remembered, at most 1 MiB of messages; a further one replaces the oldest.
const MOST_REMEMBERED: usize = 4096;

/// 256 bytes of an error's message are remembered.
const MOST_OF_MESSAGE: usize = 256;

/// Identifies one request.
type Ticket = u64;

/// Lets requests wait until they may be sent.
#[derive(Debug, Default)]
pub(super) struct Places {
    waiting: Mutex<Waiting>,
    /// A place began to rest: those that wait have to look when one is free next.
    rests: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    order: Order,
    /// Dropped if the status is not to be requested, because it failed meanwhile.
    wakes: HashMap<Ticket, oneshot::Sender<()>>,
    /// When the next one may be sent, if nothing else happens.
    due: Option<Instant>,
}

/// The requests that wait or are under way. Each is added, started and ended once.
#[derive(Debug)]
struct Order {
    first: Turns<Ticket>,
    again: Turns<Ticket>,
    requests: HashMap<Ticket, Request>,
    /// The tickets of requests that were sent and have a quick place.
    quick: BTreeSet<Ticket>,
    resting: Vec<Rest>,
    failed: HashMap<Box<str>, Failure>,
    issued: Ticket,
}

/// A request that waits or is under way.
#[derive(Clone, Debug)]
struct Request {
    container: Box<str>,
    owner: Owner,
    /// Of a container whose status was costly lately.
    is_again: bool,
    /// When it was sent.
    since: Option<Instant>,
}

/// A place whose request was answered.
#[derive(Clone, Debug)]
struct Rest {
    until: Instant,
    /// Until then, its namespace is no newcomer.
    known_until: Instant,
    owner: Owner,
    is_again: bool,
}

/// The last failed status of a container.
#[derive(Clone, Debug)]
struct Failure {
    at: Instant,
    /// Whether one of those in a row was costly.
    cost: Cost,
    /// How often it failed in a row for a reason of its own.
    times: u32,
    until: Instant,
    error: VariablesError,
}

/// What failed statuses in a row cost; a higher one is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cost {
    /// They were answered at once, or there was no runtime.
    Little,
    /// One was not answered, which the runtime as a whole may have been the reason for.
    Silent,
    /// One was answered late, with an error that says something of the container.
    Much,
}

/// What becomes of a request whose turn has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Send(Ticket),
    /// It failed for another probe meanwhile.
    Refuse(Ticket),
}

/// One request, until it has ended.
struct Place<'a> {
    places: &'a Places,
    ticket: Ticket,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Waiting,
    /// Without an answer so far.
    Sent,
    Answered(Result<(), VariablesError>),
}

impl Places {
    /// Waits for the request's turn, and sends it. It is given up after [`PATIENCE`] if too many others take as long.
    ///
    /// # Errors
    /// That of the request, or of the last one about this container in its pause; DeadlineExceeded if it was given up;
    /// [`VariablesError::NoPlace`] if its turn did not come.
    pub(super) async fn run<T, E: Into<VariablesError>>(
        &self,
        of: Subject<'_>,
        request: impl Future<Output = Result<T, E>>,
    ) -> Result<T, VariablesError> {
        let (mut place, turn) = self.enter(of)?;
        if !self.turn_comes(turn).await {
            return Err(self.waiting().order.refusal(of.container));
        }
        place.stage = Stage::Sent;
        let mut request = pin!(request);
        let answer = tokio::select! {
            answer = &mut request => answer.map_err(Into::into),
            () = sleep(PATIENCE) => {
                let is_given_up = self.give_up(place.ticket, clock::now());
                if is_given_up { Err(unanswered()) } else { request.await.map_err(Into::into) }
            }
        };
        if !matches!(&answer, Err(error) if error.is_silence()) {
            place.stage = Stage::Answered(answer.as_ref().map(drop).map_err(VariablesError::clone));
        }
        answer
    }

    fn enter<'a>(&'a self, of: Subject<'_>) -> Result<(Place<'a>, oneshot::Receiver<()>), VariablesError> {
        let (now, (wake, turn)) = (clock::now(), oneshot::channel());
        let mut waiting = self.waiting();
        let ticket = waiting.order.add(of, now)?;
        waiting.wakes.insert(ticket, wake);
        waiting.start(now);
        Ok((Place { places: self, ticket, stage: Stage::Waiting }, turn))
    }

    /// Waits until a request may be sent; false if it may not within [`QUICK`].
    async fn turn_comes(&self, mut turn: oneshot::Receiver<()>) -> bool {
        let mut too_late = pin!(sleep(QUICK));
        loop {
            let rests = self.rests.notified();
            let next = self.waiting().due;
            let is_free = async {
                match next {
                    Some(at) => sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                woken = &mut turn => return woken.is_ok(),
                () = &mut too_late => return false,
                () = rests => {}
                () = is_free => self.waiting().start_due(clock::now()),
            }
        }
    }

    fn give_up(&self, ticket: Ticket, now: Instant) -> bool {
        let mut waiting = self.waiting();
        let is_given_up = waiting.order.is_given_up(ticket, now);
        waiting.start(now);
        is_given_up
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn start(&mut self, now: Instant) {
        while let Some(turn) = self.order.start(now) {
            // One that has just left ends when its place is dropped.
            match turn {
                Turn::Send(ticket) => drop(self.wakes.remove(&ticket).map(|wake| wake.send(()))),
                Turn::Refuse(ticket) => drop(self.wakes.remove(&ticket)),
            }
        }
        self.due = self.order.deadline(now);
    }

    /// All that wait call this at the same time: the first one does the work.
    fn start_due(&mut self, now: Instant) {
        if self.due.is_some_and(|at| at <= now) {
            self.start(now);
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let (mut waiting, now) = (self.places.waiting(), clock::now());
        waiting.wakes.remove(&self.ticket);
        let stage = std::mem::replace(&mut self.stage, Stage::Waiting);
        if waiting.order.end(self.ticket, stage, now) {
            self.places.rests.notify_waiters();
        }
        waiting.start(now);
    }
}

impl Default for Order {
    fn default() -> Self {
        Self {
            first: Turns::new(FIRST),
            again: Turns::new(AGAIN),
            requests: HashMap::new(),
            quick: BTreeSet::new(),
            resting: Vec::new(),
            failed: HashMap::new(),
            issued: 0,
        }
    }
}

impl Order {
    /// A request begins to wait, if there is room and its container is not in a pause.
    fn add(&mut self, of: Subject<'_>, now: Instant) -> Result<Ticket, VariablesError> {
        let failure = self.failed.get(of.container);
        let failure = failure.filter(|failure| now.saturating_duration_since(failure.at) < REMEMBERED);
        if let Some(failure) = failure.filter(|failure| now < failure.until) {
            return Err(failure.error.clone());
        }
        let is_again = failure.is_some_and(|failure| failure.cost > Cost::Little);
        let turns = if is_again { &mut self.again } else { &mut self.first };
        let owner = Owner { namespace: of.namespace.clone(), pod: of.pod.into() };
        self.issued += 1;
        if !turns.add(self.issued, owner.clone(), Duration::ZERO, now) {
            return Err(VariablesError::NoPlace);
        }
        let request = Request { container: of.container.into(), owner, is_again, since: None };
        self.requests.insert(self.issued, request);
        Ok(self.issued)
    }

    /// Takes the next request whose turn has come, if there is a place for it.
    fn start(&mut self, now: Instant) -> Option<Turn> {
        self.resting.retain(|rest| now < rest.known_until);
        let sent = self.quick.iter().filter_map(|ticket| self.requests.get(ticket));
        let mut held: Vec<_> = sent.map(|request| (request.owner.clone(), request.is_again)).collect();
        let known: HashSet<_> = held
            .iter()
            .map(|(owner, _)| owner)
            .chain(self.resting.iter().map(|rest| &rest.owner))
            .map(|owner| owner.namespace.clone())
            .collect();
        let resting = self.resting.iter().filter(|rest| now < rest.until);
        held.extend(resting.map(|rest| (rest.owner.clone(), rest.is_again)));
        let admits = |namespace: &Arc<str>, pod: &Arc<str>| {
            let of_namespace = held.iter().filter(|(owner, _)| owner.namespace == *namespace);
            let of_pod = of_namespace.clone().filter(|(owner, _)| owner.pod == *pod).count();
            of_namespace.count() < OF_NAMESPACE && of_pod < OF_POD
        };
        let has_place = |is_again: bool, limits: TurnLimits| {
            held.iter().filter(|(_, other)| *other == is_again).count() < limits.quick
        };
        let first = has_place(false, FIRST).then(|| self.first.start_one_of(now, admits)).flatten();
        let again = || has_place(true, AGAIN).then(|| self.again.start_one_of(now, admits)).flatten();
        let ticket = first.or_else(again).or_else(|| {
            let is_newcomer = |namespace: &Arc<str>, _: &Arc<str>| !known.contains(namespace);
            self.first.start_one_of(now, is_newcomer)
        })?;
        let request = self.requests.get_mut(&ticket)?;
        let failure = self.failed.get(&request.container);
        if failure.is_some_and(|failure| now < failure.until) {
            self.first.answered(&ticket, now);
            self.again.answered(&ticket, now);
            return Some(Turn::Refuse(ticket));
        }
        request.since = Some(now);
        self.quick.insert(ticket);
        Some(Turn::Send(ticket))
    }

    /// Why a request was not sent.
    fn refusal(&self, container: &str) -> VariablesError {
        self.failed.get(container).map_or(VariablesError::NoPlace, |failure| failure.error.clone())
    }

    /// When [`Order::start`], which has none now, may have a result next if nothing else happens.
    fn deadline(&self, now: Instant) -> Option<Instant> {
        let ends = self.resting.iter().flat_map(|rest| [rest.until, rest.known_until]);
        ends.filter(|at| now < *at).min()
    }

    /// Whether a request that has been under way for [`PATIENCE`] is to end; otherwise it has a slow place now.
    fn is_given_up(&mut self, ticket: Ticket, now: Instant) -> bool {
        let is_given_up =
            self.first.overdue(now).contains(&ticket) || self.again.overdue(now).contains(&ticket);
        if !is_given_up {
            self.quick.remove(&ticket);
        }
        is_given_up
    }

    /// A request has ended in this stage. Returns whether its place rests.
    fn end(&mut self, ticket: Ticket, stage: Stage, now: Instant) -> bool {
        self.first.answered(&ticket, now);
        self.again.answered(&ticket, now);
        self.quick.remove(&ticket);
        let Some(request) = self.requests.remove(&ticket) else { return false };
        let took = request.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let is_answered = match stage {
            Stage::Waiting => false,
            Stage::Sent => {
                self.fail(&request.container, unanswered(), Cost::Silent, now);
                false
            }
            Stage::Answered(Ok(())) => {
                let former = self.failed.remove(&request.container);
                if former.is_some_and(|failure| failure.cost == Cost::Silent) {
                    self.pardon();
                }
                true
            }
            Stage::Answered(Err(error)) => {
                let is_costly = took >= COSTLY && error.is_of_container();
                let cost = if is_costly { Cost::Much } else { Cost::Little };
                self.fail(&request.container, error, cost, now);
                true
            }
        };
        let rest = took.saturating_mul(REST).min(PATIENCE);
        let rests = is_answered && !rest.is_zero();
        if rests {
            let Request { owner, is_again, .. } = request;
            let known_until = now + took.min(PATIENCE) * NEWCOMER;
            self.resting.push(Rest { until: now + rest, known_until, owner, is_again });
        }
        rests
    }

    /// A container whose status was not answered is answered now: so it was the runtime that did not answer. All others
    /// count as new.
    fn pardon(&mut self) {
        let silent = self.failed.values_mut().filter(|failure| failure.cost == Cost::Silent);
        silent.for_each(|failure| failure.cost = Cost::Little);
    }

    /// The status of a container failed.
    fn fail(&mut self, container: &str, error: VariablesError, cost: Cost, now: Instant) {
        let earlier = self.failed.get(container);
        let earlier = earlier.filter(|failure| now.saturating_duration_since(failure.at) < REMEMBERED);
        let mut times = earlier.map_or(0, |failure| failure.times);
        let cost = earlier.map_or(cost, |failure| failure.cost.max(cost));
        let pause = if error.is_of_container() {
            times = times.saturating_add(1);
            PAUSE.0.saturating_mul(2_u32.saturating_pow(times - 1)).min(PAUSE.1)
        } else {
            PAUSE.0
        };
        if self.failed.len() >= MOST_REMEMBERED && !self.failed.contains_key(container) {
            let oldest = self.failed.iter().min_by_key(|(_, failure)| failure.at).map(|(id, _)| id.clone());
            oldest.map(|id| self.failed.remove(&id));
        }
        let failure = Failure { at: now, cost, times, until: now + pause, error: brief(error) };
        self.failed.insert(container.into(), failure);
    }
}

impl VariablesError {
    /// Whether the runtime said nothing.
    fn is_silence(&self) -> bool {
        matches!(self, Self::Runtime(status) if status.code() == Code::DeadlineExceeded)
    }

    /// Whether the next status of the container is likely to fail as well.
    fn is_of_container(&self) -> bool {
        match self {
            Self::Runtime(status) => !matches!(status.code(), Code::DeadlineExceeded | Code::Unavailable),
            Self::NotReported => true,
            Self::NoPlace => false,
        }
    }
}

/// An error as it is remembered.
fn brief(error: VariablesError) -> VariablesError {
    match error {
        // Short, and recognised by its source.
        VariablesError::Runtime(status) if SocketError::find(&status).is_some() => status.into(),
        VariablesError::Runtime(status) => {
            let message = status.message();
            let end = message.floor_char_boundary(MOST_OF_MESSAGE.min(message.len()));
            Status::new(status.code(), &message[..end]).into()
        }
        other => other,
    }
}

fn unanswered() -> VariablesError {
    Status::deadline_exceeded("the runtime does not answer").into()
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, future::pending};

    use futures_util::FutureExt as _;
    use tokio::{task::JoinSet, time::timeout};

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
        places
            .run(
                of,
                timeout(QUICK, answer)
                    .map(|ended| ended.unwrap_or_else(|_| Err(Status::deadline_exceeded("none")))),
            )
            .await
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
        let known = places.waiting().order.failed.clone();
        assert!(known.len() >= 18, "{}", known.len());
        sleep(PAUSE.0).await;
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
        assert_eq!(places.waiting().order.failed.len(), unanswered);
        sleep(PAUSE.0).await;
        request(&places, ("n0", "hung-0", "hung-0"), true).await.unwrap();
        assert!(!places.waiting().order.failed.contains_key("hung-0"), "it answers again");
    }
    /// Asks every 100 ms about a container whose status fails so, for so many seconds; returns the tenths at which the
    /// runtime was asked.
    async fn asked(places: &Places, error: VariablesError, seconds: u64) -> Vec<u128> {
        let (began, mut asked) = (clock::now(), Vec::new());
        let namespace = Arc::from("n");
        for _ in 0..seconds * 10 {
            let of = Subject { container: "c", pod: "p", namespace: &namespace };
            let answer = async {
                asked.push((clock::now() - began).as_millis() / 100);
                Err::<(), _>(error.clone())
            };
            let failed = places.run(of, answer).await.unwrap_err();
            assert_eq!(failed.to_string(), error.to_string(), "also in a pause");
            sleep(Duration::from_millis(100)).await;
        }
        asked
    }

    #[tokio::test(start_paused = true)]
    async fn row_20_a_status_that_fails_is_asked_for_ever_more_rarely_whatever_the_error() {
        for error in [
            Status::resource_exhausted("trying to send message larger than max").into(),
            Status::out_of_range("too long").into(),
            Status::internal("undecodable").into(),
            VariablesError::NotReported,
        ] {
            let places = Places::default();
            assert_eq!(asked(&places, error.clone(), 40).await, [0, 10, 30, 70, 150, 310], "{error}");
            let long = asked(&places, error, 3600).await;
            assert!((11..=14).contains(&long.len()), "every 5 min: {long:?}");
            request(&places, ("n", "p", "c2"), true).await.expect("it is that of one container");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn row_20_a_runtime_that_was_not_there_is_asked_again_within_a_second() {
        let places = Places::default();
        let asked = asked(&places, Status::unavailable("connection refused").into(), 600).await;
        assert!(asked.windows(2).all(|two| (10..=11).contains(&(two[1] - two[0]))), "{asked:?}");
        sleep(PAUSE.0).await;
        request(&places, ("n", "p", "c"), true).await.unwrap();
        assert!(places.waiting().order.failed.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn row_20_after_an_error_at_once_a_status_does_not_wait_behind_those_that_are_costly() {
        let (places, mut heavy) = (Arc::new(Places::default()), JoinSet::new());
        let request_costly = |heavy: &mut JoinSet<_>| {
            for number in 0..4 {
                let places = places.clone();
                heavy.spawn(async move {
                    let (pod, namespace) = (number.to_string(), Arc::from(format!("n{number}")));
                    let of = Subject { container: &pod, pod: &pod, namespace: &namespace };
                    let late = sleep(Duration::from_millis(900));
                    places.run(of, late.map(|()| Err::<(), _>(Status::resource_exhausted("too large")))).await
                });
            }
        };
        request_costly(&mut heavy);
        while heavy.join_next().await.is_some() {}
        let namespace = Arc::from("shop");
        let of = Subject { container: "c", pod: "web", namespace: &namespace };
        for hiccup in [Status::unavailable("not now"), Status::internal("not now")] {
            places.run(of, async { Err::<(), _>(hiccup.clone()) }).await.unwrap_err();
            sleep(PAUSE.0).await;
            request_costly(&mut heavy);
            sleep(Duration::from_millis(10)).await;
            let began = clock::now();
            places.run(of, async { Ok::<_, Status>(()) }).await.unwrap();
            assert_eq!(clock::now() - began, Duration::ZERO, "after {hiccup}");
            heavy.shutdown().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn row_20_once_a_silent_status_comes_the_other_silent_ones_count_as_new() {
        let (places, mut hung) = (Arc::new(Places::default()), JoinSet::new());
        hang(&places, 0..6, &mut hung);
        while hung.join_next().await.is_some() {}
        sleep(PAUSE.0).await;
        let costs = || {
            let waiting = places.waiting();
            waiting.order.failed.values().map(|failure| failure.cost).collect::<Vec<_>>()
        };
        assert!(costs().len() > 2 && costs().iter().all(|cost| *cost == Cost::Silent), "{:?}", costs());
        request(&places, ("n0", "web", "web"), true).await.unwrap();
        assert!(costs().iter().all(|cost| *cost == Cost::Silent), "another one says nothing of them");
        request(&places, ("n0", "hung-0", "hung-0"), true).await.unwrap();
        assert!(costs().len() > 1 && costs().iter().all(|cost| *cost == Cost::Little), "{:?}", costs());
    }

    #[tokio::test(start_paused = true)]
    async fn row_20_probes_of_one_container_share_one_failed_status() {
        let (places, namespace) = (Places::default(), Arc::from("n"));
        let asked = Cell::new(0);
        let one = || {
            let of = Subject { container: "c", pod: "p", namespace: &namespace };
            places.run(of, async {
                asked.set(asked.get() + 1);
                sleep(Duration::from_millis(100)).await;
                Err::<(), _>(Status::resource_exhausted("x".repeat(1 << 20)))
            })
        };
        let (first, second, third) = tokio::join!(one(), one(), one());
        assert_eq!(asked.get(), 1);
        assert!(first.is_err() && second.unwrap_err().to_string().len() < 1000 && third.is_err());
    }

    /// Requests whose answers take so long, of so many containers of each of these pods, one after the other of each
    /// container; returns for how long the runtime worked in all, within so many seconds, and at how many at once.
    async fn load(pods: &[(&'static str, &'static str)], takes: Duration, seconds: u64) -> (Duration, usize) {
        let places = Places::default();
        let (worked, now, most) = (Cell::new(Duration::ZERO), Cell::new(0), Cell::new(0));
        let one = async |namespace: &str, pod: &str, container: String| {
            let namespace = Arc::from(namespace);
            loop {
                let of = Subject { container: &container, pod, namespace: &namespace };
                let answer = async {
                    now.set(now.get() + 1);
                    most.set(most.get().max(now.get()));
                    sleep(takes).await;
                    now.set(now.get() - 1);
                    worked.set(worked.get() + takes);
                    Ok::<_, Status>(())
                };
                drop(places.run(of, answer).await);
            }
        };
        let one = &one;
        let of_pod = |(namespace, pod): &(&'static str, &'static str)| {
            let (namespace, pod) = (*namespace, *pod);
            (0..8).map(move |number| one(namespace, pod, format!("{pod}-{number}")))
        };
        let all = pods.iter().flat_map(of_pod);
        drop(timeout(Duration::from_secs(seconds), futures_util::future::join_all(all)).await);
        (worked.get(), most.get())
    }

    #[tokio::test(start_paused = true)]
    async fn row_20_statuses_that_take_long_leave_the_runtime_most_of_its_time() {
        let takes = Duration::from_millis(200);
        let (worked, at_once) = load(&[("a", "1")], takes, 100).await;
        assert!(worked <= Duration::from_secs(26) && at_once == 1, "one pod: {worked:?}, {at_once}");
        assert!(worked >= Duration::from_secs(24), "what rests is used again at once: {worked:?}");
        let (worked, at_once) = load(&[("a", "1"), ("a", "2"), ("a", "3"), ("a", "4")], takes, 100).await;
        assert!(worked <= Duration::from_secs(52) && at_once == 2, "one namespace: {worked:?}, {at_once}");
        let all = ["a", "b", "c", "d"].map(|name| [(name, "1"), (name, "2")]).concat();
        let (worked, at_once) = load(&all, takes, 100).await;
        assert!(worked <= Duration::from_secs(104) && at_once <= 4, "all: {worked:?}, {at_once}");
    }

    #[tokio::test(start_paused = true)]
    async fn row_20_rests_of_other_namespaces_do_not_delay_the_first_statuses_of_a_pod() {
        for (namespaces, takes) in [(3, 90), (3, 320), (12, 90), (12, 900)] {
            let (places, mut evil) = (Arc::new(Places::default()), JoinSet::new());
            for number in 0..namespaces * 4 * 8 {
                let places = places.clone();
                evil.spawn(async move {
                    let (pod, container) = ((number / 8).to_string(), number.to_string());
                    let namespace = Arc::from(format!("evil-{}", number / 8 % namespaces));
                    loop {
                        let of = Subject { container: &container, pod: &pod, namespace: &namespace };
                        let answer = sleep(Duration::from_millis(takes));
                        drop(places.run(of, answer.map(Ok::<_, Status>)).await);
                    }
                });
            }
            sleep(Duration::from_secs(10)).await;
            let (began, namespace) = (clock::now(), Arc::from("shop"));
            for number in 0..32 {
                let container = number.to_string();
                let of = Subject { container: &container, pod: "web", namespace: &namespace };
                places.run(of, sleep(Duration::from_millis(5)).map(Ok::<_, Status>)).await.unwrap();
            }
            let took = clock::now() - began;
            assert!(took <= Duration::from_secs(3), "{namespaces} x {takes} ms: {took:?}");
            evil.shutdown().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn row_20_many_namespaces_make_the_runtime_work_twice_as_much_at_most() {
        let all: Vec<_> =
            (0..16_u8).map(|number| &*format!("{number}").leak()).map(|name| (name, name)).collect();
        let (worked, at_once) = load(&all, Duration::from_millis(200), 100).await;
        assert!(worked <= Duration::from_secs(200) && at_once <= 4, "{worked:?}, {at_once}");
    }

    #[tokio::test(start_paused = true)]
    async fn row_20_heavy_statuses_of_one_namespace_do_not_delay_those_of_another() {
        let (places, heavy) = (Arc::new(Places::default()), Duration::from_millis(900));
        let mut tasks = JoinSet::new();
        for number in 0..64 {
            let places = places.clone();
            tasks.spawn(async move {
                let (pod, container, namespace) =
                    ((number % 8).to_string(), number.to_string(), Arc::from("a"));
                let of = Subject { container: &container, pod: &pod, namespace: &namespace };
                drop(places.run(of, sleep(heavy).map(Ok::<_, Status>)).await);
            });
        }
        sleep(Duration::from_millis(10)).await;
        let began = clock::now();
        for number in 0..100 {
            request(&places, ("shop", "web", &number.to_string()), true).await.unwrap();
        }
        assert_eq!(clock::now() - began, Duration::ZERO);
    }
}
