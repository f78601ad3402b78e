//! Counts what taps keep: of one connection, and of all of them together. Each connection has some room of its own, so that
//! others cannot use up all of it. Pure.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// 16 MiB of details of open calls are kept for all connections together, beyond what each has of its own. Above that,
/// the largest details of the connection that needs more are dropped.
const ALL_BYTES: usize = 16 << 20;

/// 64 KiB of each kind are a connection's own.
const OWN_BYTES: usize = 64 << 10;

/// 65,536 streams of all connections are tracked, beyond those that are a connection's own. Calls beyond that are not
/// seen, but counted.
const ALL_STREAMS: usize = 65_536;

/// 256 streams are a connection's own.
const OWN_STREAMS: usize = 256;

/// What the taps of all connections share.
#[derive(Debug, Default)]
pub(crate) struct Room {
    bytes: Pool,
    streams: Pool,
}

#[derive(Debug, Default)]
struct Pool(AtomicUsize);

impl Pool {
    fn take(&self, count: usize, most: usize) -> bool {
        let more = |taken: usize| taken.checked_add(count).filter(|taken| *taken <= most);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn give(&self, count: usize) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }
}

/// 1 MiB of the commands of open calls are kept for one connection. Above that, the longest commands are dropped, of
/// equal ones the oldest, until half is left: these calls end without details.
pub(super) const MAX_COMMANDS: usize = 1 << 20;

/// 4 MiB of requests that create something, and are still arriving, are kept for one connection. Above that, the largest
/// are dropped in the same way; a resync makes up for them.
pub(super) const MAX_ARRIVING: usize = 4 << 20;

/// 2 MiB of what open calls create are kept for one connection. Above that, the largest are dropped in the same way; a
/// resync makes up for them when the calls end.
pub(super) const MAX_CREATIONS: usize = 2 << 20;

/// What bytes are kept for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A command, arriving or open.
    Command,
    /// A creation whose request is not whole yet.
    Arriving,
    /// A creation that is open.
    Creation,
}

/// The bytes that one connection keeps.
#[derive(Debug)]
pub(super) struct Shares {
    commands: Share,
    arriving: Share,
    creations: Share,
}

impl Shares {
    /// Nothing is kept yet.
    pub(super) fn new(room: &Arc<Room>) -> Self {
        Self {
            commands: Share::new(room, MAX_COMMANDS),
            arriving: Share::new(room, MAX_ARRIVING),
            creations: Share::new(room, MAX_CREATIONS),
        }
    }

    /// That of a purpose.
    pub(super) fn of(&mut self, purpose: Purpose) -> &mut Share {
        match purpose {
            Purpose::Command => &mut self.commands,
            Purpose::Arriving => &mut self.arriving,
            Purpose::Creation => &mut self.creations,
        }
    }

    /// All that is counted.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.commands.held + self.arriving.held + self.creations.held
    }
}

/// The bytes that one connection keeps for one purpose.
#[derive(Debug)]
pub(super) struct Share {
    room: Arc<Room>,
    held: usize,
    /// How many of them were taken from the room.
    taken: usize,
    most: usize,
}

impl Share {
    fn new(room: &Arc<Room>, most: usize) -> Self {
        Self { room: Arc::clone(room), held: 0, taken: 0, most }
    }

    /// Counts more bytes.
    pub(super) fn grow(&mut self, bytes: usize) {
        self.held += bytes;
        let missing = self.held.saturating_sub(OWN_BYTES + self.taken);
        if missing > 0 && self.held <= self.most && self.room.bytes.take(missing, ALL_BYTES) {
            self.taken += missing;
        }
    }

    /// Counts fewer bytes.
    pub(super) fn shrink(&mut self, bytes: usize) {
        // After a panic of ours, the count may be wrong.
        self.held = self.held.saturating_sub(bytes);
        let spare = self.taken.saturating_sub(self.held.saturating_sub(OWN_BYTES));
        if spare > 0 {
            self.taken -= spare;
            self.room.bytes.give(spare);
        }
    }

