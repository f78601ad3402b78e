//! One story a test: what was learnt in what order, and what came of it.

use cri::ContainerState::{ContainerCreated, ContainerExited, ContainerRunning, ContainerUnknown};

use super::{super::super::pod::PodNetwork, *};

/// A running container `c` in the pod `s`, all of it reported at 0, nothing left to ask.
fn running() -> Rig {
    let mut rig = Rig::new();
    rig.apply(0, sandboxes(["s"]));
    rig.apply(0, containers([("c", "s", ContainerRunning)]));
    rig.apply(0, pod("s", "10.0.0.1"));
    rig.apply(0, status("c", ContainerRunning, 5, 0));
    assert_eq!(rig.changes(), ["c running"]);
    rig.lookups();
    rig
}

#[test]
fn a_list_sent_before_a_creation_was_seen_does_not_remove_it() {
    let mut rig = Rig::new();
    rig.apply(10, run("s"));
    rig.apply(20, create("c", "s"));
    rig.apply(5, sandboxes([]));
    rig.apply(15, containers([]));
    assert_eq!(rig.changes(), ["c created"]);
    rig.apply(20, containers([]));
    assert_eq!(rig.containers(), ["c created"], "a list of the same moment says nothing either");
}

#[test]
fn a_list_sent_after_the_last_sight_of_a_container_removes_it() {
    let mut rig = running();
    rig.apply(10, containers([]));
    assert_eq!(rig.changes(), ["c gone"]);
}

#[test]
fn whatever_was_seen_of_a_container_protects_it_from_older_lists() {
    let sights: [fn() -> Fact; 4] = [
        || started("c"),
        || exited("c", 0),
        || status("c", ContainerRunning, 5, 0),
        || containers([("c", "s", ContainerRunning)]),
    ];
    for sight in sights {
        let mut rig = running();
        rig.apply(20, sight());
        rig.apply(15, containers([]));
        assert_eq!(rig.containers().len(), 1, "{:?}", sight());
    }
}

#[test]
fn what_is_gone_keeps_its_name_for_calls_about_it() {
    let names = |rig: &Rig| {
        let (container, pod) = rig.model.whereabouts(&"c".into()).unwrap();
        (container.to_string(), pod.name.to_string(), rig.model.pod(&"s".into()).unwrap().name.to_string())
    };
    for gone in [Fact::SandboxRemoved("s".into()), Fact::ContainerRemoved("c".into())] {
        let mut rig = running();
        let before = names(&rig);
        rig.apply(20, gone);
        rig.apply(30, Fact::SandboxRemoved("s".into()));
        assert_eq!(names(&rig), before);
        // Two minutes later.
        rig.apply(150_031, sandboxes([]));
        assert_eq!(rig.model.whereabouts(&"c".into()), None);
        assert_eq!(rig.model.pod(&"s".into()), None);
    }
}

#[test]
fn a_list_sent_before_a_removal_was_seen_does_not_bring_it_back() {
    let mut rig = running();
    rig.apply(20, Fact::ContainerRemoved("c".into()));
    rig.apply(30, Fact::SandboxRemoved("s".into()));
    rig.apply(10, sandboxes(["s"]));
    rig.apply(10, containers([("c", "s", ContainerRunning)]));
    rig.apply(10, status("c", ContainerRunning, 5, 0));
    rig.apply(10, pod("s", "10.0.0.1"));
    assert_eq!((rig.changes(), rig.containers()), (vec!["c gone".to_owned()], vec![]));
    assert!(rig.model.sandboxes.is_empty());
    assert_eq!(rig.lookups(), [""; 0]);
}

#[test]
fn an_older_removal_does_not_forget_a_newer_one() {
    let mut rig = running();
    rig.apply(30, Fact::ContainerRemoved("c".into()));
    rig.apply(10, Fact::NotFound("c".into()));
    rig.apply(5, Fact::ContainerRemoved("c".into()));
    rig.apply(20, containers([("c", "s", ContainerRunning)]));
    assert_eq!(rig.containers(), [""; 0]);
}

#[test]
fn a_removal_that_is_seen_before_the_creation_wins() {
    let mut rig = Rig::new();
    rig.apply(0, run("s"));
    rig.apply(20, Fact::ContainerRemoved("c".into()));
    rig.apply(10, create("c", "s"));
    rig.apply(20, Fact::SandboxRemoved("s".into()));
    rig.apply(15, create("d", "s"));
    rig.apply(15, containers([("e", "s", ContainerRunning)]));
    assert_eq!((rig.changes(), rig.containers()), (vec![], vec![]));
}

#[test]
fn what_is_older_than_the_last_list_and_was_not_on_it_is_gone_or_asked_for() {
    let mut rig = Rig::new();
    rig.apply(20, sandboxes([]));
    rig.apply(20, containers([]));
    rig.apply(10, run("s"));
    rig.apply(10, create("c", "s"));
    assert_eq!((rig.model.census(), rig.lookups()), (Census::default(), vec![]));
    rig.apply(10, pod("t", "10.0.0.1"));
    assert_eq!(rig.lookups(), ["what is t"], "it may have come after the list was made");
    rig.apply(30, pod("t", "10.0.0.1"));
    assert_eq!(rig.model.census().pods, 1);
}

