//! Decides which probes one container has: its facts in, definitions and their sources out, valid or not.
//! Depends on nothing but the container's and its pod's annotations; the same facts always give the same plan.

use std::{collections::BTreeMap, fmt, panic};

use super::{Handler, HttpGet, ProbeSpec, annotation, raw::RawProbe, validate::validate};
use crate::{
    document::{self, Value, fault},
    ids::ProbeKind,
    inventory::view::ContainerView,
};

/// A probe that a container is meant to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Its type.
    pub kind: ProbeKind,
    /// Where its definition was taken from.
    pub source: Source,
    /// Its definition, or why that cannot be used.
    pub spec: Result<ProbeSpec, Invalid>,
    /// Other definitions of the same type, which this one outranks, in the order of their rank: `pod annotation`.
    pub shadowed: Vec<String>,
}

/// Where a definition comes from; a better source comes before a lesser one.
///
/// Prints what reports show as the source: `annotation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// An annotation of the container itself.
    ContainerAnnotation,
    /// An annotation of its pod.
    PodAnnotation,
}

/// Why a definition cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Invalid {
    /// Everything that is wrong, in one line for people.
    pub reason: String,
    /// The handler as far as it could be told: `exec`, `httpGet`, `tcpSocket`, `grpc`.
    pub handler: Option<&'static str>,
}

/// The probes of a container, in the kubelet's order: startup, readiness, liveness. The best source wins, also where
/// its definition is invalid. None at all where the pod turned its probes off.
pub fn plan(container: &ContainerView) -> Vec<Planned> {
    if annotation::are_off(&container.pod.annotations) {
        return Vec::new();
    }
    ProbeKind::ALL.into_iter().filter_map(|kind| plan_one(container, kind)).collect()
}

impl Source {
    /// In full, to tell it from the others: `pod annotation`.
    pub fn in_full(self) -> &'static str {
        match self {
            Self::ContainerAnnotation => "container annotation",
            Self::PodAnnotation => "pod annotation",
        }
    }

    fn annotations(self, container: &ContainerView) -> &BTreeMap<String, String> {
        match self {
            Self::ContainerAnnotation => &container.annotations,
            Self::PodAnnotation => &container.pod.annotations,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::ContainerAnnotation | Self::PodAnnotation => "annotation",
        })
    }
}

fn plan_one(container: &ContainerView, kind: ProbeKind) -> Option<Planned> {
    let mut written = [Source::ContainerAnnotation, Source::PodAnnotation].into_iter().filter_map(|source| {
        annotation::probe(source.annotations(container), kind, &container.name).map(|text| (source, text))
    });
    let (source, text) = written.next()?;
    Some(Planned {
        kind,
        source,
        spec: guarded(|| define(kind, text)),
        shadowed: written.map(|(source, _)| source.in_full().to_owned()).collect(),
    })
}

/// An annotation is any pod author's text, and parsers are not all ours: a panic costs this definition and no other.
fn guarded(
    define: impl FnOnce() -> Result<ProbeSpec, Invalid> + panic::UnwindSafe,
) -> Result<ProbeSpec, Invalid> {
    panic::catch_unwind(define).unwrap_or_else(|_| {
        let reason = "reading the definition failed by an error of criprobe's own: its log shows where";
        Err(Invalid { reason: reason.to_owned(), handler: None })
    })
}

fn define(kind: ProbeKind, text: &str) -> Result<ProbeSpec, Invalid> {
    let invalid = |reason: String, handler| Invalid { reason, handler };
    let node = document::parse(text, annotation::MAX_ANNOTATION)
        .map_err(|error| invalid(error.to_string(), None))?;
    if node.value == Value::Null {
        let reason = "the annotation is empty: write a probe, such as {exec: {command: [cat, /tmp/healthy]}}";
        return Err(invalid(reason.into(), None));
    }
    let mut errors = Vec::new();
    let Some(raw) = RawProbe::read(&node, "", &mut errors) else {
        return Err(invalid(fault::joined(&errors), None));
    };
    let spec =
        validate(&raw, kind, "", errors).map_err(|errors| invalid(fault::joined(&errors), raw.handler()))?;
    match refusal(&spec.handler) {
        None => Ok(spec),
        Some(reason) => Err(invalid(reason, raw.handler())),
    }
}

/// Why a handler that is valid in itself is refused: it would reach where only the operator may send it.
pub(super) fn refusal(handler: &Handler) -> Option<String> {
    match handler {
        Handler::Exec { .. } | Handler::TcpSocket { host: None, .. } | Handler::Grpc { .. } => None,
        Handler::TcpSocket { host: Some(_), .. } => {
            Some("tcpSocket.host: Forbidden: another host than the pod needs the operator's allowance".into())
        }
        Handler::HttpGet(HttpGet { host: None, .. }) => None,
        Handler::HttpGet(HttpGet { host: Some(_), .. }) => {
            Some("httpGet.host: Forbidden: another host than the pod needs the operator's allowance".into())
        }
    }
}

#[cfg(test)]
mod tests;
