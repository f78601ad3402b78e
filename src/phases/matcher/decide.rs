//! What becomes of each call of a container, from what is known now. Pure.

use std::time::{Duration, Instant};

use super::{
    ExecEnd, LONGEST,
    call::{Call, Exec, Stage, only_queued},
    pairs::{can_all_have_one, forced, is_indispensable, possible, rivals},
};
use crate::results::phases::{Part, Phases, Split, Unknown};

/// 100 ms: how long after the first mark of an exec its call may be read.
pub(super) const READ: Duration = Duration::from_millis(100);

/// What may be missing.
#[derive(Clone, Copy)]
pub(super) struct Missing {
    /// Calls or execs of this container: no call gets its phases.
    pub(super) is_doubtful: bool,
    /// Calls of any container.
    pub(super) is_unseen: bool,
}

/// What becomes of a call.
pub(super) enum Decision {
    Keep,
    Forget,
    /// It was passed on, and its exec cannot be taken for that of another one.
    Done,
    /// It is passed on, with its exec if that is known.
    Pass(Split, Option<usize>),
    /// The exec at this index is the session's.
    Follow(usize),
}

/// What becomes of the calls and execs of a container.
pub(super) struct Decisions {
    /// In the order of the calls.
    pub(super) calls: Vec<Decision>,
    /// Execs that belong to calls which were passed on and are forgotten now.
    pub(super) spent: Vec<usize>,
}

/// Decides on each call.
pub(super) fn decisions<T, S>(
    calls: &[Call<T, S>],
    execs: &[Exec<S>],
    missing: Missing,
    now: Instant,
) -> Decisions {
    let each = |fits: &dyn Fn(usize) -> bool| -> Vec<usize> {
        (0..execs.len()).filter(|exec| fits(*exec)).collect()
    };
    // If no mark is lost, and however many commands we know no call of: an answered call has the only exec that fits it.
    let by_calls = calls.iter().map(|call| match call.is_answered() {
        true => each(&|exec| call.may_have_soon(&execs[exec], now)),
        false => Vec::new(),
    });
    let by_calls = possible(&by_calls.collect::<Vec<_>>(), |_| true);
    let by_calls = forced(&by_calls, |_| true, |_| true);
    // If we know all calls, and however many marks are lost: an exec belongs to the only call that it fits.
    let is_known = |exec: usize| execs[exec].added.is_some() && !execs[exec].is_doubtful;
    let by_execs = (0..execs.len()).map(|exec| {
        let count = if is_known(exec) { calls.len() } else { 0 };
        (0..count).filter(|at| calls[*at].may_have(&execs[exec])).collect()
    });
    let has_call = |exec: usize| execs[exec].seen + READ <= now;
    let choices: Vec<Vec<usize>> = by_execs.collect();
    let left = possible(&choices, has_call);
    let by_execs = forced(&left, |call| calls[call].doubt.is_none(), has_call);
    let is_left = |at: usize, exec: usize| {
        calls[at].may_have(&execs[exec]) && (!is_known(exec) || left[exec].contains(&at))
    };
    let owned = |at: usize| by_execs.iter().position(|call| *call == Some(at));
    // What is certain of a call whichever of the execs that fit it is its own.
    let least = |at: usize, call: &Call<T, S>, ended| -> Option<(Part, Duration)> {
        let fits = |exec: usize| match call.is_answered() {
            true => call.could_have(&execs[exec]),
            false => is_left(at, exec),
        };
        let (fitting, had) = (each(&fits), each(&|exec| fits(exec) && execs[exec].was_added_by(ended)));
        // If we know all calls, and however many marks are lost.
        let sure = choices.iter().enumerate().filter(|(exec, _)| has_call(*exec));
        let sure: Vec<Vec<usize>> = sure.map(|(_, choices)| choices.clone()).collect();
        let has_one = is_indispensable(&sure, at);
        let is_known = has_one && fitting.iter().all(|exec| execs[*exec].is_complete());
        if call.is_answered() && !is_known {
            return None;
        }
        // It may have none, or one that was added after its end.
        let is_one_of_these = call.is_answered() || has_one && fitting.len() == had.len();
        let none = (!is_one_of_these).then(|| only_queued(call.began, ended));
        let each = had.iter().map(|exec| execs[*exec].phases(call.began, ended)).chain(none);
        Phases::at_least(&each.collect::<Option<Vec<_>>>()?)
    };
    let decide = |(at, call): (usize, &Call<T, S>)| {
        let is_over = call.until <= now;
        let doubt = call.doubt.or(missing.is_doubtful.then_some(Unknown::TooMany));
        let (ended, end) = match (&call.stage, call.ended()) {
            (Stage::Held { .. }, Some(end)) => end,
            (Stage::Session { .. }, _) => {
                let own = owned(at).filter(|exec| has_call(*exec) && execs[*exec].is_read());
                return match own {
                    Some(exec) if doubt.is_none() && !missing.is_unseen => Decision::Follow(exec),
                    _ if is_over
                        && !(call.since + LONGEST > now && execs.iter().any(|exec| call.may_have(exec))) =>
                    {
                        Decision::Forget
                    }
                    _ => Decision::Keep,
                };
            }
            (Stage::Past { .. }, _) => return Decision::Keep,
            _ => return if is_over { Decision::Forget } else { Decision::Keep },
        };
        let without = |why, least| Decision::Pass(Split::Unknown(why, least), None);
        let with = |exec: usize| {
            let phases = execs[exec].phases(call.began, ended);
            Decision::Pass(phases.map_or(Split::Unknown(Unknown::NoMarks, None), Split::Known), Some(exec))
        };
        if let Some(why) = doubt {
            return without(why, None);
        }
        let own = owned(at);
        if let ExecEnd::Answered { .. } = end {
            let fits = |exec: &Exec<S>| call.may_have_soon(exec, now) && exec.is_complete();
            return match own.filter(|own| by_calls[at] == Some(*own) && execs[*own].is_complete()) {
                Some(exec) => with(exec),
                None if !is_over => Decision::Keep,
                None if execs.iter().any(fits) => without(Unknown::Overlap, least(at, call, ended)),
                None => without(Unknown::NoMarks, None),
            };
        }
        if !is_over {
            return Decision::Keep;
        }
        match &each(&|exec| is_left(at, exec) && execs[exec].was_added_by(ended))[..] {
            _ if missing.is_unseen => without(Unknown::CallsUnseen, None),
            [] => match only_queued(call.began, ended) {
                Some(phases) => Decision::Pass(Split::Known(phases), None),
                None => without(Unknown::NoMarks, None),
            },
            [exec] if own == Some(*exec) && has_call(*exec) => with(*exec),
            _ => without(Unknown::Overlap, least(at, call, ended)),
        }
    };
    let mut decisions: Vec<_> = calls.iter().enumerate().map(decide).collect();
    let mut spent = Vec::new();
    // As many execs as calls that may have them: none is left for calls to come.
    for group in rivals(&left, has_call) {
        let choices: Vec<_> = group.ones.iter().map(|exec| left[*exec].clone()).collect();
        let is_even = group.ones.len() == group.things.len() && can_all_have_one(&choices);
        if is_even && group.things.iter().all(|call| calls[*call].is_past()) {
            group.things.iter().for_each(|call| decisions[*call] = Decision::Done);
            spent.extend(group.ones);
        }
    }
    Decisions { calls: decisions, spent }
}
