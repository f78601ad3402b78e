//! Lives of containers as short stories: changes in, events out.

use std::{collections::HashSet, time::Duration};

use super::*;
use crate::{inventory::fixtures, results::event::EventType};

const BEGAN: u64 = 1_000;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// A container that was created at this second.
fn container(id: &str, attempt: u32, created: u64) -> Container {
    let created_at = Some(at(created));
    Container {
        attempt,
        created_at,
        state: ContainerState::Created,
        ..fixtures::container(id, fixtures::pod())
    }
}

fn running(id: &str, attempt: u32, started: u64) -> Container {
    let started_at = Some(at(started));
    Container { started_at, state: ContainerState::Running, ..container(id, attempt, started) }
}

fn exited(id: &str, attempt: u32, (started, finished): (u64, u64), code: i32, reason: &str) -> Container {
    let end = ContainerEnd { finished_at: Some(at(finished)), reason: reason.into(), message: "".into() };
    let state = ContainerState::Exited { exit_code: Some(code) };
    Container { state, end: Some(Arc::new(end)), ..running(id, attempt, started) }
}

struct Rig(Exits);

impl Rig {
    fn new() -> Self {
        Self(Exits::new(at(BEGAN)))
    }

    /// `Warning Exited: Container app exited with code 3`.
    fn on(&mut self, change: &Change) -> Vec<String> {
        // Each container is seen when that happens which is seen.
        let now = match change {
            Change::Container(view) => {
                let end = view.end.as_ref().and_then(|end| end.finished_at);
                end.or(view.started_at).or(view.created_at)
            }
            _ => None,
        };
        let events = self.0.on(change, now.unwrap_or(at(2_000)));
        let line = |event: &ContainerEvent| {
            format!("{} {}: {}", event.severity.as_str(), event.reason.as_str(), event.message)
        };
        events.iter().map(line).collect()
    }

    fn see(&mut self, view: Container) -> Vec<String> {
        self.on(&Change::Container(Arc::new(view)))
    }

    /// The earlier exits of the container, by id and code.
    fn earlier(&self, view: &Container) -> Vec<String> {
        let exits = self.0.kept.others(&place(view), &view.id);
        exits.iter().map(|exit| format!("{} {}", exit.container, exit.exit_code.unwrap_or(-1))).collect()
    }
}

const NONE: [&str; 0] = [];

#[test]
fn a_crash_loop_reports_each_start_exit_and_replacement_once() {
    let mut rig = Rig::new();
    assert_eq!(rig.see(container("a", 0, 1_001)), NONE);
    assert_eq!(rig.see(running("a", 0, 1_002)), ["Normal Started: Container app started"]);
    assert_eq!(rig.see(running("a", 0, 1_002)), NONE, "a change of something else");
    let waits = Container { end: None, ..exited("a", 0, (1_002, 1_082), 3, "") };
    assert_eq!(rig.see(waits), NONE, "the runtime has not reported how it ended");
    let ended = exited("a", 0, (1_002, 1_082), 3, "Error");
    assert_eq!(rig.see(ended.clone()), ["Warning Exited: Container app exited with code 3 after 1m20s"]);
    assert_eq!(rig.see(ended), NONE);
    assert_eq!(
        rig.see(container("b2345678901234567", 1, 1_083)),
        ["Normal Replaced: Container app was replaced by a new one, attempt 1, ID b234567890123"]
    );
    assert_eq!(
        rig.see(running("b2345678901234567", 1, 1_084)),
        ["Normal Started: Container app started, attempt 1"]
    );
    assert_eq!(rig.on(&Change::ContainerGone("a".into())), NONE);
    let oom = exited("b2345678901234567", 1, (1_084, 1_084), 137, "OOMKilled");
    assert_eq!(
        rig.see(oom.clone()),
        ["Warning OOMKilled: Container app was OOM-killed after less than 1s, exit code 137"]
    );
    assert_eq!(rig.earlier(&oom), ["a 3"]);
    assert_eq!(rig.earlier(&running("c", 2, 1_085)), ["a 3", "b2345678901234567 137"]);
}

