//! Shared by the tests of this stage: a container, and calls on it as the inventory reports them.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use prost::Message as _;

use super::watch::Watch;
use crate::{
    clock,
    ids::ContainerId,
    inventory::{
        Change, TracedCall,
        fixtures::{self, texts},
        pod::{Container, Pod},
    },
    peer::Peer,
    proto::cri::ExecSyncRequest,
    tap::{
        Call, CallEnd, Code, EndedCall,
        call::CallOrigin,
        cri::{CriRequest, CriResponse, ExecCommand, ExecResult, Method},
    },
};

/// When all tests begin.
#[derive(Clone, Copy)]
pub(super) struct Start {
    at: Instant,
    wall: SystemTime,
}

impl Start {
    pub(super) fn now() -> Self {
        Self { at: clock::now(), wall: SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_168_800) }
    }

    /// So many seconds later.
    pub(super) fn after(self, seconds: f64) -> Instant {
        self.at + Duration::from_secs_f64(seconds)
    }

    /// A call that began then and took that long; `end` is `exit N`, `deadline`, `error NAME`, `cancelled`, `reset`,
    /// `lost` or `unreadable`.
    pub(super) fn call(
        self,
        (began, took, end): (f64, f64, &str),
        command: &ExecCommand,
        comm: &str,
    ) -> TracedCall {
        let result = |exit_code| CriResponse::Exec(ExecResult { exit_code, ..ExecResult::default() });
        let (end, code, response) = match end.split_once(' ').unwrap_or((end, "")) {
            ("exit", code) => {
                (CallEnd::Complete, Some(Code::OK), result(code.parse().expect("an exit code is a number")))
            }
            ("deadline", _) => (CallEnd::Complete, Some(Code::DEADLINE_EXCEEDED), CriResponse::Skipped),
            ("unreadable", _) => (CallEnd::Complete, Some(Code::OK), CriResponse::Undecoded),
            ("error", "NotFound") => (CallEnd::Complete, Some(Code::NOT_FOUND), CriResponse::Skipped),
            ("cancelled", _) => (CallEnd::Cancelled, None, CriResponse::Skipped),
            ("reset", _) => (CallEnd::Reset, None, CriResponse::Skipped),
            ("lost", _) => (CallEnd::Lost, None, CriResponse::Skipped),
            (other, _) => panic!("no such end: {other}"),
        };
        let at = self.after(began);
        let ended = EndedCall {
            call: begun(at, command, comm),
            at: at + Duration::from_secs_f64(took),
            end,
            code,
            message: if code == Some(Code::OK) { "".into() } else { "it said why".into() },
            response_bytes: 0,
            response,
            creation: None,
        };
        TracedCall {
            at: self.wall + Duration::from_secs_f64(began),
            ended,
            pod: None,
            container: None,
            container_id: Some(ContainerId::from(command.container())),
        }
    }
}

pub(super) fn begun(began: Instant, command: &ExecCommand, comm: &str) -> Call {
    // Another connection each time, and another process: neither says who calls.
    let peer =
        Peer { pid: began.elapsed().subsec_nanos().cast_signed().max(1), uid: 0, comm: comm.to_owned() };
    let origin = CallOrigin { conn: crate::ids::ConnId(1), peer: Arc::new(peer), user_agent: "".into() };
    Call {
        origin: Arc::new(origin),
        stream: 1,
        method: Arc::new(Method::from_path("/runtime.v1.RuntimeService/ExecSync")),
        began,
        request_bytes: 0,
        traceparent: None,
        request: CriRequest::ExecSync(command.clone()),
    }
}

pub(super) fn command(container: &str, words: &[&str], timeout: i64) -> ExecCommand {
    let cmd = words.iter().map(ToString::to_string).collect();
    let request = ExecSyncRequest { container_id: container.to_owned(), cmd, timeout };
    ExecCommand::read(&request.encode_to_vec().into()).expect("a request of ours can be read")
}

/// A running container of pod `web` with these annotations.
pub(super) fn container(id: &str, annotations: &[(&str, &str)]) -> Container {
    let pod = Pod {
        uid: "uid-web".into(),
        namespace: "shop".into(),
        annotations: texts(annotations),
        ..fixtures::pod()
    };
    fixtures::container(id, pod)
}

/// One that watches a container of this id.
pub(super) fn watch(id: &str) -> Watch {
    let mut watch = Watch::default();
    watch.changed(&Change::Container(Arc::new(container(id, &[]))));
    watch
}
