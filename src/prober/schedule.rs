//! When what is due: keys and deadlines in, the next deadline and the keys that are due out. One heap for all probes;
//! pure, the time is an argument.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    time::Instant,
};

use crate::ids::ProbeKey;

/// The smallest heap that is rid of its dead entries, so that a small schedule is not rebuilt all the time.
const SMALLEST_SWEPT: usize = 256;

/// One deadline a key at most. A deadline that was moved leaves a dead entry in the heap, recognised by its generation
/// and dropped when it surfaces; the heap is rebuilt when more than half of it is dead, so it never holds more than
/// twice as many entries as there are keys, or [`SMALLEST_SWEPT`].
#[derive(Debug, Default)]
pub(super) struct Schedule {
    heap: BinaryHeap<Reverse<(Instant, u64, ProbeKey)>>,
    live: HashMap<ProbeKey, (Instant, u64)>,
    generation: u64,
}

impl Schedule {
    /// Sets, moves or clears the deadline of a key.
    pub(super) fn set(&mut self, key: &ProbeKey, deadline: Option<Instant>) {
        match deadline {
            None => {
                self.live.remove(key);
            }
            Some(at) if self.live.get(key).is_some_and(|(set, _)| *set == at) => {}
            Some(at) => {
                self.generation += 1;
                self.live.insert(key.clone(), (at, self.generation));
                self.heap.push(Reverse((at, self.generation, key.clone())));
            }
        }
        self.sweep();
    }

    /// The earliest deadline.
    pub(super) fn deadline(&mut self) -> Option<Instant> {
        while let Some(Reverse((at, generation, key))) = self.heap.peek() {
            if self.live.get(key) == Some(&(*at, *generation)) {
                return Some(*at);
            }
            self.heap.pop();
        }
        None
    }

    /// Takes the key that is due for the longest.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<ProbeKey> {
        if self.deadline()? > now {
            return None;
        }
        let Reverse((_, _, key)) = self.heap.pop()?;
        self.live.remove(&key);
        Some(key)
    }

    fn sweep(&mut self) {
        if self.heap.len() > SMALLEST_SWEPT.max(2 * self.live.len()) {
            self.heap
                .retain(|Reverse((at, generation, key))| self.live.get(key) == Some(&(*at, *generation)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use proptest::prelude::*;

    use super::*;
    use crate::{clock, ids::ProbeKind};

    fn key(name: u8) -> ProbeKey {
        ProbeKey { pod: "p".into(), container: name.to_string().into(), kind: ProbeKind::Liveness }
    }

    #[test]
    fn keys_come_due_in_the_order_of_their_deadlines() {
        let start = clock::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut schedule = Schedule::default();
        for (name, seconds) in [(1, 3), (2, 1), (3, 2)] {
            schedule.set(&key(name), Some(at(seconds)));
        }
        assert_eq!(schedule.deadline(), Some(at(1)));
        assert_eq!(schedule.take_due(at(0)), None);
        schedule.set(&key(3), None);
        schedule.set(&key(1), Some(at(0)));
        let mut due = Vec::new();
        while let Some(key) = schedule.take_due(at(9)) {
            due.push(key);
        }
        assert_eq!(due, [key(1), key(2)]);
        assert_eq!(schedule.deadline(), None);
    }

    #[test]
    fn moving_deadlines_does_not_grow_the_heap() {
        let start = clock::now();
        let mut schedule = Schedule::default();
        for step in 0..10_000u64 {
            let name = u8::try_from(step % 100).unwrap();
            schedule.set(&key(name), Some(start + Duration::from_millis(step)));
        }
        assert!(schedule.heap.len() <= SMALLEST_SWEPT, "{}", schedule.heap.len());
    }

    proptest! {
        #[test]
        fn it_behaves_as_a_sorted_list(steps in prop::collection::vec((0u8..8, prop::option::of(0u64..50)), 1..200)) {
            let start = clock::now();
            let mut schedule = Schedule::default();
            let mut model = BTreeMap::new();
            for (name, seconds) in steps {
                let deadline = seconds.map(|seconds| start + Duration::from_secs(seconds));
                schedule.set(&key(name), deadline);
                match deadline {
                    Some(at) => model.insert(key(name), at),
                    None => model.remove(&key(name)),
                };
                prop_assert_eq!(schedule.deadline(), model.values().min().copied());
            }
            while let Some(due) = schedule.take_due(start + Duration::from_secs(50)) {
                let earliest = model.values().min().copied();
                prop_assert_eq!(model.remove(&due), earliest);
            }
            prop_assert!(model.is_empty());
        }
    }
}
