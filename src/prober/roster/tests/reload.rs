//! What a reload of the configuration changes, and what it leaves alone.

use super::*;
use crate::spec::Reach;

#[test]
fn limits_that_change_hold_for_all_at_once() {
    let mut rig = Rig::new(8);
    let with = |max_per_pod| ProberSettings { max_per_pod, ..ProberSettings::default() };
    let invalid = |rig: &Rig| -> Vec<_> {
        let statuses = rig.roster.statuses(rig.now).into_iter();
        let invalid = statuses.filter(|status| status.phase == ProbePhase::Invalid);
        invalid.map(|status| (status.key.kind, status.reason)).collect()
    };
    rig.roster.set_limits(&with(1), rig.now);
    rig.accept(input(container("web", "c1", 0), &ProbeKind::ALL.map(spec)));
    let reported = |limit| {
        format!(
            "the pod has more probes than prober.maxPerPod, which is {limit}: enforced rules come first, then other rules, \
             then older containers"
        )
    };
    let both = [(Readiness, reported(1) + "; and 1 more of this pod, which is not listed")];
    assert_eq!(invalid(&rig), both);
    rig.roster.set_limits(&with(2), rig.now);
    assert_eq!(
        invalid(&rig),
        [(Liveness, reported(2))],
        "there is room for one, and the reason is that of now"
    );
    rig.roster.set_limits(&with(1), rig.now);
    assert_eq!(invalid(&rig), both, "what is beyond them now ends");
    rig.accept(input(container("web", "c1", 0), &[spec(Readiness), spec(Liveness)]));
    assert_eq!(invalid(&rig), [(Liveness, reported(1))]);
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
    assert_eq!(rig.started().len(), 3, "as many as one namespace has places for first attempts");
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
    let from = |source: ProbeSource, spec: ProbeSpec| Input::Container {
        view: Arc::new(container("web", "c1", 0)),
        probes: vec![Planned { source, ..planned(spec) }],
    };
    rig.accept(from(ProbeSource::Rule("first".into()), spec(Liveness)));
    assert_eq!(rig.started().len(), 1);
    rig.finish(Liveness, AttemptResult::Success);
    let next_at = rig.status(Liveness).next_at;
    rig.pass(3 * SECOND);
    rig.accept(from(ProbeSource::PodAnnotation, spec(Liveness)));
    assert_eq!(
        (rig.status(Liveness).counts.success, rig.status(Liveness).source.as_str()),
        (1, "annotation")
    );
    // A rule may name any port.
    rig.accept(from(ProbeSource::Rule("second".into()), ProbeSpec { reach: Reach::Any, ..spec(Liveness) }));
    assert_eq!(rig.roster.entries[&key("web", Liveness)].worker.as_ref().unwrap().spec().reach, Reach::Any);
    let status = rig.status(Liveness);
    assert_eq!(status.source, "rule:second");
    assert_eq!((status.next_at, status.counts.total()), (next_at, 1), "its beat and counts go on");
    assert_eq!(rig.started(), []);
    let changed = ProbeSpec { failure_threshold: 7, ..spec(Liveness) };
    rig.accept(from(ProbeSource::Rule("second".into()), changed));
    assert_eq!(rig.status(Liveness).counts.total(), 0);
    assert_eq!(rig.started().len(), 1, "it starts again, at once");
}

#[test]
fn a_probe_that_comes_to_a_container_that_runs_for_long_has_no_verdict_before_its_first_result() {
    for (age, verdict) in [(300, Verdict::Unknown), (5, Verdict::Failure)] {
        let mut rig = Rig::new(8);
        rig.pass(300 * SECOND);
        let began = rig.now.wall - Duration::from_secs(age);
        rig.pass(SECOND);
        let view = Container { started_at: Some(began), ..container("web", "c1", 0) };
        rig.accept(input(view, &[ProbeSpec { period: 3600 * SECOND, ..spec(Readiness) }]));
        assert_eq!(rig.status(Readiness).state, verdict, "{age} s");
        assert_eq!(rig.started().len(), 1, "and is not put off");
    }
}
