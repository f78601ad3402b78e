//! A tap that is carried to another process at any byte reports what it would have reported without; and no bytes are too
//! damaged.

use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*, sample::Index};

use super::{
    chunking::{long_conversation, random_conversation},
    recordings::{RECORDINGS, read},
    wire::*,
    *,
};
use crate::carry::{Unreadable, Writer};

/// A conversation in pieces, with a clock that counts a second for each, and what was reported of it.
struct Watched {
    start: Instant,
    now: Instant,
    tap: Tap,
    reported: Vec<String>,
    /// The calls that have begun, and have not ended.
    open: BTreeMap<u32, String>,
}

/// One that keeps all there is to keep.
fn room() -> Arc<Room> {
    Arc::new(Room::new(Arc::new(true.into()), Arc::new(true.into())))
}

fn peer() -> Arc<Peer> {
    Arc::new(Peer { pid: 7, ..Peer::default() })
}

impl Watched {
    fn new() -> Self {
        let start = clock::now() - Duration::from_secs(1_000_000);
        let tap = Tap::within(&room(), ConnId(7), peer());
        Self { start, now: start, tap, reported: vec![], open: BTreeMap::new() }
    }

    fn show(&mut self, from: From, piece: &[u8]) {
        self.now += Duration::from_secs(1);
        let mut events = vec![];
        match from {
            From::Client => self.tap.client_bytes(piece, self.now, |event| events.push(event)),
            From::Runtime => self.tap.runtime_bytes(piece, self.now, |event| events.push(event)),
        }
        self.note(events);
    }

    fn note(&mut self, events: Vec<TapEvent>) {
        for event in events {
            self.reported.push(line(&event));
            match event {
                TapEvent::Begun(call) => drop(self.open.insert(call.stream, self.known(&call))),
                TapEvent::Ended(ended) => {
                    let at = ended.at - self.start;
                    let creation = ended.creation.map(|creation| creation.bytes().len());
                    let outputs = match ended.response {
                        cri::CriResponse::Exec(result) => result.outputs.map(|it| (it.stdout, it.stderr)),
                        _ => None,
                    };
                    let call = self.known(&ended.call);
                    self.reported.push(format!("{call} {at:?} {creation:?} {outputs:?}"));
                    self.open.remove(&ended.call.stream);
                }
                TapEvent::Resumed(_) => panic!("nothing was carried"),
                TapEvent::Untracked(_) | TapEvent::Blinded { .. } | TapEvent::Closed { .. } => {}
            }
        }
    }

    /// What is known of a call when it has begun.
    fn known(&self, call: &Call) -> String {
        let Call { origin, stream, method, began, request_bytes, traceparent, request } = call;
        let (began, asked) = (began.saturating_duration_since(self.start), asked(request));
        format!(
            "{origin:?} {stream} {method:?} {began:?} {request_bytes} {traceparent:?} {asked} {} B",
            request.weight()
        )
    }

    /// Goes on with another tap, which knows this one only by its bytes.
    fn carry(&mut self) {
        let bytes = self.tap.carry(self.now);
        let mut resumed = vec![];
        self.tap = Tap::resume(&room(), ConnId(7), peer(), &bytes, self.now, |event| match event {
            TapEvent::Resumed(call) => resumed.push(call),
            other => panic!("{other:?}"),
        })
        .unwrap();
        let resumed: Vec<_> = resumed.iter().map(|call| self.known(call)).collect();
        assert_eq!(resumed, self.open.values().cloned().collect::<Vec<_>>(), "the calls that are open");
        assert_eq!(self.tap.carry(self.now).len(), bytes.len(), "it is the same tap");
    }

    /// All that was reported, and the end of the connection.
    fn end(mut self) -> Vec<String> {
        let mut events = vec![];
        self.tap.closed(self.now, |event| events.push(event));
        self.note(events);
        self.reported
    }
}

/// Cut into pieces of this size, and carried after each of those that are chosen.
fn reported(steps: &[Step], piece: usize, mut is_carried: impl FnMut() -> bool) -> Vec<String> {
    let mut watched = Watched::new();
    for Step { from, bytes } in steps {
        for bytes in bytes.chunks(piece) {
            watched.show(*from, bytes);
            if is_carried() {
                watched.carry();
            }
        }
    }
    watched.end()
}

