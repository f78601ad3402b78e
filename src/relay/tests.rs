//! The relay as a whole: real sockets, real threads, a runtime made by the test.

mod carrier;
mod handing_over;

use std::{
    io::{Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    thread,
    time::{Duration, Instant},
};

use proptest::prelude::*;

use super::*;
use crate::tap::TapEvent;

/// A relay between two sockets in a folder of its own.
struct Rig {
    relay: Option<Relay>,
    gate: Gate,
    registry: Registry,
    observations: output::Observations,
    runtime: UnixListener,
    runtime_path: PathBuf,
    path: PathBuf,
    /// The socket as the service manager keeps it.
    kept: Option<UnixListener>,
    /// While no relay has it.
    listener: Option<UnixListener>,
    _dir: tempfile::TempDir,
}

impl Rig {
    fn new(max_events: usize) -> Self {
        Self::with_socket(max_events, false)
    }

    /// One whose socket the service manager would keep, or not.
    fn with_socket(max_events: usize, is_kept: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let runtime_path = dir.path().join("runtime.sock");
        let path = dir.path().join("criprobe.sock");
        let runtime = UnixListener::bind(&runtime_path).unwrap();
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (output, observations) = output::channel(max_events);
        let (gate, registry) = (Gate::default(), Registry::default());
        let handover = Handover::nothing(Room::default());
        let kept = is_kept.then(|| listener.try_clone().unwrap());
        let clients = ClientSocket { listener, is_kept };
        let relay = Relay::start(
            clients,
            runtime_path.clone(),
            beats(2),
            gate.clone(),
            handover,
            output,
            registry.clone(),
        )
        .unwrap();
        Self {
            relay: Some(relay),
            gate,
            registry,
            observations,
            runtime,
            runtime_path,
            path,
            kept,
            listener: None,
            _dir: dir,
        }
    }

    fn connect(&self) -> UnixStream {
        let client = UnixStream::connect(&self.path).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        client
    }

    /// A client and the runtime's end of its connection.
    fn pair(&self) -> (UnixStream, UnixStream) {
        let client = self.connect();
        let (runtime, _) = self.runtime.accept().unwrap();
        runtime.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        (client, runtime)
    }

    /// The same, once the relay has both ends: a connection that is frozen while it is dialled is dialled again.
    fn dialled_pair(&self) -> (UnixStream, UnixStream) {
        let (mut client, mut runtime) = self.pair();
        runtime.write_all(&SETTINGS).unwrap();
        client.read_exact(&mut [0; SETTINGS.len()]).unwrap();
        (client, runtime)
    }

    fn drain(&mut self) -> Duration {
        let started = clock::now();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(self.relay.take().unwrap().drain());
        clock::now() - started
    }
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = clock::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(clock::now() < deadline, "not within 10 s: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

fn small_buffers(stream: &UnixStream) {
    rustix::net::sockopt::set_socket_send_buffer_size(stream, 4096).unwrap();
}

/// Sends `bytes` in pieces, then its end.
fn send_in_pieces(mut stream: UnixStream, bytes: Vec<u8>, pieces: Vec<usize>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut rest = &bytes[..];
        for piece in pieces.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (now, later) = rest.split_at((*piece).min(rest.len()));
            stream.write_all(now).unwrap();
            rest = later;
        }
        stream.shutdown(std::net::Shutdown::Write).unwrap();
    })
}

fn receive(mut stream: UnixStream) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

