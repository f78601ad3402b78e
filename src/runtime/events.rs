//! The runtime's events. From containerd through its own event service, from others through GetContainerEvents: on
//! containerd, that call would take events away from the kubelet (1.7) or block it (2.x). In: the streams. Out:
//! [`RuntimeEvent`]s into a bounded queue. One task only reads.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use prost::Message;
use tokio::{sync::mpsc, time::timeout};
use tonic::{Code, Request, Response, Status, Streaming, client::Grpc, codegen::http::uri::PathAndQuery};
use tonic_prost::ProstCodec;

use super::{
    Runtime, Version,
    marks::{self, ExecNews, ExecNewsSink, MAX_ID},
};
use crate::proto::{
    containerd::{
        SubscribeRequest,
        events::{ContainerCreate, ContainerDelete, TaskExit, TaskOom, TaskPaused, TaskResumed, TaskStart},
    },
    cri::{ContainerEventType, GetEventsRequest},
};

/// 1,024 events may wait for the inventory. Further ones are dropped, which requests a resync.
pub(crate) const QUEUE: usize = 1024;

/// 2 MiB: the longest CRI event. It contains the statuses of its pod and of all the pod's containers, with their labels,
/// annotations and mounts: usually some KiB. A longer one ends the stream, as a stream keeps the memory that it once needed.
/// The stream is then opened again, see [`Resubscriptions`], and the runtime is listed.
const MAX_EVENT: usize = 2 * 1024 * 1024;

/// 300 ms: how long to wait for the header of an event stream.
const HEADER: Duration = Duration::from_millis(300);

/// What happened to a container or a sandbox; the runtime treats both as containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RuntimeEvent {
    Created(String),
    /// Its process runs.
    Started(String),
    /// Its process ended.
    Exited {
        /// The container.
        id: String,
        /// The exit code, if the runtime reports it.
        exit_code: Option<i32>,
    },
    /// Its processes are frozen. Only containerd reports this.
    Paused(String),
    /// They run on.
    Resumed(String),
    /// The kernel killed one of its processes because its memory was used up. Only containerd reports this, before or
    /// after the exit.
    OutOfMemory(String),
    /// It was removed.
    Deleted(String),
}

impl RuntimeEvent {
    fn id(&self) -> &str {
        match self {
            Self::Created(id)
            | Self::Started(id)
            | Self::Exited { id, .. }
            | Self::Paused(id)
            | Self::Resumed(id)
            | Self::OutOfMemory(id)
            | Self::Deleted(id) => id,
        }
    }
}

/// The sending side of the queue. If it is full, it drops events and records that.
#[derive(Clone, Debug)]
pub(crate) struct EventQueue {
    sender: mpsc::Sender<RuntimeEvent>,
    /// Gets what is reported of commands.
    commands: ExecNewsSink,
    has_missed: Arc<AtomicBool>,
}

/// The receiving side of the queue.
#[derive(Debug)]
pub(crate) struct Events {
    receiver: mpsc::Receiver<RuntimeEvent>,
    has_missed: Arc<AtomicBool>,
}

/// Creates the queue, for [`QUEUE`] events. `commands` gets what is reported of commands in containers.
pub(crate) fn queue(commands: ExecNewsSink) -> (EventQueue, Events) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let has_missed = Arc::new(AtomicBool::new(false));
    (EventQueue { sender, commands, has_missed: Arc::clone(&has_missed) }, Events { receiver, has_missed })
}

impl EventQueue {
    fn push(&self, event: RuntimeEvent) {
        if event.id().len() > MAX_ID || self.sender.try_send(event).is_err() {
            self.has_missed.store(true, Ordering::Relaxed);
        }
    }
}

impl Events {
    /// The next event; `None` when the stream is no longer read.
    pub(crate) async fn next(&mut self) -> Option<RuntimeEvent> {
        self.receiver.recv().await
    }

    /// Whether events were dropped since the last call.
    pub(crate) fn take_missed(&self) -> bool {
        self.has_missed.swap(false, Ordering::Relaxed)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum EventSource {
    /// Not known yet, or lost with the runtime.
    #[default]
    None,
    /// containerd's own service.
    Containerd,
    /// The CRI's GetContainerEvents.
    Cri,
    /// The runtime has no events: its lists are read more often.
    Unsupported,
}

impl EventSource {
    /// For users: `containerd`, `cri`, `unsupported`, `none`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Containerd => "containerd",
            Self::Cri => "cri",
            Self::Unsupported => "unsupported",
        }
    }