#[test]
fn a_containers_life_goes_one_way() {
    let reports: [fn() -> Fact; 5] = [
        || create("c", "s"),
        || started("c"),
        || containers([("c", "s", ContainerCreated)]),
        || containers([("c", "s", ContainerRunning)]),
        || status("c", ContainerRunning, 5, 0),
    ];
    for report in reports {
        for at in [10, 30] {
            let mut rig = running();
            rig.apply(20, exited("c", 3));
            rig.apply(at, report());
            assert_eq!(rig.containers(), ["c exited 3"], "{:?} at {at}", report());
        }
    }
}

#[test]
fn an_exit_code_that_comes_later_completes_what_was_told() {
    let mut rig = running();
    rig.apply(20, Fact::ContainerStopped("c".into()));
    assert_eq!((rig.changes(), rig.lookups()), (vec!["c exited".to_owned()], vec!["container c".to_owned()]));
    rig.apply(25, status("c", ContainerExited, 5, 137));
    assert_eq!((rig.changes(), rig.lookups()), (vec!["c exited 137".to_owned()], vec![]));
}

#[test]
fn what_the_runtime_could_not_tell_it_tells_again() {
    let mut rig = running();
    rig.apply(20, containers([("c", "s", ContainerUnknown)]));
    assert_eq!(rig.changes(), ["c unknown"]);
    rig.apply(10, containers([("c", "s", ContainerRunning)]));
    assert_eq!(rig.containers(), ["c unknown"], "an older list knows no better");
    rig.apply(30, containers([("c", "s", ContainerRunning)]));
    assert_eq!(rig.changes(), ["c running"]);
    rig.apply(35, exited("c", 0));
    rig.apply(40, containers([("c", "s", ContainerUnknown)]));
    assert_eq!(rig.containers(), ["c exited 0"]);
}

#[test]
fn an_id_that_nobody_explained_is_looked_up() {
    let facts: [fn() -> Fact; 7] = [
        || Fact::Mentioned("c".into()),
        || started("c"),
        || exited("c", 0),
        || Fact::ContainerStopped("c".into()),
        || Fact::SandboxStopped("c".into()),
        || Fact::ContainerExited { id: "c".into(), exit_code: None },
        || Fact::ContainerCreated { id: "c".into(), request: Arc::default() },
    ];
    for fact in facts {
        let mut rig = Rig::new();
        rig.apply(0, fact());
        assert_eq!(rig.lookups(), ["what is c"], "{:?}", fact());
        rig.apply(1, status("c", ContainerRunning, 5, 0));
        assert_eq!(rig.lookups(), ["list"], "only the list shows its sandbox");
    }
}

#[test]
fn what_is_known_or_removed_is_not_looked_up() {
    let mut rig = running();
    rig.apply(20, Fact::ContainerRemoved("x".into()));
    for id in ["c", "s", "x", ""] {
        rig.apply(10, Fact::Mentioned(id.into()));
    }
    assert_eq!(rig.lookups(), [""; 0]);
}

#[test]
fn a_container_is_told_when_its_pod_is_known_whichever_comes_first() {
    let mut rig = Rig::new();
    rig.apply(10, create("c", "s"));
    assert_eq!((rig.changes(), rig.lookups()), (vec![], vec!["sandbox s".to_owned()]));
    rig.apply(11, pod("s", "10.0.0.1"));
    assert_eq!(rig.changes(), ["c created"]);
    let pod = rig.model.whereabouts(&"c".into()).unwrap().1;
    assert_eq!((&*pod.name, pod.uid.as_str()), ("s", "uid-s"));
}

#[test]
fn a_pod_that_could_not_be_looked_up_is_asked_for_with_the_next_list() {
    let mut rig = Rig::new();
    rig.apply(10, containers([("c", "s", ContainerCreated)]));
    rig.lookups();
    rig.apply(20, containers([("c", "s", ContainerCreated)]));
    assert_eq!(rig.lookups(), ["sandbox s"]);
}

#[test]
fn stopping_a_pod_ends_its_containers_that_ran_and_leaves_those_that_did_not() {
    let mut rig = running();
    rig.apply(5, create("d", "s"));
    rig.apply(20, stop_pod(1, "s"));
    rig.apply(30, Fact::SandboxStopped("s".into()));
    assert_eq!(rig.changes(), ["d created", "pod s stopping", "c exited", "d created"]);
    assert_eq!(rig.lookups(), ["container c", "container d"]);
    assert!(!rig.pod("s").is_ready);
    rig.apply(40, Fact::SandboxRemoved("s".into()));
    assert_eq!((rig.changes().len(), rig.model.census()), (2, Census::default()));
}

