//! Reports errors in annotations once, when a container with them is registered: containers and their plans in,
//! findings out. Remembers what was reported as long as the pod has containers. Never logs.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Instant,
};

use super::log_share::LogShare;
use crate::{
    clock,
    ids::{ContainerId, PodUid, ProbeKind},
    inventory::pod::{Container, Pod},
    report::view::{EventType, EventView},
    results::event::{EventReason, bounded},
    spec::{
        OnFailure,
        acting::ActRefusal,
        plan::Planned,
        problems::{has_strangers, of_container, of_pod, settled_after},
    },
};

/// 1,024 findings of one pod are remembered, 8 bytes each: more than its probes and annotations have. Further ones are not
/// reported.
const MAX_OF_POD: usize = 1024;

/// What was reported already.
#[derive(Debug, Default)]
pub(super) struct Registration {
    /// Of each container that there is: its pod.
    containers: HashMap<ContainerId, PodUid>,
    pods: HashMap<PodUid, PodFindings>,
    /// When pods are taken to have all their containers: those whose annotations name others.
    settling: BTreeSet<(Instant, PodUid)>,
    /// Findings beyond that are neither logged nor events.
    share: LogShare,
}

#[derive(Debug)]
struct PodFindings {
    pod: Arc<Pod>,
    /// Their names.
    containers: HashMap<ContainerId, Arc<str>>,
    /// Since when there has been no new one.
    since: Instant,
    /// Hashes of what was found.
    found: HashSet<u64>,
}

impl PodFindings {
    /// When it is taken to have all its containers.
    fn settles(&self) -> Instant {
        self.since + settled_after(self.pod.is_kubelets)
    }

