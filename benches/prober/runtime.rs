//! A runtime whose node is made up: lists and statuses at once, commands as real processes. Requests in, answers out; a
//! call that would change anything is never answered, so that giving it up makes criprobe ask for the lists.

use std::{
    convert::Infallible,
    future::pending,
    io,
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use criprobe::{
    clock,
    proto::{cri, encoded::Encoded},
};
use prost::Message;
use tokio::{net::UnixListener, process::Command, runtime::Runtime as Threads, time::timeout};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status, body::Body, server::Grpc, transport::Server};
use tower::service_fn;

use crate::{
    call::Call,
    node::{CONTAINERS, KINDS, Node},
    octets::{decode, encode},
};

/// The runtime at work. Dropped, it is gone.
pub(crate) struct Runtime {
    commands: Arc<Mutex<Commands>>,
    /// Holds what serves.
    _threads: Threads,
}

/// The commands that were run.
#[derive(Default)]
pub(crate) struct Commands {
    now: usize,
    /// The most at a time.
    pub(crate) most: usize,
    /// When each began, by probe.
    pub(crate) begun: Vec<Vec<Instant>>,
}

/// What stays the same for all calls.
struct Shared {
    node: Node,
    sandboxes: Bytes,
    containers: Bytes,
    commands: Arc<Mutex<Commands>>,
}

impl Runtime {
    /// Serves `node` on `socket`.
    pub(crate) fn start(socket: &Path, node: Node) -> io::Result<Self> {
        let threads = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("fake runtime")
            .enable_all()
            .build()?;
        let begun = vec![Vec::new(); node.probes()];
        let commands = Arc::new(Mutex::new(Commands { begun, ..Commands::default() }));
        let shared = Arc::new(Shared {
            sandboxes: node.sandboxes().encode_to_vec().into(),
            containers: node.containers().encode_to_vec().into(),
            node,
            commands: commands.clone(),
        });
        let listener = {
            let _entered = threads.enter();
            UnixListener::bind(socket)?
        };
        let service = service_fn(move |request: http::Request<Body>| {
            let shared = shared.clone();
            async move { Ok::<_, Infallible>(route(shared, request).await) }
        });
        threads.spawn(Server::builder().serve_with_incoming(service, UnixListenerStream::new(listener)));
        Ok(Self { commands, _threads: threads })
    }

    /// Takes what is known of the commands so far; counting starts again.
    pub(crate) fn take_commands(&self) -> Commands {
        let mut commands = lock(&self.commands);
        let begun = vec![Vec::new(); commands.begun.len()];
        let fresh = Commands { now: commands.now, most: commands.now, begun };
        std::mem::replace(&mut commands, fresh)
    }
}

fn lock(commands: &Mutex<Commands>) -> std::sync::MutexGuard<'_, Commands> {
    commands.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn route(shared: Arc<Shared>, request: http::Request<Body>) -> http::Response<Body> {
    let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    let unary = service_fn(move |request: Request<Bytes>| {
        let (shared, method) = (shared.clone(), method.clone());
        async move { answer(&shared, &method, request.into_inner()).await.map(Response::new) }
    });
    Grpc::new(Encoded).unary(unary, request).await
}

async fn answer(shared: &Shared, method: &str, request: Bytes) -> Result<Bytes, Status> {
    let node = &shared.node;
    match method {
        "Version" => Ok(Bytes::from_static(&Call::Version.answer()[5..])),
        "ListPodSandbox" => Ok(shared.sandboxes.clone()),
        "ListContainers" => Ok(shared.containers.clone()),
        "PodSandboxStatus" => {
            let asked = decode::<cri::PodSandboxStatusRequest>(request)?;
            encode(node.sandbox_status(&asked.pod_sandbox_id))
        }
        "ContainerStatus" => {
            let asked = decode::<cri::ContainerStatusRequest>(request)?;
            encode(node.container_status(&asked.container_id))
        }
        "ExecSync" => encode(Some(run(shared, decode(request)?).await?)),
        // Events that never come, and changes that are never made.
        "GetContainerEvents" | "RemovePodSandbox" => pending().await,
        other => Err(Status::unimplemented(format!("unknown method {other}"))),
    }
}

/// Runs the command as a process of this machine. Its last word names the probe: `POD CONTAINER KIND` are reported by
/// the container's id and that word.
async fn run(shared: &Shared, asked: cri::ExecSyncRequest) -> Result<cri::ExecSyncResponse, Status> {
    let probe = probe(&asked).ok_or_else(|| Status::not_found("no such container"))?;
    let _running = Running::begin(&shared.commands, probe);
    let [program, arguments @ ..] = asked.cmd.as_slice() else {
        return Err(Status::invalid_argument("no command"));
    };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.kill_on_drop(true).spawn()?;
    let limit = Duration::from_secs(u64::try_from(asked.timeout).unwrap_or_default().max(1));
    let status =
        timeout(limit, child.wait()).await.map_err(|_| Status::deadline_exceeded("timeout exceeded"))??;
    Ok(cri::ExecSyncResponse { exit_code: status.code().unwrap_or(137), ..Default::default() })
}

fn probe(asked: &cri::ExecSyncRequest) -> Option<usize> {
    let (pod, container) = asked.container_id.strip_prefix("container-")?.split_once('-')?;
    let kind = KINDS.iter().position(|kind| asked.cmd.last().is_some_and(|word| word == kind))?;
    let (pod, container): (usize, usize) = (pod.parse().ok()?, container.parse().ok()?);
    Some((pod * CONTAINERS + container) * KINDS.len() + kind)
}

/// A command at work; counted for as long as this is there.
struct Running<'a>(&'a Mutex<Commands>);

impl<'a> Running<'a> {
    fn begin(commands: &'a Mutex<Commands>, probe: usize) -> Self {
        let mut now = lock(commands);
        now.now += 1;
        now.most = now.most.max(now.now);
        if let Some(begun) = now.begun.get_mut(probe) {
            begun.push(clock::now());
        }
        Self(commands)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        lock(self.0).now -= 1;
    }
}
