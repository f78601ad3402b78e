//! Several probes together: gates, turns, replaced containers, spreading.

use std::collections::HashSet;

use super::*;
use crate::{
    ids::{ContainerId, SandboxId},
    inventory::view::ContainerState,
    prober::{
        fixtures::{container, planned, spec, tried},
        status::Phase,
    },
    results::AttemptResult,
    spec::plan::{Invalid, Source},
};

const SECOND: Duration = Duration::from_secs(1);

fn input(view: ContainerView, specs: &[ProbeSpec]) -> Input {
    Input::Container { view: Arc::new(view), probes: specs.iter().cloned().map(planned).collect() }
}

/// A roster with a clock that only the test moves.
struct Rig {
    roster: Roster,
    now: Moment,
}

impl Rig {
    fn new(workers: usize) -> Self {
        let now = Moment::now();
        Self { roster: Roster::new(&ProberSettings { workers, ..ProberSettings::default() }, now), now }
    }

    fn accept(&mut self, input: Input) {
        self.roster.accept(input, self.now);
    }

    fn pass(&mut self, time: Duration) {
        self.now = Moment { at: self.now.at + time, wall: self.now.wall + time };
    }

    /// What starts now: type and container.
    fn started(&mut self) -> Vec<(ProbeKind, String)> {
        let jobs = self.roster.advance(self.now);
        jobs.into_iter().map(|job| (job.key.kind, job.view.id.to_string())).collect()
    }

    fn finish(&mut self, kind: ProbeKind, result: AttemptResult) {
        let key = ProbeKey { pod: "web".into(), container: "app".into(), kind };
        self.roster.finish(&key, Some(tried(result)), self.now);
    }

    fn status(&self, kind: ProbeKind) -> ProbeStatus {
        self.roster.statuses(self.now).into_iter().find(|status| status.key.kind == kind).unwrap()
    }
}

use ProbeKind::{Liveness, Readiness, Startup};

#[test]
fn success_of_startup_releases_the_others_at_once_and_a_new_container_locks_them_again() {
    let mut rig = Rig::new(8);
    let specs = ProbeKind::ALL.map(spec);
    rig.accept(input(container("web", "c1", 0), &specs));
    assert_eq!(rig.started(), [(Startup, "c1".to_owned())]);
    assert_eq!(rig.status(Liveness).reason, "the startup probe has not succeeded yet");
    rig.pass(SECOND);
    rig.finish(Startup, AttemptResult::Success);
    let started: HashSet<_> = rig.started().into_iter().collect();
    assert_eq!(started, HashSet::from([(Readiness, "c1".to_owned()), (Liveness, "c1".to_owned())]));
    assert_eq!(rig.status(Startup).phase, Phase::Held);
    rig.finish(Readiness, AttemptResult::Success);
    rig.finish(Liveness, AttemptResult::Success);

    rig.accept(input(container("web", "c2", 1), &specs));
    assert_eq!(rig.started(), [(Startup, "c2".to_owned())], "N26");
    assert_eq!(rig.status(Startup).state, Verdict::Unknown);
    assert_eq!(rig.status(Readiness).state, Verdict::Failure);
}

#[test]
fn an_invalid_startup_probe_locks_nobody() {
    let mut rig = Rig::new(8);
    let invalid = Invalid { reason: "no handler".to_owned(), handler: None };
    let probes = vec![
        Planned {
            kind: Startup,
            source: Source::PodAnnotation,
            spec: Err(invalid),
            shadowed: vec!["container annotation".to_owned()],
        },
        planned(spec(Liveness)),
    ];
    rig.accept(Input::Container { view: Arc::new(container("web", "c1", 0)), probes });
    assert_eq!(rig.started(), [(Liveness, "c1".to_owned())]);
    let status = rig.status(Startup);
    assert_eq!((status.phase, status.reason.as_str()), (Phase::Invalid, "no handler"));
    assert_eq!(
        (status.source.as_str(), status.shadowed),
        ("annotation", vec!["container annotation".to_owned()])
    );
}

