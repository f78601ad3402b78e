//! The requests that created containers, as they passed the socket: noted with the container's id, until the container is
//! gone. In memory only: they may contain secrets, so they are never written to a file or logged.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use super::Recipe;
use crate::ids::ContainerId;

/// 16 MiB of requests are kept, each counted with [`OVERHEAD`]: a usual one has 2 KiB, and each 256 KiB at most, because
/// the tap keeps no longer one. Above that, the namespace whose requests take most makes room, with its largest: what one
/// author creates does not drive out what others have created. The runtime is asked for the configuration of a container
/// whose request was dropped.
const MAX_BYTES: usize = 16 << 20;

/// 1 KiB: what a request takes beside its own bytes. An id has 256 bytes at most, the name of a namespace 512.
const OVERHEAD: usize = 1 << 10;

/// The requests of the containers that may have to be made again; clones are the same.
#[derive(Clone)]
pub(crate) struct RecipeStore {
    is_enabled: Arc<AtomicBool>,
    /// Held for one lookup, or for as long as it takes to forget what is gone.
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    requests: HashMap<ContainerId, Request>,
    namespaces: BTreeMap<Arc<str>, Namespace>,
    bytes: usize,
}

struct Request {
    namespace: Arc<str>,
    recipe: Recipe,
}

#[derive(Default)]
struct Namespace {
    bytes: usize,
    by_size: BTreeSet<(usize, ContainerId)>,
}

impl RecipeStore {
    /// Nothing is kept until it is enabled.
    pub(crate) fn new(is_enabled: bool) -> Self {
        Self { is_enabled: Arc::new(AtomicBool::new(is_enabled)), kept: Arc::default() }
    }

    /// Keeps requests from now on, or forgets all of them and keeps none.
    pub(crate) fn enable(&self, is_enabled: bool) {
        let mut kept = self.kept();
        self.is_enabled.store(is_enabled, Ordering::Relaxed);
        if !is_enabled {
            *kept = Kept::default();
        }
    }

    /// Whether requests are kept, for the taps.
    pub(crate) fn switch(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_enabled)
    }

    /// A container of this namespace was created with this request.
    pub(crate) fn note(&self, id: &ContainerId, namespace: &Arc<str>, request: Arc<[u8]>) {
        let mut kept = self.kept();
        // A call may have begun before it was disabled.
        if self.is_enabled.load(Ordering::Relaxed) {
            kept.note(id, namespace, request.into(), MAX_BYTES);
        }
    }

    /// How the container is made again, if its request was kept.
    pub(crate) fn get(&self, id: &ContainerId) -> Option<Recipe> {
        self.kept().requests.get(id).map(|request| request.recipe.clone())
    }

    /// A container is gone.
    pub(crate) fn forget(&self, id: &ContainerId) {
        self.kept().forget(id);
    }

    /// All containers are gone but these.
    pub(crate) fn retain(&self, is_there: impl Fn(&ContainerId) -> bool) {
        let mut kept = self.kept();
        let gone: Vec<_> = kept.requests.keys().filter(|id| !is_there(id)).cloned().collect();
        gone.iter().for_each(|id| kept.forget(id));
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for RecipeStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.kept();
        f.debug_struct("RecipeStore")
            .field("requests", &kept.requests.len())
            .field("bytes", &kept.bytes)
            .finish_non_exhaustive()
    }
}

impl Kept {
    fn note(&mut self, id: &ContainerId, namespace: &Arc<str>, recipe: Recipe, most: usize) {
        self.forget(id);
        let size = recipe.0.len() + OVERHEAD;
        let of_namespace = self.namespaces.entry(Arc::clone(namespace)).or_default();
        of_namespace.bytes += size;
        of_namespace.by_size.insert((size, id.clone()));
        self.bytes += size;
        self.requests.insert(id.clone(), Request { namespace: Arc::clone(namespace), recipe });
        while self.bytes > most
            && let Some(id) = self.largest_of_the_largest()
        {
            self.forget(&id);
        }
    }

    /// The largest request of the namespace that has most.
    fn largest_of_the_largest(&self) -> Option<ContainerId> {
        let namespace = self.namespaces.values().max_by_key(|namespace| namespace.bytes)?;
        namespace.by_size.last().map(|(_, id)| id.clone())
    }