    /// The source for a runtime.
    pub(crate) fn of(runtime: &Version) -> Self {
        if runtime.name == "containerd" { Self::Containerd } else { Self::Cri }
    }
}

/// How a stream of events ended.
#[derive(Debug)]
pub(crate) enum StreamEnd {
    /// The runtime ended it without an error, after this many events.
    Well(u64),
    /// It failed; with `Unimplemented` if the runtime has no such events.
    Failed(Status),
}

/// 50 ms, doubled after each stream that did not last, up to 5 s: the pause before the next subscription. A stream that
/// lasted longer than 5 s ended by chance.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// 250 ms after an event that is too long, and 1 s between two such subscriptions: nothing is wrong with the runtime, and
/// meanwhile the exits of all other containers are missed. Each subscription costs the runtime its lists.
const TOO_LONG: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(1));

/// Decides when to subscribe again.
#[derive(Debug)]
pub(crate) struct Resubscriptions(Duration);

impl Default for Resubscriptions {
    fn default() -> Self {
        Self(PAUSE.0)
    }
}

impl Resubscriptions {
    /// A stream ended after this time. Returns how long to wait.
    pub(crate) fn pause(&mut self, ended: &StreamEnd, lasted: Duration) -> Duration {
        if matches!(ended, StreamEnd::Failed(status) if status.code() == Code::OutOfRange) {
            return TOO_LONG.0.max(TOO_LONG.1.saturating_sub(lasted));
        }
        self.0 = if lasted > PAUSE.1 { PAUSE.0 } else { (self.0 * 2).min(PAUSE.1) };
        self.0
    }
}

/// 1 s: if a stream ends sooner, without an error and without an event, the runtime may have no events: CRI-O behaves
/// like this when pod events are turned off.
const AT_ONCE: Duration = Duration::from_secs(1);

/// 2 such streams in a row mean that there are no events.
const EMPTY_ENDS: u32 = 2;

/// Counts CRI streams that ended at once.
#[derive(Debug, Default)]
pub(crate) struct EmptyEnds(u32);

impl EmptyEnds {
    /// A stream ended after this time. Returns whether the runtime has no events.
    pub(crate) fn add(&mut self, source: EventSource, ended: &StreamEnd, lasted: Duration) -> bool {
        let is_empty = source == EventSource::Cri && matches!(ended, StreamEnd::Well(0)) && lasted < AT_ONCE;
        self.0 = if is_empty { self.0 + 1 } else { 0 };
        self.0 >= EMPTY_ENDS
    }
}

/// Reads the runtime's events into `queue` until the stream ends; calls `subscribed` once it is open.
pub(crate) async fn read(
    runtime: &Runtime,
    source: EventSource,
    queue: &EventQueue,
    subscribed: impl FnOnce(),
) -> StreamEnd {
    let mut events = 0;
    let mut push = |event: Option<RuntimeEvent>| {
        events += 1;
        if let Some(event) = event {
            queue.push(event);
        }
    };
    let failed = match source {
        EventSource::Containerd => {
            let _lost = LostAtEnd(&queue.commands);
            of_containerd_service(runtime, subscribed, &queue.commands, &mut push).await
        }
        EventSource::Cri => of_cri_service(runtime, subscribed, &mut push).await,
        EventSource::None | EventSource::Unsupported => Err(Status::unimplemented("no events")),
    };
    failed.map_or_else(StreamEnd::Failed, |()| StreamEnd::Well(events))
}

/// Reports that marks are missing, also when the stream is given up because the runtime is away.
struct LostAtEnd<'a>(&'a ExecNewsSink);

impl Drop for LostAtEnd<'_> {
    fn drop(&mut self) {
        self.0.pass(ExecNews::Lost);
    }
}

async fn of_containerd_service(
    runtime: &Runtime,
    subscribed: impl FnOnce(),
    commands: &ExecNewsSink,
    push: &mut impl FnMut(Option<RuntimeEvent>),
) -> Result<(), Status> {
    let mut client = runtime.containerd_events();
    let request = SubscribeRequest { filters: vec!["namespace==k8s.io".to_owned()] };
    let mut stream = subscribe(client.subscribe(request), subscribed).await?;
    commands.pass(ExecNews::Subscribed);
    while let Some(envelope) = stream.message().await? {
        let payload = envelope.event.map(|event| event.value).unwrap_or_default();
        push(of_containerd(&envelope.topic, &payload));
        if let Some(mark) = marks::of_containerd(&envelope.topic, envelope.timestamp.as_ref(), &payload) {
            commands.pass(ExecNews::Mark(mark));
        }
    }
    Ok(())
}

