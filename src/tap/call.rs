//! What the tap tells: calls as they begin and end, and where its knowledge has holes. Plain values.

use std::{sync::Arc, time::Instant};

use serde::{Deserialize, Serialize};

use super::{
    blindness::Blindness,
    cri::{CriRequest, CriResponse, Method},
};
use crate::{ids::ConnId, peer::Peer};

/// One call, from the moment on when its request was whole. Cheap to clone: it is told twice, and calls come by the
/// hundred thousand, so that nothing of it stands in memory of its own but what few calls have.
#[derive(Clone, Debug)]
pub struct Call {
    /// Where it came from.
    pub origin: Arc<CallOrigin>,
    /// Its stream there.
    pub stream: u32,
    /// Service and method.
    pub method: Arc<Method>,
    /// When its first byte was passed on.
    pub began: Instant,
    /// Size of the request's messages, without their five-byte heads.
    pub request_bytes: u64,
    /// The W3C trace context that the caller sent.
    pub traceparent: Option<Arc<str>>,
    /// What was asked, where that is of use.
    pub request: CriRequest,
}

/// What the calls of one connection have in common.
#[derive(Clone, Debug)]
pub struct CallOrigin {
    /// The connection.
    pub conn: ConnId,
    /// Who opened it.
    pub peer: Arc<Peer>,
    /// What the caller says it is, as it said last; empty when it does not.
    pub user_agent: Box<str>,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallEnd {
    /// With a status from the runtime.
    Complete,
    /// The client took it back.
    Cancelled,
    /// The runtime broke it off.
    Reset,
    /// A connection went away under it.
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
    /// How.
    pub end: CallEnd,
    /// The gRPC status; `None` unless complete.
    pub code: Option<Code>,
    /// The status message, percent-decoded; at most [`MAX_MESSAGE`] bytes are kept.
    pub message: Box<str>,
    /// Size of the answer's messages, without their five-byte heads.
    pub response_bytes: u64,
    /// What was answered, where that is of use.
    pub response: CriResponse,
}

/// 1 KiB: enough for any status message that a person reads; the rest is dropped.
pub const MAX_MESSAGE: usize = 1024;

/// A gRPC status code as it stood on the wire; unknown ones keep their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub u32);

impl Code {
    /// The call succeeded.
    pub const OK: Self = Self(0);
    /// What gRPC says of an answer without a status.
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

    /// Its name in gRPC's own spelling; `Unknown` for numbers that gRPC does not define.
    pub fn name(self) -> &'static str {
        Self::NAMES.get(self.0 as usize).copied().unwrap_or("Unknown")
    }
}

/// What leaves the tap of one connection, in the order of the bytes.
#[derive(Debug)]
pub enum TapEvent {
    /// A request is whole.
    Begun(Call),
    /// A call ended.
    Ended(EndedCall),
    /// More streams were open than are followed: this many calls passed unseen.
    Untracked(u64),
    /// Nothing more is understood of this connection; its bytes go on.
    Blinded {
        /// The connection.
        conn: ConnId,
        /// Why.
        reason: Blindness,
    },
    /// The connection is over.
    Closed {
        /// The connection.
        conn: ConnId,
    },
}

impl TapEvent {
    /// Roughly how many bytes it holds, for the bound of the queue that it stands in.
    pub fn weight(&self) -> usize {
        const FIXED: usize = size_of::<TapEvent>();
        match self {
            Self::Begun(call) => FIXED + call.request.weight(),
            Self::Ended(ended) => FIXED + ended.message.len(),
            Self::Untracked(_) | Self::Blinded { .. } | Self::Closed { .. } => 64,
        }
    }
}
