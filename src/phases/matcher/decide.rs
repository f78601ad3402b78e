//! What becomes of each call of a container, from what is known now. Pure.

use std::time::{Duration, Instant};

use super::{
    ExecEnd, LONGEST,
    call::{Call, Exec, Stage, only_queued},
    pairs::forced,
};
use crate::results::phases::Phases;

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
    /// It is passed on, with its exec if that is known.
    Pass(Option<Phases>, Option<usize>),
    /// The exec at this index is the session's.
    Follow(usize),
}

/// What becomes of each call.
pub(super) fn decisions<T, S>(
    calls: &[Call<T, S>],
    execs: &[Exec<S>],
    missing: Missing,
    now: Instant,
) -> Vec<Decision> {
    let each = |fits: &dyn Fn(&Exec<S>) -> bool| -> Vec<usize> {
        execs.iter().enumerate().filter(|(_, exec)| fits(exec)).map(|(at, _)| at).collect()
    };
    // If no mark is lost, and however many commands we know no call of: an answered call has the only exec that fits it.
    let by_calls = calls.iter().map(|call| match call.is_answered() {
        true => each(&|exec| call.may_have_soon(exec, now)),
        false => Vec::new(),
    });
    let by_calls = forced(&by_calls.collect::<Vec<_>>(), |_| true, |_| true);
    // If we know all calls, and however many marks are lost: an exec belongs to the only call that it fits.
    let by_execs = execs.iter().map(|exec| {
        let is_known = exec.added.is_some() && !exec.is_doubtful;
        let fitting = calls.iter().enumerate().filter(|(_, call)| is_known && call.may_have(exec));
        fitting.map(|(at, _)| at).collect()
    });
    let has_call = |exec: usize| execs[exec].seen + READ <= now;
    let by_execs: Vec<Vec<usize>> = by_execs.collect();
    let by_execs = forced(&by_execs, |call| !calls[call].is_doubtful, has_call);
    let owned = |at: usize| by_execs.iter().position(|call| *call == Some(at));
    let decide = |(at, call): (usize, &Call<T, S>)| {
        let is_over = call.until <= now;
        let is_doubtful = call.is_doubtful || missing.is_doubtful;
        let (ended, end) = match (&call.stage, call.ended()) {
            (Stage::Held { .. }, Some(end)) => end,
            (Stage::Session { .. }, _) => {
                let own = owned(at).filter(|exec| has_call(*exec));
                return match own {
                    Some(exec) if !is_doubtful && !missing.is_unseen => Decision::Follow(exec),
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
        if is_doubtful {
            return Decision::Pass(None, None);
        }
        let own = owned(at);
        if let ExecEnd::Answered { .. } = end {
            let own = own.filter(|own| by_calls[at] == Some(*own) && execs[*own].is_complete());
            return match own {
                Some(exec) => Decision::Pass(execs[exec].phases(call.began, ended), Some(exec)),
                None if is_over => Decision::Pass(None, None),
                None => Decision::Keep,
            };
        }
        if !is_over {
            return Decision::Keep;
        }
        match &each(&|exec| call.had(exec, ended))[..] {
            _ if missing.is_unseen => Decision::Pass(None, None),
            [] => Decision::Pass(only_queued(call.began, ended), None),
            [exec] if own == Some(*exec) && has_call(*exec) => {
                Decision::Pass(execs[*exec].phases(call.began, ended), Some(*exec))
            }
            _ => Decision::Pass(None, None),
        }
    };
    calls.iter().enumerate().map(decide).collect()
}
