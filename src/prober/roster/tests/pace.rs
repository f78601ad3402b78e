//! Many probes at once, and a process that stood still: what is put off, and for how long.

use super::*;

#[test]
fn one_more_probe_while_all_places_are_taken_waits_its_turn_and_is_not_put_off() {
    // Of which two are for connections to servers that have not answered yet.
    let mut rig = Rig::new(4);
    for pod in ["web", "b"] {
        rig.accept(input(container(pod, pod, 0), &[spec(Liveness)]));
    }
    assert_eq!(rig.started().len(), 2);
    rig.accept(input(container("c", "c", 0), &[spec(Liveness)]));
    assert_eq!(rig.started(), []);
    rig.finish(Liveness, AttemptResult::Success);
    assert_eq!(rig.started(), [(Liveness, "c".to_owned())]);
}

#[test]
fn what_does_not_fit_the_pool_is_spread_over_the_period_the_same_way_each_time() {
    let firsts = || {
        let mut rig = Rig::new(8);
        let began = rig.now.at;
        for pod in 0..200 {
            rig.accept(input(container(&format!("pod{pod}"), &format!("c{pod}"), 0), &[spec(Liveness)]));
        }
        assert_eq!(rig.started().len(), 3, "as many as one namespace has places for first attempts");
        let mut due = Vec::new();
        while let Some(key) = rig.roster.schedule.take_due(began + 10 * SECOND) {
            let next = rig.roster.entries[&key].worker.as_ref().and_then(Worker::next);
            due.push(next.unwrap() - began);
        }
        due
    };
    let due = firsts();
    // Four were not put off, and one of these waits.
    assert_eq!(due.len(), 196);
    let in_the_first_half = due.iter().filter(|due| **due < 5 * SECOND).count();
    assert!((70..=126).contains(&in_the_first_half), "{in_the_first_half}");
    assert_eq!(due, firsts());
}

#[test]
fn containers_that_ran_before_us_are_probed_within_a_period_and_not_all_at_once() {
    let mut rig = Rig::new(1000);
    let began = rig.now.wall;
    let adopted = |pod: usize, started_at| {
        let view = container(&format!("pod{pod}"), &format!("c{pod}"), 0);
        let view = Container { created_at: Some(began - 300 * SECOND), started_at, ..view };
        input(view, &[spec(Liveness)])
    };
    for pod in 0..200 {
        rig.accept(adopted(pod, None));
    }
    assert_eq!(rig.started(), [], "also before the start is reported");
    for pod in 0..200 {
        rig.accept(adopted(pod, Some(began - 299 * SECOND)));
    }
    assert_eq!(rig.started(), [], "and telling it brings nothing forward");
    let statuses = rig.roster.statuses(rig.now);
    let waits = statuses.iter().map(|status| status.next_at.unwrap().duration_since(began).unwrap());
    let early = waits.clone().filter(|wait| *wait < 5 * SECOND).count();
    assert!((70..=130).contains(&early), "{early} of 200 in the first half");
    assert!(waits.clone().all(|wait| wait < 10 * SECOND));
    rig.pass(10 * SECOND);
    assert_eq!(rig.started().len(), 200);

    rig.accept(adopted(900, Some(began - 299 * SECOND)));
    assert_eq!(
        rig.started(),
        [(Liveness, "c900".to_owned())],
        "no jitter after the first period (docs/kubelet-prober.md 3.1)"
    );
    let mut rig = Rig::new(1000);
    let view = Container { started_at: Some(rig.now.wall + SECOND), ..container("web", "new", 0) };
    rig.pass(2 * SECOND);
    rig.accept(input(view, &[spec(Liveness)]));
    assert_eq!(rig.started(), [(Liveness, "new".to_owned())], "no jitter for one that began after us");
}

