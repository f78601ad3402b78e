//! Servers that mean no good: whatever they send, and however slowly, an attempt ends in time and within its bounds.

use proptest::prelude::*;

use super::*;
use crate::{
    clock,
    handler::http::{
        head::Framing,
        source::{MAX_HEAD, Source},
    },
};

const SHORT: Duration = Duration::from_millis(400);

#[tokio::test]
async fn an_attempt_ends_at_its_timeout_whatever_the_server_does() {
    let tick = Duration::from_millis(20);
    let head = "HTTP/1.1 200 OK\r\n";
    let awaiting = "(Client.Timeout exceeded while awaiting headers)";
    let reading = "(Client.Timeout or context cancellation while reading body)";
    let rows = [
        ("never answers", Reply::new("", Then::Hold), awaiting),
        (
            "a byte of the head now and then",
            Reply::new("HTTP/1.1 200 ", Then::Repeat(vec![b'x'], tick)),
            awaiting,
        ),
        ("fields now and then", Reply::new(head, Then::Repeat(b"A: b\r\n".into(), tick)), awaiting),
        ("1xx now and then", Reply::new("", Then::Repeat(b"HTTP/1.1 100 C\r\n\r\n".into(), tick)), awaiting),
        (
            "a 500 whose body stalls",
            Reply::new("HTTP/1.1 500 X\r\nContent-Length: 9\r\n\r\n", Then::Hold),
            reading,
        ),
        (
            "a byte of the body now and then",
            Reply::new(format!("{head}\r\n"), Then::Repeat(vec![b'x'], tick)),
            reading,
        ),
        (
            "empty chunks' extensions now and then",
            Reply::new(format!("{head}Transfer-Encoding: chunked\r\n\r\n1;"), Then::Repeat(vec![b'x'], tick)),
            reading,
        ),
    ];
    for (name, reply, ending) in rows {
        let server = Server::new(move |_| reply.clone()).await;
        let began = clock::now();
        let (judgement, _, reported) = seen(&server.probe_within(SHORT, "/", &[]).await);
        let took = clock::now() - began;
        assert!(reported.ends_with(ending), "{name}: {reported}");
        assert_eq!(judgement, (ending == awaiting).then_some(Judgement::Failure), "{name}");
        assert!(took >= SHORT && took < SHORT * 3, "{name}: {took:?}");
    }
}

#[tokio::test]
async fn an_endless_head_is_a_failure_at_its_bound() {
    let limit = format!("net/http: server response headers exceeded {MAX_HEAD} bytes; aborted");
    let rows = [
        ("fields", "HTTP/1.1 200 OK\r\n", format!("A: {}\r\n", "b".repeat(1000))),
        ("one line", "HTTP/1.1 200 OK\r\nA: ", "b".repeat(1000)),
        ("a status line", "HTTP/1.1 200 ", "b".repeat(1000)),
        ("1xx", "", "HTTP/1.1 100 Continue\r\n\r\n".repeat(40)),
        ("continued lines", "HTTP/1.1 200 OK\r\nA: b\r\n", " b\r\n".repeat(200)),
    ];
    for (name, begin, repeat) in rows {
        let reply = Reply::new(begin, Then::Repeat(repeat.into_bytes(), Duration::ZERO));
        let server = Server::new(move |_| reply.clone()).await;
        let outcome = server.probe("/", &[]).await.unwrap();
        assert_eq!(outcome.judgement, Judgement::Failure);
        assert!(text(&outcome).ends_with(&limit), "{name}: {}", text(&outcome));
    }
}

#[tokio::test]
async fn a_long_line_that_is_none_is_told_no_longer_than_an_output() {
    let long = vec![0xff; MAX_HEAD / 2];
    let rows: [(&str, &[u8]); 4] = [
        ("status line", b""),
        ("field without colon", b"HTTP/1.1 200 OK\r\n"),
        ("field with a bad name", b"HTTP/1.1 200 OK\r\n:"),
        ("Content-Length", b"HTTP/1.1 200 OK\r\nContent-Length: 1"),
    ];
    for (name, begin) in rows {
        let reply = Reply::new([begin, &long, b"\r\n\r\n"].concat(), Then::Close);
        let server = Server::new(move |_| reply.clone()).await;
        let outcome = server.probe("/", &[]).await.unwrap();
        assert_eq!(outcome.judgement, Judgement::Failure, "{name}");
        // Cut at a character, of at most four bytes.
        assert!((OUTPUT_LIMIT - 3..=OUTPUT_LIMIT).contains(&outcome.output.len()), "{name}");
        assert!(outcome.output.starts_with("Get \"http://"), "{name}");
    }
}

