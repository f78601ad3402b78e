//! Who has a place within the budgets of a pod and of the node: all that want one in, those that have one out. Pure.
//!
//! Each pod has its first probes by [`Rank`], as far as its budget goes, and the node the first of those: class by class, and
//! within a class whichever namespace has used the smallest share of the budget so far, so that no namespace takes what others
//! need. Both end at the first probe that does not fit; one that no budget would do for even alone ends nothing. Who has a
//! place depends only on who wants one, not on who came first.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::SystemTime,
};

use crate::{
    ids::{PodUid, ProbeKey},
    spec::{
        need::{Budget, Excess, Need, Resource},
        plan::Class,
    },
};

/// Which probe comes before which. No two have the same key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// Whoever defined it.
    pub(super) class: Class,
    /// Those whose containers have exited come last.
    pub(super) is_done: bool,
    /// Those that ran before a restart of ours go on.
    pub(super) is_new: bool,
    /// Then older containers come first; one of unknown age comes last.
    pub(super) age: (bool, Option<SystemTime>),
    /// Then whatever is the same after each restart.
    pub(super) key: ProbeKey,
    /// Its pod's.
    pub(super) namespace: Arc<str>,
    /// What it takes.
    pub(super) need: Need,
}

/// Who has a place.
#[derive(Debug)]
pub(super) struct Quota {
    per_pod: Budget,
    per_node: Budget,
    claims: HashMap<ProbeKey, Arc<Rank>>,
    /// Within are those that the pod has room for.
    pods: HashMap<PodUid, Split>,
    /// Those that their pods have room for. Within are those that have a place.
    shares: HashMap<(Tier, Arc<str>), Split>,
    /// Of each share the last that has a place, and the first that has none.
    last: BTreeSet<Turn>,
    next: BTreeSet<Turn>,
    /// What those take that have a place.
    used: Need,
    /// What all would take.
    asked: Need,
    /// Whose place may have come or gone, since this was asked last.
    changed: Vec<ProbeKey>,
}

/// The class of a probe, and whether its container has exited.
type Tier = (Class, bool);

/// When a probe has its turn on the node: after those of better tiers, and by the share of the node's budget that those before
/// it in its own namespace use.
type Turn = (Tier, u64, Arc<Rank>);

impl Quota {
    /// Without any probe yet.
    pub(super) fn new((per_pod, per_node): (Budget, Budget)) -> Self {
        Self {
            per_pod,
            per_node,
            claims: HashMap::new(),
            pods: HashMap::new(),
            shares: HashMap::new(),
            last: BTreeSet::new(),
            next: BTreeSet::new(),
            used: Need::default(),
            asked: Need::default(),
            changed: Vec::new(),
        }
    }

    /// Has other limits from now on, which hold for those that have places, too.
    pub(super) fn set_limits(&mut self, budgets: (Budget, Budget)) {
        if (self.per_pod, self.per_node) == budgets {
            return;
        }
        let former = std::mem::replace(self, Self::new(budgets));
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
        self.asked += rank.need;
        if self.excess_alone(&rank).is_some() {
            return;
        }
        if self.pods.entry(rank.key.pod.clone()).or_default().insert(rank.clone()) {
            self.join(&rank);
        }
        self.settle_pod(&rank.key.pod);
    }

    /// A probe does not want its place any more.
    pub(super) fn withdraw(&mut self, key: &ProbeKey) {
        let Some(rank) = self.claims.remove(key) else { return };
        self.asked -= rank.need;
        if self.excess_alone(&rank).is_some() {
            return;
        }
        if self.pods.get_mut(&key.pod).is_some_and(|pod| pod.remove(&rank)) {
            self.leave(&rank);
        }
        self.settle_pod(&key.pod);
    }

    /// Why a probe that wants a place has none.
    pub(super) fn refusal(&self, key: &ProbeKey) -> Option<Excess> {
        let rank = self.claims.get(key)?;
        if let Some((budget, resource)) = self.excess_alone(rank) {
            return Some(budget.refuse(resource, rank.need));
        }
        // The first that did not fit ends the list for all after it.
        let excess = |budget: Budget, used: Need, next: Option<&Arc<Rank>>, asked| {
            let excess = next.and_then(|next| budget.excess_with(used, next.need, next.class));
            budget.refuse(excess.unwrap_or(Resource::Places), asked)
        };
        let pod = self.pods.get(&key.pod)?;
        if pod.beyond.contains(rank) {
            return Some(excess(self.per_pod, pod.used, pod.beyond.first(), pod.asked));
        }
        let share = self.shares.get(&rank.share())?;
        let next = self.next.first().map(|(_, _, rank)| rank);
        share.beyond.contains(rank).then(|| excess(self.per_node, self.used, next, self.asked))
    }

