//! The runtime is away: what is shown of probes that need it, and what is reported.

use super::*;
use crate::{results::errors::Errors, spec::PortRef};

fn commands(rig: &mut Rig) {
    let command = |kind| ProbeSpec {
        handler: Handler::Exec { command: vec!["true".to_owned()] },
        failure_threshold: 3,
        ..spec(kind)
    };
    let open = ProbeSpec {
        handler: Handler::TcpSocket { host: None, port: PortRef::Number(80) },
        ..spec(Readiness)
    };
    rig.accept(input(container("web", "c1", 0), &[command(Liveness), open]));
    rig.started();
    rig.finish(Liveness, AttemptResult::Success);
    rig.finish(Readiness, AttemptResult::Success);
    rig.roster.take_events();
}

#[test]
fn what_a_command_says_is_not_known_from_the_moment_that_the_runtime_is_away() {
    let mut rig = Rig::new(8);
    commands(&mut rig);
    let untried = |rig: &Rig| {
        let of = |kind| rig.status(kind).cannot_try();
        (of(Liveness), of(Readiness), rig.roster.counts(rig.now).untried)
    };
    assert_eq!(untried(&rig), (false, false, 0));
    let since = rig.now.wall;
    rig.accept(Input::RuntimeAway(Some(since)));
    assert_eq!(untried(&rig), (true, false, 1), "what opens connections goes on");
    let status = rig.status(Liveness);
    assert_eq!((status.state, status.errors), (Verdict::Success, Some(Errors { count: 0, since })));
    assert!(
        status.reason.starts_with("cannot be tried since ")
            && status.reason.ends_with("Z: the runtime is away")
    );
    rig.accept(Input::RuntimeAway(None));
    assert_eq!(untried(&rig), (false, false, 0));
    assert_eq!(rig.status(Liveness).errors, None);

    rig.accept(Input::RuntimeAway(Some(since)));
    let exited = ContainerState::Exited { exit_code: Some(1) };
    rig.accept(input(Container { state: exited, ..container("web", "c1", 0) }, &[spec(Liveness)]));
    assert!(!rig.status(Liveness).cannot_try(), "nothing is to be tried");
}

#[test]
fn errors_of_commands_while_the_runtime_is_away_are_no_events_whatever_they_say() {
    let mut rig = Rig::new(8);
    commands(&mut rig);
    let reasons = |rig: &mut Rig| rig.roster.take_events().len();
    rig.accept(Input::RuntimeAway(Some(rig.now.wall)));
    for _ in 0..4 {
        rig.pass(10 * SECOND);
        rig.started();
        rig.finish(Liveness, AttemptResult::Error);
    }
    assert_eq!((reasons(&mut rig), rig.status(Liveness).errors.map(|errors| errors.count)), (0, Some(4)));
    rig.accept(Input::RuntimeAway(None));
    rig.pass(10 * SECOND);
    rig.started();
    rig.finish(Liveness, AttemptResult::Error);
    assert_eq!(reasons(&mut rig), 1, "one attempt, and not yet that it cannot be tried");
    rig.pass(10 * SECOND);
    rig.started();
    rig.finish(Liveness, AttemptResult::Success);
    assert_eq!(reasons(&mut rig), 0, "what was not reported does not end");
}
