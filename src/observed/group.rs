//! The calls of one caller with one command and timeout in one container: each ended call in; the rhythms among them,
//! and the results of their attempts, out. Pure: never does IO, never reads a clock.
//!
//! A call is the next try of an attempt that ended in an error, the next attempt of a known rhythm, or a stray. Strays
//! are kept for a while: enough of them may form a new rhythm, or one that has started again. Calls are processed in
//! the order in which they began: one that has ended waits for those that began before it.

use std::{
    collections::VecDeque,
    mem,
    time::{Duration, Instant},
};

use super::{
    attempt::{Attempt, TRIED_AGAIN_WITHIN},
    chain::{self, Beat},
    probe::Probe,
    rhythm::seconds,
};
use crate::{
    peer::Peer,
    tap::{Call, cri::ExecCommand},
};

/// 3 rhythms are distinguished: a container has a startup, a readiness and a liveness probe. While there are as many,
/// what fits none of them is no probe.
const MOST_PROBES: usize = 3;

/// 64 strays are kept, in 5 KiB, or in 21 KiB where all err; another one replaces the oldest. 3 rhythms whose attempts
/// err need 45 to be found.
const MOST_STRAYS: usize = 64;

/// 50 ms: how soon after a try that erred a kubelet begins the next one, if nothing holds it up.
const AT_ONCE: Duration = Duration::from_millis(50);

/// 50 ms: strays are searched for a rhythm once in that time; its half of the shortest period delays none.
const LOOKED_EVERY: Duration = Duration::from_millis(50);

/// 25 ms from one stray to the next on average: denser ones are no probes, and are not searched.
const DENSEST: f64 = 0.025;

/// 2 min: how long after its timeout a kubelet's call can still be under way (`runtimeRequestTimeout`). One that is
/// under way for longer is taken for one whose end was missed.
const OVERDUE: Duration = Duration::from_secs(120);

/// 8 calls under way are known, and 16 that ended wait for them. With more of either the oldest is not waited for, or
/// waits no longer.
const MOST_UNDER_WAY: usize = 8;
const MOST_WAITING: usize = 16;

/// 1 hour: likewise for a call without a timeout.
const UNLIMITED: Duration = Duration::from_secs(3600);

/// One caller's calls of one command.
#[derive(Debug)]
pub(super) struct Group {
    /// The kernel's name of the caller, and its user: they outlive its connections and its restarts.
    pub(super) comm: Box<str>,
    pub(super) uid: u32,
    pub(super) command: ExecCommand,
    pub(super) probes: Vec<Probe>,
    /// The rhythms that ended and have not returned; the newest [`MOST_PROBES`].
    pub(super) silences: Vec<Silence>,
    /// In order of their begin.
    strays: VecDeque<Attempt>,
    /// All calls that there ever were.
    pub(super) calls: u64,
    /// When the newest call began.
    pub(super) called_at: Instant,
    /// When the calls began that are under way, in any order.
    under_way: Vec<Instant>,
    /// Calls that ended before one that began earlier did, in order of their begin.
    waiting: VecDeque<Attempt>,
    /// When the strays were last searched, and how many came since.
    searched_at: Option<Instant>,
    unsearched: usize,
}

/// A probe that ended while its container ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Silence {
    /// Its number while it lasted.
    pub(super) number: u32,
    pub(super) period: Duration,
}

impl Group {
    pub(super) fn new(call: &Call, command: &ExecCommand) -> Self {
        Self {
            comm: call.origin.peer.comm.as_str().into(),
            uid: call.origin.peer.uid,
            command: command.clone(),
            probes: Vec::new(),
            silences: Vec::new(),
            strays: VecDeque::new(),
            calls: 0,
            called_at: call.began,
            under_way: Vec::new(),
            waiting: VecDeque::new(),
            searched_at: None,
            unsearched: 0,
        }
    }

    /// Whether calls of this kind belong here.
    pub(super) fn is_of(&self, peer: &Peer, command: &ExecCommand) -> bool {
        self.command == *command && self.uid == peer.uid && *self.comm == *peer.comm
    }

    /// A call began.
    pub(super) fn begun(&mut self, at: Instant) {
        if self.under_way.len() >= MOST_UNDER_WAY {
            self.under_way.remove(0);
        }
        self.under_way.push(at);
    }

