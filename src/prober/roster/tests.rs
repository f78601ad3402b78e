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

fn key(pod: &str, kind: ProbeKind) -> ProbeKey {
    ProbeKey { pod: pod.into(), container: "app".into(), kind }
}

#[test]
fn a_paused_probe_keeps_its_verdict_makes_no_attempts_and_goes_on_when_it_is_resumed() {
    let mut rig = Rig::new(8);
    let liveness = key("web", Liveness);
    let at_once = ProbeSpec { failure_threshold: 1, ..spec(Liveness) };
    rig.accept(input(container("web", "c1", 0), std::slice::from_ref(&at_once)));
    assert_eq!(rig.started().len(), 1);
    assert_eq!(rig.roster.pause(&liveness, rig.now), Ok(()));
    rig.finish(Liveness, AttemptResult::Failure);
    let status = rig.status(Liveness);
    let reason = format!("paused by an operator since {}", crate::clock::rfc3339(rig.now.wall));
    assert_eq!((status.phase, &status.reason), (Phase::Paused, &reason));
    assert_eq!(
        (status.state, status.next_at),
        (Verdict::Success, None),
        "what was in flight changes nothing"
    );
    assert_eq!(status.counts.failure, 1, "but it is shown");
    rig.pass(100 * SECOND);
    assert_eq!(rig.started(), []);
    assert_eq!(rig.roster.pause(&liveness, rig.now), Ok(()), "twice is once");
    assert_eq!(rig.roster.trigger(&liveness, rig.now), Err(Refusal::NotNow(reason.clone())));

    rig.accept(Input::ContainerGone("c1".into()));
    assert_eq!(rig.roster.resume(&liveness, rig.now), Err(Refusal::Unknown));
    rig.accept(input(container("web", "c2", 1), std::slice::from_ref(&at_once)));
    assert_eq!((rig.started(), rig.status(Liveness).phase), (vec![], Phase::Paused), "it binds to the key");
    rig.accept(input(container("web", "c2", 1), &[ProbeSpec { period: SECOND, ..at_once }]));
    let status = rig.status(Liveness);
    assert_eq!((status.phase, status.reason), (Phase::Paused, reason), "also with another definition");
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
    assert_eq!(rig.roster.trigger(&readiness, rig.now), Ok(()));
    assert_eq!(rig.started(), [], "never two attempts at once");
    rig.finish(Readiness, AttemptResult::Failure);
    assert_eq!(rig.started().len(), 1, "at once after the one that was in flight");
}

#[test]
fn a_command_that_cannot_be_done_says_why() {
    let mut rig = Rig::new(8);
    let invalid = Invalid { reason: "no handler".to_owned(), handler: None };
    let startup =
        Planned { kind: Startup, source: Source::PodAnnotation, spec: Err(invalid), shadowed: vec![] };
    let delayed = ProbeSpec { initial_delay: 5 * SECOND, ..spec(Liveness) };
    let probes = vec![startup, planned(delayed)];
    rig.accept(Input::Container { view: Arc::new(container("web", "c1", 0)), probes });
    let now = rig.now;
    assert_eq!(rig.roster.pause(&key("web", Startup), now), Err(Refusal::Invalid("no handler".to_owned())));
    assert_eq!(rig.roster.pause(&key("web", Readiness), now), Err(Refusal::Unknown));
    let refused = rig.roster.trigger(&key("web", Liveness), now).map_err(|refusal| refusal.to_string());
    assert_eq!(refused, Err("there is nothing to try now: start delay of 5s".to_owned()));
}

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
fn limits_that_change_let_in_those_that_waited_and_throw_nobody_out() {
    let mut rig = Rig::new(8);
    let with = |max_per_pod| ProberSettings { max_per_pod, ..ProberSettings::default() };
    let invalid = |rig: &Rig| -> Vec<_> {
        let statuses = rig.roster.statuses(rig.now).into_iter();
        let invalid = statuses.filter(|status| status.phase == Phase::Invalid);
        invalid.map(|status| (status.key.kind, status.reason)).collect()
    };
    rig.roster.set_limits(&with(1), rig.now);
    rig.accept(input(container("web", "c1", 0), &ProbeKind::ALL.map(spec)));
    let told = |limit| format!("the pod has {limit} probes already, which is prober.maxPerPod");
    assert_eq!(invalid(&rig), [(Readiness, told(1)), (Liveness, told(1))]);
    rig.roster.set_limits(&with(2), rig.now);
    assert_eq!(invalid(&rig), [(Liveness, told(2))], "there is room for one, and the reason is that of now");
    rig.roster.set_limits(&with(1), rig.now);
    assert_eq!(invalid(&rig), [(Liveness, told(1))], "who is in stays in");
    rig.accept(input(container("web", "c1", 0), &[spec(Readiness), spec(Liveness)]));
    assert_eq!(invalid(&rig), [(Liveness, told(1))], "one that goes makes no room where too many stay");
    rig.roster.set_limits(&with(32), rig.now);
    assert_eq!(invalid(&rig), []);
}

