//! The kubelet's samples (prober-vectors.md L, M, N, Q) as tables, and properties over any order of events.

use proptest::prelude::*;

use super::*;
use crate::prober::fixtures::{self, tried};

const SECOND: Duration = Duration::from_secs(1);

fn spec(kind: ProbeKind, success_threshold: u32, failure_threshold: u32) -> ProbeSpec {
    ProbeSpec { success_threshold, failure_threshold, ..fixtures::spec(kind) }
}

fn seen(id: &str, state: ContainerState) -> Event {
    Event::Seen(Seen { id: id.into(), state, created_at: None, started_at: None })
}

const EXITED: ContainerState = ContainerState::Exited { exit_code: Some(1) };

/// A worker with a clock that only the test moves.
struct Rig {
    worker: Worker,
    now: Moment,
}

impl Rig {
    fn new(spec: ProbeSpec) -> Self {
        let now = Moment::now();
        Self { worker: Worker::new(Arc::new(spec), now.wall, false, now), now }
    }

    fn running(spec: ProbeSpec) -> Self {
        let mut rig = Self::new(spec);
        rig.on(seen("c1", ContainerState::Running));
        rig
    }

    fn on(&mut self, event: Event) -> Vec<Action> {
        self.worker.on(event, self.now)
    }

    fn pass(&mut self, time: Duration) {
        self.now = Moment { at: self.now.at + time, wall: self.now.wall + time };
    }

    /// Waits for the deadline and starts the attempt; false if there is none to start.
    fn start(&mut self) -> bool {
        let Some(deadline) = self.worker.deadline() else { return false };
        self.pass(deadline.saturating_duration_since(self.now.at));
        assert_eq!(self.on(Event::Due), [Action::Enqueue]);
        assert_eq!(self.on(Event::SlotFreed), [Action::StartAttempt]);
        true
    }

