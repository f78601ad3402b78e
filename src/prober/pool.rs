//! Who may run now: keys that are due in, keys that may start out, fair between pods. Pure.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::ids::{PodUid, ProbeKey};

/// Which limit an attempt stands under, besides that of all workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// Runs a command through the runtime: `exec_workers`.
    Exec,
    /// Opens a connection of our own: no further limit.
    Dial,
    /// Opens one to a peer that was slow the last time: three quarters of the workers that exec leaves, so that peers
    /// that say nothing leave places to those that answer at once, and delay only each other; also while as many
    /// commands as may do not end.
    Slow,
}

/// A bounded number of attempts in flight, and those that wait for one of their places.
///
/// What waits is bounded by the number of probes: each waits at most once.
#[derive(Debug)]
pub(super) struct Pool {
    workers: usize,
    exec_workers: usize,
    slow_workers: usize,
    /// By key, so that nothing is ever twice in flight.
    in_flight: HashMap<ProbeKey, Lane>,
    exec_in_flight: usize,
    slow_in_flight: usize,
    exec: Queue,
    dial: Queue,
    slow: Queue,
    last: Lane,
}

impl Pool {
    /// At least one place each, whatever is asked for.
    pub(super) fn new(workers: usize, exec_workers: usize) -> Self {
        let mut pool = Self {
            workers: 0,
            exec_workers: 0,
            slow_workers: 0,
            in_flight: HashMap::new(),
            exec_in_flight: 0,
            slow_in_flight: 0,
            exec: Queue::default(),
            dial: Queue::default(),
            slow: Queue::default(),
            last: Lane::Dial,
        };
        pool.resize(workers, exec_workers);
        pool
    }

    /// Has other limits from now on; what is in flight beyond them ends in its own time.
    pub(super) fn resize(&mut self, workers: usize, exec_workers: usize) {
        self.workers = workers.max(1);
        self.exec_workers = exec_workers.max(1);
        self.slow_workers = (self.workers.saturating_sub(self.exec_workers) * 3 / 4).max(1);
    }

    /// Lets a key wait for a place, unless it does already.
    pub(super) fn enqueue(&mut self, key: ProbeKey, lane: Lane) {
        match lane {
            Lane::Exec => self.exec.push(key),
            Lane::Dial => self.dial.push(key),
            Lane::Slow => self.slow.push(key),
        }
    }

    /// Gives a free place to the key whose turn it is: the lanes in turn, in each the pods in turn, in each the
    /// first that came.
    pub(super) fn start(&mut self) -> Option<ProbeKey> {
        if self.in_flight.len() >= self.workers {
            return None;
        }
        let (key, lane) = loop {
            let lane = self.next_lane()?;
            let key = match lane {
                Lane::Exec => self.exec.pop(),
                Lane::Dial => self.dial.pop(),
                Lane::Slow => self.slow.pop(),
            }?;
            // A probe whose definition changed from one lane to another may wait in both; the second turn is void.
            if !self.in_flight.contains_key(&key) {
                break (key, lane);
            }
        };
        self.last = lane;
        self.exec_in_flight += usize::from(lane == Lane::Exec);
        self.slow_in_flight += usize::from(lane == Lane::Slow);
        self.in_flight.insert(key.clone(), lane);
        Some(key)
    }

    /// The lane whose turn it is, of those where something waits and may start.
    fn next_lane(&self) -> Option<Lane> {
        let turns = match self.last {
            Lane::Exec => [Lane::Dial, Lane::Slow, Lane::Exec],
            Lane::Dial => [Lane::Slow, Lane::Exec, Lane::Dial],
            Lane::Slow => [Lane::Exec, Lane::Dial, Lane::Slow],
        };
        turns.into_iter().find(|lane| match lane {
            Lane::Exec => self.exec_in_flight < self.exec_workers && !self.exec.is_empty(),
            Lane::Dial => !self.dial.is_empty(),
            Lane::Slow => self.slow_in_flight < self.slow_workers && !self.slow.is_empty(),
        })
    }

    /// Gives a place back.
    pub(super) fn finish(&mut self, key: &ProbeKey) {
        match self.in_flight.remove(key) {
            Some(Lane::Exec) => self.exec_in_flight -= 1,
            Some(Lane::Slow) => self.slow_in_flight -= 1,
            Some(Lane::Dial) | None => {}
        }
    }

