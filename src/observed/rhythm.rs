//! The timing of a client's own probe: the begin and end of each attempt in; whether a call is the next one, the
//! period, and when the next one is due, out. Pure: never does IO, never reads a clock.
//!
//! A kubelet's ticker is steady, and drops ticks during an attempt; a loop that sleeps between two calls always sleeps
//! for the same time. Both are recognised.

use std::time::{Duration, Instant};

/// How late an attempt may begin: 20 % of the period. Twice the jitter that a loaded node shows.
const REACH: f64 = 0.2;

/// How early or late one may begin before it is out of the ordinary: 5 % of the period, or 3 % and three times what is
/// usual. One that comes earlier than that may be another rhythm's, whose own call is still to come.
const ORDINARY: f64 = 0.05;
const MARGIN: f64 = 0.03;

/// 50 ms: no period is taken for shorter, whatever its attempts do.
const SHORTEST: f64 = 0.05;

/// 5 periods without an attempt end a rhythm.
const MISSED: f64 = 5.0;

/// 50 ms: how soon after a slow attempt the next one begins whose tick came meanwhile.
const AT_ONCE: f64 = 0.05;

#[derive(Clone, Debug)]
pub(super) struct Rhythm {
    /// Seconds.
    period: f64,
    /// Where the ticks stand: the last one that there was an attempt for.
    tick: Instant,
    began: Instant,
    ended: Instant,
    /// How long the client rests between two attempts as a rule; seconds.
    rests: f64,
    /// By which share of the period attempts begin early or late as a rule.
    jitter: f64,
    /// Whether the last attempt began at its tick.
    is_on_time: bool,
}

/// How a call fits a rhythm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fit {
    /// It began at the next tick.
    Tick,
    /// It began when a slow attempt had ended, for a tick that came meanwhile.
    Late,
    /// It began after the usual rest, as the attempt before took unusually long, or short.
    Rested,
}

/// Seconds from `from` to `to`, negative if that is earlier.
pub(super) fn seconds(from: Instant, to: Instant) -> f64 {
    let (ahead, behind) = (to.saturating_duration_since(from), from.saturating_duration_since(to));
    ahead.as_secs_f64() - behind.as_secs_f64()
}

impl Rhythm {
    /// Of attempts that return regularly: when each began and ended, at least two.
    pub(super) fn of(attempts: &[(Instant, Instant)]) -> Option<Self> {
        let (&(first, _), &(began, ended)) = (attempts.first()?, attempts.last()?);
        let returns = attempts.len().checked_sub(1).filter(|&returns| returns > 0)? as f64;
        let period = seconds(first, began) / returns;
        let takes = attempts.iter().map(|&(began, ended)| seconds(began, ended)).sum::<f64>();
        let rests = (period - takes / (returns + 1.0)).max(0.0);
        let spans = attempts.windows(2).map(|pair| seconds(pair[0].0, pair[1].0));
        let jitter = spans.map(|span| (span - period).abs()).sum::<f64>() / returns / period;
        let is_on_time = true;
        (period > 0.0).then_some(Self { period, tick: began, began, ended, rests, jitter, is_on_time })
    }

    /// From one attempt to the next, to three digits: it is measured, not reported.
    pub(super) fn period(&self) -> Duration {
        let unit = 10_f64.powf(self.period.log10().floor() - 2.0).max(1e-9);
        Duration::try_from_secs_f64((self.period / unit).round() * unit).unwrap_or(Duration::MAX)
    }

    /// When the next attempt is expected.
    pub(super) fn next(&self) -> Instant {
        self.tick + Duration::from_secs_f64(self.period)
    }

    /// When it is over if there was no attempt until then.
    pub(super) fn over_at(&self) -> Instant {
        self.tick.max(self.ended) + Duration::from_secs_f64(self.period * (MISSED + REACH))
    }

    /// When the last attempt began.
    pub(super) fn began(&self) -> Instant {
        self.began
    }

    /// Whether a call that began then is the next attempt, and how well it fits: 0 is best. One that leaves out a tick
    /// is not: it may belong elsewhere.
    pub(super) fn fit(&self, began: Instant) -> Option<(Fit, f64)> {
        let ahead = seconds(self.tick, began) / self.period;
        let late = ahead - 1.0;
        let (is_tick, strain) = ((-self.ordinary()..=REACH).contains(&late), late.abs());
        let (took, rested) = (seconds(self.began, self.ended), seconds(self.ended, began));
        let was_slow = took > (1.0 - REACH) * self.period;
        if was_slow && (0.0..=AT_ONCE.max(REACH * self.period)).contains(&rested) {
            return Some((Fit::Late, if is_tick { strain } else { 1.0 }));
        }
        if is_tick {
            return Some((Fit::Tick, strain));
        }
        let strain = (rested - self.rests).abs() / self.period;
        (strain <= self.ordinary()).then_some((Fit::Rested, 1.0))
    }

    /// Whether its tick passed without an attempt before that moment.
    pub(super) fn has_missed(&self, at: Instant) -> bool {
        seconds(self.tick, at) > (1.0 + REACH) * self.period
    }

    /// Whether a call returned after one period, about as exactly as attempts do.
    pub(super) fn is_return(&self, from: Instant, to: Instant) -> bool {
        (seconds(from, to) - self.period).abs() <= self.ordinary() * self.period
    }

    /// An attempt was made, which fits so.
    pub(super) fn advance(&mut self, fit: Fit, began: Instant, ended: Instant) {
        let step = seconds(self.began, began);
        match fit {
            Fit::Tick => {
                if self.is_on_time {
                    self.period += (step - self.period) / 8.0;
                    self.learn(began);
                }
                // Halfway between where it was expected and where it came, and not far: one that came late by chance
                // moves the next ones little, and a client that drifts is followed.
                let expected = self.next();
                let late = seconds(expected, began);
                self.jitter += ((late / self.period).abs() - self.jitter) / 8.0;
                let most = self.ordinary() * self.period;
                let moved = late.clamp(-most, most) / 2.0;
                self.tick = expected + Duration::from_secs_f64(moved.max(0.0))
                    - Duration::from_secs_f64((-moved).max(0.0));
                self.is_on_time = true;
            }
            Fit::Late => {
                let ticks = (seconds(self.tick, began) / self.period + REACH).floor().max(0.0);
                self.tick += Duration::from_secs_f64(ticks * self.period);
                self.is_on_time = false;
            }
            Fit::Rested => {
                self.period += (step - self.period) / 8.0;
                self.learn(began);
                self.tick = began;
                self.is_on_time = true;
            }
        }
        self.period = self.period.max(SHORTEST);
        (self.began, self.ended) = (began, ended);
    }

    /// The client started again, with this attempt: a kubelet's ticker does so when its probe is triggered.
    pub(super) fn shift(&mut self, began: Instant, ended: Instant) {
        (self.tick, self.began, self.ended, self.is_on_time) = (began, began, ended, true);
    }

    /// A try of the last attempt ended.
    pub(super) fn prolong(&mut self, ended: Instant) {
        self.ended = self.ended.max(ended);
    }

    fn ordinary(&self) -> f64 {
        (MARGIN + 3.0 * self.jitter).clamp(ORDINARY, REACH)
    }

    fn learn(&mut self, began: Instant) {
        self.rests += (seconds(self.ended, began).max(0.0) - self.rests) / 4.0;
    }
}

#[cfg(test)]
mod tests;