fn check_carried(name: &str, steps: &[Step], piece: usize) {
    let not_carried = reported(steps, piece, || false);
    assert_eq!(
        reported(steps, piece, || true),
        not_carried,
        "{name} in pieces of {piece}, carried after each"
    );
}

/// Details of all kinds, as long as may be, cut short by the end.
fn rich_conversation() -> Vec<Step> {
    conversation(|wire| {
        wire.settings(From::Runtime, &[(1, 65_536), (5, 1 << 20)]);
        let config = |name: &str| {
            use crate::proto::cri;
            let metadata =
                Some(cri::PodSandboxMetadata { name: name.into(), uid: "u1".into(), ..Default::default() });
            let labels = [("app".to_owned(), "x".to_owned())].into();
            let annotations = [("criprobe.dev/readiness.c".to_owned(), "exec: true".repeat(2_000))].into();
            cri::PodSandboxConfig { metadata, labels, annotations, ..Default::default() }
        };
        use prost::Message;
        let run = crate::proto::cri::RunPodSandboxRequest { config: Some(config("p")), ..Default::default() };
        wire.request(1, "/runtime.v1.RuntimeService/RunPodSandbox", &run.encode_to_vec());
        let create = crate::proto::cri::CreateContainerRequest {
            pod_sandbox_id: "s1".into(),
            sandbox_config: Some(config("q")),
            ..Default::default()
        };
        wire.request(3, "/runtime.v1.RuntimeService/CreateContainer", &create.encode_to_vec());
        let long = [&b"\x0a\x02c1\x12\xa0\x9c\x01"[..], &[b'x'; 20_000]].concat();
        wire.request(5, EXEC_SYNC, &long);
        wire.request(7, "/runtime.v1.RuntimeService/Exec", b"\x0a\x02c1\x12\x02ls\x18\x01");
        for (at, method) in [
            "StopContainer",
            "RemoveContainer",
            "StartContainer",
            "Attach",
            "ContainerStatus",
            "StopPodSandbox",
        ]
        .into_iter()
        .chain(["RemovePodSandbox", "PortForward", "PodSandboxStatus", "RestorePod", "Version"])
        .enumerate()
        {
            wire.request(9 + 2 * at as u32, &format!("/runtime.v1.RuntimeService/{method}"), b"\x0a\x02c1");
        }
        wire.request(31, "/runtime.v1.RuntimeService/ListContainers", b"\x0a\x04\x0a\x02c1");
        wire.request(33, &format!("/some.{}/Thing", "Service".repeat(30)), b"anything");
        let padded = [&b"\x0a\x02c2\x7a\xd0\x0f"[..], &[b'x'; 2_000]].concat();
        wire.request(35, START, &padded);
        let agents = [("user-agent", "other/1"), ("traceparent", "00-1-2-3"), (":path", EXEC_SYNC)];
        wire.headers(From::Client, 37, &agents, 0);
        wire.headers(
            From::Client,
            39,
            &[("x-own-name", "y"), ("user-agent", "other/1"), (":path", VERSION)],
            0,
        );
        wire.headers(
            From::Client,
            41,
            &[("x-own-name", "z"), ("user-agent", "third/1"), (":path", VERSION)],
            0,
        );
        wire.data(From::Client, 37, &framed(&long), 0);
        wire.answer_head(5);
        let output =
            [&b"\x0a\xd8\x04"[..], &[b'o'; 600], b"\x12\xac\x02", &[b'e'; 300], b"\x18\x02"].concat();
        wire.data(From::Runtime, 5, &framed(&output), 0);
        wire.answer(3, b"\x0a\x02c9");
        wire.trailers(5, "0", "");
        wire.answer_head(1);
        wire.data(From::Runtime, 1, &framed(b"\x0a\x02s9"), 0);
        wire.trailers(1, "13", &"%20".repeat(1_500));
        wire.answer(7, b"\x0a\x02c9");
        wire.answer(31, b"");
        wire.reset(From::Client, 9, CANCEL);
        wire.data(From::Client, 37, &[], END_STREAM);
        let block = wire.block(From::Runtime, &[(":status", "200"), ("x-long", &"v".repeat(200))]);
        wire.frame(From::Runtime, HEADERS, 0, 33, &block[..90]);
        wire.frame(From::Runtime, CONTINUATION, END_HEADERS, 33, &block[90..]);
        wire.trailers(33, "0", "");
    })
}

