//! Judges the beat of probes: the moments at which attempts came in; how many were due, how many were made and how late
//! they came out. Pure.
//!
//! A probe's schedule is a beat: ticks one period apart, for ever. Where it lies is not told, so the earliest of its
//! attempts is taken to be on time; what the others are late against that is their lag. That includes what this machine
//! adds between criprobe's decision and the listener's note, and leaves out what is the same for every attempt (the
//! handshake on loopback, some tens of microseconds).

use std::time::{Duration, Instant};

/// What a window of time comes to.
#[derive(Debug, Default)]
pub(crate) struct Beat {
    /// Ticks in the window.
    pub(crate) due: usize,
    /// Those of them that had an attempt.
    pub(crate) made: usize,
    /// Attempts in the window.
    pub(crate) attempts: usize,
    /// How late each came, in milliseconds, sorted.
    lags: Vec<f64>,
}

impl Beat {
    /// Judges probes of one period from `start` to `end`. What was due in the last tenth of a period or 100 ms may
    /// come after the end, and is left out.
    pub(crate) fn of(probes: &[Vec<Instant>], period: Duration, start: Instant, end: Instant) -> Self {
        let mut beat = Self::default();
        let end = end - (period / 10).min(Duration::from_millis(100));
        for times in probes {
            beat.add(times, period.as_secs_f64() * 1e3, start, end);
        }
        beat.lags.sort_by(f64::total_cmp);
        beat
    }

    fn add(&mut self, times: &[Instant], period: f64, start: Instant, end: Instant) {
        let window = ms(start, end);
        let at: Vec<f64> = times.iter().filter(|at| **at >= start).map(|at| ms(start, *at)).collect();
        let Some(first) = at.first() else {
            self.due += (window / period) as usize;
            return;
        };
        // Against the first attempt, which may itself be late: at most half a period, as all others.
        let tick = |at: f64| ((at - first) / period).round();
        let off = |at: f64| at - first - tick(at) * period;
        let earliest = at.iter().map(|at| off(*at)).fold(0.0, f64::min);
        let (from, to) =
            ((-(first + earliest) / period).ceil(), ((window - first - earliest) / period).floor());
        let mut ticks: Vec<i64> = at
            .iter()
            .map(|at| tick(*at))
            .filter(|tick| (from..=to).contains(tick))
            .map(|tick| tick as i64)
            .collect();
        ticks.dedup();
        self.due += (to - from + 1.0).max(0.0) as usize;
        self.made += ticks.len();
        self.attempts += at.len();
        self.lags.extend(at.iter().map(|at| off(*at) - earliest));
    }

    /// The share of due attempts that were made, in percent.
    pub(crate) fn share(&self) -> Option<f64> {
        (self.due > 0).then(|| self.made as f64 * 100.0 / self.due as f64)
    }

    /// In milliseconds.
    pub(crate) fn lag(&self, percent: usize) -> Option<f64> {
        self.lags.get((self.lags.len() * percent / 100).min(self.lags.len().saturating_sub(1))).copied()
    }
}

fn ms(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64() * 1e3
}
