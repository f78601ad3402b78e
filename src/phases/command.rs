//! Reads the command of a process that was just started. In: a pid. Out: its words, or that it has ended. On threads of their
//! own: a process can delay who reads its command for as long as it likes.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

/// 4 processes at a time. Of more, the command is not known.
const MOST: usize = 4;

/// 128 KiB: the longest command that is read; the longest word of one on Linux.
const LONGEST: u64 = 128 << 10;

/// 10 times, 5 ms apart: a process shows nothing for a moment while a program takes its place.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(5);

/// What a process shows of its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandLine<'a> {
    /// Its words, each with a NUL at its end.
    Words(&'a [u8]),
    /// There is no such process any more, or it has ended.
    Gone,
    /// It cannot be read, or is too long, or too many are being read.
    Unreadable,
}

/// Counts what it reads at the moment. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct CommandReader(Arc<AtomicUsize>);

impl CommandReader {
    /// Reads the command of this process, which `done` takes. Returns whether it is called.
    pub(super) fn read(&self, pid: u32, done: impl FnOnce(CommandLine<'_>) + Send + 'static) -> bool {
        let Some(place) = ReadingPlace::take(&self.0) else { return false };
        let thread = thread::Builder::new().name("command".to_owned());
        let reading = thread.spawn(move || {
            done(match &command(pid) {
                Ok(Some(words)) if words.len() as u64 <= LONGEST => CommandLine::Words(words),
                Ok(None) => CommandLine::Gone,
                Err(error) if is_gone(error) => CommandLine::Gone,
                Ok(Some(_)) | Err(_) => CommandLine::Unreadable,
            });
            drop(place);
        });
        reading.is_ok()
    }
}

/// One of [`MOST`], while it is held.
struct ReadingPlace(Arc<AtomicUsize>);

impl ReadingPlace {
    fn take(taken: &Arc<AtomicUsize>) -> Option<Self> {
        let next = |taken: usize| (taken < MOST).then_some(taken + 1);
        taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        Some(Self(Arc::clone(taken)))
    }
}

impl Drop for ReadingPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// None of a process that has ended; longer than [`LONGEST`] if there is more.
///
/// # Errors
/// It cannot be read, or the process shows nothing for good.
fn command(pid: u32) -> io::Result<Option<Vec<u8>>> {
    for _ in 0..TRIES {
        let mut words = Vec::new();
        File::open(format!("/proc/{pid}/cmdline"))?.take(LONGEST + 1).read_to_end(&mut words)?;
        if !words.is_empty() {
            return Ok(Some(words));
        }
        if has_ended(&fs::read(format!("/proc/{pid}/stat"))?) {
            return Ok(None);
        }
        thread::sleep(PAUSE);
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// Whether this is the state of a zombie. It follows the name, which may contain anything, in parentheses (proc(5)).
fn has_ended(stat: &[u8]) -> bool {
    let after = stat.iter().rposition(|byte| *byte == b')').and_then(|at| stat.get(at + 2));
    matches!(after, Some(b'Z' | b'X'))
}

fn is_gone(error: &io::Error) -> bool {
    let gone = rustix::io::Errno::SRCH.raw_os_error();
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(gone)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_command_is_read_while_its_process_runs() {
        let mut child = std::process::Command::new("sleep").args(["1000", "0"]).spawn().unwrap();
        let (sender, receiver) = mpsc::channel();
        let read = |pid| {
            let sender = sender.clone();
            let done = move |line: CommandLine<'_>| {
                let shown = match line {
                    CommandLine::Words(words) => words.to_vec(),
                    CommandLine::Gone => b"gone".to_vec(),
                    CommandLine::Unreadable => b"unreadable".to_vec(),
                };
                sender.send(shown).unwrap();
            };
            assert!(CommandReader::default().read(pid, done));
            receiver.recv().unwrap()
        };
        assert_eq!(read(child.id()), b"sleep\x001000\x000\x00");
        child.kill().unwrap();
        let info = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::waitid(rustix::process::WaitId::Pid(pid), info).unwrap();
        assert_eq!(read(child.id()), b"gone", "a zombie");
        child.wait().unwrap();
        assert_eq!(read(child.id()), b"gone");
    }

    #[test]
    fn a_zombie_is_one_whatever_its_name_is() {
        for (stat, expected) in [
            ("7 (sh) S 1", false),
            ("7 (a) Z) S 1", false),
            ("7 (a) S) Z 1", true),
            ("7 (sh)", false),
            ("", false),
        ] {
            assert_eq!(has_ended(stat.as_bytes()), expected, "{stat}");
        }
    }

    #[test]
    fn at_most_four_processes_delay_their_readers() {
        let (reader, pid) = (CommandReader::default(), std::process::id());
        let (release, released) = mpsc::channel::<()>();
        let released = Arc::new(std::sync::Mutex::new(released));
        for _ in 0..MOST {
            let released = Arc::clone(&released);
            assert!(reader.read(pid, move |_| assert!(released.lock().unwrap().recv().is_err())));
        }
        assert!(!reader.read(pid, |_| unreachable!()));
        drop(release);
        while !reader.read(pid, |_| {}) {
            thread::yield_now();
        }
    }
}
