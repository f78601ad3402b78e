//! How many probes there may be: those that come and go in, whether there is room for one more out. Pure.

use std::collections::HashMap;

use crate::ids::PodUid;

/// Counts the probes of each pod and of the node. Who comes first is served; what exceeds is told why.
#[derive(Debug)]
pub(super) struct Quota {
    per_pod: usize,
    per_node: usize,
    total: usize,
    /// Those of pods that have any.
    pods: HashMap<PodUid, usize>,
    /// Whether one went since this was asked last.
    is_released: bool,
}

/// Why there is no room. The texts are shown as the reason of an invalid probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Exceeded {
    #[error("the pod has {0} probes already, which is prober.maxPerPod")]
    Pod(usize),
    #[error("the node has {0} probes already, which is prober.maxPerNode")]
    Node(usize),
}

impl Quota {
    /// Without any probe yet.
    pub(super) fn new(per_pod: usize, per_node: usize) -> Self {
        Self { per_pod, per_node, total: 0, pods: HashMap::new(), is_released: false }
    }

    /// Has other limits from now on. Who is in stays in, also beyond them.
    pub(super) fn set_limits(&mut self, per_pod: usize, per_node: usize) {
        (self.per_pod, self.per_node) = (per_pod, per_node);
    }

    /// Counts one more of a pod.
    pub(super) fn admit(&mut self, pod: &PodUid) -> Result<(), Exceeded> {
        self.room(pod)?;
        self.total += 1;
        *self.pods.entry(pod.clone()).or_default() += 1;
        Ok(())
    }

    /// Counts one less of a pod.
    pub(super) fn release(&mut self, pod: &PodUid) {
        let Some(count) = self.pods.get_mut(pod) else { return };
        *count -= 1;
        if *count == 0 {
            self.pods.remove(pod);
        }
        self.total -= 1;
        self.is_released = true;
    }

    /// Whether one more of a pod would be let in.
    pub(super) fn has_room(&self, pod: &PodUid) -> bool {
        self.room(pod).is_ok()
    }

    /// Whether a place was given back since this was asked last.
    pub(super) fn take_released(&mut self) -> bool {
        std::mem::take(&mut self.is_released)
    }

    fn room(&self, pod: &PodUid) -> Result<(), Exceeded> {
        if self.pods.get(pod).is_some_and(|count| *count >= self.per_pod) || self.per_pod == 0 {
            return Err(Exceeded::Pod(self.per_pod));
        }
        if self.total >= self.per_node {
            return Err(Exceeded::Node(self.per_node));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_first_is_served_and_the_others_are_told_why() {
        let mut quota = Quota::new(2, 3);
        let (a, b) = (PodUid::from("a"), PodUid::from("b"));
        assert_eq!(
            [quota.admit(&a), quota.admit(&a), quota.admit(&a)],
            [Ok(()), Ok(()), Err(Exceeded::Pod(2))]
        );
        assert_eq!([quota.admit(&b), quota.admit(&b)], [Ok(()), Err(Exceeded::Node(3))]);
        assert_eq!((quota.has_room(&a), quota.has_room(&b), quota.take_released()), (false, false, false));
        quota.release(&a);
        assert_eq!((quota.has_room(&b), quota.take_released(), quota.take_released()), (true, true, false));
        quota.release(&PodUid::from("nobody"));
        assert_eq!(quota.total, 2, "who had none gives none back");
        assert_eq!(Exceeded::Pod(32).to_string(), "the pod has 32 probes already, which is prober.maxPerPod");
    }
}
