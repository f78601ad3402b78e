//! Assembles pods as the kubelet would show them: sandboxes of the inventory and containers of the prober in, one view
//! per pod out. Pure. CRI does not mark init containers, and does not report how many containers a pod should have.

use std::{collections::BTreeMap, sync::Arc, time::SystemTime};

use crate::{
    act::status::{ActsStatus, Current},
    exits::{Exit, ExitsHandle},
    inventory::pod::{self, ContainerState},
    prober::{ContainerStatus, ProbeStatus},
};

use super::{
    unready,
    view::{ContainerStateView, ContainerView, ExitView, PausedProbeView, PodView, ProbesView},
};

/// What the sandboxes of one pod share, and what views are sorted by: namespace, name, uid.
type Identity = (Arc<str>, Arc<str>, Arc<str>);

/// One pod as it is put together: its newest sandbox, and the newest container of each name in that.
struct PodParts<'a> {
    sandbox: &'a Arc<pod::Pod>,
    containers: BTreeMap<&'a str, &'a ContainerStatus>,
}

/// 5 containers that are not ready are explained, and the others only named; and 5 probes that cannot be tried.
const EXPLAINED: usize = 5;

/// What is known beside the pods and containers themselves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beside<'a> {
    pub(super) acts: &'a ActsStatus,
    pub(super) exits: &'a ExitsHandle,
    pub(super) now: SystemTime,
}

/// What is shown of a pod whose uid is another one's.
const COPIED: &str = "another pod has the same UID: criprobe identifies this pod by its sandbox ID";

/// A view a pod, by namespace, name and uid.
pub(super) fn views(
    sandboxes: &[Arc<pod::Pod>],
    containers: &[ContainerStatus],
    beside: Beside<'_>,
) -> Vec<PodView> {
    let mut pods: BTreeMap<Identity, PodParts<'_>> = BTreeMap::new();
    // One that was made between the two questions is known from its containers alone.
    let of_containers = containers.iter().map(|container| &container.view.pod);
    for sandbox in sandboxes.iter().chain(of_containers) {
        match pods.get_mut(&identity(sandbox)) {
            Some(pod) if pod.sandbox.attempt >= sandbox.attempt => {}
            Some(pod) => pod.sandbox = sandbox,
            None => {
                pods.insert(identity(sandbox), PodParts { sandbox, containers: BTreeMap::new() });
            }
        }
    }
    for container in containers {
        let Some(pod) = pods.get_mut(&identity(&container.view.pod)) else { continue };
        if container.view.pod.sandbox_id != pod.sandbox.sandbox_id {
            continue;
        }
        let name = &*container.view.name;
        let is_newest = pod.containers.get(name).is_none_or(|known| age(known) < age(container));
        if is_newest {
            pod.containers.insert(name, container);
        }
    }
    pods.into_values().map(|pod| pod.view(beside)).collect()
}

fn identity(pod: &pod::Pod) -> Identity {
    (pod.namespace.clone(), pod.name.clone(), pod.uid.as_str().into())
}

fn age(container: &ContainerStatus) -> impl PartialOrd + use<> {
    (container.view.attempt, container.view.created_at, container.view.id.clone())
}

impl PodParts<'_> {
    fn view(&self, beside: Beside<'_>) -> PodView {
        let unready = unready(self, beside);
        let copied = self.sandbox.copied_uid.as_ref().map(|_| COPIED.to_owned());
        let containers: Vec<_> = self.containers.values().map(|known| container(known, beside)).collect();
        let acted = containers.iter().filter_map(|container| {
            let act = container.act.as_ref()?;
            Some(format!("{}: {}", container.container, act.in_words()))
        });
        // What is done now comes first: on a narrow terminal the rest is cut off.
        let reasons = acted.chain(unready.clone()).chain(copied);
        PodView {
            namespace: self.sandbox.namespace.to_string(),
            pod: self.sandbox.name.to_string(),
            pod_uid: self.sandbox.uid.to_string(),
            sandbox_id: self.sandbox.sandbox_id.to_string(),
            attempt: self.sandbox.attempt,
            sandbox_ready: self.sandbox.is_ready,
            ready: unready.is_none(),
            reason: reasons.collect::<Vec<_>>().join("; "),
            problems: Vec::new(),
            probes_off: false,
            containers,
        }
    }
}