    /// A call ended; [`found`](Self::found) returns what that makes known.
    pub(super) fn ended(&mut self, call: Attempt) {
        self.calls += 1;
        self.called_at = self.called_at.max(call.began);
        if let Some(at) = self.under_way.iter().position(|&began| began == call.began) {
            self.under_way.swap_remove(at);
        }
        let patience = self.patience();
        self.under_way.retain(|&began| call.ended.saturating_duration_since(began) < patience);
        let at = self.waiting.partition_point(|other| other.began <= call.began);
        self.waiting.insert(at, call);
    }

    /// Takes the calls whose turn has come, until they make a rhythm known: its attempts, at least four.
    pub(super) fn found(&mut self) -> Option<Vec<Attempt>> {
        loop {
            let next = self.waiting.front()?;
            let is_next = self.under_way.iter().all(|&began| next.began <= began);
            if !is_next && self.waiting.len() <= MOST_WAITING {
                return None;
            }
            let call = self.waiting.pop_front()?;
            self.expire(call.began);
            if let Some(stray) = self.follow(call)
                && let Some(attempts) = self.search(stray)
            {
                return Some(attempts);
            }
        }
    }

    /// Forgets the rhythms that are over.
    pub(super) fn expire(&mut self, now: Instant) {
        let patience = self.patience();
        let under_way = |probe: &Probe| {
            let is_its = |began| (probe.rhythm.began()..=probe.rhythm.over_at()).contains(&began);
            let waiting = self.waiting.iter().map(|call| call.began);
            let mut calls = self.under_way.iter().copied().chain(waiting).filter(|&began| is_its(began));
            calls.any(|began| now.saturating_duration_since(began) < patience)
        };
        let is_over: Vec<bool> =
            self.probes.iter().map(|probe| probe.rhythm.over_at() < now && !under_way(probe)).collect();
        for at in (0..self.probes.len()).rev().filter(|&at| is_over[at]) {
            let mut probe = self.probes.remove(at);
            if !probe.is_done(now) {
                self.silences.push(Silence { number: probe.number, period: probe.rhythm.period() });
            }
        }
        self.silences.drain(..self.silences.len().saturating_sub(MOST_PROBES));
    }

    /// A rhythm of this period was found: of those that ended, the one with the nearest period has returned.
    pub(super) fn returned(&mut self, period: Duration) {
        let nearest = (0..self.silences.len()).min_by_key(|&at| self.silences[at].period.abs_diff(period));
        if let Some(at) = nearest {
            self.silences.remove(at);
        }
    }

    /// How long a call may be under way.
    fn patience(&self) -> Duration {
        match u64::try_from(self.command.timeout_seconds()).unwrap_or(0) {
            0 => UNLIMITED,
            limit => Duration::from_secs(limit).saturating_add(OVERDUE),
        }
    }

    /// Gives the call to the rhythm that it belongs to; gives it back if it belongs to none.
    fn follow(&mut self, call: Attempt) -> Option<Attempt> {
        let retried = |probe: &Probe, within| probe.may_be_tried_again(call.began, within);
        let at_once = |probe: &Probe| retried(probe, AT_ONCE.min(probe.rhythm.period() / 4));
        if let Some(probe) = self.probes.iter_mut().find(|probe| at_once(probe)) {
            probe.tried_again(call);
            return None;
        }
        let fits = self.probes.iter_mut();
        let fits =
            fits.filter_map(|probe| probe.rhythm.fit(call.began).map(|(fit, strain)| (probe, fit, strain)));
        if let Some((probe, fit, _)) = fits.min_by(|(.., a), (.., b)| a.total_cmp(b)) {
            probe.attempted(fit, call);
            return None;
        }
        if let Some(probe) = self.probes.iter_mut().find(|probe| retried(probe, TRIED_AGAIN_WITHIN)) {
            probe.tried_again(call);
            return None;
        }
        self.follow_anew(call)
    }

    /// A rhythm may leave out ticks, or start again, as a kubelet's does for a readiness probe that it triggers: the
    /// call after that was a stray, and the first return to it shows whose it was.
    fn follow_anew(&mut self, call: Attempt) -> Option<Attempt> {
        for probe in self.probes.iter_mut().filter(|probe| probe.rhythm.has_missed(call.began)) {
            let rhythm = &probe.rhythm;
            let is_first =
                |stray: &Attempt| stray.began > rhythm.began() && rhythm.is_return(stray.began, call.began);
            if let Some(first) =
                self.strays.iter().rposition(is_first).and_then(|first| self.strays.remove(first))
            {
                probe.shifted(first);
                probe.shifted(call);
                return None;
            }
        }
        Some(call)
    }

