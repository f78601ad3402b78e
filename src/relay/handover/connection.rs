//! A connection between two relays: what one leaves, and the other goes on with. As values within a process, and as a record
//! and its sockets between two.
//!
//! The record of a connection means the same in every version of criprobe, but for the tap's bytes in it: a version that keeps
//! other state in its taps relays that connection blindly, and asks its client to connect again. So does one that serves
//! another runtime.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::{
    carry::{Carry, Reader, Unreadable, Writer},
    ids::ConnId,
    peer::Peer,
    relay::pump::{Finished, FrozenPump},
    tap::{Blindness, Boundary, Room, Tap, TapEvent},
};

/// How a record is written. Another number for anything that the version before could not read.
const FORMAT: u64 = 1;

/// 64 KiB: the most that waits in one direction, which is one read of a relay thread.
const MOST_PENDING: usize = 64 << 10;

/// 64 bytes: more than two frames of ours.
const MOST_OURS: usize = 64;

/// Larger than any count can become.
pub(super) const MOST_COUNTED: u64 = u64::MAX / 2;

/// A connection that has stopped where it was.
#[derive(Debug)]
pub struct FrozenConnection {
    pub(in crate::relay) id: ConnId,
    pub(in crate::relay) peer: Arc<Peer>,
    pub(in crate::relay) since: SystemTime,
    pub(in crate::relay) blind: Option<(SystemTime, Blindness)>,
    pub(in crate::relay) client: UnixStream,
    /// Not there before it was dialled.
    pub(in crate::relay) runtime: Option<UnixStream>,
    pub(in crate::relay) up: FrozenPump,
    pub(in crate::relay) down: FrozenPump,
    pub(in crate::relay) tap: Tap,
    pub(in crate::relay) farewell: Option<Boundary>,
    pub(in crate::relay) owes_answer: bool,
}

/// The sockets that another process has passed, by what is theirs alone: a damaged record costs no other connection its own.
#[derive(Debug, Default)]
pub struct Sockets(BTreeMap<u64, OwnedFd>);

impl FromIterator<OwnedFd> for Sockets {
    /// What is no connected socket, or looks like another one, is closed.
    fn from_iter<I: IntoIterator<Item = OwnedFd>>(passed: I) -> Self {
        let (mut sockets, mut doubled) = (BTreeMap::new(), BTreeSet::new());
        for socket in passed {
            if let Some(cookie) = cookie_of_stream(&socket)
                && sockets.insert(cookie, socket).is_some()
            {
                doubled.insert(cookie);
            }
        }
        sockets.retain(|cookie, _| !doubled.contains(cookie));
        Self(sockets)
    }
}

impl Sockets {
    /// How many were not taken.
    pub fn left(&self) -> usize {
        self.0.len()
    }

    pub(in crate::relay) fn take(&mut self, cookie: u64) -> Result<UnixStream, HandoverError> {
        self.0.remove(&cookie).map(UnixStream::from).ok_or(HandoverError::NoSocket)
    }
}

