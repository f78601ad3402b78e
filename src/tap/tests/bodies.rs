//! What is read out of the messages of the calls that matter, and what never shows.

use prost::Message;

use super::{
    cri::{CallKind, CriRequest, CriResponse},
    wire::*,
    *,
};
use crate::proto::{cri as pb, trim};

fn path(method: &str) -> String {
    format!("/runtime.v1.RuntimeService/{method}")
}

fn sandbox() -> pb::PodSandboxConfig {
    let metadata =
        pb::PodSandboxMetadata { name: "web".into(), uid: "u1".into(), namespace: "ns".into(), attempt: 2 };
    pb::PodSandboxConfig { metadata: Some(metadata), ..Default::default() }
}

fn creation() -> pb::CreateContainerRequest {
    pb::CreateContainerRequest {
        pod_sandbox_id: "s1".into(),
        config: Some(pb::ContainerConfig {
            envs: vec![pb::KeyValue { key: "TOKEN".into(), value: "s3cr3t".into() }],
            command: vec!["sleep".into()],
            ..Default::default()
        }),
        sandbox_config: Some(sandbox()),
    }
}

fn exec_sync() -> Vec<u8> {
    pb::ExecSyncRequest { container_id: "c1".into(), cmd: vec!["cat".into(), "/x".into()], timeout: 1 }
        .encode_to_vec()
}

/// Begins and ends a call.
fn call(path: &str, request: &[u8], answer: &[u8]) -> Vec<TapEvent> {
    watch(&conversation(|wire| {
        wire.request(1, path, request);
        wire.answer(1, answer);
    }))
    .events
}

fn details(mut events: Vec<TapEvent>) -> (Call, CriResponse) {
    assert_eq!(events.len(), 2, "{events:?}");
    let Some(TapEvent::Ended(ended)) = events.pop() else { panic!("{events:?}") };
    let Some(TapEvent::Begun(call)) = events.pop() else { panic!("{events:?}") };
    assert_eq!(format!("{call:?}"), format!("{:?}", ended.call));
    (call, ended.response)
}

