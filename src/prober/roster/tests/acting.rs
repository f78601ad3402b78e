//! What is asked of the stage that acts, and what an act in progress does to probes.

use super::*;
use crate::{
    ids::ContainerId,
    inventory::pod::{OpenStops, Pod},
    prober::{
        PauseTerms,
        demand::{Cause, Claim},
        status::Exited,
    },
    spec::acting::ActRefusal,
};

const EXITED: ContainerState = ContainerState::Exited { exit_code: Some(3) };

const RESTART: Acting = Acting { asked: OnFailure::Restart, refusal: None, is_dry_run: false };

/// Asks for an act at its first failure.
fn at_once(kind: ProbeKind, acting: Acting) -> Planned {
    Planned { acting, ..planned(ProbeSpec { failure_threshold: 1, ..spec(kind) }) }
}

fn acting(id: &str, attempt: u32, state: ContainerState, probes: Vec<Planned>) -> Input {
    let view = Container { state, ..container("web", id, attempt) };
    Input::Container { view: Arc::new(view), probes }
}

/// A rig with a running container `c1` and a liveness probe of it.
fn rig(of: Acting) -> Rig {
    let mut rig = Rig::new(8);
    rig.accept(acting("c1", 0, ContainerState::Running, vec![at_once(Liveness, of)]));
    rig
}

fn exits(rig: &mut Rig) -> Vec<Cause> {
    rig.accept(acting("c1", 0, EXITED, vec![at_once(Liveness, RESTART)]));
    rig.roster.take_demands().into_iter().map(|demand| demand.cause).collect()
}

fn stops(containers: &[&str]) -> Input {
    let containers = containers.iter().map(|id| (ContainerId::from(*id), 1)).collect();
    Input::StopsListed(Arc::new(OpenStops { containers, ..OpenStops::default() }))
}

#[test]
fn a_verdict_asks_for_an_act_only_where_the_plan_lets_it_act() {
    let of = |asked, refusal, is_dry_run| Acting { asked, refusal, is_dry_run };
    for (plan, is_asked) in [
        (of(OnFailure::Report, None, false), false),
        (of(OnFailure::Stop, None, false), true),
        (of(OnFailure::Kill, None, false), true),
        (of(OnFailure::Stop, Some(ActRefusal::Disabled), false), false),
        (of(OnFailure::Restart, Some(ActRefusal::KubeletsPod), false), false),
        (of(OnFailure::Stop, None, true), true),
    ] {
        let mut rig = rig(plan);
        assert_eq!(rig.started().len(), 1);
        rig.finish(Liveness, AttemptResult::Failure);
        let demands = rig.roster.take_demands();
        assert_eq!(demands.len(), usize::from(is_asked), "{plan:?}");
        for demand in demands {
            assert_eq!((&demand.key, demand.view.id.as_str()), (&key("web", Liveness), "c1"));
            assert_eq!((demand.acting, demand.cause), (plan, Cause::Verdict { failures: 1 }));
        }
        assert_eq!(rig.status(Liveness).phase, ProbePhase::Probing, "{plan:?}: until the act begins");
    }
}

#[test]
fn a_probe_that_only_reports_can_be_triggered_after_a_failure() {
    let mut rig = rig(Acting::default());
    assert_eq!(rig.started().len(), 1);
    rig.finish(Liveness, AttemptResult::Failure);
    rig.pass(SECOND);
    let now = rig.now;
    assert_eq!(rig.roster.trigger(&key("web", Liveness), now), Ok(()));
    assert_eq!(rig.started().len(), 1);
    rig.finish(Liveness, AttemptResult::Success);
    assert_eq!(rig.status(Liveness).state, Verdict::Success);
}

