//! Decides what one probe does next: events in, actions out. Never does IO, never reads a clock, never logs.
//!
//! The kubelet walks through a list of checks at each tick (docs/kubelet-prober.md 3.7); we walk through the same list,
//! in the same order, whenever something changes, and so need no tick while a check prevents it.
//!
//! ```text
//!            no running container, a paused one, start delay, startup gate
//!                 v                      ^
//! Waiting ----> Resting --due--> Queued --place--> Attempting --finished--> Resting
//!    ^                                                  |
//!    +------- another container <------- Held <---------+ a success of startup, or an act on the container
//!
//! any --a client began to stop it--> Stopped --it does not run any more, or another container--> Waiting
//!                                       +-----that failed--> where it was
//! any --an operator's pause--> Paused --resume--> as if it had never been
//! ```

mod acting;
mod checkpoint;
pub(crate) mod event;
mod memory;
pub(super) mod outcome;

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use super::{
    Moment,
    state::Checkpoint,
    timing::{probe_from, start_until},
    trust::{Record, Trust},
};
use crate::{
    ids::{ContainerId, ProbeKind},
    inventory::pod::ContainerState,
    results::{
        Results, Verdict,
        event::Notice,
        history::{ChangeReason, HistoryLimits},
    },
    spec::ProbeSpec,
};
use event::{Action, Block, Seen, Stopping, WorkerEvent};
use outcome::Ended;

/// 5 minutes: the longest that a probe whose runtime does not answer is spaced out to.
const LONGEST_SPACING: Duration = Duration::from_secs(300);

/// 10 s: a container that started longer than this before its probe came to be is adopted, not new
/// (docs/kubelet-prober.md 3.8). A probe that came to be longer than this after us came by a reload, not with all the
/// others.
const ADOPTED_BEFORE: Duration = Duration::from_secs(10);

/// One probe of the containers of one name in one pod.
#[derive(Debug)]
pub(crate) struct Worker {
    spec: Arc<ProbeSpec>,
    /// When we began: the kubelet's probes all come to be then or with their containers.
    began: Moment,
    /// When it came to be, which a reload may have made later than that: containers much older are adopted.
    made: Moment,
    results: Results,
    /// How much of its attempts is kept.
    limits: HistoryLimits,
    target: Option<Target>,
    /// What is known from before a restart of ours of the container that is seen next.
    checkpoint: Option<Checkpoint>,
    stopping: Option<Stopping>,
    /// Whether startup succeeded, which ends its work on this container.
    is_held: bool,
    /// Whether an act on this container is in progress.
    is_acted_on: bool,
    /// Failures in a row on this container from fresh attempts, see [`Worker::stale`].
    fresh: u32,
    /// Whether an operator wants no attempts.
    is_paused: bool,
    is_started: bool,
    /// When the next attempt is due; none while a check prevents it.
    next: Option<Instant>,
    /// When the one after it is due, if it is an early one.
    then: Option<Instant>,
    /// Whether that is the first attempt of a container that was there with many others.
    may_spread: bool,
    /// From when on an operator wants another attempt, after the one in flight.
    triggered: Option<Instant>,
    is_queued: bool,
    flight: Option<Flight>,
    /// When its last attempt began.
    attempted: Option<Instant>,
    /// When the last attempt began that has ended, and how it did.
    ended: Option<(Instant, Ended)>,
    /// Attempts in a row that the runtime did not answer.
    unanswered: u32,
    /// Whether it was reported that it cannot be tried.
    is_said_untried: bool,
    /// How many errors there were since an attempt had a result, without those of an outage of the runtime.
    own_errors: u32,
    /// How long its attempts held their places, on whatever container.
    record: Record,
}

#[derive(Debug)]
struct Target {
    seen: Seen,
    /// Whether it is known from before a restart of ours. It ran then.
    is_restored: bool,
    /// Whether we have seen it run.
    has_run: bool,
    /// When it began to run, as far as it is known.
    runs_since: Option<SystemTime>,
    /// The end of the start delay, as far as it is known.
    probe_from: Instant,
    /// The end of the start period, as far as it is known; none if there is none, or it does not run yet.
    start_until: Option<Instant>,
}

