//! What operators may want of one probe, and why it may be refused. Only shapes: the roster does it.

use super::pauses::PauseTerms;
use crate::results::AttemptRecord;

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ProbeCommand {
    /// No attempts until it is resumed; the verdict stays. Binds to the key, so it outlives the container.
    Pause(PauseTerms),
    /// Attempts again; the first is due at once.
    Resume,
    /// One attempt now, instead of at the next tick.
    Trigger,
}

/// What became of an attempt that an operator waited for.
#[derive(Clone, Debug, PartialEq)]
pub enum TriggerEnd {
    /// It was made.
    Made(AttemptRecord),
    /// It was not, or not to its end, and why.
    NotMade(String),
}

/// Why nothing was done. All are the operator's to mend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandRefusal {
    /// Nothing has this key.
    #[error("there is no such probe")]
    Unknown,
    /// It cannot run at all.
    #[error("the probe is invalid: {0}")]
    Invalid(String),
    /// It cannot be attempted now.
    #[error("no attempt is possible now: {0}")]
    NotNow(String),
}