#[test]
fn what_was_before_criprobe_started_is_remembered_and_not_reported() {
    let mut rig = Rig::new();
    assert_eq!(rig.see(exited("a", 0, (900, 950), 1, "Error")), NONE);
    assert_eq!(rig.see(running("b", 1, 960)), NONE);
    assert_eq!(rig.earlier(&running("b", 1, 960)), ["a 1"]);
    let all: HashSet<_> = ["a", "b"].map(ContainerId::from).into();
    assert_eq!(rig.on(&Change::Listed(Arc::new(all))), NONE);
    assert_eq!(
        rig.see(exited("b", 1, (960, 1_010), 0, "Completed")),
        ["Normal Exited: Container app exited with code 0 after 50s"],
        "it ended since then"
    );
    assert_eq!(
        rig.see(exited("c", 2, (1_011, 1_012), 2, "Error")),
        [
            "Normal Replaced: Container app was replaced by a new one, attempt 2, ID c",
            "Normal Started: Container app started, attempt 2",
            "Warning Exited: Container app exited with code 2 after 1s"
        ],
        "it came and went between two looks"
    );
}

#[test]
fn a_stop_on_purpose_is_no_warning() {
    let container_stop = || vec![Change::ContainerStopping("a".into())];
    let pod_stop = || vec![Change::PodStopping("s1".into())];
    let failed = || {
        vec![
            Change::ContainerStopping("a".into()),
            Change::PodStopping("s1".into()),
            Change::ContainerStopFailed("a".into()),
            Change::PodStopFailed("s1".into()),
        ]
    };
    let listed = || vec![Change::ContainerStopping("a".into()), Change::StopsListed(Arc::default())];
    let by_client = "Normal Exited: Container app exited with code 143 after 1m0s: a client stopped it";
    let alone = "Warning Exited: Container app exited with code 143 after 1m0s";
    for (changes, reported) in [
        (container_stop(), by_client),
        (pod_stop(), by_client),
        (failed(), alone),
        (listed(), alone),
        (vec![], alone),
    ] {
        let mut rig = Rig::new();
        rig.see(running("a", 0, 1_010));
        for change in changes {
            assert_eq!(rig.on(&change), NONE);
        }
        assert_eq!(rig.see(exited("a", 0, (1_010, 1_070), 143, "Error")), [reported]);
    }
    let mut rig = Rig::new();
    rig.see(container("a", 0, 1_009));
    rig.on(&Change::ContainerStopping("a".into()));
    rig.see(running("a", 0, 1_010));
    assert_eq!(
        rig.see(exited("a", 0, (1_010, 1_070), 143, "Error")),
        [by_client],
        "its start was reported late"
    );
    let mut rig = Rig::new();
    rig.see(container("a", 0, 1_009));
    rig.on(&Change::ContainerStopping("a".into()));
    rig.see(running("a", 0, 2_001));
    assert_eq!(
        rig.see(exited("a", 0, (2_001, 2_061), 143, "Error")),
        [alone],
        "a stop before the start is over"
    );

    let mut rig = Rig::new();
    for number in 0..2_000 {
        rig.on(&Change::ContainerStopping(format!("early-{number}").as_str().into()));
    }
    assert_eq!(rig.0.early_stops.len(), EARLY_STOPS);
    rig.on(&Change::ContainerStopFailed("early-0".into()));
    rig.see(running("early-1", 0, 1_010));
    assert_eq!(
        rig.see(exited("early-1", 0, (1_010, 1_070), 143, "Error")),
        [by_client],
        "it was reported late"
    );
    assert_eq!(rig.0.early_stops.len(), EARLY_STOPS - 2);

    let handle = ExitsHandle::new(at(BEGAN));
    handle.changed(&Change::Container(Arc::new(running("a", 0, 1_010))), at(1_070));
    handle.note_act(&"a".into(), true);
    let ended = exited("a", 0, (1_010, 1_070), 137, "OOMKilled");
    let events = handle.changed(&Change::Container(Arc::new(ended.clone())), at(1_070));
    assert_eq!(events[0].severity, EventType::Normal);
    assert_eq!(
        events[0].message,
        "Container app exited with code 137 after 1m0s (OOMKilled): criprobe stopped it"
    );
    let handle = ExitsHandle::new(at(BEGAN));
    handle.changed(&Change::Container(Arc::new(running("a", 0, 1_010))), at(1_070));
    handle.note_act(&"a".into(), true);
    handle.note_act(&"a".into(), false);
    let events = handle.changed(&Change::Container(Arc::new(ended)), at(1_070));
    assert_eq!(
        events[0].message, "Container app was OOM-killed after 1m0s, exit code 137",
        "an act that was given up"
    );
}

