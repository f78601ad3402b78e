//! A pod in a file of any kind: the parts that the plan needs, each with its place. Ignores all other parts.

use std::collections::BTreeMap;

use serde_json::json;

use super::findings::Findings;
use crate::{
    document::{MapEntry, Node, Place, Value, fault::quoted},
    ids::ProbeKind,
    report::view::Role,
};

#[derive(Debug)]
pub(super) struct WrittenPod<'a> {
    pub(super) namespace: String,
    /// Its name, or one of the form that it will have.
    pub(super) name: String,
    /// Where it is in its document; empty where it is the document.
    pub(super) path: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: Vec<Annotation<'a>>,
    /// Whether it is in the node's own network.
    pub(super) is_host_network: bool,
    /// Whether a kubelet manages it.
    pub(super) is_kubelets: bool,
    /// Init containers first.
    pub(super) containers: Vec<WrittenContainer<'a>>,
    /// Whether these are all that it has: a pod for crictl does not say.
    pub(super) are_all: bool,
}

#[derive(Debug)]
pub(super) struct WrittenContainer<'a> {
    pub(super) name: String,
    /// What it is to its pod.
    pub(super) role: Role,
    /// Its image, as written.
    pub(super) image: String,
    /// Where it is in its document.
    pub(super) path: String,
    /// Where it starts; `None` where only an annotation names it.
    pub(super) place: Option<Place>,
    /// Whether that is in another file than its pod.
    pub(super) is_elsewhere: bool,
    /// Its annotations; Kubernetes gives it none of its own.
    pub(super) annotations: Vec<Annotation<'a>>,
    /// Its ports, in order.
    pub(super) ports: Vec<Port>,
    /// The kubelet's own probes.
    pub(super) kubelet: Vec<(ProbeKind, &'a Node)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Annotation<'a> {
    pub(super) key: &'a str,
    /// Where that is.
    pub(super) place: Option<Place>,
    /// Its value; text where it is as it must be.
    pub(super) value: &'a Node,
}

impl<'a> From<&'a MapEntry> for Annotation<'a> {
    fn from(entry: &'a MapEntry) -> Self {
        Self { key: &entry.name, place: entry.place, value: &entry.node }
    }
}

/// One port that a container declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Port {
    /// Empty if it has none.
    pub(super) name: String,
    /// As written.
    pub(super) number: i64,
}

/// What a container's keys for the kubelet's probes are.
pub(super) const KUBELET_PROBES: [(ProbeKind, &str); 3] = [
    (ProbeKind::Startup, "startupProbe"),
    (ProbeKind::Readiness, "readinessProbe"),
    (ProbeKind::Liveness, "livenessProbe"),
];

/// 250: the most containers of one pod that are checked, so that the time this takes is bounded. More are an error.
const MAX_CONTAINERS: usize = 250;

/// Where the kubelet writes a container's ports for the runtime.
const PORTS_ANNOTATION: &str = "io.kubernetes.container.ports";

/// The annotations in a map.
pub(super) fn annotations(map: Option<&Node>) -> Vec<Annotation<'_>> {
    let entries = map.map(Node::entries).unwrap_or_default();
    entries.iter().map(Annotation::from).collect()
}

/// The texts of a map by their names.
pub(super) fn texts(map: Option<&Node>) -> BTreeMap<String, String> {
    let entries = map.map(Node::entries).unwrap_or_default();
    let pair = |entry: &MapEntry| Some((entry.name.clone(), entry.node.text()?.to_owned()));
    entries.iter().filter_map(pair).collect()
}

/// The annotations of a container as a runtime has them: its own, and the ports as the kubelet writes them.
pub(super) fn with_ports(container: &WrittenContainer<'_>) -> BTreeMap<String, String> {
    let own = container.annotations.iter();
    let mut all: BTreeMap<String, String> =
        own.filter_map(|one| Some((one.key.to_owned(), one.value.text()?.to_owned()))).collect();
    if !container.ports.is_empty() {
        let port = |port: &Port| json!({"name": port.name, "containerPort": port.number});
        let ports: Vec<_> = container.ports.iter().map(port).collect();
        all.insert(PORTS_ANNOTATION.to_owned(), json!(ports).to_string());
    }
    all
}

