//! The task around the planner: the inventory's changes, the operator's decisions and what images have in, what is to be
//! probed out, to the prober. Tells what is wrong with definitions, in the log and as events. Never waits for an image.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use super::{
    images::{Answer, Found, Images},
    registration::{self, Finding, Registration, What},
};
use crate::{
    clock,
    inventory::{Change, view::ContainerView},
    observed::Observed,
    prober::Input,
    report::{journal::Journal, view::EventView},
    spec::{
        plan::Planned,
        planner::{Plan, Planner},
        policy::Policy,
    },
};

/// Plans until no changes come any more, or the prober is gone.
pub(super) async fn run(
    changes: &mut mpsc::Receiver<Change>,
    policies: &mut watch::Receiver<Arc<Policy>>,
    observed: &Observed,
    mut images: Images,
    inputs: &mpsc::Sender<Input>,
    journal: &Journal<EventView>,
) {
    let mut planner = Planner::new(policies.borrow_and_update().clone());
    let mut registration = Registration::default();
    let mut may_change = true;
    loop {
        let next = tokio::select! {
            change = changes.recv() => match change {
                Some(change) => {
                    observed.changed(&change);
                    of_change(change, &mut planner, &mut registration, journal)
                }
                None => return,
            },
            changed = policies.changed(), if may_change => {
                may_change = changed.is_ok();
                let policy = policies.borrow_and_update().clone();
                let plans = planner.on_policy(policy).into_iter();
                Input::Replanned(plans.map(|plan| planned(plan, &mut registration, journal)).collect())
            }
            Answer { image, found } = images.next() => {
                let plans = match found {
                    Found::Names(names) => planner.on_names(&image, names),
                    Found::Healthcheck(healthcheck) => planner.on_image(&image, healthcheck),
                };
                let plans = plans.into_iter();
                Input::Replanned(plans.map(|plan| planned(plan, &mut registration, journal)).collect())
            }
        };
        planner.take_wanted().into_iter().for_each(|(image, depth)| images.want(image, depth));
        images.retain(|image| planner.wants(image));
        if inputs.send(next).await.is_err() {
            return;
        }
    }
}

fn of_change(
    change: Change,
    planner: &mut Planner,
    registration: &mut Registration,
    journal: &Journal<EventView>,
) -> Input {
    match change {
        Change::Container(view) => {
            let (view, probes) = planned(planner.on_container(view), registration, journal);
            Input::Container { view, probes }
        }
        Change::ContainerGone(id) => {
            planner.on_gone(&id);
            registration.forget(&id);
            Input::ContainerGone(id)
        }
        Change::Listed(all) => {
            planner.retain(|id| all.contains(id));
            registration.retain(|id| all.contains(id));
            Input::Listed(all)
        }
        Change::ContainerStopping(id) => Input::ContainerStopping(id),
        Change::ContainerStopFailed(id) => Input::ContainerStopFailed(id),
        Change::PodStopping(id) => Input::PodStopping(id),
        Change::PodStopFailed(id) => Input::PodStopFailed(id),
    }
}

/// What is planned of a container, once what is wrong with it was told.
fn planned(
    plan: Plan,
    registration: &mut Registration,
    journal: &Journal<EventView>,
) -> (Arc<ContainerView>, Vec<Planned>) {
    let Plan { view, probes } = plan;
    for finding in registration.news(&view, &probes, clock::now()) {
        tell(journal, &view, &finding);
    }
    (view, probes)
}

/// Logs what is wrong with a pod; a definition that cannot be used is an event, too.
fn tell(journal: &Journal<EventView>, view: &ContainerView, Finding { what, passed_over }: &Finding) {
    let (namespace, pod) = (&*view.pod.namespace, &*view.pod.name);
    let passed_over = (*passed_over > 0).then_some(passed_over);
    match what {
        What::Invalid { kind, reason, .. } => {
            let container = &*view.name;
            let kind_name = kind.as_str();
            tracing::warn!(
                namespace,
                pod,
                container,
                probe.type = kind_name,
                reason,
                passed_over,
                "probe is invalid"
            );
            journal.push(registration::event(view, *kind, reason));
        }
        What::Note(note) => {
            tracing::warn!(namespace, pod, note, passed_over, "annotation is not understood");
        }
        What::Omitted(omitted) => tracing::warn!(
            namespace,
            pod,
            omitted,
            passed_over,
            "labels and annotations are too large: rules and probes do not see the largest of them"
        ),
        What::CopiedUid(given) => tracing::warn!(
            namespace,
            pod,
            pod.uid = %view.pod.uid,
            given_uid = %given,
            passed_over,
            "the pod has a copy of another pod's UID: it is known by one that is made of its sandbox's ID"
        ),
    }
}
