//! Exec sessions: one shell for each container, opened by an ordinary Exec, to which the commands of its probes are passed.
//! Starting a process from outside is what an ExecSync costs; from inside, it costs a twentieth.
//!
//! A session decides an attempt only if ExecSync would decide the same. In all other cases, ExecSync decides.

mod book;
mod capture;
mod opening;
mod script;
mod stream;

use std::{
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::{sync::Notify, task, time};
use tonic::transport::Channel;

pub(crate) use self::book::SessionCounts;
use self::{
    book::{Book, LONGEST_PERIOD, MOST, QUICK, Unopened, Way},
    capture::{Capture, End},
    opening::Line,
    script::{Ask, GIVEN_UP, Nonce},
    stream::{Came, Closed, Stream},
};
use super::PendingCall;
use crate::{
    clock,
    handler::{OUTPUT_LIMIT, dial::descriptors_for},
    ids::ContainerId,
    phases::PhasesHandle,
    results::exec_route::WhySync,
    spec::expand::{Expansion, Piece},
};

/// 2 MiB: a command that says more is killed, and ExecSync decides. Outputs are read as they come, as a command that has to
/// wait takes longer than it would.
const MOST_SAID: usize = 2 << 20;

/// 250 ms, or half of the timeout: so long after it was sent, it is asked whether a command runs.
const QUIET: Duration = Duration::from_millis(250);

/// 1 s: how long the shells may take to answer that, and to kill.
const PATIENCE: Duration = Duration::from_secs(1);

/// 50 ms: how long an attempt waits for the one before it. Most commands take a few milliseconds.
const QUEUE: Duration = Duration::from_millis(50);

/// 10 s: how often idle sessions are looked at.
const TIDY: Duration = Duration::from_secs(10);

/// 64 KiB: what an idle session may say. It is said by a process that an earlier command has left behind.
const MOST_STRAY: usize = 64 << 10;

/// 64 bytes: as so many more each message counts, which has to be read, too.
const EACH: usize = 64;

/// A quarter of the descriptors, at most: clients and probes need others.
const SHARE: usize = 4;

/// The sessions of all containers. Clones are the same. Without [`Sessions::keep`], none is opened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sessions(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    book: Mutex<Book<Session>>,
    /// There is one to open.
    wanted: Notify,
    /// One is free again.
    freed: Notify,
    hasher: RandomState,
}

/// One that is open.
#[derive(Debug)]
struct Session {
    line: Line,
    opened: Instant,
    /// The answer to a ping that came too late for its command, if it comes at all.
    late: Option<Nonce>,
}

/// A session in use. Dropped with it, it ends.
#[derive(Debug)]
struct Lease {
    sessions: Sessions,
    container: ContainerId,
    session: Option<Session>,
}

/// What an attempt asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) container: &'a ContainerId,
    pub(super) command: Expansion<'a>,
    pub(super) timeout: Duration,
    /// How often its probe does.
    pub(super) period: Duration,
}

/// How a session decided an attempt.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decided {
    Ended {
        exit_code: i32,
        output: Bytes,
        /// How many bytes the command said.
        said: usize,
    },
    TimedOut,
}

/// Which command an attempt runs, whatever session runs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Print(u64);

/// What runs has ended, or not.
enum Ran {
    Ended(End),
    /// The timeout is over, and the shells are there: it runs on.
    Late(Capture),
}

impl Sessions {
    /// Opens sessions as they are asked for, and closes those that are not needed. `owner`: where this criprobe listens; what its
    /// earlier sessions have left behind in a container ends with the next opening there. Runs until it is dropped.
    pub(crate) async fn keep(&self, channel: &Channel, phases: &PhasesHandle, owner: &str) {
        self.book().limit(descriptors_for(SHARE, MOST));
        let mut openings = FuturesUnordered::new();
        // Of a run of this that panicked.
        self.book().forget_openings(clock::now());
        let mut tidied = time::interval(TIDY);
        loop {
            while let Some(container) = self.book().next_opening(clock::now()) {
                openings.push(async move {
                    let opened = opening::open(channel, phases, owner, &container).await;
                    (container, opened)
                });
            }
            tokio::select! {
                Some((container, opened)) = openings.next() => {
                    let now = clock::now();
                    if let Err(Unopened { why, .. }) = &opened {
                        tracing::debug!(container.id = %container, reason = why.code(), "no exec session");
                    }
                    self.book().opened(&container, opened.map(|line| Session { line, opened: now, late: None }), now);
                }
                () = self.0.wanted.notified() => {}
                () = time::sleep(QUICK), if !openings.is_empty() => {}
                _ = tidied.tick() => self.tidy().await,
            }
        }
    }

