//! Reads the command of a process that was just started. In: a pid. Out: its words, each with a NUL at its end. On threads of
//! their own: a process can delay the reading for as long as it likes.

use std::{
    fs::File,
    io::Read as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// 4 processes at a time. Of more, the command is not known.
const MOST: usize = 4;

/// 128 KiB: the longest command that is read; the longest word of one on Linux.
const LONGEST: u64 = 128 << 10;

/// Counts what it reads at the moment. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct CommandReader(Arc<AtomicUsize>);

impl CommandReader {
    /// Reads the command of this process; `done` takes it, or nothing where it cannot be read. Returns whether it is called.
    pub(super) fn read(&self, pid: u32, done: impl FnOnce(Option<&[u8]>) + Send + 'static) -> bool {
        let Some(place) = ReadingPlace::take(&self.0) else { return false };
        let thread = thread::Builder::new().name("command".to_owned());
        let reading = thread.spawn(move || {
            done(command(pid).as_deref());
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

/// None of a process that is gone, or has ended, and of one that is too long.
fn command(pid: u32) -> Option<Vec<u8>> {
    let mut words = Vec::new();
    let file = File::open(format!("/proc/{pid}/cmdline")).ok()?;
    file.take(LONGEST + 1).read_to_end(&mut words).ok()?;
    let is_whole = !words.is_empty() && words.len() as u64 <= LONGEST;
    is_whole.then_some(words)
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
            let done = move |words: Option<&[u8]>| sender.send(words.map(<[u8]>::to_vec)).unwrap();
            assert!(CommandReader::default().read(pid, done));
            receiver.recv().unwrap()
        };
        assert_eq!(read(child.id()), Some(b"sleep\x001000\x000\x00".to_vec()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(read(child.id()), None);
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
