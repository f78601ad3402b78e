//! Which calls are decoded, and what their messages contain. In: a path, the bytes of a message. Out: plain values.
//! Never does IO, never logs, never keeps possible secrets beyond what the probes need.

mod command;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, LazyLock},
};

use prost::Message;

pub(crate) use self::command::ExecCommand;

use crate::{
    ids::{ContainerId, SandboxId},
    proto::{
        cri,
        trim::{self, Trimmed},
    },
};

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

/// The services of the CRI and the names of their methods. Those that the runtime does not have are no harm.
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
            "StreamContainers",
            "StreamPodSandboxes",
            "UpdateContainerResources",
            "UpdatePodSandboxResources",
            "UpdateRuntimeConfig",
            "Version",
        ],
    ),
    ("ImageService", &["ImageFsInfo", "ImageStatus", "ListImages", "PullImage", "RemoveImage"]),
];

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
    pub(super) fn known(path: &[u8]) -> Option<Arc<Self>> {
        KNOWN.get(path).map(Arc::clone)
    }

    /// Parses a request's `:path`.
    pub fn from_path(path: &str) -> Self {
        let (service, name) =
            path.strip_prefix('/').and_then(|path| path.rsplit_once('/')).unwrap_or(("", path));
        let is_runtime = matches!(service, "runtime.v1.RuntimeService" | "runtime.v1alpha2.RuntimeService");
        let kind = if is_runtime { CallKind::of(name) } else { CallKind::Other };
        Self { service: service.into(), name: name.into(), kind }
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
    /// Not decoded.
    Other,
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
            _ => Self::Other,
        }
    }

    /// What is kept of the request.
    pub(super) fn wanted(self) -> Option<Wanted> {
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
            | Self::PortForward => Some(Wanted::Id),
            Self::Other => None,
        }
    }

    /// Whether the id in the answer is kept. An ExecSync answer is measured while it passes. The answers of Exec, Attach and
    /// PortForward contain a token that must not be kept.
    pub(super) fn is_answered_with_id(self) -> bool {
        matches!(self, Self::RunPodSandbox | Self::CreateContainer | Self::RestorePod)
    }

    /// Whether it stops a container or a pod.
    pub(crate) fn is_stop(self) -> bool {
        matches!(
            self,
            Self::StopPodSandbox | Self::RemovePodSandbox | Self::StopContainer | Self::RemoveContainer
        )
    }

    /// Whether more than an ID is kept of its request.
    pub(super) fn keeps_details(self) -> bool {
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
            Self::ExecSync | Self::Exec | Self::Attach | Self::PortForward | Self::Other => false,
        }
    }
}

/// What is needed of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The id in its first field.
    Id,
    /// A container's id, the beginning of a command, and its timeout.
    Command,
    /// What a pod or a container is made of.
    Creation,
}

/// The content of a request. Cheap to clone.
#[derive(Clone, Debug)]
pub enum CriRequest {
    /// Not of interest.
    Skipped,
    /// Of interest, but compressed, malformed, incomplete or too large.
    Undecoded,
    RunPodSandbox(Arc<Trimmed<cri::PodSandboxConfig>>),
    StopPodSandbox(SandboxId),
    RemovePodSandbox(SandboxId),
    /// Restore a pod from a checkpoint.
    RestorePod,
    CreateContainer(Arc<Trimmed<cri::CreateContainerRequest>>),
    StartContainer(ContainerId),
    StopContainer(ContainerId),
    RemoveContainer(ContainerId),
    /// Run a command and return its output.
    ExecSync(ExecCommand),
    /// Run a command on a stream that the runtime serves itself.
    Exec(ExecCommand),
    /// A stream to a container's main process.
    Attach(ContainerId),
    /// Streams to a pod's ports.
    PortForward(SandboxId),
}

/// 256 bytes: the longest id that is accepted; runtimes use 64. A longer one costs its call the details, so that stored
/// ids always stay small.
pub(super) const MAX_ID: usize = 256;

impl CriRequest {
    /// Decodes the message of a request.
    pub fn decode(kind: CallKind, message: &Arc<[u8]>) -> Self {
        let request = Self::try_decode(kind, message).unwrap_or(Self::Undecoded);
        let has_endless_id = request.id().is_some_and(|id| id.len() > MAX_ID);
        if has_endless_id { Self::Undecoded } else { request }
    }

