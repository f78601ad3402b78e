//! The runtime of this bench: well-behaved pods that are there from the start, and hostile ones that clients make and
//! remove. It reports changes as events, as a runtime does, and does to commands what their first word says.

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    future::pending,
    io,
    path::Path,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use bytes::Bytes;
use criprobe::proto::{cri, encoded::Encoded};
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::{
    net::{UnixListener, UnixStream},
    runtime::Runtime as Threads,
    sync::broadcast,
    time::sleep,
};
use tokio_stream::{StreamExt, wrappers::BroadcastStream};
use tonic::{Request, Response, Status, body::Body, server::Grpc};
use tower::service_fn;

use crate::{
    call::Call,
    good::Good,
    octets::{decode, encode},
    pods::Pods,
    servers::Seen,
    tricks::{self, Deed},
};

/// 20 ms: how long a well-behaved command runs.
const COMMAND: Duration = Duration::from_millis(20);

/// 16 MiB less 1 KiB: what commands that print too much print. An answer holds 16 MiB.
const FLOOD: usize = (16 << 20) - 1024;

/// 4,000 bytes: what an error says of a command. A client takes 16 KiB of headers.
const ECHO: usize = 4000;

/// 256 events wait for a subscriber; one that is slower loses some.
const EVENTS: usize = 256;

/// The runtime at work. Dropped, it is gone.
pub(crate) struct Runtime {
    shared: Arc<Shared>,
    /// Holds what serves.
    _threads: Threads,
}

/// What all calls share.
struct Shared {
    good: Arc<Good>,
    /// The well-behaved pods' part of the lists; hostile ones are appended.
    sandboxes: Bytes,
    containers: Bytes,
    hostile: Mutex<Pods>,
    /// Commands of hostile pods.
    seen: Arc<Seen>,
    events: broadcast::Sender<Bytes>,
}

impl Shared {
    fn hostile(&self) -> MutexGuard<'_, Pods> {
        self.hostile.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runtime {
    /// Serves on `socket`.
    pub(crate) fn start(socket: &Path, good: Arc<Good>) -> io::Result<Self> {
        let threads = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("fake runtime")
            .enable_all()
            .build()?;
        let shared = Arc::new(Shared {
            sandboxes: good.sandboxes().encode_to_vec().into(),
            containers: good.containers().encode_to_vec().into(),
            good,
            hostile: Mutex::new(Pods::default()),
            seen: Arc::new(Seen::default()),
            events: broadcast::channel(EVENTS).0,
        });
        let listener = {
            let _entered = threads.enter();
            UnixListener::bind(socket)?
        };
        let served = shared.clone();
        threads.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (shared, Ok(stream)) = (served.clone(), stream.into_std()) else { continue };
                let serving = thread::Builder::new().name("fake runtime".into());
                let serving = serving.spawn(move || serve(shared, stream));
                serving.expect("the bench has threads enough");
            }
        });
        Ok(Self { shared, _threads: threads })
    }

    /// The commands of hostile pods.
    pub(crate) fn seen(&self) -> &Seen {
        &self.shared.seen
    }
}

/// Serves one connection to its end, on a thread of its own: an answer of 16 MiB takes tens of milliseconds to put
/// together, which the calls of other connections must not wait for. That would be this bench's doing, not criprobe's.
fn serve(shared: Arc<Shared>, stream: std::os::unix::net::UnixStream) {
    let threads = tokio::runtime::Builder::new_current_thread().enable_all().build();
    threads.expect("the bench has descriptors enough").block_on(async {
        let stream = stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream));
        let stream = TokioIo::new(stream.expect("a socket can be watched"));
        let service = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
            let shared = shared.clone();
            async move { Ok::<_, Infallible>(route(shared, request.map(Body::new)).await) }
        });
        // A connection that breaks is its client's affair.
        let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await;
    });
}

async fn route(shared: Arc<Shared>, request: http::Request<Body>) -> http::Response<Body> {
    let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    if method == "GetContainerEvents" {
        let stream = service_fn(move |_: Request<Bytes>| {
            let events = BroadcastStream::new(shared.events.subscribe()).filter_map(Result::ok).map(Ok);
            async move { Ok::<_, Status>(Response::new(events)) }
        });
        return Grpc::new(Encoded).server_streaming(stream, request).await;
    }
    let unary = service_fn(move |request: Request<Bytes>| {
        let (shared, method) = (shared.clone(), method.clone());
        async move { answer(&shared, &method, request.into_inner()).await.map(Response::new) }
    });
    Grpc::new(Encoded).unary(unary, request).await
}

