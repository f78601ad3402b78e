//! Finds the pods in a Kubernetes object: by kind for built-in kinds, by structure for others. An object in, pods with
//! their places out.

use super::{
    findings::Findings,
    pod::{self, Annotation, WrittenPod, join},
};
use crate::{document::Node, spec::annotation};

/// 12 levels: how deep below an object of an unknown kind a pod template is looked for. What is deeper is not found.
const MAX_SEARCH: usize = 12;

/// 100: the most templates that are taken from one object. The rest are left out.
const MAX_TEMPLATES: usize = 100;

/// What an object has for criprobe.
#[derive(Debug)]
pub(super) struct Object<'a> {
    /// `Deployment shop/web`.
    pub(super) name: String,
    pub(super) pods: Vec<WrittenPod<'a>>,
}

/// Reads an object of that kind; what has no namespace of its own is taken to be in `namespace`.
pub(super) fn read<'a>(node: &'a Node, kind: &str, namespace: &str, findings: &mut Findings) -> Object<'a> {
    let metadata = node.get("metadata");
    let text = |name| metadata.and_then(|metadata| metadata.get(name)).and_then(Node::text);
    let own_namespace = text("namespace");
    let namespace = own_namespace.unwrap_or(namespace).to_owned();
    let generated = text("generateName").map(|prefix| format!("{prefix}xxxxx"));
    let name = text("name").map(str::to_owned).or(generated).unwrap_or_default();
    let templates = templates(node, kind);
    if !templates.iter().any(|(path, _)| path.is_empty()) {
        misplaced(metadata, &templates, findings);
    }
    if is_known(kind) && templates.is_empty() {
        let path = known_path(kind).join(".");
        findings.error(node.place, format!("{path}: Required value: a {kind} needs a pod template"));
    }
    let pods = templates
        .into_iter()
        .map(|(path, template)| {
            let pod = (namespace.clone(), pod_name(kind, &name));
            pod::of_template(template, &path, pod, findings)
        })
        .collect();
    let shown = match (own_namespace, &*name) {
        (_, "") => kind.to_owned(),
        (None, name) => format!("{kind} {name}"),
        (Some(namespace), name) => format!("{kind} {namespace}/{name}"),
    };
    Object { name: shown, pods }
}

/// Whether Kubernetes itself makes pods of it.
fn is_known(kind: &str) -> bool {
    kind == "Pod" || !known_path(kind).is_empty()
}

/// Where the template is in an object of Kubernetes' own; empty for a pod, and for all others.
fn known_path(kind: &str) -> &'static [&'static str] {
    match kind {
        "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" | "ReplicationController" | "Job" => {
            &["spec", "template"]
        }
        "CronJob" => &["spec", "jobTemplate", "spec", "template"],
        "PodTemplate" => &["template"],
        _ => &[],
    }
}

/// Each template with its path.
fn templates<'a>(node: &'a Node, kind: &str) -> Vec<(String, &'a Node)> {
    match known_path(kind) {
        [] if kind == "Pod" => vec![(String::new(), node)],
        // What it holds are descriptions of objects.
        [] if kind == "CustomResourceDefinition" => Vec::new(),
        [] => {
            let mut found = Vec::new();
            search(node, "", 0, &mut found);
            found
        }
        path => node.at(path).map(|template| (path.join("."), template)).into_iter().collect(),
    }
}

/// Finds what has `spec.containers`, a list of maps with names, wherever it is; a pod holds no other pods.
fn search<'a>(node: &'a Node, path: &str, depth: usize, found: &mut Vec<(String, &'a Node)>) {
    if depth > MAX_SEARCH || found.len() >= MAX_TEMPLATES {
        return;
    }
    let containers = node.at(&["spec", "containers"]).map(Node::items).unwrap_or_default();
    if containers.iter().any(|container| container.get("name").is_some()) {
        found.push((path.to_owned(), node));
        return;
    }
    for entry in node.entries() {
        search(&entry.node, &join(path, &entry.name), depth + 1, found);
    }
    for (index, item) in node.items().iter().enumerate() {
        search(item, &format!("{path}[{index}]"), depth + 1, found);
    }
}

/// Annotations of ours on the object instead of on its pods, where Kubernetes ignores them.
fn misplaced(metadata: Option<&Node>, templates: &[(String, &Node)], findings: &mut Findings) {
    let all = pod::annotations(metadata.and_then(|metadata| metadata.get("annotations")));
    for Annotation { key, place, .. } in all.into_iter().filter(|one| annotation::is_ours(one.key)) {
        let where_to = match templates {
            [] => "criprobe finds no pod template in it".to_owned(),
            [(path, _), ..] => format!("move it to {path}.metadata.annotations"),
        };
        let key = crate::document::fault::quoted(key);
        findings.warning(
            place,
            format!("annotation {key}: it is on the object itself, and pods do not inherit it: {where_to}"),
        );
    }
}

/// A name of the form that Kubernetes gives the pods of such an object; `x` replaces what it generates.
fn pod_name(kind: &str, name: &str) -> String {
    match kind {
        "Pod" => name.to_owned(),
        "Deployment" => format!("{name}-xxxxxxxxxx-xxxxx"),
        "StatefulSet" => format!("{name}-0"),
        "CronJob" => format!("{name}-xxxxxxxx-xxxxx"),
        _ => format!("{name}-xxxxx"),
    }
}