#[test]
fn stopping_a_container_that_never_ran_does_not_keep_it_from_being_started() {
    let mut rig = Rig::new();
    rig.apply(0, run("s"));
    rig.apply(1, create("c", "s"));
    rig.apply(2, Fact::ContainerStopped("c".into()));
    assert_eq!(rig.containers(), ["c created"]);
    rig.apply(3, started("c"));
    assert_eq!(rig.containers(), ["c running"]);
}

#[test]
fn an_end_that_was_only_concluded_from_a_stop_is_taken_back_by_a_newer_report() {
    let mut rig = running();
    rig.apply(20, Fact::ContainerStopped("c".into()));
    rig.apply(15, containers([("c", "s", ContainerRunning)]));
    rig.apply(15, status("c", ContainerRunning, 5, 0));
    rig.apply(30, started("c"));
    assert_eq!(rig.containers(), ["c exited"]);
    rig.apply(25, status("c", ContainerRunning, 5, 0));
    assert_eq!(rig.containers(), ["c running"]);
    rig.apply(20, Fact::ContainerStopped("c".into()));
    assert_eq!(rig.containers(), ["c running"], "a stop says nothing of what was seen since");
}

#[test]
fn a_pod_whose_own_process_died_is_not_ready_and_its_containers_run_on() {
    let mut rig = running();
    rig.apply(20, Fact::SandboxExited("s".into()));
    assert_eq!(
        (rig.changes(), rig.containers()),
        (vec!["c running".to_owned()], vec!["c running".to_owned()])
    );
    rig.apply(10, sandboxes(["s"]));
    assert!(!rig.pod("s").is_ready, "an older list does not raise it");
    rig.apply(30, exited("c", 0));
    assert_eq!(rig.changes(), ["c exited 0"]);
}

#[test]
fn a_list_without_its_pod_removes_a_container_with_it() {
    let mut rig = running();
    rig.apply(20, sandboxes([]));
    assert_eq!(rig.changes(), ["c gone"]);
    rig.apply(15, containers([("c", "s", ContainerRunning)]));
    assert_eq!(rig.containers(), [""; 0]);
}

#[test]
fn a_view_is_told_only_when_it_changed() {
    let mut rig = running();
    for at in [10, 20, 30] {
        rig.apply(at, sandboxes(["s"]));
        rig.apply(at, containers([("c", "s", ContainerRunning)]));
        rig.apply(at, status("c", ContainerRunning, 5, 0));
        rig.apply(at, pod("s", "10.0.0.1"));
        assert_eq!((rig.changes(), rig.lookups()), (vec![], vec![]));
    }
    rig.apply(40, pod("s", "10.0.0.2"));
    assert_eq!(rig.changes(), ["c running"]);
}

#[test]
fn a_container_is_told_to_run_only_when_its_start_is_known() {
    let mut rig = Rig::new();
    rig.apply(0, pod("s", "10.0.0.1"));
    rig.apply(10, create("c", "s"));
    assert_eq!(rig.changes(), ["c created"]);
    rig.apply(20, started("c"));
    assert_eq!((rig.changes(), rig.lookups()), (vec![], vec!["container c".to_owned()]));
    rig.apply(21, status("c", ContainerRunning, 20, 0));
    assert_eq!(rig.changes(), ["c running"]);
}

#[test]
fn a_status_that_was_not_to_be_had_is_asked_for_with_each_list() {
    let mut rig = Rig::new();
    rig.apply(0, pod("s", "10.0.0.1"));
    for at in [10, 20, 30] {
        rig.apply(at, containers([("c", "s", ContainerRunning)]));
        assert_eq!((rig.changes(), rig.lookups()), (vec![], vec!["container c".to_owned()]));
    }
    rig.apply(31, status("c", ContainerRunning, 20, 0));
    assert_eq!(rig.changes(), ["c running"]);
    rig.apply(40, Fact::ContainerStopped("c".into()));
    rig.lookups();
    rig.apply(50, containers([("c", "s", ContainerExited)]));
    assert_eq!(rig.lookups(), ["container c"], "its exit code is still wanted");
}

#[test]
fn a_status_that_lags_behind_a_start_is_asked_for_again_twenty_times_until_the_next_list() {
    let mut rig = Rig::new();
    rig.apply(0, pod("s", "10.0.0.1"));
    rig.apply(10, create("c", "s"));
    rig.apply(20, started("c"));
    assert_eq!(rig.lookups(), ["container c"]);
    for again in 0..20 {
        rig.apply(21 + again, status("c", ContainerCreated, 0, 0));
        assert_eq!(rig.lookups(), ["again c"]);
    }
    rig.apply(41, status("c", ContainerCreated, 0, 0));
    assert_eq!((rig.lookups(), rig.containers()), (vec![], vec!["c running".to_owned()]));
    rig.apply(42, started("c"));
    assert_eq!(rig.lookups(), ["container c"], "the same report again asks again");
    rig.apply(50, containers([("c", "s", ContainerRunning)]));
    assert_eq!(rig.lookups(), ["container c"]);
}

