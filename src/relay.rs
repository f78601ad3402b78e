//! Connects clients to the runtime: accepts connections, and relays each one unchanged over a connection of its own.
//!
//! In: a listening socket. Out: the bytes, unchanged, and the events of the taps. The relay has its own threads, so
//! that nothing else in the daemon can delay a byte. Each thread runs a single-threaded tokio runtime, and a connection
//! stays on its thread.

mod accepting;
mod connection;
pub mod descriptors;
mod dial;
pub mod gate;
pub mod handover;
mod notice;
pub mod output;
mod pump;
pub mod registry;
mod socket;

use std::{
    io,
    os::unix::net::{UnixListener as StdListener, UnixStream},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use accepting::accept;
use descriptors::Place;
use gate::Gate;
use handover::{FREEZE, FrozenConnection, Handover};
use notice::Notices;
use output::{Observations, Output};
use pump::Waiting;
use registry::{Registry, RelayedConnection};
use socket::Socket;
use tokio::{
    runtime::Builder,
    sync::{mpsc, watch},
    task::JoinSet,
    time::{interval, sleep, timeout},
};

use crate::{clock, ids::ConnId, peer::Peer, tap::Room};

/// 256 connections may be on their way to a relay thread; beyond that, accepting pauses.
const HAND_OVER: usize = 256;

/// -10: the niceness of the relay's threads (setpriority(2)). They work for microseconds while calls wait for them, so
/// they take precedence over all other work of the daemon. Needs CAP_SYS_NICE or RLIMIT_NICE; without either, they run like
/// the others.
const NICE: i32 = -10;

/// 1 s: how often each thread of the relay counts a beat, which shows that it works.
const BEAT: Duration = Duration::from_secs(1);

/// At most 4 relay threads: the clients of a node do not use more at the same time.
const MAX_THREADS: usize = 4;

/// 10 s: how long calls in flight may take to end during a drain.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// 1 s: how long connections that were made during a drain may take to end, once no more are accepted: none of their calls
/// took long before.
const LEAVE: Duration = Duration::from_secs(1);

/// 300 ms: how long connections may take to close at the end of a drain.
const GOODBYE: Duration = Duration::from_millis(300);

/// The phase of the relay's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Normal operation.
    Serving,
    /// Existing connections end when their calls do; new ones are still accepted.
    Draining,
    /// Only if the service manager keeps the socket: all connections end when their calls do, and none is accepted. Clients
    /// that connect wait for the next process.
    Leaving,
    /// All connections end now.
    Closing,
    /// All connections stop where they are, for another process to go on with them.
    Freezing,
}

/// State that all connections share.
#[derive(Debug)]
struct Shared {
    runtime: PathBuf,
    /// The name under which our own listener was bound, and the process that listened first: ours, or the service manager.
    bound: Option<(PathBuf, i32)>,
    gate: Gate,
    output: Output,
    registry: Registry,
    phase: watch::Receiver<Phase>,
    notices: Notices,
    /// Accepted, and not in the registry yet; and one more while clients are accepted.
    arriving: Arc<AtomicUsize>,
    /// What the taps may keep together.
    room: Arc<Room>,
    /// What waits for slow receivers.
    waiting: Arc<Waiting>,
    /// Takes the connections that were frozen.
    frozen: mpsc::UnboundedSender<FrozenConnection>,
    /// How many connections did not stop in time.
    lost: AtomicUsize,
}

/// A client that a thread is to serve.
#[derive(Debug)]
struct Accepted {
    client: Client,
    place: Place,
}

/// The socket that clients connect to.
#[derive(Debug)]
pub struct ClientSocket {
    /// Non-blocking.
    pub listener: StdListener,
    /// The service manager keeps it: clients that connect while no process accepts wait in its queue.
    pub is_kept: bool,
}

#[derive(Debug)]
enum Client {
    /// It has just connected.
    New(UnixStream),
    /// It was connected to the process before.
    Resumed(Arc<RelayedConnection>, Box<FrozenConnection>),
}

/// A relay thread ended before it was asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a relay thread has failed")]
pub struct RelayEnded;

/// What other stages can query from the relay. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RelayHandle {
    /// The open connections.
    pub connections: Registry,
    output: Output,
    beats: Beats,
}

/// Of each thread, how often it has beaten.
type Beats = Arc<Vec<AtomicU64>>;

/// For as many threads, and the one that accepts.
fn beats(threads: usize) -> Beats {
    Arc::new((0..=threads.max(1)).map(|_| AtomicU64::new(0)).collect())
}

impl RelayHandle {
    /// A count for each thread, which grows every second while that thread works.
    pub fn beats(&self) -> Vec<u64> {
        self.beats.iter().map(|beats| beats.load(Ordering::Relaxed)).collect()
    }

