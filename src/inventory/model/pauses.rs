//! Which containers are paused: events and complete lists in, each with its moment; for every container the latest of them
//! out. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use crate::ids::ContainerId;

/// 16,384 containers, as many as removals are remembered. Beyond that, a container that is paused counts as running, and is
/// probed.
const MOST: usize = 16_384;

/// The pauses, also of containers that are not known yet: an event may come before the container is listed.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    /// What has no entry is not paused.
    all: BTreeMap<ContainerId, Pause>,
    /// When the last list was requested.
    as_of: Option<Instant>,
}

#[derive(Debug)]
struct Pause {
    /// False after an event that says so: a list that was requested before does not change that.
    is_paused: bool,
    as_of: Instant,
}

impl Pauses {
    pub(super) fn is_paused(&self, id: &ContainerId) -> bool {
        self.all.get(id).is_some_and(|pause| pause.is_paused)
    }

    /// An event. Returns whether it changes anything.
    pub(super) fn note(&mut self, id: &ContainerId, is_paused: bool, at: Instant) -> bool {
        let was_paused = self.is_paused(id);
        let known = self.all.get(id).map(|pause| pause.as_of);
        let is_old = known.or(self.as_of).is_some_and(|as_of| as_of > at);
        if is_old || (known.is_none() && self.all.len() >= MOST) {
            return false;
        }
        self.all.insert(id.clone(), Pause { is_paused, as_of: at });
        is_paused != was_paused
    }

    /// All that was paused when the list was requested. Returns what this changes.
    pub(super) fn list(&mut self, ids: Vec<String>, sent: Instant) -> BTreeSet<ContainerId> {
        if self.as_of.is_some_and(|as_of| as_of > sent) {
            return BTreeSet::new();
        }
        let before = self.paused();
        self.as_of = Some(sent);
        self.all.retain(|_, pause| pause.as_of >= sent);
        let room = MOST.saturating_sub(self.all.len());
        for id in ids.into_iter().take(room) {
            self.all.entry(id.into()).or_insert(Pause { is_paused: true, as_of: sent });
        }
        before.symmetric_difference(&self.paused()).cloned().collect()
    }

    /// A container was removed.
    pub(super) fn forget(&mut self, id: &ContainerId) {
        self.all.remove(id);
    }

    /// All containers were listed as of `sent`: forgets what was observed before of others.
    pub(super) fn forget_before(&mut self, sent: Instant, is_known: impl Fn(&ContainerId) -> bool) {
        self.all.retain(|id, pause| pause.as_of >= sent || is_known(id));
    }

    fn paused(&self) -> BTreeSet<ContainerId> {
        self.all.iter().filter(|(_, pause)| pause.is_paused).map(|(id, _)| id.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn no_more_are_remembered_than_the_bound_and_what_is_remembered_still_changes() {
        let now = crate::clock::now();
        let mut pauses = Pauses::default();
        let changed = pauses.list((0..=MOST).map(|number| number.to_string()).collect(), now);
        assert_eq!((changed.len(), pauses.all.len()), (MOST, MOST));
        assert!(!pauses.note(&"another".into(), true, now) && !pauses.is_paused(&"another".into()));
        assert!(pauses.note(&"0".into(), false, now) && !pauses.is_paused(&"0".into()));
    }

    #[test]
    fn what_nobody_knows_is_forgotten_with_the_next_list_of_containers() {
        let start = crate::clock::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut pauses = Pauses::default();
        for (id, moment) in [("known", 1), ("old", 1), ("new", 3)] {
            assert!(pauses.note(&id.into(), true, at(moment)));
        }
        pauses.forget_before(at(2), |id| id.as_str() == "known");
        let kept: Vec<_> = pauses.all.keys().map(ContainerId::as_str).collect();
        assert_eq!(kept, ["known", "new"]);
    }
}
