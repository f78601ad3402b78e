//! What the inventory observes, for those who keep it: clients' own probes, requests that create containers, the trace. In:
//! calls and changes; nothing out. Never waits.

use std::sync::Arc;

use super::trace_log::CallSink;
use crate::{
    act::recipe::RecipeStore,
    clock,
    exits::ExitsHandle,
    handler::exec::session::Sessions,
    ids::{ConnId, ContainerId},
    inventory::{Change, Observer, TracedCall},
    observed::ObservedHandle,
    phases::{CallName, ExecEnd, PhasesHandle},
    report::{
        convert, costs::CostsHandle, in_flight::CallsInFlight, journal::Journal, metrics::CallCounts,
        view::EventView,
    },
    results::phases::{PhasesSlot, Split, is_slow},
    tap::{
        Call, CallEnd, Code,
        cri::{CriRequest, CriResponse},
    },
};

/// Feeds what passes to those who keep it.
pub(super) struct Passing {
    pub observed: ObservedHandle,
    pub recipes: RecipeStore,
    pub calls: CallCounts,
    pub trace: CallSink,
    pub phases: PhasesHandle,
    pub exits: ExitsHandle,
    pub costs: CostsHandle,
    pub in_flight: CallsInFlight,
    pub sessions: Sessions,
    /// Gets what happens to containers.
    pub events: Journal<EventView>,
}

impl Observer for Passing {
    fn call_begun(&mut self, call: &Call) {
        self.in_flight.begun(call);
    }

    fn command_begun(&mut self, call: &Call, container: &ContainerId) {
        self.observed.begun(call);
        self.phases.began(container, name(call), call.began);
    }

    fn calls_missed(&mut self) {
        self.phases.calls_missed();
    }

    fn call_ended(&mut self, mut call: TracedCall) {
        let took = call.ended.at.saturating_duration_since(call.ended.call.began);
        let slot = is_slow(took).then(PhasesSlot::default);
        let is_probe = self.observed.ended(&call, slot.clone());
        self.in_flight.ended(&call.ended.call);
        self.calls.ended(&call.ended);
        // The journal keeps no request.
        let creation = call.ended.creation.take();
        if let (Some(creation), Some(id)) = (creation, &call.container_id) {
            self.recipes.note(id, &namespace(&call), Arc::clone(creation.bytes()));
        }
        let (trace, name, at) = (self.trace.clone(), name(&call.ended.call), call.ended.at);
        match (&call.ended.call.request, call.container_id.clone()) {
            (CriRequest::ExecSync(_), Some(container)) => {
                let (end, costs) = (end(&call), self.costs.clone());
                let done = Box::new(move |split: Split| {
                    if let Some(slot) = slot {
                        slot.set(split);
                    }
                    costs.call_ended(&call, split.phases(), is_probe);
                    trace.push(convert::for_journal(call, Some(split)));
                });
                return self.phases.ended(&container, name, end, at, done);
            }
            (CriRequest::Exec(command), Some(container)) if call.ended.has_opened_stream() => {
                let opened = convert::session(&call);
                let done = Box::new(move |end| trace.push(opened.ended(end)));
                self.phases.opened(&container, name, command.arguments(), at, done);
            }
            _ => {}
        }
        self.costs.call_ended(&call, None, is_probe);
        self.trace.push(convert::for_journal(call, None));
    }

    fn ends_lost(&mut self, conn: Option<ConnId>) {
        self.in_flight.ends_lost(conn);
    }

    fn changed(&mut self, change: &Change) {
        self.observed.changed(change);
        for event in self.exits.changed(change, clock::wall()) {
            self.events.push(EventView::from(event));
        }
        match change {
            Change::ContainerGone(id) => {
                self.recipes.forget(id);
                self.phases.gone(id);
            }
            Change::Listed(containers) => self.recipes.retain(|id| containers.contains(id)),
            Change::ContainerStopping(id) => self.sessions.stopping(id),
            Change::Container(_)
            | Change::ContainerStopFailed(_)
            | Change::PodStopping(_)
            | Change::PodStopFailed(_)
            | Change::StopsListed(_)
            | Change::RuntimeAnswers => {}
        }
    }
}

fn name(call: &Call) -> CallName {
    CallName::Client(call.origin.conn, call.stream)
}

/// How a command's call ended.
fn end(call: &TracedCall) -> ExecEnd {
    match (&call.ended.response, call.ended.end, call.ended.code) {
        (CriResponse::Exec(result), ..) => ExecEnd::Answered { exit_code: result.exit_code },
        (_, CallEnd::Complete, Some(code))
            if !matches!(code, Code::OK | Code::CANCELED | Code::DEADLINE_EXCEEDED) =>
        {
            ExecEnd::Refused
        }
        _ => ExecEnd::Unanswered,
    }
}

