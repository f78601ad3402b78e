//! Room for stops, shared by connections: the container or pod of each connection's stops in; whose stop has to make room,
//! out. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::Target;
use crate::ids::ConnId;

/// What each connection stops.
#[derive(Debug, Default)]
pub(super) struct Places {
    held: BTreeMap<ConnId, BTreeSet<Target>>,
    /// The connections by how much they hold.
    sizes: BTreeSet<(usize, ConnId)>,
    taken: usize,
}

impl Places {
    /// How many are taken.
    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    /// What could make room for one more of this connection: something of the connection that holds most. `None` if that
    /// would not make their parts more equal.
    pub(super) fn largest_beside(&self, conn: ConnId) -> Option<(ConnId, Target)> {
        let (size, largest) = self.sizes.last()?;
        let target = self.held.get(largest)?.last()?;
        (self.size(conn) + 1 < *size).then(|| (*largest, target.clone()))
    }

    /// Whether this connection has a place for this target.
    pub(super) fn has(&self, conn: ConnId, target: &Target) -> bool {
        self.held.get(&conn).is_some_and(|targets| targets.contains(target))
    }

    /// Takes a place, unless this connection has one for this target.
    pub(super) fn take(&mut self, conn: ConnId, target: Target) {
        let size = self.size(conn);
        if self.held.entry(conn).or_default().insert(target) {
            self.sizes.remove(&(size, conn));
            self.sizes.insert((size + 1, conn));
            self.taken += 1;
        }
    }

    /// Returns a place, if this connection has one for this target.
    pub(super) fn give(&mut self, conn: ConnId, target: &Target) {
        let size = self.size(conn);
        let Some(targets) = self.held.get_mut(&conn) else { return };
        if !targets.remove(target) {
            return;
        }
        self.sizes.remove(&(size, conn));
        self.taken -= 1;
        if targets.is_empty() {
            self.held.remove(&conn);
        } else {
            self.sizes.insert((size - 1, conn));
        }
    }

    fn size(&self, conn: ConnId) -> usize {
        self.held.get(&conn).map_or(0, BTreeSet::len)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn target(number: u32) -> Target {
        Target::Container(number.to_string().into())
    }

    #[test]
    fn whoever_holds_most_makes_room_until_all_hold_the_same() {
        let mut places = Places::default();
        (0..4).for_each(|number| places.take(ConnId(1), target(number)));
        assert_eq!(places.largest_beside(ConnId(1)), None);
        assert_eq!(places.largest_beside(ConnId(2)), Some((ConnId(1), target(3))));
        places.give(ConnId(1), &target(3));
        places.take(ConnId(2), target(0));
        places.give(ConnId(1), &target(2));
        places.take(ConnId(2), target(1));
        assert_eq!(places.largest_beside(ConnId(2)), None);
        assert_eq!(places.taken(), 4);
    }

    proptest! {
        #[test]
        fn the_counts_are_those_of_what_is_held(steps in prop::collection::vec((0..4u64, 0..6u32, any::<bool>()), 0..80)) {
            let mut places = Places::default();
            for (conn, number, is_taken) in steps {
                if is_taken {
                    places.take(ConnId(conn), target(number));
                } else {
                    places.give(ConnId(conn), &target(number));
                }
                let sizes: BTreeSet<_> = places.held.iter().map(|(conn, held)| (held.len(), *conn)).collect();
                prop_assert_eq!(&sizes, &places.sizes);
                prop_assert_eq!(places.held.values().map(BTreeSet::len).sum::<usize>(), places.taken);
                prop_assert!(places.held.values().all(|held| !held.is_empty()));
            }
        }
    }
}
