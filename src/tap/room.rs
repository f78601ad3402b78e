//! Counts what taps keep: of one connection, and of all of them together. Each connection has some room of its own, so that
//! others cannot use up all of it. Pure.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use super::cri::CallKind;
use crate::{carry::carried, peer::Peer};

/// 12 MiB of details of open calls and of header tables are kept for all connections together, beyond what each has of
/// its own. Above that, the largest details of the connection that needs more are dropped; if its header tables need
/// more, it goes blind.
const ALL_BYTES: usize = 12 << 20;

/// 4,096 streams of all connections are tracked, beyond those that are a connection's own. Calls beyond that are not
/// seen, but counted. With all that belongs to it, a stream takes at most about 1 KiB.
const ALL_STREAMS: usize = 4_096;

/// 4,096 stops and removals of all connections are tracked, beyond those that are a connection's own. No connection takes
/// more of them than it leaves free. Further ones are counted among the other streams.
const ALL_STOPS: usize = 4_096;

/// 4,096 streams of one connection are tracked at once. Calls beyond that are not seen, but counted, and a resync follows.
pub(super) const MAX_STREAMS: usize = 4_096;

/// 2,048 streams beyond that only for calls that create, start, stop or remove something, and as many stops and removals
/// apart from them: calls of other kinds cannot keep these from being seen.
pub(super) const RESERVE: usize = 2_048;

/// 64 busy connections have a seat, and with it as much of their own as usual clients need, so that others cannot take it
/// from them. No process has more seats than it leaves free. Connections without a seat have less: memory is bounded,
/// however many there are.
const SEATS: usize = 64;

/// What is a connection's own, of each of the purposes.
#[derive(Clone, Copy, Debug)]
struct Own {
    details: usize,
    streams: usize,
    stops: usize,
}

/// With a seat: 8 KiB of each kind of details, 32 streams, and 512 stops and removals, which is more than a kubelet that
/// drains its node makes at once. That makes 568 KiB, and 36 MiB for 64 of them.
const SEATED: Own = Own { details: 8 << 10, streams: 32, stops: 512 };

/// Without: 1 KiB of each kind of details, 4 streams, and 16 stops and removals. That makes 23 KiB.
const SMALL: Own = Own { details: 1 << 10, streams: 4, stops: 16 };

/// 8 KiB of header tables are each connection's own; a kubelet's take 3 KiB.
const TABLES: usize = 8 << 10;

/// What the taps of all connections share.
#[derive(Debug, Default)]
pub struct Room {
    bytes: Pool,
    streams: Pool,
    stops: Pool,
    /// Held for a look into a map of at most 64 processes, and only where a connection becomes busy or idle.
    seats: Mutex<Seats>,
    /// Whether requests that create containers are kept as they came, until their calls end.
    keeps_requests: Arc<AtomicBool>,
    /// Whether the beginnings of what commands print are kept: half a KiB for each call that is open.
    keeps_outputs: Arc<AtomicBool>,
}

/// The seats that are taken.
#[derive(Debug, Default)]
struct Seats {
    taken: usize,
    by_process: BTreeMap<i32, usize>,
}

