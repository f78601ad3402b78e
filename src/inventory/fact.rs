//! What the inventory learns from any source. In: relayed calls, the runtime's events. Out: facts.

use std::sync::Arc;

use crate::{
    ids::{ConnId, ContainerId, SandboxId},
    proto::{cri, trim::Trimmed},
    runtime::{
        events::RuntimeEvent,
        lists::{ContainerItem, SandboxItem},
    },
    tap::{
        Call, CallEnd, Code, EndedCall,
        cri::{CriRequest, CriResponse},
    },
};

#[derive(Debug)]
pub(super) enum Fact {
    /// A client ran a pod.
    SandboxRun {
        /// The id that the runtime gave it.
        id: SandboxId,
        /// The request.
        config: Arc<Trimmed<cri::PodSandboxConfig>>,
    },
    /// A client began to stop a container or a pod.
    StopBegun {
        call: CallId,
        /// What it stops.
        target: Target,
    },
    /// A client's stop failed, or ended without an answer.
    StopFailed(CallId),
    /// A client's stop succeeded.
    StopDone(CallId),
    /// The ends of calls were not seen.
    EndsLost(Lost),
    /// A client stopped a pod, and all its containers with it.
    SandboxStopped(SandboxId),
    /// A sandbox's own process ended; its containers may still run.
    SandboxExited(SandboxId),
    /// A pod was removed.
    SandboxRemoved(SandboxId),
    /// A client created a container.
    ContainerCreated {
        /// The id that the runtime gave it.
        id: ContainerId,
        request: Arc<Trimmed<cri::CreateContainerRequest>>,
    },
    /// A container runs.
    ContainerStarted(ContainerId),
    /// A client stopped a container. A container that was never started does not change.
    ContainerStopped(ContainerId),
    /// A container ended.
    ContainerExited {
        /// The container.
        id: ContainerId,
        /// The exit code, if known.
        exit_code: Option<i32>,
    },
    ContainerRemoved(ContainerId),
    /// The kernel killed a process of a container because the container's memory was used up.
    OutOfMemory(ContainerId),
    /// The processes of a container were frozen.
    ContainerPaused(ContainerId),
    /// They run on.
    ContainerResumed(ContainerId),
    /// All that is paused at the time of the request, containers and sandboxes; `None` if the runtime failed to report it.
    PausedListed(Option<Vec<String>>),
    /// The runtime mentioned an id, but not its kind.
    Mentioned(String),
    /// A client named an id: it may be any text.
    Named(String),
    /// All sandboxes at the time of the list request.
    SandboxesListed(Vec<SandboxItem>),
    /// All containers at the time of the list request.
    ContainersListed(Vec<ContainerItem>),
    /// A sandbox at the time of the request.
    SandboxReported(Box<Trimmed<cri::PodSandboxStatus>>),
    /// A container at the time of the request.
    ContainerReported(Box<cri::ContainerStatus>),
    /// The runtime did not know this id at the time of the request.
    NotFound(String),
}

/// A client's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CallId {
    /// Its connection.
    pub conn: ConnId,
    /// Its stream on that connection.
    pub stream: u32,
}

impl CallId {
    /// Of a call.
    pub(super) fn of(call: &Call) -> Self {
        Self { conn: call.origin.conn, stream: call.stream }
    }
}

/// What a client stops.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    Container(ContainerId),
    /// A pod.
    Sandbox(SandboxId),
}

impl Target {
    fn of(request: &CriRequest) -> Option<Self> {
        match request {
            CriRequest::StopPodSandbox(id) | CriRequest::RemovePodSandbox(id) => {
                Some(Self::Sandbox(id.clone()))
            }
            CriRequest::StopContainer(id) | CriRequest::RemoveContainer(id) => {
                Some(Self::Container(id.clone()))
            }
            _ => None,
        }
    }
}

/// The calls whose ends were not seen.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lost {
    /// The calls in progress on one connection.
    Connection(ConnId),
    /// Any calls in progress.
    Any,
}

/// What to ask the runtime for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Lookup {
    /// Everything.
    List,
    /// A sandbox's status.
    Sandbox(SandboxId),
    /// A container's status.
    Container(ContainerId),
    /// A container's status, a little later: at the moment, the runtime could not report all of it.
    ContainerAgain(ContainerId),
    /// An id of unknown kind that the runtime mentioned.
    Unexplained(String),
    /// The same, but only a client named it: it may not exist.
    Named(String),
}

impl Fact {
    /// The fact that the beginning of a call shows.
    pub(super) fn of_begun(call: &Call) -> Option<Self> {
        if let Some(target) = Target::of(&call.request) {
            return Some(Self::StopBegun { call: CallId::of(call), target });
        }
        match &call.request {
            CriRequest::ExecSync(command) | CriRequest::Exec(command) => {
                Some(Self::Named(command.container().to_owned()))
            }
            CriRequest::Attach(container) => Some(Self::Named(container.as_str().to_owned())),
            CriRequest::PortForward(sandbox) => Some(Self::Named(sandbox.as_str().to_owned())),
            _ => None,
        }
    }