/// Bytes that start like a client's, so that the tap looks at them, or not.
fn conversation(starts_like_http2: bool, noise: &[u8], times: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    if starts_like_http2 {
        bytes.extend(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        bytes.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    }
    for _ in 0..times {
        bytes.extend(noise);
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn bytes_arrive_as_they_were_sent_in_both_directions(
        up in prop::collection::vec(any::<u8>(), 1..4000),
        down in prop::collection::vec(any::<u8>(), 1..4000),
        pieces in prop::collection::vec(1usize..9000, 1..20),
        starts_like_http2: bool,
        times in 1usize..200,
        has_room: bool,
    ) {
        // With the tap on, blind, and with no one to receive its events.
        let mut rig = Rig::new(if has_room { 1024 } else { 1 });
        let (client, runtime) = rig.pair();
        small_buffers(&client);
        small_buffers(&runtime);
        let up = conversation(starts_like_http2, &up, times);
        let down = conversation(starts_like_http2, &down, times);
        let threads = [
            send_in_pieces(client.try_clone().unwrap(), up.clone(), pieces.clone()),
            send_in_pieces(runtime.try_clone().unwrap(), down.clone(), pieces),
        ];
        let (at_runtime, at_client) = (receive(runtime), receive(client));
        prop_assert!(at_runtime.join().unwrap() == up);
        prop_assert!(at_client.join().unwrap() == down);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        eventually("the connection is forgotten", || rig.registry.count() == 0);
        rig.drain();
    }
}

#[test]
fn http1_passes_and_the_connection_is_counted_as_blind() {
    let mut rig = Rig::new(16);
    let (mut client, mut runtime) = rig.pair();
    client.write_all(b"GET /info HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut request = [0; 41];
    runtime.read_exact(&mut request[..39]).unwrap();
    assert!(request.starts_with(b"GET /info"));
    runtime.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    let mut answer = [0; 27];
    client.read_exact(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 204"));
    assert!(rig.registry.has_blind());
    assert_eq!(rig.registry.total_blinded(), 1);
    let batch = take(&mut rig, 1);
    assert!(matches!(batch[0], TapEvent::Blinded { .. }), "{batch:?}");
}

#[test]
fn sight_that_is_lost_during_calls_is_counted() {
    let rig = Rig::new(16);
    let (mut client, mut runtime) = rig.pair();
    let request =
        [preface(), request_frames(1, "/runtime.v1.RuntimeService/Version", "localhost", b"")].concat();
    client.write_all(&request).unwrap();
    runtime.read_exact(&mut vec![0; request.len()]).unwrap();
    eventually("the call is counted", || rig.registry.calls() == 1);
    assert_eq!(rig.registry.blinded_in_calls().get(), 0);
    runtime.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    client.read_exact(&mut [0; 28]).unwrap();
    eventually("the connection is blind", || rig.registry.has_blind());
    assert_eq!(rig.registry.blinded_in_calls().get(), 1);
}

/// Waits for events of the taps.
fn take(rig: &mut Rig, at_least: usize) -> Vec<TapEvent> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut events = Vec::new();
        while events.len() < at_least {
            let mut batch = Vec::new();
            timeout(Duration::from_secs(10), rig.observations.next_batch(&mut batch)).await.unwrap();
            events.append(&mut batch);
        }
        events
    })
}

const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

/// `:method POST`, `:scheme http`, `:path`, `:authority`, as literals without indexing.
fn request_frames(stream: u8, path: &str, authority: &str, message: &[u8]) -> Vec<u8> {
    let mut block = vec![0x83, 0x86, 0x04, path.len() as u8];
    block.extend(path.bytes());
    block.extend([0x01, authority.len() as u8]);
    block.extend(authority.bytes());
    let mut bytes = frame(1, 4, stream, &block);
    let mut body = vec![0];
    body.extend((message.len() as u32).to_be_bytes());
    body.extend(message);
    for (number, piece) in body.chunks(16_384).enumerate() {
        let is_last = (number + 1) * 16_384 >= body.len();
        bytes.extend(frame(0, u8::from(is_last), stream, piece));
    }
    bytes
}

/// `:status 200`, `grpc-status 0`, at once.
fn answer_frames(stream: u8) -> Vec<u8> {
    let mut block = vec![0x88, 0x00, 11];
    block.extend(b"grpc-status");
    block.extend([1, b'0']);
    frame(1, 5, stream, &block)
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags, 0, 0, 0, stream]);
    bytes.extend(payload);
    bytes
}

fn preface() -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &SETTINGS].concat()
}

