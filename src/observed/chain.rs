//! Finds a rhythm among calls without one: their begin and end times in, the calls that return regularly out. Pure:
//! never does IO, never reads a clock.
//!
//! A chain is a call, its return one period later, the return of that, and so on, possibly with other calls in between.
//! It counts as a rhythm if it is too regular to be chance. Let `n` intervals deviate from their mean by at most the
//! share `d`. The first interval can be anything. Each further one would come that close by chance with a probability
//! of about `3 * d`, as for intervals of people or random arrivals, and `crowd` times that if there are so many calls
//! in each interval; and there are as many chains to try. So chance would produce one with about `crowd^2 * (3 * d *
//! crowd)^(n - 1)`, and this is bounded. If there were no other calls before, a call has to return three times within
//! 0.7 % of the mean, four times within 2.6 %, six times within 7 %; later on within 0.15 %, 0.9 % and 3.8 %.

use std::collections::VecDeque;

/// 3 returns: what is regular twice only may be chance, however exact.
const LEAST_RETURNS: usize = 3;

/// One in 50,000: how likely chance may make a chain that is taken for a rhythm.
const CHANCE: f64 = 2e-5;

/// One in 2,000, where all calls that there ever were make one chain: that is one chance, not one with each call.
const CHANCE_OF_ALL: f64 = 5e-4;

/// 100 ms: faster loops do work, they do not probe; and ours may not be faster either.
const SHORTEST: f64 = 0.1;

/// 10 min: what returns more slowly is not waited for.
pub(super) const LONGEST: f64 = 600.0;

/// A return may deviate from where the chain so far has it by 20 % of the period; what deviates more ends the chain.
const REACH: f64 = 0.2;

/// A chain whose intervals deviate by more than 20 % is none.
const MOST_UNEVEN: f64 = 0.2;

/// A tenth of the time nothing may be under way, at least: where a call begins as soon as the last one ended, a script
/// is at work.
const LEAST_REST: f64 = 0.1;

/// One call, in seconds from any fixed moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Beat {
    pub(super) began: f64,
    pub(super) ended: f64,
    /// Whether it took as long as it may: then the next one may follow at once.
    pub(super) is_timeout: bool,
}

/// The longest chain that is a rhythm and ends with one of the newest `ends` calls; of several the one with the
/// shortest period. `beats` are in order of their begin; `are_all` if nothing came before them. Gives their indices,
/// the oldest first.
pub(super) fn find(beats: &[Beat], ends: usize, are_all: bool) -> Option<Vec<usize>> {
    let first = beats.len().saturating_sub(ends.max(1));
    (first..beats.len()).rev().find_map(|end| ending_at(&beats[..=end], are_all && end + 1 == beats.len()))
}

/// Whether all of the newest calls, and none between them, make one: for calls that may be tries of one attempt, but
/// not if they are as regular as this.
pub(super) fn find_without_gaps(beats: &[Beat]) -> Option<Vec<usize>> {
    let longest = beats.len().min(2 * LEAST_RETURNS + 1);
    (LEAST_RETURNS + 1..=longest).rev().find_map(|count| {
        let chain: VecDeque<usize> = (beats.len() - count..beats.len()).collect();
        is_rhythm(beats, &chain, false).then(|| chain.into())
    })
}

fn ending_at(beats: &[Beat], are_all: bool) -> Option<Vec<usize>> {
    let end = beats.len().checked_sub(1)?;
    for before in (0..end).rev() {
        let period = beats[end].began - beats[before].began;
        if period < SHORTEST * (1.0 - REACH) {
            continue;
        }
        if period > LONGEST * (1.0 + REACH) {
            break;
        }
        let mut chain = VecDeque::from([before, end]);
        let mut found = None;
        while let Some(earlier) = earlier(beats, &chain) {
            chain.push_front(earlier);
            if is_rhythm(beats, &chain, are_all) {
                found = Some(chain.clone().into());
            }
        }
        if found.is_some() {
            return found;
        }
    }
    None
}

/// The call that stands nearest to where the chain would have begun a period earlier.
fn earlier(beats: &[Beat], chain: &VecDeque<usize>) -> Option<usize> {
    let (first, last) = (*chain.front()?, *chain.back()?);
    let period = (beats[last].began - beats[first].began) / (chain.len() - 1) as f64;
    let wanted = beats[first].began - period;
    let after = beats[..first].partition_point(|beat| beat.began < wanted);
    let strain = |&at: &usize| (beats[at].began - wanted).abs();
    let near = [after.checked_sub(1), (after < first).then_some(after)].into_iter().flatten();
    near.min_by(|a, b| strain(a).total_cmp(&strain(b))).filter(|at| strain(at) <= REACH * period)
}

fn is_rhythm(beats: &[Beat], chain: &VecDeque<usize>, are_all: bool) -> bool {
    let returns = chain.len() - 1;
    let (first, last) = (chain[0], chain[returns]);
    let period = (beats[last].began - beats[first].began) / returns as f64;
    if returns < LEAST_RETURNS || !(SHORTEST..=LONGEST).contains(&period) {
        return false;
    }
    let begins: Vec<f64> = chain.iter().map(|&at| beats[at].began).collect();
    let uneven =
        begins.windows(2).map(|pair| (pair[1] - pair[0] - period).abs()).fold(0.0, f64::max) / period;
    let crowd = (last - first + 1) as f64 / chain.len() as f64;
    let chance = crowd.powi(2) * (3.0 * uneven * crowd).powi(returns as i32 - 1);
    let bound = if are_all && chain.len() == beats.len() { CHANCE_OF_ALL } else { CHANCE };
    uneven <= MOST_UNEVEN && chance <= bound && !is_interleaved(&begins, period) && rests(beats, chain)
}

/// Whether this looks like two or three slower rhythms that stand evenly between each other: every second, or every
/// third call returns much more regularly than each does.
fn is_interleaved(begins: &[f64], period: f64) -> bool {
    let spread = |lag: usize| {
        let spans = || begins.iter().zip(&begins[lag..]).map(|(from, to)| to - from);
        spans().fold(f64::MIN, f64::max) - spans().fold(f64::MAX, f64::min)
    };
    let each = spread(1);
    each > 0.01 * period && (2..=3).any(|lag| begins.len() >= 2 * lag && 4.0 * spread(lag) < each)
}

fn rests(beats: &[Beat], chain: &VecDeque<usize>) -> bool {
    let (first, last) = (chain[0], chain[chain.len() - 1]);
    let (mut busy, mut until) = (0.0, beats[first].began);
    for beat in &beats[first..last] {
        busy += (beat.ended - beat.began.max(until)).max(0.0);
        until = beat.ended.max(until);
    }
    let span = beats[last].began - beats[first].began;
    busy <= (1.0 - LEAST_REST) * span || chain.iter().all(|&at| beats[at].is_timeout)
}

#[cfg(test)]
mod tests;
