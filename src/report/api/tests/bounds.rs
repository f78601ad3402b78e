//! Clients that send too much, break off or stand still: each costs itself only.

use super::*;

#[tokio::test]
async fn a_body_over_the_bound_is_refused_with_a_reason_in_json() {
    let api = Api::start(sample::status(), Vec::new());
    let mut stream = UnixStream::connect(&api.socket).await.unwrap();
    stream.write_all(b"POST /v1/status HTTP/1.1\r\nhost: x\r\ncontent-length: 65537\r\n\r\n").await.unwrap();
    let mut answer = vec![0; 4_096];
    let length = tokio::time::timeout(DEADLINE, stream.read(&mut answer)).await.unwrap().unwrap();
    let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
    assert!(
        answer.starts_with("HTTP/1.1 413 ") && answer.contains("content-type: application/json"),
        "{answer}"
    );
    assert!(answer.ends_with(r#"{"error":"the body is longer than 65536 bytes"}"#), "{answer}");
    api.drained().await;
}

#[tokio::test]
async fn a_client_that_breaks_off_or_talks_nonsense_harms_itself_only() {
    let api = Api::start(sample::status(), vec![sample::probe()]);
    for bytes in [&b"GET /v1/st"[..], b"\x16\x03\x01\x02\x00", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b""] {
        let mut stream = UnixStream::connect(&api.socket).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        tokio::time::timeout(DEADLINE, stream.read_to_end(&mut rest)).await.unwrap().unwrap();
    }
    let mut endless = UnixStream::connect(&api.socket).await.unwrap();
    let head = format!("GET /v1/status HTTP/1.1\r\nhost: x\r\nx: {}", "y".repeat(2 * MAX_HEAD));
    let _ = endless.write_all(head.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(DEADLINE, endless.read_to_end(&mut answer)).await.unwrap();
    assert_eq!(api.get("/v1/status").await.0, 200);
    api.drained().await;
}

#[tokio::test]
async fn a_drain_does_not_wait_for_ever_for_a_reader_that_stands_still() {
    let api =
        Api::start(sample::status(), vec![ProbeView { phase: ProbePhase::Held, ..sample::probe() }; 20_000]);
    let mut still = UnixStream::connect(&api.socket).await.unwrap();
    still.write_all(b"GET /v1/probes HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    still.readable().await.unwrap();
    api.drained().await;
}

/// How long until the server closes a connection, in a time that passes only while everybody waits.
async fn closed_after(stream: &mut UnixStream) -> Duration {
    let began = crate::clock::now();
    let mut rest = Vec::new();
    tokio::time::timeout(DEADLINE, stream.read_to_end(&mut rest)).await.unwrap().unwrap();
    crate::clock::now() - began
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_says_nothing_is_closed_soon_and_one_that_has_asked_later() {
    let api = Api::start(sample::status(), Vec::new());
    for bytes in [&b""[..], b"GET /v1/st"] {
        let mut silent = UnixStream::connect(&api.socket).await.unwrap();
        silent.write_all(bytes).await.unwrap();
        let took = closed_after(&mut silent).await;
        assert!((FIRST_HEAD_TIMEOUT..2 * FIRST_HEAD_TIMEOUT).contains(&took), "{took:?}");
    }
    let mut idle = UnixStream::connect(&api.socket).await.unwrap();
    idle.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let took = closed_after(&mut idle).await;
    assert!((HEAD_TIMEOUT..2 * READ_LOOK).contains(&took), "{took:?}");
    api.drained().await;
}

#[tokio::test(start_paused = true)]
async fn where_all_places_are_taken_the_longest_silence_gives_way_to_a_question() {
    let api = Api::start(sample::status(), Vec::new());
    let mut silent = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        silent.push(UnixStream::connect(&api.socket).await.unwrap());
    }
    assert_eq!(api.get("/v1/status").await.0, 200);
    assert_eq!(closed_after(&mut silent[0]).await, Duration::ZERO);
    assert_ne!(closed_after(&mut silent[1]).await, Duration::ZERO, "no more than one had to go");
    api.drained().await;
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_silence() {
    let api = Api::start(sample::status(), Vec::new());
    let mut silent = Vec::new();
    for path in ["/v1/run", "/v1/status"].into_iter().cycle().take(MAX_CONNECTIONS) {
        let mut stream = UnixStream::connect(&api.socket).await.unwrap();
        let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        silent.push(stream);
    }
    let began = crate::clock::now();
    assert_eq!(api.get("/v1/status").await.0, 200);
    assert_eq!(closed_after(&mut silent[0]).await, Duration::ZERO);
    assert!(crate::clock::now() - began < Duration::from_secs(1), "it waits for no body");
    let mut answer = String::new();
    silent[1].read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.ends_with(r#"{"error":"the body did not arrive within 5s"}"#), "{answer}");
    api.drained().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_taken_is_cut_and_a_follower_that_stands_still_is_not() {
    let api = Api::start(sample::status(), vec![sample::probe(); 20_000]);
    let mut still = UnixStream::connect(&api.socket).await.unwrap();
    still.write_all(b"GET /v1/probes HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut follower = Lines::of(api.ask("GET", "/v1/trace?follow=true").await);
    still.readable().await.unwrap();
    tokio::time::sleep(3 * READ_LOOK).await;
    let mut answer = Vec::new();
    still.read_to_end(&mut answer).await.unwrap();
    assert!(answer.len() < serde_json::to_vec(&vec![sample::probe(); 20_000]).unwrap().len());
    push(&api.trace, call("Version"));
    assert_eq!(follower.next().await.unwrap()["method"], "Version");
    api.drained().await;
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_does_not_read_what_was_kept_is_cut() {
    let api = Api::start(sample::status(), Vec::new());
    for n in 0..1_000 {
        push(&api.trace, CallView { message: "x".repeat(4_096), request_bytes: n, ..call("ExecSync") });
    }
    let mut still = UnixStream::connect(&api.socket).await.unwrap();
    still.write_all(b"GET /v1/trace?follow=true&last=1000 HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    still.readable().await.unwrap();
    tokio::time::sleep(3 * READ_LOOK).await;
    let mut answer = Vec::new();
    tokio::time::timeout(DEADLINE, still.read_to_end(&mut answer)).await.unwrap().unwrap();
    assert!(answer.len() < 1_000 * 4_096, "{}", answer.len());
    api.drained().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_has_a_piece_in_memory_and_gives_way_to_a_question_where_room_is_short() {
    // 32 MiB of outputs: two such answers take all the room.
    let output: Arc<str> = "o".repeat(10 << 10).into();
    let mut probe = sample::probe();
    probe.last.as_mut().unwrap().output = output;
    let probes = vec![probe; 2_900];
    let whole = serde_json::to_string(&probes).unwrap();
    let api = Api::start(sample::status(), probes);
    let mut unread = Vec::new();
    for _ in 0..8 {
        let mut stream = UnixStream::connect(&api.socket).await.unwrap();
        stream.write_all(b"GET /v1/probes HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        unread.push(stream);
    }
    unread[0].readable().await.unwrap();
    let (code, body) = api.get("/v1/probes").await;
    assert_eq!(code, 200, "{body}");
    assert!(body == whole);
    let mut cut = 0;
    for mut stream in unread {
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        cut += usize::from(answer.len() < whole.len());
    }
    assert!(cut >= 6, "{cut}");
    api.drained().await;
}