/// The attempt in flight.
#[derive(Debug)]
enum Flight {
    /// Our own.
    Own(Attempt),
    /// Our own, with an outcome: what is left is the runtime's work.
    Judged(Attempt),
    /// One of a worker that had this key before us: it says nothing to us, but there may be no second one.
    Foreign,
}

#[derive(Debug)]
struct Attempt {
    container: ContainerId,
    /// Counts the containers of the name.
    container_attempt: u32,
    began: Moment,
    lag: Duration,
    /// Whether it began in the start period, before the first success.
    is_forgiven: bool,
    /// Whether nothing has happened since it began that makes earlier attempts say nothing, see [`Worker::stale`].
    is_fresh: bool,
    /// From when it was due to the next one, as it was planned.
    beat: Duration,
    /// Whether its container was paused meanwhile: its outcome says nothing.
    is_void: bool,
}

impl Worker {
    /// A probe that has seen no container yet. `is_busy`: an attempt of another worker of this key is still in flight.
    pub(crate) fn new(spec: Arc<ProbeSpec>, began: Moment, is_busy: bool, now: Moment) -> Self {
        let is_started = spec.kind != ProbeKind::Startup;
        Self {
            spec,
            began,
            made: now,
            results: Results::new(now.wall),
            limits: HistoryLimits::default(),
            target: None,
            checkpoint: None,
            stopping: None,
            is_held: false,
            is_acted_on: false,
            fresh: 0,
            is_paused: false,
            is_started,
            next: None,
            then: None,
            may_spread: false,
            triggered: None,
            is_queued: false,
            flight: is_busy.then_some(Flight::Foreign),
            attempted: None,
            ended: None,
            unanswered: 0,
            is_said_untried: false,
            own_errors: 0,
            record: Record::default(),
        }
    }

    /// Goes on under a definition that differs only in its source, see [`ProbeSpec::is_same_probe`].
    pub(crate) fn redefine(&mut self, spec: Arc<ProbeSpec>) {
        self.spec = spec;
    }