/// Reads the pod that consists of `metadata` and `spec` below `template`, which stands at `path`.
pub(super) fn of_template<'a>(
    template: &'a Node,
    path: &str,
    (namespace, name): (String, String),
    findings: &mut Findings,
) -> WrittenPod<'a> {
    let metadata = template.get("metadata");
    let spec = template.get("spec");
    let mut containers = Vec::new();
    for (list, is_init) in [("initContainers", true), ("containers", false)] {
        let Some(found) = spec.and_then(|spec| spec.get(list)) else { continue };
        let list = join(path, &format!("spec.{list}"));
        if !matches!(found.value, Value::List(_)) {
            findings.error(found.place, format!("{list}: must be a list of containers"));
        }
        for (index, node) in found.items().iter().enumerate() {
            containers.extend(container(node, format!("{list}[{index}]"), is_init, findings));
        }
    }
    if containers.len() > MAX_CONTAINERS {
        containers.truncate(MAX_CONTAINERS);
        let reason = format!("more than {MAX_CONTAINERS} containers: the rest is not checked");
        findings.error(template.place, reason);
    }
    if !containers.iter().any(|container| container.role == Role::Container) {
        let place = spec.and_then(|spec| spec.place).or(template.place);
        findings.error(place, format!("{}: Required value", join(path, "spec.containers")));
    }
    let host_network = spec.and_then(|spec| spec.get("hostNetwork"));
    WrittenPod {
        namespace,
        name,
        path: path.to_owned(),
        labels: texts(metadata.and_then(|metadata| metadata.get("labels"))),
        annotations: annotations(metadata.and_then(|metadata| metadata.get("annotations"))),
        is_kubelets: true,
        is_host_network: host_network.is_some_and(|node| node.value == Value::Bool(true)),
        containers,
        are_all: true,
    }
}

fn container<'a>(
    node: &'a Node,
    path: String,
    is_init: bool,
    findings: &mut Findings,
) -> Option<WrittenContainer<'a>> {
    let Some(name) = node.get("name").and_then(Node::text).filter(|name| !name.is_empty()) else {
        findings.error(node.place, format!("{path}.name: Required value"));
        return None;
    };
    let policy = node.get("restartPolicy").and_then(Node::text);
    let role = match (is_init, policy) {
        (false, _) => Role::Container,
        (true, Some("Always")) => Role::Sidecar,
        (true, _) => Role::Init,
    };
    let kubelet = KUBELET_PROBES.iter().filter_map(|(kind, key)| Some((*kind, node.get(key)?)));
    Some(WrittenContainer {
        name: name.to_owned(),
        role,
        image: node.get("image").and_then(Node::text).unwrap_or_default().to_owned(),
        place: node.place,
        is_elsewhere: false,
        annotations: Vec::new(),
        ports: ports(node.get("ports"), &path, findings),
        kubelet: kubelet.collect(),
        path,
    })
}

/// Ports that are none are passed over, but for what makes a probe go wrong: a number in quotes.
fn ports(list: Option<&Node>, path: &str, findings: &mut Findings) -> Vec<Port> {
    let mut ports = Vec::new();
    for (index, node) in list.map(Node::items).unwrap_or_default().iter().enumerate() {
        let name = node.get("name").and_then(Node::text).unwrap_or_default().to_owned();
        match node.get("containerPort").map(|port| (&port.value, port.place)) {
            Some((Value::Integer(number), _)) => {
                ports.push(Port { name, number: i64::try_from(*number).unwrap_or(0) });
            }
            Some((Value::Text(text), place)) => {
                let quoted = quoted(text);
                let hint = "must be a whole number: write it without quotes";
                let path = format!("{path}.ports[{index}].containerPort");
                findings.error(place, format!("{path}: Invalid value: {quoted}: {hint}"));
            }
            _ => {}
        }
    }
    ports
}

/// `a.b`, or `b` if there is no `a`.
pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