    /// What a probe takes more of than there is, if it were the only one.
    fn excess_alone(&self, rank: &Rank) -> Option<(Budget, Resource)> {
        let excess = |budget: Budget| Some((budget, budget.excess(rank.need, rank.class)?));
        excess(self.per_pod).or_else(|| excess(self.per_node))
    }

    /// Whose place may have come or gone, since this was asked last.
    pub(super) fn take_changed(&mut self) -> Vec<ProbeKey> {
        std::mem::take(&mut self.changed)
    }

    /// Fills the room of a pod.
    fn settle_pod(&mut self, uid: &PodUid) {
        while let Some(pod) = self.pods.get_mut(uid) {
            if pod.is_over(&self.per_pod)
                && let Some(rank) = pod.demote()
            {
                self.changed.push(rank.key.clone());
                self.leave(&rank);
            } else if pod.has_room(&self.per_pod)
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
            let is_over =
                last.is_some_and(|(_, _, last)| self.per_node.excess(self.used, last.class).is_some());
            let has_room = next.is_some_and(|(_, _, next)| {
                self.per_node.excess_with(self.used, next.need, next.class).is_none()
            });
            let moved = match (last.cloned(), next.cloned()) {
                (Some((_, _, last)), _) if is_over || (is_overtaken && !has_room) => {
                    self.change(&last, Split::demote)
                }
                (_, Some((_, _, next))) if has_room => self.change(&next, Split::promote),
                _ => None,
            };
            let Some(rank) = moved else { return };
            self.changed.push(rank.key.clone());
        }
    }

    /// Changes the share that a probe belongs to, and keeps the turns in line with it.
    fn change<R>(&mut self, of: &Rank, change: impl FnOnce(&mut Split) -> R) -> R {
        let name = of.share();
        let share = self.shares.entry(name.clone()).or_default();
        let (last, next) = share.turns(name.0, &self.per_node);
        last.iter().for_each(|turn| {
            self.last.remove(turn);
        });
        next.iter().for_each(|turn| {
            self.next.remove(turn);
        });
        self.used -= share.used;
        let result = change(share);
        self.used += share.used;
        let (last, next) = share.turns(name.0, &self.per_node);
        self.last.extend(last);
        self.next.extend(next);
        if share.is_empty() {
            self.shares.remove(&name);
        }
        result
    }
}

impl Rank {
    /// What it shares its turns with.
    fn share(&self) -> (Tier, Arc<str>) {
        ((self.class, self.is_done), self.namespace.clone())
    }
}

/// Probes in their order, in two parts.
#[derive(Debug, Default)]
struct Split {
    /// The first ones.
    within: BTreeSet<Arc<Rank>>,
    beyond: BTreeSet<Arc<Rank>>,
    /// What the first ones take.
    used: Need,
    /// What all would take.
    asked: Need,
}

impl Split {
    fn is_empty(&self) -> bool {
        self.within.is_empty() && self.beyond.is_empty()
    }

    /// Returns whether it comes before one that is within, and so is within.
    fn insert(&mut self, rank: Arc<Rank>) -> bool {
        let is_within = self.within.last().is_some_and(|last| rank < *last);
        self.asked += rank.need;
        if is_within {
            self.used += rank.need;
            self.within.insert(rank);
        } else {
            self.beyond.insert(rank);
        }
        is_within
    }

    /// Returns whether it was within.
    fn remove(&mut self, rank: &Arc<Rank>) -> bool {
        let was_within = self.within.remove(rank);
        if was_within {
            self.used -= rank.need;
        }
        if was_within || self.beyond.remove(rank) {
            self.asked -= rank.need;
        }
        was_within
    }

    fn demote(&mut self) -> Option<Arc<Rank>> {
        let rank = self.within.pop_last()?;
        self.used -= rank.need;
        self.beyond.insert(rank.clone());
        Some(rank)
    }

    fn promote(&mut self) -> Option<Arc<Rank>> {
        let rank = self.beyond.pop_first()?;
        self.used += rank.need;
        self.within.insert(rank.clone());
        Some(rank)
    }

    /// Whether the first ones take more than there is.
    fn is_over(&self, budget: &Budget) -> bool {
        self.within.last().is_some_and(|last| budget.excess(self.used, last.class).is_some())
    }

    /// Whether there is enough for one more.
    fn has_room(&self, budget: &Budget) -> bool {
        let next = self.beyond.first();
        next.is_some_and(|next| budget.excess_with(self.used, next.need, next.class).is_none())
    }

