//! The route of a command of a probe into its container: session or ExecSync. Plain values.

use std::fmt;

/// The route of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ExecRoute {
    /// By ExecSync, as was asked for.
    Sync,
    /// By an exec session, as was asked for.
    Session,
    /// By ExecSync although a session was asked for.
    Fallback(WhySync),
}

/// Why a session did not serve an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WhySync {
    /// No session runs a command that the runtime has not started once.
    FirstAttempt,
    /// The session is not open yet.
    Opening,
    /// The image has no `sh`.
    NoShell,
    /// The runtime has no streaming server, or refused the call.
    NoStreaming,
    /// The streaming server is not on this node, or asks for TLS.
    StreamingAddress,
    /// The stream could not be opened, or is not one of the protocols that we know.
    StreamRefused,
    /// What runs as `sh` is no shell as POSIX has it, or says something by itself.
    Shell,
    /// Commands would get another environment from the shell than from the runtime.
    Environment,
    /// The session ended, in the middle of a command or between two.
    Ended,
    /// The session did not answer: its processes are frozen, stopped, or starved.
    Silent,
    /// Another probe's command was running.
    Busy,
    /// 126, 127 or more than 255: the code may be the shell's own.
    ExitCode,
    /// The command said more than a session passes on.
    TooMuchOutput,
    /// The command cannot be said to a shell.
    Command,
    /// A session would be closed as idle before its probe uses it again.
    LongPeriod,
    /// There are as many sessions as there may be.
    TooManySessions,
    /// The operator has switched sessions off.
    Off,
}

impl ExecRoute {
    /// `session` or `sync`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Sync | Self::Fallback(_) => "sync",
        }
    }

    /// Why it is not the route that was asked for.
    pub fn why_sync(self) -> Option<WhySync> {
        match self {
            Self::Fallback(why) => Some(why),
            Self::Sync | Self::Session => None,
        }
    }
}

/// `session`, `sync`, `sync (no shell in the image)`.
impl fmt::Display for ExecRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why_sync() {
            Some(why) => write!(f, "{} ({why})", self.as_str()),
            None => f.write_str(self.as_str()),
        }
    }
}

impl WhySync {
    /// All, in the order in which they are listed.
    pub const ALL: [Self; 17] = [
        Self::FirstAttempt,
        Self::Opening,
        Self::NoShell,
        Self::NoStreaming,
        Self::StreamingAddress,
        Self::StreamRefused,
        Self::Shell,
        Self::Environment,
        Self::Ended,
        Self::Silent,
        Self::Busy,
        Self::ExitCode,
        Self::TooMuchOutput,
        Self::Command,
        Self::LongPeriod,
        Self::TooManySessions,
        Self::Off,
    ];

    /// As the value of a label or a JSON field: `no_shell`.
    pub fn code(self) -> &'static str {
        match self {
            Self::FirstAttempt => "first_attempt",
            Self::Opening => "opening",
            Self::NoShell => "no_shell",
            Self::NoStreaming => "no_streaming",
            Self::StreamingAddress => "streaming_address",
            Self::StreamRefused => "stream_refused",
            Self::Shell => "shell",
            Self::Environment => "environment",
            Self::Ended => "ended",
            Self::Silent => "silent",
            Self::Busy => "busy",
            Self::ExitCode => "exit_code",
            Self::TooMuchOutput => "too_much_output",
            Self::Command => "command",
            Self::LongPeriod => "long_period",
            Self::TooManySessions => "too_many_sessions",
            Self::Off => "off",
        }
    }

    /// For people: `no shell in the image`.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::FirstAttempt => "first attempt",
            Self::Opening => "the session is being opened",
            Self::NoShell => "no shell in the image",
            Self::NoStreaming => "the runtime refused Exec",
            Self::StreamingAddress => "the runtime's streaming server is not on this node, or wants TLS",
            Self::StreamRefused => "the runtime's streaming server refused the stream",
            Self::Shell => "the image's sh cannot serve a session",
            Self::Environment => "the image's sh changes the environment",
            Self::Ended => "the session ended",
            Self::Silent => "the session does not answer",
            Self::Busy => "the session was busy with another probe",
            Self::ExitCode => "the exit code may be the shell's own",
            Self::TooMuchOutput => "too much output for a session",
            Self::Command => "the command cannot be passed to a shell",
            Self::LongPeriod => "its period is too long for a session",
            Self::TooManySessions => "too many sessions",
            Self::Off => "switched off by prober.execMode",
        }
    }
}

impl fmt::Display for WhySync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.in_words())
    }
}
