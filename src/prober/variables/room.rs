//! Decides which probes can keep large values of variables: values in, a lease on them out, which may end early. No room is reserved: when it is
//! full, whoever holds most gives way to whoever would hold less. Pure but for its lock.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{ids::PodUid, inventory::pod::Pod, spec::expand::Env};

/// 4 KiB: values of at most this size take no part in [`MOST`], so that no pod can take the room of usual commands. There
/// are as many of them as there are probes: at most 20 MiB.
const SMALL: usize = 4 << 10;

/// 16 MiB: what the values of all other probes take together: 64 times the longest command of an annotation.
///
/// When it is reached, values are taken back from the namespace that holds most, and in it from the pod that does, as long as
/// that namespace holds more than the one that asks would hold then; within the namespace that asks, the same holds between
/// pods. If there is no such holder, there is no room. So a namespace that wants no more than an equal part of the room
/// always has it: 256 KiB among 64 namespaces.
const MOST: usize = 16 << 20;

/// Identifies values that are kept.
type Ticket = u64;

/// What the values of all probes take together.
#[derive(Debug, Default)]
pub(in crate::prober) struct Room(Mutex<Shelf>);

/// The large values, and who holds how many bytes of them; no number of bytes is zero.
#[derive(Debug, Default)]
struct Shelf {
    kept: HashMap<Ticket, Kept>,
    issued: Ticket,
    in_all: usize,
    namespaces: HashMap<Arc<str>, Namespace>,
}

#[derive(Debug)]
struct Kept {
    values: Env,
    bytes: usize,
    pod: PodUid,
    namespace: Arc<str>,
}

#[derive(Debug, Default)]
struct Namespace {
    bytes: usize,
    pods: HashMap<PodUid, Share>,
}

/// What one pod holds.
#[derive(Debug, Default)]
struct Share {
    bytes: usize,
    by_size: BTreeSet<(usize, Ticket)>,
}

/// Values that are kept until this is dropped, or until their room is taken back.
#[derive(Debug)]
pub(super) enum Lease {
    /// Of values that take no room.
    Free(Env),
    /// Of large ones.
    Held { room: Arc<Room>, ticket: Ticket, bytes: usize },
}

impl Room {
    /// Keeps the values of a probe of this pod, if there is room for them or some can be made.
    pub(super) fn keep(self: &Arc<Self>, pod: &Pod, values: Env) -> Option<Lease> {
        let bytes = values.weight();
        if bytes <= SMALL {
            return Some(Lease::Free(values));
        }
        let ticket = self.shelf().keep(pod, values, bytes)?;
        Some(Lease::Held { room: self.clone(), ticket, bytes })
    }

    /// Whether there is room for so many bytes of this pod, or some can be made.
    pub(super) fn has(&self, pod: &Pod, bytes: usize) -> bool {
        let mut shelf = self.shelf();
        let taken = shelf.make_room(pod, bytes);
        let has = taken.is_some();
        shelf.put_back(taken.unwrap_or_default());
        has
    }

    #[cfg(test)]
    pub(super) fn in_all(&self) -> usize {
        self.shelf().in_all
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    /// The values, unless their room was taken back.
    pub(super) fn values(&self) -> Option<Env> {
        match self {
            Self::Free(values) => Some(values.clone()),
            Self::Held { room, ticket, .. } => room.shelf().kept.get(ticket).map(|kept| kept.values.clone()),
        }
    }

    /// How much room they take.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Free(_) => 0,
            Self::Held { bytes, .. } => *bytes,
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Self::Held { room, ticket, .. } = self {
            drop(room.shelf().remove(*ticket));
        }
    }
}

impl Shelf {
    fn keep(&mut self, pod: &Pod, values: Env, bytes: usize) -> Option<Ticket> {
        self.make_room(pod, bytes)?;
        self.issued += 1;
        let (pod, namespace) = (pod.uid.clone(), pod.namespace.clone());
        self.put(self.issued, Kept { values, bytes, pod, namespace });
        Some(self.issued)
    }

