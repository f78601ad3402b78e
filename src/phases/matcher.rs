//! Which exec of the runtime belongs to which call: calls and marks in, the phases of ended calls out. The runtime's events
//! do not name calls, so containers and times decide; where they do not, the phases are left out. Pure.
//!
//! A call that was answered gets an exec only if two arguments lead to it that do not depend on each other: it fits no other
//! exec, which is right as long as no mark is lost; and the exec fits no other call, which is right as long as we know of all
//! calls. A call without an answer may have had no exec: only the second argument holds for it, and for sessions.
//!
//! As many execs as calls that they fit leave none of these calls to others, by either argument. What the second one alone
//! has given to a call without an answer is still open to the first one.
//!
//! Where several execs fit a call, what is true of its phases with each of them is certain if both arguments show that it has
//! one of them.
//!
//! So that the second argument holds, a call that was passed on without its exec is kept while another one could be given
//! that exec.

mod call;
mod decide;
mod pairs;
mod place;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    time::{Duration, Instant, SystemTime},
};

pub(super) use self::call::ExecCommand;
use self::place::{MOST_SESSIONS, Place};
use super::forms::CommandForms;
use crate::{
    ids::{ConnId, ContainerId},
    results::phases::{Split, Unknown},
    runtime::marks::ExecMark,
};

/// 300 ms: how long an ended call waits for marks. containerd reports an exit before it answers the call; what takes time is
/// the way to us.
const HELD: Duration = Duration::from_millis(300);

/// 10 min: a call that is open for longer gets no phases. So one whose end was lost is forgotten.
const LONGEST: Duration = Duration::from_secs(600);

/// 60 s: so long after calls passed unseen, only those are split that were answered.
const UNSEEN: Duration = Duration::from_secs(60);

/// 1,024 containers at a time; a node has about 110 pods. Calls of others get no phases.
const MOST_CONTAINERS: usize = 1024;

/// 256 sessions of all containers are followed at a time.
const ALL_SESSIONS: usize = 256;

/// Names a call while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallName {
    /// By its connection and stream.
    Client(ConnId, u32),
    /// By a number.
    Probe(u64),
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExecEnd {
    /// With the exit code of its command.
    Answered {
        /// As the runtime answered it.
        exit_code: i32,
    },
    /// With an error of the runtime, which does nothing more for it.
    Refused,
    /// Without: by a timeout, or cancelled.
    Unanswered,
}

/// How the process of an interactive Exec ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionEnd {
    /// When it began to run.
    pub began: SystemTime,
    pub ended: SystemTime,
    /// 128 and the signal's number if a signal ended it.
    pub exit_code: i32,
}

/// When something happened, and when that is noted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// When it is noted, and what the wall clock shows then.
    pub(super) at: Instant,
    pub(super) clock: SystemTime,
    /// When it happened.
    pub(super) wall: SystemTime,
}

/// 50 ms: how far both clocks may drift apart while a call lasts, and in a thousandth of its time. Otherwise the wall clock was
/// set, and the runtime's times cannot be compared with ours.
const DRIFT: Duration = Duration::from_millis(50);

impl Now {
    /// Whether the wall clock was set since.
    fn was_set_since(&self, began: (Instant, SystemTime)) -> bool {
        let passed = self.at.saturating_duration_since(began.0);
        let apart = match self.clock.duration_since(began.1) {
            Ok(shown) => shown.abs_diff(passed),
            Err(error) => error.duration() + passed,
        };
        apart > DRIFT + passed / 1_000
    }
}

/// Matches calls and execs. A call carries a `T` from its end on, a session an `S` from its beginning on.
#[derive(Debug)]
pub(super) struct Matcher<T, S> {
    places: HashMap<ContainerId, Place<T, S>>,
    /// Until when there may be calls that are not known.
    unseen_until: Option<Instant>,
}

/// What need no longer be kept.
#[derive(Debug)]
pub(super) struct Resolved<T, S> {
    /// Calls, with where their time went.
    pub(super) calls: Vec<(T, Split)>,
    pub(super) sessions: Vec<(S, SessionEnd)>,
    /// Whose command is to be read. [`Matcher::command_read`] takes it.
    pub(super) started: Option<StartedExec>,
}

/// An exec that may be that of a session, and its process.
#[derive(Debug)]
pub(super) struct StartedExec {
    pub(super) container: ContainerId,
    pub(super) exec: Box<str>,
    pub(super) pid: u32,
}

impl<T, S> Default for Resolved<T, S> {
    fn default() -> Self {
        Self { calls: Vec::new(), sessions: Vec::new(), started: None }
    }
}

impl<T, S> Default for Matcher<T, S> {
    fn default() -> Self {
        Self { places: HashMap::new(), unseen_until: None }
    }
}