async fn answer(shared: &Shared, method: &str, request: Bytes) -> Result<Bytes, Status> {
    match method {
        "Version" => Ok(Bytes::from_static(&Call::Version.answer()[5..])),
        "ListPodSandbox" => Ok(joined(&shared.sandboxes, &shared.hostile().sandboxes())),
        "ListContainers" => Ok(joined(&shared.containers, &shared.hostile().containers())),
        "PodSandboxStatus" => {
            let id = decode::<cri::PodSandboxStatusRequest>(request)?.pod_sandbox_id;
            encode(shared.good.sandbox_status(&id).or_else(|| shared.hostile().sandbox_status(&id)))
        }
        "ContainerStatus" => {
            let id = decode::<cri::ContainerStatusRequest>(request)?.container_id;
            encode(shared.good.container_status(&id).or_else(|| shared.hostile().container_status(&id)))
        }
        "ExecSync" => run(shared, decode(request)?).await,
        other => change(shared, other, request),
    }
}

/// Two parts of a list are one list: that is how protobuf reads repeated fields.
fn joined(good: &Bytes, hostile: &[u8]) -> Bytes {
    if hostile.is_empty() { good.clone() } else { [good, hostile].concat().into() }
}

/// A call that makes or removes a hostile pod, or a part of one.
fn change(shared: &Shared, method: &str, request: Bytes) -> Result<Bytes, Status> {
    let mut pods = shared.hostile();
    let (answer, events) = match method {
        "RunPodSandbox" => pods.run(decode(request)?)?,
        "CreateContainer" => pods.create(decode(request)?)?,
        "StartContainer" => pods.start(&decode::<cri::StartContainerRequest>(request)?.container_id)?,
        "StopPodSandbox" => pods.stop(&decode::<cri::StopPodSandboxRequest>(request)?.pod_sandbox_id),
        "RemovePodSandbox" => pods.remove(&decode::<cri::RemovePodSandboxRequest>(request)?.pod_sandbox_id),
        other => return Err(Status::unimplemented(format!("unknown method {other}"))),
    };
    for event in events {
        // Fails where there is no subscriber.
        let _ = shared.events.send(event.encode_to_vec().into());
    }
    Ok(answer)
}

async fn run(shared: &Shared, asked: cri::ExecSyncRequest) -> Result<Bytes, Status> {
    if shared.good.is_relayed(&asked) {
        return Ok(Bytes::from_static(&Call::ExecSync.answer()[5..]));
    }
    if shared.good.note(&asked) {
        sleep(COMMAND).await;
        return Ok(Bytes::new());
    }
    let trick = tricks::of_command(&asked.cmd).ok_or_else(|| Status::not_found("no such container"))?;
    if !shared.hostile().is_running(&asked.container_id) {
        return Err(Status::not_found("no such container"));
    }
    let _open = shared.seen.begin(trick);
    match Deed::of(&asked.cmd) {
        Some(Deed::Echo) => {
            // Words beyond those that are shown are left alone: all of them take this bench longer than criprobe.
            let mut text = "failed to exec in container:".to_owned();
            for word in &asked.cmd {
                if text.len() >= ECHO {
                    break;
                }
                let shown = word.floor_char_boundary(ECHO);
                text.push_str(&format!(" {:?}", &word[..shown]));
            }
            text.truncate(ECHO);
            Err(Status::unknown(text))
        }
        Some(Deed::Print) => Ok(output(0)),
        Some(Deed::Complain) => Ok(output(1)),
        Some(Deed::Overflow) => Ok(output(2)),
        Some(Deed::Hang) => pending().await,
        None => Err(Status::invalid_argument("no such command")),
    }
}

/// What commands print that print too much: on standard output, on standard error, on both. Encoded once: on a node the
/// pod's own processes make it up, in the pod's share of the processors.
fn output(which: usize) -> Bytes {
    static OUTPUTS: LazyLock<[Bytes; 3]> = LazyLock::new(|| {
        let printed = b"\xff\x1b[2J flood\n".repeat(FLOOD / 12);
        let stderr = cri::ExecSyncResponse { stderr: printed.clone(), exit_code: 1, ..Default::default() };
        let stdout = cri::ExecSyncResponse { stdout: printed, ..Default::default() };
        let [stdout, stderr] = [stdout, stderr].map(|answer| answer.encode_to_vec());
        let both = [&stdout[..], &stderr].concat();
        [stdout, stderr, both].map(Bytes::from)
    });
    OUTPUTS[which].clone()
}

/// What a runtime says of a container besides its status.
pub(crate) fn info(variables: &[cri::KeyValue]) -> HashMap<String, String> {
    let variables: BTreeMap<_, _> = variables
        .iter()
        .map(|pair| (pair.key.as_str(), String::from_utf8_lossy(&pair.value).into_owned()))
        .collect();
    let shown: Vec<_> =
        variables.iter().map(|(key, value)| serde_json::json!({ "key": key, "value": value })).collect();
    let process: Vec<String> = variables.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let info = serde_json::json!({
        "config": { "envs": shown },
        "runtimeSpec": { "process": { "env": process } },
    });
    HashMap::from([("info".to_owned(), info.to_string())])
}