#[test]
fn a_stop_of_a_pod_counts_for_containers_that_are_reported_later_and_for_one_that_moves() {
    let by_client = "Normal Exited: Container app exited with code 143 after 1m0s: a client stopped it";
    let alone = "Warning Exited: Container app exited with code 143 after 1m0s";
    for (changes, reported) in [
        (vec![Change::PodStopping("s1".into())], by_client),
        (vec![Change::PodStopping("s1".into()), Change::PodStopFailed("s1".into())], alone),
        (vec![Change::PodStopping("s1".into()), Change::StopsListed(Arc::default())], alone),
    ] {
        let mut rig = Rig::new();
        for change in changes {
            assert_eq!(rig.on(&change), NONE);
        }
        rig.see(running("a", 0, 1_010));
        assert_eq!(rig.see(exited("a", 0, (1_010, 1_070), 143, "Error")), [reported]);
        assert_eq!(rig.0.early_pod_stops.len(), 0);
    }
    let mut rig = Rig::new();
    for number in 0..2_000 {
        rig.on(&Change::PodStopping(format!("early-{number}").as_str().into()));
    }
    assert_eq!(rig.0.early_pod_stops.len(), EARLY_STOPS);

    let mut rig = Rig::new();
    rig.see(running("a", 0, 1_010));
    rig.on(&Change::PodStopping("s1".into()));
    let mut moved = exited("a", 0, (1_010, 1_070), 143, "Error");
    Arc::make_mut(&mut moved.pod).uid = "u2".into();
    assert_eq!(rig.see(moved), [by_client], "its pod became known by another uid");
}

#[test]
fn a_reason_that_comes_late_is_reported_too() {
    let mut rig = Rig::new();
    rig.see(running("a", 0, 1_010));
    assert_eq!(
        rig.see(exited("a", 0, (1_010, 1_011), 137, "Error")),
        ["Warning Exited: Container app exited with code 137 after 1s"]
    );
    let oom = exited("a", 0, (1_010, 1_011), 137, "OOMKilled");
    assert_eq!(
        rig.see(oom.clone()),
        ["Warning OOMKilled: Container app was OOM-killed after 1s, exit code 137"]
    );
    assert_eq!(rig.see(oom), NONE);
}

#[test]
fn an_end_that_is_noticed_late_says_how_long_ago_it_was() {
    let mut exits = Exits::new(at(BEGAN));
    exits.on(&Change::Container(Arc::new(running("a", 0, 1_010))), at(1_010));
    let ended = Change::Container(Arc::new(exited("a", 0, (1_010, 1_070), 3, "Error")));
    let events = exits.on(&ended, at(1_670));
    assert_eq!(events[0].at, at(1_670), "events are in order");
    assert_eq!(events[0].message, "Container app exited with code 3 after 1m0s, 10m ago");
}

