//! The only client of the runtime: one connection of our own, so that our calls are never confused with a client's.
//!
//! In: requests. Out: the runtime's answers as generated messages. Keeps no state except the connection.

pub(crate) mod acts;
mod call;
pub(crate) mod condition;
pub(crate) mod environment;
pub(crate) mod events;
pub(crate) mod image;
pub(crate) mod link;
pub(crate) mod lists;
pub(crate) mod marks;
pub(crate) mod outage;
pub(crate) mod presence;
pub(crate) mod socket;
mod statuses;
mod tasks;
pub(crate) mod turns;
pub(crate) mod usage;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use hyper_util::rt::TokioIo;
use tokio::{net::UnixStream, sync::watch, time::timeout};
use tonic::{
    Request, Response, Status,
    codegen::http::uri::PathAndQuery,
    metadata::MetadataValue,
    transport::{Channel, Endpoint, Uri},
};

use crate::{
    clock,
    proto::{
        containerd::events_client::EventsClient,
        cri,
        trim::{self, Trimmed},
    },
};

/// 16 MiB: the size that every CRI client accepts for one message.
const MAX_MESSAGE: usize = 16 * 1024 * 1024;

/// 1 MiB of one answer can be in flight, so that a long list takes few round trips.
const WINDOW: u32 = 1024 * 1024;

/// 64 KiB of a command's answer wait here while it is not read. Attempts have places, so that bounds all of them together.
const COMMAND_WINDOW: u32 = 64 * 1024;

/// 2^31 - 1, the most there is: a connection of commands is never what stops one of them.
const NO_WINDOW: u32 = i32::MAX as u32;

/// 1 MiB of headers and trailers are read of one answer, which contain the error's text: a runtime may repeat a long command
/// there, with each byte written as three. What is longer ends this one call; what is longer than 1.25 MiB ends the
/// connection, as HTTP/2 gives no other way. At most one is incomplete at a time on a connection.
const MAX_HEADERS: u32 = 1024 * 1024;

/// 5 s: the limit for a request that a working runtime answers in milliseconds.
const QUICK: Duration = Duration::from_secs(5);

/// 30 s: the limit for a list.
const LONG: Duration = Duration::from_secs(30);

/// A handle to the runtime; cheap to clone. It connects on first use, and again when the runtime is back.
#[derive(Clone, Debug)]
pub(crate) struct Runtime {
    socket: PathBuf,
    channel: Channel,
    /// Counts the connections that the channel has made.
    connections: watch::Receiver<u64>,
}

/// The runtime's name and version.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Version {
    /// `containerd`, `cri-o`, ...
    pub name: String,
    /// Its own version.
    pub version: String,
}

impl Runtime {
    /// A handle to the runtime that listens, or will listen, on `socket`.
    pub(crate) fn new(socket: &Path) -> Self {
        let count = watch::Sender::new(0);
        let connections = count.subscribe();
        let channel = counting_channel(socket.to_owned(), count, (WINDOW, WINDOW));
        Self { socket: socket.to_owned(), channel, connections }
    }

    /// The number of the channel's current connection.
    fn connection(&self) -> u64 {
        *self.connections.borrow()
    }

    /// Returns once the channel has another connection, most likely to a restarted runtime.
    async fn connected_again(&self, former: u64) {
        let mut connections = self.connections.clone();
        if connections.wait_for(|&connection| connection != former).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Whether its socket accepts connections.
    async fn accepts(&self) -> bool {
        match UnixStream::connect(&self.socket).await {
            Ok(_) => true,
            // Its backlog is full: it exists, and is slow or frozen.
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        }
    }

    /// The way to it, for calls that have rules of their own.
    fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// A channel for ExecSync, with a connection of its own: answers that are read slowly take nothing of what lists and
    /// events may have in flight, and nothing of each other's.
    pub(crate) fn commands(&self) -> Channel {
        counting_channel(self.socket.clone(), watch::Sender::new(0), (COMMAND_WINDOW, NO_WINDOW))
    }

    #[cfg(test)]
    fn client(&self) -> cri::runtime_service_client::RuntimeServiceClient<Channel> {
        cri::runtime_service_client::RuntimeServiceClient::new(self.channel.clone())
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE)
    }

