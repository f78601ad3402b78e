//! The values of the variables that a probe's command names: a container in; the values out, from the runtime the first
//! time, and kept until the probe is gone or looks at another container. A probe without variables keeps nothing.

use std::{
    collections::{BTreeSet, HashMap},
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tonic::{Code, transport::Channel};

use crate::{
    clock,
    handler::{Fault, go},
    ids::{ContainerId, PodUid},
    inventory::pod::{Container, Pod},
    results::text::BoundedText,
    runtime::environment::{self, Subject, VariablesError},
    spec::expand::{Env, TooLong},
};

/// 4 KiB: values of at most this size take no part in [`MOST`], so that no pod can take the room of usual commands. There
/// are as many of them as there are probes: at most 20 MiB.
const SMALL: usize = 4 << 10;

/// 16 MiB: what the values of all other probes take together: 64 times the longest command of an annotation. A probe
/// that finds no room is an error; it looks again after [`PAUSE`].
const MOST: usize = 16 << 20;

/// A quarter of that for the probes of one pod, and three quarters for those of one namespace.
const MOST_OF_POD: usize = MOST / 4;
const MOST_OF_NAMESPACE: usize = MOST / 4 * 3;

/// 30 s: for how long values that could not be kept are not asked for again. Reading a long environment costs the runtime
/// and us some 10 ms, and a probe may be tried ten times a second.
const PAUSE: Duration = Duration::from_secs(30);

/// The values of one probe. They are shared with its attempts, of which there is one at a time.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    state: Mutex<State>,
    /// Where their room is taken from; none for a single attempt, after which nothing is kept.
    room: Option<Arc<Room>>,
}

#[derive(Debug, Default)]
enum State {
    /// Not asked for yet, or without an answer.
    #[default]
    Unread,
    /// They are these, in this container.
    Kept { container: ContainerId, values: Env, _lease: Lease },
    /// They cannot be had in this container, and are not asked for again before this moment.
    Refused { container: ContainerId, fault: Fault, until: Instant },
}

impl Variables {
    /// Those of a probe, which take their room there.
    pub(super) fn within(room: &Arc<Room>) -> Self {
        Self { state: Mutex::default(), room: Some(room.clone()) }
    }

    /// The values of these names, which are always the same ones; `limit` is how long they may be together.
    ///
    /// # Errors
    /// The runtime gave no answer, it does not report environments, or there is no room for the request or the values.
    pub(super) async fn read(
        &self,
        runtime: Channel,
        view: &Container,
        names: &BTreeSet<&str>,
        limit: usize,
    ) -> Result<Env, Fault> {
        if let Some(known) = self.known(&view.id, clock::now()) {
            return known;
        }
        let of = Subject {
            container: view.id.as_str(),
            pod: view.pod.uid.as_str(),
            namespace: &view.pod.namespace,
        };
        let answer = environment::variables(runtime, of, names).await;
        let read = match answer {
            Ok(Some(values)) => self.lease(view, values.into_iter().collect(), limit),
            Ok(None) => Err(unknown("the runtime does not report it")),
            Err(error @ VariablesError::NoPlace) => return Err(Fault::Ours(BoundedText::of(error))),
            Err(VariablesError::Runtime(status)) if status.code() == Code::OutOfRange => {
                Err(unknown("it is too large"))
            }
            Err(VariablesError::Runtime(status)) if status.code() == Code::DeadlineExceeded => {
                return Err(Fault::Unanswered);
            }
            Err(VariablesError::Runtime(status)) => {
                let message = BoundedText::of(status.message());
                return Err(Fault::Runtime { code: go::code(status.code()), message });
            }
        };
        let container = view.id.clone();
        match read {
            Ok((values, lease)) => {
                *self.state() = State::Kept { container, values: values.clone(), _lease: lease };
                Ok(values)
            }
            Err(fault) => {
                let until = clock::now() + PAUSE;
                *self.state() = State::Refused { container, fault: fault.clone(), until };
                Err(fault)
            }
        }
    }

    /// What is known without asking.
    fn known(&self, of: &ContainerId, now: Instant) -> Option<Result<Env, Fault>> {
        let mut state = self.state();
        match &*state {
            State::Kept { container, values, .. } if container == of => Some(Ok(values.clone())),
            State::Refused { container, fault, until } if container == of && now < *until => {
                Some(Err(fault.clone()))
            }
            State::Unread | State::Kept { .. } | State::Refused { .. } => {
                // What another container had gives its room back before more is read.
                *state = State::Unread;
                None
            }
        }
    }

