//! Shows, offline, what a node would do with files: criprobe configurations, Kubernetes manifests, pods and containers
//! for crictl. Bytes in, the resulting probes and all errors out. Never does IO, never panics on input, never uses more
//! time or memory than its bounds allow.

mod annotations;
mod configuration;
mod crictl;
mod findings;
mod kind;
mod kubelet;
mod manifest;
pub(crate) mod node;
mod place;
mod pod;
mod probes;
mod syntax;

use std::collections::BTreeMap;

use annotations::Rulebook;
use configuration::{Quota, Rules};
use findings::Findings;
use kind::Shape;
use place::Lines;
use pod::{WrittenContainer, WrittenPod};

use crate::{
    document::{self, Bounds, Node, SyntaxError, stream::Stream},
    report::view::{
        CheckView, CheckedDocument, CheckedFile, CheckedPod, CheckedProbe, DocumentKind, Finding, Grade,
    },
    spec::{acting::ActPolicy, need::Need, plan::Class, policy::Policy},
};

/// What one file must keep: 8 MiB, as the largest bundles of Kubernetes have 5; 64 levels, as the schemas within custom
/// resource definitions have 50; 1,000,000 values. One that is longer is not read, and all of this is an error.
pub(crate) const BOUNDS: Bounds = Bounds { bytes: 8 << 20, depth: 64, nodes: 1_000_000 };

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckInput {
    /// Its name, for people.
    pub name: String,
    /// What it holds; of a longer one, at least a byte more than `BOUNDS` allow.
    pub bytes: Vec<u8>,
    /// Whether somebody named it, and did not just name the folder that it is in: then it must be something.
    pub is_named: bool,
}

/// Checks files. `rules` are configurations that a node is to have, in their order; without any, it is taken to have
/// the defaults. Files that one node reads together are checked together, and decide about no manifest. What has no
/// namespace is taken to be in `namespace`.
pub fn check(files: &[CheckInput], rules: &[CheckInput], namespace: &str) -> CheckView {
    let Rules { policy, quota, files: mut checked } = configuration::rules(&rules.iter().collect::<Vec<_>>());
    let texts: Vec<_> = files.iter().map(|file| text(&file.bytes)).collect();
    let read: Vec<_> = files.iter().zip(&texts).map(|(input, text)| Read::of(input, text)).collect();
    // Without a configuration, it is not known what may not act.
    let defaults = Policy { acting: ActPolicy::allowing_all(), ..Policy::default() };
    let check = Check {
        policy: policy.as_ref().unwrap_or(&defaults),
        quota,
        is_compared: policy.is_some(),
        namespace,
        together: together(&read, namespace),
    };
    let nodes = node::of(&read);
    let mut of_nodes = nodes_files(&nodes, files);
    checked.extend(read.iter().enumerate().map(|(number, file)| {
        let mut checked = of_nodes.remove(&number).unwrap_or_else(|| check.file(file));
        let too_many = nodes.too_many.contains(&number).then(node::too_many);
        let unread = nodes.unread.contains(&number).then(node::unread);
        checked.findings.splice(0..0, too_many.into_iter().chain(unread));
        checked
    }));
    check.node(&mut checked);
    let count = |grade| {
        let findings = checked.iter().flat_map(|file| &file.findings);
        findings.filter(|finding| finding.severity == grade).count() as u64
    };
    let pods = checked.iter().flat_map(|file| &file.documents).flat_map(|document| &document.pods);
    CheckView {
        probes: pods.flat_map(probes_of).count() as u64,
        errors: count(Grade::Error),
        warnings: count(Grade::Warning),
        files: checked,
    }
}

/// The files that nodes read together, by their numbers.
fn nodes_files(nodes: &node::Nodes, files: &[CheckInput]) -> BTreeMap<usize, CheckedFile> {
    let of_set = |set: &Vec<usize>| {
        let inputs: Vec<_> = set.iter().map(|number| &files[*number]).collect();
        set.clone().into_iter().zip(configuration::rules(&inputs).files)
    };
    nodes.sets.iter().flat_map(of_set).collect()
}

/// The probes of a pod that would run.
fn probes_of(pod: &CheckedPod) -> impl Iterator<Item = &CheckedProbe> {
    let all = pod.containers.iter().flat_map(|container| &container.probes);
    all.filter(|probe| probe.valid && probe.source != kubelet::SOURCE)
}

