//! Rules of single calls: what is reported of each course that a stream can take.

use super::{super::call::MAX_MESSAGE, wire::*, *};

/// A conversation on stream 1 and later, and the lines that it gives.
fn check(rule: &str, write: impl FnOnce(&mut Wire), lines: &[&str]) {
    let reported = watch_all(&conversation(write));
    let mut expected: Vec<&str> = lines.to_vec();
    expected.push("closed");
    assert_eq!(reported.lines(), expected, "{rule}");
    assert_eq!(reported.tap.open_calls(), 0, "{rule}");
}

#[test]
fn an_answered_call_is_complete() {
    check(
        "one message each way",
        |wire| {
            wire.request(1, VERSION, b"0.1.0");
            wire.answer(1, b"containerd");
        },
        &["1 Version begun Skipped", "1 Version complete OK 5+10 B Skipped"],
    );
    check(
        "several messages, as event streams have them",
        |wire| {
            wire.request(1, "/runtime.v1.RuntimeService/GetContainerEvents", b"");
            wire.answer_head(1);
            for size in [1, 20, 300] {
                wire.data(From::Runtime, 1, &framed(&vec![7; size]), 0);
            }
            wire.trailers(1, "0", "");
        },
        &["1 GetContainerEvents begun Skipped", "1 GetContainerEvents complete OK 0+321 B Skipped"],
    );
    check(
        "several messages in a frame, and a message over several frames",
        |wire| {
            wire.request(1, VERSION, b"");
            wire.answer_head(1);
            let bytes = [framed(b"one"), framed(b"two"), framed(b"three")].concat();
            wire.data(From::Runtime, 1, &bytes[..20], 0);
            wire.data(From::Runtime, 1, &bytes[20..], 0);
            wire.trailers(1, "0", "");
        },
        &["1 Version begun Skipped", "1 Version complete OK 0+11 B Skipped"],
    );
    check(
        "an answer without a message",
        |wire| {
            wire.request(1, VERSION, b"");
            wire.answer_head(1);
            wire.trailers(1, "0", "");
        },
        &["1 Version begun Skipped", "1 Version complete OK 0+0 B Skipped"],
    );
    check(
        "END_STREAM on an empty DATA, as tonic has it",
        |wire| {
            wire.head(1, VERSION, 0);
            wire.data(From::Client, 1, &framed(b"0.1.0"), 0);
            wire.data(From::Client, 1, b"", END_STREAM);
            wire.answer(1, b"");
        },
        &["1 Version begun Skipped", "1 Version complete OK 5+0 B Skipped"],
    );
    check(
        "END_STREAM with the request's headers, or its trailers",
        |wire| {
            wire.head(1, VERSION, END_STREAM);
            wire.answer(1, b"");
            wire.head(3, VERSION, 0);
            wire.data(From::Client, 3, &framed(b"x"), 0);
            wire.headers(From::Client, 3, &[("checksum", "1")], END_STREAM);
            wire.answer(3, b"");
        },
        &[
            "1 Version begun Skipped",
            "1 Version complete OK 0+0 B Skipped",
            "3 Version begun Skipped",
            "3 Version complete OK 1+0 B Skipped",
        ],
    );
    check(
        "1xx before the answer's own headers",
        |wire| {
            wire.request(1, VERSION, b"");
            wire.headers(From::Runtime, 1, &[(":status", "103"), ("link", "x")], 0);
            wire.headers(From::Runtime, 1, &[(":status", "100")], 0);
            wire.answer(1, b"x");
        },
        &["1 Version begun Skipped", "1 Version complete OK 0+1 B Skipped"],
    );
}

