//! Keeps the newest records, bounded in number and in bytes, and passes new ones to followers. Records come from a
//! stage and leave in order. Readers never slow down writers, and the writer with the most records loses its oldest
//! first. Where the journal is made so, records that repeat each other are kept as one, see [`Repeats`].

mod crowd;
mod series;

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use tokio::sync::broadcast::{self, error::RecvError};

pub(super) use self::crowd::Crowd;
use self::series::AllSeries;
pub use self::series::Repeats;
use crate::clock;

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
    /// Those of the same records.
    series: AllSeries,
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
    /// How records that repeat each other become one. Without it, each is kept.
    pub repeats: Option<Repeats<T>>,
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

/// 2 s: how often a follower looks whether a series has repeats that were not shown yet.
const LOOK: Duration = Duration::from_secs(2);

impl<T: ?Sized> JournalBounds<T> {
    /// So many records, each of which is small by what it is made of.
    pub fn records(records: usize) -> Self {
        Self { records, bytes: usize::MAX, groups: None, backlog: BACKLOG, size: |_| 0, repeats: None }
    }
}

impl<T: Send + Sync + ?Sized> Journal<T> {
    /// An empty journal that keeps the newest records within these bounds.
    pub fn new(bounds: JournalBounds<T>) -> Self {
        let kept = Kept {
            records: BTreeMap::new(),
            pushed: 0,
            owners: Crowd::default(),
            series: AllSeries::default(),
        };
        let live = broadcast::Sender::new(bounds.backlog);
        Self { shared: Arc::new(Shared { kept: Mutex::new(kept), bounds, live }) }
    }

    /// Adds a record. Never waits for a reader, never fails. One that is larger than all may be together is only passed on.
    pub fn push(&self, record: impl Into<Arc<T>>) {
        self.push_at(record.into(), clock::now());
    }

    fn push_at(&self, record: Arc<T>, now: Instant) {
        let bounds = &self.shared.bounds;
        let mut kept = self.shared.kept();
        let has_followers = self.shared.live.receiver_count() > 0;
        let (record, is_shown) = kept.joined(record, bounds, has_followers, now);
        kept.insert(&record, bounds);
        if is_shown && has_followers {
            // An error means that the last follower has just left.
            let _ = self.shared.live.send(record);
        }
    }

    /// The newest `count` of those that are kept, oldest first.
    pub fn last(&self, count: usize) -> Vec<Arc<T>> {
        newest(&self.shared.kept().records, count)
    }

    /// All records pushed from now on.
    pub fn follow(&self) -> Follower<T> {
        self.follow_after(0).1
    }

    /// The newest `count`, and all that come after them: none twice, none left out between.
    pub fn follow_after(&self, count: usize) -> (Vec<Arc<T>>, Follower<T>) {
        let mut kept = self.shared.kept();
        // Whoever follows from now on gets these with what is kept, and not again when they would be due.
        let pending = kept.series.take_pending(clock::now());
        self.shared.show(&kept, &pending);
        let repeats = self.shared.bounds.repeats.as_ref().map(|_| Arc::downgrade(&self.shared));
        let look_at = repeats.as_ref().map(|_| clock::now() + LOOK);
        (newest(&kept.records, count), Follower { live: self.shared.live.subscribe(), repeats, look_at })
    }
}

impl<T: ?Sized> Shared<T> {
    fn kept(&self) -> MutexGuard<'_, Kept<T>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows followers the repeats that they were not shown when they came.
    fn show_repeats(&self, now: Instant) {
        let mut kept = self.kept();
        let due = kept.series.take_due(now);
        self.show(&kept, &due);
    }

    fn show(&self, kept: &Kept<T>, numbers: &[u64]) {
        for record in numbers.iter().filter_map(|number| kept.records.get(number)) {
            // An error means that the last follower has just left.
            let _ = self.live.send(Arc::clone(record));
        }
    }
}

impl<T: ?Sized> Kept<T> {
    /// A record, as one with the record that it repeats, which is taken out; and whether followers are shown it now.
    fn joined(
        &mut self,
        record: Arc<T>,
        bounds: &JournalBounds<T>,
        has_followers: bool,
        now: Instant,
    ) -> (Arc<T>, bool) {
        let Some(repeats) = &bounds.repeats else { return (record, true) };
        let name = (repeats.series)(&record);
        let former = self.series.newest(name).and_then(|number| Some((number, self.records.get(&number)?)));
        let merged = former.and_then(|(number, former)| Some((number, (repeats.merge)(former, &record)?)));
        let Some((number, merged)) = merged else {
            self.series.begin(name, self.pushed, now);
            return (record, true);
        };
        let is_shown = self.series.go_on(name, self.pushed, has_followers, now);
        if let Some(former) = self.records.remove(&number) {
            self.owners.remove(&bounds.path(&former), number);
        }
        (merged, is_shown)
    }

