//! Placeholder of the plan's output types, to compile against; the plan stage brings the real file.

use std::fmt;

use super::ProbeSpec;
use crate::ids::ProbeKind;

/// One probe that is to run, or that cannot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Startup, readiness or liveness.
    pub kind: ProbeKind,
    /// Where the definition came from.
    pub source: Source,
    /// The definition, or why it is none.
    pub spec: Result<ProbeSpec, Invalid>,
    /// The definitions that this one beat.
    pub shadowed: Vec<Source>,
}

/// Where a definition came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// An annotation of the container.
    ContainerAnnotation,
    /// An annotation of the pod.
    PodAnnotation,
}

impl Source {
    /// `annotation`.
    pub fn label(self) -> &'static str {
        match self {
            Self::ContainerAnnotation | Self::PodAnnotation => "annotation",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::ContainerAnnotation => "container annotation",
            Self::PodAnnotation => "pod annotation",
        })
    }
}

/// A definition that cannot run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// In words.
    pub reason: String,
    /// The handler that it names, where it names one.
    pub handler: Option<&'static str>,
}
