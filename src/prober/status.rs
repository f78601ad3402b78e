//! One probe as it is now, in the terms in which it is shown. Pure: what a worker knows in, words out; never formats
//! JSON or tables.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use serde::{Deserialize, Serialize};

use super::{
    Moment,
    lateness::is_late,
    pauses::Pause,
    totals::AttemptTotals,
    worker::{
        Worker,
        event::{Block, Stopping},
    },
};
use crate::{
    clock,
    handler::go,
    ids::{ContainerId, ProbeKey, SandboxId},
    inventory::pod::{Container, ContainerEnd, ContainerState},
    results::{
        AttemptRecord, Counts, Run, Tally, Verdict, errors::Errors, history::History, latency::Latency,
    },
    spec::{
        ProbeSpec,
        acting::Acting,
        plan::{Invalid, Planned},
    },
};

/// How many probes there are.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ProbeCounts {
    /// By verdict and phase.
    pub by_state: BTreeMap<(Verdict, ProbePhase), u64>,
    /// Those whose newest attempts were errors, as many as failures would make a verdict.
    pub untried: u64,
    /// For how long those wait for a place that wait for more than two of their periods.
    pub late: Vec<Duration>,
    /// Those of enforced rules that have not had a result at their running containers.
    pub unproven: Unproven,
    /// The attempts of all probes since the prober started, also of those that are gone.
    pub attempts: AttemptTotals,
}

/// Probes that have been there for a while, at running containers, and have had no result.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Unproven {
    /// How many.
    pub count: u64,
    /// The oldest of them, at most 3: for how long, the pod's namespace and name, and which.
    pub oldest: Vec<(Duration, Arc<str>, Arc<str>, ProbeKey)>,
}

impl Unproven {
    /// 3 of them are named; the others are counted.
    const NAMED: usize = 3;

    /// 30 s: a container that has run for less may not have had its first attempt yet.
    const AFTER: Duration = Duration::from_secs(30);

    /// Counts a probe that came to be `since`, if it is one of them. One without a worker is invalid.
    pub(super) fn note(
        &mut self,
        key: &ProbeKey,
        view: &Container,
        (worker, since): (Option<&Worker>, SystemTime),
        now: Moment,
    ) {
        let has_said = |worker: &Worker| {
            let counts = worker.results().counts();
            let is_held = worker.block(now.at).map(ProbePhase::of) == Some(ProbePhase::Held);
            is_held || counts.total() > counts.error
        };
        let since = view.started_at.map_or(since, |started| started.max(since));
        let age = now.wall.duration_since(since).unwrap_or_default();
        if view.state != ContainerState::Running || age < Self::AFTER || worker.is_some_and(has_said) {
            return;
        }
        self.count += 1;
        let at = self.oldest.partition_point(|(known, _, _, other)| (*known, key) > (age, other));
        if at < Self::NAMED {
            self.oldest.insert(at, (age, view.pod.namespace.clone(), view.pod.name.clone(), key.clone()));
            self.oldest.truncate(Self::NAMED);
        }
    }
}

