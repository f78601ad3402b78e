//! Judges the attempts of well-behaved probes in some windows by the schedule that they kept before anything disturbed
//! them: how many were due, how many came, how late. Pure.
//!
//! A probe's schedule is a beat: ticks one period apart. Where it lies is learned from one undisturbed window, so that a
//! probe that is late all the time in the others counts as late, and one that never comes counts as lost.

use std::time::{Duration, Instant};

/// 100 ms: an attempt that is due this shortly before the end of a window may come after it, and is left out.
const MARGIN: Duration = Duration::from_millis(100);

/// A tenth of a period: an attempt that comes this much before its tick belongs to it. The earliest attempt that was
/// seen makes the ticks, and a later one may be earlier still.
const EARLY: f64 = 0.1;

/// From here to there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) start: Instant,
    pub(crate) end: Instant,
}

impl Window {
    pub(crate) fn length(&self) -> Duration {
        self.end.saturating_duration_since(self.start)
    }

    fn has(&self, at: Instant) -> bool {
        (self.start..=self.end).contains(&at)
    }
}

/// What the windows come to.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// Ticks in the windows.
    pub(crate) due: usize,
    /// Those of them that had an attempt.
    pub(crate) made: usize,
    /// How late each attempt came, in milliseconds, sorted.
    lags: Vec<f64>,
}

impl Judged {
    /// Judges probes of one period by the moments of their attempts; nothing disturbed them in `calm`.
    pub(crate) fn of(probes: &[Vec<Instant>], period: Duration, calm: Window, windows: &[Window]) -> Self {
        let mut judged = Self::default();
        for times in probes {
            let origin = origin(times, period, calm);
            for window in windows {
                judged.add(times, origin, period, *window);
            }
        }
        judged.lags.sort_by(f64::total_cmp);
        judged
    }

    fn add(&mut self, times: &[Instant], origin: Option<Instant>, period: Duration, window: Window) {
        let end = window.end - MARGIN;
        let Some(origin) = origin else {
            // It was never seen: all that it owes is lost.
            self.due += (seconds(window.start, end) / period.as_secs_f64()) as usize;
            return;
        };
        let ticks = |at: Instant| seconds(origin, at) / period.as_secs_f64();
        let (first, last) = (ticks(window.start).ceil(), ticks(end).floor());
        self.due += (last - first + 1.0).max(0.0) as usize;
        let mut came = Vec::new();
        for at in times.iter().filter(|at| window.has(**at)) {
            let tick = (ticks(*at) + EARLY).floor();
            if (first..=last).contains(&tick) {
                came.push(tick as i64);
                self.lags.push(((ticks(*at) - tick) * period.as_secs_f64() * 1e3).max(0.0));
            }
        }
        came.dedup();
        self.made += came.len();
    }

    /// The share of due attempts that never came, in percent.
    pub(crate) fn lost(&self) -> Option<f64> {
        (self.due > 0).then(|| (self.due - self.made) as f64 * 100.0 / self.due as f64)
    }

    /// In milliseconds.
    pub(crate) fn lag(&self, percent: usize) -> Option<f64> {
        let last = self.lags.len().checked_sub(1)?;
        self.lags.get((self.lags.len() * percent / 100).min(last)).copied()
    }
}

/// A moment at which an attempt is due: that of the earliest attempt in the calm window, by its place in the period.
/// There none is late by half a period.
fn origin(times: &[Instant], period: Duration, calm: Window) -> Option<Instant> {
    let mut calm = times.iter().filter(|at| calm.has(**at));
    let first = *calm.next()?;
    let off = |at: Instant| {
        let ticks = seconds(first, at) / period.as_secs_f64();
        (ticks - ticks.round()) * period.as_secs_f64()
    };
    let earliest = calm.map(|at| off(*at)).fold(0.0, f64::min);
    first.checked_sub(Duration::from_secs_f64(-earliest))
}

/// From one to the other, below zero if that is earlier.
fn seconds(from: Instant, to: Instant) -> f64 {
    match to.checked_duration_since(from) {
        Some(since) => since.as_secs_f64(),
        None => -from.duration_since(to).as_secs_f64(),
    }
}
