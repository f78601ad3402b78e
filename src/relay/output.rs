//! The output of the taps: one bounded queue to the observer. When it is full, it drops events and reports it; it never
//! waits.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use crate::{ids::ConnId, tap::TapEvent};

/// 65,536 events: about a tenth of a second of calls at full speed. Events beyond this are dropped and counted; a
/// resync makes up for them.
pub const MAX_EVENTS: usize = 65_536;

/// 32 MiB of events. Events beyond this are dropped and counted; a resync makes up for them.
pub const MAX_BYTES: usize = 32 * 1024 * 1024;

/// 4,096 events, and 8 MiB of them, beyond the two bounds: only for the beginnings and ends of stops, and for the ends of
/// connections, because without these the inventory would not learn that a stop begins or is over. Events beyond this are
/// dropped, too; ends are reported separately. No connection uses more of it than it leaves free: one alone half, two a
/// third each.
const RESERVE: (usize, usize) = (4_096, 8 * 1024 * 1024);

/// 1,024 connections whose ends were dropped are named. If there are more, the ends of any connection may be missing.
const NAMED: usize = 1_024;

/// 1,024 events: the capacity that is always kept.
const MIN_ROOM: usize = 1_024;

/// The sending side; cheap to clone.
#[derive(Clone, Debug)]
pub struct Output(Arc<Shared>);

/// The receiving side.
#[derive(Debug)]
pub struct Observations {
    shared: Arc<Shared>,
    dropped_before: u64,
}

/// What was dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// How many events.
    pub events: u64,
    /// Which ends of stops and of connections were among them.
    pub ends: LostEnds,
}

/// The connections whose ends, or whose stops' ends, were dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LostEnds {
    /// These.
    Of(BTreeSet<ConnId>),
    /// Possibly any.
    Any,
}

impl Default for LostEnds {
    fn default() -> Self {
        Self::Of(BTreeSet::new())
    }
}

impl LostEnds {
    fn add(&mut self, conn: ConnId) {
        if let Self::Of(connections) = self {
            connections.insert(conn);
            if connections.len() > NAMED {
                *self = Self::Any;
            }
        }
    }
}

#[derive(Debug)]
struct Shared {
    /// Held for moving a few pointers: a microsecond at most.
    queue: Mutex<Queue>,
    /// Notified when the queue is no longer empty.
    filled: Notify,
    max_events: usize,
}

#[derive(Debug, Default)]
struct Queue {
    events: Vec<TapEvent>,
    bytes: usize,
    /// The observer works on events that it has taken.
    is_taken: bool,
    dropped: u64,
    dropped_ends: LostEnds,
    reserve: Reserve,
}

/// What is used of the reserve: events and bytes, in all and by connection. Empty unless the queue is full.
#[derive(Debug, Default)]
struct Reserve {
    used: (usize, usize),
    by_connection: BTreeMap<ConnId, (usize, usize)>,
}

impl Reserve {
    /// Takes room for an event, if the connection leaves as much free as it uses.
    fn take(&mut self, conn: ConnId, weight: usize) -> bool {
        let (events, bytes) = self.by_connection.get(&conn).copied().unwrap_or_default();
        let has_room = events < RESERVE.0 - self.used.0 && bytes + weight <= RESERVE.1 - self.used.1;
        if has_room {
            self.by_connection.insert(conn, (events + 1, bytes + weight));
            self.used = (self.used.0 + 1, self.used.1 + weight);
        }
        has_room
    }
}

/// Creates the queue.
pub fn channel(max_events: usize) -> (Output, Observations) {
    let shared = Arc::new(Shared { queue: Mutex::default(), filled: Notify::new(), max_events });
    (Output(Arc::clone(&shared)), Observations { shared, dropped_before: 0 })
}

impl Output {
    /// Passes events on, and drops those for which there is no room. `events` is empty afterwards.
    pub fn send(&self, events: &mut Vec<TapEvent>) {
        if events.is_empty() {
            return;
        }
        let mut queue = self.0.queue();
        let was_empty = queue.events.is_empty();
        for event in events.drain(..) {
            let weight = event.weight();
            let (events, bytes) = (queue.events.len() - queue.reserve.used.0, queue.bytes + weight);
            if events < self.0.max_events && bytes <= MAX_BYTES {
                queue.bytes = bytes;
                queue.events.push(event);
                continue;
            }
            let of_stop = of_stop(&event);
            if of_stop.is_some_and(|(conn, _)| queue.reserve.take(conn, weight)) {
                queue.events.push(event);
                continue;
            }
            queue.dropped += 1;
            if let Some((conn, true)) = of_stop {
                queue.dropped_ends.add(conn);
            }
        }
        drop(queue);
        if was_empty {
            self.0.filled.notify_one();
        }
    }

    /// Whether the observer has worked off all events.
    pub fn is_worked_off(&self) -> bool {
        let queue = self.0.queue();
        queue.events.is_empty() && !queue.is_taken
    }

    /// Events that were dropped so far.
    pub fn dropped(&self) -> u64 {
        self.0.queue().dropped
    }
}

