//! One call of a client in the API, after it has ended.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{PhasesView, Seconds, Time};
use crate::tap::{CallEnd, Code};

/// 24 bytes: the least that an allocator takes for a text.
const WORD: usize = 24;

/// One call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallView {
    /// Its connection and its stream, `12-345`: unique until criprobe starts again. The end of the process of an Exec has that
    /// of the Exec. Absent of calls that were recorded before calls had one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// When it began.
    pub at: Time,
    /// From its first byte to its end.
    pub duration_seconds: Seconds,
    /// `runtime.v1.RuntimeService`.
    pub service: String,
    /// `ExecSync`.
    pub method: String,
    /// gRPC's name of the code, `OK`; empty where no answer came.
    pub code: String,
    /// gRPC's message; mostly of errors.
    pub message: String,
    /// How it ended.
    pub end: CallEnd,
    /// Who called.
    pub peer: PeerView,
    /// Bytes of its request messages.
    pub request_bytes: u64,
    /// Bytes of its answer's messages.
    pub response_bytes: u64,
    /// Of the pod that it is about; empty where it is about none, or that is not known.
    pub namespace: String,
    /// That pod's name.
    pub pod: String,
    /// The container that it is about.
    pub container: String,
    /// That container's id.
    pub container_id: String,
    /// What was run, of ExecSync and Exec; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecView>,
    /// Whether it only opened a stream (Exec, Attach, PortForward), which the runtime serves itself; absent otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stream_opened: bool,
    /// Of the end of the process of an Exec, which is a record of its own; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionView>,
    /// The W3C trace context that came with the call; empty where none did.
    pub traceparent: String,
}

/// The process of an Exec has ended: `at` and the duration are the process's, not the call's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionView {
    /// When the Exec began that opened its stream.
    pub opened_at: Time,
}

/// The process at the other end of a connection, as it was when it connected.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PeerView {
    /// 0 if the kernel does not report it: a process of another pid namespace.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
    /// Its name, as the kernel has it: at most 15 bytes.
    pub comm: String,
}

/// A command that was run in a container. Exec has no result: the runtime serves that stream itself. The record of its end
/// has an exit code.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecView {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// As the client asked; 0 for none; absent for Exec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i64>,
    /// Absent where there was no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Absent where there was no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout_bytes: Option<u64>,
    /// Absent where there was no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_bytes: Option<u64>,
    /// The beginning of its standard output; absent where that is not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// The same of its standard error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// Where its time went; absent where that is not known. Of ExecSync on containerd only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phases: Option<PhasesView>,
    /// Why its phases are not known, in words of a closed set; absent where they are. Of ExecSync only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phases_unknown: Option<Cow<'static, str>>,
    /// What took so long, in words; absent where that is not known, or where it was quick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub culprit: Option<String>,
}

impl CallView {
    /// 1,000 calls are kept at most.
    pub(crate) const KEPT: usize = 1_000;

    /// Whether its code is gRPC's OK.
    pub fn is_ok(&self) -> bool {
        self.code == Code::OK.name()
    }

    /// Whether it ended in any other way than well: no answer, an error, or a command with an exit code other than 0.
    pub fn is_failed(&self) -> bool {
        self.end != CallEnd::Complete
            || !self.is_ok()
            || self.exec.as_ref().is_some_and(|exec| exec.exit_code.is_some_and(|code| code != 0))
    }

    /// What it takes, in bytes.
    pub fn size(&self) -> usize {
        let texts = [
            &self.id,
            &self.service,
            &self.method,
            &self.code,
            &self.message,
            &self.peer.comm,
            &self.namespace,
            &self.pod,
            &self.container,
            &self.container_id,
            &self.traceparent,
        ];
        let command = self.exec.iter().flat_map(|exec| &exec.command);
        let outputs = self.exec.iter().flat_map(|exec| [&exec.stdout, &exec.stderr]).flatten();
        size_of::<Self>()
            + texts.into_iter().map(String::len).sum::<usize>()
            + outputs.map(String::len).sum::<usize>()
            + command.map(|word| size_of::<String>() + WORD.max(word.len())).sum::<usize>()
    }
}
