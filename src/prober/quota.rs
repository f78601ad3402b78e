//! Who has a place within the budgets of a pod and of the node: all that want one in, those that have one out. Pure.
//!
//! Each pod has its first probes by [`Rank`], as far as its budget goes. Of those, the node has three groups, one after the
//! other: those of enforced rules, up to three quarters of its budget; those of other rules and of authors; and those of
//! enforced rules that are left. In each group, whichever namespace has used the smallest share of the budget so far has the
//! next turn. So no namespace takes what others need, neither by annotations nor by labels that match a rule. A group ends
//! at the first probe that does not fit; one that no budget would do for even alone ends nothing. Who has a place depends
//! only on who wants one, not on who came first.

mod lane;

use std::{collections::HashMap, sync::Arc, time::SystemTime};

use lane::{Lane, Split};

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
    /// Who defined it.
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
    /// Of those that their pods have room for: enforced rules' as far as they come before all others.
    reserved: Lane,
    /// Those of other rules and of authors.
    others: Lane,
    /// Enforced rules' that have no place in `reserved`.
    rest: Lane,
    /// What all would take.
    asked: Need,
    /// Whose place may have come or gone, since this was asked last.
    changed: Vec<ProbeKey>,
}

impl Quota {
    /// Without any probe yet.
    pub(super) fn new((per_pod, per_node): (Budget, Budget)) -> Self {
        Self {
            per_pod,
            per_node,
            claims: HashMap::new(),
            pods: HashMap::new(),
            reserved: Lane::new(per_node),
            others: Lane::new(per_node),
            rest: Lane::new(per_node),
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
        let (lane, mut used) = match rank.class {
            Class::Enforced => (&self.rest, self.used()),
            Class::Rule | Class::Author => (&self.others, self.reserved.used()),
        };
        if rank.class != Class::Enforced {
            used += self.others.used();
        }
        lane.refuses(rank).then(|| excess(self.per_node, used, lane.next(), self.asked))
    }

    /// What those take that have a place.
    fn used(&self) -> Need {
        [&self.reserved, &self.others, &self.rest].iter().fold(Need::default(), |mut used, lane| {
            used += lane.used();
            used
        })
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
        match rank.class {
            Class::Enforced if self.reserved.join(rank) => {}
            Class::Enforced => _ = self.rest.join(rank),
            Class::Rule | Class::Author => _ = self.others.join(rank),
        }
        self.settle_node();
    }

    /// The pod of a probe has room for it no more.
    fn leave(&mut self, rank: &Arc<Rank>) {
        match rank.class {
            Class::Enforced if self.reserved.leave(rank) => {}
            Class::Enforced => _ = self.rest.leave(rank),
            Class::Rule | Class::Author => _ = self.others.leave(rank),
        }
        self.settle_node();
    }

    /// Fills the room of the node: each group has what the groups before it leave.
    fn settle_node(&mut self) {
        let node = self.per_node;
        let fits = |mut used: Need, before: Need, next: &Rank| {
            used += before;
            node.excess_with(used, next.need, next.class).is_none()
        };
        let mut used = Need::default();
        let moved = self.reserved.settle(|before, next| node.is_reserved(before) && fits(used, before, next));
        for moved in moved {
            if moved.has_place {
                self.rest.leave(&moved.rank)
            } else {
                self.rest.join(&moved.rank)
            };
            self.changed.push(moved.rank.key.clone());
        }
        used += self.reserved.used();
        for lane in [&mut self.others, &mut self.rest] {
            let moved = lane.settle(|before, next| fits(used, before, next));
            self.changed.extend(moved.into_iter().map(|moved| moved.rank.key.clone()));
            used += lane.used();
        }
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
        let mut of_pods = HashMap::new();
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
        let in_turns = |ranks: Vec<Arc<Rank>>| {
            let mut of_shares: HashMap<_, Need> = HashMap::new();
            let turn = |rank: Arc<Rank>| {
                let used = of_shares.entry((rank.is_done, rank.namespace.clone())).or_default();
                let before = quota.per_node.share(*used);
                *used += rank.need;
                (rank.is_done, before, rank)
            };
            let mut turns: Vec<_> = ranks.into_iter().map(turn).collect();
            turns.sort();
            turns.into_iter().map(|(_, _, rank)| rank).collect::<Vec<_>>()
        };
        let (enforced, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|rank| rank.class == Class::Enforced);
        let (enforced, mut used) = (in_turns(enforced), Need::default());
        let is_first =
            |rank: &&Arc<Rank>| quota.per_node.is_reserved(used) && fits(&quota.per_node, &mut used, rank);
        let mut placed: Vec<_> = enforced.iter().take_while(is_first).cloned().collect();
        let rest = enforced[placed.len()..].to_vec();
        for group in [others, rest] {
            let mut used = placed.iter().fold(Need::default(), |mut used, rank| {
                used += rank.need;
                used
            });
            placed.extend(
                in_turns(group).into_iter().take_while(|rank| fits(&quota.per_node, &mut used, rank)),
            );
        }
        placed.into_iter().map(|rank| rank.key.clone()).collect()
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
                prop_assert_eq!(quota.used(), used);
                let changed: HashSet<_> = quota.take_changed().into_iter().collect();
                let wants = |key: &&ProbeKey| quota.claims.contains_key(*key);
                prop_assert!(now.symmetric_difference(&known).filter(wants).all(|key| changed.contains(key)));
                known = now;
            }
            for key in quota.claims.keys().cloned().collect::<Vec<_>>() {
                quota.withdraw(&key);
            }
            prop_assert!(quota.pods.is_empty());
            prop_assert!([&quota.reserved, &quota.others, &quota.rest].iter().all(|lane| lane.is_empty()));
            prop_assert_eq!((quota.used(), quota.asked), (Need::default(), Need::default()));
        }
    }

    #[test]
    fn row_04_no_annotation_has_a_place_that_an_enforced_rule_needs_and_namespaces_take_turns() {
        let mut quota = Quota::new(budgets(4, 8));
        (0..40).for_each(|number| quota.claim(rank(Class::Author, 0, number / 8, number, false)));
        assert_eq!(quota.used().places, 8, "no other needs a place");
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
        assert_eq!(
            ["n0", "n1", "n2", "n3"].map(|namespace| of(&quota, namespace)),
            [3, 1, 2, 2],
            "a rule has its turn"
        );
        assert_eq!(quota.refusal(&enforced.key), None);
    }

    /// So many probes of each of so many pods, by a rule or not.
    fn claim_all(quota: &mut Quota, class: Class, namespace: u8, pods: u8, containers: u8, rate: u64) {
        for (pod, container) in (0..pods).flat_map(|pod| (0..containers).map(move |number| (pod, number))) {
            let base = rank(class, namespace, pod, container, true);
            quota.claim(Rank { need: Need { rate, bytes: 0, ..base.need }, ..base });
        }
    }

    fn count_of(quota: &Quota, namespace: &str) -> usize {
        admitted(quota).into_iter().filter(|key| key.pod.as_str().starts_with(namespace)).count()
    }

    #[test]
    fn row_04_pods_that_match_a_rule_leave_other_namespaces_the_places_of_their_annotations() {
        for (class, most) in [(Class::Rule, 4_900), (Class::Enforced, 4_900), (Class::Author, 4_900)] {
            let mut quota = Quota::new((Budget::of_pod(32, 50), Budget::of_node(5_000, 5_000)));
            claim_all(&mut quota, Class::Author, 0, 4, 25, 100);
            claim_all(&mut quota, class, 1, 160, 32, 100);
            assert_eq!((count_of(&quota, "n0"), count_of(&quota, "n1")), (100, most), "{class:?}");
        }
    }

    #[test]
    fn row_04_pods_that_match_a_rule_leave_other_namespaces_the_rate_of_their_annotations() {
        for class in [Class::Rule, Class::Enforced] {
            let mut quota = Quota::new((Budget::of_pod(32, 50), Budget::of_node(5_000, 5_000)));
            claim_all(&mut quota, Class::Author, 0, 4, 25, 1_000);
            claim_all(&mut quota, class, 1, 82, 32, 2_000);
            assert_eq!((count_of(&quota, "n0"), count_of(&quota, "n1")), (100, 2_450), "{class:?}");
            claim_all(&mut quota, class, 2, 1, 32, 10_000);
            assert_eq!(count_of(&quota, "n2"), 32, "{class:?}: a pod may have more than its rate by a rule");
        }
    }

    #[test]
    fn row_04_enforced_rules_have_three_quarters_of_the_node_before_all_others_and_then_what_these_leave() {
        let mut quota = Quota::new((Budget::of_pod(32, 50), Budget::of_node(400, 5_000)));
        for namespace in 0..9 {
            claim_all(&mut quota, Class::Author, namespace, 10, 20, 100);
            claim_all(&mut quota, Class::Rule, namespace, 10, 10, 100);
        }
        claim_all(&mut quota, Class::Enforced, 10, 10, 20, 100);
        assert_eq!(count_of(&quota, "n10"), 200, "others have taken all");
        claim_all(&mut quota, Class::Enforced, 11, 1, 20, 100);
        claim_all(&mut quota, Class::Enforced, 10, 20, 20, 100);
        assert_eq!((count_of(&quota, "n10"), count_of(&quota, "n11")), (280, 20), "300 of them");
        (1..9).for_each(|namespace| assert!(count_of(&quota, &format!("n{namespace}-")) >= 11));
        for key in quota
            .claims
            .values()
            .filter(|rank| rank.class != Class::Enforced)
            .map(|rank| rank.key.clone())
            .collect::<Vec<_>>()
        {
            quota.withdraw(&key);
        }
        assert_eq!((count_of(&quota, "n10"), count_of(&quota, "n11")), (380, 20), "no other asks");
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
        assert_eq!(admitted(&quota).len(), 26, "one that never fits blocks no other");
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
        assert_eq!((quota.used().places, quota.claims.len()), (5_000, 40_000));
        assert!(quota.take_changed().len() < 6 * 40_000, "a few of each");
    }
}
