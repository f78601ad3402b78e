//! Turns, tiers and shares, each as a short story; and what holds in any story.

mod contended;

use std::{
    collections::{HashSet, VecDeque},
    sync::LazyLock,
};

use proptest::prelude::*;

use super::*;
use crate::{clock, ids::ProbeKind};

/// When all happens in tests where no time passes.
static NOW: LazyLock<Instant> = LazyLock::new(clock::now);

fn key(pod: &str, container: &str) -> ProbeKey {
    ProbeKey { pod: pod.into(), container: container.into(), kind: ProbeKind::Liveness }
}

fn exec(trust: Trust) -> Lane {
    Lane { kind: Kind::Exec, trust }
}

fn dial(trust: Trust) -> Lane {
    Lane { kind: Kind::Dial, trust }
}

use Trust::{Proven, Slow, Unproven};

impl Pool {
    /// A probe of a pod in a namespace of its own.
    fn wait(&mut self, pod: &str, container: &dyn ToString, lane: Lane) {
        self.enqueue(key(pod, &container.to_string()), &pod.into(), false, lane);
    }

    fn end(&mut self, key: &ProbeKey) {
        self.finish(key, *NOW);
    }

    /// Probes of so many such pods.
    fn wait_each(&mut self, pods: &str, count: usize, lane: Lane) {
        (1..=count).for_each(|number| self.wait(&format!("{pods}{number}"), &"", lane));
    }
}

fn started(pool: &mut Pool) -> Vec<String> {
    std::iter::from_fn(|| pool.start(*NOW)).map(|key| format!("{}{}", key.pod, key.container)).collect()
}

#[test]
fn pods_take_turns_and_a_pods_probes_keep_their_order() {
    let mut pool = Pool::new(64, 1);
    for (pod, container) in [("a", "1"), ("a", "2"), ("a", "3"), ("b", "1"), ("b", "1")] {
        pool.wait(pod, &container, dial(Proven));
    }
    assert_eq!(started(&mut pool), ["a1", "b1", "a2", "a3"]);
}

#[test]
fn exec_has_a_limit_of_its_own_and_holds_nobody_else_up() {
    let mut pool = Pool::new(4, 1);
    pool.wait_each("exec", 3, exec(Proven));
    pool.wait_each("dial", 4, dial(Proven));
    assert_eq!(started(&mut pool), ["exec1", "dial1", "dial2", "dial3"]);
    pool.end(&key("dial1", ""));
    assert_eq!(started(&mut pool), ["dial4"]);
    pool.end(&key("exec1", ""));
    assert_eq!(started(&mut pool), ["exec2"]);
}

#[test]
fn fewer_places_take_nothing_from_those_that_have_one() {
    let mut pool = Pool::new(3, 3);
    pool.wait_each("exec", 5, exec(Proven));
    assert_eq!(started(&mut pool), ["exec1", "exec2", "exec3"]);
    pool.resize(2, 1);
    pool.end(&key("exec1", ""));
    pool.end(&key("exec2", ""));
    assert_eq!(started(&mut pool), [""; 0], "one is in flight, and there is place for one");
    pool.resize(4, 2);
    assert_eq!(started(&mut pool), ["exec4"]);
}

#[test]
fn the_lanes_take_turns_when_both_wait() {
    let mut pool = Pool::new(1, 1);
    pool.wait_each("exec", 2, exec(Proven));
    pool.wait_each("dial", 2, dial(Proven));
    let mut order = Vec::new();
    while let Some(key) = pool.start(*NOW) {
        order.push(key.pod.to_string());
        pool.end(&key);
    }
    assert_eq!(order, ["exec1", "dial1", "exec2", "dial2"]);
}

#[test]
fn what_is_slow_leaves_places_to_first_attempts_and_both_leave_some_to_what_is_proven() {
    for (lane, places) in [(exec as fn(Trust) -> Lane, [8, 12, 16]), (dial, [24, 36, 64])] {
        let mut pool = Pool::new(64, 16);
        let mut held = 0;
        for (trust, limit) in [Slow, Unproven, Proven].into_iter().zip(places) {
            pool.wait_each(&format!("{trust:?}"), 100, lane(trust));
            held += started(&mut pool).len();
            assert_eq!(held, limit, "{:?}", lane(trust));
        }
    }
}

#[test]
fn a_single_worker_serves_all() {
    for trust in [Slow, Unproven, Proven] {
        for lane in [exec(trust), dial(trust)] {
            let mut pool = Pool::new(1, 1);
            pool.wait("a", &1, lane);
            assert_eq!(started(&mut pool), ["a1"], "{lane:?}");
        }
    }
}

