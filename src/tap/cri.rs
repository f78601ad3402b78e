//! What the messages of the calls that are decoded contain. In: the bytes of a message. Out: plain values.
//! Never does IO, never logs, never keeps possible secrets beyond what the probes need.

mod command;
mod method;

use std::{fmt, sync::Arc};

use prost::Message;

pub(super) use self::method::Wanted;
pub use self::{
    command::ExecCommand,
    method::{CallKind, ListFilter, Method, method_names},
};

use crate::{
    carry::carried,
    ids::{ContainerId, SandboxId},
    proto::{
        cri,
        trim::{self, Trimmed},
    },
};

/// The content of a request. Cheap to clone.
#[derive(Clone, Debug)]
pub enum CriRequest {
    /// Not of interest.
    Skipped,
    /// Of interest, but compressed, malformed, incomplete or too large.
    Undecoded,
    /// Make a pod.
    RunPodSandbox(Arc<Trimmed<cri::PodSandboxConfig>>),
    /// Stop a pod.
    StopPodSandbox(SandboxId),
    /// Remove a pod.
    RemovePodSandbox(SandboxId),
    /// Restore a pod from a checkpoint.
    RestorePod,
    /// Make a container.
    CreateContainer(Arc<Trimmed<cri::CreateContainerRequest>>),
    /// Start a container.
    StartContainer(ContainerId),
    /// Stop a container.
    StopContainer(ContainerId),
    /// Remove a container.
    RemoveContainer(ContainerId),
    /// Run a command and return its output.
    ExecSync(ExecCommand),
    /// Run a command on a stream that the runtime serves itself.
    Exec(ExecCommand),
    /// A stream to a container's main process.
    Attach(ContainerId),
    /// Streams to a pod's ports.
    PortForward(SandboxId),
    /// About one container, but nothing that is tracked.
    OfContainer(ContainerId),
    /// The same of a sandbox.
    OfSandbox(SandboxId),
}

