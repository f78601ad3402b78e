//! Checks criprobe's annotations, including those that are overridden: each one by itself, and in the context of its
//! pod. Annotations in, findings out.

use super::{
    findings::Findings,
    place::Lines,
    pod::{Annotation, WrittenContainer, WrittenPod, with_ports},
};
use crate::{
    document::{self, Node, Place, Value, fault::quoted, suggest},
    report::view::Role,
    spec::{
        Handler, HttpGet, PortRef, ProbeSpec, Reach, annotation,
        definition::{self, DefinitionFault},
        policy::Policy,
        ports::{DeclaredPorts, PortError},
        problems::{ONLY_POD, no_container},
    },
};

/// 1,000: the most annotations of ours on one object that are checked, so that the time this takes is bounded. More are
/// an error.
const MAX_ANNOTATIONS: usize = 1_000;

/// What decides beside the pod.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rulebook<'a> {
    /// The operator's part.
    pub(super) policy: &'a Policy,
    /// The source, to find places in.
    pub(super) lines: &'a Lines<'a>,
}

/// Checks the annotations of a pod.
pub(super) fn of_pod(pod: &WrittenPod<'_>, rulebook: Rulebook<'_>, findings: &mut Findings) {
    let is_honoured = rulebook.policy.honours_annotations(&pod.namespace);
    let among = Among { containers: pod.containers.iter().collect(), are_all: pod.are_all };
    for one in bounded(&pod.annotations, findings) {
        check_one(one, pod, &among, rulebook, findings);
        if !is_honoured && annotation::target(one.key).is_some() {
            let namespace = quoted(&pod.namespace);
            let reason =
                format!("annotations of namespace {namespace} are not honoured (annotations.namespaces)");
            findings.error(one.place, format!("{}: {reason}", one.key));
        }
    }
}

/// Checks the annotations of a container of that pod.
pub(super) fn of_container(
    container: &WrittenContainer<'_>,
    pod: &WrittenPod<'_>,
    rulebook: Rulebook<'_>,
    findings: &mut Findings,
) {
    let among = Among { containers: vec![container], are_all: true };
    for one in bounded(&container.annotations, findings) {
        if annotation::is_switch(one.key) {
            findings.warning(one.place, format!("annotation {}: {ONLY_POD}", one.key));
        }
        check_one(one, pod, &among, rulebook, findings);
    }
}

/// Those that are ours, up to the bound.
fn bounded<'a, 'b>(all: &'b [Annotation<'a>], findings: &mut Findings) -> Vec<&'b Annotation<'a>> {
    let mut ours: Vec<_> = all.iter().filter(|one| annotation::is_ours(one.key)).collect();
    if let Some(first) = ours.get(MAX_ANNOTATIONS) {
        let reason = format!("more than {MAX_ANNOTATIONS} criprobe annotations: the rest is not checked");
        findings.error(first.place, reason);
        ours.truncate(MAX_ANNOTATIONS);
    }
    ours
}

/// The containers that an annotation may speak of.
struct Among<'a> {
    containers: Vec<&'a WrittenContainer<'a>>,
    are_all: bool,
}

fn check_one(
    one: &Annotation<'_>,
    pod: &WrittenPod<'_>,
    among: &Among<'_>,
    rulebook: Rulebook<'_>,
    findings: &mut Findings,
) {
    let Annotation { key, place, value } = *one;
    let shown = quoted(key);
    let Some(text) = value.text() else {
        let what = match &value.value {
            Value::Null => "the value is empty",
            Value::Map(_) | Value::List(_) => "the value is YAML, not a string: put a '|' after the colon",
            Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Text(_) => {
                "the value is not a string: put it in quotes"
            }
        };
        findings.error(value.place.or(place), format!("annotation {shown}: {what}"));
        return;
    };
    if let Some(fault) = annotation::fault(key, text) {
        findings.warning(place, fault.in_words(key));
    }
    if annotation::is_switch(key) && is_plain(value.place, text, rulebook.lines) {
        let reason = "kubectl reads it as a boolean: put it in quotes";
        findings.error(value.place, format!("annotation {shown}: {reason}"));
    }
    let Some((kind, name)) = annotation::target(key).filter(|(_, name)| !name.is_empty()) else { return };
    let container = among.containers.iter().copied().find(|container| container.name == name);
    if container.is_none() && among.are_all {
        let names: Vec<_> = among.containers.iter().map(|container| container.name.as_str()).collect();
        findings.error(place, format!("annotation {shown}: {}", no_container(name, &names)));
    }
    if container.is_some_and(|container| container.role == Role::Init) {
        let reason = "an init container without restartPolicy=Always: it is probed only until it exits";
        findings.warning(place, format!("annotation {shown}: {} is {reason}", quoted(name)));
    }
    let spec = match definition::read(kind, text) {
        Ok(spec) => spec,
        Err(wrong) => {
            report(&wrong.fault, key, value.place.or(place), text, rulebook.lines, findings);
            return;
        }
    };
    if let Some(reason) = rulebook.policy.limits.refusal(&spec) {
        findings.error(within(text, "host", value.place, rulebook.lines), format!("{key}: {reason}"));
    }
    if let Some(reason) = container.and_then(|container| port_fault(&spec, container, pod, Prober::Us)) {
        findings.error(within(text, "port", value.place, rulebook.lines), format!("{key}: {reason}"));
    }
}

