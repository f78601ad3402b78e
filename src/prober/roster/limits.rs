//! How many probes there may be, and what becomes of those that are one too many: other limits, and places that were
//! given back, in; probes let in out. Pure, as all of the roster.

use super::{Moment, ProbeKind, ProberSettings, Roster};

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
}
