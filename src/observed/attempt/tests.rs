//! How a call is judged.

use super::*;
use crate::observed::fixtures::{Start, command};

#[test]
fn a_call_is_judged_as_a_kubelet_judges_it() {
    let (start, command) = (Start::now(), command("c1", &["true"], 1));
    for (end, took, result, exit_code, said) in [
        ("exit 0", 0.1, AttemptResult::Success, Some(0), ""),
        ("exit 1", 0.1, AttemptResult::Failure, Some(1), ""),
        ("exit -1", 0.1, AttemptResult::Failure, Some(-1), ""),
        ("deadline", 1.0, AttemptResult::Failure, None, "it said why"),
        ("error NotFound", 0.1, AttemptResult::Error, None, "rpc error: code = NotFound desc = it said why"),
        ("cancelled", 0.1, AttemptResult::Error, None, "the client cancelled the call"),
        ("cancelled", 1.0, AttemptResult::Failure, None, "the client gave up after the timeout"),
        ("reset", 0.1, AttemptResult::Error, None, "the runtime aborted the call"),
        ("lost", 0.1, AttemptResult::Error, None, "a connection was lost during the call"),
        ("unreadable", 0.1, AttemptResult::Error, None, "its answer cannot be decoded"),
    ] {
        let attempt = Attempt::of(&start.call((0.0, took, end), &command, "kubelet"), None).unwrap();
        let record = attempt.record();
        assert_eq!((record.result, record.exit_code, &*record.output), (result, exit_code, said), "{end}");
        assert!((record.duration.as_secs_f64() - took).abs() < 1e-6);
    }
}

#[test]
fn only_an_error_is_tried_again_and_twice_at_most_and_soon() {
    let (start, command) = (Start::now(), command("c1", &["true"], 1));
    let attempt = |at, end| Attempt::of(&start.call((at, 0.1, end), &command, "kubelet"), None).unwrap();
    let may = |attempt: &Attempt, at| attempt.may_be_tried_again(start.after(at), Duration::MAX);
    assert!(!may(&attempt(0.0, "exit 1"), 0.2));
    let mut erred = attempt(0.0, "error NotFound");
    assert_eq!([0.05, 0.2, 1.05, 1.2].map(|at| may(&erred, at)), [false, true, true, false]);
    erred.tried_again(attempt(0.2, "error NotFound"));
    assert!(may(&erred, 0.4));
    let mut healed = erred.clone();
    healed.tried_again(attempt(0.4, "exit 0"));
    assert_eq!(
        (healed.result, healed.record().duration),
        (AttemptResult::Success, Duration::from_millis(500))
    );
    erred.tried_again(attempt(0.4, "error NotFound"));
    assert!(!may(&erred, 0.6), "three tries are all");
}