#[test]
fn a_process_that_stood_still_makes_no_burst() {
    let mut rig = Rig::new(8);
    for pod in 0..400 {
        rig.accept(input(container(&format!("pod{pod}"), &format!("c{pod}"), 0), &[spec(Liveness)]));
    }
    let run = |rig: &mut Rig, seconds: u64| -> Vec<usize> {
        let each = (0..seconds * 10).map(|_| {
            let mut made = 0;
            loop {
                let jobs = rig.roster.advance(rig.now);
                made += jobs.len();
                if jobs.is_empty() {
                    break;
                }
                jobs.iter().for_each(|job| {
                    rig.roster.finish(&job.key, Some(outcome(AttemptResult::Success)), rig.now);
                });
            }
            rig.pass(SECOND / 10);
            made
        });
        each.collect()
    };
    run(&mut rig, 20);
    let before: usize = run(&mut rig, 10).iter().sum();
    assert_eq!(before, 400);
    rig.pass(3600 * SECOND);
    let after = run(&mut rig, 10);
    assert!(after.iter().sum::<usize>() <= 480, "an hour of ticks is dropped: {after:?}");
    assert!(after.iter().all(|made| *made <= 40), "and no moment gets all of them: {after:?}");
    let wall_steps = Moment { wall: rig.now.wall + 24 * 3600 * SECOND, ..rig.now };
    rig.now = wall_steps;
    assert!(run(&mut rig, 1).iter().sum::<usize>() <= 80, "a step of the wall clock moves nothing");
    rig.now = Moment { wall: rig.now.wall - 48 * 3600 * SECOND, ..rig.now };
    assert!(run(&mut rig, 1).iter().sum::<usize>() >= 10, "in neither direction");
}

#[test]
fn an_exec_that_the_runtime_does_not_answer_frees_its_place_is_spaced_out_and_says_so() {
    let now = Moment::now();
    let settings = ProberSettings { exec_workers: 1, ..ProberSettings::default() };
    let mut rig = Rig { roster: Roster::new(&settings, now), now };
    let exec = ProbeSpec { handler: Handler::Exec { command: vec!["true".into()] }, ..spec(Liveness) };
    for pod in ["web", "other"] {
        rig.accept(input(container(pod, pod, 0), std::slice::from_ref(&exec)));
    }
    assert_eq!(rig.started(), [(Liveness, "web".to_owned())]);
    rig.pass(6 * SECOND);
    let silence = AttemptOutcome {
        is_unanswered: true,
        output: "runtime did not answer".into(),
        ..outcome(AttemptResult::Error)
    };
    rig.roster.finish(&key("web", Liveness), Some(silence), rig.now);
    assert_eq!(rig.started(), [(Liveness, "other".to_owned())], "its place is free at once");
    let of_web = |rig: &Rig| {
        rig.roster.statuses(rig.now).into_iter().find(|status| status.pod.as_ref() == "web").unwrap()
    };
    let status = of_web(&rig);
    let next = crate::clock::short(rig.now.wall + 14 * SECOND, rig.now.wall);
    assert_eq!(
        status.reason,
        format!(
            "runtime did not answer; slowed down to every 20s, the next at {next}: `criprobe trigger` \
             tries now"
        )
    );
    assert_eq!(
        (status.state, status.phase, status.period),
        (Verdict::Success, ProbePhase::Probing, Some(20 * SECOND))
    );
    assert_eq!(status.next_at, Some(rig.now.wall + 14 * SECOND), "20 s after it began");
    rig.accept(Input::ContainerGone("other".into()));
    rig.roster.finish(&key("other", Liveness), None, rig.now);
    rig.pass(14 * SECOND);
    assert_eq!(rig.started(), [(Liveness, "web".to_owned())]);
    rig.finish(Liveness, AttemptResult::Failure);
    let status = of_web(&rig);
    assert_eq!((status.reason.as_str(), status.period), ("", Some(10 * SECOND)), "until one returns");
}

