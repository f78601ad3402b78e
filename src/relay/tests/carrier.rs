//! What one process sends into a carrier, and another takes out of it: whole, damaged, and foreign.

use std::{
    fs::File,
    io::{Seek, SeekFrom},
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{MemfdFlags, memfd_create},
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
};

use super::{
    handover::carrier::{
        Carrier, CarrierError, END, Keeper, MEMFD, SOCKETS, Takeover, receive, sealed, send,
    },
    *,
};
use crate::{carry::Unreadable, tap::Blindness};

impl Rig {
    /// Freezes, and leaves everything in a carrier.
    fn load(&mut self) -> OwnedFd {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let frozen = runtime.block_on(self.relay.take().unwrap().freeze());
        let carrier = Carrier::load(&frozen).unwrap();
        self.listener = Some(frozen.listener.try_clone().unwrap());
        carrier.descriptor().try_clone_to_owned().unwrap()
    }

    /// Another process goes on.
    fn unload(&mut self, carrier: &OwnedFd) -> Takeover {
        let mut taken = Takeover::unload(carrier, &Arc::default(), &self.runtime_path).unwrap();
        let (output, observations) = output::channel(1024);
        (self.registry, self.observations) = (Registry::default(), observations);
        let handover = std::mem::replace(&mut taken.handover, Handover::nothing(Room::default()));
        let clients = ClientSocket { listener: self.listener.take().unwrap(), is_kept: false };
        let (gate, registry, runtime) = (self.gate.clone(), self.registry.clone(), self.runtime_path.clone());
        self.relay =
            Some(Relay::start(clients, runtime, beats(2), gate, handover, output, registry).unwrap());
        taken
    }
}

/// Takes everything out, as the process of some runtime.
fn unload(carrier: &OwnedFd) -> Result<Takeover, CarrierError> {
    Takeover::unload(carrier, &Arc::default(), Path::new("/run/runtime.sock"))
}

/// The bytes of a memfd.
fn bytes_of(state: OwnedFd) -> Vec<u8> {
    let (mut file, mut bytes) = (File::from(state), vec![]);
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

/// A pair of the kind that carriers are; the second end receives.
fn empty() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
}

#[test]
fn all_connections_and_their_order_pass_however_many_there_are() {
    let mut rig = Rig::new(16);
    let mut pairs: Vec<_> = (0..130).map(|_| rig.dialled_pair()).collect();
    eventually("all are registered", || rig.registry.count() == 130);
    let before: Vec<_> = rig.registry.snapshot().iter().map(|one| (one.id, one.since)).collect();
    let carrier = rig.load();
    let taken = rig.unload(&carrier);
    assert!(taken.refused.is_empty() && taken.foreign == 0 && !taken.is_cut, "{taken:?}");
    let after: Vec<_> = rig.registry.snapshot().iter().map(|one| (one.id, one.since)).collect();
    assert_eq!(after, before);
    for (client, runtime) in &mut pairs {
        client.write_all(b"up").unwrap();
        runtime.read_exact(&mut [0; 2]).unwrap();
        runtime.write_all(b"down").unwrap();
        client.read_exact(&mut [0; 4]).unwrap();
    }
    // Nothing is left in it for a third process.
    assert!(matches!(unload(&carrier), Err(CarrierError::Empty)));
}

#[test]
fn a_carrier_hangs_up_once_it_was_taken_out_and_not_when_its_sender_ends() {
    let hangs_up = |carrier: &OwnedFd| {
        let mut fds = [PollFd::new(carrier, PollFlags::empty())];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
        fds[0].revents().contains(PollFlags::HUP)
    };
    let mut rig = Rig::new(16);
    let (mut client, mut runtime) = rig.dialled_pair();
    eventually("it is registered", || rig.registry.count() == 1);
    // Its other end exists only here.
    let carrier = rig.load();
    assert!(!hangs_up(&carrier));
    rig.unload(&carrier);
    assert!(hangs_up(&carrier));
    client.write_all(b"on").unwrap();
    runtime.read_exact(&mut [0; 2]).unwrap();
}

