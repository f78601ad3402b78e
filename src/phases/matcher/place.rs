//! The calls and execs of one container: which belong together, and which are no longer needed. Pure.

use std::{
    mem,
    time::{Duration, Instant, SystemTime},
};

use super::{
    CallName, ExecEnd, HELD, LONGEST, Now, Resolved, SessionEnd,
    call::{Call, Exec, ExecCommand, LINGERS, Owner, Stage, TOKEN, is_in_order},
    decide::{Decision, Decisions, Missing, READ, decisions},
};
use crate::{
    phases::forms::CommandForms,
    results::phases::{Unknown, is_slow},
    runtime::marks::MarkKind,
};

/// 10 s: how long an exec is kept that has exited, and fits no call: its call may be read after its marks, and marks may come
/// twice.
const KEPT: Duration = Duration::from_secs(10);

/// 64 calls of one container at a time. Above, those are forgotten first that were passed on already, and none that could be
/// exchanged with them gets phases; while it has more that are open, none gets phases.
pub(super) const MOST_CALLS: usize = 64;

/// 128 execs of one container at a time. Above, those are forgotten first that no call may have; while it has more, no call
/// gets phases.
pub(super) const MOST_EXECS: usize = 128;

/// 8 sessions of one container are followed at a time; how others end is not shown.
pub(super) const MOST_SESSIONS: usize = 8;

/// The calls and execs of one container.
#[derive(Debug)]
pub(super) struct Place<T, S> {
    pub(super) calls: Vec<Call<T, S>>,
    pub(super) execs: Vec<Exec<S>>,
    /// Until when calls or execs may be missing.
    pub(super) doubtful_until: Option<Instant>,
    /// When it was looked at last.
    looked_at: Option<Instant>,
}

impl<T, S> Default for Place<T, S> {
    fn default() -> Self {
        Self { calls: Vec::new(), execs: Vec::new(), doubtful_until: None, looked_at: None }
    }
}