impl ProbeCounts {
    /// Counts a probe; one without a worker is invalid.
    /// While the runtime `is_away`, no command can be tried.
    pub(super) fn note(&mut self, worker: Option<&Worker>, is_away: bool, now: Moment) {
        let (state, phase) = match worker {
            Some(worker) => (state(worker), worker.block(now.at).map_or(ProbePhase::Probing, ProbePhase::of)),
            None => (Verdict::Unknown, ProbePhase::Invalid),
        };
        *self.by_state.entry((state, phase)).or_default() += 1;
        let is_untried = |worker: &Worker| {
            worker.cannot_try() || is_away && phase == ProbePhase::Probing && worker.runs_command()
        };
        self.untried += u64::from(phase != ProbePhase::Stopped && worker.is_some_and(is_untried));
        self.late.extend(worker.and_then(|worker| late(worker, now)));
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ProbeStatus {
    /// Pod, container name and type.
    pub key: ProbeKey,
    /// The pod's namespace.
    pub namespace: Arc<str>,
    /// The pod's name.
    pub pod: Arc<str>,
    /// The pod's sandbox.
    pub sandbox_id: SandboxId,
    /// The container that it looks at.
    pub container_id: ContainerId,
    /// Counts the containers of this name.
    pub attempt: u32,
    /// When it was made, where the runtime has said.
    pub created_at: Option<SystemTime>,
    /// The definition; none if it is invalid.
    pub spec: Option<Arc<ProbeSpec>>,
    /// What an attempt does, in Kubernetes' word; none where an invalid definition names nothing.
    pub handler: Option<&'static str>,
    /// Where the definition came from: `annotation`, `rule:NAME`, ...
    pub source: String,
    /// Where the probe is in its work.
    pub phase: ProbePhase,
    /// The verdict after thresholds.
    pub state: Verdict,
    /// Why it is in this phase, in words; while it probes, why the last attempt was an error.
    pub reason: String,
    /// When the verdict last changed.
    pub since: SystemTime,
    /// From one attempt to the next; longer than defined while the runtime does not answer. None if it is invalid.
    pub period: Option<Duration>,
    /// For how long it waits for a place, where that is more than two of its periods.
    pub late: Option<Duration>,
    /// When the next attempt is due; none while something prevents it.
    pub next_at: Option<SystemTime>,
    /// When the attempt in flight began, if one is.
    pub in_flight_since: Option<Instant>,
    /// The results in a row.
    pub run: Run,
    /// The attempts of the current container.
    pub counts: Counts,
    /// The last attempt.
    pub last: Option<AttemptRecord>,
    /// The newest attempts of the current container, where they were errors.
    pub errors: Option<Errors>,
    /// Since when the runtime is away, where it is needed for attempts that were to be made.
    pub away: Option<SystemTime>,
    /// What the failure said that these errors hide, if one came before them.
    pub hidden: Option<Arc<str>>,
    /// The attempts since the probe came to be, over all its containers.
    pub tally: Tally,
    /// When the last attempt began that was no success.
    pub unsuccessful_at: Option<SystemTime>,
    /// How long the attempts of the current container took.
    pub latency: Option<Latency>,
    /// The last attempts and changes of verdict.
    pub history: Arc<History>,
    /// What a verdict of failure does.
    pub acting: Acting,
    /// The definitions that this one beat.
    pub shadowed: Vec<String>,
    /// Its pause, if an operator paused it.
    pub pause: Option<Pause>,
    /// Whether a client stops its container or pod, or has done so.
    pub is_clients: bool,
    /// How the container exited, where no attempt can be made before there is a new one.
    pub exited: Option<Exited>,
}

/// The end of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exited {
    /// Its exit code, where the runtime has said.
    pub code: Option<i32>,
}

/// Where a probe is in its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbePhase {
    /// No running container, a paused one, start delay, or startup gate.
    Waiting,
    /// Attempts are made.
    Probing,
    /// Startup succeeded, or an act on the container is in progress; waits for a new container.
    Held,
    /// An operator wants no attempts for now.
    Paused,
    /// The definition cannot run, or is one too many.
    Invalid,
    /// The container is being stopped.
    Stopped,
}

impl ProbePhase {
    /// That of a blocked probe.
    fn of(block: Block) -> Self {
        match block {
            Block::Paused => Self::Paused,
            Block::Stopping(_) => Self::Stopped,
            Block::Held | Block::AlreadyStarted => Self::Held,
            Block::NoContainer
            | Block::NotRunning(_)
            | Block::ContainerPaused
            | Block::Delayed(_)
            | Block::NotStarted => Self::Waiting,
        }
    }

    /// `waiting`, `probing`, `held`, `paused`, `invalid`, `stopped`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Probing => "probing",
            Self::Held => "held",
            Self::Paused => "paused",
            Self::Invalid => "invalid",
            Self::Stopped => "stopped",
        }
    }
}

