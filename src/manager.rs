//! The service manager that started this process, such as systemd: takes the sockets that it passed, and sends it notices.
//! Speaks the protocol of sd_listen_fds(3) and sd_notify(3) through the crate sd-notify. Without a manager, it does nothing.

use std::{
    env,
    fmt::Write as _,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd, RawFd},
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr, UnixDatagram, UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    process,
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::socket::{ControlMessage, MsgFlags, getsockname, sendmsg},
    unistd::close,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketType, recvmsg, sockopt,
    },
};
use sd_notify::NotifyState;
use tokio::{task::spawn_blocking, time::timeout};

use crate::{clock, listen};

/// 1 s: how long a notice may take. A manager that hangs must not hold up anything.
const PATIENCE: Duration = Duration::from_secs(1);

/// 1,024 descriptors that are passed are looked at: a manager keeps some few.
const MAX_PASSED: RawFd = 1_024;

/// The first descriptor that is passed: sd_listen_fds(3).
const FIRST_PASSED: RawFd = 3;

/// 5 s: how long the manager may take to answer before connections are stopped, for example because it reads all its units
/// again. Calls go on meanwhile.
const ANSWERING: Duration = Duration::from_secs(5);

/// 2 s: how long it may take to store a descriptor. Clients wait meanwhile, but otherwise their connections would end.
const STORING: Duration = Duration::from_secs(2);

/// The name under which the manager keeps the connections between two processes.
const HANDOVER: &str = "criprobe-handover";

/// 512 bytes of a status are sent; the rest is cut.
const MAX_STATUS: usize = 512;

/// What the manager passed at the start.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    descriptors: Vec<(String, OwnedFd)>,
    /// What is wrong with it, a line each.
    notes: Vec<String>,
}

/// A socket on which the manager listens for us. It stays when this process ends, and clients that connect then wait for
/// the next one.
#[derive(Debug)]
pub(crate) struct PassedSocket {
    pub(crate) listener: UnixListener,
    /// Where clients connect.
    pub(crate) path: PathBuf,
}

/// What was passed, sorted.
#[derive(Debug, Default)]
pub(crate) struct Sorted {
    pub(crate) socket: Option<PassedSocket>,
    /// What is wrong, one line each.
    pub(crate) notes: Vec<String>,
    /// The names of what is no socket of ours: in the manager's store, they would take the place of connections for ever.
    pub(crate) strangers: Vec<String>,
}

/// What the manager can learn of the daemon.
#[derive(Clone, Debug)]
pub(crate) enum Notice {
    /// It accepts clients, with the configuration as it is now.
    Ready,
    /// It reads its configuration again; [`Notice::Ready`] follows.
    Reloading,
    /// It drains, and ends.
    Stopping,
    /// It works; due within the time of [`watchdog`].
    Alive,
    /// It has taken over the connections that were stored: the manager closes its descriptor.
    TakenOver,
    /// What it stores under this name is of no use: the manager closes that.
    Useless(String),
    /// What it does, in words.
    Status(String),
}

impl Passed {
    /// Takes over all descriptors that were passed, by what sd_listen_fds(3) says. Whatever is wrong with some of them, the
    /// others are used. To be called once, before this process opens anything.
    pub(crate) fn take() -> Self {
        let variable = |name| env::var(name).unwrap_or_default();
        if variable("LISTEN_PID").parse() != Ok(process::id()) {
            return Self::default();
        }
        let (count, names) = (variable("LISTEN_FDS"), variable("LISTEN_FDNAMES"));
        let Ok(count) = count.parse::<RawFd>() else {
            return Self { notes: vec![format!("LISTEN_FDS={count:?} is not a number")], ..Self::default() };
        };
        let names: Vec<_> = names.split(':').filter(|_| !names.is_empty()).collect();
        Self::adopt_all(count, &names)
    }

