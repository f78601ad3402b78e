//! Which attempts may run now: keys that are due in, keys that may start, and keys that must end, out. What is slow leaves places to
//! what is not, one party and one namespace leave places to the others. Pure.

mod places;
mod queue;

use std::{
    cmp::Reverse,
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    schedule::Schedule,
    trust::{Kind, SLOW, Trust},
};
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

/// Who shares places with others of its namespace: the probes of a pod, those of enforced rules apart from all others, so
/// that the author of the pod cannot delay them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Party {
    pub(super) pod: PodUid,
    pub(super) is_enforced: bool,
}

/// A bounded number of attempts in flight, and those that wait for one of their places.
///
/// What waits is bounded by the number of probes: each waits at most once. A party, or a namespace, that holds its share of
/// what is free waits also while places are free, and also if it is alone on the node: what is free is there at once for
/// those that come next. An attempt that has held its place for as long as makes it slow counts as slow from then on; what
/// is then beyond the share of what is slow gives way to what waits.
#[derive(Debug)]
pub(super) struct Pool {
    limits: Places,
    /// By key, so that nothing is ever twice in flight.
    in_flight: HashMap<ProbeKey, Held>,
    held: Places,
    /// By those that hold any.
    held_by_namespace: HashMap<Arc<str>, Places>,
    held_by_party: HashMap<Party, Places>,
    /// When those in flight that are not slow will be.
    aging: Schedule,
    /// The one that was asked to give up its place, and has not yet.
    giving_way: Option<ProbeKey>,
    /// One a lane, in the order of [`Lane::ALL`].
    queues: [Queue; Lane::ALL.len()],
    last: usize,
}

/// A place that is held.
#[derive(Debug)]
struct Held {
    namespace: Arc<str>,
    party: Party,
    lane: Lane,
    since: Instant,
    /// Until when its namespace and party were charged for it.
    charged: Instant,
    /// Whether it was trusted to end sooner.
    is_overdue: bool,
}

impl Pool {
    /// At least one place each, whatever is asked for.
    pub(super) fn new(workers: usize, exec_workers: usize) -> Self {
        Self {
            limits: Places::new(workers, exec_workers),
            in_flight: HashMap::new(),
            held: Places::default(),
            held_by_namespace: HashMap::new(),
            held_by_party: HashMap::new(),
            aging: Schedule::default(),
            giving_way: None,
            queues: Default::default(),
            last: Lane::ALL.len() - 1,
        }
    }

    /// Has other limits from now on; what is in flight beyond them ends in its own time.
    pub(super) fn resize(&mut self, workers: usize, exec_workers: usize) {
        self.limits = Places::new(workers, exec_workers);
    }

    /// Lets a key wait for a place, unless it does already.
    pub(super) fn enqueue(&mut self, key: ProbeKey, namespace: &Arc<str>, is_enforced: bool, lane: Lane) {
        let party = Party { pod: key.pod.clone(), is_enforced };
        self.queues[lane.index()].push(key, namespace, &party);
    }

    /// Gives a free place to the key whose turn it is: the lanes in turn, in each the namespace that used its places for
    /// the least time, in that the party that did, and of that the first that came.
    pub(super) fn start(&mut self, now: Instant) -> Option<ProbeKey> {
        loop {
            let (key, namespace, party, lane) = self.next()?;
            // A probe whose definition changed from one lane to another may wait in both; the second turn is void.
            if self.in_flight.contains_key(&key) {
                continue;
            }
            if lane.trust != Trust::Slow {
                self.aging.set(&key, Some(now + SLOW));
            }
            let held = Held { namespace, party, lane, since: now, charged: now, is_overdue: false };
            self.take(&held);
            self.in_flight.insert(key.clone(), held);
            return Some(key);
        }
    }

    fn next(&mut self) -> Option<(ProbeKey, Arc<str>, Party, Lane)> {
        let free = self.limits.free(&self.held);
        let turns = (1..=Lane::ALL.len()).map(|step| (self.last + step) % Lane::ALL.len());
        for index in turns {
            let lane = Lane::ALL[index];
            if !free.has(lane) {
                continue;
            }
            let (namespaces, parties) = (&self.held_by_namespace, &self.held_by_party);
            let admits_namespace = |namespace: &Arc<str>| {
                namespaces.get(namespace).is_none_or(|held| free.admit_namespace(held, lane))
            };
            let admits_party =
                |party: &Party| parties.get(party).is_none_or(|held| free.admit_party(held, lane));
            if let Some((key, namespace, party)) = self.queues[index].pop(admits_namespace, admits_party) {
                self.last = index;
                return Some((key, namespace, party, lane));
            }
        }
        None
    }

    /// Gives a place back. Returns for how long it was held, if its attempt was to give way.
    pub(super) fn finish(&mut self, key: &ProbeKey, now: Instant) -> Option<Duration> {
        let held = self.in_flight.remove(key)?;
        self.aging.set(key, None);
        self.give_back(&held, now);
        let gave_way = self.giving_way.take_if(|giving_way| giving_way == key);
        gave_way.map(|_| now.saturating_duration_since(held.since))
    }

    /// Counts what has held its place for too long among what is slow.
    pub(super) fn age(&mut self, now: Instant) {
        while let Some(key) = self.aging.take_due(now) {
            if let Some(mut held) = self.in_flight.remove(&key) {
                self.give_back(&held, now);
                held.lane.trust = Trust::Slow;
                held.is_overdue = true;
                held.charged = now;
                self.take(&held);
                self.in_flight.insert(key, held);
            }
        }
    }

