//! How long the attempts of a probe take: durations in; quantiles out, at most 19 % too long. Pure. Stored compactly, because
//! there may be 5,000 of them: 5,000 take 1 MiB.

use std::time::Duration;

/// 80 buckets, 4 for each doubling: from 100 us to 100 s. What is shorter or longer is in the first or the last.
const BUCKETS: usize = 80;

/// The upper end of the first bucket.
const SHORTEST: Duration = Duration::from_micros(100);

/// For each doubling.
const PER_DOUBLING: f64 = 4.0;

/// The durations of attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LatencySketch {
    /// How many there were in each bucket, the shortest first. When one is full all are halved: older attempts count less
    /// then.
    buckets: [u16; BUCKETS],
    count: u32,
    longest: Duration,
}

/// How long the attempts on one container took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// How many attempts there were.
    pub attempts: u32,
    /// Half of them took no longer.
    pub p50: Duration,
    /// 99 of 100 took no longer.
    pub p99: Duration,
}

impl LatencySketch {
    /// Of a first attempt.
    pub(super) fn of(first: Duration) -> Self {
        let mut durations = Self { buckets: [0; BUCKETS], count: 0, longest: first };
        durations.note(first);
        durations
    }

    /// Adds one.
    pub(super) fn note(&mut self, duration: Duration) {
        let at = bucket(duration);
        if self.buckets[at] == u16::MAX {
            self.buckets.iter_mut().for_each(|count| *count = count.div_ceil(2));
        }
        self.buckets[at] += 1;
        self.count = self.count.saturating_add(1);
        self.longest = self.longest.max(duration);
    }

    /// What they say together.
    pub(super) fn latency(&self) -> Latency {
        Latency { attempts: self.count, p50: self.quantile(50), p99: self.quantile(99) }
    }

    fn quantile(&self, percent: u64) -> Duration {
        let counts = (0..).zip(&self.buckets).map(|(bucket, count)| (bucket, u64::from(*count)));
        quantile(counts, percent).min(self.longest)
    }
}

/// What so many of a hundred did not exceed: the end of the bucket in which that is. The longest duration may be less. The
/// counts come in the order of the buckets.
pub(crate) fn quantile(counts: impl Iterator<Item = (u8, u64)> + Clone, percent: u64) -> Duration {
    let all: u64 = counts.clone().map(|(_, count)| count).sum();
    let rank = (all * percent).div_ceil(100).max(1);
    let mut below = 0;
    let mut counts = counts;
    let at = counts.find(|(_, count)| {
        below += count;
        below >= rank
    });
    let at = at.map_or(0, |(bucket, _)| bucket);
    // The last one has no end. What is shorter than the doubling says by a rounding error is still in the bucket.
    match usize::from(at) + 1 {
        BUCKETS => Duration::MAX,
        _ => SHORTEST.mul_f64(2_f64.powf(f64::from(at) / PER_DOUBLING) * (1.0 + 1e-9)),
    }
}

/// The bucket that a duration is counted in, 0 to 79.
pub(crate) fn bucket(duration: Duration) -> usize {
    let doublings = (duration.as_secs_f64() / SHORTEST.as_secs_f64()).log2();
    // Nothing at all is minus infinite doublings, which becomes 0.
    ((doublings * PER_DOUBLING).ceil() as usize).min(BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(millis: impl IntoIterator<Item = u64>) -> Latency {
        let mut millis = millis.into_iter().map(Duration::from_millis);
        let mut durations = LatencySketch::of(millis.next().unwrap());
        millis.for_each(|duration| durations.note(duration));
        durations.latency()
    }

    #[test]
    fn quantiles_are_near_and_never_too_short_and_a_single_attempt_is_exact() {
        let exact = Duration::from_millis(340);
        assert_eq!(of([340]), Latency { attempts: 1, p50: exact, p99: exact });
        let many = of((0..1_000).map(|n| if n % 50 == 0 { 900 } else { 10 + n % 3 }));
        assert!((11..=13).contains(&many.p50.as_millis()), "{many:?}");
        assert_eq!(many.p99, Duration::from_millis(900));
        // One of seven took long: 99 of 100 are all of them.
        assert_eq!(of([20, 20, 20, 9_050, 20, 20, 20]).p99, Duration::from_millis(9_050));
        assert_eq!(of([1, 200_000, 300_000]).p99, Duration::from_secs(300));
        assert_eq!(many.attempts, 1_000);
        assert!(size_of::<LatencySketch>() <= 200);
    }

    #[test]
    fn what_is_new_outweighs_what_is_old_in_the_end() {
        let latency = of((0..400_000).map(|n| if n < 200_000 { 1 } else { 100 }));
        assert!(latency.p50 > Duration::from_millis(90), "{latency:?}");
        assert_eq!(latency.attempts, 400_000);
    }

    proptest! {
        #[test]
        fn any_duration_is_taken_and_quantiles_are_within_what_there_was(nanos in prop::collection::vec(any::<u64>(), 1..50)) {
            let all: Vec<_> = nanos.into_iter().map(Duration::from_nanos).collect();
            let mut durations = LatencySketch::of(all[0]);
            all[1..].iter().for_each(|duration| durations.note(*duration));
            let Latency { attempts, p50, p99 } = durations.latency();
            prop_assert!(p50 <= p99 && attempts as usize == all.len());
            prop_assert!(all.iter().min().unwrap() <= &p50 && &p99 <= all.iter().max().unwrap());
            // Of fewer than a hundred, all are within 99 %.
            prop_assert_eq!(&p99, all.iter().max().unwrap());
            let within = all.iter().filter(|duration| **duration <= p50).count();
            prop_assert!(within * 2 >= all.len());
        }
    }
}