    fn adopt_all(count: RawFd, names: &[&str]) -> Self {
        let mut passed = Self::default();
        if !names.is_empty() && RawFd::try_from(names.len()) != Ok(count) {
            passed.notes.push(format!("LISTEN_FDNAMES has {} names, but LISTEN_FDS={count}", names.len()));
        }
        // All of them before the first is copied: a copy gets a number that is free.
        let numbers = FIRST_PASSED..FIRST_PASSED + count.clamp(0, MAX_PASSED);
        let (open, closed): (Vec<_>, Vec<_>) = numbers.partition(|raw| is_open(*raw));
        if let Some(first) = closed.first() {
            passed.notes.push(format!(
                "LISTEN_FDS={count}, but {} of these descriptors are not open, the first is {first}",
                closed.len(),
            ));
        }
        for raw in open {
            let at = usize::try_from(raw - FIRST_PASSED).unwrap_or(usize::MAX);
            let name = names.get(at).copied().unwrap_or("unknown");
            match adopt(raw) {
                Ok(descriptor) => passed.descriptors.push((name.to_owned(), descriptor)),
                Err(error) => passed.notes.push(format!("{name}: cannot be used: {error}")),
            }
        }
        passed
    }

    /// What processes before have left of their connections. One at most is of use.
    pub(crate) fn take_handovers(&mut self) -> Vec<OwnedFd> {
        let of_handovers = self.descriptors.extract_if(.., |(name, _)| name == HANDOVER);
        of_handovers.map(|(_, descriptor)| descriptor).collect()
    }

    /// The socket for clients: the one at `wanted`, or else the first Unix socket that listens. What is not used is closed.
    pub(crate) fn sort(self, wanted: &Path) -> Sorted {
        let Self { descriptors, mut notes } = self;
        let mut strangers = Vec::new();
        let mut sockets = Vec::new();
        for (name, descriptor) in descriptors {
            match PassedSocket::of(descriptor) {
                Some(socket) => sockets.push((name, socket)),
                None => {
                    notes.push(format!("{name}: is not a Unix socket that listens, and is not used"));
                    strangers.push(name);
                }
            }
        }
        let best = sockets.iter().position(|(_, socket)| listen::is_same_place(&socket.path, wanted));
        let chosen = (!sockets.is_empty()).then(|| sockets.swap_remove(best.unwrap_or(0)));
        notes.extend(sockets.iter().map(|(name, socket)| {
            format!("{name}: listens on {}, where criprobe serves no one", socket.path.display())
        }));
        let Some((name, socket)) = chosen else { return Sorted { socket: None, notes, strangers } };
        if best.is_none() {
            notes.push(format!(
                "{name}: listens on {served}, but `listen` is {wanted}: clients are served on {served} only, change one of \
                 the two paths",
                served = socket.path.display(),
                wanted = wanted.display(),
            ));
        }
        Sorted { socket: Some(socket), notes, strangers }
    }
}

impl PassedSocket {
    /// `None` if it is anything else than a Unix stream socket that listens at a path.
    fn of(descriptor: OwnedFd) -> Option<Self> {
        let is_one = sockopt::socket_domain(&descriptor).is_ok_and(|domain| domain == AddressFamily::UNIX)
            && sockopt::socket_type(&descriptor).is_ok_and(|kind| kind == SocketType::STREAM)
            && sockopt::socket_acceptconn(&descriptor).unwrap_or(false);
        if !is_one {
            return None;
        }
        let listener = UnixListener::from(descriptor);
        let path = listener.local_addr().ok()?.as_pathname()?.to_owned();
        Some(Self { listener, path })
    }
}

/// Whether there is a manager to which notices go.
pub(crate) fn is_there() -> bool {
    env::var_os("NOTIFY_SOCKET").is_some()
}

/// Waits until the manager has dealt with all that it was sent.
///
/// # Errors
/// It cannot be reached, or takes too long.
pub(crate) fn answers() -> io::Result<()> {
    barrier(ANSWERING)
}