/// What depends on the earlier fields of a block, and on the earlier blocks of an answer.
fn doubled_conversation(has_late_update: bool) -> Vec<Step> {
    conversation(|wire| {
        let twice = [(":path", VERSION), ("user-agent", "a"), (":path", EXEC_SYNC), ("user-agent", "b")];
        let block = wire.block(From::Client, &twice);
        wire.frame(From::Client, HEADERS, 0, 1, &block[..block.len() / 2]);
        wire.frame(From::Client, CONTINUATION, END_HEADERS, 1, &block[block.len() / 2..]);
        wire.headers(From::Client, 3, &[(":path", VERSION)], END_STREAM);
        wire.headers(From::Runtime, 3, &[(":status", "503")], 0);
        wire.data(From::Runtime, 3, b"", END_STREAM);
        let twice =
            [("grpc-status", "5"), ("grpc-message", "first"), ("grpc-status", "6"), ("grpc-message", "x")];
        let block = wire.block(From::Runtime, &twice);
        wire.frame(From::Runtime, HEADERS, END_STREAM, 1, &block[..block.len() / 2]);
        wire.frame(From::Runtime, CONTINUATION, END_HEADERS, 1, &block[block.len() / 2..]);
        wire.headers(From::Client, 5, &[(":path", VERSION)], END_STREAM);
        wire.go_away(From::Runtime, 3);
        if has_late_update {
            let mut block = wire.block(From::Client, &[(":path", VERSION)]);
            block.extend(wire.resize(From::Client, 100));
            wire.frame(From::Client, HEADERS, END_HEADERS, 7, &block);
        }
    })
}

#[test]
fn a_tap_carried_after_every_byte_tells_the_same_calls() {
    check_carried("long", &long_conversation(), 1);
    check_carried("doubled", &doubled_conversation(false), 1);
    check_carried("a late update", &doubled_conversation(true), 1);
    let late = reported(&doubled_conversation(true), 1, || true);
    assert!(late.iter().any(|line| line.contains("size update within")), "{late:?}");
    let rich = rich_conversation();
    check_carried("rich", &rich, 61);
    let length = |steps: &[Step]| steps.iter().map(|step| step.bytes.len()).sum::<usize>();
    assert!(length(&rich) > 60_000);
    for (name, recording) in RECORDINGS {
        let steps = read(recording);
        check_carried(name, &steps, 1009);
        check_carried(name, &steps[..steps.len().min(24)], 1);
    }
}

#[test]
fn what_is_reported_before_and_after_one_carriage_at_any_byte_is_the_same() {
    let steps = long_conversation();
    let not_carried = reported(&steps, 1, || false);
    for at in 0..steps.iter().map(|step| step.bytes.len()).sum() {
        let mut passed = 0..;
        let carried = reported(&steps, 1, || passed.next() == Some(at));
        assert_eq!(carried, not_carried, "carried after byte {at}");
    }
}

/// The bytes of a tap in the middle of a conversation, and the rest of that.
fn cut(steps: &[Step], at: Index) -> (Vec<u8>, Instant, Vec<Step>) {
    let mut watched = Watched::new();
    let mut at = at.index(steps.iter().map(|step| step.bytes.len()).sum::<usize>() + 1);
    let mut rest = vec![];
    for Step { from, bytes } in steps {
        let (before, after) = bytes.split_at(at.min(bytes.len()));
        watched.show(*from, before);
        at -= before.len();
        rest.push(Step { from: *from, bytes: after.to_vec() });
    }
    (watched.tap.carry(watched.now), watched.now, rest)
}

fn resume(bytes: &[u8], now: Instant) -> Result<Tap, Unreadable> {
    Tap::resume(&room(), ConnId(7), peer(), bytes, now, |_| {})
}

/// A change that a checksum does not show.
#[derive(Clone, Debug)]
enum Harm {
    Set(Index, u8),
    Fill(Index, u8),
    Remove(Index, usize),
    Insert(Index, Vec<u8>),
}