/// What a probe would take of a node, but for memory.
fn need(probe: &CheckedProbe) -> Need {
    let intervals =
        probe.definition.iter().flat_map(|one| [Some(one.period_seconds), one.start_interval_seconds]);
    Need::at_intervals(intervals.flatten().map(|seconds| seconds.0))
}

/// The text of a file, or why there is none.
type Text<'a> = Result<&'a str, SyntaxError>;

fn text(bytes: &[u8]) -> Text<'_> {
    if bytes.len() > BOUNDS.bytes {
        return Err(SyntaxError::TooLong { size: bytes.len(), limit: BOUNDS.bytes });
    }
    syntax::text(bytes)
}

/// A file that was read.
struct Read<'a> {
    input: &'a CheckInput,
    lines: Lines<'a>,
    text: &'a str,
    stream: Result<Stream, SyntaxError>,
}

impl<'a> Read<'a> {
    fn of(input: &'a CheckInput, text: &Text<'a>) -> Self {
        let stream = text.clone().and_then(|text| document::stream::read(text, &BOUNDS));
        let text = text.as_ref().copied().unwrap_or_default();
        Self { input, lines: Lines::of(text), text, stream }
    }

    /// The documents that could be read.
    fn nodes(&self) -> impl Iterator<Item = &Node> {
        let documents = self.stream.as_ref().map(|stream| stream.documents.as_slice()).unwrap_or_default();
        documents.iter().filter_map(|document| document.node.as_ref().ok())
    }
}

/// 250: the most containers for crictl that are taken to be of one pod. Where there are more, each is taken alone.
const MAX_TOGETHER: usize = 250;

/// The only pod for crictl among all files, with all containers for crictl; `None` where there are several pods or none,
/// or no containers.
fn together<'a>(files: &'a [Read<'a>], namespace: &str) -> Option<WrittenPod<'a>> {
    let of = |shape| files.iter().flat_map(Read::nodes).filter(move |node| kind::of(node) == shape);
    let mut pods = of(Shape::CrictlPod);
    let (pod, None) = (pods.next()?, pods.next()) else { return None };
    let elsewhere = |node| WrittenContainer { is_elsewhere: true, ..crictl::container(node) };
    let containers: Vec<_> = of(Shape::CrictlContainer).take(MAX_TOGETHER + 1).map(elsewhere).collect();
    let is_known = (1..=MAX_TOGETHER).contains(&containers.len());
    is_known.then(|| WrittenPod { containers, are_all: true, ..crictl::pod(pod, namespace) })
}

/// What is the same for all files.
struct Check<'a> {
    policy: &'a Policy,
    quota: Quota,
    is_compared: bool,
    namespace: &'a str,
    /// What was given for crictl, where it belongs together.
    together: Option<WrittenPod<'a>>,
}

