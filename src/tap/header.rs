//! The few header fields that matter, taken from decoded blocks. In: HPACK fields; out: what they say.

use super::{
    call::{Code, MAX_MESSAGE},
    hpack::{Decoder, HpackError, Name},
};

/// 1 KiB: the longest path, trace context or user agent that is kept; what is longer is taken as empty.
const MAX_VALUE: usize = 1024;

/// What a request's header block says.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestHeader<'a> {
    /// `:path`.
    pub path: &'a str,
    /// `traceparent`.
    pub traceparent: &'a str,
    /// `user-agent`.
    pub user_agent: &'a str,
}

/// Buffers for the fields of one request block, used again for the next.
#[derive(Debug, Default)]
pub struct RequestFields {
    path: Vec<u8>,
    traceparent: Vec<u8>,
    user_agent: Vec<u8>,
}

impl RequestFields {
    /// Decodes a block.
    ///
    /// # Errors
    /// The compression state is lost.
    pub fn read(&mut self, decoder: &mut Decoder, block: &[u8]) -> Result<RequestHeader<'_>, HpackError> {
        let Self { path, traceparent, user_agent } = self;
        path.clear();
        traceparent.clear();
        user_agent.clear();
        let mut malformed = Ok(());
        decoder.decode(block, |field| {
            let into = match field.name {
                Name::Path => &mut *path,
                Name::Traceparent => &mut *traceparent,
                Name::UserAgent => &mut *user_agent,
                Name::Status
                | Name::GrpcStatus
                | Name::GrpcMessage
                | Name::GrpcEncoding
                | Name::ContentType
                | Name::Other => {
                    return;
                }
            };
            into.clear();
            if let Err(error) = field.value.decode(into) {
                malformed = Err(error);
            }
        })?;
        malformed?;
        Ok(RequestHeader { path: text(path), traceparent: text(traceparent), user_agent: text(user_agent) })
    }
}

fn text(bytes: &[u8]) -> &str {
    if bytes.len() > MAX_VALUE { "" } else { std::str::from_utf8(bytes).unwrap_or_default() }
}

/// What an answer's header blocks say, put together.
#[derive(Clone, Debug, Default)]
pub struct ResponseHeader {
    http_status: Option<u32>,
    grpc_status: Option<u32>,
    grpc_message: Box<str>,
}

impl ResponseHeader {
    /// Decodes a block.
    ///
    /// # Errors
    /// The compression state is lost.
    pub fn read(decoder: &mut Decoder, block: &[u8], scratch: &mut Vec<u8>) -> Result<Self, HpackError> {
        let mut header = Self::default();
        let mut malformed = Ok(());
        decoder.decode(block, |field| {
            if !matches!(field.name, Name::Status | Name::GrpcStatus | Name::GrpcMessage) {
                return;
            }
            scratch.clear();
            if let Err(error) = field.value.decode(scratch) {
                malformed = Err(error);
                return;
            }
            match field.name {
                Name::Status => header.http_status = number(scratch),
                Name::GrpcStatus => header.grpc_status = number(scratch),
                _ => header.grpc_message = message(scratch),
            }
        })?;
        malformed.map(|()| header)
    }

    /// Adds what a later block of the same answer says.
    pub fn merge(&mut self, later: Self) {
        self.http_status = later.http_status.or(self.http_status);
        if later.grpc_status.is_some() {
            self.grpc_status = later.grpc_status;
            self.grpc_message = later.grpc_message;
        }
    }

    /// The status of the call and its message. Without `grpc-status` it is unknown, as gRPC has it.
    pub fn status(&mut self) -> (Option<Code>, Box<str>) {
        match (self.grpc_status, self.http_status) {
            (Some(code), _) => (Some(Code(code)), std::mem::take(&mut self.grpc_message)),
            (None, Some(status)) if status != 200 => {
                (Some(Code::UNKNOWN), format!("HTTP status {status}").into())
            }
            (None, _) => (Some(Code::UNKNOWN), "no grpc-status".into()),
        }
    }
}

fn number(digits: &[u8]) -> Option<u32> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Undoes the percent-encoding of `grpc-message`.
fn message(encoded: &[u8]) -> Box<str> {
    let encoded = &encoded[..encoded.len().min(3 * MAX_MESSAGE)];
    let decoded: Vec<u8> = percent_encoding::percent_decode(encoded).take(MAX_MESSAGE).collect();
    String::from_utf8_lossy(&decoded).into()
}
