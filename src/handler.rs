//! The handlers of a probe: a target and a limit in, an outcome out. They know no pods, no schedule, no thresholds,
//! and never try twice.

pub mod dial;
pub mod exec;
pub mod go;
pub mod grpc;
pub mod http;
pub mod lookup;
pub mod tcp;
mod watched;

use bytes::Bytes;

use crate::results::AttemptResult;

/// 10 KiB: what the kubelet keeps of a probe's output (docs/kubelet-prober.md 6.2). The rest is cut off.
pub const OUTPUT_LIMIT: usize = 10_240;

/// What an attempt says of the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How it went.
    pub judgement: Judgement,
    /// What it said, at most [`OUTPUT_LIMIT`] bytes.
    pub output: Bytes,
    /// Of the command, where there was one and it ended.
    pub exit_code: Option<i32>,
    /// Of the HTTP answer, where there was one that was judged.
    pub status: Option<u16>,
}

impl Outcome {
    /// A success with nothing to say.
    pub fn success() -> Self {
        Self::of(Judgement::Success, Bytes::new())
    }

    /// A failure for a reason that we put into words.
    pub fn failure(text: String) -> Self {
        Self::of(Judgement::Failure, text.into())
    }

    /// A judgement with what was said, cut to [`OUTPUT_LIMIT`], and without exit code and status.
    pub fn of(judgement: Judgement, mut output: Bytes) -> Self {
        if output.len() > OUTPUT_LIMIT {
            // A copy, so that what is cut off is let go.
            output = Bytes::copy_from_slice(&output[..OUTPUT_LIMIT]);
        }
        Self { judgement, output, exit_code: None, status: None }
    }
}

/// What an attempt that could be made found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// As hoped.
    Success,
    /// As hoped, with a doubt.
    Warning,
    /// The container failed it.
    Failure,
}

impl From<Judgement> for AttemptResult {
    fn from(judgement: Judgement) -> Self {
        match judgement {
            Judgement::Success => Self::Success,
            Judgement::Warning => Self::Warning,
            Judgement::Failure => Self::Failure,
        }
    }
}

/// Why an attempt could not be made, and so says nothing of the container. The texts appear in events.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The runtime refused; the text is what a Go client prints of a gRPC status.
    #[error("rpc error: code = {code} desc = {message}")]
    Runtime {
        /// The code's name as Go spells it.
        code: String,
        /// The runtime's own words.
        message: String,
    },
    /// The runtime was silent past the timeout and the grace that it gets.
    #[error("runtime did not answer")]
    Unanswered,
    /// The target could not be told: no address, no such port, no allowance.
    #[error("{0}")]
    Target(String),
    /// The server answered, and the body of its answer could not be read.
    #[error("{0}")]
    Body(String),
}

impl Fault {
    /// Whether another try at once may help. After a silence it would only hold a worker for as long again.
    pub fn is_worth_another_try(&self) -> bool {
        !matches!(self, Self::Unanswered)
    }

    /// The state that the kubelet's event names beside an error (docs/kubelet-prober.md 5): that of its low-level
    /// result.
    pub fn state(&self) -> &'static str {
        match self {
            Self::Runtime { .. } | Self::Unanswered | Self::Target(_) => "unknown",
            Self::Body(_) => "failure",
        }
    }
}
