//! A call that may have an exec, and an exec that may belong to a call. Pure.

use std::time::{Duration, Instant, SystemTime};

use super::{CallName, ExecEnd, Now};
use crate::{
    phases::forms::{CommandForms, CommandPrint},
    results::phases::{Phases, Unknown},
    runtime::marks::MarkKind,
};

/// 1 ms: how far times that different processes read may be in the wrong order.
const SKEW: Duration = Duration::from_millis(1);

/// 50 ms: how much earlier than the call of a client its exec may seem to be: the runtime has the call's bytes before we read
/// the clock, and on a busy node we may have to wait for a processor in between. Before a call of our own we read it.
const EARLY: Duration = Duration::from_millis(50);

/// 60 s: how long containerd keeps a stream that an Exec opened for its client. It adds the exec when the client comes.
pub(super) const TOKEN: Duration = Duration::from_secs(60);

/// 20 s: how long after the end of a call that was not answered its exec may still be added, twice the default period of a
/// probe: a shim that stood still does what it was asked for.
pub(super) const LINGERS: Duration = Duration::from_secs(20);

/// 2 s: likewise, once the runtime was seen to add another exec to the container after the call had ended: then the shim has
/// read all that it was asked for before.
const SETTLES: Duration = Duration::from_secs(2);

/// A call that may have an exec.
#[derive(Debug)]
pub(super) struct Call<T, S> {
    pub(super) name: CallName,
    pub(super) began: SystemTime,
    /// When its exec may have been added at the earliest.
    pub(super) earliest: SystemTime,
    pub(super) since: Instant,
    /// What the wall clock showed then.
    pub(super) clock: SystemTime,
    /// When its stage is over, unless it ends sooner.
    pub(super) until: Instant,
    /// Why it gets no exec, such as that marks, or calls that could have its exec, may be missing.
    pub(super) doubt: Option<Unknown>,
    /// Of one that ended without an answer: when its exec may have been added at the latest.
    pub(super) added_by: Option<SystemTime>,
    pub(super) stage: Stage<T, S>,
}

/// Open --ended--> Held --resolved with its exec--> removed
///                   \--resolved without--> Past --nothing can be its own any more--> removed
/// Session --its exec is known--> removed, and the exec is followed
#[derive(Debug)]
pub(super) enum Stage<T, S> {
    /// Moved on by its end.
    Open,
    /// It has ended; marks may still be on their way.
    Held { ended: SystemTime, end: ExecEnd, carried: T },
    /// It was passed on without its exec, which may still show up.
    Past { ended: SystemTime, end: ExecEnd },
    /// An Exec that opened a stream.
    Session { carried: S, command: CommandForms },
}

/// A process that the runtime adds to a container.
#[derive(Debug)]
pub(super) struct Exec<S> {
    pub(super) id: Box<str>,
    pub(super) added: Option<SystemTime>,
    pub(super) started: Option<SystemTime>,
    pub(super) exited: Option<(SystemTime, u32)>,
    /// When it was heard of first.
    pub(super) seen: Instant,
    /// When it is forgotten.
    pub(super) until: Instant,
    /// Whether it may belong to a call that is forgotten.
    pub(super) is_doubtful: bool,
    pub(super) command: ExecCommand,
    pub(super) owner: Owner<S>,
}

/// 100 ms: a process that ran for longer was there when its command was to be read.
const QUICK: Duration = Duration::from_millis(100);

/// The command of an exec, as its process shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExecCommand {
    /// It was not read, or cannot be read.
    Unknown,
    /// It is to be read when another one of the container was: that of the process with this pid.
    Wanted(u32),
    /// It is being read.
    Asked,
    /// The process was not there any more.
    Gone,
    /// That of all words, and those without the first word and the first two: scripts show their interpreter before them.
    Known([CommandPrint; 3]),
}

/// Whose an exec is.
#[derive(Debug)]
pub(super) enum Owner<S> {
    Unknown,
    /// That of a call that was answered and passed on. It is kept so that marks that come twice are known.
    Past,
    /// That of a call that was passed on without an answer, or of one of several, if we know all calls.
    Unanswered,
    /// That of a session, which lasts until it exits.
    Session(S, CommandForms),
}

impl<T, S> Call<T, S> {
    /// One that begins now, and whose stage lasts for so long.
    pub(super) fn new(
        name: CallName,
        stage: Stage<T, S>,
        doubt: Option<Unknown>,
        now: Now,
        lasts: Duration,
    ) -> Self {
        let early = match name {
            CallName::Client(..) => EARLY,
            CallName::Probe(_) => SKEW,
        };
        Self {
            name,
            began: now.wall,
            earliest: now.wall - early,
            since: now.at,
            clock: now.clock,
            until: now.at + lasts,
            doubt,
            added_by: None,
            stage,
        }
    }

    /// The runtime added an exec at that time, which is known now.
    pub(super) fn other_added(&mut self, at: SystemTime, now: SystemTime) {
        if let (Some((ended, _)), Some(by)) = (self.ended(), &mut self.added_by)
            && at > ended
        {
            *by = (*by).min(now + SETTLES);
        }
    }

    pub(super) fn ended(&self) -> Option<(SystemTime, ExecEnd)> {
        match &self.stage {
            Stage::Held { ended, end, .. } | Stage::Past { ended, end } => Some((*ended, *end)),
            Stage::Open | Stage::Session { .. } => None,
        }
    }

    pub(super) fn is_answered(&self) -> bool {
        matches!(self.ended(), Some((_, ExecEnd::Answered { .. })))
    }

