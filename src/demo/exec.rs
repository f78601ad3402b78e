//! Commands in containers, and ExecSync: a command in, its outputs and exit code out. The command runs in its container's folder with the
//! container's environment, in its own process group. When the call ends, by its result, its timeout or a client that
//! disconnects, the whole group ends.

use std::{convert::Infallible, future, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    time::timeout,
};
use tonic::Status;

use super::{
    envelope::{self, ExecStep},
    ids,
    node::Node,
    place,
    process::{ExitCode, Group, Launch, Process},
    state::Run,
};
use crate::{clock, ids::ContainerId, proto::cri};

/// 16 MiB of each output are kept, as containerd does; the rest is read and dropped.
const MAX_OUTPUT: usize = 16 << 20;

/// 64 KiB are read at once: what a pipe holds.
const READ: usize = 64 << 10;

impl Node {
    /// Runs a command in a container.
    ///
    /// # Errors
    /// NotFound; InvalidArgument without a command; Unknown when the container does not run or the command cannot be
    /// started, also because the container is paused; DeadlineExceeded when the timeout passed.
    pub(super) async fn exec_sync(
        &self,
        request: &cri::ExecSyncRequest,
    ) -> Result<cri::ExecSyncResponse, Status> {
        let (process, run, mut command) = self.start_exec(&request.container_id, &request.cmd, false)?;
        let running = async move {
            let result = finish(process, run).await;
            command.exit_code = result.as_ref().map_or(KILLED, |result| result.exit_code);
            drop(command);
            result
        };
        let Some(limit) = u64::try_from(request.timeout).ok().filter(|seconds| *seconds > 0) else {
            return running.await;
        };
        // When the time is up the future is dropped, and the group killed with it.
        timeout(Duration::from_secs(limit), running).await.unwrap_or_else(|_| {
            let limit = seconds(limit);
            let message =
                format!("failed to exec in container: timeout {limit} exceeded: context deadline exceeded");
            Err(Status::deadline_exceeded(message))
        })
    }

    /// Starts a command in the container that `text` names.
    ///
    /// # Errors
    /// Those of `exec_sync`, but for its timeout.
    pub(super) fn start_exec(
        &self,
        text: &str,
        argv: &[String],
        has_input: bool,
    ) -> Result<(Process, Run, Command<'_>), Status> {
        if argv.is_empty() {
            return Err(Status::invalid_argument("failed to exec in container: no command specified"));
        }
        let mut state = self.state();
        let container = state.container(text).map_err(|_| {
            let message =
                format!("failed to exec in container: failed to find container {text:?} in store: not found");
            Status::not_found(message)
        })?;
        let run = container.run().ok_or_else(|| {
            let name = container.cri_state().as_str_name();
            Status::unknown(format!("failed to exec in container: container is in {name} state"))
        })?;
        if *run.paused.borrow() {
            let id = ids::fresh();
            let message = format!(
                "failed to exec in container: failed to start exec {id:?}: cannot exec in a paused state: unknown"
            );
            return Err(Status::unknown(message));
        }
        state.admit()?;
        let folder = place::work_folder(&container.folder, &container.config);
        let env = place::environment(&folder, &container.config, &self.search_path);
        let launch = Launch { argv, env: &env, folder: &folder, has_input };
        let (run, container, id) = (run.clone(), container.id.clone(), ids::fresh());
        let mut report = |step| {
            state.subscribers.containerd.send(&envelope::of_exec(&container, &id, step, clock::wall()));
        };
        report(ExecStep::Added);
        let process = Process::start(launch, &self.guard).map_err(|error| {
            Status::unknown(format!("failed to exec in container: failed to start exec: {error}"))
        })?;
        report(ExecStep::Started { pid: process.group().pid().cast_unsigned() });
        Ok((process, run, Command { node: self, container, id, exit_code: KILLED }))
    }
}

/// 128 and the number of SIGKILL: how a command ends whose caller gives up.
const KILLED: i32 = 137;

/// A command that runs. Dropped, it has exited.
pub(super) struct Command<'a> {
    node: &'a Node,
    container: ContainerId,
    id: String,
    /// How it has ended.
    pub(super) exit_code: i32,
}

impl Drop for Command<'_> {
    fn drop(&mut self) {
        let exited = ExecStep::Exited { exit_status: self.exit_code.cast_unsigned() };
        let event = envelope::of_exec(&self.container, &self.id, exited, clock::wall());
        self.node.state().subscribers.containerd.send(&event);
    }
}

async fn finish(mut process: Process, run: Run) -> Result<cri::ExecSyncResponse, Status> {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let (group, outputs) = (process.group(), process.take_output());
    let reading = async {
        if let Some((out, err)) = outputs {
            tokio::join!(keep(out, &mut stdout), keep(err, &mut stderr));
        }
    };
    let code = end_in(&run, &group, process.end_while(reading)).await;
    let ExitCode(exit_code) =
        code.map_err(|error| Status::unknown(format!("failed to exec in container: {error}")))?;
    Ok(cri::ExecSyncResponse { stdout, stderr, exit_code })
}

/// Waits for the end of a command of a container that runs: its container's end is its own end, as with a shared pid
/// namespace.
pub(super) async fn end_in<T>(run: &Run, group: &Group, ending: impl Future<Output = T>) -> T {
    let with_container = async {
        run.ended.cancelled().await;
        group.kill();
        future::pending::<Infallible>().await
    };
    let end = tokio::select! {
        end = ending => end,
        never = with_container => match never {},
    };
    // It is frozen with its container, and ends after that.
    not_paused(run).await;
    end
}

/// Waits until a container is not paused. Its end is the end of its pause.
pub(super) async fn not_paused(run: &Run) {
    let mut paused = run.paused.subscribe();
    tokio::select! {
        _ = paused.wait_for(|is_paused| !is_paused) => {}
        () = run.ended.cancelled() => {}
    }
}

async fn keep(mut pipe: impl AsyncRead + Unpin, kept: &mut Vec<u8>) {
    let mut chunk = Vec::with_capacity(READ);
    while pipe.read_buf(&mut chunk).await.is_ok_and(|read| read > 0) {
        let room = MAX_OUTPUT - kept.len();
        kept.extend_from_slice(&chunk[..chunk.len().min(room)]);
        chunk.clear();
    }
}

/// Whole seconds as Go prints a duration, which containerd's messages hold: `90` is `1m30s`.
fn seconds(total: u64) -> String {
    let (hours, minutes, seconds) = (total / 3600, total / 60 % 60, total % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_gos() {
        let cases = [(1, "1s"), (59, "59s"), (60, "1m0s"), (90, "1m30s"), (3600, "1h0m0s"), (3661, "1h1m1s")];
        for (total, expected) in cases {
            assert_eq!(seconds(total), expected);
        }
    }

    #[tokio::test]
    async fn output_beyond_the_bound_is_read_and_dropped() {
        let mut kept = vec![0; MAX_OUTPUT - 3];
        keep(&b"abcdef"[..], &mut kept).await;
        assert_eq!(kept.len(), MAX_OUTPUT);
        assert!(kept.ends_with(b"\0abc"));
    }
}
