//! Reads the answer to a gRPC call: headers, octets and trailers in; the number of the health status, or why there is
//! none, in Go's codes, out. Pure, and never panics on what a server sends.

use std::fmt;

use http::{HeaderMap, StatusCode, header};
use percent_encoding::percent_decode;
use prost::Message;
use tonic::Code;

use crate::{
    handler::go,
    proto::{
        grpc::{GrpcPrefix, PREFIX},
        health::HealthCheckResponse,
    },
};

/// 4 KiB: an answer is a few octets. A longer one is a failure, as one of 4 MiB is in Go.
const LONGEST: usize = 4096;

/// A status that is not OK. Prints as Go's errors do.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) code: Code,
    pub(super) message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rpc error: code = {} desc = {}", go::code(self.code), self.message)
    }
}

impl Refusal {
    fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// What a broken call or connection means: gRPC's codes for those of HTTP/2 that reset a stream, Unavailable for
    /// all that ends a connection.
    #[allow(clippy::needless_pass_by_value)] // It is what `map_err` hands over.
    pub(super) fn of_transport(error: h2::Error) -> Self {
        let code = match error.reason() {
            Some(_) if !error.is_reset() => Code::Unavailable,
            Some(h2::Reason::REFUSED_STREAM) | None => Code::Unavailable,
            Some(h2::Reason::CANCEL) => Code::Cancelled,
            Some(h2::Reason::ENHANCE_YOUR_CALM) => Code::ResourceExhausted,
            Some(h2::Reason::INADEQUATE_SECURITY) => Code::PermissionDenied,
            Some(_) => Code::Internal,
        };
        Self::new(code, error.to_string())
    }
}

/// An answer as far as it was read.
#[derive(Debug)]
pub(super) struct GrpcAnswer {
    /// The status, where the headers hold it already: there is no message then.
    early: Option<Result<(), Refusal>>,
    body: Vec<u8>,
}

impl GrpcAnswer {
    /// Begins with the headers.
    ///
    /// # Errors
    /// Fails if they are not those of a gRPC server.
    pub(super) fn begin(status: StatusCode, headers: &HeaderMap) -> Result<Self, Refusal> {
        let kind = headers.get(header::CONTENT_TYPE).map(|kind| String::from_utf8_lossy(kind.as_bytes()));
        let mut doubts = Vec::new();
        if status != StatusCode::OK {
            let reason = status.canonical_reason().unwrap_or_default();
            let number = status.as_u16();
            doubts.push(format!("unexpected HTTP status code received from server: {number} ({reason})"));
        }
        match &kind {
            Some(kind) if is_grpc(kind) => {}
            Some(kind) => doubts.push(format!("transport: received unexpected content-type {kind:?}")),
            None => doubts.push("malformed header: missing HTTP content-type".to_owned()),
        }
        if doubts.is_empty() {
            return Ok(Self { early: status_of(headers), body: Vec::new() });
        }
        Err(Refusal::new(of_http(status), doubts.join("; ")))
    }

    /// Takes what follows.
    ///
    /// # Errors
    /// Fails as soon as it is more than one message, or more than [`LONGEST`].
    pub(super) fn take(&mut self, octets: &[u8]) -> Result<(), Refusal> {
        // One octet too many is enough to know.
        self.body.extend_from_slice(octets.get(..=PREFIX + LONGEST).unwrap_or(octets));
        let Some((is_compressed, length)) = prefix(&self.body) else { return Ok(()) };
        if is_compressed {
            return Err(Refusal::new(Code::Internal, "grpc: compressed flag set without an encoding"));
        }
        if length > LONGEST {
            let message = format!("grpc: received message larger than max ({length} vs. {LONGEST})");
            return Err(Refusal::new(Code::ResourceExhausted, message));
        }
        if self.body.len() > PREFIX + length {
            return Err(Refusal::new(Code::Internal, "grpc: more than one message was received"));
        }
        Ok(())
    }