impl ProbeStatus {
    /// Of a probe whose definition is valid, and its pause, if it is paused.
    pub(super) fn of(
        key: &ProbeKey,
        view: &Container,
        planned: &Planned,
        worker: &Worker,
        paused: Option<&Pause>,
        now: Moment,
    ) -> Self {
        let block = worker.block(now.at);
        let (phase, reason) = match block {
            None => (ProbePhase::Probing, probing(worker, now)),
            Some(block) => blocked(block, worker, view, (paused, now.wall)),
        };
        let (spec, results) = (worker.spec(), worker.results());
        Self {
            spec: Some(spec.clone()),
            handler: Some(spec.handler.name()),
            phase,
            state: state(worker),
            reason,
            since: results.since(),
            period: Some(worker.spacing(now.at)),
            late: late(worker, now),
            next_at: worker.next().map(|next| now.wall_of(next.max(now.at))),
            in_flight_since: worker.flight_since(),
            run: results.run_here(),
            counts: results.counts(),
            last: results.last().cloned(),
            errors: results.errors(),
            hidden: results.hidden().cloned(),
            tally: results.tally().clone(),
            unsuccessful_at: results.unsuccessful_at(),
            latency: results.latency(),
            history: results.history().clone(),
            pause: paused.cloned(),
            exited: block.and_then(|block| exited(block, worker, view)),
            ..Self::invalid(key, view, planned, None, now.wall)
        }
    }

    /// Of a probe that cannot run, since it came to be, and why.
    pub(super) fn invalid(
        key: &ProbeKey,
        view: &Container,
        planned: &Planned,
        invalid: Option<&Invalid>,
        since: SystemTime,
    ) -> Self {
        Self {
            key: key.clone(),
            namespace: view.pod.namespace.clone(),
            pod: view.pod.name.clone(),
            sandbox_id: view.pod.sandbox_id.clone(),
            container_id: view.id.clone(),
            attempt: view.attempt,
            created_at: view.created_at,
            spec: None,
            handler: invalid.and_then(|invalid| invalid.handler),
            source: planned.source.to_string(),
            phase: ProbePhase::Invalid,
            state: Verdict::Unknown,
            reason: invalid.map(|invalid| invalid.reason.clone()).unwrap_or_default(),
            since,
            period: None,
            late: None,
            next_at: None,
            in_flight_since: None,
            run: Run::default(),
            counts: Counts::default(),
            last: None,
            errors: None,
            away: None,
            hidden: None,
            tally: Tally::default(),
            unsuccessful_at: None,
            latency: None,
            history: Arc::default(),
            acting: planned.acting,
            shadowed: planned.shadowed.clone(),
            pause: None,
            is_clients: false,
            exited: None,
        }
    }

    /// The same while the runtime is away since then, and is needed for its attempts: from the first moment on, what its verdict
    /// says is not known.
    pub(super) fn in_outage(mut self, since: SystemTime, now: SystemTime) -> Self {
        if self.phase != ProbePhase::Probing {
            return self;
        }
        self.away = Some(since);
        if self.errors.is_none() {
            let words = Errors::in_words(0, &clock::short(since, now));
            self.reason = format!("{words}: the runtime is away");
            self.errors = Some(Errors { count: 0, since });
        }
        self
    }

    /// Whether the verdict is not known to be true any more: so many attempts in a row were errors as failures would make a
    /// verdict, or the runtime is away; and no client stops the container.
    pub(crate) fn cannot_try(&self) -> bool {
        let threshold = self.spec.as_ref().map(|spec| spec.failure_threshold);
        let is_over = self.away.is_some()
            || self.errors.zip(threshold).is_some_and(|(errors, threshold)| errors.count >= threshold);
        is_over && self.phase != ProbePhase::Stopped && !self.is_clients
    }
}

fn state(worker: &Worker) -> Verdict {
    worker.results().verdict().unwrap_or(Verdict::Unknown)
}

/// For how long a probe waits for a place, where that is too long.
fn late(worker: &Worker, now: Moment) -> Option<Duration> {
    let waited = now.at.saturating_duration_since(worker.waits_since()?);
    is_late(waited, worker.beat(now.at)).then_some(waited)
}