    /// Whether everything that was observed so far has been worked off.
    pub fn is_worked_off(&self) -> bool {
        self.output.is_worked_off()
    }

    /// Observations that were dropped because the queue to the inventory was full.
    pub fn dropped_observations(&self) -> u64 {
        self.output.dropped()
    }
}

/// Starts the relay between the socket `clients` and the socket `runtime`, with one thread per processor, at most
/// four. `room` is what its taps may keep.
///
/// # Errors
/// A thread cannot be started.
pub fn spawn(
    clients: ClientSocket,
    runtime: PathBuf,
    gate: Gate,
    room: Room,
) -> io::Result<(Relay, RelayHandle, Observations)> {
    spawn_resumed(clients, runtime, gate, Handover::nothing(room))
}

/// The same, with the connections of another relay.
///
/// # Errors
/// A thread cannot be started; the connections end then.
pub fn spawn_resumed(
    clients: ClientSocket,
    runtime: PathBuf,
    gate: Gate,
    handover: Handover,
) -> io::Result<(Relay, RelayHandle, Observations)> {
    let (output, observations) = output::channel(output::MAX_EVENTS);
    let connections = Registry::default();
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let beats = beats(threads);
    let relay = Relay::start(
        clients,
        runtime,
        Arc::clone(&beats),
        gate,
        handover,
        output.clone(),
        connections.clone(),
    )?;
    Ok((relay, RelayHandle { connections, output, beats }, observations))
}

/// A running relay.
#[derive(Debug)]
pub struct Relay {
    phase: watch::Sender<Phase>,
    /// Each thread sends when it ends.
    ended: mpsc::Receiver<()>,
    registry: Registry,
    threads: Vec<JoinHandle<()>>,
    beats: Beats,
    /// If the service manager keeps the socket: the connections that are on their way into the registry.
    arriving: Option<Arc<AtomicUsize>>,
    /// The socket that clients connect to, for a relay that takes over from this one.
    listener: StdListener,
    shared: Arc<Shared>,
    frozen: mpsc::UnboundedReceiver<FrozenConnection>,
}

impl Relay {
    fn start(
        ClientSocket { listener, is_kept }: ClientSocket,
        runtime: PathBuf,
        beats: Beats,
        gate: Gate,
        Handover { room, connections, last_id, mut events }: Handover,
        output: Output,
        registry: Registry,
    ) -> io::Result<Self> {
        let (kept, (sender, frozen)) = (listener.try_clone()?, mpsc::unbounded_channel());
        let phase = watch::Sender::new(Phase::Serving);
        let bound = match listener.local_addr()?.as_pathname() {
            Some(name) => Some((name.to_owned(), Peer::of(&listener)?.pid)),
            None => None,
        };
        let arriving = Arc::new(AtomicUsize::new(1));
        let shared = Arc::new(Shared {
            runtime,
            bound,
            gate,
            output,
            registry: registry.clone(),
            phase: phase.subscribe(),
            notices: Notices::default(),
            arriving: Arc::clone(&arriving),
            room,
            waiting: Arc::default(),
            frozen: sender,
            lost: AtomicUsize::new(0),
        });
        shared.output.send(&mut events);
        registry.number_after(last_id);
        // At once: a drain that begins now ends these, too.
        let resumed: Vec<_> =
            connections.into_iter().map(|frozen| (registry.resumed(&frozen), frozen)).collect();
        let (alive, ended) = mpsc::channel(1);
        let mut handles = Vec::new();
        let mut workers = Vec::new();
        for number in 1..beats.len() {
            let (sender, receiver) = mpsc::channel(HAND_OVER);
            let shared = Arc::clone(&shared);
            let alive = Alive(alive.clone(), Arc::clone(&beats), number);
            handles.push(spawn_thread(&format!("relay-{number}"), alive, move || serve(shared, receiver))?);
            workers.push(sender);
        }
        let alive = Alive(alive, Arc::clone(&beats), 0);
        let ours = Arc::clone(&shared);
        handles
            .push(spawn_thread("accept", alive, move || accept(listener, resumed, is_kept, ours, workers))?);
        let arriving = is_kept.then_some(arriving);
        Ok(Self { phase, ended, registry, threads: handles, listener: kept, shared, frozen, beats, arriving })
    }

    /// Returns when a thread has ended unexpectedly. Safe to drop and call again.
    pub async fn ended(&mut self) -> RelayEnded {
        // A closed channel means the same: all threads have ended.
        let _ = self.ended.recv().await;
        RelayEnded
    }