    /// Ends with the trailers, empty where there were none.
    ///
    /// # Errors
    /// The server's status if that is not OK; else what is wrong with the message.
    pub(super) fn end(self, trailers: &HeaderMap) -> Result<i32, Refusal> {
        match self.early.or_else(|| status_of(trailers)) {
            Some(status) => status?,
            None if trailers.is_empty() => {
                let message = "server closed the stream without sending trailers";
                return Err(Refusal::new(Code::Internal, message));
            }
            None => return Err(Refusal::new(Code::Unknown, "the server sent no grpc-status")),
        }
        let Some((_, length)) = prefix(&self.body) else {
            return Err(Refusal::new(Code::Internal, "grpc: no message was received"));
        };
        let message = self.body.get(PREFIX..PREFIX + length);
        let message = message.ok_or_else(|| Refusal::new(Code::Internal, "unexpected EOF"))?;
        let health = HealthCheckResponse::decode(message).map_err(|error| {
            Refusal::new(Code::Internal, format!("grpc: cannot read the message: {error}"))
        })?;
        Ok(health.status)
    }
}

/// Whether a message is compressed, and its length, once that much was read.
fn prefix(body: &[u8]) -> Option<(bool, usize)> {
    let GrpcPrefix { is_compressed, length } = GrpcPrefix::decode(*body.first_chunk()?);
    Some((is_compressed, length as usize))
}

/// The server's own status, where these headers hold one.
fn status_of(headers: &HeaderMap) -> Option<Result<(), Refusal>> {
    let code = Code::from_bytes(headers.get("grpc-status")?.as_bytes());
    if code == Code::Ok {
        return Some(Ok(()));
    }
    let message = headers.get("grpc-message").map(|message| percent_decode(message.as_bytes()));
    let message = message.map(|message| message.decode_utf8_lossy().into_owned());
    Some(Err(Refusal::new(code, message.unwrap_or_default())))
}

/// `application/grpc`, with a `+format` or parameters or without.
fn is_grpc(kind: &str) -> bool {
    let rest = kind.to_ascii_lowercase();
    rest.strip_prefix("application/grpc")
        .is_some_and(|rest| matches!(rest.as_bytes(), [] | [b'+' | b';', ..]))
}

