//! Connections that one relay leaves and another goes on with, as between two processes: by records, and copies of the
//! sockets.

use super::{
    handover::{FrozenRelay, HandoverError, Sockets},
    *,
};
use crate::{
    carry::{self, Unreadable},
    tap::{Blindness, CallEnd},
};

const VERSION: &str = "/runtime.v1.RuntimeService/Version";

/// What one process leaves to the next.
struct Left {
    records: Vec<Vec<u8>>,
    sockets: Sockets,
    listener: UnixListener,
    at: Instant,
}

/// As a version that keeps other state in its taps would have written it.
fn of_another_version(record: &mut [u8]) {
    let layout = crate::tap::Tap::LAYOUT.to_le_bytes();
    let at = record.windows(8).position(|window| window == layout).unwrap();
    record[at] ^= 1;
    sealed(record);
}

/// What is in the tap is not what was written.
fn of_damaged_tap(record: &mut [u8]) {
    let layout = crate::tap::Tap::LAYOUT.to_le_bytes();
    let at = record.windows(8).position(|window| window == layout).unwrap();
    record[at + 20] ^= 1;
    sealed(record);
}

/// With a checksum that fits.
fn sealed(record: &mut [u8]) {
    let checksum = carry::checksum(&record[16..]);
    record[8..16].copy_from_slice(&checksum.to_le_bytes());
}

impl Rig {
    fn freeze(&mut self) -> FrozenRelay {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(self.relay.take().unwrap().freeze())
    }

    fn leave(&mut self) -> Left {
        let frozen = self.freeze();
        assert_eq!(frozen.lost, 0);
        let at = clock::now();
        Left {
            records: frozen.connections.iter().map(|one| one.record(at).unwrap()).collect(),
            sockets: frozen
                .connections
                .iter()
                .flat_map(FrozenConnection::sockets)
                .map(|socket| socket.try_clone().unwrap().into())
                .collect(),
            listener: frozen.listener.try_clone().unwrap(),
            at,
        }
    }

    /// Another process takes over; says what was wrong with connections that it does not go on with.
    fn take_over(&mut self, left: Left) -> Vec<HandoverError> {
        self.take_over_for(true, left)
    }

    /// The same, by one that serves the same runtime or another.
    fn take_over_for(&mut self, is_same_runtime: bool, left: Left) -> Vec<HandoverError> {
        let Left { records, mut sockets, listener, at } = left;
        let (room, mut events, mut errors) = (Arc::default(), vec![], vec![]);
        let read = records.iter().map(|record| {
            let out = |event| events.push(event);
            FrozenConnection::read(record, &mut sockets, &room, at, is_same_runtime, out)
        });
        let connections = read.filter_map(|read| read.map_err(|error| errors.push(error)).ok()).collect();
        let (output, observations) = output::channel(1024);
        (self.registry, self.observations) = (Registry::default(), observations);
        let (gate, registry, handover) =
            (self.gate.clone(), self.registry.clone(), Handover { room, connections, last_id: 0, events });
        let clients = ClientSocket { listener, is_kept: false };
        let relay =
            Relay::start(clients, self.runtime_path.clone(), beats(2), gate, handover, output, registry)
                .unwrap();
        self.relay = Some(relay);
        errors
    }

    fn hand_over(&mut self) {
        let left = self.leave();
        assert!(self.take_over(left).is_empty());
    }
}