    /// The turn of the last that has a place, and of the first that has none.
    fn turns(&self, tier: Tier, budget: &Budget) -> (Option<Turn>, Option<Turn>) {
        let last = self.within.last().map(|rank| {
            let mut before = self.used;
            before -= rank.need;
            (tier, budget.share(before), rank.clone())
        });
        (last, self.beyond.first().map(|rank| (tier, budget.share(self.used), rank.clone())))
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
            is_done: false,
            is_new,
            age: (container.is_multiple_of(5), Some(made)),
            key: ProbeKey {
                pod: format!("n{namespace}-p{pod}").into(),
                container: format!("c{container}").into(),
                kind: ProbeKind::Liveness,
            },
            namespace: format!("n{namespace}").into(),
            need: Need { places: 1, rate: 1_000, bytes: 1_000 },
        }
    }

    fn budgets(per_pod: usize, per_node: usize) -> (Budget, Budget) {
        (Budget::of_pod(per_pod, 50), Budget::of_node(per_node, 5_000))
    }

    fn admitted(quota: &Quota) -> HashSet<ProbeKey> {
        quota.claims.keys().filter(|key| quota.refusal(key).is_none()).cloned().collect()
    }

    /// Those that are to have places, by the words of the rule.
    fn expected(quota: &Quota) -> HashSet<ProbeKey> {
        let mut all: Vec<_> = quota.claims.values().cloned().collect();
        all.sort();
        let (mut of_pods, mut of_shares, mut used) = (HashMap::new(), HashMap::new(), Need::default());
        // Adds one up, and says whether all is within the budget so far.
        let fits = |budget: &Budget, used: &mut Need, rank: &Rank| {
            *used += rank.need;
            budget.excess(*used, rank.class).is_none()
        };
        all.retain(|rank| {
            [quota.per_pod, quota.per_node].iter().all(|budget| fits(budget, &mut Need::default(), rank))
        });
        all.retain(|rank| {
            let (used, is_full) = of_pods.entry(rank.key.pod.clone()).or_insert((Need::default(), false));
            *is_full |= !fits(&quota.per_pod, used, rank);
            !*is_full
        });
        let turn = |rank: Arc<Rank>| {
            let used: &mut Need = of_shares.entry(rank.share()).or_default();
            let before = quota.per_node.share(*used);
            *used += rank.need;
            ((rank.class, rank.is_done), before, rank)
        };
        let mut turns: Vec<Turn> = all.into_iter().map(turn).collect();
        turns.sort();
        let within = turns.iter().take_while(|(_, _, rank)| fits(&quota.per_node, &mut used, rank));
        within.map(|(_, _, rank)| rank.key.clone()).collect()
    }

    fn need() -> impl Strategy<Value = Need> {
        let rate = prop_oneof![Just(100), Just(1_000), Just(3_000), Just(10_000)];
        let bytes = prop_oneof![Just(500), Just(60_000), 0u64..1 << 21];
        (0u64..2, rate, bytes).prop_map(|(places, rate, bytes)| Need { places, rate, bytes })
    }

    fn class() -> impl Strategy<Value = Class> {
        prop_oneof![Just(Class::Enforced), Just(Class::Rule), Just(Class::Author), Just(Class::Author)]
    }

    proptest! {
        #[test]
        fn row_04_who_has_a_place_depends_only_on_who_wants_one(
            steps in prop::collection::vec(
                (
                    (class(), 0u8..4, 0u8..4, 0u8..12, any::<(bool, bool)>(), need()),
                    0u8..4,
                    (1usize..6, 1usize..24, 1usize..30, 1usize..90),
                ),
                1..120,
            ),
        ) {
            let mut quota = Quota::new((Budget::of_pod(3, 12), Budget::of_node(9, 40)));
            let mut known = HashSet::new();
            for ((class, namespace, pod, container, (is_new, is_done), need), what, limits) in steps {
                let rank = Rank { is_done, need, ..rank(class, namespace, pod, container, is_new) };
                let (per_pod, per_node, rate_of_pod, rate_of_node) = limits;
                match what {
                    0 => quota.withdraw(&rank.key),
                    1 if container == 0 => quota.set_limits((
                        Budget::of_pod(per_pod, rate_of_pod),
                        Budget::of_node(per_node, rate_of_node),
                    )),
                    _ => quota.claim(rank),
                }
                let now = admitted(&quota);
                prop_assert_eq!(&now, &expected(&quota));
                let mut used = Need::default();
                now.iter().for_each(|key| used += quota.claims[key].need);
                prop_assert_eq!(quota.used, used);
                let changed: HashSet<_> = quota.take_changed().into_iter().collect();
                let wants = |key: &&ProbeKey| quota.claims.contains_key(*key);
                prop_assert!(now.symmetric_difference(&known).filter(wants).all(|key| changed.contains(key)));
                known = now;
            }
            for key in quota.claims.keys().cloned().collect::<Vec<_>>() {
                quota.withdraw(&key);
            }
            prop_assert!(quota.pods.is_empty() && quota.shares.is_empty());
            prop_assert_eq!((quota.used, quota.asked), (Need::default(), Need::default()));
            prop_assert!(quota.last.is_empty() && quota.next.is_empty());
        }
    }

    #[test]
    fn row_04_no_annotation_has_a_place_that_an_enforced_rule_needs_and_namespaces_take_turns() {
        let mut quota = Quota::new(budgets(4, 8));
        (0..40).for_each(|number| quota.claim(rank(Class::Author, 0, number / 8, number, false)));
        assert_eq!(quota.used.places, 8, "nobody else needs a place");
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
    fn row_04_a_pod_has_only_so_many_attempts_per_second_and_so_much_memory() {
        let often = |number: u8, rate: u64| Rank {
            need: Need { places: 1, rate, bytes: 40_000 },
            ..rank(Class::Author, 0, 0, number, false)
        };
        let mut quota = Quota::new(budgets(32, 5_000));
        (0..32).for_each(|number| quota.claim(often(number, 10_000)));
        assert_eq!(admitted(&quota).len(), 5, "fifty a second");
        let reason = |quota: &Quota| {
            let refused = quota.claims.keys().find_map(|key| quota.refusal(key));
            refused.map(|excess| excess.to_string()).unwrap_or_default()
        };
        assert_eq!(
            reason(&quota),
            "the probes of the pod ask for 320 attempts per second, more than prober.maxRatePerPod, which is 50: \
             enforced rules come first, then other rules, then older containers"
        );
        (0..32).for_each(|number| quota.claim(Rank { class: Class::Rule, ..often(number, 10_000) }));
        assert_eq!(admitted(&quota).len(), 32, "rules are the operator's own");
        (0..32).for_each(|number| quota.claim(often(number, 100)));
        assert_eq!(admitted(&quota).len(), 26, "one mebibyte");
        assert_eq!(
            reason(&quota),
            "the definitions of the probes of the pod take 1250 KiB of memory, more than the 1024 KiB that they may take: \
             enforced rules come first, then other rules, then older containers"
        );
        quota.set_limits((Budget::of_pod(32, 9), Budget::of_node(5_000, 5_000)));
        quota.claim(often(0, 10_000));
        assert_eq!(admitted(&quota).len(), 26, "one that never fits is in nobody's way");
    }

    #[test]
    fn row_04_a_namespace_with_large_or_quick_probes_leaves_others_their_share() {
        let mut quota = Quota::new((Budget::of_pod(32, 5_000), Budget::of_node(5_000, 5_000)));
        let of = |namespace: u8, number: u8, need: Need| Rank {
            need,
            ..rank(Class::Author, namespace, number / 20, number, namespace == 2)
        };
        (0..250).for_each(|number| quota.claim(of(0, number, Need { places: 1, rate: 100, bytes: 50_000 })));
        (0..250).for_each(|number| quota.claim(of(1, number, Need { places: 1, rate: 100, bytes: 50_000 })));
        let of_namespace = |quota: &Quota, namespace: &str| {
            let admitted = admitted(quota).into_iter();
            admitted.filter(|key| key.pod.as_str().starts_with(namespace)).count()
        };
        assert_eq!(of_namespace(&quota, "n0") + of_namespace(&quota, "n1"), (16 << 20) / 50_000);
        (0..250).for_each(|number| quota.claim(of(2, number, Need { places: 1, rate: 1_000, bytes: 500 })));
        assert_eq!(of_namespace(&quota, "n2"), 250, "small ones are in turn before many large ones");
        assert!(of_namespace(&quota, "n0").abs_diff(of_namespace(&quota, "n1")) <= 1);
    }

    #[test]
    fn thousands_of_probes_beyond_the_limits_are_as_cheap_as_those_within() {
        // 40,000 in the order that displaces most: the newest first. In quadratic time this would take minutes.
        let mut quota = Quota::new((Budget::of_pod(100, 5_000), Budget::of_node(5_000, 5_000)));
        for number in (0..40_000u32).rev() {
            let made = SystemTime::UNIX_EPOCH + Duration::from_secs(number.into());
            let base = rank(Class::Author, (number % 7) as u8, (number % 200) as u8, 1, true);
            let key = ProbeKey { container: number.to_string().into(), ..base.key.clone() };
            quota.claim(Rank { age: (false, Some(made)), key, ..base });
        }
        assert_eq!((quota.used.places, quota.claims.len()), (5_000, 40_000));
        assert!(quota.take_changed().len() < 6 * 40_000, "a few of each");
    }
}
