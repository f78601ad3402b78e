//! How long many things took, as a histogram of fixed size. Pure.

use std::time::Duration;

/// The upper bounds of the buckets: those of the kubelet's histogram, and before and after them what calls to a runtime
/// need. A version is answered within a millisecond; an image may be pulled for minutes.
pub(crate) const BOUNDS: [Duration; 15] = [
    Duration::from_millis(1),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2_500),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(60),
    Duration::from_secs(300),
];

/// The kubelet's among the bounds, 5 ms to 10 s: the defaults of Prometheus' clients (docs/kubelet-prober.md 10).
pub(crate) const OF_KUBELET: (usize, usize) = (1, 12);

/// Durations, counted by bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DurationHistogram {
    /// Those within each bound and above the one before it; the last one counts those above all bounds.
    counts: [u64; BOUNDS.len() + 1],
    sum: Duration,
}

impl DurationHistogram {
    /// One more.
    pub fn note(&mut self, duration: Duration) {
        let bucket = BOUNDS.partition_point(|bound| *bound < duration);
        self.counts[bucket] += 1;
        self.sum = self.sum.saturating_add(duration);
    }

    /// All of the others, too.
    pub fn add(&mut self, others: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&others.counts) {
            *count += more;
        }
        self.sum = self.sum.saturating_add(others.sum);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How many there are within the bound of this number.
    pub fn within(&self, bound: usize) -> u64 {
        self.counts.iter().take(bound + 1).sum()
    }

    /// What they add up to.
    pub fn sum(&self) -> Duration {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_as_long_as_a_bound_is_within_it() {
        let mut durations = DurationHistogram::default();
        for micros in [0, 1_000, 1_001, 10_000_000, 300_000_000, 300_000_001] {
            durations.note(Duration::from_micros(micros));
        }
        let within: Vec<_> = (0..BOUNDS.len()).map(|bound| durations.within(bound)).collect();
        assert_eq!(within, [2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4, 4, 4, 5]);
        assert_eq!((durations.count(), durations.sum()), (6, Duration::from_micros(610_002_002)));
        let mut twice = durations.clone();
        twice.add(&durations);
        assert_eq!((twice.count(), twice.within(0), twice.sum()), (12, 4, 2 * durations.sum()));
    }

    #[test]
    fn the_kubelets_bounds_are_those_of_its_histogram() {
        let (first, end) = OF_KUBELET;
        let seconds = BOUNDS[first..end].iter().map(Duration::as_secs_f64);
        let expected = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
        assert!(seconds.eq(expected));
    }
}