/// Nothing arrives here for a while.
fn is_silent(stream: &mut UnixStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(150))).unwrap();
    let read = stream.read(&mut [0]).map_err(|error| error.kind());
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    read == Err(std::io::ErrorKind::WouldBlock)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn bytes_arrive_as_they_were_sent_however_often_the_connection_is_handed_over(
        up in prop::collection::vec(any::<u8>(), 1..4000),
        down in prop::collection::vec(any::<u8>(), 1..4000),
        pieces in prop::collection::vec(1usize..9000, 1..20),
        starts_like_http2: bool,
        // A side that has little to send is closed long before the other.
        times in (1usize..300, 1usize..300),
        pauses in prop::collection::vec(0u64..6, 1..6),
        is_thawed: bool,
    ) {
        let mut rig = Rig::new(1024);
        let (client, runtime) = rig.dialled_pair();
        small_buffers(&client);
        small_buffers(&runtime);
        let up = conversation(starts_like_http2, &up, times.0);
        let down = conversation(starts_like_http2, &down, times.1);
        let threads = [
            send_in_pieces(client.try_clone().unwrap(), up.clone(), pieces.clone()),
            send_in_pieces(runtime.try_clone().unwrap(), down.clone(), pieces),
        ];
        let slowly = |mut stream: UnixStream| thread::spawn(move || {
            let (mut bytes, mut buffer) = (Vec::new(), vec![0; 4096]);
            loop {
                match stream.read(&mut buffer).unwrap() {
                    0 => return bytes,
                    count => bytes.extend_from_slice(&buffer[..count]),
                }
                thread::sleep(Duration::from_micros(100));
            }
        });
        let (at_runtime, at_client) = (slowly(runtime), receive(client));
        for pause in pauses {
            thread::sleep(Duration::from_millis(pause));
            if is_thawed {
                rig.relay = Some(rig.freeze().thaw().unwrap());
            } else {
                rig.hand_over();
            }
        }
        let (at_runtime, at_client) = (at_runtime.join().unwrap(), at_client.join().unwrap());
        prop_assert!(at_runtime == up, "{} of {} bytes", at_runtime.len(), up.len());
        prop_assert!(at_client == down, "{} of {} bytes", at_client.len(), down.len());
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        eventually("the connection is forgotten", || rig.registry.count() == 0);
        rig.drain();
    }
}

#[test]
fn what_waits_for_a_slow_client_waits_across_a_handover() {
    let mut rig = Rig::new(16);
    let (mut client, mut runtime) = rig.pair();
    small_buffers(&runtime);
    let sent: Vec<u8> = (0..1 << 20_u32).map(|index| (index / 251) as u8).collect();
    runtime.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut count = 0;
    while let Ok(more) = runtime.write(&sent[count..]) {
        count += more;
        assert!(count < sent.len(), "the client reads nothing, so some of it waits");
    }
    runtime.shutdown(std::net::Shutdown::Write).unwrap();
    let left = rig.leave();
    assert!(left.records[0].len() > 4096, "some of it waits in the relay");
    assert!(rig.take_over(left).is_empty());
    let mut received = Vec::new();
    client.read_to_end(&mut received).unwrap();
    assert!(received == sent[..count]);
}

#[test]
fn a_call_that_is_handed_over_in_the_middle_is_told_once() {
    let mut rig = Rig::new(64);
    let (mut client, mut runtime) = rig.pair();
    let request = [preface(), request_frames(1, VERSION, "localhost", b"")].concat();
    client.write_all(&request).unwrap();
    runtime.read_exact(&mut vec![0; request.len()]).unwrap();
    let answer = [SETTINGS.to_vec(), answer_frames(1)].concat();
    // Cut within a header block.
    runtime.write_all(&answer[..20]).unwrap();
    client.read_exact(&mut [0; 20]).unwrap();
    let began = take(&mut rig, 1);
    assert!(matches!(&began[..], [TapEvent::Begun(call)] if call.stream == 1), "{began:?}");
    let before = rig.registry.snapshot()[0].clone();
    rig.hand_over();
    let resumed = take(&mut rig, 1);
    assert!(matches!(&resumed[..], [TapEvent::Resumed(call)] if call.stream == 1), "{resumed:?}");
    let after = rig.registry.snapshot()[0].clone();
    assert_eq!((after.id, &after.peer, after.since), (before.id, &before.peer, before.since));
    assert_eq!(rig.registry.calls(), 1);
    runtime.write_all(&answer[20..]).unwrap();
    client.read_exact(&mut vec![0; answer.len() - 20]).unwrap();
    let ended = take(&mut rig, 1);
    let TapEvent::Ended(ended) = &ended[0] else { panic!("{ended:?}") };
    assert_eq!((ended.end, ended.code.map(crate::tap::Code::name)), (CallEnd::Complete, Some("OK")));
    // Counted by whoever relayed them.
    let bytes = rig.registry.bytes();
    assert_eq!((bytes.up, bytes.down), (0, answer.len() as u64 - 20));
    eventually("both are counted on the connection", || {
        after.bytes.down.load(std::sync::atomic::Ordering::Relaxed) == answer.len() as u64
    });
    let _newer = rig.pair();
    eventually("no number comes twice", || {
        rig.registry.snapshot().last().is_some_and(|newest| newest.id > after.id)
    });
    assert_eq!(rig.registry.total(), 1, "only that one was accepted");
    rig.drain();
}

