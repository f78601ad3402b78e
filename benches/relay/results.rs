//! The samples of all rounds, and what they come to: medians, and ratios of one way to another.

use std::time::Duration;

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

    /// How many samples there are of one way.
    pub(crate) fn count(&self, via: Via) -> usize {
        self.entries.iter().filter(|entry| entry.via == via).count()
    }

    /// Whether there is any sample of a call.
    pub(crate) fn has(&self, call: Call) -> bool {
        self.entries.iter().any(|entry| entry.call == call)
    }

    /// The median of all rounds; None if there is no sample.
    pub(crate) fn median(
        &self,
        call: Call,
        load: Load,
        via: Via,
        of: impl Fn(&Sample) -> f64,
    ) -> Option<f64> {
        median(self.of(call, load, via).map(|entry| of(&entry.sample)))
    }

    /// Microseconds of CPU a call over all rounds together, because the kernel counts in steps of 10 ms.
    pub(crate) fn cpu(&self, call: Call, load: Load, via: Via) -> Option<f64> {
        let samples = || self.of(call, load, via).map(|entry| entry.sample);
        let cpu: Duration = samples().map(|sample| sample.cpu).sum::<Option<_>>()?;
        let calls: usize = samples().map(|sample| sample.calls).sum();
        (calls > 0).then(|| cpu.as_secs_f64() * 1e6 / calls as f64)
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
