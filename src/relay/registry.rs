//! The open connections, for queries and for the drain. Written when a connection opens, turns blind or closes; never
//! per call except for one relaxed counter.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::SystemTime,
};

use super::handover::FrozenConnection;
use crate::{clock, count::Count, ids::ConnId, peer::Peer, tap::Blindness};

/// One open connection.
#[derive(Debug)]
pub struct RelayedConnection {
    /// Its number.
    pub id: ConnId,
    /// Who opened it.
    pub peer: Arc<Peer>,
    /// When.
    pub since: SystemTime,
    /// Calls in flight on it.
    pub calls: AtomicUsize,
    /// Bytes relayed on it so far.
    pub bytes: RelayedBytes<AtomicU64>,
    blind: Mutex<Option<(SystemTime, Blindness)>>,
}

impl RelayedConnection {
    /// Since when it is blind, and why.
    pub fn blind(&self) -> Option<(SystemTime, Blindness)> {
        *self.blind.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes that were passed on, by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayedBytes<T> {
    /// From clients to the runtime.
    pub up: T,
    /// From the runtime to clients.
    pub down: T,
}

impl RelayedBytes<AtomicU64> {
    /// These were passed on so far. Only the connection's own thread writes them: two plain stores.
    pub(super) fn store(&self, up: u64, down: u64) {
        self.up.store(up, Ordering::Relaxed);
        self.down.store(down, Ordering::Relaxed);
    }
}

impl RelayedBytes<u64> {
    fn add(&mut self, connection: &RelayedConnection) {
        self.up = self.up.wrapping_add(connection.bytes.up.load(Ordering::Relaxed));
        self.down = self.down.wrapping_add(connection.bytes.down.load(Ordering::Relaxed));
    }
}

/// The open connections; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Registry(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    open: Mutex<BTreeMap<ConnId, Arc<RelayedConnection>>>,
    /// Those of connections that are closed, less those that another relay has counted of connections that are open. Locked only while `open` is, so that no reader counts a connection twice.
    closed_bytes: Mutex<RelayedBytes<u64>>,
    /// The highest number of a connection.
    last_id: AtomicU64,
    total: AtomicU64,
    blinded: AtomicU64,
    blinded_in_calls: Count,
    accepting_paused: Mutex<Option<SystemTime>>,
    accept_pauses: Count,
}

impl Registry {
    /// Notes a connection that was accepted.
    pub fn opened(&self, peer: Arc<Peer>) -> Arc<RelayedConnection> {
        self.0.total.fetch_add(1, Ordering::Relaxed);
        let id = ConnId(self.0.last_id.fetch_add(1, Ordering::Relaxed) + 1);
        let connection = Arc::new(RelayedConnection {
            id,
            peer,
            since: clock::wall(),
            calls: AtomicUsize::new(0),
            bytes: RelayedBytes::default(),
            blind: Mutex::new(None),
        });
        self.open().insert(id, Arc::clone(&connection));
        connection
    }

    /// Notes a connection of another relay. It keeps its number, and what that relay counted of it is not counted again.
    pub(super) fn resumed(&self, frozen: &FrozenConnection) -> Arc<RelayedConnection> {
        let FrozenConnection { id, peer, since, blind, up, down, .. } = frozen;
        self.0.last_id.fetch_max(id.0, Ordering::Relaxed);
        let bytes = RelayedBytes { up: up.bytes.into(), down: down.bytes.into() };
        let connection = Arc::new(RelayedConnection {
            id: *id,
            peer: Arc::clone(peer),
            since: *since,
            calls: AtomicUsize::new(frozen.tap.open_calls()),
            bytes,
            blind: Mutex::new(*blind),
        });
        let mut open = self.open();
        let mut closed = self.closed_bytes();
        closed.up = closed.up.wrapping_sub(up.bytes);
        closed.down = closed.down.wrapping_sub(down.bytes);
        drop(closed);
        open.insert(*id, Arc::clone(&connection));
        connection
    }

    /// Numbers connections from here on, so that none gets a number of one that another process had.
    pub(super) fn number_after(&self, last: u64) {
        self.0.last_id.fetch_max(last, Ordering::Relaxed);
    }