fn harm() -> impl Strategy<Value = Harm> {
    let byte = || prop_oneof![Just(0u8), Just(1), Just(255), any::<u8>()];
    prop_oneof![
        (any::<Index>(), byte()).prop_map(|(at, byte)| Harm::Set(at, byte)),
        (any::<Index>(), byte()).prop_map(|(at, byte)| Harm::Fill(at, byte)),
        (any::<Index>(), 1..9_usize).prop_map(|(at, count)| Harm::Remove(at, count)),
        (any::<Index>(), vec(byte(), 1..9)).prop_map(|(at, more)| Harm::Insert(at, more)),
    ]
}

/// The same bytes with a change, and a checksum that fits.
fn harmed(bytes: &[u8], harms: &[Harm], now: Instant) -> Vec<u8> {
    let mut body = bytes[16..].to_vec();
    for harm in harms {
        let within = |at: &Index, body: &[u8]| at.index(body.len().max(1)).min(body.len());
        match harm {
            Harm::Set(at, byte) => {
                let at = within(at, &body);
                body[at..].iter_mut().take(1).for_each(|old| *old = *byte);
            }
            Harm::Fill(at, byte) => {
                let at = within(at, &body);
                body[at..].iter_mut().take(8).for_each(|old| *old = *byte);
            }
            Harm::Remove(at, count) => {
                let at = within(at, &body);
                drop(body.drain(at..body.len().min(at + count)));
            }
            Harm::Insert(at, more) => {
                let at = within(at, &body);
                drop(body.splice(at..at, more.iter().copied()));
            }
        }
    }
    let mut into = Writer::new(Tap::LAYOUT, now);
    into.push(&body);
    into.finish()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn any_conversation_carried_anywhere_tells_the_same_calls(
        steps in random_conversation(),
        piece in 1..40_usize,
        carries in vec(any::<bool>(), 1..20),
    ) {
        let mut carries = carries.iter().cycle();
        let carried = reported(&steps, piece, || *carries.next().unwrap());
        prop_assert_eq!(carried, reported(&steps, piece, || false));
    }

    #[test]
    fn damaged_bytes_are_refused_wherever_they_are(
        steps in random_conversation(),
        at: Index,
        place: Index,
        other in 1u8..,
        more in vec(any::<u8>(), 1..9),
    ) {
        let (bytes, now, _) = cut(&steps, at);
        let mut changed = bytes.clone();
        changed[place.index(bytes.len())] ^= other;
        for damaged in [&changed, &bytes[..place.index(bytes.len())], &[&bytes, &*more].concat()] {
            prop_assert!(resume(damaged, now).is_err());
        }
        prop_assert!(resume(&bytes, now).is_ok());
    }

    #[test]
    fn bytes_of_whatever_origin_are_survived_and_take_no_more_memory_than_they_have(
        (steps, is_rich) in prop_oneof![
            3 => random_conversation().prop_map(|steps| (steps, false)),
            1 => Just((long_conversation(), false)),
            1 => Just((doubled_conversation(false), false)),
            1 => Just((rich_conversation(), true)),
        ],
        at: Index,
        harms in vec(harm(), 1..6),
        piece in 1..200_usize,
    ) {
        let (bytes, now, rest) = cut(&steps, at);
        let bytes = harmed(&bytes, &harms, now);
        if let Ok(tap) = resume(&bytes, now) {
            prop_assert!(kept(&tap) <= 2 * bytes.len(), "{} of {}", kept(&tap), bytes.len());
            prop_assert!(resume(&tap.carry(now), now).is_ok());
            // Harm may have made a call as old as the machine.
            let mut watched = Watched { now, tap, ..Watched::new() };
            for Step { from, bytes } in rest {
                bytes.chunks(if is_rich { 4096 } else { piece }).for_each(|piece| watched.show(from, piece));
            }
            prop_assert!(kept(&watched.tap) <= 200_000);
            watched.end();
        }
    }

    #[test]
    fn noise_is_refused(noise in vec(prop_oneof![Just(0u8), Just(1), any::<u8>()], 0..300)) {
        let now = clock::now();
        let mut into = Writer::new(Tap::LAYOUT, now);
        into.push(&noise);
        let _ = resume(&into.finish(), now);
        prop_assert!(resume(&noise, now).is_err());
    }
}

