//! What makes a tap blind, and that it is silent from then on.

use super::{wire::*, *};
use crate::tap::{frame::FrameError, hpack::HpackError};

const NO_SETTINGS: Blindness = Blindness::Frame(FrameError::NoSettings);
const PUSH: Blindness = Blindness::Frame(FrameError::Push);

fn compression(error: HpackError) -> Blindness {
    Blindness::Hpack(error)
}

/// A good call afterwards, to be silent about.
fn good_call() -> Vec<Step> {
    conversation(|wire| {
        wire.request(1, VERSION, b"");
        wire.answer(1, b"");
    })
}

#[test]
fn what_is_not_http2_blinds_once_and_is_silent_then() {
    let frame = |kind, flags, stream, payload: &[u8]| {
        let payload = payload.to_vec();
        conversation(|wire| wire.frame(From::Runtime, kind, flags, stream, &payload))
    };
    let client = |bytes: &[u8]| vec![Step { from: From::Client, bytes: bytes.to_vec() }];
    let rows: Vec<(&str, Vec<Step>, Blindness)> = vec![
        ("HTTP/1", client(b"GET /info HTTP/1.1\r\nHost: x\r\n\r\n"), Blindness::NotHttp2),
        ("an upgrade to HTTP/2", client(b"PRI * HTTP/1.1\r\n"), Blindness::NotHttp2),
        ("TLS", client(&[0x16, 3, 1, 2, 0, 1, 0]), Blindness::NotHttp2),
        ("no SETTINGS first", client(&[PREFACE, &[0, 0, 0, 6, 0, 0, 0, 0, 0]].concat()), NO_SETTINGS),
        (
            "HTTP/1 of the runtime",
            vec![Step { from: From::Runtime, bytes: b"HTTP/1.1 400 B".to_vec() }],
            NO_SETTINGS,
        ),
        ("a push", frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2]), PUSH),
        (
            "a header block of no fields",
            frame(HEADERS, END_HEADERS, 1, &[0x80]),
            compression(HpackError::NoSuchEntry(0)),
        ),
        (
            "Huffman coding that is none",
            frame(HEADERS, END_HEADERS, 1, &[0x08, 0x81, 0xff]),
            compression(HpackError::InvalidHuffman),
        ),
        (
            "a table that was not agreed",
            frame(HEADERS, END_HEADERS, 1, &[0x3f, 0xe2, 0x1f]),
            compression(HpackError::TableTooLarge(4097)),
        ),
    ];
    for (rule, mut steps, reason) in rows {
        steps.extend(good_call());
        let reported = watch_all(&steps);
        assert_eq!(reported.lines(), [format!("blinded: {reason}"), "closed".to_owned()], "{rule}");
        assert_eq!(reported.tap.blindness(), Some(reason), "{rule}");
        assert_eq!((reported.tap.open_calls(), reported.tap.between_answers()), (0, None), "{rule}");
        assert!(reported.tap.open_methods().is_empty(), "{rule}");
    }
}

#[test]
fn open_calls_are_lost_with_sight() {
    let reported = watch(&conversation(|wire| {
        wire.request(1, START, b"\x0a\x03app");
        wire.head(3, VERSION, 0);
        wire.frame(From::Runtime, HEADERS, END_HEADERS, 1, &[0xff]);
        wire.answer(1, b"");
    }));
    assert_eq!(
        reported.lines(),
        [
            "1 StartContainer begun StartContainer(\"app\")",
            "1 StartContainer lost 5+0 B Skipped",
            "3 Version lost 0+0 B Skipped",
            "blinded: header compression error: header block ends within a field",
        ]
    );
}

#[test]
fn a_table_above_64_kib_blinds_when_it_is_used() {
    for from in [From::Client, From::Runtime] {
        let reported = watch(&conversation(|wire| {
            for side in [From::Client, From::Runtime] {
                wire.settings(side, &[(1, 65_537)]);
            }
            wire.request(1, VERSION, b"");
            wire.answer(1, b"");
            let update = wire.resize(from, 65_537);
            wire.frame(from, HEADERS, END_HEADERS, 3, &update);
        }));
        let lines = reported.lines();
        assert_eq!(
            lines[1..],
            [
                "1 Version complete OK 0+0 B Skipped",
                "blinded: header compression error: a header table of 65537 octets was not agreed on"
            ]
        );
    }
}

#[test]
fn whoever_blinds_it_is_told_once() {
    let mut reported = watch(&conversation(|wire| wire.request(1, VERSION, b"")));
    let Reported { events, tap } = &mut reported;
    for _ in 0..2 {
        tap.blind(PUSH, clock::now(), |event| events.push(event));
    }
    assert_eq!(
        reported.lines(),
        [
            "1 Version begun Skipped",
            "1 Version lost 0+0 B Skipped",
            "blinded: framing error: the peer sent PUSH_PROMISE"
        ]
    );
}

#[test]
fn after_a_panic_nothing_that_was_open_is_looked_at_again() {
    let mut reported = watch(&conversation(|wire| wire.request(1, VERSION, b"")));
    let Reported { events, tap } = &mut reported;
    tap.abandon(|event| events.push(event));
    tap.closed(clock::now(), |event| events.push(event));
    assert_eq!(reported.lines(), ["1 Version begun Skipped", "blinded: the decoder panicked", "closed"]);
    assert_eq!(reported.tap.open_calls(), 0);
}

#[test]
fn a_preface_cut_anywhere_is_the_same() {
    for cut in 0..=PREFACE.len() {
        let mut steps = good_call();
        let tail = steps[0].bytes.split_off(cut);
        steps.insert(1, Step { from: From::Client, bytes: tail });
        assert_eq!(watch(&steps).lines().len(), 2, "cut at {cut}");

        let mut bytes = PREFACE[..cut].to_vec();
        bytes.push(b'!');
        let reported = watch(&[Step { from: From::Client, bytes }]);
        let is_blind = reported.tap.blindness() == Some(Blindness::NotHttp2);
        assert_eq!(is_blind, cut < PREFACE.len(), "something else after {cut} bytes");
    }
}

#[test]
fn the_runtime_may_speak_first() {
    let mut steps = good_call();
    let settings = steps.remove(2);
    steps.insert(0, settings);
    assert_eq!(watch(&steps).lines().len(), 2);
}
