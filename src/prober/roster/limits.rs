//! How many probes there may be, and what becomes of those that are one too many: other limits, and places that were
//! given back, in; probes let in out. Pure, as all of the roster.

use std::{sync::Arc, time::SystemTime};

use super::{Entry, Invalid, Moment, Notice, Place, ProbeEvent, ProbeKey, ProbeKind, ProberSettings, Roster};
use crate::{inventory::view::ContainerView, prober::quota::Exceeded};

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
        let entry = self.entries.get(&last).filter(|entry| rank(&last, &entry.view) > rank(key, view));
        let Some((planned, view)) = entry.map(|entry| (entry.planned.clone(), entry.view.clone())) else {
            return Err(refused);
        };
        self.take_out(&last);
        let handler = planned.spec.as_ref().map_or("", |spec| spec.handler.name());
        let refusal = Some(self.refuse(&last, handler, &view, refused, now));
        let definition = planned.spec.as_ref().ok().map(super::Definition::of);
        let entry = Entry { planned, definition, view, since: now.wall, worker: None, refusal };
        self.entries.insert(last, entry);
        self.quota.admit(&key.pod)
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
