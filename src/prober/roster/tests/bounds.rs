//! How many probes there may be, and how much may be remembered of what they say.

use std::time::SystemTime;

use super::*;
use crate::{
    inventory::pod::Pod,
    prober::state::Saved,
    results::{event::EventReason, text::BoundedText},
    spec::{
        Handler,
        need::Need,
        plan::{Class, ImageFacts, plan},
        policy::Policy,
    },
};

/// A running container that was made so many seconds after others.
fn made(pod: &str, id: &str, name: &str, seconds: u64) -> Container {
    let created_at = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    Container { name: name.into(), created_at, ..container(pod, id, 0) }
}

fn limited(max_per_pod: usize, max_per_node: usize) -> Rig {
    let now = Moment::now();
    let settings = ProberSettings { max_per_pod, max_per_node, ..ProberSettings::default() };
    Rig { roster: Roster::new(&settings, now), now }
}

/// The probes that are not invalid, as `POD/CONTAINER/TYPE`.
fn able(rig: &Rig) -> Vec<String> {
    let statuses = rig.roster.statuses(rig.now).into_iter();
    let able = statuses.filter(|status| status.phase != ProbePhase::Invalid);
    able.map(|status| status.key.to_string()).collect()
}

/// What a rule that no pod outranks asks for.
fn enforced(spec: ProbeSpec) -> Planned {
    Planned { source: ProbeSource::EnforcedRule("must".into()), ..planned(spec) }
}

#[test]
fn row_04_an_enforced_rule_runs_whatever_annotations_its_pod_has() {
    let mut rig = limited(2, 100);
    rig.accept(input(made("web", "c0", "c0", 0), &[spec(Readiness)]));
    rig.accept(input(made("web", "c1", "c1", 1), &[spec(Readiness), spec(Liveness)]));
    let last = |name: &str| ProbeKey { container: name.into(), ..key("web", Readiness) };
    // Their containers ran before: their first attempts are spread.
    assert_eq!(rig.started(), []);
    rig.pass(20 * SECOND);
    assert_eq!(rig.started().len(), 2);
    rig.roster.finish(&last("c0"), Some(outcome(AttemptResult::Success)), rig.now);
    let view = Arc::new(made("web", "c2", "app", 2));
    rig.accept(Input::Container { view, probes: vec![enforced(spec(Readiness))] });
    assert_eq!(able(&rig), ["web/app/readiness", "web/c0/readiness"]);
    assert_eq!(rig.roster.take_given_up(), [last("c1")], "also what has made attempts gives way");
    rig.roster.finish(&last("c1"), None, rig.now);
    assert_eq!(rig.started(), [(Readiness, "c2".to_owned())]);
    let statuses = rig.roster.statuses(rig.now);
    let refused: Vec<_> = statuses.iter().filter(|status| status.phase == ProbePhase::Invalid).collect();
    assert_eq!(refused.iter().map(|status| status.key.kind).collect::<Vec<_>>(), [Readiness, Liveness]);
    assert!(refused.iter().all(|status| status.reason.starts_with("the pod has more probes than")));
    let reported = rig
        .roster
        .take_events()
        .into_iter()
        .filter(|event| event.reason == EventReason::InvalidProbe)
        .count();
    assert_eq!(reported, 2);
    rig.accept(Input::ContainerGone("c2".into()));
    assert_eq!(able(&rig), ["web/c0/readiness", "web/c1/readiness"]);
    assert_eq!(rig.started(), [(Readiness, "c1".to_owned())], "there is room again");
}

#[test]
fn row_04_a_probe_that_becomes_enforced_while_it_waits_leaves_its_authors_line() {
    for is_same in [true, false] {
        let mut rig = Rig::new(32);
        let names: Vec<_> = (0..30).map(|number| format!("c{number}")).collect();
        let view = |name: &str| Container { name: name.into(), ..container("web", name, 0) };
        for name in &names {
            rig.accept(input(view(name), &[spec(Liveness)]));
        }
        let started: Vec<_> = rig.started().into_iter().map(|(_, name)| name).collect();
        let waiting = names.iter().find(|name| !started.contains(name)).unwrap();
        let threshold = if is_same { 3 } else { 5 };
        let ruled = enforced(ProbeSpec { failure_threshold: threshold, ..spec(Liveness) });
        rig.accept(Input::Container { view: Arc::new(view(waiting)), probes: vec![ruled] });
        assert_eq!(rig.started(), [(Liveness, waiting.clone())], "the same definition: {is_same}");
    }
}

