//! Decides which connections of probes are closed in order, and which are reset: a pod, its peer and a moment in, a
//! decision out. Pure.
//!
//! A connection that was closed in order stays in the node's table of tracked connections for 120 s, and in TIME_WAIT for
//! 60 s if our end was the first to close; one that was reset leaves the table after 10 s. Probes that behave are closed as
//! a kubelet closes them, as servers log resets. But a server may redirect each attempt ten times, so what is closed in
//! order has limits:
//!
//! - of the node, for the table of tracked connections, which kube-proxy makes at least 131,072 entries long;
//! - of a pod, so that it leaves the others their part;
//! - of a destination: when most ports that connect(2) prefers are in TIME_WAIT towards it, each further connection makes
//!   the kernel search all of them. By default 14,116 ports are preferred: half of `net.ipv4.ip_local_port_range`.

use std::{
    collections::HashMap,
    hash::Hash,
    net::SocketAddr,
    time::{Duration, Instant},
};

use crate::ids::PodUid;

/// 4 per second, 32 at once, of each pod, whatever others do: enough for 4 probes with a period of 1 s, and for the 32 that
/// a pod may have with a period of 10 s. 110 pods, the kubelet's default, close 440 per second.
const OWN: Rate = Rate::per_second(4, 32);

/// 48 more per second of each pod. With its own 4 that is more than the 50 attempts per second that a pod may have by
/// default; only redirects exceed it. It leaves at most 3,200 connections in TIME_WAIT.
const MORE: Rate = Rate::per_second(48, 48);

/// 256 more per second of all pods: together with 4 of each of 110 pods that is 696, or 84,000 tracked connections. The last
/// 128 at once are left to pods that use less than their 48: redirects of a few pods do not take them from a pod with 32
/// probes.
const MORE_OF_ALL: Rate = Rate::per_second(256, 256);

/// 128 per second to one address and port, whichever pods are probed there. That leaves at most 7,808 connections in
/// TIME_WAIT: half of the ports that are preferred. The last 64 at once are left to the pods' own 4 per second.
const PEER: Rate = Rate::per_second(128, 128);

/// 8,192 pods and as many destinations are remembered, each until it may close as many at once again, after 8 s and 1 s at
/// most: more than a node has probes by default. With uids of up to 512 bytes they take at most 6 MiB. Connections of one
/// more are reset.
const REMEMBERED: usize = 8192;

/// So many at once, and then one per interval.
#[derive(Debug)]
struct Rate {
    interval: Duration,
    at_once: u32,
}

impl Rate {
    const fn per_second(count: u32, at_once: u32) -> Self {
        Self { interval: Duration::from_nanos(1_000_000_000 / count as u64), at_once }
    }

    /// The same rate, but only half as many at once: the other half is left to others.
    const fn half(&self) -> Self {
        Self { interval: self.interval, at_once: self.at_once / 2 }
    }
}

/// How much of a rate has been used: all of it is available again at that moment.
#[derive(Clone, Copy, Debug, Default)]
struct Used(Option<Instant>);

impl Used {
    fn permits(self, rate: &Rate, now: Instant) -> bool {
        let ahead = self.0.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        ahead + rate.interval <= rate.interval * rate.at_once
    }

    fn add(&mut self, rate: &Rate, now: Instant) {
        self.0 = Some(self.0.map_or(now, |until| until.max(now)) + rate.interval);
    }

    fn is_over(self, now: Instant) -> bool {
        self.0.is_none_or(|until| until <= now)
    }
}

/// What one pod has used.
#[derive(Clone, Copy, Debug, Default)]
struct OfPod {
    own: Used,
    more: Used,
}

/// What has been closed in order of late.
#[derive(Debug, Default)]
pub(super) struct Allowance {
    more: Used,
    pods: HashMap<PodUid, OfPod>,
    peers: HashMap<SocketAddr, Used>,
}

impl Allowance {
    /// Whether a connection to `peer` of a probe of `pod` is closed in order.
    pub(super) fn permits(&mut self, pod: &PodUid, peer: SocketAddr, now: Instant) -> bool {
        let has_room = has_room_for(&mut self.pods, pod, |pod| pod.own.is_over(now) && pod.more.is_over(now))
            && has_room_for(&mut self.peers, &peer, |peer| peer.is_over(now));
        if !has_room {
            return false;
        }
        let mut of_pod = self.pods.get(pod).copied().unwrap_or_default();
        let mut of_peer = self.peers.get(&peer).copied().unwrap_or_default();
        let is_permitted = if of_pod.own.permits(&OWN, now) {
            of_pod.own.add(&OWN, now);
            of_peer.permits(&PEER, now)
        } else if of_pod.more.permits(&MORE, now) {
            let is_modest = of_pod.more.permits(&MORE.half(), now);
            let of_all = if is_modest { MORE_OF_ALL } else { MORE_OF_ALL.half() };
            // Counts even if it is refused, so that a pod that asks for more than it has never appears modest.
            of_pod.more.add(&MORE, now);
            self.more.permits(&of_all, now) && of_peer.permits(&PEER.half(), now) && {
                self.more.add(&MORE_OF_ALL, now);
                true
            }
        } else {
            false
        };
        self.pods.insert(pod.clone(), of_pod);
        if is_permitted {
            of_peer.add(&PEER, now);
            self.peers.insert(peer, of_peer);
        }
        is_permitted
    }
}