    /// Takes one event in and returns what is to be done.
    pub(crate) fn on(&mut self, event: WorkerEvent, now: Moment) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            WorkerEvent::Restored(checkpoint) => {
                self.checkpoint = Some(checkpoint);
                self.stale();
            }
            WorkerEvent::Seen(seen) => self.look(seen, now, &mut actions),
            WorkerEvent::Started(is_started) => {
                // Those that a success of startup releases go on at once, however many they are.
                self.may_spread &= self.is_started || !is_started;
                self.is_started = is_started;
            }
            // Liveness and startup end before their container; readiness goes on, so that the pod can be seen draining
            // (docs/kubelet-prober.md 2, StopLivenessAndStartup).
            WorkerEvent::Stopping(_) | WorkerEvent::Acting(_) if self.spec.kind == ProbeKind::Readiness => {}
            WorkerEvent::Stopping(stopping) => self.stopping = stopping,
            WorkerEvent::Acting(is_acted_on) => self.set_acted_on(is_acted_on),
            WorkerEvent::Paused(is_paused) => {
                if self.is_paused && !is_paused {
                    self.stale();
                }
                self.is_paused = is_paused;
                self.triggered = self.triggered.filter(|_| !is_paused);
            }
            WorkerEvent::Triggered(rest) => self.trigger(rest, now),
            WorkerEvent::Due => self.enqueue(now, &mut actions),
            WorkerEvent::Spread(by) => {
                self.may_spread = false;
                self.then = None;
                self.next = self.next.map(|_| now.at + by);
            }
            WorkerEvent::TryEarly { after, then } => {
                self.may_spread = false;
                self.then = Some(now.at + then);
                self.next = self.next.map(|_| now.at + after);
            }
            WorkerEvent::RuntimeAnswers(by) => {
                self.stale();
                let was_silent = std::mem::take(&mut self.unanswered) > 0;
                let next = self.next.filter(|_| was_silent && self.deadline().is_some());
                self.next = next.map(|next| next.min(now.at + by)).or(self.next);
            }
            WorkerEvent::SlotFreed => self.start(now, &mut actions),
            WorkerEvent::Judged(outcome) => self.judge(&outcome, now, &mut actions),
            WorkerEvent::Finished(outcome) => self.finish(outcome, now, &mut actions),
        }
        self.aim(now);
        actions
    }

    /// When it wants to get [`WorkerEvent::Due`].
    pub(crate) fn deadline(&self) -> Option<Instant> {
        if self.is_queued || self.flight.is_some() { None } else { self.next }
    }

    /// Since when it waits for a place, if it does.
    pub(crate) fn waits_since(&self) -> Option<Instant> {
        self.next.filter(|_| self.is_queued)
    }

    /// Whether the attempt in flight is on a container that is replaced or has ended, or was paused meanwhile: nothing
    /// that it may still find out counts.
    pub(crate) fn is_overtaken(&self) -> bool {
        let Some(Flight::Own(attempt) | Flight::Judged(attempt)) = &self.flight else { return false };
        attempt.is_void
            || self.target.as_ref().is_none_or(|target| {
                target.seen.id != attempt.container
                    || matches!(target.seen.state, ContainerState::Exited { .. })
            })
    }

    /// When the attempt in flight began, if it is ours.
    pub(super) fn flight_since(&self) -> Option<Instant> {
        match &self.flight {
            Some(Flight::Own(attempt) | Flight::Judged(attempt)) => Some(attempt.began.at),
            Some(Flight::Foreign) | None => None,
        }
    }

    /// When its last attempt began.
    pub(super) fn attempted(&self) -> Option<Instant> {
        self.attempted
    }

    /// How an attempt ended that began then or later, if one did.
    pub(super) fn ended_since(&self, then: Instant) -> Option<Ended> {
        self.ended.filter(|(began, _)| *began >= then).map(|(_, ended)| ended)
    }

    /// How far it is trusted to give a place back soon.
    pub(super) fn trust(&self) -> Trust {
        self.record.trust()
    }

    /// Whether its next attempt may be spread with [`WorkerEvent::Spread`]: the first one of a container, once.
    pub(crate) fn may_spread(&self) -> bool {
        self.may_spread
    }

    /// Whether its next attempt is to be spread, however few are due: the kubelet's jitter for workers that begin
    /// within their first period after it did (docs/kubelet-prober.md 3.1), here only for containers that ran before we
    /// did, and not for probes that came later by a reload: the author of a rule wants to see it at work.
    pub(crate) fn wants_jitter(&self, now: Moment) -> bool {
        let age = now.at.saturating_duration_since(self.began.at);
        let began = now.wall_of(self.began.at);
        let came_with_us = self.made.at.saturating_duration_since(self.began.at) <= ADOPTED_BEFORE;
        let ran_before =
            self.target.as_ref().and_then(|target| target.runs_since).is_some_and(|at| at < began);
        self.may_spread && came_with_us && ran_before && self.beat(now.at) > age
    }

    /// Its definition.
    pub(crate) fn spec(&self) -> &Arc<ProbeSpec> {
        &self.spec
    }

    /// What it found so far.
    pub(crate) fn results(&self) -> &Results {
        &self.results
    }

    /// When the next attempt is due, also while one is in flight or waits for its place.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Whether failures of attempts that begin now are forgiven: it is in its start period, and has not succeeded yet.
    pub(crate) fn is_starting(&self, now: Instant) -> bool {
        let counts = self.results.counts();
        let until = self.target.as_ref().and_then(|target| target.start_until);
        until.is_some_and(|until| now < until) && counts.success + counts.warning == 0
    }

    /// From one attempt to the next: the period; while it starts, the interval for that.
    pub(crate) fn beat(&self, now: Instant) -> Duration {
        self.spec.start.filter(|_| self.is_starting(now)).map_or(self.spec.period, |start| start.interval)
    }

    /// The beat, or what it is spaced out to while the runtime does not answer: twice as long each time, up to
    /// 5 minutes.
    pub(crate) fn spacing(&self, now: Instant) -> Duration {
        let period = self.beat(now);
        period.saturating_mul(2u32.saturating_pow(self.unanswered)).min(LONGEST_SPACING.max(period))
    }

    /// What prevents the next attempt: the kubelet's checks, in its order. Those that it makes of the pod
    /// (steps 1, 2) have nothing to go by in CRI; a pod that is gone takes its worker along.
    pub(crate) fn block(&self, now: Instant) -> Option<Block> {
        // Step 3: a container is known, and step 4, another one, was taken when it was seen.
        let Some(target) = &self.target else { return Some(Block::NoContainer) };
        // Ours: an operator's pause. What is known of the container goes on, attempts do not.
        if self.is_paused {
            return Some(Block::Paused);
        }
        // StopLivenessAndStartup: when its pod ends, the kubelet's worker exits, and with it every further step. A stop
        // of the container alone may be the beginning of that, and prevents attempts for as long as there is something
        // to stop.
        match self.stopping {
            Some(stopping @ Stopping::Pod) => return Some(Block::Stopping(stopping)),
            Some(stopping @ Stopping::Container) if self.is_running() => {
                return Some(Block::Stopping(stopping));
            }
            Some(Stopping::Container) | None => {}
        }
        // Step 5: before the look at the container's state, so a held worker does not care whether it still runs.
        if self.is_held || self.is_acted_on {
            return Some(Block::Held);
        }
        // Step 6. Whether to go on at all then (docs/kubelet-prober.md 3.9) depends on the restart policy, which CRI
        // does not have: the worker stays.
        if target.seen.state != ContainerState::Running {
            return Some(Block::NotRunning(target.seen.state));
        }
        // Ours: the kubelet knows nothing of pauses, see `look`.
        if target.seen.is_paused {
            return Some(Block::ContainerPaused);
        }
        // Step 7, a deletion that the worker knew from its start, does not exist here.
        // Step 8.
        if now < target.probe_from {
            return Some(Block::Delayed(target.probe_from));
        }
        // Steps 9 and 10.
        match (self.spec.kind, self.is_started) {
            (ProbeKind::Startup, true) => Some(Block::AlreadyStarted),
            (ProbeKind::Readiness | ProbeKind::Liveness, false) => Some(Block::NotStarted),
            (ProbeKind::Startup, false) | (ProbeKind::Readiness | ProbeKind::Liveness, true) => None,
        }
    }

    fn look(&mut self, seen: Seen, now: Moment, actions: &mut Vec<Action>) {
        // Step 4: another container takes the verdict away and lifts the hold; the run goes on.
        if self.target.as_ref().is_none_or(|target| target.seen.id != seen.id) {
            let is_restored = self.take_up(&seen.id, now);
            self.stopping = None;
            self.is_acted_on = false;
            self.stale();
            (self.next, self.then) = (None, None);
            // A container that ran already when we met it was started soon after it was made; its start is reported
            // later.
            let runs_since = seen.created_at.filter(|_| seen.state == ContainerState::Running);
            let (seen, has_run, probe_from, start_until) = (seen.clone(), false, now.at, None);
            self.target = Some(Target { seen, is_restored, has_run, runs_since, probe_from, start_until });
        }
        let Some(target) = &mut self.target else { return };
        let is_running = seen.state == ContainerState::Running;
        let is_first_run = is_running && !target.has_run;
        let is_better_known = is_running && target.seen.started_at.is_none() && seen.started_at.is_some();
        let is_fresh = is_first_run || (is_better_known && self.results.counts().total() == 0);
        let was_delayed = now.at < target.probe_from;
        target.has_run |= is_running;
        target.runs_since = seen.started_at.or(target.runs_since);
        if is_fresh || is_better_known {
            // Step 8: the delay counts from the start of the container, not from the success of startup.
            target.probe_from = probe_from(self.spec.initial_delay, seen.started_at, now);
            // So does the start period, also over a restart of ours.
            target.start_until = self.spec.start.map(|start| start_until(start.length, seen.started_at, now));
        }
        let is_resumed = is_running && target.seen.is_paused && !seen.is_paused;
        target.seen = seen;
        if target.seen.is_paused
            && let Some(Flight::Own(attempt) | Flight::Judged(attempt)) = &mut self.flight
        {
            attempt.is_void = true;
        }
        if is_resumed {
            self.container_resumed();
        }
        if is_fresh {
            // A start that is reported late may end the delay, but does not bring a spread attempt forward.
            if (is_first_run || was_delayed) && !self.is_queued && self.flight.is_none() {
                self.next = None;
            }
            self.may_spread |= is_first_run;
            self.seed(now);
        } else if !is_running && !self.is_held && !self.is_acted_on {
            self.fall(now, actions);
        }
    }

    /// The container is no longer paused: the next attempt comes at once, or within its period if the attempt that the
    /// pause overtook has not ended yet, or too many others come at once.
    fn container_resumed(&mut self) {
        self.stale();
        self.may_spread = true;
    }

    /// Seeds the verdict of a container that runs (docs/kubelet-prober.md 3.8, gate off): by type, but not for one that
    /// ran long before this probe came to be (the kubelet's never come later than their container, but after a restart
    /// of its), and not for one whose verdict is known from before. Done when it is first seen running, not
    /// when it is first seen, as the kubelet's workers practically never meet one that is only created.
    fn seed(&mut self, now: Moment) {
        if self.target.as_ref().is_some_and(|target| target.is_restored) {
            return;
        }
        let runs_since = self.target.as_ref().and_then(|target| target.runs_since);
        // By today's clock: one that was set back since it came to be must not make us adopt what starts now.
        let made = now.wall_of(self.made.at);
        let is_adopted =
            runs_since.is_some_and(|at| made.duration_since(at).is_ok_and(|age| age > ADOPTED_BEFORE));
        if is_adopted {
            self.results.remove(ChangeReason::Adopted, now.wall);
        } else {
            self.results.set(Verdict::initial(self.spec.kind), ChangeReason::Started, now.wall);
        }
    }

    /// Step 6: a container that does not run is a failure, of whatever type and whatever stopped it. It is news only of
    /// one that did run.
    fn fall(&mut self, now: Moment, actions: &mut Vec<Action>) {
        self.stale();
        let is_changed = self.results.set(Verdict::Failure, ChangeReason::NotRunning, now.wall);
        let is_news = |target: &&Target| is_changed && (target.has_run || target.is_restored);
        if let Some(Target { seen, .. }) = self.target.as_ref().filter(is_news) {
            actions.push(Action::Report(seen.id.clone(), Notice::not_running(self.stopping.is_some())));
        }
    }

    /// Sets when the next attempt is due: at no time while a check prevents it, at the end of the start delay,
    /// or at once as soon as nothing does.
    fn aim(&mut self, now: Moment) {
        self.next = match self.block(now.at) {
            None => Some(self.next.unwrap_or(now.at)),
            Some(Block::Delayed(until)) => Some(until),
            Some(_) => None,
        };
        self.then = self.then.filter(|_| self.next.is_some());
    }

    /// The kubelet's manual trigger (docs/kubelet-prober.md 3.3): one more attempt now, and the beat counts from it.
    /// One that is in flight is not disturbed, one that waits for its place is that attempt, and nothing is triggered
    /// past a check.
    fn trigger(&mut self, rest: Duration, now: Moment) {
        if self.is_queued || self.block(now.at).is_some() {
            return;
        }
        self.may_spread = false;
        let from = now.at + rest;
        self.then = None;
        let wanted = if self.flight.is_some() { &mut self.triggered } else { &mut self.next };
        *wanted = Some(wanted.map_or(from, |at| at.min(from)));
    }

    fn enqueue(&mut self, now: Moment, actions: &mut Vec<Action>) {
        let is_due = self.deadline().is_some_and(|deadline| deadline <= now.at);
        if is_due && self.block(now.at).is_none() {
            self.is_queued = true;
            actions.push(Action::Enqueue);
        }
    }

    fn start(&mut self, now: Moment, actions: &mut Vec<Action>) {
        if !self.is_queued || self.flight.is_some() {
            return;
        }
        self.is_queued = false;
        // Much may have happened since it was due: the checks are made again.
        let (Some(target), Some(due), None) = (&self.target, self.next, self.block(now.at)) else { return };
        self.may_spread = false;
        let lag = now.at.saturating_duration_since(due);
        let (container, beat) = (target.seen.id.clone(), self.beat(now.at));
        let container_attempt = target.seen.attempt;
        let is_forgiven = self.is_starting(now.at);
        self.flight = Some(Flight::Own(Attempt {
            container,
            container_attempt,
            began: now,
            lag,
            is_forgiven,
            is_fresh: true,
            is_void: false,
            beat,
        }));
        self.attempted = Some(now.at);
        self.next = Some(self.then.take().filter(|then| *then > now.at).unwrap_or(due + beat));
        actions.push(Action::StartAttempt);
    }

    /// Whether its container runs.
    pub(crate) fn is_running(&self) -> bool {
        self.target.as_ref().is_some_and(|target| target.seen.state == ContainerState::Running)
    }
}

#[cfg(test)]
mod tests;
