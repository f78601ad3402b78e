//! Who has a place among so many probes of a pod and of the node: all that want one in, those that have one out. Pure.
//!
//! Each pod has its first `per_pod` probes by [`Rank`], and the node the first `per_node` of those: class by class, and
//! within a class namespace by namespace in turns, so that no namespace takes the places that others need. Who has a place
//! depends only on who wants one, not on who came first.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::SystemTime,
};

use crate::{
    ids::{PodUid, ProbeKey},
    spec::plan::{Class, too_many_of_pod},
};

/// Which probe comes before which. No two have the same key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// Whoever defined it.
    pub(super) class: Class,
    /// Those that ran before a restart of ours go on.
    pub(super) is_new: bool,
    /// Then older containers come first; one of unknown age comes last.
    pub(super) age: (bool, Option<SystemTime>),
    /// Then whatever is the same after each restart.
    pub(super) key: ProbeKey,
    /// Its pod's.
    pub(super) namespace: Arc<str>,
}

/// Who has a place.
#[derive(Debug)]
pub(super) struct Quota {
    per_pod: usize,
    per_node: usize,
    claims: HashMap<ProbeKey, Arc<Rank>>,
    /// Within are those that the pod has room for.
    pods: HashMap<PodUid, Split>,
    /// Those that their pods have room for. Within are those that have a place.
    shares: HashMap<(Class, Arc<str>), Split>,
    /// Of each share the last that has a place, and the first that has none.
    last: BTreeSet<Turn>,
    next: BTreeSet<Turn>,
    /// How many have a place.
    total: usize,
    /// Whose place may have come or gone, since this was asked last.
    changed: Vec<ProbeKey>,
}

/// When a probe has its turn on the node: after those of better classes, and after as many of each other namespace as there
/// are before it in its own.
type Turn = (Class, usize, Arc<Rank>);

/// Why there is no place. The texts are shown as the reason of an invalid probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Exceeded {
    #[error("{}", too_many_of_pod(*.0))]
    Pod(usize),
    #[error(
        "the node has more probes than prober.maxPerNode, which is {0}: enforced rules come first, then other rules; \
         within each class namespaces take turns"
    )]
    Node(usize),
}

impl Quota {
    /// Without any probe yet.
    pub(super) fn new(per_pod: usize, per_node: usize) -> Self {
        Self {
            per_pod,
            per_node,
            claims: HashMap::new(),
            pods: HashMap::new(),
            shares: HashMap::new(),
            last: BTreeSet::new(),
            next: BTreeSet::new(),
            total: 0,
            changed: Vec::new(),
        }
    }

    /// Has other limits from now on, which hold for those that have places, too.
    pub(super) fn set_limits(&mut self, per_pod: usize, per_node: usize) {
        if (self.per_pod, self.per_node) == (per_pod, per_node) {
            return;
        }
        let former = std::mem::replace(self, Self::new(per_pod, per_node));
        self.changed = former.changed;
        former.claims.into_values().for_each(|rank| self.claim(Rank::clone(&rank)));
    }

    /// A probe wants a place, or has another rank from now on.
    pub(super) fn claim(&mut self, rank: Rank) {
        if self.claims.get(&rank.key).is_some_and(|known| **known == rank) {
            return;
        }
        self.withdraw(&rank.key);
        self.changed.push(rank.key.clone());
        let rank = Arc::new(rank);
        self.claims.insert(rank.key.clone(), rank.clone());
        if self.pods.entry(rank.key.pod.clone()).or_default().insert(rank.clone()) {
            self.join(&rank);
        }
        self.settle_pod(&rank.key.pod);
    }

    /// A probe does not want its place any more.
    pub(super) fn withdraw(&mut self, key: &ProbeKey) {
        let Some(rank) = self.claims.remove(key) else { return };
        if self.pods.get_mut(&key.pod).is_some_and(|pod| pod.remove(&rank)) {
            self.leave(&rank);
        }
        self.settle_pod(&key.pod);
    }

    /// Why a probe that wants a place has none.
    pub(super) fn refusal(&self, key: &ProbeKey) -> Option<Exceeded> {
        let rank = self.claims.get(key)?;
        if self.pods.get(&key.pod).is_some_and(|pod| pod.beyond.contains(rank)) {
            return Some(Exceeded::Pod(self.per_pod));
        }
        let share = self.shares.get(&(rank.class, rank.namespace.clone()));
        share.is_some_and(|share| share.beyond.contains(rank)).then_some(Exceeded::Node(self.per_node))
    }

    /// Whose place may have come or gone, since this was asked last.
    pub(super) fn take_changed(&mut self) -> Vec<ProbeKey> {
        std::mem::take(&mut self.changed)
    }

