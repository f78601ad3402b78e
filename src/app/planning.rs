//! The task around the planner: changes of the inventory, the operator's policy and image data in; probe plans for the
//! prober out. Reports errors in definitions, in the log and as events. Never waits for an image.

use std::{mem, sync::Arc};

use tokio::{
    sync::{mpsc, watch},
    task,
};

use super::{
    images::{Found, ImageAnswer, Images},
    registration::{self, AnnotationFinding, Registration, What},
};
use crate::{
    clock,
    inventory::{
        Change, InventoryHandle,
        pod::{Container, Pod},
    },
    prober::{Input, ProberHandle},
    report::{journal::Journal, view::EventView},
    runtime::{Runtime, link::Link, turns::Backlog},
    spec::{
        plan::Planned,
        planner::{Plan, Planner},
        policy::Policy,
    },
    stage::Tasks,
};

/// What the planner works with.
pub(super) struct Deps {
    /// Changes of the inventory.
    pub(super) changes: mpsc::Receiver<Change>,
    /// Has all changes reported again.
    pub(super) inventory: InventoryHandle,
    /// The operator's decisions; they may change at any time.
    pub(super) policies: watch::Receiver<Arc<Policy>>,
    /// Shows when the runtime may be another one.
    pub(super) link: watch::Receiver<Link>,
    /// Asked for images.
    pub(super) runtime: Runtime,
    /// Gets the plans.
    pub(super) prober: ProberHandle,
    /// Gets an event for each definition that cannot be used.
    pub(super) journal: Journal<EventView>,
}

/// Starts the planner; the images that the runtime was asked about in vain so far.
pub(super) fn spawn(mut deps: Deps, tasks: &mut Tasks) -> watch::Receiver<Backlog> {
    let backlog = watch::Sender::default();
    let (mut has_started, shown) = (false, backlog.subscribe());
    tasks.spawn(tasks.supervise("plan", async move || {
        if mem::replace(&mut has_started, true) {
            deps.inventory.replay();
        }
        let images = Images::new(deps.runtime.clone(), backlog.clone());
        run(&mut deps, images).await;
    }));
    shown
}