    /// Whether an attempt of this key is in flight.
    pub(super) fn is_in_flight(&self, key: &ProbeKey) -> bool {
        self.in_flight.contains_key(key)
    }

    /// Whether as many wait already as there are places: a wait for a place of more than a turn.
    pub(super) fn is_crowded(&self, lane: Lane) -> bool {
        let all = self.exec.len() + self.dial.len();
        all >= self.workers || (lane == Lane::Exec && self.exec.len() >= self.exec_workers)
    }
}

/// First come, first served within a pod; the pods in turn.
#[derive(Debug, Default)]
struct Queue {
    turns: VecDeque<PodUid>,
    pods: HashMap<PodUid, VecDeque<ProbeKey>>,
    waiting: HashSet<ProbeKey>,
}

impl Queue {
    fn push(&mut self, key: ProbeKey) {
        if !self.waiting.insert(key.clone()) {
            return;
        }
        let pod = self.pods.entry(key.pod.clone()).or_default();
        if pod.is_empty() {
            self.turns.push_back(key.pod.clone());
        }
        pod.push_back(key);
    }

    fn pop(&mut self) -> Option<ProbeKey> {
        let pod = self.turns.pop_front()?;
        let keys = self.pods.get_mut(&pod)?;
        let key = keys.pop_front()?;
        if keys.is_empty() {
            self.pods.remove(&pod);
        } else {
            self.turns.push_back(pod);
        }
        self.waiting.remove(&key);
        Some(key)
    }