#[test]
fn an_adopted_container_is_told_with_its_pod_and_start() {
    let mut rig = Rig::new();
    rig.apply(0, sandboxes(["s"]));
    rig.apply(0, containers([("c", "s", ContainerRunning)]));
    assert_eq!(
        (rig.changes(), rig.lookups()),
        (vec![], vec!["sandbox s".to_owned(), "container c".to_owned()])
    );
    rig.apply(1, pod("s", "10.0.0.1"));
    rig.apply(1, status("c", ContainerRunning, 5, 0));
    let [Change::Container(view)] = &rig.model.take_changes()[..] else { panic!("not reported once") };
    assert!(view.started_at.is_some() && view.created_at.is_some());
    assert_eq!(view.pod.network, PodNetwork::Pod(vec!["10.0.0.1".parse().unwrap()]));
}

#[test]
fn two_sandboxes_of_one_pod_are_two() {
    let mut rig = Rig::new();
    for (id, attempt) in [("s0", 0), ("s1", 1)] {
        let metadata =
            cri::PodSandboxMetadata { name: "web".into(), uid: "u".into(), namespace: "d".into(), attempt };
        let config = cri::PodSandboxConfig { metadata: Some(metadata), ..Default::default() };
        rig.apply(0, Fact::SandboxRun { id: id.into(), config: Arc::new(config.into()) });
    }
    rig.apply(1, create("c0", "s0"));
    rig.apply(2, create("c1", "s1"));
    rig.changes();
    rig.apply(3, Fact::SandboxRemoved("s0".into()));
    assert_eq!(
        (rig.changes(), rig.containers()),
        (vec!["c0 gone".to_owned()], vec!["c1 created".to_owned()])
    );
    assert_eq!(rig.model.whereabouts(&"c1".into()).unwrap().1.attempt, 1);
}

#[test]
fn a_pod_in_the_nodes_network_has_no_address_to_ask_for() {
    let mut rig = Rig::new();
    let options = cri::NamespaceOption { network: cri::NamespaceMode::Node.into(), ..Default::default() };
    let context = cri::LinuxSandboxSecurityContext { namespace_options: Some(options) };
    let linux = cri::LinuxPodSandboxConfig { security_context: Some(context), ..Default::default() };
    let config = cri::PodSandboxConfig { metadata: metadata("s"), linux: Some(linux), ..Default::default() };
    rig.apply(0, Fact::SandboxRun { id: "s".into(), config: Arc::new(config.into()) });
    rig.apply(1, sandboxes(["s"]));
    assert_eq!(rig.lookups(), [""; 0]);
    assert_eq!(rig.pod("s").network, PodNetwork::Host);
}

#[test]
fn a_pod_without_an_address_is_asked_for_with_each_list_and_not_in_between() {
    let mut rig = Rig::new();
    rig.apply(0, run("s"));
    assert_eq!(rig.lookups(), ["sandbox s"]);
    rig.apply(1, pod("s", ""));
    assert_eq!(rig.lookups(), [""; 0]);
    rig.apply(10, sandboxes(["s"]));
    assert_eq!(rig.lookups(), ["sandbox s"]);
    rig.apply(11, pod("s", "10.0.0.1"));
    rig.apply(20, sandboxes(["s"]));
    assert_eq!(rig.lookups(), [""; 0]);
    let known = rig.pod("s");
    assert_eq!(
        known.network,
        PodNetwork::Pod(vec!["10.0.0.1".parse().unwrap()]),
        "a list takes no address away"
    );
}

#[test]
fn a_pod_that_was_seen_half_made_is_looked_at_again_when_something_of_it_starts() {
    let half_made = || Fact::SandboxesListed(vec![sandbox_item("s", false).into()]);
    let mut rig = Rig::new();
    rig.apply(0, half_made());
    rig.apply(1, Fact::Mentioned("s".into()));
    assert_eq!(rig.lookups(), ["sandbox s"]);
    rig.apply(2, create("c", "s"));
    rig.apply(3, started("c"));
    assert_eq!(rig.lookups(), ["sandbox s", "container c"]);
}

#[test]
fn what_is_told_keeps_its_order() {
    let mut rig = Rig::new();
    rig.apply(0, run("s"));
    rig.apply(1, create("c", "s"));
    rig.apply(2, stop(1, "c"));
    rig.apply(3, Fact::StopFailed(call(1)));
    rig.apply(4, stop_pod(2, "s"));
    rig.apply(5, Fact::StopFailed(call(2)));
    rig.apply(6, Fact::ContainerRemoved("c".into()));
    assert_eq!(
        rig.changes(),
        ["c created", "c stopping", "c stop failed", "pod s stopping", "pod s stop failed", "c gone"]
    );
}

#[test]
fn what_was_never_told_is_not_told_to_be_gone() {
    let mut rig = Rig::new();
    rig.apply(0, containers([("c", "s", ContainerRunning)]));
    rig.apply(1, Fact::ContainerRemoved("c".into()));
    assert_eq!(rig.changes(), [""; 0]);
}

