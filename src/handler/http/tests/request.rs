//! What a definition becomes on the wire: `tests/data/prober/http-urls.json` and `http-headers.json`.

use serde::Deserialize;
use tokio_rustls::rustls::version::TLS13;

use super::{secure::Secure, *};
use crate::handler::http::{request::Request, wire};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UrlRow {
    id: String,
    rule: String,
    #[serde(default)]
    secure: bool,
    host: String,
    port: u16,
    path: String,
    url: Option<String>,
    line: Option<String>,
    field: Option<String>,
    sends: Option<String>,
}

#[test]
fn a_target_becomes_url_request_line_and_host_field() {
    let rows: Vec<UrlRow> =
        serde_json::from_str(include_str!("../../../../tests/data/prober/http-urls.json")).unwrap();
    for row in rows {
        let UrlRow { id, rule, secure, host, port, path, url, line, field, sends } = row;
        let target = Target {
            pod: &POD,
            is_secure: secure,
            host: &host,
            address: None,
            port,
            ports: Ports::Any,
            path: &path,
            headers: &[],
        };
        let request = Request::of_probe(&target).unwrap();
        let wire = String::from_utf8(wire::http1(&request)).unwrap();
        let expected = [
            line.map(|line| format!("{line}\r\n")),
            field.map(|field| format!("\r\nHost: {field}\r\n")),
            sends,
        ];
        assert!(url.is_some() || expected.iter().any(Option::is_some), "{id}: {rule}: expects nothing");
        if let Some(url) = url {
            assert_eq!(String::from_utf8(request.url.to_bytes()).unwrap(), url, "{id}: {rule}");
        }
        for part in expected.into_iter().flatten() {
            assert!(wire.contains(&part), "{id}: {rule}: no {part:?} in {wire:?}");
        }
    }
}

/// Fields with `{port}` and `{version}`, all of them and in this order; or why nothing can be sent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct HeadersRow {
    id: String,
    rule: String,
    #[serde(default)]
    secure: bool,
    host: Option<String>,
    headers: Vec<(String, String)>,
    #[serde(default)]
    fields: Vec<String>,
    error: Option<String>,
    /// Over TLS: the name that the server is asked for.
    server_name: Option<String>,
}

#[tokio::test]
async fn a_request_is_these_bytes_and_no_others() {
    let rows: Vec<HeadersRow> =
        serde_json::from_str(include_str!("../../../../tests/data/prober/http-headers.json")).unwrap();
    for HeadersRow { id, rule, secure, host, headers, fields, error, server_name } in rows {
        let reported = format!("{id}: {rule}");
        let plain = Server::new(|_| Reply::status(200, "")).await;
        let tls = Secure::new(secure::of_another_name(), &TLS13, &[], secure::http1).await;
        let address = if secure { tls.address } else { plain.address };
        let host = host.as_deref().unwrap_or("h");
        let target = Target { is_secure: secure, path: "/x", headers: &headers, ..at(host, address) };
        let outcome = attempt(&target, LIMIT).await.unwrap();
        let mut requests = plain.requests();
        requests.extend(Some(text(&outcome).to_owned()).filter(|_| secure));
        if let Some(error) = error {
            let port = address.port();
            assert_eq!(text(&outcome), format!("Get \"http://{host}:{port}/x\": {error}"), "{reported}");
            assert_eq!((outcome.judgement, requests.len()), (Judgement::Failure, 0), "{reported}");
            continue;
        }
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        let fields = fields
            .replace("{port}", &address.port().to_string())
            .replace("{version}", env!("CARGO_PKG_VERSION"));
        assert_eq!(requests, [format!("GET /x HTTP/1.1\r\n{fields}\r\n")], "{reported}");
        let names = if secure { vec![server_name] } else { Vec::new() };
        assert_eq!(*tls.names.lock().unwrap(), names, "{reported}");
    }
}

#[tokio::test]
async fn a_url_without_a_host_is_a_failure_and_nobody_is_asked() {
    let server = Server::new(|_| Reply::status(200, "")).await;
    let outcome = server.probe("mailto:x", &[]).await.unwrap();
    assert_eq!(text(&outcome), "Get \"http:x\": http: no Host in request URL");
    assert_eq!(server.requests(), Vec::<String>::new());
}

fn request(host: &str, path: &str, headers: &[(String, String)]) -> Request {
    let (pod, ports) = (&*POD, Ports::Any);
    let target = Target { pod, is_secure: false, host, address: None, port: 80, ports, path, headers };
    Request::of_probe(&target).unwrap()
}

#[test]
fn a_user_in_the_path_logs_in_unless_a_header_does() {
    let own = [("authorization".to_owned(), "Bearer x".to_owned())];
    let login = |headers: &[(String, String)], path| {
        request("h", path, headers).sent_headers().first("Authorization").to_owned()
    };
    assert_eq!(login(&[], "//u:p@foo/bar"), "Basic dTpw");
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