fn probing(worker: &Worker, now: Moment) -> String {
    if late(worker, now).is_some() {
        return "has waited for a place for more than two periods: other attempts hold the places".to_owned();
    }
    let error = worker.error().unwrap_or_default();
    let spacing = worker.spacing(now.at);
    let failed = worker.results().hidden().filter(|_| state(worker) == Verdict::Failure);
    let mut words = match worker.results().errors() {
        Some(errors) if failed.is_some() || worker.cannot_try() => {
            let untried = Errors::in_words(errors.count, &clock::short(errors.since, now.wall));
            format!("{}{untried}: {error}", failed.map(|failed| format!("{failed}; ")).unwrap_or_default())
        }
        Some(_) | None => error.to_owned(),
    };
    if spacing > worker.beat(now.at) {
        let next = worker.next().map(|next| now.wall_of(next.max(now.at)));
        let next = next.map(|next| format!(", the next at {}", clock::short(next, now.wall)));
        words += &format!(
            "; slowed down to every {}{}: `criprobe trigger` tries now",
            go::duration(spacing),
            next.unwrap_or_default()
        );
    }
    match worker.spec().start.filter(|_| error.is_empty() && worker.is_starting(now.at)) {
        Some(start) => {
            let length = go::duration(start.length);
            format!("start period of {length}: failures do not count before the first success")
        }
        None => words,
    }
}

/// The phase of a probe that is blocked, and by what; with its pause, if it is paused, and the time.
pub(super) fn blocked(
    block: Block,
    worker: &Worker,
    view: &Container,
    (paused, now): (Option<&Pause>, SystemTime),
) -> (ProbePhase, String) {
    let spec = worker.spec();
    let reason = match block {
        Block::NoContainer => "there is no container".to_owned(),
        Block::Paused => by_an_operator(paused, now),
        Block::Stopping(Stopping::Container) => "the container is being stopped".to_owned(),
        Block::Stopping(Stopping::Pod) => "the pod is being stopped".to_owned(),
        Block::Held => held(worker, view),
        Block::NotRunning(_) => not_running(view),
        Block::ContainerPaused => CONTAINER_PAUSED.to_owned(),
        Block::Delayed(_) => format!("start delay of {}", go::duration(spec.initial_delay)),
        Block::NotStarted => "the startup probe has not succeeded yet".to_owned(),
        Block::AlreadyStarted => "the container has started".to_owned(),
    };
    (ProbePhase::of(block), reason)
}

/// Why nothing can be tried on a container whose processes are frozen.
pub(super) const CONTAINER_PAUSED: &str = "the container is paused";

fn by_an_operator(paused: Option<&Pause>, now: SystemTime) -> String {
    let mut words = "paused by an operator".to_owned();
    let Some(Pause { since, until, reason }) = paused else { return words };
    words += &format!(" since {}", clock::short(*since, now));
    if let Some(until) = until {
        words += &format!(" until {}", clock::short(*until, now));
    }
    if !reason.is_empty() {
        words += &format!(": {reason}");
    }
    words
}

fn held(worker: &Worker, view: &Container) -> String {
    if worker.is_acted_on() {
        match (worker.is_running(), worker.is_failing()) {
            (true, _) => "its failure is being acted on: see `criprobe describe`".to_owned(),
            (false, true) => "its failure has stopped the container; waits for a new one".to_owned(),
            (false, false) => format!("{}; waits for a new one", not_running(view)),
        }
    } else {
        format!("{} succeeded; waits for a new container", worker.spec().kind)
    }
}

/// Why nothing can be tried on a container in its state; of one that runs, that this is unknown.
pub(super) fn not_running(view: &Container) -> String {
    match view.state {
        ContainerState::Created => "the container has not been started".to_owned(),
        ContainerState::Exited { exit_code } => {
            let code = exit_code.map(|code| format!(" with code {code}")).unwrap_or_default();
            let reason = view.end.as_deref().and_then(ContainerEnd::telling);
            let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
            format!("the container exited{code}{reason}")
        }
        ContainerState::Running | ContainerState::Unknown => {
            "the runtime does not know the container's state".to_owned()
        }
    }
}

/// How the container exited, where that prevents attempts: it ended by itself, or its act has not replaced it yet.
fn exited(block: Block, worker: &Worker, view: &Container) -> Option<Exited> {
    let ContainerState::Exited { exit_code: code } = view.state else { return None };
    let is_in_the_way = match block {
        Block::NotRunning(_) => true,
        Block::Held => worker.is_acted_on() && !worker.is_running() && !worker.is_failing(),
        Block::NoContainer
        | Block::Paused
        | Block::Stopping(_)
        | Block::ContainerPaused
        | Block::Delayed(_)
        | Block::NotStarted
        | Block::AlreadyStarted => false,
    };
    is_in_the_way.then_some(Exited { code })
}
