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
        Call, Code, End, Ended,
        cri::{Request, Response},
    },
};

/// One fact.
#[derive(Debug)]
pub enum Fact {
    /// A client ran a pod.
    SandboxRun {
        /// The id that the runtime gave it.
        id: SandboxId,
        /// The request.
        config: Arc<Trimmed<cri::PodSandboxConfig>>,
    },
    /// A client began to stop a container or a pod.
    StopBegun {
        /// The call.
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
        /// The request.
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
    /// A container was removed.
    ContainerRemoved(ContainerId),
    /// An id was named, but not its kind.
    Mentioned(String),
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
pub struct CallId {
    /// Its connection.
    pub conn: ConnId,
    /// Its stream on that connection.
    pub stream: u32,
}

impl CallId {
    /// Of a call.
    pub fn of(call: &Call) -> Self {
        Self { conn: call.origin.conn, stream: call.stream }
    }
}

/// What a client stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A container.
    Container(ContainerId),
    /// A pod.
    Sandbox(SandboxId),
}

impl Target {
    fn of(request: &Request) -> Option<Self> {
        match request {
            Request::StopPodSandbox(id) | Request::RemovePodSandbox(id) => Some(Self::Sandbox(id.clone())),
            Request::StopContainer(id) | Request::RemoveContainer(id) => Some(Self::Container(id.clone())),
            _ => None,
        }
    }
}

/// The calls whose ends were not seen.
#[derive(Clone, Copy, Debug)]
pub enum Lost {
    /// The calls in progress on one connection.
    Connection(ConnId),
    /// Any calls in progress.
    Any,
}

/// What to ask the runtime for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lookup {
    /// Everything.
    List,
    /// A sandbox's status.
    Sandbox(SandboxId),
    /// A container's status.
    Container(ContainerId),
    /// A container's status, a little later: at the moment, the runtime could not report all of it.
    ContainerAgain(ContainerId),
    /// An id of unknown kind.
    Unexplained(String),
}

impl Fact {
    /// The fact that the beginning of a call shows.
    pub fn of_begun(call: &Call) -> Option<Self> {
        if let Some(target) = Target::of(&call.request) {
            return Some(Self::StopBegun { call: CallId::of(call), target });
        }
        match &call.request {
            Request::ExecSync(command) | Request::Exec(command) => {
                Some(Self::Mentioned(command.container().to_owned()))
            }
            Request::Attach(container) => Some(Self::Mentioned(container.as_str().to_owned())),
            Request::PortForward(sandbox) => Some(Self::Mentioned(sandbox.as_str().to_owned())),
            _ => None,
        }
    }

    /// The fact that the end of a stop call shows.
    pub fn of_stop_ended(ended: &Ended) -> Option<Self> {
        let call = CallId::of(&ended.call);
        let is_done = ended.end == End::Complete && ended.code == Some(Code::OK);
        Target::of(&ended.call.request)
            .map(|_| if is_done { Self::StopDone(call) } else { Self::StopFailed(call) })
    }

    /// The facts that the end of a call shows.
    pub fn of_ended(ended: &Ended) -> Lesson {
        if !ended.call.method.kind.is_mutating() {
            return Lesson { fact: None, asks: false };
        }
        if ended.end == End::Complete && ended.code == Some(Code::OK) {
            let fact = Self::of_success(&ended.call.request, &ended.response);
            return Lesson { asks: fact.is_none(), fact };
        }
        // A rejected call changed nothing. DeadlineExceeded, Canceled and Unknown may have, as any call without an
        // answer.
        let is_refused = matches!(
            ended.code.map(Code::name),
            Some("NotFound" | "AlreadyExists" | "InvalidArgument" | "Unimplemented" | "PermissionDenied")
        );
        Lesson { fact: None, asks: ended.end != End::Complete || !is_refused }
    }

    /// The fact that the success of a mutating call shows; `None` if only the runtime knows.
    fn of_success(request: &Request, response: &Response) -> Option<Self> {
        Some(match (request, response) {
            (Request::RunPodSandbox(config), Response::Sandbox(id)) => {
                Self::SandboxRun { id: id.clone(), config: config.clone() }
            }
            (Request::CreateContainer(request), Response::Container(id)) => {
                Self::ContainerCreated { id: id.clone(), request: request.clone() }
            }
            (Request::StopPodSandbox(id), _) => Self::SandboxStopped(id.clone()),
            (Request::RemovePodSandbox(id), _) => Self::SandboxRemoved(id.clone()),
            (Request::StartContainer(id), _) => Self::ContainerStarted(id.clone()),
            (Request::StopContainer(id), _) => Self::ContainerStopped(id.clone()),
            (Request::RemoveContainer(id), _) => Self::ContainerRemoved(id.clone()),
            // Not decoded, or a pod that came with containers of its own.
            _ => return None,
        })
    }