    fn attempt(&mut self, result: AttemptResult) -> Vec<Action> {
        assert!(self.start(), "an attempt is due");
        self.on(Event::Finished(Some(tried(result))))
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

/// Plays steps: `s f w e` an attempt with that result, `p` one that panics, `-` no attempt is to be made,
/// `x` the container exits, `n` another one runs. Returns the verdict after each.
fn play(rig: &mut Rig, steps: &str) -> String {
    let mut containers = 1;
    let step = |step| {
        match step {
            's' => drop(rig.attempt(AttemptResult::Success)),
            'f' => drop(rig.attempt(AttemptResult::Failure)),
            'w' => drop(rig.attempt(AttemptResult::Warning)),
            'e' => drop(rig.attempt(AttemptResult::Error)),
            'p' => {
                assert!(rig.start());
                rig.on(Event::Finished(None));
            }
            '-' => assert_eq!(rig.worker.deadline(), None, "no attempt is due"),
            'x' => drop(rig.on(seen(&format!("c{containers}"), EXITED))),
            'n' => {
                containers += 1;
                rig.on(seen(&format!("c{containers}"), ContainerState::Running));
            }
            other => panic!("no such step: {other}"),
        }
        rig.verdict()
    };
    steps.chars().map(step).collect()
}

#[test]
fn sequences_lead_to_the_kubelets_verdicts() {
    use ProbeKind::{Liveness, Readiness, Startup};
    let rows = [
        ("N02", Readiness, 3, 1, "sssfsssf", "FFSFFFSF"),
        ("N04 N08", Startup, 1, 3, "fff-", "UUFF"),
        ("N06", Startup, 1, 1, "f-ns-", "FFUSS"),
        ("N10", Startup, 1, 2, "fs-", "USS"),
        ("N12", Readiness, 1, 3, "sffsff", "SSSSSS"),
        ("N14", Liveness, 1, 3, "eeeeeeee", "SSSSSSSS"),
        ("N16", Startup, 1, 1, "eeee", "UUUU"),
        ("N18", Liveness, 1, 3, "fff-nfff", "SSFFSSSF"),
        ("N20", Readiness, 3, 1, "ssns", "FFFS"),
        ("N22", Liveness, 1, 1, "f-x-", "FFFF"),
        ("N24", Readiness, 2, 1, "ww", "FS"),
        ("errors do not break a run", Liveness, 1, 3, "fefef", "SSSSF"),
        ("a panic changes nothing (M20)", Liveness, 1, 2, "fpf", "SSF"),
        ("a run outlives its container", Liveness, 1, 3, "ffxnf", "SSFSF"),
        ("M06", Liveness, 1, 1, "x-", "FF"),
        ("M06", Readiness, 1, 1, "x-", "FF"),
        ("M06", Startup, 1, 1, "x-", "FF"),
        ("success ends the work of startup only", Liveness, 1, 1, "ss", "SS"),
    ];
    for (name, kind, success, failure, steps, expected) in rows {
        let mut rig = Rig::running(spec(kind, success, failure));
        assert_eq!(play(&mut rig, steps), expected, "{name}: {kind} {success}/{failure} {steps}");
    }
}

#[test]
fn the_run_is_reset_by_a_verdict_that_ends_the_work_and_by_nothing_else() {
    let mut rig = Rig::running(spec(ProbeKind::Startup, 1, 3));
    let run = |rig: &Rig| rig.worker.results().run().count;
    let runs: Vec<u32> = (0..3)
        .map(|_| {
            rig.attempt(AttemptResult::Failure);
            run(&rig)
        })
        .collect();
    assert_eq!(runs, [1, 2, 0], "N04");
    let mut rig = Rig::running(spec(ProbeKind::Readiness, 1, 1));
    play(&mut rig, "ssnx");
    assert_eq!(run(&rig), 2, "N20: another container keeps it");
}

#[test]
fn the_initial_verdict_depends_on_the_type_and_on_who_was_there_first() {
    let five_minutes = 300 * SECOND;
    let rows = [
        ("Q10", ProbeKind::Liveness, None, 'S'),
        ("Q10", ProbeKind::Readiness, None, 'F'),
        ("Q12", ProbeKind::Startup, None, 'U'),
        ("Q08", ProbeKind::Liveness, Some(five_minutes), '.'),
        ("Q08", ProbeKind::Readiness, Some(five_minutes), '.'),
        ("Q08", ProbeKind::Startup, Some(five_minutes), '.'),
        ("Q16", ProbeKind::Liveness, Some(9 * SECOND), 'S'),
    ];
    for (name, kind, age, verdict) in rows {
        let mut rig = Rig::new(spec(kind, 1, 1));
        assert_eq!(rig.verdict(), '.', "before any container");
        let started_at = age.map(|age| rig.now.wall - age);
        rig.on(Event::Seen(Seen {
            id: "c1".into(),
            state: ContainerState::Running,
            created_at: None,
            started_at,
        }));
        assert_eq!(rig.verdict(), verdict, "{name} {kind} {age:?}");
    }
}

#[test]
fn a_start_time_that_is_told_late_still_adopts_and_shortens_the_delay() {
    let mut rig = Rig::new(ProbeSpec { initial_delay: 60 * SECOND, ..spec(ProbeKind::Liveness, 1, 1) });
    rig.on(seen("c1", ContainerState::Running));
    assert_eq!((rig.verdict(), rig.worker.deadline()), ('S', Some(rig.now.at + 60 * SECOND)));
    let started_at = Some(rig.now.wall - 300 * SECOND);
    rig.on(Event::Seen(Seen {
        id: "c1".into(),
        state: ContainerState::Running,
        created_at: None,
        started_at,
    }));
    assert_eq!((rig.verdict(), rig.worker.deadline()), ('.', Some(rig.now.at)));
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
        rig.on(Event::Started(false));
        rig.on(seen("c1", ContainerState::Running));
        assert_eq!((rig.block(), rig.worker.deadline()), (Some(Block::NotStarted), None), "M16");
        rig.pass(7 * SECOND);
        rig.on(Event::Started(true));
        assert_eq!((rig.block(), rig.worker.deadline()), (None, Some(rig.now.at)), "{kind}");
        assert!(!rig.worker.may_spread(), "a release is not spread");
    }
    let mut rig = Rig::running(spec(ProbeKind::Startup, 1, 1));
    rig.on(Event::Started(true));
    assert_eq!((rig.block(), rig.verdict()), (Some(Block::AlreadyStarted), 'U'), "M18");
    rig.on(Event::Started(false));
    assert_eq!(rig.block(), None, "the worker stays");
}

#[test]
fn ticks_that_passed_are_dropped_and_keep_their_beat() {
    let rows = [(0, 10), (3, 10), (10, 10), (11, 20), (95, 100), (100, 100)];
    for (took, next) in rows {
        let mut rig = Rig::running(spec(ProbeKind::Liveness, 1, 3));
        let began = rig.now.at;
        assert!(rig.start());
        rig.pass(took * SECOND);
        rig.on(Event::Finished(Some(tried(AttemptResult::Success))));
        assert_eq!(rig.worker.deadline().map(|at| (at - began).as_secs()), Some(next), "took {took} s");
    }
}

#[test]
fn the_wait_for_a_place_is_lag_and_does_not_move_the_beat() {
    let mut rig = Rig::running(spec(ProbeKind::Liveness, 1, 3));
    let due = rig.now.at;
    rig.on(Event::Due);
    assert_eq!(rig.worker.deadline(), None, "while it waits nothing is due");
    rig.pass(4 * SECOND);
    assert_eq!(rig.on(Event::SlotFreed), [Action::StartAttempt]);
    rig.on(Event::Finished(Some(tried(AttemptResult::Success))));
    assert_eq!(rig.worker.results().last().map(|last| last.lag), Some(4 * SECOND));
    assert_eq!(rig.worker.deadline(), Some(due + 10 * SECOND));
}

#[test]
fn a_probe_whose_runtime_does_not_answer_is_spaced_out() {
    let mut rig = Rig::running(spec(ProbeKind::Liveness, 1, 1));
    let unanswered = Tried { is_unanswered: true, ..tried(AttemptResult::Error) };
    let mut waits = Vec::new();
    for _ in 0..7 {
        assert!(rig.start());
        let due = rig.now.at;
        rig.on(Event::Finished(Some(unanswered.clone())));
        waits.push(rig.worker.deadline().map(|at| (at - due).as_secs()).unwrap());
    }
    assert_eq!(waits, [20, 40, 80, 160, 300, 300, 300]);
    rig.attempt(AttemptResult::Failure);
    assert_eq!(rig.worker.spacing(), 10 * SECOND, "until one returns, however it ends");
}

#[test]
fn liveness_and_startup_end_when_a_client_stops_the_container_and_readiness_does_not() {
    for kind in ProbeKind::ALL {
        let mut rig = Rig::running(spec(kind, 1, 1));
        rig.on(Event::Stopping(Some(Stopping::Container)));
        let is_stopped = kind != ProbeKind::Readiness;
        assert_eq!(rig.block().is_some(), is_stopped, "S12 {kind}");
        assert_eq!(rig.worker.deadline().is_none(), is_stopped);
        rig.on(seen("c1", EXITED));
        assert_eq!(rig.verdict() == 'F', !is_stopped, "a stopped probe looks no further");
        rig.on(seen("c2", ContainerState::Running));
        assert_eq!(rig.block(), None, "another container starts anew");
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
    let actions = rig.on(Event::Finished(Some(tried(AttemptResult::Failure))));
    assert_eq!(actions, [Action::Tell("c1".into(), Notice::Failed { output: "out".into() })]);
    assert_eq!((rig.verdict(), rig.block()), ('S', None));
    assert_eq!(rig.worker.results().counts().total(), 0, "counts are of the current container");
    assert_eq!(rig.worker.deadline(), Some(seen_at), "its own first attempt is due since it was seen");
}

#[test]
fn an_attempt_of_a_former_worker_says_nothing_but_is_waited_for() {
    let now = Moment::now();
    let mut worker = Worker::new(Arc::new(spec(ProbeKind::Liveness, 1, 1)), now.wall, true, now);
    worker.on(seen("c1", ContainerState::Running), now);
    assert_eq!(worker.deadline(), None);
    let told = worker.on(Event::Finished(Some(tried(AttemptResult::Failure))), now);
    assert_eq!((told, worker.results().last(), worker.deadline()), (vec![], None, Some(now.at)));
}

#[test]
fn the_journal_is_told_of_failures_errors_and_turns() {
    let mut rig = Rig::running(spec(ProbeKind::Readiness, 1, 2));
    let tell = |notice| Action::Tell("c1".into(), notice);
    let output = || "out".to_owned();
    let turned = |to, after| tell(Notice::VerdictChanged { to, after });
    assert_eq!(rig.attempt(AttemptResult::Success), [turned(Verdict::Success, 1)]);
    assert_eq!(rig.attempt(AttemptResult::Success), []);
    assert_eq!(rig.attempt(AttemptResult::Warning), [tell(Notice::Warned { output: output() })]);
    assert_eq!(rig.attempt(AttemptResult::Failure), [tell(Notice::Failed { output: output() })]);
    assert_eq!(rig.attempt(AttemptResult::Error), [tell(Notice::Errored { error: output() })]);
    assert_eq!(
        rig.attempt(AttemptResult::Failure),
        [tell(Notice::Failed { output: output() }), turned(Verdict::Failure, 2)]
    );
    rig.attempt(AttemptResult::Success);
    assert_eq!(rig.on(seen("c1", EXITED)), [tell(Notice::NotRunning)]);
    assert_eq!(rig.on(seen("c1", EXITED)), []);
}

/// What may happen to a worker, in any order, sensible or not.
#[derive(Clone, Debug)]
enum Happening {
    Seen(u8, ContainerState),
    Started(bool),
    Stopping(bool),
    Due,
    SlotFreed,
    Finished(Option<AttemptResult>),
    Passed(u32),
}

fn happening() -> impl Strategy<Value = Happening> {
    let state = prop_oneof![
        1 => Just(ContainerState::Created),
        6 => Just(ContainerState::Running),
        1 => Just(EXITED),
        1 => Just(ContainerState::Unknown),
    ];
    let result = prop_oneof![
        Just(AttemptResult::Success),
        Just(AttemptResult::Warning),
        Just(AttemptResult::Failure),
        Just(AttemptResult::Error),
    ];
    prop_oneof![
        2 => (0u8..3, state).prop_map(|(id, state)| Happening::Seen(id, state)),
        1 => any::<bool>().prop_map(Happening::Started),
        1 => any::<bool>().prop_map(Happening::Stopping),
        6 => Just(Happening::Due),
        6 => Just(Happening::SlotFreed),
        6 => prop::option::weighted(0.95, result).prop_map(Happening::Finished),
        4 => (0u32..15).prop_map(Happening::Passed),
    ]
}

proptest! {
    #[test]
    fn any_order_of_events_keeps_the_rules(
        kind in prop::sample::select(ProbeKind::ALL.as_slice()),
        (success, failure) in (1u32..4, 1u32..4),
        delay in 0u32..3,
        happenings in prop::collection::vec(happening(), 1..200),
    ) {
        let mut rig = Rig::new(ProbeSpec { initial_delay: delay * SECOND, ..spec(kind, success, failure) });
        let mut in_flight = false;
        // The results that count, since a verdict ended the work last.
        let mut results: Vec<Verdict> = Vec::new();
        for happening in happenings {
            let before = rig.worker.results().verdict();
            let mut result = None;
            let event = match happening {
                Happening::Seen(id, state) => seen(&format!("c{id}"), state),
                Happening::Started(is_started) => Event::Started(is_started),
                Happening::Stopping(is_stopping) => Event::Stopping(is_stopping.then_some(Stopping::Pod)),
                Happening::Due => Event::Due,
                Happening::SlotFreed => Event::SlotFreed,
                Happening::Finished(_) if !in_flight => continue,
                Happening::Finished(ended) => {
                    in_flight = false;
                    result = ended;
                    Event::Finished(ended.map(tried))
                }
                Happening::Passed(seconds) => {
                    rig.pass(seconds * SECOND);
                    continue;
                }
            };
            let is_finished = matches!(event, Event::Finished(_));
            let is_seen = matches!(event, Event::Seen(_));
            let actions = rig.on(event);
            for action in &actions {
                if *action == Action::StartAttempt {
                    prop_assert!(!in_flight, "two attempts at once");
                    prop_assert_eq!(rig.block(), None, "an attempt in spite of a check");
                    in_flight = true;
                }
            }
            let after = rig.worker.results().verdict();
            if let Some(verdict) = result.and_then(AttemptResult::verdict) {
                results.push(verdict);
            }
            if after != before {
                prop_assert!(is_finished || is_seen, "a verdict out of nothing");
            }
            if is_finished && after != before {
                let verdict = result.and_then(AttemptResult::verdict);
                prop_assert!(verdict.is_some(), "an error changed a verdict");
                let threshold = if verdict == Some(Verdict::Success) { success } else { failure } as usize;
                prop_assert_eq!(after, verdict);
                prop_assert!(results.len() >= threshold, "a verdict before its threshold");
                prop_assert!(results.iter().rev().take(threshold).all(|one| Some(*one) == verdict));
            }
            if rig.worker.results().run().count == 0 {
                results.clear();
            }
            let is_idle = !in_flight && !rig.worker.is_queued;
            let deadline = rig.worker.deadline();
            prop_assert!(is_idle || deadline.is_none(), "due while it is at work");
            match rig.block() {
                None => prop_assert_eq!(deadline.is_some(), is_idle),
                Some(Block::Delayed(until)) => prop_assert_eq!(deadline, is_idle.then_some(until)),
                Some(_) => prop_assert_eq!(deadline, None),
            }
        }
    }
}
