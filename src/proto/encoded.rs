//! gRPC messages in their encoded form. Calls are made and answered with these, so that the code of a call exists once,
//! and not for each pair of messages.

use bytes::{Buf, BufMut, Bytes};
use prost::Message;
use tonic::{
    Request, Status,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    codegen::http::uri::PathAndQuery,
    transport::Channel,
};

/// Their codec.
#[derive(Clone, Copy, Debug)]
pub struct Encoded;

/// Makes a call that has one request and one answer of at most 4 MiB.
///
/// # Errors
/// The error of the server or of the connection to it; Internal if the answer is malformed.
pub async fn call<A: Message + Default>(
    channel: &Channel,
    service: &str,
    method: &str,
    request: &impl Message,
) -> Result<A, Status> {
    read(send(channel.clone(), format!("/{service}/{method}"), request.encode_to_vec().into()).await?)
}

/// Decodes a message.
///
/// # Errors
/// It is malformed.
pub fn read<A: Message + Default>(message: Bytes) -> Result<A, Status> {
    A::decode(message).map_err(|error| Status::internal(error.to_string()))
}

async fn send(channel: Channel, path: String, request: Bytes) -> Result<Bytes, Status> {
    let path = PathAndQuery::try_from(path).map_err(|error| Status::internal(error.to_string()))?;
    let mut client = Grpc::new(channel);
    let ready = client.ready().await;
    ready.map_err(|error| Status::unknown(format!("the connection is not ready: {error}")))?;
    client.unary(Request::new(request), path, Encoded).await.map(tonic::Response::into_inner)
}

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
