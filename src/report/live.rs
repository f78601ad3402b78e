//! The live stream: rows of probes, calls, and the state of the daemon, for all subscribers at once. In: what the stages
//! answer, once a second and only while there are subscribers; and calls as they end. Out: server-sent events, of which each
//! subscriber takes what is newer than what it was sent, whenever its client takes more. A subscriber that never reads holds
//! a number, a key, the 50 calls that all begin with, and its socket's buffer: it misses calls, and no row.

mod board;
mod row;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
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
    filter::{FILTERED_AT_ONCE, Parameters, flag},
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

/// 50 calls that ended before are what a subscriber begins with, or fewer that take 128 KiB. Those that never read them hold at
/// most as much each: 8 MiB.
const EARLIER: (usize, usize) = (50, 128 << 10);

/// 5 s: a client that wants the state once has its answer by then, also where a part of it is missing.
const ONCE: Duration = Duration::from_secs(5);

/// The texts beside the rows that belong to the state.
const TEXTS: [&str; 2] = ["status", "top"];

/// 64 rows are made at once; then other tasks have their turn.
const ROWS_AT_ONCE: usize = 64;

/// 2 s: how soon a browser connects again.
const RETRY: &str = "retry: 2000\n";

/// What a client asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LiveFilter {
    /// Only the state as it is now, after which the stream ends.
    pub once: bool,
}

impl Parameters for LiveFilter {
    const NAMES: &'static [&'static str] = &["once"];

    fn take(&mut self, _: &str, value: &str) -> Result<(), String> {
        self.once = flag(value)?;
        Ok(())
    }
}

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
    /// Held to send one of them, and to subscribe: no subscriber gets a call twice, or misses one between.
    earlier: Mutex<Earlier>,
}

/// The newest calls that subscribers were sent.
#[derive(Debug, Default)]
struct Earlier {
    calls: VecDeque<Arc<str>>,
    bytes: usize,
    /// Whether those are among them that ended before there were subscribers.
    is_filled: bool,
}

/// One who reads the stream.
#[derive(Debug)]
pub(super) struct Subscriber {
    live: Live,
    /// What is to be sent first.
    head: String,
    /// The calls to be sent next.
    earlier: VecDeque<Arc<str>>,
    reader: Reader,
    changed: watch::Receiver<()>,
    calls: broadcast::Receiver<Arc<str>>,
    beats: Interval,
    /// When it ends at the latest, if it is only sent the state as it is now.
    once_until: Option<Instant>,
    _following: Following,
}

/// Feeds the board for as long as there are subscribers.
struct Feeding(Arc<Shared>);

impl Live {
    /// Nothing is done before the first subscriber, and nothing any more once `drained` is cancelled.
    pub(super) fn new(sources: Sources, redacting: Redacting, drained: CancellationToken) -> Self {
        let (changed, calls) = (watch::Sender::new(()), broadcast::Sender::new(BACKLOG));
        let (board, is_fed, earlier) = (Mutex::default(), Mutex::new(false), Mutex::default());
        let shared = Shared { sources, redacting, drained, board, is_fed, changed, calls, earlier };
        Self { shared: Arc::new(shared) }
    }