#[test]
fn one_pod_leaves_three_quarters_to_the_others_also_while_there_are_none() {
    for (lane, share) in [(exec(Proven), 4), (exec(Slow), 4), (dial(Proven), 16), (dial(Slow), 12)] {
        let mut pool = Pool::new(64, 16);
        for container in 0..100 {
            pool.wait("greedy", &container, lane);
        }
        assert_eq!(started(&mut pool).len(), share, "{lane:?}");
        pool.wait("modest", &1, lane);
        assert_eq!(started(&mut pool), ["modest1"], "{lane:?}");
        pool.end(&key("greedy", "0"));
        assert_eq!(started(&mut pool), [format!("greedy{share}")], "{lane:?}");
    }
}

#[test]
fn many_pods_of_one_namespace_leave_a_quarter_to_the_others() {
    for (lane, share) in [(exec(Proven), 12), (exec(Unproven), 9), (dial(Slow), 18)] {
        let mut pool = Pool::new(64, 16);
        for pod in 0..100 {
            pool.enqueue(key(&format!("p{pod}"), "1"), &"greedy".into(), false, lane);
        }
        assert_eq!(started(&mut pool).len(), share, "{lane:?}");
        pool.enqueue(key("modest", "1"), &"other".into(), false, lane);
        assert_eq!(started(&mut pool), ["modest1"], "{lane:?}");
    }
}

#[test]
fn namespaces_take_turns() {
    let mut pool = Pool::new(9, 1);
    for pod in ["a", "b", "c"] {
        pool.enqueue(key(pod, "1"), &"many".into(), false, dial(Proven));
    }
    pool.enqueue(key("d", "1"), &"few".into(), false, dial(Proven));
    assert_eq!(started(&mut pool), ["a1", "d1", "b1", "c1"]);
}

#[test]
fn row_04_a_pods_annotations_hold_no_place_of_its_enforced_rules_and_take_turns_with_them() {
    let mut pool = Pool::new(64, 16);
    for container in 0..31 {
        pool.wait("web", &container, exec(Unproven));
    }
    let held = started(&mut pool).len();
    assert!((1..=4).contains(&held), "{held}");
    pool.enqueue(key("web", "must"), &"web".into(), true, exec(Proven));
    assert_eq!(started(&mut pool), ["webmust"], "although its pod holds all that it may");
    // Also if it waited as an annotation until the rule came.
    assert_eq!(started(&mut pool), Vec::<String>::new());
    pool.enqueue(key("web", "30"), &"web".into(), true, exec(Unproven));
    assert_eq!(started(&mut pool), ["web30"]);
    // Of equal trust, too: what is enforced does not wait for those that came before.
    pool.enqueue(key("web", "first"), &"web".into(), true, exec(Unproven));
    assert_eq!(started(&mut pool), ["webfirst"]);
}

#[test]
fn a_key_that_waits_in_both_lanes_takes_one_place() {
    let mut pool = Pool::new(64, 1);
    pool.wait("a", &1, exec(Proven));
    pool.wait("a", &1, dial(Proven));
    assert_eq!(started(&mut pool), ["a1"]);
    pool.end(&key("a", "1"));
    pool.wait("a", &2, exec(Proven));
    assert_eq!(started(&mut pool), ["a2"], "the place of exec was given back");
}

#[test]
fn it_is_crowded_when_as_many_wait_as_there_are_places() {
    let mut pool = Pool::new(2, 1);
    pool.wait("a", &1, exec(Proven));
    assert_eq!(started(&mut pool), ["a1"]);
    assert!(!pool.is_crowded(&"a".into(), exec(Proven)), "busy is not crowded");
    pool.wait("a", &2, exec(Proven));
    assert!(pool.is_crowded(&"a".into(), exec(Proven)));
    assert!(!pool.is_crowded(&"a".into(), dial(Proven)));
    pool.wait("a", &3, dial(Proven));
    assert!(pool.is_crowded(&"a".into(), dial(Proven)));
    let mut pool = Pool::new(64, 16);
    for container in 0..100 {
        pool.wait("silent", &container, dial(Slow));
    }
    assert!(
        pool.is_crowded(&"silent".into(), dial(Slow)) && !pool.is_crowded(&"silent".into(), dial(Unproven)),
        "the slow delay each other only"
    );
    assert!(!pool.is_crowded(&"other".into(), dial(Slow)), "what others let wait delays no one");
}

/// Lets time pass until what is in flight is slow.
fn age(pool: &mut Pool) -> Instant {
    let now = *NOW + SLOW;
    assert_eq!(pool.deadline(), Some(now));
    pool.age(now);
    assert_eq!(pool.deadline(), None);
    now
}