#[test]
fn messages_of_interest_are_read_in_both_versions() {
    let id = |number: u8, id: &str| [&[number << 3 | 2, id.len() as u8], id.as_bytes()].concat();
    let exec = pb::ExecSyncResponse { stdout: vec![b'o'; 300], stderr: vec![b'e'; 20], exit_code: -1 };
    // Method, request, answer, and how the two read.
    type Row = (&'static str, Vec<u8>, Vec<u8>, &'static str, &'static str);
    let rows: Vec<Row> = vec![
        ("StopPodSandbox", id(1, "s1"), vec![], "StopPodSandbox(\"s1\")", "Skipped"),
        ("RemovePodSandbox", id(1, "s1"), vec![], "RemovePodSandbox(\"s1\")", "Skipped"),
        ("RestorePod", id(1, "/checkpoint"), id(1, "s1"), "RestorePod", "Sandbox(\"s1\")"),
        ("StartContainer", id(1, "c1"), vec![], "StartContainer(\"c1\")", "Skipped"),
        ("StopContainer", [id(1, "c1"), vec![16, 30]].concat(), vec![], "StopContainer(\"c1\")", "Skipped"),
        ("RemoveContainer", id(1, "c1"), vec![], "RemoveContainer(\"c1\")", "Skipped"),
        (
            "ExecSync",
            exec_sync(),
            exec.encode_to_vec(),
            "ExecSync(\"c1\": [\"cat\", \"/x\"], 1)",
            "Exec(exit -1 (300 + 20 bytes))",
        ),
        (
            "Exec",
            [id(1, "c1"), id(2, "sh")].concat(),
            id(1, "http://127.0.0.1:1/exec/t0k3n"),
            "Exec(\"c1\": [\"sh\"], 0)",
            "Skipped",
        ),
        ("Attach", id(1, "c1"), id(1, "http://127.0.0.1:1/attach/t0k3n"), "Attach(\"c1\")", "Skipped"),
        ("PortForward", id(1, "s1"), id(1, "http://127.0.0.1:1/t0k3n"), "PortForward(\"s1\")", "Skipped"),
        ("ListContainers", id(1, ""), id(1, "y"), "Skipped", "Skipped"),
        ("ListContainers", id(1, "x"), id(1, "y"), "Undecoded", "Skipped"),
        ("ContainerStatus", id(1, "c1"), id(1, "y"), "OfContainer(\"c1\")", "Skipped"),
        ("PodSandboxStatus", id(1, "s1"), id(1, "y"), "OfSandbox(\"s1\")", "Skipped"),
        // An empty answer to ExecSync is exit code 0 and no output.
        ("ExecSync", vec![], vec![], "ExecSync(\"\": [], 0)", "Exec(exit 0 (0 + 0 bytes))"),
    ];
    for (method, request, answer, asked, answered) in rows {
        for version in ["v1", "v1alpha2"] {
            let path = format!("/runtime.{version}.RuntimeService/{method}");
            let (call, response) = details(call(&path, &request, &answer));
            assert_eq!(format!("{:?}", call.request), asked, "{path}");
            assert_eq!(format!("{response:?}"), answered, "{path}");
            assert_eq!(call.request_bytes, request.len() as u64, "{path}");
        }
    }
}

#[test]
fn pods_and_containers_come_with_what_is_needed_of_what_was_asked_for() {
    let asked = pb::RunPodSandboxRequest { config: Some(sandbox()), ..Default::default() };
    let (call, response) = details(call(&path("RunPodSandbox"), &asked.encode_to_vec(), b"\x0a\x02s1"));
    let CriRequest::RunPodSandbox(config) = &call.request else { panic!("{:?}", call.request) };
    assert_eq!(**config, trim::decode(&sandbox().encode_to_vec()).unwrap());
    assert_eq!(response, CriResponse::Sandbox("s1".into()));

    let (call, response) =
        details(self::call(&path("CreateContainer"), &creation().encode_to_vec(), b"\x0a\x02c1"));
    let CriRequest::CreateContainer(request) = &call.request else { panic!("{:?}", call.request) };
    assert_eq!(**request, trim::decode(&creation().encode_to_vec()).unwrap());
    assert_eq!(response, CriResponse::Container("c1".into()));
    assert_eq!(call.request.sandbox(), Some("s1".into()));
}

/// What came with the end of a creation by this request, while such requests are kept or are not.
fn kept_of(request: &[u8], is_kept: bool, piece: usize, answer: impl FnOnce(&mut Wire)) -> Option<Vec<u8>> {
    let room = Arc::new(Room::new(Arc::new(is_kept.into()), Arc::default()));
    let tap = Tap::within(&room, ConnId(1), Arc::default());
    let mut reported = Reported { events: vec![], tap };
    let steps = conversation(|wire| {
        wire.request(1, &path("CreateContainer"), request);
        answer(wire);
    });
    show(&mut reported, &steps.iter().flat_map(|step| cut(step, piece)).collect::<Vec<_>>());
    let State::Sighted(sighted) = &reported.tap.state else { panic!("blind") };
    assert_eq!(sighted.streams.kept(), (0, 0));
    let Some(event @ TapEvent::Ended(ended)) = reported.events.last() else {
        panic!("{:?}", reported.events)
    };
    assert!(ended.creation.is_none() || event.weight() > request.len(), "it counts in the queue");
    ended.creation.as_ref().map(|creation| creation.bytes().to_vec())
}

#[test]
fn while_they_are_kept_requests_come_with_the_creation_of_their_containers() {
    let request = creation().encode_to_vec();
    let succeeds = |wire: &mut Wire| wire.answer(1, b"\x0a\x02c1");
    for piece in [1, 7, usize::MAX] {
        assert_eq!(kept_of(&request, true, piece, succeeds), Some(request.clone()), "{piece}");
        assert_eq!(kept_of(&request, false, piece, succeeds), None);
    }
    let fails = |wire: &mut Wire| wire.trailers(1, "5", "no such image");
    assert_eq!(kept_of(&request, true, 7, fails), None);
    assert_eq!(kept_of(&request, true, 7, |wire| wire.reset(From::Client, 1, CANCEL)), None);
    assert_eq!(kept_of(&request, true, 7, |wire| wire.answer(1, b"")), None, "no container");
    assert_eq!(kept_of(&request[..request.len() - 1], true, 7, succeeds), None, "malformed");

    let mut kubelets = creation();
    kubelets.sandbox_config.as_mut().unwrap().labels.insert("io.kubernetes.pod.uid".into(), "u1".into());
    assert_eq!(kept_of(&kubelets.encode_to_vec(), true, 7, succeeds), None);
}

#[test]
fn a_failed_call_has_no_answer_to_read() {
    let reported = watch(&conversation(|wire| {
        wire.request(1, EXEC_SYNC, &exec_sync());
        wire.answer_head(1);
        wire.data(From::Runtime, 1, &framed(&[0x18, 1]), 0);
        wire.trailers(1, "4", "timeout 1s exceeded");
    }));
    let lines = reported.lines();
    assert_eq!(lines[1], "1 ExecSync complete DeadlineExceeded \"timeout 1s exceeded\" 15+2 B Skipped");
}

#[test]
fn what_cannot_be_read_costs_the_call_its_details_only() {
    let start = |message: &[u8]| framed(message);
    let compressed = [&[1, 0, 0, 0, 3][..], b"zip"].concat();
    let rows: Vec<(&str, Vec<u8>, &str)> = vec![
        ("compressed", compressed.clone(), "begun Undecoded"),
        ("no protobuf", start(&[0xff; 5]), "begun Undecoded"),
        ("two messages", [start(b"\x0a\x01a"), start(b"\x0a\x01b")].concat(), "begun Undecoded"),
        ("none", vec![], "begun Undecoded"),
        ("cut short", start(b"\x0a\x01a")[..6].to_vec(), "begun Undecoded"),
        ("a head cut short behind a message", [start(b"\x0a\x01a"), vec![0, 0]].concat(), "begun Undecoded"),
        ("1 MiB", start(&big(1 << 20)), "begun StartContainer(\"\")"),
        ("more than 1 MiB", start(&big((1 << 20) + 1)), "begun Undecoded"),
    ];
    for (rule, bytes, begun) in rows {
        let reported = watch(&conversation(|wire| {
            wire.settings(From::Runtime, &[(5, 1 << 21)]);
            wire.head(1, START, 0);
            wire.data(From::Client, 1, &bytes, END_STREAM);
            wire.trailers(1, "0", "");
        }));
        let lines = reported.lines();
        assert_eq!(lines[0], format!("1 StartContainer {begun}"), "{rule}");
        assert!(lines[1].starts_with("1 StartContainer complete OK "), "{rule}: {lines:?}");
    }
    for (rule, answer) in [("compressed", compressed), ("no protobuf", start(&[0xff; 5])), ("none", vec![])] {
        for method in ["ExecSync", "CreateContainer"] {
            let reported = watch(&conversation(|wire| {
                wire.request(1, &path(method), &[]);
                wire.answer_head(1);
                wire.data(From::Runtime, 1, &answer, 0);
                wire.trailers(1, "0", "");
            }));
            let size = answer.len().saturating_sub(5);
            assert_eq!(reported.lines()[1], format!("1 {method} complete OK 0+{size} B Undecoded"), "{rule}");
        }
    }
}

/// A StartContainer request of that size, by a field that we do not know.
fn big(size: usize) -> Vec<u8> {
    let mut message = vec![0x7a];
    prost::encode_length_delimiter(size - 4, &mut message).unwrap();
    message.resize(size, 0);
    message
}

#[test]
fn only_mutating_calls_may_have_changed_something() {
    let mutating = ["RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "RestorePod", "CreateContainer"];
    let also = ["StartContainer", "StopContainer", "RemoveContainer"];
    let not = ["ExecSync", "Exec", "Attach", "PortForward", "Version"];
    for (names, is_mutating) in [(&mutating[..], true), (&also, true), (&not, false)] {
        for name in names {
            let kind = cri::Method::from_path(&path(name)).kind;
            assert_eq!(kind.is_mutating(), is_mutating, "{name}");
            assert_eq!(kind == CallKind::Other, *name == "Version", "{name}");
        }
    }
}

#[test]
fn no_secret_shows_in_debug_output() {
    let steps = conversation(|wire| {
        let hidden =
            [(":path", &*path("CreateContainer")), ("authorization", "Bearer s3cr3t"), ("cookie", "s3cr3t")];
        wire.headers(From::Client, 1, &hidden, 0);
        wire.data(From::Client, 1, &framed(&creation().encode_to_vec()), END_STREAM);
        wire.headers(From::Runtime, 1, &[(":status", "200"), ("set-cookie", "s3cr3t")], 0);
        wire.data(From::Runtime, 1, &framed(b"\x0a\x02c1"), 0);
        wire.trailers(1, "0", "");
        for (stream, method) in [(3, "Exec"), (5, "Attach"), (7, "PortForward")] {
            wire.request(stream, &path(method), b"\x0a\x02c1");
            wire.answer(stream, b"\x0a\x1dhttp://127.0.0.1:1/exec/t0k3n");
        }
        let pull = [&b"\x12\x08"[..], b"\x12\x06s3cr3t"].concat();
        wire.request(9, "/runtime.v1.ImageService/PullImage", &pull);
        wire.answer(9, b"");
        wire.request(11, EXEC_SYNC, &exec_sync());
        wire.answer(11, b"\x0a\x06s3cr3t");
    });
    let mut reported = Reported { events: vec![], tap: tap() };
    let bytes_of_secret = format!("{:?}", b"s3cr3t");
    for step in steps.iter().flat_map(|step| cut(step, 7)) {
        show(&mut reported, &[step]);
        let shown = format!("{:?} {:#?}", reported.tap, reported.tap);
        assert!(!shown.contains(&bytes_of_secret[1..bytes_of_secret.len() - 1]), "{shown}");
    }
    assert_eq!(reported.events.len(), 12);
    let shown = format!("{:?} {:#?}", reported.events, reported.events);
    for secret in ["s3cr3t", "t0k3n", &bytes_of_secret[1..bytes_of_secret.len() - 1]] {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
    assert!(!shown.contains("TOKEN") && shown.contains("CreateContainerRequest"), "{shown}");
}

/// A step in pieces of at most that size.
fn cut(step: &Step, size: usize) -> Vec<Step> {
    step.bytes.chunks(size).map(|bytes| Step { from: step.from, bytes: bytes.to_vec() }).collect()
}
