//! Pauses, triggers, and why they may be refused.

use super::*;
use crate::{
    prober::{
        PauseTerms,
        command::{CommandRefusal, TriggerEnd},
    },
    spec::{acting::Acting, policy::Limits, rule::HistoryRule},
};

#[test]
fn a_paused_probe_keeps_its_verdict_makes_no_attempts_and_goes_on_when_it_is_resumed() {
    let mut rig = Rig::new(8);
    let liveness = key("web", Liveness);
    let at_once = ProbeSpec { failure_threshold: 1, ..spec(Liveness) };
    rig.accept(input(container("web", "c1", 0), std::slice::from_ref(&at_once)));
    assert_eq!(rig.started().len(), 1);
    assert_eq!(rig.roster.pause(&liveness, PauseTerms::default(), rig.now), Ok(()));
    rig.finish(Liveness, AttemptResult::Failure);
    let status = rig.status(Liveness);
    let reason = format!("paused by an operator since {}", crate::clock::short(rig.now.wall, rig.now.wall));
    assert_eq!((status.phase, &status.reason), (ProbePhase::Paused, &reason));
    assert_eq!(
        (status.state, status.next_at),
        (Verdict::Success, None),
        "what was in flight changes nothing"
    );
    assert_eq!(status.counts.failure, 1, "but it is shown");
    rig.pass(100 * SECOND);
    assert_eq!(rig.started(), []);
    assert_eq!(rig.roster.pause(&liveness, PauseTerms::default(), rig.now), Ok(()), "twice is once");
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
fn the_end_of_a_triggered_attempt_is_reported_and_not_that_of_an_earlier_one() {
    let mut rig = Rig::new(8);
    let readiness = key("web", Readiness);
    let end = |rig: &Rig, then: Instant| rig.roster.triggered(&readiness, then, rig.now);
    rig.accept(input(container("web", "c1", 0), &[spec(Readiness)]));
    assert_eq!(rig.started().len(), 1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.roster.trigger(&readiness, rig.now), Ok(()));
    let then = rig.now.at;
    assert_eq!(end(&rig, then), None);
    rig.finish(Readiness, AttemptResult::Success);
    assert_eq!(end(&rig, then), None, "that one began before");
    assert_eq!(rig.started(), [], "the least period from the last attempt is kept");
    rig.pass(Duration::from_millis(80));
    assert_eq!(rig.started().len(), 1);
    assert_eq!(end(&rig, then), None, "it is in flight");
    rig.finish(Readiness, AttemptResult::Failure);
    let Some(TriggerEnd::Made(made)) = end(&rig, then) else { panic!() };
    assert_eq!((made.result, made.at), (AttemptResult::Failure, rig.now.wall));

    rig.pass(SECOND);
    assert_eq!(rig.roster.trigger(&readiness, rig.now), Ok(()));
    let then = rig.now.at;
    assert_eq!(rig.started().len(), 1);
    rig.roster.finish(&readiness, None, rig.now);
    let not_made = |end| if let Some(TriggerEnd::NotMade(reason)) = end { reason } else { panic!("{end:?}") };
    assert!(not_made(end(&rig, then)).starts_with("the attempt was given up"));
    rig.pass(SECOND);
    assert_eq!(rig.roster.trigger(&readiness, rig.now), Ok(()));
    let then = rig.now.at;
    rig.roster.pause(&readiness, PauseTerms::default(), rig.now).unwrap();
    assert!(not_made(end(&rig, then)).starts_with("paused by an operator since "));
    rig.accept(Input::ContainerGone("c1".into()));
    assert_eq!(not_made(end(&rig, then)), "the probe is gone");
}

#[test]
fn pauses_and_their_ends_are_events_and_a_pause_that_is_over_resumes() {
    let mut rig = Rig::new(8);
    let liveness = key("web", Liveness);
    rig.accept(input(container("web", "c1", 0), &[spec(Liveness)]));
    assert_eq!(rig.started().len(), 1);
    rig.finish(Liveness, AttemptResult::Success);
    rig.roster.take_events();
    rig.pass(SECOND);
    let terms = PauseTerms { length: Some(90 * SECOND), reason: "deploy".into() };
    for terms in [terms.clone(), terms, PauseTerms::default()] {
        assert_eq!(rig.roster.pause(&liveness, terms, rig.now), Ok(()));
    }
    assert_eq!(rig.roster.resume(&liveness, rig.now), Ok(()));
    assert_eq!(rig.roster.resume(&liveness, rig.now), Ok(()));
    let terms = PauseTerms { length: Some(5 * SECOND), ..PauseTerms::default() };
    assert_eq!(rig.roster.pause(&liveness, terms, rig.now), Ok(()));
    assert_eq!((rig.started(), rig.roster.deadline()), (vec![], Some(rig.now.at + 5 * SECOND)));
    rig.pass(5 * SECOND);
    assert_eq!(rig.started().len(), 1, "the next attempt is due at once");
    let events: Vec<_> =
        rig.roster.take_events().into_iter().map(|event| (event.reason.as_str(), event.message)).collect();
    let events: Vec<_> = events.iter().map(|(reason, message)| (*reason, message.as_str())).collect();
    assert_eq!(
        events,
        [
            ("Paused", "liveness of app is paused by an operator for 1m30s: deploy"),
            ("Paused", "liveness of app is paused by an operator"),
            ("Resumed", "liveness of app is resumed by an operator"),
            ("Paused", "liveness of app is paused by an operator for 5s"),
            ("Resumed", "liveness of app is resumed: the pause is over"),
        ]
    );
}

#[test]
fn a_container_that_a_client_stops_is_marked_and_one_that_exits_is_not() {
    let exited = |id: &str| Container {
        state: ContainerState::Exited { exit_code: Some(137) },
        ..container("web", id, 0)
    };
    for is_clients in [true, false] {
        let mut rig = Rig::new(8);
        rig.accept(input(container("web", "c1", 0), &[spec(Liveness)]));
        assert!(!rig.status(Liveness).is_clients);
        if is_clients {
            rig.accept(Input::ContainerStopping("c1".into()));
            assert!(rig.status(Liveness).is_clients, "it is being stopped");
        }
        rig.accept(input(exited("c1"), &[spec(Liveness)]));
        let status = rig.status(Liveness);
        assert_eq!((status.state, status.phase), (Verdict::Failure, ProbePhase::Waiting));
        assert_eq!(status.is_clients, is_clients);
        let by = if is_clients { ": a client stopped it" } else { "" };
        assert_eq!(status.reason, format!("the container exited with code 137{by}"));
        rig.accept(input(container("web", "c2", 1), &[spec(Liveness)]));
        assert!(!rig.status(Liveness).is_clients, "another container");
    }
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
                assert_eq!(rig.roster.trigger(&liveness, rig.now), Ok(()));
                assert_eq!(rig.started(), [], "it is put off");
            }
            for _ in 0..shortest * 10 / 5 {
                rig.pass(millis(5));
                if is_trigger {
                    drop(rig.roster.trigger(&liveness, rig.now));
                } else {
                    rig.roster.pause(&liveness, PauseTerms::default(), rig.now).unwrap();
                    rig.roster.resume(&liveness, rig.now).unwrap();
                }
                if !rig.started().is_empty() {
                    attempts += 1;
                    rig.finish(Liveness, AttemptResult::Success);
                }
            }
            // Resumed 200 times a second, it also gets to the limit of all that operators may ask for.
            let expected = if is_trigger { 10..=11 } else { 5..=11 };
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
                rig.roster.pause(&key, PauseTerms::default(), rig.now).unwrap();
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
        history: HistoryRule::default(),
        shadowed: vec![],
    };
    let delayed = ProbeSpec { initial_delay: 5 * SECOND, ..spec(Liveness) };
    let probes = vec![startup, planned(delayed)];
    rig.accept(Input::Container { view: Arc::new(container("web", "c1", 0)), probes });
    let now = rig.now;
    assert_eq!(
        rig.roster.pause(&key("web", Startup), PauseTerms::default(), now),
        Err(CommandRefusal::Invalid("no handler".to_owned()))
    );
    assert_eq!(
        rig.roster.pause(&key("web", Readiness), PauseTerms::default(), now),
        Err(CommandRefusal::Unknown)
    );
    let refused = rig.roster.trigger(&key("web", Liveness), now).map_err(|refusal| refusal.to_string());
    assert_eq!(refused, Err("no attempt is possible now: start delay of 5s".to_owned()));
}
