//! One call of the runtime: an encoded request in; the encoded answer, or the error, out. All calls with one answer are made
//! here, whatever their messages, so that the code of a call exists once and not for each pair of messages.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use prost::Message;
use tonic::{
    Request, Response, Status,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    codegen::http::uri::PathAndQuery,
    transport::Channel,
};

use super::{of_cri, within};

/// Whose service is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    Cri,
    /// One of containerd's own, which are asked about the containers of CRI.
    Containerd,
}

/// Makes a call whose answer has at most this many bytes, and is decoded as one of our types.
///
/// # Errors
/// The error of the runtime or of the connection to it.
pub(super) async fn ask<A: Message + Default>(
    channel: Channel,
    path: PathAndQuery,
    request: impl Message,
    limit: Duration,
    most: usize,
) -> Result<A, Status> {
    let answer = send(Service::Cri, channel, path, request.encode_to_vec().into(), limit, most).await?;
    read(answer)
}

/// Decodes an answer.
///
/// # Errors
/// It is malformed.
pub(super) fn read<A: Message + Default>(answer: Bytes) -> Result<A, Status> {
    A::decode(answer).map_err(|error| Status::internal(format!("failed to decode Protobuf message: {error}")))
}

/// Makes a call with a request that is sent as it is.
///
/// # Errors
/// The error of the runtime or of the connection to it; OutOfRange if the answer has more than `most` bytes.
pub(super) async fn send(
    service: Service,
    channel: Channel,
    path: PathAndQuery,
    request: Bytes,
    limit: Duration,
    most: usize,
) -> Result<Bytes, Status> {
    let mut client = Grpc::new(channel).max_decoding_message_size(most);
    let call = |mut request: Request<Bytes>| async move {
        if service == Service::Containerd {
            of_cri(&mut request);
        }
        client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let answer: Response<Bytes> = client.unary(request, path, Encoded).await?;
        Ok(answer)
    };
    within(limit, request, call).await
}

/// Messages in their encoded form.
#[derive(Clone, Copy, Debug)]
struct Encoded;

impl Codec for Encoded {
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

impl Encoder for Encoded {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(message);
        Ok(())
    }
}

impl Decoder for Encoded {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}
