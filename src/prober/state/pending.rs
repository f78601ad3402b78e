//! What was saved before a restart and has not been met since: a saved state in, what it says of a probe out, once. What
//! is not claimed is forgotten some time after the runtime was listed. Pure.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::{Checkpoint, Saved, SavedProbe};
use crate::{
    ids::{ContainerId, ProbeKey},
    prober::pauses::Pause,
    spec::identity::Definition,
};

/// 5 min: how long after the runtime's first list what was saved is kept. What the list had is met within seconds; a pod
/// whose containers are being created again may take a while.
const PATIENCE: Duration = Duration::from_secs(300);

/// As much as was saved, and ever less.
#[derive(Debug, Default)]
pub(in crate::prober) struct Restoring {
    checkpoints: HashMap<ProbeKey, Checkpoint>,
    paused: HashMap<ProbeKey, Pause>,
    /// When the rest is forgotten; none before the runtime was listed.
    until: Option<Instant>,
}

impl Restoring {
    /// Of what was saved.
    pub(in crate::prober) fn new(saved: Saved) -> Self {
        let mut restoring = Self::default();
        for SavedProbe { key, pause, checkpoint } in saved.probes {
            if let Some(pause) = pause {
                restoring.paused.insert(key.clone(), pause);
            }
            if let Some(checkpoint) = checkpoint {
                restoring.checkpoints.insert(key, checkpoint);
            }
        }
        restoring
    }

    /// Notes that the runtime was listed.
    pub(in crate::prober) fn listed(&mut self, now: Instant) {
        self.until.get_or_insert(now + PATIENCE);
    }

    /// Whether something is known of a probe on this very container under this very definition.
    pub(in crate::prober) fn knows(
        &self,
        key: &ProbeKey,
        container: &ContainerId,
        definition: Definition,
    ) -> bool {
        let checkpoint = self.checkpoints.get(key);
        checkpoint.is_some_and(|checkpoint| {
            checkpoint.container == *container && checkpoint.definition == definition
        })
    }

    /// The checkpoint of a probe on this very container under this very definition. What was saved for another definition is
    /// of no more use; what was saved for another container may still be: this one may be a former one.
    pub(in crate::prober) fn take_checkpoint(
        &mut self,
        key: &ProbeKey,
        container: &ContainerId,
        definition: Definition,
        now: Instant,
    ) -> Option<Checkpoint> {
        self.forget_late(now);
        self.checkpoints.get(key).filter(|checkpoint| checkpoint.container == *container)?;
        self.checkpoints.remove(key).filter(|checkpoint| checkpoint.definition == definition)
    }

    /// The pause of a probe, if it was paused.
    pub(in crate::prober) fn take_pause(&mut self, key: &ProbeKey, now: Instant) -> Option<Pause> {
        self.forget_late(now);
        self.paused.remove(key)
    }

    /// What was not claimed yet, to be saved again.
    pub(in crate::prober) fn rest(&self) -> (&HashMap<ProbeKey, Checkpoint>, &HashMap<ProbeKey, Pause>) {
        (&self.checkpoints, &self.paused)
    }

    /// Forgets what was not claimed in time.
    pub(in crate::prober) fn forget_late(&mut self, now: Instant) {
        if self.until.is_some_and(|until| until <= now) {
            self.checkpoints = HashMap::new();
            self.paused = HashMap::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock,
        ids::ProbeKind,
        prober::fixtures::spec,
        results::{Counts, Run},
    };

    fn key(pod: &str) -> ProbeKey {
        ProbeKey { pod: pod.into(), container: "app".into(), kind: ProbeKind::Liveness }
    }

    fn defined(kind: ProbeKind) -> Definition {
        Definition::of(&spec(kind))
    }

    fn restoring() -> Restoring {
        let checkpoint = |container: &str| Checkpoint {
            container: container.into(),
            definition: defined(ProbeKind::Liveness),
            verdict: None,
            since: std::time::SystemTime::UNIX_EPOCH,
            run: Run::default(),
            counts: Counts::default(),
            is_held: false,
            run_here: None,
            last: None,
            errors: None,
        };
        let saved = |pod| SavedProbe {
            key: key(pod),
            pause: Some(std::time::SystemTime::UNIX_EPOCH.into()),
            checkpoint: Some(checkpoint("c1")),
        };
        Restoring::new(Saved { probes: vec![saved("a"), saved("b"), saved("c")] })
    }

    #[test]
    fn what_was_saved_is_given_out_once_and_for_the_same_container_and_definition_only() {
        let (mut restoring, now) = (restoring(), clock::now());
        let mut take = |pod, container: &str, kind| {
            restoring.take_checkpoint(&key(pod), &container.into(), defined(kind), now).is_some()
        };
        assert!(!take("a", "c0", ProbeKind::Liveness), "a former container");
        assert!(take("a", "c1", ProbeKind::Liveness));
        assert!(!take("a", "c1", ProbeKind::Liveness), "only once");
        assert!(!take("b", "c1", ProbeKind::Readiness), "defined otherwise");
        assert!(!take("b", "c1", ProbeKind::Liveness), "and so of no use any more");
        assert!(!take("d", "c1", ProbeKind::Liveness), "never saved");
        assert!(restoring.take_pause(&key("b"), now).is_some());
        assert!(restoring.take_pause(&key("b"), now).is_none());
    }

    #[test]
    fn what_nobody_comes_for_is_forgotten_some_time_after_the_list_and_not_before() {
        let (mut restoring, now) = (restoring(), clock::now());
        restoring.forget_late(now + 10 * PATIENCE);
        assert_eq!(restoring.rest().0.len(), 3, "the runtime is away");
        restoring.listed(now);
        restoring.listed(now + PATIENCE / 2);
        assert!(restoring.take_pause(&key("a"), now + PATIENCE / 2).is_some());
        assert!(restoring.take_pause(&key("b"), now + PATIENCE).is_none());
        assert_eq!((restoring.rest().0.len(), restoring.rest().1.len()), (0, 0));
    }
}
