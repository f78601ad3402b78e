//! The events of the tap: calls that begin and end, and gaps. Plain values.

use std::{sync::Arc, time::Instant};

use serde::{Deserialize, Serialize};

use super::{
    blindness::Blindness,
    creation::CreationRequest,
    cri::{CriRequest, CriResponse, Method},
};
use crate::{carry::carried, ids::ConnId, peer::Peer};

/// One call, from the moment its request was complete. Cheap to clone: it is reported twice, and there are hundreds of
/// thousands of calls, so only data that few calls have is allocated separately.
#[derive(Clone, Debug)]
pub struct Call {
    /// The connection it came from.
    pub origin: Arc<CallOrigin>,
    /// Its stream on that connection.
    pub stream: u32,
    /// Service and method.
    pub method: Arc<Method>,
    /// When its first byte was passed on.
    pub began: Instant,
    /// Size of the request's messages, without their five-byte prefixes.
    pub request_bytes: u64,
    /// The W3C trace context that the caller sent.
    pub traceparent: Option<Arc<str>>,
    /// The decoded request, if it is of interest.
    pub request: CriRequest,
}

carried! {
    struct Call { stream, method, began, request_bytes, traceparent, request } fresh { origin: Arc::default() }
}

/// What the calls of one connection share.
#[derive(Clone, Debug, Default)]
pub struct CallOrigin {
    /// The connection.
    pub conn: ConnId,
    /// The client process.
    pub peer: Arc<Peer>,
    /// The latest user agent of the caller; empty if there is none.
    pub user_agent: Box<str>,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallEnd {
    /// With a status from the runtime.
    Complete,
    /// The client cancelled it.
    Cancelled,
    /// The runtime aborted it.
    Reset,
    /// A connection was lost during the call.
    Lost,
}

impl CallEnd {
    /// `complete`, `cancelled`, `reset`, `lost`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Cancelled => "cancelled",
            Self::Reset => "reset",
            Self::Lost => "lost",
        }
    }
}

/// The end of a call.
#[derive(Debug)]
pub struct EndedCall {
    /// The call.
    pub call: Call,
    /// When its last byte was passed on.
    pub at: Instant,
    /// How it ended.
    pub end: CallEnd,
    /// The gRPC status; `None` unless complete.
    pub code: Option<Code>,
    /// The status message, percent-decoded; at most [`MAX_MESSAGE`] bytes are kept.
    pub message: Box<str>,
    /// Size of the answer's messages, without their five-byte prefixes.
    pub response_bytes: u64,
    /// The decoded answer, if it is of interest.
    pub response: CriResponse,
    /// The request that created a container, if such requests are kept.
    pub creation: Option<CreationRequest>,
}

impl EndedCall {
    /// Whether it only opened a stream, which the runtime serves itself.
    pub fn has_opened_stream(&self) -> bool {
        self.call.method.kind.only_opens_stream()
            && self.end == CallEnd::Complete
            && self.code == Some(Code::OK)
    }
}

/// 1 KiB: enough for any status message that people read; the rest is dropped.
pub const MAX_MESSAGE: usize = 1024;

/// A gRPC status code as it was sent; unknown codes keep their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub u32);

impl Code {
    /// The call succeeded.
    pub const OK: Self = Self(0);
    /// The caller cancelled the call.
    pub const CANCELED: Self = Self(1);
    /// gRPC's code for an answer without a status.
    pub const UNKNOWN: Self = Self(2);
    /// An argument is wrong whatever the state of the runtime.
    pub const INVALID_ARGUMENT: Self = Self(3);
    /// The time for the call was over before its answer.
    pub const DEADLINE_EXCEEDED: Self = Self(4);
    /// What the call is about does not exist.
    pub const NOT_FOUND: Self = Self(5);
    /// What the call would make exists.
    pub const ALREADY_EXISTS: Self = Self(6);
    /// The caller may not do this.
    pub const PERMISSION_DENIED: Self = Self(7);
    /// The runtime does not serve this method.
    pub const UNIMPLEMENTED: Self = Self(12);

    const NAMES: [&str; 17] = [
        "OK",
        "Canceled",
        "Unknown",
        "InvalidArgument",
        "DeadlineExceeded",
        "NotFound",
        "AlreadyExists",
        "PermissionDenied",
        "ResourceExhausted",
        "FailedPrecondition",
        "Aborted",
        "OutOfRange",
        "Unimplemented",
        "Internal",
        "Unavailable",
        "DataLoss",
        "Unauthenticated",
    ];

    /// Its name in gRPC's spelling; `Unknown` for numbers that gRPC does not define.
    pub fn name(self) -> &'static str {
        Self::NAMES.get(self.0 as usize).copied().unwrap_or("Unknown")
    }
}

/// The output of the tap of one connection, in the order of the bytes.
#[derive(Debug)]
pub enum TapEvent {
    /// A request is complete.
    Begun(Call),
    /// A request was complete before this process took the connection over.
    Resumed(Call),
    /// A call ended.
    Ended(EndedCall),
    /// More streams were open than can be tracked: this many calls were not seen.
    Untracked(u64),
    /// The connection is blind from now on; its bytes are still relayed.
    Blinded {
        /// The connection.
        conn: ConnId,
        /// The reason.
        reason: Blindness,
    },
    /// The connection is over.
    Closed {
        /// The connection.
        conn: ConnId,
    },
}

impl TapEvent {
    /// Its approximate size in bytes, for the bound of the queue.
    pub fn weight(&self) -> usize {
        const FIXED: usize = size_of::<TapEvent>();
        match self {
            Self::Begun(call) | Self::Resumed(call) => FIXED + call.request.weight(),
            Self::Ended(ended) => {
                let creation = ended.creation.as_ref().map_or(0, CreationRequest::weight);
                FIXED + ended.message.len() + creation + ended.response.weight()
            }
            Self::Untracked(_) | Self::Blinded { .. } | Self::Closed { .. } => 64,
        }
    }
}
