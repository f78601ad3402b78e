//! Who waits for a place: claims in, the one whose turn it is out. First comes the namespace that has used the places for
//! the least time, in it the party that has, and of that the probe that waits for the longest. Pure.
//!
//! This is start-time fair queueing (Goyal, Vin and Cheng, 1996) on two levels, except that the cost of an attempt is
//! charged when it is known.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use super::Party;
use crate::ids::ProbeKey;

/// 4,096: of how many that wait for nothing the time is remembered at most. Beyond that those are forgotten that used the
/// least; they would begin at the clock, and gain less than anyone else would.
const MOST_IDLE: usize = 4096;

/// What waits, each key once for each party: a probe that becomes enforced while it waits must not stay in its author's
/// line. Its second turn is void.
#[derive(Debug, Default)]
pub(super) struct Queue {
    namespaces: Turns<Arc<str>, Turns<Party, VecDeque<ProbeKey>>>,
    waiting: HashSet<(ProbeKey, bool)>,
    /// How many wait of each namespace of which any do.
    counts: HashMap<Arc<str>, usize>,
}

impl Queue {
    /// Puts a key behind those of its party, unless it waits there already.
    pub(super) fn push(&mut self, key: ProbeKey, namespace: &Arc<str>, party: &Party) {
        if self.waiting.insert((key.clone(), party.is_enforced)) {
            *self.counts.entry(namespace.clone()).or_default() += 1;
            self.namespaces.enter(namespace).enter(party).push_back(key);
        }
    }

    /// Takes the key whose turn it is, of those whose namespace and party are admitted. Those that are not keep their
    /// turn. Looks at no more parties than are not admitted, and one.
    pub(super) fn pop(
        &mut self,
        admits_namespace: impl Fn(&Arc<str>) -> bool,
        admits_party: impl Fn(&Party) -> bool,
    ) -> Option<(ProbeKey, Arc<str>, Party)> {
        let (namespace, (party, key)) = self.namespaces.pop(admits_namespace, |parties| {
            let next = parties.pop(&admits_party, |keys| Some((keys.pop_front()?, keys.is_empty())))?;
            Some((next, parties.order.is_empty()))
        })?;
        self.waiting.remove(&(key.clone(), party.is_enforced));
        if let Some(count) = self.counts.get_mut(&namespace) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&namespace);
            }
        }
        Some((key, namespace, party))
    }

    /// Charges a party and its namespace for the time that a place was held. Where nothing waits, it does not matter who
    /// used how much.
    pub(super) fn charge(&mut self, namespace: &Arc<str>, party: &Party, held: Duration) {
        let cost = u64::try_from(held.as_nanos()).unwrap_or(u64::MAX);
        if let Some(parties) = self.namespaces.charge(namespace, cost) {
            parties.charge(party, cost);
        }
    }

    /// Whether a key of such a namespace and party waits. Looks at no more parties than are not such, and one.
    pub(super) fn has_any(&self, is_such: impl Fn(&Arc<str>, &Party) -> bool) -> bool {
        let mut namespaces = self.namespaces.waiting();
        namespaces.any(|(namespace, parties)| parties.waiting().any(|(party, _)| is_such(namespace, party)))
    }

    /// What waits, in no order.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> impl Iterator<Item = &ProbeKey> {
        self.waiting.iter().map(|(key, _)| key)
    }

    /// How many wait of a namespace.
    pub(super) fn len_of(&self, namespace: &Arc<str>) -> usize {
        self.counts.get(namespace).copied().unwrap_or_default()
    }
}

/// Who is served next: by the time used, counted from when those began that were here before, and then by who was served
/// or came before.
type Turn = (u64, u64);

/// Those that wait, in the order of their turns, and the time that they used.
///
/// Of those that wait for nothing, a time is kept only while others wait and while it is later than the clock, and of
/// [`MOST_IDLE`] at most; without it they begin at the clock, so being idle saves nothing up.
#[derive(Debug)]
struct Turns<K, W> {
    accounts: HashMap<K, Account<W>>,
    order: BTreeMap<Turn, K>,
    idle: BTreeMap<Turn, K>,
    /// The least time that any of those that waited had used when somebody was served last.
    clock: u64,
    arrivals: u64,
}

#[derive(Debug)]
struct Account<W> {
    turn: Turn,
    /// What waits; none if nothing does.
    waits: Option<W>,
}

impl<K, W> Default for Turns<K, W> {
    fn default() -> Self {
        Self {
            accounts: HashMap::new(),
            order: BTreeMap::new(),
            idle: BTreeMap::new(),
            clock: 0,
            arrivals: 0,
        }
    }
}

impl<K: Clone + Eq + Hash, W: Default> Turns<K, W> {
    /// Lets somebody wait who does not yet; returns what waits of theirs.
    fn enter(&mut self, key: &K) -> &mut W {
        self.arrivals += 1;
        let account = self
            .accounts
            .entry(key.clone())
            .or_insert_with(|| Account { turn: (self.clock, 0), waits: None });
        if account.waits.is_none() {
            self.idle.remove(&account.turn);
            account.turn = (account.turn.0.max(self.clock), self.arrivals);
            self.order.insert(account.turn, key.clone());
        }
        account.waits.get_or_insert_default()
    }

