//! What is missing until pods are as wanted: pods and their probes in, a text for each container or pod out. Pure.

use std::time::SystemTime;

use super::Goal;
use crate::{
    cli::{pods, probes::explanation, reason::plain},
    clock,
    report::{
        filter::Glob,
        lookup::suggestion,
        view::{
            AttemptResult, ContainerStateView, ContainerView, PodView, ProbePhase, ProbeView, RuntimeState,
            RuntimeView, Verdict, joined,
        },
    },
};

/// Probes, and what time it is.
type Probes<'a> = (&'a [ProbeView], SystemTime);

/// What is missing, of all pods; of their containers of that name only, if one is given.
pub(super) fn missing(
    goal: Goal,
    container: Option<&Glob>,
    (pods, probes): (&[PodView], &[ProbeView]),
    now: SystemTime,
) -> Vec<String> {
    let probes = (probes, now);
    let of_pod = |pod: &PodView| -> Vec<String> {
        let id = joined([&*pod.namespace, &*pod.pod]);
        let of_pod = match container {
            Some(glob) => of_named(goal, glob, pod, probes),
            None => of_all(goal, pod, probes),
        };
        // What is written and does not become a probe is not known to be well.
        let problems = pod.problems.iter().filter(|_| goal == Goal::Healthy).map(|problem| plain(problem));
        of_pod.into_iter().chain(problems).map(|reason| format!("{id}: {reason}")).collect()
    };
    pods.iter().flat_map(of_pod).collect()
}

/// What is said first of a runtime that does not answer, also by its probes.
pub(super) const AWAY: &str = "the runtime is away";

/// That the runtime answers: without it, no probe of a command is tried, and no container that ends is seen.
pub(super) fn runtime(runtime: &RuntimeView, now: SystemTime) -> Option<String> {
    let reason = if runtime.reason.is_empty() { String::new() } else { format!(": {}", runtime.reason) };
    let since = clock::short(runtime.since.0, now);
    (runtime.state == RuntimeState::Away).then(|| format!("{AWAY} since {since}{reason}"))
}

fn of_named(goal: Goal, glob: &Glob, pod: &PodView, probes: Probes<'_>) -> Vec<String> {
    let known = || pod.containers.iter().map(|one| &*one.container);
    if !known().any(|name| glob.matches(name)) {
        return vec![format!("it has no container {}{}", glob.as_str(), suggestion(glob.as_str(), known()))];
    }
    let named = pod.containers.iter().filter(|one| glob.matches(&one.container));
    named.filter_map(|one| of_container(goal, pod, one, probes)).collect()
}

fn of_all(goal: Goal, pod: &PodView, probes: Probes<'_>) -> Vec<String> {
    if goal == Goal::Ready && pod.ready {
        return Vec::new();
    }
    if !pod.sandbox_ready {
        return vec!["the sandbox is not ready".to_owned()];
    }
    // One that ended well may be an init container, see `report::pods`.
    let is_done = |one: &ContainerView| {
        one.state == ContainerStateView::Exited && one.exit_code == Some(0) && one.act.is_none()
    };
    let counted: Vec<_> = pod.containers.iter().filter(|one| !is_done(one)).collect();
    if counted.is_empty() {
        let is_empty = pod.containers.is_empty();
        let reason = if is_empty { "there are no containers" } else { "all containers have exited" };
        return vec![reason.to_owned()];
    }
    let mut reasons: Vec<_> =
        counted.into_iter().filter_map(|one| of_container(goal, pod, one, probes)).collect();
    if goal == Goal::Ready && reasons.is_empty() {
        reasons.push(pod.reason.clone());
    }
    reasons
}

fn of_container(goal: Goal, pod: &PodView, one: &ContainerView, (probes, now): Probes<'_>) -> Option<String> {
    let name = &one.container;
    if one.state != ContainerStateView::Running {
        return Some(format!("{name} is {}", pods::state(one)));
    }
    let its = || probes.iter().filter(|probe| probe.pod_uid == pod.pod_uid && probe.container == *name);
    let blame = |kind: &str| {
        let probe = its().find(|probe| probe.kind == kind);
        probe.map_or_else(|| format!("{name} is not {}", goal.as_str()), |probe| words(name, probe, now))
    };
    if !one.started {
        return Some(blame("startup"));
    }
    match goal {
        Goal::Started => None,
        Goal::Ready => (!one.ready).then(|| blame("readiness")),
        Goal::Healthy if one.paused => Some(format!("{name} is paused: its processes are frozen")),
        Goal::Healthy => {
            let mut own = its().filter(|probe| probe.source != "observed");
            let probe = own.find(|probe| !is_healthy(probe, one))?;
            Some(words(name, probe, now))
        }
    }
}

/// Whether it has succeeded at this very container, its verdict is success, and it can be tried.
fn is_healthy(probe: &ProbeView, one: &ContainerView) -> bool {
    let has_succeeded = probe.counts.success + probe.counts.warning > 0;
    let is_error = probe.last.as_ref().is_some_and(|last| last.result == AttemptResult::Error);
    probe.state == Verdict::Success && probe.container_id == one.container_id && has_succeeded && !is_error
}

