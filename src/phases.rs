//! Splits the time of a command that the runtime runs in a container into phases: begins and ends of calls, and the marks of
//! the runtime's events, in; phases out, once they are known. Where they cannot be known: the reason, and what is certain
//! all the same: they are never wrong. No IO except in `command`.
//!
//! call complete --queue--> added --start--> process runs --run--> exited --drain--> answered

mod command;
mod forms;
mod matcher;

use std::{
    collections::BTreeMap,
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{sync::Notify, time::sleep};

pub(crate) use self::matcher::{CallName, ExecEnd, SessionEnd};
use self::{
    command::{CommandLine, CommandReader},
    forms::{CommandForms, CommandPrint},
    matcher::{ExecCommand, Matcher, Now, Resolved, StartedExec},
};
use crate::{
    clock,
    ids::ContainerId,
    results::{
        durations::DurationHistogram,
        phases::{Phase, PhasesSlot, Split, Unknown},
    },
    runtime::marks::{ExecNews, ExecNewsSink},
    stage::Tasks,
};

/// Who runs a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Caller {
    /// A client, through the relay.
    Client,
    /// A probe of ours.
    Probe,
}

impl Caller {
    /// `client`, `probe`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Probe => "probe",
        }
    }
}

/// How long each phase took, by caller.
pub(crate) type PhaseDurations = BTreeMap<(Caller, Phase), DurationHistogram>;

/// 50 ms: how often calls are looked at that wait for marks.
const LOOK: Duration = Duration::from_millis(50);

/// 4 KiB: a command is compared with those of processes if it is not longer. Most take less than 100 bytes.
const LONGEST_COMMAND: usize = 4 << 10;

/// Takes where the time of a call went, once.
pub(crate) type Done = Box<dyn FnOnce(Split) + Send>;

/// Takes the end of a session, once; never called if that is not seen.
pub(crate) type SessionDone = Box<dyn FnOnce(SessionEnd) + Send>;

/// Where calls and marks are noted. Clones are the same. A lock is held for one call or mark.
#[derive(Clone, Default)]
pub struct PhasesHandle(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Signals that there is a call or an exec.
    waits: Notify,
    /// Counts our own calls.
    probes: AtomicU64,
    commands: CommandReader,
    /// Makes prints of commands.
    hasher: RandomState,
}

#[derive(Default)]
struct State {
    matcher: Matcher<(Caller, Done), SessionDone>,
    durations: PhaseDurations,
    events: Events,
}

/// What is known of the runtime's events.
#[derive(Clone, Copy, Default)]
enum Events {
    /// There never were any.
    #[default]
    None,
    /// All are reported.
    Subscribed,
    /// They were, and will be again.
    Lost,
}

impl Events {
    /// Why calls have no phases now.
    fn doubt(self) -> Option<Unknown> {
        match self {
            Self::None => Some(Unknown::NoEvents),
            Self::Subscribed => None,
            Self::Lost => Some(Unknown::EventsLost),
        }
    }
}

impl fmt::Debug for PhasesHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PhasesHandle")
    }
}

impl PhasesHandle {
    /// Starts the task that ends the waiting for marks that do not come.
    pub(crate) fn spawn(tasks: &mut Tasks) -> Self {
        let handle = Self::default();
        let kept = handle.clone();
        tasks.spawn(tasks.supervise("phases", async move || kept.expire().await));
        handle
    }

    /// Takes what the runtime reports.
    pub(crate) fn news(&self) -> ExecNewsSink {
        let handle = self.clone();
        ExecNewsSink::new(move |news| handle.hear(news))
    }

    /// A client called for a command in this container, at that time.
    pub(crate) fn began(&self, container: &ContainerId, name: CallName, at: Instant) {
        let mut state = self.state();
        let doubt = state.events.doubt();
        state.matcher.began(container, name, doubt, now(at));
        drop(state);
        self.0.waits.notify_one();
    }

    /// The call ended, at that time. `done` is called at once, or within a few hundred milliseconds.
    pub(crate) fn ended(
        &self,
        container: &ContainerId,
        name: CallName,
        end: ExecEnd,
        at: Instant,
        done: Done,
    ) {
        let caller = match name {
            CallName::Client(..) => Caller::Client,
            CallName::Probe(_) => Caller::Probe,
        };
        let mut state = self.state();
        if let Some(why) = state.events.doubt() {
            state.matcher.forget(container, name);
            drop(state);
            return done(Split::Unknown(why, None));
        }
        let resolved = state.matcher.ended(container, name, end, (caller, done), now(at));
        drop(state);
        self.finish(resolved);
    }