    /// Takes room for values.
    fn lease(&self, view: &Container, values: Env, limit: usize) -> Result<(Env, Lease), Fault> {
        // Each is in the command at least once.
        if values.length() > limit {
            return Err(Fault::target(TooLong(limit)));
        }
        let Some(room) = &self.room else { return Ok((values, Lease::default())) };
        let weight = values.weight();
        let lease = room.take(&view.pod, weight).ok_or_else(|| {
            unknown(format_args!("its variables have {weight} bytes, and there is no room for them"))
        })?;
        Ok((values, lease))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unknown(reason: impl std::fmt::Display) -> Fault {
    Fault::target(format_args!(
        "the command refers to the container's environment, which is not known: {reason}"
    ))
}

/// What the values of all probes take together.
#[derive(Debug, Default)]
pub(super) struct Room(Mutex<Usage>);

/// In bytes; no entry is zero.
#[derive(Debug, Default)]
struct Usage {
    in_all: usize,
    by_pod: HashMap<PodUid, usize>,
    by_namespace: HashMap<Arc<str>, usize>,
}

/// Room that is taken until this is dropped; the default takes none.
#[derive(Debug, Default)]
struct Lease(Option<(Arc<Room>, PodUid, Arc<str>, usize)>);

impl Room {
    /// Takes so many bytes for a probe of a pod, if there is room for them.
    fn take(self: &Arc<Self>, pod: &Pod, bytes: usize) -> Option<Lease> {
        if bytes <= SMALL {
            return Some(Lease::default());
        }
        let mut taken = self.usage();
        let of_pod = taken.by_pod.get(&pod.uid).copied().unwrap_or_default();
        let of_namespace = taken.by_namespace.get(&pod.namespace).copied().unwrap_or_default();
        let fits = |taken: usize, most: usize| taken.saturating_add(bytes) <= most;
        if !fits(taken.in_all, MOST) || !fits(of_pod, MOST_OF_POD) || !fits(of_namespace, MOST_OF_NAMESPACE) {
            return None;
        }
        taken.in_all += bytes;
        taken.by_pod.insert(pod.uid.clone(), of_pod + bytes);
        taken.by_namespace.insert(pod.namespace.clone(), of_namespace + bytes);
        Some(Lease(Some((self.clone(), pod.uid.clone(), pod.namespace.clone(), bytes))))
    }

    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some((room, pod, namespace, bytes)) = self.0.take() else { return };
        let mut taken = room.usage();
        taken.in_all -= bytes;
        give_back(&mut taken.by_pod, &pod, bytes);
        give_back(&mut taken.by_namespace, &namespace, bytes);
    }
}

fn give_back<K: Hash + Eq>(taken: &mut HashMap<K, usize>, of: &K, bytes: usize) {
    if let Some(left) = taken.get_mut(of) {
        *left -= bytes;
        if *left == 0 {
            taken.remove(of);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::prober::fixtures::container;

    fn pod(name: &str, namespace: &str) -> Pod {
        let pod = &container(name, "c", 0).pod;
        Pod { namespace: namespace.into(), ..Pod::clone(pod) }
    }

    #[test]
    fn row_16_a_pod_has_a_quarter_of_the_room_and_its_namespace_three_quarters() {
        let room = Arc::new(Room::default());
        let full = |pod: &Pod| {
            let leases: Vec<_> = std::iter::from_fn(|| room.take(pod, MOST_OF_POD / 8)).collect();
            assert!(room.take(pod, SMALL).is_some(), "there is always room for a usual command");
            leases
        };
        let mut leases: Vec<_> = (0..5).map(|number| full(&pod(&format!("p{number}"), "hostile"))).collect();
        assert_eq!(leases.iter().map(Vec::len).collect::<Vec<_>>(), [8, 8, 8, 0, 0]);
        assert_eq!(full(&pod("web", "shop")).len(), 8);
        leases.pop();
        leases.clear();
        assert_eq!(full(&pod("p4", "hostile")).len(), 8);
    }

    #[test]
    fn row_16_what_is_kept_is_that_of_the_container_and_gives_its_room_back_with_the_probe() {
        let room = Arc::new(Room::default());
        let variables = Variables::within(&room);
        let view = container("web", "c1", 0);
        let value = || Env::from_iter([("A".to_owned(), "x".repeat(2 * SMALL))]);
        let (values, lease) = variables.lease(&view, value(), 4 * SMALL).unwrap();
        *variables.state() = State::Kept { container: view.id.clone(), values, _lease: lease };
        assert!(variables.known(&view.id, clock::now()).is_some() && room.usage().in_all > 2 * SMALL);
        assert!(variables.known(&"c2".into(), clock::now()).is_none());
        assert_eq!(room.usage().in_all, 0, "before those of another container are read");
        let refused = variables.lease(&view, value(), SMALL).unwrap_err().to_string();
        assert_eq!(refused, "the command is longer than 4096 bytes after its variables were expanded");
        let refused = variables.lease(&view, Env::from_iter([("A".to_owned(), "x".repeat(MOST))]), MOST);
        assert!(refused.unwrap_err().to_string().ends_with("bytes, and there is no room for them"));
    }

    #[test]
    fn what_was_refused_is_not_asked_for_again_at_once() {
        let (variables, now) = (Variables::default(), clock::now());
        let of = ContainerId::from("c1");
        let refused = State::Refused { container: of.clone(), fault: unknown("why"), until: now + PAUSE };
        *variables.state() = refused;
        assert_eq!(variables.known(&of, now), Some(Err(unknown("why"))));
        assert_eq!(variables.known(&of, now + PAUSE), None);
    }

    proptest! {
        #[test]
        fn row_16_the_room_is_never_exceeded_and_all_of_it_comes_back(
            steps in prop::collection::vec((0_usize..6, 0_usize..3, 1_usize..3 << 20, any::<bool>()), 0..200),
        ) {
            let room = Arc::new(Room::default());
            let mut leases = Vec::new();
            for (name, namespace, bytes, is_end) in steps {
                if is_end && !leases.is_empty() {
                    leases.swap_remove(bytes % leases.len());
                } else {
                    leases.extend(room.take(&pod(&format!("{name}-{namespace}"), &namespace.to_string()), bytes));
                }
                let taken = room.usage();
                prop_assert!(taken.in_all <= MOST);
                prop_assert!(taken.by_pod.values().all(|bytes| *bytes <= MOST_OF_POD));
                prop_assert!(taken.by_namespace.values().all(|bytes| *bytes <= MOST_OF_NAMESPACE));
                prop_assert_eq!(taken.in_all, taken.by_pod.values().sum::<usize>());
                prop_assert_eq!(taken.in_all, taken.by_namespace.values().sum::<usize>());
            }
            leases.clear();
            let taken = room.usage();
            prop_assert!(taken.in_all == 0 && taken.by_pod.is_empty() && taken.by_namespace.is_empty());
        }
    }
}
