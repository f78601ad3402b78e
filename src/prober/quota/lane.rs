//! Probes that wait for their turn on the node: those that join and leave, and whether there is room for one more, in; whose
//! place came or went out. Pure.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use super::Rank;
use crate::spec::need::{Budget, Need};

/// Namespaces that take turns, up to the first probe that there is no room for.
#[derive(Debug)]
pub(super) struct Lane {
    /// What the share of a namespace is measured by.
    budget: Budget,
    /// Within are those that have a place.
    shares: HashMap<Share, Split>,
    /// Of each share the last that has a place, and the first that has none.
    last: BTreeSet<Turn>,
    next: BTreeSet<Turn>,
    /// What those take that have a place.
    used: Need,
}

/// A probe whose place came or went.
#[derive(Debug)]
pub(super) struct Moved {
    pub(super) rank: Arc<Rank>,
    pub(super) has_place: bool,
}

/// Probes of one namespace. Those whose containers have exited come after all others.
type Share = (bool, Arc<str>);

/// When a probe has its turn: by the share of the budget that those before it in its own namespace use.
type Turn = (bool, u64, Arc<Rank>);

impl Lane {
    pub(super) fn new(budget: Budget) -> Self {
        Self {
            budget,
            shares: HashMap::new(),
            last: BTreeSet::new(),
            next: BTreeSet::new(),
            used: Need::default(),
        }
    }

    /// What those take that have a place.
    pub(super) fn used(&self) -> Need {
        self.used
    }

    /// The first that has none.
    pub(super) fn next(&self) -> Option<&Arc<Rank>> {
        self.next.first().map(|(_, _, rank)| rank)
    }

    /// Whether a probe waits here.
    pub(super) fn refuses(&self, rank: &Arc<Rank>) -> bool {
        self.shares.get(&share(rank)).is_some_and(|share| share.beyond.contains(rank))
    }

    /// A probe joins; returns whether it has a place at once, because another one after it in its namespace has one.
    pub(super) fn join(&mut self, rank: &Arc<Rank>) -> bool {
        self.change(rank, |share| share.insert(rank.clone()))
    }

    /// A probe leaves; returns whether it had a place.
    pub(super) fn leave(&mut self, rank: &Arc<Rank>) -> bool {
        self.change(rank, |share| share.remove(rank))
    }

    /// Fills the room. `fits` says whether there is room for one more beside what those before it take; whatever has no
    /// room beside some has none beside more. A place that comes or goes moves a few probes at most, each in logarithmic
    /// time.
    pub(super) fn settle(&mut self, fits: impl Fn(Need, &Rank) -> bool) -> Vec<Moved> {
        let mut moved = Vec::new();
        loop {
            let (last, next) = (self.last.last(), self.next.first());
            let is_overtaken = last.zip(next).is_some_and(|(last, next)| next < last);
            let is_over = last.is_some_and(|(_, _, last)| {
                let mut before = self.used;
                before -= last.need;
                !fits(before, last)
            });
            let has_room = next.is_some_and(|(_, _, next)| fits(self.used, next));
            let change = match (last.cloned(), next.cloned()) {
                (Some((_, _, last)), _) if is_over || (is_overtaken && !has_room) => {
                    self.change(&last, Split::demote).map(|rank| Moved { rank, has_place: false })
                }
                (_, Some((_, _, next))) if has_room => {
                    self.change(&next, Split::promote).map(|rank| Moved { rank, has_place: true })
                }
                _ => None,
            };
            let Some(change) = change else { return moved };
            moved.push(change);
        }
    }

    /// Changes the share that a probe belongs to, and keeps the turns in line with it.
    fn change<R>(&mut self, of: &Rank, change: impl FnOnce(&mut Split) -> R) -> R {
        let name = share(of);
        let share = self.shares.entry(name.clone()).or_default();
        let (last, next) = share.turns(name.0, &self.budget);
        last.iter().for_each(|turn| {
            self.last.remove(turn);
        });
        next.iter().for_each(|turn| {
            self.next.remove(turn);
        });
        self.used -= share.used;
        let result = change(share);
        self.used += share.used;
        let (last, next) = share.turns(name.0, &self.budget);
        self.last.extend(last);
        self.next.extend(next);
        if share.is_empty() {
            self.shares.remove(&name);
        }
        result
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.shares.is_empty() && self.last.is_empty() && self.next.is_empty()
    }
}

fn share(rank: &Rank) -> Share {
    (rank.is_done, rank.namespace.clone())
}

/// Probes in their order, in two parts.
#[derive(Debug, Default)]
pub(super) struct Split {
    /// The first ones.
    within: BTreeSet<Arc<Rank>>,
    pub(super) beyond: BTreeSet<Arc<Rank>>,
    /// What the first ones take.
    pub(super) used: Need,
    /// What all would take.
    pub(super) asked: Need,
}

impl Split {
    pub(super) fn is_empty(&self) -> bool {
        self.within.is_empty() && self.beyond.is_empty()
    }

    /// Returns whether it comes before one that is within, and so is within.
    pub(super) fn insert(&mut self, rank: Arc<Rank>) -> bool {
        let is_within = self.within.last().is_some_and(|last| rank < *last);
        self.asked += rank.need;
        if is_within {
            self.used += rank.need;
            self.within.insert(rank);
        } else {
            self.beyond.insert(rank);
        }
        is_within
    }

    /// Returns whether it was within.
    pub(super) fn remove(&mut self, rank: &Arc<Rank>) -> bool {
        let was_within = self.within.remove(rank);
        if was_within {
            self.used -= rank.need;
        }
        if was_within || self.beyond.remove(rank) {
            self.asked -= rank.need;
        }
        was_within
    }

    pub(super) fn demote(&mut self) -> Option<Arc<Rank>> {
        let rank = self.within.pop_last()?;
        self.used -= rank.need;
        self.beyond.insert(rank.clone());
        Some(rank)
    }

    pub(super) fn promote(&mut self) -> Option<Arc<Rank>> {
        let rank = self.beyond.pop_first()?;
        self.used += rank.need;
        self.within.insert(rank.clone());
        Some(rank)
    }

    /// Whether the first ones take more than there is.
    pub(super) fn is_over(&self, budget: &Budget) -> bool {
        self.within.last().is_some_and(|last| budget.excess(self.used, last.class).is_some())
    }

    /// Whether there is enough for one more.
    pub(super) fn has_room(&self, budget: &Budget) -> bool {
        let next = self.beyond.first();
        next.is_some_and(|next| budget.excess_with(self.used, next.need, next.class).is_none())
    }

    /// The turn of the last that has a place, and of the first that has none.
    fn turns(&self, is_done: bool, budget: &Budget) -> (Option<Turn>, Option<Turn>) {
        let last = self.within.last().map(|rank| {
            let mut before = self.used;
            before -= rank.need;
            (is_done, budget.share(before), rank.clone())
        });
        (last, self.beyond.first().map(|rank| (is_done, budget.share(self.used), rank.clone())))
    }
}
