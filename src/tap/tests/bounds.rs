//! Every bound, what happens there, and that nothing stays when calls are over.

use super::{
    hpack::BEGINNING,
    room::{MAX_ARRIVING, MAX_COMMANDS, MAX_CREATIONS, MAX_STREAMS, RESERVE},
    streams::MAX_PATH,
    wire::*,
    *,
};

/// What buffers may keep for the next frame or block, on one connection.
const IDLE: usize = 20 * 1024;

#[test]
fn above_the_bound_on_streams_calls_pass_untracked() {
    let last = 2 * MAX_STREAMS as u32 + 1;
    let mut reported = watch(&conversation(|wire| {
        for stream in (1..=last).step_by(2) {
            wire.headers(From::Client, stream, &[(":path", VERSION)], 0);
        }
        wire.data(From::Client, last, &framed(b"x"), END_STREAM);
        wire.answer(last, b"");
        wire.reset(From::Client, 1, CANCEL);
        wire.request(last + 2, VERSION, b"");
        wire.answer(last + 2, b"");
    }));
    assert_eq!(
        reported.lines(),
        [
            "1 untracked".to_owned(),
            "1 Version cancelled 0+0 B Skipped".to_owned(),
            format!("{} Version begun Skipped", last + 2),
            format!("{} Version complete OK 0+0 B Skipped", last + 2),
        ]
    );
    assert_eq!(reported.tap.open_calls(), MAX_STREAMS - 1);
    let Reported { events, tap } = &mut reported;
    events.clear();
    tap.closed(clock::now(), |event| events.push(event));
    assert_eq!(events.len(), MAX_STREAMS);
}

#[test]
fn above_the_bound_on_kept_bytes_the_largest_creations_go_without_details() {
    let create = "/runtime.v1.RuntimeService/CreateContainer";
    let size = 1 << 20;
    let small = b"\x0a\x01c\x7a\x01x";
    let mut reported = watch(&conversation(|wire| {
        wire.settings(From::Runtime, &[(5, 1 << 22)]);
        wire.head(1, create, 0);
        wire.data(From::Client, 1, &framed(small)[..7], 0);
        for stream in [3, 5, 7, 9, 11] {
            wire.head(stream, create, 0);
            wire.data(From::Client, stream, &framed(&start(size))[..size], 0);
        }
    }));
    assert!(kept(&reported.tap) <= MAX_ARRIVING + IDLE, "{}", kept(&reported.tap));
    let mut rest = Wire::unopened();
    rest.data(From::Client, 1, &framed(small)[7..], END_STREAM);
    for stream in [3, 5, 7, 9, 11] {
        rest.data(From::Client, stream, &framed(&start(size))[size..], END_STREAM);
    }
    show(&mut reported, &rest.steps);
    let begun = reported.events.iter().map(|event| match event {
        TapEvent::Begun(call) => call.request.sandbox().is_some(),
        _ => panic!("{event:?}"),
    });
    // Of equal ones, the oldest go first; all go until half is left.
    assert_eq!(begun.collect::<Vec<_>>(), [true, false, false, false, true, true]);
    assert!(kept(&reported.tap) <= IDLE, "{}", kept(&reported.tap));
}

#[test]
fn above_the_bound_on_creations_requests_are_dropped_before_details() {
    let create = "/runtime.v1.RuntimeService/CreateContainer";
    let room = Arc::new(Room::new(Arc::new(true.into()), Arc::default()));
    let mut reported =
        Reported { events: vec![], tap: Tap::within(&room, ConnId(1), Arc::new(Peer::default())) };
    let streams = (1..=19u32).step_by(2);
    let begun = conversation(|wire| {
        wire.settings(From::Runtime, &[(5, 1 << 20)]);
        streams.clone().for_each(|stream| wire.request(stream, create, &start(250 << 10)));
    });
    for step in &begun {
        show(&mut reported, std::slice::from_ref(step));
        assert!(kept(&reported.tap) <= MAX_CREATIONS + IDLE, "{}", kept(&reported.tap));
    }
    let mut ends = Wire::unopened();
    streams.for_each(|stream| ends.answer(stream, b"\x0a\x02c1"));
    show(&mut reported, &ends.steps);
    let ended = reported.events.iter().filter_map(|event| match event {
        TapEvent::Ended(ended) => {
            assert_eq!(ended.call.request.sandbox(), Some("c".into()));
            Some(ended.creation.is_some())
        }
        _ => None,
    });
    // Eight have room together.
    assert_eq!(ended.collect::<Vec<_>>(), [[false; 9].as_slice(), &[true]].concat());
    assert!(kept(&reported.tap) <= IDLE, "{}", kept(&reported.tap));
}