#[test]
fn the_newest_container_of_a_name_is_the_one_that_is_probed() {
    let mut rig = Rig::new(8);
    let specs = [spec(Liveness)];
    rig.accept(input(container("web", "c2", 1), &specs));
    rig.accept(input(container("web", "c1", 0), &specs));
    assert_eq!(rig.started(), [(Liveness, "c2".to_owned())]);
    rig.accept(Input::ContainerGone("c1".into()));
    assert_eq!(rig.status(Liveness).container_id.as_str(), "c2");
    rig.accept(Input::ContainerGone("c2".into()));
    assert_eq!(rig.roster.statuses(rig.now), []);
}

#[test]
fn a_changed_definition_is_another_probe_that_waits_for_the_attempt_of_the_former_one() {
    let mut rig = Rig::new(8);
    rig.accept(input(container("web", "c1", 0), &[spec(Liveness)]));
    assert_eq!(rig.started().len(), 1);
    rig.accept(input(container("web", "c1", 0), &[ProbeSpec { period: SECOND, ..spec(Liveness) }]));
    assert_eq!(rig.started(), [], "never two attempts of one key");
    rig.finish(Liveness, AttemptResult::Failure);
    assert_eq!(rig.status(Liveness).last, None, "what the former one found is not the new one's");
    assert_eq!(rig.started().len(), 1);
}

#[test]
fn the_same_input_again_changes_nothing() {
    let mut rig = Rig::new(8);
    let again = || input(container("web", "c1", 0), &[spec(Liveness)]);
    rig.accept(again());
    assert_eq!(rig.started().len(), 1);
    rig.finish(Liveness, AttemptResult::Success);
    let before = rig.status(Liveness);
    rig.accept(again());
    assert_eq!(rig.status(Liveness), before);
    assert_eq!(rig.started(), []);
}

#[test]
fn a_probe_that_comes_back_while_its_attempt_is_in_flight_waits_for_it() {
    let mut rig = Rig::new(8);
    rig.accept(input(container("web", "c1", 0), &[spec(Liveness)]));
    assert_eq!(rig.started().len(), 1);
    rig.accept(Input::ContainerGone("c1".into()));
    rig.accept(input(container("web", "c2", 0), &[spec(Liveness)]));
    assert_eq!(rig.started(), []);
    rig.finish(Liveness, AttemptResult::Failure);
    assert_eq!(rig.started(), [(Liveness, "c2".to_owned())]);
}

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
    assert_eq!(rig.status(Liveness).phase, Phase::Stopped);
}

#[test]
fn a_client_that_stops_a_container_ends_its_liveness() {
    let mut rig = Rig::new(8);
    rig.accept(input(container("web", "c1", 0), &[spec(Liveness)]));
    rig.accept(Input::ContainerStopping(ContainerId::from("c1")));
    assert_eq!((rig.started(), rig.status(Liveness).phase), (vec![], Phase::Stopped));
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
        assert_eq!((rig.started(), rig.status(Liveness).phase), (vec![], Phase::Stopped));
        rig.accept(failed);
        assert_eq!(rig.status(Liveness).phase, Phase::Probing);
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
    assert_eq!(rig.status(Liveness).phase, Phase::Stopped);
}