#[test]
fn connections_to_another_runtime_are_known_by_its_path() {
    let mut rig = Rig::new(16);
    let _pair = rig.dialled_pair();
    eventually("it is registered", || rig.registry.count() == 1);
    let background = tokio::runtime::Runtime::new().unwrap();
    let frozen = background.block_on(rig.relay.take().unwrap().freeze());
    let link = rig.runtime_path.with_extension("link");
    std::os::unix::fs::symlink(&rig.runtime_path, &link).unwrap();
    let other = Some(Blindness::OtherRuntime);
    for (path, expected) in
        [(&rig.runtime_path, None), (&link, None), (&rig.path, other), (&link.join("missing"), other)]
    {
        let carrier = Carrier::load(&frozen).unwrap().descriptor().try_clone_to_owned().unwrap();
        let taken = Takeover::unload(&carrier, &Arc::default(), path).unwrap();
        assert_eq!(taken.handover.connections[0].tap.blindness(), expected, "{}", path.display());
    }
}

#[test]
fn without_any_connection_the_numbers_go_on() {
    let mut rig = Rig::new(16);
    drop(rig.pair());
    eventually("it was there", || rig.registry.total() == 1 && rig.registry.count() == 0);
    let carrier = rig.load();
    rig.unload(&carrier);
    let _pair = rig.pair();
    eventually("it has the next number", || rig.registry.snapshot().first().is_some_and(|one| one.id.0 == 2));
}

#[test]
fn who_has_the_connections_is_known_and_they_go_on_in_no_two_processes() {
    // What became of a copy of the descriptor, whether it is still there, and who has the connections: once ours is closed,
    // or everything was taken back.
    type Row = (&'static str, fn(&OwnedFd), bool, Keeper, Keeper);
    let taken: fn(&OwnedFd) = |copy| drop(unload(copy).unwrap());
    let in_part: fn(&OwnedFd) = |copy| {
        // The first message, as by a process that is killed in the middle.
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(250))];
        let mut control = rustix::net::RecvAncillaryBuffer::new(&mut space);
        let mut kind = [0];
        let mut into = [std::io::IoSliceMut::new(&mut kind)];
        rustix::net::recvmsg(copy, &mut into, &mut control, rustix::net::RecvFlags::empty()).unwrap();
    };
    let rows: [Row; 5] = [
        ("there was no copy", |_| {}, false, Keeper::None, Keeper::None),
        ("it is kept", |_| {}, true, Keeper::Manager, Keeper::None),
        ("taken over, and closed", taken, false, Keeper::NextProcess, Keeper::NextProcess),
        ("taken over, and kept", taken, true, Keeper::Manager, Keeper::NextProcess),
        ("taken over in part", in_part, true, Keeper::Manager, Keeper::NextProcess),
    ];
    for (what, deal_with, is_there, released, recalled) in rows {
        for (is_recall, expected) in [(false, released), (true, recalled)] {
            let mut rig = Rig::new(16);
            let (mut client, mut runtime) = rig.dialled_pair();
            eventually("it is registered", || rig.registry.count() == 1);
            let background = tokio::runtime::Runtime::new().unwrap();
            let frozen = background.block_on(rig.relay.take().unwrap().freeze());
            let carrier = Carrier::load(&frozen).unwrap();
            let copy = carrier.descriptor().try_clone_to_owned().unwrap();
            deal_with(&copy);
            let copy = is_there.then_some(copy);
            let keeper = if is_recall { carrier.recall() } else { carrier.release() };
            assert_eq!(keeper, expected, "{what}, recalled: {is_recall}");
            if keeper != Keeper::None {
                continue;
            }
            if let Some(copy) = copy {
                let error = unload(&copy).unwrap_err();
                assert!(matches!(error, CarrierError::Empty), "{what}: {error:?}");
            }
            rig.relay = Some(frozen.thaw().unwrap());
            client.write_all(b"on").unwrap();
            runtime.read_exact(&mut [0; 2]).unwrap();
        }
    }
}