/// Whether one more may be remembered; those that need not be any more make room.
fn has_room_for<K: Eq + Hash, V>(
    remembered: &mut HashMap<K, V>,
    key: &K,
    is_over: impl Fn(&V) -> bool,
) -> bool {
    if remembered.contains_key(key) {
        return true;
    }
    if remembered.len() >= REMEMBERED {
        remembered.retain(|_, used| !is_over(used));
    }
    remembered.len() < REMEMBERED
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    /// How long all of it takes.
    const MINUTE: Duration = Duration::from_secs(60);

    fn peer(number: u16, port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, (number >> 8) as u8, number as u8], port))
    }

    fn pod(number: usize) -> PodUid {
        PodUid::from(format!("pod-{number}"))
    }

    /// Who closes how often, where to, at even intervals.
    struct Closer {
        pod: PodUid,
        peers: Vec<SocketAddr>,
        per_second: u32,
    }

    /// How many of the connections of each are closed in order within a minute, and how many are not.
    fn in_a_minute(closers: &[Closer]) -> Vec<(u32, u32)> {
        let (start, mut allowance) = (clock::now(), Allowance::default());
        let mut all = Vec::new();
        for (place, closer) in closers.iter().enumerate() {
            for number in 0..closer.per_second * 60 {
                all.push((MINUTE * number / (closer.per_second * 60), place, number as usize));
            }
        }
        all.sort_unstable();
        let mut ended = vec![(0, 0); closers.len()];
        for (after, place, number) in all {
            let Closer { pod, peers, .. } = &closers[place];
            let is_in_order = allowance.permits(pod, peers[number % peers.len()], start + after);
            *(if is_in_order { &mut ended[place].0 } else { &mut ended[place].1 }) += 1;
        }
        ended
    }

    fn closer(number: usize, peers: &[SocketAddr], per_second: u32) -> Closer {
        Closer { pod: pod(number), peers: peers.to_vec(), per_second }
    }

    #[test]
    fn row_05_redirects_leave_few_connections_of_a_pod_whatever_they_lead_to() {
        let one_port = in_a_minute(&[closer(1, &[peer(1, 80)], 500)]);
        assert!((50 * 60..=3200).contains(&one_port[0].0), "{one_port:?}");
        let ports: Vec<_> = (1..=1000).map(|port| peer(1, port)).collect();
        let many_ports = in_a_minute(&[closer(1, &ports, 500)]);
        assert!(many_ports[0].0 <= 3200, "{many_ports:?}");
    }

    #[test]
    fn row_05_pods_of_one_destination_leave_few_connections_to_it() {
        let node = [peer(1, 443)];
        let closers: Vec<_> = (0..60).map(|number| closer(number, &node, 50)).collect();
        let closed: u32 = in_a_minute(&closers).iter().map(|(in_order, _)| in_order).sum();
        assert!((7000..=7808).contains(&closed), "{closed}");
    }

    #[test]
    fn row_05_redirects_of_many_pods_reset_no_connection_of_a_modest_one() {
        let shared = peer(1000, 443);
        let mut closers: Vec<_> =
            (0..14).map(|number| closer(number, &[peer(number as u16, 80)], 500)).collect();
        // Two more are redirected within a host that others probe, too.
        closers.extend((14..16).map(|number| closer(number, &[shared], 500)));
        closers.push(closer(100, &[peer(100, 80)], 4));
        closers.push(closer(101, &[shared], 4));
        closers.push(closer(102, &[peer(102, 80)], 20));
        let mut ended = in_a_minute(&closers);
        let ended_many = ended.remove(18);
        assert_eq!(ended[16..], [(240, 0), (240, 0)]);
        // When the others begin, all at once, they do not appear greedy yet.
        assert!((1140..).contains(&ended_many.0), "{ended_many:?} of a pod with 20 probes");
        let closed: u32 = ended.iter().map(|(in_order, _)| in_order).sum();
        assert!(closed <= 16 * (4 * 60 + 32) + 256 * 61 + 1680, "{closed} of all pods");
    }

    #[test]
    fn probes_that_behave_are_closed_in_order() {
        let of = |pods: usize, per_second: u32| -> Vec<Closer> {
            (0..pods).map(|number| closer(number, &[peer(number as u16, 80)], per_second)).collect()
        };
        for (pods, per_second) in [(1, 50), (200, 2), (5000, 1)] {
            let ended = in_a_minute(&of(pods, per_second));
            assert!(ended.iter().all(|(_, reset)| *reset == 0), "{pods} pods, {per_second} per second");
        }
        // All probes of a pod in one moment, every 10 s.
        let (start, mut allowance) = (clock::now(), Allowance::default());
        for round in 0..6 {
            for port in 0..32 {
                assert!(allowance.permits(&pod(1), peer(1, port), start + round * Duration::from_secs(10)));
            }
        }
    }

    #[test]
    fn what_is_remembered_has_a_bound_and_makes_room() {
        let (start, mut allowance) = (clock::now(), Allowance::default());
        let permitted = |allowance: &mut Allowance, range: std::ops::Range<usize>, now: Instant| {
            range.filter(|number| allowance.permits(&pod(*number), peer(*number as u16, 80), now)).count()
        };
        assert_eq!(permitted(&mut allowance, 0..10_000, start), REMEMBERED);
        assert_eq!((allowance.pods.len(), allowance.peers.len()), (REMEMBERED, REMEMBERED));
        let later = start + Duration::from_secs(1);
        assert_eq!(permitted(&mut allowance, 10_000..11_000, later), 1000, "others are over");
        assert!(allowance.pods.len() <= REMEMBERED && allowance.peers.len() <= REMEMBERED);
    }
}