#[test]
fn a_connection_of_another_version_is_asked_between_two_frames_to_come_again() {
    let goodbye = go_away();
    // What the runtime has sent before and sends after; where the GOAWAY of ours stands in both together.
    let long = frame(0, 0, 1, &[7; 100]);
    let open_block = frame(1, 0, 1, b"\x88");
    let rest_of_block = frame(9, 4, 1, b"");
    let theirs = frame(7, 0, 0, &[0; 8]);
    type Row = (&'static str, Vec<u8>, Vec<u8>, Option<usize>);
    let rows: [Row; 6] = [
        ("between two frames", SETTINGS.to_vec(), vec![], Some(9)),
        ("in a frame", [&SETTINGS[..], &long[..50]].concat(), long[50..].to_vec(), Some(9 + 109)),
        ("in the head of a frame", [&SETTINGS[..], &long[..4]].concat(), long[4..].to_vec(), Some(9 + 109)),
        (
            "in a header block",
            [&SETTINGS[..], &open_block].concat(),
            rest_of_block.clone(),
            Some(9 + open_block.len() + rest_of_block.len()),
        ),
        ("before the first frame", vec![], SETTINGS.to_vec(), Some(9)),
        ("after a goodbye", [&SETTINGS[..], &theirs].concat(), long.clone(), None),
    ];
    for (rule, before, after, stands) in rows {
        let mut rig = Rig::new(64);
        let (mut client, mut runtime) = rig.pair();
        let request = [preface(), request_frames(1, VERSION, "localhost", b"")].concat();
        client.write_all(&request).unwrap();
        runtime.read_exact(&mut vec![0; request.len()]).unwrap();
        runtime.write_all(&before).unwrap();
        client.read_exact(&mut vec![0; before.len()]).unwrap();
        let mut left = rig.leave();
        of_another_version(&mut left.records[0]);
        assert!(rig.take_over(left).is_empty());
        let events = take(&mut rig, 1);
        let is_reported = matches!(events[..], [TapEvent::Blinded { reason: Blindness::HandedOver, .. }]);
        assert!(is_reported, "{rule}: {events:?}");
        assert!(rig.registry.has_blind());
        if !after.is_empty() {
            assert!(is_silent(&mut client), "{rule}: not before the frame is over");
            // Once more on the way, by a version that understands as little.
            let mut left = rig.leave();
            of_another_version(&mut left.records[0]);
            assert!(rig.take_over(left).is_empty());
            runtime.write_all(&after).unwrap();
        }
        let mut expected = [&before[..], &after].concat();
        if let Some(at) = stands {
            drop(expected.splice(at..at, goodbye));
        }
        let mut received = vec![0; expected.len() - before.len()];
        client.read_exact(&mut received).unwrap();
        assert_eq!(received, expected[before.len()..], "{rule}");
        assert!(is_silent(&mut client), "{rule}: once");
        // The call that was open still ends.
        let answer = answer_frames(1);
        runtime.write_all(&answer).unwrap();
        let mut received = vec![0; answer.len()];
        client.read_exact(&mut received).unwrap();
        assert_eq!(received, answer, "{rule}");
        assert!(is_silent(&mut client), "{rule}: not again behind it");
        rig.drain();
    }
}

#[test]
fn a_connection_whose_state_is_of_no_use_goes_on_blindly_and_its_client_comes_again() {
    type Row = (Blindness, fn(&mut [u8]), bool);
    let rows: [Row; 3] = [
        (Blindness::HandedOver, of_another_version, true),
        (Blindness::DamagedState, of_damaged_tap, true),
        (Blindness::OtherRuntime, |_| {}, false),
    ];
    for (expected, change, is_same_runtime) in rows {
        let mut rig = Rig::new(64);
        let (mut client, mut runtime) = rig.pair();
        let request = [preface(), request_frames(1, VERSION, "localhost", b"")].concat();
        client.write_all(&request).unwrap();
        runtime.read_exact(&mut vec![0; request.len()]).unwrap();
        runtime.write_all(&SETTINGS).unwrap();
        client.read_exact(&mut [0; SETTINGS.len()]).unwrap();
        let mut left = rig.leave();
        change(&mut left.records[0]);
        let errors = rig.take_over_for(is_same_runtime, left);
        assert!(errors.is_empty(), "{expected}: {errors:?}");
        let events = take(&mut rig, 1);
        let is_reported = matches!(events[..], [TapEvent::Blinded { reason, .. }] if reason == expected);
        assert!(is_reported, "{expected}: {events:?}");
        let blind = rig.registry.snapshot()[0].blind();
        assert_eq!(blind.map(|(_, reason)| reason), Some(expected), "status shows it");
        let mut goodbye = [0; 17];
        client.read_exact(&mut goodbye).unwrap();
        assert_eq!(goodbye, go_away(), "{expected}");
        // The call that was open still ends, and no event reports it.
        let answer = answer_frames(1);
        runtime.write_all(&answer).unwrap();
        client.read_exact(&mut vec![0; answer.len()]).unwrap();
        drop(client);
        let events = take(&mut rig, 1);
        assert!(matches!(events[..], [TapEvent::Closed { .. }]), "{expected}: {events:?}");
        rig.drain();
    }
}

#[test]
fn calls_whose_ends_wait_for_a_slow_client_are_not_in_flight_once_it_has_them() {
    let mut rig = Rig::new(1024);
    let (mut client, mut runtime) = rig.pair();
    let streams = || (0..40).map(|call| 2 * call + 1);
    let calls = streams().flat_map(|stream| request_frames(stream, VERSION, "localhost", b""));
    let requests: Vec<u8> = preface().into_iter().chain(calls).collect();
    client.write_all(&requests).unwrap();
    runtime.read_exact(&mut vec![0; requests.len()]).unwrap();
    runtime.write_all(&SETTINGS).unwrap();
    client.read_exact(&mut [0; SETTINGS.len()]).unwrap();
    eventually("all are in flight", || rig.registry.calls() == 40);
    let mut left = rig.leave();
    let answers: Vec<u8> = streams().flat_map(answer_frames).collect();
    // As if they had been read and not yet written: behind the cookies, the pump up, and what is ours of the pump down.
    let record = &mut left.records[0];
    let at = cookies(record) + 17 + 26 + 8;
    drop(record.splice(at..at + 8, [&(answers.len() as u64).to_le_bytes()[..], &answers].concat()));
    sealed(record);
    assert!(rig.take_over(left).is_empty());
    client.read_exact(&mut vec![0; answers.len()]).unwrap();
    eventually("none is in flight", || rig.registry.calls() == 0);
    rig.drain();
}

/// Of ours: streams up to the highest there is may go on.
fn go_away() -> [u8; 17] {
    [0, 0, 8, 7, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]
}

#[test]
fn a_client_that_waits_for_a_runtime_waits_across_a_handover() {
    let mut rig = Rig::new(16);
    std::fs::remove_file(&rig.runtime_path).unwrap();
    let mut client = rig.connect();
    client.write_all(b"patience").unwrap();
    eventually("the runtime is found away", || rig.gate.presence() == gate::Presence::Away);
    let left = rig.leave();
    // What was not dialled yet is of any runtime.
    assert!(rig.take_over_for(false, left).is_empty());
    assert!(rig.registry.count() == 1 && !rig.registry.has_blind());
    rig.runtime = UnixListener::bind(&rig.runtime_path).unwrap();
    rig.gate.answered(clock::now());
    let (mut runtime, _) = rig.runtime.accept().unwrap();
    let mut bytes = [0; 8];
    runtime.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"patience");
}

