//! How often the changes of a pod, or of all pods of a namespace, may have the state saved soon: causes of saves in,
//! whether there is a share left out. A save writes all probes and waits for the disk, so that one probe whose verdict
//! changes with each attempt would wear it for nothing. Pure.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::ids::PodUid;

/// 10 saves for one pod at once, and one more each minute: more than its probes need to come up, fail and recover.
const POD: Rate = Rate { burst: 10, refill: Duration::from_secs(60) };

/// 40 saves for the pods of one namespace at once, and four more each minute.
const NAMESPACE: Rate = Rate { burst: 40, refill: Duration::from_secs(15) };

/// 4,096 pods and namespaces that used their shares lately are remembered. Where more do, further ones have none until
/// others have theirs back.
const MOST: usize = 4_096;

/// 1 s between two searches for those that have theirs back.
const SWEEP: Duration = Duration::from_secs(1);

/// Whose probe changed.
#[derive(Clone, Copy, Debug)]
pub(in crate::prober) struct Cause<'a> {
    pub(in crate::prober) pod: &'a PodUid,
    pub(in crate::prober) namespace: &'a Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Payer {
    Pod(PodUid),
    Namespace(Arc<str>),
}

/// So many saves at once, and how long until there may be one more.
#[derive(Clone, Copy, Debug)]
struct Rate {
    burst: u32,
    refill: Duration,
}

/// The shares that are not full, by when each is full again.
#[derive(Debug, Default)]
pub(super) struct Shares {
    full_at: HashMap<Payer, Instant>,
    /// Those that have paid for the next save.
    paid: HashSet<Payer>,
    /// When those that have theirs back were forgotten last.
    swept_at: Option<Instant>,
}

impl Shares {
    /// Whether a pod may have the state saved soon. It and its namespace pay for each save once.
    pub(super) fn pay(&mut self, cause: Cause<'_>, now: Instant) -> bool {
        let pod = Payer::Pod(cause.pod.clone());
        if self.paid.contains(&pod) {
            return true;
        }
        let payers = [pod, Payer::Namespace(cause.namespace.clone())];
        let due: Vec<_> = payers.into_iter().filter(|payer| !self.paid.contains(payer)).collect();
        if self.full_at.len() + due.len() > MOST && self.swept_at.is_none_or(|at| at + SWEEP <= now) {
            self.full_at.retain(|_, full_at| *full_at > now);
            self.swept_at = Some(now);
        }
        if self.full_at.len() + due.len() > MOST || !due.iter().all(|payer| self.has_left(payer, now)) {
            return false;
        }
        for payer in due {
            let full_at = self.full_at.entry(payer.clone()).or_insert(now);
            *full_at = now.max(*full_at) + payer.rate().refill;
            self.paid.insert(payer);
        }
        true
    }

    /// Notes that all that was paid for is being saved.
    pub(super) fn saved(&mut self) {
        self.paid.clear();
    }

    fn has_left(&self, payer: &Payer, now: Instant) -> bool {
        let Rate { burst, refill } = payer.rate();
        let used =
            self.full_at.get(payer).map_or(Duration::ZERO, |full_at| full_at.saturating_duration_since(now));
        used <= refill * (burst - 1)
    }
}

impl Payer {
    fn rate(&self) -> Rate {
        match self {
            Self::Pod(_) => POD,
            Self::Namespace(_) => NAMESPACE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn a_pod_pays_once_for_each_save_and_has_its_share_back_in_time() {
        let (mut shares, now) = (Shares::default(), clock::now());
        let (pod, namespace) = (PodUid::from("a"), Arc::from("default"));
        let cause = Cause { pod: &pod, namespace: &namespace };
        for _ in 0..POD.burst {
            assert!(shares.pay(cause, now) && shares.pay(cause, now));
            shares.saved();
        }
        assert!(!shares.pay(cause, now));
        assert!(shares.pay(Cause { pod: &PodUid::from("b"), namespace: &namespace }, now), "another pod");
        assert!(!shares.pay(cause, now + POD.refill - Duration::from_millis(1)));
        assert!(shares.pay(cause, now + POD.refill));
        shares.saved();
        assert!(!shares.pay(cause, now + POD.refill));
    }

    #[test]
    fn pods_that_come_and_go_use_up_what_their_namespace_has_and_are_forgotten() {
        let (mut shares, now) = (Shares::default(), clock::now());
        let mut saves = |namespace: &str, pods: u32, now| {
            let namespace = Arc::from(namespace);
            let pays = (0..pods).map(|pod| PodUid::from(format!("{namespace}{pod}"))).filter(|pod| {
                shares.saved();
                shares.pay(Cause { pod, namespace: &namespace }, now)
            });
            pays.count() as u32
        };
        assert_eq!([saves("a", 100, now), saves("b", 100, now)], [NAMESPACE.burst; 2]);
        for number in 0..2_000 {
            assert!(saves(&format!("n{number}"), 10, now) <= 10);
        }
        assert!(shares.full_at.len() <= MOST);
        let later = now + NAMESPACE.refill * NAMESPACE.burst;
        shares.saved();
        assert!(shares.pay(Cause { pod: &PodUid::from("z"), namespace: &Arc::from("z") }, later));
        assert_eq!(shares.full_at.len(), 2);
    }
}
