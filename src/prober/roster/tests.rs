//! Several probes together: gates, turns, replaced containers.

mod acting;
mod bounds;
mod history;
mod membership;
mod operators;
mod outages;
mod pace;
mod reload;
mod stops;
mod tallies;

use std::collections::HashSet;

use super::*;
use crate::{
    inventory::pod::ContainerState,
    prober::{
        fixtures::{container, outcome, planned, spec},
        status::{ProbePhase, ProbeStatus},
    },
    results::{AttemptResult, Verdict},
    spec::{
        Handler, OnFailure, ProbeSpec,
        acting::Acting,
        plan::{Invalid, ProbeSource},
        rule::HistoryRule,
    },
};

const SECOND: Duration = Duration::from_secs(1);

fn input(view: Container, specs: &[ProbeSpec]) -> Input {
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
        // A quarter for exec, as by default.
        let settings = ProberSettings { workers, exec_workers: workers / 4, ..ProberSettings::default() };
        Self { roster: Roster::new(&settings, now), now }
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
        self.roster.finish(&key, Some(outcome(result)), self.now);
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
    assert_eq!(rig.status(Startup).phase, ProbePhase::Held);
    rig.finish(Readiness, AttemptResult::Success);
    rig.finish(Liveness, AttemptResult::Success);

    rig.accept(input(container("web", "c2", 1), &specs));
    assert_eq!(rig.started(), [(Startup, "c2".to_owned())], "N26");
    assert_eq!(rig.status(Startup).state, Verdict::Unknown);
    assert_eq!(rig.status(Readiness).state, Verdict::Failure);
}

#[test]
fn row_04_an_enforced_rule_waits_only_for_the_startup_probe_of_a_rule() {
    let enforced = |spec| Planned { source: ProbeSource::EnforcedRule("must".into()), ..planned(spec) };
    let of_author = vec![planned(spec(Startup)), planned(spec(Readiness)), enforced(spec(Liveness))];
    let mut rig = Rig::new(8);
    rig.accept(Input::Container { view: Arc::new(container("web", "c1", 0)), probes: of_author.clone() });
    let started: HashSet<_> = rig.started().into_iter().collect();
    assert_eq!(started, HashSet::from([(Startup, "c1".to_owned()), (Liveness, "c1".to_owned())]));
    rig.finish(Startup, AttemptResult::Failure);
    rig.finish(Liveness, AttemptResult::Failure);
    rig.pass(10 * SECOND);
    assert!(rig.started().contains(&(Liveness, "c1".to_owned())), "a failed attempt does not hold it back");

    for (id, source) in
        [("c2", ProbeSource::EnforcedRule("must".into())), ("c3", ProbeSource::Rule("may".into()))]
    {
        let view = Arc::new(container(id, id, 0));
        let startup = Planned { source, ..planned(spec(Startup)) };
        let probes = vec![startup, of_author[1].clone(), enforced(spec(Liveness))];
        rig.accept(Input::Container { view, probes });
        assert_eq!(rig.started(), [(Startup, id.to_owned())], "that of a rule holds back all");
    }
}

#[test]
fn enforced_probes_without_any_result_are_named_the_oldest_first_until_they_have_one() {
    let enforced = |spec| Planned { source: ProbeSource::EnforcedRule("must".into()), ..planned(spec) };
    let mut rig = Rig::new(8);
    let accept = |rig: &mut Rig, pod: &str, probes: Vec<Planned>| {
        let view = Container { started_at: None, ..container(pod, pod, 0) };
        rig.accept(Input::Container { view: Arc::new(view), probes });
    };
    let unproven = |rig: &Rig| {
        let unproven = rig.roster.counts(rig.now).unproven;
        let named = unproven.oldest.iter().map(|(age, _, pod, key)| format!("{pod} {} {age:?}", key.kind));
        (unproven.count, named.collect::<Vec<_>>())
    };
    let invalid = Invalid { reason: "no such port".to_owned(), handler: None };
    let wrong = Planned { spec: Err(invalid), ..enforced(spec(Readiness)) };
    accept(&mut rig, "web", vec![enforced(spec(Liveness)), wrong, planned(spec(Startup))]);
    rig.pass(10 * SECOND);
    accept(&mut rig, "other", vec![enforced(spec(Liveness))]);
    assert_eq!(unproven(&rig), (0, vec![]), "they have just come");
    rig.pass(20 * SECOND);
    assert_eq!(
        unproven(&rig),
        (2, vec!["web readiness 30s".to_owned(), "web liveness 30s".to_owned()]),
        "not what the author wrote"
    );
    for pod in ["p1", "p2"] {
        accept(&mut rig, pod, vec![enforced(spec(Liveness))]);
    }
    rig.pass(30 * SECOND);
    let (count, named) = unproven(&rig);
    assert_eq!((count, named.len(), &*named[2]), (5, 3, "other liveness 50s"));

    rig.started();
    rig.finish(Liveness, AttemptResult::Error);
    assert_eq!(unproven(&rig).0, 5, "an error is no result");
    rig.pass(10 * SECOND);
    rig.started();
    rig.finish(Liveness, AttemptResult::Failure);
    assert_eq!(unproven(&rig).0, 4);
    let exited = ContainerState::Exited { exit_code: Some(0) };
    let view = Arc::new(Container { state: exited, ..container("other", "other", 0) });
    rig.accept(Input::Container { view, probes: vec![enforced(spec(Liveness))] });
    assert_eq!(unproven(&rig).0, 3, "nothing can be found out about a container that does not run");
}

#[test]
fn an_invalid_startup_probe_locks_nobody() {
    let mut rig = Rig::new(8);
    let invalid = Invalid { reason: "no handler".to_owned(), handler: None };
    let probes = vec![
        Planned {
            kind: Startup,
            source: ProbeSource::PodAnnotation,
            spec: Err(invalid),
            acting: Acting::default(),
            history: HistoryRule::default(),
            shadowed: vec!["container annotation".to_owned()],
        },
        planned(spec(Liveness)),
    ];
    rig.accept(Input::Container { view: Arc::new(container("web", "c1", 0)), probes });
    assert_eq!(rig.started(), [(Liveness, "c1".to_owned())]);
    let status = rig.status(Startup);
    assert_eq!((status.phase, status.reason.as_str()), (ProbePhase::Invalid, "no handler"));
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
fn the_fourth_failure_of_three_is_never_attempted_where_an_act_follows_the_third() {
    let mut rig = Rig::new(1);
    let acting = Acting { asked: OnFailure::Stop, ..Acting::default() };
    let probes = vec![Planned { acting, ..planned(spec(Liveness)) }];
    rig.accept(Input::Container { view: Arc::new(container("web", "c1", 0)), probes });
    for _ in 0..3 {
        assert_eq!(rig.started().len(), 1);
        assert_eq!(rig.roster.take_demands().len(), 0);
        rig.finish(Liveness, AttemptResult::Failure);
        rig.pass(10 * SECOND);
    }
    assert_eq!(rig.roster.take_demands().len(), 1);
    rig.accept(Input::ActBegan("c1".into()));
    assert_eq!(rig.started(), []);
    let status = rig.status(Liveness);
    assert_eq!((status.phase, status.state), (ProbePhase::Held, Verdict::Failure));
    assert_eq!((status.counts.failure, status.next_at), (3, None));
    assert_eq!(status.reason, "its failure is being acted on: see `criprobe describe`");
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
