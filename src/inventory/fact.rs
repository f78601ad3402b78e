//! What the inventory learns, from wherever it learns it. In: calls that passed, the runtime's events; out: facts.

use crate::{
    ids::{ContainerId, SandboxId},
    proto::cri,
    runtime::events::RuntimeEvent,
    tap::{
        Call, Code, End, Ended,
        cri::{Request, Response},
    },
};

/// One thing that was learnt.
#[derive(Debug)]
pub enum Fact {
    /// A client ran a pod.
    SandboxRun {
        /// The id that the runtime gave it.
        id: SandboxId,
        /// What was asked for.
        config: Box<cri::PodSandboxConfig>,
    },
    /// A client began to stop a pod.
    SandboxStopping(SandboxId),
    /// A pod was stopped.
    SandboxStopped(SandboxId),
    /// A pod was removed.
    SandboxRemoved(SandboxId),
    /// A client made a container.
    ContainerCreated {
        /// The id that the runtime gave it.
        id: ContainerId,
        /// What was asked for.
        request: Box<cri::CreateContainerRequest>,
    },
    /// A container runs.
    ContainerStarted(ContainerId),
    /// A client began to stop a container.
    ContainerStopping(ContainerId),
    /// A container ended.
    ContainerExited {
        /// Which.
        id: ContainerId,
        /// With this code, where it is known.
        exit_code: Option<i32>,
    },
    /// A container was removed.
    ContainerRemoved(ContainerId),
    /// An id was named; of what, nobody said.
    Mentioned(String),
    /// All sandboxes there were when the list was asked for.
    SandboxesListed(Vec<cri::PodSandbox>),
    /// All containers there were when the list was asked for.
    ContainersListed(Vec<cri::Container>),
    /// A sandbox as it was when the runtime was asked.
    SandboxReported(Box<cri::PodSandboxStatus>),
    /// A container as it was when the runtime was asked.
    ContainerReported(Box<cri::ContainerStatusResponse>),
    /// The runtime knew no such id when it was asked.
    NotFound(String),
}

/// What is to be asked of the runtime.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lookup {
    /// Everything.
    List,
    /// A sandbox's status.
    Sandbox(SandboxId),
    /// A container's status.
    Container(ContainerId),
    /// Whatever this is.
    Unexplained(String),
}

impl Fact {
    /// What the beginning of a call tells.
    pub fn of_begun(call: &Call) -> Option<Self> {
        match &call.request {
            Request::StopPodSandbox(id) | Request::RemovePodSandbox(id) => {
                Some(Self::SandboxStopping(id.clone()))
            }
            Request::StopContainer(id) | Request::RemoveContainer(id) => {
                Some(Self::ContainerStopping(id.clone()))
            }
            Request::ExecSync { container, .. } => Some(Self::Mentioned(container.as_str().to_owned())),
            Request::Skipped
            | Request::Undecoded
            | Request::RunPodSandbox(_)
            | Request::RestorePod
            | Request::CreateContainer(_)
            | Request::StartContainer(_)
            | Request::Exec { .. }
            | Request::Attach(_)
            | Request::PortForward(_) => None,
        }
    }

    /// What the end of a call tells: a fact, or that only the runtime's lists can tell.
    pub fn of_ended(ended: &Ended) -> Result<Option<Self>, AskTheRuntime> {
        if !ended.call.method.kind.is_mutating() {
            return Ok(None);
        }
        if ended.end != End::Complete {
            return Err(AskTheRuntime);
        }
        if ended.code != Some(Code::OK) {
            // A refusal changed nothing. DeadlineExceeded, Canceled and Unknown may have.
            return match ended.code.map(Code::name) {
                Some(
                    "NotFound" | "AlreadyExists" | "InvalidArgument" | "Unimplemented" | "PermissionDenied",
                ) => Ok(None),
                _ => Err(AskTheRuntime),
            };
        }
        Ok(Some(match (&ended.call.request, &ended.response) {
            (Request::RunPodSandbox(config), Response::Sandbox(id)) => {
                Self::SandboxRun { id: id.clone(), config: config.clone() }
            }
            (Request::CreateContainer(request), Response::Container(id)) => {
                Self::ContainerCreated { id: id.clone(), request: request.clone() }
            }
            (Request::StopPodSandbox(id), _) => Self::SandboxStopped(id.clone()),
            (Request::RemovePodSandbox(id), _) => Self::SandboxRemoved(id.clone()),
            (Request::StartContainer(id), _) => Self::ContainerStarted(id.clone()),
            (Request::StopContainer(id), _) => Self::ContainerExited { id: id.clone(), exit_code: None },
            (Request::RemoveContainer(id), _) => Self::ContainerRemoved(id.clone()),
            // Undecoded, or a pod that came with containers of its own.
            _ => return Err(AskTheRuntime),
        }))
    }

    /// What an event of the runtime tells. To it a sandbox is a container, too: what is not known as one is looked up.
    pub fn of_event(event: RuntimeEvent, is_sandbox: impl Fn(&str) -> bool) -> Self {
        match event {
            RuntimeEvent::Created(id) => Self::Mentioned(id),
            RuntimeEvent::Started(id) if is_sandbox(&id) => Self::Mentioned(id),
            RuntimeEvent::Started(id) => Self::ContainerStarted(id.into()),
            RuntimeEvent::Exited { id, .. } if is_sandbox(&id) => Self::SandboxStopped(id.into()),
            RuntimeEvent::Exited { id, exit_code } => {
                Self::ContainerExited { id: id.into(), exit_code: Some(exit_code) }
            }
            RuntimeEvent::Deleted(id) if is_sandbox(&id) => Self::SandboxRemoved(id.into()),
            RuntimeEvent::Deleted(id) => Self::ContainerRemoved(id.into()),
        }
    }
}

/// A mutating call ended in a way that does not say what happened: the runtime's own lists do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskTheRuntime;