    /// The id that it names first.
    fn id(&self) -> Option<&str> {
        match self {
            Self::StopPodSandbox(id) | Self::RemovePodSandbox(id) | Self::PortForward(id) => {
                Some(id.as_str())
            }
            Self::CreateContainer(request) => Some(&request.pod_sandbox_id),
            Self::StartContainer(_)
            | Self::StopContainer(_)
            | Self::RemoveContainer(_)
            | Self::Attach(_)
            | Self::ExecSync(_)
            | Self::Exec(_) => self.container(),
            Self::Skipped | Self::Undecoded | Self::RunPodSandbox(_) | Self::RestorePod => None,
        }
    }

    fn try_decode(kind: CallKind, shared: &Arc<[u8]>) -> Result<Self, prost::DecodeError> {
        let message = &**shared;
        Ok(match kind {
            CallKind::Other => Self::Skipped,
            CallKind::RestorePod => Self::RestorePod,
            CallKind::RunPodSandbox => {
                let config = RunPodSandboxRequest::decode(message)?.config;
                config
                    .and_then(|config| trim::decode(&config).ok())
                    .map_or(Self::Undecoded, |config| Self::RunPodSandbox(Arc::new(config)))
            }
            CallKind::StopPodSandbox => {
                Self::StopPodSandbox(cri::StopPodSandboxRequest::decode(message)?.pod_sandbox_id.into())
            }
            CallKind::RemovePodSandbox => {
                Self::RemovePodSandbox(cri::RemovePodSandboxRequest::decode(message)?.pod_sandbox_id.into())
            }
            CallKind::CreateContainer => trim::decode(message)
                .map_or(Self::Undecoded, |request| Self::CreateContainer(Arc::new(request))),
            CallKind::StartContainer => {
                Self::StartContainer(cri::StartContainerRequest::decode(message)?.container_id.into())
            }
            CallKind::StopContainer => {
                Self::StopContainer(cri::StopContainerRequest::decode(message)?.container_id.into())
            }
            CallKind::RemoveContainer => {
                Self::RemoveContainer(cri::RemoveContainerRequest::decode(message)?.container_id.into())
            }
            CallKind::ExecSync => ExecCommand::read(shared).map_or(Self::Undecoded, Self::ExecSync),
            CallKind::Exec => ExecCommand::read(shared).map_or(Self::Undecoded, Self::Exec),
            CallKind::Attach => Self::Attach(cri::AttachRequest::decode(message)?.container_id.into()),
            CallKind::PortForward => {
                Self::PortForward(cri::PortForwardRequest::decode(message)?.pod_sandbox_id.into())
            }
        })
    }

    /// The container it refers to, as the client named it.
    pub fn container(&self) -> Option<&str> {
        match self {
            Self::StartContainer(id)
            | Self::StopContainer(id)
            | Self::RemoveContainer(id)
            | Self::Attach(id) => Some(id.as_str()),
            Self::ExecSync(command) | Self::Exec(command) => Some(command.container()),
            Self::Skipped
            | Self::Undecoded
            | Self::RunPodSandbox(_)
            | Self::StopPodSandbox(_)
            | Self::RemovePodSandbox(_)
            | Self::RestorePod
            | Self::CreateContainer(_)
            | Self::PortForward(_) => None,
        }
    }

    /// The sandbox it refers to, if it names one itself.
    pub fn sandbox(&self) -> Option<SandboxId> {
        match self {
            Self::StopPodSandbox(id) | Self::RemovePodSandbox(id) | Self::PortForward(id) => Some(id.clone()),
            Self::CreateContainer(request) => Some(request.pod_sandbox_id.as_str().into()),
            Self::Skipped
            | Self::Undecoded
            | Self::RunPodSandbox(_)
            | Self::RestorePod
            | Self::StartContainer(_)
            | Self::StopContainer(_)
            | Self::RemoveContainer(_)
            | Self::ExecSync(_)
            | Self::Exec(_)
            | Self::Attach(_) => None,
        }
    }

