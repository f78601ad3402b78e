//! Containers that are paused and resumed, as events and lists report it, in any order.

use cri::ContainerState::ContainerRunning;

use super::*;

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

/// What happens, the facts with their moments, and whether `c` is paused then.
type Row = (&'static str, Vec<(u64, Fact)>, bool);

#[test]
fn the_latest_of_events_and_lists_counts_however_they_arrive() {
    let rows: Vec<Row> = vec![
        ("an event", vec![(10, paused("c"))], true),
        ("resumed", vec![(10, paused("c")), (20, resumed("c"))], false),
        ("an event after a list", vec![(10, paused_listed(["c"])), (20, resumed("c"))], false),
        ("a list sent before the event", vec![(20, resumed("c")), (10, paused_listed(["c"]))], false),
        ("another list sent before the event", vec![(20, paused("c")), (10, paused_listed([]))], true),
        ("a list sent after the event", vec![(10, paused("c")), (20, paused_listed([]))], false),
        ("an event older than the list", vec![(20, paused_listed([])), (10, paused("c"))], false),
        ("an older list", vec![(20, paused_listed([])), (10, paused_listed(["c"]))], false),
        ("an event out of order", vec![(20, resumed("c")), (10, paused("c"))], false),
        ("nothing can be known", vec![(10, paused("c")), (20, Fact::PausedListed(None))], false),
        ("other reports", vec![(10, paused("c")), (20, status("c", ContainerRunning, 5, 0))], true),
        ("lists of the CRI", vec![(10, paused("c")), (20, containers([("c", "s", ContainerRunning)]))], true),
        ("repeated", vec![(10, paused("c")), (20, started("c"))], true),
    ];
    for (name, facts, is_paused) in rows {
        let mut rig = running();
        for (at, fact) in facts {
            rig.apply(at, fact);
        }
        assert_eq!(rig.model.view(&"c".into()).unwrap().is_paused, is_paused, "{name}");
        let last = rig.changes().pop();
        assert_eq!(last.is_some_and(|change| change == "c running paused"), is_paused, "{name}");
    }
}

#[test]
fn a_pause_that_is_known_before_its_container_is_part_of_its_first_report() {
    for early in [paused("c"), paused_listed(["c"])] {
        let mut rig = Rig::new();
        let is_event = matches!(early, Fact::ContainerPaused(_));
        rig.apply(5, early);
        assert_eq!(rig.lookups(), if is_event { vec!["what is c".to_owned()] } else { vec![] });
        rig.apply(4, sandboxes(["s"]));
        rig.apply(4, containers([("c", "s", ContainerRunning)]));
        rig.apply(6, status("c", ContainerRunning, 5, 0));
        assert_eq!(rig.changes(), ["c running paused"]);
    }
}

#[test]
fn what_has_ended_is_not_paused_and_a_pause_does_not_outlive_its_container() {
    let mut rig = running();
    rig.apply(10, paused("c"));
    rig.apply(20, exited("c", 137));
    assert_eq!(rig.changes(), ["c exited 137"]);
    let mut rig = running();
    rig.apply(10, paused("c"));
    assert_eq!(rig.changes(), ["c running paused"]);
    rig.apply(20, Fact::ContainerRemoved("c".into()));
    assert_eq!(rig.changes(), ["c gone"]);
    assert!(!rig.model.pauses.is_paused(&"c".into()));
    rig.apply(30, resumed("c"));
    assert_eq!(rig.changes(), [""; 0]);
}

#[test]
fn an_end_that_a_list_takes_back_leaves_the_pause() {
    let mut rig = running();
    rig.apply(10, paused("c"));
    rig.apply(20, Fact::ContainerStopped("c".into()));
    assert_eq!(rig.changes(), ["c exited"]);
    rig.apply(30, status("c", ContainerRunning, 5, 0));
    assert_eq!(rig.changes(), ["c running paused"]);
}
