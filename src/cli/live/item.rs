//! What a list that can be watched is a list of, and its orders.

use std::{
    cmp::Reverse,
    time::{Duration, SystemTime},
};

use serde::{Serialize, de::DeserializeOwned};

use crate::cli::{screen::Paint, table::Table};

/// What comes first in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Sort {
    /// By name
    Name,
    /// What fails first, then what is invalid or unknown
    State,
    /// The newest change first
    Since,
    /// The longest last attempt first
    Duration,
}

impl Sort {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::State => "state",
            Self::Since => "since",
            Self::Duration => "duration",
        }
    }
}

/// The next order of a list, in a circle.
pub(crate) fn next<T: Item>(sort: Sort) -> Sort {
    let mut circle = T::SORTS.iter().cycle();
    circle.find(|one| **one == sort);
    circle.next().copied().unwrap_or(sort)
}

/// An entry of a list that can be watched.
pub(crate) trait Item: Clone + Serialize + DeserializeOwned {
    /// Several of them.
    const NOUN: &'static str;
    /// The orders that it has.
    const SORTS: &'static [Sort];

    /// Unique, and the same as long as it is there.
    fn key(&self) -> &str;
    /// What it is called in a list: `shop/web-0/app/liveness`.
    fn name(&self) -> String;
    /// Whether it needs attention.
    fn is_failed(&self) -> bool;
    /// Its place in [`Sort::State`]: 0 fails.
    fn rank(&self) -> u8;
    /// When it changed.
    fn since(&self) -> Option<SystemTime>;
    /// How long its last attempt took.
    fn duration(&self) -> Option<Duration>;
    /// Its state in a few words. A change of it is worth a line.
    fn state(&self) -> String;
    /// Whether a change from an earlier state is worth a line.
    fn has_changed(&self, before: &Self) -> bool {
        self.state() != before.state()
    }
    /// Why it is in this state; empty if there is nothing to say.
    fn reason(&self) -> String;
    /// A table of them; with everything, if it `is_wide`.
    fn table(items: &[&Self], now: SystemTime, is_wide: bool) -> Table;
    /// All of them in one line: `42 probes: 2 failing, 1 invalid, 39 ok`.
    fn summary(items: &[Self]) -> (String, Paint)
    where
        Self: Sized;
}

/// Sorts a list; equals by their names.
pub(crate) fn sort<T: Item>(items: &mut [T], by: Sort) {
    items.sort_by_cached_key(|item| {
        let name = item.name();
        match by {
            Sort::Name => (0, None, None, name),
            Sort::State => (item.rank(), None, None, name),
            Sort::Since => (0, Some(Reverse(item.since())), None, name),
            Sort::Duration => (0, None, Some(Reverse(item.duration())), name),
        }
    });
}

/// `42 probes: 2 failing, 39 ok`, of counts that are not 0; bad if the first of them is one of these.
pub(crate) fn summary(noun: &str, total: usize, counts: &[(usize, &str)]) -> (String, Paint) {
    let noun = if total == 1 { noun.strip_suffix('s').unwrap_or(noun) } else { noun };
    let shown: Vec<_> = counts.iter().filter(|(count, _)| *count > 0).collect();
    let counted: Vec<_> = shown.iter().map(|(count, what)| format!("{count} {what}")).collect();
    let paint = match counts.iter().position(|(count, _)| *count > 0) {
        Some(0) => Paint::Bad,
        Some(last) if last + 1 == counts.len() => Paint::Good,
        Some(_) => Paint::Doubtful,
        None => Paint::Plain,
    };
    if counted.is_empty() {
        return (format!("no {noun}"), paint);
    }
    (format!("{total} {noun}: {}", counted.join(", ")), paint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::view::{PodView, ProbeView};

    #[test]
    fn each_list_goes_round_the_orders_that_it_has() {
        fn circle<T: Item>() -> Vec<&'static str> {
            let mut sort = Sort::State;
            let mut next = || {
                sort = next::<T>(sort);
                sort.as_str()
            };
            (0..4).map(|_| next()).collect()
        }
        assert_eq!(circle::<ProbeView>(), ["name", "since", "duration", "state"]);
        assert_eq!(circle::<PodView>(), ["name", "since", "state", "name"]);
    }

    #[test]
    fn a_summary_shows_what_there_is() {
        for (total, counts, text, paint) in [
            (42, [2, 1, 39], "42 probes: 2 failing, 1 invalid, 39 ok", Paint::Bad),
            (4, [0, 1, 3], "4 probes: 1 invalid, 3 ok", Paint::Doubtful),
            (1, [0, 0, 1], "1 probe: 1 ok", Paint::Good),
            (0, [0, 0, 0], "no probes", Paint::Plain),
        ] {
            let counts = [(counts[0], "failing"), (counts[1], "invalid"), (counts[2], "ok")];
            assert_eq!(summary("probes", total, &counts), (text.to_owned(), paint));
        }
    }
}
