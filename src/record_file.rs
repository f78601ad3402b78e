//! Writes records to a file, a line each: records in, counts out. A thread of its own makes the lines and writes them, so
//! neither a disk that hangs nor a record that takes long to format delays anything else: records wait in a bounded queue, and
//! those for which there is no room are dropped and counted. Never logs. Each line is a JSON object: a file that begins with
//! anything but a record is not one of ours, and is left alone.

mod file;

use std::{
    collections::VecDeque,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use self::file::RecordWriter;
use crate::clock;

/// 1 MiB of records wait for the disk where no other bound is named. What comes above is dropped and counted.
pub(crate) const QUEUE: usize = 1 << 20;

/// 100 KiB: the longest line, so that the smallest file has room for one. A longer one is dropped and counted.
const MAX_LINE: usize = 100 << 10;

/// 100 ms, or 512 KiB: for so long, or so many, records are collected, so that a file costs few writes, however often they
/// come. No more are made into lines at once.
const COLLECTED: (Duration, usize) = (Duration::from_millis(100), QUEUE / 2);

/// Makes the line of a record: a JSON object without its end.
type Line = Box<dyn FnOnce() -> Vec<u8> + Send>;

/// 1 s: how long after a failure the same lines are tried again.
const RETRY: Duration = Duration::from_secs(1);

/// 10 s: how often a file that nothing is written to is checked, so that trouble shows before a record needs the file. One
/// in trouble is checked after [`RETRY`].
const CHECK: Duration = Duration::from_secs(10);

/// 10 s: a disk that takes longer for what it was given hangs, and is shown as trouble.
const HANGS: Duration = Duration::from_secs(10);

/// Where records go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordSettings {
    /// The file; none to write nothing.
    pub path: Option<PathBuf>,
    /// What it and the one before it may take together, in bytes.
    pub max_bytes: u64,
}

/// How the writing goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordStatus {
    /// The file.
    pub path: PathBuf,
    /// The lines that were written since the start.
    pub written: u64,
    /// Those that were not, as the disk was too slow or in trouble.
    pub dropped: u64,
    /// Why nothing can be written now, in words; empty if it can.
    pub trouble: String,
    /// How many files were deleted while they were written, with all that was in them.
    pub deleted: u64,
}

/// A handle; cheap to clone, all clones are one file.
#[derive(Clone, Debug)]
pub(crate) struct RecordFile(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Names the thread.
    name: &'static str,
    state: Mutex<State>,
    /// Signals that there is something to do, and that all was written.
    changed: Condvar,
}

struct State {
    settings: RecordSettings,
    /// Records, with what each takes.
    waiting: VecDeque<(usize, Line)>,
    /// What they take together, in bytes.
    weight: usize,
    /// What they may take.
    queue: usize,
    has_thread: bool,
    /// Since when the thread has been at the disk, if it is.
    writing_since: Option<Instant>,
    /// A caller waits until all is written.
    is_hurried: bool,
    written: u64,
    dropped: u64,
    trouble: String,
    deleted: u64,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { settings, weight, written, dropped, trouble, .. } = self;
        write!(f, "{settings:?}: {weight} bytes wait, {written} written, {dropped} dropped; {trouble}")
    }
}

impl State {
    /// Whether the disk hangs.
    fn hangs(&self, now: Instant) -> bool {
        self.writing_since.is_some_and(|since| now.saturating_duration_since(since) >= HANGS)
    }
}

impl RecordFile {
    /// Writes where the settings say; records of `queue` bytes may wait. There is no thread before there is a file.
    pub(crate) fn new(name: &'static str, queue: usize, settings: RecordSettings) -> Self {
        let off = RecordSettings { path: None, ..settings.clone() };
        let state = State {
            settings: off,
            waiting: VecDeque::new(),
            weight: 0,
            queue,
            has_thread: false,
            writing_since: None,
            is_hurried: false,
            written: 0,
            dropped: 0,
            trouble: String::new(),
            deleted: 0,
        };
        let file = Self(Arc::new(Shared { name, state: Mutex::new(state), changed: Condvar::new() }));
        file.set(settings);
        file
    }

    /// Writes there from now on.
    pub(crate) fn set(&self, settings: RecordSettings) {
        let mut state = self.state();
        if state.settings.path != settings.path {
            state.trouble.clear();
        }
        state.settings = settings;
        if state.settings.path.is_none() {
            (state.waiting, state.weight) = (VecDeque::new(), 0);
        } else if !state.has_thread {
            let file = self.clone();
            match thread::Builder::new().name(self.0.name.to_owned()).spawn(move || file.work()) {
                Ok(_) => state.has_thread = true,
                Err(error) => state.trouble = format!("cannot start a thread: {error}"),
            }
        }
        drop(state);
        self.0.changed.notify_all();
    }