#[test]
fn an_act_holds_liveness_and_startup_of_its_container_also_if_they_come_to_be_while_it_is_in_progress() {
    let kinds = || vec![at_once(Liveness, RESTART), planned(spec(Readiness)), at_once(Startup, RESTART)];
    let running = |id, attempt| acting(id, attempt, ContainerState::Running, kinds());
    let phases = |rig: &Rig| [Startup, Liveness].map(|kind| rig.status(kind).phase);
    let mut rig = Rig::new(8);
    rig.accept(Input::ActBegan("c1".into()));
    rig.accept(running("c1", 0));
    assert_eq!((phases(&rig), rig.started()), ([ProbePhase::Held; 2], vec![]), "one that comes to be");
    let now = rig.now;
    let refused = rig.roster.trigger(&key("web", Liveness), now).map_err(|refusal| refusal.to_string());
    assert!(refused.is_err_and(|reason| reason.contains("being acted on")));
    let slower = |planned: &mut Planned| {
        let period = 20 * SECOND;
        *planned = Planned { acting: RESTART, ..super::planned(ProbeSpec { period, ..spec(planned.kind) }) };
    };
    let mut redefined = kinds();
    redefined.iter_mut().for_each(slower);
    rig.accept(acting("c1", 0, ContainerState::Running, redefined.clone()));
    assert_eq!((phases(&rig), rig.started()), ([ProbePhase::Held; 2], vec![]), "one that is redefined");
    rig.accept(acting("c1", 0, EXITED, redefined.clone()));
    assert_eq!(phases(&rig), [ProbePhase::Held; 2], "whatever becomes of the container");
    assert_eq!(rig.roster.take_demands().len(), 0, "we ended it ourselves");
    rig.accept(acting("c1", 0, ContainerState::Running, redefined));
    rig.accept(Input::ActEnded("c1".into()));
    assert_eq!(rig.started(), [(Startup, "c1".to_owned())], "it was given up");

    rig.accept(Input::ActBegan("c1".into()));
    rig.accept(running("c2", 1));
    assert_eq!(phases(&rig), [ProbePhase::Probing, ProbePhase::Waiting], "another container");
    rig.accept(Input::ContainerGone("c2".into()));
    assert_eq!(phases(&rig), [ProbePhase::Held; 2], "and the former one again");
    rig.accept(Input::ContainerGone("c1".into()));
    rig.accept(running("c1", 0));
    assert_eq!(phases(&rig), [ProbePhase::Probing, ProbePhase::Waiting], "it was forgotten");
    rig.accept(Input::ActBegan("never".into()));
    rig.accept(Input::Listed(Arc::new(HashSet::from(["c1".into()]))));
    rig.accept(acting("never", 2, ContainerState::Running, kinds()));
    assert_eq!(phases(&rig), [ProbePhase::Probing, ProbePhase::Waiting], "so is one that never was");
}

#[test]
fn a_container_that_exits_by_itself_is_asked_for_once() {
    let mut rig = rig(RESTART);
    assert_eq!(exits(&mut rig), [Cause::Exited { exit_code: Some(3) }]);
    assert_eq!(exits(&mut rig), [], "once");
}

#[test]
fn a_probe_is_blamed_for_the_end_of_its_container_only_where_it_failed() {
    let exited = || acting("c1", 0, EXITED, vec![at_once(Liveness, RESTART)]);
    let began = || Input::ActBegan("c1".into());
    for (result, inputs, reason, is_in_the_way) in [
        (
            AttemptResult::Success,
            [exited(), began()],
            "the container exited with code 3; waits for a new one",
            true,
        ),
        (
            AttemptResult::Failure,
            [began(), exited()],
            "its failure has stopped the container; waits for a new one",
            false,
        ),
    ] {
        let mut rig = rig(RESTART);
        assert_eq!(rig.started().len(), 1);
        rig.finish(Liveness, result);
        inputs.into_iter().for_each(|input| rig.accept(input));
        let status = rig.status(Liveness);
        assert_eq!((status.phase, &*status.reason), (ProbePhase::Held, reason));
        assert_eq!(status.exited, is_in_the_way.then_some(Exited { code: Some(3) }));
    }
}

#[test]
fn an_exit_asks_for_nothing_where_it_is_not_the_containers_own_or_nobody_would_restart_it() {
    let stop = Acting { asked: OnFailure::Stop, ..RESTART };
    let refused = Acting { refusal: Some(ActRefusal::Disabled), ..RESTART };
    let c1 = || ContainerId::from("c1");
    let rows = [
        ("a client's stop", vec![Input::ContainerStopping(c1())]),
        ("a client's stop of the pod", vec![Input::PodStopping("web-sandbox".into())]),
        ("a stop from before", vec![stops(&["c1"])]),
        ("our act", vec![Input::ActBegan(c1())]),
        ("a successor", vec![acting("c2", 1, ContainerState::Running, vec![at_once(Liveness, RESTART)])]),
    ];
    for (what, before) in rows {
        let mut rig = rig(RESTART);
        before.into_iter().for_each(|input| rig.accept(input));
        assert_eq!(exits(&mut rig), [], "{what}");
        rig.accept(Input::ActEnded(c1()));
        assert_eq!(exits(&mut rig), [], "{what}: nor later");
    }
    let mut seen_late = Rig::new(8);
    assert_eq!(exits(&mut seen_late), [], "it was never seen running");
    for plan in [stop, refused] {
        let mut rig = rig(plan);
        rig.accept(acting("c1", 0, EXITED, vec![at_once(Liveness, plan)]));
        assert_eq!(rig.roster.take_demands().len(), 0, "{plan:?}");
        assert_eq!(exits(&mut rig), [], "{plan:?}: a reload restarts nothing that ended before");
    }
    let mut failed = rig(RESTART);
    failed.accept(Input::ContainerStopping(c1()));
    failed.accept(Input::ContainerStopFailed(c1()));
    assert_eq!(exits(&mut failed).len(), 1, "a stop that failed while it ran is void");
}

