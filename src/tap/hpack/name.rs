//! The header names that calls are read from, distinguished without undoing Huffman coding.

use super::{Text, huffman};

/// A header name of interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// `:path`: the service and method of a call.
    Path,
    /// `:status`: the HTTP status of an answer.
    Status,
    /// `grpc-status`: how a call ended.
    GrpcStatus,
    /// `grpc-message`: why it did, percent-encoded.
    GrpcMessage,
    /// `traceparent`: the caller's trace (W3C Trace Context).
    Traceparent,
    /// `user-agent`: what the caller says it is.
    UserAgent,
    /// Any other.
    Other,
}

/// The longest Huffman form of a name below, in octets.
const LONGEST_CODED: usize = 12;

/// A name and its Huffman form. A string has one such form only, so names compare without decoding.
struct Known {
    name: Name,
    plain: &'static [u8],
    coded: [u8; LONGEST_CODED],
    coded_length: usize,
}

impl Known {
    const fn new(name: Name, plain: &'static [u8]) -> Self {
        let (coded, coded_length) = huffman::encode(plain);
        Self { name, plain, coded, coded_length }
    }
}

static KNOWN: [Known; 6] = [
    Known::new(Name::Path, b":path"),
    Known::new(Name::Status, b":status"),
    Known::new(Name::GrpcStatus, b"grpc-status"),
    Known::new(Name::GrpcMessage, b"grpc-message"),
    Known::new(Name::Traceparent, b"traceparent"),
    Known::new(Name::UserAgent, b"user-agent"),
];

impl Name {
    pub(super) fn of(text: Text<'_>) -> Self {
        let Some((octets, is_coded)) = text.whole() else { return Self::Other };
        let known = if is_coded {
            KNOWN.iter().find(|known| &known.coded[..known.coded_length] == octets)
        } else {
            KNOWN.iter().find(|known| known.plain == octets)
        };
        known.map_or(Self::Other, |known| known.name)
    }
}
