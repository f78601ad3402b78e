//! The likely type of a client's probe: the pod's manifest, and the command, timeout and period of calls in; startup,
//! readiness or liveness out. Pure: reads text, never files.

use std::{collections::HashMap, sync::Arc, time::Duration};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    document::{Node, Value, parse},
    ids::ProbeKind,
    spec::expand::may_become,
    tap::cri::ExecCommand,
};

/// 256 KiB: what Kubernetes takes as all annotations of a pod together. A longer text is not read. Of a pod's annotations
/// the inventory keeps half as much. Reading takes time in proportion to the length, whatever the text contains.
pub(crate) const LONGEST_MANIFEST: usize = 256 << 10;

/// 4 KiB: a command with longer arguments is not followed, and one that was written longer is not kept.
pub(super) const LONGEST_COMMAND: usize = 4096;

/// 64 KiB are kept of a pod, which are some 200 probes. The probes of further containers are left out.
const MOST_OF_POD: usize = 64 << 10;

/// What a container, a probe and a word take beside their texts.
const OVERHEAD: usize = 64;

/// What Kubernetes takes where a probe does not say: a timeout of 1 s, a period of 10 s.
const TIMEOUT: i64 = 1;
const PERIOD: i64 = 10;

/// A tenth: by how much a measured period may deviate from the one that was written.
const DEVIATION: f64 = 0.1;

/// The exec probes that a pod was written with, by container. The default is a pod of which nothing is known.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    containers: HashMap<String, Vec<ExecProbe>>,
    weight: usize,
}

/// A manifest in a file.
#[derive(Debug)]
pub(crate) struct Manifest {
    /// The name in its metadata.
    pub(crate) name: String,
    /// `default` if the metadata has none.
    pub(crate) namespace: String,
    pub(crate) written: Arc<Written>,
}

/// One exec probe of a container.
#[derive(Debug, PartialEq, Eq)]
struct ExecProbe {
    kind: ProbeKind,
    command: Vec<String>,
    timeout_seconds: i64,
    period_seconds: i64,
}

impl Written {
    /// Reads a pod in JSON, or anything that has a pod's template.
    pub(super) fn read(json: &str) -> Self {
        let root = Some(json).filter(|json| json.len() <= LONGEST_MANIFEST);
        let root: Option<Fields<'_>> = root.and_then(|json| serde_json::from_str(json).ok());
        root.as_ref().map(Self::of).unwrap_or_default()
    }

    fn of(root: &Fields<'_>) -> Self {
        let mut written = Self::default();
        let Some(spec) = pod_spec(root) else { return written };
        let lists = [spec.containers, spec.init_containers];
        for container in lists.into_iter().filter_map(value::<Vec<&RawValue>>).flatten() {
            let Some(container) = value::<Fields<'_>>(Some(container)) else { continue };
            let Some(name) = value::<String>(container.name) else { continue };
            let probes: Vec<_> =
                ProbeKind::ALL.into_iter().filter_map(|kind| exec_probe(&container, kind)).collect();
            let weight = OVERHEAD + name.len() + probes.iter().map(ExecProbe::weight).sum::<usize>();
            if written.weight + weight <= MOST_OF_POD
                && !probes.is_empty()
                && !written.containers.contains_key(&name)
            {
                written.weight += weight;
                written.containers.insert(name, probes);
            }
        }
        written
    }

    /// About how many bytes it takes.
    pub(super) fn weight(&self) -> usize {
        self.weight
    }

    /// The type of the one probe of a container that runs this command with this timeout and about this period; none if
    /// several do.
    pub(super) fn likely(
        &self,
        container: &str,
        command: &ExecCommand,
        period: Duration,
    ) -> Option<ProbeKind> {
        let mut fitting = self.containers.get(container)?.iter().filter(|probe| {
            let written = probe.period_seconds as f64;
            command.timeout_seconds() == probe.timeout_seconds
                && (period.as_secs_f64() - written).abs() <= DEVIATION * written
                && runs(&probe.command, command)
        });
        fitting.next().filter(|_| fitting.next().is_none()).map(|probe| probe.kind)
    }
}

