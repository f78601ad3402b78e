//! What is wrong with annotations, told once when a container with them is registered: containers and their plans in,
//! findings out. Keeps what was told for as long as the container is there. Never logs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::{
    clock,
    ids::{ContainerId, PodUid, ProbeKind},
    inventory::view::ContainerView,
    report::view::{EventType, EventView},
    results::event::bounded,
    spec::{annotation, plan::Planned},
};

/// What was told already, with the containers that it was told of. As bounded as the containers are: at most 36
/// findings of each.
#[derive(Debug, Default)]
pub(super) struct Registration(HashMap<Finding, HashSet<ContainerId>>);

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Finding {
    pod: PodUid,
    pub(super) what: What,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum What {
    /// A definition cannot be used.
    Invalid {
        /// Of which container.
        container: Arc<str>,
        /// The probe's type.
        kind: ProbeKind,
        /// Why.
        reason: String,
    },
    /// A key or value of ours that means nothing.
    Note(String),
    /// So many labels and annotations were too large to be kept.
    Omitted(u32),
}

impl Registration {
    /// What has not been told yet. A restarted container has the same definitions: they are no news.
    pub(super) fn news(&mut self, view: &ContainerView, probes: &[Planned]) -> Vec<Finding> {
        let mut news = Vec::new();
        for what in wrong(view, probes) {
            let finding = Finding { pod: view.pod.uid.clone(), what };
            let told = self.0.entry(finding.clone()).or_default();
            if told.is_empty() {
                news.push(finding);
            }
            told.insert(view.id.clone());
        }
        news
    }

    /// These are all containers that there are.
    pub(super) fn retain(&mut self, is_there: impl Fn(&ContainerId) -> bool) {
        self.0.retain(|_, told| {
            told.retain(&is_there);
            !told.is_empty()
        });
    }

    /// The container is gone.
    pub(super) fn forget(&mut self, id: &ContainerId) {
        self.0.retain(|_, told| {
            told.remove(id);
            !told.is_empty()
        });
    }
}

fn wrong(view: &ContainerView, probes: &[Planned]) -> Vec<What> {
    let invalid = probes.iter().filter_map(|planned| {
        let reason = planned.spec.as_ref().err()?.reason.clone();
        Some(What::Invalid { container: view.name.clone(), kind: planned.kind, reason })
    });
    let notes = [&view.pod.annotations, &view.annotations].into_iter().flat_map(annotation::notes);
    let omitted = view.pod.omitted.saturating_add(view.omitted);
    let omitted = (omitted > 0).then_some(What::Omitted(omitted));
    invalid.chain(notes.map(What::Note)).chain(omitted).collect()
}

/// The event of a definition that cannot be used.
pub(super) fn event(view: &ContainerView, kind: ProbeKind, reason: &str) -> EventView {
    EventView {
        at: clock::wall().into(),
        kind: EventType::Warning,
        reason: "InvalidProbe".to_owned(),
        message: bounded(format!("{} probe is invalid: {reason}", kind.title())),
        namespace: view.pod.namespace.to_string(),
        pod: view.pod.name.to_string(),
        pod_uid: view.pod.uid.to_string(),
        container: view.name.to_string(),
        container_id: view.id.to_string(),
        probe: kind.as_str().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{
        ids::SandboxId,
        inventory::view::{ContainerState, PodNetwork, PodView},
        spec::{
            plan::{ImageFacts, plan},
            policy::Policy,
        },
    };

    fn container(id: &str, annotations: &[(&str, &str)]) -> ContainerView {
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
        };
        ContainerView {
            id: ContainerId::from(id),
            name: "app".into(),
            attempt: 0,
            image: "x".into(),
            image_spec: "x".into(),
            image_ref: "sha256:1".into(),
            state: ContainerState::Running,
            created_at: None,
            started_at: None,
            omitted: 0,
            annotations: BTreeMap::new(),
            pod: Arc::new(PodView {
                sandbox_id: SandboxId::from("s"),
                uid: PodUid::from("u"),
                name: "web".into(),
                namespace: "shop".into(),
                attempt: 0,
                is_ready: true,
                network: PodNetwork::Unknown,
                labels: BTreeMap::new(),
                annotations: map(annotations),
                omitted: 0,
            }),
        }
    }

    #[test]
    fn each_wrong_definition_and_note_is_told_once_however_often_the_container_changes_or_restarts() {
        let annotations = [
            ("liveness.criprobe.dev/app", "{exec: {}}"),
            ("readiness.criprobe.dev/app", "{exec: {command: [x]}}"),
            ("livenes.criprobe.dev/app", "x"),
        ];
        let mut registration = Registration::default();
        let told = |id: &str, registration: &mut Registration| -> Vec<String> {
            let view = container(id, &annotations);
            let news =
                registration.news(&view, &plan(&view, &Policy::default(), ImageFacts::default())).into_iter();
            news.map(|finding| match finding.what {
                What::Invalid { kind, reason, .. } => event(&view, kind, &reason).message,
                What::Note(note) => note,
                What::Omitted(omitted) => format!("{omitted} omitted"),
            })
            .collect()
        };
        let first = told("c1", &mut registration);
        assert_eq!(first.len(), 2, "{first:?}");
        assert!(first[0].starts_with("Liveness probe is invalid: exec.command"), "{first:?}");
        assert!(first[1].contains("did you mean \"liveness\"?"), "{first:?}");
        assert_eq!(told("c1", &mut registration), [""; 0], "the same container again");
        assert_eq!(told("c2", &mut registration), [""; 0], "its next one");
        registration.forget(&ContainerId::from("c1"));
        assert_eq!(told("c2", &mut registration), [""; 0]);
        registration.forget(&ContainerId::from("c2"));
        assert!(registration.0.is_empty(), "nothing is kept of what is gone");
    }
}
