//! What a definition becomes on the wire: `tests/data/prober/http.json`.

use serde::Deserialize;

use super::*;
use crate::handler::http::{request::Request, wire};

#[derive(Deserialize)]
struct Rows {
    targets: Vec<TargetRow>,
    headers: Vec<HeadersRow>,
}

#[derive(Deserialize)]
struct TargetRow {
    id: String,
    secure: bool,
    host: String,
    port: u16,
    path: String,
    url: Option<String>,
    line: Option<String>,
    field: Option<String>,
    sends: Option<String>,
}

#[derive(Deserialize)]
struct HeadersRow {
    id: String,
    headers: Vec<(String, String)>,
    #[serde(default)]
    fields: Vec<String>,
    error: Option<String>,
}

fn rows() -> Rows {
    serde_json::from_str(include_str!("../../../../tests/data/prober/http.json")).unwrap()
}

fn request(host: &str, path: &str, headers: &[(String, String)]) -> Request {
    let target = Target { is_secure: false, host, address: None, port: 80, path, headers };
    Request::of_probe(&target).unwrap()
}

#[test]
fn a_target_becomes_url_request_line_and_host_field() {
    for row in rows().targets {
        let TargetRow { id, secure, host, port, path, url, line, field, sends } = row;
        let target =
            Target { is_secure: secure, host: &host, address: None, port, path: &path, headers: &[] };
        let request = Request::of_probe(&target).unwrap();
        let wire = String::from_utf8(wire::http1(&request)).unwrap();
        if let Some(url) = url {
            assert_eq!(String::from_utf8(request.url.to_bytes()).unwrap(), url, "{id} {path:?}");
        }
        for part in [
            line.map(|line| format!("{line}\r\n")),
            field.map(|field| format!("\r\nHost: {field}\r\n")),
            sends,
        ] {
            let part = part.unwrap_or_default();
            assert!(wire.contains(&part), "{id} {path:?}: no {part:?} in {wire:?}");
        }
    }
}

#[test]
fn a_request_is_these_bytes_and_no_others() {
    for row in rows().headers {
        let request = request("h", "/x", &row.headers);
        let HeadersRow { id, headers, fields, error } = row;
        assert_eq!(request.check().err(), error, "{id} {headers:?}");
        if error.is_none() {
            let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
            let fields = fields.replace("VERSION", env!("CARGO_PKG_VERSION"));
            let wire = String::from_utf8(wire::http1(&request)).unwrap();
            assert_eq!(wire, format!("GET /x HTTP/1.1\r\n{fields}\r\n"), "{id} {headers:?}");
        }
    }
}

#[tokio::test]
async fn what_cannot_be_sent_is_a_failure_and_nobody_is_asked() {
    let server = Server::new(|_| Reply::status(200, "")).await;
    let port = server.address.port();
    let outcome = server.probe("/", &[("X-Foo", "a\r\nb")]).await.unwrap();
    let url = format!("Get \"http://127.0.0.1:{port}/\"");
    assert_eq!(text(&outcome), format!("{url}: net/http: invalid header field value for \"X-Foo\""), "E34");
    let outcome = server.probe("mailto:x", &[]).await.unwrap();
    assert_eq!(text(&outcome), "Get \"http:x\": http: no Host in request URL");
    assert_eq!(server.requests(), Vec::<String>::new());
}

#[test]
fn a_user_in_the_path_logs_in_unless_a_header_does() {
    let own = [("authorization".to_owned(), "Bearer x".to_owned())];
    let login = |headers: &[(String, String)], path| {
        request("h", path, headers).sent_headers().first("Authorization").to_owned()
    };
    assert_eq!(login(&[], "//u:p@foo/bar"), "Basic dTpw", "D22");
    assert_eq!(login(&[], "//u@foo/bar"), "Basic dTo=");
    assert_eq!(login(&own, "//u:p@foo/bar"), "Bearer x");
}

#[test]
fn http2_holds_no_field_of_http1() {
    let headers = [
        ("Connection", "close"),
        ("X-Foo", " a "),
        ("User-Agent", "u"),
        ("Keep-Alive", "1"),
        ("Host", "a.b"),
    ];
    let headers: Vec<_> = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let sent = wire::http2(&request("h", "/x?y", &headers)).unwrap();
    assert_eq!(sent.uri().to_string(), "https://a.b/x?y");
    let fields: Vec<_> =
        sent.headers().iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    assert_eq!(fields, [("user-agent", "u"), ("accept", "*/*"), ("x-foo", "a")]);
    let refused = [
        (("Host", "a/b"), "http2: invalid Host header"),
        (("Connection", "Upgrade"), r#"http2: invalid Connection request header: ["Upgrade"]"#),
        (("Upgrade", "x"), r#"http2: invalid Upgrade request header: ["x"]"#),
        (("Transfer-Encoding", "gzip"), r#"http2: invalid Transfer-Encoding request header: ["gzip"]"#),
    ];
    for ((name, value), error) in refused {
        let request = request("h", "/", &[(name.to_owned(), value.to_owned())]);
        assert_eq!(wire::http2(&request).unwrap_err(), error);
    }
}