impl Manifest {
    /// Reads a pod in YAML or JSON that has a name.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let json = json(&parse(text, LONGEST_MANIFEST).ok()?).to_string();
        let root: Fields<'_> = serde_json::from_str(&json).ok()?;
        let metadata = value::<Fields<'_>>(root.metadata)?;
        let name = value(metadata.name)?;
        let namespace = value::<String>(metadata.namespace).filter(|name| !name.is_empty());
        let namespace = namespace.unwrap_or_else(|| "default".to_owned());
        Some(Self { name, namespace, written: Arc::new(Written::of(&root)) })
    }
}

/// The same in JSON, except for numbers that are not whole.
fn json(node: &Node) -> serde_json::Value {
    match &node.value {
        Value::Null | Value::Float(_) => serde_json::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::Integer(number) => i64::try_from(*number).ok().into(),
        Value::Text(text) => text.as_str().into(),
        Value::List(items) => items.iter().map(json).collect(),
        Value::Map(entries) => entries.iter().map(|entry| (entry.name.clone(), json(&entry.node))).collect(),
    }
}

/// Whether a command is the written one, as it is or with any values in the place of its variables.
fn runs(written: &[String], command: &ExecCommand) -> bool {
    command.arguments().eq(written) || may_become(written, command.arguments())
}

/// The values of a map that may lead to a probe, at any depth of a manifest. They are not read until they are needed, so
/// that an unusual value hides nothing else; other values are only passed over. No more is kept of a text than references
/// to it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields<'a> {
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    namespace: Option<&'a RawValue>,
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
    #[serde(borrow)]
    template: Option<&'a RawValue>,
    #[serde(borrow)]
    job_template: Option<&'a RawValue>,
    #[serde(borrow)]
    containers: Option<&'a RawValue>,
    #[serde(borrow)]
    init_containers: Option<&'a RawValue>,
    #[serde(borrow)]
    startup_probe: Option<&'a RawValue>,
    #[serde(borrow)]
    readiness_probe: Option<&'a RawValue>,
    #[serde(borrow)]
    liveness_probe: Option<&'a RawValue>,
    #[serde(borrow)]
    exec: Option<&'a RawValue>,
    #[serde(borrow)]
    command: Option<&'a RawValue>,
    #[serde(borrow)]
    timeout_seconds: Option<&'a RawValue>,
    #[serde(borrow)]
    period_seconds: Option<&'a RawValue>,
}

/// A value, if it is one of this type.
fn value<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

/// The specification of a pod: its own, its template's, or that of a job's template.
fn pod_spec<'a>(root: &Fields<'a>) -> Option<Fields<'a>> {
    let spec: Fields<'a> = value(root.spec)?;
    let job = value::<Fields<'a>>(spec.job_template).and_then(|job| value::<Fields<'a>>(job.spec));
    let template = job.and_then(|job| job.template).or(spec.template);
    value::<Fields<'a>>(template).and_then(|template| value(template.spec)).or(Some(spec))
}

fn exec_probe(container: &Fields<'_>, kind: ProbeKind) -> Option<ExecProbe> {
    let probe: Fields<'_> = value(match kind {
        ProbeKind::Startup => container.startup_probe,
        ProbeKind::Readiness => container.readiness_probe,
        ProbeKind::Liveness => container.liveness_probe,
    })?;
    let exec: Fields<'_> = value(probe.exec)?;
    let number = |raw, default| value(raw).filter(|number| *number > 0).unwrap_or(default);
    let probe = ExecProbe {
        kind,
        command: value(exec.command)?,
        timeout_seconds: number(probe.timeout_seconds, TIMEOUT),
        period_seconds: number(probe.period_seconds, PERIOD),
    };
    Some(probe).filter(|probe| probe.command.iter().map(String::len).sum::<usize>() <= LONGEST_COMMAND)
}

impl ExecProbe {
    fn weight(&self) -> usize {
        self.command.iter().map(|word| OVERHEAD + word.len()).sum::<usize>() + OVERHEAD
    }
}

#[cfg(test)]
mod tests;
