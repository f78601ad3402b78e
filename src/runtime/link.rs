//! Keeps the link to the runtime: says when it is away and when it answers again, and reads its events meanwhile.
//!
//! away --Version answers--> there (subscribed, events) --stream ends, or the relay found it away--> away

use std::time::{Duration, SystemTime};

use tokio::{
    sync::watch,
    time::{interval, sleep},
};
use tonic::{Code, Status};

use super::{
    Runtime, Version,
    events::{self, EventQueue, EventSource},
};
use crate::{clock, relay::gate::Gate};

/// 50 ms to 250 ms between two questions while the runtime is away: a restart is seen as soon as it is over.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(250));

/// 5 s: the longest pause before events are subscribed to again; a stream that lasted longer ended by chance.
const CALM: Duration = Duration::from_secs(5);

/// 10 s between two signs of life: a runtime that hangs still accepts.
const PULSE: Duration = Duration::from_secs(10);

/// What is known of the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Who it is; as it last answered.
    pub version: Version,
    /// Where its events come from.
    pub source: EventSource,
    /// Whether it answers, and since when that is so.
    pub is_up: bool,
    /// When `is_up` last changed.
    pub since: SystemTime,
    /// Why it does not answer.
    pub trouble: String,
    /// Counts the times that what was known before may be out of date.
    pub generation: u64,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            version: Version::default(),
            source: EventSource::None,
            is_up: false,
            since: clock::wall(),
            trouble: "not asked yet".to_owned(),
            generation: 0,
        }
    }
}

/// Keeps the link until it is dropped.
pub async fn keep(runtime: Runtime, gate: Gate, events: EventQueue, link: watch::Sender<Link>) {
    let mut pause = BACKOFF.0;
    loop {
        let version = answer(&runtime, &gate, &link).await;
        tracing::info!(runtime = version.name, version = version.version, "runtime answers");
        let source = EventSource::of(&version);
        set_up(&link, version);
        gate.answered();
        let began = clock::now();
        let trouble = tokio::select! {
            trouble = read_events(&runtime, source, &events, &link) => trouble,
            trouble = pulse(&runtime, &gate, &link) => trouble,
            () = gate.away() => "a connection to it was refused".to_owned(),
        };
        tracing::warn!(trouble, "runtime was lost");
        set_down(&link, trouble);
        link.send_modify(|link| link.source = EventSource::None);
        gate.found_away();
        // Whoever finds it away as soon as it has answered is not believed again at once, or the two would never rest.
        if clock::now() - began > BACKOFF.1 {
            pause = BACKOFF.0;
        } else {
            sleep(pause).await;
            pause = (pause * 2).min(BACKOFF.1);
        }
    }
}

/// Reads events for as long as the runtime is there. Returns why it is not; never for a runtime that has no events.
async fn read_events(
    runtime: &Runtime,
    source: EventSource,
    events: &EventQueue,
    link: &watch::Sender<Link>,
) -> String {
    let mut pause = BACKOFF.0;
    loop {
        let began = clock::now();
        let Err(status) = events::read(runtime, source, events, || subscribed(link, source)).await;
        if status.code() == Code::Unimplemented {
            tracing::info!("runtime has no events: its lists are asked for every 10 s");
            subscribed(link, EventSource::Unsupported);
            return std::future::pending().await;
        }
        // A runtime may end the stream of one that read too slowly, and be well.
        if runtime.version().await.is_err() {
            return status.message().to_owned();
        }
        tracing::debug!(error = status.message(), "event stream ended: subscribing again");
        link.send_modify(|link| link.source = EventSource::None);
        pause = if clock::now() - began > CALM { BACKOFF.0 } else { (pause * 2).min(CALM) };
        sleep(pause).await;
    }
}

/// Asks until the runtime answers.
///
/// It has to take a new connection, as a client's would be, and ours has to be of use again. One of ours that hangs
/// keeps nobody else waiting.
async fn answer(runtime: &Runtime, gate: &Gate, link: &watch::Sender<Link>) -> Version {
    let mut pause = BACKOFF.0;
    loop {
        match ask(runtime).await {
            Ok(version) => return version,
            Err(status) => {
                if gate.found_away() {
                    tracing::warn!(
                        error = status.message(),
                        "runtime does not answer: connections wait for it"
                    );
                }
                set_down(link, status.message().to_owned());
                sleep(pause).await;
                pause = (pause * 2).min(BACKOFF.1);
            }
        }
    }
}

async fn ask(runtime: &Runtime) -> Result<Version, Status> {
    let version = runtime.version_afresh().await?;
    match runtime.version().await {
        Err(status) if status.code() == Code::Unavailable => Err(status),
        Ok(_) | Err(_) => Ok(version),
    }
}

/// Asks for a sign of life every now and then, and at once when the relay doubts. Returns when the connection is lost;
/// one that only hangs is told.
async fn pulse(runtime: &Runtime, gate: &Gate, link: &watch::Sender<Link>) -> String {
    let mut pulse = interval(PULSE);
    loop {
        tokio::select! {
            _ = pulse.tick() => {}
            () = gate.in_doubt() => {}
        }
        match runtime.version().await {
            Ok(version) => {
                set_up(link, version);
                gate.settled();
            }
            Err(status) if matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled) => {
                set_down(link, format!("no answer to Version: {}", status.message()));
            }
            Err(status) => return status.message().to_owned(),
        }
    }
}

fn subscribed(link: &watch::Sender<Link>, source: EventSource) {
    link.send_modify(|link| {
        link.source = source;
        link.generation += 1;
    });
}

fn set_up(link: &watch::Sender<Link>, version: Version) {
    link.send_if_modified(|link| {
        let is_news = !link.is_up || link.version != version;
        if !link.is_up {
            link.since = clock::wall();
            link.generation += 1;
        }
        link.is_up = true;
        link.version = version;
        link.trouble.clear();
        is_news
    });
}

fn set_down(link: &watch::Sender<Link>, trouble: String) {
    link.send_if_modified(|link| {
        let is_news = link.is_up;
        if link.is_up {
            link.is_up = false;
            link.since = clock::wall();
        }
        link.trouble = trouble;
        is_news
    });
}

#[cfg(test)]
mod tests;
