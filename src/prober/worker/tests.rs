//! The kubelet's samples (tests/data/prober/README.md, L, M, N and Q) as tables, and what they do not sample.

mod acting;
mod errors;
mod model;
mod pace;
mod paused;
mod properties;
mod start;

use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::{
    prober::{
        attempt::AttemptOutcome,
        fixtures::{self, outcome},
    },
    results::AttemptResult,
};

const SECOND: Duration = Duration::from_secs(1);

fn spec(kind: ProbeKind, success_threshold: u32, failure_threshold: u32) -> ProbeSpec {
    ProbeSpec { success_threshold, failure_threshold, ..fixtures::spec(kind) }
}

fn seen(id: &str, state: ContainerState) -> WorkerEvent {
    WorkerEvent::Seen(Seen {
        id: id.into(),
        attempt: 0,
        state,
        is_paused: false,
        created_at: None,
        started_at: None,
    })
}

const EXITED: ContainerState = ContainerState::Exited { exit_code: Some(1) };

/// A worker with a clock that only the test moves.
struct Rig {
    worker: Worker,
    now: Moment,
    /// Counts the containers of the name.
    containers: u32,
    /// What is known of the start of the first of them.
    started_at: Option<SystemTime>,
    /// Whether an act begins as soon as it is demanded, as the kubelet's does.
    acts: bool,
}

impl Rig {
    fn new(spec: ProbeSpec) -> Self {
        let now = Moment::now();
        let worker = Worker::new(Arc::new(spec), now, false, now);
        Self { worker, now, containers: 1, started_at: None, acts: false }
    }

    fn running(spec: ProbeSpec) -> Self {
        let mut rig = Self::new(spec);
        rig.on(seen("c1", ContainerState::Running));
        rig
    }

    fn on(&mut self, event: WorkerEvent) -> Vec<Action> {
        let actions = self.worker.on(event, self.now);
        if self.acts && actions.iter().any(|action| matches!(action, Action::Demand { .. })) {
            assert_eq!(self.worker.on(WorkerEvent::Acting(true), self.now), []);
        }
        actions
    }

    fn pass(&mut self, time: Duration) {
        self.now = Moment { at: self.now.at + time, wall: self.now.wall + time };
    }

    /// Waits for the deadline and starts the attempt; false if there is none to start.
    fn start(&mut self) -> bool {
        let Some(deadline) = self.worker.deadline() else { return false };
        self.pass(deadline.saturating_duration_since(self.now.at));
        assert_eq!(self.on(WorkerEvent::Due), [Action::Enqueue]);
        assert_eq!(self.on(WorkerEvent::SlotFreed), [Action::StartAttempt]);
        true
    }

    fn attempt(&mut self, result: AttemptResult) -> Vec<Action> {
        assert!(self.start(), "an attempt is due");
        self.on(WorkerEvent::Finished(Some(outcome(result))))
    }

    fn step(&mut self, what: &str) {
        let see = |rig: &mut Self, state| {
            let id = ContainerId::from(format!("c{}", rig.containers));
            let started_at = rig.started_at.filter(|_| rig.containers == 1);
            drop(rig.on(WorkerEvent::Seen(Seen {
                attempt: 0,
                id,
                state,
                is_paused: false,
                created_at: None,
                started_at,
            })));
        };
        match what {
            "s" => drop(self.attempt(AttemptResult::Success)),
            "f" => drop(self.attempt(AttemptResult::Failure)),
            "w" => drop(self.attempt(AttemptResult::Warning)),
            "e" => drop(self.attempt(AttemptResult::Error)),
            "p" => {
                assert!(self.start());
                self.on(WorkerEvent::Finished(None));
            }
            "-" => assert_eq!(self.worker.deadline(), None, "no attempt is due"),
            "made" => see(self, ContainerState::Created),
            "run" => see(self, ContainerState::Running),
            "exit" => see(self, EXITED),
            "lost" => see(self, ContainerState::Unknown),
            "new" => {
                self.containers += 1;
                see(self, ContainerState::Running);
            }
            "gate" => drop(self.on(WorkerEvent::Started(false))),
            "open" => drop(self.on(WorkerEvent::Started(true))),
            other => {
                let seconds = |number: &str| number.parse::<u32>().expect("a number of seconds") * SECOND;
                match (other.strip_prefix('@'), other.strip_prefix("wait")) {
                    (Some(due), _) => {
                        assert_eq!(self.worker.deadline(), Some(self.now.at + seconds(due)));
                    }
                    (None, Some(time)) => self.pass(seconds(time)),
                    (None, None) => panic!("no such step: {other}"),
                }
            }
        }
    }

