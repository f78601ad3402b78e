//! Decides which record of a journal makes room: the oldest of the owner that has most. Records are numbers here; they
//! come in order, each with the names of the groups that it is in. A push and a removal take time in proportion to the
//! logarithm of how many groups there are, as a pod can cause thousands of them in a second. Pure.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap, VecDeque},
};

/// A group of records: its narrower groups, or, of the narrowest, its records.
#[derive(Debug, Default)]
pub(in crate::report) struct Crowd {
    count: usize,
    bytes: usize,
    /// Numbers and sizes, oldest first; only of a narrowest group.
    records: VecDeque<(u64, usize)>,
    /// By name; none of them is empty.
    groups: HashMap<u64, Crowd>,
    by_count: BTreeSet<Rank>,
    by_bytes: BTreeSet<Rank>,
    /// The oldest record and the name of each group.
    by_age: BTreeSet<(u64, u64)>,
}

/// Of a group: how much it has, its oldest record, its name. The last one makes room: it has most, or of those that have
/// as much, the oldest record.
type Rank = (usize, Reverse<u64>, u64);

impl Crowd {
    /// The sizes of all records together.
    pub(in crate::report) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the newest record to the group of this path, from the widest to the narrowest. All paths are of one length.
    pub(in crate::report) fn push(&mut self, path: &[u64], number: u64, size: usize) {
        self.count += 1;
        self.bytes += size;
        match path {
            [] => self.records.push_back((number, size)),
            [name, narrower @ ..] => self.change(*name, |group| group.push(narrower, number, size)),
        }
    }

    /// Removes a record of the group of this path, if it is there; returns its size.
    pub(in crate::report) fn remove(&mut self, path: &[u64], number: u64) -> Option<usize> {
        let size = match path {
            [] => {
                let at = self.records.binary_search_by_key(&number, |&(number, _)| number).ok()?;
                self.records.remove(at)?.1
            }
            [name, narrower @ ..] => self.change(*name, |group| group.remove(narrower, number))?,
        };
        self.count -= 1;
        self.bytes -= size;
        Some(size)
    }

    /// The oldest record of the group of this path, if that has more than `most`, and the one after it.
    pub(in crate::report) fn surplus(&self, path: &[u64], most: usize) -> Option<(u64, Option<u64>)> {
        match path {
            [] => {
                let mut numbers = self.records.iter().map(|(number, _)| *number);
                let oldest = numbers.next().filter(|_| self.records.len() > most)?;
                Some((oldest, numbers.next()))
            }
            [name, narrower @ ..] => self.groups.get(name)?.surplus(narrower, most),
        }
    }

    /// Removes the oldest record of the group that has most, by bytes or by number: of the widest groups, then of those
    /// within it.
    pub(in crate::report) fn pop(&mut self, by_bytes: bool) -> Option<u64> {
        self.pop_sized(by_bytes).map(|(number, _)| number)
    }

    fn pop_sized(&mut self, by_bytes: bool) -> Option<(u64, usize)> {
        let ranks = if by_bytes { &self.by_bytes } else { &self.by_count };
        let (number, size) = match ranks.last() {
            Some(&(_, _, name)) => self.change(name, |group| group.pop_sized(by_bytes)),
            None => self.records.pop_front(),
        }?;
        self.count -= 1;
        self.bytes -= size;
        Some((number, size))
    }

    /// Changes a group, and keeps the order true. One that becomes empty is forgotten.
    fn change<R>(&mut self, name: u64, change: impl FnOnce(&mut Self) -> R) -> R {
        let mut group = self.groups.remove(&name).unwrap_or_default();
        if let Some((oldest, by_count, by_bytes)) = group.ranks(name) {
            self.by_age.remove(&(oldest, name));
            self.by_count.remove(&by_count);
            self.by_bytes.remove(&by_bytes);
        }
        let changed = change(&mut group);
        if let Some((oldest, by_count, by_bytes)) = group.ranks(name) {
            self.by_age.insert((oldest, name));
            self.by_count.insert(by_count);
            self.by_bytes.insert(by_bytes);
            self.groups.insert(name, group);
        }
        changed
    }

    /// The oldest record and the places among others; none if it is empty.
    fn ranks(&self, name: u64) -> Option<(u64, Rank, Rank)> {
        let of_records = self.records.front().map(|(number, _)| *number);
        let oldest = of_records.or_else(|| self.by_age.first().map(|(oldest, _)| *oldest))?;
        Some((oldest, (self.count, Reverse(oldest), name), (self.bytes, Reverse(oldest), name)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same by a search of all records: which one makes room.
    fn searched(records: &[([u64; 3], u64, usize)], by_bytes: bool) -> Option<u64> {
        let mut left = records.to_vec();
        for level in 0..3 {
            let weight = |group: u64| -> usize {
                let of_it = left.iter().filter(|(path, ..)| path[level] == group);
                of_it.map(|(_, _, size)| if by_bytes { *size } else { 1 }).sum()
            };
            let most = left.iter().map(|(path, ..)| weight(path[level])).max();
            let heaviest =
                left.iter().map(|(path, ..)| path[level]).find(|group| Some(weight(*group)) == most);
            left.retain(|(path, ..)| Some(path[level]) == heaviest);
        }
        left.first().map(|(_, number, _)| *number)
    }

    proptest! {
        #[test]
        fn row_02_the_record_that_goes_is_the_one_that_a_search_of_all_finds(
            steps in prop::collection::vec((prop::array::uniform3(0_u64..3), 0_usize..5, prop::option::of(any::<bool>()), prop::option::weighted(0.3, 0_usize..80)), 0..80),
        ) {
            let (mut crowd, mut records) = (Crowd::default(), Vec::new());
            for (number, (path, size, pop, removed)) in (0..).zip(steps) {
                crowd.push(&path, number, size);
                records.push((path, number, size));
                let of_it = records.iter().filter(|(of, ..)| *of == path);
                let mut numbers = of_it.clone().map(|(_, number, _)| *number);
                let oldest = numbers.next().map(|oldest| (oldest, numbers.next()));
                prop_assert_eq!(crowd.surplus(&path, of_it.clone().count() - 1), oldest);
                prop_assert_eq!(crowd.surplus(&path, of_it.count()), None);
                if let Some(removed) = removed.filter(|at| *at < records.len()) {
                    let (path, number, size) = records.remove(removed);
                    prop_assert_eq!(crowd.remove(&path, number), Some(size));
                    prop_assert_eq!(crowd.remove(&path, number), None);
                }
                if let Some(by_bytes) = pop {
                    let gone = searched(&records, by_bytes);
                    prop_assert_eq!(crowd.pop(by_bytes), gone);
                    records.retain(|(_, number, _)| Some(*number) != gone);
                }
                prop_assert_eq!(crowd.bytes(), records.iter().map(|(_, _, size)| size).sum::<usize>());
            }
            while let Some(gone) = crowd.pop(false) {
                prop_assert_eq!(Some(gone), searched(&records, false));
                records.retain(|(_, number, _)| *number != gone);
            }
            prop_assert!(records.is_empty() && crowd.groups.is_empty() && crowd.bytes() == 0);
        }
    }
}