/// A StartContainer request of that size, by a field that we do not know.
fn start(size: usize) -> Vec<u8> {
    let mut message = b"\x0a\x01c\x7a".to_vec();
    prost::encode_length_delimiter(size - message.len() - 3, &mut message).unwrap();
    message.resize(size, b'c');
    message
}

#[test]
fn above_the_bound_on_kept_bytes_the_longest_open_commands_end_without_details() {
    let count = 400;
    let mut reported = watch(&conversation(|wire| {
        wire.settings(From::Runtime, &[(5, 1 << 22)]);
        wire.request(1, EXEC_SYNC, &command(200));
        for number in 1..=count {
            wire.request(2 * number + 1, EXEC_SYNC, &command(100_000));
        }
    }));
    let is_known = |call: &Call| call.request.container().is_some();
    let begun = reported.events.iter().map(|event| matches!(event, TapEvent::Begun(call) if is_known(call)));
    assert_eq!(begun.collect::<Vec<_>>(), vec![true; 401]);
    assert!(
        (MAX_COMMANDS / 3..=MAX_COMMANDS + IDLE).contains(&kept(&reported.tap)),
        "{}",
        kept(&reported.tap)
    );
    let Reported { events, tap } = &mut reported;
    events.clear();
    tap.closed(clock::now(), |event| events.push(event));
    let ended: Vec<_> =
        events.iter().map(|event| matches!(event, TapEvent::Ended(ended) if is_known(&ended.call))).collect();
    assert!(ended[0] && !ended[1] && ended[count as usize], "the short one and the latest stay");
}

/// An ExecSync request of that size.
fn command(size: usize) -> Vec<u8> {
    let mut message = b"\x0a\x01c\x12".to_vec();
    let head = if size < 0x4000 { 2 } else { 3 };
    prost::encode_length_delimiter(size - message.len() - head, &mut message).unwrap();
    message.resize(size, b'x');
    message
}

#[test]
fn calls_beyond_the_bound_on_streams_do_not_keep_stops_and_creations_from_being_seen() {
    let mut stream = 1;
    let mut reported = watch(&conversation(|wire| {
        let mut open = |method: &str, count: usize| {
            for _ in 0..count {
                let path = format!("/runtime.v1.RuntimeService/{method}");
                wire.headers(From::Client, stream, &[(":path", &path)], 0);
                stream += 2;
            }
        };
        open("Version", MAX_STREAMS + 1);
        open("CreateContainer", RESERVE + 1);
        open("StopContainer", RESERVE + 1);
        open("ExecSync", 1);
        for stream in [1, 3] {
            wire.reset(From::Client, stream, CANCEL);
        }
    }));
    let untracked = reported.lines().iter().filter(|line| *line == "1 untracked").count();
    assert_eq!((untracked, reported.tap.open_calls()), (4, MAX_STREAMS + 2 * RESERVE - 2));
    let stop = "/runtime.v1.RuntimeService/StopContainer";
    reported.events.clear();
    let mut wire = Wire::unopened();
    wire.request(stream, stop, b"\x0a\x01c");
    show(&mut reported, &wire.steps);
    assert_eq!(reported.lines(), [format!("{stream} StopContainer begun StopContainer(\"c\")")]);
}

#[test]
fn a_stream_with_long_texts_of_its_own_takes_several_places() {
    let reported = watch(&conversation(|wire| {
        for number in 0..MAX_STREAMS as u32 {
            let trace = format!("{number:0200}");
            wire.headers(From::Client, 2 * number + 1, &[(":path", VERSION), ("traceparent", &trace)], 0);
        }
    }));
    assert_eq!(reported.tap.open_calls(), MAX_STREAMS / 2);
}

#[test]
fn an_id_of_endless_length_is_none() {
    for (length, is_read) in [(256, true), (257, false)] {
        let mut message = vec![0x0a];
        prost::encode_length_delimiter(length, &mut message).unwrap();
        message.resize(message.len() + length, b'c');
        for method in ["StopPodSandbox", "RemoveContainer", "StartContainer", "ExecSync", "Attach"] {
            let path = format!("/runtime.v1.RuntimeService/{method}");
            let reported = watch(&conversation(|wire| wire.request(1, &path, &message)));
            assert_eq!(reported.lines()[0].ends_with("Undecoded"), !is_read, "{method} {length}");
        }
    }
}