#[test]
fn a_socket_path_as_authority_passes() {
    for authority in ["/run/criprobe/criprobe.sock", "%2Frun%2Fcriprobe%2Fcriprobe.sock"] {
        let mut rig = Rig::new(16);
        let (mut client, mut runtime) = rig.pair();
        let request =
            [preface(), request_frames(1, "/runtime.v1.RuntimeService/Version", authority, b"")].concat();
        client.write_all(&request).unwrap();
        let mut received = vec![0; request.len()];
        runtime.read_exact(&mut received).unwrap();
        assert_eq!(received, request);
        let answer = [SETTINGS.to_vec(), answer_frames(1)].concat();
        runtime.write_all(&answer).unwrap();
        let mut received = vec![0; answer.len()];
        client.read_exact(&mut received).unwrap();
        assert_eq!(received, answer);
        let events = take(&mut rig, 2);
        let TapEvent::Ended(ended) = &events[1] else { panic!("{events:?}") };
        assert_eq!(&*ended.call.method.name, "Version");
        assert_eq!(ended.code.map(crate::tap::Code::name), Some("OK"));
    }
}

#[test]
fn an_answer_is_never_decoded_before_its_request() {
    // The runtime answers while the request is still being written: its end arrives last.
    let mut rig = Rig::new(64);
    let (mut client, mut runtime) = rig.pair();
    small_buffers(&client);
    let body = vec![7; 3 * 1024 * 1024];
    let request =
        [preface(), request_frames(1, "/runtime.v1.RuntimeService/Version", "localhost", &body)].concat();
    let length = request.len();
    let writer = thread::spawn(move || {
        client.write_all(&request).unwrap();
        client
    });
    let mut first = vec![0; 64 * 1024];
    runtime.read_exact(&mut first).unwrap();
    runtime.write_all(&[SETTINGS.to_vec(), answer_frames(1)].concat()).unwrap();
    eventually("the early answer reached the client", || {
        rig.registry.snapshot()[0].calls.load(std::sync::atomic::Ordering::Relaxed) == 0
    });
    let mut rest = vec![0; length - first.len()];
    runtime.read_exact(&mut rest).unwrap();
    drop(writer.join().unwrap());
    let events = take(&mut rig, 2);
    let TapEvent::Ended(ended) = &events[0] else { panic!("{events:?}") };
    assert_eq!((&*ended.call.method.name, ended.end), ("Version", crate::tap::CallEnd::Complete));
    assert!(
        matches!(events[1], TapEvent::Closed { .. }),
        "the late rest of the request is no second call: {events:?}"
    );
}

#[test]
fn sixteen_mebibytes_reach_a_reader_of_a_megabyte_a_second_whole_and_hold_the_runtime_back() {
    let rig = Rig::new(16);
    let (mut client, runtime) = rig.pair();
    let sent: Vec<u8> = (0..16 * 1024 * 1024_u32).map(|index| (index / 251) as u8).collect();
    let sender = send_in_pieces(runtime, sent.clone(), vec![65_536]);
    let mut received = Vec::with_capacity(sent.len());
    let mut buffer = vec![0; 32 * 1024];
    let started = clock::now();
    let mut was_held_back = false;
    while received.len() < sent.len() {
        let due = Duration::from_secs_f64(received.len() as f64 / 1e6);
        thread::sleep(due.saturating_sub(clock::now() - started));
        let count = client.read(&mut buffer).unwrap();
        received.extend_from_slice(&buffer[..count]);
        // A few buffers of sockets and relay lie between the two ends, and no more.
        was_held_back |= received.len() > sent.len() / 2 && !sender.is_finished();
    }
    assert!(received == sent);
    assert!(was_held_back, "the runtime could send half of it ahead of the reader");
    assert!(clock::now() - started > Duration::from_secs(15));
    sender.join().unwrap();
}

#[test]
fn a_client_that_leaves_takes_its_runtime_connection_with_it() {
    let rig = Rig::new(16);
    let (client, mut runtime) = rig.pair();
    drop(client);
    let started = clock::now();
    assert_eq!(runtime.read(&mut [0; 8]).unwrap(), 0);
    eventually("the runtime's end is closed", || runtime.write(b"x").is_err());
    assert!(clock::now() - started < Duration::from_millis(500));
}

#[test]
fn a_client_that_only_stops_sending_still_gets_its_answer() {
    let rig = Rig::new(16);
    let (mut client, mut runtime) = rig.pair();
    client.write_all(b"question").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let mut question = Vec::new();
    runtime.read_to_end(&mut question).unwrap();
    thread::sleep(Duration::from_millis(50));
    runtime.write_all(b"answer").unwrap();
    drop(runtime);
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert_eq!((&*question, &*answer), (&b"question"[..], &b"answer"[..]));
}