/// gRPC's code for a status of HTTP (its document "HTTP to gRPC Status Code Mapping").
fn of_http(status: StatusCode) -> Code {
    match status.as_u16() {
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502..=504 => Code::Unavailable,
        _ => Code::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn headers(rows: &[(&'static str, &'static str)]) -> HeaderMap {
        rows.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    fn judged(
        status: u16,
        first: &[(&'static str, &'static str)],
        body: &[u8],
        last: &[(&'static str, &'static str)],
    ) -> Result<i32, String> {
        let mut answer = GrpcAnswer::begin(StatusCode::from_u16(status).unwrap(), &headers(first))
            .map_err(|refusal| refusal.to_string())?;
        answer.take(body).map_err(|refusal| refusal.to_string())?;
        answer.end(&headers(last)).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn an_answer_is_a_status_and_one_message() {
        const GRPC: &[(&str, &str)] = &[("content-type", "application/grpc+proto")];
        const OK: &[(&str, &str)] = &[("grpc-status", "0")];
        let serving = b"\0\0\0\0\x02\x08\x01";
        assert_eq!(judged(200, GRPC, serving, OK), Ok(1));
        assert_eq!(judged(200, GRPC, b"\0\0\0\0\0", OK), Ok(0), "an empty message is status 0");
        assert_eq!(judged(200, GRPC, b"\0\0\0\0\x02\x08\x63", OK), Ok(99));
        let early = [GRPC[0], ("grpc-status", "5"), ("grpc-message", "no%20such%20\u{7f}")];
        let wrong: [(&str, Result<i32, String>, &str); 10] = [
            ("only trailers", judged(200, &early[..2], b"", &[]), "code = NotFound desc = "),
            (
                "no trailers",
                judged(200, GRPC, serving, &[]),
                "code = Internal desc = server closed the stream",
            ),
            (
                "trailers without status",
                judged(200, GRPC, serving, GRPC),
                "code = Unknown desc = the server sent no",
            ),
            (
                "status that is no number",
                judged(200, GRPC, serving, &[("grpc-status", "x")]),
                "code = Unknown desc = ",
            ),
            ("no message", judged(200, GRPC, b"", OK), "code = Internal desc = grpc: no message"),
            (
                "half a message",
                judged(200, GRPC, b"\0\0\0\0\x02\x08", OK),
                "code = Internal desc = unexpected EOF",
            ),
            (
                "two messages",
                judged(200, GRPC, &serving.repeat(2), OK),
                "code = Internal desc = grpc: more than one",
            ),
            (
                "compressed",
                judged(200, GRPC, b"\x01\0\0\0\x02\x08\x01", OK),
                "code = Internal desc = grpc: compressed",
            ),
            (
                "huge",
                judged(200, GRPC, b"\0\xff\xff\xff\xff\0", OK),
                "code = ResourceExhausted desc = grpc: received",
            ),
            (
                "garbage",
                judged(200, GRPC, b"\0\0\0\0\x02\xff\xff", OK),
                "code = Internal desc = grpc: cannot read",
            ),
        ];
        for (name, judged, text) in wrong {
            let error = judged.unwrap_err();
            assert!(error.starts_with(&format!("rpc error: {text}")), "{name}: {error}");
        }
    }

    #[test]
    fn a_server_that_speaks_no_grpc_is_told_by_its_http_status() {
        const HTML: &[(&str, &str)] = &[("content-type", "text/html")];
        const GRPC: &[(&str, &str)] = &[("content-type", "application/grpc")];
        const GRPCX: &[(&str, &str)] = &[("content-type", "application/grpcx")];
        let unexpected = "unexpected HTTP status code received from server";
        let kind = "transport: received unexpected content-type";
        let rows = [
            (404, HTML, format!("Unimplemented desc = {unexpected}: 404 (Not Found); {kind} \"text/html\"")),
            (503, GRPC, format!("Unavailable desc = {unexpected}: 503 (Service Unavailable)")),
            (200, &[], "Unknown desc = malformed header: missing HTTP content-type".to_owned()),
            (200, GRPCX, format!("Unknown desc = {kind} \"application/grpcx\"")),
        ];
        for (status, first, text) in rows {
            let error = judged(status, first, b"", &[]).unwrap_err();
            assert_eq!(error, format!("rpc error: code = {text}"));
        }
    }

    #[test]
    fn a_status_keeps_its_words_decoded() {
        let last = [("grpc-status", "12"), ("grpc-message", "unknown%20service %E2%9C%93 %zz")];
        let status = status_of(&headers(&last)).unwrap().unwrap_err();
        assert_eq!(status, Refusal::new(Code::Unimplemented, "unknown service \u{2713} %zz"));
    }

    proptest! {
        #[test]
        fn no_octets_panic_and_how_they_are_cut_does_not_matter(
            octets in prop::collection::vec(any::<u8>(), 0..64),
            cut in 0usize..64,
        ) {
            const GRPC: &[(&str, &str)] = &[("content-type", "application/grpc")];
            let read = |pieces: &[&[u8]]| {
                let mut answer = GrpcAnswer::begin(StatusCode::OK, &headers(GRPC))?;
                for piece in pieces {
                    answer.take(piece)?;
                }
                answer.end(&headers(&[("grpc-status", "0")]))
            };
            let (a, b) = octets.split_at(cut.min(octets.len()));
            prop_assert_eq!(read(&[&octets]).is_ok(), read(&[a, b]).is_ok());
        }
    }
}