    fn names(&self) -> BTreeSet<&str> {
        self.containers.values().map(|name| &**name).collect()
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AnnotationFinding {
    pub(super) what: What,
    /// How many findings of the pod were not reported, since the last one that was.
    pub(super) passed_over: u64,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum What {
    /// A definition cannot be used.
    Invalid {
        container: Arc<str>,
        /// The probe's type.
        kind: ProbeKind,
        /// Why.
        reason: String,
    },
    /// A probe only reports although its definition asks for an act.
    ActRefused {
        container: Arc<str>,
        /// The probe's type.
        kind: ProbeKind,
        /// What is asked for.
        asked: OnFailure,
        /// Why that is not done.
        refusal: ActRefusal,
    },
    /// Annotations of ours that belong to no probe, a sentence each.
    Problems(Vec<String>),
    /// So many labels and annotations were too large to be kept.
    Omitted(u32),
    /// The pod's uid is another pod's, and it is known by one of its own.
    CopiedUid(PodUid),
}

impl Registration {
    /// What has not been reported yet. A restarted container has the same definitions: they are no news.
    pub(super) fn news(
        &mut self,
        view: &Container,
        probes: &[Planned],
        now: Instant,
    ) -> Vec<AnnotationFinding> {
        let uid = &view.pod.uid;
        if self.containers.get(&view.id) != Some(uid) {
            self.forget(&view.id);
            self.containers.insert(view.id.clone(), uid.clone());
            let pod = self.pods.entry(uid.clone()).or_insert_with(|| PodFindings {
                pod: view.pod.clone(),
                containers: HashMap::new(),
                since: now,
                found: HashSet::new(),
            });
            self.settling.remove(&(pod.settles(), uid.clone()));
            pod.containers.insert(view.id.clone(), view.name.clone());
            (pod.pod, pod.since) = (view.pod.clone(), now);
            if has_strangers(&view.pod.annotations, &pod.names()) {
                self.settling.insert((pod.settles(), uid.clone()));
            }
        }
        let Some(pod) = self.pods.get(uid) else { return Vec::new() };
        let found = wrong(view, probes, &pod.names());
        self.report(uid, found, now)
    }

    /// When [`Self::settled`] is to be asked.
    pub(super) fn due(&self) -> Option<Instant> {
        self.settling.first().map(|(at, _)| *at)
    }

    /// What has not been reported yet of the pods that have no new container for so long that they are taken to have all.
    pub(super) fn settled(&mut self, now: Instant) -> Vec<(Arc<Pod>, AnnotationFinding)> {
        let mut news = Vec::new();
        while self.due().is_some_and(|at| at <= now)
            && let Some((_, uid)) = self.settling.pop_first()
        {
            let Some(known) = self.pods.get(&uid) else { continue };
            let (pod, problems) = (known.pod.clone(), of_pod(&known.pod.annotations, &known.names(), true));
            let found = self.report(&uid, vec![What::Problems(problems)], now);
            news.extend(found.into_iter().map(|finding| (pod.clone(), finding)));
        }
        news
    }

    /// Those that are news, as far as there is room. All that is wrong with annotations at once is one finding.
    fn report(&mut self, uid: &PodUid, found: Vec<What>, now: Instant) -> Vec<AnnotationFinding> {
        let Some(pod) = self.pods.get_mut(uid) else { return Vec::new() };
        let mut is_new = |hash| pod.found.len() < MAX_OF_POD && pod.found.insert(hash);
        let mut news = Vec::new();
        for mut what in found {
            let is_news = match &mut what {
                What::Problems(problems) => {
                    problems.retain(|problem| is_new(hash(problem)));
                    !problems.is_empty()
                }
                what => is_new(hash(what)),
            };
            if is_news && let Some(passed_over) = self.share.admit(uid, &pod.pod.namespace, now) {
                news.push(AnnotationFinding { what, passed_over });
            }
        }
        news
    }

    /// These are all containers that there are.
    pub(super) fn retain(&mut self, is_there: impl Fn(&ContainerId) -> bool) {
        let gone = self.containers.keys().filter(|id| !is_there(id)).cloned().collect::<Vec<_>>();
        gone.iter().for_each(|id| self.forget(id));
    }

    /// The container is gone. With its last one, a pod is forgotten.
    pub(super) fn forget(&mut self, id: &ContainerId) {
        let Some(uid) = self.containers.remove(id) else { return };
        let Some(pod) = self.pods.get_mut(&uid) else { return };
        pod.containers.remove(id);
        if pod.containers.is_empty() {
            self.settling.remove(&(pod.settles(), uid.clone()));
            self.pods.remove(&uid);
        }
    }
}

fn hash(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

fn wrong(view: &Container, probes: &[Planned], names: &BTreeSet<&str>) -> Vec<What> {
    let invalid = probes.iter().filter_map(|planned| {
        let reason = planned.spec.as_ref().err()?.reason.clone();
        Some(What::Invalid { container: view.name.clone(), kind: planned.kind, reason })
    });
    let problems = of_pod(&view.pod.annotations, names, false).into_iter();
    let problems = What::Problems(problems.chain(of_container(&view.annotations, &view.name)).collect());
    let omitted = view.pod.omitted.saturating_add(view.omitted);
    let omitted = (omitted > 0).then_some(What::Omitted(omitted));
    let copied = view.pod.copied_uid.clone().map(What::CopiedUid);
    let refused = probes.iter().filter_map(|Planned { kind, acting, .. }| {
        let container = view.name.clone();
        Some(What::ActRefused { container, kind: *kind, asked: acting.asked, refusal: acting.refusal? })
    });
    copied.into_iter().chain(omitted).chain(invalid).chain(refused).chain([problems]).collect()
}

/// The event of a definition that cannot be used.
pub(super) fn event(view: &Container, kind: ProbeKind, reason: &str) -> EventView {
    let message = format!("{} probe is invalid: {reason}", kind.title());
    EventView {
        container: view.name.to_string(),
        container_id: view.id.to_string(),
        probe: kind.as_str().to_owned(),
        ..warning(&view.pod, EventReason::InvalidProbe, message)
    }
}

/// The event of annotations that belong to no probe.
pub(super) fn problem_event(pod: &Pod, problems: String) -> EventView {
    warning(pod, EventReason::InvalidAnnotation, problems)
}

fn warning(pod: &Pod, reason: EventReason, message: String) -> EventView {
    EventView {
        namespace: pod.namespace.to_string(),
        pod: pod.name.to_string(),
        pod_uid: pod.uid.to_string(),
        message: bounded(message),
        ..EventView::of_node(EventType::Warning, reason.as_str(), String::new(), clock::wall().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        inventory::{
            fixtures::{self, texts},
            pod::Pod,
        },
        spec::{
            acting::ActPolicy,
            plan::{ImageFacts, plan},
            policy::Policy,
        },
    };

    fn container(id: &str, annotations: &[(&str, &str)]) -> Container {
        let pod = Pod { uid: "u".into(), annotations: texts(annotations), ..fixtures::pod() };
        fixtures::container(id, pod)
    }

    #[test]
    fn each_wrong_definition_and_note_is_told_once_however_often_the_container_changes_or_restarts() {
        let annotations = [
            ("liveness.criprobe.dev/app", "{exec: {}}"),
            ("readiness.criprobe.dev/app", "{exec: {command: [x]}}"),
            ("livenes.criprobe.dev/app", "x"),
        ];
        let mut registration = Registration::default();
        let messages = |id: &str, registration: &mut Registration| -> Vec<String> {
            let view = container(id, &annotations);
            let planned = plan(&view, &Policy::default(), ImageFacts::default());
            let news = registration.news(&view, &planned, clock::now()).into_iter();
            news.map(|finding| match finding.what {
                What::Invalid { kind, reason, .. } => event(&view, kind, &reason).message,
                What::Problems(problems) => problems.join("; "),
                What::ActRefused { container, kind, asked, refusal } => {
                    format!("{container} {kind} {asked:?}: {refusal}")
                }
                What::Omitted(omitted) => format!("{omitted} omitted"),
                What::CopiedUid(uid) => uid.to_string(),
            })
            .collect()
        };
        let first = messages("c1", &mut registration);
        assert_eq!(first.len(), 2, "{first:?}");
        assert!(first[0].starts_with("Liveness probe is invalid: exec.command"), "{first:?}");
        assert!(first[1].contains("did you mean \"liveness\"?"), "{first:?}");
        assert_eq!(messages("c1", &mut registration), [""; 0], "the same container again");
        assert_eq!(messages("c2", &mut registration), [""; 0], "its next one");
        registration.forget(&ContainerId::from("c1"));
        assert_eq!(messages("c2", &mut registration), [""; 0]);
        registration.forget(&ContainerId::from("c2"));
        assert!(registration.due().is_none());
        assert!(registration.containers.is_empty() && registration.pods.is_empty(), "nothing is kept");
    }

    #[test]
    fn a_container_that_never_comes_is_a_problem_once_the_pod_has_settled() {
        let mut registration = Registration::default();
        let start = clock::now();
        let annotations = [
            ("liveness.criprobe.dev/elsewhere", "{exec: {command: [x]}}"),
            ("livenes.criprobe.dev/app", "x"),
        ];
        let init = container("c1", &annotations);
        let wrong = registration.news(&init, &[], start);
        assert!(
            matches!(&wrong[..], [AnnotationFinding { what: What::Problems(one), .. }] if one.len() == 1)
        );
        let next = Container { name: "next".into(), ..container("c2", &annotations) };
        let settled = settled_after(false);
        let later = start + settled / 2;
        assert_eq!(registration.news(&next, &[], later), []);
        assert_eq!(registration.due(), Some(later + settled), "each new container puts it off");
        assert_eq!(registration.settled(start + settled), []);
        let found = registration.settled(later + settled);
        let [(pod, AnnotationFinding { what: What::Problems(problems), .. })] = &found[..] else {
            panic!("{found:?}")
        };
        let event = problem_event(pod, problems.join("; "));
        assert_eq!((&*event.reason, &*event.pod_uid), ("InvalidAnnotation", "u"));
        assert!(event.message.contains("the pod has no container \"elsewhere\""), "{}", event.message);
        assert_eq!((registration.due(), registration.settled(later + settled * 2)), (None, vec![]));
        let come = Container { name: "elsewhere".into(), ..container("c3", &annotations) };
        assert_eq!(registration.news(&come, &[], later), []);
        assert_eq!(registration.due(), None, "all are there");
        registration.retain(|_| false);
        assert!(registration.pods.is_empty() && registration.settling.is_empty());
    }

    #[test]
    fn an_act_that_is_refused_is_reported_once_for_each_reason() {
        let mut registration = Registration::default();
        let mut refusals = |id: &str, policy: &Policy| -> Vec<_> {
            let definition = "{exec: {command: [x]}, onFailure: stop}";
            let view = container(id, &[("liveness.criprobe.dev/app", definition)]);
            let planned = plan(&view, policy, ImageFacts::default());
            let news = registration.news(&view, &planned, clock::now()).into_iter().map(|found| found.what);
            news.map(|what| match what {
                What::ActRefused { kind: ProbeKind::Liveness, asked: OnFailure::Stop, refusal, .. } => {
                    refusal
                }
                other => panic!("{other:?}"),
            })
            .collect()
        };
        assert_eq!(refusals("c1", &Policy::default()), [ActRefusal::Disabled]);
        assert_eq!(refusals("c2", &Policy::default()), [], "its next container");
        let enabled = ActPolicy { is_enabled: true, ..ActPolicy::default() };
        let policy = Policy { acting: enabled, ..Policy::default() };
        assert_eq!(refusals("c2", &policy), [ActRefusal::Namespace], "once the operator enables acting");
        let policy = Policy { acting: ActPolicy::allowing_all(), ..Policy::default() };
        assert_eq!(refusals("c2", &policy), [], "and names the namespace");
    }

    #[test]
    fn row_10_a_pod_with_thousands_of_wrong_definitions_has_its_lines_and_takes_no_more() {
        let mut registration = Registration::default();
        let mut reported = 0;
        for number in 0..2_000 {
            let key = format!("liveness.criprobe.dev/c{number}");
            let view = Container {
                name: format!("c{number}").into(),
                ..container(&number.to_string(), &[(&key, "{exec: {}}")])
            };
            let planned = plan(&view, &Policy::default(), ImageFacts::default());
            reported += registration.news(&view, &planned, clock::now()).len();
        }
        assert!((20..30).contains(&reported), "{reported}: and one more each ten seconds");
        assert_eq!(registration.pods[&PodUid::from("u")].found.len(), MAX_OF_POD);
        registration.retain(|_| false);
        assert!(registration.pods.is_empty());
    }
}
