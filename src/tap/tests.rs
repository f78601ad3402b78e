//! The tap as a whole: both directions of a connection in, the calls that it reports out.

mod blindness;
mod bodies;
mod bounds;
mod calls;
mod carrying;
mod chunking;
mod framing;
mod hanging;
mod recordings;
mod wire;

use std::time::Duration;

use wire::{From, Step};

use super::{cri::CriRequest, *};
use crate::clock;

/// What a tap reported of a conversation.
struct Reported {
    events: Vec<TapEvent>,
    tap: Tap,
}

impl Reported {
    /// One line an event.
    fn lines(&self) -> Vec<String> {
        self.events.iter().map(line).collect()
    }
}

/// Shows a conversation to a tap, a step at a time; the connection stays.
fn watch(steps: &[Step]) -> Reported {
    let mut reported = Reported { events: vec![], tap: tap() };
    show(&mut reported, steps);
    reported
}

/// Shows a conversation, and the end of its connection.
fn watch_all(steps: &[Step]) -> Reported {
    let mut reported = watch(steps);
    let Reported { events, tap } = &mut reported;
    tap.closed(clock::now(), |event| events.push(event));
    reported
}

fn show(reported: &mut Reported, steps: &[Step]) {
    let Reported { events, tap } = reported;
    for step in steps {
        match step.from {
            From::Client => tap.client_bytes(&step.bytes, clock::now(), |event| events.push(event)),
            From::Runtime => tap.runtime_bytes(&step.bytes, clock::now(), |event| events.push(event)),
        }
    }
}

fn tap() -> Tap {
    Tap::new(ConnId(1), Arc::new(Peer::default()))
}

fn kept(tap: &Tap) -> usize {
    match &tap.state {
        State::Sighted(sighted) => sighted.kept(),
        State::Blind(_) => 0,
    }
}

/// An event as a person would note it: stream, method, and what is particular to it.
fn line(event: &TapEvent) -> String {
    match event {
        TapEvent::Begun(call) => {
            let mut line = format!("{} {} begun {}", call.stream, call.method.name, asked(&call.request));
            if let Some(trace) = &call.traceparent {
                line += &format!(" trace {trace}");
            }
            line
        }
        TapEvent::Ended(ended) => {
            let EndedCall { call, end, code, message, response_bytes, response, .. } = ended;
            let (stream, name, end) = (call.stream, &call.method.name, end.as_str());
            let code = code.map_or(String::new(), |code| format!(" {}", code.name()));
            let message = if message.is_empty() { String::new() } else { format!(" {message:?}") };
            format!(
                "{stream} {name} {end}{code}{message} {}+{response_bytes} B {response:?}",
                call.request_bytes
            )
        }
        TapEvent::Resumed(call) => format!("{} {} resumed", call.stream, call.method.name),
        TapEvent::Untracked(count) => format!("{count} untracked"),
        TapEvent::Blinded { reason, .. } => format!("blinded: {reason}"),
        TapEvent::Closed { .. } => "closed".to_owned(),
    }
}

/// What was asked, the same in every run: maps are printed in no order.
fn asked(request: &CriRequest) -> String {
    match request {
        CriRequest::RunPodSandbox(config) => {
            let metadata = config.metadata.clone().unwrap_or_default();
            let keys: std::collections::BTreeSet<_> =
                config.labels.keys().chain(config.annotations.keys()).collect();
            format!("{}/{} uid {}, {keys:?}", metadata.namespace, metadata.name, metadata.uid)
        }
        CriRequest::CreateContainer(request) => {
            let config = request.config.clone().unwrap_or_default();
            let name = config.metadata.unwrap_or_default().name;
            let image = config.image.unwrap_or_default().image;
            let env: Vec<_> = config.envs.iter().map(|env| &*env.key).collect();
            format!("in {}: {name}, image {image}, env {env:?}", request.pod_sandbox_id)
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn calls_take_time() {
    let mut events = vec![];
    let mut tap = tap();
    let start = clock::now();
    let call = wire::conversation(|wire| {
        wire.request(1, wire::VERSION, b"");
        wire.answer(1, b"");
    });
    for (at, step) in call.iter().enumerate() {
        let now = start + Duration::from_secs(at as u64);
        match step.from {
            From::Client => tap.client_bytes(&step.bytes, now, |event| events.push(event)),
            From::Runtime => tap.runtime_bytes(&step.bytes, now, |event| events.push(event)),
        }
    }
    let Some(TapEvent::Ended(ended)) = events.pop() else { panic!("{events:?}") };
    // Preface and two SETTINGS; request headers and message; answer's headers, message, trailers.
    assert_eq!(ended.call.began - start, Duration::from_secs(3));
    assert_eq!(ended.at - start, Duration::from_secs(7));
}
