//! The live stream: rows of probes, calls, and the state of the daemon, for all subscribers at once. In: what the stages
//! answer, once a second and only while there are subscribers; and calls as they end. Out: server-sent events, of which each
//! subscriber takes what is newer than what it was sent, whenever its client takes more. A subscriber that never reads holds
//! a number, a key and its socket's buffer: it misses calls, and no row.

mod board;
mod row;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use axum::body::Bytes;
use serde::Serialize;
use tokio::{
    sync::{
        broadcast::{
            self,
            error::{RecvError, TryRecvError},
        },
        watch,
    },
    task::yield_now,
    time::{Interval, MissedTickBehavior, interval, sleep},
};
use tokio_util::sync::CancellationToken;

use self::{
    board::{Board, Fresh, Reader},
    row::Rows,
};
use super::{
    Sources,
    filter::FILTERED_AT_ONCE,
    journal::JournalEntry,
    pieces::PIECE,
    places::Following,
    redacted::Redacting,
    top::TopFilter,
    view::{BeatView, ClientView, HelloView, LiveStatusView, MissedCallsView, PodView, ProbeView, degraded},
};
use crate::{clock, results::history::History, spec::ProbeSpec};

/// 1 s between two looks at all probes.
const TICK: Duration = Duration::from_secs(1);

/// 10 s at most, where they take so long that the thread would do little else.
const LONGEST_TICK: Duration = Duration::from_secs(10);

/// 9 times as long as a look took, the next one waits: all looks take a tenth of the thread's time.
const REST: u32 = 9;

/// 5 s between two beats, and between two looks at what commands cost.
const BEAT: Duration = Duration::from_secs(5);

/// 1,024 calls: how far a subscriber may fall behind. They are held once for all subscribers.
const BACKLOG: usize = 1_024;

/// 64 rows are made at once; then other tasks have their turn.
const ROWS_AT_ONCE: usize = 64;

/// 2 s: how soon a browser connects again.
const RETRY: &str = "retry: 2000\n";

/// What rows are made of.
#[derive(Debug)]
pub struct LiveFacts {
    /// All probes.
    pub(crate) probes: Vec<LiveProbe>,
    /// All pods.
    pub(crate) pods: Vec<PodView>,
}

/// A probe with its history and definition, which are not copied.
#[derive(Debug)]
pub(crate) struct LiveProbe {
    pub view: ProbeView,
    pub history: Arc<History>,
    /// Of a valid probe of ours.
    pub spec: Option<Arc<ProbeSpec>>,
    /// Of a client's own.
    pub client: Option<ClientView>,
}

impl LiveFacts {
    /// Of probes whose history is not known.
    pub(crate) fn without_history(probes: Vec<ProbeView>, pods: Vec<PodView>) -> Self {
        let history = Arc::<History>::default();
        let probe = |view| LiveProbe { view, history: history.clone(), spec: None, client: None };
        Self { probes: probes.into_iter().map(probe).collect(), pods }
    }
}

/// The stream; clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Live {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    sources: Sources,
    redacting: Redacting,
    drained: CancellationToken,
    /// Held to write a piece, or to look at [`ROWS_AT_ONCE`] rows.
    board: Mutex<Board>,
    /// Whether a task feeds the board. Held to decide that.
    is_fed: Mutex<bool>,
    /// Sent to when the board has changed; its receivers are the subscribers.
    changed: watch::Sender<()>,
    /// Events of calls, as text.
    calls: broadcast::Sender<Arc<str>>,
}

/// One who reads the stream.
#[derive(Debug)]
pub(super) struct Subscriber {
    live: Live,
    /// What is to be sent first.
    head: String,
    reader: Reader,
    changed: watch::Receiver<()>,
    calls: broadcast::Receiver<Arc<str>>,
    beats: Interval,
    _following: Following,
}

/// Feeds the board for as long as there are subscribers.
struct Feeding(Arc<Shared>);

impl Live {
    /// Nothing is done before the first subscriber, and nothing any more once `drained` is cancelled.
    pub(super) fn new(sources: Sources, redacting: Redacting, drained: CancellationToken) -> Self {
        let (changed, calls) = (watch::Sender::new(()), broadcast::Sender::new(BACKLOG));
        let (board, is_fed) = (Mutex::default(), Mutex::new(false));
        Self { shared: Arc::new(Shared { sources, redacting, drained, board, is_fed, changed, calls }) }
    }

    /// Subscribes to all that comes from now on, and to all rows as they are.
    pub(super) fn subscribe(&self, following: Following) -> Subscriber {
        let hello = HelloView {
            version: env!("CARGO_PKG_VERSION"),
            node: &self.shared.sources.node,
            at: clock::wall().into(),
            tick_seconds: TICK.as_secs(),
        };
        let mut head = RETRY.to_owned();
        event(&mut head, "hello", &json(&hello));
        let mut beats = interval(BEAT);
        beats.reset();
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let subscriber = Subscriber {
            live: self.clone(),
            head,
            reader: Reader::default(),
            changed: self.shared.changed.subscribe(),
            calls: self.shared.calls.subscribe(),
            beats,
            _following: following,
        };
        self.feed();
        subscriber
    }

    /// Starts the task that feeds the board, if there is none.
    fn feed(&self) {
        let mut is_fed = self.shared.is_fed();
        if !std::mem::replace(&mut *is_fed, true) {
            let (feeding, drained) = (Feeding(self.shared.clone()), self.shared.drained.clone());
            tokio::spawn(drained.run_until_cancelled_owned(feeding.run()));
        }
    }
}