#[test]
fn a_side_that_only_stops_receiving_ends_the_connection_once_it_has_no_more_to_send() {
    for is_runtime in [true, false] {
        let rig = Rig::new(16);
        let (client, runtime) = rig.pair();
        let (refuser, mut writer) = if is_runtime { (runtime, client) } else { (client, runtime) };
        small_buffers(&refuser);
        refuser.shutdown(std::net::Shutdown::Read).unwrap();
        let rest = conversation(false, b"still sent", 100_000);
        let (mut sender, sent) = (refuser.try_clone().unwrap(), rest.clone());
        let sending = thread::spawn(move || sender.write_all(&sent).unwrap());
        eventually("the writer gets EPIPE, as it would without a relay", || {
            writer.write(b"x").is_err_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
        });
        let mut received = vec![0; rest.len()];
        writer.read_exact(&mut received).unwrap();
        assert!(received == rest, "what is still sent arrives: {is_runtime}");
        sending.join().unwrap();
        // Bytes that were on the way when the other side refused them make it a reset.
        let end = writer.read(&mut [0; 8]).map_err(|error| error.kind());
        assert!(matches!(end, Ok(0) | Err(std::io::ErrorKind::ConnectionReset)), "{end:?}");
        eventually("the connection is over although the refuser keeps its socket", || {
            rig.registry.count() == 0
        });
        drop(refuser);
    }
}

#[test]
fn a_client_that_leaves_a_runtime_which_refuses_its_bytes_is_forgotten() {
    let rig = Rig::new(16);
    let (mut client, mut runtime) = rig.pair();
    runtime.shutdown(std::net::Shutdown::Read).unwrap();
    client.write_all(b"x").unwrap();
    runtime.write_all(b"y").unwrap();
    client.read_exact(&mut [0]).unwrap();
    drop(client);
    eventually("the connection is over", || rig.registry.count() == 0);
}

#[test]
fn a_connection_waits_for_a_runtime_that_is_away_until_it_answered_for_itself() {
    let mut rig = Rig::new(16);
    std::fs::remove_file(&rig.runtime_path).unwrap();
    let mut client = rig.connect();
    client.write_all(b"patience").unwrap();
    eventually("the runtime is found away", || rig.gate.presence() == gate::Presence::Away);
    rig.runtime = UnixListener::bind(&rig.runtime_path).unwrap();
    rig.runtime.set_nonblocking(true).unwrap();
    thread::sleep(Duration::from_millis(150));
    assert!(rig.runtime.accept().is_err(), "it listens, but has not answered yet");
    rig.gate.answered(clock::now());
    eventually("the connection is dialled", || match rig.runtime.accept() {
        Ok((mut runtime, _)) => {
            runtime.set_nonblocking(false).unwrap();
            let mut bytes = [0; 8];
            runtime.read_exact(&mut bytes).unwrap();
            &bytes == b"patience"
        }
        Err(_) => false,
    });
}

#[test]
fn a_client_is_let_go_after_twenty_seconds_without_a_runtime() {
    let rig = Rig::new(16);
    std::fs::remove_file(&rig.runtime_path).unwrap();
    let mut client = rig.connect();
    client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let started = clock::now();
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
    let waited = clock::now() - started;
    assert!(waited >= Duration::from_secs(19) && waited < Duration::from_secs(25), "{waited:?}");
}

#[test]
fn a_client_that_leaves_while_it_waits_is_forgotten() {
    let rig = Rig::new(16);
    std::fs::remove_file(&rig.runtime_path).unwrap();
    let client = rig.connect();
    eventually("it waits", || rig.registry.count() == 1);
    drop(client);
    eventually("it is forgotten", || rig.registry.count() == 0);
}

