//! One line on standard error while something takes long: what is waited for, and for how long already. In: a text. Only
//! on a terminal, only after a second, and removed at the end.

use std::{
    io::{self, IsTerminal, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use super::screen::{Screen, fit};

/// 1 s: what ends sooner needs no explanation.
const PATIENCE: Duration = Duration::from_secs(1);

/// Moves to the beginning of the line and clears it.
const CLEAR: &str = "\r\u{1b}[K";

/// The line; dropped, it is removed.
#[derive(Debug)]
pub(crate) struct Progress {
    line: Arc<Mutex<Line>>,
    /// Dropped to end the thread; none without a terminal.
    drawing: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

#[derive(Debug)]
struct Line {
    text: String,
    is_drawn: bool,
}

impl Progress {
    /// Waits for something from now on.
    pub(crate) fn start(text: &str) -> Self {
        let line = Arc::new(Mutex::new(Line { text: text.to_owned(), is_drawn: false }));
        let is_capable =
            io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let drawing = is_capable.then(|| {
            let (stop, stopped) = mpsc::channel();
            let line = line.clone();
            let thread = thread::Builder::new().name("progress".to_owned());
            thread.spawn(move || draw(&line, &stopped)).ok().map(|thread| (stop, thread))
        });
        Self { line, drawing: drawing.flatten() }
    }

    /// Replaces the text.
    pub(crate) fn say(&self, text: &str) {
        text.clone_into(&mut lock(&self.line).text);
    }

    /// Prints a line that stays, on standard error.
    pub(crate) fn note(&self, text: &str) {
        let mut line = lock(&self.line);
        let clear = if std::mem::take(&mut line.is_drawn) { CLEAR } else { "" };
        // If this cannot be written, the result still is.
        let _ = writeln!(io::stderr(), "{clear}criprobe: {}", fit(text, usize::MAX));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.drawing.take() {
            drop(stop);
            let _ = thread.join();
        }
        if lock(&self.line).is_drawn {
            let _ = write!(io::stderr(), "{CLEAR}");
        }
    }
}

/// Draws the line once a second until the other end is dropped.
fn draw(line: &Mutex<Line>, stopped: &mpsc::Receiver<()>) {
    let mut seconds = 0_u64;
    while stopped.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
        seconds += 1;
        let mut line = lock(line);
        line.is_drawn = true;
        let drawn = line_of(&line.text, seconds, Screen::of_stderr_width());
        let _ = write!(io::stderr(), "{CLEAR}{drawn}");
    }
}

/// `waiting for the attempt (3s)`, within the width, and never in the last column, where some terminals wrap.
fn line_of(text: &str, seconds: u64, width: usize) -> String {
    let time = format!(" ({seconds}s)");
    fit(text, width.saturating_sub(time.len() + 1)) + &time
}

fn lock(line: &Mutex<Line>) -> MutexGuard<'_, Line> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_fits_and_shows_the_time() {
        assert_eq!(line_of("waiting for default/web", 3, 80), "waiting for default/web (3s)");
        assert_eq!(line_of("waiting for default/web", 12, 20), "waiting for … (12s)");
        assert_eq!(line_of("a\u{1b}[2J\nb", 1, 80), "a\\u{1b}[2J\\nb (1s)");
    }
}