#[test]
fn a_blind_connection_that_waits_for_its_answer_is_not_cut_by_a_drain_after_a_handover() {
    let mut rig = Rig::new(16);
    let (mut client, mut runtime) = rig.pair();
    client.write_all(b"question").unwrap();
    runtime.read_exact(&mut [0; 8]).unwrap();
    eventually("it is blind", || rig.registry.has_blind());
    rig.hand_over();
    let blind = rig.registry.snapshot()[0].blind();
    assert!(matches!(blind, Some((_, Blindness::NotHttp2))), "{blind:?}");
    let relay = rig.relay.take().unwrap();
    let drained = thread::spawn(move || tokio::runtime::Runtime::new().unwrap().block_on(relay.drain()));
    assert!(is_silent(&mut client), "it is open");
    thread::sleep(Duration::from_millis(700));
    runtime.write_all(b"answer").unwrap();
    client.read_exact(&mut [0; 6]).unwrap();
    drained.join().unwrap();
}

#[test]
fn what_ended_during_a_handover_ends_after_it() {
    let mut rig = Rig::new(16);
    let pairs: Vec<_> = (0..2).map(|_| rig.dialled_pair()).collect();
    let [(client, mut runtime), (mut other_client, other_runtime)] = <[_; 2]>::try_from(pairs).unwrap();
    eventually("both are registered", || rig.registry.count() == 2);
    let left = rig.leave();
    drop((client, other_runtime));
    assert!(rig.take_over(left).is_empty());
    assert_eq!(runtime.read(&mut [0]).unwrap(), 0);
    assert_eq!(other_client.read(&mut [0]).unwrap(), 0);
    eventually("both are forgotten", || rig.registry.count() == 0);
}