carried! {
    enum CriRequest {
        0 Skipped,
        1 Undecoded,
        2 RunPodSandbox(config: Arc<Trimmed<cri::PodSandboxConfig>>),
        3 StopPodSandbox(id: SandboxId),
        4 RemovePodSandbox(id: SandboxId),
        5 RestorePod,
        6 CreateContainer(request: Arc<Trimmed<cri::CreateContainerRequest>>),
        7 StartContainer(id: ContainerId),
        8 StopContainer(id: ContainerId),
        9 RemoveContainer(id: ContainerId),
        10 ExecSync(command: ExecCommand),
        11 Exec(command: ExecCommand),
        12 Attach(id: ContainerId),
        13 PortForward(id: SandboxId),
        14 OfContainer(id: ContainerId),
        15 OfSandbox(id: SandboxId),
    }
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
            Self::StopPodSandbox(id)
            | Self::RemovePodSandbox(id)
            | Self::PortForward(id)
            | Self::OfSandbox(id) => Some(id.as_str()),
            Self::CreateContainer(request) => Some(&request.pod_sandbox_id),
            Self::StartContainer(_)
            | Self::StopContainer(_)
            | Self::RemoveContainer(_)
            | Self::Attach(_)
            | Self::OfContainer(_)
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
            CallKind::OfContainer => Self::of_container(IdFirst::decode(message)?.id),
            CallKind::OfSandbox => Self::of_sandbox(IdFirst::decode(message)?.id),
            CallKind::List(filter) => Self::of_list(filter, message)?,
        })
    }

    /// What a list is limited to by id. Other lists are about the node.
    fn of_list(filter: ListFilter, message: &[u8]) -> Result<Self, prost::DecodeError> {
        let (container, sandbox) = match filter {
            ListFilter::Sandboxes => {
                (String::new(), FilterRequest::decode(message)?.filter.unwrap_or_default().id)
            }
            ListFilter::Containers => {
                let filter = cri::ListContainersRequest::decode(message)?.filter.unwrap_or_default();
                (filter.id, filter.pod_sandbox_id)
            }
            ListFilter::ContainerStats => {
                let filter = cri::ListContainerStatsRequest::decode(message)?.filter.unwrap_or_default();
                (filter.id, filter.pod_sandbox_id)
            }
        };
        Ok(if container.is_empty() { Self::of_sandbox(sandbox) } else { Self::of_container(container) })
    }

    fn of_container(id: String) -> Self {
        if id.is_empty() { Self::Skipped } else { Self::OfContainer(id.into()) }
    }

    fn of_sandbox(id: String) -> Self {
        if id.is_empty() { Self::Skipped } else { Self::OfSandbox(id.into()) }
    }

    /// The container it refers to, as the client named it.
    pub fn container(&self) -> Option<&str> {
        match self {
            Self::StartContainer(id)
            | Self::StopContainer(id)
            | Self::RemoveContainer(id)
            | Self::Attach(id)
            | Self::OfContainer(id) => Some(id.as_str()),
            Self::ExecSync(command) | Self::Exec(command) => Some(command.container()),
            Self::Skipped
            | Self::Undecoded
            | Self::RunPodSandbox(_)
            | Self::StopPodSandbox(_)
            | Self::RemovePodSandbox(_)
            | Self::RestorePod
            | Self::CreateContainer(_)
            | Self::PortForward(_)
            | Self::OfSandbox(_) => None,
        }
    }

    /// The sandbox it refers to, if it names one itself.
    pub fn sandbox(&self) -> Option<SandboxId> {
        match self {
            Self::StopPodSandbox(id)
            | Self::RemovePodSandbox(id)
            | Self::PortForward(id)
            | Self::OfSandbox(id) => Some(id.clone()),
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
            | Self::Attach(_)
            | Self::OfContainer(_) => None,
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
            | Self::PortForward(_)
            | Self::OfContainer(_)
            | Self::OfSandbox(_) => MAX_ID,
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

/// Any message whose first field is an id.
#[derive(Clone, PartialEq, Message)]
struct IdFirst {
    #[prost(string, tag = "1")]
    id: String,
}

/// Any list whose filter begins with an id.
#[derive(Clone, PartialEq, Message)]
struct FilterRequest {
    #[prost(message, optional, tag = "1")]
    filter: Option<IdFirst>,
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
    /// Its approximate size in bytes, beside its own.
    pub fn weight(&self) -> usize {
        match self {
            Self::Exec(ExecResult { outputs: Some(_), .. }) => size_of::<ExecOutputs>() + 2 * MAX_OUTPUT,
            Self::Exec(_) | Self::Skipped | Self::Undecoded | Self::Sandbox(_) | Self::Container(_) => 0,
        }
    }

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
            | CallKind::OfContainer
            | CallKind::OfSandbox
            | CallKind::List(_)
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
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ExecResult {
    /// Its exit code.
    pub exit_code: i32,
    /// Length of its standard output.
    pub stdout_bytes: u32,
    /// Length of its standard error.
    pub stderr_bytes: u32,
    /// The beginnings of both, if they are kept.
    pub outputs: Option<Box<ExecOutputs>>,
}

carried! { struct ExecResult { exit_code, stdout_bytes, stderr_bytes, outputs } }

/// What a command printed first.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ExecOutputs {
    /// The first [`MAX_OUTPUT`] bytes of its standard output.
    pub stdout: Vec<u8>,
    /// The same of its standard error.
    pub stderr: Vec<u8>,
}

carried! { struct ExecOutputs { stdout, stderr } if is_sound }

impl ExecOutputs {
    fn is_sound(&self) -> bool {
        self.stdout.len().max(self.stderr.len()) <= MAX_OUTPUT
    }
}

/// 256 bytes of each output of a command are kept, where they are kept at all.
pub const MAX_OUTPUT: usize = 256;

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
            (
                "/runtime.v1.RuntimeService/ListContainers",
                "runtime.v1.RuntimeService",
                "ListContainers",
                CallKind::List(ListFilter::Containers),
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

    #[test]
    fn each_call_about_one_container_or_sandbox_names_it() {
        let filter = |fields: &[u8]| [&[0x0a, fields.len() as u8], fields].concat();
        let stated = [&b"\x0a\x01c"[..], b"\x12\x02\x08\x01", b"\x1a\x01s"].concat();
        // Method, request, the container and the sandbox that it is about.
        type Row = (&'static str, Vec<u8>, Option<&'static str>, Option<&'static str>);
        let rows: [Row; 16] = [
            ("ContainerStatus", b"\x0a\x01c\x10\x01".to_vec(), Some("c"), None),
            ("ContainerStats", b"\x0a\x01c".to_vec(), Some("c"), None),
            ("UpdateContainerResources", b"\x0a\x01c\x12\x02\x08\x01".to_vec(), Some("c"), None),
            ("ReopenContainerLog", b"\x0a\x01c".to_vec(), Some("c"), None),
            ("CheckpointContainer", b"\x0a\x01c\x12\x01x".to_vec(), Some("c"), None),
            ("PodSandboxStatus", b"\x0a\x01s\x10\x01".to_vec(), None, Some("s")),
            ("PodSandboxStats", b"\x0a\x01s".to_vec(), None, Some("s")),
            ("UpdatePodSandboxResources", b"\x0a\x01s".to_vec(), None, Some("s")),
            ("CheckpointPod", b"\x0a\x01s".to_vec(), None, Some("s")),
            ("ListPodSandbox", filter(b"\x0a\x01s"), None, Some("s")),
            ("ListPodSandboxStats", filter(b"\x0a\x01s\x12\x06\x0a\x01a\x12\x01b"), None, Some("s")),
            ("ListContainers", filter(&stated), Some("c"), None),
            ("StreamContainers", filter(b"\x1a\x01s"), None, Some("s")),
            ("ListContainerStats", filter(b"\x12\x01s"), None, Some("s")),
            ("ListContainers", filter(b"\x12\x02\x08\x01"), None, None),
            ("ListPodSandbox", Vec::new(), None, None),
        ];
        for (method, message, container, sandbox) in rows {
            let kind = Method::from_path(&format!("/runtime.v1.RuntimeService/{method}")).kind;
            let request = CriRequest::decode(kind, &message.into());
            let sandbox = sandbox.map(SandboxId::from);
            assert_eq!((request.container(), request.sandbox()), (container, sandbox), "{method}");
            assert!(!matches!(request, CriRequest::Undecoded), "{method}");
        }
    }
}
