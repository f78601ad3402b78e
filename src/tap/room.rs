//! Counts what taps keep: of one connection, and of all of them together. Each connection has some room of its own, so that
//! others cannot use up all of it. Pure.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// 12 MiB of details of open calls and of header tables are kept for all connections together, beyond what each has of
/// its own. Above that, the largest details of the connection that needs more are dropped; if its header tables need
/// more, it goes blind.
const ALL_BYTES: usize = 12 << 20;

/// 4,096 streams of all connections are tracked, beyond those that are a connection's own. Calls beyond that are not
/// seen, but counted. With all that belongs to it, a stream takes about 1 KiB.
const ALL_STREAMS: usize = 4_096;

/// 256 connections have as much of their own as usual clients need, so that others cannot take it from them. Further ones
/// have less: memory is bounded, however many connections there are.
const FIRST: usize = 256;

/// What is a connection's own, of each of the purposes.
#[derive(Clone, Copy, Debug)]
struct Own {
    details: usize,
    tables: usize,
    streams: usize,
}

/// 8 KiB of each kind of details, 8 KiB of header tables (a kubelet's take 3 KiB) and 32 streams: of the first
/// connections. That makes 64 KiB, and 16 MiB for 256 of them.
const USUAL: Own = Own { details: 8 << 10, tables: 8 << 10, streams: 32 };

/// 1 KiB, 8 KiB and 4 streams: of further ones. That makes 15 KiB.
const SMALL: Own = Own { details: 1 << 10, tables: 8 << 10, streams: 4 };

/// What the taps of all connections share.
#[derive(Debug, Default)]
pub(crate) struct Room {
    bytes: Pool,
    streams: Pool,
    connections: Pool,
}

/// One connection's place in a room, from its beginning until it ends or goes blind.
#[derive(Debug)]
pub(super) struct Seat {
    room: Arc<Room>,
    own: Own,
    is_usual: bool,
}

impl Seat {
    /// For a connection that was just accepted.
    pub(super) fn new(room: &Arc<Room>) -> Self {
        let is_usual = room.connections.take(1, FIRST);
        Self { room: Arc::clone(room), own: if is_usual { USUAL } else { SMALL }, is_usual }
    }

    /// The share of its header tables, and of fields that are not complete.
    pub(super) fn tables(&self) -> Share {
        Share::new(&self.room, self.own.tables, MAX_TABLES)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.is_usual {
            self.room.connections.give(1);
        }
    }
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

/// 1 MiB of header tables and of fields that are not complete is kept for one connection, whatever was announced.
const MAX_TABLES: usize = 1 << 20;

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
    pub(super) fn new(seat: &Seat) -> Self {
        let share = |most| Share::new(&seat.room, seat.own.details, most);
        Self { commands: share(MAX_COMMANDS), arriving: share(MAX_ARRIVING), creations: share(MAX_CREATIONS) }
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
    own: usize,
    most: usize,
}

impl Share {
    fn new(room: &Arc<Room>, own: usize, most: usize) -> Self {
        Self { room: Arc::clone(room), held: 0, taken: 0, own, most }
    }

    /// Counts this many bytes instead of those before. Returns whether there is room for them.
    pub(super) fn set(&mut self, bytes: usize) -> bool {
        match bytes.checked_sub(self.held) {
            Some(0) => {}
            Some(more) => self.grow(more),
            None => self.shrink(self.held - bytes),
        }
        self.excess().is_none()
    }

    /// Counts more bytes.
    pub(super) fn grow(&mut self, bytes: usize) {
        self.held += bytes;
        let missing = self.held.saturating_sub(self.own + self.taken);
        if missing > 0 && self.held <= self.most && self.room.bytes.take(missing, ALL_BYTES) {
            self.taken += missing;
        }
    }

    /// Counts fewer bytes.
    pub(super) fn shrink(&mut self, bytes: usize) {
        // After a panic of ours, the count may be wrong.
        self.held = self.held.saturating_sub(bytes);
        let spare = self.taken.saturating_sub(self.held.saturating_sub(self.own));
        if spare > 0 {
            self.taken -= spare;
            self.room.bytes.give(spare);
        }
    }