/// Why a pod is not ready: in the words of the probes that fail, and then in the kubelet's (docs/kubelet-prober.md 4, readiness roll-up).
///
/// A container that ended well may be an init container that has done its work, so it is left out; but somebody has to be
/// there who is ready. One that is about to be restarted has not done its work.
fn unready(pod: &PodParts<'_>, beside: Beside<'_>) -> Option<String> {
    if !pod.sandbox.is_ready {
        return Some("the sandbox is not ready".to_owned());
    }
    if pod.containers.is_empty() {
        return Some("there are no containers".to_owned());
    }
    let counted = || {
        let of_pod = pod.containers.values();
        let is_done = |view: &pod::Container| {
            view.state == ContainerState::Exited { exit_code: Some(0) }
                && current(view, beside.acts).is_none()
        };
        of_pod.filter(move |container| !is_done(&container.view))
    };
    if counted().next().is_none() {
        return Some("all containers have exited".to_owned());
    }
    let unready: Vec<_> = counted().filter(|container| !container.readiness.is_ready).collect();
    if unready.is_empty() {
        return None;
    }
    let explained = unready.iter().take(EXPLAINED).map(|container| {
        let view = &container.view;
        let is_clients =
            matches!(view.state, ContainerState::Exited { .. }) && beside.exits.is_clients(&view.id);
        let stopped = if is_clients { ": a client stopped it" } else { "" };
        format!("{}: {}{stopped}; ", view.name, unready::reason(container, beside.now))
    });
    let names: Vec<_> = unready.iter().map(|container| &*container.view.name).collect();
    let explained: String = explained.collect();
    Some(format!("{explained}containers with unready status: [{}]", names.join(" ")))
}

/// What is done to a container now, or withheld.
fn current<'a>(view: &pod::Container, acts: &'a ActsStatus) -> Option<&'a Current> {
    if acts.places.is_empty() {
        return None;
    }
    acts.places.get(&(view.pod.uid.clone(), view.name.clone()))?.current.as_ref()
}

fn container(known: &ContainerStatus, beside: Beside<'_>) -> ContainerView {
    let view = &known.view;
    let (state, exit_code) = match view.state {
        ContainerState::Created => (ContainerStateView::Created, None),
        ContainerState::Running => (ContainerStateView::Running, None),
        ContainerState::Exited { exit_code } => (ContainerStateView::Exited, exit_code),
        ContainerState::Unknown => (ContainerStateView::Unknown, None),
    };
    let end = view.end.as_deref();
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ContainerView {
        container: view.name.to_string(),
        container_id: view.id.to_string(),
        image: view.image.to_string(),
        state,
        paused: view.is_paused,
        exit_code,
        stopped_by_client: exit_code.is_some() && beside.exits.is_clients(&view.id),
        finished_at: end.and_then(|end| end.finished_at).map(Into::into),
        exit_reason: end.and_then(|end| text(&end.reason)),
        exit_message: end.and_then(|end| text(&end.message)),
        log_path: text(&view.log_path),
        exits: beside.exits.earlier(view).iter().map(|exit| (&**exit).into()).collect(),
        created_at: view.created_at.map(Into::into),
        started_at: view.started_at.map(Into::into),
        started: known.readiness.is_started,
        ready: known.readiness.is_ready,
        restarts: view.attempt,
        probes: ProbesView {
            cannot_try: known.probes.iter().filter(|probe| probe.cannot_try()).count() as u64,
            ..ProbesView::count(known.probes.iter().map(|probe| (probe.state, probe.phase)))
        },
        act: current(view, beside.acts).map(Into::into),
        paused_probes: paused(&known.probes),
        failing_probes: unready::failing(&known.probes, beside.now),
    }
}

impl From<&Exit> for ExitView {
    fn from(exit: &Exit) -> Self {
        Self {
            attempt: exit.attempt,
            container_id: exit.container.to_string(),
            started_at: exit.started_at.map(Into::into),
            finished_at: exit.finished_at.map(Into::into),
            exit_code: exit.exit_code,
            reason: exit.reason.to_string(),
        }
    }
}