    /// A client opened a stream for this interactive command, at that time.
    pub(crate) fn opened<'a>(
        &self,
        container: &ContainerId,
        name: CallName,
        command: impl Iterator<Item = &'a str>,
        at: Instant,
        done: SessionDone,
    ) {
        let command = self.forms(command);
        let mut state = self.state();
        let doubt = state.events.doubt();
        state.matcher.session(container, name, (done, command), doubt, now(at));
        drop(state);
        self.0.waits.notify_one();
    }

    /// Calls of clients passed unseen.
    pub(crate) fn calls_missed(&self) {
        self.state().matcher.calls_missed(clock::now());
    }

    /// A container was removed.
    pub(crate) fn gone(&self, container: &ContainerId) {
        self.state().matcher.gone(container);
    }

    /// A command of a probe of ours is called for now. Its phases end when it is dropped, or as [`ProbedExec::ended`] says.
    pub(crate) fn probed(&self, container: &ContainerId) -> ProbedExec {
        let name = CallName::Probe(self.0.probes.fetch_add(1, Ordering::Relaxed));
        self.began(container, name, clock::now());
        let slot = Some(PhasesSlot::default());
        ProbedExec { phases: self.clone(), container: container.clone(), name, slot }
    }

    /// No more marks are waited for: passes on all calls that have ended.
    pub(crate) fn end(&self) {
        let resolved = self.state().matcher.end(clock::now());
        self.finish(resolved);
    }

    /// How long each phase took so far, of all calls whose phases are known.
    pub(crate) fn durations(&self) -> PhaseDurations {
        self.state().durations.clone()
    }

    fn hear(&self, news: ExecNews) {
        let mut state = self.state();
        let resolved = match news {
            ExecNews::Subscribed => {
                state.events = Events::Subscribed;
                return;
            }
            ExecNews::Mark(mark) => state.matcher.mark(mark, now(clock::now())),
            ExecNews::Lost => {
                if let Events::Subscribed = state.events {
                    state.events = Events::Lost;
                }
                state.matcher.marks_lost();
                return;
            }
        };
        drop(state);
        self.finish(resolved);
        self.0.waits.notify_one();
    }

    /// Calls are passed on outside of the lock.
    fn finish(&self, resolved: Resolved<(Caller, Done), SessionDone>) {
        for ((caller, done), split) in resolved.calls {
            if let Some(phases) = split.phases() {
                let mut state = self.state();
                for (phase, took) in phases.each() {
                    state.durations.entry((caller, phase)).or_default().note(took);
                }
            }
            done(split);
        }
        for (done, end) in resolved.sessions {
            done(end);
        }
        if let Some(started) = resolved.started {
            self.read(started);
        }
    }

    /// Reads the command of a process.
    fn read(&self, started: StartedExec) {
        let handle = self.clone();
        let StartedExec { container, exec, pid } = started;
        let done = {
            let (container, exec) = (container.clone(), exec.clone());
            move |line: CommandLine<'_>| handle.command_read(&container, &exec, line)
        };
        if !self.0.commands.read(pid, done) {
            self.command_read(&container, &exec, CommandLine::Unreadable);
        }
    }

    fn command_read(&self, container: &ContainerId, exec: &str, line: CommandLine<'_>) {
        let command = match line {
            CommandLine::Words(words) => {
                let after = |count| words.split_inclusive(|byte| *byte == 0).skip(count).flatten().copied();
                ExecCommand::Known([0, 1, 2].map(|count| self.print(&after(count).collect::<Vec<u8>>())))
            }
            CommandLine::Gone => ExecCommand::Gone,
            CommandLine::Unreadable => ExecCommand::Unknown,
        };
        let resolved = self.state().matcher.command_read(container, exec, command, clock::now());
        self.finish(resolved);
        self.0.waits.notify_one();
    }

    /// Of a command of more than [`LONGEST_COMMAND`], nothing.
    fn forms<'a>(&self, command: impl Iterator<Item = &'a str>) -> CommandForms {
        let mut length = 0;
        let words: Option<Vec<_>> = command
            .map(|word| {
                length += word.len();
                (length <= LONGEST_COMMAND).then_some(word)
            })
            .collect();
        words.map_or_else(CommandForms::default, |words| CommandForms::of(&words, |words| self.print(words)))
    }

    /// Of words that each have a NUL at their end. A script shows the path at which it was found: folders do not count.
    fn print(&self, command: &[u8]) -> CommandPrint {
        let program = command.split(|byte| *byte == 0).next().unwrap_or_default();
        let name = program.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        self.0.hasher.hash_one(&command[name..])
    }

    async fn expire(&self) {
        loop {
            let due = self.state().matcher.due();
            tokio::select! {
                () = clock::until(due) => {}
                () = self.0.waits.notified() => {}
            }
            sleep(LOOK).await;
            let resolved = self.state().matcher.expire(clock::now());
            self.finish(resolved);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A command of a probe of ours, while it is called for.
#[derive(Debug)]
pub(crate) struct ProbedExec {
    phases: PhasesHandle,
    container: ContainerId,
    name: CallName,
    /// Taken at the end.
    slot: Option<PhasesSlot>,
}

impl ProbedExec {
    /// The call ended so. The phases are written to the slot once they are known, if they ever are.
    pub(crate) fn ended(mut self, end: ExecEnd) -> PhasesSlot {
        let slot = self.slot.take().unwrap_or_default();
        self.pass(end, slot.clone());
        slot
    }

    fn pass(&self, end: ExecEnd, slot: PhasesSlot) {
        let done = Box::new(move |split| slot.set(split));
        self.phases.ended(&self.container, self.name, end, clock::now(), done);
    }
}

impl Drop for ProbedExec {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.pass(ExecEnd::Unanswered, slot);
        }
    }
}

/// That instant by both clocks.
fn now(at: Instant) -> Now {
    let (instant, wall) = (clock::now(), clock::wall());
    Now { at: instant, clock: wall, wall: wall - instant.saturating_duration_since(at) }
}