/// Why a connection is not gone on with.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// Its record.
    #[error("its record cannot be read: {0}")]
    Record(#[from] Unreadable),
    /// Its sockets.
    #[error("its socket was not passed on")]
    NoSocket,
    /// The kernel.
    #[error("its socket cannot be used: {0}")]
    Socket(#[from] io::Error),
}

impl FrozenConnection {
    /// Its number.
    pub fn id(&self) -> ConnId {
        self.id
    }

    /// Its sockets.
    pub fn sockets(&self) -> impl Iterator<Item = &UnixStream> {
        [&self.client].into_iter().chain(&self.runtime)
    }

    /// All but its sockets. It was frozen before `now`, which the reader has to know. May contain secrets of requests.
    ///
    /// # Errors
    /// A socket cannot be identified.
    pub fn record(&self, now: Instant) -> io::Result<Vec<u8>> {
        let mut into = Writer::new(FORMAT, now);
        self.id.0.write(&mut into);
        into.bytes(self.peer.comm.as_bytes());
        nanos(self.since).write(&mut into);
        self.blind.map(|(since, _)| nanos(since)).write(&mut into);
        sockopt::socket_cookie(&self.client)?.write(&mut into);
        self.runtime.as_ref().map(sockopt::socket_cookie).transpose()?.write(&mut into);
        write_pump(&self.up, &mut into);
        write_pump(&self.down, &mut into);
        self.owes_answer.write(&mut into);
        // Another version asks the client to connect again, if this one does not do so already.
        self.farewell.or(self.tap.boundary()).map(|boundary| boundary.encode()).write(&mut into);
        into.bytes(&self.tap.carry(now));
        Ok(into.finish())
    }

    /// Goes on with a connection of another process. `now` as it was written; events of its tap go `out`. A connection whose
    /// tap is of no use goes on blindly, and its client is asked to connect again.
    ///
    /// # Errors
    /// The record is damaged, or `sockets` does not have those that it names.
    pub fn read(
        record: &[u8],
        sockets: &mut Sockets,
        room: &Arc<Room>,
        now: Instant,
        is_same_runtime: bool,
        mut out: impl FnMut(TapEvent),
    ) -> Result<Self, HandoverError> {
        let mut from = Reader::open(record, FORMAT, now)?;
        let id = ConnId(u64::read(&mut from)?);
        let comm = from.text()?.to_owned();
        let since = time(u64::read(&mut from)?);
        let blind_since = Option::<u64>::read(&mut from)?.map(time);
        let (client, runtime) = (u64::read(&mut from)?, Option::<u64>::read(&mut from)?);
        let (up, down) = (read_pump(&mut from)?, read_pump(&mut from)?);
        if id.0 > MOST_COUNTED {
            return Err(Unreadable::Damaged.into());
        }
        let owes_answer = bool::read(&mut from)?;
        let farewell = Option::<[u8; Boundary::SIZE]>::read(&mut from)?
            .map(|bytes| Boundary::decode(bytes).ok_or(Unreadable::Damaged))
            .transpose()?;
        let tap = from.bytes()?;
        from.end()?;

        // Both are taken before anything can fail: half a connection is of no use.
        let (client, runtime) =
            (sockets.take(client), runtime.map(|runtime| sockets.take(runtime)).transpose());
        let (client, runtime) = (client?, runtime?);
        let peer = Arc::new(Peer { comm, ..Peer::of(&client)? });
        let resumed = if is_same_runtime || runtime.is_none() {
            Tap::resume(room, id, Arc::clone(&peer), tap, now, &mut out).map_err(|error| match error {
                Unreadable::OtherLayout => Blindness::HandedOver,
                Unreadable::Damaged => Blindness::DamagedState,
            })
        } else {
            // What it would report is not of the pods and containers of this runtime.
            Err(Blindness::OtherRuntime)
        };
        let (tap, farewell) = match resumed {
            // A blind one is asked only if that was begun.
            Ok(tap) => {
                let farewell = farewell.filter(|_| tap.blindness().is_some());
                (tap, farewell)
            }
            Err(reason) => (Tap::handed_over(id, reason, &mut out), farewell),
        };
        let blind = tap.blindness().map(|reason| (blind_since.unwrap_or(since), reason));
        Ok(Self { id, peer, since, blind, client, runtime, up, down, tap, farewell, owes_answer })
    }
}

fn write_pump(pump: &FrozenPump, into: &mut Writer) {
    let FrozenPump { ours, pending, bytes, has_ended, finished } = pump;
    into.bytes(ours);
    into.bytes(pending);
    bytes.write(into);
    has_ended.write(into);
    let finished: u8 = match finished {
        None => 0,
        Some(Finished::Ended) => 1,
        Some(Finished::Refused) => 2,
    };
    finished.write(into);
}

fn read_pump(from: &mut Reader<'_>) -> Result<FrozenPump, Unreadable> {
    let (ours, pending) = (from.bytes()?, from.bytes()?);
    let (bytes, has_ended) = (u64::read(from)?, bool::read(from)?);
    let finished = match u8::read(from)? {
        0 => None,
        1 => Some(Finished::Ended),
        2 => Some(Finished::Refused),
        _ => return Err(Unreadable::Damaged),
    };
    let has_bounds = ours.len() <= MOST_OURS && pending.len() <= MOST_PENDING && bytes <= MOST_COUNTED;
    if !has_bounds || (finished.is_some() && !(ours.is_empty() && pending.is_empty())) {
        return Err(Unreadable::Damaged);
    }
    Ok(FrozenPump { ours: ours.to_vec(), pending: pending.to_vec(), bytes, has_ended, finished })
}

fn nanos(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn time(nanos: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(nanos)
}

/// What is a socket's alone, and the same in all processes; `None` for anything but a Unix stream.
fn cookie_of_stream(passed: &OwnedFd) -> Option<u64> {
    let is_unix = sockopt::socket_domain(passed).is_ok_and(|domain| domain == AddressFamily::UNIX);
    let is_stream = sockopt::socket_type(passed).is_ok_and(|kind| kind == SocketType::STREAM);
    sockopt::socket_cookie(passed).ok().filter(|_| is_unix && is_stream)
}