#[test]
fn clients_may_name_things_by_the_unique_beginning_of_their_ids() {
    let mut rig = Rig::new();
    rig.apply(0, sandboxes(["abc123"]));
    rig.apply(0, containers([("cde456", "abc123", ContainerCreated), ("cxx", "abc123", ContainerCreated)]));
    rig.lookups();
    rig.changes();
    rig.apply(1, create("new", "abc"));
    rig.apply(2, started("cd"));
    rig.apply(3, stop(1, "cde"));
    rig.apply(4, Fact::Mentioned("cde4".into()));
    assert_eq!(rig.changes(), ["cxx created", "new created", "cde456 stopping"][1..]);
    assert_eq!(rig.lookups(), ["container cde456"]);
    rig.apply(5, Fact::Mentioned("c".into()));
    assert_eq!(rig.lookups(), ["what is c"], "the beginning of two is the name of neither");
    rig.apply(6, Fact::ContainerRemoved("cde".into()));
    rig.apply(7, Fact::SandboxStopped("a".into()));
    assert_eq!(rig.containers(), ["cxx created", "new created"]);
    assert!(!rig.pod("abc123").is_ready);
}

#[test]
fn a_list_mends_a_sandbox_that_was_named_by_a_beginning_unknown_then() {
    let mut rig = Rig::new();
    rig.apply(0, create("c", "ab"));
    rig.apply(1, pod("abc", "10.0.0.1"));
    assert_eq!(rig.changes(), [""; 0]);
    rig.apply(2, containers([("c", "abc", ContainerCreated)]));
    assert_eq!(rig.changes(), ["c created"]);
}

#[test]
fn what_the_runtime_does_not_find_is_gone_unless_it_was_seen_since() {
    let mut rig = running();
    rig.apply(20, exited("c", 0));
    rig.apply(15, Fact::NotFound("c".into()));
    assert_eq!(rig.containers(), ["c exited 0"]);
    rig.apply(25, Fact::NotFound("c".into()));
    rig.apply(25, Fact::NotFound("s".into()));
    assert_eq!(rig.model.census(), Census::default());
}

#[test]
fn an_image_is_what_the_runtime_told_first_and_its_id_where_it_tells_that() {
    let named = |id: &str, image_id: &str, image_ref: &str| {
        let item = item(id, "s", cri::ContainerState::ContainerCreated);
        cri::Container { image_id: image_id.into(), image_ref: image_ref.into(), ..item }.into()
    };
    let mut rig = Rig::new();
    rig.apply(0, run("s"));
    rig.apply(1, create("c1", "s"));
    let images = |rig: &mut Rig| -> Vec<_> {
        let changes = rig.model.take_changes();
        let reported = changes.into_iter().filter_map(|change| match change {
            Change::Container(view) => Some(format!("{} {}", view.id, view.image_ref)),
            _ => None,
        });
        reported.collect()
    };
    assert_eq!(images(&mut rig), ["c1 "], "a client's word for it is not the runtime's");
    let first = vec![named("c1", "", "name@sha256:1"), named("c2", "sha256:2", "name@sha256:2")];
    rig.apply(2, Fact::ContainersListed(first));
    assert_eq!(images(&mut rig), ["c1 name@sha256:1", "c2 sha256:2"]);
    rig.apply(3, Fact::ContainersListed(vec![named("c1", "sha256:1", ""), named("c2", "", "")]));
    assert_eq!(images(&mut rig), [""; 0], "nor does it change");
}

/// The uids that the pods of these sandboxes are known by.
fn uids(rig: &Rig) -> Vec<(String, String)> {
    let mut pods: Vec<_> =
        rig.model.pods().iter().map(|pod| (pod.sandbox_id.to_string(), pod.uid.to_string())).collect();
    pods.sort();
    pods
}

/// A sandbox of pod `name` in a list, as a client made it with that uid.
fn of_uid(id: &str, name: &str, uid: &str, created_at: i64) -> cri::PodSandbox {
    let metadata = cri::PodSandboxMetadata {
        name: name.to_owned(),
        uid: uid.to_owned(),
        namespace: "default".to_owned(),
        attempt: 0,
    };
    cri::PodSandbox { metadata: Some(metadata), created_at, ..sandbox_item(id, true) }
}

#[test]
fn every_pod_is_known_by_a_uid_of_its_own_and_the_first_keeps_the_one_that_it_was_given() {
    let rows = [
        ("no uid", vec![of_uid("s1", "a", "", 1), of_uid("s2", "b", "", 2)], ["sandbox:s1", "sandbox:s2"]),
        ("a copied one", vec![of_uid("s1", "a", "u", 2), of_uid("s2", "b", "u", 1)], ["sandbox:s1", "u"]),
        ("equally old", vec![of_uid("s2", "b", "u", 1), of_uid("s1", "a", "u", 1)], ["u", "sandbox:s2"]),
        ("one pod, made again", vec![of_uid("s1", "a", "u", 1), of_uid("s2", "a", "u", 2)], ["u", "u"]),
        (
            "one that looks like ours",
            vec![of_uid("s1", "a", "sandbox:s2", 1), of_uid("s2", "b", "", 2)],
            ["sandbox:s1", "sandbox:s2"],
        ),
    ];
    for (name, items, [first, second]) in rows {
        let mut rig = Rig::new();
        rig.apply(1, Fact::SandboxesListed(items.into_iter().map(Into::into).collect()));
        let expected = [("s1".to_owned(), first.to_owned()), ("s2".to_owned(), second.to_owned())];
        assert_eq!(uids(&rig), expected, "{name}");
    }
}