    /// Fills the room of a pod.
    fn settle_pod(&mut self, uid: &PodUid) {
        while let Some(pod) = self.pods.get_mut(uid) {
            if pod.within.len() > self.per_pod
                && let Some(rank) = pod.demote()
            {
                self.changed.push(rank.key.clone());
                self.leave(&rank);
            } else if pod.within.len() < self.per_pod
                && let Some(rank) = pod.promote()
            {
                self.join(&rank);
            } else {
                if pod.is_empty() {
                    self.pods.remove(uid);
                }
                break;
            }
        }
    }

    /// The pod of a probe has room for it.
    fn join(&mut self, rank: &Arc<Rank>) {
        self.changed.push(rank.key.clone());
        self.change(rank, |share| share.insert(rank.clone()));
        self.settle_node();
    }

    /// The pod of a probe has room for it no more.
    fn leave(&mut self, rank: &Arc<Rank>) {
        self.change(rank, |share| share.remove(rank));
        self.settle_node();
    }

    /// Fills the room of the node. A place that comes or goes moves a few probes at most, each in logarithmic time.
    fn settle_node(&mut self) {
        loop {
            let (last, next) = (self.last.last(), self.next.first());
            let is_overtaken = last.zip(next).is_some_and(|(last, next)| next < last);
            let is_over = self.total > self.per_node || (self.total == self.per_node && is_overtaken);
            let moved = match (last.cloned(), next.cloned()) {
                (Some((_, _, last)), _) if is_over => self.change(&last, Split::demote),
                (_, Some((_, _, next))) if self.total < self.per_node => self.change(&next, Split::promote),
                _ => None,
            };
            let Some(rank) = moved else { return };
            self.changed.push(rank.key.clone());
        }
    }

    /// Changes the share that a probe belongs to, and keeps the turns in line with it.
    fn change<R>(&mut self, of: &Rank, change: impl FnOnce(&mut Split) -> R) -> R {
        let name = (of.class, of.namespace.clone());
        let share = self.shares.entry(name.clone()).or_default();
        let (last, next) = share.turns(of.class);
        last.iter().for_each(|turn| {
            self.last.remove(turn);
        });
        next.iter().for_each(|turn| {
            self.next.remove(turn);
        });
        self.total -= share.within.len();
        let result = change(share);
        self.total += share.within.len();
        let (last, next) = share.turns(of.class);
        self.last.extend(last);
        self.next.extend(next);
        if share.is_empty() {
            self.shares.remove(&name);
        }
        result
    }
}

/// Probes in their order, in two parts.
#[derive(Debug, Default)]
struct Split {
    /// The first ones.
    within: BTreeSet<Arc<Rank>>,
    beyond: BTreeSet<Arc<Rank>>,
}

impl Split {
    fn is_empty(&self) -> bool {
        self.within.is_empty() && self.beyond.is_empty()
    }

    /// Returns whether it comes before one that is within, and so is within.
    fn insert(&mut self, rank: Arc<Rank>) -> bool {
        let is_within = self.within.last().is_some_and(|last| rank < *last);
        if is_within { &mut self.within } else { &mut self.beyond }.insert(rank);
        is_within
    }

    /// Returns whether it was within.
    fn remove(&mut self, rank: &Arc<Rank>) -> bool {
        let was_within = self.within.remove(rank);
        self.beyond.remove(rank);
        was_within
    }

    fn demote(&mut self) -> Option<Arc<Rank>> {
        let rank = self.within.pop_last()?;
        self.beyond.insert(rank.clone());
        Some(rank)
    }

    fn promote(&mut self) -> Option<Arc<Rank>> {
        let rank = self.beyond.pop_first()?;
        self.within.insert(rank.clone());
        Some(rank)
    }

    fn turns(&self, class: Class) -> (Option<Turn>, Option<Turn>) {
        let places = self.within.len();
        let last = self.within.last().map(|rank| (class, places - 1, rank.clone()));
        (last, self.beyond.first().map(|rank| (class, places, rank.clone())))
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, time::Duration};

    use proptest::prelude::*;

    use super::*;
    use crate::ids::ProbeKind;

