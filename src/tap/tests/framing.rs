//! Forms of frames that do not change what is reported, and where our own frame may be inserted.

use super::{wire::*, *};

const REPORTED: [&str; 2] = ["1 Version begun Skipped", "1 Version complete OK 3+5 B Skipped"];

fn block(wire: &mut Wire) -> Vec<u8> {
    wire.block(From::Client, &[(":method", "POST"), (":path", VERSION), ("user-agent", "x")])
}

/// The rest of the call that [`REPORTED`] describes.
fn rest(wire: &mut Wire) {
    wire.data(From::Client, 1, &framed(b"abc"), END_STREAM);
    wire.answer(1, b"12345");
}

#[test]
fn padding_and_priority_are_no_content() {
    let reported = watch(&conversation(|wire| {
        let block = block(wire);
        let padded = [&[4][..], &[0x80, 0, 0, 0, 200], &block, &[0; 4]].concat();
        wire.frame(From::Client, HEADERS, END_HEADERS | PADDED | PRIORITY, 1, &padded);
        // PRIORITY, PING, WINDOW_UPDATE and an unknown type, with a flag that means padding elsewhere.
        for (kind, payload) in [(2, vec![0; 5]), (6, vec![0; 8]), (8, vec![0, 0, 0, 9]), (0xaa, vec![9; 300])]
        {
            wire.frame(From::Client, kind, PADDED, 1, &payload);
            wire.frame(From::Runtime, kind, 0, 1, &payload);
        }
        let message = framed(b"abc");
        wire.data(From::Client, 1, &[&[3][..], &message[..6], &[0xff; 3]].concat(), PADDED);
        wire.data(From::Client, 1, &[0], PADDED);
        wire.data(From::Client, 1, &[2, 0, 0], PADDED);
        wire.data(From::Client, 1, &[&[0][..], &message[6..]].concat(), PADDED | END_STREAM);
        wire.answer(1, b"12345");
    }));
    assert_eq!(reported.lines(), REPORTED);
}

#[test]
fn a_header_block_may_come_in_any_number_of_frames() {
    for cuts in [vec![], vec![0], vec![1], vec![5, 5, 9], vec![0, 0, 0]] {
        let reported = watch(&conversation(|wire| {
            let block = block(wire);
            let mut parts = vec![];
            let mut start = 0;
            for cut in cuts.iter().copied().chain([block.len()]) {
                parts.push(&block[start..cut]);
                start = cut;
            }
            let last = parts.len() - 1;
            for (at, part) in parts.into_iter().enumerate() {
                let kind = if at == 0 { HEADERS } else { CONTINUATION };
                wire.frame(From::Client, kind, if at == last { END_HEADERS } else { 0 }, 1, part);
            }
            rest(wire);
        }));
        assert_eq!(reported.lines(), REPORTED, "cut at {cuts:?}");
    }
}

#[test]
fn end_stream_on_headers_counts_when_their_continuation_is_there() {
    let reported = watch(&conversation(|wire| {
        let block = block(wire);
        wire.frame(From::Client, HEADERS, END_STREAM, 1, &block[..1]);
        wire.frame(From::Client, CONTINUATION, END_HEADERS, 1, &block[1..]);
        wire.answer(1, b"12345");
    }));
    assert_eq!(reported.lines(), ["1 Version begun Skipped", "1 Version complete OK 0+5 B Skipped"]);
}

#[test]
fn tables_follow_the_sizes_that_each_side_announces() {
    // Announced by the other side; then what the encoder says, in the order in which it does.
    let rows: [(u32, &[u32]); 6] = [
        (0, &[0]),
        (0, &[0, 4096]),
        (4096, &[4096]),
        (65_536, &[65_536]),
        (65_536, &[0, 100]),
        (1 << 30, &[65_536]),
    ];
    for (announced, sizes) in rows {
        let reported = watch(&conversation(|wire| {
            let sides =
                [(1, From::Client, From::Runtime, ":path"), (3, From::Runtime, From::Client, "grpc-status")];
            for (stream, from, other, name) in sides {
                wire.settings(other, &[(1, announced)]);
                wire.frame(from, SETTINGS, ACK, 0, &[]);
                let updates: Vec<u8> = sizes.iter().flat_map(|&size| wire.resize(from, size)).collect();
                let block = wire.block(from, &[(name, "/a/b")]);
                wire.frame(from, HEADERS, END_HEADERS, stream, &[updates, block].concat());
            }
            // What entered the tables, or did not, counts here.
            wire.request(5, VERSION, &[1; 3]);
            wire.answer(5, &[1; 5]);
        }));
        assert_eq!(
            reported.lines(),
            ["5 Version begun Skipped", "5 Version complete OK 3+5 B Skipped"],
            "{announced}: {sizes:?}"
        );
    }
}

#[test]
fn longer_frames_pass_once_they_were_announced() {
    let long = vec![7; 100_000];
    let call = |announced: &[(u16, u32)]| {
        let announced = announced.to_vec();
        let long = framed(&long);
        watch(&conversation(|wire| {
            wire.settings(From::Client, &announced);
            wire.request(1, VERSION, b"abc");
            wire.answer_head(1);
            wire.data(From::Runtime, 1, &long, 0);
            wire.trailers(1, "0", "");
        }))
        .lines()
    };
    assert_eq!(
        call(&[(5, 200_000)]),
        ["1 Version begun Skipped", "1 Version complete OK 3+100000 B Skipped"]
    );
    // An announcement that is taken back may not have reached the sender.
    assert_eq!(call(&[(5, 200_000), (5, 16_384)]).len(), 2);
    assert_eq!(
        call(&[]).last().map(String::as_str),
        Some("blinded: framing error: a frame is longer than its receiver accepts")
    );
}

#[test]
fn a_frame_of_ours_stands_only_between_two_of_the_runtime_s() {
    let mut reported = Reported { events: vec![], tap: tap() };
    assert_eq!(reported.tap.between_answers(), None, "before the runtime's SETTINGS");
    show(&mut reported, &conversation(|wire| wire.request(7, VERSION, b"abc")));
    assert_eq!(reported.tap.between_answers(), Some(7));
    let mut wire = Wire::unopened();
    wire.answer(7, b"12345");
    let bytes: Vec<u8> = wire.steps.iter().flat_map(|step| step.bytes.clone()).collect();
    let ends: Vec<usize> = wire
        .steps
        .iter()
        .scan(0, |end, step| {
            *end += step.bytes.len();
            Some(*end)
        })
        .collect();
    for (at, byte) in bytes.iter().enumerate() {
        show(&mut reported, &[Step { from: From::Runtime, bytes: vec![*byte] }]);
        assert_eq!(
            reported.tap.between_answers().is_some(),
            ends.contains(&(at + 1)),
            "after {} bytes",
            at + 1
        );
    }
    assert_eq!(reported.lines().len(), 2);
}

#[test]
fn calls_in_flight_are_known_by_name() {
    let reported = watch(&conversation(|wire| {
        wire.request(1, VERSION, b"");
        wire.head(3, START, 0);
        wire.request(5, "/x.Y/Z", b"");
        wire.answer(1, b"");
    }));
    assert_eq!(reported.tap.open_calls(), 2);
    assert_eq!(reported.tap.open_methods(), ["StartContainer", "Z"]);
}