/// Asks the manager to store the connections for the next process, and waits until it has dealt with that. Whether it keeps
/// them is known by the descriptor alone.
///
/// # Errors
/// The manager cannot be reached, or takes too long: it may still store them later.
pub(crate) fn store(connections: BorrowedFd<'_>) -> io::Result<()> {
    let states = [NotifyState::FdStore, NotifyState::FdName(HANDOVER), NotifyState::Custom("FDPOLL=0")];
    notify(&states, Some(connections), PATIENCE)?;
    barrier(STORING)
}

/// Everything that was sent before is dealt with once the manager closes what comes with this.
fn barrier(patience: Duration) -> io::Result<()> {
    let began = clock::now();
    let (done, closes) = UnixStream::pair()?;
    notify(&[NotifyState::Custom("BARRIER=1")], Some(closes.as_fd()), patience)?;
    drop(closes);
    let left = patience.saturating_sub(clock::now() - began);
    let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
    match rustix::event::poll(&mut [PollFd::new(&done, PollFlags::empty())], Some(&left))? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

/// How often [`Notice::Alive`] is due, if it is.
pub(crate) fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled().filter(|due| !due.is_zero())
}

/// Sends notices, in this order and all at once. A failure is only logged: the manager acts on a missing notice.
pub(crate) async fn send(notices: Vec<Notice>) {
    let sent = timeout(PATIENCE, spawn_blocking(move || send_now(&notices))).await;
    match sent {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => tracing::debug!(%error, "cannot notify the service manager"),
        Ok(Err(error)) => tracing::debug!(%error, "cannot notify the service manager"),
        Err(_elapsed) => tracing::debug!("the service manager takes no notices"),
    }
}

fn send_now(notices: &[Notice]) -> io::Result<()> {
    let mut states = Vec::new();
    for notice in notices {
        match notice {
            Notice::Ready => states.push(NotifyState::Ready),
            Notice::Reloading => {
                states.push(NotifyState::Reloading);
                states.push(NotifyState::monotonic_usec_now()?);
            }
            Notice::Stopping => states.push(NotifyState::Stopping),
            Notice::Alive => states.push(NotifyState::Watchdog),
            Notice::TakenOver => states.extend([NotifyState::FdStoreRemove, NotifyState::FdName(HANDOVER)]),
            Notice::Useless(name) => states.extend([NotifyState::FdStoreRemove, NotifyState::FdName(name)]),
            Notice::Status(text) => states.push(NotifyState::Status(text)),
        }
    }
    notify(&states, None, PATIENCE)
}

/// Sends all of these in one message, with a descriptor. Unlike what sd-notify has for it, it does not wait for ever for a
/// manager that has stopped reading: a thread that waits would be lost with each notice.
fn notify(
    states: &[NotifyState<'_>],
    descriptor: Option<BorrowedFd<'_>>,
    patience: Duration,
) -> io::Result<()> {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let mut text = String::new();
    for state in states {
        let _ = writeln!(text, "{state}");
    }
    let socket = UnixDatagram::unbound()?;
    // sd_notify(3): a name in the abstract namespace begins with @.
    socket.connect_addr(&match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    })?;
    socket.set_write_timeout(Some(patience))?;
    let descriptors: Vec<_> = descriptor.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let rights = if descriptors.is_empty() { &[][..] } else { &rights };
    let sent = sendmsg::<()>(
        socket.as_raw_fd(),
        &[IoSlice::new(text.as_bytes())],
        rights,
        MsgFlags::MSG_NOSIGNAL,
        None,
    );
    match sent {
        Err(Errno::EAGAIN) => Err(io::ErrorKind::TimedOut.into()),
        sent => Ok(sent.map(drop)?),
    }
}

impl Notice {
    /// A status on one line: what others write, such as a runtime's error, must not become another notice.
    pub(crate) fn status(text: &str) -> Self {
        let mut line = text.replace(char::is_control, " ");
        line.truncate(line.floor_char_boundary(MAX_STATUS));
        Self::Status(line)
    }
}