    /// Subscribes to all rows as they are, to the newest calls, and to all that comes from now on.
    pub(super) fn subscribe(&self, filter: LiveFilter, following: Following) -> Subscriber {
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
        // From then on the board is not left, so that nothing is forgotten between.
        let changed = {
            let _deciding = self.shared.is_fed();
            self.shared.changed.subscribe()
        };
        let (earlier, calls) = {
            let earlier = self.shared.earlier();
            (earlier.calls.clone(), self.shared.calls.subscribe())
        };
        let subscriber = Subscriber {
            live: self.clone(),
            head,
            earlier,
            reader: Reader::default(),
            changed,
            calls,
            beats,
            once_until: filter.once.then(|| clock::now() + ONCE),
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

    fn earlier(&self) -> MutexGuard<'_, Earlier> {
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_fed(&self) -> MutexGuard<'_, bool> {
        self.is_fed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends an event of a call to all subscribers.
    fn send(&self, event: Arc<str>) {
        let mut earlier = self.earlier();
        earlier.bytes += event.len();
        earlier.calls.push_back(event.clone());
        while earlier.calls.len() > EARLIER.0 || earlier.bytes > EARLIER.1 {
            let Some(oldest) = earlier.calls.pop_front() else { break };
            earlier.bytes -= oldest.len();
        }
        // An error means that the last subscriber has just left.
        let _ = self.calls.send(event);
    }

    /// The calls that ended before there were subscribers have been sent.
    fn filled(&self) {
        if !std::mem::replace(&mut self.earlier().is_filled, true) {
            let _ = self.changed.send(());
        }
    }

    /// Whether there are no subscribers any more. If so, the board is not fed from now on.
    fn is_left(&self) -> bool {
        let mut is_fed = self.is_fed();
        let is_left = self.changed.receiver_count() == 0;
        if is_left {
            *is_fed = false;
            self.board().clear();
            *self.earlier() = Earlier::default();
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
            let is_listed = self.set_status().await;
            // What the runtime has is not known before its first list: nothing is not the same as none. A stage that does
            // not answer is in the status; the rows stay as they are.
            if is_listed && let Ok(facts) = self.0.sources.snapshots.live().await {
                self.set_rows(&facts).await;
            }
            let _ = self.0.changed.send(());
            let took = clock::now().saturating_duration_since(began);
            sleep(TICK.saturating_sub(took).max(took * REST).min(LONGEST_TICK)).await;
        }
    }

    /// Returns whether the pods and containers of the runtime were listed, as far as that is known.
    async fn set_status(&self) -> bool {
        let snapshots = &self.0.sources.snapshots;
        let (status, is_listed) = match snapshots.status().await {
            Ok(status) => {
                let (trouble, is_listed) =
                    (degraded::reasons(&status), status.inventory.last_resync_at.is_some());
                (LiveStatusView { trouble, runtime: status.runtime }, is_listed)
            }
            Err(stage) => {
                (LiveStatusView { runtime: snapshots.runtime(), trouble: vec![stage.to_string()] }, true)
            }
        };
        self.0.board().set("status", json(&status).into());
        is_listed
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
    /// are missed by all of them alike. Begins with the last that ended before there were subscribers.
    async fn pass_on_calls(&self) {
        let is_filled = self.0.earlier().is_filled;
        let (earlier, mut follower) =
            self.0.sources.trace.follow_after(if is_filled { 0 } else { EARLIER.0 });
        let mut earlier = earlier.into_iter();
        let (mut calls, mut worked) = (0, Duration::ZERO);
        loop {
            let entry = match earlier.next() {
                Some(call) => JournalEntry::Record(call),
                None => {
                    self.0.filled();
                    // The journal is there for as long as we are.
                    let Some(entry) = follower.next().await else { return std::future::pending().await };
                    entry
                }
            };
            let began = clock::now();
            let event = match entry {
                JournalEntry::Record(call) => call_event(&json(&call.view())),
                JournalEntry::Missed(calls) => missed_event(calls),
            };
            calls += 1;
            worked += clock::now().saturating_duration_since(began);
            self.0.redacting.prepare(&event).await;
            self.0.send(event);
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
            if text.is_empty() && self.has_state() {
                return None;
            }
            while text.len() < PIECE
                && let Some(call) = self.earlier.pop_front()
            {
                text.push_str(&call);
            }
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
                () = clock::until(self.once_until) => return None,
                _ = self.beats.tick() => {
                    // One that panicked is replaced.
                    self.live.feed();
                    event(&mut text, "beat", &json(&BeatView { at: clock::wall().into() }));
                }
            }
        }
    }

    /// Whether it is one that is only sent the state as it is now, and has it.
    fn has_state(&self) -> bool {
        let shared = &self.live.shared;
        self.once_until.is_some_and(|until| {
            let has_calls = self.earlier.is_empty() && self.calls.is_empty() && shared.earlier().is_filled;
            has_calls && shared.board().has_sent(&self.reader, &TEXTS) || clock::now() >= until
        })
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
