//! Attempts that cannot be made, one after the other: what is known of them, and what is reported.

use super::*;
use crate::results::errors::Errors;

/// The notices beside those of each attempt.
fn turns(actions: Vec<Action>) -> Vec<Notice> {
    let notices = actions.into_iter().filter_map(|action| match action {
        Action::Report(_, notice @ (Notice::CannotBeTried { .. } | Notice::TriedAgain { .. })) => {
            Some(notice)
        }
        _ => None,
    });
    notices.collect()
}

#[test]
fn errors_in_a_row_are_counted_and_their_beginning_and_end_are_reported_once() {
    let mut rig = Rig::running(spec(ProbeKind::Liveness, 1, 3));
    rig.attempt(AttemptResult::Success);
    assert_eq!(rig.worker.results().errors(), None);
    rig.pass(10 * SECOND);
    let since = rig.now.wall;
    let reported: Vec<_> = (0..5).map(|_| turns(rig.attempt(AttemptResult::Error))).collect();
    let begun = Notice::CannotBeTried { count: 3, error: "out".into() };
    assert_eq!(reported, [vec![], vec![], vec![begun], vec![], vec![]]);
    assert_eq!(rig.worker.results().errors(), Some(Errors { count: 5, since }));
    assert_eq!((rig.verdict(), rig.worker.cannot_try()), ('S', true), "the verdict stays");
    assert_eq!(turns(rig.attempt(AttemptResult::Failure)), [Notice::TriedAgain { count: 5 }]);
    assert_eq!((rig.worker.results().errors(), rig.worker.cannot_try()), (None, false));
    assert_eq!(turns(rig.attempt(AttemptResult::Error)), [], "below the threshold");
    assert_eq!(turns(rig.attempt(AttemptResult::Success)), []);
    rig.attempt(AttemptResult::Error);
    rig.step("new");
    assert_eq!(rig.worker.results().errors(), None, "they are of the container before");
}

#[test]
fn an_outage_of_the_runtime_is_no_news_of_each_probe() {
    let mut rig = Rig::running(spec(ProbeKind::Liveness, 1, 2));
    let away = || AttemptOutcome { is_outage: true, ..outcome(AttemptResult::Error) };
    for _ in 0..3 {
        assert!(rig.start());
        assert_eq!(turns(rig.on(WorkerEvent::Finished(Some(away())))), []);
    }
    assert!(rig.worker.cannot_try());
    assert_eq!(turns(rig.attempt(AttemptResult::Success)), [], "what was not reported does not end");
    rig.attempt(AttemptResult::Error);
    assert!(rig.start());
    rig.on(WorkerEvent::Finished(Some(away())));
    let begun = Notice::CannotBeTried { count: 3, error: "out".into() };
    assert_eq!(turns(rig.attempt(AttemptResult::Error)), [begun]);
}

#[test]
fn what_the_failure_before_errors_said_is_kept_until_one_returns() {
    let mut rig = Rig::running(spec(ProbeKind::Readiness, 1, 1));
    let hidden = |rig: &Rig| rig.worker.results().hidden().map(ToString::to_string);
    rig.attempt(AttemptResult::Error);
    assert_eq!(hidden(&rig), None);
    rig.attempt(AttemptResult::Failure);
    assert_eq!(hidden(&rig), None, "it is the last attempt itself");
    rig.attempt(AttemptResult::Error);
    rig.attempt(AttemptResult::Error);
    assert_eq!(hidden(&rig), Some("out".to_owned()));
    let kept = rig.worker.results().output_bytes();
    rig.worker.forget(0);
    assert_eq!(hidden(&rig), None, "it counts as the outputs do");
    assert!(rig.worker.results().output_bytes() < kept);
    rig.attempt(AttemptResult::Success);
    rig.attempt(AttemptResult::Error);
    assert_eq!(hidden(&rig), None);
    assert!(rig.start());
    let silent = AttemptOutcome { output: " ".into(), exit_code: Some(7), ..outcome(AttemptResult::Failure) };
    rig.on(WorkerEvent::Finished(Some(silent)));
    rig.attempt(AttemptResult::Error);
    assert_eq!(hidden(&rig), Some("exit code 7, no output".to_owned()));
    rig.step("new");
    assert_eq!(hidden(&rig), None, "it is of the container before");
}

#[test]
fn failures_of_a_probe_that_only_reports_are_counted_on_and_so_after_a_restart() {
    let mut rig = Rig::running(spec(ProbeKind::Liveness, 1, 3));
    let shown = |rig: &Rig| rig.worker.results().run_here().count;
    let counts: Vec<_> = (0..7)
        .map(|_| {
            rig.attempt(AttemptResult::Failure);
            (shown(&rig), rig.worker.results().run().count)
        })
        .collect();
    assert_eq!(
        counts,
        [(1, 1), (2, 2), (3, 0), (4, 1), (5, 2), (6, 0), (7, 1)],
        "the kubelet's run restarts"
    );
    rig.attempt(AttemptResult::Error);
    let definition = crate::spec::identity::Definition::of(rig.worker.spec());
    let checkpoint = rig.worker.checkpoint(definition).unwrap();
    let errors = rig.worker.results().errors();
    rig.worker = Rig::new(spec(ProbeKind::Liveness, 1, 3)).worker;
    rig.on(WorkerEvent::Restored(checkpoint));
    rig.on(seen("c1", ContainerState::Running));
    assert_eq!((shown(&rig), rig.worker.results().errors()), (7, errors));
    assert!(errors.is_some());
    rig.attempt(AttemptResult::Failure);
    assert_eq!((shown(&rig), rig.worker.results().run().count), (8, 2));
    rig.attempt(AttemptResult::Success);
    assert_eq!((shown(&rig), rig.verdict()), (1, 'S'));
}