#[tokio::test]
async fn framing_without_data_and_endless_trailers_are_errors() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let extended = format!("1;{}\r\na\r\n", "x".repeat(1000));
    let rows = [
        ("extensions", head.to_owned(), extended, "chunked encoding contains too much non-data"),
        ("a long line", format!("{head}1;"), "x".repeat(1000), "header line too long"),
        (
            "a trailer",
            format!("{head}0\r\n"),
            "A: b\r\n".to_owned(),
            "http: suspiciously long trailer after chunked body",
        ),
        ("a size of 17 digits", head.to_owned(), "0".repeat(17) + "\r\n", "http chunk length too large"),
    ];
    for (name, begin, repeat, error) in rows {
        let reply = Reply::new(begin, Then::Repeat(repeat.into_bytes(), Duration::ZERO));
        let server = Server::new(move |_| reply.clone()).await;
        assert_eq!(server.probe("/", &[]).await, Err(Fault::Body(error.into())), "{name}");
    }
}

#[tokio::test]
async fn an_early_answer_counts_though_the_request_was_not_read() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.write_all(b"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            tokio::spawn(async move { stream.read(&mut [0; 1]).await });
        }
    });
    let outcome = attempt(&at("127.0.0.1", address), LIMIT).await.unwrap();
    assert_eq!(outcome.status, Some(503));
}

/// Bytes that look like an answer here and there.
fn like_an_answer() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"HTTP/1.1 ".to_vec()),
        Just(b"200 OK\r\n".to_vec()),
        Just(b"100 C\r\n\r\n".to_vec()),
        Just(b"301 X\r\nLocation: /\r\n".to_vec()),
        Just(b"Transfer-Encoding: chunked\r\n".to_vec()),
        Just(b"Content-Length: 3\r\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"3\r\nabc\r\n".to_vec()),
        Just(b"ffffffffffffffff\r\n".to_vec()),
        Just(b"0\r\n".to_vec()),
        Just(b" ".to_vec()),
        prop::collection::vec(any::<u8>(), 0..20),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// Reads an answer from bytes as a connection brings them: `at_once` at a time.
async fn read(bytes: &[u8], at_once: usize) -> Result<(u16, Bytes), String> {
    let stream = tokio_test_stream(bytes, at_once);
    let mut source = Source::new(stream, |_, error| error.to_string());
    let head = source.head().await?;
    assert!(matches!(head.framing, Framing::Length(_) | Framing::Chunked | Framing::UntilClose));
    let body = source.body(head.framing, OUTPUT_LIMIT).await?;
    assert!(body.len() <= OUTPUT_LIMIT);
    Ok((head.status, body))
}

fn tokio_test_stream(bytes: &[u8], at_once: usize) -> tokio::io::DuplexStream {
    let (mut near, far) = tokio::io::duplex(at_once);
    let bytes = bytes.to_vec();
    tokio::spawn(async move {
        let _ = near.write_all(&bytes).await;
    });
    far
}

proptest! {
    #[test]
    fn any_bytes_are_an_answer_or_an_error_and_how_they_are_split_does_not_matter(
        bytes in like_an_answer(),
        at_once in 1usize..40,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let whole = runtime.block_on(read(&bytes, 1 << 16));
        let split = runtime.block_on(read(&bytes, at_once));
        prop_assert_eq!(whole, split);
    }
}

#[test]
fn an_attempt_itself_takes_less_than_16_kib() {
    let target = at("h", "127.0.0.1:1".parse().unwrap());
    let size = size_of_val(&attempt(&target, LIMIT));
    assert!(size < 16 << 10, "{size} bytes are moved for each attempt");
}