    fn len(&self) -> usize {
        self.waiting.len()
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::ProbeKind;

    fn key(pod: &str, container: &str) -> ProbeKey {
        ProbeKey { pod: pod.into(), container: container.into(), kind: ProbeKind::Liveness }
    }

    fn started(pool: &mut Pool) -> Vec<String> {
        std::iter::from_fn(|| pool.start()).map(|key| format!("{}{}", key.pod, key.container)).collect()
    }

    #[test]
    fn pods_take_turns_and_a_pods_probes_keep_their_order() {
        let mut pool = Pool::new(9, 1);
        for (pod, container) in [("a", "1"), ("a", "2"), ("a", "3"), ("b", "1"), ("b", "1")] {
            pool.enqueue(key(pod, container), Lane::Dial);
        }
        assert_eq!(started(&mut pool), ["a1", "b1", "a2", "a3"]);
    }

    #[test]
    fn exec_has_a_limit_of_its_own_and_holds_nobody_else_up() {
        let mut pool = Pool::new(4, 1);
        for container in ["1", "2", "3"] {
            pool.enqueue(key("exec", container), Lane::Exec);
        }
        for container in ["1", "2", "3", "4"] {
            pool.enqueue(key("dial", container), Lane::Dial);
        }
        assert_eq!(started(&mut pool), ["exec1", "dial1", "dial2", "dial3"]);
        pool.finish(&key("dial", "1"));
        assert_eq!(started(&mut pool), ["dial4"]);
        pool.finish(&key("exec", "1"));
        assert_eq!(started(&mut pool), ["exec2"]);
    }

    #[test]
    fn fewer_places_take_nothing_from_those_that_have_one() {
        let mut pool = Pool::new(3, 3);
        for container in ["1", "2", "3", "4", "5"] {
            pool.enqueue(key("exec", container), Lane::Exec);
        }
        assert_eq!(started(&mut pool), ["exec1", "exec2", "exec3"]);
        pool.resize(2, 1);
        pool.finish(&key("exec", "1"));
        pool.finish(&key("exec", "2"));
        assert_eq!(started(&mut pool), [""; 0], "one is in flight, and there is place for one");
        pool.resize(4, 2);
        assert_eq!(started(&mut pool), ["exec4"]);
    }

    #[test]
    fn the_lanes_take_turns_when_both_wait() {
        let mut pool = Pool::new(1, 1);
        for container in ["1", "2"] {
            pool.enqueue(key("exec", container), Lane::Exec);
            pool.enqueue(key("dial", container), Lane::Dial);
        }
        let mut order = Vec::new();
        while let Some(key) = pool.start() {
            order.push(key.pod.to_string());
            pool.finish(&key);
        }
        assert_eq!(order, ["exec", "dial", "exec", "dial"]);
    }

    #[test]
    fn slow_peers_leave_places_to_the_others() {
        let mut pool = Pool::new(5, 1);
        for container in ["1", "2", "3", "4"] {
            pool.enqueue(key("slow", container), Lane::Slow);
        }
        assert_eq!(started(&mut pool), ["slow1", "slow2", "slow3"]);
        pool.enqueue(key("exec", "1"), Lane::Exec);
        assert_eq!(started(&mut pool), ["exec1"], "also beside commands that do not end");
        pool.enqueue(key("dial", "1"), Lane::Dial);
        pool.enqueue(key("dial", "2"), Lane::Dial);
        assert_eq!(started(&mut pool), ["dial1"]);
        pool.finish(&key("dial", "1"));
        assert_eq!(started(&mut pool), ["dial2"]);
        pool.finish(&key("slow", "1"));
        assert_eq!(started(&mut pool), ["slow4"]);
        let mut single = Pool::new(1, 1);
        single.enqueue(key("slow", "1"), Lane::Slow);
        assert_eq!(started(&mut single), ["slow1"], "a single worker serves all");
    }

    #[test]
    fn a_key_that_waits_in_both_lanes_takes_one_place() {
        let mut pool = Pool::new(2, 1);
        pool.enqueue(key("a", "1"), Lane::Exec);
        pool.enqueue(key("a", "1"), Lane::Dial);
        assert_eq!(started(&mut pool), ["a1"]);
        pool.finish(&key("a", "1"));
        pool.enqueue(key("a", "2"), Lane::Exec);
        assert_eq!(started(&mut pool), ["a2"], "the place of exec was given back");
    }

    #[test]
    fn it_is_crowded_when_as_many_wait_as_there_are_places() {
        let mut pool = Pool::new(2, 1);
        pool.enqueue(key("a", "1"), Lane::Exec);
        assert_eq!(started(&mut pool), ["a1"]);
        assert!(!pool.is_crowded(Lane::Exec), "busy is not crowded");
        pool.enqueue(key("a", "2"), Lane::Exec);
        assert!(pool.is_crowded(Lane::Exec));
        assert!(!pool.is_crowded(Lane::Dial));
        pool.enqueue(key("a", "3"), Lane::Dial);
        assert!(pool.is_crowded(Lane::Dial));
    }

    proptest! {
        #[test]
        fn no_pod_that_waits_sees_another_one_served_twice(
            steps in prop::collection::vec(prop_oneof![
                2 => (0u8..4, 0u8..8).prop_map(Some),
                1 => Just(None),
            ], 1..300),
            workers in 1usize..4,
        ) {
            let mut pool = Pool::new(workers, workers);
            let mut in_flight = VecDeque::new();
            // How often each pod that waits saw each other one served, since it waits or was served itself.
            let mut seen: HashMap<PodUid, HashMap<PodUid, u32>> = HashMap::new();
            for step in steps {
                match step {
                    Some((pod, container)) => {
                        let key = key(&pod.to_string(), &container.to_string());
                        if pool.is_in_flight(&key) {
                            continue;
                        }
                        seen.entry(key.pod.clone()).or_default();
                        pool.enqueue(key, Lane::Dial);
                    }
                    None => in_flight.pop_front().iter().for_each(|key| pool.finish(key)),
                }
                while let Some(key) = pool.start() {
                    prop_assert!(!in_flight.contains(&key), "twice in flight");
                    for (pod, others) in seen.iter_mut().filter(|(pod, _)| **pod != key.pod) {
                        let served = others.entry(key.pod.clone()).or_default();
                        *served += 1;
                        prop_assert!(*served <= 1, "{} waits while {} is served again", pod, key.pod);
                    }
                    match pool.dial.pods.contains_key(&key.pod) {
                        true => drop(seen.insert(key.pod.clone(), HashMap::new())),
                        false => drop(seen.remove(&key.pod)),
                    }
                    in_flight.push_back(key);
                }
                prop_assert!(in_flight.len() <= workers);
            }
        }
    }
}