    /// Adds a record, and removes those that have to make room for it.
    fn insert(&mut self, record: &Arc<T>, bounds: &JournalBounds<T>) {
        let (number, path) = (self.pushed, bounds.path(record));
        self.pushed += 1;
        self.owners.push(&path, number, (bounds.size)(record));
        self.records.insert(number, Arc::clone(record));
        let most = bounds.repeats.as_ref().map_or(usize::MAX, |repeats| repeats.most);
        if let Some((surplus, next)) = self.owners.surplus(&path, most) {
            let next = next.and_then(|next| Some((next, self.folded(surplus, next, bounds)?)));
            self.owners.remove(&path, surplus);
            self.forget(surplus, bounds);
            // It has the place and the size of the newer one.
            self.records.extend(next);
        }
        loop {
            let weighs = self.owners.bytes() > bounds.bytes;
            if !weighs && self.records.len() <= bounds.records {
                break;
            }
            let Some(gone) = self.owners.pop(weighs) else { break };
            self.forget(gone, bounds);
        }
    }

    /// Two of a group as one, where they can be.
    fn folded(&self, older: u64, newer: u64, bounds: &JournalBounds<T>) -> Option<Arc<T>> {
        let repeats = bounds.repeats.as_ref()?;
        (repeats.fold)(self.records.get(&older)?, self.records.get(&newer)?)
    }

    fn forget(&mut self, number: u64, bounds: &JournalBounds<T>) {
        if let Some((record, repeats)) = self.records.remove(&number).zip(bounds.repeats.as_ref()) {
            self.series.end((repeats.series)(&record), number);
        }
    }
}

impl<T: ?Sized> JournalBounds<T> {
    /// The groups of a record; all are in one where there are none.
    fn path(&self, record: &T) -> Vec<u64> {
        self.groups.map(|groups| groups(record).to_vec()).unwrap_or_default()
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
    /// The journal, where records may repeat each other: the last repeats of a series are shown some time after they came.
    repeats: Option<Weak<Shared<T>>>,
    /// When they are looked for next, however many records come before.
    look_at: Option<Instant>,
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
        loop {
            let received = tokio::select! {
                received = self.live.recv() => received,
                () = clock::until(self.look_at) => {
                    self.look_at = Some(clock::now() + LOOK);
                    let journal = self.repeats.as_ref().and_then(Weak::upgrade);
                    journal.iter().for_each(|journal| journal.show_repeats(clock::now()));
                    continue;
                }
            };
            return match received {
                Ok(record) => Some(JournalEntry::Record(record)),
                Err(RecvError::Lagged(missed)) => Some(JournalEntry::Missed(missed)),
                Err(RecvError::Closed) => None,
            };
        }
    }
}

