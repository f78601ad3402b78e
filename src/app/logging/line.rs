//! Makes a log line safe to show: the subscriber's output in, a line for the queue out. It contains names and texts
//! from outside, whose characters must not control a terminal, reorder a line or start a new one.

use std::{
    borrow::Cow,
    io::{self, Write},
};

use tracing_subscriber::fmt::MakeWriter;

use super::queue::Queue;
use crate::report::printable::{printable, printable_json};

/// How the lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Without colours.
    Plain,
    /// With the subscriber's own colours: what it prints of others holds none, as it escapes these.
    Coloured,
    /// An object of JSON each.
    Json,
}

/// Makes lines of what is written to it: the subscriber writes each event at once.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    queue: Queue,
    form: Form,
}

impl Lines {
    pub(super) fn new(queue: Queue, form: Form) -> Self {
        Self { queue, form }
    }
}

impl Write for Lines {
    fn write(&mut self, written: &[u8]) -> io::Result<usize> {
        let line = String::from_utf8_lossy(written);
        let line = line.strip_suffix('\n').unwrap_or(&line);
        let shown = match self.form {
            Form::Plain => printable(line),
            Form::Coloured => Cow::Owned(coloured(line)),
            Form::Json => printable_json(line),
        };
        self.queue.push((shown.into_owned() + "\n").as_bytes());
        Ok(written.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// A printable line, with the sequences in it that set colours.
fn coloured(line: &str) -> String {
    let mut pieces = line.split("\u{1b}[");
    let mut shown = printable(pieces.next().unwrap_or_default()).into_owned();
    for piece in pieces {
        let end = piece.find(|letter: char| letter != ';' && !letter.is_ascii_digit());
        match end.filter(|end| piece[*end..].starts_with('m')) {
            Some(end) => shown.extend(["\u{1b}[", &piece[..=end], &*printable(&piece[end + 1..])]),
            None => shown.extend([r"\u{1b}[", &*printable(piece)]),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a field and a message of others may hold.
    const STEERING: &str = "a\nFAKE\u{1b}[2J\u{1b}]0;t\u{7}\u{9b}31m\u{202e}b\u{2028}\u{7f}\u{200b}";

    fn logged(form: Form) -> String {
        let queue = Queue::default();
        let layer = tracing_subscriber::fmt().with_writer(Lines::new(queue.clone(), form));
        let log = || {
            let _span = tracing::info_span!("span", name = %STEERING).entered();
            tracing::info!(shown = %STEERING, debugged = ?STEERING, text = STEERING, "message {STEERING}");
        };
        match form {
            Form::Json => tracing::subscriber::with_default(layer.json().finish(), log),
            _ => tracing::subscriber::with_default(layer.with_ansi(form == Form::Coloured).finish(), log),
        }
        queue.waiting()
    }

    #[test]
    fn row_02_no_field_of_the_log_steers_a_terminal_or_begins_a_line() {
        for form in [Form::Plain, Form::Json] {
            let log = logged(form);
            let line = log.strip_suffix('\n').unwrap();
            assert_eq!(printable(line), line, "{form:?}");
            assert!(line.contains("FAKE") && line.contains("202e"), "{line}");
        }
        let json: serde_json::Value = serde_json::from_str(&logged(Form::Json)).unwrap();
        assert_eq!(json["fields"]["text"], STEERING, "JSON says the same");
        let coloured = logged(Form::Coloured);
        let line = coloured.strip_suffix('\n').unwrap();
        assert!(line.contains("\u{1b}[32m INFO\u{1b}[0m"), "{line:?}");
        assert_eq!(line.matches("\u{1b}").count(), line.matches("\u{1b}[").count());
        assert!(!line.contains("\u{1b}[2J"), "{line:?}");
        let without: String = line.split('\u{1b}').collect();
        assert_eq!(printable(&without), without);
    }

    #[test]
    fn colours_are_kept_and_nothing_else() {
        for (line, shown) in [
            ("\u{1b}[2m12\u{1b}[0m x", "\u{1b}[2m12\u{1b}[0m x"),
            ("\u{1b}[1;31mred\n\u{1b}[2J", "\u{1b}[1;31mred\\n\\u{1b}[2J"),
            ("\u{1b}]0;t\u{7}\u{1b}[", "\\u{1b}]0;t\\u{7}\\u{1b}["),
        ] {
            assert_eq!(coloured(line), shown);
        }
    }
}
