//! When a probe asks for an act, and what an act in progress does to it.

use super::*;

/// Whether a failing attempt asks for an act, and after how many failures.
fn demanded(rig: &mut Rig) -> Option<u32> {
    demand(&rig.attempt(AttemptResult::Failure))
}

fn demand(actions: &[Action]) -> Option<u32> {
    actions.iter().find_map(|action| match action {
        Action::Demand { failures } => Some(*failures),
        _ => None,
    })
}

fn checkpoint(verdict: Verdict, run: u32, is_held: bool) -> Checkpoint {
    Checkpoint {
        container: "c1".into(),
        definition: crate::spec::identity::Definition::of(&fixtures::spec(ProbeKind::Liveness)),
        verdict: Some(verdict),
        since: SystemTime::UNIX_EPOCH,
        run: crate::results::Run { verdict: Verdict::Failure, count: run },
        counts: crate::results::Counts::default(),
        is_held,
        run_here: None,
        last: None,
        errors: None,
    }
}

#[test]
fn a_failure_that_lasts_asks_again_each_time_that_the_threshold_is_reached() {
    for kind in [ProbeKind::Liveness, ProbeKind::Startup] {
        let mut rig = Rig::running(spec(kind, 1, 2));
        let asked: Vec<_> = (0..6).map(|_| demanded(&mut rig)).collect();
        assert_eq!(asked, [None, Some(2), None, Some(4), None, Some(6)], "{kind}");
        rig.attempt(AttemptResult::Success);
        assert_eq!((rig.verdict(), rig.worker.is_failing()), ('S', false), "{kind}");
    }
    let mut rig = Rig::running(spec(ProbeKind::Readiness, 1, 1));
    assert_eq!((demanded(&mut rig), rig.verdict()), (None, 'F'), "readiness never acts");
}

#[test]
fn only_failures_since_it_may_have_recovered_ask_for_an_act() {
    let resumed = || vec![WorkerEvent::Paused(true), WorkerEvent::Paused(false)];
    let given_up = || vec![WorkerEvent::Acting(true), WorkerEvent::Acting(false)];
    let lost = || vec![seen("c1", ContainerState::Unknown), seen("c1", ContainerState::Running)];
    let rows = [
        ("the runtime was away", vec![WorkerEvent::RuntimeAnswers(SECOND)], vec![None, None, Some(3)]),
        ("an operator paused it", resumed(), vec![None, None, Some(3)]),
        ("an act was given up", given_up(), vec![None, None, Some(3)]),
        ("the runtime did not know its state", lost(), vec![None, None, Some(3)]),
        ("another container", vec![seen("c2", ContainerState::Running)], vec![None, None, Some(3)]),
        ("a resume without a pause", vec![WorkerEvent::Paused(false)], vec![Some(3), None, None]),
        ("its container is seen again", vec![seen("c1", ContainerState::Running)], vec![Some(3), None, None]),
    ];
    for (what, events, expected) in rows {
        let mut rig = Rig::running(spec(ProbeKind::Liveness, 1, 3));
        assert_eq!((demanded(&mut rig), demanded(&mut rig)), (None, None));
        for event in events {
            rig.on(event);
        }
        let asked: Vec<_> = (0..3).map(|_| demanded(&mut rig)).collect();
        assert_eq!(asked, expected, "{what}");
    }
}

#[test]
fn an_attempt_that_began_before_that_is_no_reason_to_act() {
    let mut rig = Rig::running(spec(ProbeKind::Liveness, 1, 1));
    assert!(rig.start());
    rig.on(WorkerEvent::RuntimeAnswers(SECOND));
    let actions = rig.on(WorkerEvent::Finished(Some(outcome(AttemptResult::Failure))));
    assert_eq!((demand(&actions), rig.verdict(), rig.worker.is_failing()), (None, 'F', false));
    assert_eq!((demanded(&mut rig), rig.worker.is_failing()), (Some(1), true));
}

#[test]
fn an_act_holds_the_probe_whatever_becomes_of_its_container_until_another_one_runs() {
    let mut rig = Rig::running(spec(ProbeKind::Liveness, 1, 1));
    rig.acts = true;
    assert_eq!(demanded(&mut rig), Some(1));
    assert_eq!((rig.block(), rig.worker.deadline()), (Some(Block::Held), None));
    assert_eq!(rig.on(seen("c1", EXITED)), []);
    assert_eq!((rig.block(), rig.verdict()), (Some(Block::Held), 'F'));
    assert!(rig.worker.is_failing(), "as long as the act needs to ask");
    rig.on(seen("c2", ContainerState::Running));
    assert_eq!((rig.block(), rig.verdict(), rig.worker.is_failing()), (None, 'S', false));
}

#[test]
fn an_attempt_in_flight_when_an_act_begins_is_shown_and_changes_nothing() {
    let mut rig = Rig::running(spec(ProbeKind::Liveness, 1, 1));
    assert!(rig.start());
    rig.on(WorkerEvent::Acting(true));
    let actions = rig.on(WorkerEvent::Finished(Some(outcome(AttemptResult::Failure))));
    assert_eq!(actions, [Action::Report("c1".into(), Notice::Failed { output: "out".into() })]);
    assert_eq!((rig.verdict(), rig.worker.results().run().count), ('S', 0));
    rig.on(WorkerEvent::Acting(false));
    assert_eq!(rig.block(), None, "it goes on");
    assert!(rig.start());
}

#[test]
fn readiness_goes_on_during_an_act() {
    let mut rig = Rig::running(spec(ProbeKind::Readiness, 1, 1));
    rig.on(WorkerEvent::Acting(true));
    assert!(rig.start());
}

#[test]
fn a_verdict_from_before_a_restart_holds_nothing_and_is_no_reason_to_act() {
    let restored = |kind, checkpoint| {
        let mut rig = Rig::new(spec(kind, 1, 3));
        rig.on(WorkerEvent::Restored(checkpoint));
        rig.on(seen("c1", ContainerState::Running));
        rig
    };
    for kind in [ProbeKind::Liveness, ProbeKind::Startup] {
        // Held, as versions that did not act saved it.
        let mut rig = restored(kind, checkpoint(Verdict::Failure, 2, true));
        assert_eq!((rig.verdict(), rig.block()), ('F', None), "{kind}");
        let asked: Vec<_> = (0..3).map(|_| demanded(&mut rig)).collect();
        assert_eq!(asked, [None, None, Some(3)], "{kind}");
        rig.attempt(AttemptResult::Success);
        assert_eq!(rig.verdict(), 'S', "{kind}");
    }
    let rig = restored(ProbeKind::Startup, checkpoint(Verdict::Success, 0, true));
    assert_eq!(
        (rig.verdict(), rig.block()),
        ('S', Some(Block::Held)),
        "startup has nothing left to find out"
    );
}