#[test]
fn a_status_is_told_as_it_came() {
    let long = "%C3%A9".repeat(MAX_MESSAGE);
    let kept = "\u{e9}".repeat(MAX_MESSAGE / 2);
    let replaced = "\u{fffd}".repeat(MAX_MESSAGE / 3);
    type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);
    let rows: [Row<'_>; 13] = [
        ("plain", &[("grpc-status", "5"), ("grpc-message", "not found")], "NotFound \"not found\""),
        (
            "percent-encoded",
            &[("grpc-status", "2"), ("grpc-message", "100%25 %C3%A9")],
            "Unknown \"100% \u{e9}\"",
        ),
        ("badly percent-encoded", &[("grpc-status", "2"), ("grpc-message", "%G1%4")], "Unknown \"%G1%4\""),
        (
            "a message before its status",
            &[("grpc-message", "late"), ("grpc-status", "4")],
            "DeadlineExceeded \"late\"",
        ),
        ("no message", &[("grpc-status", "12")], "Unimplemented"),
        ("a status that gRPC does not have", &[("grpc-status", "99")], "Unknown"),
        ("a status that is no number", &[("grpc-status", "x")], "Unknown \"no grpc-status\""),
        ("no status", &[("x", "y")], "Unknown \"no grpc-status\""),
        ("no status, and HTTP has one", &[(":status", "502")], "Unknown \"HTTP status 502\""),
        (
            "the first of two",
            &[("grpc-status", "1"), ("grpc-status", "2"), ("grpc-message", "a"), ("grpc-message", "b")],
            "Canceled \"a\"",
        ),
        ("a long message", &[("grpc-status", "2"), ("grpc-message", &long)], &format!("Unknown {kept:?}")),
        (
            "a long message that is no UTF-8",
            &[("grpc-status", "2"), ("grpc-message", &"%FF".repeat(2000))],
            &format!("Unknown {replaced:?}"),
        ),
        (
            "details are not kept",
            &[("grpc-status", "0"), ("grpc-status-details-bin", "CAU"), ("set-cookie", "s3cr3t")],
            "OK",
        ),
    ];
    for (rule, trailers, reported) in rows {
        let ended = format!("1 Version complete {reported} 0+0 B Skipped");
        check(
            &format!("{rule}, in trailers"),
            |wire| {
                wire.request(1, VERSION, b"");
                wire.headers(From::Runtime, 1, &[(":status", "200")], 0);
                wire.headers(From::Runtime, 1, trailers, END_STREAM);
            },
            &["1 Version begun Skipped", &ended],
        );
        check(
            &format!("{rule}, without anything before"),
            |wire| {
                wire.request(1, VERSION, b"");
                wire.headers(From::Runtime, 1, trailers, END_STREAM);
            },
            &["1 Version begun Skipped", &ended],
        );
    }
    check(
        "an answer that ends in DATA has none",
        |wire| {
            wire.request(1, VERSION, b"");
            wire.answer_head(1);
            wire.data(From::Runtime, 1, &framed(b"x"), END_STREAM);
        },
        &["1 Version begun Skipped", "1 Version complete Unknown \"no grpc-status\" 0+1 B Skipped"],
    );
}

#[test]
fn a_call_without_answer_says_who_ended_it() {
    let begun = "1 Version begun Skipped";
    check(
        "the client by RST_STREAM",
        |wire| {
            wire.request(1, VERSION, b"");
            wire.reset(From::Client, 1, CANCEL);
        },
        &[begun, "1 Version cancelled 0+0 B Skipped"],
    );
    check(
        "the client, before its request was whole",
        |wire| {
            wire.head(1, VERSION, 0);
            wire.reset(From::Client, 1, CANCEL);
        },
        &["1 Version cancelled 0+0 B Skipped"],
    );
    check(
        "the runtime by RST_STREAM",
        |wire| {
            wire.request(1, VERSION, b"");
            wire.answer_head(1);
            wire.reset(From::Runtime, 1, CANCEL);
        },
        &[begun, "1 Version reset 0+0 B Skipped"],
    );
    check(
        "the runtime by RST_STREAM(NO_ERROR), which is no answer before the trailers",
        |wire| {
            wire.request(1, VERSION, b"");
            wire.reset(From::Runtime, 1, NO_ERROR);
        },
        &[begun, "1 Version reset 0+0 B Skipped"],
    );
    check(
        "the connection's end",
        |wire| {
            wire.request(1, VERSION, b"");
            wire.request(3, START, b"");
            wire.answer_head(3);
        },
        &[
            begun,
            "3 StartContainer begun StartContainer(\"\")",
            "1 Version lost 0+0 B Skipped",
            "3 StartContainer lost 0+0 B Skipped",
        ],
    );
}

#[test]
fn a_reset_after_the_trailers_changes_nothing() {
    for from in [From::Client, From::Runtime] {
        for code in [NO_ERROR, CANCEL] {
            check(
                "complete, and reported once",
                |wire| {
                    wire.request(1, VERSION, b"");
                    wire.answer(1, b"");
                    wire.reset(from, 1, code);
                },
                &["1 Version begun Skipped", "1 Version complete OK 0+0 B Skipped"],
            );
        }
    }
}

