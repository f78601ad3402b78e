//! Keeps the newest records, bounded in number and in bytes, and passes new ones to followers. Records come from a
//! stage and leave in order. Readers never slow down writers, and the writer with the most records loses its oldest
//! first.

mod crowd;

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::broadcast::{self, error::RecvError};

use self::crowd::Crowd;

/// A handle on one journal; clones are the same journal.
#[derive(Debug)]
pub struct Journal<T: ?Sized> {
    shared: Arc<Shared<T>>,
}

#[derive(Debug)]
struct Shared<T: ?Sized> {
    /// Held for one push, or for copying the pointers of what is kept: microseconds. Orders pushes for followers.
    kept: Mutex<Kept<T>>,
    bounds: JournalBounds<T>,
    live: broadcast::Sender<Arc<T>>,
}

#[derive(Debug)]
struct Kept<T: ?Sized> {
    /// By their numbers, which count all that were pushed.
    records: BTreeMap<u64, Arc<T>>,
    pushed: u64,
    /// The numbers and sizes of the same records, by their owners.
    owners: Crowd,
}

/// What a journal keeps, and what its followers may fall behind by.
#[derive(Debug)]
pub struct JournalBounds<T: ?Sized> {
    /// How many records are kept; a newer one then replaces an old one.
    pub records: usize,
    /// What they may take together, in bytes; a newer one then replaces as many old ones as it takes.
    pub bytes: usize,
    /// The owner of a record, from the widest group to the narrowest. The oldest record makes room of the widest group
    /// that has most, in that of the next narrower one that has most, and so on. Without it, the oldest of all does.
    pub groups: Option<fn(&T) -> JournalGroups>,
    /// How many records a follower may fall behind. One further behind loses the oldest, and learns how many.
    pub backlog: usize,
    /// What one takes.
    pub size: fn(&T) -> usize,
}

/// Names of the groups that a record is in: its namespace, its pod, its series.
pub type JournalGroups = [u64; 3];

