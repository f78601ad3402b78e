//! A child process that leads its own group. A command in, its end out; the rest of the group is killed when the leader
//! ends, or when its owner is dropped. Knows nothing about containers.
//!
//! A group's number is safe to signal only while its leader is not reaped, so reaping and signalling share a lock, and
//! the group is always killed before its leader is reaped. A process that leaves its group (`setsid`) escapes this.

use std::{
    ffi::OsString,
    io,
    path::Path,
    pin::pin,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use std::os::unix::process::ExitStatusExt as _;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};
use tokio::{
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    signal::unix::{Signal as SignalStream, SignalKind, signal},
    time::timeout,
};

use super::guard::Guard;

/// 200 ms from the end of a group to the end of its outputs; only a process that left the group can hold them longer,
/// and what it writes then is lost.
pub(super) const OUTPUT_GRACE: Duration = Duration::from_millis(200);

/// What to run.
#[derive(Clone, Copy)]
pub(super) struct Launch<'a> {
    /// The program, looked up in the environment's PATH, and its arguments; at least one element.
    pub(super) argv: &'a [String],
    /// All of its environment.
    pub(super) env: &'a [(OsString, OsString)],
    /// Where it runs; has to exist.
    pub(super) folder: &'a Path,
    /// Whether its input is a pipe; otherwise it is empty.
    pub(super) has_input: bool,
}

/// A running leader with its group. Dropping it kills the group.
pub(super) struct Process {
    child: Child,
    group: Group,
    children: SignalStream,
}

impl Process {
    /// Starts it, with its outputs piped.
    ///
    /// # Errors
    /// What starting it brought, in the words of runc: `exec: "x": executable file not found in $PATH`.
    pub(super) fn start(launch: Launch<'_>, guard: &Arc<Guard>) -> io::Result<Self> {
        let (program, args) =
            launch.argv.split_first().ok_or_else(|| io::Error::other("no command specified"))?;
        // Subscribed before the start: an end in between must not be missed.
        let children = signal(SignalKind::child())?;
        let child = Command::new(program)
            .args(args)
            .env_clear()
            .envs(launch.env.iter().map(|(key, value)| (key, value)))
            .current_dir(launch.folder)
            .stdin(if launch.has_input { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| explain(program, launch.folder, error))?;
        let leader = child.id().and_then(|id| Pid::from_raw(id.cast_signed())).ok_or_else(no_leader)?;
        Ok(Self { child, group: Group::new(leader, guard.clone()), children })
    }

    /// Its group, for signals.
    pub(super) fn group(&self) -> Group {
        self.group.clone()
    }

    /// The pipe that it reads from, if it has one; `None` the second time. Dropped, its input has ended.
    pub(super) fn take_input(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// The pipes that it writes to; `None` the second time.
    pub(super) fn take_output(&mut self) -> Option<(ChildStdout, ChildStderr)> {
        self.child.stdout.take().zip(self.child.stderr.take())
    }

    /// Waits for the leader's end while `reading` takes its outputs, and gives that 200 ms to see their end.
    ///
    /// # Errors
    /// As `end`.
    pub(super) async fn end_while(&mut self, reading: impl Future<Output = ()>) -> io::Result<ExitCode> {
        let mut reading = pin!(reading);
        let mut is_read = false;
        let code = loop {
            tokio::select! {
                code = self.end() => break code?,
                () = &mut reading, if !is_read => is_read = true,
            }
        };
        if !is_read && timeout(OUTPUT_GRACE, reading).await.is_err() {
            tracing::debug!(pid = self.group.pid(), "outputs are held open by a process that left the group");
        }
        Ok(code)
    }

    /// Waits for the leader's end, then kills what is left of its group. May be dropped and called again.
    ///
    /// # Errors
    /// When somebody else reaped the leader.
    pub(super) async fn end(&mut self) -> io::Result<ExitCode> {
        while !self.group.is_over() {
            self.children.recv().await;
        }
        let status = self.group.close(|| self.child.try_wait())?;
        status.map(ExitCode::from).ok_or_else(no_leader)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // tokio reaps it, once it is dead.
        self.group.close(|| ());
    }
}

/// How a process ended, as a shell reports it: its exit code, or 128 and the number of the signal that killed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExitCode(pub(super) i32);

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()))
    }
}

/// A process group that can be signalled for as long as its leader is not reaped; afterwards signals go nowhere.
#[derive(Clone)]
pub(super) struct Group {
    leader: Pid,
    open: Arc<Mutex<bool>>,
    guard: Arc<Guard>,
}

impl Group {
    fn new(leader: Pid, guard: Arc<Guard>) -> Self {
        guard.add(leader);
        Self { leader, open: Arc::new(Mutex::new(true)), guard }
    }

    /// The leader's process id.
    pub(super) fn pid(&self) -> i32 {
        self.leader.as_raw_nonzero().get()
    }

    /// Asks the leader to end, as a runtime asks a container's first process.
    pub(super) fn terminate(&self) {
        self.with_open(|leader| kill_process(leader, Signal::TERM));
    }

    /// Kills every process of the group.
    pub(super) fn kill(&self) {
        self.with_open(|leader| kill_process_group(leader, Signal::KILL));
    }

    /// Freezes every process of the group, or has them run on.
    pub(super) fn freeze(&self, is_frozen: bool) {
        let signal = if is_frozen { Signal::STOP } else { Signal::CONT };
        self.with_open(|leader| kill_process_group(leader, signal));
    }

    fn with_open(&self, send: impl FnOnce(Pid) -> rustix::io::Result<()>) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if *open && let Err(error) = send(self.leader) {
            tracing::debug!(%error, pid = self.pid(), "signal was not delivered");
        }
    }

    /// Whether the leader has ended, reaped or not.
    fn is_over(&self) -> bool {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !*open || !matches!(waitid(WaitId::Pid(self.leader), peek), Ok(None))
    }

    /// Kills the rest of the group and reaps its leader, in this order and as one step.
    fn close<T>(&self, reap: impl FnOnce() -> T) -> T {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if *open {
            // An error says that there is no one left, which is what is wanted.
            let _ = kill_process_group(self.leader, Signal::KILL);
            self.guard.remove(self.leader);
            *open = false;
        }
        reap()
    }
}

fn explain(program: &str, folder: &Path, error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotFound if !folder.is_dir() => {
            io::Error::new(error.kind(), "the container's working folder is gone")
        }
        io::ErrorKind::NotFound => {
            io::Error::new(error.kind(), format!("exec: {program:?}: executable file not found in $PATH"))
        }
        io::ErrorKind::PermissionDenied => {
            io::Error::new(error.kind(), format!("exec: {program:?}: permission denied"))
        }
        _ => error,
    }
}

fn no_leader() -> io::Error {
    io::Error::other("the process was reaped by somebody else")
}
