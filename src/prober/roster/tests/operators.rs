//! Pauses, triggers, and why they may be refused.

use super::*;
use crate::{
    handler::go,
    prober::command::CommandRefusal,
    spec::{acting::Acting, policy::Limits},
};

#[test]
fn a_paused_probe_keeps_its_verdict_makes_no_attempts_and_goes_on_when_it_is_resumed() {
    let mut rig = Rig::new(8);
    let liveness = key("web", Liveness);
    let at_once = ProbeSpec { failure_threshold: 1, ..spec(Liveness) };
    rig.accept(input(container("web", "c1", 0), std::slice::from_ref(&at_once)));
    assert_eq!(rig.started().len(), 1);
    assert_eq!(rig.roster.pause(&liveness, rig.now), Ok(()));
    rig.finish(Liveness, AttemptResult::Failure);
    let status = rig.status(Liveness);
    let reason = format!("paused by an operator since {}", crate::clock::rfc3339(rig.now.wall));
    assert_eq!((status.phase, &status.reason), (ProbePhase::Paused, &reason));
    assert_eq!(
        (status.state, status.next_at),
        (Verdict::Success, None),
        "what was in flight changes nothing"
    );
    assert_eq!(status.counts.failure, 1, "but it is shown");
    rig.pass(100 * SECOND);
    assert_eq!(rig.started(), []);
    assert_eq!(rig.roster.pause(&liveness, rig.now), Ok(()), "twice is once");
    assert_eq!(rig.roster.trigger(&liveness, rig.now), Err(CommandRefusal::NotNow(reason.clone())));

    rig.accept(Input::ContainerGone("c1".into()));
    assert_eq!(rig.roster.resume(&liveness, rig.now), Err(CommandRefusal::Unknown));
    rig.accept(input(container("web", "c2", 1), std::slice::from_ref(&at_once)));
    assert_eq!(
        (rig.started(), rig.status(Liveness).phase),
        (vec![], ProbePhase::Paused),
        "it binds to the key"
    );
    rig.accept(input(container("web", "c2", 1), &[ProbeSpec { period: SECOND, ..at_once }]));
    let status = rig.status(Liveness);
    assert_eq!((status.phase, status.reason), (ProbePhase::Paused, reason), "also with another definition");
    assert_eq!(rig.roster.resume(&liveness, rig.now), Ok(()));
    assert_eq!(rig.started(), [(Liveness, "c2".to_owned())]);
    rig.finish(Liveness, AttemptResult::Failure);
    assert_eq!(rig.status(Liveness).state, Verdict::Failure);
}

#[test]
fn a_trigger_makes_an_attempt_due_now_and_the_beat_counts_from_it() {
    let mut rig = Rig::new(8);
    let readiness = key("web", Readiness);
    rig.accept(input(container("web", "c1", 0), &[spec(Readiness)]));
    assert_eq!(rig.started().len(), 1);
    rig.finish(Readiness, AttemptResult::Failure);
    rig.pass(4 * SECOND);
    assert_eq!(rig.started(), []);
    assert_eq!(rig.roster.trigger(&readiness, rig.now), Ok(()));
    assert_eq!(rig.roster.trigger(&readiness, rig.now), Ok(()), "one that waits already is that attempt");
    assert_eq!(rig.started().len(), 1);
    rig.finish(Readiness, AttemptResult::Failure);
    rig.pass(9 * SECOND);
    assert_eq!(rig.started(), [], "the beat was reset");
    rig.pass(SECOND);
    assert_eq!(rig.started().len(), 1);
    rig.pass(SECOND);
    assert_eq!(rig.roster.trigger(&readiness, rig.now), Ok(()));
    assert_eq!(rig.started(), [], "never two attempts at once");
    rig.finish(Readiness, AttemptResult::Failure);
    assert_eq!(rig.started().len(), 1, "at once after the one that was in flight");
}