#[test]
fn row_04_more_containers_than_a_pod_may_have_probes_leave_no_enforced_rule_without_a_place() {
    let mut rig = limited(2, 5);
    for number in 0..4 {
        let view = Arc::new(made("web", &format!("c{number}"), &format!("c{number}"), number));
        rig.accept(Input::Container {
            view,
            probes: vec![enforced(spec(Readiness)), planned(spec(Liveness))],
        });
    }
    let all = ["web/c0/readiness", "web/c1/readiness", "web/c2/readiness", "web/c3/readiness"];
    assert_eq!(able(&rig), all, "and annotations have what is left of two: none");
    for number in 0..4 {
        let id = format!("d{number}");
        rig.accept(Input::Container {
            view: Arc::new(made("more", &id, &id, number)),
            probes: vec![enforced(spec(Readiness))],
        });
    }
    assert_eq!(able(&rig).len(), 5, "the node's limit holds for all");
}

#[test]
fn row_04_after_a_restart_the_same_probes_run_in_whatever_order_the_runtime_lists_them() {
    let pods = [("a", 0), ("b", 1), ("c", 2)];
    let accept = |rig: &mut Rig, (pod, seconds): (&str, u64)| {
        rig.accept(input(made(pod, pod, "app", seconds), &[spec(Readiness)]));
    };
    let mut before = limited(32, 2);
    pods[1..].iter().for_each(|pod| accept(&mut before, *pod));
    let saved = before.roster.save(before.now);
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        for (saved, expected) in [
            (saved.clone(), ["b/app/readiness", "c/app/readiness"]),
            (Saved::default(), ["a/app/readiness", "b/app/readiness"]),
        ] {
            let mut rig = limited(32, 2);
            rig.roster.restore(saved);
            order.iter().for_each(|number| accept(&mut rig, pods[*number]));
            order.iter().for_each(|number| accept(&mut rig, pods[*number]));
            assert_eq!(able(&rig), expected, "{order:?}");
        }
    }
}

#[test]
fn row_10_of_hundreds_of_invalid_probes_a_pod_lists_as_many_as_it_may_have_and_counts_the_others() {
    let mut rig = limited(3, 10);
    let invalid = |kind| Planned {
        spec: Err(Invalid { reason: "wrong".to_owned(), handler: None }),
        ..planned(spec(kind))
    };
    for pod in ["a", "b"] {
        for number in 0..200 {
            let name = format!("c{number}");
            let view = Arc::new(made(pod, &format!("{pod}{number}"), &name, number));
            let probes = vec![invalid(Startup), planned(spec(Readiness)), invalid(Liveness)];
            rig.accept(Input::Container { view, probes });
        }
    }
    let statuses = rig.roster.statuses(rig.now);
    assert_eq!((statuses.len(), able(&rig).len()), (12, 6));
    let counted = statuses.iter().filter(|status| status.reason.contains("and 594 more of this pod"));
    assert_eq!(counted.count(), 2, "each pod's, on the last of its list");
    let of_containers: usize = rig.roster.containers(rig.now).iter().map(|status| status.probes.len()).sum();
    assert_eq!(of_containers, 12);
    (0..200).for_each(|number| rig.accept(Input::ContainerGone(format!("a{number}").into())));
    (0..200).for_each(|number| rig.accept(Input::ContainerGone(format!("b{number}").into())));
    assert_eq!(rig.roster.statuses(rig.now), []);
}

#[test]
fn probes_beyond_the_limits_are_invalid_until_there_is_room() {
    let mut rig = limited(2, 3);
    let specs = ProbeKind::ALL.map(spec);
    let beyond_pod = "the pod has more probes than prober.maxPerPod, which is 2: enforced rules come first, then other \
                      rules, then older containers";
    rig.accept(input(made("web", "c1", "app", 1), &specs));
    let status = rig.status(Liveness);
    assert_eq!((status.phase, status.handler), (ProbePhase::Invalid, Some("tcpSocket")));
    assert_eq!(status.reason, beyond_pod);
    rig.accept(input(made("b", "b1", "app", 2), &specs));
    let of_b = |rig: &Rig| -> Vec<_> {
        let statuses = rig.roster.statuses(rig.now).into_iter().filter(|status| status.pod.as_ref() == "b");
        statuses.map(|status| (status.key.kind, status.reason)).collect()
    };
    let beyond_node = "the node has more probes than prober.maxPerNode, which is 3: enforced rules come first, up to three \
                       quarters of that; then namespaces take turns, each with its rules first";
    let refused = [(Readiness, beyond_node.to_owned()), (Liveness, beyond_pod.to_owned())];
    assert_eq!(of_b(&rig)[1..], refused);
    rig.accept(input(made("b", "b1", "app", 2), &specs));
    assert_eq!(of_b(&rig)[1..], refused, "reported again, they are still too many");

    rig.accept(Input::ContainerGone("c1".into()));
    assert_eq!(of_b(&rig)[1].0, Readiness);
    assert_eq!(of_b(&rig)[1].1, "the startup probe has not succeeded yet", "there is room again");
    assert_eq!(of_b(&rig)[2].1, beyond_pod);
    rig.accept(input(made("b", "b1", "app", 2), &specs[..2]));
    rig.accept(input(made("b", "b1", "app", 2), &specs[..1]));
    rig.accept(input(made("b", "b1", "app", 2), &specs[1..]));
    assert!(of_b(&rig).iter().all(|(_, reason)| reason.is_empty()), "{:?}", of_b(&rig));
}