    /// Takes something of the first that is admitted and has something to give; `take` also returns whether that was
    /// all.
    fn pop<T>(
        &mut self,
        admits: impl Fn(&K) -> bool,
        mut take: impl FnMut(&mut W) -> Option<(T, bool)>,
    ) -> Option<(K, T)> {
        let least = self.order.first_key_value().map(|((used, _), _)| *used)?;
        let (turn, taken, was_all) =
            self.order.iter().filter(|(_, key)| admits(key)).find_map(|(turn, key)| {
                let (taken, was_all) = take(self.accounts.get_mut(key)?.waits.as_mut()?)?;
                Some((*turn, taken, was_all))
            })?;
        let key = self.order.remove(&turn)?;
        let account = self.accounts.get_mut(&key)?;
        self.arrivals += 1;
        account.turn.1 = self.arrivals;
        if was_all {
            account.waits = None;
            self.idle.insert(account.turn, key.clone());
        } else {
            self.order.insert(account.turn, key.clone());
        }
        self.clock = self.clock.max(least);
        self.forget();
        Some((key, taken))
    }

    /// Adds to the time that somebody used; returns what waits of theirs, if something does.
    fn charge(&mut self, key: &K, cost: u64) -> Option<&mut W> {
        if self.order.is_empty() {
            return None;
        }
        if !self.accounts.contains_key(key) {
            self.arrivals += 1;
            let turn = (self.clock, self.arrivals);
            self.accounts.insert(key.clone(), Account { turn, waits: None });
        }
        let account = self.accounts.get_mut(key)?;
        let turns = if account.waits.is_some() { &mut self.order } else { &mut self.idle };
        turns.remove(&account.turn);
        account.turn.0 = account.turn.0.saturating_add(cost);
        turns.insert(account.turn, key.clone());
        self.forget();
        self.accounts.get_mut(key)?.waits.as_mut()
    }

    /// Those that wait, in the order of their turns.
    fn waiting(&self) -> impl Iterator<Item = (&K, &W)> {
        self.order.values().filter_map(|key| Some((key, self.accounts.get(key)?.waits.as_ref()?)))
    }

    /// Forgets whose time does not matter any more.
    fn forget(&mut self) {
        while let Some(first) = self.idle.first_entry() {
            let is_kept = !self.order.is_empty() && first.key().0 > self.clock;
            if is_kept && self.idle.len() <= MOST_IDLE {
                break;
            }
            if let Some((_, key)) = self.idle.pop_first() {
                self.accounts.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ProbeKind;

    fn key(pod: &str) -> ProbeKey {
        ProbeKey { pod: pod.into(), container: "app".into(), kind: ProbeKind::Liveness }
    }

    fn party(pod: &str) -> Party {
        Party { pod: pod.into(), is_enforced: false }
    }

    /// Lets a pod in a namespace of its own wait.
    fn push(queue: &mut Queue, pod: &str) {
        queue.push(key(pod), &pod.into(), &party(pod));
    }

    fn pop(queue: &mut Queue) -> Option<String> {
        queue.pop(|_| true, |_| true).map(|(key, ..)| key.pod.to_string())
    }

    fn charge(queue: &mut Queue, pod: &str, milliseconds: u64) {
        queue.charge(&pod.into(), &party(pod), Duration::from_millis(milliseconds));
    }

    #[test]
    fn who_used_less_time_goes_first_and_idleness_saves_nothing_up() {
        let mut queue = Queue::default();
        for pod in ["long", "short"] {
            push(&mut queue, pod);
        }
        let mut served = Vec::new();
        for _ in 0..10 {
            let pod = pop(&mut queue).unwrap();
            push(&mut queue, &pod);
            charge(&mut queue, &pod, if pod == "long" { 900 } else { 100 });
            served.push(pod);
        }
        assert_eq!(served.iter().filter(|pod| *pod == "long").count(), 1, "{served:?}");
        // Comes as if it had used as much as the one that used the least.
        push(&mut queue, "late");
        charge(&mut queue, "late", 900);
        for pod in ["long", "short", "late"] {
            assert_eq!(pop(&mut queue).as_deref(), Some(pod));
        }
    }

    #[test]
    fn nothing_is_kept_of_those_that_are_idle_and_behind_the_clock_nor_of_too_many_others() {
        let mut queue = Queue::default();
        let kept = |queue: &Queue| (queue.namespaces.accounts.len(), queue.namespaces.idle.len());
        charge(&mut queue, "none waits", 1);
        assert_eq!(kept(&queue), (0, 0));
        push(&mut queue, "blocked");
        for pod in 0..2 * MOST_IDLE {
            charge(&mut queue, &pod.to_string(), 1);
        }
        assert_eq!(kept(&queue), (MOST_IDLE + 1, MOST_IDLE));
        charge(&mut queue, "blocked", 2);
        push(&mut queue, "other");
        charge(&mut queue, "other", 3);
        assert_eq!(pop(&mut queue).as_deref(), Some("blocked"));
        assert_eq!(kept(&queue), (1, 0), "the clock passed them");
        assert_eq!(pop(&mut queue).as_deref(), Some("other"));
        assert_eq!(kept(&queue), (0, 0));
        assert_eq!((queue.waiting.len(), queue.counts.len(), pop(&mut queue)), (0, 0, None));
    }
}
