//! What the prober answers: how many probes there are, all of them, and all containers with their verdicts or their plans.
//! Pure.

use std::sync::Arc;

use super::{Entry, Place, Roster};
use crate::{
    ids::{ProbeKey, ProbeKind},
    inventory::pod::{Container, ContainerState},
    prober::{
        Moment,
        containers::Known,
        handle::Listed,
        readiness::{ContainerReadiness, ContainerStatus},
        status::{ProbeCounts, ProbeStatus},
        worker::event::Block,
    },
    spec::plan::Invalid,
};

impl Roster {
    /// How many probes there are, of those that are listed.
    pub(in crate::prober) fn counts(&self, now: Moment) -> ProbeCounts {
        let mut counts = ProbeCounts { attempts: self.totals.clone(), ..ProbeCounts::default() };
        for (key, entry) in self.entries.iter().filter(|(key, _)| self.is_listed(key)) {
            counts.note(entry.worker.as_ref(), self.silence.away.is_some(), now);
            if entry.is_enforced() {
                counts.unproven.note(key, &entry.view, (entry.worker.as_ref(), entry.since), now);
            }
        }
        counts
    }

    /// All probes, by namespace, pod, container and type.
    pub(in crate::prober) fn statuses(&self, now: Moment) -> Vec<ProbeStatus> {
        let listed = self.entries.iter().filter(|(key, _)| self.is_listed(key));
        let mut statuses: Vec<_> = listed.map(|(key, entry)| self.status(key, entry, now)).collect();
        statuses.sort_by(|a, b| {
            (&a.namespace, &a.pod, &a.key.container, &a.key).cmp(&(
                &b.namespace,
                &b.pod,
                &b.key.container,
                &b.key,
            ))
        });
        self.note_unlisted(&mut statuses);
        statuses
    }

    /// All containers with what is planned for them, in no order.
    pub(in crate::prober) fn plans(&self) -> Vec<Listed> {
        self.containers.all()
    }

    /// All containers that it knows, in no order.
    pub(in crate::prober) fn containers(&self, now: Moment) -> Vec<ContainerStatus> {
        let status = |view: &Arc<Container>| {
            let place = Place::of(view);
            let of_it = ProbeKind::ALL.map(|kind| place.key(kind)).into_iter().filter_map(|key| {
                let entry = self.entries.get(&key).filter(|entry| entry.view.id == view.id)?;
                self.is_listed(&key).then(|| self.status(&key, entry, now))
            });
            let probes: Vec<_> = of_it.collect();
            let readiness = ContainerReadiness::of(view.state, &probes);
            ContainerStatus { view: view.clone(), readiness, probes }
        };
        self.containers.views().map(status).collect()
    }

    fn status(&self, key: &ProbeKey, entry: &Entry, now: Moment) -> ProbeStatus {
        let is_clients = self.containers.get(&entry.view.id).is_some_and(Known::is_stopped_by_client);
        let mut status = match &entry.worker {
            Some(worker) => {
                let status =
                    ProbeStatus::of(key, &entry.view, &entry.planned, worker, self.pauses.get(key), now);
                match self.silence.away.filter(|_| worker.runs_command()) {
                    Some(since) => status.in_outage(since, now.wall),
                    None => status,
                }
            }
            None => {
                let invalid = self.invalid(key, entry);
                ProbeStatus::invalid(key, &entry.view, &entry.planned, invalid.as_ref(), entry.since)
            }
        };
        // Without its sandbox, it may have ended unasked.
        let block = entry.worker.as_ref().and_then(|worker| worker.block(now.at));
        let has_exited = matches!(block, Some(Block::NotRunning(ContainerState::Exited { .. })));
        if is_clients && entry.view.pod.is_ready && has_exited {
            status.reason += ": a client stopped it";
        }
        ProbeStatus { is_clients, ..status }
    }

    /// Why a probe cannot run, if it cannot.
    pub(super) fn invalid(&self, key: &ProbeKey, entry: &Entry) -> Option<Invalid> {
        match &entry.planned.spec {
            Err(invalid) => Some(invalid.clone()),
            Ok(outline) => {
                let (reason, handler) = (self.quota.refusal(key)?.to_string(), Some(outline.handler));
                Some(Invalid { reason, handler })
            }
        }
    }
}