/// `readiness of app is failure: HTTP probe failed with statuscode: 503`; `readiness of app cannot be tried since 10:00:00Z (7
/// attempts): the runtime is away`.
fn words(container: &str, probe: &ProbeView, now: SystemTime) -> String {
    if let Some(errors) = probe.errors.filter(|_| probe.state == Verdict::Success) {
        if errors.count == 0 {
            return format!("{} of {container} {}", probe.kind, probe.reason);
        }
        let why = probe.last.as_ref().map(|last| plain(&last.words())).unwrap_or_default();
        return format!("{} of {container} {}: {why}", probe.kind, errors.in_words(now));
    }
    let state = match probe.state {
        _ if probe.phase == ProbePhase::Invalid => "is invalid".to_owned(),
        Verdict::Success => "has not succeeded at this container yet".to_owned(),
        state => format!("is {}", state.as_str()),
    };
    let why = explanation(probe);
    let why = if why.is_empty() { String::new() } else { format!(": {why}") };
    format!("{} of {container} {state}{why}", probe.kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::view::{AttemptView, Counts, ErrorsView, sample};

    fn app() -> PodView {
        let mut pod = PodView { ready: true, ..sample::pod() };
        pod.containers.truncate(1);
        pod.containers[0].container_id = "c1".to_owned();
        pod
    }

    fn reasons(goal: Goal, container: Option<&str>, pod: &PodView, probes: &[ProbeView]) -> Vec<String> {
        let container = container.map(Glob::from);
        let probes = probes.iter().map(|probe| ProbeView { pod_uid: pod.pod_uid.clone(), ..probe.clone() });
        let pods = std::slice::from_ref(pod);
        missing(goal, container.as_ref(), (pods, &probes.collect::<Vec<_>>()), sample::at(125_000).0)
    }

    #[test]
    fn nothing_is_missing_of_a_pod_whose_containers_are_as_wanted() {
        for goal in [Goal::Ready, Goal::Started, Goal::Healthy] {
            assert!(reasons(goal, None, &app(), &[sample::probe()]).is_empty(), "{goal:?}");
            assert!(reasons(goal, Some("ap?"), &app(), &[sample::probe()]).is_empty(), "{goal:?}");
        }
        let mut done = app();
        let init = ContainerView {
            container: "init".to_owned(),
            state: ContainerStateView::Exited,
            exit_code: Some(0),
            started: false,
            ready: false,
            ..done.containers[0].clone()
        };
        done.containers.push(init);
        assert!(reasons(Goal::Healthy, None, &done, &[sample::probe()]).is_empty(), "an init container");
        assert_eq!(reasons(Goal::Ready, Some("init"), &done, &[]), ["default/web: init is exited 0"]);
        assert!(reasons(Goal::Healthy, None, &app(), &[sample::invalid_probe()]).is_empty());
    }

    #[test]
    fn a_runtime_that_is_away_is_missing() {
        let mut runtime = sample::status().runtime;
        (runtime.state, runtime.since) = (RuntimeState::Ok, sample::at(0));
        assert_eq!(super::runtime(&runtime, sample::at(1).0), None);
        (runtime.state, runtime.reason) = (RuntimeState::Away, "it does not answer".to_owned());
        assert_eq!(
            super::runtime(&runtime, sample::at(1).0).as_deref(),
            Some("the runtime is away since 10:00:00Z: it does not answer")
        );
    }

    #[test]
    fn what_is_missing_is_said_in_the_words_of_the_probe() {
        let pod = |change: fn(&mut ContainerView)| {
            let mut pod = PodView { ready: false, ..app() };
            change(&mut pod.containers[0]);
            pod
        };
        let readiness = ProbeView {
            kind: "readiness".to_owned(),
            container: "app".to_owned(),
            ..sample::failing_probe()
        };
        let untried = ProbeView { counts: Counts::default(), ..sample::probe() };
        let former = ProbeView { container_id: "c0".to_owned(), ..sample::probe() };
        let exited = pod(|one| (one.state, one.exit_code) = (ContainerStateView::Exited, Some(137)));
        let mut erring = ProbeView {
            errors: Some(ErrorsView { count: 1, since: sample::at(120_000), cannot_try: false }),
            ..sample::probe()
        };
        erring.last = erring.last.map(|last| AttemptView {
            result: AttemptResult::Error,
            output: "away".into(),
            ..last
        });
        let bare = PodView { containers: vec![], ready: false, ..sample::pod() };
        let (unready, unstarted) = (pod(|one| one.ready = false), pod(|one| one.started = false));
        let frozen = pod(|one| one.paused = true);
        for (goal, container, pod, probe, reported) in [
            (Goal::Ready, None, &bare, &untried, "there are no containers"),
            (Goal::Started, None, &exited, &untried, "app is exited 137"),
            (Goal::Ready, Some("ap"), &app(), &untried, "it has no container ap; did you mean app?"),
            (Goal::Ready, None, &unready, &readiness, "readiness of app is failure: "),
            (Goal::Started, None, &unstarted, &untried, "app is not started"),
            (
                Goal::Healthy,
                None,
                &app(),
                &untried,
                "liveness of app has not succeeded at this container yet",
            ),
            (Goal::Healthy, None, &app(), &former, "liveness of app has not succeeded at this container yet"),
            (
                Goal::Healthy,
                None,
                &app(),
                &erring,
                "liveness of app cannot be tried since 10:02:00Z (1 attempt): away",
            ),
            (Goal::Healthy, None, &frozen, &former, "app is paused: its processes are frozen"),
        ] {
            let found = reasons(goal, container, pod, std::slice::from_ref(probe));
            let reported = format!("default/web: {reported}");
            assert!(matches!(&*found, [one] if one.starts_with(&reported)), "{goal:?}: {found:?}");
        }
        let ready = PodView { ready: true, ..app() };
        assert!(reasons(Goal::Ready, None, &ready, &[erring]).is_empty(), "as the kubelet's");
        let down = PodView { sandbox_ready: false, ready: false, ..app() };
        assert_eq!(reasons(Goal::Ready, None, &down, &[]), ["default/web: the sandbox is not ready"]);
    }
}