impl<T, S> Place<T, S> {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.execs.is_empty() && self.doubtful_until.is_none()
    }

    pub(super) fn sessions(&self) -> usize {
        let open = self.calls.iter().filter(|call| call.is_session()).count();
        open + self.execs.iter().filter(|exec| matches!(exec.owner, Owner::Session(..))).count()
    }

    /// A call begins. It may be doubted from the beginning.
    pub(super) fn begin(&mut self, name: CallName, doubt: Option<Unknown>, now: Now) {
        self.add(Call::new(name, Stage::Open, doubt, now, LONGEST));
    }

    /// An Exec opened a stream.
    pub(super) fn open_session(
        &mut self,
        name: CallName,
        (carried, command): (S, CommandForms),
        doubt: Option<Unknown>,
        now: Now,
    ) {
        self.add(Call::new(name, Stage::Session { carried, command }, doubt, now, TOKEN + HELD));
    }

    fn add(&mut self, call: Call<T, S>) {
        if self.calls.len() >= MOST_CALLS {
            let Some((ended, oldest)) = self.past(|_| true).min() else {
                return self.doubt(call.since);
            };
            self.forget_past(oldest, ended);
        }
        self.calls.push(call);
    }

    /// No call gets an exec that may belong to one that is forgotten.
    fn doubt_execs_of(&mut self, call: &Call<T, S>) {
        for exec in self.execs.iter_mut().filter(|exec| call.may_have(exec)) {
            exec.is_doubtful = true;
        }
    }

    /// Those that were passed on without their execs: when they ended, and where they are.
    fn past(&self, filter: impl Fn(&Call<T, S>) -> bool) -> impl Iterator<Item = (SystemTime, usize)> {
        let past = self.calls.iter().enumerate().filter(move |(_, call)| call.is_past() && filter(call));
        past.filter_map(|(at, call)| Some((call.ended()?.0, at)))
    }

    /// Forgets a call that was passed on without its exec.
    fn forget_past(&mut self, at: usize, ended: SystemTime) {
        let past = self.calls.swap_remove(at);
        self.doubt_execs_of(&past);
        for other in self.calls.iter_mut().filter(|other| is_in_order(other.earliest, ended)) {
            other.doubt = other.doubt.or(Some(Unknown::TooMany));
        }
    }

    /// Calls or execs are missing.
    pub(super) fn doubt(&mut self, now: Instant) {
        self.doubtful_until = Some(now + LONGEST);
    }

    /// A call ends. Returns what it carries if it is not known.
    pub(super) fn end(&mut self, name: CallName, end: ExecEnd, carried: T, now: Now) -> Option<T> {
        let is_it = |call: &&mut Call<T, S>| call.name == name && matches!(call.stage, Stage::Open);
        let Some(call) = self.calls.iter_mut().find(is_it) else { return Some(carried) };
        // One that is refused so soon need not wait for its marks.
        let is_quick = !is_slow(now.at.saturating_duration_since(call.since));
        call.doubt = call.doubt.or((end == ExecEnd::Refused && is_quick).then_some(Unknown::Refused));
        call.doubt = call.doubt.or(now.was_set_since((call.since, call.clock)).then_some(Unknown::NoMarks));
        call.until = if call.doubt.is_some() { now.at } else { now.at + HELD };
        call.added_by = (end == ExecEnd::Unanswered).then(|| now.wall + LINGERS);
        call.stage = Stage::Held { ended: now.wall, end, carried };
        None
    }

    /// Forgets a call whose marks are not reported.
    pub(super) fn drop_call(&mut self, name: CallName) {
        self.calls.retain(|call| call.name != name);
    }

    /// The runtime reports something of an exec, maybe not for the first time.
    pub(super) fn mark(&mut self, id: Box<str>, kind: MarkKind, at: SystemTime, now: Now) {
        if kind == MarkKind::Added {
            self.calls.iter_mut().for_each(|call| call.other_added(at, now.wall));
        }
        let now = now.at;
        let index = self.execs.iter().position(|exec| exec.id == id).unwrap_or_else(|| {
            let (added, started, exited, owner) = (None, None, None, Owner::Unknown);
            self.execs.push(Exec {
                id,
                added,
                started,
                exited,
                seen: now,
                until: now,
                is_doubtful: false,
                command: ExecCommand::Unknown,
                owner,
            });
            self.execs.len() - 1
        });
        let exec = &mut self.execs[index];
        let is_first = exec.started.is_none();
        exec.note(kind, at);
        if let MarkKind::Started { pid } = kind
            && is_first
            && self.calls.iter().any(|call| call.is_session() && call.may_have(exec))
        {
            exec.command = ExecCommand::Wanted(pid);
        }
        exec.until = now + if exec.exited.is_some() { KEPT } else { LONGEST };
        if self.execs.len() > MOST_EXECS {
            let is_idle = |exec: &Exec<S>| {
                !matches!(exec.owner, Owner::Session(..))
                    && !self.calls.iter().any(|call| call.could_have(exec))
            };
            match self.execs.iter().position(is_idle) {
                Some(oldest) => drop(self.execs.remove(oldest)),
                None => {
                    self.execs.remove(index);
                    self.doubt(now);
                }
            }
        }
    }

    /// The exec whose command is to be read now, and the pid of its process. A process can delay that: one of a container is
    /// read at a time.
    pub(super) fn next_to_read(&mut self) -> Option<(Box<str>, u32)> {
        if self.execs.iter().any(|exec| exec.command == ExecCommand::Asked) {
            return None;
        }
        self.execs.iter_mut().find_map(|exec| {
            let ExecCommand::Wanted(pid) = exec.command else { return None };
            // Another process may have its pid.
            let is_there = exec.exited.is_none();
            exec.command = if is_there { ExecCommand::Asked } else { ExecCommand::Gone };
            is_there.then(|| (exec.id.clone(), pid))
        })
    }

    /// The command of an exec's process was read, or cannot be.
    pub(super) fn command_read(&mut self, id: &str, command: ExecCommand) {
        if let Some(exec) = self.execs.iter_mut().find(|exec| *exec.id == *id) {
            exec.command = command;
        }
    }

    /// Its sessions are not followed any more.
    pub(super) fn drop_sessions(&mut self) {
        self.calls.retain(|call| !call.is_session());
        self.execs.retain(|exec| !matches!(exec.owner, Owner::Session(..)));
    }

    /// Marks were lost: nothing is known of the calls that are here. Sessions go on.
    pub(super) fn marks_lost(&mut self) {
        self.calls.iter_mut().for_each(|call| call.doubt = call.doubt.or(Some(Unknown::EventsLost)));
        self.execs.retain(|exec| matches!(exec.owner, Owner::Session(..)));
    }

    /// When there is something to do that no call or mark causes.
    pub(super) fn due(&self) -> Option<Instant> {
        let calls = self.calls.iter().map(|call| call.until);
        let has_session = self.calls.iter().any(Call::is_session);
        let execs = self.execs.iter().filter(|exec| !matches!(exec.owner, Owner::Session(..)));
        let execs =
            execs.flat_map(|exec| [Some(exec.until), has_session.then_some(exec.seen + READ)]).flatten();
        let all = calls.chain(execs).chain(self.doubtful_until);
        all.filter(|due| self.looked_at.is_none_or(|looked_at| *due > looked_at)).min()
    }

    /// Passes on the calls of which everything is known, and those that were held for long enough. `is_unseen`: whether there
    /// may be calls that are not known.
    pub(super) fn resolve(&mut self, is_unseen: bool, now: Instant, resolved: &mut Resolved<T, S>) {
        self.looked_at = Some(now);
        self.doubtful_until = self.doubtful_until.filter(|until| *until > now);
        let missing = Missing { is_doubtful: self.doubtful_until.is_some(), is_unseen };
        let Decisions { calls, spent } = decisions(&self.calls, &self.execs, missing, now);
        spent.into_iter().for_each(|exec| self.execs[exec].owner = Owner::Unanswered);
        for (mut call, decision) in mem::take(&mut self.calls).into_iter().zip(calls) {
            match decision {
                Decision::Forget => {
                    self.doubt_execs_of(&call);
                    continue;
                }
                Decision::Done => continue,
                Decision::Keep | Decision::Pass(..) | Decision::Follow(_) => {}
            }
            match (decision, call.stage) {
                (Decision::Follow(exec), Stage::Session { carried, command }) => {
                    let exec = &mut self.execs[exec];
                    let is_its = exec.may_run(&command);
                    exec.owner = if is_its { Owner::Session(carried, command) } else { Owner::Unanswered };
                }
                (Decision::Pass(split, exec), Stage::Held { ended, end, carried }) => {
                    resolved.calls.push((carried, split));
                    if let Some(exec) = exec {
                        let is_answered = matches!(end, ExecEnd::Answered { .. });
                        self.execs[exec].owner = if is_answered { Owner::Past } else { Owner::Unanswered };
                        continue;
                    }
                    call.until = if end == ExecEnd::Unanswered { now + LINGERS } else { now };
                    call.stage = Stage::Past { ended, end };
                    self.calls.push(call);
                }
                (_, stage) => {
                    call.stage = stage;
                    self.calls.push(call);
                }
            }
        }
        self.end_sessions(resolved);
        self.forget(now);
    }

    fn end_sessions(&mut self, resolved: &mut Resolved<T, S>) {
        for exec in &mut self.execs {
            if let (Owner::Session(..), Some((ended, status))) = (&exec.owner, exec.exited)
                && let Owner::Session(carried, command) = mem::replace(&mut exec.owner, Owner::Past)
                && exec.may_run(&command)
            {
                let began = exec.started.or(exec.added).unwrap_or(ended);
                resolved
                    .sessions
                    .push((carried, SessionEnd { began, ended, exit_code: status.cast_signed() }));
            }
        }
    }

    /// Forgets calls that were passed on, once no other call could be given their execs, and execs that fit no call.
    fn forget(&mut self, now: Instant) {
        let earliest = self.calls.iter().filter(|call| !call.is_past()).map(|call| call.earliest).min();
        let is_wanted = |ended| earliest.is_some_and(|earliest| is_in_order(earliest, ended));
        loop {
            let mut unwanted = self.past(|call| call.until <= now).filter(|(ended, _)| !is_wanted(*ended));
            let Some((ended, at)) = unwanted.next() else { break };
            drop(unwanted);
            self.forget_past(at, ended);
        }
        let calls = &self.calls;
        self.execs.retain_mut(|exec| {
            let is_followed = matches!(exec.owner, Owner::Session(..));
            if exec.until <= now && calls.iter().any(|call| call.could_have(exec)) {
                exec.until = now + KEPT;
            }
            is_followed || exec.until > now
        });
    }
}
