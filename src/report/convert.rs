//! Converts the stages' values into views, the JSON shapes. Bounded: the view of a call is cut to a few kilobytes, so
//! that a thousand of them are a few megabytes at most.

use std::{sync::Arc, time::Duration};

use super::{
    JournaledCall,
    view::{
        AttemptLineView, AttemptView, BlindView, CallView, ContainerRef, ErrorsView, EventView, ExecView,
        LatencyView, PeerView, ProbeView, RunView, Seconds, SessionView, SplitView, joined, probe_id,
        probe_key,
    },
};
use crate::{
    exits::ContainerEvent,
    inventory::{TracedCall, pod::Container},
    peer::Peer,
    phases::SessionEnd,
    prober::{handle::AttemptReport, made::MadeAttempt, status::ProbeStatus},
    relay::registry::RelayedConnection,
    results::{
        AttemptRecord, Run,
        errors::Errors,
        event::ProbeEvent,
        latency::Latency,
        phases::{PhasesSlot, Split},
    },
    tap::{
        self, Call,
        cri::{CriRequest, CriResponse},
    },
};

/// 4 KiB: what is shown of a command, with [`ARGUMENT`] for each argument. Where there is more, `…` replaces the rest.
const MAX_COMMAND: usize = 4096;

/// What an argument takes besides its text. A command of thousands of arguments that are empty would take 100 KiB.
const ARGUMENT: usize = size_of::<String>();

/// 1 KiB: the names and ids of a call together, at most.
const TRACED_TEXTS: usize = 1024;

impl From<&Peer> for PeerView {
    fn from(peer: &Peer) -> Self {
        Self { pid: peer.pid, uid: peer.uid, comm: peer.comm.clone() }
    }
}

/// A connection whose calls cannot be seen; none if they can.
pub(super) fn blind(connection: &RelayedConnection) -> Option<BlindView> {
    let (since, reason) = connection.blind()?;
    Some(BlindView {
        id: connection.id.0,
        peer: (&*connection.peer).into(),
        since: since.into(),
        reason: reason.to_string(),
    })
}

impl From<&TracedCall> for CallView {
    fn from(traced: &TracedCall) -> Self {
        let ended = &traced.ended;
        let call = &ended.call;
        let (namespace, pod) = pod_names(traced);
        Self {
            id: call_id(call),
            at: traced.at.into(),
            duration_seconds: Seconds(ended.at.saturating_duration_since(call.began)),
            service: call.method.service.to_string(),
            method: call.method.name.to_string(),
            code: ended.code.map(|code| code.name().to_owned()).unwrap_or_default(),
            message: ended.message.to_string(),
            end: ended.end,
            peer: (&*call.origin.peer).into(),
            request_bytes: call.request_bytes,
            response_bytes: ended.response_bytes,
            namespace,
            pod,
            container: container_name(traced),
            container_id: traced.container_id.as_ref().map(ToString::to_string).unwrap_or_default(),
            exec: exec(ended),
            session: None,
            stream_opened: ended.has_opened_stream(),
            traceparent: call.traceparent.as_deref().unwrap_or_default().to_owned(),
        }
    }
}

/// What a call is known by while it is in flight and in its record.
pub(super) fn call_id(call: &Call) -> String {
    format!("{}-{}", call.origin.conn.0, call.stream)
}

/// A call with its phases.
#[derive(Debug)]
struct PhasedCall {
    call: TracedCall,
    /// None of what is no ExecSync.
    split: Option<Split>,
}

impl JournaledCall for PhasedCall {
    fn view(&self) -> CallView {
        let mut view = CallView::from(&self.call);
        if let (Some(exec), Some(split)) = (&mut view.exec, self.split) {
            let SplitView { phases, phases_unknown, culprit } = SplitView::of(split, view.duration_seconds.0);
            (exec.phases, exec.phases_unknown, exec.culprit) = (phases, phases_unknown, culprit);
        }
        view
    }

