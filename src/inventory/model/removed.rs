//! Recent removals: ids and moments in; whether a report is older than a removal, and what was removed, out. Pure.

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::inventory::pod::Pod;

/// 2 min: how long a removal is remembered; longer than any list can be in flight.
const MEMORY: Duration = Duration::from_secs(120);

/// 16,384 removals are remembered. Beyond that, a list in flight may bring one back until the next list.
const MOST: usize = 16_384;

/// 4,096 more of IDs that were not known: some runtimes report success for the removal of any ID. Likewise.
const MOST_UNKNOWN: usize = 4_096;

/// Ids of removed containers and sandboxes, and when each removal was seen.
#[derive(Debug, Default)]
pub(super) struct Removed {
    /// Ordered, so that an id is found by its beginning.
    all: BTreeMap<String, Removal>,
    /// How many of them were not known.
    unknown: usize,
}

#[derive(Debug)]
struct Removal {
    at: Instant,
    was: Was,
}

/// What the id referred to: calls about it may still end.
#[derive(Clone, Debug, Default)]
pub(super) struct Was {
    /// The name of a container; `None` of a sandbox.
    pub(super) container: Option<Arc<str>>,
    /// The pod, where it was known.
    pub(super) pod: Option<Arc<Pod>>,
}

impl Was {
    fn is_unknown(&self) -> bool {
        self.container.is_none() && self.pod.is_none()
    }
}

impl Removed {
    /// Records a removal; the latest counts.
    pub(super) fn note(&mut self, id: &str, at: Instant, was: Was) {
        let is_unknown = was.is_unknown();
        if let Some(known) = self.all.get_mut(id) {
            known.at = at.max(known.at);
        } else if is_unknown && self.unknown < MOST_UNKNOWN
            || !is_unknown && self.all.len() - self.unknown < MOST
        {
            self.unknown += usize::from(is_unknown);
            self.all.insert(id.to_owned(), Removal { at, was });
        }
    }

    /// What the id referred to, or the only id that begins so.
    pub(super) fn was(&self, id: &str) -> Option<&Was> {
        let mut from = self.all.range::<str, _>((Bound::Included(id), Bound::Unbounded));
        let (first, removal) = from.next().filter(|(first, _)| !id.is_empty() && first.starts_with(id))?;
        let is_only = first == id || from.next().is_none_or(|(next, _)| !next.starts_with(id));
        is_only.then_some(&removal.was)
    }

    /// Whether an id was removed at that moment or later: older reports about it are void.
    pub(super) fn is_since(&self, id: &str, at: Instant) -> bool {
        self.all.get(id).is_some_and(|removal| removal.at >= at)
    }

    /// Forgets removals that no list in flight can contradict.
    pub(super) fn forget_before(&mut self, now: Instant) {
        self.all.retain(|_, removal| now.saturating_duration_since(removal.at) < MEMORY);
        self.unknown = self.all.values().filter(|removal| removal.was.is_unknown()).count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_removal_counts_until_it_is_forgotten() {
        let start = crate::clock::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut removed = Removed::default();
        removed.note("a", at(10), Was::default());
        removed.note("a", at(5), Was::default());
        let rows = [(9, true), (10, true), (11, false)];
        for (sent, is_since) in rows {
            assert_eq!(removed.is_since("a", at(sent)), is_since, "{sent}");
        }
        removed.forget_before(at(129));
        assert!(removed.is_since("a", at(9)));
        removed.forget_before(at(131));
        assert!(!removed.is_since("a", at(9)));
    }

    #[test]
    fn what_was_removed_is_found_by_the_unique_beginning_of_its_id() {
        let now = crate::clock::now();
        let mut removed = Removed::default();
        for id in ["ab1", "ab2", "b", "b3"] {
            removed.note(id, now, Was { container: Some(id.into()), pod: None });
        }
        for (named, found) in [
            ("ab1", Some("ab1")),
            ("ab", None),
            ("b", Some("b")),
            ("b3", Some("b3")),
            ("c", None),
            ("", None),
            ("a", None),
        ] {
            assert_eq!(removed.was(named).and_then(|was| was.container.as_deref()), found, "{named}");
        }
    }

    #[test]
    fn no_more_are_remembered_than_the_bound() {
        let now = crate::clock::now();
        let mut removed = Removed::default();
        let known = || Was { container: Some("app".into()), pod: None };
        (0..=MOST).for_each(|number| removed.note(&number.to_string(), now, known()));
        assert!(removed.is_since("0", now));
        assert!(!removed.is_since(&MOST.to_string(), now));
    }

    #[test]
    fn what_was_never_known_takes_no_room_from_what_was() {
        let now = crate::clock::now();
        let mut removed = Removed::default();
        (0..MOST + MOST_UNKNOWN).for_each(|number| removed.note(&number.to_string(), now, Was::default()));
        assert!(removed.is_since("0", now) && !removed.is_since(&MOST_UNKNOWN.to_string(), now));
        removed.note("app", now, Was { container: Some("app".into()), pod: None });
        assert!(removed.is_since("app", now));
        removed.forget_before(now + MEMORY);
        removed.note("0", now, Was::default());
        assert!(removed.is_since("0", now) && !removed.is_since("app", now));
    }
}