    /// Ends the relay. New connections are accepted while calls are in flight, and connections end when their calls do.
    /// After `DRAIN_LIMIT`, the remaining connections are closed. If the service manager keeps the socket, those that were
    /// made meanwhile end in the same way before, so that no call is cut.
    pub async fn drain(self) {
        let Self { phase, registry, threads, arriving, .. } = self;
        let last_before = registry.snapshot().last().map(|connection| connection.id);
        phase.send_replace(Phase::Draining);
        let is_done = async {
            loop {
                let open = registry.snapshot();
                let has_old = open.iter().any(|connection| Some(connection.id) <= last_before);
                if !has_old && registry.calls() == 0 {
                    break;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        let started = clock::now();
        if timeout(DRAIN_LIMIT, is_done).await.is_err() {
            tracing::warn!(connections = registry.count(), calls = registry.calls(), "drain took too long");
        }
        if let Some(arriving) = arriving {
            phase.send_replace(Phase::Leaving);
            let all_left = async {
                // In this order: what has arrived is in the registry.
                while arriving.load(Ordering::Acquire) > 0 || registry.count() > 0 {
                    sleep(Duration::from_millis(20)).await;
                }
            };
            // What is left then is closed, as above.
            let _left = timeout(LEAVE, all_left).await;
        }
        phase.send_replace(Phase::Closing);
        let joined =
            tokio::task::spawn_blocking(move || threads.into_iter().all(|thread| thread.join().is_ok()));
        if !joined.await.unwrap_or(false) {
            tracing::error!("a relay thread panicked");
        }
        tracing::info!(seconds = (clock::now() - started).as_secs_f64(), "relay drained");
    }
}

/// Reports that a thread works, and its end, whatever the cause. It has a number among the others.
struct Alive(mpsc::Sender<()>, Beats, usize);

impl Alive {
    /// Counts beats while nothing else keeps the thread busy.
    async fn beat(&self) -> ! {
        let Self(_, beats, number) = self;
        let mut due = interval(BEAT);
        loop {
            due.tick().await;
            beats[*number].fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        // One report is enough.
        let _ = self.0.try_send(());
    }
}

fn spawn_thread<F, Fut>(name: &str, alive: Alive, main: F) -> io::Result<JoinHandle<()>>
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = ()>,
{
    let runtime = Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        // Linux keeps niceness per thread, and `None` means this one.
        if let Err(error) = rustix::process::setpriority_process(None, NICE) {
            tracing::debug!(%error, "cannot raise the priority of the relay's threads");
        }
        runtime.block_on(async {
            tokio::select! {
                () = main() => {}
                _never = alive.beat() => {}
            }
        });
    })
}

/// One relay thread: serves the connections that are assigned to it.
async fn serve(shared: Arc<Shared>, mut accepted: mpsc::Receiver<Accepted>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            next = accepted.recv() => match next {
                Some(next) => {
                    connections.spawn(serve_connection(Arc::clone(&shared), next));
                }
                None => break,
            },
            Some(_) = connections.join_next() => {}
        }
    }
    // Nothing is accepted any more: everything has been asked to end, or to stop.
    let limit = if *shared.phase.borrow() == Phase::Freezing { FREEZE } else { GOODBYE };
    let _cut = timeout(limit, async { while connections.join_next().await.is_some() {} }).await;
    shared.lost.fetch_add(connections.len(), Ordering::Relaxed);
}

async fn serve_connection(shared: Arc<Shared>, Accepted { client, place }: Accepted) {
    let Place { open: _open, undialled } = place;
    let stream = match client {
        Client::New(stream) => stream,
        Client::Resumed(connection, frozen) => {
            let _entry = Entry { registry: &shared.registry, id: connection.id };
            return connection::resume(&shared, &connection, *frozen, undialled).await;
        }
    };
    let opened = Socket::new(stream).and_then(|socket| Ok((Peer::of(&socket)?, socket)));
    if opened.is_err() {
        shared.arriving.fetch_sub(1, Ordering::Release);
    }
    match opened {
        Ok((peer, socket)) => {
            // Before it is registered: a drain that does not see it yet leaves it alone, and one that does ends it.
            let born = match *shared.phase.borrow() {
                Phase::Leaving => Phase::Draining,
                phase => phase,
            };
            let connection = shared.registry.opened(Arc::new(peer));
            shared.arriving.fetch_sub(1, Ordering::Release);
            let _entry = Entry { registry: &shared.registry, id: connection.id };
            tracing::debug!(conn = connection.id.0, peer = %connection.peer, "connection open");
            connection::relay(&shared, &connection, born, socket, undialled).await;
        }
        Err(error) => {
            if let Some(passed_over) = shared.notices.lost.due(clock::now()) {
                tracing::warn!(%error, passed_over, "connection was lost before it started");
            }
        }
    }
}

/// A connection's entry in the registry, removed however the connection ends.
struct Entry<'a> {
    registry: &'a Registry,
    id: ConnId,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.registry.closed(self.id);
    }
}

#[cfg(test)]
mod tests;
