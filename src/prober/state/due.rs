//! When the state is to be saved: what changed in, the next time out. Pure. What matters is saved within a second, what
//! could be found out again within ten, and mere numbers within minutes: a probe that only goes on costs no disk. One
//! that changes all the time causes a save a minute.

mod share;

use std::time::{Duration, Instant};

pub(in crate::prober) use self::share::Cause;
use self::share::Shares;
use crate::{
    ids::ContainerId,
    results::{Run, Verdict},
};

/// 1 s: from one save to the next, at least.
const SPACING: Duration = Duration::from_secs(1);

/// 1 ms more for each probe: all of them are written each time, so that five thousand whose verdicts fall one after the
/// other cost a fraction of a percent of a core.
const SPACING_PER_PROBE: Duration = Duration::from_millis(1);

/// 1 min: how soon changes are saved whose pod or namespace has caused too many saves lately.
const OFTEN: Duration = Duration::from_secs(60);

/// What of a worker is worth saving, and where its run leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::prober) struct Mark {
    /// The container that it looks at.
    pub container: Option<ContainerId>,
    /// The verdict on it.
    pub verdict: Option<Verdict>,
    /// Whether startup succeeded, which ended the work on it.
    pub is_held: bool,
    /// The results in a row.
    pub run: Run,
    /// How long such a run must get to be a verdict.
    pub threshold: u32,
}

/// How soon a change is to be saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::prober) enum Urgency {
    /// Within 5 minutes: counts, and runs past their threshold.
    Numbers,
    /// Within 10 s: a run on its way to a verdict, a probe that went.
    Progress,
    /// Within a second, and a millisecond more for each probe: a verdict, a hold, a pause, another container.
    Turn,
}

/// The changes that are not saved yet.
#[derive(Debug, Default)]
pub(in crate::prober) struct Saving {
    due: Option<Instant>,
    /// When the next save may be taken; unset before the first.
    next: Option<Instant>,
    /// What pods may still cause.
    shares: Shares,
}

impl Urgency {
    /// That of what happened to a worker, if anything did. `has_ended`: an attempt, which is counted whatever it found.
    pub(in crate::prober) fn of(before: &Mark, after: &Mark, has_ended: bool) -> Option<Self> {
        if (&before.container, before.verdict, before.is_held)
            != (&after.container, after.verdict, after.is_held)
        {
            return Some(Self::Turn);
        }
        if before.run != after.run {
            // Past its threshold a run changes nothing by getting longer.
            return Some(if after.run.count <= after.threshold { Self::Progress } else { Self::Numbers });
        }
        has_ended.then_some(Self::Numbers)
    }

    fn patience(self) -> Duration {
        match self {
            Self::Numbers => Duration::from_secs(300),
            Self::Progress => Duration::from_secs(10),
            Self::Turn => Duration::ZERO,
        }
    }
}

impl Saving {
    /// Notes what an operator changed. It waits for no share.
    pub(in crate::prober) fn note_command(&mut self, now: Instant) {
        self.save_within(Urgency::Turn.patience(), now);
    }

    /// Notes a change of a pod.
    pub(in crate::prober) fn note(&mut self, urgency: Urgency, cause: Cause<'_>, now: Instant) {
        let patience = urgency.patience();
        let is_soon = patience >= OFTEN || self.shares.pay(cause, now);
        self.save_within(if is_soon { patience } else { OFTEN }, now);
    }

    fn save_within(&mut self, patience: Duration, now: Instant) {
        let wanted = now + patience;
        let allowed = self.next.map_or(wanted, |next| wanted.max(next));
        self.due = Some(self.due.map_or(allowed, |due| due.min(allowed)));
    }

    /// When to save next; none while nothing changed.
    pub(in crate::prober) fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// Notes that all that changed is being saved, of so many probes.
    pub(in crate::prober) fn take(&mut self, probes: usize, now: Instant) {
        let probes = u32::try_from(probes).unwrap_or(u32::MAX);
        self.due = None;
        self.shares.saved();
        self.next = Some(now + SPACING + SPACING_PER_PROBE.saturating_mul(probes));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        clock,
        ids::PodUid,
        results::{Run, Verdict},
    };

    const SECOND: Duration = Duration::from_secs(1);

    fn mark(verdict: Verdict, run: Verdict, count: u32) -> Mark {
        Mark {
            container: Some("c1".into()),
            verdict: Some(verdict),
            is_held: false,
            run: Run { verdict: run, count },
            threshold: 3,
        }
    }

