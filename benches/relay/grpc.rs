//! Clients and a null runtime made with a gRPC library (tonic): what they cost both ends is what kubelet and containerd pay,
//! and their threads compete for the cores with what stands in the middle. Messages are opaque octets to both.

use std::{
    convert::Infallible,
    future::{Future, ready},
    io,
    path::Path,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use criprobe::{clock, proto::encoded::Encoded};
use http::{Request, Response, uri::PathAndQuery};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{UnixListener, UnixStream},
    runtime::Runtime,
    task::JoinSet,
    time::timeout,
};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{
    Status,
    body::Body,
    client,
    server::{self, NamedService, UnaryService},
    transport::{Channel, Endpoint, Server},
};
use tower::{Service, service_fn};

use crate::{call::Call, measure::Load};

/// 10 s: an answer that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// The octets before a message: a flag and the length.
const PREFIX: usize = 5;

/// Serves on `socket` until the process ends, with threads of its own.
pub(crate) fn serve(socket: &Path) -> io::Result<()> {
    let runtime = Runtime::new()?;
    let listener = runtime.block_on(async { UnixListener::bind(socket) })?;
    let serving = Server::builder().serve_with_incoming(NullRuntime, UnixListenerStream::new(listener));
    std::thread::Builder::new().name("gRPC runtime".into()).spawn(move || runtime.block_on(serving))?;
    Ok(())
}

/// Connections that make one kind of call over and over, with threads of their own.
pub(crate) struct Clients {
    runtime: Runtime,
    channels: Vec<Channel>,
    call: Call,
    in_flight: usize,
}

impl Clients {
    /// Connects as often as the load says.
    pub(crate) fn connect(socket: &Path, call: Call, load: Load) -> Result<Self> {
        let runtime = Runtime::new()?;
        let connect = async || {
            let socket = socket.to_owned();
            let connector = service_fn(move |_| {
                let socket = socket.clone();
                async move { UnixStream::connect(socket).await.map(TokioIo::new) }
            });
            Endpoint::from_static("http://localhost").connect_with_connector(connector).await
        };
        let channels = runtime.block_on(async {
            let mut channels = Vec::new();
            for _ in 0..load.connections {
                channels.push(connect().await?);
            }
            Ok::<_, tonic::transport::Error>(channels)
        });
        Ok(Self { channels: channels.context("connect")?, runtime, call, in_flight: load.in_flight })
    }

    /// Keeps the calls going until `deadline`, then waits for the last answers. Returns the duration of each in
    /// nanoseconds.
    pub(crate) fn run(&mut self, deadline: Instant) -> Result<Vec<u32>> {
        self.runtime.block_on(async {
            let mut callers = JoinSet::new();
            for channel in &self.channels {
                for _ in 0..self.in_flight {
                    callers.spawn(call_until(channel.clone(), self.call, deadline));
                }
            }
            let mut took = Vec::new();
            while let Some(ended) = callers.join_next().await {
                took.extend(ended.context("a caller panicked")??);
            }
            Ok(took)
        })
    }
}

/// One call after the other. Compares every answer.
async fn call_until(channel: Channel, call: Call, deadline: Instant) -> Result<Vec<u32>> {
    let mut client = client::Grpc::new(channel);
    let request = Bytes::from(call.request()).slice(PREFIX..);
    let mut took = Vec::with_capacity(1 << 15);
    let mut now = clock::now();
    while now < deadline {
        let sent_at = now;
        let answered = async {
            client.ready().await?;
            let request = tonic::Request::new(request.clone());
            let answer = client.unary(request, PathAndQuery::from_static(call.path()), Encoded).await?;
            Ok::<_, anyhow::Error>(answer.into_inner())
        };
        let answer = timeout(PATIENCE, answered).await.context("no answer")??;
        ensure!(answer == call.answer()[PREFIX..], "an answer differs");
        now = clock::now();
        took.push((now - sent_at).as_nanos().try_into().unwrap_or(u32::MAX));
    }
    Ok(took)
}

/// Answers at once with canned messages.
#[derive(Clone)]
struct NullRuntime;

impl NamedService for NullRuntime {
    const NAME: &'static str = "runtime.v1.RuntimeService";
}

impl Service<Request<Body>> for NullRuntime {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let call = Call::of_path(request.uri().path().as_bytes());
        Box::pin(async move {
            Ok(match call {
                Some(call) => server::Grpc::new(Encoded).unary(Canned(call), request).await,
                None => Status::unimplemented("the null runtime has no such call").into_http(),
            })
        })
    }
}

struct Canned(Call);

impl UnaryService<Bytes> for Canned {
    type Response = Bytes;
    type Future = std::future::Ready<Result<tonic::Response<Bytes>, Status>>;

    fn call(&mut self, _: tonic::Request<Bytes>) -> Self::Future {
        ready(Ok(tonic::Response::new(Bytes::from_static(&self.0.answer()[PREFIX..]))))
    }
}