#[test]
fn a_demand_stands_while_the_verdict_is_a_fresh_failure_and_the_container_no_clients() {
    let liveness = key("web", Liveness);
    let mut rig = rig(RESTART);
    let standing = |rig: &Rig, id: &str| rig.roster.standing(&key("web", Liveness), &id.into());
    assert!(!standing(&rig, "c1").unwrap().is_failing);
    assert_eq!(rig.started().len(), 1);
    rig.finish(Liveness, AttemptResult::Failure);
    let found = standing(&rig, "c1").unwrap();
    assert_eq!(
        (found.is_failing, found.acting, found.claim, found.paused_since),
        (true, RESTART, None, None)
    );
    rig.accept(Input::ActBegan("c1".into()));
    rig.accept(acting("c1", 0, EXITED, vec![at_once(Liveness, RESTART)]));
    let found = standing(&rig, "c1").unwrap();
    assert_eq!((found.is_failing, found.claim, found.view.state), (true, None, EXITED), "our own stop");
    let now = rig.now;
    assert_eq!(rig.roster.pause(&liveness, PauseTerms::default(), now), Ok(()));
    assert_eq!(standing(&rig, "c1").unwrap().paused_since, Some(now.wall));
    rig.accept(acting("c2", 1, ContainerState::Running, vec![at_once(Liveness, RESTART)]));
    let found = standing(&rig, "c1").unwrap();
    assert_eq!((found.is_failing, found.claim), (false, Some(Claim::Replaced)));
    assert_eq!(standing(&rig, "c2").unwrap().claim, None);
    rig.accept(Input::ContainerGone("c1".into()));
    assert!(standing(&rig, "c1").is_none() && standing(&rig, "nobody").is_none());
    rig.accept(acting("c2", 1, ContainerState::Running, vec![]));
    assert!(standing(&rig, "c2").is_none(), "the probe is not planned any more");
}

#[test]
fn what_a_client_began_to_stop_is_the_clients_for_good_unless_the_stop_failed_while_it_ran() {
    let stopping = || Input::ContainerStopping("c1".into());
    let failed = || Input::ContainerStopFailed("c1".into());
    let exited = || acting("c1", 0, EXITED, vec![at_once(Liveness, RESTART)]);
    let pod = |is_stopping| {
        let sandbox = "web-sandbox".into();
        if is_stopping { Input::PodStopping(sandbox) } else { Input::PodStopFailed(sandbox) }
    };
    let not_ready = || {
        let view = container("web", "c1", 0);
        let pod = Pod { is_ready: false, ..(*view.pod).clone() };
        let view = Container { pod: Arc::new(pod), ..view };
        Input::Container { view: Arc::new(view), probes: vec![at_once(Liveness, RESTART)] }
    };
    for (what, inputs, claim) in [
        ("a stop", vec![stopping()], Some(Claim::Stopped)),
        ("a stop that failed", vec![stopping(), failed()], None),
        ("one of two that failed", vec![stopping(), stopping(), failed()], Some(Claim::Stopped)),
        ("one that succeeded", vec![stopping(), exited(), stops(&[])], Some(Claim::Stopped)),
        ("one that failed late", vec![stopping(), exited(), failed()], Some(Claim::Stopped)),
        ("one of what has exited", vec![exited(), stopping(), stops(&[])], Some(Claim::Stopped)),
        ("one that is listed", vec![exited(), stops(&["c1"]), stops(&[])], Some(Claim::Stopped)),
        ("one of the pod", vec![pod(true)], Some(Claim::PodStopped)),
        ("one of the pod that failed", vec![pod(true), pod(false)], None),
        ("one of the pod that failed late", vec![pod(true), exited(), pod(false)], Some(Claim::Stopped)),
        ("a sandbox that is not ready", vec![not_ready()], Some(Claim::PodStopped)),
        ("an exit", vec![exited()], None),
    ] {
        let mut rig = rig(RESTART);
        inputs.into_iter().for_each(|input| rig.accept(input));
        let found = rig.roster.standing(&key("web", Liveness), &"c1".into()).unwrap();
        assert_eq!(found.claim, claim, "{what}");
    }
}
