//! The status of one sandbox or container: an id in; what the runtime knows of it, of bounded size, out.

use bytes::Bytes;
use prost::Message;
use tonic::{Status, codegen::http::uri::PathAndQuery, transport::Channel};

use super::{MAX_MESSAGE, QUICK, call::ask};
use crate::proto::{
    cri,
    trim::{self, Trim, Trimmed},
};

/// A `PodSandboxStatusResponse` or `ContainerStatusResponse`; its status as raw bytes.
#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(bytes = "bytes", optional, tag = "1")]
    status: Option<Bytes>,
}

pub(super) async fn sandbox(
    channel: Channel,
    id: &str,
) -> Result<Option<Trimmed<cri::PodSandboxStatus>>, Status> {
    let path = PathAndQuery::from_static("/runtime.v1.RuntimeService/PodSandboxStatus");
    let request = cri::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: false };
    let answer: Answer = ask(channel, path, request, QUICK, MAX_MESSAGE).await?;
    answer.status.map(|status| decode(&status)).transpose()
}

pub(super) async fn container(
    channel: Channel,
    id: &str,
) -> Result<Option<Trimmed<cri::ContainerStatus>>, Status> {
    let path = PathAndQuery::from_static("/runtime.v1.RuntimeService/ContainerStatus");
    let request = cri::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
    let answer: Answer = ask(channel, path, request, QUICK, MAX_MESSAGE).await?;
    answer.status.map(|status| decode(&status)).transpose()
}

fn decode<T: Trim>(status: &[u8]) -> Result<Trimmed<T>, Status> {
    trim::decode(status).map_err(|error| Status::internal(error.to_string()))
}