impl Check<'_> {
    /// Warns of the first pod with which one node would have more probes, or more attempts per second, than it may. The pods
    /// may be meant for several nodes: so it is no error, and nothing is invalid.
    fn node(&self, files: &mut [CheckedFile]) {
        let mut used = Need::default();
        for file in files {
            let documents = file.documents.iter();
            let pods =
                documents.flat_map(|document| document.pods.iter().map(move |pod| (document.line, pod)));
            for (line, pod) in pods {
                probes_of(pod).for_each(|probe| used += need(probe));
                if let Some(over) = self.quota.of_node.excess(used, Class::Author) {
                    let message =
                        format!("with pod {}/{} {}", pod.namespace, pod.pod, self.quota.too_many(over, used));
                    let (severity, line, column) = (Grade::Warning, Some(line), Some(1));
                    file.findings.push(Finding { severity, line, column, message });
                    file.findings.sort_by_key(|finding| (finding.line, finding.column));
                    return;
                }
            }
        }
    }

    fn file(&self, file: &Read<'_>) -> CheckedFile {
        let mut findings = Findings::default();
        let mut documents = Vec::new();
        match &file.stream {
            Err(SyntaxError::TooLong { limit, .. }) => {
                let reason = format!("longer than {} MiB, so it is not read: split it", limit >> 20);
                findings.error(None, reason);
            }
            Err(error) => findings.error(error.place(), error.reason()),
            Ok(stream) if stream.documents.is_empty() => {
                findings.warning(None, "the file is empty");
            }
            Ok(stream) => {
                let is_alone = stream.documents.len() == 1;
                let mut is_template = false;
                for document in &stream.documents {
                    match &document.node {
                        Ok(node) => {
                            let found = self.document(node, document.line, is_alone, file, &mut findings);
                            documents.extend(found);
                        }
                        // One that was not rendered goes wrong in many places for one reason.
                        Err(_) if is_template => {}
                        Err(error) => {
                            is_template = syntax::report(error, document.line, &file.lines, &mut findings);
                        }
                    }
                }
                if stream.is_cut {
                    let most = document::stream::MAX_DOCUMENTS;
                    findings.error(None, format!("more than {most} documents: the rest is not checked"));
                }
            }
        }
        CheckedFile { file: file.input.name.clone(), documents, findings: findings.into_sorted() }
    }

    /// One document; of a list, each object in it.
    fn document(
        &self,
        node: &Node,
        line: u32,
        is_alone: bool,
        file: &Read<'_>,
        findings: &mut Findings,
    ) -> Vec<CheckedDocument> {
        let line = node.place.map_or(line, |place| place.line);
        let taken = |taken, name: String| CheckedDocument { line, taken, name, pods: vec![], rules: vec![] };
        match kind::of(node) {
            Shape::Object(kind) => vec![self.object(node, kind, line, file, findings)],
            Shape::List(items) => {
                let items = items.iter().filter_map(|item| match kind::of(item) {
                    Shape::Object(kind) => Some((item, kind)),
                    Shape::NamelessPod => Some((item, "Pod")),
                    _ => None,
                });
                let line_of = |item: &Node| item.place.map_or(line, |place| place.line);
                items.map(|(item, kind)| self.object(item, kind, line_of(item), file, findings)).collect()
            }
            Shape::NamelessPod => {
                findings
                    .error(node.place, "a pod without apiVersion or kind: write apiVersion: v1, kind: Pod");
                vec![self.object(node, "Pod", line, file, findings)]
            }
            Shape::CrictlPod => {
                for (key, misplaced) in crictl::misplaced(node) {
                    let why = "is not read in a pod for crictl: write it at the top level, or add apiVersion and kind";
                    findings.warning(misplaced.place, format!("metadata.{key} {why}"));
                }
                let alone = self.together.is_none().then(|| crictl::pod(node, self.namespace));
                let pods: Vec<_> = self.together.iter().chain(&alone).collect();
                let name = pods.iter().map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect();
                let pods = pods.into_iter().map(|pod| self.pod(pod, file, findings)).collect();
                vec![CheckedDocument { pods, ..taken(DocumentKind::CrictlPod, name) }]
            }
            Shape::CrictlContainer => {
                let container = crictl::container(node);
                let name = container.name.clone();
                let pods = match &self.together {
                    // It is listed with its pod; its errors are reported here.
                    Some(pod) => {
                        annotations::of_container(&container, pod, self.rulebook(file), findings);
                        Vec::new()
                    }
                    None => {
                        vec![self.pod(&crictl::pod_of(container, self.namespace), file, findings)]
                    }
                };
                vec![CheckedDocument { pods, ..taken(DocumentKind::CrictlContainer, name) }]
            }
            Shape::Configuration if is_alone => {
                let rules = configuration::check(file.text, &file.input.name, findings);
                vec![CheckedDocument { rules, ..taken(DocumentKind::Configuration, String::new()) }]
            }
            Shape::Configuration => {
                findings.error(node.place, "a criprobe configuration must be in a separate file");
                vec![taken(DocumentKind::Configuration, String::new())]
            }
            Shape::Unknown | Shape::NoMap => {
                if file.input.is_named {
                    findings.error(node.place, NOTHING);
                }
                vec![taken(DocumentKind::Unknown, String::new())]
            }
        }
    }

    fn object(
        &self,
        node: &Node,
        kind: &str,
        line: u32,
        file: &Read<'_>,
        findings: &mut Findings,
    ) -> CheckedDocument {
        let object = manifest::read(node, kind, self.namespace, findings);
        let pods = object.pods.iter().map(|pod| self.pod(pod, file, findings)).collect();
        CheckedDocument { line, taken: DocumentKind::Manifest, name: object.name, pods, rules: Vec::new() }
    }

    fn pod(&self, pod: &WrittenPod<'_>, file: &Read<'_>, findings: &mut Findings) -> CheckedPod {
        probes::check(pod, self.rulebook(file), self.quota.of_pod, self.is_compared, findings)
    }

    fn rulebook<'a>(&'a self, file: &'a Read<'a>) -> Rulebook<'a> {
        Rulebook { policy: self.policy, lines: &file.lines }
    }
}

/// The error for a document of no known kind.
const NOTHING: &str = "not a Kubernetes manifest (apiVersion, kind), a pod or container for crictl (metadata), or a \
                       criprobe configuration";

#[cfg(test)]
mod tests;
