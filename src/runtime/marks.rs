//! What the runtime reports of the commands that run in containers: added, started, exited. Only containerd does. In: its
//! events. Out: [`ExecNews`], to whoever listens.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use prost::Message;
use prost_types::Timestamp;

use crate::{
    ids::ContainerId,
    proto::containerd::events::{TaskExecAdded, TaskExecStarted, TaskExit},
};

/// 256 bytes: the longest id that is accepted; runtimes use 64. An event with a longer one counts as missed.
pub(super) const MAX_ID: usize = 256;

/// 64 hexadecimal digits: what containerd names the commands of CRI calls. Others were not run by a CRI call.
const CRI_EXEC: usize = 64;

/// The year 5138: what is said to have happened later did not.
const LATEST: Duration = Duration::from_secs(100_000_000_000);

/// One step of a command in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExecMark {
    pub container: ContainerId,
    /// The runtime's name of it, unique in its container.
    pub exec: Box<str>,
    /// By the clock of the process that saw it, which is one of this node.
    pub at: SystemTime,
    pub kind: MarkKind,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MarkKind {
    /// The runtime took it up.
    Added,
    /// Its process runs.
    Started {
        /// As the runtime's pid namespace numbers it.
        pid: u32,
    },
    /// Its process ended.
    Exited {
        /// 128 and the signal's number if a signal ended it.
        status: u32,
    },
}

/// What listeners are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExecNews {
    /// From now on, all marks are reported.
    Subscribed,
    Mark(ExecMark),
    /// From now on, marks may be missing.
    Lost,
}

/// Passes news on; clones pass to the same.
#[derive(Clone)]
pub(crate) struct ExecNewsSink(Arc<dyn Fn(ExecNews) + Send + Sync>);

impl ExecNewsSink {
    /// `take` must be quick: the runtime's events wait for it.
    pub(crate) fn new(take: impl Fn(ExecNews) + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    pub(super) fn pass(&self, news: ExecNews) {
        (self.0)(news);
    }
}

impl fmt::Debug for ExecNewsSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExecNewsSink")
    }
}

/// Reads an event of containerd, and when it was sent. None of what is no step of a CRI call's command.
pub(super) fn of_containerd(topic: &str, sent: Option<&Timestamp>, payload: &[u8]) -> Option<ExecMark> {
    let (container, exec, at, kind) = match topic {
        "/tasks/exec-added" => {
            let added = TaskExecAdded::decode(payload).ok()?;
            (added.container_id, added.exec_id, wall(sent?)?, MarkKind::Added)
        }
        "/tasks/exec-started" => {
            let started = TaskExecStarted::decode(payload).ok()?;
            let kind = MarkKind::Started { pid: started.pid };
            (started.container_id, started.exec_id, wall(sent?)?, kind)
        }
        "/tasks/exit" => {
            let exit = TaskExit::decode(payload).ok()?;
            let kind = MarkKind::Exited { status: exit.exit_status };
            (exit.container_id, exit.id, wall(exit.exited_at.as_ref().or(sent)?)?, kind)
        }
        _ => return None,
    };
    let is_command = exec != container && is_of_cri(&exec) && container.len() <= MAX_ID;
    is_command.then(|| ExecMark { container: container.into(), exec: exec.into(), at, kind })
}

fn is_of_cri(exec: &str) -> bool {
    exec.len() == CRI_EXEC && exec.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// None of a time before 1970, or one that no clock shows.
fn wall(at: &Timestamp) -> Option<SystemTime> {
    let (seconds, nanos) = (u64::try_from(at.seconds).ok()?, u32::try_from(at.nanos).ok()?);
    let since = Duration::new(seconds, nanos);
    UNIX_EPOCH.checked_add(since).filter(|_| since < LATEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXEC: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn at(seconds: i64, nanos: i32) -> Timestamp {
        Timestamp { seconds, nanos }
    }

    fn read(topic: &str, payload: &impl Message) -> Option<(String, MarkKind, Duration)> {
        let mark = of_containerd(topic, Some(&at(100, 5)), &payload.encode_to_vec())?;
        let since = mark.at.duration_since(UNIX_EPOCH).unwrap();
        Some((format!("{}/{}", mark.container.as_str(), &mark.exec[..4]), mark.kind, since))
    }

    #[test]
    fn the_three_steps_of_a_command_are_read() {
        let (container_id, exec_id) = ("c".to_owned(), EXEC.to_owned());
        let added = TaskExecAdded { container_id: container_id.clone(), exec_id: exec_id.clone() };
        let started =
            TaskExecStarted { container_id: container_id.clone(), exec_id: exec_id.clone(), pid: 7 };
        let exit =
            TaskExit { container_id, id: exec_id, pid: 7, exit_status: 137, exited_at: Some(at(99, 0)) };
        let (sent, name) = (Duration::new(100, 5), "c/e3b0".to_owned());
        let exited = MarkKind::Exited { status: 137 };
        assert_eq!(read("/tasks/exec-added", &added), Some((name.clone(), MarkKind::Added, sent)));
        assert_eq!(
            read("/tasks/exec-started", &started),
            Some((name.clone(), MarkKind::Started { pid: 7 }, sent))
        );
        assert_eq!(read("/tasks/exit", &exit), Some((name.clone(), exited, Duration::from_secs(99))));
        let unknown_time = TaskExit { exited_at: None, ..exit.clone() };
        assert_eq!(read("/tasks/exit", &unknown_time), Some((name, exited, sent)));
    }

    #[test]
    fn what_is_no_command_of_a_cri_call_is_left_out() {
        let exit = |id: &str| TaskExit { container_id: "c".into(), id: id.into(), ..Default::default() };
        for id in ["c", "exec-1", &EXEC[1..], &EXEC.replace('e', "z")] {
            assert_eq!(read("/tasks/exit", &exit(id)), None, "{id}");
        }
        assert_eq!(read("/tasks/start", &exit(EXEC)), None);
        assert_eq!(of_containerd("/tasks/exit", None, &exit(EXEC).encode_to_vec()), None);
        assert_eq!(of_containerd("/tasks/exec-added", Some(&at(1, 0)), &[0xff]), None);
        for wrong in [at(-1, 0), at(0, -1), at(i64::MAX, 0)] {
            assert_eq!(of_containerd("/tasks/exit", Some(&wrong), &exit(EXEC).encode_to_vec()), None);
        }
    }
}
