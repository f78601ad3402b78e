//! What can go wrong for a client of the daemon; each is one line for a person and one exit code.

use std::io;

use super::{Exit, endpoint::Endpoint};

/// Why a verb could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The user's: an argument, as seen here or by the daemon.
    #[error("{0}")]
    Usage(String),
    /// Nobody answers, or somebody else does.
    #[error("cannot reach the daemon at {endpoint}: {reason}")]
    Unreachable {
        /// Where it was looked for.
        endpoint: Endpoint,
        /// What came instead, and what to do.
        reason: String,
    },
    /// It will not do that now; it said why.
    #[error("{0}")]
    Declined(String),
    /// It answered, but not with what was asked for.
    #[error("the daemon reported an error: {0}")]
    Refused(String),
    /// A stream ended that should have gone on.
    #[error("the daemon at {0} closed the stream: it has stopped or is restarting")]
    Ended(Endpoint),
    /// What was asked for cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

impl Error {
    /// Says it on standard error in one line. A reader of ours that has left is no error: nothing is said.
    pub(super) fn tell(&self) -> Exit {
        if matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe) {
            return Exit::Fine;
        }
        let exit = match self {
            Self::Usage(_) => Exit::Usage,
            Self::Unreachable { .. } | Self::Ended(_) => Exit::Unreachable,
            Self::Declined(_) | Self::Refused(_) | Self::Output(_) => Exit::Failed,
        };
        exit.because(self)
    }
}
