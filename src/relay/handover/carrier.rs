//! Carries frozen connections from one process to the next, through whoever keeps one descriptor in between: the receiving end
//! of a socket pair, into which everything was sent. In: a relay that was frozen; out: that descriptor; and the other way
//! round.
//!
//! ```text
//! messages: M with the sending end and the memfd | S with up to 250 sockets, as often as needed | E
//! back:     T, from whoever begins to take them out
//! memfd:    length of the head u64 | head: runtime, time, last number, length of each record | records
//! ```
//! The sending end is among what is sent, so that it is open for as long as somebody has the other one: before version 246,
//! systemd forgets a descriptor that hangs up.
//!
//! The memfd cannot be changed any more: it is sealed. It may contain secrets of requests, so this descriptor is the
//! only way to it.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::{
    cmsg_space,
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create},
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg,
        socketpair, sockopt,
    },
};

use super::{FrozenConnection, FrozenRelay, Handover, HandoverError, Sockets, connection::MOST_COUNTED};
use crate::{
    carry::{Carry, Reader, Unreadable, Writer},
    clock,
    relay::descriptors::{self, MAX_CONNECTIONS, is_reserved},
    tap::{Blindness, Room},
};

/// How the head is written. Another number for anything that the version before could not read.
const FORMAT: u64 = 1;

/// 250 descriptors in one message; the kernel takes 253.
const PER_MESSAGE: usize = 250;

/// As many messages as all connections need, and some more: what follows is not ours.
const MOST_MESSAGES: usize = 2 * MAX_CONNECTIONS / PER_MESSAGE + 8;

/// 256 MiB: more than all taps keep, and than waits for all receivers.
const MOST_BYTES: u64 = 256 << 20;

/// What has these cannot be changed any more.
const SEALS: SealFlags = SealFlags::WRITE.union(SealFlags::GROW).union(SealFlags::SHRINK);

pub(in crate::relay) const MEMFD: u8 = b'M';
pub(in crate::relay) const SOCKETS: u8 = b'S';
pub(in crate::relay) const END: u8 = b'E';
const TAKEN: u8 = b'T';

/// What another process can take over, as long as somebody keeps a copy of its descriptor.
#[derive(Debug)]
pub struct Carrier {
    sending: OwnedFd,
    receiving: OwnedFd,
    /// How many messages are in it.
    messages: usize,
}

/// Who has the connections that were sent into a carrier, besides this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// Whoever has a copy of its descriptor, for the next process.
    Manager,
    /// The next process, at least some of them: this one must not touch any of them again.
    NextProcess,
    /// No process has a copy, and none will get one.
    None,
}

/// Why nothing can be taken over.
#[derive(Debug, thiserror::Error)]
pub enum CarrierError {
    /// It was never one of ours.
    #[error("the descriptor that was passed does not carry connections")]
    Foreign,
    /// It was taken back, or taken out by another process.
    #[error("the process before went on with its connections itself")]
    Empty,
    /// The memfd is missing, or not sealed.
    #[error("the state of the connections is missing")]
    NoState,
    /// Its head is damaged, or of another format.
    #[error("the state of the connections cannot be read: {0}")]
    State(#[from] Unreadable),
    /// The kernel.
    #[error("the descriptor that was passed cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// What was taken over.
#[derive(Debug)]
pub struct Takeover {
    /// For the relay that goes on.
    pub handover: Handover,
    /// When the other process wrote it: nothing was relayed since.
    pub left_at: Instant,
    /// Why connections end that were left.
    pub refused: Vec<HandoverError>,
    /// How many of the sockets that were passed belong to no connection; they are closed.
    pub foreign: usize,
    /// The end is missing.
    pub is_cut: bool,
    /// This process may not have as many descriptors as were left.
    pub is_short: bool,
}

impl Carrier {
    /// Sends all connections of a relay on their way. They stay with this process, too.
    ///
    /// # Errors
    /// The kernel refuses a descriptor, or as many of them.
    pub fn load(relay: &FrozenRelay) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (sending, receiving) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let (head, records) = encode(relay)?;
        let state = sealed([&head].into_iter().chain(&records).map(Vec::as_slice))?;
        send(&sending, MEMFD, &[sending.as_fd(), state.as_fd()])?;
        let sockets: Vec<_> =
            relay.connections.iter().flat_map(FrozenConnection::sockets).map(AsFd::as_fd).collect();
        let mut messages = 2;
        for sockets in sockets.chunks(PER_MESSAGE) {
            send(&sending, SOCKETS, sockets)?;
            messages += 1;
        }
        send(&sending, END, &[])?;
        Ok(Self { sending, receiving, messages })
    }

    /// The descriptor for whoever is to keep it.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.receiving.as_fd()
    }

    /// Takes everything out of it, so that whoever keeps a copy of the descriptor, or gets one later, has nothing.
    pub fn recall(self) -> Keeper {
        // Each message goes to one receiver alone.
        let is_whole = receive(&self.receiving).is_ok_and(|contents| contents.messages == self.messages);
        if is_whole { Keeper::None } else { Keeper::NextProcess }
    }

