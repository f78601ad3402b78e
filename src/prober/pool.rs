//! Who may run now: keys that are due in, keys that may start out. What is slow leaves places to what is not, one pod and
//! one namespace leave places to the others. Pure.

mod places;
mod queue;

use std::{collections::HashMap, sync::Arc};

use super::trust::Trust;
use crate::ids::{PodUid, ProbeKey};
use places::Places;
use queue::Queue;

/// Which limits an attempt is under, besides that of all workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lane {
    /// What it does.
    pub(super) kind: Kind,
    /// How far its probe is trusted to give the place back soon.
    pub(super) trust: Trust,
}

/// What an attempt does, as far as it matters to how many there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Runs a command through the runtime.
    Exec,
    /// Opens a connection of our own.
    Dial,
}

impl Lane {
    /// All of them, in the order in which they take turns.
    const ALL: [Self; 6] = [
        Self { kind: Kind::Exec, trust: Trust::Proven },
        Self { kind: Kind::Dial, trust: Trust::Proven },
        Self { kind: Kind::Exec, trust: Trust::Unproven },
        Self { kind: Kind::Dial, trust: Trust::Unproven },
        Self { kind: Kind::Exec, trust: Trust::Slow },
        Self { kind: Kind::Dial, trust: Trust::Slow },
    ];

    fn index(self) -> usize {
        Self::ALL.iter().position(|lane| *lane == self).unwrap_or_default()
    }
}

/// A bounded number of attempts in flight, and those that wait for one of their places.
///
/// What waits is bounded by the number of probes: each waits at most once. A pod, or a namespace, that holds its share waits
/// also while places are free, and also if it is alone on the node: a place that is given away cannot be taken back before
/// the attempt ends, and what is free is there at once for those that come next.
#[derive(Debug)]
pub(super) struct Pool {
    limits: Places,
    /// By key, so that nothing is ever twice in flight.
    in_flight: HashMap<ProbeKey, (Arc<str>, Lane)>,
    held: Places,
    /// By those that hold any.
    held_by_namespace: HashMap<Arc<str>, Places>,
    held_by_pod: HashMap<PodUid, Places>,
    /// One a lane, in the order of [`Lane::ALL`].
    queues: [Queue; Lane::ALL.len()],
    last: usize,
}

impl Pool {
    /// At least one place each, whatever is asked for.
    pub(super) fn new(workers: usize, exec_workers: usize) -> Self {
        Self {
            limits: Places::new(workers, exec_workers),
            in_flight: HashMap::new(),
            held: Places::default(),
            held_by_namespace: HashMap::new(),
            held_by_pod: HashMap::new(),
            queues: Default::default(),
            last: Lane::ALL.len() - 1,
        }
    }

    /// Has other limits from now on; what is in flight beyond them ends in its own time.
    pub(super) fn resize(&mut self, workers: usize, exec_workers: usize) {
        self.limits = Places::new(workers, exec_workers);
    }

    /// Lets a key wait for a place, unless it does already.
    pub(super) fn enqueue(&mut self, key: ProbeKey, namespace: &Arc<str>, lane: Lane) {
        self.queues[lane.index()].push(key, namespace);
    }

    /// Gives a free place to the key whose turn it is: the lanes in turn, in each the namespaces in turn, in each the
    /// pods, in each the first that came.
    pub(super) fn start(&mut self) -> Option<ProbeKey> {
        loop {
            let (key, namespace, lane) = self.next()?;
            // A probe whose definition changed from one lane to another may wait in both; the second turn is void.
            if self.in_flight.contains_key(&key) {
                continue;
            }
            self.held.take(lane);
            self.held_by_namespace.entry(namespace.clone()).or_default().take(lane);
            self.held_by_pod.entry(key.pod.clone()).or_default().take(lane);
            self.in_flight.insert(key.clone(), (namespace, lane));
            return Some(key);
        }
    }

    fn next(&mut self) -> Option<(ProbeKey, Arc<str>, Lane)> {
        let (of_namespace, of_pod) = (self.limits.of_namespace(), self.limits.of_pod());
        let turns = (1..=Lane::ALL.len()).map(|step| (self.last + step) % Lane::ALL.len());
        for index in turns {
            let lane = Lane::ALL[index];
            if !self.limits.admit(&self.held, lane) {
                continue;
            }
            let (namespaces, pods) = (&self.held_by_namespace, &self.held_by_pod);
            let admits_namespace = |namespace: &Arc<str>| {
                namespaces.get(namespace).is_none_or(|held| of_namespace.admit(held, lane))
            };
            let admits_pod = |pod: &PodUid| pods.get(pod).is_none_or(|held| of_pod.admit(held, lane));
            if let Some((key, namespace)) = self.queues[index].pop(admits_namespace, admits_pod) {
                self.last = index;
                return Some((key, namespace, lane));
            }
        }
        None
    }

    /// Gives a place back.
    pub(super) fn finish(&mut self, key: &ProbeKey) {
        let Some((namespace, lane)) = self.in_flight.remove(key) else { return };
        self.held.give_back(lane);
        give_back(&mut self.held_by_namespace, &namespace, lane);
        give_back(&mut self.held_by_pod, &key.pod, lane);
    }

    /// Whether an attempt of this key is in flight.
    pub(super) fn is_in_flight(&self, key: &ProbeKey) -> bool {
        self.in_flight.contains_key(key)
    }

    /// Whether as many wait already as there are places: a wait for a place of more than a turn. What is slow waits for
    /// the places of what is slow, and counts only there.
    pub(super) fn is_crowded(&self, lane: Lane) -> bool {
        let waiting = |lane: Lane| self.queues[lane.index()].len();
        let all: usize = Lane::ALL.into_iter().filter(|lane| lane.trust != Trust::Slow).map(waiting).sum();
        all >= self.limits.all() || waiting(lane) >= self.limits.of(lane)
    }
}

/// Counts one place less of somebody; of those that hold none nothing is kept.
fn give_back<K: std::hash::Hash + Eq>(held: &mut HashMap<K, Places>, by: &K, lane: Lane) {
    if let Some(places) = held.get_mut(by) {
        places.give_back(lane);
        if places.all() == 0 {
            held.remove(by);
        }
    }
}

#[cfg(test)]
mod tests;