/// Plans until no changes come any more. Those that come after the end of the prober, as during a drain, are dropped.
async fn run(deps: &mut Deps, mut images: Images) {
    let Deps { changes, policies, link, prober, journal, runtime: _, inventory: _ } = deps;
    let mut planner = Planner::new(policies.borrow_and_update().clone());
    let mut registration = Registration::default();
    let (mut may_change, mut is_linked) = (true, true);
    let mut epoch = link.borrow_and_update().epoch;
    loop {
        images.match_with(planner.patterns());
        let settles = registration.due();
        let next = tokio::select! {
            change = changes.recv() => match change {
                Some(change) => of_change(change, &mut planner, &mut registration, journal),
                None => return,
            },
            () = clock::until(settles) => {
                for (pod, finding) in registration.settled(clock::now()) {
                    if let What::Problems(problems) = &finding.what {
                        let passed_over = (finding.passed_over > 0).then_some(finding.passed_over);
                        report_problems(journal, &pod, problems, passed_over);
                    }
                }
                Input::Replanned(Vec::new())
            }
            changed = policies.changed(), if may_change => {
                may_change = changed.is_ok();
                let policy = policies.borrow_and_update().clone();
                replanned(planner.on_policy(policy), &mut registration, journal).await
            }
            changed = link.changed(), if is_linked => {
                is_linked = changed.is_ok();
                let (current, away) = {
                    let link = link.borrow_and_update();
                    (link.epoch, (!link.is_up).then_some(link.since))
                };
                if mem::replace(&mut epoch, current) != current {
                    images.on_new_link(clock::now());
                    planner.on_new_link();
                }
                Input::RuntimeAway(away)
            }
            ImageAnswer { image, found } = images.next() => match found {
                Found::Names(names) => {
                    replanned(planner.on_names(&image, names), &mut registration, journal).await
                }
                Found::Healthcheck(healthcheck) => {
                    replanned(planner.on_image(&image, healthcheck), &mut registration, journal).await
                }
            },
        };
        planner.take_wanted().into_iter().for_each(|(image, depth)| images.want(image, depth));
        images.retain(|image| planner.wants(image));
        if !prober.report(next).await {
            // The inventory must not wait for room: the trace needs it.
            while changes.recv().await.is_some() {}
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
        Change::StopsListed(open) => Input::StopsListed(open),
        Change::RuntimeAnswers => Input::RuntimeAnswers,
    }
}

/// Plans one container after the other. A definition may take a millisecond to read, and there are thousands: after each
/// container the thread's other tasks have their turn.
async fn replanned(
    plans: impl Iterator<Item = Plan>,
    registration: &mut Registration,
    journal: &Journal<EventView>,
) -> Input {
    let mut all = Vec::new();
    for plan in plans {
        all.push(planned(plan, registration, journal));
        task::yield_now().await;
    }
    Input::Replanned(all)
}

/// What is planned of a container, once its errors were reported.
fn planned(
    plan: Plan,
    registration: &mut Registration,
    journal: &Journal<EventView>,
) -> (Arc<Container>, Vec<Planned>) {
    let Plan { view, probes } = plan;
    for finding in registration.news(&view, &probes, clock::now()) {
        report(journal, &view, &finding);
    }
    (view, probes)
}

/// Logs what is wrong with a pod; a definition that cannot be used is an event, too.
fn report(
    journal: &Journal<EventView>,
    view: &Container,
    AnnotationFinding { what, passed_over }: &AnnotationFinding,
) {
    let (namespace, pod) = (&*view.pod.namespace, &*view.pod.name);
    let passed_over = (*passed_over > 0).then_some(*passed_over);
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
        What::ActRefused { container, kind, asked, refusal } => {
            let (container, kind_name, asked) = (&**container, kind.as_str(), asked.as_str());
            tracing::warn!(
                namespace,
                pod,
                container,
                probe.type = kind_name,
                asked,
                reason = %refusal,
                passed_over,
                "probe only reports"
            );
        }
        What::Problems(problems) => report_problems(journal, &view.pod, problems, passed_over),
        What::Omitted(omitted) => tracing::warn!(
            namespace,
            pod,
            omitted,
            passed_over,
            "labels and annotations are too large: the largest of them are ignored"
        ),
        What::CopiedUid(given) => tracing::warn!(
            namespace,
            pod,
            pod.uid = %view.pod.uid,
            given_uid = %given,
            passed_over,
            "another pod has the same UID: criprobe identifies this pod by its sandbox ID"
        ),
    }
}

/// Logs annotations that belong to no probe, in one line; they are one event, too.
fn report_problems(journal: &Journal<EventView>, pod: &Pod, problems: &[String], passed_over: Option<u64>) {
    let (namespace, name, problems) = (&*pod.namespace, &*pod.name, problems.join("; "));
    tracing::warn!(namespace, pod = name, problems, passed_over, "annotations are not understood");
    journal.push(registration::problem_event(pod, problems));
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::{join, task::yield_now};

    use super::*;
    use crate::{inventory::fixtures, report::journal::JournalBounds};

    #[tokio::test]
    async fn between_two_plans_others_have_their_turn() {
        let size = |_: &EventView| 1;
        let journal = Journal::new(JournalBounds {
            records: 9,
            bytes: 9,
            groups: None,
            backlog: 1,
            size,
            repeats: None,
        });
        let (turns, mut seen) = (Cell::new(0), Vec::new());
        let plans = (0..5).map(|number| {
            seen.push(turns.get());
            let view = Arc::new(fixtures::container(&format!("c{number}"), fixtures::pod()));
            Plan { view, probes: Vec::new() }
        });
        let others = async {
            for _ in 0..5 {
                turns.set(turns.get() + 1);
                yield_now().await;
            }
        };
        let mut registration = Registration::default();
        let (input, ()) = join!(replanned(plans, &mut registration, &journal), others);
        let Input::Replanned(all) = input else { panic!("{input:?}") };
        assert_eq!((all.len(), seen.len()), (5, 5));
        assert!(seen[4] >= 4, "{seen:?}");
    }
}