    /// Closes what is not needed, and what has ended or prints too much by itself.
    async fn tidy(&self) {
        self.book().tidy(clock::now());
        let idle = self.book().idle();
        for container in idle {
            let session = self.book().take(&container);
            let Some(session) = session else { continue };
            let mut lease = Lease { sessions: self.clone(), container, session: Some(session) };
            if lease.session.as_mut().is_some_and(Session::is_over) {
                lease.end(WhySync::Ended);
            } else {
                lease.give_back();
            }
            task::yield_now().await;
        }
    }

    /// A client stops a container: its session is closed, so that an init does not wait for the shells.
    pub(crate) fn stopping(&self, container: &ContainerId) {
        self.book().stopping(container, clock::now());
    }

    /// What was counted.
    pub(crate) fn counts(&self) -> SessionCounts {
        self.book().counts()
    }

    /// Runs a command by the session of its container. `pending`: what is left to do after the answer.
    ///
    /// # Errors
    /// Why ExecSync has to decide.
    pub(super) async fn attempt(
        &self,
        asked: Asked<'_>,
        pending: &mut Option<PendingCall>,
    ) -> Result<Decided, WhySync> {
        let Asked { container, command, timeout, period } = asked;
        if period > LONGEST_PERIOD {
            return Err(WhySync::LongPeriod);
        }
        let words = script::command(command).ok_or(WhySync::Command)?;
        let print = self.print(command);
        let mut lease = self.lease(container, print).await?;
        match lease.run(&words, timeout).await {
            Ok(Ran::Ended(End { exit_code: GIVEN_UP, .. })) => {
                lease.end(WhySync::Ended);
                Err(WhySync::Ended)
            }
            Ok(Ran::Ended(End { exit_code, output, said, .. })) => {
                lease.give_back();
                match i32::try_from(exit_code) {
                    // 126 and 127 may be the shell's own, and some shells have others for signals.
                    Ok(exit_code @ (0..=125 | 128..=255)) => Ok(Decided::Ended { exit_code, output, said }),
                    _ => {
                        self.book().doubt(container, print.0, WhySync::ExitCode, clock::now());
                        Err(WhySync::ExitCode)
                    }
                }
            }
            Ok(Ran::Late(capture)) => {
                *pending = Some(Box::pin(async move {
                    match lease.kill(capture).await {
                        Ok(()) => lease.give_back(),
                        Err(why) => lease.end(why),
                    }
                }));
                Ok(Decided::TimedOut)
            }
            Err(why) => {
                let of_session = match why {
                    WhySync::TooMuchOutput => {
                        self.book().doubt(container, print.0, why, clock::now());
                        WhySync::Ended
                    }
                    _ => why,
                };
                lease.end(of_session);
                Err(why)
            }
        }
    }

    /// Names a command.
    pub(super) fn print(&self, command: Expansion<'_>) -> Print {
        let words = command.words().map(|word| word.pieces().map(Piece::text).collect::<String>());
        Print(self.0.hasher.hash_one(words.collect::<Vec<_>>()))
    }

    /// ExecSync ran a command, which ended with this code.
    pub(super) fn ran_by_sync(&self, container: &ContainerId, command: Print, exit_code: i32) {
        let mut book = self.book();
        match exit_code {
            126 | 127 => book.doubt(container, command.0, WhySync::ExitCode, clock::now()),
            _ => book.works(container, command.0),
        }
    }

    /// Waits for the session of a container, for a moment.
    async fn lease(&self, container: &ContainerId, command: Print) -> Result<Lease, WhySync> {
        let until = clock::now() + QUEUE;
        loop {
            let freed = self.0.freed.notified();
            let way = self.book().way(container, command.0, clock::now());
            match way {
                Way::Session(session) => {
                    let session = Some(session);
                    return Ok(Lease { sessions: self.clone(), container: container.clone(), session });
                }
                Way::Sync(why) => {
                    self.0.wanted.notify_one();
                    return Err(why);
                }
                Way::Busy => {
                    if time::timeout_at(until.into(), freed).await.is_err() {
                        return Err(WhySync::Busy);
                    }
                }
            }
        }
    }

    fn book(&self) -> MutexGuard<'_, Book<Session>> {
        // A panic while it was held left at worst a session that is shown as in use.
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// Whether it has ended, or says too much by itself.
    fn is_over(&mut self) -> bool {
        let mut stray = 0;
        loop {
            match self.line.stream.try_next() {
                Ok(Some(Came::Said(_, octets))) => stray += EACH + octets.len(),
                Ok(None) => return stray > MOST_STRAY,
                Ok(Some(Came::Status(_))) | Err(Closed) => return true,
            }
            if stray > MOST_STRAY {
                return true;
            }
        }
    }
}

