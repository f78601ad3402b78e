//! Pods that want all places for as long as they like, beside some that want little: whole runs in simulated time.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::prober::trust::Record;

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A probe, and what became of it.
struct Probe {
    key: ProbeKey,
    namespace: Arc<str>,
    kind: Kind,
    /// From one attempt to the next; none if it wants the next one as soon as one ended.
    period: Option<Duration>,
    /// How long its attempts take, again and again.
    lengths: Vec<Duration>,
    record: Record,
    due: Instant,
    made: usize,
    waits: Vec<Duration>,
}

impl Probe {
    fn new(namespace: &str, pod: &str, number: usize, kind: Kind, lengths: Vec<Duration>) -> Self {
        Self {
            key: key(&format!("{namespace}-{pod}"), &number.to_string()),
            namespace: namespace.into(),
            kind,
            period: None,
            lengths,
            record: Record::default(),
            due: *NOW,
            made: 0,
            waits: Vec::new(),
        }
    }

    /// One of 20 ms, each second.
    fn modest(namespace: &str, number: usize, kind: Kind) -> Self {
        let due = *NOW + 37 * MILLISECOND * u32::try_from(number).unwrap();
        let lengths = vec![20 * MILLISECOND];
        let period = Some(SECOND);
        Self { period, due, ..Self::new(namespace, &number.to_string(), 0, kind, lengths) }
    }
}

/// What the roster, the workers and the attempts do, in as few words.
struct Simulation {
    pool: Pool,
    probes: Vec<Probe>,
    /// When something happens to a probe: its next attempt is due, or the one in flight ends.
    due: BTreeMap<(Instant, usize), ()>,
    ends: BTreeMap<(Instant, usize), Instant>,
    /// What was started, and what gave way.
    log: Vec<(Duration, usize, bool)>,
}

impl Simulation {
    fn new(pool: Pool, probes: Vec<Probe>) -> Self {
        let due = probes.iter().enumerate().map(|(index, probe)| ((probe.due, index), ())).collect();
        Self { pool, probes, due, ends: BTreeMap::new(), log: Vec::new() }
    }

    fn run(&mut self, length: Duration) {
        let limits = self.pool.limits;
        loop {
            let times = [
                self.due.first_key_value().map(|((at, _), ())| *at),
                self.ends.first_key_value().map(|((at, _), _)| *at),
                self.pool.deadline(),
            ];
            let Some(now) = times.into_iter().flatten().min().filter(|at| *at < *NOW + length) else {
                return;
            };
            while let Some(((at, index), began)) = self.ends.pop_first() {
                if at > now {
                    self.ends.insert((at, index), began);
                    break;
                }
                self.end(index, began, now);
            }
            while let Some(((at, index), ())) = self.due.pop_first() {
                if at > now {
                    self.due.insert((at, index), ());
                    break;
                }
                let probe = &self.probes[index];
                let lane = Lane { kind: probe.kind, trust: probe.record.trust() };
                self.pool.enqueue(probe.key.clone(), &probe.namespace, false, lane);
            }
            self.pool.age(now);
            loop {
                while let Some(key) = self.pool.start(now) {
                    let index = self.index(&key);
                    let probe = &mut self.probes[index];
                    probe.waits.push(now.saturating_duration_since(probe.due));
                    let length = probe.lengths[probe.made % probe.lengths.len()];
                    probe.made += 1;
                    assert!(self.ends.keys().all(|(_, other)| *other != index), "twice in flight");
                    self.ends.insert((now + length, index), now);
                    self.log.push((now - *NOW, index, false));
                }
                assert!(self.ends.len() <= limits.all());
                let of_exec = |(_, index): &&(Instant, usize)| self.probes[*index].kind == Kind::Exec;
                assert!(self.ends.keys().filter(of_exec).count() <= limits.of(exec(Proven)));
                self.assert_nobody_waits_in_vain();
                let Some(key) = self.pool.give_way() else { break };
                let index = self.index(&key);
                self.log.push((now - *NOW, index, true));
                let in_flight = self.ends.iter().find(|((_, other), _)| *other == index);
                let (at, began) = in_flight.map(|(at, began)| (*at, *began)).unwrap();
                self.ends.remove(&at);
                assert!(now - began >= SLOW);
                self.end(index, began, now);
            }
        }
    }

    fn end(&mut self, index: usize, began: Instant, now: Instant) {
        let probe = &mut self.probes[index];
        self.pool.finish(&probe.key, now);
        probe.record.note(now - began);
        probe.due = match probe.period {
            None => now,
            Some(period) => {
                let mut due = probe.due + period;
                while due < now {
                    due += period;
                }
                due
            }
        };
        self.due.insert((probe.due, index), ());
    }

    fn index(&self, key: &ProbeKey) -> usize {
        self.probes.iter().position(|probe| probe.key == *key).unwrap()
    }

    /// In a lane with a free place, none that holds no place waits.
    fn assert_nobody_waits_in_vain(&self) {
        let free = self.pool.limits.free(&self.pool.held);
        for (index, lane) in Lane::ALL.into_iter().enumerate().filter(|(_, lane)| free.has(*lane)) {
            let holds_none = |key: &&ProbeKey| {
                let namespace = &self.probes[self.index(key)].namespace;
                !self.pool.held_by_namespace.contains_key(namespace)
            };
            assert_eq!(self.pool.queues[index].waiting().find(holds_none), None, "{lane:?}");
        }
    }

    fn waits(&self, namespace: &str) -> Vec<Duration> {
        let of_it = self.probes.iter().filter(|probe| *probe.namespace == *namespace);
        of_it.flat_map(|probe| probe.waits.iter().copied()).collect()
    }

