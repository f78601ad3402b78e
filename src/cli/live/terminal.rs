//! The terminal while a live list is on it: the alternate screen, without a cursor, keys without echo. As it was before on
//! every way out: dropped, after a panic, and while the program is suspended.

use std::{
    io::{self, IsTerminal},
    panic,
    sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::{
    process::{Signal, getpid, kill_process},
    termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr},
};

use crate::cli::screen::{print, print_frame};

/// The alternate screen, no cursor, and lines that are cut at the margin rather than wrapped.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l\u{1b}[?7l";

/// The opposite.
const LEAVE: &str = "\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l";

/// Whether the terminal is ours: it is restored once, as leaving the alternate screen twice would move the cursor.
static IS_OURS: AtomicBool = AtomicBool::new(false);

/// A terminal that is ours until this is dropped.
pub(super) struct Terminal {
    /// How standard input was; none if it is no terminal.
    before: Option<Termios>,
}

impl Terminal {
    pub(super) fn enter() -> io::Result<Self> {
        let stdin = io::stdin();
        let before = if stdin.is_terminal() { Some(tcgetattr(&stdin)?) } else { None };
        let terminal = Self { before };
        // A message of a panic would be lost with the alternate screen.
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let (before, next) = (terminal.before.clone(), panic::take_hook());
            panic::set_hook(Box::new(move |panicked| {
                restore(before.as_ref());
                next(panicked);
            }));
        });
        terminal.take()?;
        Ok(terminal)
    }

    fn take(&self) -> io::Result<()> {
        IS_OURS.store(true, Ordering::Relaxed);
        if let Some(before) = &self.before {
            let mut keys = before.clone();
            keys.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            keys.special_codes[SpecialCodeIndex::VMIN] = 1;
            keys.special_codes[SpecialCodeIndex::VTIME] = 0;
            tcsetattr(io::stdin(), OptionalActions::Now, &keys)?;
        }
        print(ENTER)
    }

    /// Draws a frame over the one before. It has as many lines as the terminal.
    pub(super) fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let lines: Vec<_> = lines.iter().map(|line| format!("\u{1b}[K{line}")).collect();
        print_frame(&format!("\u{1b}[H{}", lines.join("\r\n")))
    }

    /// Stops the program as Ctrl-Z does, with the terminal as it was, and takes it again once the program continues.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        restore(self.before.as_ref());
        kill_process(getpid(), Signal::STOP)?;
        self.take()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore(self.before.as_ref());
    }
}

fn restore(before: Option<&Termios>) {
    if !IS_OURS.swap(false, Ordering::Relaxed) {
        return;
    }
    // A terminal that is gone needs nothing.
    if let Some(before) = before {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
    }
    let _ = print(LEAVE);
}