    /// The highest number of a connection so far.
    pub(super) fn last_id(&self) -> u64 {
        self.0.last_id.load(Ordering::Relaxed)
    }

    /// Records that a connection has turned blind; says whether calls were open.
    pub fn blinded(&self, connection: &RelayedConnection, reason: Blindness) -> bool {
        self.0.blinded.fetch_add(1, Ordering::Relaxed);
        *connection.blind.lock().unwrap_or_else(PoisonError::into_inner) = Some((clock::wall(), reason));
        let had_calls = connection.calls.load(Ordering::Relaxed) > 0;
        if had_calls {
            self.0.blinded_in_calls.inc();
        }
        had_calls
    }

    /// Forgets a connection.
    pub fn closed(&self, id: ConnId) {
        let mut open = self.open();
        if let Some(connection) = open.remove(&id) {
            self.closed_bytes().add(&connection);
        }
    }

    /// Bytes relayed on all connections, open and closed; running totals.
    pub fn bytes(&self) -> RelayedBytes<u64> {
        let open = self.open();
        let mut bytes = *self.closed_bytes();
        open.values().for_each(|connection| bytes.add(connection));
        bytes
    }

    /// The open connections, oldest first.
    pub fn snapshot(&self) -> Vec<Arc<RelayedConnection>> {
        self.open().values().cloned().collect()
    }

    /// Connections that are open.
    pub fn count(&self) -> usize {
        self.open().len()
    }

    /// Connections accepted so far.
    pub fn total(&self) -> u64 {
        self.0.total.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    /// How many have gone blind, ever.
    pub fn total_blinded(&self) -> u64 {
        self.0.blinded.load(Ordering::Relaxed)
    }

    /// Whether any open connection is blind.
    pub fn has_blind(&self) -> bool {
        self.open().values().any(|connection| connection.blind().is_some())
    }

    /// Records that accepting is paused because connections or file descriptors are used up.
    pub fn accepting_paused(&self) {
        self.paused().get_or_insert_with(|| {
            self.0.accept_pauses.inc();
            clock::wall()
        });
    }

    /// Records that accepting has resumed.
    pub fn accepting_resumed(&self) {
        *self.paused() = None;
    }

    /// Since when accepting has been paused because connections or file descriptors are used up.
    pub fn accepting_paused_since(&self) -> Option<SystemTime> {
        *self.paused()
    }

    /// How often accepting was paused because file descriptors were used up; a running total.
    pub fn accept_pauses(&self) -> Count {
        self.0.accept_pauses.clone()
    }

    /// How many connections went blind while calls were open; a running total.
    pub fn blinded_in_calls(&self) -> Count {
        self.0.blinded_in_calls.clone()
    }

    /// Calls in flight on all connections.
    pub fn calls(&self) -> usize {
        self.open().values().map(|connection| connection.calls.load(Ordering::Relaxed)).sum()
    }

    fn paused(&self) -> std::sync::MutexGuard<'_, Option<SystemTime>> {
        self.0.accepting_paused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn closed_bytes(&self) -> std::sync::MutexGuard<'_, RelayedBytes<u64>> {
        self.0.closed_bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> std::sync::MutexGuard<'_, BTreeMap<ConnId, Arc<RelayedConnection>>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_connection_count_once_while_it_is_open_and_after_it_was_closed() {
        let registry = Registry::default();
        let (first, second) = (registry.opened(Arc::default()), registry.opened(Arc::default()));
        first.bytes.store(1, 20);
        second.bytes.store(300, 4_000);
        let all = RelayedBytes { up: 301, down: 4_020 };
        assert_eq!(registry.bytes(), all);
        registry.closed(first.id);
        assert_eq!(registry.bytes(), all);
        registry.closed(first.id);
        registry.closed(second.id);
        assert_eq!(registry.bytes(), all, "also if it is closed twice");
        registry.opened(Arc::default()).bytes.store(0, 1);
        assert_eq!(registry.bytes(), RelayedBytes { up: 301, down: 4_021 });
    }
}