    /// Closes this process's copy of the descriptor. Whoever was given one has to have dealt with it.
    pub fn release(self) -> Keeper {
        let Self { sending, receiving, .. } = self;
        drop(receiving);
        let mut fds = [PollFd::new(&sending, PollFlags::empty())];
        let polled = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        let is_closed = fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR);
        if polled.is_ok() && !is_closed {
            Keeper::Manager
        } else if was_taken(&sending) {
            // It has closed its descriptor by now. What it says before stays.
            Keeper::NextProcess
        } else {
            Keeper::None
        }
    }
}

impl Takeover {
    /// Takes over what another process has left. A connection that is damaged ends; the others go on. Those that lead to
    /// another runtime than `runtime` go on blindly, and their clients are asked to connect again.
    ///
    /// # Errors
    /// It is nothing of ours, or of no use any more: all connections end.
    pub fn unload(carrier: &OwnedFd, room: &Arc<Room>, runtime: &Path) -> Result<Self, CarrierError> {
        if !is_carrier(carrier) {
            return Err(CarrierError::Foreign);
        }
        // For the process before, should it still run.
        drop(send(carrier, TAKEN, &[]));
        let Contents { state, mut sockets, sending, is_cut, mut is_short, .. } = receive(carrier)?;
        drop(sending);
        if state.is_none() && sockets.is_empty() {
            return Err(CarrierError::Empty);
        }
        let passed = sockets.len();
        sockets.retain(|socket| !is_reserved(socket));
        is_short |= sockets.len() < passed;
        let mut sockets: Sockets = sockets.into_iter().collect();
        let state = read_sealed(state.ok_or(CarrierError::NoState)?)?;
        let State { runtime: former, at, last_id, records } = decode(&state)?;
        let is_same_runtime = is_same_place(former, runtime);
        let (mut events, mut refused, mut connections) = (Vec::new(), Vec::new(), Vec::new());
        for record in records {
            let out = |event| events.push(event);
            match FrozenConnection::read(record, &mut sockets, room, at, is_same_runtime, out) {
                Ok(connection) => connections.push(connection),
                Err(error) => refused.push(error),
            }
        }
        let handover = Handover { room: Arc::clone(room), connections, last_id, events };
        Ok(Self { handover, left_at: at, refused, foreign: sockets.left(), is_cut, is_short })
    }
}

impl Takeover {
    /// Says what became of the connections.
    pub fn log(&self) {
        let Self { handover: Handover { connections, .. }, left_at: _, refused, foreign, is_cut, is_short } =
            self;
        let calls: usize = connections.iter().map(|connection| connection.tap.open_calls()).sum();
        let count = connections.len();
        tracing::info!(connections = count, calls, "going on with the connections of the process before");
        for reason in [Blindness::HandedOver, Blindness::OtherRuntime, Blindness::DamagedState] {
            let is_so = |connection: &&FrozenConnection| connection.tap.blindness() == Some(reason);
            let blind = connections.iter().filter(is_so).count();
            if blind > 0 {
                tracing::warn!(
                    connections = blind,
                    %reason,
                    "connections of the process before are relayed blindly, and their clients asked to connect again"
                );
            }
        }
        if *is_short {
            tracing::error!(
                connections = refused.len(),
                limit = descriptors::limit(),
                "connections of the process before ended: out of file descriptors, raise LimitNOFILE"
            );
            return;
        }
        if let Some(error) = refused.first() {
            tracing::warn!(connections = refused.len(), %error, "connections of the process before ended");
        }
        // Those of the connections that ended are explained.
        if *foreign > 2 * refused.len() || *is_cut {
            tracing::warn!(foreign, is_cut, "what the process before has left is not as it was sent");
        }
    }
}

/// The state as it is in the memfd.
struct State<'a> {
    /// Where the runtime is to which the connections lead.
    runtime: &'a Path,
    /// When it was written, by the clock of this process.
    at: Instant,
    last_id: u64,
    records: Vec<&'a [u8]>,
}

/// The head with its length, and the records.
fn encode(relay: &FrozenRelay) -> io::Result<(Vec<u8>, Vec<Vec<u8>>)> {
    let (now, since_boot) = (clock::now(), clock::since_boot());
    let records = relay.connections.iter().map(|connection| connection.record(now));
    let records = records.collect::<io::Result<Vec<_>>>()?;
    let mut head = Writer::new(FORMAT, now);
    head.bytes(relay.shared.runtime.as_os_str().as_bytes());
    u64::try_from(since_boot.as_nanos()).unwrap_or(u64::MAX).write(&mut head);
    relay.last_id.write(&mut head);
    records.len().write(&mut head);
    records.iter().for_each(|record| record.len().write(&mut head));
    let head = head.finish();
    let length = (head.len() as u64).to_le_bytes();
    Ok(([&length[..], &head].concat(), records))
}