async fn of_cri_service(
    runtime: &Runtime,
    subscribed: impl FnOnce(),
    push: &mut impl FnMut(Option<RuntimeEvent>),
) -> Result<(), Status> {
    let mut client = Grpc::new(runtime.channel()).max_decoding_message_size(MAX_EVENT);
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = PathAndQuery::from_static("/runtime.v1.RuntimeService/GetContainerEvents");
    let codec = ProstCodec::<GetEventsRequest, CriEvent>::default();
    let answer = client.server_streaming(Request::new(GetEventsRequest {}), path, codec);
    let mut stream = subscribe(answer, subscribed).await?;
    while let Some(event) = stream.message().await? {
        push(Some(of_cri(event)));
    }
    Ok(())
}

/// A runtime may send no header before its first event: after a while, the subscription counts as established.
async fn subscribe<T>(
    answer: impl Future<Output = Result<Response<Streaming<T>>, Status>>,
    subscribed: impl FnOnce(),
) -> Result<Streaming<T>, Status> {
    let mut answer = pin!(answer);
    if let Ok(early) = timeout(HEADER, &mut answer).await {
        let stream = early?.into_inner();
        subscribed();
        return Ok(stream);
    }
    subscribed();
    Ok(answer.await?.into_inner())
}

fn of_containerd(topic: &str, payload: &[u8]) -> Option<RuntimeEvent> {
    Some(match topic {
        "/containers/create" => RuntimeEvent::Created(ContainerCreate::decode(payload).ok()?.id),
        "/containers/delete" => RuntimeEvent::Deleted(ContainerDelete::decode(payload).ok()?.id),
        "/tasks/start" => RuntimeEvent::Started(TaskStart::decode(payload).ok()?.container_id),
        "/tasks/paused" => RuntimeEvent::Paused(TaskPaused::decode(payload).ok()?.container_id),
        "/tasks/resumed" => RuntimeEvent::Resumed(TaskResumed::decode(payload).ok()?.container_id),
        "/tasks/oom" => RuntimeEvent::OutOfMemory(TaskOom::decode(payload).ok()?.container_id),
        "/tasks/exit" => {
            let exit = TaskExit::decode(payload).ok()?;
            // The exit of an exec process is not the container's.
            if exit.id != exit.container_id {
                return None;
            }
            RuntimeEvent::Exited { id: exit.container_id, exit_code: Some(exit.exit_status as i32) }
        }
        _ => return None,
    })
}

/// The parts of a `ContainerEventResponse` that are read: each event contains everything that the runtime knows of the
/// pod.
#[derive(Clone, PartialEq, Message)]
struct CriEvent {
    #[prost(string, tag = "1")]
    container_id: String,
    #[prost(enumeration = "ContainerEventType", tag = "2")]
    kind: i32,
    #[prost(message, repeated, tag = "5")]
    containers: Vec<ExitCode>,
}

/// The parts of a `ContainerStatus` that are read.
#[derive(Clone, PartialEq, Message)]
struct ExitCode {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(int32, tag = "7")]
    exit_code: i32,
}