fn newest<T: ?Sized>(kept: &BTreeMap<u64, Arc<T>>, count: usize) -> Vec<Arc<T>> {
    kept.values().skip(kept.len().saturating_sub(count)).map(Arc::clone).collect()
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    fn of(records: usize) -> Journal<u64> {
        Journal::new(JournalBounds::records(records))
    }

    #[test]
    fn the_oldest_make_room_for_what_takes_more() {
        let size = |number: &u64| usize::try_from(*number).unwrap();
        let journal = Journal::new(JournalBounds {
            records: 9,
            bytes: 10,
            groups: None,
            backlog: 1,
            size,
            repeats: None,
        });
        for (number, kept) in [(4, &[4][..]), (5, &[4, 5]), (2, &[5, 2]), (10, &[10]), (11, &[]), (1, &[1])] {
            journal.push(number);
            assert_eq!(values(&journal.last(10)), kept);
        }
    }

    /// A record of hundreds: its namespace; tens: its pod; ones: its series. Thousands number it.
    fn grouped(records: usize, bytes: usize) -> Journal<u64> {
        let groups = |number: &u64| [number / 100 % 10, number / 10 % 100, number % 1000];
        let size = |number: &u64| if *number > 1_000_000 { 5 } else { 1 };
        Journal::new(JournalBounds { records, bytes, groups: Some(groups), backlog: 1, size, repeats: None })
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

    /// A series of hundreds within a group of thousands; millions count it. 3 of a group are kept.
    fn repeating() -> Journal<u64> {
        let repeats = Repeats {
            series: |number: &u64| number % 1_000_000 / 100,
            merge: |one: &u64, other: &u64| {
                (one % 1_000_000 / 100 == other % 1_000_000 / 100).then(|| {
                    Arc::new(other % 1_000_000 + (one / 1_000_000 + other / 1_000_000 + 1) * 1_000_000)
                })
            },
            most: 3,
            fold: |_, _| None,
        };
        let groups = |number: &u64| [0, 0, number % 1_000_000 / 10_000];
        let bounds =
            JournalBounds { groups: Some(groups), repeats: Some(repeats), ..JournalBounds::records(9) };
        Journal::new(bounds)
    }

    #[test]
    fn repeats_are_one_record_in_the_place_of_the_newest_and_take_no_room_from_others() {
        let journal = repeating();
        journal.push(20_101);
        for number in 1..=50 {
            journal.push(10_100 + number);
        }
        journal.push(30_101);
        journal.push(10_151);
        assert_eq!(values(&journal.last(10)), [20_101, 30_101, 50_010_151]);
        assert_eq!(journal.shared.kept().owners.pop(false), Some(0), "what was merged is counted off");
    }

    #[test]
    fn a_group_whose_records_all_differ_keeps_a_few_and_one_that_went_is_not_gone_on_with() {
        let journal = repeating();
        journal.push(20_100);
        for series in 0..100_u64 {
            journal.push(10_000 + series * 100);
        }
        assert_eq!(values(&journal.last(10)), [20_100, 19_700, 19_800, 19_900]);
        assert_eq!(journal.shared.kept().series.newest(101), None);
        journal.push(10_101);
        assert_eq!(values(&journal.last(1)), [10_101], "it counts from one again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_follower_gets_the_first_at_once_and_of_its_repeats_the_sum_every_ten_seconds() {
        let journal = repeating();
        let mut follower = journal.follow();
        let began = clock::now();
        let writer = journal.clone();
        tokio::spawn(async move {
            for number in 0..120 {
                writer.push(10_100 + number % 100);
                sleep(Duration::from_millis(100)).await;
            }
            writer.push(20_100);
            sleep(Duration::from_secs(60)).await;
        });
        let mut shown = Vec::new();
        while shown.len() < 4 {
            let Some(JournalEntry::Record(record)) = follower.next().await else {
                panic!("a record is missing")
            };
            shown.push((*record, (clock::now() - began).as_secs()));
        }
        // Whether the look or the next record comes first at the end of the ten seconds makes no difference.
        let repeats = [(99_010_199, 10), (100_010_100, 10)];
        assert!(
            shown[0] == (10_100, 0) && repeats.contains(&shown[1]) && shown[2] == (20_100, 12),
            "{shown:?}"
        );
        let (last, at) = shown[3];
        assert_eq!(last, 119_010_119);
        assert!((20..=23).contains(&at), "{at}");
        drop(journal);
    }

    #[tokio::test(start_paused = true)]
    async fn one_who_follows_after_another_gets_a_sum_once() {
        let journal = repeating();
        let mut former = journal.follow();
        (0..3).for_each(|number| journal.push(10_100 + number));
        let (kept, mut follower) = journal.follow_after(5);
        assert_eq!(values(&kept), [2_010_102]);
        // The first, and the sum that the other one would have been shown later.
        for expected in [10_100, 2_010_102] {
            assert_eq!(former.next().await, Some(JournalEntry::Record(Arc::new(expected))));
        }
        drop(former);
        tokio::select! {
            again = follower.next() => panic!("it was shown {again:?} again"),
            () = sleep(Duration::from_secs(60)) => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_follower_gets_the_last_repeats_of_a_series_however_many_other_records_come() {
        let journal = repeating();
        let mut follower = journal.follow();
        let began = clock::now();
        let writer = journal.clone();
        tokio::spawn(async move {
            (0..5).for_each(|number| writer.push(10_100 + number));
            for number in 0..60 {
                sleep(Duration::from_secs(1)).await;
                writer.push(20_000 + number * 100);
            }
        });
        loop {
            let entry = follower.next().await;
            let Some(JournalEntry::Record(record)) = entry else {
                panic!("the repeats are missing: {entry:?}")
            };
            if *record == 4_010_104 {
                break;
            }
        }
        assert!((10..=13).contains(&(clock::now() - began).as_secs()));
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