#[test]
fn what_takes_long_counts_as_slow_and_gives_way_when_somebody_waits() {
    for (lane, both, share) in [(exec(Proven), 14, 8), (dial(Proven), 55, 24)] {
        let mut pool = Pool::new(64, 16);
        for namespace in ["m", "n"] {
            for pod in 0..100 {
                pool.enqueue(key(&format!("{namespace}{pod}"), ""), &namespace.into(), false, lane);
            }
        }
        let mut hostile = started(&mut pool).len();
        assert_eq!(hostile, both, "what two namespaces get leaves places free");
        let now = age(&mut pool);
        while let Some(key) = pool.give_way() {
            assert_eq!(pool.give_way(), None, "one at a time");
            assert_eq!(pool.finish(&key, now), Some(SLOW));
            hostile -= 1;
        }
        assert_eq!(hostile, share, "what has its share keeps it");
        assert!(!started(&mut pool).is_empty());
    }
}

#[test]
fn nothing_gives_way_while_nobody_waits_or_for_a_pod_that_has_its_share() {
    let mut pool = Pool::new(64, 16);
    pool.wait_each("slow", 16, exec(Proven));
    assert_eq!(started(&mut pool).len(), 16);
    age(&mut pool);
    assert_eq!(pool.give_way(), None, "nothing waits");
    pool.wait("also", &"slow", exec(Slow));
    assert_eq!(pool.give_way(), None, "what is slow waits for what is slow");
    pool.wait("other", &"", dial(Unproven));
    assert_eq!((started(&mut pool), pool.give_way()), (vec!["other".to_owned()], None));

    let mut pool = Pool::new(64, 16);
    (0..8).for_each(|container| pool.wait("greedy", &container, exec(Proven)));
    assert_eq!(started(&mut pool).len(), 4);
    pool.wait_each("slow", 12, exec(Proven));
    assert_eq!(started(&mut pool).len(), 12);
    age(&mut pool);
    assert_eq!(pool.give_way(), None, "greedy would not get a place even if these had given way");
    pool.wait("other", &"", exec(Unproven));
    assert_eq!(pool.give_way().unwrap().pod.as_str(), "greedy", "it holds the most");
}

#[test]
fn what_was_started_as_slow_is_never_given_up() {
    let mut pool = Pool::new(64, 16);
    (0..4).for_each(|container| pool.wait("most", &container, exec(Slow)));
    assert_eq!(started(&mut pool).len(), 4);
    pool.wait_each("quick", 12, exec(Proven));
    assert_eq!(started(&mut pool).len(), 12);
    let now = age(&mut pool);
    pool.wait_each("other", 12, exec(Unproven));
    let mut given_up = Vec::new();
    while let Some(key) = pool.give_way() {
        pool.finish(&key, now);
        given_up.push(key.pod.to_string());
    }
    assert_eq!(given_up.len(), 8);
    assert!(given_up.iter().all(|pod| pod.starts_with("quick")), "{given_up:?}");
}

#[test]
fn connections_give_way_to_commands_where_they_hold_all_places() {
    let mut pool = Pool::new(8, 2);
    pool.wait_each("slow", 8, dial(Proven));
    assert_eq!(started(&mut pool).len(), 8);
    pool.wait("command", &"", exec(Unproven));
    let now = age(&mut pool);
    let key = pool.give_way().unwrap();
    pool.finish(&key, now);
    assert_eq!(started(&mut pool), ["command"]);
}

#[test]
fn whoever_holds_nothing_gets_any_place_that_is_free() {
    for (workers, exec_workers) in [(1, 1), (2, 1), (3, 2), (4, 3), (5, 4), (64, 16)] {
        for lane in Lane::ALL {
            let mut pool = Pool::new(workers, exec_workers);
            pool.wait_each("a", 100, lane);
            assert_eq!(started(&mut pool).len(), pool.limits.of(lane), "{workers} {exec_workers} {lane:?}");
        }
    }
}

/// A claim of any pod in one of two namespaces.
fn claims() -> impl Strategy<Value = (u8, u8, usize)> {
    (0u8..6, 0u8..40, 0..Lane::ALL.len())
}

