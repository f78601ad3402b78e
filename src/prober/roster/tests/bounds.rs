//! How many probes there may be, and how much may be remembered of what they say.

use super::*;

#[test]
fn probes_beyond_the_limits_are_invalid_until_there_is_room() {
    let now = Moment::now();
    let settings = ProberSettings { max_per_pod: 2, max_per_node: 3, ..ProberSettings::default() };
    let mut rig = Rig { roster: Roster::new(&settings, now), now };
    let specs = ProbeKind::ALL.map(spec);
    rig.accept(input(container("web", "c1", 0), &specs));
    let status = rig.status(Liveness);
    assert_eq!((status.phase, status.handler), (Phase::Invalid, Some("tcpSocket")));
    assert_eq!(status.reason, "the pod has 2 probes already, which is prober.maxPerPod");
    rig.accept(input(container("b", "b1", 0), &specs));
    let of_b = |rig: &Rig| -> Vec<_> {
        let statuses = rig.roster.statuses(rig.now).into_iter().filter(|status| status.pod.as_ref() == "b");
        statuses.map(|status| (status.key.kind, status.reason)).collect()
    };
    let no_room = "the node has 3 probes already, which is prober.maxPerNode";
    assert_eq!(of_b(&rig)[1..], [Readiness, Liveness].map(|kind| (kind, no_room.to_owned())));
    rig.accept(input(container("b", "b1", 0), &specs));
    assert_eq!(of_b(&rig)[2].1, no_room, "told again, it is one too many still");

    rig.accept(Input::ContainerGone("c1".into()));
    assert_eq!(of_b(&rig)[1].0, Readiness);
    assert_eq!(of_b(&rig)[1].1, "the startup probe has not succeeded yet", "there is room again");
    assert_eq!(of_b(&rig)[2].1, "the pod has 2 probes already, which is prober.maxPerPod");
    rig.accept(input(container("b", "b1", 0), &specs[..2]));
    rig.accept(input(container("b", "b1", 0), &specs[..1]));
    rig.accept(input(container("b", "b1", 0), &specs[1..]));
    assert!(of_b(&rig).iter().all(|(_, reason)| reason.is_empty()), "{:?}", of_b(&rig));
}

#[test]
fn containers_that_are_done_take_no_room() {
    let now = Moment::now();
    let settings = ProberSettings { max_per_node: 2, ..ProberSettings::default() };
    let mut rig = Rig { roster: Roster::new(&settings, now), now };
    let done = |pod: &str, id: &str| {
        let state = ContainerState::Exited { exit_code: Some(0) };
        ContainerView { state, ..container(pod, id, 0) }
    };
    for number in 0..5 {
        let (pod, id) = (format!("job-{number}"), format!("j{number}"));
        rig.accept(input(done(&pod, &id), &[spec(Readiness), spec(Liveness)]));
    }
    rig.accept(input(container("web", "c1", 0), &[spec(Readiness), spec(Liveness)]));
    let phase = |rig: &Rig, pod: &str| -> Vec<Phase> {
        let statuses = rig.roster.statuses(rig.now).into_iter();
        statuses.filter(|status| &*status.pod == pod).map(|status| status.phase).collect()
    };
    assert_eq!(phase(&rig, "web"), [Phase::Probing; 2]);
    assert_eq!(phase(&rig, "job-4"), [Phase::Waiting; 2], "they are listed all the same");
    rig.accept(input(container("b", "b1", 0), &[spec(Readiness)]));
    assert_eq!(phase(&rig, "b"), [Phase::Invalid]);
    rig.accept(input(done("web", "c1"), &[spec(Readiness), spec(Liveness)]));
    assert_eq!(phase(&rig, "b"), [Phase::Probing], "there is room");
    let again = ContainerView { attempt: 1, ..container("web", "c2", 1) };
    rig.accept(input(again, &[spec(Readiness), spec(Liveness)]));
    let phases = phase(&rig, "web");
    assert_eq!(phases.iter().filter(|phase| **phase == Phase::Invalid).count(), 1, "{phases:?}");
}

#[test]
fn the_same_probes_of_a_pod_run_in_whatever_order_its_containers_are_met() {
    let made = |number: u64| std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(number);
    let names = ["c0", "c1", "c2", "c3"];
    let mut found = Vec::new();
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
        let now = Moment::now();
        let settings = ProberSettings { max_per_pod: 3, ..ProberSettings::default() };
        let mut rig = Rig { roster: Roster::new(&settings, now), now };
        for number in order {
            let view = ContainerView {
                name: names[number].into(),
                created_at: Some(made(number as u64)),
                ..container("web", names[number], 0)
            };
            rig.accept(input(view, &[spec(Readiness), spec(Liveness)]));
        }
        let statuses = rig.roster.statuses(rig.now);
        assert_eq!(statuses.len(), 8, "none vanishes");
        let runs = statuses.iter().filter(|status| status.phase != Phase::Invalid);
        found
            .push(runs.map(|status| (status.key.container.to_string(), status.key.kind)).collect::<Vec<_>>());
    }
    let first =
        [("c0", Readiness), ("c0", Liveness), ("c1", Readiness)].map(|(name, kind)| (name.to_owned(), kind));
    assert!(found.iter().all(|runs| *runs == first), "{found:?}");
}

/// The bytes that are remembered of what attempts said.
fn remembered(rig: &Rig) -> usize {
    let workers = rig.roster.entries.values().filter_map(|entry| entry.worker.as_ref());
    workers.map(|worker| worker.results().said()).sum()
}

#[test]
fn what_all_attempts_said_is_bounded_and_each_probe_keeps_its_share_of_it() {
    const MOST: usize = 6 << 20;
    let mut rig = Rig::new(5_000);
    let say = |rig: &mut Rig, pod: usize, output: String| {
        let tried = Tried { output: output.into(), ..tried(AttemptResult::Failure) };
        rig.roster.finish(&key(&format!("p{pod}"), Readiness), Some(tried), rig.now);
    };
    for pod in 0..1_000 {
        rig.accept(input(container(&format!("p{pod}"), &format!("c{pod}"), 0), &[spec(Readiness)]));
    }
    for round in 0..24 {
        assert_eq!(rig.roster.advance(rig.now).len(), 1_000);
        for pod in 0..1_000 {
            // One says 10 KiB once and then nothing, the others something else each time.
            let output = match (pod, round) {
                (0, 0) => "x".repeat(10_240),
                (0, _) => String::new(),
                _ => format!("{:<1000}", round * 1_000 + pod),
            };
            say(&mut rig, pod, output);
            assert!(remembered_is_bounded(&rig, pod, MOST), "round {round}, pod {pod}");
        }
        rig.pass(10 * SECOND);
    }
    assert!(remembered(&rig) > MOST / 2, "and used");
    for status in rig.roster.statuses(rig.now) {
        let newest = status.history.attempts().last().unwrap().output;
        assert!(status.pod.as_ref() == "p0" || newest.starts_with("23"), "the newest is there: {newest}");
    }
    (0..1_000).for_each(|pod| rig.accept(Input::ContainerGone(format!("c{pod}").into())));
    rig.accept(input(container("p0", "again", 0), &[spec(Readiness)]));
    assert_eq!(rig.roster.advance(rig.now).len(), 1);
    say(&mut rig, 0, "x".repeat(10_240));
    assert_eq!(rig.status(Readiness).last.unwrap().output.len(), 10_240, "what is gone takes nothing");
}

/// Looked at now and then: to add up is slow.
fn remembered_is_bounded(rig: &Rig, pod: usize, most: usize) -> bool {
    !pod.is_multiple_of(97) || remembered(rig) <= most
}