    /// Its approximate size in bytes.
    pub fn weight(&self) -> usize {
        match self {
            Self::RunPodSandbox(config) => config.encoded_len(),
            Self::CreateContainer(request) => request.encoded_len(),
            Self::ExecSync(command) | Self::Exec(command) => command.weight(),
            Self::StopPodSandbox(_)
            | Self::RemovePodSandbox(_)
            | Self::StartContainer(_)
            | Self::StopContainer(_)
            | Self::RemoveContainer(_)
            | Self::Attach(_)
            | Self::PortForward(_) => MAX_ID,
            Self::Skipped | Self::Undecoded | Self::RestorePod => 0,
        }
    }
}

/// A `RunPodSandboxRequest` whose config is decoded separately.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
struct RunPodSandboxRequest {
    #[prost(bytes = "vec", optional, tag = "1")]
    config: Option<Vec<u8>>,
}

/// The content of an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum CriResponse {
    /// Not of interest, or there was none.
    Skipped,
    /// Of interest, but compressed, malformed or too large.
    Undecoded,
    /// A pod runs.
    Sandbox(SandboxId),
    /// A container was created.
    Container(ContainerId),
    /// A command ended.
    Exec(ExecResult),
}

impl CriResponse {
    /// Decodes the message of an answer.
    pub fn decode(kind: CallKind, message: &[u8]) -> Self {
        let decoded = match kind {
            CallKind::RunPodSandbox => cri::RunPodSandboxResponse::decode(message)
                .map(|answer| Self::Sandbox(answer.pod_sandbox_id.into())),
            CallKind::RestorePod => cri::RestorePodResponse::decode(message)
                .map(|answer| Self::Sandbox(answer.pod_sandbox_id.into())),
            CallKind::CreateContainer => cri::CreateContainerResponse::decode(message)
                .map(|answer| Self::Container(answer.container_id.into())),
            CallKind::StopPodSandbox
            | CallKind::RemovePodSandbox
            | CallKind::StartContainer
            | CallKind::StopContainer
            | CallKind::RemoveContainer
            | CallKind::ExecSync
            | CallKind::Exec
            | CallKind::Attach
            | CallKind::PortForward
            | CallKind::Other => Ok(Self::Skipped),
        };
        let answer = decoded.unwrap_or(Self::Undecoded);
        let id = match &answer {
            Self::Sandbox(id) => id.as_str(),
            Self::Container(id) => id.as_str(),
            Self::Skipped | Self::Undecoded | Self::Exec(_) => "",
        };
        if id.len() > MAX_ID { Self::Undecoded } else { answer }
    }
}

/// How a command ended, and the size of its output.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct ExecResult {
    pub exit_code: i32,
    /// Length of its standard output.
    pub stdout_bytes: u32,
    /// Length of its standard error.
    pub stderr_bytes: u32,
}

impl fmt::Debug for ExecResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit {} ({} + {} bytes)", self.exit_code, self.stdout_bytes, self.stderr_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_taken_apart() {
        let rows = [
            (
                "/runtime.v1.RuntimeService/ExecSync",
                "runtime.v1.RuntimeService",
                "ExecSync",
                CallKind::ExecSync,
            ),
            (
                "/runtime.v1alpha2.RuntimeService/StartContainer",
                "runtime.v1alpha2.RuntimeService",
                "StartContainer",
                CallKind::StartContainer,
            ),
            ("/runtime.v1.ImageService/ListImages", "runtime.v1.ImageService", "ListImages", CallKind::Other),
            ("/evil.Service/ExecSync", "evil.Service", "ExecSync", CallKind::Other),
            ("nonsense", "", "nonsense", CallKind::Other),
        ];
        for (path, service, name, kind) in rows {
            let method = Method::from_path(path);
            assert_eq!((&*method.service, &*method.name, method.kind), (service, name, kind), "{path}");
        }
    }

    #[test]
    fn a_malformed_message_costs_only_its_details() {
        assert!(matches!(
            CriRequest::decode(CallKind::ExecSync, &[0xff; 9].as_slice().into()),
            CriRequest::Undecoded
        ));
        assert_eq!(CriResponse::decode(CallKind::CreateContainer, &[0x0a, 0xff]), CriResponse::Undecoded);
    }
}