/// The probes that an operator paused.
fn paused(probes: &[ProbeStatus]) -> Vec<PausedProbeView> {
    let paused = probes.iter().filter_map(|probe| {
        let pause = probe.pause.as_ref()?.into();
        Some(PausedProbeView { kind: probe.key.kind.to_string(), pause })
    });
    paused.collect()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::{
        act::status::{PlaceStatus, Step},
        ids::{ContainerId, PodUid, SandboxId},
        inventory::fixtures,
        prober::readiness::ContainerReadiness,
        results::event::ActCause,
        spec::OnFailure,
    };

    fn sandbox(uid: &str, attempt: u32, is_ready: bool) -> Arc<pod::Pod> {
        Arc::new(pod::Pod {
            sandbox_id: SandboxId::from(format!("{uid}-{attempt}")),
            uid: PodUid::from(uid),
            namespace: "shop".into(),
            attempt,
            is_ready,
            ..fixtures::pod()
        })
    }

    fn views(sandboxes: &[Arc<pod::Pod>], containers: &[ContainerStatus], acts: &ActsStatus) -> Vec<PodView> {
        let exits = ExitsHandle::new(UNIX_EPOCH);
        super::views(sandboxes, containers, Beside { acts, exits: &exits, now: UNIX_EPOCH })
    }

    const RUNNING: ContainerState = ContainerState::Running;
    const DONE: ContainerState = ContainerState::Exited { exit_code: Some(0) };
    const BROKEN: ContainerState = ContainerState::Exited { exit_code: Some(1) };

    fn container(
        pod: &Arc<pod::Pod>,
        name: &str,
        attempt: u32,
        state: ContainerState,
        is_ready: bool,
    ) -> ContainerStatus {
        ContainerStatus {
            view: Arc::new(pod::Container {
                id: ContainerId::from(format!("{}-{name}-{attempt}", pod.sandbox_id)),
                name: name.into(),
                attempt,
                state,
                pod: pod.clone(),
                ..fixtures::container("", fixtures::pod())
            }),
            readiness: ContainerReadiness { is_started: state == RUNNING, is_ready },
            probes: Vec::new(),
        }
    }

    #[test]
    fn a_pod_is_ready_when_all_that_counts_is() {
        let (up, down) = (sandbox("u", 0, true), sandbox("u", 0, false));
        for (pod, containers, reason) in [
            (&up, &[("app", RUNNING, true)][..], ""),
            (&up, &[("app", RUNNING, true), ("log", RUNNING, true)], ""),
            (&up, &[("init", DONE, false), ("app", RUNNING, true)], ""),
            (
                &up,
                &[("app", RUNNING, false), ("b", BROKEN, false), ("c", RUNNING, true)],
                "app: its probes are not known yet; b: exited with code 1; containers with unready status: [app b]",
            ),
            (
                &up,
                &[("app", ContainerState::Created, false)],
                "app: created, not started; containers with unready status: [app]",
            ),
            (
                &up,
                &[("app", ContainerState::Exited { exit_code: None }, false)],
                "app: exited; containers with unready status: [app]",
            ),
            (&up, &[("init", DONE, false)], "all containers have exited"),
            (&up, &[], "there are no containers"),
            (&down, &[("app", RUNNING, true)], "the sandbox is not ready"),
        ] {
            let of_pod = containers.iter().map(|&(name, state, ready)| container(pod, name, 0, state, ready));
            let shown = views(std::slice::from_ref(pod), &of_pod.collect::<Vec<_>>(), &ActsStatus::default());
            assert_eq!((shown.len(), shown[0].ready, &*shown[0].reason), (1, reason.is_empty(), reason));
            assert_eq!(shown[0].containers.len(), containers.len());
        }
    }

    #[test]
    fn the_newest_sandbox_and_the_newest_container_of_a_name_are_the_pods() {
        let (old, new) = (sandbox("u", 0, false), sandbox("u", 1, true));
        let containers = vec![
            container(&new, "app", 2, RUNNING, true),
            container(&new, "app", 1, BROKEN, false),
            container(&old, "app", 7, BROKEN, false),
        ];
        for sandboxes in [vec![old.clone(), new.clone()], vec![new.clone(), old.clone()], vec![]] {
            let shown = views(&sandboxes, &containers, &ActsStatus::default());
            let [pod] = &shown[..] else { panic!("{shown:?}") };
            assert_eq!((&*pod.sandbox_id, pod.attempt, pod.ready), ("u-1", 1, true));
            assert_eq!((pod.containers.len(), pod.containers[0].restarts), (1, 2));
        }
    }

    #[test]
    fn pods_of_one_name_are_told_apart_by_their_uid() {
        let shown = views(&[sandbox("v", 0, true), sandbox("u", 3, true)], &[], &ActsStatus::default());
        let uids: Vec<_> = shown.iter().map(|pod| &*pod.pod_uid).collect();
        assert_eq!(uids, ["u", "v"]);
    }

    #[test]
    fn a_container_that_is_about_to_be_restarted_is_not_done_and_says_so() {
        let up = sandbox("u", 0, true);
        let containers = [container(&up, "app", 2, DONE, false), container(&up, "log", 0, RUNNING, true)];
        let current = |step| Current {
            container: containers[0].view.id.clone(),
            action: OnFailure::Restart,
            cause: ActCause::Exited { exit_code: Some(0) },
            since: UNIX_EPOCH,
            step,
        };
        let until = UNIX_EPOCH + Duration::from_secs(184);
        for (step, reason) in [
            (None, ""),
            (
                Some(Step::BackOff(until)),
                "app: restart: back-off until 00:03:04Z; app: exited with code 0; containers with unready status: [app]",
            ),
            (
                Some(Step::Retrying { reason: "no image".to_owned(), at: Some(until) }),
                "app: restart failed at 00:00:00Z, next try 00:03:04Z: no image; app: exited with code 0; containers with unready status: [app]",
            ),
        ] {
            let place = PlaceStatus { current: step.map(current), ..PlaceStatus::default() };
            let places = [((PodUid::from("u"), "app".into()), place)].into();
            let acts = ActsStatus { places, ..ActsStatus::default() };
            let shown = views(std::slice::from_ref(&up), &containers, &acts);
            assert_eq!((shown[0].ready, &*shown[0].reason), (reason.is_empty(), reason));
            assert_eq!(shown[0].containers[0].act.is_some(), !reason.is_empty());
        }
    }
}
