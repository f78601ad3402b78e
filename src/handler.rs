//! The handlers of a probe: a target and a limit in, an outcome out. Of a pod they know only the uid, and
//! nothing about schedules or thresholds. They never try twice.

pub(crate) mod cpu;
pub(crate) mod dial;
pub(crate) mod exec;
pub(crate) mod go;
pub(crate) mod grpc;
pub(crate) mod http;
pub(crate) mod lookup;
pub(crate) mod tcp;
pub(crate) mod trouble;
mod watched;

use std::fmt;

use crate::results::{
    AttemptResult,
    text::{BoundedText, TEXT_LIMIT},
};

/// How much of an output is read.
const OUTPUT_LIMIT: usize = TEXT_LIMIT;

/// What an attempt says of the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// How it went.
    pub judgement: Judgement,
    /// What it said.
    pub output: BoundedText,
    /// Of the command, where there was one and it ended.
    pub exit_code: Option<i32>,
    /// Of the HTTP answer, where there was one that was judged.
    pub status: Option<u16>,
}

impl Outcome {
    /// A success with nothing to say.
    pub(crate) fn success() -> Self {
        Self::of(Judgement::Success, BoundedText::default())
    }

    /// A failure for a reason that we put into words.
    pub(crate) fn failure(text: impl Into<BoundedText>) -> Self {
        Self::of(Judgement::Failure, text)
    }

    /// A judgement with what was said, and without exit code and status.
    pub(crate) fn of(judgement: Judgement, output: impl Into<BoundedText>) -> Self {
        Self { judgement, output: output.into(), exit_code: None, status: None }
    }
}

/// What an attempt that could be made found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
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

/// Why an attempt could not be made, and so says nothing of the container. The texts appear in events; each is bounded
/// when the fault is made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// The runtime refused; the text is what a Go client prints of a gRPC status.
    #[error("rpc error: code = {code} desc = {message}")]
    Runtime {
        /// The code's name as Go spells it.
        code: &'static str,
        /// The runtime's own words.
        message: BoundedText,
    },
    /// The runtime could not be reached, or the connection to it broke; the text says why in words.
    #[error("the runtime is away: {0}")]
    Away(BoundedText),
    /// The runtime answers no call, also not when it is asked whether it is there.
    #[error("the runtime is away: it does not answer")]
    Silent,
    /// The runtime was silent past the time that it gets, or in the middle of its answer, but answers other calls; the text
    /// says what that means.
    #[error("{0}")]
    Unanswered(BoundedText),
    /// There is no target: no address, no such port, no allowance.
    #[error("{0}")]
    Target(BoundedText),
    /// The server answered, and the body of its answer could not be read.
    #[error("{0}")]
    Body(BoundedText),
    /// The node or criprobe itself ran out of something, or may not do it: descriptors, memory, ports, permissions.
    #[error("criprobe could not make the attempt: {0}")]
    Ours(BoundedText),
}

impl Fault {
    /// There is no target, for this reason.
    pub(crate) fn target(reason: impl fmt::Display) -> Self {
        Self::Target(BoundedText::of(reason))
    }

    /// Whether another try at once may help. After a silence it would only hold a worker for as long again, and what is
    /// used up is not there a moment later.
    pub(crate) fn is_worth_another_try(&self) -> bool {
        !matches!(self, Self::Silent | Self::Unanswered(_) | Self::Ours(_))
    }

    /// The state that the kubelet's event names beside an error (docs/kubelet-prober.md 5): that of its low-level
    /// result.
    pub(crate) fn state(&self) -> &'static str {
        match self {
            Self::Runtime { .. }
            | Self::Away(_)
            | Self::Silent
            | Self::Unanswered(_)
            | Self::Target(_)
            | Self::Ours(_) => "unknown",
            Self::Body(_) => "failure",
        }
    }
}