fn of_cri(event: CriEvent) -> RuntimeEvent {
    let (kind, id) = (event.kind(), event.container_id);
    match kind {
        ContainerEventType::ContainerCreatedEvent => RuntimeEvent::Created(id),
        ContainerEventType::ContainerStartedEvent => RuntimeEvent::Started(id),
        ContainerEventType::ContainerDeletedEvent => RuntimeEvent::Deleted(id),
        ContainerEventType::ContainerStoppedEvent => {
            let status = event.containers.iter().find(|status| status.id == id);
            RuntimeEvent::Exited { exit_code: status.map(|status| status.exit_code), id }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        demo::{EmbeddedRuntime, Options},
        proto::cri::{PodSandboxConfig, PodSandboxMetadata, RunPodSandboxRequest},
    };

    #[test]
    fn two_streams_in_a_row_that_end_at_once_and_well_without_an_event_mean_that_there_are_none() {
        let quick = Duration::from_millis(999);
        let failed = || StreamEnd::Failed(Status::internal("not now"));
        let cri = |ended, lasted| (EventSource::Cri, ended, lasted);
        for (rule, ends, has_none) in [
            ("twice", vec![cri(StreamEnd::Well(0), quick), cri(StreamEnd::Well(0), quick)], true),
            ("once", vec![cri(StreamEnd::Well(0), quick)], false),
            ("with an event", vec![cri(StreamEnd::Well(0), quick), cri(StreamEnd::Well(1), quick)], false),
            ("after a while", vec![cri(StreamEnd::Well(0), quick), cri(StreamEnd::Well(0), AT_ONCE)], false),
            ("by failing", vec![cri(failed(), quick), cri(failed(), quick)], false),
            (
                "not in a row",
                vec![cri(StreamEnd::Well(0), quick), cri(failed(), quick), cri(StreamEnd::Well(0), quick)],
                false,
            ),
            (
                "of containerd, which has events",
                vec![
                    (EventSource::Containerd, StreamEnd::Well(0), quick),
                    (EventSource::Containerd, StreamEnd::Well(0), quick),
                ],
                false,
            ),
        ] {
            let mut count = EmptyEnds::default();
            let last = ends.iter().map(|(source, ended, lasted)| count.add(*source, ended, *lasted)).last();
            assert_eq!(last, Some(has_none), "{rule}");
        }
    }

    #[test]
    fn row_20_after_an_event_that_is_too_long_the_next_subscription_does_not_wait_ever_longer() {
        let millis = Duration::from_millis;
        let too_long = || StreamEnd::Failed(Status::out_of_range("decoded message length too large"));
        let failed = || StreamEnd::Failed(Status::unavailable("not now"));
        let mut next = Resubscriptions::default();
        for (ended, lasted, pause) in [
            (failed(), 10, 100),
            (too_long(), 0, 1_000),
            (too_long(), 10, 990),
            (too_long(), 990, 250),
            (too_long(), 3_000, 250),
            (too_long(), 60_000, 250),
            (failed(), 10, 200),
            (StreamEnd::Well(3), 10, 400),
            (failed(), 5_000, 800),
            (failed(), 5_000, 1_600),
            (failed(), 5_000, 3_200),
            (failed(), 5_000, 5_000),
            (failed(), 5_000, 5_000),
            (failed(), 5_001, 50),
        ] {
            assert_eq!(next.pause(&ended, millis(lasted)), millis(pause), "{ended:?} after {lasted} ms");
        }
    }

    #[tokio::test]
    async fn row_20_an_event_that_is_too_long_ends_the_stream_as_one() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("runtime.sock");
        let embedded = EmbeddedRuntime::start(Options::new(&socket, dir.path().join("containers"))).unwrap();
        let runtime = Runtime::new(&socket);
        let large = async || {
            let metadata = Some(PodSandboxMetadata { name: "web".into(), ..Default::default() });
            let annotations = [("a".to_owned(), "x".repeat(MAX_EVENT))].into();
            let config = Some(PodSandboxConfig { metadata, annotations, ..Default::default() });
            let request = RunPodSandboxRequest { config, ..Default::default() };
            runtime.client().run_pod_sandbox(request).await.unwrap();
        };
        let (queue, mut pauses) = (queue(ExecNewsSink::new(drop)).0, Resubscriptions::default());
        let (open, opened) = tokio::sync::oneshot::channel();
        let read = read(&runtime, EventSource::Cri, &queue, || open.send(()).unwrap());
        let (ended, ()) = tokio::join!(read, async {
            opened.await.unwrap();
            large().await;
        });
        assert_eq!(pauses.pause(&ended, PAUSE.1), TOO_LONG.0, "{ended:?}");
        embedded.shutdown().await;
    }

    #[test]
    fn pauses_are_events_of_containerd() {
        let payload = TaskPaused { container_id: "c".into() }.encode_to_vec();
        assert_eq!(of_containerd("/tasks/paused", &payload), Some(RuntimeEvent::Paused("c".into())));
        assert_eq!(of_containerd("/tasks/resumed", &payload), Some(RuntimeEvent::Resumed("c".into())));
        assert_eq!(of_containerd("/tasks/oom", &payload), Some(RuntimeEvent::OutOfMemory("c".into())));
        assert_eq!(of_containerd("/tasks/paused", &[0xff]), None);
    }

    #[test]
    fn the_exit_of_an_exec_is_not_the_containers() {
        let exit = |id: &str| {
            TaskExit { container_id: "c".into(), id: id.into(), exit_status: 3, ..TaskExit::default() }
                .encode_to_vec()
        };
        assert_eq!(of_containerd("/tasks/exit", &exit("exec-1")), None);
        assert_eq!(
            of_containerd("/tasks/exit", &exit("c")),
            Some(RuntimeEvent::Exited { id: "c".into(), exit_code: Some(3) })
        );
        assert_eq!(of_containerd("/tasks/exit", &[0xff]), None);
        assert_eq!(of_containerd("/images/create", &[]), None);
    }
}
