//! Keeps the newest records, and passes new ones to whoever follows. Records go in from a stage and come out in
//! order; whoever writes is never slowed by whoever reads.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::broadcast::{self, error::RecvError};

/// A handle on one journal; clones are the same journal.
#[derive(Debug)]
pub struct Journal<T: ?Sized> {
    shared: Arc<Shared<T>>,
}

#[derive(Debug)]
struct Shared<T: ?Sized> {
    /// Held for one push, or for copying the pointers of what is kept: microseconds. Orders pushes for followers.
    kept: Mutex<VecDeque<Arc<T>>>,
    /// How many are kept; a newer record then replaces the oldest.
    capacity: usize,
    live: broadcast::Sender<Arc<T>>,
}

/// 1,024 records: how far a follower may fall behind. One further behind loses the oldest, and is told how many.
const BACKLOG: usize = 1_024;

impl<T: Send + Sync + ?Sized> Journal<T> {
    /// An empty journal that keeps the newest `capacity` records.
    pub fn new(capacity: usize) -> Self {
        let kept = Mutex::new(VecDeque::new());
        Self { shared: Arc::new(Shared { kept, capacity, live: broadcast::Sender::new(BACKLOG) }) }
    }

    /// Adds a record. Never waits for a reader, never fails.
    pub fn push(&self, record: impl Into<Arc<T>>) {
        let record = record.into();
        let mut kept = self.kept();
        if kept.len() >= self.shared.capacity {
            kept.pop_front();
        }
        if self.shared.capacity > 0 {
            kept.push_back(Arc::clone(&record));
        }
        if self.shared.live.receiver_count() > 0 {
            // An error means that the last follower has just left.
            let _ = self.shared.live.send(record);
        }
    }

    /// The newest `count` of those that are kept, oldest first.
    pub fn last(&self, count: usize) -> Vec<Arc<T>> {
        newest(&self.kept(), count)
    }

    /// All records pushed from now on.
    pub fn follow(&self) -> Follower<T> {
        self.follow_after(0).1
    }

    /// The newest `count`, and all that come after them: none twice, none left out between.
    pub fn follow_after(&self, count: usize) -> (Vec<Arc<T>>, Follower<T>) {
        let kept = self.kept();
        (newest(&kept, count), Follower { live: self.shared.live.subscribe() })
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<Arc<T>>> {
        self.shared.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Clone for Journal<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

/// Reads a journal as it is written.
#[derive(Debug)]
pub struct Follower<T: ?Sized> {
    live: broadcast::Receiver<Arc<T>>,
}

/// What a follower gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry<T: ?Sized> {
    /// The next record.
    Record(Arc<T>),
    /// So many records were lost here: this follower fell too far behind.
    Missed(u64),
}

impl<T: Send + Sync + ?Sized> Follower<T> {
    /// Waits for the next entry; `None` when the journal is gone. Loses nothing when it is cancelled.
    pub async fn next(&mut self) -> Option<Entry<T>> {
        match self.live.recv().await {
            Ok(record) => Some(Entry::Record(record)),
            Err(RecvError::Lagged(missed)) => Some(Entry::Missed(missed)),
            Err(RecvError::Closed) => None,
        }
    }
}

fn newest<T: ?Sized>(kept: &VecDeque<Arc<T>>, count: usize) -> Vec<Arc<T>> {
    kept.range(kept.len().saturating_sub(count)..).map(Arc::clone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(records: &[Arc<u64>]) -> Vec<u64> {
        records.iter().map(|record| **record).collect()
    }

    #[test]
    fn the_newest_are_kept_oldest_first() {
        let journal = Journal::new(3);
        assert!(journal.last(10).is_empty());
        for n in 1..=5 {
            journal.push(n);
        }
        assert_eq!(values(&journal.last(10)), [3, 4, 5]);
        assert_eq!(values(&journal.last(2)), [4, 5]);
        assert!(journal.last(0).is_empty());
        let none = Journal::new(0);
        none.push(1);
        assert!(none.last(1).is_empty());
    }

    #[tokio::test]
    async fn a_follower_gets_what_is_kept_and_then_what_comes() {
        let journal = Journal::new(2);
        for n in 1..=3 {
            journal.push(n);
        }
        let (kept, mut follower) = journal.follow_after(5);
        journal.push(4);
        assert_eq!(values(&kept), [2, 3]);
        assert_eq!(follower.next().await, Some(Entry::Record(Arc::new(4))));
        drop(journal);
        assert_eq!(follower.next().await, None);
    }

    #[tokio::test]
    async fn a_follower_that_falls_behind_learns_how_many_it_missed() {
        let journal = Journal::new(1);
        let mut follower = journal.follow();
        let pushed = BACKLOG as u64 + 10;
        for n in 0..pushed {
            journal.push(n);
        }
        assert_eq!(follower.next().await, Some(Entry::Missed(10)));
        assert_eq!(follower.next().await, Some(Entry::Record(Arc::new(10))));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn records_neither_repeat_nor_vanish_between_the_kept_and_the_live() {
        let journal = Journal::new(1_000);
        let writer = journal.clone();
        let writing = tokio::task::spawn_blocking(move || (0..800).for_each(|n| writer.push(n)));
        let (kept, mut follower) = journal.follow_after(1_000);
        let mut seen = values(&kept);
        while seen.len() < 800 {
            let Some(Entry::Record(record)) = follower.next().await else { panic!("a record is missing") };
            seen.push(*record);
        }
        writing.await.unwrap();
        assert_eq!(seen, (0..800).collect::<Vec<_>>());
    }
}
