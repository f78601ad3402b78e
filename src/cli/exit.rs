//! The exit codes, all in one place.

use std::{
    fmt,
    io::{IsTerminal, Write},
    process::ExitCode,
};

use super::{screen::Screen, wrap::words};

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All is well.
    Fine,
    /// A probe is failing, a wait timed out, or the daemon failed.
    Failed,
    /// The arguments are wrong.
    Usage,
    /// The daemon cannot be reached.
    Unreachable,
    /// An attempt that was asked for could not be made, or ended with an error.
    NotTried,
    /// The configuration is wrong; `EX_CONFIG` of sysexits.h.
    Configuration,
}

impl Exit {
    /// Says why on standard error, in one line: `criprobe: REASON`. On a terminal, it breaks between words.
    pub fn because(self, reason: &impl fmt::Display) -> Self {
        // If this cannot be written, the exit code still reports the failure.
        let text = format!("criprobe: {reason}");
        let stderr = std::io::stderr();
        let width = if stderr.is_terminal() { Screen::of_stderr_width() } else { usize::MAX };
        let _ = writeln!(&stderr, "{}", words(&text, width, usize::MAX).join("\n"));
        self
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Fine => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Unreachable => 3,
            Exit::NotTried => 4,
            Exit::Configuration => 78,
        })
    }
}