/// The namespace of the pod that a container is created in: as the inventory knows it, or else as the request names it.
fn namespace(call: &TracedCall) -> Arc<str> {
    match (&call.pod, &call.ended.call.request) {
        (Some(pod), _) => Arc::clone(&pod.namespace),
        (None, CriRequest::CreateContainer(request)) => {
            let metadata = request.sandbox_config.as_ref().and_then(|config| config.metadata.as_ref());
            metadata.map_or_else(Arc::default, |metadata| metadata.namespace.as_str().into())
        }
        (None, _) => Arc::default(),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, time::SystemTime};

    use prost::Message;

    use super::*;
    use crate::{
        clock,
        inventory::fixtures,
        proto::cri as pb,
        record_file::{RecordFile, RecordSettings},
        redact::Redactor,
        report::{JournaledCall, journal::JournalBounds},
        tap::{
            CreationRequest, EndedCall,
            call::CallOrigin,
            cri::{CallKind, CriResponse, Method},
        },
    };

    fn passing() -> Passing {
        let bounds = JournalBounds {
            records: 10,
            bytes: 1 << 20,
            groups: None,
            backlog: 10,
            size: JournaledCall::size,
            repeats: None,
        };
        Passing {
            observed: ObservedHandle::default(),
            recipes: RecipeStore::new(true),
            calls: CallCounts::default(),
            trace: CallSink {
                journal: Journal::new(bounds),
                file: RecordFile::new("calls", 0, RecordSettings { path: None, max_bytes: 0 }),
                redactor: Redactor::default(),
            },
            phases: PhasesHandle::default(),
            costs: CostsHandle::default(),
            sessions: Sessions::default(),
            in_flight: CallsInFlight::default(),
            exits: ExitsHandle::new(SystemTime::UNIX_EPOCH),
            events: Journal::new(JournalBounds::records(10)),
        }
    }

    /// A container was created in namespace `ns`; its request came with the call's end, or did not.
    fn created(id: &str, is_kept: bool) -> TracedCall {
        let metadata = pb::PodSandboxMetadata { namespace: "ns".into(), ..Default::default() };
        let request = pb::CreateContainerRequest {
            sandbox_config: Some(pb::PodSandboxConfig { metadata: Some(metadata), ..Default::default() }),
            ..Default::default()
        };
        let message: Arc<[u8]> = request.encode_to_vec().into();
        let call = Call {
            origin: Arc::new(CallOrigin { conn: ConnId(1), peer: Arc::default(), user_agent: "".into() }),
            stream: 1,
            method: Arc::new(Method::from_path("/runtime.v1.RuntimeService/CreateContainer")),
            began: clock::now(),
            request_bytes: 0,
            traceparent: None,
            request: CriRequest::decode(CallKind::CreateContainer, &message),
        };
        let ended = EndedCall {
            call,
            at: clock::now(),
            end: CallEnd::Complete,
            code: Some(Code::OK),
            message: "".into(),
            response_bytes: 0,
            response: CriResponse::Container(id.into()),
            creation: CreationRequest::of(message).filter(|_| is_kept),
        };
        let container_id = Some(id.into());
        TracedCall { at: SystemTime::UNIX_EPOCH, ended, pod: None, container: None, container_id }
    }

    #[test]
    fn a_request_is_kept_from_the_end_of_its_call_until_its_container_is_gone() {
        let mut passing = passing();
        let kept = |passing: &Passing| {
            let ids = ["a", "b", "c", "d"].into_iter();
            ids.filter(|id| passing.recipes.get(&ContainerId::from(*id)).is_some()).collect::<String>()
        };
        for (id, is_kept) in [("a", true), ("b", true), ("c", false), ("d", true)] {
            passing.call_ended(created(id, is_kept));
        }
        assert_eq!(kept(&passing), "abd");
        passing.changed(&Change::ContainerGone("a".into()));
        assert_eq!(kept(&passing), "bd");
        passing.changed(&Change::Listed(Arc::new(HashSet::from(["d".into()]))));
        assert_eq!(kept(&passing), "d");
        passing.changed(&Change::RuntimeAnswers);
        assert_eq!(kept(&passing), "d");
    }

    #[test]
    fn calls_are_counted_by_closed_sets_of_names() {
        let mut passing = passing();
        passing.call_ended(created("a", false));
        let mut refused = created("b", false);
        refused.ended.code = Some(Code::NOT_FOUND);
        passing.call_ended(refused);
        for path in ["/evil/One", "/evil/Two"] {
            let mut lost = created("c", false);
            lost.ended.call.method = Arc::new(Method::from_path(path));
            (lost.ended.code, lost.ended.end) = (None, CallEnd::Lost);
            passing.call_ended(lost);
        }
        let mut counted: Vec<_> = passing
            .calls
            .all()
            .into_iter()
            .map(|(method, code, calls)| (method, code, calls.count()))
            .collect();
        counted.sort_unstable();
        let expected =
            [("CreateContainer", "NotFound", 1), ("CreateContainer", "OK", 1), ("other", "lost", 2)];
        assert_eq!(counted, expected);
    }

    #[test]
    fn the_namespace_is_that_of_the_pod_or_else_that_of_the_request() {
        let mut call = created("a", true);
        assert_eq!(&*namespace(&call), "ns");
        call.pod = Some(Arc::new(fixtures::pod()));
        assert_eq!(&*namespace(&call), "default");
        call.pod = None;
        call.ended.call.request = CriRequest::Undecoded;
        assert_eq!(&*namespace(&call), "");
    }
}