    /// Takes values of others back until so many bytes fit, and returns them; none, with nothing taken, if they cannot fit.
    fn make_room(&mut self, pod: &Pod, bytes: usize) -> Option<Vec<(Ticket, Kept)>> {
        let mut taken = Vec::new();
        while self.in_all.saturating_add(bytes) > MOST {
            let victim = self.victim(pod, bytes);
            let Some(victim) = victim.and_then(|ticket| Some((ticket, self.remove(ticket)?))) else {
                self.put_back(taken);
                return None;
            };
            taken.push(victim);
        }
        Some(taken)
    }

    fn put_back(&mut self, taken: Vec<(Ticket, Kept)>) {
        taken.into_iter().for_each(|(ticket, kept)| self.put(ticket, kept));
    }

    /// The largest values of the pod that has to give way to one that wants so many bytes more.
    fn victim(&self, pod: &Pod, bytes: usize) -> Option<Ticket> {
        let own = self.namespaces.get(&pod.namespace);
        let other = self.namespaces.iter().filter(|(name, _)| **name != pod.namespace);
        let would_hold = own.map_or(0, |own| own.bytes).saturating_add(bytes);
        let most = other.map(|(_, other)| other).max_by_key(|other| other.bytes);
        let share = match most.filter(|most| most.bytes > would_hold) {
            Some(most) => most.pods.values().max_by_key(|share| share.bytes)?,
            None => {
                let own = own?;
                let would_hold = own.pods.get(&pod.uid).map_or(0, |share| share.bytes).saturating_add(bytes);
                let other = own.pods.iter().filter(|(uid, _)| **uid != pod.uid).map(|(_, share)| share);
                other.max_by_key(|share| share.bytes).filter(|share| share.bytes > would_hold)?
            }
        };
        share.by_size.last().map(|(_, ticket)| *ticket)
    }

    fn put(&mut self, ticket: Ticket, kept: Kept) {
        self.in_all += kept.bytes;
        let namespace = self.namespaces.entry(kept.namespace.clone()).or_default();
        namespace.bytes += kept.bytes;
        let share = namespace.pods.entry(kept.pod.clone()).or_default();
        share.bytes += kept.bytes;
        share.by_size.insert((kept.bytes, ticket));
        self.kept.insert(ticket, kept);
    }

