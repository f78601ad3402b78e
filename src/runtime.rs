//! The only client of the runtime: one channel of our own, so that our calls are never confused with a client's.
//!
//! In: questions; out: the runtime's answers as generated messages. Keeps no state but the connection.

pub mod environment;
pub mod events;
pub mod image;
pub mod link;
pub mod lists;
pub mod presence;
mod statuses;
pub mod turns;

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
    transport::{Channel, Endpoint, Uri},
};

use crate::proto::{
    containerd::events_client::EventsClient,
    cri::{self, runtime_service_client::RuntimeServiceClient},
    trim::{self, Trimmed},
};

/// 16 MiB: what every CRI client accepts of one message.
const MAX_MESSAGE: usize = 16 * 1024 * 1024;

/// 1 MiB of one answer is in flight at once, so that a long list takes few round trips.
const WINDOW: u32 = 1024 * 1024;

/// 64 KiB of a command's answer wait here while it is not read. Attempts have places, so that bounds all of them together.
const COMMAND_WINDOW: u32 = 64 * 1024;

/// 2^31 - 1, the most there is: a connection of commands is never what stops one of them.
const NO_WINDOW: u32 = i32::MAX as u32;

/// 5 s: the limit of a question that a living runtime answers in milliseconds.
const QUICK: Duration = Duration::from_secs(5);

/// 30 s: the limit of a list.
const LONG: Duration = Duration::from_secs(30);

/// A handle to the runtime; cheap to clone. It connects when it is first asked, and again when the runtime is back.
#[derive(Clone, Debug)]
pub struct Runtime {
    socket: PathBuf,
    channel: Channel,
    /// Counts the connections that the channel has made.
    connections: watch::Receiver<u64>,
}

/// Who the runtime says it is.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Version {
    /// `containerd`, `cri-o`, ...
    pub name: String,
    /// Its own version.
    pub version: String,
}

impl Runtime {
    /// A handle to the runtime that listens, or will listen, on `socket`.
    pub fn new(socket: &Path) -> Self {
        let count = watch::Sender::new(0);
        let connections = count.subscribe();
        let channel = counting_channel(socket.to_owned(), count, (WINDOW, WINDOW));
        Self { socket: socket.to_owned(), channel, connections }
    }

    /// The connection that the channel has now, by its number.
    fn connection(&self) -> u64 {
        *self.connections.borrow()
    }

    /// Returns once the channel has another connection than this one, most likely to a runtime that was restarted.
    async fn connected_again(&self, former: u64) {
        let mut connections = self.connections.clone();
        if connections.wait_for(|&connection| connection != former).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Whether something accepts connections on its socket.
    async fn accepts(&self) -> bool {
        match UnixStream::connect(&self.socket).await {
            Ok(_) => true,
            // Its backlog is full: it is there, and slow or frozen.
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        }
    }

    /// The way to it, for calls that have rules of their own.
    fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// A channel for ExecSync, with a connection of its own: answers that are read slowly take nothing of what lists and
    /// events may have in flight, and nothing of each other's.
    pub fn commands(&self) -> Channel {
        counting_channel(self.socket.clone(), watch::Sender::new(0), (COMMAND_WINDOW, NO_WINDOW))
    }

    fn client(&self) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(self.channel.clone())
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE)
    }

    fn containerd_events(&self) -> EventsClient<Channel> {
        EventsClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE)
    }

    /// Asks who it is; the cheapest sign of life.
    ///
    /// # Errors
    /// What the runtime, or the connection to it, said.
    pub async fn version(&self) -> Result<Version, Status> {
        let (request, mut client) = (cri::VersionRequest::default(), self.client());
        let answer = within(QUICK, request, |request| client.version(request)).await?;
        let name = |text: &str| trim::name(text).into_owned();
        Ok(Version { name: name(&answer.runtime_name), version: name(&answer.runtime_version) })
    }

    /// Asks who it is over a connection that is made for this question, as a client's would be: one that is open already
    /// lives on when the socket's file is gone.
    ///
    /// # Errors
    /// What the runtime, or the connection to it, said.
    pub async fn version_afresh(&self) -> Result<Version, Status> {
        Self::new(&self.socket).version().await
    }

    /// All sandboxes.
    ///
    /// # Errors
    /// What the runtime, or the connection to it, said.
    pub async fn sandboxes(&self) -> Result<Vec<lists::SandboxItem>, Status> {
        lists::sandboxes(self.channel.clone()).await
    }

    /// All containers.
    ///
    /// # Errors
    /// What the runtime, or the connection to it, said.
    pub async fn containers(&self) -> Result<Vec<lists::ContainerItem>, Status> {
        lists::containers(self.channel.clone()).await
    }

    /// One sandbox, if the runtime shows it.
    ///
    /// # Errors
    /// What the runtime, or the connection to it, said; NotFound where there is none.
    pub async fn sandbox_status(&self, id: &str) -> Result<Option<Trimmed<cri::PodSandboxStatus>>, Status> {
        statuses::sandbox(self.channel.clone(), id).await
    }

    /// One container, if the runtime shows it, but for its labels and annotations.
    ///
    /// # Errors
    /// What the runtime, or the connection to it, said; NotFound where there is none.
    pub async fn container_status(&self, id: &str) -> Result<Option<cri::ContainerStatus>, Status> {
        let status = statuses::container(self.channel.clone(), id).await?;
        Ok(status.map(Trimmed::into_inner))
    }
}

/// A channel to a gRPC server on a Unix socket. It connects when it is first used, and again when it was lost.
pub fn channel(socket: PathBuf) -> Channel {
    counting_channel(socket, watch::Sender::new(0), (WINDOW, WINDOW))
}

/// `windows`: what may be in flight of one answer, and of all.
fn counting_channel(socket: PathBuf, connections: watch::Sender<u64>, windows: (u32, u32)) -> Channel {
    let connections = Arc::new(connections);
    let connector = tower::service_fn(move |_: Uri| {
        let (socket, connections) = (socket.clone(), Arc::clone(&connections));
        async move {
            let stream = UnixStream::connect(socket).await?;
            connections.send_modify(|count| *count += 1);
            Ok::<_, io::Error>(TokioIo::new(stream))
        }
    });
    Endpoint::from_static("http://localhost")
        .initial_stream_window_size(windows.0)
        .initial_connection_window_size(windows.1)
        .user_agent(concat!("criprobe/", env!("CARGO_PKG_VERSION")))
        .expect("the user agent is a valid header value")
        .connect_with_connector_lazy(connector)
}

/// Makes a call that has a limit from its first byte to its last. The runtime learns the limit, too; tonic itself would
/// keep it only until the answer begins.
async fn within<Q, A, F>(limit: Duration, message: Q, call: impl FnOnce(Request<Q>) -> F) -> Result<A, Status>
where
    F: Future<Output = Result<Response<A>, Status>>,
{
    let mut request = Request::new(message);
    request.set_timeout(limit);
    match timeout(limit, call(request)).await {
        Ok(answer) => answer.map(Response::into_inner),
        Err(_elapsed) => Err(Status::deadline_exceeded(format!("no answer within {} s", limit.as_secs()))),
    }
}

#[cfg(test)]
mod tests;
