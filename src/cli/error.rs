//! What can go wrong for a client of the daemon; each is one line for a person and one exit code.

use std::io;

use super::{Exit, endpoint::Endpoint};

/// Why a verb failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The user's: an argument, as seen here or by the daemon.
    #[error("{0}")]
    Usage(String),
    /// There was no answer, or not from criprobe.
    #[error("cannot reach the daemon at {endpoint}: {reason}")]
    Unreachable {
        /// Where it was looked for.
        endpoint: Endpoint,
        /// The reason, and what to do.
        reason: String,
    },
    /// The daemon refused the request for now, with a reason.
    #[error("{0}")]
    Declined(String),
    /// The attempt that was asked for was not made, with a reason.
    #[error("{0}")]
    NotTried(String),
    /// The daemon answered with an error.
    #[error("the daemon reported an error: {0}")]
    Refused(String),
    /// A stream ended that should have gone on.
    #[error("the daemon at {0} closed the stream: it has stopped or is restarting")]
    Ended(Endpoint),
    /// The output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

impl Error {
    /// Of a request for an attempt: one that is refused for now means that the attempt was not made.
    pub(super) fn not_tried(self) -> Self {
        match self {
            Self::Declined(reason) => Self::NotTried(reason),
            other => other,
        }
    }

    /// Whether it may pass by itself, as it does when the daemon is restarted.
    pub(super) fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Refused(_) | Self::Ended(_))
    }

    /// Prints the error in one line on standard error. If the reader of our output has left, this is not an error, and
    /// nothing is printed.
    pub(super) fn report(&self) -> Exit {
        if matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe) {
            return Exit::Fine;
        }
        let exit = match self {
            Self::Usage(_) => Exit::Usage,
            Self::Unreachable { .. } | Self::Ended(_) => Exit::Unreachable,
            Self::NotTried(_) => Exit::NotTried,
            Self::Declined(_) | Self::Refused(_) | Self::Output(_) => Exit::Failed,
        };
        exit.because(self)
    }
}