    fn rank(class: Class, namespace: u8, pod: u8, container: u8, is_new: bool) -> Rank {
        // Containers of different pods are of the same age, and of one pod in no order of their names.
        let made = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::from(container % 3));
        Rank {
            class,
            is_new,
            age: (container.is_multiple_of(5), Some(made)),
            key: ProbeKey {
                pod: format!("n{namespace}-p{pod}").into(),
                container: format!("c{container}").into(),
                kind: ProbeKind::Liveness,
            },
            namespace: format!("n{namespace}").into(),
        }
    }

    fn admitted(quota: &Quota) -> HashSet<ProbeKey> {
        quota.claims.keys().filter(|key| quota.refusal(key).is_none()).cloned().collect()
    }

    /// Those that are to have places, by the words of the rule.
    fn expected(quota: &Quota) -> HashSet<ProbeKey> {
        let mut all: Vec<_> = quota.claims.values().cloned().collect();
        all.sort();
        let (mut of_pods, mut of_shares) = (HashMap::new(), HashMap::new());
        let next = |count: &mut usize| std::mem::replace(count, *count + 1);
        all.retain(|rank| next(of_pods.entry(rank.key.pod.clone()).or_default()) < quota.per_pod);
        let turn = |rank: Arc<Rank>| {
            let before = next(of_shares.entry((rank.class, rank.namespace.clone())).or_default());
            (rank.class, before, rank)
        };
        let mut turns: Vec<Turn> = all.into_iter().map(turn).collect();
        turns.sort();
        turns.into_iter().take(quota.per_node).map(|(_, _, rank)| rank.key.clone()).collect()
    }

    fn class() -> impl Strategy<Value = Class> {
        prop_oneof![Just(Class::Enforced), Just(Class::Rule), Just(Class::Author), Just(Class::Author)]
    }

    proptest! {
        #[test]
        fn row_04_who_has_a_place_depends_only_on_who_wants_one(
            steps in prop::collection::vec(
                (class(), 0u8..4, 0u8..4, 0u8..12, any::<bool>(), 0u8..4, (1usize..5, 1usize..24)), 1..120
            ),
        ) {
            let mut quota = Quota::new(3, 9);
            let mut known = HashSet::new();
            for (class, namespace, pod, container, is_new, what, limits) in steps {
                let rank = rank(class, namespace, pod, container, is_new);
                match what {
                    0 => quota.withdraw(&rank.key),
                    1 if container == 0 => quota.set_limits(limits.0, limits.1),
                    _ => quota.claim(rank),
                }
                let now = admitted(&quota);
                prop_assert_eq!(&now, &expected(&quota));
                prop_assert_eq!(quota.total, now.len());
                let changed: HashSet<_> = quota.take_changed().into_iter().collect();
                let wants = |key: &&ProbeKey| quota.claims.contains_key(*key);
                prop_assert!(now.symmetric_difference(&known).filter(wants).all(|key| changed.contains(key)));
                known = now;
            }
            for key in quota.claims.keys().cloned().collect::<Vec<_>>() {
                quota.withdraw(&key);
            }
            prop_assert!(quota.pods.is_empty() && quota.shares.is_empty() && quota.total == 0);
            prop_assert!(quota.last.is_empty() && quota.next.is_empty());
        }
    }

    #[test]
    fn row_04_no_annotation_has_a_place_that_an_enforced_rule_needs_and_namespaces_take_turns() {
        let mut quota = Quota::new(4, 8);
        (0..40).for_each(|number| quota.claim(rank(Class::Author, 0, number / 8, number, false)));
        assert_eq!(quota.total, 8, "nobody else needs a place");
        (0..2).for_each(|number| quota.claim(rank(Class::Author, 1, 0, number, true)));
        (0..9).for_each(|number| quota.claim(rank(Class::Author, 2, number, number, true)));
        let of = |quota: &Quota, namespace: &str| {
            let admitted = admitted(quota).into_iter();
            admitted.filter(|key| key.pod.as_str().starts_with(namespace)).count()
        };
        assert_eq!(["n0", "n1", "n2"].map(|namespace| of(&quota, namespace)), [3, 2, 3]);
        let enforced = rank(Class::Enforced, 0, 0, 99, true);
        quota.claim(enforced.clone());
        assert_eq!(quota.refusal(&enforced.key), None);
        (0..9).for_each(|number| quota.claim(rank(Class::Rule, 3, number, 0, true)));
        assert_eq!(["n0", "n1", "n2", "n3"].map(|namespace| of(&quota, namespace)), [1, 0, 0, 7]);
        assert_eq!(quota.refusal(&enforced.key), None);
    }

    #[test]
    fn thousands_of_probes_beyond_the_limits_are_as_cheap_as_those_within() {
        // 40,000 in the order that displaces most: the newest first. In quadratic time this would take minutes.
        let mut quota = Quota::new(100, 5_000);
        for number in (0..40_000u32).rev() {
            let made = SystemTime::UNIX_EPOCH + Duration::from_secs(number.into());
            let base = rank(Class::Author, (number % 7) as u8, (number % 200) as u8, 1, true);
            let key = ProbeKey { container: number.to_string().into(), ..base.key.clone() };
            quota.claim(Rank { age: (false, Some(made)), key, ..base });
        }
        assert_eq!((quota.total, quota.claims.len()), (5_000, 40_000));
        assert!(quota.take_changed().len() < 6 * 40_000, "a few of each");
    }
}
