//! The way out of the taps: one bounded queue to whoever observes. A full queue drops and says so; it never waits.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use tokio::sync::mpsc;

use crate::tap::Event;

/// 65,536 events: about a second of calls at full speed. What comes above is dropped, counted, and mended by a resync.
pub const MAX_EVENTS: usize = 65_536;

/// 32 MiB of events. What comes above is dropped, counted, and mended by a resync.
pub const MAX_BYTES: usize = 32 * 1024 * 1024;

/// The sending side; cheap to clone.
#[derive(Clone, Debug)]
pub struct Output {
    queue: mpsc::Sender<Event>,
    gauge: Arc<Gauge>,
}

/// What stands in the queue, and what did not find room.
#[derive(Debug, Default)]
struct Gauge {
    bytes: AtomicUsize,
    dropped: AtomicU64,
}

/// The receiving side.
#[derive(Debug)]
pub struct Observations {
    queue: mpsc::Receiver<Event>,
    gauge: Arc<Gauge>,
    dropped_before: u64,
}

/// Makes the queue.
pub fn channel(max_events: usize) -> (Output, Observations) {
    let (sender, receiver) = mpsc::channel(max_events);
    let gauge = Arc::new(Gauge::default());
    (
        Output { queue: sender, gauge: Arc::clone(&gauge) },
        Observations { queue: receiver, gauge, dropped_before: 0 },
    )
}

impl Output {
    /// Hands an event on, or drops it where there is no room.
    pub fn send(&self, event: Event) {
        let weight = event.weight();
        let before = self.gauge.bytes.fetch_add(weight, Ordering::Relaxed);
        if before + weight > MAX_BYTES || self.queue.try_send(event).is_err() {
            self.gauge.bytes.fetch_sub(weight, Ordering::Relaxed);
            self.gauge.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Events that were dropped so far.
    pub fn dropped(&self) -> u64 {
        self.gauge.dropped.load(Ordering::Relaxed)
    }
}

impl Observations {
    /// Waits for events and puts up to `limit` of them into the emptied `batch`. Returns how many were dropped since the last
    /// call: where that is not 0 there is a gap before these. `None` when no tap is left.
    pub async fn next_batch(&mut self, batch: &mut Vec<Event>, limit: usize) -> Option<u64> {
        batch.clear();
        if self.queue.recv_many(batch, limit).await == 0 {
            return None;
        }
        let weight: usize = batch.iter().map(Event::weight).sum();
        self.gauge.bytes.fetch_sub(weight, Ordering::Relaxed);
        let dropped = self.gauge.dropped.load(Ordering::Relaxed);
        Some(dropped - std::mem::replace(&mut self.dropped_before, dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ConnId;

    #[tokio::test]
    async fn what_finds_no_room_is_a_gap_that_is_told_once() {
        let (output, mut observations) = channel(2);
        for conn in 1..=5 {
            output.send(Event::Closed { conn: ConnId(conn) });
        }
        let mut batch = vec![];
        assert_eq!(observations.next_batch(&mut batch, 10).await, Some(3));
        assert_eq!(batch.len(), 2);
        output.send(Event::Untracked(1));
        assert_eq!(observations.next_batch(&mut batch, 10).await, Some(0));
        drop(output);
        assert_eq!(observations.next_batch(&mut batch, 10).await, None);
    }
}
