//! Who waits for a place: claims in, the one whose turn it is out. Namespaces take turns, in each its pods, in each pod the
//! first that came is the first that is served. Pure.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use crate::ids::{PodUid, ProbeKey};

/// What waits, each key once.
#[derive(Debug, Default)]
pub(super) struct Queue {
    turns: VecDeque<Arc<str>>,
    namespaces: HashMap<Arc<str>, Pods>,
    waiting: HashSet<ProbeKey>,
}

/// What waits of one namespace.
#[derive(Debug, Default)]
struct Pods {
    turns: VecDeque<PodUid>,
    keys: HashMap<PodUid, VecDeque<ProbeKey>>,
}

impl Queue {
    /// Puts a key behind those of its pod, unless it waits already.
    pub(super) fn push(&mut self, key: ProbeKey, namespace: &Arc<str>) {
        if !self.waiting.insert(key.clone()) {
            return;
        }
        let pods = self.namespaces.entry(namespace.clone()).or_default();
        if pods.turns.is_empty() {
            self.turns.push_back(namespace.clone());
        }
        let keys = pods.keys.entry(key.pod.clone()).or_default();
        if keys.is_empty() {
            pods.turns.push_back(key.pod.clone());
        }
        keys.push_back(key);
    }

    /// Takes the key whose turn it is, of those whose namespace and pod are admitted. Those that are not keep their turn.
    /// Looks at no more pods than hold a place, and one.
    pub(super) fn pop(
        &mut self,
        admits_namespace: impl Fn(&Arc<str>) -> bool,
        admits_pod: impl Fn(&PodUid) -> bool,
    ) -> Option<(ProbeKey, Arc<str>)> {
        let admitted = self.turns.iter().enumerate().filter(|(_, namespace)| admits_namespace(namespace));
        let (at, of_pod) = admitted
            .filter_map(|(at, namespace)| {
                let of_pod = self.namespaces.get(namespace)?.turns.iter().position(&admits_pod)?;
                Some((at, of_pod))
            })
            .next()?;
        let namespace = self.turns.remove(at)?;
        let pods = self.namespaces.get_mut(&namespace)?;
        let pod = pods.turns.remove(of_pod)?;
        let keys = pods.keys.get_mut(&pod)?;
        let key = keys.pop_front()?;
        if keys.is_empty() {
            pods.keys.remove(&pod);
        } else {
            pods.turns.push_back(pod);
        }
        if pods.turns.is_empty() {
            self.namespaces.remove(&namespace);
        } else {
            self.turns.push_back(namespace.clone());
        }
        self.waiting.remove(&key);
        Some((key, namespace))
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether a key of this pod waits.
    #[cfg(test)]
    pub(super) fn has(&self, pod: &PodUid) -> bool {
        self.waiting.iter().any(|key| key.pod == *pod)
    }
}