    fn search(&mut self, call: Attempt) -> Option<Vec<Attempt>> {
        let began = call.began;
        let at = self.strays.partition_point(|stray| stray.began <= began);
        self.strays.insert(at, call);
        self.unsearched = (self.unsearched + 1).max(self.strays.len() - at);
        if self.strays.len() > MOST_STRAYS {
            self.strays.pop_front();
        }
        let was_just_searched =
            self.searched_at.is_some_and(|before| seconds(before, began).abs() < LOOKED_EVERY.as_secs_f64());
        if self.probes.len() >= MOST_PROBES || was_just_searched || self.is_dense() {
            return None;
        }
        self.searched_at = Some(began);
        let ends = mem::take(&mut self.unsearched);
        self.rhythm(ends)
    }

    fn is_dense(&self) -> bool {
        let (Some(first), Some(last)) = (self.strays.front(), self.strays.back()) else { return false };
        self.strays.len() >= MOST_STRAYS && seconds(first.began, last.began) < DENSEST * MOST_STRAYS as f64
    }

    /// The attempts of a rhythm among the strays, which are strays no longer.
    fn rhythm(&mut self, ends: usize) -> Option<Vec<Attempt>> {
        let are_all = self.calls == self.strays.len() as u64;
        let calls: Vec<Beat> = self.beats(self.strays.iter().map(|stray| (stray, stray)));
        // A loop that errs, without trying again, may be faster than tries are slow.
        let owners: Vec<Option<usize>> = match chain::find_without_gaps(&calls) {
            Some(chain) => (0..calls.len()).map(|at| chain.iter().position(|&call| call == at)).collect(),
            None => {
                let tries = tries(&self.strays);
                let ends_of =
                    |tries: &Vec<usize>| (&self.strays[tries[0]], &self.strays[tries[tries.len() - 1]]);
                let attempts = self.beats(tries.iter().map(ends_of));
                let chain = chain::find(&attempts, ends, are_all)?;
                let owner = |at| chain.iter().position(|&attempt| tries[attempt].contains(&at));
                (0..calls.len()).map(owner).collect()
            }
        };
        let count = owners.iter().flatten().max()? + 1;
        let mut attempts: Vec<Option<Attempt>> = vec![None; count];
        let strays = mem::take(&mut self.strays);
        for (stray, owner) in strays.into_iter().zip(owners) {
            match owner.map(|owner| &mut attempts[owner]) {
                Some(Some(attempt)) => attempt.tried_again(stray),
                Some(attempt @ None) => *attempt = Some(stray),
                None => self.strays.push_back(stray),
            }
        }
        Some(attempts.into_iter().flatten().collect())
    }

    /// Of attempts: their first and their last try.
    fn beats<'a>(&self, attempts: impl Iterator<Item = (&'a Attempt, &'a Attempt)>) -> Vec<Beat> {
        let origin = self.strays.front().map_or(self.called_at, |stray| stray.began);
        let beat = |(first, last): (&Attempt, &Attempt)| Beat {
            began: seconds(origin, first.began),
            ended: seconds(origin, last.ended),
            is_timeout: last.is_timeout,
        };
        attempts.map(beat).collect()
    }
}

/// The calls as attempts: where one erred, those that began soon after it are its further tries, at most two.
fn tries(calls: &VecDeque<Attempt>) -> Vec<Vec<usize>> {
    let mut attempts: Vec<Vec<usize>> = Vec::new();
    for (at, call) in calls.iter().enumerate() {
        let last = |tries: &Vec<usize>| &calls[tries[tries.len() - 1]];
        let goes_on = |tries: &&mut Vec<usize>| {
            tries.len() < 3 && last(tries).may_be_tried_again(call.began, TRIED_AGAIN_WITHIN)
        };
        // Where several may go on, the one that erred last does.
        let open = attempts.iter_mut().filter(goes_on).max_by_key(|tries| last(tries).ended);
        match open {
            Some(tries) => tries.push(at),
            None => attempts.push(vec![at]),
        }
    }
    attempts
}