    fn expect(&self, expected: &str, reported: &str) {
        let Some(verdict) = expected.chars().next() else { return };
        assert_eq!(self.verdict(), verdict, "{reported}");
        let run = expected[1..].trim_end_matches('!');
        if !run.is_empty() {
            assert_eq!(self.worker.results().run().count.to_string(), run, "{reported}: the run");
        }
        if expected.ends_with('!') {
            assert_eq!(self.block(), Some(Block::Held), "{reported}");
        } else if !self.acts {
            assert_ne!(self.block(), Some(Block::Held), "{reported}");
        }
    }

    fn verdict(&self) -> char {
        match self.worker.results().verdict() {
            Some(Verdict::Success) => 'S',
            Some(Verdict::Failure) => 'F',
            Some(Verdict::Unknown) => 'U',
            None => '.',
        }
    }

    fn block(&self) -> Option<Block> {
        self.worker.block(self.now.at)
    }
}

/// One row of `tests/data/prober/*.json`: the kubelet's rules as sequences.
///
/// Steps are `what:expected`, with nothing to expect where the colon is missing. What: `s f w e` an attempt with that
/// result, `p` one that panics, `-` none is to be made, `@N` the next is due in N seconds, `waitN` that time passes;
/// `made run exit lost` the container's state, `new` another one runs, `gate open` what startup says. Expected: the
/// verdict (`S F U`, `.` for none), the length of the run if it stands there, `!` if the probe is held. A probe that acts
/// is acted for as soon as it demands it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: String,
    rule: String,
    kinds: Vec<ProbeKind>,
    #[serde(default = "one")]
    success: u32,
    #[serde(default = "three")]
    failure: u32,
    /// Seconds of start delay.
    #[serde(default)]
    delay: u32,
    /// How many seconds before us the container started; after us if it is negative.
    age: Option<i64>,
    /// Whether it only reports; a kubelet's probe acts.
    #[serde(default)]
    reports: bool,
    steps: String,
}

fn one() -> u32 {
    1
}

fn three() -> u32 {
    3
}

/// Plays every row of a file; each for every type that it names.
fn play(rows: &str) {
    let rows: Vec<Row> = serde_json::from_str(rows).unwrap();
    assert!(!rows.is_empty());
    for row in rows {
        assert!(!row.kinds.is_empty(), "{row:?} is consumed");
        for kind in &row.kinds {
            let spec = spec(*kind, row.success, row.failure);
            let mut rig = Rig::new(ProbeSpec { initial_delay: row.delay * SECOND, ..spec });
            rig.acts = !row.reports;
            let began = rig.now.wall;
            rig.started_at = row.age.map(|age| match u64::try_from(age) {
                Ok(age) => began - Duration::from_secs(age),
                Err(_) => began + Duration::from_secs(age.unsigned_abs()),
            });
            for (index, step) in row.steps.split(' ').enumerate() {
                let (what, expected) = step.split_once(':').unwrap_or((step, ""));
                rig.step(what);
                let reported = format!("{} {kind}: {}: step {index} {step}", row.id, row.rule);
                rig.expect(expected, &reported);
            }
        }
    }
}

#[test]
fn a_verdict_needs_a_run_of_its_threshold() {
    play(include_str!("../../../tests/data/prober/runs.json"));
}

#[test]
fn a_verdict_that_ends_the_work_holds_the_probe() {
    play(include_str!("../../../tests/data/prober/hold.json"));
}

#[test]
fn errors_change_nothing() {
    play(include_str!("../../../tests/data/prober/errors.json"));
}

#[test]
fn the_state_of_the_container_and_the_startup_gate_stand_before_each_attempt() {
    play(include_str!("../../../tests/data/prober/state.json"));
}