#[test]
fn row_20_commands_make_no_more_attempts_of_a_probe_than_the_shortest_period_would() {
    let millis = Duration::from_millis;
    for (min_period, rate, shortest) in [(100, 50, 100), (100, 5, 200), (1_000, 50, 1_000)] {
        let limits = Limits { min_period: millis(min_period), ..Limits::default() };
        let settings = ProberSettings { limits, max_rate_per_pod: rate, ..ProberSettings::default() };
        for is_trigger in [true, false] {
            let (mut rig, liveness) = (Rig::new(8), key("web", Liveness));
            rig.roster.set_limits(&settings, rig.now);
            rig.accept(input(
                container("web", "c1", 0),
                &[ProbeSpec { period: 100 * SECOND, ..spec(Liveness) }],
            ));
            let mut attempts = rig.started().len();
            rig.finish(Liveness, AttemptResult::Success);
            if is_trigger {
                let reason =
                    format!("the last attempt began less than {} ago", go::duration(millis(shortest)));
                assert_eq!(rig.roster.trigger(&liveness, rig.now), Err(CommandRefusal::NotNow(reason)));
            }
            for _ in 0..shortest * 10 / 5 {
                rig.pass(millis(5));
                if is_trigger {
                    drop(rig.roster.trigger(&liveness, rig.now));
                } else {
                    rig.roster.pause(&liveness, rig.now).unwrap();
                    rig.roster.resume(&liveness, rig.now).unwrap();
                }
                if !rig.started().is_empty() {
                    attempts += 1;
                    rig.finish(Liveness, AttemptResult::Success);
                }
            }
            // Resumed 200 times a second, it also gets to the limit of all that operators may ask for.
            let expected = if is_trigger { 11..=11 } else { 5..=11 };
            assert!(expected.contains(&attempts), "{attempts}: {shortest} ms, {is_trigger}");
        }
    }
}

#[test]
fn row_20_commands_for_thousands_of_probes_make_no_more_attempts_than_operators_may_ask_for() {
    for is_trigger in [true, false] {
        let mut rig = Rig::new(8);
        let pods: Vec<_> = (0..1_000).map(|number| format!("p{number}")).collect();
        for pod in &pods {
            let slow = ProbeSpec { initial_delay: SECOND, period: 1_000 * SECOND, ..spec(Liveness) };
            rig.accept(input(container(pod, pod, 0), &[slow]));
        }
        rig.pass(SECOND);
        let finish = |rig: &mut Rig| {
            let mut attempts = 0;
            while let some @ 1.. = rig.started().len() {
                attempts += some;
                for pod in &pods {
                    rig.roster.finish(&key(pod, Liveness), Some(outcome(AttemptResult::Success)), rig.now);
                }
            }
            attempts
        };
        rig.pass(1_000 * SECOND);
        finish(&mut rig);
        rig.pass(2 * SECOND);
        finish(&mut rig);
        for pod in &pods {
            let key = key(pod, Liveness);
            if is_trigger {
                drop(rig.roster.trigger(&key, rig.now));
            } else {
                rig.roster.pause(&key, rig.now).unwrap();
                rig.roster.resume(&key, rig.now).unwrap();
            }
        }
        let attempts = finish(&mut rig);
        assert!((50..=110).contains(&attempts), "{attempts}: {is_trigger}");
        rig.pass(SECOND);
        let one = key(&pods[999], Liveness);
        assert_eq!(rig.roster.trigger(&one, rig.now), Ok(()), "a second later there are some again");
    }
}

#[test]
fn a_command_that_cannot_be_done_says_why() {
    let mut rig = Rig::new(8);
    let invalid = Invalid { reason: "no handler".to_owned(), handler: None };
    let startup = Planned {
        kind: Startup,
        source: ProbeSource::PodAnnotation,
        spec: Err(invalid),
        acting: Acting::default(),
        shadowed: vec![],
    };
    let delayed = ProbeSpec { initial_delay: 5 * SECOND, ..spec(Liveness) };
    let probes = vec![startup, planned(delayed)];
    rig.accept(Input::Container { view: Arc::new(container("web", "c1", 0)), probes });
    let now = rig.now;
    assert_eq!(
        rig.roster.pause(&key("web", Startup), now),
        Err(CommandRefusal::Invalid("no handler".to_owned()))
    );
    assert_eq!(rig.roster.pause(&key("web", Readiness), now), Err(CommandRefusal::Unknown));
    let refused = rig.roster.trigger(&key("web", Liveness), now).map_err(|refusal| refusal.to_string());
    assert_eq!(refused, Err("no attempt is possible now: start delay of 5s".to_owned()));
}