#[test]
fn a_probe_that_waits_for_more_than_two_periods_is_late_and_says_so() {
    let now = Moment::now();
    let settings = ProberSettings { workers: 1, exec_workers: 1, ..ProberSettings::default() };
    let mut rig = Rig { roster: Roster::new(&settings, now), now };
    let brisk = ProbeSpec { period: SECOND, ..spec(Liveness) };
    rig.accept(input(container("endless", "endless", 0), std::slice::from_ref(&brisk)));
    assert_eq!(rig.started().len(), 1);
    rig.accept(input(container("web", "c1", 0), &[brisk]));
    let of_web = |rig: &Rig| {
        rig.roster.statuses(rig.now).into_iter().find(|status| status.pod.as_ref() == "web").unwrap()
    };
    assert_eq!((rig.started(), rig.roster.lateness_news(rig.now)), (vec![], None));
    rig.pass(SECOND);
    assert_eq!(rig.started(), vec![], "what is in flight is slow by now");
    assert_eq!(rig.roster.deadline(), Some(rig.now.at + SECOND), "it is looked at then");
    rig.pass(SECOND);
    assert_eq!((of_web(&rig).late, of_web(&rig).reason.as_str()), (None, ""));
    rig.pass(SECOND);
    assert_eq!(rig.roster.lateness_news(rig.now), Some(LatenessNews::Began));
    assert_eq!(of_web(&rig).late, Some(3 * SECOND));
    assert!(of_web(&rig).reason.starts_with("has waited for a place"), "{}", of_web(&rig).reason);
    rig.accept(Input::ContainerGone("endless".into()));
    rig.roster.finish(&key("endless", Liveness), None, rig.now);
    assert_eq!((rig.started().len(), of_web(&rig).late), (1, None));
    assert_eq!(rig.roster.lateness_news(rig.now), None);
    rig.pass(30 * SECOND);
    let ended = LatenessNews::Ended { lasted: Duration::ZERO, most: 1 };
    assert_eq!(rig.roster.lateness_news(rig.now), Some(ended));
}

#[test]
fn first_attempts_on_silent_servers_leave_places_to_those_that_answer() {
    let mut rig = Rig::new(64);
    rig.accept(input(container("web", "c1", 0), &[spec(Liveness)]));
    assert_eq!(rig.started().len(), 1);
    rig.finish(Liveness, AttemptResult::Success);
    for pod in 0..200 {
        rig.accept(input(container(&format!("silent{pod}"), &format!("s{pod}"), 0), &[spec(Liveness)]));
    }
    rig.pass(10 * SECOND);
    let started = rig.started();
    assert_eq!(started.len(), 28, "three quarters of 36 places, and the one that answered before");
    assert!(started.contains(&(Liveness, "c1".to_owned())));
}

#[test]
fn row_20_after_a_silence_all_go_on_at_their_pace_and_not_all_at_once() {
    let settings = ProberSettings { workers: 200, exec_workers: 200, ..ProberSettings::default() };
    let silence = || Some(AttemptOutcome { is_unanswered: true, ..outcome(AttemptResult::Error) });
    let exec = ProbeSpec { handler: Handler::Exec { command: vec!["true".into()] }, ..spec(Liveness) };
    for by_link in [true, false] {
        let now = Moment::now();
        let mut rig = Rig { roster: Roster::new(&settings, now), now };
        for pod in 0..40 {
            let id = format!("c{pod}");
            rig.accept(input(container(&format!("p{pod}"), &id, 0), std::slice::from_ref(&exec)));
        }
        // Five in a row: the sixth attempt is 300 s away.
        for _ in 0..5 {
            rig.pass(300 * SECOND);
            let started: HashSet<_> = (0..2 * 300)
                .flat_map(|_| {
                    let jobs = rig.roster.advance(rig.now);
                    rig.pass(SECOND / 2);
                    jobs
                })
                .map(|job| job.key)
                .collect();
            assert_eq!(started.len(), 40);
            started.iter().for_each(|key| rig.roster.finish(key, silence(), rig.now));
        }
        let waits = |rig: &Rig| -> Vec<u128> {
            let next = rig.roster.statuses(rig.now).into_iter().filter_map(|status| status.next_at);
            next.map(|at| at.duration_since(rig.now.wall).unwrap_or_default().as_millis()).collect()
        };
        if by_link {
            rig.accept(Input::RuntimeAnswers);
        } else {
            rig.accept(input(container("new", "new", 0), std::slice::from_ref(&exec)));
            assert_eq!(rig.started().len(), 1);
            rig.roster.finish(&key("new", Liveness), Some(outcome(AttemptResult::Failure)), rig.now);
        }
        let waits = waits(&rig);
        assert!(waits.iter().all(|wait| *wait <= 10_000), "{waits:?}");
        let early = waits.iter().filter(|wait| **wait < 5_000).count();
        assert!((5..35).contains(&early), "they are spread: {waits:?}");
    }
}