impl<T, S> Matcher<T, S> {
    /// A call began. It gets no phases if there is a `doubt`: marks may be missing.
    pub(super) fn began(
        &mut self,
        container: &ContainerId,
        name: CallName,
        doubt: Option<Unknown>,
        now: Now,
    ) {
        if let Some(place) = self.place(container) {
            place.begin(name, doubt, now);
        }
    }

    /// A call ended.
    pub(super) fn ended(
        &mut self,
        container: &ContainerId,
        name: CallName,
        end: ExecEnd,
        carried: T,
        now: Now,
    ) -> Resolved<T, S> {
        let left = match self.places.get_mut(container) {
            Some(place) => place.end(name, end, carried, now),
            None => Some(carried),
        };
        match left {
            None => self.resolve(container, now.at),
            Some(carried) => {
                let calls = vec![(carried, Split::Unknown(Unknown::TooMany, None))];
                Resolved { calls, ..Resolved::default() }
            }
        }
    }

    /// A call ended while no marks are reported.
    pub(super) fn forget(&mut self, container: &ContainerId, name: CallName) {
        if let Some(place) = self.places.get_mut(container) {
            place.drop_call(name);
            if place.is_empty() {
                self.places.remove(container);
            }
        }
    }

    /// An Exec opened a stream for this command. Where too many are open, it is not followed.
    pub(super) fn session(
        &mut self,
        container: &ContainerId,
        name: CallName,
        opened: (S, CommandForms),
        doubt: Option<Unknown>,
        now: Now,
    ) {
        let all = self.places.values().map(Place::sessions).sum::<usize>();
        let Some(place) = self.place(container) else { return };
        if all < ALL_SESSIONS && place.sessions() < MOST_SESSIONS {
            place.open_session(name, opened, doubt, now);
        } else {
            place.doubt(now.at);
        }
    }

    /// The runtime reported something of an exec.
    pub(super) fn mark(&mut self, mark: ExecMark, now: Now) -> Resolved<T, S> {
        let ExecMark { container, exec, at, kind } = mark;
        if let Some(place) = self.place(&container) {
            place.mark(exec, kind, at, now);
        }
        self.resolve(&container, now.at)
    }

    /// The command of a process was read, or could not be.
    pub(super) fn command_read(
        &mut self,
        container: &ContainerId,
        exec: &str,
        command: ExecCommand,
        now: Instant,
    ) -> Resolved<T, S> {
        if let Some(place) = self.places.get_mut(container) {
            place.command_read(exec, command);
        }
        self.resolve(container, now)
    }

    /// Marks were lost: nothing is known of the calls that are here now.
    pub(super) fn marks_lost(&mut self) {
        self.places.values_mut().for_each(Place::marks_lost);
    }

    /// Calls of clients passed unseen.
    pub(super) fn calls_missed(&mut self, now: Instant) {
        self.unseen_until = Some(now + UNSEEN);
    }

    /// A container is gone, and its sessions with it.
    pub(super) fn gone(&mut self, container: &ContainerId) {
        if let Some(place) = self.places.get_mut(container) {
            place.drop_sessions();
            if place.is_empty() {
                self.places.remove(container);
            }
        }
    }

    /// When there is something to expire.
    pub(super) fn due(&self) -> Option<Instant> {
        self.places.values().filter_map(Place::due).min()
    }

    /// Resolves calls that were held for long enough, and forgets what is too old.
    pub(super) fn expire(&mut self, now: Instant) -> Resolved<T, S> {
        let mut resolved = Resolved::default();
        let is_unseen = self.is_unseen(now);
        self.places.retain(|_, place| {
            if place.due().is_some_and(|due| due <= now) {
                place.resolve(is_unseen, now, &mut resolved);
            }
            !place.is_empty()
        });
        resolved
    }

    /// Resolves all calls that have ended, with what is known.
    pub(super) fn end(&mut self, now: Instant) -> Resolved<T, S> {
        self.expire(now + HELD)
    }

    fn resolve(&mut self, container: &ContainerId, now: Instant) -> Resolved<T, S> {
        let (mut resolved, is_unseen) = (Resolved::default(), self.is_unseen(now));
        if let Some(place) = self.places.get_mut(container) {
            place.resolve(is_unseen, now, &mut resolved);
            let next = place.next_to_read();
            resolved.started =
                next.map(|(exec, pid)| StartedExec { container: container.clone(), exec, pid });
            if place.is_empty() {
                self.places.remove(container);
            }
        }
        resolved
    }

    fn is_unseen(&self, now: Instant) -> bool {
        self.unseen_until.is_some_and(|until| until > now)
    }

    fn place(&mut self, container: &ContainerId) -> Option<&mut Place<T, S>> {
        if !self.places.contains_key(container) && self.places.len() >= MOST_CONTAINERS {
            return None;
        }
        Some(self.places.entry(container.clone()).or_default())
    }
}
