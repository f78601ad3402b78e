//! The output of the log: lines in, one bounded queue, a separate thread that writes. Logging never waits: lines for
//! which there is no room are dropped and counted. Knows nothing about levels and formats.

use std::{
    io::{self, Write},
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
    time::Duration,
};

use crate::{
    config::LogFormat,
    count::Count,
    redact::{JsonRedactor, Patterns, Redactor},
};

/// 256 KiB of lines wait for their reader, and as much again is on its way. What comes above is dropped, counted, and
/// reported by a line once there is room.
const QUEUE: usize = 256 * 1024;

/// 16 KiB: the longest line; a longer one is cut.
const MAX_LINE: usize = 16 * 1024;

/// What a line that was cut ends with.
const CUT: &[u8] = "…\n".as_bytes();

/// The queue; cheap to clone, all clones are one.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    lines: Mutex<Lines>,
    /// Signals that there is something to write, and that all was written.
    changed: Condvar,
    /// What must not be written, once that is known, and how lines look.
    redactor: OnceLock<(Redactor, LogFormat)>,
    dropped: Count,
}

#[derive(Debug, Default)]
struct Lines {
    waiting: Vec<u8>,
    /// Lines that were dropped and not reported yet.
    unreported: u64,
    is_writing: bool,
}

impl Queue {
    /// Lines that were dropped so far; counts on.
    pub(super) fn dropped(&self) -> Count {
        self.0.dropped.clone()
    }

    /// Lines are redacted from now on, by the thread that writes them.
    pub(super) fn redact(&self, redactor: Redactor, format: LogFormat) {
        // A second daemon in one process, as in tests, logs as the first does.
        let _ = self.0.redactor.set((redactor, format));
    }