    fn containerd_events(&self) -> EventsClient<Channel> {
        EventsClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE)
    }

    /// Requests the version; the cheapest liveness check.
    ///
    /// # Errors
    /// The error of the runtime or of the connection to it.
    pub(crate) async fn version(&self) -> Result<Version, Status> {
        let path = PathAndQuery::from_static("/runtime.v1.RuntimeService/Version");
        let request = cri::VersionRequest::default();
        let answer: cri::VersionResponse =
            call::ask(self.channel(), path, request, QUICK, MAX_MESSAGE).await?;
        let name = |text: &str| trim::name(text).into_owned();
        Ok(Version { name: name(&answer.runtime_name), version: name(&answer.runtime_version) })
    }

    /// Requests the version over a new connection, as a client would make: an existing connection continues to work
    /// after the socket's file was removed.
    ///
    /// # Errors
    /// The error of the runtime or of the connection to it.
    async fn version_afresh(&self) -> Result<Version, Status> {
        Self::new(&self.socket).version().await
    }

    /// All sandboxes.
    ///
    /// # Errors
    /// The error of the runtime or of the connection to it.
    pub(crate) async fn sandboxes(&self) -> Result<Vec<lists::SandboxItem>, Status> {
        lists::sandboxes(self.channel.clone()).await
    }

    /// All containers.
    ///
    /// # Errors
    /// The error of the runtime or of the connection to it.
    pub(crate) async fn containers(&self) -> Result<Vec<lists::ContainerItem>, Status> {
        lists::containers(self.channel.clone()).await
    }

    /// One sandbox, if the runtime knows it.
    ///
    /// # Errors
    /// The error of the runtime or of the connection to it; NotFound if there is none.
    pub(crate) async fn sandbox_status(
        &self,
        id: &str,
    ) -> Result<Option<Trimmed<cri::PodSandboxStatus>>, Status> {
        statuses::sandbox(self.channel.clone(), id).await
    }

    /// One container, if the runtime knows it, without its labels and annotations.
    ///
    /// # Errors
    /// The error of the runtime or of the connection to it; NotFound if there is none.
    pub(crate) async fn container_status(&self, id: &str) -> Result<Option<cri::ContainerStatus>, Status> {
        let status = statuses::container(self.channel.clone(), id).await?;
        Ok(status.map(Trimmed::into_inner))
    }

    /// What has to be known of a container before anything is done to it; none if the runtime does not know it.
    ///
    /// # Errors
    /// The error of the runtime or of the connection to it.
    pub(crate) async fn condition(&self, id: &str) -> Result<Option<condition::ContainerCondition>, Status> {
        condition::read(self.channel.clone(), id).await
    }
}

/// A channel to a gRPC server on a Unix socket. It connects on first use, and again when the connection is lost.
pub fn channel(socket: PathBuf) -> Channel {
    counting_channel(socket, watch::Sender::new(0), (WINDOW, WINDOW))
}

/// `windows`: how much may be in flight of one answer, and of all.
fn counting_channel(socket: PathBuf, connections: watch::Sender<u64>, windows: (u32, u32)) -> Channel {
    let connections = Arc::new(connections);
    let connector = tower::service_fn(move |_: Uri| {
        let (socket, connections) = (socket.clone(), Arc::clone(&connections));
        async move {
            let stream = socket::connect(&socket).await?;
            connections.send_modify(|count| *count += 1);
            Ok::<_, io::Error>(TokioIo::new(stream))
        }
    });
    Endpoint::from_static("http://localhost")
        .initial_stream_window_size(windows.0)
        .initial_connection_window_size(windows.1)
        .http2_max_header_list_size(MAX_HEADERS)
        .user_agent(concat!("criprobe/", env!("CARGO_PKG_VERSION")))
        .expect("the user agent is a valid header value")
        .connect_with_connector_lazy(connector)
}

/// Addresses a call of containerd's own services to the namespace of its CRI plugin.
fn of_cri<Q>(request: &mut Request<Q>) {
    request.metadata_mut().insert("containerd-namespace", MetadataValue::from_static("k8s.io"));
}

/// Makes a call with a deadline for the whole answer. The deadline is also sent to the runtime; tonic alone would
/// enforce it only until the answer begins.
async fn within<Q, A, F>(limit: Duration, message: Q, call: impl FnOnce(Request<Q>) -> F) -> Result<A, Status>
where
    F: Future<Output = Result<Response<A>, Status>>,
{
    let mut request = Request::new(message);
    request.set_timeout(limit);
    let began = clock::now();
    let answer = timeout(limit, call(request)).await;
    match answer {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        // tonic's timer may be the first of the two, and has other words for it.
        Ok(Err(status)) if clock::now().duration_since(began) < limit => Err(status),
        Ok(Err(_)) | Err(_) => {
            Err(Status::deadline_exceeded(format!("no answer within {} s", limit.as_secs())))
        }
    }
}

#[cfg(test)]
mod tests;