#[test]
fn probes_that_a_reload_brings_to_many_containers_are_spread() {
    let mut rig = Rig::new(8);
    let views: Vec<_> =
        (0..1000).map(|pod| Arc::new(container(&format!("pod{pod}"), &format!("c{pod}"), 0))).collect();
    let all = |probes: &[Planned]| {
        Input::Replanned(views.iter().map(|view| (view.clone(), probes.to_vec())).collect())
    };
    rig.accept(all(&[]));
    rig.pass(3600 * SECOND);
    rig.accept(all(&[planned(spec(Liveness))]));
    assert_eq!(rig.started().len(), 8, "as many as there are workers");
    let statuses = rig.roster.statuses(rig.now);
    let early = rig.now.wall + SECOND;
    let soon = statuses.iter().filter(|status| status.next_at.is_some_and(|at| at < early)).count();
    assert_eq!(statuses.len(), 1000);
    assert!((50..=170).contains(&soon), "{soon} of 1,000 within the first of ten seconds");
    rig.accept(all(&[]));
    assert_eq!(rig.roster.statuses(rig.now), []);
}

#[test]
fn a_definition_from_another_source_is_the_same_probe_and_another_definition_is_another_one() {
    let mut rig = Rig::new(8);
    let from = |source: Source, spec: ProbeSpec| Input::Container {
        view: Arc::new(container("web", "c1", 0)),
        probes: vec![Planned { source, ..planned(spec) }],
    };
    rig.accept(from(Source::Rule("first".into()), spec(Liveness)));
    assert_eq!(rig.started().len(), 1);
    rig.finish(Liveness, AttemptResult::Success);
    let next_at = rig.status(Liveness).next_at;
    rig.pass(3 * SECOND);
    rig.accept(from(Source::Rule("second".into()), spec(Liveness)));
    let status = rig.status(Liveness);
    assert_eq!(status.source, "rule:second");
    assert_eq!((status.next_at, status.counts.total()), (next_at, 1), "its beat and counts go on");
    assert_eq!(rig.started(), []);
    let changed = ProbeSpec { failure_threshold: 7, ..spec(Liveness) };
    rig.accept(from(Source::Rule("second".into()), changed));
    assert_eq!(rig.status(Liveness).counts.total(), 0);
    assert_eq!(rig.started().len(), 1, "it begins anew, at once");
}

#[test]
fn a_probe_that_comes_to_a_container_that_runs_for_long_has_no_verdict_before_its_first_result() {
    for (age, verdict) in [(300, Verdict::Unknown), (5, Verdict::Failure)] {
        let mut rig = Rig::new(8);
        rig.pass(300 * SECOND);
        let began = rig.now.wall - Duration::from_secs(age);
        rig.pass(SECOND);
        let view = ContainerView { started_at: Some(began), ..container("web", "c1", 0) };
        rig.accept(input(view, &[ProbeSpec { period: 3600 * SECOND, ..spec(Readiness) }]));
        assert_eq!(rig.status(Readiness).state, verdict, "{age} s");
        assert_eq!(rig.started().len(), 1, "and is not put off");
    }
}