#[test]
fn the_ends_of_frames_are_where_the_tap_has_them_however_they_are_followed() {
    for steps in [long_conversation(), doubled_conversation(false), rich_conversation()] {
        let mut tap = Tap::within(&room(), ConnId(7), peer());
        let mut boundary = tap.boundary().unwrap();
        for Step { from, bytes } in steps {
            for piece in bytes.chunks(7) {
                match from {
                    From::Client => tap.client_bytes(piece, clock::now(), |_| {}),
                    From::Runtime => {
                        boundary.pass(piece);
                        tap.runtime_bytes(piece, clock::now(), |_| {});
                    }
                }
                let of_tap = tap.boundary().unwrap();
                let may_speak = tap.between_answers().is_some() && !tap.has_goodbye();
                assert_eq!(boundary.is_between_frames(), may_speak);
                assert_eq!(of_tap.is_between_frames(), may_speak);
                // Followed by its bytes alone from any place.
                let mut carried = Boundary::decode(of_tap.encode()).unwrap();
                assert_eq!(carried, of_tap);
                carried.pass(&[]);
                if may_speak {
                    carried.pass(&[0, 0, 2, DATA, 0, 0, 0, 0, 1, 7]);
                    assert!(!carried.is_between_frames());
                    carried.pass(&[7]);
                    assert!(carried.is_between_frames());
                }
                if of_tap.left > 0 {
                    // From here on by what the tap knew in the middle of a frame.
                    boundary = carried;
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_of_a_boundary_panic(bytes: [u8; Boundary::SIZE], passed in vec(any::<u8>(), 0..100)) {
        if let Some(mut boundary) = Boundary::decode(bytes) {
            prop_assert_eq!(Boundary::decode(boundary.encode()), Some(boundary));
            boundary.pass(&passed);
        }
    }
}

#[test]
fn a_blind_tap_stays_blind_for_its_reason() {
    let rows = [
        (Blindness::NotHttp2, vec![Step { from: From::Client, bytes: b"GET / HTTP/1.1".to_vec() }]),
        (
            Blindness::Frame(frame::FrameError::Push),
            conversation(|wire| wire.frame(From::Runtime, PUSH_PROMISE, 0, 1, &[0; 8])),
        ),
        (
            Blindness::Hpack(hpack::HpackError::NoSuchEntry(70)),
            conversation(|wire| wire.frame(From::Client, HEADERS, END_HEADERS, 1, &[0x80 | 70])),
        ),
    ];
    for (reason, steps) in rows {
        let mut watched = Watched::new();
        steps.iter().for_each(|step| watched.show(step.from, &step.bytes));
        watched.carry();
        assert_eq!(watched.tap.blindness(), Some(reason));
        assert_eq!(watched.end().last().map(String::as_str), Some("closed"));
    }
}

#[test]
fn the_bytes_of_another_layout_are_recognised() {
    let now = clock::now();
    let bytes = Writer::new(Tap::LAYOUT ^ 1, now).finish();
    assert_eq!(resume(&bytes, now).unwrap_err(), Unreadable::OtherLayout);
}

#[test]
fn calls_for_which_there_is_no_room_pass_untracked_and_the_others_go_on() {
    let open = |tap: &mut Tap, count: u32| {
        let steps = conversation(|wire| {
            (0..count).for_each(|at| wire.headers(From::Client, 2 * at + 1, &[(":path", VERSION)], 0));
        });
        for step in steps {
            match step.from {
                From::Client => tap.client_bytes(&step.bytes, clock::now(), |_| {}),
                From::Runtime => tap.runtime_bytes(&step.bytes, clock::now(), |_| {}),
            }
        }
    };
    let mut tap = Tap::within(&room(), ConnId(7), peer());
    open(&mut tap, 100);
    let now = clock::now();
    let bytes = tap.carry(now);
    let full = room();
    let mut greedy: Vec<_> = (0..3).map(|_| Tap::within(&full, ConnId(1), Arc::default())).collect();
    greedy.iter_mut().for_each(|tap| open(tap, 3_000));
    let mut events = vec![];
    let tap = Tap::resume(&full, ConnId(7), peer(), &bytes, now, |event| events.push(line(&event))).unwrap();
    assert_eq!((tap.open_calls(), events), (32, vec!["68 untracked".to_owned()]));
    drop(greedy);
    let tap = Tap::resume(&full, ConnId(7), peer(), &bytes, now, |event| panic!("{event:?}")).unwrap();
    assert_eq!(tap.open_calls(), 100);
}