fn decode(state: &[u8]) -> Result<State<'_>, CarrierError> {
    let (length, rest) = state.split_first_chunk().ok_or(Unreadable::Damaged)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| Unreadable::Damaged)?;
    let (head, mut rest) = rest.split_at_checked(length).ok_or(Unreadable::Damaged)?;
    let mut head = Reader::open(head, FORMAT, clock::now())?;
    let runtime = Path::new(OsStr::from_bytes(head.bytes()?));
    let age = clock::since_boot().saturating_sub(Duration::from_nanos(u64::read(&mut head)?));
    let now = clock::now();
    let (at, last_id) = (now.checked_sub(age).unwrap_or(now), u64::read(&mut head)?);
    if last_id > MOST_COUNTED {
        return Err(Unreadable::Damaged.into());
    }
    let mut records = Vec::new();
    for _ in 0..usize::read(&mut head)? {
        let length = usize::read(&mut head)?;
        let (record, others) = rest.split_at_checked(length).ok_or(Unreadable::Damaged)?;
        records.push(record);
        rest = others;
    }
    head.end()?;
    Ok(State { runtime, at, last_id, records })
}

/// Whether two paths are the same, or lead to the same file.
fn is_same_place(a: &Path, b: &Path) -> bool {
    a == b || matches!((fs::canonicalize(a), fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b)
}

/// A file in memory that has these bytes for good.
pub(in crate::relay) fn sealed<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(memfd_create("criprobe-handover", flags)?);
    for bytes in parts {
        file.write_all(bytes)?;
    }
    fcntl_add_seals(&file, SEALS | SealFlags::SEAL)?;
    Ok(file.into())
}

fn read_sealed(state: OwnedFd) -> Result<Vec<u8>, CarrierError> {
    // Only a memfd has seals.
    if !fcntl_get_seals(&state).is_ok_and(|seals| seals.contains(SEALS)) {
        return Err(CarrierError::NoState);
    }
    let mut file = File::from(state);
    if file.metadata()?.len() > MOST_BYTES {
        return Err(Unreadable::Damaged.into());
    }
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub(in crate::relay) fn send(socket: &OwnedFd, kind: u8, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = vec![MaybeUninit::uninit(); cmsg_space!(ScmRights(PER_MESSAGE))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::MSGSIZE.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[IoSlice::new(&[kind])], &mut control, flags)?;
    Ok(())
}

/// Whether a process has begun to take over.
fn was_taken(sending: &OwnedFd) -> bool {
    // The first answer may be that messages were left behind.
    (0..2).any(|_| {
        let (mut kind, mut space) = ([0], [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))]);
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        recvmsg(sending, &mut [IoSliceMut::new(&mut kind)], &mut control, flags).is_ok() && kind[0] == TAKEN
    })
}

/// Whether it is a socket of the kind that carriers are.
fn is_carrier(descriptor: &OwnedFd) -> bool {
    sockopt::socket_domain(descriptor).is_ok_and(|domain| domain == AddressFamily::UNIX)
        && sockopt::socket_type(descriptor).is_ok_and(|kind| kind == SocketType::SEQPACKET)
}

#[derive(Debug, Default)]
pub(in crate::relay) struct Contents {
    pub(in crate::relay) state: Option<OwnedFd>,
    pub(in crate::relay) sockets: Vec<OwnedFd>,
    /// The other end. Closed with something unread in it, it would fail the next read of this one.
    sending: Option<OwnedFd>,
    messages: usize,
    is_cut: bool,
    /// Descriptors are missing, as this process may not have more.
    is_short: bool,
}

/// Takes everything out of a carrier, and waits for nothing.
pub(in crate::relay) fn receive(carrier: &OwnedFd) -> Result<Contents, CarrierError> {
    let mut received = Contents { is_cut: true, ..Contents::default() };
    let mut space = vec![MaybeUninit::uninit(); cmsg_space!(ScmRights(PER_MESSAGE))];
    for _ in 0..MOST_MESSAGES {
        let (mut kind, mut control) = ([0], RecvAncillaryBuffer::new(&mut space));
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let message = match recvmsg(carrier, &mut [IoSliceMut::new(&mut kind)], &mut control, flags) {
            Ok(message) => message,
            // Whoever sent it ended before it was complete.
            Err(Errno::AGAIN) => break,
            // The other end has closed, and has not read what was sent back; all messages are still there.
            Err(Errno::INTR | Errno::CONNRESET) => continue,
            Err(error) => return Err(io::Error::from(error).into()),
        };
        received.messages += 1;
        received.is_short |= message.flags.contains(ReturnFlags::CTRUNC);
        let mut descriptors: Vec<OwnedFd> = Vec::new();
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(passed) = part {
                descriptors.extend(passed);
            }
        }
        match kind[0] {
            END if message.bytes == 1 => {
                received.is_cut = false;
                break;
            }
            MEMFD if received.state.is_none() => {
                received.state = descriptors.pop();
                received.sending = descriptors.pop();
            }
            // If this process has no room for all of them, the connections of the others end.
            SOCKETS => received.sockets.append(&mut descriptors),
            // The other end is closed, or this is not ours.
            _ => break,
        }
    }
    Ok(received)
}