#[test]
fn a_pod_that_comes_later_takes_over_no_uid_also_not_after_a_restart_of_ours() {
    let list =
        |items: &[cri::PodSandbox]| Fact::SandboxesListed(items.iter().cloned().map(Into::into).collect());
    let (first, later) = (of_uid("s2", "a", "u", 1), of_uid("s1", "b", "u", 2));
    let known_as = |first: &str, later: &str| {
        vec![("s1".to_owned(), later.to_owned()), ("s2".to_owned(), first.to_owned())]
    };
    let mut rig = Rig::new();
    rig.apply(1, list(std::slice::from_ref(&first)));
    rig.apply(2, list(&[later.clone(), first.clone()]));
    assert_eq!(uids(&rig), known_as("u", "sandbox:s1"));
    rig.apply(3, list(std::slice::from_ref(&later)));
    assert_eq!(uids(&rig), [("s1".to_owned(), "sandbox:s1".to_owned())], "its own does not change any more");
    let again = of_uid("s3", "a", "u", 3);
    rig.apply(4, list(&[later.clone(), again]));
    assert_eq!(uids(&rig)[1], ("s3".to_owned(), "u".to_owned()), "the first one was made again");

    // After a restart something is reported of the later one before all are listed.
    let mut rig = Rig::new();
    rig.apply(
        1,
        Fact::SandboxReported(Box::new(
            cri::PodSandboxStatus {
                id: later.id.clone(),
                metadata: later.metadata.clone(),
                ..Default::default()
            }
            .into(),
        )),
    );
    assert_eq!(uids(&rig), [("s1".to_owned(), "u".to_owned())]);
    rig.apply(2, list(&[later, first]));
    assert_eq!(uids(&rig), known_as("u", "sandbox:s1"));
}

#[test]
fn a_stop_whose_end_was_lost_is_settled_by_what_was_reported_since() {
    let reports: [fn() -> Fact; 2] =
        [|| containers([("c", "s", ContainerRunning)]), || status("c", ContainerRunning, 5, 0)];
    for lost in [Lost::Any, Lost::Connection(ConnId(1))] {
        for report in reports {
            let mut rig = running();
            rig.apply(10, stop(1, "c"));
            rig.apply(20, report());
            assert_eq!(rig.changes(), ["c stopping"], "it is under way, however long that takes");
            rig.apply(30, Fact::EndsLost(Lost::Connection(ConnId(7))));
            rig.apply(35, report());
            assert_eq!((rig.changes(), rig.lookups()), (vec![], vec![]), "that is another connection");
            rig.apply(40, Fact::EndsLost(lost));
            assert_eq!(rig.lookups(), ["list"]);
            rig.apply(39, report());
            assert_eq!(rig.changes(), [""; 0], "that was before");
            rig.apply(50, report());
            assert_eq!(rig.changes(), ["c stop failed"], "{:?}", report());
            rig.apply(60, report());
            rig.apply(61, Fact::StopFailed(call(1)));
            assert_eq!(rig.changes(), [""; 0], "once");
        }
    }
}

#[test]
fn a_stop_that_was_answered_well_has_failed_if_a_newer_report_says_so() {
    let mut rig = running();
    rig.apply(10, stop(1, "c"));
    rig.apply(11, stop(2, "c"));
    for number in [1, 2] {
        rig.apply(20, Fact::StopDone(call(number)));
        rig.apply(20, Fact::ContainerStopped("c".into()));
    }
    assert_eq!(rig.changes(), ["c stopping", "c stopping", "c exited"]);
    rig.apply(30, containers([("c", "s", ContainerRunning)]));
    assert_eq!(rig.changes(), ["c running", "c stop failed", "c stop failed"]);
}

#[test]
fn the_stop_of_a_container_that_has_exited_already_is_reported() {
    let mut rig = running();
    rig.apply(10, exited("c", 0));
    rig.apply(20, stop(1, "c"));
    rig.apply(21, Fact::StopDone(call(1)));
    rig.apply(21, Fact::ContainerStopped("c".into()));
    assert_eq!(rig.changes(), ["c exited 0", "c stopping"], "whoever restarts it has to know");
    rig.apply(30, containers([("c", "s", ContainerExited)]));
    assert_eq!(rig.changes(), [""; 0], "it has not failed");
}

