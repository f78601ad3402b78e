//! How many probes run, and how many of the others are listed: limits, and probes that want a place, in; probes that begin
//! and end out. Pure, as all of the roster.

use std::{collections::HashMap, sync::Arc};

use super::{Entry, Moment, Notice, Place, ProbeEvent, ProbeKey, ProberSettings, Roster};
use crate::{
    ids::PodUid,
    inventory::pod::ContainerState,
    prober::{ProbeStatus, quota::Rank, status::ProbePhase, variables::Variables},
    spec::need::Need,
};

impl Roster {
    /// Whether a probe is at work.
    pub(super) fn runs(&self, key: &ProbeKey) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.worker.is_some())
    }

    /// Runs under other limits from now on.
    pub(in crate::prober) fn set_limits(&mut self, settings: &ProberSettings, now: Moment) {
        self.pool.resize(settings.workers, settings.exec_workers);
        self.quota.set_limits(settings.budgets());
        self.listing.set_limits(settings.budgets());
        self.spacing = settings.least_period();
        self.set_history(settings.history);
        self.settle(now);
    }

    /// Begins and ends the work of those whose places came or went.
    pub(super) fn settle(&mut self, now: Moment) {
        for key in self.quota.take_changed() {
            let Some(entry) = self.entries.get(&key) else { continue };
            if entry.planned.spec.is_ok() && entry.worker.is_some() == self.quota.refusal(&key).is_some() {
                self.refresh(&Place::of(&entry.view), now);
            }
        }
        // Whether one is listed is asked when it is.
        self.listing.take_changed();
    }

    /// Begins or ends the work of a probe, whether it may run or not.
    pub(super) fn place(&mut self, key: &ProbeKey, now: Moment) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let (rank, need) = (entry.rank(key), entry.planned.spec.as_ref().ok().map(|outline| outline.need));
        // Pods that are done, and stay listed for days, take no room but that for their definitions, and that last.
        if rank.is_done {
            entry.variables = Arc::new(Variables::within(&self.room));
        }
        match need {
            Some(need) => {
                let need = if rank.is_done { need.at_rest() } else { need };
                self.quota.claim(Rank { need, ..rank.clone() });
            }
            None => self.quota.withdraw(key),
        }
        let is_valid = need.is_some();
        let may_run = is_valid && self.quota.refusal(key).is_none();
        match (self.runs(key), may_run) {
            (false, true) => self.begin(key, now),
            (true, false) => {
                self.end(key);
                self.note_progress(key, now);
                self.report_refusal(key, now);
            }
            (false, false) | (true, true) => {}
        }
        if may_run { self.listing.withdraw(key) } else { self.listing.claim(rank) }
    }

    /// Reports that a probe is one too many.
    pub(super) fn report_refusal(&mut self, key: &ProbeKey, now: Moment) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.since = now.wall;
        let Some(reason) = self.quota.refusal(key) else { return };
        let notice = Notice::Refused { reason: reason.to_string() };
        self.events.push(ProbeEvent::new(&notice, key.kind, entry.view.id.clone(), &entry.view, now.wall));
    }

    /// Whether a probe is listed: all that run are, and of the others as many as might run.
    pub(super) fn is_listed(&self, key: &ProbeKey) -> bool {
        self.listing.refusal(key).is_none()
    }

    /// Has the last invalid probe of each pod say how many others there are that are not listed.
    pub(super) fn note_unlisted(&self, listed: &mut [ProbeStatus]) {
        let mut unlisted: HashMap<&PodUid, usize> = HashMap::new();
        for key in self.entries.keys().filter(|key| !self.is_listed(key)) {
            *unlisted.entry(&key.pod).or_default() += 1;
        }
        let invalid = listed.iter_mut().filter(|status| status.phase == ProbePhase::Invalid);
        for status in invalid.rev() {
            if let Some(count) = unlisted.remove(&status.key.pod) {
                let are = if count == 1 { "is" } else { "are" };
                status.reason += &format!("; and {count} more of this pod, which {are} not listed");
            }
        }
    }
}

impl Entry {
    /// Where it comes among those that want to be listed.
    fn rank(&self, key: &ProbeKey) -> Rank {
        Rank {
            class: self.planned.source.class(),
            is_done: matches!(self.view.state, ContainerState::Exited { .. }),
            is_new: !self.is_restored,
            age: (self.view.created_at.is_none(), self.view.created_at),
            key: key.clone(),
            namespace: self.view.pod.namespace.clone(),
            need: Need::place(),
        }
    }
}
