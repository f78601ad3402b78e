//! Determines the kind of a document from its content. Never checks whether it is valid.

use crate::document::{Node, Value, suggest};

/// What a document is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shape<'a> {
    /// An object of Kubernetes, of this kind.
    Object(&'a str),
    /// Objects of Kubernetes, each for itself.
    List(&'a [Node]),
    /// A pod of Kubernetes without `apiVersion` or `kind`.
    NamelessPod,
    /// A pod for crictl: `PodSandboxConfig` of the CRI.
    CrictlPod,
    /// A container for crictl: `ContainerConfig` of the CRI.
    CrictlContainer,
    /// A configuration of criprobe.
    Configuration,
    /// A map that is none of these.
    Unknown,
    /// No map at all.
    NoMap,
}

/// The keys at the top of a configuration.
const CONFIGURATION: [&str; 13] = [
    "listen",
    "runtime",
    "state",
    "api",
    "prober",
    "annotations",
    "healthcheck",
    "observed",
    "history",
    "attempts",
    "rules",
    "trace",
    "act",
];

/// Keys that only a container for crictl has.
const CRICTL_CONTAINER: [&str; 10] =
    ["image", "command", "args", "working_dir", "envs", "mounts", "devices", "log_path", "stdin", "tty"];

/// What a document is. `kind` and `apiVersion` come first, since only Kubernetes has both; then `metadata`, which a
/// configuration has not.
pub(super) fn of(node: &Node) -> Shape<'_> {
    let Value::Map(entries) = &node.value else { return Shape::NoMap };
    let has = |name: &str| entries.iter().any(|entry| entry.name == name);
    let kind = node.get("kind").and_then(Node::text);
    let is_pod = node.at(&["spec", "containers"]).is_some();
    match kind {
        Some(kind) if kind.ends_with("List") && node.get("items").is_some() => {
            return Shape::List(node.get("items").map(Node::items).unwrap_or_default());
        }
        Some(kind) if has("apiVersion") => return Shape::Object(kind),
        Some(_) | None if is_pod => return Shape::NamelessPod,
        Some(_) | None => {}
    }
    if has("metadata") && kind.is_none() && !has("spec") {
        let is_container = entries.iter().any(|entry| CRICTL_CONTAINER.contains(&entry.name.as_str()));
        return if is_container { Shape::CrictlContainer } else { Shape::CrictlPod };
    }
    let is_ours = |name: &str| CONFIGURATION.contains(&name) || name == "log";
    let is_nearly_ours = |name: &str| suggest::nearest(name, &CONFIGURATION).is_some();
    let is_configuration = entries.iter().any(|entry| is_ours(&entry.name))
        || entries.iter().any(|entry| is_nearly_ours(&entry.name)) && kind.is_none();
    if is_configuration { Shape::Configuration } else { Shape::Unknown }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::parse;

    #[test]
    fn a_document_is_known_by_its_shape() {
        for (text, shape) in [
            ("{apiVersion: v1, kind: Pod, metadata: {name: x}}", "Object(\"Pod\")"),
            ("{apiVersion: x/v1, kind: Rollout}", "Object(\"Rollout\")"),
            ("{apiVersion: v1, kind: List, items: []}", "List([])"),
            ("{kind: PodList, items: []}", "List([])"),
            ("{metadata: {name: x}, spec: {containers: []}}", "NamelessPod"),
            ("{kind: Pod, metadata: {name: x}, spec: {containers: []}}", "NamelessPod"),
            ("{metadata: {name: x, namespace: y, uid: z}, annotations: {}, linux: {}}", "CrictlPod"),
            ("{metadata: {name: x}}", "CrictlPod"),
            ("{metadata: {name: x}, image: {image: y}, linux: {}}", "CrictlContainer"),
            ("{metadata: {name: x}, log_path: y}", "CrictlContainer"),
            ("{rules: []}", "Configuration"),
            ("{annotations: {namespaces: []}}", "Configuration"),
            ("{log: {}}", "Configuration"),
            ("{probr: {}}", "Configuration"),
            ("{kind: Config, clusters: []}", "Unknown"),
            ("{replicaCount: 1, image: {repository: x}}", "Unknown"),
            ("{}", "Unknown"),
            ("[]", "NoMap"),
            ("x", "NoMap"),
        ] {
            assert_eq!(format!("{:?}", of(&parse(text, 1 << 10).unwrap())), shape, "{text}");
        }
    }
}