    pub(super) fn is_past(&self) -> bool {
        matches!(self.stage, Stage::Past { .. })
    }

    pub(super) fn is_session(&self) -> bool {
        matches!(self.stage, Stage::Session { .. })
    }

    /// Whether this exec can be its own, whatever marks are still on their way, or lost, if we know all calls.
    pub(super) fn may_have(&self, exec: &Exec<S>) -> bool {
        matches!(exec.owner, Owner::Unknown) && self.fits(exec)
    }

    /// The same if there may be commands that we know no call of: then one that is taken for that of a call without an answer
    /// may be its own, too.
    pub(super) fn could_have(&self, exec: &Exec<S>) -> bool {
        matches!(exec.owner, Owner::Unknown | Owner::Unanswered) && self.fits(exec)
    }

    fn fits(&self, exec: &Exec<S>) -> bool {
        let is_late = exec.first().is_none_or(|first| first >= self.earliest);
        let exits_later = exec.exited.is_none_or(|(exited, _)| is_in_order(self.began, exited));
        if !(is_late && exits_later) {
            return false;
        }
        let is_by = |at: Option<SystemTime>, end| at.is_none_or(|at| is_in_order(at, end));
        match (&self.stage, self.ended()) {
            (Stage::Session { .. }, _) => is_by(exec.added, self.began + TOKEN),
            (_, Some((ended, ExecEnd::Answered { exit_code }))) => {
                is_by(exec.added, ended)
                    && is_by(exec.started, ended)
                    && exec.exited.is_none_or(|(exited, status)| {
                        is_in_order(exited, ended) && status.cast_signed() == exit_code
                    })
            }
            (_, Some((ended, ExecEnd::Refused))) => is_by(exec.added, ended),
            // The shim does what it was asked for even if no client waits for it any more.
            (_, Some((ended, ExecEnd::Unanswered))) => {
                is_by(exec.added, self.added_by.unwrap_or(ended + LINGERS))
            }
            (_, None) => true,
        }
    }

    /// Whether this exec can be its own if no mark is lost, and none is late by more than a call is held.
    pub(super) fn may_have_soon(&self, exec: &Exec<S>, now: Instant) -> bool {
        self.could_have(exec) && (exec.exited.is_some() || !self.is_answered() || self.until > now)
    }
}

impl<S> Exec<S> {
    /// Notes a mark. The first one of a kind counts.
    pub(super) fn note(&mut self, kind: MarkKind, at: SystemTime) {
        match kind {
            MarkKind::Added => self.added = self.added.or(Some(at)),
            MarkKind::Started { .. } => self.started = self.started.or(Some(at)),
            MarkKind::Exited { status } => self.exited = self.exited.or(Some((at, status))),
        }
    }

    /// Whether it may have been added by then.
    pub(super) fn was_added_by(&self, then: SystemTime) -> bool {
        self.added.is_none_or(|added| is_in_order(added, then))
    }

    /// Whether its command is known, or never will be.
    pub(super) fn is_read(&self) -> bool {
        let is_past = self.started.is_some() || self.exited.is_some();
        is_past && !matches!(self.command, ExecCommand::Asked | ExecCommand::Wanted(_))
    }

    /// Whether this is the process of that command, as far as is known. Another one may be that of a client past us. One that
    /// ended before its command could be read has to have been quick, once that is known.
    pub(super) fn may_run(&self, command: &CommandForms) -> bool {
        match self.command {
            ExecCommand::Known(prints) => command.may_show(prints),
            ExecCommand::Gone => self.started.zip(self.exited).is_none_or(|(started, (exited, _))| {
                exited.duration_since(started).unwrap_or_default() <= QUICK
            }),
            ExecCommand::Unknown | ExecCommand::Wanted(_) | ExecCommand::Asked => false,
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.added.is_some() && self.started.is_some() && self.exited.is_some()
    }

    /// The earliest of its times: it was added then, or before.
    fn first(&self) -> Option<SystemTime> {
        let exited = self.exited.map(|(at, _)| at);
        self.added.or_else(|| self.started.into_iter().chain(exited).min())
    }

    /// The phases of its call; none if times are in the wrong order, as after a step of the clock, or one is missing.
    pub(super) fn phases(&self, began: SystemTime, ended: SystemTime) -> Option<Phases> {
        let by_then = |at: &SystemTime| is_in_order(*at, ended);
        let exited = self.exited.map(|(at, _)| at).filter(by_then);
        if exited.is_some() && self.started.is_none() {
            return None;
        }
        // A process may end before the runtime reports that it runs.
        let started = self.started.map(|at| exited.map_or(at, |exited| at.min(exited))).filter(by_then);
        let added = self.added?.max(began);
        Some(Phases {
            queue: until(began, added)?,
            start: Some(until(added, started.unwrap_or(ended))?),
            run: started.map(|started| until(started, exited.unwrap_or(ended)).ok_or(())).transpose().ok()?,
            drain: exited.map(|exited| until(exited, ended).ok_or(())).transpose().ok()?,
        })
    }
}

/// The phases of a call that the runtime did not take up before it ended.
pub(super) fn only_queued(began: SystemTime, ended: SystemTime) -> Option<Phases> {
    Some(Phases { queue: until(began, ended)?, start: None, run: None, drain: None })
}

pub(super) fn is_in_order(former: SystemTime, later: SystemTime) -> bool {
    former <= later + SKEW
}

fn until(former: SystemTime, later: SystemTime) -> Option<Duration> {
    match later.duration_since(former) {
        Ok(between) => Some(between),
        Err(error) => (error.duration() <= SKEW).then_some(Duration::ZERO),
    }
}