proptest! {
    // Each looks at all places after each step.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_waits_nobody_holds_more_than_its_share_and_what_is_proven_quick_finds_a_place(
        steps in prop::collection::vec(prop_oneof![
            4 => claims().prop_map(Some),
            1 => Just(None),
        ], 1..200),
        workers in 8usize..80,
    ) {
        let exec_workers = workers / 4;
        let limits = Places::new(workers, exec_workers);
        let mut pool = Pool::new(workers, exec_workers);
        let namespace = |pod: u8| -> Arc<str> { format!("n{}", pod % 2).into() };
        let mut in_flight: VecDeque<(ProbeKey, Lane)> = VecDeque::new();
        let mut lanes = HashMap::new();
        for step in steps {
            match step {
                Some((pod, container, lane)) => {
                    let key = key(&pod.to_string(), &container.to_string());
                    lanes.entry(key.clone()).or_insert_with(|| {
                        pool.enqueue(key, &namespace(pod), false, Lane::ALL[lane]);
                        Lane::ALL[lane]
                    });
                }
                None => {
                    if let Some((key, _)) = in_flight.pop_front() {
                        pool.end(&key);
                        lanes.remove(&key);
                    }
                }
            }
            while let Some(key) = pool.start(*NOW) {
                let lane = lanes[&key];
                prop_assert!(in_flight.iter().all(|(other, _)| *other != key), "twice in flight");
                in_flight.push_back((key, lane));
            }
            let held = |is_counted: &dyn Fn(&ProbeKey, Lane) -> bool| {
                in_flight.iter().filter(|(key, lane)| is_counted(key, *lane)).count()
            };
            for lane in Lane::ALL {
                let counts = |other: Lane| other.kind == lane.kind && other.trust <= lane.trust;
                prop_assert!(held(&|_, other| counts(other)) <= limits.of(lane));
                for pod in 0..6 {
                    let of_pod = held(&|key, other| *key.pod.as_str() == *pod.to_string() && counts(other));
                    let share = limits.of(lane).div_ceil(2).min(limits.of(Lane { trust: Proven, ..lane }).div_ceil(4));
                    prop_assert!(of_pod <= share, "pod {pod} holds {of_pod} of {lane:?}");
                }
                for name in ["n0", "n1"] {
                    let of_namespace = held(&|key, other| {
                        *namespace(key.pod.as_str().parse().unwrap()) == *name && counts(other)
                    });
                    prop_assert!(of_namespace <= (3 * limits.of(lane)).div_ceil(4), "{name}: {lane:?}");
                }
            }
            prop_assert!(in_flight.len() <= workers);
        }
        // All that is not proven may be there in any number: a quick newcomer of another namespace is served at once.
        let is_unproven = lanes.values().all(|lane| lane.trust != Proven);
        if is_unproven {
            for lane in [exec(Proven), dial(Proven)] {
                let newcomer = key("newcomer", &format!("{lane:?}"));
                pool.enqueue(newcomer.clone(), &"n2".into(), false, lane);
                prop_assert_eq!(pool.start(*NOW), Some(newcomer));
            }
        }
    }

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
        // Enough for each pod's share to be all that is in use.
        let mut pool = Pool::new(4 * workers, 1);
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
                    pool.wait(&pod.to_string(), &container, dial(Proven));
                }
                None => in_flight.pop_front().iter().for_each(|key| pool.end(key)),
            }
            while in_flight.len() < workers && let Some(key) = pool.start(*NOW) {
                prop_assert!(!in_flight.contains(&key), "twice in flight");
                for (pod, others) in seen.iter_mut().filter(|(pod, _)| **pod != key.pod) {
                    let served = others.entry(key.pod.clone()).or_default();
                    *served += 1;
                    prop_assert!(*served <= 1, "{} waits while {} is served again", pod, key.pod);
                }
                match pool.queues[dial(Proven).index()].has_any(|_, party| party.pod == key.pod) {
                    true => drop(seen.insert(key.pod.clone(), HashMap::new())),
                    false => drop(seen.remove(&key.pod)),
                }
                in_flight.push_back(key);
            }
            prop_assert!(in_flight.len() <= workers);
        }
        let distinct: HashSet<_> = in_flight.iter().collect();
        prop_assert_eq!(distinct.len(), in_flight.len());
    }
}

/// A hung namespace that was trusted holds all places of what is slow; one that is slow itself and holds none gets its share.
#[test]
fn what_hangs_leaves_places_to_what_is_slow_elsewhere() {
    let mut pool = Pool::new(64, 16);
    // Two pods of one namespace: thresholds leave some places free, and it all turns out to be slow.
    for (pod, container) in (0..2).flat_map(|pod| (0..32).map(move |container| (pod, container))) {
        pool.enqueue(key(&format!("hung{pod}"), &container.to_string()), &"hung".into(), false, dial(Proven));
    }
    let mut now = *NOW;
    for _ in 0..8 {
        while pool.start(now).is_some() {}
        now += SLOW;
        pool.age(now);
    }
    assert!(pool.held.of(dial(Slow)) >= pool.limits.of(dial(Slow)), "all places of what is slow are held");
    for container in 0..6 {
        pool.enqueue(key(&format!("fair{container}"), ""), &"fair".into(), false, dial(Slow));
    }
    let mut fair = 0;
    for _ in 0..64 {
        fair +=
            std::iter::from_fn(|| pool.start(now)).filter(|key| key.pod.as_str().starts_with("fair")).count();
        let Some(given_up) = pool.give_way() else { break };
        assert!(given_up.pod.as_str().starts_with("hung"));
        assert!(pool.finish(&given_up, now).is_some());
    }
    assert!(fair >= 2, "{fair} of 6 run beside what hangs");
}
