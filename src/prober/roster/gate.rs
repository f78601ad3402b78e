//! The startup gate: what the startup probe of a container found in; whether its other probes may go on out. Pure, as all of
//! the roster.

use super::{Entry, Moment, ProbeKey, ProbeKind, Roster, WorkerEvent};
use crate::{prober::readiness, results::Verdict};

impl Roster {
    /// Whether the container of a probe counts as started: its startup probe succeeded, or it has none that runs
    /// (docs/kubelet-prober.md 2, UpdatePodStatus 1). A probe of an enforced rule waits only for one of a rule: a
    /// pod's author could make it wait for ever.
    pub(super) fn is_started(&self, key: &ProbeKey) -> bool {
        let startup = ProbeKey { kind: ProbeKind::Startup, ..key.clone() };
        let is_enforced = self.entries.get(key).is_some_and(Entry::is_enforced);
        let startup = self.entries.get(&startup).filter(|startup| !startup.is_of_author() || !is_enforced);
        let worker = startup.and_then(|entry| entry.worker.as_ref());
        readiness::allows(worker.map(|worker| worker.results().verdict().unwrap_or(Verdict::Unknown)))
    }

    /// Passes what the startup probe found to the other probes of its container, at once.
    pub(super) fn release(&mut self, startup: &ProbeKey, now: Moment) {
        for kind in [ProbeKind::Readiness, ProbeKind::Liveness] {
            let key = ProbeKey { kind, ..startup.clone() };
            let is_started = self.is_started(&key);
            self.send(&key, WorkerEvent::Started(is_started), now);
        }
    }
}
