//! One call of the runtime: an encoded request in; the encoded answer, or the error, out. All calls with one answer are made
//! here, whatever their messages, so that the code of a call exists once and not for each pair of messages.

use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tonic::{Request, Response, Status, client::Grpc, codegen::http::uri::PathAndQuery, transport::Channel};

use super::{of_cri, within};
use crate::proto::encoded::Encoded;
pub(super) use crate::proto::encoded::read;

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
