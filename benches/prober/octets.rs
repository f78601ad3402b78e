//! Messages of the made-up runtimes, which pass encoded, so that each call decodes what it needs.

use bytes::Bytes;
use prost::Message;
use tonic::Status;

/// A request as a message.
pub(crate) fn decode<M: Message + Default>(request: Bytes) -> Result<M, Status> {
    M::decode(request).map_err(|error| Status::invalid_argument(error.to_string()))
}

/// An answer as octets; none where nothing has that name.
pub(crate) fn encode<M: Message>(answer: Option<M>) -> Result<Bytes, Status> {
    answer.map(|answer| answer.encode_to_vec().into()).ok_or_else(|| Status::not_found("not there"))
}