    fn longest_wait(&self, namespace: &str) -> Duration {
        // One that waits at the end has waited since it was due.
        self.waits(namespace).into_iter().max().unwrap_or_default()
    }
}

/// How long an attempt of somebody hostile takes.
fn length() -> impl Strategy<Value = Duration> {
    let milliseconds =
        [60, 90, 99, 100, 101, 300, 500, 900, 990, 999, 1000, 1001, 1500, 4000, 60_000, 60_000];
    prop::sample::select(milliseconds.to_vec()).prop_map(Duration::from_millis)
}

/// Probes of so many namespaces that want everything at once.
fn hostile(
    namespaces: std::ops::RangeInclusive<usize>,
) -> impl Strategy<Value = Vec<Vec<(Kind, Vec<Duration>)>>> {
    let kind = prop_oneof![3 => Just(Kind::Exec), 1 => Just(Kind::Dial)];
    let probe = (kind, prop::collection::vec(length(), 1..6));
    prop::collection::vec(prop::collection::vec(probe, 1..60), namespaces)
}

fn probes(hostile: &[Vec<(Kind, Vec<Duration>)>], pods: usize) -> Vec<Probe> {
    let each = hostile.iter().enumerate().flat_map(|(namespace, probes)| {
        probes.iter().enumerate().map(move |(number, (kind, lengths))| {
            let (namespace, pod) = (format!("hostile{namespace}"), (number % pods).to_string());
            Probe::new(&namespace, &pod, number, *kind, lengths.clone())
        })
    });
    each.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whoever_holds_nothing_waits_for_no_more_than_a_second_whatever_others_do(
        hostile in hostile(1..=4),
        pods in 1usize..12,
        kind in prop_oneof![Just(Kind::Exec), Just(Kind::Dial)],
    ) {
        let mut all = probes(&hostile, pods);
        all.push(Probe::modest("modest", 0, kind));
        let mut simulation = Simulation::new(Pool::new(64, 16), all);
        simulation.run(30 * SECOND);
        let waits = simulation.waits("modest");
        prop_assert!(waits.len() >= 29, "{} attempts", waits.len());
        prop_assert!(simulation.longest_wait("modest") <= SECOND, "{:?}", simulation.longest_wait("modest"));
    }

    #[test]
    fn the_same_events_lead_to_the_same_turns(hostile in hostile(1..=6), pods in 1usize..12) {
        let logs = [(); 2].map(|()| {
            let mut simulation = Simulation::new(Pool::new(24, 6), probes(&hostile, pods));
            simulation.run(10 * SECOND);
            simulation.log
        });
        prop_assert!(logs[0] == logs[1]);
    }
}

/// Six pods of two namespaces whose 192 commands take 0.9 s each, all the time.
fn steady() -> Vec<Probe> {
    let lengths = vec![900 * MILLISECOND];
    let probe = |number: usize| {
        let (namespace, pod) = (format!("hostile{}", number % 2), (number / 2 % 3).to_string());
        Probe { period: Some(SECOND), ..Probe::new(&namespace, &pod, number, Kind::Exec, lengths.clone()) }
    };
    (0..192).map(probe).collect()
}

#[test]
fn commands_of_just_under_a_second_leave_others_their_attempts() {
    for count in [1, 20] {
        let mut all = steady();
        all.extend((0..count).map(|number| Probe::modest("modest", number, Kind::Exec)));
        let mut simulation = Simulation::new(Pool::new(64, 16), all);
        simulation.run(120 * SECOND);
        let waits = simulation.waits("modest");
        let late = waits.iter().filter(|wait| **wait > 100 * MILLISECOND).count();
        assert!(waits.len() >= 119 * count, "{} of {count} probes", waits.len());
        assert!(
            late * 100 <= waits.len(),
            "{late} of {} late, {:?}",
            waits.len(),
            simulation.longest_wait("modest")
        );
    }
}

#[test]
fn what_was_quick_and_hangs_together_delays_nobody_for_long() {
    for (kind, quick) in [(Kind::Exec, 20 * MILLISECOND), (Kind::Dial, MILLISECOND)] {
        // They are proven after the first, and hang for a minute from the tenth on.
        let mut lengths = vec![quick; 10];
        lengths.extend([60 * SECOND; 20]);
        let probe = |number: usize| {
            let (namespace, pod) = (format!("hostile{}", number % 2), (number / 2 % 3).to_string());
            let probe = Probe::new(&namespace, &pod, number, kind, lengths.clone());
            Probe { period: Some(SECOND), ..probe }
        };
        let mut all: Vec<_> = (0..192).map(probe).collect();
        all.extend((0..20).map(|number| Probe::modest("modest", number, kind)));
        // And one in a namespace of theirs.
        all.push(Probe::modest("hostile0", 20, kind));
        let mut simulation = Simulation::new(Pool::new(64, 16), all);
        simulation.run(60 * SECOND);
        assert!(simulation.waits("modest").len() >= 20 * 58, "{}", simulation.waits("modest").len());
        assert!(simulation.longest_wait("modest") <= SECOND, "{:?}", simulation.longest_wait("modest"));
        let fellow = simulation.probes.last().unwrap();
        let longest = fellow.waits.iter().max().unwrap();
        assert!(fellow.waits.len() >= 56 && *longest <= 2 * SECOND, "{} {longest:?}", fellow.waits.len());
        assert!(
            simulation.log.iter().any(|(_, _, gave_way)| *gave_way),
            "what was beyond the share gave way"
        );
    }
}
