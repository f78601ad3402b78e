//! Converts the stages' values into views, the JSON shapes. Bounded: the view of a call is cut to a few kilobytes, so
//! that a thousand of them are a few megabytes at most.

use std::sync::Arc;

use super::{
    Shown,
    view::{
        Attempt, BlindView, CallView, ContainerRef, Counts, End, EventType, EventView, ExecView, Outcome,
        PeerView, Phase, ProbeView, Run, RunView, Seconds, State, joined, probe_id, probe_key,
    },
};
use crate::{
    inventory::{TracedCall, view::ContainerView},
    peer::Peer,
    prober::{
        handle::Made,
        status::{self, ProbeStatus},
    },
    relay::registry::Connection,
    results::{
        self, AttemptResult, Verdict,
        event::{ProbeEvent, Severity},
    },
    tap::{
        self,
        cri::{Request, Response},
    },
};

/// 4 KiB: what is shown of a command. Where there is more, an argument `…` stands for the rest.
const MAX_COMMAND: usize = 4096;

impl From<&Peer> for PeerView {
    fn from(peer: &Peer) -> Self {
        Self { pid: peer.pid, uid: peer.uid, comm: peer.comm.clone() }
    }
}

impl From<&Connection> for Option<BlindView> {
    fn from(connection: &Connection) -> Self {
        let (since, reason) = connection.blind()?;
        Some(BlindView {
            id: connection.id.0,
            peer: (&*connection.peer).into(),
            since: since.into(),
            reason: reason.to_owned(),
        })
    }
}

impl From<tap::End> for End {
    fn from(end: tap::End) -> Self {
        match end {
            tap::End::Complete => Self::Complete,
            tap::End::Cancelled => Self::Cancelled,
            tap::End::Reset => Self::Reset,
            tap::End::Lost => Self::Lost,
        }
    }
}

impl From<&TracedCall> for CallView {
    fn from(traced: &TracedCall) -> Self {
        let ended = &traced.ended;
        let call = &ended.call;
        let (namespace, pod) = pod_names(traced);
        Self {
            at: traced.at.into(),
            duration_seconds: Seconds(ended.at.saturating_duration_since(call.began)),
            service: call.method.service.to_string(),
            method: call.method.name.to_string(),
            code: ended.code.map(|code| code.name().to_owned()).unwrap_or_default(),
            message: ended.message.to_string(),
            end: ended.end.into(),
            peer: (&*call.origin.peer).into(),
            request_bytes: call.request_bytes,
            response_bytes: ended.response_bytes,
            namespace,
            pod,
            container: container_name(traced),
            container_id: traced.container_id.as_ref().map(ToString::to_string).unwrap_or_default(),
            exec: exec(ended),
            traceparent: call.traceparent.as_deref().unwrap_or_default().to_owned(),
        }
    }
}

impl Shown for TracedCall {
    fn view(&self) -> CallView {
        self.into()
    }
}

impl Shown for CallView {
    fn view(&self) -> CallView {
        self.clone()
    }
}

/// A call for the journal: as it came where that is small, else as it will be shown. So the journal stays small, and
/// holds no environment of a container.
pub fn for_journal(call: TracedCall) -> Arc<dyn Shown> {
    match &call.ended.call.request {
        Request::Skipped => Arc::new(call),
        Request::ExecSync(command) if command.weight() <= MAX_COMMAND => Arc::new(call),
        _ => Arc::new(CallView::from(&call)),
    }
}

/// The pod that a call is about; of one that is being made, as its config names it.
fn pod_names(traced: &TracedCall) -> (String, String) {
    if let Some(pod) = &traced.pod {
        return (pod.namespace.to_string(), pod.name.to_string());
    }
    let metadata = match &traced.ended.call.request {
        Request::RunPodSandbox(config) => config.metadata.as_ref(),
        Request::CreateContainer(request) => {
            request.sandbox_config.as_ref().and_then(|config| config.metadata.as_ref())
        }
        _ => None,
    };
    metadata.map(|metadata| (metadata.namespace.clone(), metadata.name.clone())).unwrap_or_default()
}

fn container_name(traced: &TracedCall) -> String {
    if let Some(name) = &traced.container {
        return name.to_string();
    }
    match &traced.ended.call.request {
        Request::CreateContainer(request) => {
            let metadata = request.config.as_ref().and_then(|config| config.metadata.as_ref());
            metadata.map(|metadata| metadata.name.clone()).unwrap_or_default()
        }
        _ => String::new(),
    }
}

fn exec(ended: &tap::Ended) -> Option<ExecView> {
    match (&ended.call.request, &ended.response) {
        (Request::ExecSync(command), response) => {
            let result = match response {
                Response::Exec(result) => Some(result),
                Response::Skipped | Response::Undecoded | Response::Sandbox(_) | Response::Container(_) => {
                    None
                }
            };
            Some(ExecView {
                command: shown(command.arguments()),
                timeout_seconds: Some(command.timeout_seconds()),
                exit_code: result.map(|result| result.exit_code),
                stdout_bytes: result.map(|result| result.stdout_bytes.into()),
                stderr_bytes: result.map(|result| result.stderr_bytes.into()),
            })
        }
        (Request::Exec(command), _) => {
            Some(ExecView { command: shown(command.arguments()), ..ExecView::default() })
        }
        _ => None,
    }
}