    fn forget(&mut self, id: &ContainerId) {
        let Some(Request { namespace, recipe }) = self.requests.remove(id) else { return };
        let size = recipe.0.len() + OVERHEAD;
        self.bytes -= size;
        if let Some(of_namespace) = self.namespaces.get_mut(&namespace) {
            of_namespace.bytes -= size;
            of_namespace.by_size.remove(&(size, id.clone()));
            if of_namespace.by_size.is_empty() {
                self.namespaces.remove(&namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn id(number: usize) -> ContainerId {
        format!("c{number}").into()
    }

    fn note(store: &RecipeStore, number: usize, namespace: &str, bytes: usize) {
        store.note(&id(number), &namespace.into(), vec![7; bytes].into());
    }

    /// The numbers of the requests that are kept.
    fn kept(store: &RecipeStore) -> Vec<usize> {
        (0..1000).filter(|number| store.get(&id(*number)).is_some()).collect()
    }

    #[test]
    fn a_request_is_kept_until_its_container_is_gone() {
        let store = RecipeStore::new(true);
        (0..4).for_each(|number| note(&store, number, "default", 100));
        assert_eq!(store.get(&id(3)), Some(Recipe::from(Arc::from([7; 100]))));
        store.forget(&id(0));
        assert_eq!(kept(&store), [1, 2, 3]);
        store.clone().retain(|id| id.as_str() == "c2");
        assert_eq!(kept(&store), [2]);
        store.forget(&id(2));
        let kept = store.kept();
        assert!(kept.bytes == 0 && kept.namespaces.is_empty() && kept.requests.is_empty());
    }

    #[test]
    fn nothing_is_kept_while_it_is_disabled() {
        let store = RecipeStore::new(false);
        note(&store, 0, "default", 100);
        assert!(kept(&store).is_empty() && !store.switch().load(Ordering::Relaxed));
        store.enable(true);
        note(&store, 1, "default", 100);
        assert!(kept(&store) == [1] && store.switch().load(Ordering::Relaxed));
        store.enable(false);
        note(&store, 2, "default", 100);
        assert!(kept(&store).is_empty());
        assert_eq!(store.kept().bytes, 0);
    }

    #[test]
    fn what_one_namespace_creates_drives_out_its_own_largest_only() {
        let store = RecipeStore::new(true);
        (0..10).for_each(|number| note(&store, number, "quiet", 200 << 10));
        note(&store, 10, "loud", 100);
        (11..500).for_each(|number| note(&store, number, "loud", 250 << 10));
        let kept = kept(&store);
        assert_eq!(kept[..11], (0..11).collect::<Vec<_>>(), "those of others, and a small one");
        let bytes = store.kept().bytes;
        assert!(bytes <= MAX_BYTES && bytes > MAX_BYTES - (300 << 10), "{bytes}");
    }

    #[test]
    fn it_shows_no_secret() {
        let store = RecipeStore::new(true);
        store.note(&id(1), &"default".into(), Arc::from(*b"hunter2"));
        assert_eq!(format!("{store:?}"), "RecipeStore { requests: 1, bytes: 1031, .. }");
    }

    proptest! {
        #[test]
        fn the_bound_holds_and_the_counts_are_right(
            steps in vec((0usize..20, 0usize..4, 0usize..3000, prop::bool::weighted(0.3)), 0..80),
        ) {
            let mut kept = Kept::default();
            for (number, namespace, size, is_gone) in steps {
                if is_gone {
                    kept.forget(&id(number));
                } else {
                    let namespace = Arc::from(format!("n{namespace}"));
                    kept.note(&id(number), &namespace, Recipe::from(Arc::from(vec![0; size])), 20_000);
                }
                let sizes = kept.requests.values().map(|request| request.recipe.0.len() + OVERHEAD);
                prop_assert_eq!(kept.bytes, sizes.sum::<usize>());
                prop_assert_eq!(kept.bytes, kept.namespaces.values().map(|namespace| namespace.bytes).sum::<usize>());
                let members: usize = kept.namespaces.values().map(|namespace| namespace.by_size.len()).sum();
                prop_assert_eq!(members, kept.requests.len());
                prop_assert!(kept.bytes <= 20_000);
            }
        }
    }
}
