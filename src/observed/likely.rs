//! The likely type of a client's probe: the pod's manifest, and the command, timeout and period of calls in; startup,
//! readiness or liveness out. Pure: reads text, never files.

use std::time::Duration;

use crate::{
    document::{Bounds, MAX_DEPTH, Node, Value, parse_within},
    ids::ProbeKind,
    inventory::pod::Container,
    spec::expand::may_become,
    tap::cri::ExecCommand,
};

/// What `kubectl apply` leaves on a pod: the pod as it was applied, in JSON.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Where a kubelet has a pod from; `file` is a static pod's.
const SOURCE: &str = "kubernetes.io/config.source";

/// 256 KiB: what Kubernetes takes as all annotations of a pod together. A longer text is not read.
pub(crate) const LONGEST_MANIFEST: usize = 256 << 10;

/// 4,096 names and values, several times as many as a pod of ten containers has. Reading them takes 6 ms, which a pod's
/// author can cause once per container. A manifest with more shows nothing.
const BOUNDS: Bounds = Bounds { bytes: LONGEST_MANIFEST, depth: MAX_DEPTH, nodes: 4096 };

/// What Kubernetes takes where a probe does not say: a timeout of 1 s, a period of 10 s.
const TIMEOUT: i128 = 1;
const PERIOD: i128 = 10;

/// A tenth: by how much a measured period may deviate from the one that was written.
const DEVIATION: f64 = 0.1;

/// The exec probes that a container's pod was written with.
#[derive(Debug, Default)]
pub(super) enum Intended {
    /// Not looked up yet.
    #[default]
    Unread,
    /// They stand in a file.
    Awaited,
    /// These are they: none, where nothing is known.
    Known(Vec<ExecProbe>),
}

/// One of them.
#[derive(Debug)]
pub(super) struct ExecProbe {
    kind: ProbeKind,
    command: Vec<String>,
    timeout_seconds: i128,
    period_seconds: i128,
}

impl Intended {
    /// Reads the pod's annotation, if that was not done yet.
    pub(super) fn read(&mut self, view: &Container) {
        if !matches!(self, Self::Unread) {
            return;
        }
        let annotations = &view.pod.annotations;
        *self = match (annotations.get(LAST_APPLIED), annotations.get(SOURCE)) {
            (Some(text), _) => Self::Known(exec_probes(text, &view.name)),
            (None, Some(source)) if source == "file" => Self::Awaited,
            (None, _) => Self::Known(Vec::new()),
        };
    }

    /// Whether a manifest would show it.
    pub(super) fn is_awaited(&self) -> bool {
        matches!(self, Self::Awaited)
    }

    /// The manifest was found, or not.
    pub(super) fn learn(&mut self, container: &str, manifest: Option<&str>) {
        if self.is_awaited() {
            *self = Self::Known(manifest.map(|text| exec_probes(text, container)).unwrap_or_default());
        }
    }

    /// The type of the one probe that runs this command with this timeout and about this period; none if several do.
    pub(super) fn likely(&self, command: &ExecCommand, period: Duration) -> Option<ProbeKind> {
        let Self::Known(probes) = self else { return None };
        let mut fitting = probes.iter().filter(|probe| {
            let written = probe.period_seconds as f64;
            i128::from(command.timeout_seconds()) == probe.timeout_seconds
                && (period.as_secs_f64() - written).abs() <= DEVIATION * written
                && runs(&probe.command, command)
        });
        fitting.next().filter(|_| fitting.next().is_none()).map(|probe| probe.kind)
    }
}

/// Whether a command is the written one, as it is or with any values in the place of its variables.
fn runs(written: &[String], command: &ExecCommand) -> bool {
    command.arguments().eq(written) || may_become(written, command.arguments())
}

/// The exec probes of one container in a pod, or in anything that has a pod's template.
fn exec_probes(text: &str, container: &str) -> Vec<ExecProbe> {
    let Ok(root) = parse_within(text, &BOUNDS) else { return Vec::new() };
    let Some(spec) = pod_spec(&root) else { return Vec::new() };
    let lists = ["containers", "initContainers"].into_iter().filter_map(|list| items(get(spec, &[list])?));
    let named = |node: &&Node| text_of(node, "name") == Some(container);
    let Some(container) = lists.flatten().find(named) else { return Vec::new() };
    ProbeKind::ALL.into_iter().filter_map(|kind| exec_probe(container, kind)).collect()
}

/// The metadata's name and namespace of a pod's manifest; the namespace is `default` where none stands there.
pub(crate) fn names(text: &str) -> Option<(String, String)> {
    let root = parse_within(text, &BOUNDS).ok()?;
    let metadata = get(&root, &["metadata"])?;
    let namespace = text_of(metadata, "namespace").filter(|name| !name.is_empty()).unwrap_or("default");
    Some((text_of(metadata, "name")?.to_owned(), namespace.to_owned()))
}

fn pod_spec(root: &Node) -> Option<&Node> {
    let paths: [&[&str]; 3] =
        [&["spec", "jobTemplate", "spec", "template", "spec"], &["spec", "template", "spec"], &["spec"]];
    paths.into_iter().find_map(|path| get(root, path))
}

fn exec_probe(container: &Node, kind: ProbeKind) -> Option<ExecProbe> {
    let probe = get(container, &[&format!("{kind}Probe")])?;
    let words = items(get(probe, &["exec", "command"])?)?;
    let number = |name: &str, default| match get(probe, &[name]).map(|node| &node.value) {
        Some(&Value::Integer(number)) if number > 0 => number,
        _ => default,
    };
    let text = |node: &Node| match &node.value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    };
    Some(ExecProbe {
        kind,
        command: words.iter().map(text).collect::<Option<_>>()?,
        timeout_seconds: number("timeoutSeconds", TIMEOUT),
        period_seconds: number("periodSeconds", PERIOD),
    })
}

fn get<'a>(node: &'a Node, path: &[&str]) -> Option<&'a Node> {
    path.iter().try_fold(node, |node, name| match &node.value {
        Value::Map(entries) => entries.iter().find(|entry| entry.name == *name).map(|entry| &entry.node),
        _ => None,
    })
}

fn items(node: &Node) -> Option<&[Node]> {
    match &node.value {
        Value::List(items) => Some(items),
        _ => None,
    }
}

fn text_of<'a>(node: &'a Node, name: &str) -> Option<&'a str> {
    match &get(node, &[name])?.value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