impl Lease {
    /// Runs a command until it ends, or its timeout is over.
    async fn run(&mut self, words: &str, timeout: Duration) -> Result<Ran, WhySync> {
        let session = self.session.as_mut().ok_or(WhySync::Ended)?;
        // What an earlier command has left behind says nothing about this one.
        if session.is_over() {
            return Err(WhySync::Ended);
        }
        let Line { stream, key, runner } = &mut session.line;
        let nonce = Nonce::fresh();
        let line = Ask::Run(words).line(key, &nonce);
        let mut capture = Capture::new(nonce, OUTPUT_LIMIT).after(session.late.take());
        let began = clock::now();
        let over = began + timeout;
        send(stream, &line).await?;
        let mut wait = Wait::Quiet;
        let mut until = began + QUIET.min(timeout / 2);
        while !capture.has_ended() {
            if let Ok(came) = time::timeout_at(until.into(), stream.next()).await {
                take(&mut capture, came)?;
                match wait {
                    // It has been running since then at the latest. When it was started is not known.
                    Wait::Asked if capture.is_answered() => {
                        (wait, until) = (Wait::Sure, clock::now() + timeout);
                    }
                    // The answer passes through the same pipe as the marks, so the command had not ended.
                    Wait::AskedAgain if capture.is_answered() && !capture.has_ended() => {
                        return Ok(Ran::Late(capture));
                    }
                    _ => {}
                }
                continue;
            }
            // Unless they answer once the timeout is over, it is not certain that the command was late: what stood still may
            // have been the runtime, or the stream.
            (wait, until) = match wait {
                Wait::Quiet => (Wait::Asked, over.min(clock::now() + PATIENCE)),
                Wait::Sure => (Wait::AskedAgain, clock::now() + PATIENCE),
                Wait::Asked | Wait::AskedAgain => return Err(WhySync::Silent),
            };
            let pong = Nonce::fresh();
            send(stream, &script::ping(key, *runner, &pong)).await?;
            capture.asked(pong);
        }
        if clock::now() >= over {
            // In time or not: that depends on when it was started.
            return Err(WhySync::Silent);
        }
        session.late = capture.unanswered();
        capture.end().map(Ran::Ended).ok_or(WhySync::Ended)
    }

    /// Kills what runs, and waits for its end.
    async fn kill(&mut self, mut capture: Capture) -> Result<(), WhySync> {
        let Line { stream, key, .. } = &mut self.session.as_mut().ok_or(WhySync::Ended)?.line;
        send(stream, &script::kill(key)).await?;
        let until = clock::now() + PATIENCE;
        while !capture.has_ended() {
            let came =
                time::timeout_at(until.into(), stream.next()).await.map_err(|_elapsed| WhySync::Silent)?;
            take(&mut capture, came)?;
        }
        Ok(())
    }

    fn give_back(mut self) {
        if let Some(session) = self.session.take() {
            self.sessions.book().give_back(&self.container, session);
            self.sessions.0.freed.notify_waiters();
        }
    }

    fn end(mut self, why: WhySync) {
        self.note_end(why);
    }

    fn note_end(&mut self, why: WhySync) {
        if let Some(Session { opened, .. }) = self.session.take() {
            self.sessions.book().ended(&self.container, why, opened, clock::now());
            self.sessions.0.freed.notify_waiters();
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.note_end(WhySync::Ended);
    }
}

/// How long a command has been running, and what is known of the shells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Not for long.
    Quiet,
    /// They were asked.
    Asked,
    /// They are there.
    Sure,
    /// They were asked again, when the timeout was over.
    AskedAgain,
}

async fn send(stream: &mut Stream, text: &str) -> Result<(), WhySync> {
    let sent = time::timeout(PATIENCE, stream.send(text)).await;
    sent.map_err(|_elapsed| WhySync::Silent)?.map_err(|Closed| WhySync::Ended)
}

fn take(capture: &mut Capture, came: Result<Came, Closed>) -> Result<(), WhySync> {
    match came {
        Ok(Came::Said(output, octets)) => capture.take(output, &octets).map_err(|_| WhySync::Ended)?,
        Ok(Came::Status(_)) | Err(Closed) => return Err(WhySync::Ended),
    }
    if capture.said() + EACH * capture.messages() > MOST_SAID { Err(WhySync::TooMuchOutput) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