#[test]
fn the_initial_verdict_depends_on_the_type_and_on_who_was_there_first() {
    play(include_str!("../../../tests/data/prober/seed.json"));
}

#[test]
fn a_start_time_that_is_told_late_still_adopts_and_shortens_the_delay() {
    let mut rig = Rig::new(ProbeSpec { initial_delay: 60 * SECOND, ..spec(ProbeKind::Liveness, 1, 1) });
    rig.on(seen("c1", ContainerState::Running));
    assert_eq!((rig.verdict(), rig.worker.deadline()), ('S', Some(rig.now.at + 60 * SECOND)));
    let started_at = Some(rig.now.wall - 300 * SECOND);
    rig.on(WorkerEvent::Seen(Seen {
        attempt: 0,
        id: "c1".into(),
        state: ContainerState::Running,
        is_paused: false,
        created_at: None,
        started_at,
    }));
    assert_eq!((rig.verdict(), rig.worker.deadline()), ('.', Some(rig.now.at)));
}

#[test]
fn a_clock_that_is_set_makes_a_container_that_starts_now_neither_adopted_nor_put_off() {
    let hour = Duration::from_secs(3600);
    for is_set_back in [true, false] {
        let mut rig = Rig::new(spec(ProbeKind::Liveness, 1, 1));
        rig.pass(60 * SECOND);
        rig.now.wall = if is_set_back { rig.now.wall - hour } else { rig.now.wall + hour };
        let (state, at) = (ContainerState::Running, Some(rig.now.wall - SECOND));
        rig.on(WorkerEvent::Seen(Seen {
            attempt: 0,
            id: "c1".into(),
            state,
            is_paused: false,
            created_at: at,
            started_at: at,
        }));
        assert_eq!(
            (rig.verdict(), rig.worker.deadline()),
            ('S', Some(rig.now.at)),
            "set back: {is_set_back}"
        );
        assert!(!rig.worker.wants_jitter(rig.now), "set back: {is_set_back}");
    }
}

#[test]
fn the_first_attempt_comes_when_the_container_is_seen_running() {
    let mut rig = Rig::new(spec(ProbeKind::Readiness, 1, 1));
    assert_eq!((rig.block(), rig.worker.deadline()), (Some(Block::NoContainer), None), "M04");
    rig.on(seen("c1", ContainerState::Created));
    assert_eq!(rig.block(), Some(Block::NotRunning(ContainerState::Created)));
    assert_eq!((rig.verdict(), rig.worker.deadline()), ('F', None));
    rig.pass(3 * SECOND);
    rig.on(seen("c1", ContainerState::Running));
    assert_eq!(rig.worker.deadline(), Some(rig.now.at));
}

#[test]
fn a_container_that_was_only_created_is_seeded_anew_when_it_runs() {
    let mut rig = Rig::new(spec(ProbeKind::Liveness, 1, 1));
    assert_eq!(rig.on(seen("c1", ContainerState::Created)), [], "and that is no news");
    assert_eq!(rig.verdict(), 'F');
    rig.on(seen("c1", ContainerState::Running));
    assert_eq!(rig.verdict(), 'S');
}

#[test]
fn the_startup_gate_holds_the_others_back_and_releases_them_at_once() {
    for kind in [ProbeKind::Readiness, ProbeKind::Liveness] {
        let mut rig = Rig::new(spec(kind, 1, 1));
        rig.on(WorkerEvent::Started(false));
        rig.on(seen("c1", ContainerState::Running));
        assert_eq!((rig.block(), rig.worker.deadline()), (Some(Block::NotStarted), None), "M16");
        rig.pass(7 * SECOND);
        rig.on(WorkerEvent::Started(true));
        assert_eq!((rig.block(), rig.worker.deadline()), (None, Some(rig.now.at)), "{kind}");
        assert!(!rig.worker.may_spread(), "a release is not spread");
    }
    let mut rig = Rig::running(spec(ProbeKind::Startup, 1, 1));
    rig.on(WorkerEvent::Started(true));
    assert_eq!((rig.block(), rig.verdict()), (Some(Block::AlreadyStarted), 'U'), "M18");
    rig.on(WorkerEvent::Started(false));
    assert_eq!(rig.block(), None, "the worker stays");
}