/// What came out of a carrier, to be sent again in another way.
struct Loaded {
    state: Vec<u8>,
    sockets: Vec<OwnedFd>,
}

fn send_state(to: &OwnedFd, state: &[u8]) {
    send(to, MEMFD, &[sealed([state]).unwrap().as_fd()]).unwrap();
}

fn send_sockets(to: &OwnedFd, sockets: &[OwnedFd]) {
    let sockets: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
    send(to, SOCKETS, &sockets).unwrap();
}

/// The head of a state begins after its length, with layout and checksum.
fn with_head(state: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut state = state.to_vec();
    let length = usize::try_from(u64::from_le_bytes(*state.first_chunk().unwrap())).unwrap();
    let head = &mut state[8..8 + length];
    change(head);
    let checksum = crate::carry::checksum(&head[16..]);
    head[8..16].copy_from_slice(&checksum.to_le_bytes());
    state
}

#[test]
fn of_what_is_incomplete_or_foreign_every_whole_connection_goes_on() {
    // How it is sent; how many of three connections go on, refusals, foreign descriptors, and whether the end is missing.
    type Row = (&'static str, fn(&OwnedFd, &Loaded), (usize, usize, usize, bool));
    let rows: [Row; 8] = [
        (
            "as it was",
            |to, loaded| {
                send_state(to, &loaded.state);
                send_sockets(to, &loaded.sockets);
                send(to, END, &[]).unwrap();
            },
            (3, 0, 0, false),
        ),
        (
            "without its end",
            |to, loaded| {
                send_state(to, &loaded.state);
                send_sockets(to, &loaded.sockets);
            },
            (3, 0, 0, true),
        ),
        (
            "cut within a pair",
            |to, loaded| {
                send_state(to, &loaded.state);
                send_sockets(to, &loaded.sockets[..3]);
            },
            (1, 2, 0, true),
        ),
        (
            "without any socket",
            |to, loaded| {
                send_state(to, &loaded.state);
                send(to, END, &[]).unwrap();
            },
            (0, 3, 0, false),
        ),
        (
            "in another order, with the state in the middle",
            |to, loaded| {
                let (some, others) = loaded.sockets.split_at(3);
                send_sockets(to, others);
                send_state(to, &loaded.state);
                send_sockets(to, some);
                send(to, END, &[]).unwrap();
            },
            (3, 0, 0, false),
        ),
        (
            "with a socket twice",
            |to, loaded| {
                send_state(to, &loaded.state);
                send_sockets(to, &loaded.sockets);
                send_sockets(to, &loaded.sockets[..1]);
                send(to, END, &[]).unwrap();
            },
            (2, 1, 0, false),
        ),
        (
            "with sockets and files of others",
            |to, loaded| {
                send_state(to, &loaded.state);
                let (one, other) = UnixStream::pair().unwrap();
                let file = File::open("/dev/null").unwrap();
                send_sockets(to, &[one.into(), other.into(), file.into()]);
                send_sockets(to, &loaded.sockets);
                send(to, END, &[]).unwrap();
            },
            (3, 0, 2, false),
        ),
        (
            "with a message of another kind",
            |to, loaded| {
                send_state(to, &loaded.state);
                send_sockets(to, &loaded.sockets[..2]);
                send_kind(to, b'?', &loaded.sockets[2..]);
                send_sockets(to, &loaded.sockets[2..]);
                send(to, END, &[]).unwrap();
            },
            (1, 2, 0, true),
        ),
    ];
    for (what, send_again, (going_on, refused, foreign, is_cut)) in rows {
        let mut rig = Rig::new(16);
        let mut pairs: Vec<_> = (0..3).map(|_| rig.dialled_pair()).collect();
        eventually("all are registered", || rig.registry.count() == 3);
        let received = receive(&rig.load()).unwrap();
        let loaded = Loaded { state: bytes_of(received.state.unwrap()), sockets: received.sockets };
        let (sending, receiving) = empty();
        send_again(&sending, &loaded);
        drop((sending, loaded));
        let taken = rig.unload(&receiving);
        drop(receiving);
        assert_eq!(
            (rig.registry.count(), taken.refused.len(), taken.foreign, taken.is_cut),
            (going_on, refused, foreign, is_cut),
            "{what}: {taken:?}"
        );
        let served = pairs.iter_mut().filter_map(|(client, runtime)| {
            client.write_all(b"x").ok()?;
            runtime.read_exact(&mut [0]).ok()
        });
        assert_eq!(served.count(), going_on, "{what}: the others are closed on both sides");
    }
}

fn send_kind(to: &OwnedFd, kind: u8, sockets: &[OwnedFd]) {
    let sockets: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
    send(to, kind, &sockets).unwrap();
}

#[test]
fn what_is_not_ours_or_of_no_use_is_refused_and_leaves_nothing_open() {
    let mut rig = Rig::new(16);
    let _pair = rig.dialled_pair();
    eventually("it is registered", || rig.registry.count() == 1);
    let state = bytes_of(receive(&rig.load()).unwrap().state.unwrap());
    let other_format = with_head(&state, |head| head[0] ^= 2);
    let endless = with_head(&state, |head| {
        let end = head.len();
        head[end - 8..].fill(0xff);
    });
    let mut damaged = state.clone();
    damaged[40] ^= 1;
    type Check = fn(&CarrierError) -> bool;
    let rows: [(&str, Option<Vec<u8>>, Check); 6] = [
        ("nothing", None, |error| matches!(error, CarrierError::Empty)),
        ("of another format", Some(other_format), |error| {
            matches!(error, CarrierError::State(Unreadable::OtherLayout))
        }),
        ("damaged", Some(damaged), |error| matches!(error, CarrierError::State(Unreadable::Damaged))),
        ("a record without an end", Some(endless), |error| {
            matches!(error, CarrierError::State(Unreadable::Damaged))
        }),
        ("cut short", Some(state[..30].to_vec()), |error| {
            matches!(error, CarrierError::State(Unreadable::Damaged))
        }),
        ("empty", Some(vec![]), |error| matches!(error, CarrierError::State(Unreadable::Damaged))),
    ];
    for (what, state, is_right) in rows {
        let (sending, receiving) = empty();
        if let Some(state) = state {
            send_state(&sending, &state);
        }
        send(&sending, END, &[]).unwrap();
        let error = unload(&receiving).unwrap_err();
        assert!(is_right(&error), "{what}: {error:?}");
    }

    // A file that its writer could still change.
    let (sending, receiving) = empty();
    let mut open = File::from(memfd_create("open", MemfdFlags::ALLOW_SEALING).unwrap());
    open.write_all(&state).unwrap();
    send(&sending, MEMFD, &[open.as_fd()]).unwrap();
    assert!(matches!(unload(&receiving), Err(CarrierError::NoState)));

    let foreign: [OwnedFd; 4] = [
        File::open("/dev/null").unwrap().into(),
        UnixStream::pair().unwrap().0.into(),
        std::os::unix::net::UnixDatagram::unbound().unwrap().into(),
        std::net::TcpListener::bind("127.0.0.1:0").unwrap().into(),
    ];
    for descriptor in &foreign {
        assert!(matches!(unload(descriptor), Err(CarrierError::Foreign)));
    }
}

#[test]
fn descriptors_that_are_not_taken_over_are_closed() {
    let (sending, receiving) = empty();
    let (one, mut other) = UnixStream::pair().unwrap();
    send_sockets(&sending, &[one.into()]);
    send_kind(&sending, b'?', &[File::open("/dev/null").unwrap().into()]);
    assert!(unload(&receiving).is_err());
    assert_eq!(other.read(&mut [0]).unwrap(), 0, "its other end was closed");
}
