//! Stops a relay between two bytes of each connection, for another one to go on: in the next process, or in this one if there
//! is none.
//!
//! serving --freeze--> frozen --carrier--> the next process --spawn_resumed--> serving
//!                     frozen --thaw--> serving

pub mod carrier;
mod connection;

use std::{
    io, iter,
    os::unix::net::UnixListener,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::time::timeout;

pub use self::connection::{FrozenConnection, HandoverError, Sockets};
use super::{Beats, ClientSocket, Phase, Relay, Shared};
use crate::tap::{Room, TapEvent};

/// 1 s: how long connections may take to stop where they are. All of them together take milliseconds. Only a thread that hangs
/// takes longer, and its connections would not go on in this process either.
pub(super) const FREEZE: Duration = Duration::from_secs(1);

/// What a relay goes on with.
#[derive(Debug)]
pub struct Handover {
    /// What all taps may keep, and what those of the connections keep of it.
    pub room: Arc<Room>,
    /// Connections of another relay.
    pub connections: Vec<FrozenConnection>,
    /// The highest number that it gave a connection.
    pub last_id: u64,
    /// What their taps report.
    pub events: Vec<TapEvent>,
}

/// A relay whose connections were stopped where they were.
#[derive(Debug)]
pub struct FrozenRelay {
    /// The connections.
    pub connections: Vec<FrozenConnection>,
    /// How many did not stop in time, and were closed.
    pub lost: usize,
    /// The highest number of a connection.
    last_id: u64,
    pub(super) listener: UnixListener,
    /// As in [`ClientSocket`].
    is_kept: bool,
    shared: Arc<Shared>,
    /// Others go on watching them when it goes on.
    beats: Beats,
}

impl FrozenRelay {
    /// Goes on with all connections.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn thaw(self) -> io::Result<Relay> {
        let Self { connections, lost: _, last_id, listener, is_kept, shared, beats } = self;
        let Shared { runtime, gate, output, registry, room, .. } = &*shared;
        let handover = Handover { room: Arc::clone(room), connections, last_id, events: Vec::new() };
        Relay::start(
            ClientSocket { listener, is_kept },
            runtime.clone(),
            beats,
            gate.clone(),
            handover,
            output.clone(),
            registry.clone(),
        )
    }
}

impl Handover {
    /// No connection yet; all taps together may keep as much as the room has.
    pub fn nothing(room: impl Into<Arc<Room>>) -> Self {
        Self { room: room.into(), connections: Vec::new(), last_id: 0, events: Vec::new() }
    }
}

impl Relay {
    /// Stops all connections where they are: not a byte moves any more. Clients that connect meanwhile wait in the queue of
    /// the socket. A connection that does not stop within `FREEZE` is closed.
    pub async fn freeze(self) -> FrozenRelay {
        let Self { phase, registry, threads, listener, shared, mut frozen, beats, arriving, .. } = self;
        phase.send_replace(Phase::Freezing);
        let joined =
            tokio::task::spawn_blocking(move || threads.into_iter().all(|thread| thread.join().is_ok()));
        match timeout(2 * FREEZE, joined).await {
            Ok(joined) if joined.as_ref().is_ok_and(|all| *all) => {}
            Ok(_) => tracing::error!("a relay thread panicked"),
            Err(_elapsed) => tracing::error!("a relay thread hangs: its connections end with this process"),
        }
        let mut connections: Vec<_> = iter::from_fn(|| frozen.try_recv().ok()).collect();
        connections.sort_unstable_by_key(|connection| connection.id);
        let lost = shared.lost.load(Ordering::Relaxed) + registry.count();
        let (last_id, is_kept) = (registry.last_id(), arriving.is_some());
        FrozenRelay { connections, lost, last_id, listener, is_kept, shared, beats }
    }
}
