//! Shared by the tests of this stage: a container, and calls on it as the inventory reports them.

use std::{
    collections::BTreeMap,
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
        view::{ContainerState, ContainerView, PodNetwork, PodView},
    },
    peer::Peer,
    proto::cri::ExecSyncRequest,
    tap::{
        Call, Code, End, Ended, Origin,
        cri::{Command, ExecResult, Method, Request, Response},
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
        command: &Command,
        comm: &str,
    ) -> TracedCall {
        let result = |exit_code| Response::Exec(ExecResult { exit_code, ..ExecResult::default() });
        let (end, code, response) = match end.split_once(' ').unwrap_or((end, "")) {
            ("exit", code) => (End::Complete, Some(Code::OK), result(code.parse().unwrap())),
            ("deadline", _) => (End::Complete, Some(Code(4)), Response::Skipped),
            ("unreadable", _) => (End::Complete, Some(Code::OK), Response::Undecoded),
            ("error", "NotFound") => (End::Complete, Some(Code(5)), Response::Skipped),
            ("cancelled", _) => (End::Cancelled, None, Response::Skipped),
            ("reset", _) => (End::Reset, None, Response::Skipped),
            ("lost", _) => (End::Lost, None, Response::Skipped),
            (other, _) => panic!("no such end: {other}"),
        };
        let at = self.after(began);
        let ended = Ended {
            call: begun(at, command, comm),
            at: at + Duration::from_secs_f64(took),
            end,
            code,
            message: if code == Some(Code::OK) { "".into() } else { "it said why".into() },
            response_bytes: 0,
            response,
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

pub(super) fn begun(began: Instant, command: &Command, comm: &str) -> Call {
    // Another connection each time, and another process: neither says who calls.
    let peer =
        Peer { pid: began.elapsed().subsec_nanos().cast_signed().max(1), uid: 0, comm: comm.to_owned() };
    let origin = Origin { conn: crate::ids::ConnId(1), peer: Arc::new(peer), user_agent: "".into() };
    Call {
        origin: Arc::new(origin),
        stream: 1,
        method: Arc::new(Method::from_path("/runtime.v1.RuntimeService/ExecSync")),
        began,
        request_bytes: 0,
        traceparent: None,
        request: Request::ExecSync(command.clone()),
    }
}

pub(super) fn command(container: &str, words: &[&str], timeout: i64) -> Command {
    let cmd = words.iter().map(ToString::to_string).collect();
    let request = ExecSyncRequest { container_id: container.to_owned(), cmd, timeout };
    Command::read(&request.encode_to_vec().into()).unwrap()
}

/// A running container of pod `web` with these annotations.
pub(super) fn container(id: &str, annotations: &[(&str, &str)]) -> ContainerView {
    let annotations = annotations.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
    ContainerView {
        id: id.into(),
        name: "app".into(),
        attempt: 0,
        image: "x".into(),
        image_spec: "x".into(),
        image_ref: "sha256:1".into(),
        state: ContainerState::Running,
        created_at: None,
        started_at: None,
        omitted: 0,
        annotations: BTreeMap::new(),
        pod: Arc::new(PodView {
            sandbox_id: "s".into(),
            uid: "uid-web".into(),
            name: "web".into(),
            namespace: "shop".into(),
            attempt: 0,
            copied_uid: None,
            is_ready: true,
            network: PodNetwork::Unknown,
            labels: BTreeMap::new(),
            annotations,
            omitted: 0,
        }),
    }
}

/// One that watches a container of this id.
pub(super) fn watch(id: &str) -> Watch {
    let mut watch = Watch::default();
    watch.changed(&Change::Container(Arc::new(container(id, &[]))));
    watch
}