impl Shared {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_fed(&self) -> MutexGuard<'_, bool> {
        self.is_fed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there are no subscribers any more. If so, the board is not fed from now on.
    fn is_left(&self) -> bool {
        let mut is_fed = self.is_fed();
        let is_left = self.changed.receiver_count() == 0;
        if is_left {
            *is_fed = false;
            self.board().clear();
        }
        is_left
    }
}

impl Drop for Feeding {
    /// Whoever subscribes next, or beats, sees to another one.
    fn drop(&mut self) {
        if thread::panicking() {
            *self.0.is_fed() = false;
        }
    }
}

impl Feeding {
    /// Until there are no subscribers.
    async fn run(self) {
        tokio::select! {
            () = self.look() => {}
            () = self.add_up_costs() => {}
            () = self.pass_on_calls() => {}
        }
    }

    async fn look(&self) {
        while !self.0.is_left() {
            let began = clock::now();
            self.set_status().await;
            // A stage that does not answer is in the status; the rows stay as they are.
            if let Ok(facts) = self.0.sources.snapshots.live().await {
                self.set_rows(&facts).await;
            }
            let _ = self.0.changed.send(());
            let took = clock::now().saturating_duration_since(began);
            sleep(TICK.saturating_sub(took).max(took * REST).min(LONGEST_TICK)).await;
        }
    }

    async fn set_status(&self) {
        let snapshots = &self.0.sources.snapshots;
        let status = match snapshots.status().await {
            Ok(status) => LiveStatusView { trouble: degraded::reasons(&status), runtime: status.runtime },
            Err(stage) => LiveStatusView { runtime: snapshots.runtime(), trouble: vec![stage.to_string()] },
        };
        self.0.board().set("status", json(&status).into());
    }

    /// What commands cost, as `/v1/top` answers it.
    async fn add_up_costs(&self) {
        loop {
            if let Ok(top) = self.0.sources.snapshots.top(TopFilter::default()).await {
                let top = json(&top);
                self.0.redacting.prepare(&top).await;
                self.0.board().set("top", top.into());
                let _ = self.0.changed.send(());
            }
            sleep(BEAT).await;
        }
    }

    async fn set_rows(&self, facts: &LiveFacts) {
        let rows = Rows::of(facts);
        yield_now().await;
        let (chosen, hidden) = rows.choose();
        let mut fresh = Vec::with_capacity(chosen.len());
        for some in chosen.chunks(ROWS_AT_ONCE) {
            yield_now().await;
            let board = self.0.board();
            fresh.extend(some.iter().map(|&subject| {
                let (row, print) = rows.row(subject);
                let key: Arc<str> = row.key.as_str().into();
                let is_new = board.print(&key) != Some(print);
                let json = is_new.then(|| json(&rows.finish(subject, row)).into());
                Fresh { key, print, json }
            }));
        }
        self.0.board().update(fresh, hidden);
    }

    /// Writes each call once for all subscribers, in half of the thread's time at most. Calls whose redaction takes too long
    /// are missed by all of them alike.
    async fn pass_on_calls(&self) {
        let mut follower = self.0.sources.trace.follow();
        let (mut calls, mut worked) = (0, Duration::ZERO);
        loop {
            // The journal is there for as long as we are.
            let Some(entry) = follower.next().await else { return std::future::pending().await };
            let began = clock::now();
            let event = match entry {
                JournalEntry::Record(call) => call_event(&json(&call.view())),
                JournalEntry::Missed(calls) => missed_event(calls),
            };
            calls += 1;
            worked += clock::now().saturating_duration_since(began);
            self.0.redacting.prepare(&event).await;
            // An error means that the last subscriber has just left.
            let _ = self.0.calls.send(event);
            if calls >= FILTERED_AT_ONCE {
                sleep(std::mem::take(&mut worked)).await;
                calls = 0;
            }
        }
    }
}

impl Subscriber {
    /// The next events; nothing is made before they are asked for. `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        let mut text = std::mem::take(&mut self.head);
        loop {
            while text.len() < PIECE {
                match self.calls.try_recv() {
                    Ok(call) => text.push_str(&call),
                    Err(TryRecvError::Lagged(calls)) => text.push_str(&missed_event(calls)),
                    Err(TryRecvError::Empty | TryRecvError::Closed) => break,
                }
            }
            self.changed.mark_unchanged();
            self.live.shared.board().write(&mut self.reader, &mut text);
            if !text.is_empty() {
                return Some(text.into());
            }
            tokio::select! {
                call = self.calls.recv() => match call {
                    Ok(call) => text.push_str(&call),
                    Err(RecvError::Lagged(calls)) => text.push_str(&missed_event(calls)),
                    Err(RecvError::Closed) => return None,
                },
                changed = self.changed.changed() => changed.ok()?,
                _ = self.beats.tick() => {
                    // One that panicked is replaced.
                    self.live.feed();
                    event(&mut text, "beat", &json(&BeatView { at: clock::wall().into() }));
                }
            }
        }
    }
}

fn call_event(json: &str) -> Arc<str> {
    let mut text = String::with_capacity(json.len() + 32);
    event(&mut text, "call", json);
    text.into()
}

fn missed_event(calls: u64) -> Arc<str> {
    let mut text = String::new();
    event(&mut text, "missed", &json(&MissedCallsView { calls }));
    text.into()
}

/// Adds a server-sent event. JSON has no line break outside of strings, and none within.
fn event(to: &mut String, name: &str, json: &str) {
    for part in ["event: ", name, "\ndata: ", json, "\n\n"] {
        to.push_str(part);
    }
}

fn json(view: &impl Serialize) -> String {
    serde_json::to_string(view).expect("views are maps with text keys, which always serialise")
}
