//! Why a connection is not understood any more: the error that a decoder met, as it is shown to people.

use thiserror::Error;

use super::{frame::FrameError, hpack::HpackError};
use crate::carry::carried;

/// The reason for which a connection is relayed blindly from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Blindness {
    /// The client sent something else than HTTP/2's preface.
    #[error("the client does not speak HTTP/2")]
    NotHttp2,
    /// The boundaries of the frames are not known any more.
    #[error("framing error: {0}")]
    Frame(#[from] FrameError),
    /// The table of header fields is not known any more.
    #[error("header compression error: {0}")]
    Hpack(#[from] HpackError),
    /// All connections together keep as much as they may.
    #[error("no memory is left for its header table")]
    NoRoom,
    /// A defect of ours.
    #[error("the decoder panicked")]
    Panicked,
    /// The process that relayed it before was of a version that keeps other state.
    #[error("it was handed over by another version of criprobe")]
    HandedOver,
    /// It was dialled before the configuration named another runtime.
    #[error("it leads to the runtime that was configured before")]
    OtherRuntime,
    /// The process that relayed it before left something else than it wrote.
    #[error("its state was damaged when it was handed over")]
    DamagedState,
}

carried! {
    enum Blindness {
        0 NotHttp2,
        1 Frame(error: FrameError),
        2 Hpack(error: HpackError),
        3 NoRoom,
        4 Panicked,
        5 HandedOver,
        6 OtherRuntime,
        7 DamagedState,
    }
}
