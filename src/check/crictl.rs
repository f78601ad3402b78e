//! Reads a pod or a container in crictl's format, and combines them. Documents in, pods with their places out.

use std::collections::BTreeSet;

use super::pod::{self, Annotation, WrittenContainer, WrittenPod};
use crate::{
    document::{Node, Value},
    inventory::pod::KUBELETS_UID,
    report::view::Role,
    spec::annotation,
};

/// `NODE` of the CRI's `NamespaceMode`: the node's own network.
const NODE: i128 = 2;

/// A pod; its containers are those that its annotations name, until others are given.
pub(super) fn pod<'a>(node: &'a Node, namespace: &str) -> WrittenPod<'a> {
    let metadata = |name| node.at(&["metadata", name]).and_then(Node::text);
    let annotations = pod::annotations(node.get("annotations"));
    let network = node.at(&["linux", "security_context", "namespace_options", "network"]);
    let named: BTreeSet<_> =
        annotations.iter().filter_map(|one| annotation::target(one.key)).map(|(_, name)| name).collect();
    let labels = pod::texts(node.get("labels"));
    WrittenPod {
        namespace: metadata("namespace").unwrap_or(namespace).to_owned(),
        name: metadata("name").unwrap_or_default().to_owned(),
        path: String::new(),
        is_kubelets: labels.contains_key(KUBELETS_UID),
        labels,
        is_host_network: network.is_some_and(|network| match &network.value {
            Value::Integer(mode) => *mode == NODE,
            Value::Text(mode) => mode == "NODE",
            _ => false,
        }),
        containers: named.into_iter().filter(|name| !name.is_empty()).map(named_only).collect(),
        annotations,
        are_all: false,
    }
}

/// What belongs beside the metadata of a pod or container for crictl, but stands in it, as in a manifest for Kubernetes.
pub(super) fn misplaced(node: &Node) -> impl Iterator<Item = (&'static str, &Node)> {
    ["annotations", "labels"].into_iter().filter_map(|key| Some((key, node.at(&["metadata", key])?)))
}

pub(super) fn container(node: &Node) -> WrittenContainer<'_> {
    let image = node.get("image");
    let image = image.and_then(|image| image.get("image").or(Some(image))).and_then(Node::text);
    WrittenContainer {
        name: node.at(&["metadata", "name"]).and_then(Node::text).unwrap_or_default().to_owned(),
        role: Role::Container,
        image: image.unwrap_or_default().to_owned(),
        path: String::new(),
        place: node.place,
        is_elsewhere: false,
        annotations: pod::annotations(node.get("annotations")),
        ports: Vec::new(),
        kubelet: Vec::new(),
    }
}

/// The pod of a container that was given without one.
pub(super) fn pod_of<'a>(container: WrittenContainer<'a>, namespace: &str) -> WrittenPod<'a> {
    WrittenPod {
        namespace: namespace.to_owned(),
        name: String::new(),
        path: String::new(),
        labels: std::collections::BTreeMap::new(),
        annotations: Vec::<Annotation<'a>>::new(),
        is_host_network: false,
        is_kubelets: false,
        containers: vec![container],
        are_all: false,
    }
}

fn named_only(name: &str) -> WrittenContainer<'static> {
    WrittenContainer {
        name: name.to_owned(),
        role: Role::Container,
        image: String::new(),
        path: String::new(),
        place: None,
        is_elsewhere: false,
        annotations: Vec::new(),
        ports: Vec::new(),
        kubelet: Vec::new(),
    }
}