#[test]
fn only_a_runtime_that_ends_a_connection_without_a_word_is_doubted() {
    let goodbye = frame(7, 0, 0, &[0; 8]);
    let rows: [(&str, Vec<u8>, Vec<u8>, gate::Presence); 4] = [
        ("in the middle of things", preface(), SETTINGS.to_vec(), gate::Presence::Doubted),
        ("after a goodbye", preface(), [SETTINGS.to_vec(), goodbye].concat(), gate::Presence::There),
        ("before it said anything", preface(), vec![], gate::Presence::There),
        (
            "of a client that is not understood",
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            b"HTTP/1.1 400\r\n\r\n".to_vec(),
            gate::Presence::There,
        ),
    ];
    for (rule, asked, answered, presence) in rows {
        let rig = Rig::new(16);
        let (mut client, mut runtime) = rig.pair();
        client.write_all(&asked).unwrap();
        runtime.read_exact(&mut vec![0; asked.len()]).unwrap();
        runtime.write_all(&answered).unwrap();
        drop(runtime);
        let mut received = Vec::new();
        client.read_to_end(&mut received).unwrap();
        assert_eq!(received, answered, "{rule}");
        eventually("the connection is over", || rig.registry.count() == 0);
        assert_eq!(rig.gate.presence(), presence, "{rule}");
    }
}

#[test]
fn a_doubt_holds_new_connections_until_it_is_settled() {
    let rig = Rig::new(16);
    assert!(rig.gate.doubted(clock::now()));
    rig.runtime.set_nonblocking(true).unwrap();
    let _client = rig.connect();
    thread::sleep(Duration::from_millis(100));
    assert!(rig.runtime.accept().is_err(), "nothing is dialled");
    rig.gate.settled(clock::now());
    eventually("the connection is dialled", || rig.runtime.accept().is_ok());
    rig.gate.found_away();
    assert!(!rig.gate.doubted(clock::now()), "what is away is not doubted");
    rig.gate.settled(clock::now());
    assert_eq!(rig.gate.presence(), gate::Presence::Away, "and a settled doubt does not bring it back");
}

#[test]
fn a_runtime_that_turns_out_to_be_ourselves_is_never_dialled_again_and_again() {
    let rig = Rig::new(16);
    std::fs::remove_file(&rig.runtime_path).unwrap();
    std::os::unix::fs::symlink(&rig.path, &rig.runtime_path).unwrap();
    let _client = rig.connect();
    eventually("it is found away", || rig.gate.presence() == gate::Presence::Away);
    // Each dial that found out left a connection to be accepted, which may be late: the client's is the only one for a
    // while before and after the last of them has come and gone.
    let (mut total, mut since) = (0, clock::now());
    eventually("nothing is dialled any more", || {
        let now = rig.registry.total();
        if rig.registry.count() != 1 || std::mem::replace(&mut total, now) != now {
            since = clock::now();
        }
        clock::now() - since > Duration::from_millis(300)
    });
    assert!((2..20).contains(&total), "{total}");
}

#[test]
fn a_drain_says_goodbye_between_two_frames_and_lets_calls_end() {
    let mut rig = Rig::new(64);
    let (mut client, mut runtime) = rig.pair();
    client
        .write_all(
            &[preface(), request_frames(1, "/runtime.v1.RuntimeService/ExecSync", "localhost", b"")].concat(),
        )
        .unwrap();
    // Half a frame: nothing of ours may stand in it.
    let ping = frame(6, 0, 0, b"12345678");
    runtime.write_all(&SETTINGS).unwrap();
    runtime.write_all(&ping[..12]).unwrap();
    let mut start = [0; 21];
    client.read_exact(&mut start).unwrap();
    eventually("the call is in flight", || rig.registry.calls() == 1);
    let relay = rig.relay.take().unwrap();
    let drained = thread::spawn(move || tokio::runtime::Runtime::new().unwrap().block_on(relay.drain()));
    thread::sleep(Duration::from_millis(250));
    client.set_nonblocking(true).unwrap();
    assert!(client.read(&mut [0; 1]).is_err(), "nothing is said in the middle of a frame");
    client.set_nonblocking(false).unwrap();
    let mut late = rig.connect();
    late.write_all(b"still served").unwrap();
    let (mut late_runtime, _) = rig.runtime.accept().unwrap();
    late_runtime.read_exact(&mut [0; 12]).unwrap();
    drop((late, late_runtime));

    runtime.write_all(&ping[12..]).unwrap();
    let mut rest = vec![0; 5 + 17];
    client.read_exact(&mut rest).unwrap();
    assert_eq!(&rest[..5], &ping[12..]);
    assert_eq!(rest[5..], [0, 0, 8, 7, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0], "no limit yet");
    thread::sleep(Duration::from_millis(200));
    assert!(!drained.is_finished(), "the call is still in flight");
    runtime.write_all(&answer_frames(1)).unwrap();
    let mut end = Vec::new();
    client.read_to_end(&mut end).unwrap();
    let answer = answer_frames(1);
    assert_eq!(&end[..answer.len()], &answer);
    assert_eq!(
        end[answer.len()..],
        [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0],
        "stream 1 was the last"
    );
    drained.join().unwrap();
    assert!(UnixStream::connect(&rig.path).is_err(), "nothing listens any more");
}