    /// If more is held than there is room for: how much may stay. That is half of the room, so that this is rare.
    pub(super) fn excess(&self) -> Option<usize> {
        let room = self.own + self.taken;
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
    own: usize,
    most: usize,
}

impl Places {
    /// At most so many.
    pub(super) fn new(seat: &Seat, most: usize) -> Self {
        Self { room: Arc::clone(&seat.room), held: 0, own: seat.own.streams, most }
    }

    /// Takes places; with a reserve, also beyond the bounds. Returns whether there were as many.
    pub(super) fn take(&mut self, places: usize, reserve: usize) -> bool {
        let shared = self.shared(self.held + places) - self.shared(self.held);
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
        let spare = self.shared(self.held) - self.shared(left);
        if spare > 0 {
            self.room.streams.give(spare);
        }
        self.held = left;
    }
}

impl Places {
    /// How many of so many streams are not the connection's own.
    fn shared(&self, streams: usize) -> usize {
        streams.saturating_sub(self.own)
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        self.room.streams.give(self.shared(self.held));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(room: &Arc<Room>, most: usize) -> Share {
        Share::new(room, USUAL.details, most)
    }

    #[test]
    fn a_connection_keeps_its_own_room_whatever_others_hold() {
        let room = Arc::new(Room::default());
        let mut greedy: Vec<_> = (0..8).map(|_| share(&room, 4 << 20)).collect();
        for share in &mut greedy {
            share.grow(4 << 20);
        }
        let over: Vec<_> = greedy.iter().map(|share| share.excess().is_some()).collect();
        assert_eq!(over, [false, false, false, true, true, true, true, true]);
        let mut other = share(&room, 4 << 20);
        other.grow(USUAL.details);
        assert_eq!(other.excess(), None);
        other.grow(1 << 20);
        assert!(other.excess().is_some_and(|may_stay| may_stay >= USUAL.details / 2));
        drop(greedy);
        other.grow(0);
        assert_eq!(other.excess(), None);
        other.shrink(USUAL.details + (1 << 20));
        assert_eq!((other.held(), room.bytes.0.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn above_its_own_bound_a_share_has_no_room_although_the_pool_has() {
        let room = Arc::new(Room::default());
        let mut share = share(&room, 1 << 20);
        share.grow(1 << 20);
        assert_eq!(share.excess(), None);
        share.grow(1);
        assert_eq!(share.excess(), Some(1 << 19));
        assert!(share.set(1 << 20) && !share.set((1 << 20) + 1) && share.set(0));
        assert_eq!(room.bytes.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_connection_has_places_of_its_own_and_stops_have_a_reserve() {
        let room = Arc::new(Room::default());
        let seats: Vec<_> = (0..6).map(|_| Seat::new(&room)).collect();
        let mut greedy: Vec<_> = seats.iter().skip(1).map(|seat| Places::new(seat, 4_096)).collect();
        for places in &mut greedy {
            while places.take(1, 0) {}
        }
        assert_eq!(room.streams.0.load(Ordering::Relaxed), ALL_STREAMS);
        let mut other = Places::new(&seats[0], 4_096);
        let own = std::iter::from_fn(|| other.take(1, 0).then_some(())).count();
        assert_eq!(own, USUAL.streams);
        assert!(other.take(1, 10));
        other.give(1);
        drop(greedy);
        assert!(other.take(1, 0));
        other.give(USUAL.streams + 1);
        assert_eq!(room.streams.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_first_connections_have_more_of_their_own_and_leave_it_to_others() {
        let room = Arc::new(Room::default());
        let mut seats: Vec<_> = (0..FIRST + 2).map(|_| Seat::new(&room)).collect();
        let usual = |seats: &[Seat]| seats.iter().filter(|seat| seat.is_usual).count();
        assert_eq!((usual(&seats), seats[FIRST].is_usual), (FIRST, false));
        seats.pop();
        assert!(!Seat::new(&room).is_usual, "a small one leaves nothing");
        seats.remove(0);
        assert!(Seat::new(&room).is_usual);
    }
}