#[test]
fn containers_that_ran_before_us_are_probed_within_a_period_and_not_all_at_once() {
    let mut rig = Rig::new(1000);
    let began = rig.now.wall;
    let adopted = |pod: usize, started_at| {
        let view = container(&format!("pod{pod}"), &format!("c{pod}"), 0);
        let view = ContainerView { created_at: Some(began - 300 * SECOND), started_at, ..view };
        input(view, &[spec(Liveness)])
    };
    for pod in 0..200 {
        rig.accept(adopted(pod, None));
    }
    assert_eq!(rig.started(), [], "also before the start is told");
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
        "no jitter after the first period (prober.md 3.1)"
    );
    let mut rig = Rig::new(1000);
    let view = ContainerView { started_at: Some(rig.now.wall + SECOND), ..container("web", "new", 0) };
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
                    rig.roster.finish(&job.key, Some(tried(AttemptResult::Success)), rig.now);
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
    assert!(after.iter().all(|made| *made <= 40), "and nobody is hit by all at once: {after:?}");
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
    let silence =
        Tried { is_unanswered: true, output: "runtime did not answer".into(), ..tried(AttemptResult::Error) };
    rig.roster.finish(&key("web", Liveness), Some(silence), rig.now);
    assert_eq!(rig.started(), [(Liveness, "other".to_owned())], "its place is free at once");
    let of_web = |rig: &Rig| {
        rig.roster.statuses(rig.now).into_iter().find(|status| status.pod.as_ref() == "web").unwrap()
    };
    let status = of_web(&rig);
    assert_eq!(status.reason, "runtime did not answer: spaced out to every 20s");
    assert_eq!(
        (status.state, status.phase, status.period),
        (Verdict::Success, Phase::Probing, Some(20 * SECOND))
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

/// One row of `tests/data/prober/membership.json`.
///
/// Steps: `see NAME: TYPES` a running container of pod web with these probes, invalid ones with a `!`;
/// `see NAME again: TYPES` another one that replaces it; `gone NAME`, `stop pod`; `start` what is due;
/// `TYPE succeeds` an attempt in flight. Then these probes are there, as `NAME/TYPE PHASE [VERDICT]`, and no others.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: String,
    rule: String,
    r#do: Vec<String>,
    probes: Vec<String>,
}

fn see(rig: &mut Rig, name: &str, attempt: u32, kinds: &str) {
    let view = ContainerView { name: name.into(), ..container("web", &format!("{name}-{attempt}"), attempt) };
    let plan = |kind: &str| {
        let valid = planned(spec(kind.trim_end_matches('!').parse().unwrap()));
        let invalid = Invalid { reason: "bad".to_owned(), handler: None };
        let is_valid = !kind.ends_with('!');
        Planned {
            spec: valid.spec.clone().and_then(|spec| if is_valid { Ok(spec) } else { Err(invalid) }),
            ..valid
        }
    };
    let probes = kinds.split(' ').filter(|kind| !kind.is_empty()).map(plan).collect();
    rig.accept(Input::Container { view: Arc::new(view), probes });
}

#[test]
fn probes_come_and_go_with_their_containers() {
    let rows: Vec<Row> =
        serde_json::from_str(include_str!("../../../tests/data/prober/membership.json")).unwrap();
    for row in rows {
        let mut rig = Rig::new(8);
        let mut in_flight = Vec::new();
        for step in &row.r#do {
            match step.split_once(':').map_or((&**step, ""), |(what, kinds)| (what, kinds.trim())) {
                (what, kinds) if what.starts_with("see ") => match what[4..].strip_suffix(" again") {
                    Some(name) => see(&mut rig, name, 1, kinds),
                    None => see(&mut rig, &what[4..], 0, kinds),
                },
                ("stop pod", "") => rig.accept(Input::PodStopping("web-sandbox".into())),
                ("start", "") => in_flight.extend(rig.roster.advance(rig.now)),
                (what, "") => match (what.strip_prefix("gone "), what.strip_suffix(" succeeds")) {
                    (Some(name), _) => rig.accept(Input::ContainerGone(format!("{name}-0").into())),
                    (None, Some(kind)) => {
                        let at = in_flight.iter().position(|job| job.key.kind.as_str() == kind);
                        let key = in_flight.remove(at.expect("in flight")).key;
                        rig.roster.finish(&key, Some(tried(AttemptResult::Success)), rig.now);
                    }
                    (None, None) => panic!("no such step: {what}"),
                },
                (what, _) => panic!("no such step: {what}"),
            }
        }
        let told = rig.roster.statuses(rig.now).into_iter().zip(&row.probes).map(|(status, expected)| {
            let probe = format!("{}/{} {}", status.key.container, status.key.kind, status.phase.as_str());
            if expected.split(' ').count() > 2 { format!("{probe} {}", status.state) } else { probe }
        });
        assert_eq!(told.collect::<Vec<_>>(), row.probes, "{}: {}", row.id, row.rule);
        assert_eq!(rig.roster.statuses(rig.now).len(), row.probes.len(), "{}: {}", row.id, row.rule);
    }
}
