//! Rate limits for log lines about probes, so that neither the author of a pod nor many short-lived pods can flood the
//! log: pods and moments in, whether a line is due out. Never logs, never reads a clock.

use std::{
    borrow::Borrow,
    collections::HashMap,
    hash::Hash,
    time::{Duration, Instant},
};

use crate::ids::PodUid;

/// 20 lines of one pod at once, and one more every 10 s: more than its probes need to come up, fail and recover. Lines
/// beyond that are counted, and the pod's next line says how many there were.
const POD: Rate = Rate { burst: 20, refill: Duration::from_secs(10) };

/// 400 lines of all pods of one namespace at once, and one more every second. Lines beyond that are counted likewise.
const NAMESPACE: Rate = Rate { burst: 400, refill: Duration::from_secs(1) };

/// 1,600 lines of all pods at once, and four more every second: no namespace has more than a quarter. Likewise.
const NODE: Rate = Rate { burst: 1_600, refill: Duration::from_millis(250) };

/// 1,024 pods, or namespaces, are remembered before those that were quiet for so long that they have all their lines again
/// are forgotten, with what was counted of them.
const SWEEP: usize = 1024;

/// The lines that are left, of one kind of line.
#[derive(Debug, Default)]
pub(super) struct LogShare {
    pods: Shares<PodUid>,
    namespaces: Shares<String>,
    node: Option<Share>,
}

/// So many lines at once, and how long until there may be one more.
#[derive(Clone, Copy, Debug)]
struct Rate {
    burst: u32,
    refill: Duration,
}

/// Those of which lines were logged lately.
#[derive(Debug)]
struct Shares<K> {
    known: HashMap<K, Share>,
    /// How many there may be before the next sweep.
    most: usize,
}

impl<K> Default for Shares<K> {
    fn default() -> Self {
        Self { known: HashMap::new(), most: SWEEP }
    }
}

#[derive(Debug)]
struct Share {
    left: u32,
    /// Since when lines have been coming back.
    since: Instant,
    passed_over: u64,
}

impl LogShare {
    /// Whether a line about a pod is to be logged; with it, how many were not, since the pod's last line.
    pub(super) fn admit(&mut self, pod: &PodUid, namespace: &str, now: Instant) -> Option<u64> {
        let shares = [
            self.pods.get(pod, POD, now),
            self.namespaces.get(namespace, NAMESPACE, now),
            self.node.get_or_insert_with(|| Share::full(NODE, now)).refill(NODE, now),
        ];
        if shares.iter().any(|share| share.left == 0) {
            let [pod, ..] = shares;
            pod.passed_over += 1;
            return None;
        }
        let [pod, namespace, node] = shares;
        (pod.left, namespace.left, node.left) = (pod.left - 1, namespace.left - 1, node.left - 1);
        Some(std::mem::take(&mut pod.passed_over))
    }
}

impl<K: Eq + Hash> Shares<K> {
    fn get<Q>(&mut self, key: &Q, rate: Rate, now: Instant) -> &mut Share
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
    {
        if self.known.len() >= self.most && !self.known.contains_key(key) {
            self.known.retain(|_, share| share.refill(rate, now).left < rate.burst);
            // Each is looked at a few times only, however many there are.
            self.most = SWEEP.max(2 * self.known.len());
        }
        self.known.entry(key.to_owned()).or_insert_with(|| Share::full(rate, now)).refill(rate, now)
    }
}

impl Share {
    fn full(rate: Rate, now: Instant) -> Self {
        Self { left: rate.burst, since: now, passed_over: 0 }
    }

    fn refill(&mut self, rate: Rate, now: Instant) -> &mut Self {
        let quiet = now.saturating_duration_since(self.since);
        let lines = u32::try_from(quiet.as_millis() / rate.refill.as_millis()).unwrap_or(u32::MAX);
        let lines = lines.min(rate.burst);
        self.left = (self.left + lines).min(rate.burst);
        // What is left of a full share does not add up.
        self.since = if self.left == rate.burst { now } else { self.since + rate.refill * lines };
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn a_pod_that_changes_its_mind_all_the_time_has_a_line_every_ten_seconds() {
        let (mut log, start) = (LogShare::default(), clock::now());
        let pods = [PodUid::from("loud"), PodUid::from("calm")];
        let at = |tenths: u32| start + Duration::from_millis(100) * tenths;
        let lines: Vec<_> = (0..6_000).filter_map(|tenth| log.admit(&pods[0], "a", at(tenth))).collect();
        assert_eq!(lines.len() as u32, POD.burst + 59, "ten minutes, ten changes a second");
        assert_eq!((lines[0], lines[POD.burst as usize], lines.last()), (0, 80, Some(&99)));
        assert_eq!(log.admit(&pods[1], "a", at(6_000)), Some(0), "another pod has its own");
        let later = at(6_000) + POD.refill * POD.burst;
        assert_eq!(log.admit(&pods[0], "a", later), Some(99));
        let burst = (0..100).filter_map(|_| log.admit(&pods[0], "a", later)).count() as u32;
        assert_eq!(burst, POD.burst - 1, "after a quiet time as at first");
    }

    #[test]
    fn row_10_pods_that_come_and_go_have_the_lines_of_their_namespace_and_leave_those_of_others() {
        let (mut log, now) = (LogShare::default(), clock::now());
        let mut lines = |namespace: &str, pods: u32| {
            let pods =
                (0..pods).flat_map(|pod| [pod; 30]).map(|pod| PodUid::from(format!("{namespace}{pod}")));
            pods.filter(|pod| log.admit(pod, namespace, now).is_some()).count()
        };
        assert_eq!([lines("a", 1_000), lines("b", 1_000), lines("c", 1)], [400, 400, 20]);
        assert_eq!([lines("d", 1_000), lines("e", 1_000)], [400, 380], "the node's");
    }

    #[test]
    fn pods_that_went_are_forgotten_whatever_was_passed_over() {
        let (mut log, start) = (LogShare::default(), clock::now());
        for number in 0..10 * SWEEP as u32 {
            let now = start + Duration::from_secs(1) * number;
            let pod = PodUid::from(number.to_string());
            for _ in 0..25 {
                log.admit(&pod, &number.to_string(), now);
            }
            assert!(log.pods.known.len() <= SWEEP, "{}", log.pods.known.len());
            assert!(log.namespaces.known.len() <= SWEEP, "{}", log.namespaces.known.len());
        }
    }
}
