//! The codec of the made-up runtimes: messages pass as octets, so that each call decodes what it needs.

use bytes::{Buf, BufMut, Bytes};
use prost::Message;
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

/// A request as a message.
pub(crate) fn decode<M: Message + Default>(request: Bytes) -> Result<M, Status> {
    M::decode(request).map_err(|error| Status::invalid_argument(error.to_string()))
}

/// An answer as octets; none where nothing has that name.
pub(crate) fn encode<M: Message>(answer: Option<M>) -> Result<Bytes, Status> {
    answer.map(|answer| answer.encode_to_vec().into()).ok_or_else(|| Status::not_found("not there"))
}

/// Messages as they are on the wire: those that are the same for every call are encoded once.
#[derive(Clone, Copy, Default)]
pub(crate) struct Octets;

impl Codec for Octets {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Octets {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(item);
        Ok(())
    }
}

impl Decoder for Octets {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = from.remaining();
        Ok(Some(from.copy_to_bytes(length)))
    }
}