    /// The fact that an event of the runtime shows. For the runtime, a sandbox is a container, too: an id that is not a
    /// known container is looked up.
    pub fn of_event(event: RuntimeEvent, is_sandbox: impl Fn(&str) -> bool) -> Self {
        match event {
            RuntimeEvent::Created(id) => Self::Mentioned(id),
            RuntimeEvent::Started(id) if is_sandbox(&id) => Self::Mentioned(id),
            RuntimeEvent::Started(id) => Self::ContainerStarted(id.into()),
            RuntimeEvent::Exited { id, .. } if is_sandbox(&id) => Self::SandboxExited(id.into()),
            RuntimeEvent::Exited { id, exit_code } => Self::ContainerExited { id: id.into(), exit_code },
            RuntimeEvent::Deleted(id) if is_sandbox(&id) => Self::SandboxRemoved(id.into()),
            RuntimeEvent::Deleted(id) => Self::ContainerRemoved(id.into()),
        }
    }
}

/// The result of the end of a call.
#[derive(Debug)]
pub struct Lesson {
    /// The facts.
    pub fact: Option<Fact>,
    /// Whether the outcome is unknown, so that the runtime's lists must be read.
    pub asks: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock,
        tap::{
            Origin,
            cri::{self, Method, Response},
        },
    };

    fn ended(method: &str, request: Request, end: End, code: Option<u32>) -> Ended {
        let now = clock::now();
        let call = Call {
            origin: Arc::new(Origin { conn: ConnId(1), peer: Arc::default(), user_agent: "".into() }),
            stream: 1,
            method: Arc::new(Method::from_path(&format!("/runtime.v1.RuntimeService/{method}"))),
            began: now,
            request_bytes: 0,
            traceparent: None,
            request,
        };
        Ended {
            call,
            at: now,
            end,
            code: code.map(Code),
            message: "".into(),
            response_bytes: 0,
            response: Response::Skipped,
        }
    }

    #[test]
    fn only_an_end_that_leaves_a_doubt_asks_the_runtime() {
        let stop = || Request::StopContainer("c".into());
        let exec = || Request::decode(cri::Kind::ExecSync, &b"\x0a\x01c".as_slice().into());
        let rows = [
            ("StopContainer", stop(), End::Complete, Some(0), "Some(ContainerStopped(\"c\"))", false),
            ("StopContainer", stop(), End::Complete, Some(5), "None", false),
            ("StopContainer", stop(), End::Complete, Some(4), "None", true),
            ("StopContainer", stop(), End::Cancelled, None, "None", true),
            ("StopContainer", stop(), End::Lost, None, "None", true),
            ("StopContainer", Request::Undecoded, End::Complete, Some(0), "None", true),
            ("StartContainer", Request::StartContainer("c".into()), End::Complete, Some(2), "None", true),
            ("StartContainer", Request::StartContainer("c".into()), End::Complete, Some(5), "None", false),
            ("RestorePod", Request::RestorePod, End::Complete, Some(0), "None", true),
            ("RemovePodSandbox", Request::RemovePodSandbox("s".into()), End::Reset, None, "None", true),
            ("ExecSync", exec(), End::Cancelled, None, "None", false),
            ("ListImages", Request::Skipped, End::Lost, None, "None", false),
        ];
        for (method, request, end, code, fact, asks) in rows {
            let lesson = Fact::of_ended(&ended(method, request, end, code));
            assert_eq!(
                (format!("{:?}", lesson.fact).as_str(), lesson.asks),
                (fact, asks),
                "{method} {end:?} {code:?}"
            );
        }
    }

    #[test]
    fn a_stop_that_was_not_answered_well_has_failed() {
        let removal = || Request::RemovePodSandbox("s".into());
        let rows = [
            (removal(), End::Complete, Some(0), "Some(StopDone"),
            (removal(), End::Complete, Some(4), "Some(StopFailed"),
            (Request::StopContainer("c".into()), End::Cancelled, None, "Some(StopFailed"),
            (Request::StopContainer("c".into()), End::Lost, None, "Some(StopFailed"),
            (Request::StartContainer("c".into()), End::Lost, None, "None"),
        ];
        for (request, end, code, fact) in rows {
            let told = format!("{:?}", Fact::of_stop_ended(&ended("any", request, end, code)));
            assert!(told.starts_with(fact), "{told}");
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
            (RuntimeEvent::Deleted("s".into()), "SandboxRemoved(\"s\")"),
            (RuntimeEvent::Deleted("c".into()), "ContainerRemoved(\"c\")"),
        ];
        for (event, fact) in rows {
            assert_eq!(format!("{:?}", Fact::of_event(event, is_sandbox)), fact);
        }
    }
}
