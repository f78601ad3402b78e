//! The container is paused: no attempts, and nothing that an attempt finds out meanwhile counts.

use super::*;

/// The container `c1`, which runs, paused or not.
fn paused(is_paused: bool) -> WorkerEvent {
    let (id, state) = ("c1".into(), ContainerState::Running);
    WorkerEvent::Seen(Seen { id, attempt: 0, state, is_paused, created_at: None, started_at: None })
}

#[test]
fn a_paused_container_is_not_tried_and_keeps_its_verdict_and_its_run() {
    for kind in ProbeKind::ALL {
        let mut rig = Rig::running(spec(kind, 3, 3));
        rig.on(WorkerEvent::Started(kind != ProbeKind::Startup));
        rig.attempt(AttemptResult::Failure);
        rig.attempt(AttemptResult::Failure);
        let before = (rig.verdict(), rig.worker.results().run());
        assert_eq!(rig.on(paused(true)), [], "{kind}");
        assert_eq!((rig.block(), rig.worker.deadline()), (Some(Block::ContainerPaused), None), "{kind}");
        rig.pass(3600 * SECOND);
        assert_eq!(
            rig.on(WorkerEvent::Triggered(Duration::ZERO)),
            [],
            "{kind}: nothing is triggered past a check"
        );
        assert_eq!(rig.on(WorkerEvent::Due), [], "{kind}");
        assert_eq!((rig.verdict(), rig.worker.results().run()), before, "{kind}");
        rig.on(paused(false));
        assert_eq!((rig.block(), rig.worker.deadline()), (None, Some(rig.now.at)), "{kind}: at once");
        rig.attempt(AttemptResult::Failure);
        assert_eq!(rig.verdict(), 'F', "{kind}: the run goes on");
    }
}

#[test]
fn the_pause_comes_after_the_state_of_the_container_and_before_the_start_delay() {
    let mut rig = Rig::new(ProbeSpec { initial_delay: 60 * SECOND, ..spec(ProbeKind::Readiness, 1, 1) });
    rig.on(paused(true));
    assert_eq!(rig.block(), Some(Block::ContainerPaused));
    rig.on(paused(false));
    assert!(matches!(rig.block(), Some(Block::Delayed(_))));
    rig.on(paused(true));
    rig.on(seen("c1", EXITED));
    assert_eq!((rig.block(), rig.verdict()), (Some(Block::NotRunning(EXITED)), 'F'));
    rig.on(seen("c2", ContainerState::Running));
    assert!(matches!(rig.block(), Some(Block::Delayed(_))), "another container is not paused");
}

#[test]
fn what_an_attempt_finds_out_that_a_pause_overtook_does_not_count_even_after_it() {
    for is_resumed in [false, true] {
        for is_judged in [false, true] {
            let mut rig = Rig::running(spec(ProbeKind::Liveness, 1, 1));
            assert!(rig.start());
            assert!(!rig.worker.is_overtaken());
            rig.on(paused(true));
            assert!(rig.worker.is_overtaken(), "it is to be given up");
            if is_resumed {
                rig.on(paused(false));
                assert!(rig.worker.is_overtaken(), "it stood still for a while");
            }
            rig.pass(rig.worker.spec().period / 2);
            let failed = outcome(AttemptResult::Failure);
            let (judged, finished) = if is_judged { (Some(failed), None) } else { (None, Some(failed)) };
            for event in judged.map(WorkerEvent::Judged).into_iter().chain([WorkerEvent::Finished(finished)])
            {
                assert_eq!(rig.on(event), [], "it is not reported");
            }
            let results = rig.worker.results();
            assert_eq!((rig.verdict(), results.counts().total(), results.last()), ('S', 0, None));
            if is_resumed {
                let wait = rig.worker.deadline().unwrap() - rig.now.at;
                assert!(wait <= rig.worker.spec().period, "the next attempt comes within its period");
                rig.attempt(AttemptResult::Failure);
                assert_eq!(rig.verdict(), 'F', "and counts");
            } else {
                assert_eq!(rig.worker.deadline(), None);
            }
        }
    }
}

#[test]
fn an_attempt_that_waits_for_its_place_is_not_made_on_a_paused_container() {
    let mut rig = Rig::running(spec(ProbeKind::Readiness, 1, 1));
    assert_eq!(rig.on(WorkerEvent::Due), [Action::Enqueue]);
    rig.on(paused(true));
    assert_eq!(rig.on(WorkerEvent::SlotFreed), []);
    assert_eq!(rig.worker.deadline(), None);
    rig.on(paused(false));
    assert_eq!(rig.worker.deadline(), Some(rig.now.at));
    assert!(rig.worker.may_spread(), "many that are resumed together are spread");
}
