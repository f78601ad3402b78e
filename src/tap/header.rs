//! The few header fields that matter, extracted from decoded blocks. In: HPACK fields. Out: their values.

use std::mem;

use super::{
    call::{Code, MAX_MESSAGE},
    hpack::{self, Decoder, HpackError, Name, Text},
};
use crate::carry::carried;

/// 1 KiB: the longest path, trace context or user agent that is kept; a longer one counts as empty.
const MAX_VALUE: usize = 1024;

/// 3 KiB: the maximum size of a message of [`MAX_MESSAGE`] bytes with every byte percent-encoded; no more is decoded.
const MAX_ENCODED: usize = 3 * MAX_MESSAGE;

// Of a longer value, the decoder hands out at least as much.
const _: () = assert!(hpack::BEGINNING * 8 / 30 >= MAX_ENCODED && MAX_ENCODED >= MAX_VALUE);

/// The values of a request's header block, as raw bytes; [`text`] converts them.
#[derive(Clone, Copy, Default)]
pub(super) struct RequestHeader<'a> {
    /// `:path`.
    pub path: &'a [u8],
    pub traceparent: &'a [u8],
    pub user_agent: &'a [u8],
}

/// A value as text; empty if it is not text.
pub(super) fn text(value: &[u8]) -> &str {
    std::str::from_utf8(value).unwrap_or_default()
}

/// Collects the fields of one request block, then of the next; [`MAX_VALUE`] bytes each.
#[derive(Debug, Default)]
pub(super) struct RequestFields {
    path: Value,
    traceparent: Value,
    user_agent: Value,
    /// The values are those of a complete block.
    is_complete: bool,
}

carried! { struct RequestFields { path, traceparent, user_agent, is_complete } }

impl RequestFields {
    /// Decodes a fragment of a block; returns the values with its last one.
    ///
    /// # Errors
    /// The compression state is lost.
    pub(super) fn read(
        &mut self,
        decoder: &mut Decoder,
        fragment: &[u8],
        is_end: bool,
    ) -> Result<Option<RequestHeader<'_>>, HpackError> {
        let Self { path, traceparent, user_agent, is_complete } = self;
        if mem::replace(is_complete, is_end) {
            path.clear();
            traceparent.clear();
            user_agent.clear();
        }
        let mut outcome = Ok(());
        let decoded = decoder.decode(fragment, is_end, |field| {
            let value = match field.name {
                Name::Path => &mut *path,
                Name::Traceparent => &mut *traceparent,
                Name::UserAgent => &mut *user_agent,
                Name::Status | Name::GrpcStatus | Name::GrpcMessage | Name::Other => {
                    return;
                }
            };
            if let Err(error) = value.take(field.value) {
                outcome = Err(error);
            }
        });
        // A fault of the texts comes before one at which decoding ended, so that the fragments make no difference.
        outcome.and(decoded)?;
        Ok(is_end.then_some(RequestHeader {
            path: &path.bytes,
            traceparent: &traceparent.bytes,
            user_agent: &user_agent.bytes,
        }))
    }

    /// Bytes of memory in use.
    pub(super) fn kept(&self) -> usize {
        [&self.path, &self.traceparent, &self.user_agent].map(|value| value.bytes.capacity()).iter().sum()
    }
}

/// The value of a field in one block. The first occurrence counts, so that repetitions cost nothing.
#[derive(Debug, Default)]
struct Value {
    bytes: Vec<u8>,
    is_taken: bool,
}

carried! { struct Value { bytes, is_taken } if is_sound }

impl Value {
    fn is_sound(&self) -> bool {
        self.bytes.len() <= MAX_VALUE
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.is_taken = false;
    }

    fn take(&mut self, text: Text<'_>) -> Result<(), HpackError> {
        if !mem::replace(&mut self.is_taken, true) && !text.decode_within(MAX_VALUE, &mut self.bytes)? {
            self.bytes.clear();
        }
        Ok(())
    }
}

/// The combined values of an answer's header blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct ResponseHeader {
    http_status: Option<u32>,
    grpc_status: Option<u32>,
    grpc_message: Box<str>,
}

carried! { struct ResponseHeader { http_status, grpc_status, grpc_message } if is_sound }

/// Collects the fields of one block of an answer, then of the next.
#[derive(Debug, Default)]
pub(super) struct ResponseFields {
    header: ResponseHeader,
    // The first occurrence of each counts, so that repetitions cost nothing.
    has_http: bool,
    has_grpc: bool,
    has_message: bool,
    scratch: Vec<u8>,
}

carried! {
    struct ResponseFields { header, has_http, has_grpc, has_message }
    fresh { scratch: Vec::new() }
}

impl ResponseFields {
    /// Decodes a fragment of a block; returns the values with its last one.
    ///
    /// # Errors
    /// The compression state is lost.
    pub(super) fn read(
        &mut self,
        decoder: &mut Decoder,
        fragment: &[u8],
        is_end: bool,
    ) -> Result<Option<ResponseHeader>, HpackError> {
        let Self { header, has_http, has_grpc, has_message, scratch } = self;
        let mut outcome = Ok(());
        let decoded = decoder.decode(fragment, is_end, |field| {
            let is_taken = match field.name {
                Name::Status => &mut *has_http,
                Name::GrpcStatus => &mut *has_grpc,
                Name::GrpcMessage => &mut *has_message,
                Name::Path | Name::Traceparent | Name::UserAgent | Name::Other => return,
            };
            if mem::replace(is_taken, true) {
                return;
            }
            match field.value.get_within(MAX_ENCODED, scratch) {
                Ok(value) if field.name == Name::Status => header.http_status = number(value),
                Ok(value) if field.name == Name::GrpcStatus => header.grpc_status = number(value),
                Ok(value) => header.grpc_message = message(value),
                Err(error) => outcome = Err(error),
            }
        });
        // As with requests.
        outcome.and(decoded)?;
        if !is_end {
            return Ok(None);
        }
        (*has_http, *has_grpc, *has_message) = (false, false, false);
        Ok(Some(mem::take(header)))
    }

    /// Bytes of memory in use.
    pub(super) fn kept(&self) -> usize {
        self.scratch.capacity() + self.header.grpc_message.len()
    }
}

impl ResponseHeader {
    fn is_sound(&self) -> bool {
        self.grpc_message.len() <= MAX_MESSAGE
    }

    /// Adds the values of a later block of the same answer.
    pub(super) fn merge(&mut self, later: Self) {
        self.http_status = later.http_status.or(self.http_status);
        if later.grpc_status.is_some() {
            self.grpc_status = later.grpc_status;
            self.grpc_message = later.grpc_message;
        }
    }

    /// The status of the call and its message. Without `grpc-status` it is unknown, as in gRPC.
    pub(super) fn status(&mut self) -> (Option<Code>, Box<str>) {
        match (self.grpc_status, self.http_status) {
            (Some(code), _) => (Some(Code(code)), mem::take(&mut self.grpc_message)),
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

/// Decodes the percent-encoding of `grpc-message`.
fn message(encoded: &[u8]) -> Box<str> {
    if encoded.is_empty() {
        return Box::default();
    }
    let decoded: Vec<u8> = percent_encoding::percent_decode(encoded).take(MAX_MESSAGE).collect();
    let mut text = String::from_utf8_lossy(&decoded).into_owned();
    // Replacement characters for invalid UTF-8 made it longer.
    let end = (0..=MAX_MESSAGE.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    text.truncate(end.unwrap_or(0));
    text.into()
}