    #[test]
    fn what_matters_is_saved_soon_and_what_only_goes_on_is_not() {
        use Verdict::{Failure, Success};
        let before = mark(Success, Success, 4);
        let after = |mark: &Mark, has_ended| Urgency::of(&before, mark, has_ended);
        assert_eq!(after(&before, false), None, "nothing happened");
        assert_eq!(after(&before, true), Some(Urgency::Numbers), "an error");
        assert_eq!(after(&mark(Success, Success, 5), true), Some(Urgency::Numbers), "a run goes on");
        assert_eq!(after(&mark(Success, Failure, 1), true), Some(Urgency::Progress), "a run begins");
        assert_eq!(after(&mark(Failure, Failure, 3), true), Some(Urgency::Turn), "a verdict falls");
        assert_eq!(after(&Mark { is_held: true, ..before.clone() }, true), Some(Urgency::Turn), "a hold");
        let replaced = Mark { container: Some("c2".into()), ..before.clone() };
        assert_eq!(after(&replaced, false), Some(Urgency::Turn), "another container");
    }

    /// Of a pod of its own.
    fn cause<'a>(pod: &'a PodUid, namespace: &'a Arc<str>) -> Cause<'a> {
        Cause { pod, namespace }
    }

    #[test]
    fn it_is_saved_once_a_second_at_most_and_the_more_urgent_change_decides() {
        let began = clock::now();
        let (pod, namespace) = (PodUid::from("a"), Arc::from("default"));
        let of = || cause(&pod, &namespace);
        let mut saving = Saving::default();
        assert_eq!(saving.deadline(), None);
        saving.note(Urgency::Numbers, of(), began);
        assert_eq!(saving.deadline(), Some(began + 300 * SECOND));
        saving.note(Urgency::Progress, of(), began + SECOND);
        assert_eq!(saving.deadline(), Some(began + 11 * SECOND));
        saving.note(Urgency::Numbers, of(), began + 2 * SECOND);
        assert_eq!(saving.deadline(), Some(began + 11 * SECOND), "what was due first stays due");
        saving.note(Urgency::Turn, of(), began + 3 * SECOND);
        assert_eq!(saving.deadline(), Some(began + 3 * SECOND), "at once");
        saving.take(0, began + 3 * SECOND);
        assert_eq!(saving.deadline(), None);
        saving.note(Urgency::Turn, of(), began + 3 * SECOND + SECOND / 10);
        assert_eq!(saving.deadline(), Some(began + 4 * SECOND), "a second after the last");
        saving.take(5_000, began + 4 * SECOND);
        saving.note(Urgency::Turn, of(), began + 5 * SECOND);
        assert_eq!(saving.deadline(), Some(began + 10 * SECOND), "later where there is much to write");
    }

    /// The saves of ten minutes, in which ten times a second the next of these pods changes its verdict.
    fn saves(pods: &[(PodUid, Arc<str>)], saving: &mut Saving, began: Instant) -> usize {
        let mut saves = 0;
        for tenth in 0..6_000 {
            let now = began + SECOND / 10 * tenth;
            if saving.deadline().is_some_and(|due| due <= now) {
                saving.take(pods.len(), now);
                saves += 1;
            }
            let (pod, namespace) = &pods[tenth as usize % pods.len()];
            saving.note(Urgency::Turn, cause(pod, namespace), now);
        }
        saves
    }

    #[test]
    fn pods_whose_verdicts_change_all_the_time_wear_no_disk_and_delay_no_pause_and_no_other_namespace() {
        let began = clock::now();
        let pods = |count: usize| -> Vec<_> {
            (0..count).map(|pod| (PodUid::from(pod.to_string()), Arc::from("flapping"))).collect()
        };
        let mut alone = Saving::default();
        let few = saves(&pods(1), &mut alone, began);
        assert!((10..=30).contains(&few), "{few}");
        let mut saving = Saving::default();
        let many = saves(&pods(100), &mut saving, began);
        assert!((40..=100).contains(&many), "{many}");
        let now = began + 600 * SECOND;
        let due_soon = |saving: &Saving| saving.deadline().is_some_and(|due| due <= now + 2 * SECOND);
        // What their namespace has got back by now is used up first.
        for (pod, namespace) in pods(5) {
            saving.take(100, now - SECOND);
            saving.note(Urgency::Turn, cause(&pod, &namespace), now);
        }
        assert!(!due_soon(&saving));
        saving.note(Urgency::Turn, cause(&PodUid::from("calm"), &Arc::from("calm")), now);
        assert!(due_soon(&saving));
        saving.take(100, now - SECOND);
        saving.note_command(now);
        assert!(due_soon(&saving));
    }
}