/// Names a group by what makes it one.
pub fn group(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// 1,024 records: how far a follower may fall behind of records that are small.
const BACKLOG: usize = 1_024;

impl<T: ?Sized> JournalBounds<T> {
    /// So many records, each of which is small by what it is made of.
    pub fn records(records: usize) -> Self {
        Self { records, bytes: usize::MAX, groups: None, backlog: BACKLOG, size: |_| 0 }
    }
}

impl<T: Send + Sync + ?Sized> Journal<T> {
    /// An empty journal that keeps the newest records within these bounds.
    pub fn new(bounds: JournalBounds<T>) -> Self {
        let kept = Mutex::new(Kept { records: BTreeMap::new(), pushed: 0, owners: Crowd::default() });
        let live = broadcast::Sender::new(bounds.backlog);
        Self { shared: Arc::new(Shared { kept, bounds, live }) }
    }

    /// Adds a record. Never waits for a reader, never fails. One that is larger than all may be together is only passed on.
    pub fn push(&self, record: impl Into<Arc<T>>) {
        let record = record.into();
        let bounds = &self.shared.bounds;
        let mut kept = self.kept();
        let number = kept.pushed;
        kept.pushed += 1;
        let size = (bounds.size)(&record);
        match bounds.groups {
            Some(groups) => kept.owners.push(&groups(&record), number, size),
            None => kept.owners.push(&[], number, size),
        }
        kept.records.insert(number, Arc::clone(&record));
        loop {
            let weighs = kept.owners.bytes() > bounds.bytes;
            if !weighs && kept.records.len() <= bounds.records {
                break;
            }
            let Some(gone) = kept.owners.pop(weighs) else { break };
            kept.records.remove(&gone);
        }
        if self.shared.live.receiver_count() > 0 {
            // An error means that the last follower has just left.
            let _ = self.shared.live.send(record);
        }
    }

    /// The newest `count` of those that are kept, oldest first.
    pub fn last(&self, count: usize) -> Vec<Arc<T>> {
        newest(&self.kept().records, count)
    }

    /// All records pushed from now on.
    pub fn follow(&self) -> Follower<T> {
        self.follow_after(0).1
    }

    /// The newest `count`, and all that come after them: none twice, none left out between.
    pub fn follow_after(&self, count: usize) -> (Vec<Arc<T>>, Follower<T>) {
        let kept = self.kept();
        (newest(&kept.records, count), Follower { live: self.shared.live.subscribe() })
    }

    fn kept(&self) -> MutexGuard<'_, Kept<T>> {
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
pub enum JournalEntry<T: ?Sized> {
    /// The next record.
    Record(Arc<T>),
    /// So many records were lost here: this follower fell too far behind.
    Missed(u64),
}

impl<T: Send + Sync + ?Sized> Follower<T> {
    /// Waits for the next entry; `None` when the journal is gone. Loses nothing when it is cancelled.
    pub async fn next(&mut self) -> Option<JournalEntry<T>> {
        match self.live.recv().await {
            Ok(record) => Some(JournalEntry::Record(record)),
            Err(RecvError::Lagged(missed)) => Some(JournalEntry::Missed(missed)),
            Err(RecvError::Closed) => None,
        }
    }
}

fn newest<T: ?Sized>(kept: &BTreeMap<u64, Arc<T>>, count: usize) -> Vec<Arc<T>> {
    kept.values().skip(kept.len().saturating_sub(count)).map(Arc::clone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(records: usize) -> Journal<u64> {
        Journal::new(JournalBounds::records(records))
    }

    #[test]
    fn the_oldest_make_room_for_what_takes_more() {
        let size = |number: &u64| usize::try_from(*number).unwrap();
        let journal = Journal::new(JournalBounds { records: 9, bytes: 10, groups: None, backlog: 1, size });
        for (number, kept) in [(4, &[4][..]), (5, &[4, 5]), (2, &[5, 2]), (10, &[10]), (11, &[]), (1, &[1])] {
            journal.push(number);
            assert_eq!(values(&journal.last(10)), kept);
        }
    }

    /// A record of hundreds: its namespace; tens: its pod; ones: its series. Thousands number it.
    fn grouped(records: usize, bytes: usize) -> Journal<u64> {
        let groups = |number: &u64| [number / 100 % 10, number / 10 % 100, number % 1000];
        let size = |number: &u64| if *number > 1_000_000 { 5 } else { 1 };
        Journal::new(JournalBounds { records, bytes, groups: Some(groups), backlog: 1, size })
    }

    #[test]
    fn row_02_who_has_most_makes_room_and_what_others_have_stays_in_order() {
        let journal = grouped(6, usize::MAX);
        for record in [211, 1_111, 1_221, 2_111, 3_111, 4_111, 5_111, 6_111, 7_112, 8_121] {
            journal.push(record);
        }
        assert_eq!(values(&journal.last(10)), [211, 1_221, 5_111, 6_111, 7_112, 8_121]);
        for number in 10..1_000 {
            journal.push(number * 1_000 + 111);
        }
        assert_eq!(values(&journal.last(10)), [211, 1_221, 7_112, 8_121, 998_111, 999_111]);
    }

    #[test]
    fn row_02_where_bytes_are_short_the_one_with_most_bytes_makes_room() {
        let journal = grouped(100, 12);
        for record in [111, 1_111, 2_111, 3_111, 1_000_211, 2_000_211] {
            journal.push(record);
        }
        assert_eq!(values(&journal.last(10)), [111, 1_111, 2_111, 3_111, 2_000_211]);
    }

    #[test]
    fn row_02_a_record_costs_no_search_of_all_that_are_kept() {
        let groups = |number: &u64| [number % 7, number % 1_001, number % 20_020];
        let bounds = JournalBounds { groups: Some(groups), ..JournalBounds::records(20_000) };
        let (journal, began) = (Journal::new(bounds), crate::clock::now());
        for number in 0..60_000 {
            journal.push(number);
        }
        assert_eq!(journal.last(usize::MAX).len(), 20_000);
        // A search of each takes minutes.
        let took = crate::clock::now() - began;
        assert!(took < std::time::Duration::from_secs(15), "{took:?}");
    }

    #[test]
    fn pods_that_have_as_much_as_each_other_lose_their_oldest() {
        let journal = grouped(3, usize::MAX);
        for record in [111, 221, 331, 441] {
            journal.push(record);
        }
        assert_eq!(values(&journal.last(10)), [221, 331, 441]);
    }

    fn values(records: &[Arc<u64>]) -> Vec<u64> {
        records.iter().map(|record| **record).collect()
    }

    #[test]
    fn the_newest_are_kept_oldest_first() {
        let journal = of(3);
        assert!(journal.last(10).is_empty());
        for n in 1..=5 {
            journal.push(n);
        }
        assert_eq!(values(&journal.last(10)), [3, 4, 5]);
        assert_eq!(values(&journal.last(2)), [4, 5]);
        assert!(journal.last(0).is_empty());
        let none = of(0);
        none.push(1);
        assert!(none.last(1).is_empty());
    }

    #[tokio::test]
    async fn a_follower_gets_what_is_kept_and_then_what_comes() {
        let journal = of(2);
        for n in 1..=3 {
            journal.push(n);
        }
        let (kept, mut follower) = journal.follow_after(5);
        journal.push(4);
        assert_eq!(values(&kept), [2, 3]);
        assert_eq!(follower.next().await, Some(JournalEntry::Record(Arc::new(4))));
        drop(journal);
        assert_eq!(follower.next().await, None);
    }

    #[tokio::test]
    async fn a_follower_that_falls_behind_learns_how_many_it_missed() {
        let journal = of(1);
        let mut follower = journal.follow();
        let pushed = BACKLOG as u64 + 10;
        for n in 0..pushed {
            journal.push(n);
        }
        assert_eq!(follower.next().await, Some(JournalEntry::Missed(10)));
        assert_eq!(follower.next().await, Some(JournalEntry::Record(Arc::new(10))));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn records_neither_repeat_nor_vanish_between_the_kept_and_the_live() {
        let journal = of(1_000);
        let writer = journal.clone();
        let writing = tokio::task::spawn_blocking(move || (0..800).for_each(|n| writer.push(n)));
        let (kept, mut follower) = journal.follow_after(1_000);
        let mut seen = values(&kept);
        while seen.len() < 800 {
            let Some(JournalEntry::Record(record)) = follower.next().await else {
                panic!("a record is missing")
            };
            seen.push(*record);
        }
        writing.await.unwrap();
        assert_eq!(seen, (0..800).collect::<Vec<_>>());
    }
}
