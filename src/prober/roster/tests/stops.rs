//! Clients that stop containers and pods: what ends then, and what goes on when that fails.

use super::*;
use crate::{
    ids::{ContainerId, SandboxId},
    inventory::pod::OpenStops,
    results::event::EventReason,
};

#[test]
fn stopping_a_pod_ends_its_liveness_also_after_a_changed_definition() {
    let mut rig = Rig::new(8);
    let sandbox = SandboxId::from("web-sandbox");
    rig.accept(input(container("web", "c1", 0), &[spec(Liveness), spec(Readiness)]));
    rig.accept(Input::PodStopping(sandbox));
    assert_eq!(rig.started(), [(Readiness, "c1".to_owned())]);
    assert_eq!(rig.status(Liveness).reason, "the pod is being stopped");
    rig.accept(input(
        container("web", "c1", 0),
        &[ProbeSpec { period: SECOND, ..spec(Liveness) }, spec(Readiness)],
    ));
    assert_eq!(rig.status(Liveness).phase, ProbePhase::Stopped);
}

#[test]
fn a_client_that_stops_a_container_ends_its_liveness() {
    let mut rig = Rig::new(8);
    rig.accept(input(container("web", "c1", 0), &[spec(Liveness)]));
    rig.accept(Input::ContainerStopping(ContainerId::from("c1")));
    assert_eq!((rig.started(), rig.status(Liveness).phase), (vec![], ProbePhase::Stopped));
    rig.accept(input(container("web", "c2", 1), &[spec(Liveness)]));
    assert_eq!(rig.started(), [(Liveness, "c2".to_owned())]);
}

#[test]
fn a_stop_that_failed_lets_liveness_go_on() {
    let sandbox = SandboxId::from("web-sandbox");
    let rows = [
        (Input::ContainerStopping("c1".into()), Input::ContainerStopFailed("c1".into())),
        (Input::PodStopping(sandbox.clone()), Input::PodStopFailed(sandbox.clone())),
    ];
    for (stopping, failed) in rows {
        let mut rig = Rig::new(8);
        rig.accept(input(container("web", "c1", 0), &[spec(Liveness)]));
        assert_eq!(rig.started().len(), 1);
        rig.finish(Liveness, AttemptResult::Success);
        rig.accept(stopping);
        rig.pass(10 * SECOND);
        assert_eq!((rig.started(), rig.status(Liveness).phase), (vec![], ProbePhase::Stopped));
        rig.accept(failed);
        assert_eq!(rig.status(Liveness).phase, ProbePhase::Probing);
        assert_eq!(rig.started(), [(Liveness, "c1".to_owned())]);
    }
}

#[test]
fn a_container_whose_stop_failed_still_ends_with_its_pod() {
    let mut rig = Rig::new(8);
    rig.accept(input(container("web", "c1", 0), &[spec(Liveness)]));
    rig.accept(Input::ContainerStopping("c1".into()));
    rig.accept(Input::PodStopping("web-sandbox".into()));
    rig.accept(Input::ContainerStopFailed("c1".into()));
    assert_eq!(rig.status(Liveness).phase, ProbePhase::Stopped);
}

#[test]
fn every_stop_counts_until_it_fails_itself() {
    let (begun, failed) =
        (|| Input::ContainerStopping("c1".into()), || Input::ContainerStopFailed("c1".into()));
    let pod_begun = || Input::PodStopping("web-sandbox".into());
    let pod_failed = || Input::PodStopFailed("web-sandbox".into());
    let rows = [
        ("the first of two stops failed", vec![begun(), begun(), failed()], ProbePhase::Stopped),
        ("both failed", vec![begun(), begun(), failed(), failed()], ProbePhase::Probing),
        (
            "the pod's failed, not the container's",
            vec![begun(), pod_begun(), pod_failed()],
            ProbePhase::Stopped,
        ),
        ("the container's failed, not the pod's", vec![begun(), pod_begun(), failed()], ProbePhase::Stopped),
        (
            "the first of two of the pod failed",
            vec![pod_begun(), pod_begun(), pod_failed()],
            ProbePhase::Stopped,
        ),
        ("a failure whose beginning went unseen", vec![failed(), pod_failed()], ProbePhase::Probing),
    ];
    for (name, inputs, phase) in rows {
        let mut rig = Rig::new(8);
        rig.accept(input(container("web", "c1", 0), &[spec(Liveness)]));
        inputs.into_iter().for_each(|input| rig.accept(input));
        assert_eq!(rig.status(Liveness).phase, phase, "{name}");
    }
}

#[test]
fn a_container_that_was_stopped_before_its_start_is_probed_like_any_other() {
    let mut rig = Rig::new(8);
    let in_state = |state| {
        let view = Container { state, ..container("web", "c1", 0) };
        input(view, &[spec(Startup), spec(Liveness)])
    };
    rig.accept(in_state(ContainerState::Created));
    rig.accept(Input::ContainerStopping("c1".into()));
    rig.accept(in_state(ContainerState::Running));
    assert_eq!(rig.started(), [(Startup, "c1".to_owned())]);
}

