//! The way out of the taps: one bounded queue to whoever observes. A full queue drops and says so; it never waits.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use crate::tap::Event;

/// 65,536 events: about a tenth of a second of calls at full speed. What comes above is dropped, counted, and mended
/// by a resync.
pub const MAX_EVENTS: usize = 65_536;

/// 32 MiB of events. What comes above is dropped, counted, and mended by a resync.
pub const MAX_BYTES: usize = 32 * 1024 * 1024;

/// 1,024 events: room that is kept however quiet it is.
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

#[derive(Debug)]
struct Shared {
    /// Held for moving a few pointers: a microsecond at most.
    queue: Mutex<Queue>,
    /// Told when the queue is no longer empty.
    filled: Notify,
    max_events: usize,
}

#[derive(Debug, Default)]
struct Queue {
    events: Vec<Event>,
    bytes: usize,
    dropped: u64,
}

/// Makes the queue.
pub fn channel(max_events: usize) -> (Output, Observations) {
    let shared = Arc::new(Shared { queue: Mutex::default(), filled: Notify::new(), max_events });
    (Output(Arc::clone(&shared)), Observations { shared, dropped_before: 0 })
}

impl Output {
    /// Hands events on, and drops those for which there is no room. `events` is empty afterwards.
    pub fn send(&self, events: &mut Vec<Event>) {
        if events.is_empty() {
            return;
        }
        let mut queue = self.0.queue();
        let was_empty = queue.events.is_empty();
        for event in events.drain(..) {
            let weight = event.weight();
            if queue.events.len() < self.0.max_events && queue.bytes + weight <= MAX_BYTES {
                queue.bytes += weight;
                queue.events.push(event);
            } else {
                queue.dropped += 1;
            }
        }
        drop(queue);
        if was_empty {
            self.0.filled.notify_one();
        }
    }

    /// Events that were dropped so far.
    pub fn dropped(&self) -> u64 {
        self.0.queue().dropped
    }
}

impl Observations {
    /// Waits for events and puts all of them into the emptied `batch`, whose room the queue uses next. Returns how
    /// many were dropped since the last call: where that is not 0 there is a gap before these.
    pub async fn next_batch(&mut self, batch: &mut Vec<Event>) -> u64 {
        // After a burst the room goes back, step by step; at a steady pace it stays.
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
                    return queue.dropped - mem::replace(&mut self.dropped_before, queue.dropped);
                }
            }
            filled.await;
        }
    }
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
        output.send(&mut (1..=5).map(|conn| Event::Closed { conn: ConnId(conn) }).collect());
        let mut batch = vec![];
        assert_eq!(observations.next_batch(&mut batch).await, 3);
        assert_eq!(batch.len(), 2);
        output.send(&mut vec![Event::Untracked(1)]);
        assert_eq!(observations.next_batch(&mut batch).await, 0);
        assert_eq!((batch.len(), output.dropped()), (1, 3));
    }

    #[tokio::test]
    async fn the_room_of_a_burst_is_given_back() {
        let (output, mut observations) = channel(MAX_EVENTS);
        let mut batch = vec![];
        let burst = |count| (1..=count).map(|conn| Event::Closed { conn: ConnId(conn) }).collect::<Vec<_>>();
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
        output.send(&mut vec![Event::Untracked(1)]);
        assert_eq!(waiting.await.unwrap(), 1);
    }
}
