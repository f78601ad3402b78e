//! The link to the runtime: reports when the runtime goes away and when it answers again, and reads its events in
//! between.
//!
//! away --Version is answered or refused--> there (subscribed, events) --connection lost, or the relay found it away--> away
//! away --accepts for 3 s without an answer--> away, but clients are let through

use std::{
    pin::pin,
    time::{Duration, Instant, SystemTime},
};

use tokio::{sync::watch, time::sleep};
use tonic::{Code, Status};

use super::{
    Runtime, Version,
    events::{self, EmptyEnds, EventQueue, EventSource, Events, Resubscriptions, StreamEnd},
    marks::ExecNewsSink,
    presence::{DOUBT, Hold, PresenceAnswer},
    socket::SocketError,
};
use crate::{
    clock,
    relay::gate::{Gate, Presence},
    stage::Tasks,
};

/// 50 ms to 250 ms between two Version calls while the runtime is away, so that the end of a restart is noticed soon.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(250));

/// 2 s between two liveness checks: a runtime that hangs still accepts connections, and with [`SILENCE`] it is noticed
/// within 5 s. A check costs the runtime a tenth of a millisecond. 1 s while it does not answer, so that waiting work
/// continues soon after.
const PULSE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(1));

/// 3 s without an answer to Version, and the runtime counts as away. It answers this call from memory; one that is busy, or
/// is short of CPU time, takes tens of milliseconds. The call goes on, and its answer counts.
const SILENCE: Duration = Duration::from_secs(3);

/// 250 ms: how often to check whether a runtime without an answer still accepts connections.
const LOOK: Duration = Duration::from_millis(250);

/// The state of the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// Its name and version from its last answer.
    pub version: Version,
    /// The source of its events.
    pub source: EventSource,
    /// Whether it answers.
    pub is_up: bool,
    /// When `is_up` last changed; of a runtime that became silent, when the first call was made that it has not answered.
    pub since: SystemTime,
    /// The same on the monotonic clock.
    pub began: Instant,
    /// Why it does not answer, or its error for Version.
    pub trouble: LinkTrouble,
    /// Counts the times at which events may have been missed, so that lists are out of date.
    pub generation: u64,
    /// Counts the times at which the runtime may have become another one: it was away, or our connection to it is new.
    pub epoch: u64,
    /// The number of our connection to it.
    connection: u64,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            version: Version::default(),
            source: EventSource::None,
            is_up: false,
            since: clock::wall(),
            began: clock::now(),
            trouble: LinkTrouble {
                text: "it has not answered since criprobe started".to_owned(),
                cause: TroubleCause::NotAsked,
            },
            generation: 0,
            epoch: 0,
            connection: 0,
        }
    }
}

/// Why the runtime does not answer, or how it refuses Version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkTrouble {
    /// In words; empty while nothing is wrong.
    pub text: String,
    /// What kind of trouble it is.
    pub cause: TroubleCause,
}

/// What kind of trouble there is with the runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TroubleCause {
    /// What the text says.
    #[default]
    Said,
    /// It was not asked yet.
    NotAsked,
    /// It accepts calls and does not answer them.
    Silence,
}

impl LinkTrouble {
    fn silence() -> Self {
        let text = "it accepts connections, but does not answer calls".to_owned();
        Self { text, cause: TroubleCause::Silence }
    }
}

/// 1 KiB of what the runtime says is kept, and shown in the status; the rest is cut. Its message may have a megabyte.
const MAX_TEXT: usize = 1 << 10;

impl From<String> for LinkTrouble {
    fn from(mut text: String) -> Self {
        text.truncate(text.floor_char_boundary(MAX_TEXT));
        Self { text, cause: TroubleCause::Said }
    }
}

impl From<&Status> for LinkTrouble {
    fn from(status: &Status) -> Self {
        match (SocketError::find(status), status.code()) {
            (Some(error), _) => error.to_string().into(),
            (None, Code::DeadlineExceeded | Code::Cancelled) => Self::silence(),
            (None, _) => status.message().to_owned().into(),
        }
    }
}

/// A runtime that answers.
#[derive(Debug, Default)]
struct Found {
    /// Its name and version, if it reports them.
    version: Version,
    /// Its error for Version.
    trouble: LinkTrouble,
}

