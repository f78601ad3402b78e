//! How many places may be held, and how many are: of all, of one namespace, of one pod. Counts in, whether one more may be
//! taken out. Pure.

use super::{Kind, Lane};
use crate::prober::trust::Trust;

/// A number of places for each lane. A place that is held by a lane counts for it and for each lane of its kind that is
/// trusted more; so what is kept for those that are trusted is never held by those that are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    all: usize,
    exec: [usize; 3],
    dial: [usize; 3],
}

impl Places {
    /// All that there are, at least one of each sort.
    ///
    /// Commands: all exec workers for those that are proven quick; three quarters of them for those that are not; half of
    /// them for those that are known to be slow. Connections: all workers; three quarters and half of those that exec
    /// leaves. So whatever does not answer leaves places to what does, and what is known not to answer leaves places to
    /// what is tried for the first time.
    pub(super) fn new(workers: usize, exec_workers: usize) -> Self {
        let workers = workers.max(1);
        let exec = exec_workers.clamp(1, workers);
        let dial = workers - exec;
        let tiers = |places: usize, all| [(places / 2).max(1), (places * 3 / 4).max(1), all];
        Self { all: workers, exec: tiers(exec, exec), dial: tiers(dial, workers) }
    }

    /// The share of one namespace: three quarters of the places of each sort.
    pub(super) fn of_namespace(&self) -> Self {
        self.each(|places, _| (places * 3).div_ceil(4))
    }

    /// The share of one pod: a quarter of the places for its kind of attempt, at least one.
    pub(super) fn of_pod(&self) -> Self {
        self.each(|places, most| places.min(most / 4))
    }

    /// How many a lane may hold, with all that are trusted less.
    pub(super) fn of(&self, lane: Lane) -> usize {
        self.of_kind(lane.kind)[lane.trust as usize]
    }

    /// How many there are in all.
    pub(super) fn all(&self) -> usize {
        self.all
    }

    /// Whether one more may be taken where so many are held.
    pub(super) fn admit(&self, held: &Self, lane: Lane) -> bool {
        let tiers = self.of_kind(lane.kind).iter().zip(held.of_kind(lane.kind)).skip(lane.trust as usize);
        held.all < self.all && tiers.into_iter().all(|(may, held)| held < may)
    }

    /// Counts one more.
    pub(super) fn take(&mut self, lane: Lane) {
        self.all += 1;
        self.held_by(lane).iter_mut().for_each(|held| *held += 1);
    }

    /// Counts one less.
    pub(super) fn give_back(&mut self, lane: Lane) {
        self.all -= 1;
        self.held_by(lane).iter_mut().for_each(|held| *held -= 1);
    }

    fn held_by(&mut self, lane: Lane) -> &mut [usize] {
        let tiers = match lane.kind {
            Kind::Exec => &mut self.exec,
            Kind::Dial => &mut self.dial,
        };
        &mut tiers[lane.trust as usize..]
    }

    fn of_kind(&self, kind: Kind) -> &[usize; 3] {
        match kind {
            Kind::Exec => &self.exec,
            Kind::Dial => &self.dial,
        }
    }

    /// At least one of each; `share` is given the number of a lane, and the most of its kind.
    fn each(&self, share: impl Fn(usize, usize) -> usize) -> Self {
        let most = Trust::Proven as usize;
        let tiers = |tiers: [usize; 3]| tiers.map(|places| share(places, tiers[most]).max(1));
        Self { all: share(self.all, self.all).max(1), exec: tiers(self.exec), dial: tiers(self.dial) }
    }
}
