//! A request as sent: the bytes of HTTP/1.1, or the fields of HTTP/2. Pure; its input is already validated.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version};

use super::{
    headers::{Headers, trimmed},
    request::Request,
};

/// The fields that Go's client writes itself, or never (docs/kubelet-prober.md 7.2).
const NOT_LISTED: &[&str] = &["Content-Length", "Host", "Trailer", "Transfer-Encoding", "User-Agent"];

/// The fields that mean nothing in HTTP/2 (RFC 9113, section 8.2.2), or stand elsewhere in it.
const NOT_IN_HTTP2: &[&str] = &[
    "Connection",
    "Content-Length",
    "Host",
    "Keep-Alive",
    "Proxy-Connection",
    "Transfer-Encoding",
    "Upgrade",
    "User-Agent",
];

/// Request line, `Host`, `User-Agent`, the others by name, and `Connection: close` unless the request asks for it or
/// for another protocol. A host that is none is sent empty.
pub(super) fn http1(request: &Request) -> Vec<u8> {
    let headers = request.sent_headers();
    let mut bytes = [b"GET ".as_slice(), &request.url.request_target(), b" HTTP/1.1\r\n"].concat();
    let mut field = |name: &str, value: &str| {
        for part in [name, ": ", trimmed(value), "\r\n"] {
            bytes.extend_from_slice(part.as_bytes());
        }
    };
    field("Host", &request.host_field().unwrap_or_default());
    let user_agent = headers.first("User-Agent");
    if !user_agent.is_empty() {
        field("User-Agent", user_agent);
    }
    for (name, value) in headers.iter().filter(|(name, _)| !NOT_LISTED.contains(name)) {
        field(name, value);
    }
    if !closes(&headers) && !switches_protocol(&headers) {
        field("Connection", "close");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}

/// The fields of HTTP/2.
///
/// # Errors
/// In Go's words, where the host or a field that binds the connection is none that HTTP/2 allows; in ours, where the
/// target holds a byte that HTTP/2 does not allow and Go would send.
pub(super) fn http2(request: &Request) -> Result<http::Request<()>, String> {
    let headers = request.sent_headers();
    check_connection(&headers)?;
    let host = request.host_field().ok_or("http2: invalid Host header")?;
    let uri = Uri::builder()
        .scheme("https")
        .authority(host)
        .path_and_query(request.url.request_target())
        .build()
        .map_err(|error| format!("http2: {error}"))?;
    let mut sent = http::Request::new(());
    *sent.method_mut() = Method::GET;
    *sent.version_mut() = Version::HTTP_2;
    *sent.uri_mut() = uri;
    let user_agent = headers.first("User-Agent");
    if !user_agent.is_empty() {
        append(sent.headers_mut(), "User-Agent", user_agent);
    }
    for (name, value) in headers.iter().filter(|(name, _)| !NOT_IN_HTTP2.contains(name)) {
        append(sent.headers_mut(), name, value);
    }
    Ok(sent)
}

/// HTTP/2 has no other protocol to switch to and one way only to send a body.
fn check_connection(headers: &Headers) -> Result<(), String> {
    let quoted = |name: &str| {
        let values: Vec<_> =
            headers.iter().filter(|(listed, _)| *listed == name).map(|(_, value)| value).collect();
        (values.len(), format!("http2: invalid {name} request header: {values:?}").replace("\", \"", "\" \""))
    };
    let is_one_of = |name: &str, allowed: &[&str]| {
        allowed.iter().any(|allowed| headers.first(name).eq_ignore_ascii_case(allowed))
    };
    let rows: [(&str, &[&str]); 3] = [
        ("Upgrade", &[""]),
        ("Transfer-Encoding", &["", "chunked"]),
        ("Connection", &["", "close", "keep-alive"]),
    ];
    for (name, allowed) in rows {
        let (count, error) = quoted(name);
        if !is_one_of(name, allowed) || count > 1 {
            return Err(error);
        }
    }
    Ok(())
}

/// Adds a field. What `http` would refuse has been refused before.
fn append(fields: &mut HeaderMap, name: &str, value: &str) {
    let name = HeaderName::from_bytes(name.as_bytes());
    if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(trimmed(value).as_bytes())) {
        fields.append(name, value);
    }
}

/// Go looks at the first value only.
fn closes(headers: &Headers) -> bool {
    headers.first("Connection").split([',', ' ', '\t']).any(|token| token.eq_ignore_ascii_case("close"))
}

fn switches_protocol(headers: &Headers) -> bool {
    !headers.first("Upgrade").is_empty() && headers.has_token("Connection", "Upgrade")
}