/// Starts the task that maintains the link. Returns the state of the link, and the runtime's events; `commands` gets what
/// it reports of commands in containers.
pub(crate) fn spawn(
    runtime: &Runtime,
    gate: Gate,
    commands: ExecNewsSink,
    tasks: &mut Tasks,
) -> (watch::Receiver<Link>, Events) {
    let (queue, events) = events::queue(commands);
    let link = watch::Sender::new(Link::default());
    let (link_now, runtime) = (link.subscribe(), runtime.clone());
    tasks.spawn(tasks.supervise("link", async move || keep(&runtime, &gate, &queue, &link).await));
    (link_now, events)
}

async fn keep(runtime: &Runtime, gate: &Gate, events: &EventQueue, link: &watch::Sender<Link>) {
    let mut pause = BACKOFF.0;
    loop {
        let Found { version, trouble } = answer(runtime, gate, link).await;
        let source = EventSource::of(&version);
        set_up(link, runtime.connection(), version, trouble);
        gate.answered(clock::now());
        let began = clock::now();
        let trouble = tokio::select! {
            trouble = read_events(runtime, source, events, link) => trouble,
            trouble = pulse(runtime, gate, link) => trouble,
            () = gate.away() => "a connection to it was refused".to_owned().into(),
        };
        tracing::debug!(trouble = trouble.text, "lost the connection to the runtime");
        set_down(link, trouble, clock::now());
        link.send_modify(|link| link.source = EventSource::None);
        gate.found_away();
        // If the relay finds it away right after it answered, the relay is not believed at once; otherwise the two
        // would alternate without end.
        if clock::now() - began > BACKOFF.1 {
            pause = BACKOFF.0;
        } else {
            sleep(pause).await;
            pause = (pause * 2).min(BACKOFF.1);
        }
    }
}

/// Reads events while the runtime is available. Returns why it is not any more.
async fn read_events(
    runtime: &Runtime,
    source: EventSource,
    events: &EventQueue,
    link: &watch::Sender<Link>,
) -> LinkTrouble {
    let (mut empty_ends, mut resubscriptions) = (EmptyEnds::default(), Resubscriptions::default());
    let note = |source| subscribed(link, source, runtime.connection());
    loop {
        let began = clock::now();
        let ended = events::read(runtime, source, events, || note(source)).await;
        let lasted = clock::now() - began;
        let has_none = match &ended {
            StreamEnd::Failed(status) => status.code() == Code::Unimplemented,
            StreamEnd::Well(_) => false,
        };
        if has_none || empty_ends.add(source, &ended, lasted) {
            tracing::info!("runtime has no events: reading its lists every 10 s");
            note(EventSource::Unsupported);
            runtime.connected_again(runtime.connection()).await;
            (empty_ends, resubscriptions) = (EmptyEnds::default(), Resubscriptions::default());
            continue;
        }
        // A runtime may end the stream of a slow reader although it works.
        if let PresenceAnswer::Away(status) = PresenceAnswer::of(runtime.version().await) {
            return (&status).into();
        }
        tracing::debug!(?ended, "event stream ended: subscribing again");
        link.send_modify(|link| link.source = EventSource::None);
        sleep(resubscriptions.pause(&ended, lasted)).await;
    }
}

/// Calls Version until the runtime answers. Clients wait meanwhile, but not long if the runtime accepts connections.
async fn answer(runtime: &Runtime, gate: &Gate, link: &watch::Sender<Link>) -> Found {
    let mut pause = BACKOFF.0;
    let mut hold = Hold::default();
    loop {
        let began = clock::now();
        let mut asked = pin!(ask(runtime));
        let trouble = loop {
            tokio::select! {
                asked = &mut asked => match asked {
                    Ok(found) => return found,
                    Err(status) => break LinkTrouble::from(&status),
                },
                () = sleep(LOOK) => {}
            }
            let_through(runtime, gate, &mut hold).await;
        };
        if !let_through(runtime, gate, &mut hold).await && gate.found_away() {
            tracing::debug!(trouble = trouble.text, "runtime does not answer: connections wait for it");
        }
        set_down(link, trouble, began);
        sleep(pause).await;
        pause = (pause * 2).min(BACKOFF.1);
    }
}

/// Opens the gate to a runtime that has accepted connections for long enough. Returns whether the gate is open for that
/// reason.
async fn let_through(runtime: &Runtime, gate: &Gate, hold: &mut Hold) -> bool {
    let accepts = runtime.accepts().await;
    let is_shut = gate.presence() == Presence::Away;
    let is_over = hold.is_over(accepts, is_shut, clock::now());
    if is_over && gate.answered(clock::now()) && hold.is_news() {
        tracing::warn!(
            "runtime accepts connections, but does not answer Version: clients are connected anyway"
        );
    }
    is_over
}