#[test]
fn a_goaway_ends_only_the_calls_above_it() {
    check(
        "of the runtime's",
        |wire| {
            for stream in [1, 3, 5] {
                wire.request(stream, VERSION, b"");
            }
            wire.go_away(From::Runtime, 0x7fff_ffff);
            wire.go_away(From::Runtime, 3);
            wire.answer(1, b"");
            wire.answer(3, b"");
        },
        &[
            "1 Version begun Skipped",
            "3 Version begun Skipped",
            "5 Version begun Skipped",
            "5 Version reset 0+0 B Skipped",
            "1 Version complete OK 0+0 B Skipped",
            "3 Version complete OK 0+0 B Skipped",
        ],
    );
    check(
        "of the client's, who says nothing of its own streams by it",
        |wire| {
            wire.request(1, VERSION, b"");
            wire.go_away(From::Client, 0);
            wire.answer(1, b"");
        },
        &["1 Version begun Skipped", "1 Version complete OK 0+0 B Skipped"],
    );
}

#[test]
fn an_answer_may_come_before_the_request_is_whole() {
    check(
        "the message was not whole",
        |wire| {
            wire.head(1, START, 0);
            wire.data(From::Client, 1, &framed(b"\x0a\x03app")[..7], 0);
            wire.trailers(1, "8", "");
            wire.data(From::Client, 1, b"pp", END_STREAM);
            wire.reset(From::Runtime, 1, NO_ERROR);
        },
        &["1 StartContainer complete ResourceExhausted 5+0 B Skipped"],
    );
    let reported = watch(&conversation(|wire| {
        wire.head(1, START, 0);
        wire.data(From::Client, 1, &framed(b"\x0a\x03app"), 0);
        wire.answer(1, b"");
    }));
    // grpc-go serves a unary call as soon as its message is whole.
    let [TapEvent::Ended(ended)] = &reported.events[..] else { panic!("{:?}", reported.lines()) };
    assert_eq!(ended.call.request.container(), Some("app"));
}

#[test]
fn a_stream_counts_once() {
    check(
        "used again after its end, or below others: no new call, as HTTP/2 has it",
        |wire| {
            wire.request(5, VERSION, b"");
            wire.answer(5, b"");
            wire.request(5, START, b"");
            wire.request(3, START, b"");
            wire.answer(5, b"");
            wire.answer(3, b"");
        },
        &["5 Version begun Skipped", "5 Version complete OK 0+0 B Skipped"],
    );
    check(
        "headers again while it is open are its trailers",
        |wire| {
            wire.head(1, VERSION, 0);
            wire.head(1, START, END_STREAM);
            wire.head(1, START, END_STREAM);
            wire.answer(1, b"");
        },
        &["1 Version begun Skipped", "1 Version complete OK 0+0 B Skipped"],
    );
    check(
        "what the runtime says of streams that were never opened is nothing",
        |wire| {
            wire.answer(7, b"x");
            wire.reset(From::Runtime, 9, CANCEL);
            wire.reset(From::Client, 9, CANCEL);
        },
        &[],
    );
}

#[test]
fn header_blocks_of_ended_streams_still_count_for_the_next() {
    check(
        "names and values that entered the tables there are used later",
        |wire| {
            wire.request(1, VERSION, b"");
            wire.reset(From::Client, 1, CANCEL);
            wire.headers(From::Client, 1, &[(":path", START)], 0);
            wire.headers(From::Runtime, 1, &[(":status", "200"), ("grpc-message", "of old")], 0);
            wire.headers(From::Runtime, 1, &[("grpc-status", "5")], END_STREAM);
            wire.request(3, START, b"");
            wire.headers(From::Runtime, 3, &[("grpc-status", "5"), ("grpc-message", "of old")], END_STREAM);
        },
        &[
            "1 Version begun Skipped",
            "1 Version cancelled 0+0 B Skipped",
            "3 StartContainer begun StartContainer(\"\")",
            "3 StartContainer complete NotFound \"of old\" 0+0 B Skipped",
        ],
    );
}