impl Observations {
    /// Waits for events and puts all of them into the emptied `batch`, whose capacity the queue uses next. Returns what
    /// was dropped since the last call: if this is not empty, there is a gap before or among these events.
    pub async fn next_batch(&mut self, batch: &mut Vec<TapEvent>) -> Missed {
        // After a burst, the capacity shrinks step by step; at a steady rate it stays.
        if batch.capacity() > MIN_ROOM && batch.len() < batch.capacity() / 8 {
            batch.clear();
            batch.shrink_to(batch.capacity() / 2);
        }
        batch.clear();
        loop {
            let filled = self.shared.filled.notified();
            {
                let mut queue = self.shared.queue();
                queue.is_taken = !queue.events.is_empty();
                if queue.is_taken {
                    mem::swap(&mut queue.events, batch);
                    queue.bytes = 0;
                    queue.reserve = Reserve::default();
                    let events = queue.dropped - mem::replace(&mut self.dropped_before, queue.dropped);
                    return Missed { events, ends: mem::take(&mut queue.dropped_ends) };
                }
            }
            filled.await;
        }
    }
}

/// The connection of an event that begins or ends a stop, or ends a connection with all its calls, and whether it is an
/// end.
fn of_stop(event: &TapEvent) -> Option<(ConnId, bool)> {
    let (call, is_end) = match event {
        TapEvent::Begun(call) | TapEvent::Resumed(call) => (call, false),
        TapEvent::Ended(ended) => (&ended.call, true),
        TapEvent::Blinded { conn, .. } | TapEvent::Closed { conn } => return Some((*conn, true)),
        TapEvent::Untracked(_) => return None,
    };
    call.method.kind.is_stop().then_some((call.origin.conn, is_end))
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ConnId;

    #[tokio::test]
    async fn what_finds_no_room_is_a_gap_that_is_told_once() {
        let (output, mut observations) = channel(2);
        output.send(&mut (1..=5).map(TapEvent::Untracked).collect());
        let mut batch = vec![];
        let missed = Missed { events: 3, ..Missed::default() };
        assert_eq!(observations.next_batch(&mut batch).await, missed);
        assert_eq!(batch.len(), 2);
        output.send(&mut vec![TapEvent::Untracked(1)]);
        assert_eq!(observations.next_batch(&mut batch).await, Missed::default());
        assert_eq!((batch.len(), output.dropped()), (1, 3));
    }

    #[tokio::test]
    async fn an_end_finds_room_where_others_find_none_until_that_is_full_too() {
        let (output, mut observations) = channel(2);
        let mut batch = vec![];
        let ends = |count| (0..count).map(|conn| TapEvent::Closed { conn: ConnId(conn) });
        output.send(&mut (1..=5).map(TapEvent::Untracked).chain(ends(RESERVE.0 as u64)).collect());
        let missed = Missed { events: 3, ..Missed::default() };
        assert_eq!(observations.next_batch(&mut batch).await, missed);
        assert_eq!(batch.len(), 2 + RESERVE.0);
        let most = RESERVE.0 as u64;
        output.send(&mut ends(most + 4).collect());
        let ends_of = |connections| LostEnds::Of(connections);
        let missed = Missed { events: 2, ends: ends_of([most + 2, most + 3].map(ConnId).into()) };
        assert_eq!(observations.next_batch(&mut batch).await, missed);
        output.send(&mut ends(most + 2 + NAMED as u64 + 1).collect());
        assert_eq!(observations.next_batch(&mut batch).await.ends, LostEnds::Any);
    }

    #[tokio::test]
    async fn a_connection_leaves_room_in_the_reserve_for_others() {
        let (output, mut observations) = channel(0);
        let mut batch = vec![];
        let closed = |conn| TapEvent::Closed { conn: ConnId(conn) };
        // Two that flood, and one with a few; however often they take turns.
        output.send(&mut (0..RESERVE.0).flat_map(|_| [closed(1), closed(2)]).collect());
        output.send(&mut (0..100).map(|_| closed(3)).collect());
        let missed = observations.next_batch(&mut batch).await;
        let of = |id| {
            batch.iter().filter(|event| matches!(event, TapEvent::Closed { conn } if conn.0 == id)).count()
        };
        assert_eq!(of(3), 100, "the others have {} and {}", of(1), of(2));
        assert_eq!(missed.ends, LostEnds::Of([1, 2].map(ConnId).into()));
        output.send(&mut vec![closed(1)]);
        assert_eq!(observations.next_batch(&mut batch).await, Missed::default(), "it is free again");
    }

    #[tokio::test]
    async fn the_room_of_a_burst_is_given_back() {
        let (output, mut observations) = channel(MAX_EVENTS);
        let mut batch = vec![];
        let burst =
            |count| (1..=count).map(|conn| TapEvent::Closed { conn: ConnId(conn) }).collect::<Vec<_>>();
        for _ in 0..2 {
            output.send(&mut burst(50_000));
            observations.next_batch(&mut batch).await;
        }
        for _ in 0..40 {
            output.send(&mut burst(1));
            observations.next_batch(&mut batch).await;
        }
        assert!(batch.capacity() <= MIN_ROOM, "{}", batch.capacity());
        output.send(&mut burst(1));
        observations.next_batch(&mut batch).await;
        assert!(batch.capacity() <= MIN_ROOM, "{}", batch.capacity());
    }

    #[tokio::test]
    async fn whoever_waits_is_woken() {
        let (output, mut observations) = channel(2);
        let waiting = tokio::spawn(async move {
            let mut batch = vec![];
            observations.next_batch(&mut batch).await;
            batch.len()
        });
        tokio::task::yield_now().await;
        output.send(&mut vec![TapEvent::Untracked(1)]);
        assert_eq!(waiting.await.unwrap(), 1);
    }
}