    /// If more is held than there is room for: how much may stay. That is half of the room, so that this is rare.
    pub(super) fn excess(&self) -> Option<usize> {
        let room = OWN_BYTES + self.taken;
        (self.held > room).then_some(room / 2)
    }

    /// Bytes that are counted.
    pub(super) fn held(&self) -> usize {
        self.held
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.room.bytes.give(self.taken);
    }
}

/// The streams that one connection has open.
#[derive(Debug)]
pub(super) struct Places {
    room: Arc<Room>,
    held: usize,
    most: usize,
}

impl Places {
    /// At most so many.
    pub(super) fn new(room: &Arc<Room>, most: usize) -> Self {
        Self { room: Arc::clone(room), held: 0, most }
    }

    /// Takes places; with a reserve, also beyond the bounds. Returns whether there were as many.
    pub(super) fn take(&mut self, places: usize, reserve: usize) -> bool {
        let shared = shared(self.held + places) - shared(self.held);
        if self.held + places > self.most + reserve
            || (shared > 0 && !self.room.streams.take(shared, ALL_STREAMS + reserve))
        {
            return false;
        }
        self.held += places;
        true
    }

    /// Gives places back.
    pub(super) fn give(&mut self, places: usize) {
        let left = self.held.saturating_sub(places);
        let spare = shared(self.held) - shared(left);
        if spare > 0 {
            self.room.streams.give(spare);
        }
        self.held = left;
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        self.room.streams.give(shared(self.held));
    }
}

/// How many of a connection's streams are not its own.
fn shared(streams: usize) -> usize {
    streams.saturating_sub(OWN_STREAMS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_keeps_its_own_room_whatever_others_hold() {
        let room = Arc::new(Room::default());
        let mut greedy: Vec<_> = (0..8).map(|_| Share::new(&room, 4 << 20)).collect();
        for share in &mut greedy {
            share.grow(4 << 20);
        }
        let over: Vec<_> = greedy.iter().map(|share| share.excess().is_some()).collect();
        assert_eq!(over, [false, false, false, false, true, true, true, true]);
        let mut other = Share::new(&room, 4 << 20);
        other.grow(OWN_BYTES);
        assert_eq!(other.excess(), None);
        other.grow(1 << 20);
        assert!(other.excess().is_some_and(|may_stay| may_stay >= OWN_BYTES / 2));
        drop(greedy);
        other.grow(0);
        assert_eq!(other.excess(), None);
        other.shrink(OWN_BYTES + (1 << 20));
        assert_eq!((other.held(), room.bytes.0.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn above_its_own_bound_a_share_has_no_room_although_the_pool_has() {
        let room = Arc::new(Room::default());
        let mut share = Share::new(&room, 1 << 20);
        share.grow(1 << 20);
        assert_eq!(share.excess(), None);
        share.grow(1);
        assert_eq!(share.excess(), Some(1 << 19));
    }

    #[test]
    fn a_connection_has_places_of_its_own_and_stops_have_a_reserve() {
        let room = Arc::new(Room::default());
        let mut greedy: Vec<_> = (0..5).map(|_| Places::new(&room, 16_384)).collect();
        for places in &mut greedy {
            while places.take(1, 0) {}
        }
        assert_eq!(room.streams.0.load(Ordering::Relaxed), ALL_STREAMS);
        let mut other = Places::new(&room, 16_384);
        let own = std::iter::from_fn(|| other.take(1, 0).then_some(())).count();
        assert_eq!(own, OWN_STREAMS);
        assert!(other.take(1, 10));
        other.give(1);
        drop(greedy);
        assert!(other.take(1, 0));
        other.give(OWN_STREAMS + 1);
        assert_eq!(room.streams.0.load(Ordering::Relaxed), 0);
    }
}