#[test]
fn containers_that_are_done_take_no_room() {
    let mut rig = limited(32, 2);
    let done = |pod: &str, id: &str| {
        let state = ContainerState::Exited { exit_code: Some(0) };
        Container { state, ..made(pod, id, "app", 0) }
    };
    for number in 0..5 {
        let (pod, id) = (format!("job-{number}"), format!("j{number}"));
        rig.accept(input(done(&pod, &id), &[spec(Readiness), spec(Liveness)]));
    }
    rig.accept(input(made("web", "c1", "app", 1), &[spec(Readiness), spec(Liveness)]));
    let phase = |rig: &Rig, pod: &str| -> Vec<ProbePhase> {
        let statuses = rig.roster.statuses(rig.now).into_iter();
        statuses.filter(|status| &*status.pod == pod).map(|status| status.phase).collect()
    };
    assert_eq!(phase(&rig, "web"), [ProbePhase::Probing; 2]);
    assert_eq!(phase(&rig, "job-4"), [ProbePhase::Waiting; 2], "they are listed all the same");
    rig.accept(input(made("b", "b1", "app", 2), &[spec(Readiness)]));
    assert_eq!(phase(&rig, "b"), [ProbePhase::Invalid]);
    rig.accept(input(done("web", "c1"), &[spec(Readiness), spec(Liveness)]));
    assert_eq!(phase(&rig, "b"), [ProbePhase::Probing], "there is room");
    let again = Container { attempt: 1, ..made("web", "c2", "app", 3) };
    rig.accept(input(again, &[spec(Readiness), spec(Liveness)]));
    let phases = phase(&rig, "web");
    assert_eq!(phases.iter().filter(|phase| **phase == ProbePhase::Invalid).count(), 1, "{phases:?}");
}

#[test]
fn the_same_probes_of_a_pod_run_in_whatever_order_its_containers_are_met() {
    let names = ["c0", "c1", "c2", "c3"];
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
        let mut rig = limited(3, 100);
        for number in order {
            let view = made("web", names[number], names[number], number as u64);
            rig.accept(input(view, &[spec(Readiness), spec(Liveness)]));
            rig.started();
        }
        assert_eq!(able(&rig), ["web/c0/readiness", "web/c0/liveness", "web/c1/readiness"], "{order:?}");
    }
}

/// A container that asks for a probe by an annotation of its pod, with what is planned for it.
fn annotated(pod: &str, id: &str, state: ContainerState, text: &str) -> Input {
    let view = Container { state, ..made(pod, id, "app", 0) };
    let annotations = [("liveness.criprobe.dev/app".to_owned(), text.to_owned())].into();
    let pod = Arc::new(Pod { annotations, ..Pod::clone(&view.pod) });
    let view = Arc::new(Container { pod, ..view });
    let probes = plan(&view, &Policy::default(), ImageFacts::default());
    Input::Container { view, probes }
}

