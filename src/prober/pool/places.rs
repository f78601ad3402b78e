//! How many places may be held, and how many are: of all, of one namespace, of one pod. Counts in, whether one more may be
//! taken out. Pure.

use super::Lane;
use crate::prober::trust::{Kind, Trust};

/// 3: a namespace may take one more place while it holds fewer than three times as many as are free, and a pod while it
/// holds fewer than a third of what is free to its kind of attempt.
///
/// These are dynamic thresholds (Choudhury and Hahne, 1998). Alone on the node, a namespace gets three quarters of the
/// places and a pod a quarter. Several that want all of them leave places free: `n` greedy pods get `n / (n + 3)` of
/// them, `n` greedy namespaces `3n / (3n + 1)`, rounded up: of 16 places, five namespaces leave one. One that holds
/// nothing may take any free place.
const SHARE: usize = 3;

/// A number of places for each lane. A place that is held by a lane counts for it and for each lane of its kind that is
/// trusted more; so what is kept for those that are trusted is not given to those that are not.
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

    /// How many a lane may hold, with all that are trusted less.
    pub(super) fn of(&self, lane: Lane) -> usize {
        self.of_kind(lane.kind)[lane.trust as usize]
    }

    /// How many there are in all.
    pub(super) fn all(&self) -> usize {
        self.all
    }

    /// How many are free where so many are held. More may be held than there are: by attempts that turned out to be slow,
    /// or since there are fewer places.
    pub(super) fn free(&self, held: &Self) -> Self {
        let tiers = |all: [usize; 3], held: [usize; 3]| {
            std::array::from_fn(|tier| all[tier].saturating_sub(held[tier]))
        };
        Self {
            all: self.all.saturating_sub(held.all),
            exec: tiers(self.exec, held.exec),
            dial: tiers(self.dial, held.dial),
        }
    }

    /// Of places that are free: whether there is one for this lane.
    pub(super) fn has(&self, lane: Lane) -> bool {
        self.is_each(lane, self, |free, _| free > 0)
    }

    /// Of places that are free: whether a namespace that holds so many may take one of them.
    pub(super) fn admit_namespace(&self, held: &Self, lane: Lane) -> bool {
        self.is_each(lane, held, |free, held| held < SHARE * free)
    }

    /// Of places that are free: whether a party that holds so many may take one of them. Where only a part of the places is
    /// for what is not proven, it may hold as many of that part as it leaves free.
    pub(super) fn admit_party(&self, held: &Self, lane: Lane) -> bool {
        let of_kind = Lane { trust: Trust::Proven, ..lane };
        self.is_each(of_kind, held, |free, held| SHARE * held < free)
            && self.is_each(lane, held, |free, held| held < free)
    }

    /// Counts one more.
    pub(super) fn take(&mut self, lane: Lane) {
        self.add(lane, 1);
    }

    /// Counts so many more.
    pub(super) fn add(&mut self, lane: Lane, more: usize) {
        self.all += more;
        self.held_by(lane).iter_mut().for_each(|held| *held += more);
    }

    /// Counts one less.
    pub(super) fn give_back(&mut self, lane: Lane) {
        self.all -= 1;
        self.held_by(lane).iter_mut().for_each(|held| *held -= 1);
    }

    /// Whether something holds of all places, and of those of a lane and of each that is trusted more.
    fn is_each(&self, lane: Lane, other: &Self, holds: impl Fn(usize, usize) -> bool) -> bool {
        let tiers = self.of_kind(lane.kind).iter().zip(other.of_kind(lane.kind)).skip(lane.trust as usize);
        holds(self.all, other.all) && tiers.into_iter().all(|(one, other)| holds(*one, *other))
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
}
