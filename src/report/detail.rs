//! Converts the status of one probe into its detailed view, without the events, which are in the journal; and the two
//! into JSON, part by part.

use std::sync::Arc;

use super::{
    convert,
    pieces::{self, array, text},
    view::{
        ActNoteView, AttemptView, ChangeView, DefinitionView, EventView, FailureCommandView, HandlerView,
        HeaderView, PortView, ProbeDetailView, Seconds,
    },
};
use crate::{
    prober::status::ProbeStatus,
    results::history::{ActNote, VerdictChange},
    spec::{FailureCommand, Handler, PortRef, ProbeSpec, Scheme},
};

/// One probe in full, to be written part by part: a [`ProbeDetailView`] with these events.
pub(super) struct DetailParts {
    /// The JSON up to the lists.
    head: Vec<u8>,
    history: Vec<AttemptView>,
    changes: Vec<ChangeView>,
    events: Vec<Arc<EventView>>,
}

/// How the JSON of a probe without history, changes and events ends.
const EMPTY: &[u8] = br#","history":[],"changes":[],"events":[]}"#;

impl DetailParts {
    /// Of a probe, and its events in place of its own.
    pub(super) fn new(mut detail: ProbeDetailView, events: Vec<Arc<EventView>>) -> Self {
        let history = std::mem::take(&mut detail.history);
        let changes = std::mem::take(&mut detail.changes);
        detail.events = Vec::new();
        let mut head = pieces::json(&detail);
        debug_assert!(head.ends_with(EMPTY), "the lists are its last fields");
        head.truncate(head.len().saturating_sub(EMPTY.len()));
        Self { head, history, changes, events }
    }

    /// What it takes, in bytes, with what it shares.
    pub(super) fn size(&self) -> usize {
        let changes = self.changes.iter().map(|change| size_of::<ChangeView>() + change.why.len());
        self.head.len()
            + self.history.iter().map(AttemptView::size).sum::<usize>()
            + changes.sum::<usize>()
            + self.events.iter().map(|event| event.size()).sum::<usize>()
    }

    /// The JSON.
    pub(super) fn into_parts(self) -> impl Iterator<Item = Vec<u8>> {
        std::iter::once(self.head)
            .chain(text(",\"history\":"))
            .chain(array(self.history.into_iter()))
            .chain(text(",\"changes\":"))
            .chain(array(self.changes.into_iter()))
            .chain(text(",\"events\":"))
            .chain(array(self.events.into_iter()))
            .chain(text("}"))
    }
}

impl From<&ProbeStatus> for ProbeDetailView {
    fn from(probe: &ProbeStatus) -> Self {
        Self {
            probe: probe.into(),
            client: None,
            definition: probe.spec.as_deref().map(|spec| DefinitionView::of(spec, &probe.source)),
            acts: None,
            acted: probe.history.acts().iter().map(Into::into).collect(),
            history: probe.history.attempts().map(|attempt| convert::past(&attempt)).collect(),
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
            timeout_before_cap_seconds: spec.timeout_before_cap.map(Seconds),
            period_seconds: Seconds(spec.period),
            success_threshold: spec.success_threshold,
            failure_threshold: spec.failure_threshold,
            termination_grace_period_seconds: spec.termination_grace.map(Seconds),
            on_failure: spec.on_failure.as_str().to_owned(),
            on_failure_command: spec.on_failure_command.as_ref().map(Into::into),
            start_period_seconds: spec.start.map(|start| Seconds(start.length)),
            start_interval_seconds: spec.start.map(|start| Seconds(start.interval)),
            exec_mode: spec.exec_mode.map(|mode| mode.as_str().to_owned()),
        }
    }
}

impl From<&FailureCommand> for FailureCommandView {
    fn from(FailureCommand { command, timeout }: &FailureCommand) -> Self {
        Self { command: command.clone(), timeout_seconds: Seconds(*timeout) }
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

impl From<&ActNote> for ActNoteView {
    fn from(note: &ActNote) -> Self {
        Self { at: note.at.into(), text: note.text.to_string() }
    }
}

impl From<&VerdictChange> for ChangeView {
    fn from(change: &VerdictChange) -> Self {
        Self { at: change.at.into(), from: change.from, to: change.to, why: change.why.in_words(change.to) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::view::sample;

    #[test]
    fn the_parts_of_a_probe_are_its_json() {
        let detail = sample::detail();
        let empty = ProbeDetailView {
            client: None,
            history: Vec::new(),
            changes: Vec::new(),
            events: Vec::new(),
            ..detail.clone()
        };
        for detail in [detail, sample::acting_detail(), empty] {
            let events = detail.events.iter().cloned().map(Arc::new).collect();
            let parts = DetailParts::new(detail.clone(), events).into_parts();
            let json: Vec<u8> = parts.flatten().collect();
            assert_eq!(String::from_utf8(json).unwrap(), serde_json::to_string(&detail).unwrap());
        }
    }
}