/// Whether there is a descriptor of this number.
fn is_open(raw: RawFd) -> bool {
    // Asks for an address of which nothing is wanted: only this error says that there is none.
    getsockname::<()>(raw) != Err(Errno::EBADF)
}

/// The descriptor of this number as one that is owned. It takes a copy through a socket, and closes the number, because only
/// unsafe code can claim it.
fn adopt(raw: RawFd) -> io::Result<OwnedFd> {
    let (here, there) = UnixDatagram::pair()?;
    let rights = [ControlMessage::ScmRights(&[raw])];
    sendmsg::<()>(here.as_raw_fd(), &[IoSlice::new(&[0])], &rights, MsgFlags::empty(), None)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut received = RecvAncillaryBuffer::new(&mut space);
    recvmsg(&there, &mut [IoSliceMut::new(&mut [0])], &mut received, RecvFlags::CMSG_CLOEXEC)?;
    let copy = received.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    close(raw)?;
    copy.ok_or_else(|| io::Error::other(format!("the kernel did not pass descriptor {raw} on")))
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::IntoRawFd as _};

    use super::*;

    fn listening(path: &Path) -> OwnedFd {
        UnixListener::bind(path).unwrap().into()
    }

    #[test]
    fn a_descriptor_that_was_passed_is_owned_and_its_number_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let raw = listening(&path).into_raw_fd();
        let owned = adopt(raw).unwrap();
        let socket = PassedSocket::of(owned).unwrap();
        assert_eq!(socket.path, path);
        drop(socket);
        assert!(std::os::unix::net::UnixStream::connect(&path).is_err(), "no other descriptor listens");
        assert!(adopt(RawFd::MAX).is_err());
    }

    #[test]
    fn the_socket_at_the_configured_path_is_taken_and_all_else_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let named = |name: &str, descriptor| (name.to_owned(), descriptor);
        let of = |descriptors| Passed { descriptors, notes: vec![] };
        let passed = |number: u8| {
            of(vec![
                named("file", File::open("/dev/null").unwrap().into()),
                named("datagrams", UnixDatagram::bind(path(&format!("d{number}"))).unwrap().into()),
                named("one", listening(&path(&format!("a{number}")))),
                named("two", listening(&path(&format!("b{number}")))),
            ])
        };
        let Sorted { socket, notes, strangers } = passed(1).sort(&path("b1"));
        assert_eq!(socket.unwrap().path, path("b1"));
        assert_eq!(strangers, ["file", "datagrams"]);
        assert_eq!(notes.len(), 3, "{notes:?}");
        assert_eq!(notes[0], "file: is not a Unix socket that listens, and is not used");
        assert_eq!(
            notes[2],
            format!("one: listens on {}, where criprobe serves no one", path("a1").display())
        );

        let Sorted { socket, notes, .. } = passed(2).sort(&path("elsewhere"));
        assert_eq!(socket.unwrap().path, path("a2"));
        let last = notes.last().unwrap();
        assert!(
            last.starts_with("one: listens on ") && last.contains("/elsewhere: clients are served on "),
            "{last}"
        );

        std::os::unix::fs::symlink(dir.path(), path("link")).unwrap();
        let Sorted { socket, notes, .. } =
            of(vec![named("one", listening(&path("a3")))]).sort(&path("link/a3"));
        assert!(socket.is_some() && notes.is_empty(), "another name of the same file: {notes:?}");

        let Sorted { socket, notes, .. } = Passed::default().sort(&path("b1"));
        assert!(socket.is_none() && notes.is_empty());
    }

    #[test]
    fn a_status_is_one_line_of_bounded_length() {
        let Notice::Status(line) = Notice::status("away\nMAINPID=1\r\u{e9}") else { panic!() };
        assert_eq!(line, "away MAINPID=1 \u{e9}");
        let Notice::Status(line) = Notice::status(&"\u{e9}".repeat(400)) else { panic!() };
        assert_eq!(line.len(), MAX_STATUS);
    }
}
