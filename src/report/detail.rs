//! Converts the status of one probe into its detailed view, without the events, which are in the journal.

use super::view::{ChangeView, DefinitionView, HandlerView, HeaderView, PortView, ProbeDetailView, Seconds};
use crate::{
    prober::status::ProbeStatus,
    results::history::VerdictChange,
    spec::{Handler, PortRef, ProbeSpec, Scheme},
};

impl From<&ProbeStatus> for ProbeDetailView {
    fn from(probe: &ProbeStatus) -> Self {
        Self {
            probe: probe.into(),
            client: None,
            definition: probe.spec.as_deref().map(|spec| DefinitionView::of(spec, &probe.source)),
            history: probe.history.attempts().map(|attempt| (&attempt).into()).collect(),
            changes: probe.history.changes().map(Into::into).collect(),
            events: Vec::new(),
        }
    }
}

impl From<&ProbeSpec> for DefinitionView {
    fn from(spec: &ProbeSpec) -> Self {
        Self {
            handler: (&spec.handler).into(),
            initial_delay_seconds: Seconds(spec.initial_delay),
            timeout_seconds: Seconds(spec.timeout),
            period_seconds: Seconds(spec.period),
            success_threshold: spec.success_threshold,
            failure_threshold: spec.failure_threshold,
            termination_grace_period_seconds: spec.termination_grace.map(Seconds),
            on_failure: spec.on_failure.as_str().to_owned(),
            start_period_seconds: spec.start.map(|start| Seconds(start.length)),
            start_interval_seconds: spec.start.map(|start| Seconds(start.interval)),
        }
    }
}

impl From<&Handler> for HandlerView {
    fn from(handler: &Handler) -> Self {
        match handler {
            Handler::Exec { command } => Self::Exec { command: command.clone() },
            Handler::HttpGet(get) => Self::HttpGet {
                path: get.path.clone(),
                port: (&get.port).into(),
                host: get.host.clone(),
                scheme: match get.scheme {
                    Scheme::Http => "HTTP",
                    Scheme::Https => "HTTPS",
                }
                .to_owned(),
                http_headers: get.headers.iter().map(header).collect(),
            },
            Handler::TcpSocket { host, port } => Self::TcpSocket { port: port.into(), host: host.clone() },
            Handler::Grpc { port, service } => Self::Grpc { port: *port, service: service.clone() },
        }
    }
}

impl From<&PortRef> for PortView {
    fn from(port: &PortRef) -> Self {
        match port {
            PortRef::Number(number) => Self::Number(*number),
            PortRef::Name(name) => Self::Name(name.clone()),
        }
    }
}

fn header((name, value): &(String, String)) -> HeaderView {
    HeaderView { name: name.clone(), value: value.clone() }
}

impl From<&VerdictChange> for ChangeView {
    fn from(change: &VerdictChange) -> Self {
        Self { at: change.at.into(), from: change.from, to: change.to, why: change.why.in_words(change.to) }
    }
}