    /// The fact that the end of a stop call shows.
    pub(super) fn of_stop_ended(ended: &EndedCall) -> Option<Self> {
        let call = CallId::of(&ended.call);
        let is_done = ended.end == CallEnd::Complete && ended.code == Some(Code::OK);
        Target::of(&ended.call.request)
            .map(|_| if is_done { Self::StopDone(call) } else { Self::StopFailed(call) })
    }

    /// The facts that the end of a call shows.
    pub(super) fn of_ended(ended: &EndedCall) -> Conclusion {
        if !ended.call.method.kind.is_mutating() {
            return Conclusion { fact: None, needs_resync: false };
        }
        if ended.end == CallEnd::Complete && ended.code == Some(Code::OK) {
            let fact = Self::of_success(&ended.call.request, &ended.response);
            return Conclusion { needs_resync: fact.is_none(), fact };
        }
        // A rejected call changed nothing. DeadlineExceeded, Canceled and Unknown may have, as any call without an
        // answer.
        let is_refused = matches!(
            ended.code,
            Some(
                Code::NOT_FOUND
                    | Code::ALREADY_EXISTS
                    | Code::INVALID_ARGUMENT
                    | Code::UNIMPLEMENTED
                    | Code::PERMISSION_DENIED
            )
        );
        Conclusion { fact: None, needs_resync: ended.end != CallEnd::Complete || !is_refused }
    }

    /// The fact that the success of a mutating call shows; `None` if only the runtime knows.
    fn of_success(request: &CriRequest, response: &CriResponse) -> Option<Self> {
        Some(match (request, response) {
            (CriRequest::RunPodSandbox(config), CriResponse::Sandbox(id)) => {
                Self::SandboxRun { id: id.clone(), config: config.clone() }
            }
            (CriRequest::CreateContainer(request), CriResponse::Container(id)) => {
                Self::ContainerCreated { id: id.clone(), request: request.clone() }
            }
            (CriRequest::StopPodSandbox(id), _) => Self::SandboxStopped(id.clone()),
            (CriRequest::RemovePodSandbox(id), _) => Self::SandboxRemoved(id.clone()),
            (CriRequest::StartContainer(id), _) => Self::ContainerStarted(id.clone()),
            (CriRequest::StopContainer(id), _) => Self::ContainerStopped(id.clone()),
            (CriRequest::RemoveContainer(id), _) => Self::ContainerRemoved(id.clone()),
            // Not decoded, or a pod that came with containers of its own.
            _ => return None,
        })
    }

    /// The fact that an event of the runtime shows. For the runtime, a sandbox is a container, too: an id that is not a
    /// known container is looked up.
    pub(super) fn of_event(event: RuntimeEvent, is_sandbox: impl Fn(&str) -> bool) -> Self {
        match event {
            RuntimeEvent::Created(id) => Self::Mentioned(id),
            RuntimeEvent::Started(id) if is_sandbox(&id) => Self::Mentioned(id),
            RuntimeEvent::Started(id) => Self::ContainerStarted(id.into()),
            RuntimeEvent::Exited { id, .. } if is_sandbox(&id) => Self::SandboxExited(id.into()),
            RuntimeEvent::Exited { id, exit_code } => Self::ContainerExited { id: id.into(), exit_code },
            RuntimeEvent::Paused(id) | RuntimeEvent::Resumed(id) if is_sandbox(&id) => Self::Mentioned(id),
            RuntimeEvent::Paused(id) => Self::ContainerPaused(id.into()),
            RuntimeEvent::Resumed(id) => Self::ContainerResumed(id.into()),
            RuntimeEvent::Deleted(id) if is_sandbox(&id) => Self::SandboxRemoved(id.into()),
            RuntimeEvent::Deleted(id) => Self::ContainerRemoved(id.into()),
            RuntimeEvent::OutOfMemory(id) => Self::OutOfMemory(id.into()),
        }
    }
}