    /// Starts the thread that writes to `out`; `report` logs that so many lines were dropped.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn write_to(
        &self,
        out: impl Write + Send + 'static,
        report: impl Fn(u64) + Send + 'static,
    ) -> io::Result<()> {
        let queue = self.clone();
        thread::Builder::new().name("log".to_owned()).spawn(move || queue.write(out, report)).map(drop)
    }

    /// Adds a line, which ends with a newline; never waits.
    pub(super) fn push(&self, line: &[u8]) {
        let (line, end) = if line.len() > MAX_LINE { (cut(line), CUT) } else { (line, [].as_slice()) };
        let mut lines = self.lines();
        if lines.waiting.len() + line.len() + end.len() > QUEUE {
            lines.unreported += 1;
            drop(lines);
            self.0.dropped.inc();
            return;
        }
        lines.waiting.extend_from_slice(line);
        lines.waiting.extend_from_slice(end);
        drop(lines);
        self.0.changed.notify_all();
    }

    /// Waits until all lines are written, but no longer than `limit`: what is not written by then has no reader.
    pub(super) fn flush(&self, limit: Duration) {
        let waits = |lines: &mut Lines| lines.is_writing || !lines.waiting.is_empty();
        drop(self.0.changed.wait_timeout_while(self.lines(), limit, waits));
    }

    /// What waits now.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> String {
        String::from_utf8_lossy(&self.lines().waiting).into_owned()
    }

    fn write(&self, mut out: impl Write, report: impl Fn(u64)) {
        let mut batch = Vec::new();
        loop {
            let mut lines = self.lines();
            lines.is_writing = false;
            self.0.changed.notify_all();
            while lines.waiting.is_empty() && lines.unreported == 0 {
                lines = self.0.changed.wait(lines).unwrap_or_else(PoisonError::into_inner);
            }
            batch.clear();
            mem::swap(&mut lines.waiting, &mut batch);
            let dropped = mem::take(&mut lines.unreported);
            lines.is_writing = true;
            drop(lines);
            if dropped > 0 {
                // It finds an empty queue: its place is between these lines and those that come.
                report(dropped);
            }
            if let Some((redactor, format)) = self.0.redactor.get() {
                let patterns = redactor.patterns();
                if !patterns.is_empty() {
                    batch = redacted(&batch, *format, &patterns);
                }
            }
            // A reader that has left is no reason to end.
            let _ = out.write_all(&batch).and_then(|()| out.flush());
        }
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The beginning of a line that is too long, without half a character at its end.
fn cut(line: &[u8]) -> &[u8] {
    let is_boundary = |&end: &usize| line[end] & 0xc0 != 0x80;
    let end = (0..=MAX_LINE - CUT.len()).rev().find(is_boundary).unwrap_or_default();
    &line[..end]
}

/// Whole lines, as they may be written.
fn redacted(lines: &[u8], format: LogFormat, patterns: &Patterns) -> Vec<u8> {
    let mut shown = Vec::with_capacity(lines.len());
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        match format {
            LogFormat::Text => {
                shown.extend_from_slice(patterns.text(&String::from_utf8_lossy(text)).as_bytes());
            }
            LogFormat::Json => {
                let mut json = JsonRedactor::default();
                json.feed(patterns, text, &mut shown);
                json.finish(patterns, &mut shown);
            }
        }
        shown.extend_from_slice(&line[text.len()..]);
    }
    shown
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, pipe},
        sync::mpsc,
    };

    use super::*;
    use crate::redact::Pattern;

    #[test]
    fn lines_come_out_as_they_went_in() {
        let queue = Queue::default();
        queue.push(b"one\n");
        let (reader, writer) = pipe().unwrap();
        queue.write_to(writer, |_| {}).unwrap();
        queue.push(b"two\n");
        let lines: Vec<_> = BufReader::new(reader).lines().take(2).map(Result::unwrap).collect();
        assert_eq!(lines, ["one", "two"]);
        queue.flush(Duration::from_secs(10));
        assert_eq!(queue.waiting(), "");
    }

    #[test]
    fn what_finds_no_room_is_counted_and_reported_where_it_is_missing() {
        let queue = Queue::default();
        let line = [[b'x'; 1023].as_slice(), b"\n"].concat();
        (0..QUEUE / 1024 + 5).for_each(|_| queue.push(&line));
        assert_eq!(queue.dropped().get(), 5);
        let (reader, writer) = pipe().unwrap();
        let (sender, reports) = mpsc::channel();
        let reporter = queue.clone();
        let report = move |dropped: u64| {
            reporter.push(format!("dropped {dropped}\n").as_bytes());
            sender.send(dropped).unwrap();
        };
        queue.write_to(writer, report).unwrap();
        assert_eq!(reports.recv_timeout(Duration::from_secs(10)).unwrap(), 5);
        let mut lines = BufReader::new(reader).lines().skip(QUEUE / 1024);
        assert_eq!(lines.next().unwrap().unwrap(), "dropped 5");
    }

    #[test]
    fn a_reader_that_reads_nothing_holds_up_neither_lines_nor_the_end() {
        let queue = Queue::default();
        let (_reader, writer) = pipe().unwrap();
        queue.write_to(writer, |_| {}).unwrap();
        let line = [[b'x'; 1023].as_slice(), b"\n"].concat();
        (0..10 * QUEUE / 1024).for_each(|_| queue.push(&line));
        assert!(queue.dropped().get() > 0);
        assert!(queue.lines().waiting.capacity() <= 2 * QUEUE);
        queue.flush(Duration::from_millis(50));
    }

    #[test]
    fn what_must_not_be_shown_is_written_in_no_format() {
        let patterns: Patterns = [Pattern::parse(r"token=(\S+)").unwrap()].into_iter().collect();
        for (format, line, expected) in [
            (LogFormat::Text, "INFO a token=x b\nWARN c\n", "INFO a token=*** b\nWARN c\n"),
            (LogFormat::Json, "{\"message\":\"token=x\"}\n", "{\"message\":\"token=***\"}\n"),
            // A panic before the log begins, and a line that was cut.
            (LogFormat::Json, "criprobe: token\n{\"a\":\"tok\n", "criprobe: token\n{\"a\":\n"),
        ] {
            let shown = redacted(line.as_bytes(), format, &patterns);
            assert_eq!(String::from_utf8(shown).unwrap(), expected);
        }
    }

    #[test]
    fn a_long_line_is_cut_between_two_characters() {
        for (line, expected) in [
            ("x".repeat(MAX_LINE), "x".repeat(MAX_LINE)),
            ("x".repeat(MAX_LINE + 1), "x".repeat(MAX_LINE - CUT.len()) + "…\n"),
            ("é".repeat(MAX_LINE), "é".repeat((MAX_LINE - CUT.len()) / 2) + "…\n"),
        ] {
            let queue = Queue::default();
            queue.push(line.as_bytes());
            assert_eq!(queue.waiting(), expected);
        }
    }
}