#[test]
fn callers_are_told_apart() {
    let reported = watch(&conversation(|wire| {
        let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let path = (":path", VERSION);
        wire.headers(From::Client, 1, &[path, ("user-agent", "a"), ("traceparent", trace)], END_STREAM);
        wire.headers(From::Client, 3, &[path, ("user-agent", "b")], END_STREAM);
        wire.headers(From::Client, 5, &[path], END_STREAM);
        wire.headers(From::Client, 7, &[path, ("user-agent", &"c".repeat(1025))], END_STREAM);
    }));
    let callers: Vec<_> = reported
        .events
        .iter()
        .map(|event| match event {
            TapEvent::Begun(call) => {
                (&*call.origin.user_agent, call.traceparent.as_ref().map_or(0, |trace| trace.len()))
            }
            _ => panic!("{event:?}"),
        })
        .collect();
    assert_eq!(callers, [("a", 55), ("b", 0), ("", 0), ("", 0)]);
}

#[test]
fn five_hundred_streams_on_one_connection_are_kept_apart() {
    let streams: Vec<u32> = (0..500).map(|at| at * 2 + 1).collect();
    // Half of the streams in the middle of everything, and answers from the last to the first.
    let steps = conversation(|wire| {
        for &stream in &streams {
            wire.head(stream, START, 0);
        }
        let request = |stream: u32| framed(&[b"\x0a\x04", format!("{stream:04}").as_bytes()].concat());
        for part in [0..5, 5..8, 8..11] {
            for &stream in &streams {
                let flags = if part.end == 11 { END_STREAM } else { 0 };
                wire.data(From::Client, stream, &request(stream)[part.clone()], flags);
            }
        }
        for &stream in streams.iter().rev() {
            wire.answer(stream, &vec![0; stream as usize]);
        }
    });
    let reported = watch(&steps);
    assert_eq!(reported.events.len(), 1000);
    for event in &reported.events {
        let (call, size) = match event {
            TapEvent::Begun(call) => (call, None),
            TapEvent::Ended(ended) => (&ended.call, Some(ended.response_bytes)),
            _ => panic!("{event:?}"),
        };
        let container = call.request.container();
        assert_eq!(container, Some(&*format!("{:04}", call.stream)));
        assert!(size.is_none_or(|size| size == u64::from(call.stream)));
    }
    assert_eq!((reported.tap.open_calls(), reported.tap.between_answers()), (0, Some(999)));
}

#[test]
fn credentials_values_of_variables_and_addresses_of_streams_are_in_no_report() {
    use prost::Message as _;

    use crate::proto::cri as pb;
    const SECRET: &str = "a-secret";
    let auth = pb::AuthConfig { password: SECRET.into(), ..Default::default() };
    let pull = pb::PullImageRequest { auth: Some(auth), ..Default::default() };
    let env = pb::KeyValue { key: "PASSWORD".into(), value: SECRET.into() };
    let config = pb::ContainerConfig { envs: vec![env], ..Default::default() };
    let create = pb::CreateContainerRequest { config: Some(config), ..Default::default() };
    let exec = pb::ExecRequest { container_id: "c".into(), cmd: vec!["sh".into()], ..Default::default() };
    let attach = pb::AttachRequest { container_id: "c".into(), ..Default::default() };
    let forward = pb::PortForwardRequest { pod_sandbox_id: "s".into(), ..Default::default() };
    let address = pb::ExecResponse { url: format!("http://127.0.0.1:1/exec/{SECRET}") }.encode_to_vec();
    let container = pb::CreateContainerResponse { container_id: "c".into() }.encode_to_vec();
    let image = "/runtime.v1.ImageService/PullImage";
    let rows = [
        (image, pull.encode_to_vec(), Vec::new()),
        ("/runtime.v1.RuntimeService/CreateContainer", create.encode_to_vec(), container),
        ("/runtime.v1.RuntimeService/Exec", exec.encode_to_vec(), address.clone()),
        ("/runtime.v1.RuntimeService/Attach", attach.encode_to_vec(), address.clone()),
        ("/runtime.v1.RuntimeService/PortForward", forward.encode_to_vec(), address),
    ];
    let conversation = conversation(|wire| {
        for (stream, (path, request, answer)) in (1..).step_by(2).zip(&rows) {
            wire.request(stream, path, request);
            wire.answer(stream, answer);
        }
    });
    let events = watch_all(&conversation).events;
    assert_eq!(events.iter().filter(|event| matches!(event, TapEvent::Ended(_))).count(), rows.len());
    // All fields of all reports: none of them hides anything here.
    for event in &events {
        if let TapEvent::Ended(ended) = event {
            assert!(ended.creation.is_none(), "the request is kept only where acting is enabled");
        }
        assert!(!format!("{event:?}").contains(SECRET), "{event:?}");
    }
}