#[test]
fn what_a_client_stopped_is_a_failure_that_waits_also_when_the_stop_failed_late() {
    let rows = [
        (Input::ContainerStopping("c1".into()), Input::ContainerStopFailed("c1".into()), ProbePhase::Waiting),
        (
            Input::PodStopping("web-sandbox".into()),
            Input::PodStopFailed("web-sandbox".into()),
            ProbePhase::Stopped,
        ),
    ];
    for (stopping, failed, phase) in rows {
        let mut rig = Rig::new(8);
        rig.accept(input(container("web", "c1", 0), &[spec(Liveness)]));
        rig.accept(stopping);
        assert_eq!(
            (rig.status(Liveness).state, rig.status(Liveness).phase),
            (Verdict::Success, ProbePhase::Stopped)
        );
        let exited = ContainerState::Exited { exit_code: Some(137) };
        rig.accept(input(Container { state: exited, ..container("web", "c1", 0) }, &[spec(Liveness)]));
        assert_eq!((rig.status(Liveness).state, rig.status(Liveness).phase), (Verdict::Failure, phase));
        rig.accept(failed);
        let status = rig.status(Liveness);
        assert_eq!((status.state, status.phase), (Verdict::Failure, ProbePhase::Waiting));
        assert_eq!(status.reason, "the container exited with code 137: a client stopped it");
    }
}

#[test]
fn a_sandbox_that_is_not_ready_ends_liveness_for_as_long_as_it_is_not() {
    let mut rig = Rig::new(8);
    let is_ready = |is_ready| {
        let view = container("web", "c1", 0);
        let pod = crate::inventory::pod::Pod { is_ready, ..(*view.pod).clone() };
        input(Container { pod: Arc::new(pod), ..view }, &[spec(Liveness)])
    };
    rig.accept(is_ready(false));
    assert_eq!((rig.started(), rig.status(Liveness).phase), (vec![], ProbePhase::Stopped));
    rig.accept(is_ready(true));
    assert_eq!(rig.started(), [(Liveness, "c1".to_owned())]);
}

#[test]
fn attempts_are_given_up_when_what_they_are_made_on_is_no_more_and_not_before() {
    let exited = || {
        let state = ContainerState::Exited { exit_code: Some(137) };
        input(Container { state, ..container("web", "c1", 0) }, &[spec(Readiness)])
    };
    let rows = [
        ("gone", Input::ContainerGone("c1".into()), true),
        ("exited", exited(), true),
        (
            "paused",
            input(Container { is_paused: true, ..container("web", "c1", 0) }, &[spec(Readiness)]),
            true,
        ),
        ("replaced", input(container("web", "c2", 1), &[spec(Readiness)]), true),
        ("no probe any more", input(container("web", "c1", 0), &[]), true),
        (
            "defined otherwise",
            input(container("web", "c1", 0), &[ProbeSpec { period: SECOND, ..spec(Readiness) }]),
            true,
        ),
        ("reported again", input(container("web", "c1", 0), &[spec(Readiness)]), false),
        ("a stop that may fail", Input::ContainerStopping("c1".into()), false),
        ("a stop of the pod that may fail", Input::PodStopping("web-sandbox".into()), false),
    ];
    for (name, end, is_given_up) in rows {
        let mut rig = Rig::new(8);
        rig.accept(input(container("web", "c1", 0), &[spec(Readiness)]));
        assert_eq!(rig.started().len(), 1, "{name}");
        rig.accept(end);
        let given_up = rig.roster.take_given_up();
        assert_eq!(given_up.contains(&key("web", Readiness)), is_given_up, "{name}");
        assert_eq!(rig.started(), [], "{name}: never two attempts of one probe");
        let counted =
            |rig: &Rig| rig.roster.statuses(rig.now).iter().map(|probe| probe.counts.total()).sum::<u64>();
        rig.roster.finish(&key("web", Readiness), None, rig.now);
        assert_eq!(counted(&rig), 0, "{name}");
        assert!(
            rig.roster.take_events().iter().all(|event| event.reason != EventReason::Unhealthy),
            "{name}"
        );
    }
}

#[test]
fn a_list_of_open_stops_replaces_what_was_known_of_them() {
    let mut rig = Rig::new(8);
    rig.accept(input(container("web", "c1", 0), &[spec(Liveness)]));
    for count in [1, 1, 2] {
        let containers = [(ContainerId::from("c1"), count)].into();
        rig.accept(Input::StopsListed(Arc::new(OpenStops { containers, ..OpenStops::default() })));
        assert_eq!(rig.status(Liveness).phase, ProbePhase::Stopped);
    }
    rig.accept(Input::ContainerStopFailed("c1".into()));
    assert_eq!(rig.status(Liveness).phase, ProbePhase::Stopped, "there is another one");
    rig.accept(Input::ContainerStopFailed("c1".into()));
    assert_eq!(rig.started(), [(Liveness, "c1".to_owned())]);
    let pods = [(SandboxId::from("web-sandbox"), 1)].into();
    rig.accept(Input::StopsListed(Arc::new(OpenStops { pods, ..OpenStops::default() })));
    assert_eq!(rig.status(Liveness).reason, "the pod is being stopped");
    rig.accept(Input::StopsListed(Arc::default()));
    assert_eq!(rig.status(Liveness).phase, ProbePhase::Probing);
}