#[test]
fn the_stop_of_a_pod_is_settled_by_its_sandbox() {
    let mut rig = running();
    rig.apply(10, stop_pod(1, "s"));
    rig.apply(11, stop_pod(2, "s"));
    rig.apply(20, Fact::EndsLost(Lost::Any));
    rig.apply(30, sandboxes(["s"]));
    assert_eq!(rig.changes(), ["pod s stopping", "pod s stopping", "pod s stop failed", "pod s stop failed"]);
    rig.apply(40, stop_pod(3, "s"));
    rig.apply(50, Fact::StopDone(call(3)));
    rig.apply(50, Fact::SandboxExited("s".into()));
    rig.apply(60, pod("s", "10.0.0.1"));
    assert_eq!(rig.changes(), ["pod s stopping", "pod s stop failed"]);
}

#[test]
fn row_13_a_replay_carries_the_stops_that_are_open_over_to_whoever_lost_them() {
    let mut rig = running();
    rig.apply(10, stop(1, "c"));
    rig.apply(11, stop(2, "c"));
    rig.apply(12, stop_pod(3, "s"));
    rig.apply(20, Fact::StopFailed(call(1)));
    rig.changes();
    rig.model.report_all();
    assert_eq!(rig.changes(), ["c running", "1 and 1 stops listed", "1 listed"]);
    // A new model continues with them.
    let mut later = Rig::new();
    later.model = Model::new(rig.model.take_stops());
    later.apply(30, sandboxes(["s"]));
    later.model.report_listed();
    assert_eq!(later.changes(), ["1 and 1 stops listed", "0 listed"]);
    later.apply(40, Fact::StopFailed(call(2)));
    later.apply(41, Fact::StopFailed(call(3)));
    assert_eq!(later.changes(), ["c stop failed", "pod s stop failed"]);
}

#[test]
fn the_end_of_a_stop_whose_begin_was_not_seen_says_nothing_of_another_one() {
    let mut rig = running();
    rig.apply(10, stop(1, "c"));
    rig.apply(20, Fact::StopFailed(call(2)));
    assert_eq!(rig.changes(), ["c stopping"]);
    rig.apply(30, exited("c", 0));
    rig.apply(40, Fact::EndsLost(Lost::Any));
    rig.apply(50, containers([("c", "s", ContainerExited)]));
    assert_eq!(rig.changes(), ["c exited 0"]);
    rig.apply(60, Fact::ContainerRemoved("c".into()));
    rig.apply(70, Fact::StopFailed(call(1)));
    assert_eq!(rig.changes(), ["c gone"]);
}

/// The begin of a connection's stop of a container.
fn stop_of(conn: u64, number: u32, container: &str) -> Fact {
    let call = CallId { conn: ConnId(conn), stream: number };
    Fact::StopBegun { call, target: Target::Container(container.into()) }
}

#[test]
fn row_12_any_number_of_stops_of_one_container_leave_room_for_those_of_others() {
    let mut rig = running();
    for number in 0..20_000 {
        rig.apply(10, stop_of(1, number, "c"));
        rig.apply(10, stop_of(1, 20_000 + number, &format!("nobody-{number}")));
    }
    assert_eq!(rig.changes(), ["c stopping"; 4], "one and its retries are enough to know");
    rig.apply(20, create("d", "s"));
    rig.apply(21, stop_of(2, 1, "d"));
    assert_eq!(rig.changes(), ["d created", "d stopping"]);
    assert_eq!(rig.model.take_stops_left_out(), 0);
    rig.apply(30, Fact::EndsLost(Lost::Connection(ConnId(1))));
    rig.apply(40, containers([("c", "s", ContainerRunning), ("d", "s", ContainerCreated)]));
    assert_eq!(rig.changes(), ["c stop failed"; 4], "what was not received does not fail either");
    assert_eq!(rig.model.take_stops().open().containers, [("d".into(), 1)].into());
}

#[test]
fn row_12_the_connection_with_the_most_stops_makes_room_for_others() {
    let mut rig = Rig::new();
    rig.apply(0, sandboxes(["s"]));
    let items = (0..16_500).map(|number| item(&format!("c{number:05}"), "s", ContainerRunning).into());
    rig.apply(0, Fact::ContainersListed(items.collect()));
    for number in 0..16_500 {
        rig.apply(10, stop_of(1, number, &format!("c{number:05}")));
    }
    assert_eq!(rig.model.take_stops_left_out(), 116, "there is room for 16,384");
    rig.changes();
    rig.apply(20, stop_of(2, 1, "c16499"));
    assert_eq!(rig.changes(), ["c16383 stop failed", "c16499 stopping"]);
    assert_eq!(rig.model.take_stops_left_out(), 1);
    let last = CallId { conn: ConnId(1), stream: 16_383 };
    rig.apply(21, Fact::StopFailed(last));
    assert_eq!(rig.changes(), [""; 0], "that was said when it made room");
    rig.apply(22, stop_of(1, 20_000, "c16499"));
    assert_eq!(rig.model.take_stops_left_out(), 1, "the largest one gets no more");
}

#[test]
fn a_stop_that_began_before_its_container_was_known_is_reported_once_it_is() {
    let mut rig = Rig::new();
    rig.apply(0, run("s"));
    rig.apply(1, stop(1, "c"));
    rig.apply(1, stop_pod(2, "t"));
    assert_eq!(rig.changes(), [""; 0]);
    rig.apply(2, create("c", "s"));
    rig.apply(2, run("t"));
    assert_eq!(rig.changes(), ["c created", "c stopping", "pod t stopping"]);
    rig.apply(3, Fact::StopFailed(call(1)));
    assert_eq!(rig.changes(), ["c stop failed"]);
}

