//! What is observed of calls as clients make them: the life of an observed probe, its bounds, and what never is one.

use std::time::SystemTime;

use proptest::prelude::*;

use super::*;
use crate::{
    ids::{ProbeKind, ProbeType},
    inventory::pod::Pod,
    observed::fixtures::{Start, begun, command, container, watch},
    results::Verdict,
};

mod recordings;
mod silences;

/// A call of `kubelet`: when it began, how long it took, how it ended.
type Row = (f64, f64, &'static str);

/// Ten seconds apart, from then on.
fn steady(from: f64, count: u32) -> Vec<Row> {
    (0..count).map(|n| (from + 10.0 * f64::from(n), 0.05, "exit 0")).collect()
}

fn feed(watch: &mut Watch, start: Start, command: &ExecCommand, calls: &[Row]) {
    for &call in calls {
        watch.ended(&start.call(call, command, "kubelet"), None);
    }
}

fn numbers(watch: &mut Watch, now: Instant) -> Vec<u32> {
    let numbers = watch.all_probes(now).into_iter().map(|probe| match probe.kind {
        ProbeType::Observed(number) => number,
        ProbeType::Kind(_) => 0,
    });
    let mut numbers: Vec<_> = numbers.collect();
    numbers.sort_unstable();
    numbers
}

impl Watch {
    fn all_probes(&mut self, now: Instant) -> Vec<ObservedStatus> {
        self.observed().iter().flat_map(|container| self.probes(&container.id, now)).collect()
    }
}

#[test]
fn a_probe_shows_who_runs_what_and_what_it_found() {
    let (start, mut watch, cat) = (Start::now(), watch("c1"), command("c1", &["cat", "/x"], 3));
    feed(&mut watch, start, &cat, &steady(0.0, 4));
    feed(&mut watch, start, &cat, &[(40.0, 0.1, "exit 1"), (50.0, 3.0, "deadline")]);
    let probe = watch.all_probes(start.after(53.5)).pop().unwrap();
    assert_eq!((&*probe.comm, probe.uid, probe.command.join(" ")), ("kubelet", 0, "cat /x".to_owned()));
    assert_eq!((probe.timeout, probe.period), (Duration::from_secs(3), Duration::from_secs(10)));
    assert!((probe.next_in.as_secs_f64() - 6.5).abs() < 0.01, "{:?}", probe.next_in);
    let results = &probe.results;
    assert_eq!((results.verdict(), results.run().count), (Some(Verdict::Failure), 2));
    assert_eq!((results.counts().success, results.counts().failure), (4, 2));
    let since = results.since().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(since.as_secs(), 1_795_168_840, "since the first failure");
    let last = results.last().unwrap();
    assert_eq!((last.exit_code, &*last.output, last.duration), (None, "it said why", Duration::from_secs(3)));
    assert_eq!((results.history().attempts().len(), results.history().changes().len()), (6, 2));
    let overdue = watch.all_probes(start.after(91.0)).pop().unwrap().next_in;
    assert!((overdue.as_secs_f64() - 9.0).abs() < 0.01, "{overdue:?}");
}

#[test]
fn off_it_forgets_all_probes_and_finds_none_and_on_again_it_knows_the_containers() {
    let (start, mut watch, cat) = (Start::now(), watch("c1"), command("c1", &["cat"], 1));
    feed(&mut watch, start, &cat, &steady(0.0, 4));
    assert_eq!(numbers(&mut watch, start.after(31.0)), [1]);
    watch.enable(false);
    assert_eq!(numbers(&mut watch, start.after(31.0)), [0; 0]);
    feed(&mut watch, start, &cat, &steady(40.0, 4));
    watch.changed(&Change::Container(Arc::new(container("c2", &[]))));
    watch.enable(true);
    assert_eq!(numbers(&mut watch, start.after(71.0)), [0; 0], "calls meanwhile do not count");
    let dog = command("c2", &["dog"], 1);
    feed(&mut watch, start, &cat, &steady(80.0, 4));
    feed(&mut watch, start, &dog, &steady(80.0, 4));
    assert_eq!(numbers(&mut watch, start.after(111.0)), [1, 1]);
    assert_eq!(watch.groups, 2);
}

#[test]
fn an_error_leaves_the_state_and_is_told_when_no_try_can_follow() {
    let (start, mut watch, cat) = (Start::now(), watch("c1"), command("c1", &["cat"], 1));
    feed(&mut watch, start, &cat, &steady(0.0, 4));
    feed(&mut watch, start, &cat, &[(40.0, 0.1, "error NotFound")]);
    assert_eq!(watch.all_probes(start.after(40.5))[0].results.counts().error, 0);
    let probe = watch.all_probes(start.after(41.2)).pop().unwrap();
    assert_eq!((probe.results.verdict(), probe.results.counts().error), (Some(Verdict::Success), 1));
    assert_eq!(probe.reason(), "rpc error: code = NotFound desc = it said why");
    feed(&mut watch, start, &cat, &[(50.0, 0.1, "exit 0")]);
    assert_eq!(watch.all_probes(start.after(51.0))[0].reason(), "");
}

#[test]
fn callers_commands_and_timeouts_are_kept_apart() {
    let (start, mut watch) = (Start::now(), watch("c1"));
    let commands = [command("c1", &["a"], 1), command("c1", &["a"], 2), command("c1", &["b"], 1)];
    for (began, ..) in steady(0.0, 4) {
        for (at, command) in commands.iter().enumerate() {
            watch.ended(&start.call((began + at as f64, 0.05, "exit 0"), command, "kubelet"), None);
            watch.ended(&start.call((began + at as f64 + 0.2, 0.05, "exit 0"), command, "crictl"), None);
        }
    }
    assert_eq!(numbers(&mut watch, start.after(35.0)), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn five_missed_periods_end_a_probe_and_its_number_is_free_again() {
    let (start, mut watch, a, b) =
        (Start::now(), watch("c1"), command("c1", &["a"], 1), command("c1", &["b"], 1));
    feed(&mut watch, start, &a, &steady(0.0, 4));
    feed(&mut watch, start, &b, &steady(3.0, 12));
    assert_eq!(numbers(&mut watch, start.after(79.0)), [1, 2]);
    assert_eq!(numbers(&mut watch, start.after(84.0)), [2]);
    feed(&mut watch, start, &b, &steady(123.0, 4));
    feed(&mut watch, start, &a, &steady(121.0, 4));
    assert_eq!(numbers(&mut watch, start.after(154.0)), [1, 2]);
    let anew =
        watch.all_probes(start.after(154.0)).into_iter().find(|probe| probe.kind == ProbeType::Observed(1));
    assert_eq!(anew.unwrap().results.counts().success, 4, "it is another one, with a history of its own");
}

#[test]
fn a_call_that_is_under_way_is_not_missed() {
    let (start, mut watch, slow) = (Start::now(), watch("c1"), command("c1", &["a"], 100));
    feed(&mut watch, start, &slow, &steady(0.0, 4));
    watch.begun(&begun(start.after(40.0), &slow, "kubelet"));
    assert_eq!(numbers(&mut watch, start.after(139.0)), [1]);
    feed(&mut watch, start, &slow, &[(40.0, 100.0, "deadline"), (140.0, 0.05, "exit 0")]);
    let probe = watch.all_probes(start.after(141.0)).pop().unwrap();
    assert_eq!((probe.results.counts().success, probe.results.counts().failure), (5, 1));
    watch.begun(&begun(start.after(150.0), &slow, "kubelet"));
    assert_eq!(numbers(&mut watch, start.after(150.0 + 100.0 + 121.0)), [0; 0], "its end was missed");
}

#[test]
fn a_probe_goes_with_its_container_and_another_one_starts_anew() {
    let (start, cat) = (Start::now(), command("c1", &["cat"], 1));
    let exited = Container { state: ContainerState::Exited { exit_code: None }, ..container("c1", &[]) };
    for change in [Change::ContainerGone("c1".into()), Change::Container(Arc::new(exited))] {
        let mut watch = watch("c1");
        feed(&mut watch, start, &cat, &steady(0.0, 5));
        assert_eq!(numbers(&mut watch, start.after(41.0)), [1]);
        watch.changed(&change);
        assert_eq!((numbers(&mut watch, start.after(41.0)), watch.groups), (Vec::new(), 0), "{change:?}");
        feed(&mut watch, start, &cat, &steady(50.0, 5));
        assert_eq!(watch.groups, 0, "nothing is kept of calls on what is not there");
    }
    let (mut watch, next) = (watch("c1"), command("c2", &["cat"], 1));
    feed(&mut watch, start, &cat, &steady(0.0, 5));
    watch.changed(&Change::Container(Arc::new(Container { attempt: 1, ..container("c2", &[]) })));
    watch.changed(&Change::ContainerGone("c1".into()));
    feed(&mut watch, start, &next, &steady(50.0, 4));
    let probe = watch.all_probes(start.after(81.0)).pop().unwrap();
    assert_eq!(
        (probe.container.attempt, probe.kind, probe.results.counts().success),
        (1, ProbeType::Observed(1), 4)
    );
}

#[test]
fn a_rhythm_that_has_become_slower_is_another_probe() {
    let (start, mut watch, cat) = (Start::now(), watch("c1"), command("c1", &["cat"], 1));
    let calls: Vec<Row> = (0..5).map(|n| (f64::from(n), 0.05, "exit 1")).collect();
    feed(&mut watch, start, &cat, &calls);
    let slower: Vec<Row> = (0..4).map(|n| (6.0 + 2.0 * f64::from(n), 0.05, "exit 0")).collect();
    feed(&mut watch, start, &cat, &slower);
    let probes = watch.all_probes(start.after(12.1));
    assert_eq!(probes.len(), 1);
    assert_eq!((probes[0].period, probes[0].results.counts().failure), (Duration::from_secs(2), 0));
}

#[test]
fn the_written_pod_tells_what_a_probe_is() {
    let written =
        r#"{"spec": {"containers": [{"name": "app", "livenessProbe": {"exec": {"command": ["cat"]}}}]}}"#;
    let annotation = ("kubectl.kubernetes.io/last-applied-configuration", written);
    let (start, cat) = (Start::now(), command("c1", &["cat"], 1));
    let mut applied = Watch::default();
    applied.changed(&Change::Container(Arc::new(container("c1", &[annotation]))));
    feed(&mut applied, start, &cat, &steady(0.0, 4));
    let text = applied.next_text(start.after(31.0)).unwrap();
    applied.learn_text(text.read());
    assert_eq!(applied.all_probes(start.after(31.0))[0].likely, Some(ProbeKind::Liveness));

    let mut static_pod = Watch::default();
    static_pod
        .changed(&Change::Container(Arc::new(container("c1", &[("kubernetes.io/config.source", "file")]))));
    let calls = steady(0.0, 4).into_iter();
    let asked: Vec<bool> =
        calls.map(|call| static_pod.ended(&start.call(call, &cat, "kubelet"), None).is_some()).collect();
    assert_eq!(asked, [false, false, false, true], "only when there is something to name");
    let awaited = static_pod.static_pods();
    assert_eq!(
        awaited.iter().map(|pod| (&*pod.namespace, &*pod.name)).collect::<Vec<_>>(),
        [("shop", "web")]
    );
    assert_eq!(static_pod.all_probes(start.after(31.0))[0].likely, None);
    static_pod.learn_file(&awaited[0].uid, Some(Arc::new(Written::read(written))));
    assert_eq!(static_pod.all_probes(start.after(31.0))[0].likely, Some(ProbeKind::Liveness));
    assert!(static_pod.static_pods().is_empty());
}

#[test]
fn row_16_the_manifest_of_a_pod_of_300_containers_is_read_once_also_when_they_are_restarted() {
    let probe =
        |number| format!(r#"{{"name": "n{number}", "livenessProbe": {{"exec": {{"command": ["cat"]}}}}}}"#);
    let probes: Vec<_> = (0..300).map(probe).collect();
    let written = format!(r#"{{"spec": {{"containers": [{}]}}}}"#, probes.join(","));
    let annotation = [("kubectl.kubernetes.io/last-applied-configuration", &*written)];
    let (start, mut watch, mut texts) = (Start::now(), Watch::default(), 0);
    for attempt in 0..3 {
        let began = 100.0 * f64::from(attempt);
        for number in 0..300 {
            let id = format!("c{number}-{attempt}");
            let view =
                Container { name: format!("n{number}").into(), attempt, ..container(&id, &annotation) };
            // As after each list of the runtime, its pod is another value.
            watch.changed(&Change::Container(Arc::new(view)));
            feed(&mut watch, start, &command(&id, &["cat"], 1), &steady(began, 4));
            while let Some(text) = watch.next_text(start.after(began)) {
                texts += 1;
                watch.learn_text(text.read());
            }
        }
        let probes = watch.all_probes(start.after(began + 31.0));
        assert_eq!(probes.len(), 300);
        assert!(probes.iter().all(|probe| probe.likely == Some(ProbeKind::Liveness)));
        watch.changed(&Change::Listed(Arc::default()));
    }
    assert_eq!(texts, 1);
}

#[test]
fn a_client_that_runs_another_command_each_time_takes_the_room_of_a_few() {
    let (start, mut watch, cat) = (Start::now(), watch("c1"), command("c1", &["cat"], 1));
    feed(&mut watch, start, &cat, &steady(0.0, 5));
    for n in 0..1_000 {
        let other = command("c1", &["echo", &n.to_string()], 1);
        feed(&mut watch, start, &other, &[(41.0 + f64::from(n) / 1_000.0, 0.01, "exit 0")]);
    }
    assert_eq!((watch.groups, numbers(&mut watch, start.after(45.0))), (MOST_GROUPS, vec![1]));
    let long = command("c1", &["x".repeat(LONGEST_COMMAND).as_str()], 1);
    feed(&mut watch, start, &long, &steady(45.0, 5));
    assert_eq!(numbers(&mut watch, start.after(86.0)), [1], "too long");
    feed(&mut watch, start, &cat, &steady(50.0, 130));
    assert_eq!(watch.groups, 1, "what is silent is forgotten");
}

#[test]
fn there_is_room_for_so_many_commands_in_all() {
    let (start, mut watch) = (Start::now(), Watch::default());
    let containers = MOST_GROUPS_IN_ALL / MOST_GROUPS + 4;
    for at in 0..containers {
        let id = format!("c{at}");
        watch.changed(&Change::Container(Arc::new(container(&id, &[]))));
        for n in 0..MOST_GROUPS {
            let command = command(&id, &["echo", &n.to_string()], 1);
            feed(&mut watch, start, &command, &[(at as f64 / 100.0, 0.0, "exit 0")]);
        }
    }
    assert_eq!(watch.groups, MOST_GROUPS_IN_ALL);
    assert_eq!(watch.displaced(), 4 * MOST_GROUPS as u64, "those that were not called for longest");
    watch.changed(&Change::ContainerGone(format!("c{}", containers - 1).into()));
    assert_eq!(watch.groups, MOST_GROUPS_IN_ALL - MOST_GROUPS);
}

/// A watch of these containers, each of its own pod if it has none.
fn watch_pods(pods: &[(&str, &str, u32)]) -> Watch {
    let mut watch = Watch::default();
    for (namespace, pod, containers) in pods {
        for number in 0..*containers {
            let view = container(&format!("{pod}-{number}"), &[]);
            let of = Pod { uid: (*pod).into(), namespace: (*namespace).into(), ..Pod::clone(&view.pod) };
            watch.changed(&Change::Container(Arc::new(Container { pod: Arc::new(of), ..view })));
        }
    }
    watch
}

/// Calls so many commands of each of so many containers of a pod, so often.
fn call_all(watch: &mut Watch, start: Start, pod: &str, (containers, commands): (u32, u32), rows: &[Row]) {
    for number in 0..containers {
        for text in 0..commands {
            let id = format!("{pod}-{number}");
            feed(watch, start, &command(&id, &["check", &text.to_string()], 1), rows);
        }
    }
}

fn count_of(watch: &mut Watch, now: Instant, namespace: &str) -> usize {
    watch.all_probes(now).into_iter().filter(|probe| &*probe.container.pod.namespace == namespace).count()
}

#[test]
fn row_04_commands_that_fill_the_table_leave_room_for_the_probes_of_other_pods() {
    let (start, once) = (Start::now(), [(0.0, 0.05, "exit 0")]);
    for rows in [&once[..], &steady(0.0, 4)] {
        let pods = [("evil", "e", 64), ("evil", "f", 64), ("evil", "web", 3), ("shop", "s", 3)];
        let mut watch = watch_pods(&pods);
        call_all(&mut watch, start, "e", (64, 32), rows);
        assert_eq!(watch.groups, MOST_GROUPS_IN_ALL);
        for (began, ..) in steady(1.0, 4) {
            for pod in ["s", "web"] {
                call_all(&mut watch, start, pod, (3, 1), &[(began, 0.05, "exit 0")]);
            }
            call_all(&mut watch, start, "f", (64, 32), &[(began, 0.05, "exit 0")]);
        }
        assert_eq!(watch.groups, MOST_GROUPS_IN_ALL);
        assert_eq!(count_of(&mut watch, start.after(32.0), "shop"), 3);
        let of_web = |probe: &ObservedStatus| probe.container.pod.uid.as_str() == "web";
        assert_eq!(watch.all_probes(start.after(32.0)).iter().filter(|probe| of_web(probe)).count(), 3);
        assert!(watch.displaced() >= 6, "{}", watch.displaced());
    }
}

#[test]
fn row_04_a_pod_with_many_commands_displaces_no_probe_of_a_pod_with_few() {
    let (start, mut watch) = (Start::now(), watch_pods(&[("shop", "s", 20), ("evil", "e", 80)]));
    call_all(&mut watch, start, "s", (20, 1), &steady(0.0, 4));
    call_all(&mut watch, start, "e", (80, 32), &steady(0.0, 4));
    assert_eq!(count_of(&mut watch, start.after(31.0), "shop"), 20);
    assert_eq!((watch.groups, watch.displaced()), (MOST_GROUPS_IN_ALL, 0), "all that it has are probes");
    let now = start.after(31.0);
    assert_eq!(count_of(&mut watch, now, "evil"), MOST_GROUPS_IN_ALL - 20);
}

/// Calls with any times, durations and ends.
fn any_calls() -> impl Strategy<Value = Vec<Row>> {
    let end =
        prop::sample::select(vec!["exit 0", "exit 1", "deadline", "error NotFound", "cancelled", "lost"]);
    let took = prop_oneof![Just(0.0), 0.0_f64..0.1, 0.0_f64..20.0];
    let wait = prop_oneof![Just(0.0), Just(1.0), 0.0_f64..0.2, 0.0_f64..20.0];
    prop::collection::vec((wait, took, end), 0..200).prop_map(|rows| {
        let mut at = 0.0;
        rows.into_iter()
            .map(|(wait, took, end)| {
                at += wait;
                (at, took, end)
            })
            .collect()
    })
}

/// Three workers with one command, each with a period, a phase and durations of its own.
fn workers() -> impl Strategy<Value = Vec<(f64, f64, f64)>> {
    (Just([2.0, 5.0, 11.0]), prop::array::uniform3((0.0_f64..1.0, 0.01_f64..0.9))).prop_map(
        |(periods, rest)| {
            periods.into_iter().zip(rest).map(|(p, (phase, took))| (p, phase * p, took)).collect()
        },
    )
}

proptest! {
    #[test]
    fn any_calls_are_survived_within_bounds(calls in any_calls()) {
        let (start, mut watch, cat) = (Start::now(), watch("c1"), command("c1", &["cat"], 1));
        let mut now = start.after(0.0);
        for &(began, took, end) in &calls {
            watch.begun(&begun(start.after(began), &cat, "kubelet"));
            watch.ended(&start.call((began, took, end), &cat, "kubelet"), None);
            now = now.max(start.after(began + took));
            let probes = watch.all_probes(now);
            prop_assert!(probes.len() <= 3 && watch.groups == 1);
            for probe in probes {
                prop_assert!(probe.period >= Duration::from_millis(50), "{:?}", probe.period);
                prop_assert!(probe.next_in <= probe.period * 2, "{:?}", probe.next_in);
            }
        }
        prop_assert!(watch.all_probes(now + Duration::from_secs(20_000)).is_empty());
    }

    /// A call is reported when it ends: one that began earlier may be reported later.
    #[test]
    fn the_order_in_which_calls_end_does_not_matter(
        workers in workers(),
        delays in prop::collection::vec(0.0_f64..0.9, 60),
    ) {
        let (start, cat) = (Start::now(), command("c1", &["cat"], 5));
        let calls = workers.iter().flat_map(|&(period, phase, took)| {
            (0..(60.0 / period) as u32).map(move |n| (phase + f64::from(n) * period, took, "exit 0"))
        });
        let calls: Vec<Row> = calls.collect();
        let observe = |delay: &dyn Fn(usize) -> f64| {
            let mut watch = watch("c1");
            let reported = calls.iter().enumerate().map(|(at, call)| (call.0 + delay(at), Some(*call)));
            let mut events: Vec<_> = calls.iter().map(|call| (call.0, None)).chain(reported).collect();
            events.sort_by(|(a, _), (b, _)| a.total_cmp(b));
            for (at, call) in events {
                match call {
                    None => watch.begun(&begun(start.after(at), &cat, "kubelet")),
                    Some(call) => {
                        watch.ended(&start.call(call, &cat, "kubelet"), None);
                    }
                }
            }
            let probes = watch.all_probes(start.after(61.0)).into_iter();
            let mut found: Vec<_> = probes.map(|probe| (probe.kind, probe.period, probe.results)).collect();
            found.sort_by_key(|(kind, ..)| *kind);
            found
        };
        let in_order = observe(&|_| 0.0);
        prop_assert!(in_order.len() >= 2, "{:?}", in_order);
        prop_assert_eq!(observe(&|at| delays[at % delays.len()]), in_order);
    }
}