#[test]
fn row_03_definitions_are_kept_of_probes_with_a_place_only_and_these_have_a_budget() {
    const MOST: u64 = 16 << 20;
    let words = (0..511).map(|number| format!("'{number:027}'")).collect::<Vec<_>>().join(",");
    let text = format!("{{exec: {{command: [{words}]}}}}");
    let done = ContainerState::Exited { exit_code: Some(0) };
    let mut rig = limited(32, 5_000);
    let run = |rig: &mut Rig, pods: std::ops::Range<usize>, state| {
        pods.for_each(|pod| rig.accept(annotated(&format!("p{pod}"), &format!("c{pod}"), state, &text)));
    };
    let held = |rig: &Rig| {
        let workers = rig.roster.entries.values().filter_map(|entry| entry.worker.as_ref());
        workers.map(|worker| Need::of(worker.spec(), Class::Author).bytes).collect::<Vec<_>>()
    };
    run(&mut rig, 0..600, ContainerState::Running);
    let each = held(&rig)[0];
    assert_eq!((each > 40_000, held(&rig).len() as u64), (true, MOST / each), "{each} bytes each");
    let reason = |rig: &Rig| {
        let refused = rig.roster.statuses(rig.now).into_iter().find(|one| one.phase == ProbePhase::Invalid);
        refused.map(|status| status.reason).unwrap_or_default()
    };
    assert!(reason(&rig).starts_with("the definitions of the probes of the node take "), "{}", reason(&rig));
    // Those that are done come after all others, and are listed with what they found as long as there is room.
    run(&mut rig, 0..400, done);
    assert_eq!(held(&rig).len() as u64, MOST / each);
    let waiting =
        rig.roster.statuses(rig.now).into_iter().filter(|one| one.phase == ProbePhase::Waiting).count();
    assert_eq!(waiting as u64, MOST / each - 200, "200 run");
    (0..400).for_each(|pod| rig.accept(Input::ContainerGone(format!("c{pod}").into())));
    assert_eq!((held(&rig).len(), reason(&rig)), (200, String::new()));
    let last = &rig.roster.entries[&key("p599", Liveness)];
    let Handler::Exec { command } = &last.worker.as_ref().unwrap().spec().handler else { panic!() };
    assert_eq!((command.len(), command[510].as_str()), (511, "000000000000000000000000510"), "read again");
}

#[test]
fn row_04_a_pods_attempts_per_second_are_limited_and_a_reload_changes_that_at_once() {
    let mut rig = limited(32, 5_000);
    let quick = |kind| ProbeSpec { period: SECOND / 10, ..spec(kind) };
    for number in 0..4 {
        let name = format!("c{number}");
        rig.accept(input(made("web", &name, &name, number), &ProbeKind::ALL.map(quick)));
    }
    rig.accept(input(made("other", "o", "app", 9), &[quick(Liveness)]));
    assert_eq!(able(&rig).len(), 5 + 1);
    let statuses = rig.roster.statuses(rig.now);
    let refused = statuses.iter().filter(|status| status.phase == ProbePhase::Invalid);
    let reported = "the probes of the pod ask for 120 attempts per second, more than prober.maxRatePerPod, which is 50: ";
    assert_eq!(refused.filter(|status| status.reason.starts_with(reported)).count(), 7);
    let with = |max_rate_per_pod| ProberSettings { max_rate_per_pod, ..ProberSettings::default() };
    rig.roster.set_limits(&with(120), rig.now);
    assert_eq!(able(&rig).len(), 12 + 1);
    rig.roster.set_limits(&with(9), rig.now);
    assert_eq!(able(&rig).len(), 0, "not one fits");
    let node = ProberSettings { max_rate_per_node: 20, ..with(120) };
    rig.roster.set_limits(&node, rig.now);
    assert_eq!(able(&rig).len(), 2);
}

/// The bytes that are remembered of what attempts said.
fn remembered(rig: &Rig) -> usize {
    let workers = rig.roster.entries.values().filter_map(|entry| entry.worker.as_ref());
    workers.map(|worker| worker.results().output_bytes()).sum()
}

#[test]
fn what_all_attempts_said_is_bounded_and_each_probe_keeps_its_share_of_it() {
    const MOST: usize = 6 << 20;
    let mut rig = Rig::new(5_000);
    let say = |rig: &mut Rig, pod: usize, output: String| {
        let outcome = AttemptOutcome { output: output.into(), ..outcome(AttemptResult::Failure) };
        rig.roster.finish(&key(&format!("p{pod}"), Readiness), Some(outcome), rig.now);
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

#[test]
fn an_act_is_kept_in_the_history_of_its_probe_also_over_the_next_container() {
    let mut rig = Rig::new(8);
    rig.accept(input(container("web", "c1", 0), &[spec(Liveness)]));
    let key = ProbeKey { pod: "web".into(), container: "app".into(), kind: Liveness };
    let text = BoundedText::from("restart after liveness failure");
    rig.accept(Input::ActNote { key: ProbeKey { kind: Startup, ..key.clone() }, text: text.clone() });
    rig.accept(Input::ActNote { key, text });
    rig.accept(input(container("web", "c2", 1), &[spec(Liveness)]));
    let history = rig.status(Liveness).history;
    let acts: Vec<_> = history.acts().iter().map(|act| (act.at, &*act.text)).collect();
    assert_eq!(acts, [(rig.now.wall, "restart after liveness failure")]);
}
