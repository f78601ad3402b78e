//! What is wrong with the annotations of pods, and whether they turned their probes off: sandboxes and containers in;
//! the views of their pods get the sentences. Pure.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::SystemTime,
};

use tokio::task::yield_now;

use super::view::PodView;
use crate::{
    inventory::pod,
    prober::ContainerStatus,
    spec::{
        annotation,
        policy::Policy,
        problems::{of_container, of_pod, settled_after},
    },
};

/// 16 pods are filled at once, some milliseconds where all have as many annotations as they may; then other tasks have
/// their turn.
const AT_ONCE: usize = 16;

/// Adds them to the views of these sandboxes and containers.
pub(super) async fn fill(
    pods: &mut [PodView],
    sandboxes: &[Arc<pod::Pod>],
    containers: &[ContainerStatus],
    policy: &Policy,
    now: SystemTime,
) {
    let of_containers = containers.iter().map(|container| &container.view.pod);
    let sandboxes: HashMap<_, _> =
        sandboxes.iter().chain(of_containers).map(|pod| (pod.sandbox_id.as_str(), pod)).collect();
    let containers: HashMap<_, _> =
        containers.iter().map(|container| (container.view.id.as_str(), &container.view)).collect();
    for (number, view) in pods.iter_mut().enumerate() {
        if number % AT_ONCE == AT_ONCE - 1 {
            yield_now().await;
        }
        let Some(sandbox) = sandboxes.get(&*view.sandbox_id) else { continue };
        let is_off = annotation::are_off(&sandbox.annotations);
        let is_honoured = policy.honours_annotations(&sandbox.namespace);
        view.probes_off = is_off && is_honoured;
        let newest = view.containers.iter().filter_map(|container| container.created_at).max();
        let age = newest.and_then(|newest| now.duration_since(newest.0).ok());
        let names: BTreeSet<_> = view.containers.iter().map(|container| &*container.container).collect();
        let settled = settled_after(sandbox.is_kubelets);
        let of_sandbox = of_pod(&sandbox.annotations, &names, age.is_some_and(|age| age >= settled));
        let own = view.containers.iter().filter_map(|container| containers.get(&*container.container_id));
        let own = own.flat_map(|container| of_container(&container.annotations, &container.name));
        let unheard = (is_off && !is_honoured).then(|| {
            "annotation criprobe.dev/probes: annotations of this namespace are not honoured (annotations.namespaces)"
                .to_owned()
        });
        view.problems = unheard.into_iter().chain(of_sandbox).chain(own).take(MOST).collect();
    }
}

/// 64: the most problems of one pod that are shown; each has less than 256 bytes.
const MOST: usize = 64;

#[cfg(test)]
mod tests {
    use std::{cell::Cell, time::Duration};

    use futures_util::FutureExt;

    use super::*;
    use crate::{
        glob::Glob,
        inventory::fixtures::{self, texts},
        prober::readiness::ContainerReadiness,
        report::view::{Time, sample},
    };

    fn filled(annotations: &[(&str, &str)], policy: &Policy, after: Duration) -> PodView {
        let pod = pod::Pod { is_kubelets: true, annotations: texts(annotations), ..fixtures::pod() };
        let view = pod::Container { created_at: Some(sample::at(0).0), ..fixtures::container("c1", pod) };
        let readiness = ContainerReadiness { is_started: true, is_ready: true };
        let sandbox = view.pod.clone();
        let status = ContainerStatus { view: Arc::new(view), readiness, probes: Vec::new() };
        let mut pods = [PodView { sandbox_id: sandbox.sandbox_id.to_string(), ..sample::pod() }];
        pods[0].containers.truncate(1);
        pods[0].containers[0].container = status.view.name.to_string();
        pods[0].containers[0].created_at = Some(Time(sample::at(0).0));
        let (sandboxes, statuses, now) = ([sandbox], [status], sample::at(0).0 + after);
        let filled = fill(&mut pods, &sandboxes, &statuses, policy, now);
        filled.now_or_never().expect("one pod needs no turn of others");
        let [pod] = pods;
        pod
    }

    #[test]
    fn a_name_that_no_container_has_is_a_problem_only_once_more_are_unlikely() {
        let strange = [("liveness.criprobe.dev/elsewhere", "x")];
        assert_eq!(filled(&strange, &Policy::default(), Duration::from_secs(599)).problems, [""; 0]);
        let found = filled(&strange, &Policy::default(), Duration::from_secs(600)).problems;
        assert!(found[0].contains("the pod has no container \"elsewhere\": it has \"app\""), "{found:?}");
        let wrong = filled(&[("x.criprobe.dev/app", "x")], &Policy::default(), Duration::ZERO).problems;
        assert!(wrong[0].contains("unknown probe type \"x\""), "{wrong:?}");
    }

    /// 1,400 keys that mean nothing: as many as are kept of one object.
    #[tokio::test]
    async fn while_pods_are_filled_that_have_all_the_annotations_they_may_others_have_their_turn() {
        let keys: Vec<_> = (0..1_400).map(|number| format!("lives.criprobe.dev/c{number}")).collect();
        let annotations = texts(&keys.iter().map(|key| (&**key, "x")).collect::<Vec<_>>());
        let pod = Arc::new(pod::Pod { annotations: annotations.clone(), ..fixtures::pod() });
        let view =
            pod::Container { annotations, pod: pod.clone(), ..fixtures::container("c1", fixtures::pod()) };
        let readiness = ContainerReadiness { is_started: true, is_ready: true };
        let status = ContainerStatus { view: Arc::new(view), readiness, probes: Vec::new() };
        let mut of_one = PodView { sandbox_id: pod.sandbox_id.to_string(), ..sample::pod() };
        of_one.containers.truncate(1);
        (of_one.containers[0].container, of_one.containers[0].container_id) =
            (status.view.name.to_string(), "c1".to_owned());
        let mut pods = vec![of_one; 100];
        let turns = Cell::new(0);
        let others = async {
            for _ in 0..100 {
                turns.set(turns.get() + 1);
                yield_now().await;
            }
        };
        let (sandboxes, statuses, policy) = ([pod], [status], Policy::default());
        let filling = async {
            fill(&mut pods, &sandboxes, &statuses, &policy, sample::at(0).0).await;
            turns.get()
        };
        let (turns, ()) = tokio::join!(filling, others);
        assert!(turns >= 6, "{turns}");
        assert!(pods.iter().all(|pod| pod.problems.len() == 34), "{:?}", pods[0].problems);
    }

    #[test]
    fn a_pod_that_turned_its_probes_off_is_heard_only_where_its_annotations_count() {
        let off = [("criprobe.dev/probes", "off")];
        let heard = filled(&off, &Policy::default(), Duration::ZERO);
        assert_eq!((heard.probes_off, &heard.problems[..]), (true, &[][..]));
        let policy = Policy { annotations: vec![Glob::from("other")], ..Policy::default() };
        let unheard = filled(&off, &policy, Duration::ZERO);
        assert!(!unheard.probes_off && unheard.problems[0].contains("not honoured"), "{unheard:?}");
    }
}
