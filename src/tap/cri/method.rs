//! The methods of the CRI: which calls are decoded, and what is kept of their messages. In: a path. Out: plain values.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use crate::carry::{self, Carry, Reader, Unreadable, Writer, carried};

/// A method as the path named it.
#[derive(Debug, PartialEq, Eq)]
pub struct Method {
    /// `runtime.v1.RuntimeService`.
    pub service: Arc<str>,
    /// `ExecSync`.
    pub name: Arc<str>,
    /// Its meaning for us.
    pub kind: CallKind,
}

/// The services of the CRI and the names of their methods, in order. Those that the runtime does not have are no harm.
const SERVICES: [(&str, &[&str]); 2] = [
    (
        "RuntimeService",
        &[
            "Attach",
            "CheckpointContainer",
            "CheckpointPod",
            "ContainerStats",
            "ContainerStatus",
            "CreateContainer",
            "Exec",
            "ExecSync",
            "GetContainerEvents",
            "ListContainerStats",
            "ListContainers",
            "ListMetricDescriptors",
            "ListPodSandbox",
            "ListPodSandboxMetrics",
            "ListPodSandboxStats",
            "PodSandboxStats",
            "PodSandboxStatus",
            "PortForward",
            "RemoveContainer",
            "RemovePodSandbox",
            "ReopenContainerLog",
            "RestorePod",
            "RunPodSandbox",
            "RuntimeConfig",
            "StartContainer",
            "Status",
            "StopContainer",
            "StopPodSandbox",
            "StreamContainerStats",
            "StreamContainers",
            "StreamPodSandboxMetrics",
            "StreamPodSandboxStats",
            "StreamPodSandboxes",
            "UpdateContainerResources",
            "UpdatePodSandboxResources",
            "UpdateRuntimeConfig",
            "Version",
        ],
    ),
    (
        "ImageService",
        &["ImageFsInfo", "ImageStatus", "ListImages", "PullImage", "RemoveImage", "StreamImages"],
    ),
];

/// The names of all methods of the CRI that are known.
pub fn method_names() -> impl Iterator<Item = &'static str> {
    SERVICES.into_iter().flat_map(|(_, names)| names.iter().copied())
}

/// The methods of the CRI by their paths, in both versions: all connections share them, so that calls keep no path of
/// their own.
static KNOWN: LazyLock<HashMap<Box<[u8]>, Arc<Method>>> = LazyLock::new(|| {
    let mut known = HashMap::new();
    for version in ["runtime.v1", "runtime.v1alpha2"] {
        for (service, names) in SERVICES {
            for name in names {
                let path = format!("/{version}.{service}/{name}");
                let method = Arc::new(Method::from_path(&path));
                known.insert(path.into_bytes().into(), method);
            }
        }
    }
    known
});

impl Method {
    /// The CRI's method of that path, if it is one.
    pub(in crate::tap) fn known(path: &[u8]) -> Option<Arc<Self>> {
        KNOWN.get(path).map(Arc::clone)
    }

    /// Its name, if it is a method of the CRI in one of its versions. A closed set, whatever clients send.
    pub fn known_name(&self) -> Option<&'static str> {
        let service =
            ["runtime.v1.", "runtime.v1alpha2."].iter().find_map(|it| self.service.strip_prefix(it))?;
        let (_, names) = SERVICES.iter().find(|(known, _)| *known == service)?;
        names.binary_search(&&*self.name).ok().map(|at| names[at])
    }

    /// Parses a request's `:path`.
    pub fn from_path(path: &str) -> Self {
        let (service, name) =
            path.strip_prefix('/').and_then(|path| path.rsplit_once('/')).unwrap_or(("", path));
        Self::new(service, name)
    }

    fn new(service: &str, name: &str) -> Self {
        let is_runtime = matches!(service, "runtime.v1.RuntimeService" | "runtime.v1alpha2.RuntimeService");
        let kind = if is_runtime { CallKind::of(name) } else { CallKind::Other };
        Self { service: service.into(), name: name.into(), kind }
    }
}

/// By its names: what it means to us goes by these.
impl Carry for Arc<Method> {
    const LAYOUT: u64 =
        carry::layout("Method", &[("service", <Arc<str>>::LAYOUT), ("name", <Arc<str>>::LAYOUT)]);

    fn write(&self, into: &mut Writer) {
        self.service.write(into);
        self.name.write(into);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        let (service, name) = (from.text()?, from.text()?);
        let known = Method::known(format!("/{service}/{name}").as_bytes());
        Ok(known.unwrap_or_else(|| Self::new(Method::new(service, name))))
    }
}

/// The calls whose messages are decoded; all others are skipped by length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CallKind {
    RunPodSandbox,
    StopPodSandbox,
    RemovePodSandbox,
    RestorePod,
    CreateContainer,
    StartContainer,
    StopContainer,
    RemoveContainer,
    ExecSync,
    Exec,
    Attach,
    PortForward,
    /// Asks about one container, or changes something of it that is not tracked: ContainerStatus.
    OfContainer,
    /// The same of a sandbox: PodSandboxStatus.
    OfSandbox,
    /// A list that its filter can limit to one container or sandbox.
    List(ListFilter),
    /// Not decoded.
    Other,
}