/// The place of a field of the handler in an annotation; if there is none, that of the whole annotation.
fn within(text: &str, field: &str, start: Option<Place>, lines: &Lines<'_>) -> Option<Place> {
    let node = document::parse(text, annotation::MAX_ANNOTATION).ok();
    let inner = node.and_then(|node| handler_field(&node, field));
    inner.and_then(|inner| Some(lines.within(start?, text, inner))).or(start)
}

/// Where a field of a probe's handler stands.
pub(super) fn handler_field(probe: &Node, field: &str) -> Option<Place> {
    let handlers = ["httpGet", "tcpSocket", "grpc"].into_iter();
    handlers.filter_map(|handler| probe.at(&[handler, field])).find_map(|node| node.place)
}

/// Whether a word that older YAML takes for a truth value stands without quotes.
fn is_plain(place: Option<Place>, text: &str, lines: &Lines<'_>) -> bool {
    let is_word = ["on", "off", "yes", "no", "y", "n"].iter().any(|word| text.eq_ignore_ascii_case(word));
    let rest = place.and_then(|place| lines.from(place)).unwrap_or_default();
    // A block has its lines to itself, and a plain value stands behind its key.
    is_word && rest.trim_end() == text && place.is_some_and(|place| !lines.is_indent(place))
}

/// Reports errors at their places in the file.
fn report(
    fault: &DefinitionFault,
    key: &str,
    start: Option<Place>,
    text: &str,
    lines: &Lines<'_>,
    findings: &mut Findings,
) {
    let at = |inner: Option<Place>| Some(lines.within(start?, text, inner?));
    match fault {
        DefinitionFault::Syntax(error) => {
            findings.error(at(error.place()).or(start), format!("{key}: {}", error.reason()));
        }
        DefinitionFault::Fields(errors) => {
            for error in errors {
                findings.error(at(error.place).or(start), format!("{key}: {error}"));
            }
        }
    }
}

/// Who makes a probe's attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prober {
    /// criprobe.
    Us,
    /// The kubelet, which goes to any port.
    Kubelet,
}

/// Why the port of a probe leads nowhere: a name that the container does not declare; or a number that it does not, where
/// the pod is in the node's network and only its author says so.
pub(super) fn port_fault(
    spec: &ProbeSpec,
    container: &WrittenContainer<'_>,
    pod: &WrittenPod<'_>,
    prober: Prober,
) -> Option<String> {
    let (field, port, host) = target(&spec.handler)?;
    // Without a place nothing is known of the container: only an annotation names it.
    container.place?;
    let is_bound = prober == Prober::Us && spec.reach == Reach::Declared && host.is_none();
    let declared = DeclaredPorts::read(&with_ports(container));
    match declared.resolve(&port) {
        Ok(number) if is_bound && pod.is_host_network && !declared.declares(number) => Some(format!(
            "{field}: the container does not declare port {number}: a pod in the node's network is probed only at ports \
             that its container declares, unless a rule allows others"
        )),
        Ok(_) => None,
        Err(PortError::Undeclared(name)) => Some(format!("{field}: {}", undeclared(&name, container, pod))),
        Err(error @ PortError::OutOfRange(_)) => Some(format!("{field}: {error}")),
    }
}

/// The port that a name of a port comes to.
pub(super) fn resolved(spec: &ProbeSpec, container: &WrittenContainer<'_>) -> Option<u16> {
    let (_, port, _) = target(&spec.handler)?;
    match port {
        PortRef::Number(_) => None,
        PortRef::Name(_) => DeclaredPorts::read(&with_ports(container)).resolve(&port).ok(),
    }
}

/// The port of a handler that has one, the field that it stands in, and whom it is at where that is not the pod.
fn target(handler: &Handler) -> Option<(&'static str, PortRef, Option<&str>)> {
    match handler {
        Handler::Exec { .. } => None,
        Handler::HttpGet(HttpGet { port, host, .. }) => Some(("httpGet.port", port.clone(), host.as_deref())),
        Handler::TcpSocket { port, host } => Some(("tcpSocket.port", port.clone(), host.as_deref())),
        Handler::Grpc { port, .. } => Some(("grpc.port", PortRef::Number(*port), None)),
    }
}

fn undeclared(name: &str, container: &WrittenContainer<'_>, pod: &WrittenPod<'_>) -> String {
    let names: Vec<_> = container.ports.iter().map(|port| port.name.as_str()).collect();
    let elsewhere = pod.containers.iter().find(|other| other.ports.iter().any(|port| port.name == name));
    let hint = match (suggest::nearest(name, &names), elsewhere) {
        (Some(meant), _) => format!("did you mean {}?", quoted(meant)),
        (None, Some(other)) => format!("container {} does", quoted(&other.name)),
        (None, None) => "declare it, or write its number".to_owned(),
    };
    format!("the container declares no port named {}: {hint}", quoted(name))
}