#[test]
fn every_stop_counts_until_it_fails_itself() {
    let (begun, failed) =
        (|| Input::ContainerStopping("c1".into()), || Input::ContainerStopFailed("c1".into()));
    let pod_begun = || Input::PodStopping("web-sandbox".into());
    let pod_failed = || Input::PodStopFailed("web-sandbox".into());
    let rows = [
        ("the first of two stops failed", vec![begun(), begun(), failed()], Phase::Stopped),
        ("both failed", vec![begun(), begun(), failed(), failed()], Phase::Probing),
        ("the pod's failed, not the container's", vec![begun(), pod_begun(), pod_failed()], Phase::Stopped),
        ("the container's failed, not the pod's", vec![begun(), pod_begun(), failed()], Phase::Stopped),
        ("the first of two of the pod failed", vec![pod_begun(), pod_begun(), pod_failed()], Phase::Stopped),
        ("a failure whose beginning went unseen", vec![failed(), pod_failed()], Phase::Probing),
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
        let view = ContainerView { state, ..container("web", "c1", 0) };
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
        (Input::ContainerStopping("c1".into()), Input::ContainerStopFailed("c1".into()), Phase::Waiting),
        (
            Input::PodStopping("web-sandbox".into()),
            Input::PodStopFailed("web-sandbox".into()),
            Phase::Stopped,
        ),
    ];
    for (stopping, failed, phase) in rows {
        let mut rig = Rig::new(8);
        rig.accept(input(container("web", "c1", 0), &[spec(Liveness)]));
        rig.accept(stopping);
        assert_eq!(
            (rig.status(Liveness).state, rig.status(Liveness).phase),
            (Verdict::Success, Phase::Stopped)
        );
        let exited = ContainerState::Exited { exit_code: Some(137) };
        rig.accept(input(ContainerView { state: exited, ..container("web", "c1", 0) }, &[spec(Liveness)]));
        assert_eq!((rig.status(Liveness).state, rig.status(Liveness).phase), (Verdict::Failure, phase));
        rig.accept(failed);
        let status = rig.status(Liveness);
        assert_eq!((status.state, status.phase), (Verdict::Failure, Phase::Waiting));
        assert_eq!(status.reason, "the container exited with code 137");
    }
}

#[test]
fn a_sandbox_that_is_not_ready_ends_liveness_for_as_long_as_it_is_not() {
    let mut rig = Rig::new(8);
    let is_ready = |is_ready| {
        let view = container("web", "c1", 0);
        let pod = crate::inventory::view::PodView { is_ready, ..(*view.pod).clone() };
        input(ContainerView { pod: Arc::new(pod), ..view }, &[spec(Liveness)])
    };
    rig.accept(is_ready(false));
    assert_eq!((rig.started(), rig.status(Liveness).phase), (vec![], Phase::Stopped));
    rig.accept(is_ready(true));
    assert_eq!(rig.started(), [(Liveness, "c1".to_owned())]);
}

#[test]
fn one_more_probe_while_all_places_are_taken_waits_its_turn_and_is_not_put_off() {
    let mut rig = Rig::new(2);
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
        let mut rig = Rig::new(4);
        let began = rig.now.at;
        for pod in 0..200 {
            rig.accept(input(container(&format!("pod{pod}"), &format!("c{pod}"), 0), &[spec(Liveness)]));
        }
        assert_eq!(rig.started().len(), 4, "as many as there is place for start at once");
        let mut due = Vec::new();
        while let Some(key) = rig.roster.schedule.take_due(began + 10 * SECOND) {
            let next = rig.roster.entries[&key].worker.as_ref().and_then(Worker::next);
            due.push(next.unwrap() - began);
        }
        due
    };
    let due = firsts();
    assert_eq!(due.len(), 196);
    let in_the_first_half = due.iter().filter(|due| **due < 5 * SECOND).count();
    assert!((70..=126).contains(&in_the_first_half), "{in_the_first_half}");
    assert_eq!(due, firsts());
}

#[test]
fn the_fourth_failure_of_three_is_never_attempted() {
    let mut rig = Rig::new(1);
    rig.accept(input(container("web", "c1", 0), &[spec(Liveness)]));
    for _ in 0..3 {
        assert_eq!(rig.started().len(), 1);
        rig.finish(Liveness, AttemptResult::Failure);
        rig.pass(10 * SECOND);
    }
    assert_eq!(rig.started(), []);
    let status = rig.status(Liveness);
    assert_eq!((status.phase, status.state), (Phase::Held, Verdict::Failure));
    assert_eq!((status.counts.failure, status.next_at), (3, None));
    assert_eq!(status.reason, "liveness failed; waits for a new container");
    let messages: Vec<_> = rig.roster.take_events().into_iter().map(|event| event.message).collect();
    assert_eq!(
        messages,
        [
            "Liveness probe failed: out",
            "Liveness probe failed: out",
            "Liveness probe failed: out",
            "liveness of app is now failure after 3 failures in a row",
        ]
    );
}
