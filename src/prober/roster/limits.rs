//! How many probes there may be, and what becomes of those that are one too many: other limits, and places that were
//! given back, in; probes let in out. Pure, as all of the roster.

use std::{sync::Arc, time::SystemTime};

use super::{Entry, Invalid, Moment, Notice, Place, ProbeEvent, ProbeKey, ProbeKind, ProberSettings, Roster};
use crate::{
    inventory::view::{ContainerState, ContainerView},
    prober::{quota::Exceeded, variables::Variables},
};

/// Which probe of a pod comes first: by container, the oldest first, and then by type.
type Rank = (bool, Option<SystemTime>, Arc<str>, ProbeKind);

fn rank(key: &ProbeKey, view: &ContainerView) -> Rank {
    (view.created_at.is_none(), view.created_at, view.name.clone(), key.kind)
}

impl Roster {
    /// Runs under other limits from now on: probes that are one too many by now stay until they go, those that were
    /// one too many before are looked at again.
    pub(in crate::prober) fn set_limits(&mut self, settings: &ProberSettings, now: Moment) {
        self.pool.resize(settings.workers, settings.exec_workers);
        self.quota.set_limits(settings.max_per_pod, settings.max_per_node);
        let places: Vec<_> = self.refused.drain().collect();
        for place in places {
            for key in ProbeKind::ALL.map(|kind| place.key(kind)) {
                if self.entries.get(&key).is_some_and(|entry| entry.refusal.is_some()) {
                    self.take_out(&key);
                }
            }
            self.refresh(&place, now);
        }
    }

    /// Lets probes in that the quota refused, if it has room again.
    pub(super) fn admit(&mut self, now: Moment) {
        if !self.quota.take_released() || self.refused.is_empty() {
            return;
        }
        let places: Vec<_> = self.refused.drain().collect();
        for place in places {
            for kind in ProbeKind::ALL {
                let key = place.key(kind);
                if self.entries.get(&key).is_none_or(|entry| entry.refusal.is_none()) {
                    continue;
                }
                if self.quota.has_room(&key.pod) {
                    self.take_out(&key);
                } else {
                    self.refused.insert(place.clone());
                }
            }
            self.refresh(&place, now);
        }
    }

    /// Counts a probe that comes to be. After a start of criprobe containers are met in the order in which the runtime
    /// answers: so that the same probes run each time, one that comes later in its pod's order gives way, as long as it
    /// has made no attempt.
    pub(super) fn admit_in_order(
        &mut self,
        key: &ProbeKey,
        view: &ContainerView,
        now: Moment,
    ) -> Result<(), Exceeded> {
        let refused = match self.quota.admit(&key.pod) {
            Err(reason @ Exceeded::Pod(_)) => reason,
            admitted => return admitted,
        };
        let later = self.entries.iter().filter(|(other, entry)| {
            other.pod == key.pod && entry.may_give_way() && !self.pool.is_in_flight(other)
        });
        let Some((_, last)) = later.map(|(other, entry)| (rank(other, &entry.view), other.clone())).max()
        else {
            return Err(refused);
        };
        let comes_later = |entry: &Entry| rank(&last, &entry.view) > rank(key, view);
        if !self.entries.get(&last).is_some_and(comes_later) {
            return Err(refused);
        }
        self.put_out(&last, refused, now);
        self.quota.admit(&key.pod)
    }

    /// Counts a probe while its container may run: pods that are done, and stay listed for days, take no room.
    pub(super) fn recount(&mut self, key: &ProbeKey, now: Moment) {
        let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.worker.is_some()) else { return };
        let counts = !matches!(entry.view.state, ContainerState::Exited { .. });
        if entry.is_counted == counts {
            return;
        }
        entry.is_counted = counts;
        if !counts {
            entry.variables = Arc::new(Variables::within(&self.room));
            self.quota.release(&key.pod);
            return;
        }
        // The same container does not run again, but another one of its name does.
        let view = entry.view.clone();
        if let Err(reason) = self.admit_in_order(key, &view, now) {
            if let Some(entry) = self.entries.get_mut(key) {
                entry.is_counted = false;
            }
            self.put_out(key, reason, now);
        }
    }

    /// Has a probe that was at work listed as one too many.
    fn put_out(&mut self, key: &ProbeKey, reason: Exceeded, now: Moment) {
        let Some(entry) = self.entries.get(key) else { return };
        let (planned, definition, view) = (entry.planned.clone(), entry.definition, entry.view.clone());
        let handler = planned.spec.as_ref().map_or("", |spec| spec.handler.name());
        self.take_out(key);
        let refusal = Some(self.refuse(key, handler, &view, reason, now));
        let (worker, is_counted) = (None, false);
        let variables = Arc::default();
        let entry =
            Entry { planned, definition, view, variables, since: now.wall, worker, refusal, is_counted };
        self.entries.insert(key.clone(), entry);
    }

    /// Reports that a probe is one too many, and remembers it for when there is room.
    pub(super) fn refuse(
        &mut self,
        key: &ProbeKey,
        handler: &'static str,
        view: &ContainerView,
        reason: Exceeded,
        now: Moment,
    ) -> Invalid {
        let reason = reason.to_string();
        let notice = Notice::Refused { reason: reason.clone() };
        self.events.push(ProbeEvent::new(&notice, key.kind, view.id.clone(), view, now.wall));
        self.refused.insert(Place::of(view));
        Invalid { reason, handler: Some(handler) }
    }
}

impl Entry {
    /// Whether it is at work, and no attempt of it has ended, on this container or before a restart of ours.
    fn may_give_way(&self) -> bool {
        self.worker.as_ref().is_some_and(|worker| worker.results().counts().total() == 0)
    }
}