/// A command cut to [`MAX_COMMAND`] bytes, at a character.
fn shown<'a>(command: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut room = MAX_COMMAND;
    let mut shown = Vec::new();
    for argument in command {
        if argument.len() + 1 > room {
            shown.push(format!("{}…", &argument[..argument.floor_char_boundary(room)]));
            break;
        }
        room -= argument.len() + 1;
        shown.push(argument.to_owned());
    }
    shown
}

impl From<Verdict> for State {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Success => Self::Success,
            Verdict::Failure => Self::Failure,
            Verdict::Unknown => Self::Unknown,
        }
    }
}

impl From<status::Phase> for Phase {
    fn from(phase: status::Phase) -> Self {
        match phase {
            status::Phase::Waiting => Self::Waiting,
            status::Phase::Probing => Self::Probing,
            status::Phase::Held => Self::Held,
            status::Phase::Paused => Self::Paused,
            status::Phase::Invalid => Self::Invalid,
            status::Phase::Stopped => Self::Stopped,
        }
    }
}

impl From<AttemptResult> for Outcome {
    fn from(result: AttemptResult) -> Self {
        match result {
            AttemptResult::Success => Self::Success,
            AttemptResult::Warning => Self::Warning,
            AttemptResult::Failure => Self::Failure,
            AttemptResult::Error => Self::Error,
        }
    }
}

impl From<&ProbeStatus> for ProbeView {
    fn from(probe: &ProbeStatus) -> Self {
        let kind = probe.key.kind.as_str();
        Self {
            id: probe_id(&probe.namespace, &probe.pod, &probe.key.container, kind),
            key: probe_key(probe.key.pod.as_str(), &probe.key.container, kind),
            namespace: probe.namespace.to_string(),
            pod: probe.pod.to_string(),
            pod_uid: probe.key.pod.to_string(),
            sandbox_id: probe.sandbox_id.to_string(),
            container: probe.key.container.to_string(),
            container_id: probe.container_id.to_string(),
            attempt: probe.attempt,
            kind: kind.to_owned(),
            likely_type: None,
            handler: probe.handler.unwrap_or_default().to_owned(),
            source: probe.source.clone(),
            phase: probe.phase.into(),
            state: probe.state.into(),
            reason: probe.reason.clone(),
            since: probe.since.into(),
            period_seconds: probe.period.map(Seconds),
            next_at: probe.next_at.map(Into::into),
            run: run(probe),
            counts: probe.counts.into(),
            last: probe.last.as_ref().map(|last| Attempt {
                at: last.at.into(),
                result: last.result.into(),
                duration_seconds: Seconds(last.duration),
                exit_code: last.exit_code,
                status: last.status,
                lag_seconds: Some(Seconds(last.lag)),
                output: last.output.to_string(),
            }),
            on_failure: probe.on_failure.as_str().to_owned(),
            shadowed: probe.shadowed.clone(),
        }
    }
}

impl From<results::Counts> for Counts {
    fn from(counts: results::Counts) -> Self {
        let results::Counts { success, warning, failure, error } = counts;
        Self { success, warning, failure, error }
    }
}

/// A run that a verdict ended has no length, but came from results; one that has not begun came from none.
fn run(probe: &ProbeStatus) -> Option<Run> {
    let results = probe.counts.success + probe.counts.warning + probe.counts.failure;
    (probe.run.count > 0 || results > 0)
        .then(|| Run { result: probe.run.verdict.into(), count: probe.run.count.into() })
}

impl From<&ContainerView> for ContainerRef {
    fn from(container: &ContainerView) -> Self {
        let pod = &container.pod;
        Self {
            id: joined([&*pod.namespace, &*pod.name, &*container.name]),
            namespace: pod.namespace.to_string(),
            pod: pod.name.to_string(),
            pod_uid: pod.uid.to_string(),
            sandbox_id: pod.sandbox_id.to_string(),
            container: container.name.to_string(),
            container_id: container.id.to_string(),
            attempt: container.attempt,
        }
    }
}

/// What an attempt found that was made on a container with a handler of this name.
pub(super) fn run_view(made: &Made, handler: &str, container: &ContainerView) -> RunView {
    let tried = &made.tried;
    RunView {
        result: tried.result.into(),
        duration_seconds: Seconds(made.duration),
        exit_code: tried.exit_code,
        status: tried.status,
        output: tried.output.to_string(),
        tries: tried.tries,
        handler: handler.to_owned(),
        container: container.into(),
    }
}

impl From<ProbeEvent> for EventView {
    fn from(event: ProbeEvent) -> Self {
        Self {
            at: event.at.into(),
            kind: match event.severity {
                Severity::Normal => EventType::Normal,
                Severity::Warning => EventType::Warning,
            },
            reason: event.reason.to_owned(),
            message: event.message,
            namespace: event.namespace.to_string(),
            pod: event.pod.to_string(),
            pod_uid: event.pod_uid.to_string(),
            container: event.container.to_string(),
            container_id: event.container_id.to_string(),
            probe: event.kind.as_str().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_command_is_cut_at_a_character() {
        let long = "ü".repeat(3000);
        let cut = shown(["sh", "-c", &long, "never shown"].into_iter());
        assert_eq!(cut.len(), 3);
        assert!(cut[2].ends_with("ü…") && cut[2].len() <= MAX_COMMAND + 3);
        assert_eq!(shown(["true"].into_iter()), ["true"]);
    }
}