    /// Its names, message and ids come on top of its command; they are bounded where they enter, and mostly short.
    fn size(&self) -> usize {
        let ended = &self.call.ended;
        let command = match &ended.call.request {
            CriRequest::ExecSync(command) => command.weight(),
            _ => 0,
        };
        size_of::<Self>() + ended.message.len() + command + ended.response.weight() + TRACED_TEXTS
    }
}

impl JournaledCall for CallView {
    fn view(&self) -> CallView {
        self.clone()
    }

    fn size(&self) -> usize {
        CallView::size(self)
    }
}

/// A call for the journal: as it came where that is small, else as it will be shown. So the journal stays small, and
/// holds no environment of a container.
pub(crate) fn for_journal(call: TracedCall, split: Option<Split>) -> Arc<dyn JournaledCall> {
    let is_small = match &call.ended.call.request {
        CriRequest::Skipped | CriRequest::OfContainer(_) | CriRequest::OfSandbox(_) => true,
        CriRequest::ExecSync(command) => command.weight() <= MAX_COMMAND,
        _ => false,
    };
    let call = PhasedCall { call, split };
    if is_small { Arc::new(call) } else { Arc::new(call.view()) }
}

/// An Exec that opened a stream, until its process ends.
pub(crate) struct OpenedSession(CallView);

/// Keeps of such a call what the record of its process's end shows.
pub(crate) fn session(call: &TracedCall) -> OpenedSession {
    OpenedSession(CallView::from(call))
}

impl OpenedSession {
    /// The record of its process's end.
    pub(crate) fn ended(self, SessionEnd { began, ended, exit_code }: SessionEnd) -> Arc<dyn JournaledCall> {
        let Self(opened) = self;
        let exec = opened.exec.map(|exec| ExecView { exit_code: Some(exit_code), ..exec });
        Arc::new(CallView {
            at: began.into(),
            duration_seconds: Seconds(ended.duration_since(began).unwrap_or_default()),
            request_bytes: 0,
            response_bytes: 0,
            exec,
            stream_opened: false,
            session: Some(SessionView { opened_at: opened.at }),
            ..opened
        })
    }
}

/// The pod that a call is about; of one that is being made, as its config names it.
fn pod_names(traced: &TracedCall) -> (String, String) {
    if let Some(pod) = &traced.pod {
        return (pod.namespace.to_string(), pod.name.to_string());
    }
    let metadata = match &traced.ended.call.request {
        CriRequest::RunPodSandbox(config) => config.metadata.as_ref(),
        CriRequest::CreateContainer(request) => {
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
        CriRequest::CreateContainer(request) => {
            let metadata = request.config.as_ref().and_then(|config| config.metadata.as_ref());
            metadata.map(|metadata| metadata.name.clone()).unwrap_or_default()
        }
        _ => String::new(),
    }
}

fn exec(ended: &tap::EndedCall) -> Option<ExecView> {
    match (&ended.call.request, &ended.response) {
        (CriRequest::ExecSync(command), response) => {
            let result = match response {
                CriResponse::Exec(result) => Some(result),
                CriResponse::Skipped
                | CriResponse::Undecoded
                | CriResponse::Sandbox(_)
                | CriResponse::Container(_) => None,
            };
            Some(ExecView {
                command: shown(command.arguments()),
                timeout_seconds: Some(command.timeout_seconds()),
                exit_code: result.map(|result| result.exit_code),
                stdout_bytes: result.map(|result| result.stdout_bytes.into()),
                stderr_bytes: result.map(|result| result.stderr_bytes.into()),
                stdout: result.and_then(|result| output(&result.outputs.as_ref()?.stdout)),
                stderr: result.and_then(|result| output(&result.outputs.as_ref()?.stderr)),
                phases: None,
                phases_unknown: None,
                culprit: None,
            })
        }
        (CriRequest::Exec(command), _) => {
            Some(ExecView { command: shown(command.arguments()), ..ExecView::default() })
        }
        _ => None,
    }
}

/// The beginning of an output; none of one that is empty. A character that was cut off at its end is left out.
fn output(bytes: &[u8]) -> Option<String> {
    let whole = match str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => &bytes[..error.valid_up_to()],
        Ok(_) | Err(_) => bytes,
    };
    (!whole.is_empty()).then(|| String::from_utf8_lossy(whole).into_owned())
}

