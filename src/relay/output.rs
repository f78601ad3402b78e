//! The output of the taps: one bounded queue to the observer. When it is full, it drops events and reports it; it never
//! waits.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use crate::tap::TapEvent;

/// 65,536 events: about a tenth of a second of calls at full speed. Events beyond this are dropped and counted; a
/// resync makes up for them.
pub(crate) const MAX_EVENTS: usize = 65_536;

/// 32 MiB of events. Events beyond this are dropped and counted; a resync makes up for them.
pub(crate) const MAX_BYTES: usize = 32 * 1024 * 1024;

/// 4,096 events, and 8 MiB of them, beyond the two bounds: only for the beginnings and ends of stops, and for the ends of
/// connections, because without these the inventory would not learn that a stop begins or is over. Events beyond this are
/// dropped, too; ends are reported separately.
const RESERVE: (usize, usize) = (4_096, 8 * 1024 * 1024);

/// 1,024 events: the capacity that is always kept.
const MIN_ROOM: usize = 1_024;

/// The sending side; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Output(Arc<Shared>);

/// The receiving side.
#[derive(Debug)]
pub(crate) struct Observations {
    shared: Arc<Shared>,
    dropped_before: u64,
}

/// What was dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Missed {
    /// How many events.
    pub events: u64,
    /// Whether ends of stops or of connections were among them.
    pub has_ends: bool,
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
    dropped: u64,
    has_dropped_ends: bool,
}

/// Creates the queue.
pub(crate) fn channel(max_events: usize) -> (Output, Observations) {
    let shared = Arc::new(Shared { queue: Mutex::default(), filled: Notify::new(), max_events });
    (Output(Arc::clone(&shared)), Observations { shared, dropped_before: 0 })
}

impl Output {
    /// Passes events on, and drops those for which there is no room. `events` is empty afterwards.
    pub(crate) fn send(&self, events: &mut Vec<TapEvent>) {
        if events.is_empty() {
            return;
        }
        let mut queue = self.0.queue();
        let was_empty = queue.events.is_empty();
        for event in events.drain(..) {
            let (weight, is_end) = (event.weight(), is_end(&event));
            let reserve = if is_end || begins_stop(&event) { RESERVE } else { (0, 0) };
            if queue.events.len() < self.0.max_events + reserve.0
                && queue.bytes + weight <= MAX_BYTES + reserve.1
            {
                queue.bytes += weight;
                queue.events.push(event);
            } else {
                queue.dropped += 1;
                queue.has_dropped_ends |= is_end;
            }
        }
        drop(queue);
        if was_empty {
            self.0.filled.notify_one();
        }
    }

    /// Events that were dropped so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.0.queue().dropped
    }
}

impl Observations {
    /// Waits for events and puts all of them into the emptied `batch`, whose capacity the queue uses next. Returns what
    /// was dropped since the last call: if this is not empty, there is a gap before or among these events.
    pub(crate) async fn next_batch(&mut self, batch: &mut Vec<TapEvent>) -> Missed {
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
                if !queue.events.is_empty() {
                    mem::swap(&mut queue.events, batch);
                    queue.bytes = 0;
                    let events = queue.dropped - mem::replace(&mut self.dropped_before, queue.dropped);
                    return Missed { events, has_ends: mem::take(&mut queue.has_dropped_ends) };
                }
            }
            filled.await;
        }
    }
}

/// Whether it ends a stop, or a connection with all its calls.
fn is_end(event: &TapEvent) -> bool {
    match event {
        TapEvent::Ended(ended) => ended.call.method.kind.is_stop(),
        TapEvent::Blinded { .. } | TapEvent::Closed { .. } => true,
        TapEvent::Begun(_) | TapEvent::Untracked(_) => false,
    }
}

fn begins_stop(event: &TapEvent) -> bool {
    matches!(event, TapEvent::Begun(call) if call.method.kind.is_stop())
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
        let missed = Missed { events: 3, has_ends: false };
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
        let missed = Missed { events: 3, has_ends: false };
        assert_eq!(observations.next_batch(&mut batch).await, missed);
        assert_eq!(batch.len(), 2 + RESERVE.0);
        output.send(&mut ends(RESERVE.0 as u64 + 4).collect());
        let missed = Missed { events: 2, has_ends: true };
        assert_eq!(observations.next_batch(&mut batch).await, missed);
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
