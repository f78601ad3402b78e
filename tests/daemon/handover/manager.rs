//! A service manager by its protocol alone: stores descriptors, and answers barriers, as well as it is in the mood to.

use std::{
    io::{self, IoSliceMut},
    mem::MaybeUninit,
    os::{fd::OwnedFd, unix::net::UnixDatagram},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context as _, Result};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tempfile::TempDir;

/// How it deals with what it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    /// As it should.
    Works,
    /// It stores nothing, and says so by closing what it was sent.
    Refuses,
    /// It answers a barrier, and reads nothing more.
    HangsLater,
    /// It stores what it is sent, and answers no barrier from then on.
    StoresAndHangs,
    /// It reads nothing until its mood is another one.
    Hangs,
}

/// A manager with a thread of its own.
pub(super) struct Manager {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    dir: TempDir,
}

struct Shared {
    seen: Mutex<Seen>,
    is_over: AtomicBool,
}

struct Seen {
    mood: Mood,
    stored: Vec<OwnedFd>,
    /// Whether it has stored anything in this mood.
    has_stored: bool,
    /// Never closed: the barriers that are not answered.
    unanswered: Vec<OwnedFd>,
    notices: Vec<String>,
}

impl Manager {
    pub(super) fn start() -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("criprobe-").tempdir()?;
        let socket = UnixDatagram::bind(dir.path().join("notify.sock"))?;
        socket.set_read_timeout(Some(Duration::from_millis(20)))?;
        let (stored, unanswered, notices) = Default::default();
        let seen = Mutex::new(Seen { mood: Mood::Works, stored, has_stored: false, unanswered, notices });
        let shared = Arc::new(Shared { seen, is_over: AtomicBool::new(false) });
        let ours = Arc::clone(&shared);
        let thread = thread::spawn(move || ours.serve(&socket));
        Ok(Self { shared, thread: Some(thread), dir })
    }

    /// Its NOTIFY_SOCKET.
    pub(super) fn path(&self) -> PathBuf {
        self.dir.path().join("notify.sock")
    }

    pub(super) fn is_now(&self, mood: Mood) {
        let mut seen = self.shared.seen();
        (seen.mood, seen.has_stored) = (mood, false);
    }

    /// Whether it was sent this line.
    pub(super) fn was_told(&self, line: &str) -> bool {
        self.shared.seen().notices.iter().any(|notice| notice == line)
    }

    /// Copies of what it has stored: it keeps its own until it is asked to forget them.
    pub(super) fn stored(&self) -> Result<Vec<OwnedFd>> {
        Ok(self.shared.seen().stored.iter().map(OwnedFd::try_clone).collect::<io::Result<_>>()?)
    }

    /// What it has stored; it has none of it any more.
    pub(super) fn take_stored(&self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.shared.seen().stored)
    }

    /// Sends it so many messages of others that it takes no more.
    pub(super) fn flood(&self) -> Result<()> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(self.path())?;
        socket.set_nonblocking(true)?;
        while socket.send(b"X_FLOOD=1").is_ok() {}
        Ok(())
    }

    /// Nobody can reach it any more.
    pub(super) fn vanish(&self) -> Result<()> {
        std::fs::rename(self.path(), self.away()).context("rename the socket")
    }

    /// Everybody can again.
    pub(super) fn come_back(&self) -> Result<()> {
        if self.away().exists() {
            std::fs::rename(self.away(), self.path())?;
        }
        Ok(())
    }

    fn away(&self) -> PathBuf {
        self.dir.path().join("away.sock")
    }

    /// The folder of its socket.
    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, socket: &UnixDatagram) {
        while !self.is_over.load(Ordering::Relaxed) {
            if self.seen().mood == Mood::Hangs {
                thread::sleep(Duration::from_millis(5));
                continue;
            }
            let Ok((text, descriptors)) = receive(socket) else { continue };
            // What arrives in the moment in which it begins to hang is dealt with later, too.
            while self.seen().mood == Mood::Hangs && !self.is_over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
            self.seen().deal_with(&text, descriptors);
        }
    }
}

impl Seen {
    fn deal_with(&mut self, text: &str, descriptors: Vec<OwnedFd>) {
        let has = |line| text.lines().any(|other| other == line);
        if has("FDSTOREREMOVE=1") {
            self.stored.clear();
        }
        if has("FDSTORE=1") && has("FDNAME=criprobe-handover") && has("FDPOLL=0") {
            if self.mood != Mood::Refuses {
                self.stored.extend(descriptors);
                self.has_stored = true;
            }
        } else if has("BARRIER=1") {
            match self.mood {
                Mood::StoresAndHangs if self.has_stored => self.unanswered.extend(descriptors),
                Mood::HangsLater => self.mood = Mood::Hangs,
                _ => {}
            }
        }
        self.notices.extend(text.lines().map(str::to_owned));
    }
}

fn receive(socket: &UnixDatagram) -> io::Result<(String, Vec<OwnedFd>)> {
    let mut text = vec![0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut text)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = part {
            descriptors.extend(passed);
        }
    }
    Ok((String::from_utf8_lossy(&text[..received.bytes]).into_owned(), descriptors))
}