#[test]
fn a_drain_with_nothing_in_flight_is_quick() {
    let mut rig = Rig::new(64);
    let (mut client, mut runtime) = rig.pair();
    client.write_all(&preface()).unwrap();
    runtime.write_all(&SETTINGS).unwrap();
    client.read_exact(&mut [0; 9]).unwrap();
    let (_silent, _) = rig.pair();
    assert!(rig.drain() < Duration::from_secs(3));
    let mut goodbye = Vec::new();
    client.read_to_end(&mut goodbye).unwrap();
    assert_eq!(goodbye.len(), 34, "two GOAWAYs");
}

#[test]
fn a_drain_with_a_kept_socket_cuts_no_call_and_later_clients_wait_in_its_queue() {
    let mut rig = Rig::with_socket(64, true);
    let request =
        [preface(), request_frames(1, "/runtime.v1.RuntimeService/ExecSync", "localhost", b"")].concat();
    // The end of the stream, with `:status 200`.
    let answer = frame(1, 5, 1, &[0x88]);
    let begin = |rig: &Rig, calls| {
        let (mut client, mut runtime) = rig.pair();
        client.write_all(&request).unwrap();
        runtime.write_all(&SETTINGS).unwrap();
        eventually("the call is in flight", || rig.registry.calls() == calls);
        (client, runtime)
    };
    let (mut early, mut early_runtime) = begin(&rig, 1);
    let relay = rig.relay.take().unwrap();
    let phase = relay.phase.clone();
    let drained = thread::spawn(move || tokio::runtime::Runtime::new().unwrap().block_on(relay.drain()));
    let mut goodbye = [0; SETTINGS.len() + 17];
    early.read_exact(&mut goodbye).unwrap();

    // While the first call is in flight, others are served.
    let (mut late, mut late_runtime) = begin(&rig, 2);
    // An announcement that reaches some connections late wakes this one without a change. It notices the next change.
    phase.send_replace(Phase::Draining);
    early_runtime.write_all(&answer).unwrap();
    let mut rest = Vec::new();
    early.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len(), answer.len() + 17);
    late_runtime.write_all(&answer).unwrap();
    late.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len(), 2 * (answer.len() + 17) + SETTINGS.len() + 17, "the answer, and two GOAWAYs");
    drained.join().unwrap();

    let _waiting = rig.connect();
    rig.kept.as_ref().unwrap().accept().unwrap();
}

#[test]
fn a_drain_with_a_kept_socket_and_no_connection_ends_at_once() {
    assert!(Rig::with_socket(64, true).drain() < Duration::from_secs(3));
}

#[test]
fn each_thread_of_the_relay_beats() {
    let rig = Rig::new(64);
    let beats = Arc::clone(&rig.relay.as_ref().unwrap().beats);
    let all_above = |least| beats.iter().all(|beat| beat.load(Ordering::Relaxed) > least);
    assert_eq!(beats.len(), 3);
    eventually("each has beaten twice", || all_above(1));
}

#[test]
fn a_stuck_client_harms_only_itself() {
    let rig = Rig::new(64);
    let (_stuck, flooding) = rig.pair();
    let flood = thread::spawn(move || {
        let mut flooding = flooding;
        flooding.set_write_timeout(Some(Duration::from_millis(400))).unwrap();
        while flooding.write_all(&[1; 65_536]).is_ok() {}
        flooding
    });
    for _ in 0..20 {
        let (mut client, mut runtime) = rig.pair();
        let started: Instant = clock::now();
        client.write_all(b"ping").unwrap();
        runtime.read_exact(&mut [0; 4]).unwrap();
        assert!(clock::now() - started < Duration::from_millis(200));
    }
    drop(flood.join().unwrap());
}