#[test]
fn row_20_ids_that_clients_name_are_looked_up_apart_and_few_at_once() {
    let mut rig = running();
    let before = rig.model.revision();
    for number in 0..10_000 {
        rig.apply(10, Fact::Named(format!("nobody-{number}")));
        rig.apply(10, Fact::ContainerStopped(format!("gone-{number}").into()));
        rig.apply(10, Fact::ContainerRemoved(format!("removed-{number}").into()));
    }
    assert_eq!(rig.model.revision(), before, "nothing has to be counted again");
    rig.apply(11, Fact::Mentioned("new".into()));
    let lookups = rig.model.take_lookups();
    let (named, others): (Vec<_>, Vec<_>) =
        lookups.into_iter().map(|(lookup, _)| lookup).partition(|lookup| matches!(lookup, Lookup::Named(_)));
    assert_eq!((named.len(), others), (NAMED, vec![Lookup::Unexplained("new".to_owned())]));
    rig.apply(12, Fact::Named("c".into()));
    rig.apply(12, Fact::Named("s".into()));
    assert_eq!(rig.lookups(), [""; 0], "what is known needs none");
}

/// A status of `c` as the runtime reports it, with how it ended if it has.
fn report(state: cri::ContainerState, reason: &str) -> Fact {
    Fact::ContainerReported(Box::new(cri::ContainerStatus {
        id: "c".into(),
        state: state.into(),
        started_at: 5,
        finished_at: if state == ContainerExited { 9 } else { 0 },
        exit_code: if state == ContainerExited { 137 } else { 0 },
        reason: reason.into(),
        log_path: "/log".into(),
        ..Default::default()
    }))
}

impl Rig {
    /// The reason for which `c` ended, as it was reported to other stages last.
    fn reason(&mut self) -> Option<String> {
        let changes = self.model.take_changes();
        let mut views = changes.iter().filter_map(|change| match change {
            Change::Container(view) => Some(view.end.as_ref()?.reason.to_string()),
            _ => None,
        });
        views.next_back()
    }
}

#[test]
fn how_a_container_ended_is_asked_until_the_runtime_knows_that_it_did() {
    let mut rig = running();
    rig.apply(20, exited("c", 137));
    assert_eq!(rig.lookups(), ["container c"]);
    assert_eq!(rig.changes(), ["c exited 137"]);
    for number in 0..2 {
        rig.apply(30 + number, report(ContainerRunning, ""));
        assert_eq!((rig.lookups(), rig.reason()), (vec!["again c".to_owned()], None), "it does not know yet");
        assert_eq!(rig.containers(), ["c exited 137"]);
    }
    rig.apply(40, report(ContainerExited, "Error"));
    assert_eq!((rig.lookups(), rig.reason()), (vec![], Some("Error".to_owned())));
    rig.apply(50, Fact::OutOfMemory("c".into()));
    assert_eq!(rig.lookups(), ["again c"], "the kernel's report may come after that of the exit");
    rig.apply(60, report(ContainerExited, "OOMKilled"));
    assert_eq!((rig.lookups(), rig.reason()), (vec![], Some("OOMKilled".to_owned())));
    rig.apply(70, Fact::OutOfMemory("another".into()));
    assert_eq!(rig.lookups(), [""; 0]);
}

#[test]
fn a_runtime_that_never_reports_how_a_container_ended_is_asked_a_few_times() {
    let mut rig = running();
    rig.apply(20, exited("c", 3));
    let mut asked = 0;
    while !rig.lookups().is_empty() {
        rig.apply(30 + asked, report(ContainerRunning, ""));
        asked += 1;
    }
    assert_eq!((asked, rig.reason()), (21, Some(String::new())));
    rig.apply(40, containers([("c", "s", ContainerExited)]));
    assert_eq!(rig.lookups(), ["container c"], "and again with each list");
}

#[test]
fn a_container_that_ended_at_once_is_asked_again_for_its_start() {
    let mut rig = running();
    rig.apply(20, create("d", "s"));
    rig.apply(21, exited("d", 3));
    assert_eq!(rig.lookups(), ["container d"]);
    let mut status = status("d", ContainerExited, 0, 3);
    for asked in 0..3 {
        rig.apply(30 + asked, status);
        assert_eq!(
            rig.lookups(),
            if asked < 2 { vec!["again d"] } else { vec![] },
            "it may not have started"
        );
        status = self::status("d", ContainerExited, 0, 3);
    }
    assert_eq!(rig.reason(), Some(String::new()));
}

#[test]
fn the_processes_of_a_running_container_may_be_killed() {
    let mut rig = running();
    rig.apply(20, Fact::OutOfMemory("c".into()));
    assert_eq!((rig.lookups(), rig.changes()), (vec![], vec![]));
}