#[test]
fn nothing_is_kept_when_calls_are_over() {
    type Row = (&'static str, fn(&mut Wire));
    let rows: [Row; 8] = [
        ("answered", |wire| {
            wire.request(1, START, &start(5000));
            wire.answer(1, b"");
        }),
        ("answered early", |wire| {
            wire.head(1, START, 0);
            wire.data(From::Client, 1, &framed(&start(5000))[..3000], 0);
            wire.trailers(1, "13", "");
        }),
        ("a second message behind one that was kept", |wire| {
            wire.head(1, START, 0);
            wire.data(From::Client, 1, &framed(&start(5000)), 0);
            wire.data(From::Client, 1, &framed(&start(5000)), END_STREAM);
            wire.answer(1, b"");
        }),
        ("cancelled in its request", |wire| {
            wire.head(1, START, 0);
            wire.data(From::Client, 1, &framed(&start(5000))[..100], 0);
            wire.reset(From::Client, 1, CANCEL);
        }),
        ("reset in its answer", |wire| {
            wire.request(1, "/runtime.v1.RuntimeService/CreateContainer", b"");
            wire.answer_head(1);
            wire.data(From::Runtime, 1, &framed(&start(5000))[..4000], 0);
            wire.reset(From::Runtime, 1, CANCEL);
        }),
        ("refused by a GOAWAY", |wire| {
            wire.request(1, "/runtime.v1.RuntimeService/CreateContainer", &start(5000));
            wire.go_away(From::Runtime, 0);
        }),
        ("a huge header block", |wire| {
            let long = "x".repeat(10_000);
            let mut fields = vec![("a", &*long); 30];
            fields.push((":path", VERSION));
            let block = wire.block(From::Client, &fields);
            wire.settings(From::Runtime, &[(5, 1 << 19)]);
            wire.frame(From::Client, HEADERS, END_STREAM, 1, &block[..5]);
            wire.frame(From::Client, CONTINUATION, END_HEADERS, 1, &block[5..]);
            wire.answer(1, b"");
        }),
        ("huge values", |wire| {
            let long = "v".repeat(10_000);
            for name in [":path", "user-agent", "traceparent"] {
                wire.headers(From::Client, 1, &[(name, &long)], 0);
            }
            wire.headers(From::Runtime, 1, &[("grpc-status", "1"), ("grpc-message", &long)], END_STREAM);
        }),
    ];
    for (rule, write) in rows {
        for piece in [1, 100, usize::MAX] {
            let steps: Vec<Step> = conversation(write)
                .into_iter()
                .flat_map(|Step { from, bytes }| {
                    let pieces: Vec<_> = bytes.chunks(piece).map(<[u8]>::to_vec).collect();
                    pieces.into_iter().map(move |bytes| Step { from, bytes })
                })
                .collect();
            let mut reported = watch(&steps);
            assert_eq!(reported.tap.open_calls(), 0, "{rule}");
            assert!(reported.events.iter().any(|event| matches!(event, TapEvent::Ended(_))), "{rule}");
            // The next frame gives room back that was used once.
            show(&mut reported, &[ping(From::Client), ping(From::Runtime)]);
            assert!(kept(&reported.tap) <= IDLE, "{rule}: {} bytes", kept(&reported.tap));
            let State::Sighted(sighted) = &reported.tap.state else { panic!("{rule}: blind") };
            assert_eq!(sighted.streams.kept(), (0, 0), "{rule}");
        }
    }
}

fn ping(from: From) -> Step {
    let mut wire = Wire::unopened();
    wire.frame(from, 6, 0, 0, &[0; 8]);
    wire.steps.remove(0)
}

#[test]
fn header_blocks_of_any_length_are_followed_in_little_memory() {
    let long = "x".repeat(3 << 20);
    let frames = |wire: &mut Wire, from: From, flags: u8, block: &[u8], size: usize| {
        let fragments: Vec<_> = block.chunks(size).collect();
        for (at, fragment) in fragments.iter().enumerate() {
            let kind = if at == 0 { HEADERS } else { CONTINUATION };
            let end = if at + 1 == fragments.len() { END_HEADERS } else { 0 };
            wire.frame(from, kind, if at == 0 { flags } else { 0 } | end, 1, fragment);
        }
    };
    // The table's bound, as fields are held; the frames' own buffers; what was read of the values.
    let most = 4096 * 15 / 4 + BEGINNING + IDLE;
    for size in [1000, 16_384, 1 << 21] {
        let steps = conversation(|wire| {
            wire.settings(From::Runtime, &[(5, 1 << 22)]);
            wire.settings(From::Client, &[(5, 1 << 22)]);
            let fields = [("a", "1"), (":path", VERSION), ("b", &long), (&long, "c"), ("user-agent", &long)];
            let block = wire.block(From::Client, &fields);
            frames(wire, From::Client, END_STREAM, &block, size);
            wire.answer_head(1);
            let block = wire.block(From::Runtime, &[("grpc-message", &long), ("grpc-status", "2")]);
            frames(wire, From::Runtime, END_STREAM, &block, size);
            wire.request(3, START, b"\x0a\x03app");
            wire.answer(3, b"");
        });
        for piece in [1000, 65_536] {
            let mut reported = Reported { events: vec![], tap: tap() };
            for step in &steps {
                for bytes in step.bytes.chunks(piece) {
                    show(&mut reported, &[Step { from: step.from, bytes: bytes.to_vec() }]);
                    assert!(kept(&reported.tap) <= most, "{}", kept(&reported.tap));
                }
            }
            let message = "x".repeat(1024);
            assert_eq!(
                reported.lines(),
                [
                    "1 Version begun Skipped".to_owned(),
                    format!("1 Version complete Unknown {message:?} 0+0 B Skipped"),
                    "3 StartContainer begun StartContainer(\"app\")".to_owned(),
                    "3 StartContainer complete OK 5+0 B Skipped".to_owned(),
                ]
            );
            assert!(kept(&reported.tap) <= IDLE, "{}", kept(&reported.tap));
        }
    }
}

#[test]
fn empty_fragments_without_end_keep_nothing() {
    let mut reported = watch(&conversation(|wire| {
        let block = wire.block(From::Client, &[(":path", VERSION)]);
        wire.frame(From::Client, HEADERS, END_STREAM, 1, &block[..1]);
        for _ in 0..10_000 {
            wire.frame(From::Client, CONTINUATION, 0, 1, &[]);
        }
        wire.frame(From::Client, CONTINUATION, END_HEADERS, 1, &block[1..]);
    }));
    assert_eq!(reported.lines(), ["1 Version begun Skipped"]);
    assert!(kept(&reported.tap) <= IDLE, "{}", kept(&reported.tap));
    // A connection that ends within a block has no call of it.
    let mut rest = Wire::unopened();
    rest.frame(From::Client, HEADERS, END_STREAM, 3, &[0x04, 2, b'/']);
    show(&mut reported, &rest.steps);
    assert_eq!((reported.tap.open_calls(), reported.tap.blindness()), (1, None));
}

#[test]
fn a_long_goaway_is_not_kept() {
    let steps = conversation(|wire| {
        wire.settings(From::Client, &[(5, 1 << 21)]);
        wire.request(1, VERSION, b"");
        wire.frame(From::Runtime, GOAWAY, 0, 0, &vec![0; 1 << 20]);
    });
    let mut reported = Reported { events: vec![], tap: tap() };
    for step in &steps {
        for bytes in step.bytes.chunks(1000) {
            show(&mut reported, &[Step { from: step.from, bytes: bytes.to_vec() }]);
            assert!(kept(&reported.tap) <= IDLE, "{}", kept(&reported.tap));
        }
    }
    assert_eq!(reported.lines(), ["1 Version begun Skipped", "1 Version reset 0+0 B Skipped"]);
}

#[test]
fn methods_that_are_not_the_cris_are_told_all_the_same() {
    let count = 512;
    let reported = watch(&conversation(|wire| {
        for at in 0..count as u32 {
            wire.head(2 * at + 1, &format!("/s/m{at}"), END_STREAM);
        }
        wire.head(9999, "/s/m1", END_STREAM);
    }));
    let names: Vec<_> = reported.lines();
    assert_eq!(names.len(), count + 1);
    assert!(names[700 / 2].contains(" m350 ") && names[count].contains(" m1 "), "{names:?}");
}

#[test]
fn of_a_long_path_the_beginning_is_kept_and_of_one_too_long_nothing() {
    let reported = watch(&conversation(|wire| {
        wire.request(1, &format!("/x/{}", "y".repeat(2000)), b"");
        wire.request(3, &format!("/x/{}", "y".repeat(1021)), b"");
    }));
    let lines = reported.lines();
    assert_eq!(lines[0], "1  begun Skipped");
    assert_eq!(lines[1].len(), MAX_PATH - "/x/".len() + "3  begun Skipped".len());
}

/// What a client sends that wants as much as possible to be kept for its connection.
fn greedy(number: u32) -> Vec<Step> {
    let create = "/runtime.v1.RuntimeService/CreateContainer";
    conversation(|wire| {
        for at in 0..8 {
            wire.headers(
                From::Client,
                2 * at + 1,
                &[(":path", &format!("/{number}/{at:01000}"))],
                END_STREAM,
            );
            wire.reset(From::Client, 2 * at + 1, CANCEL);
        }
        wire.head(1001, create, 0);
        for piece in framed(&start(61_000))[..60_000].chunks(16_000) {
            wire.data(From::Client, 1001, piece, 0);
        }
        for at in 0..14 {
            wire.request(1003 + 2 * at, EXEC_SYNC, &command(3_950));
        }
        for at in 0..40 {
            let stop = "/runtime.v1.RuntimeService/StopContainer";
            wire.head(1103 + 2 * at, stop, 0);
            wire.data(From::Client, 1103 + 2 * at, &framed(&start(450))[..400], 0);
        }
        let mut unfinished = vec![0x83, 0x86, 0x40, 0x7f, 0x80, 0xd0, 0x01];
        unfinished.resize(14_000, b'n');
        wire.frame(From::Client, HEADERS, 0, 2001, &unfinished);
    })
}

#[test]
fn row_16_what_a_thousand_connections_keep_is_bounded_and_another_one_is_followed() {
    let room = Arc::new(Room::default());
    let within = || Tap::within(&room, ConnId(1), Arc::new(Peer::default()));
    let taps: Vec<_> = (0..1_024)
        .map(|number| {
            let mut reported = Reported { events: vec![], tap: within() };
            show(&mut reported, &greedy(number));
            reported.tap
        })
        .collect();
    let kept: usize = taps
        .iter()
        .map(|tap| match &tap.state {
            State::Sighted(sighted) => sighted.kept() + 1024 * sighted.streams.open(),
            State::Blind(_) => 0,
        })
        .sum();
    assert!(kept <= 56 << 20, "{} KiB", kept >> 10);
    let mut reported = Reported { events: vec![], tap: within() };
    let ordinary = conversation(|wire| {
        for stream in [1, 3, 5] {
            wire.request(stream, EXEC_SYNC, &command(200));
        }
        wire.answer(1, b"");
    });
    show(&mut reported, &ordinary);
    let is_known = |event: &TapEvent| match event {
        TapEvent::Begun(call) => call.request.container().is_some(),
        TapEvent::Ended(_) => true,
        _ => false,
    };
    assert!(reported.events.len() == 4 && reported.events.iter().all(is_known), "{:?}", reported.events);
    drop(taps);
}

#[test]
fn row_12_stops_of_other_connections_hide_none_of_hundreds_however_many_hang() {
    let room = Arc::new(Room::default());
    let stop = "/runtime.v1.RuntimeService/StopContainer";
    let open = |pid: i32, stops: u32| {
        let tap = Tap::within(&room, ConnId(1), Arc::new(Peer { pid, ..Peer::default() }));
        let mut reported = Reported { events: vec![], tap };
        let steps = conversation(|wire| {
            for number in 0..stops {
                wire.request(2 * number + 1, stop, b"\x0a\x01c");
            }
        });
        show(&mut reported, &steps);
        reported
    };
    // Silent connections, connections with a stop each, and ten with as many as may be.
    let _others: Vec<_> = [(300, 0), (300, 1), (10, 9_000)]
        .iter()
        .flat_map(|&(count, stops)| (0..count).map(move |_| stops))
        .map(|stops| open(1, stops))
        .collect();
    let kubelet = open(2, 500);
    let untracked = kubelet.lines().iter().filter(|line| line.ends_with("untracked")).count();
    assert_eq!((untracked, kubelet.tap.open_calls()), (0, 500));
}