#[test]
fn a_container_that_is_gone_before_its_end_was_reported_ended_as_far_as_is_known() {
    for (state, reported) in [
        (
            ContainerState::Exited { exit_code: Some(3) },
            "Warning Exited: Container app exited with code 3 after 16m30s",
        ),
        (
            ContainerState::Running,
            "Normal Exited: Container app ended after 16m30s, and the runtime reports no exit code",
        ),
    ] {
        let mut rig = Rig::new();
        rig.see(running("a", 0, 1_010));
        rig.see(Container { state, ..running("a", 0, 1_010) });
        assert_eq!(rig.on(&Change::ContainerGone("a".into())).len(), 1);
        let mut rig = Rig::new();
        rig.see(running("a", 0, 1_010));
        rig.see(Container { state, ..running("a", 0, 1_010) });
        let gone = rig.on(&Change::Listed(Arc::default()));
        assert_eq!(gone, [reported.replace("16m30s", "16m")]);
        assert_eq!((rig.0.lives.len(), rig.0.sandboxes.len()), (0, 0), "nothing is left but its exit");
        assert_eq!(rig.earlier(&running("b", 1, 1_085)).len(), 1);
    }
    let mut rig = Rig::new();
    rig.see(container("a", 0, 1_001));
    assert_eq!(rig.on(&Change::ContainerGone("a".into())), NONE, "one that never ran has not ended");
}

#[test]
fn one_that_did_not_start_says_why() {
    let mut rig = Rig::new();
    rig.see(container("a", 0, 1_001));
    let end = ContainerEnd {
        finished_at: Some(at(1_002)),
        reason: "StartError".into(),
        message: " no such file\n".into(),
    };
    let view = Container { started_at: None, end: Some(Arc::new(end)), ..exited("a", 0, (0, 0), 128, "") };
    assert_eq!(
        rig.see(view),
        ["Warning Exited: Container app exited with code 128 (StartError): no such file"]
    );
}

#[test]
fn a_pod_that_becomes_known_by_another_uid_takes_its_containers_along() {
    let mut rig = Rig::new();
    rig.see(running("a", 0, 1_010));
    let mut moved = exited("a", 0, (1_010, 1_070), 3, "Error");
    Arc::make_mut(&mut moved.pod).uid = "u2".into();
    Arc::make_mut(&mut moved.pod).sandbox_id = "s2".into();
    assert_eq!(rig.see(moved.clone()).len(), 1);
    let next = Container { id: "b".into(), ..moved };
    assert_eq!(rig.earlier(&next), ["a 3"]);
    rig.on(&Change::ContainerGone("a".into()));
    assert_eq!((rig.0.lives.len(), rig.0.sandboxes.len()), (0, 0));
}

#[test]
fn fifty_exits_a_second_of_one_name_leave_only_the_last_of_them() {
    let mut rig = Rig::new();
    // As much as is kept of a message of the runtime's, however long it is.
    let message: Arc<str> = "x".repeat(1_024).into();
    let mut last = container("none", 0, 0);
    for number in 0..3_000_u32 {
        let (id, second) = (format!("c{number}"), BEGAN + 1 + u64::from(number / 50));
        rig.see(running(&id, number, second));
        let mut view = exited(&id, number, (second, second), 3, "Error");
        view.end = view.end.map(|end| Arc::new(ContainerEnd { message: message.clone(), ..(*end).clone() }));
        let events = rig.see(view.clone());
        assert!(events.len() == 1 && events[0].len() < 1_200, "{events:?}");
        rig.on(&Change::ContainerGone(view.id.clone()));
        last = view;
    }
    assert_eq!((rig.0.lives.len(), rig.0.sandboxes.len(), rig.0.early_stops.len()), (0, 0, 0));
    assert_eq!(rig.earlier(&last), ["c2994 3", "c2995 3", "c2996 3", "c2997 3", "c2998 3"]);
}