/// Checks whether the runtime is available.
///
/// It must accept a new connection, as a client would make, and our own connection must work again. If ours hangs, this
/// delays no one else.
async fn ask(runtime: &Runtime) -> Result<Found, Status> {
    let found = match PresenceAnswer::of(runtime.version_afresh().await) {
        PresenceAnswer::Version(version) => Found { version, trouble: LinkTrouble::default() },
        PresenceAnswer::Refusal(status) => Found { version: Version::default(), trouble: refusal(&status) },
        PresenceAnswer::Silence(status) | PresenceAnswer::Away(status) => return Err(status),
    };
    match PresenceAnswer::of(runtime.version().await) {
        PresenceAnswer::Away(status) => Err(status),
        PresenceAnswer::Version(_) | PresenceAnswer::Refusal(_) | PresenceAnswer::Silence(_) => Ok(found),
    }
}

/// Checks the runtime at intervals, and at once when the relay doubts it. Returns when the connection is lost. A
/// runtime that only hangs is reported, and clients are connected to it: a doubt holds them for [`DOUBT`] at most.
async fn pulse(runtime: &Runtime, gate: &Gate, link: &watch::Sender<Link>) -> LinkTrouble {
    let mut pause = Duration::ZERO;
    loop {
        tokio::select! {
            () = sleep(pause) => {}
            () = gate.in_doubt() => {}
        }
        let began = clock::now();
        let (mut asked, mut silence) = (pin!(runtime.version()), pin!(sleep(SILENCE)));
        let mut is_silent = false;
        let answer = loop {
            tokio::select! {
                answer = &mut asked => break answer,
                () = &mut silence, if !is_silent => {
                    is_silent = true;
                    set_down(link, LinkTrouble::silence(), began);
                }
                () = async { gate.in_doubt().await; sleep(DOUBT).await } => gate.settled(clock::now()),
            }
        };
        match PresenceAnswer::of(answer) {
            PresenceAnswer::Version(version) => {
                set_up(link, runtime.connection(), version, LinkTrouble::default());
            }
            PresenceAnswer::Refusal(status) => {
                let version = link.borrow().version.clone();
                set_up(link, runtime.connection(), version, refusal(&status));
            }
            PresenceAnswer::Silence(_) => set_down(link, LinkTrouble::silence(), began),
            PresenceAnswer::Away(status) => return (&status).into(),
        }
        gate.settled(clock::now());
        pause = if link.borrow().is_up { PULSE.0 } else { PULSE.1 };
    }
}

fn refusal(status: &Status) -> LinkTrouble {
    format!("it refuses Version: {:?}: {}", status.code(), status.message()).into()
}

fn subscribed(link: &watch::Sender<Link>, source: EventSource, connection: u64) {
    link.send_modify(|link| {
        link.source = source;
        link.generation += 1;
        link.epoch += u64::from(link.connection != connection);
        link.connection = connection;
    });
}

fn set_up(link: &watch::Sender<Link>, connection: u64, version: Version, trouble: LinkTrouble) {
    link.send_if_modified(|link| {
        let is_other = !link.is_up || link.connection != connection;
        let is_news = is_other || link.version != version || link.trouble != trouble;
        link.epoch += u64::from(is_other);
        link.connection = connection;
        if !link.is_up {
            (link.since, link.began) = (clock::wall(), clock::now());
            link.generation += 1;
        }
        link.is_up = true;
        link.version = version;
        link.trouble = trouble;
        is_news
    });
}

/// It is away since `began`, if it was not before. Whoever follows the link is woken when that or its cause is new.
fn set_down(link: &watch::Sender<Link>, trouble: LinkTrouble, began: Instant) {
    link.send_if_modified(|link| {
        let is_news = link.is_up || link.trouble.cause != trouble.cause;
        if link.is_up {
            let (wall, ago) = (clock::wall(), clock::now().saturating_duration_since(began));
            (link.since, link.began) = (wall.checked_sub(ago).unwrap_or(wall), began);
            link.is_up = false;
        }
        link.trouble = trouble;
        is_news
    });
}

#[cfg(test)]
mod tests;