/// What follows from the end of a call.
#[derive(Debug)]
pub(super) struct Conclusion {
    pub fact: Option<Fact>,
    /// Whether the outcome is unknown, so that the runtime's lists must be read.
    pub needs_resync: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock,
        tap::{
            call::CallOrigin,
            cri::{self, CriResponse, Method},
        },
    };

    fn ended(method: &str, request: CriRequest, end: CallEnd, code: Option<u32>) -> EndedCall {
        let now = clock::now();
        let call = Call {
            origin: Arc::new(CallOrigin { conn: ConnId(1), peer: Arc::default(), user_agent: "".into() }),
            stream: 1,
            method: Arc::new(Method::from_path(&format!("/runtime.v1.RuntimeService/{method}"))),
            began: now,
            request_bytes: 0,
            traceparent: None,
            request,
        };
        EndedCall {
            call,
            at: now,
            end,
            code: code.map(Code),
            message: "".into(),
            response_bytes: 0,
            response: CriResponse::Skipped,
            creation: None,
        }
    }

    #[test]
    fn only_an_end_that_leaves_a_doubt_asks_the_runtime() {
        let stop = || CriRequest::StopContainer("c".into());
        let exec = || CriRequest::decode(cri::CallKind::ExecSync, &b"\x0a\x01c".as_slice().into());
        let rows = [
            ("StopContainer", stop(), CallEnd::Complete, Some(0), "Some(ContainerStopped(\"c\"))", false),
            ("StopContainer", stop(), CallEnd::Complete, Some(5), "None", false),
            ("StopContainer", stop(), CallEnd::Complete, Some(4), "None", true),
            ("StopContainer", stop(), CallEnd::Cancelled, None, "None", true),
            ("StopContainer", stop(), CallEnd::Lost, None, "None", true),
            ("StopContainer", CriRequest::Undecoded, CallEnd::Complete, Some(0), "None", true),
            (
                "StartContainer",
                CriRequest::StartContainer("c".into()),
                CallEnd::Complete,
                Some(2),
                "None",
                true,
            ),
            (
                "StartContainer",
                CriRequest::StartContainer("c".into()),
                CallEnd::Complete,
                Some(5),
                "None",
                false,
            ),
            ("RestorePod", CriRequest::RestorePod, CallEnd::Complete, Some(0), "None", true),
            (
                "RemovePodSandbox",
                CriRequest::RemovePodSandbox("s".into()),
                CallEnd::Reset,
                None,
                "None",
                true,
            ),
            ("ExecSync", exec(), CallEnd::Cancelled, None, "None", false),
            ("ListImages", CriRequest::Skipped, CallEnd::Lost, None, "None", false),
        ];
        for (method, request, end, code, fact, needs_resync) in rows {
            let conclusion = Fact::of_ended(&ended(method, request, end, code));
            assert_eq!(
                (format!("{:?}", conclusion.fact).as_str(), conclusion.needs_resync),
                (fact, needs_resync),
                "{method} {end:?} {code:?}"
            );
        }
    }

    #[test]
    fn a_stop_that_was_not_answered_well_has_failed() {
        let removal = || CriRequest::RemovePodSandbox("s".into());
        let rows = [
            (removal(), CallEnd::Complete, Some(0), "Some(StopDone"),
            (removal(), CallEnd::Complete, Some(4), "Some(StopFailed"),
            (CriRequest::StopContainer("c".into()), CallEnd::Cancelled, None, "Some(StopFailed"),
            (CriRequest::StopContainer("c".into()), CallEnd::Lost, None, "Some(StopFailed"),
            (CriRequest::StartContainer("c".into()), CallEnd::Lost, None, "None"),
        ];
        for (request, end, code, fact) in rows {
            let reported = format!("{:?}", Fact::of_stop_ended(&ended("any", request, end, code)));
            assert!(reported.starts_with(fact), "{reported}");
        }
    }

    #[test]
    fn an_event_of_a_sandbox_is_none_of_a_container() {
        let is_sandbox = |id: &str| id == "s";
        let rows = [
            (RuntimeEvent::Created("x".into()), "Mentioned(\"x\")"),
            (RuntimeEvent::Started("s".into()), "Mentioned(\"s\")"),
            (RuntimeEvent::Started("c".into()), "ContainerStarted(\"c\")"),
            (RuntimeEvent::Exited { id: "s".into(), exit_code: Some(0) }, "SandboxExited(\"s\")"),
            (
                RuntimeEvent::Exited { id: "c".into(), exit_code: Some(3) },
                "ContainerExited { id: \"c\", exit_code: Some(3) }",
            ),
            (RuntimeEvent::Paused("s".into()), "Mentioned(\"s\")"),
            (RuntimeEvent::Paused("c".into()), "ContainerPaused(\"c\")"),
            (RuntimeEvent::Resumed("s".into()), "Mentioned(\"s\")"),
            (RuntimeEvent::Resumed("c".into()), "ContainerResumed(\"c\")"),
            (RuntimeEvent::Deleted("s".into()), "SandboxRemoved(\"s\")"),
            (RuntimeEvent::Deleted("c".into()), "ContainerRemoved(\"c\")"),
            (RuntimeEvent::OutOfMemory("c".into()), "OutOfMemory(\"c\")"),
        ];
        for (event, fact) in rows {
            assert_eq!(format!("{:?}", Fact::of_event(event, is_sandbox)), fact);
        }
    }
}
