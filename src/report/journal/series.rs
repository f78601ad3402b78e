//! Which records of a journal repeat each other, and when followers are shown the repeats. Records are numbers here. Pure.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// How records that repeat each other become one, which has the place of the newest.
#[derive(Debug)]
pub struct Repeats<T: ?Sized> {
    /// Names the series of a record: those of one series have the same name.
    pub series: fn(&T) -> u64,
    /// The two as one, the older one first; none where the second one does not repeat the first.
    pub merge: fn(&T, &T) -> Option<Arc<T>>,
    /// How many records of a narrowest group are kept: whoever makes each record differ from all before takes no more
    /// room. With a newer one, the oldest two of the group become one, or else the oldest goes.
    pub most: usize,
    /// The oldest two of a group as one, which takes as much room as the newer of them; none where they cannot be one.
    pub fold: fn(&T, &T) -> Option<Arc<T>>,
}

/// 10 s: how long followers are shown no repeat after they were shown a record of the series.
const QUIET: Duration = Duration::from_secs(10);

/// The series of all records that are kept: as many as these at most.
#[derive(Debug, Default)]
pub(super) struct AllSeries(HashMap<u64, Series>);

#[derive(Debug)]
struct Series {
    /// Its record.
    number: u64,
    /// When followers may be shown that again.
    quiet_until: Instant,
    /// Whether there is something new to show.
    is_pending: bool,
}

impl AllSeries {
    /// The record of the series of this name.
    pub(super) fn newest(&self, name: u64) -> Option<u64> {
        self.0.get(&name).map(|series| series.number)
    }

    /// Notes a record that repeats none.
    pub(super) fn begin(&mut self, name: u64, number: u64, now: Instant) {
        self.0.insert(name, Series { number, quiet_until: now + QUIET, is_pending: false });
    }

    /// Notes a record that repeats that of its series. Returns whether followers, if there are any, are shown it now.
    pub(super) fn go_on(&mut self, name: u64, number: u64, has_followers: bool, now: Instant) -> bool {
        let Some(series) = self.0.get_mut(&name) else { return true };
        series.number = number;
        let is_shown = series.quiet_until <= now;
        if is_shown {
            series.quiet_until = now + QUIET;
        }
        series.is_pending = has_followers && !is_shown;
        is_shown
    }

    /// Forgets the series of this name, if this is its record.
    pub(super) fn end(&mut self, name: u64, number: u64) {
        if self.newest(name) == Some(number) {
            self.0.remove(&name);
        }
    }

    /// The records that followers are to be shown now, in order.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<u64> {
        self.take(now, |series| series.quiet_until <= now)
    }

    /// Those that they are to be shown sooner or later, in order.
    pub(super) fn take_pending(&mut self, now: Instant) -> Vec<u64> {
        self.take(now, |_| true)
    }

    fn take(&mut self, now: Instant, is_due: impl Fn(&Series) -> bool) -> Vec<u64> {
        let due = self.0.values_mut().filter(|series| series.is_pending && is_due(series));
        let mut due: Vec<_> = due
            .map(|series| {
                (series.is_pending, series.quiet_until) = (false, now + QUIET);
                series.number
            })
            .collect();
        due.sort_unstable();
        due
    }
}