/// Where the filter of a list has its ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ListFilter {
    Sandboxes,
    Containers,
    ContainerStats,
}

impl CallKind {
    fn of(method: &str) -> Self {
        match method {
            "RunPodSandbox" => Self::RunPodSandbox,
            "StopPodSandbox" => Self::StopPodSandbox,
            "RemovePodSandbox" => Self::RemovePodSandbox,
            "RestorePod" => Self::RestorePod,
            "CreateContainer" => Self::CreateContainer,
            "StartContainer" => Self::StartContainer,
            "StopContainer" => Self::StopContainer,
            "RemoveContainer" => Self::RemoveContainer,
            "ExecSync" => Self::ExecSync,
            "Exec" => Self::Exec,
            "Attach" => Self::Attach,
            "PortForward" => Self::PortForward,
            "ContainerStatus"
            | "ContainerStats"
            | "UpdateContainerResources"
            | "ReopenContainerLog"
            | "CheckpointContainer" => Self::OfContainer,
            "PodSandboxStatus" | "PodSandboxStats" | "UpdatePodSandboxResources" | "CheckpointPod" => {
                Self::OfSandbox
            }
            "ListPodSandbox" | "StreamPodSandboxes" | "ListPodSandboxStats" | "StreamPodSandboxStats" => {
                Self::List(ListFilter::Sandboxes)
            }
            "ListContainers" | "StreamContainers" => Self::List(ListFilter::Containers),
            "ListContainerStats" | "StreamContainerStats" => Self::List(ListFilter::ContainerStats),
            _ => Self::Other,
        }
    }

    /// Whether its answer only opens a stream: how long that lasts, and how it ends, passes elsewhere.
    pub fn only_opens_stream(self) -> bool {
        matches!(self, Self::Exec | Self::Attach | Self::PortForward)
    }

    /// What is kept of the request.
    pub(in crate::tap) fn wanted(self) -> Option<Wanted> {
        match self {
            Self::RunPodSandbox | Self::CreateContainer => Some(Wanted::Creation),
            Self::ExecSync | Self::Exec => Some(Wanted::Command),
            Self::StopPodSandbox
            | Self::RemovePodSandbox
            | Self::RestorePod
            | Self::StartContainer
            | Self::StopContainer
            | Self::RemoveContainer
            | Self::Attach
            | Self::PortForward
            | Self::OfContainer
            | Self::OfSandbox => Some(Wanted::Id),
            Self::List(_) => Some(Wanted::Filter),
            Self::Other => None,
        }
    }

    /// Whether the id in the answer is kept. An ExecSync answer is measured while it passes. The answers of Exec, Attach and
    /// PortForward contain a token that must not be kept.
    pub(in crate::tap) fn is_answered_with_id(self) -> bool {
        matches!(self, Self::RunPodSandbox | Self::CreateContainer | Self::RestorePod)
    }

    /// Whether it stops a container or a pod.
    pub fn is_stop(self) -> bool {
        matches!(
            self,
            Self::StopPodSandbox | Self::RemovePodSandbox | Self::StopContainer | Self::RemoveContainer
        )
    }

    /// Whether more than an ID is kept of its request.
    pub(in crate::tap) fn keeps_details(self) -> bool {
        matches!(self.wanted(), Some(Wanted::Command | Wanted::Creation))
    }

    /// Whether it changes what runs on the node: such a call may have taken effect even if it ended without an answer.
    pub fn is_mutating(self) -> bool {
        match self {
            Self::RunPodSandbox
            | Self::StopPodSandbox
            | Self::RemovePodSandbox
            | Self::RestorePod
            | Self::CreateContainer
            | Self::StartContainer
            | Self::StopContainer
            | Self::RemoveContainer => true,
            Self::ExecSync
            | Self::Exec
            | Self::Attach
            | Self::PortForward
            | Self::OfContainer
            | Self::OfSandbox
            | Self::List(_)
            | Self::Other => false,
        }
    }
}

/// What is needed of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tap) enum Wanted {
    /// The id in its first field.
    Id,
    /// The filter of a list, if it is short: one with an id is.
    Filter,
    /// A container's id, the beginning of a command, and its timeout.
    Command,
    /// What a pod or a container is made of.
    Creation,
}

carried! { enum Wanted { 0 Id, 1 Filter, 2 Command, 3 Creation } }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_method_is_known_only_if_it_is_the_cris_whatever_clients_send() {
        for (service, names) in SERVICES {
            for name in names {
                for version in ["runtime.v1", "runtime.v1alpha2"] {
                    let method = Method::from_path(&format!("/{version}.{service}/{name}"));
                    assert_eq!(method.known_name(), Some(*name));
                }
            }
        }
        for path in ["/runtime.v1.RuntimeService/execsync", "/evil.RuntimeService/Exec", "Exec", "", "/a/b"] {
            assert_eq!(Method::from_path(path).known_name(), None, "{path}");
        }
    }
}