#[test]
fn liveness_and_startup_end_when_a_client_stops_the_container_and_readiness_does_not() {
    for kind in ProbeKind::ALL {
        let mut rig = Rig::running(spec(kind, 1, 1));
        rig.on(WorkerEvent::Stopping(Some(Stopping::Container)));
        let is_stopped = kind != ProbeKind::Readiness;
        assert_eq!(rig.block().is_some(), is_stopped, "S12 {kind}");
        assert_eq!(rig.worker.deadline().is_none(), is_stopped);
        rig.on(seen("c1", EXITED));
        assert_eq!(rig.verdict(), 'F', "M06, whatever stopped it");
        assert_eq!(rig.block(), Some(Block::NotRunning(EXITED)));
        rig.on(seen("c2", ContainerState::Running));
        assert_eq!(rig.block(), None, "another container starts from scratch");
    }
}

#[test]
fn what_comes_late_says_nothing_of_another_container() {
    let mut rig = Rig::running(spec(ProbeKind::Liveness, 1, 1));
    assert!(rig.start());
    rig.on(seen("c2", ContainerState::Running));
    assert_eq!(rig.worker.deadline(), None, "never two attempts at once");
    let seen_at = rig.now.at;
    rig.pass(3 * SECOND);
    let actions = rig.on(WorkerEvent::Finished(Some(outcome(AttemptResult::Failure))));
    assert_eq!(actions, [Action::Report("c1".into(), Notice::Failed { output: "out".into() })]);
    assert_eq!((rig.verdict(), rig.block()), ('S', None));
    assert_eq!(rig.worker.results().counts().total(), 0, "counts are of the current container");
    assert_eq!(rig.worker.deadline(), Some(seen_at), "its own first attempt is due since it was seen");
}

#[test]
fn an_attempt_of_a_former_worker_says_nothing_but_is_waited_for() {
    let now = Moment::now();
    let mut worker = Worker::new(Arc::new(spec(ProbeKind::Liveness, 1, 1)), now, true, now);
    worker.on(seen("c1", ContainerState::Running), now);
    assert_eq!(worker.deadline(), None);
    let reported = worker.on(WorkerEvent::Finished(Some(outcome(AttemptResult::Failure))), now);
    assert_eq!((reported, worker.results().last(), worker.deadline()), (vec![], None, Some(now.at)));
}

#[test]
fn the_journal_is_told_of_failures_errors_and_turns() {
    let mut rig = Rig::running(spec(ProbeKind::Readiness, 1, 2));
    let report = |notice| Action::Report("c1".into(), notice);
    let output = || "out".to_owned();
    let turned = |to, after| report(Notice::VerdictChanged { to, after: ChangeReason::Results(after) });
    assert_eq!(rig.attempt(AttemptResult::Success), [turned(Verdict::Success, 1)]);
    assert_eq!(rig.attempt(AttemptResult::Success), []);
    assert_eq!(rig.attempt(AttemptResult::Warning), [report(Notice::Warned { output: output().into() })]);
    assert_eq!(rig.attempt(AttemptResult::Failure), [report(Notice::Failed { output: output().into() })]);
    assert_eq!(
        rig.attempt(AttemptResult::Error),
        [report(Notice::Errored { state: "unknown", error: output().into() })]
    );
    let away = AttemptOutcome { is_outage: true, ..outcome(AttemptResult::Error) };
    assert!(rig.start(), "an attempt is due");
    assert_eq!(rig.on(WorkerEvent::Finished(Some(away))), [], "an outage has an event of its own");
    assert_eq!(
        rig.attempt(AttemptResult::Failure),
        [report(Notice::Failed { output: output().into() }), turned(Verdict::Failure, 2)]
    );
    rig.attempt(AttemptResult::Success);
    assert_eq!(
        rig.on(seen("c1", EXITED)),
        [report(Notice::NotRunning { how: String::new(), is_clients: false })]
    );
    assert_eq!(rig.on(seen("c1", EXITED)), []);
}
