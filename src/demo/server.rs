//! Listens on a Unix socket and serves both CRI services and those of containerd there, with the requested faults in
//! front, and starts the streaming server beside it. Requests in, answers out; knows methods only by name, not what they do.

use std::{
    convert::Infallible,
    fs, io,
    os::unix::fs::{FileTypeExt as _, PermissionsExt as _},
    path::Path,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use hyper::{Request, Response, Uri};
use tokio::{
    net::{UnixListener, UnixStream},
    task::JoinHandle,
    time::sleep,
};
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tonic::{Status, body::Body, transport::Server};
use tower::Service;

use super::{
    connection::Connection,
    faults::{self, Faults},
    images::Images,
    methods::Services,
    service::Runtime,
    streaming,
};
use crate::clock;

/// 1,024 streams that a client reset before they were looked at; more end its connection (h2's own default is 20,
/// which a test that cancels hundreds of calls at once would reach).
const MAX_PENDING_RESETS: usize = 1024;

/// 50 ms between two tries to accept when accepting fails, as it does without free file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// A server at work.
#[derive(Debug)]
pub(super) struct Serving {
    end: CancellationToken,
    task: JoinHandle<()>,
}

impl Serving {
    /// Binds `socket`, mode 0600, and serves on it. A stale socket file is replaced. Until `open_at` every call is
    /// answered as containerd does while it starts.
    ///
    /// # Errors
    /// When somebody listens there already, when something else than a socket is there, and what binding brings.
    pub(super) fn start(
        socket: &Path,
        runtime: Runtime,
        images: Images,
        faults: Faults,
        open_at: Instant,
    ) -> io::Result<Self> {
        let listener = bind(socket)?;
        let end = CancellationToken::new();
        if let Err(error) = streaming::listen(&runtime.0, faults.clone(), end.clone()) {
            tracing::warn!(%error, "embedded runtime has no streaming server: Exec will be refused");
        }
        let gate = Gate { services: Services { runtime, images }, faults, open_at };
        let served = Server::builder()
            .http2_max_pending_accept_reset_streams(Some(MAX_PENDING_RESETS))
            .serve_with_incoming_shutdown(gate, accept(listener, end.clone()), end.clone().cancelled_owned());
        let task = tokio::spawn(async move {
            if let Err(error) = served.await {
                tracing::warn!(%error, "embedded runtime stopped serving");
            }
        });
        Ok(Self { end, task })
    }

    /// Ends the listening and every connection at once.
    pub(super) fn cut(&self) {
        self.end.cancel();
    }

    /// As `cut`, and waits until the last connection is gone.
    pub(super) async fn stop(self) {
        self.cut();
        if let Err(error) = self.task.await {
            tracing::warn!(%error, "embedded runtime's server failed");
        }
    }
}

fn bind(socket: &Path) -> io::Result<UnixListener> {
    match fs::symlink_metadata(socket) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the path exists and is not a socket"));
        }
        Ok(_) => match std::os::unix::net::UnixStream::connect(socket) {
            Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
            Err(_) => fs::remove_file(socket)?,
        },
    }
    let listener = UnixListener::bind(socket)?;
    fs::set_permissions(socket, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

fn accept(
    listener: UnixListener,
    serving: CancellationToken,
) -> impl Stream<Item = Result<Connection, Infallible>> {
    futures_util::stream::unfold((listener, serving), |(listener, serving)| async move {
        let stream = next_stream(&listener).await;
        Some((Ok(Connection::new(stream, &serving)), (listener, serving)))
    })
}

async fn next_stream(listener: &UnixListener) -> UnixStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(_) => sleep(ACCEPT_BACKOFF).await,
        }
    }
}

/// Comes before all services: records each call, and applies its fault, if there is one.
#[derive(Clone)]
struct Gate {
    services: Services,
    faults: Faults,
    open_at: Instant,
}

impl Gate {
    async fn pass(self, request: Request<Body>) -> Response<Body> {
        let method = request.uri().path().rsplit('/').next().unwrap_or_default();
        let now = clock::now();
        let fault = self.faults.receive(method, now);
        if now < self.open_at {
            return Status::unknown("server is not initialized yet").into_http();
        }
        let request = match faults::before(fault.as_ref(), request).await {
            Ok(request) => request,
            Err(status) => return status.into_http(),
        };
        let answer = self.handle(request).await;
        faults::after(fault.as_ref()).await;
        answer
    }

    async fn handle(self, mut request: Request<Body>) -> Response<Body> {
        if let Some(uri) = renamed(request.uri()) {
            *request.uri_mut() = uri;
        }
        self.services.answer(request).await
    }
}

/// The path of a call under the package's old name, `runtime.v1alpha2`, as today's: the bytes are the same. containerd
/// answers to both until 1.7.
fn renamed(uri: &Uri) -> Option<Uri> {
    let path = format!("/runtime.v1.{}", uri.path().strip_prefix("/runtime.v1alpha2.")?);
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path.parse().ok()?);
    Uri::from_parts(parts).ok()
}

impl Service<Request<Body>> for Gate {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let gate = self.clone();
        Box::pin(async move { Ok(gate.pass(request).await) })
    }
}