#[test]
fn a_container_that_hangs_alone_stays_spaced_out_however_often_others_are_answered() {
    let now = Moment::now();
    let mut rig = Rig { roster: Roster::new(&ProberSettings::default(), now), now };
    let exec = ProbeSpec { handler: Handler::Exec { command: vec!["true".into()] }, ..spec(Liveness) };
    for pod in ["hangs", "well"] {
        rig.accept(input(container(pod, pod, 0), std::slice::from_ref(&exec)));
    }
    assert_eq!(rig.started().len(), 2);
    rig.roster.finish(&key("well", Liveness), Some(outcome(AttemptResult::Success)), rig.now);
    rig.pass(6 * SECOND);
    let silence = AttemptOutcome { is_unanswered: true, ..outcome(AttemptResult::Error) };
    rig.roster.finish(&key("hangs", Liveness), Some(silence), rig.now);
    rig.pass(4 * SECOND);
    assert_eq!(rig.started(), [(Liveness, "well".to_owned())]);
    rig.roster.finish(&key("well", Liveness), Some(outcome(AttemptResult::Success)), rig.now);
    let of_it =
        rig.roster.statuses(rig.now).into_iter().find(|status| status.pod.as_ref() == "hangs").unwrap();
    assert_eq!(of_it.period, Some(20 * SECOND));
}

#[test]
fn what_takes_too_long_while_others_wait_ends_as_an_error_that_changes_no_verdict() {
    let now = Moment::now();
    let settings = ProberSettings { workers: 16, exec_workers: 4, ..ProberSettings::default() };
    let mut rig = Rig { roster: Roster::new(&settings, now), now };
    let handler = Handler::Exec { command: vec!["true".into()] };
    let brisk = ProbeSpec { handler, period: SECOND, ..spec(Liveness) };
    for pod in ["a", "b", "c"] {
        rig.accept(input(container(pod, pod, 0), std::slice::from_ref(&brisk)));
    }
    assert_eq!(rig.started().len(), 3);
    for pod in ["a", "b", "c"] {
        rig.roster.finish(&key(pod, Liveness), Some(outcome(AttemptResult::Success)), rig.now);
    }
    rig.pass(SECOND);
    assert_eq!(rig.started().len(), 3, "they are trusted by now");
    rig.pass(SECOND);
    assert_eq!((rig.started().len(), rig.roster.take_given_up()), (0, vec![]), "none waits");
    rig.accept(input(container("d", "d", 0), &[brisk]));
    rig.pass(SECOND / 4);
    assert_eq!(rig.started(), vec![], "all places for what is not trusted are held");
    let given_up = rig.roster.take_given_up();
    assert_eq!(given_up.len(), 1);
    rig.roster.finish(&given_up[0], None, rig.now);
    assert_eq!(rig.started(), [(Liveness, "d".to_owned())]);
    assert_eq!(rig.roster.take_given_up(), vec![], "two that are slow have their places");
    let statuses = rig.roster.statuses(rig.now);
    let status = statuses.iter().find(|status| status.key == given_up[0]).unwrap();
    assert_eq!(status.state, Verdict::Success);
    assert_eq!(
        status.last.as_ref().map(|last| (last.result, &*last.output)),
        Some((
            AttemptResult::Error,
            "gave up after 1.2s: too many attempts are slow, and others wait for a place"
        ))
    );
}
