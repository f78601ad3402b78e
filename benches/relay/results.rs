//! The samples of all rounds, and what they come to: medians, and ratios of one way to another.

use crate::{
    call::Call,
    measure::{Load, Sample, median},
    middle::Via,
};

/// What was measured in one round.
struct Entry {
    round: usize,
    call: Call,
    load: Load,
    via: Via,
    sample: Sample,
}

/// All samples of a run.
#[derive(Default)]
pub(crate) struct Results {
    entries: Vec<Entry>,
}

impl Results {
    pub(crate) fn add(&mut self, round: usize, call: Call, load: Load, via: Via, sample: Sample) {
        self.entries.push(Entry { round, call, load, via, sample });
    }

    /// The median of all rounds; None if there is no sample.
    pub(crate) fn median(
        &self,
        call: Call,
        load: Load,
        via: Via,
        of: impl Fn(&Sample) -> Option<f64>,
    ) -> Option<f64> {
        median(self.of(call, load, via).filter_map(|entry| of(&entry.sample)))
    }

    /// How many times `other`'s figure that of `via` is: the median of each round's own ratio, because a machine is
    /// not equally fast in all of them.
    pub(crate) fn ratio(
        &self,
        call: Call,
        load: Load,
        via: Via,
        other: Via,
        of: impl Fn(&Sample) -> f64,
    ) -> Option<f64> {
        median(self.of(call, load, via).filter_map(|entry| {
            let other = self.of(call, load, other).find(|other| other.round == entry.round)?;
            Some(of(&entry.sample) / of(&other.sample))
        }))
    }

    fn of(&self, call: Call, load: Load, via: Via) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.call == call && entry.load == load && entry.via == via)
    }
}