    fn remove(&mut self, ticket: Ticket) -> Option<Kept> {
        let kept = self.kept.remove(&ticket)?;
        self.in_all -= kept.bytes;
        let namespace = self.namespaces.get_mut(&kept.namespace)?;
        namespace.bytes -= kept.bytes;
        let share = namespace.pods.get_mut(&kept.pod)?;
        share.bytes -= kept.bytes;
        share.by_size.remove(&(kept.bytes, ticket));
        if share.bytes == 0 {
            namespace.pods.remove(&kept.pod);
        }
        if namespace.bytes == 0 {
            self.namespaces.remove(&kept.namespace);
        }
        Some(kept)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::prober::fixtures::container;

    /// What the longest command of an annotation needs.
    const MODEST: usize = 256 << 10;

    fn pod(name: &str, namespace: &str) -> Pod {
        let pod = &container(name, "c", 0).pod;
        Pod { namespace: namespace.into(), ..Pod::clone(pod) }
    }

    /// Values that weigh this much.
    fn values(bytes: usize) -> Env {
        let values = |length| Env::from_iter([("A".to_owned(), "x".repeat(length))]);
        values(bytes - values(0).weight())
    }

    fn keep(room: &Arc<Room>, pod: &Pod, bytes: usize) -> Option<Lease> {
        room.keep(pod, values(bytes))
    }

    fn is_kept(lease: &Lease) -> bool {
        lease.values().is_some()
    }

    #[test]
    fn row_03_what_others_hold_leaves_room_for_a_namespace_that_holds_less() {
        let room = Arc::new(Room::default());
        let full = |pod: &Pod| -> Vec<_> {
            let leases = std::iter::from_fn(|| keep(&room, pod, MODEST)).take(200).collect();
            assert!(keep(&room, pod, SMALL).is_some(), "there is always room for a usual command");
            leases
        };
        let first = full(&pod("p0", "hostile"));
        assert_eq!(first.len(), 64, "one pod can use all that no other wants");
        let second = full(&pod("p1", "hostile"));
        let kept = |leases: &[Lease]| leases.iter().filter(|lease| is_kept(lease)).count();
        assert_eq!((kept(&first), kept(&second)), (32, 32), "pods of one namespace share equally");
        let shop = full(&pod("web", "shop"));
        assert_eq!((kept(&first) + kept(&second), kept(&shop)), (32, 32), "and namespaces do");
        let bank = full(&pod("web", "bank"));
        let shares = [kept(&first) + kept(&second), kept(&shop), kept(&bank)];
        assert!(shares.iter().all(|share| (21..=22).contains(share)), "{shares:?}");
        drop((first, second, shop, bank));
        assert_eq!(full(&pod("p4", "hostile")).len(), 64, "all of it comes back");
        assert!(keep(&room, &pod("p5", "hostile"), MOST + 1).is_none());
    }

    #[test]
    fn row_03_whoever_gives_way_gets_nothing_back_from_whoever_holds_less() {
        let room = Arc::new(Room::default());
        let (greedy, modest) = (pod("p0", "hostile"), pod("web", "shop"));
        let held: Vec<_> = (0..64).filter_map(|_| keep(&room, &greedy, MODEST)).collect();
        assert!(room.has(&modest, MODEST) && held.iter().all(is_kept), "to ask takes nothing");
        let lease = keep(&room, &modest, MODEST).unwrap();
        assert_eq!(held.iter().filter(|lease| !is_kept(lease)).count(), 1);
        assert!(!room.has(&greedy, MODEST) && keep(&room, &greedy, MODEST).is_none());
        assert!(is_kept(&lease));
    }

    proptest! {
        #[test]
        fn row_03_the_room_is_never_exceeded_and_an_equal_share_of_it_is_never_refused(
            steps in prop::collection::vec((0_usize..6, 0_usize..4, 1_usize..3 << 20, any::<bool>()), 0..200),
        ) {
            let room = Arc::new(Room::default());
            let mut leases = Vec::new();
            for (name, namespace, bytes, is_end) in steps {
                if is_end && !leases.is_empty() {
                    leases.swap_remove(bytes % leases.len());
                    continue;
                }
                let (bytes, pod) = (bytes.max(SMALL + 1), pod(&format!("{name}-{namespace}"), &namespace.to_string()));
                let (own, others) = {
                    let shelf = room.shelf();
                    let own = shelf.namespaces.get(&pod.namespace).map_or(0, |own| own.bytes);
                    (own, shelf.namespaces.keys().filter(|name| **name != pod.namespace).count())
                };
                let has = room.has(&pod, bytes);
                let lease = keep(&room, &pod, bytes);
                prop_assert_eq!(has, lease.is_some());
                prop_assert!(has || own + bytes > MOST / (others + 1), "an equal share was refused");
                leases.extend(lease);
                let shelf = room.shelf();
                prop_assert!(shelf.in_all <= MOST);
                prop_assert_eq!(shelf.in_all, shelf.kept.values().map(|kept| kept.bytes).sum::<usize>());
                prop_assert_eq!(shelf.in_all, shelf.namespaces.values().map(|space| space.bytes).sum::<usize>());
                for space in shelf.namespaces.values() {
                    prop_assert!(space.bytes > 0);
                    prop_assert_eq!(space.bytes, space.pods.values().map(|share| share.bytes).sum::<usize>());
                }
            }
            leases.clear();
            let shelf = room.shelf();
            prop_assert!(shelf.in_all == 0 && shelf.namespaces.is_empty() && shelf.kept.is_empty());
        }
    }
}