#[test]
fn clients_that_connect_during_a_handover_are_served_after_it() {
    let mut rig = Rig::new(16);
    let left = rig.leave();
    let mut client = rig.connect();
    client.write_all(b"early").unwrap();
    rig.take_over(left);
    let (mut runtime, _) = rig.runtime.accept().unwrap();
    let mut bytes = [0; 5];
    runtime.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"early");
}

#[test]
fn a_relay_that_was_frozen_in_vain_goes_on_and_can_be_drained() {
    let mut rig = Rig::new(64);
    let (mut client, mut runtime) = rig.pair();
    client.write_all(&preface()).unwrap();
    runtime.write_all(&SETTINGS).unwrap();
    client.read_exact(&mut [0; 9]).unwrap();
    rig.relay = Some(rig.freeze().thaw().unwrap());
    runtime.write_all(&frame(6, 0, 0, b"12345678")).unwrap();
    client.read_exact(&mut [0; 17]).unwrap();
    let (late, late_runtime) = rig.pair();
    drop((late, late_runtime));
    assert!(rig.drain() < Duration::from_secs(3));
    let mut goodbye = Vec::new();
    client.read_to_end(&mut goodbye).unwrap();
    assert_eq!(goodbye.len(), 34, "two GOAWAYs");
}

#[test]
fn a_damaged_connection_ends_alone() {
    type Row = (&'static str, fn(&mut Left), fn(&HandoverError) -> bool);
    let rows: [Row; 5] = [
        (
            "a byte",
            |left| left.records[0][40] ^= 1,
            |error| matches!(error, HandoverError::Record(Unreadable::Damaged)),
        ),
        (
            "the end",
            |left| left.records[0].truncate(60),
            |error| matches!(error, HandoverError::Record(Unreadable::Damaged)),
        ),
        (
            "all of it",
            |left| left.records[0].clear(),
            |error| matches!(error, HandoverError::Record(Unreadable::Damaged)),
        ),
        (
            "of a format to come",
            |left| {
                left.records[0][0] ^= 2;
                sealed(&mut left.records[0]);
            },
            |error| matches!(error, HandoverError::Record(Unreadable::OtherLayout)),
        ),
        (
            "a socket",
            |left| {
                let cookie =
                    u64::from_le_bytes(*left.records[0][cookies(&left.records[0])..].first_chunk().unwrap());
                drop(left.sockets.take(cookie).unwrap());
            },
            |error| matches!(error, HandoverError::NoSocket),
        ),
    ];
    for (what, damage, is_reported) in rows {
        let mut rig = Rig::new(16);
        let (mut damaged, _runtime) = rig.dialled_pair();
        let (mut client, mut runtime) = rig.dialled_pair();
        eventually("both are registered", || rig.registry.count() == 2);
        let mut left = rig.leave();
        damage(&mut left);
        let errors = rig.take_over(left);
        assert!(matches!(&errors[..], [error] if is_reported(error)), "{what}: {errors:?}");
        assert_eq!(damaged.read(&mut [0]).unwrap(), 0, "{what}");
        client.write_all(b"still here").unwrap();
        runtime.read_exact(&mut [0; 10]).unwrap();
    }
}

/// Where the cookies of the sockets are in the record of a connection that is not blind.
fn cookies(record: &[u8]) -> usize {
    let comm = usize::from(record[24]);
    16 + 8 + 8 + comm + 8 + 1
}

#[test]
fn what_is_no_connected_unix_socket_is_never_taken_for_one() {
    let (one, other) = UnixStream::pair().unwrap();
    let passed: Sockets = [
        one.try_clone().unwrap().into(),
        one.into(),
        other.into(),
        std::fs::File::open("/dev/null").unwrap().into(),
        std::os::unix::net::UnixDatagram::unbound().unwrap().into(),
        std::net::TcpListener::bind("127.0.0.1:0").unwrap().into(),
    ]
    .into_iter()
    .collect();
    assert_eq!(passed.left(), 1, "the one that came once");
}

#[test]
fn a_record_keeps_its_format() {
    let mut rig = Rig::new(16);
    let (client, mut runtime) = rig.dialled_pair();
    eventually("it is registered", || rig.registry.count() == 1);
    runtime.write_all(&SETTINGS[..3]).unwrap();
    (&client).read_exact(&mut [0; 3]).unwrap();
    let mut record = rig.leave().records.remove(0);
    let at = cookies(&record);
    // The client's, and the runtime's, which may be missing.
    record[at..at + 8].fill(0xc1);
    record[at + 9..at + 17].fill(0xc2);
    let after = record[at..].iter().take(17 + 2 * 26 + 1 + 16).map(|byte| format!("{byte:02x}"));
    assert_eq!(record[..8], 1_u64.to_le_bytes());
    assert_eq!(record[16..24], 1_u64.to_le_bytes(), "its number");
    assert_eq!(
        after.collect::<String>(),
        [
            "c1c1c1c1c1c1c1c1",
            "01c2c2c2c2c2c2c2c2",
            // Ours, pending, bytes, whether it has ended, and how.
            "0000000000000000000000000000000000000000000000000000",
            "000000000000000000000000000000000c000000000000000000",
            "00",
            // The head of a frame, as far as it came; what is left; flags.
            "01000000000000000000030000000002",
        ]
        .concat()
    );
}
