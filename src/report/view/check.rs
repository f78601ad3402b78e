//! The result of `criprobe check` for machines: files, the documents in them, the resulting probes, and the findings.

use serde::{Deserialize, Serialize};

use super::{DefinitionView, HealthcheckView};

/// All that was checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckView {
    /// In the order in which they were named.
    pub files: Vec<CheckedFile>,
    /// How many probes criprobe would run; those of the kubelet and invalid ones are not among them.
    pub probes: u64,
    /// How many findings are errors.
    pub errors: u64,
    /// How many findings are warnings.
    pub warnings: u64,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckedFile {
    /// As it was named; `-` for standard input.
    pub file: String,
    /// What it holds, in order.
    pub documents: Vec<CheckedDocument>,
    /// What is wrong with it, in the order of the places.
    pub findings: Vec<Finding>,
}

/// One document of a file, or one object of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckedDocument {
    /// The line that it begins in, from 1.
    pub line: u32,
    /// What it is.
    pub taken: DocumentKind,
    /// What it calls itself: `Deployment shop/web`; empty where it has no name.
    pub name: String,
    /// The pods that it makes, or is.
    pub pods: Vec<CheckedPod>,
    /// The rules that it holds.
    pub rules: Vec<CheckedRule>,
}

/// What a document is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DocumentKind {
    /// A configuration of criprobe.
    Configuration,
    /// An object of Kubernetes.
    Manifest,
    /// A pod as crictl takes it.
    CrictlPod,
    /// A container as crictl takes it.
    CrictlContainer,
    /// None of these.
    Unknown,
}

/// One pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckedPod {
    /// Its namespace.
    pub namespace: String,
    /// Its name; where that is made up later, one of the form that it will have: `web-xxxxxxxxxx-xxxxx`.
    pub pod: String,
    /// Where it is in its document: `spec.template`; empty where it is the document.
    pub path: String,
    /// Its containers, init containers first.
    pub containers: Vec<CheckedContainer>,
}

/// One container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckedContainer {
    /// Its name.
    pub container: String,
    /// What it is to its pod.
    pub role: Role,
    /// Its image, as written.
    pub image: String,
    /// Where it is written; null where only an annotation names it.
    pub line: Option<u32>,
    /// The probes that it would have, those of the kubelet first.
    pub probes: Vec<CheckedProbe>,
    /// Those of criprobe that it would have without `--rules`; null where no rules were given.
    pub before: Option<Vec<CheckedProbe>>,
}

/// What a container is to its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// One of the pod's own.
    Container,
    /// An init container that stays.
    Sidecar,
    /// An init container that ends before the others start.
    Init,
}

/// One probe that would result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckedProbe {
    /// `startup`, `readiness`, `liveness`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Where it comes from: `annotation`, `rule:NAME`, or `kubelet`, who runs it then.
    pub source: String,
    /// Whether it would run.
    pub valid: bool,
    /// Why it would not; empty where it would.
    pub reason: String,
    /// `exec`, `httpGet`, `tcpSocket`, `grpc`; empty if it is unknown.
    pub handler: String,
    /// With all defaults; null of an invalid one.
    pub definition: Option<DefinitionView>,
    /// Why it only reports although its definition asks for an act; absent where it does what that asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub act_refusal: Option<String>,
    /// What the name of its port comes to; null where it names none.
    pub resolved_port: Option<u16>,
    /// Where it is written; null of one that comes from a rule.
    pub line: Option<u32>,
    /// Where it is written in that line.
    pub column: Option<u32>,
    /// Definitions of its type that it outranks.
    pub shadowed: Vec<String>,
    /// What the rules did to it; null where no rules were given, and of the kubelet's.
    pub change: Option<PlanChange>,
}

/// What rules do to a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlanChange {
    /// Nothing: it is as it would be without them.
    Same,
    /// There was none of its type.
    Added,
    /// It replaces another one.
    Replaced,
    /// It would be valid without them.
    Invalidated,
}

/// One rule of a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckedRule {
    /// Its name.
    pub rule: String,
    /// Whether a pod can neither outrank it nor turn it off.
    pub enforced: bool,
    /// What it gives to containers that fit.
    pub probes: Vec<CheckedProbe>,
    /// What it says of HEALTHCHECKs; absent if it says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthcheck: Option<HealthcheckView>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// How bad it is.
    pub severity: Grade,
    /// Where, from 1; null if no place is known.
    pub line: Option<u32>,
    /// Where in that line, in characters from 1.
    pub column: Option<u32>,
    /// What, and what to do.
    pub message: String,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// A node would not do what is written.
    Error,
    /// It would, but that is hardly what was meant.
    Warning,
}

impl Grade {
    /// `error`, `warning`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}
