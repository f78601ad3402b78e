//! Judges answers of all kinds. The rows of `tests/data/prober/answers.jsonl` hold what Go's client makes of them;
//! those with `since` what a newer Go does than `tests/tools/go_answers.go` was run with.

use bytes::Bytes;
use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    sends: String,
    /// Only said: a newer Go.
    #[serde(rename = "since")]
    _since: Option<String>,
    #[serde(default)]
    holds: bool,
    failure: Option<String>,
    fault: Option<String>,
    status: Option<u16>,
    body: Option<String>,
}

#[tokio::test]
async fn every_answer_is_judged_as_by_gos_client() {
    let rows = include_str!("../../../../tests/data/prober/answers.jsonl").lines();
    let rows: Vec<Row> = rows.map(|row| serde_json::from_str(row).unwrap()).collect();
    assert!(rows.len() > 100);
    let wrong = futures_util::future::join_all(rows.into_iter().map(check)).await;
    let wrong: Vec<_> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn check(row: Row) -> Option<String> {
    let bytes: Vec<u8> = row.sends.chars().map(|letter| u8::try_from(letter).unwrap()).collect();
    let then = if row.holds { Then::Hold } else { Then::Close };
    let reply = Reply::new(bytes, then);
    let server = Server::new(move |_| reply.clone()).await;
    let limit = if row.holds { Duration::from_millis(700) } else { LIMIT };
    let port = server.address.port().to_string();
    let expected = match (row.failure, row.fault, row.status) {
        (Some(text), None, None) => Ok(Outcome::failure(text.replace("PORT", &port))),
        (None, Some(text), None) => Err(Fault::Body(text.into())),
        (None, None, Some(status)) => Ok(judged(status, &row.body.unwrap().into())),
        _ => panic!("{}: what is expected?", row.name),
    };
    let ended = server.probe_within(limit, "/", &[]).await;
    (ended != expected).then(|| format!("{}: {ended:?}\n  expected {expected:?}", row.name))
}

#[test]
fn the_status_judges_and_the_body_is_told() {
    let body = || Bytes::from_static(b"said");
    let redirected = "Probe terminated redirects, Response body: said";
    let rows = [
        (200, Judgement::Success, "said".to_owned()),
        (204, Judgement::Success, "said".to_owned()),
        (299, Judgement::Success, "said".to_owned()),
        (300, Judgement::Warning, redirected.to_owned()),
        (399, Judgement::Warning, redirected.to_owned()),
        (400, Judgement::Failure, "HTTP probe failed with statuscode: 400".to_owned()),
        (404, Judgement::Failure, "HTTP probe failed with statuscode: 404".to_owned()),
        (101, Judgement::Failure, "HTTP probe failed with statuscode: 101".to_owned()),
        (199, Judgement::Failure, "HTTP probe failed with statuscode: 199".to_owned()),
        (0, Judgement::Failure, "HTTP probe failed with statuscode: 0".to_owned()),
        (999, Judgement::Failure, "HTTP probe failed with statuscode: 999".to_owned()),
    ];
    for (status, judgement, output) in rows {
        let expected = (Some(judgement), Some(status), output);
        assert_eq!(seen(&Ok(judged(status, &body()))), expected, "{status}");
    }
}

#[tokio::test]
async fn ten_kibibytes_of_a_body_are_read_and_what_follows_does_not_matter() {
    let head = "HTTP/1.1 200 OK\r\n";
    let long = "x".repeat(20_480);
    let rows = [
        ("as long as said", format!("{head}Content-Length: 20480\r\n\r\n{long}"), Then::Hold, 10_240),
        ("chunks", format!("{head}Transfer-Encoding: chunked\r\n\r\n5000\r\n{long}"), Then::Hold, 10_240),
        ("until close", format!("{head}\r\n{long}"), Then::Hold, 10_240),
        ("endless", format!("{head}\r\n"), Then::Repeat(vec![b'x'; 4096], Duration::ZERO), 10_240),
    ];
    for (name, sends, then, length) in rows {
        let reply = Reply::new(sends, then);
        let server = Server::new(move |_| reply.clone()).await;
        let outcome = server.probe("/", &[]).await.unwrap();
        assert_eq!((outcome.judgement, outcome.output.len()), (Judgement::Success, length), "{name}");
    }
}

#[tokio::test]
async fn a_refused_connection_and_a_reset_are_failures_in_gos_words() {
    let server = Server::new(|_| Reply::new("", Then::Reset)).await;
    let port = server.address.port();
    let outcome = server.probe("/", &[]).await.unwrap();
    let (url, rest) = text(&outcome).split_once(": ").unwrap();
    assert_eq!(url, format!("Get \"http://127.0.0.1:{port}/\""));
    assert!(rest.starts_with("read tcp 127.0.0.1:"), "{rest}");
    assert!(rest.ends_with(&format!("->127.0.0.1:{port}: read: connection reset by peer")), "{rest}");

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let outcome = attempt(&at("127.0.0.1", address), LIMIT).await.unwrap();
    let expected = format!("Get \"http://{address}/\": dial tcp {address}: connect: connection refused");
    assert_eq!(text(&outcome), expected);
}

#[tokio::test]
async fn a_name_is_looked_up_and_one_that_is_none_is_a_failure() {
    let server = Server::new(|_| Reply::status(200, "ok")).await;
    let named = Target { address: None, ..at("localhost", server.address) };
    assert_eq!(attempt(&named, LIMIT).await.unwrap().judgement, Judgement::Success);
    let host = format!("Host: localhost:{}\r\n", server.address.port());
    assert!(server.requests()[0].contains(&host));
    let outcome = attempt(&Target { host: "no.such.invalid", ..named }, LIMIT).await.unwrap();
    assert!(text(&outcome).contains(": dial tcp: lookup no.such.invalid: "), "{}", text(&outcome));
    let error = attempt(&Target { host: "a b", ..named }, LIMIT).await.unwrap_err();
    let port = server.address.port();
    let expected = format!("parse \"http://a%20b:{port}/\": invalid URL escape \"%20\"");
    assert_eq!(error, Fault::Target(expected.into()), "what makes no URL is an error, not a failure");
}

#[tokio::test]
async fn ipv6_is_asked_in_brackets() {
    let server = Server::at("[::1]:0", |_| Reply::status(200, "six")).await;
    let outcome = server.probe("/", &[]).await.unwrap();
    assert_eq!(text(&outcome), "six");
    let host = format!("Host: [::1]:{}\r\n", server.address.port());
    assert!(server.requests()[0].contains(&host));
}