/// A command cut to [`MAX_COMMAND`], at a character.
pub(super) fn shown<'a>(command: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut room = MAX_COMMAND;
    let mut shown = Vec::new();
    for argument in command {
        let Some(left) = room.checked_sub(ARGUMENT + argument.len()) else {
            let kept = argument.floor_char_boundary(room.saturating_sub(ARGUMENT));
            shown.push(format!("{}…", &argument[..kept]));
            break;
        };
        room = left;
        shown.push(argument.to_owned());
    }
    shown
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
            phase: probe.phase,
            state: probe.state,
            reason: probe.reason.clone(),
            since: probe.since.into(),
            period_seconds: probe.period.map(Seconds),
            next_at: probe.next_at.map(Into::into),
            run: run(probe),
            counts: probe.counts,
            last: probe.last.as_ref().map(Into::into),
            errors: probe.errors.map(|errors| {
                let threshold = probe.spec.as_ref().map(|spec| spec.failure_threshold);
                errors_view(errors, if probe.away.is_some() { Some(0) } else { threshold })
            }),
            unsuccessful_at: probe.unsuccessful_at.map(Into::into),
            latency: probe
                .latency
                .map(|latency| latency_view(latency, probe.spec.as_ref().map(|spec| spec.timeout))),
            on_failure: probe.acting.effective().as_str().to_owned(),
            on_failure_asked: probe.acting.why_not().map(|_| probe.acting.asked.as_str().to_owned()),
            act_refusal: probe.acting.why_not().map(str::to_owned),
            shadowed: probe.shadowed.clone(),
            act: None,
            pause: probe.pause.as_ref().map(Into::into),
            stopped_by_client: probe.is_clients,
        }
    }
}

impl From<&AttemptRecord> for AttemptView {
    fn from(attempt: &AttemptRecord) -> Self {
        let split = attempt.phases.as_ref().and_then(PhasesSlot::get);
        let split = split.map(|split| SplitView::of(split, attempt.duration));
        let SplitView { phases, phases_unknown, culprit } = split.unwrap_or_default();
        Self {
            at: attempt.at.into(),
            result: attempt.result,
            duration_seconds: Seconds(attempt.duration),
            exit_code: attempt.exit_code,
            status: attempt.status,
            route: attempt.route.into(),
            lag_seconds: attempt.lag.map(Seconds),
            container_attempt: None,
            first_of_container: false,
            output: attempt.output.clone(),
            phases,
            phases_unknown,
            culprit,
        }
    }
}

/// An attempt in a history, which may be one at a former container.
pub(super) fn past(attempt: &AttemptRecord) -> AttemptView {
    AttemptView {
        container_attempt: attempt.container_attempt,
        first_of_container: attempt.is_first,
        ..attempt.into()
    }
}

impl From<&MadeAttempt> for AttemptLineView {
    fn from(MadeAttempt { key, view, record, state, spec: _ }: &MadeAttempt) -> Self {
        Self {
            at: record.at.into(),
            namespace: view.pod.namespace.clone(),
            pod: view.pod.name.clone(),
            pod_uid: key.pod.to_string(),
            container: view.name.clone(),
            container_id: view.id.to_string(),
            kind: key.kind,
            result: record.result,
            duration_seconds: Seconds(record.duration),
            lag_seconds: record.lag.map(Seconds),
            exit_code: record.exit_code,
            status: record.status,
            route: record.route.into(),
            state: *state,
            output: record.output.clone(),
        }
    }
}

/// Errors in a row, beside the threshold of failures, if that is known.
pub(super) fn errors_view(errors: Errors, threshold: Option<u32>) -> ErrorsView {
    ErrorsView {
        count: errors.count,
        since: errors.since.into(),
        cannot_try: threshold.is_some_and(|threshold| errors.count >= threshold),
    }
}