impl Room {
    /// Nothing is taken. Requests that create containers are kept as they came while the first switch is on, and the
    /// beginnings of what commands print while the second is.
    pub fn new(keeps_requests: Arc<AtomicBool>, keeps_outputs: Arc<AtomicBool>) -> Self {
        Self { keeps_requests, keeps_outputs, ..Self::default() }
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seats {
    /// Takes a seat, if the process leaves as many free as it has.
    fn take(&mut self, process: i32) -> bool {
        let of_process = self.by_process.get(&process).copied().unwrap_or_default();
        let is_free = of_process < SEATS - self.taken;
        if is_free {
            self.by_process.insert(process, of_process + 1);
            self.taken += 1;
        }
        is_free
    }

    fn give(&mut self, process: i32) {
        let Some(of_process) = self.by_process.get_mut(&process) else { return };
        *of_process -= 1;
        self.taken -= 1;
        if *of_process == 0 {
            self.by_process.remove(&process);
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
        if count > 0 {
            self.0.fetch_sub(count, Ordering::Relaxed);
        }
    }
}

/// 1 MiB of the commands of open calls are kept for one connection. Above that, the longest commands are dropped, of
/// equal ones the oldest, until half is left: these calls end without details.
pub(super) const MAX_COMMANDS: usize = 1 << 20;

/// 4 MiB of requests that create something, and are still arriving, are kept for one connection. Above that, the largest
/// are dropped in the same way; a resync makes up for them.
pub(super) const MAX_ARRIVING: usize = 4 << 20;

/// 2 MiB of what open calls create are kept for one connection. Above that, the requests that are kept as they came are
/// dropped first: the runtime is asked for these configurations. Then, the largest of the others are dropped in the same
/// way; a resync makes up for them when the calls end.
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
    /// That of a connection's header tables, and of fields that are not complete.
    pub(super) fn of_tables(room: &Arc<Room>) -> Self {
        Self::new(room, TABLES, MAX_TABLES)
    }

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

    /// So many bytes are the connection's own from now on.
    fn set_own(&mut self, own: usize) {
        self.own = own;
        self.shrink(0);
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

/// What one connection keeps of its calls: streams, and bytes of their details.
#[derive(Debug)]
pub(super) struct Allowance {
    room: Arc<Room>,
    process: i32,
    has_seat: bool,
    streams: Places,
    stops: Places,
    commands: Share,
    arriving: Share,
    creations: Share,
}

/// The places of one stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    places: usize,
    /// Whether they are among those of stops and removals.
    is_stop: bool,
}

carried! { struct Taken { places, is_stop } }

impl Taken {
    /// How many.
    pub(super) fn places(self) -> usize {
        self.places
    }
}

impl Allowance {
    /// Of a connection that was just accepted. It has no seat before it needs one.
    pub(super) fn new(room: &Arc<Room>, peer: &Peer) -> Self {
        let share = |most| Share::new(room, SMALL.details, most);
        Self {
            room: Arc::clone(room),
            process: peer.pid,
            has_seat: false,
            streams: Places { held: 0, own: SMALL.streams },
            stops: Places { held: 0, own: SMALL.stops },
            commands: share(MAX_COMMANDS),
            arriving: share(MAX_ARRIVING),
            creations: share(MAX_CREATIONS),
        }
    }

    /// Takes places for the stream of a call of this kind; `None` if there are not as many.
    pub(super) fn take(&mut self, kind: CallKind, places: usize) -> Option<Taken> {
        if kind.is_stop() {
            if self.stops.held + places > SMALL.stops {
                self.take_seat();
            }
            // So that it leaves as many free as it has.
            let all = ALL_STOPS.saturating_sub(self.stops.shared(self.stops.held + places));
            if self.stops.take(places, RESERVE, &self.room.stops, all) {
                return Some(Taken { places, is_stop: true });
            }
        }
        if self.streams.held + places > SMALL.streams || kind.keeps_details() {
            self.take_seat();
        }
        let reserve = if kind.is_mutating() { RESERVE } else { 0 };
        let (most, all) = (MAX_STREAMS + reserve, ALL_STREAMS + reserve);
        let is_taken = self.streams.take(places, most, &self.room.streams, all);
        is_taken.then_some(Taken { places, is_stop: false })
    }

    /// Gives the places of a stream back.
    pub(super) fn give(&mut self, Taken { places, is_stop }: Taken) {
        if is_stop {
            self.stops.give(places, &self.room.stops);
        } else {
            self.streams.give(places, &self.room.streams);
        }
    }

    /// No stream is open: the connection needs no seat.
    pub(super) fn rest(&mut self) {
        if std::mem::take(&mut self.has_seat) {
            self.set_own(SMALL);
            self.room.seats().give(self.process);
        }
    }

    /// Whether requests that create containers are kept as they came.
    pub(super) fn keeps_requests(&self) -> bool {
        self.room.keeps_requests.load(Ordering::Relaxed)
    }

    /// Whether the beginnings of what commands print are kept.
    pub(super) fn keeps_outputs(&self) -> bool {
        self.room.keeps_outputs.load(Ordering::Relaxed)
    }

    /// The bytes of a purpose.
    pub(super) fn share(&mut self, purpose: Purpose) -> &mut Share {
        match purpose {
            Purpose::Command => &mut self.commands,
            Purpose::Arriving => &mut self.arriving,
            Purpose::Creation => &mut self.creations,
        }
    }

    /// All bytes that are counted.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.commands.held + self.arriving.held + self.creations.held
    }

    fn take_seat(&mut self) {
        if !self.has_seat && self.room.seats().take(self.process) {
            self.has_seat = true;
            self.set_own(SEATED);
        }
    }

    fn set_own(&mut self, own: Own) {
        self.streams.set_own(own.streams, &self.room.streams);
        self.stops.set_own(own.stops, &self.room.stops);
        for share in [&mut self.commands, &mut self.arriving, &mut self.creations] {
            share.set_own(own.details);
        }
    }
}

impl Drop for Allowance {
    fn drop(&mut self) {
        self.streams.give(self.streams.held, &self.room.streams);
        self.stops.give(self.stops.held, &self.room.stops);
        self.rest();
    }
}

/// The streams of one sort that one connection has open.
#[derive(Debug)]
struct Places {
    held: usize,
    own: usize,
}

impl Places {
    /// Takes places: of the connection's own, and what is missing from the pool. Returns whether there were as many.
    fn take(&mut self, places: usize, most: usize, pool: &Pool, all: usize) -> bool {
        let shared = self.shared(self.held + places) - self.shared(self.held);
        if self.held + places > most || (shared > 0 && !pool.take(shared, all)) {
            return false;
        }
        self.held += places;
        true
    }

    fn give(&mut self, places: usize, pool: &Pool) {
        let left = self.held.saturating_sub(places);
        pool.give(self.shared(self.held) - self.shared(left));
        self.held = left;
    }

    /// So many are the connection's own from now on: no fewer than before, unless it holds none.
    fn set_own(&mut self, own: usize, pool: &Pool) {
        let before = self.shared(self.held);
        self.own = own;
        pool.give(before.saturating_sub(self.shared(self.held)));
    }

    /// How many of so many streams are not the connection's own.
    fn shared(&self, streams: usize) -> usize {
        streams.saturating_sub(self.own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(room: &Arc<Room>, most: usize) -> Share {
        Share::new(room, SEATED.details, most)
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
        other.grow(SEATED.details);
        assert_eq!(other.excess(), None);
        other.grow(1 << 20);
        assert!(other.excess().is_some_and(|may_stay| may_stay >= SEATED.details / 2));
        drop(greedy);
        other.grow(0);
        assert_eq!(other.excess(), None);
        other.shrink(SEATED.details + (1 << 20));
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

    fn allowance(room: &Arc<Room>, process: i32) -> Allowance {
        Allowance::new(room, &Peer { pid: process, ..Peer::default() })
    }

    /// Takes as many places as there are, and at most so many.
    fn take(allowance: &mut Allowance, kind: CallKind, most: usize) -> usize {
        (0..most).take_while(|_| allowance.take(kind, 1).is_some()).count()
    }

    #[test]
    fn a_connection_has_places_of_its_own_and_stops_have_a_reserve() {
        let room = Arc::new(Room::default());
        let mut other = allowance(&room, 2);
        let mut greedy: Vec<_> = (0..5).map(|_| allowance(&room, 1)).collect();
        for allowance in &mut greedy {
            take(allowance, CallKind::ExecSync, usize::MAX);
        }
        assert_eq!(room.streams.0.load(Ordering::Relaxed), ALL_STREAMS);
        assert_eq!(take(&mut other, CallKind::ExecSync, usize::MAX), SEATED.streams);
        assert_eq!(take(&mut other, CallKind::StopContainer, 100), 100);
        let taken = other.take(CallKind::StopContainer, 1).expect("there is a place");
        other.give(taken);
        drop(greedy);
        assert!(other.take(CallKind::ExecSync, 1).is_some());
        drop(other);
        assert_eq!(room.streams.0.load(Ordering::Relaxed), 0);
        assert_eq!(room.stops.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn row_12_no_connection_takes_more_stops_than_it_leaves_free_and_each_has_its_own() {
        let room = Arc::new(Room::default());
        let mut greedy: Vec<_> = (0..3).map(|_| allowance(&room, 1)).collect();
        let taken: Vec<_> =
            greedy.iter_mut().map(|one| take(one, CallKind::RemoveContainer, usize::MAX)).collect();
        // Each has its own 512, and 1,536 of those that all share as long as as many are free; the rest are other streams.
        assert_eq!(room.stops.0.load(Ordering::Relaxed), 1_536 + 1_280 + 640);
        assert_eq!(taken.iter().sum::<usize>(), 3 * 512 + 3_456 + 3 * 32 + ALL_STREAMS + RESERVE);
        let mut other = allowance(&room, 2);
        assert_eq!(take(&mut other, CallKind::StopContainer, usize::MAX), 512 + 320 + 32);
        drop((greedy, other));
        assert_eq!(room.stops.0.load(Ordering::Relaxed), 0);
        assert_eq!(room.streams.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn only_busy_connections_have_seats_and_no_process_has_more_than_it_leaves_free() {
        let room = Arc::new(Room::default());
        let seats = || room.seats().taken;
        let idle: Vec<_> = (0..1_000).map(|_| allowance(&room, 1)).collect();
        let mut quiet = allowance(&room, 1);
        take(&mut quiet, CallKind::Other, SMALL.streams);
        take(&mut quiet, CallKind::StopContainer, SMALL.stops);
        assert_eq!(seats(), 0, "a few calls need none");
        let busy = |process: i32| {
            let mut allowance = allowance(&room, process);
            allowance.take(CallKind::ExecSync, 1);
            allowance
        };
        let first: Vec<_> = (0..100).map(|_| busy(1)).collect();
        assert_eq!(seats(), SEATS / 2);
        let second: Vec<_> = (0..100).map(|_| busy(2)).collect();
        assert_eq!(seats(), SEATS / 2 + SEATS / 4);
        let mut other = busy(3);
        assert!(other.has_seat);
        drop((first, second));
        assert_eq!(seats(), 1);
        other.give(Taken { places: 1, is_stop: false });
        other.rest();
        assert_eq!((seats(), other.has_seat), (0, false));
        drop(idle);
    }

    #[test]
    fn row_12_without_a_seat_a_connection_has_some_stops_of_its_own() {
        let room = Arc::new(Room::default());
        let mut greedy: Vec<_> = (0..200).map(|process| allowance(&room, process)).collect();
        for allowance in &mut greedy {
            take(allowance, CallKind::StopContainer, usize::MAX);
        }
        assert_eq!(room.seats().taken, SEATS);
        assert!(take(&mut allowance(&room, 1_000), CallKind::StopContainer, usize::MAX) >= SMALL.stops);
    }
}