    /// When [`Pool::age`] has something to do next.
    pub(super) fn deadline(&mut self) -> Option<Instant> {
        self.aging.deadline()
    }

    /// Whose attempt is to be given up now, after all was started that could be. One at a time, which keeps its place until
    /// it ends. Either something that is trusted waits, and more that is slow is in flight than its share; or something that
    /// is slow itself waits while all of that share is held, most of it by another namespace or party.
    ///
    /// What was started as slow is never given up: a probe that hangs loses one attempt by this, and comes to a verdict by
    /// those that follow.
    pub(super) fn give_way(&mut self) -> Option<ProbeKey> {
        if self.giving_way.is_some() {
            return None;
        }
        let mut kinds = [Kind::Exec, Kind::Dial].into_iter();
        self.giving_way = kinds.find_map(|kind| self.excessive(kind).or_else(|| self.greedy(kind)));
        self.giving_way.clone()
    }

    /// What is beyond the share of what is slow, while something of this kind that is trusted waits.
    fn excessive(&self, kind: Kind) -> Option<ProbeKey> {
        let excess = |lane: Lane| self.held.of(lane).saturating_sub(self.limits.of(lane));
        // Connections may hold the places that commands need, and the other way round.
        let is_full = self.held.all() >= self.limits.all();
        let others = if kind == Kind::Exec { Kind::Dial } else { Kind::Exec };
        let candidates = [Some(slow(kind)), is_full.then_some(slow(others))];
        let crowding = candidates.into_iter().flatten().find(|lane| excess(*lane) > 0)?;
        let mut rest = self.limits;
        rest.add(crowding, excess(crowding));
        let free = rest.free(&self.held);
        let waits = |trust| {
            let lane = Lane { kind, trust };
            // A party that would not get a place anyway has to wait for its own.
            self.queues[lane.index()].has_any(|_, party| {
                self.held_by_party.get(party).is_none_or(|held| free.admit_party(held, lane))
            })
        };
        [Trust::Proven, Trust::Unproven].into_iter().any(waits).then(|| self.heaviest(crowding))?
    }

    /// What holds a place of what is slow, while something slow waits whose namespace, or whose party in the same one, holds
    /// fewer even with that place.
    fn greedy(&self, kind: Kind) -> Option<ProbeKey> {
        let lane = slow(kind);
        if self.limits.free(&self.held).has(lane) {
            return None;
        }
        let victim = self.heaviest(lane)?;
        let Held { namespace, party, .. } = self.in_flight.get(&victim)?;
        let of_namespace = |name: &Arc<str>| self.held_by_namespace.get(name).map_or(0, |held| held.of(lane));
        let of_party = |party: &Party| self.held_by_party.get(party).map_or(0, |held| held.of(lane));
        let has_less = |waiting: &Arc<str>, other: &Party| {
            if waiting == namespace {
                of_party(other) + 1 < of_party(party)
            } else {
                of_namespace(waiting) + 1 < of_namespace(namespace)
            }
        };
        self.queues[lane.index()].has_any(has_less).then_some(victim)
    }

    /// Of what was trusted and turned out to be slow: of the namespace, and of its party, that hold most of that it is the one
    /// that has held its place the longest.
    fn heaviest(&self, lane: Lane) -> Option<ProbeKey> {
        let overdue = self.in_flight.iter().filter(|(_, held)| held.is_overdue && held.lane == lane);
        let (key, _) = overdue.max_by_key(|(key, held)| {
            let of_namespace = self.held_by_namespace.get(&held.namespace).map(|places| places.of(lane));
            let of_party = self.held_by_party.get(&held.party).map(|places| places.of(lane));
            (of_namespace, of_party, Reverse(held.since), *key)
        })?;
        Some(key.clone())
    }

    fn take(&mut self, Held { namespace, party, lane, .. }: &Held) {
        self.held.take(*lane);
        self.held_by_namespace.entry(namespace.clone()).or_default().take(*lane);
        self.held_by_party.entry(party.clone()).or_default().take(*lane);
    }

    /// Counts one less, and charges for it.
    fn give_back(&mut self, Held { namespace, party, lane, charged, .. }: &Held, now: Instant) {
        self.held.give_back(*lane);
        give_back(&mut self.held_by_namespace, namespace, *lane);
        give_back(&mut self.held_by_party, party, *lane);
        self.queues[lane.index()].charge(namespace, party, now.saturating_duration_since(*charged));
    }

    /// Whether an attempt of this key is in flight.
    pub(super) fn is_in_flight(&self, key: &ProbeKey) -> bool {
        self.in_flight.contains_key(key)
    }

    /// Whether as many of a namespace wait already as there are places: a wait for a place of more than a turn. What is slow
    /// waits for the places of what is slow, and counts only there. What others let wait delays none here.
    pub(super) fn is_crowded(&self, namespace: &Arc<str>, lane: Lane) -> bool {
        let waiting = |lane: Lane| self.queues[lane.index()].len_of(namespace);
        let all: usize = Lane::ALL.into_iter().filter(|lane| lane.trust != Trust::Slow).map(waiting).sum();
        all >= self.limits.all() || waiting(lane) >= self.limits.of(lane)
    }
}

/// The lane of what is slow.
fn slow(kind: Kind) -> Lane {
    Lane { kind, trust: Trust::Slow }
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