    /// Adds a record that takes so many bytes until it is written. Its line is made by the writer's thread. Never waits for
    /// the disk.
    pub(crate) fn push(&self, weight: usize, line: impl FnOnce() -> Vec<u8> + Send + 'static) {
        let mut state = self.state();
        if state.settings.path.is_none() {
            return;
        }
        if weight > MAX_LINE || state.weight + weight >= state.queue {
            state.dropped += 1;
            return;
        }
        let before = state.weight;
        state.weight += weight;
        let is_first = state.waiting.is_empty();
        state.waiting.push_back((weight, Box::new(line)));
        // The writer waits for the first, and then until it has collected enough, which it need not be woken for.
        let is_awaited = is_first || (before < COLLECTED.1 && state.weight >= COLLECTED.1);
        drop(state);
        if is_awaited {
            self.0.changed.notify_all();
        }
    }

    /// How the writing goes; none while there is no file.
    pub(crate) fn status(&self) -> Option<RecordStatus> {
        let state = self.state();
        let path = state.settings.path.clone()?;
        let (written, dropped, deleted) = (state.written, state.dropped, state.deleted);
        let trouble = match state.hangs(clock::now()) {
            true => format!("the disk does not respond within {} s", HANGS.as_secs()),
            false => state.trouble.clone(),
        };
        Some(RecordStatus { path, written, dropped, trouble, deleted })
    }

    /// Waits until all lines are written, but no longer than `limit`, and not where they cannot be.
    pub(crate) fn flush(&self, limit: Duration) {
        let mut state = self.state();
        state.is_hurried = true;
        self.0.changed.notify_all();
        let waits = |state: &mut State| {
            state.trouble.is_empty()
                && state.has_thread
                && (state.writing_since.is_some() || !state.waiting.is_empty())
        };
        drop(self.0.changed.wait_timeout_while(state, limit, waits));
        self.state().is_hurried = false;
    }

    /// Goes on for as long as the process.
    fn work(&self) {
        let mut writer = RecordWriter::default();
        let mut lines = Vec::new();
        let mut settings = RecordSettings { path: None, max_bytes: 0 };
        loop {
            settings = self.take(&mut lines, &settings);
            let Some(path) = &settings.path else {
                writer.close();
                lines.clear();
                continue;
            };
            let (done, ended) = match lines.is_empty() {
                true => (0, writer.check(path, settings.max_bytes)),
                false => writer.write(path, settings.max_bytes, &lines),
            };
            let written = lines.drain(..done).filter(|byte| *byte == b'\n').count();
            self.note(written as u64, writer.deleted, path, ended.err().map(|error| error.to_string()));
        }
    }

    /// Waits for something to write, for other settings than these, or until the file is to be checked. Lines that could not
    /// be written before are still there: then it waits a while, in which others may come.
    fn take(&self, lines: &mut Vec<u8>, before: &RecordSettings) -> RecordSettings {
        let mut state = self.state();
        if lines.is_empty() {
            state.writing_since = None;
        }
        self.0.changed.notify_all();
        let mut records = Vec::new();
        if lines.is_empty() {
            let rests = |state: &mut State| state.waiting.is_empty() && state.settings == *before;
            let limit = if state.trouble.is_empty() { CHECK } else { RETRY };
            state = self.wait(state, limit, rests);
            let collects = |state: &mut State| {
                !state.waiting.is_empty() && !state.is_hurried && state.weight < COLLECTED.1
            };
            state = self.wait(state, COLLECTED.0, collects);
            let mut taken = 0;
            while taken < COLLECTED.1
                && let Some((weight, line)) = state.waiting.pop_front()
            {
                taken += weight;
                records.push(line);
            }
            state.weight -= taken;
        } else {
            state = self.wait(state, RETRY, |state: &mut State| state.settings == *before);
        }
        state.writing_since = Some(clock::now());
        let settings = state.settings.clone();
        drop(state);
        let unfit = records.into_iter().map(|line| append(lines, line)).filter(|fits| !fits).count();
        if unfit > 0 {
            self.state().dropped += unfit as u64;
        }
        settings
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        limit: Duration,
        goes_on: impl FnMut(&mut State) -> bool,
    ) -> MutexGuard<'a, State> {
        self.0.changed.wait_timeout_while(state, limit, goes_on).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Notes the result of writing.
    fn note(&self, written: u64, deleted: u64, path: &Path, trouble: Option<String>) {
        let mut state = self.state();
        state.written += written;
        state.deleted = deleted;
        // What is wrong with a file that is not written to any more is of no interest.
        if state.settings.path.as_deref() == Some(path) {
            state.trouble = trouble.unwrap_or_default();
        }
        drop(state);
        self.0.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds a line, if it is one and not too long. A panic of ours costs this line, and not the thread.
fn append(lines: &mut Vec<u8>, line: Line) -> bool {
    let Ok(line) = catch_unwind(AssertUnwindSafe(line)) else { return false };
    debug_assert!(line.starts_with(b"{"), "a line is a JSON object");
    if line.len() > MAX_LINE || line.contains(&b'\n') {
        return false;
    }
    lines.extend_from_slice(&line);
    lines.push(b'\n');
    true
}

#[cfg(test)]
mod tests;