/// How long attempts took, beside the timeout that they have, if they have one.
pub(super) fn latency_view(latency: Latency, timeout: Option<Duration>) -> LatencyView {
    LatencyView {
        attempts: latency.attempts,
        p50_seconds: Seconds(latency.p50),
        p99_seconds: Seconds(latency.p99),
        near_timeout: timeout.is_some_and(|timeout| latency.p99 > timeout.mul_f64(0.8)),
        over_timeout: timeout.is_some_and(|timeout| latency.p99 > timeout),
    }
}

/// A run that a verdict ended has no length, but came from results; one that has not begun came from none.
fn run(probe: &ProbeStatus) -> Option<Run> {
    let results = probe.counts.success + probe.counts.warning + probe.counts.failure;
    (probe.run.count > 0 || results > 0).then_some(probe.run)
}

impl From<&Container> for ContainerRef {
    fn from(container: &Container) -> Self {
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
pub(super) fn run_view(report: &AttemptReport, handler: &str, container: &Container) -> RunView {
    let outcome = &report.outcome;
    RunView {
        result: outcome.result,
        duration_seconds: Seconds(report.duration),
        exit_code: outcome.exit_code,
        status: outcome.status,
        route: outcome.route.into(),
        output: outcome.output.to_string(),
        tries: outcome.tries,
        handler: handler.to_owned(),
        container: container.into(),
    }
}

impl From<ContainerEvent> for EventView {
    fn from(ContainerEvent { at, severity, reason, message, view }: ContainerEvent) -> Self {
        Self {
            namespace: view.pod.namespace.to_string(),
            pod: view.pod.name.to_string(),
            pod_uid: view.pod.uid.to_string(),
            container: view.name.to_string(),
            container_id: view.id.to_string(),
            message,
            ..Self::of_node(severity, reason.as_str(), String::new(), at.into())
        }
    }
}

impl From<ProbeEvent> for EventView {
    fn from(event: ProbeEvent) -> Self {
        Self {
            namespace: event.namespace.to_string(),
            pod: event.pod.to_string(),
            pod_uid: event.pod_uid.to_string(),
            container: event.container.to_string(),
            container_id: event.container_id.to_string(),
            probe: event.kind.as_str().to_owned(),
            message: event.message,
            ..Self::of_node(event.severity, event.reason.as_str(), String::new(), event.at.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_p99_is_near_its_timeout_over_it_or_neither() {
        let millis = Duration::from_millis;
        for (p99, timeout, expected) in [
            (800, Some(1_000), None),
            (801, Some(1_000), Some("near")),
            (1_000, Some(1_000), Some("near")),
            (1_001, Some(1_000), Some("over")),
            (1_001, None, None),
        ] {
            let latency = Latency { attempts: 1, p50: millis(1), p99: millis(p99) };
            assert_eq!(latency_view(latency, timeout.map(millis)).beside_timeout(), expected, "{p99}");
        }
    }

    #[test]
    fn a_long_command_is_cut_at_a_character() {
        let long = "ü".repeat(3000);
        let cut = shown(["sh", "-c", &long, "never shown"].into_iter());
        assert_eq!(cut.len(), 3);
        assert!(cut[2].ends_with("ü…") && cut[2].len() <= MAX_COMMAND + 3);
        assert_eq!(shown(["true"].into_iter()), ["true"]);
    }

    #[test]
    fn row_02_a_command_of_very_many_arguments_is_cut_by_what_they_take() {
        let cut = shown(["sh", "-c"].into_iter().chain(std::iter::repeat_n("", 2_000)));
        let taken: usize = cut.iter().map(|argument| ARGUMENT + argument.len()).sum();
        assert!(taken <= MAX_COMMAND + ARGUMENT + "…".len(), "{taken}");
        assert_eq!(cut.last().unwrap(), "…");
    }
}
