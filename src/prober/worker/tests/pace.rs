//! When the next attempt is due.

use super::*;

#[test]
fn ticks_that_passed_are_dropped_and_keep_their_beat() {
    let rows = [(0, 10), (3, 10), (10, 10), (11, 20), (95, 100), (100, 100)];
    for (took, next) in rows {
        let mut rig = Rig::running(spec(ProbeKind::Liveness, 1, 3));
        let began = rig.now.at;
        assert!(rig.start());
        rig.pass(took * SECOND);
        rig.on(WorkerEvent::Finished(Some(outcome(AttemptResult::Success))));
        assert_eq!(rig.worker.deadline().map(|at| (at - began).as_secs()), Some(next), "took {took} s");
    }
}

#[test]
fn the_wait_for_a_place_is_lag_and_does_not_move_the_beat() {
    let mut rig = Rig::running(spec(ProbeKind::Liveness, 1, 3));
    let due = rig.now.at;
    rig.on(WorkerEvent::Due);
    assert_eq!(rig.worker.deadline(), None, "while it waits nothing is due");
    rig.pass(4 * SECOND);
    assert_eq!(rig.on(WorkerEvent::SlotFreed), [Action::StartAttempt]);
    rig.on(WorkerEvent::Finished(Some(outcome(AttemptResult::Success))));
    assert_eq!(rig.worker.results().last().and_then(|last| last.lag), Some(4 * SECOND));
    assert_eq!(rig.worker.deadline(), Some(due + 10 * SECOND));
}

#[test]
fn a_probe_whose_runtime_does_not_answer_is_spaced_out() {
    let mut rig = Rig::running(spec(ProbeKind::Liveness, 1, 1));
    let unanswered = AttemptOutcome { is_unanswered: true, ..outcome(AttemptResult::Error) };
    let mut waits = Vec::new();
    for _ in 0..7 {
        assert!(rig.start());
        let due = rig.now.at;
        rig.on(WorkerEvent::Finished(Some(unanswered.clone())));
        waits.push(rig.worker.deadline().map(|at| (at - due).as_secs()).unwrap());
    }
    assert_eq!(waits, [20, 40, 80, 160, 300, 300, 300]);
    rig.attempt(AttemptResult::Failure);
    assert_eq!(rig.worker.spacing(rig.now.at), 10 * SECOND, "until one returns, however it ends");
}

#[test]
fn a_runtime_that_answers_again_ends_the_spacing_at_once() {
    let mut rig = Rig::running(spec(ProbeKind::Liveness, 1, 1));
    let unanswered = AttemptOutcome { is_unanswered: true, ..outcome(AttemptResult::Error) };
    for _ in 0..6 {
        assert!(rig.start());
        rig.on(WorkerEvent::Finished(Some(unanswered.clone())));
    }
    assert_eq!(rig.worker.deadline(), Some(rig.now.at + 300 * SECOND));
    rig.on(WorkerEvent::RuntimeAnswers(3 * SECOND));
    assert_eq!(rig.worker.deadline(), Some(rig.now.at + 3 * SECOND));
    assert_eq!(rig.worker.spacing(rig.now.at), 10 * SECOND);
    rig.on(WorkerEvent::RuntimeAnswers(SECOND));
    assert_eq!(rig.worker.deadline(), Some(rig.now.at + 3 * SECOND), "it is reported once for each silence");
}

#[test]
fn what_is_judged_counts_at_once_and_is_slow_when_it_ends() {
    let mut rig = Rig::running(spec(ProbeKind::Readiness, 1, 3));
    for kept in [Duration::ZERO, SECOND / 2, 2 * SECOND] {
        assert!(rig.start());
        let before = rig.worker.results().counts().failure;
        let actions = rig.on(WorkerEvent::Judged(outcome(AttemptResult::Failure)));
        assert!(matches!(actions[..], [Action::Report(..), ..]), "{actions:?}");
        assert_eq!(rig.worker.results().counts().failure, before + 1);
        assert_eq!(rig.worker.deadline(), None, "the runtime still works at it");
        rig.pass(kept);
        assert_eq!(rig.on(WorkerEvent::Finished(None)), []);
        assert_eq!(rig.worker.results().counts().failure, before + 1, "it counts once");
        assert_eq!(rig.worker.trust(), Trust::Slow, "whatever its timeout was");
        assert!(rig.worker.deadline() > Some(rig.now.at));
    }
}
