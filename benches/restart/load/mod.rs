//! What clients do while the process in the middle is replaced: calls at a steady rate, a long command, a pull, large answers
//! that are read slowly, and a stream of events. In: the socket that leads through the middle, and the runtime's own. Out: what
//! became of each. Also the load of a test; it judges nothing.

mod answers;
pub(crate) mod calls;
mod events;

use std::{fs, path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use criprobe::proto::cri::{self, runtime_service_client::RuntimeServiceClient};
use hyper_util::rt::TokioIo;
use tokio::{net::UnixStream, sync::watch, task::JoinHandle};
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use self::{
    answers::Answer,
    calls::TimedCall,
    events::{Compared, Events},
};

/// A client of the runtime service.
type Cri = RuntimeServiceClient<Channel>;

/// 6 MB: a large answer, and half of the long command's, of which the embedded runtime keeps 16 MiB.
const LARGE: usize = 6_000_000;

/// 1 MiB may be on its way to a client, so that sockets are full and the middle has to keep some of it.
const WINDOW: u32 = 1 << 20;

/// 16 MiB, as kubelet and crictl allow a message.
const MESSAGE: usize = 16 << 20;

/// What everything needs that makes calls.
#[derive(Clone)]
struct Target {
    /// Of a container that lives as long as the load.
    container: String,
    /// What large answers consist of: a file, and its bytes.
    file: String,
    content: Arc<Vec<u8>>,
    /// Becomes true when it is time to end.
    is_over: watch::Receiver<bool>,
}

/// Clients at work.
pub(crate) struct Load {
    is_over: watch::Sender<bool>,
    past: Cri,
    pod: String,
    steady: JoinHandle<Vec<TimedCall>>,
    answers: JoinHandle<Vec<Answer>>,
    exec: JoinHandle<Answer>,
    pull: JoinHandle<Answer>,
    events: Compared,
}

/// What became of the calls.
pub(crate) struct Outcome {
    /// Those that were made 200 times a second.
    pub(crate) steady: Vec<TimedCall>,
    /// Large ones.
    pub(crate) answers: Vec<Answer>,
    /// The long command and the pull.
    pub(crate) long: [Answer; 2],
    pub(crate) events: Events,
}

impl Load {
    /// Begins: a command that takes as long as `exec`, and a pull, which takes as long as the runtime has it. `name` is that of
    /// the pod, and of a file in `folder`.
    pub(crate) async fn begin(
        front: &Path,
        past: &Path,
        folder: &Path,
        name: &str,
        exec: Duration,
    ) -> Result<Self> {
        let content = Arc::new(noise(LARGE));
        let file = folder.join(format!("{name}.content"));
        fs::write(&file, &*content)?;
        let mut runtime = client(past);
        let (pod, container) = run_pod(&mut runtime, name).await.context("start a pod")?;
        let (sender, is_over) = watch::channel(false);
        let target = Target { container, file: file.to_string_lossy().into_owned(), content, is_over };
        let events = Compared::begin(&client(front), &runtime, &pod, target.is_over.clone()).await?;
        Ok(Self {
            is_over: sender,
            past: runtime,
            pod: pod.pod_sandbox_id,
            events,
            steady: tokio::spawn(calls::steadily(client(front), target.is_over.clone())),
            exec: tokio::spawn(answers::long(client(front), target.clone(), exec)),
            pull: tokio::spawn(answers::pull(channel(front))),
            answers: tokio::spawn(answers::large(channel(front), target)),
        })
    }

    /// Whether the long command and the pull have ended.
    pub(crate) fn has_ended_long_calls(&self) -> bool {
        self.exec.is_finished() && self.pull.is_finished()
    }

    /// Waits for the long calls, and ends all others.
    pub(crate) async fn end(mut self) -> Result<Outcome> {
        let long = [self.exec.await?, self.pull.await?];
        self.is_over.send_replace(true);
        let (steady, answers) = (self.steady.await?, self.answers.await?);
        let events = self.events.end().await?;
        let pod_sandbox_id = self.pod;
        let stop = cri::StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() };
        self.past.stop_pod_sandbox(stop).await?;
        self.past.remove_pod_sandbox(cri::RemovePodSandboxRequest { pod_sandbox_id }).await?;
        Ok(Outcome { steady, answers, long, events })
    }
}

impl Outcome {
    /// How many calls there were, with the stream, if all of them ended well.
    pub(crate) fn calls(&self) -> usize {
        self.steady.len() + self.answers.len() + self.long.len() + 1
    }

    /// Calls that had no answer, and streams that ended.
    pub(crate) fn cut(&self) -> usize {
        self.cut_by_kind().iter().map(|(count, _)| count).sum()
    }

    /// The same, each with what it was.
    pub(crate) fn cut_by_kind(&self) -> [(usize, &'static str); 5] {
        let [exec, pull] = &self.long;
        [
            (self.steady.iter().filter(|call| call.error.is_some()).count(), "of the 200 a second"),
            (self.answers.iter().filter(|answer| answer.is_err()).count(), "large"),
            (usize::from(exec.is_err()), "command"),
            (usize::from(pull.is_err()), "pull"),
            (self.events.ends, "stream"),
        ]
    }

    /// Why the first one had none.
    pub(crate) fn first_error(&self) -> Option<&str> {
        let large = self.answers.iter().chain(&self.long).filter_map(|answer| answer.as_ref().err());
        let steady = self.steady.iter().filter_map(|call| call.error.as_ref());
        large.chain(steady).chain(&self.events.first_error).next().map(String::as_str)
    }

    /// Answers that are not what the command printed.
    pub(crate) fn wrong(&self) -> usize {
        self.answers.iter().chain(&self.long).filter(|answer| **answer == Ok(false)).count()
    }

    /// The longest of the steady calls that had an answer.
    pub(crate) fn longest(&self) -> Duration {
        let answered = self.steady.iter().filter(|call| call.error.is_none());
        answered.map(|call| call.took).max().unwrap_or_default()
    }
}

/// Whether somebody answers Version on this socket.
pub(crate) async fn is_answered(socket: &Path) -> bool {
    client(socket).version(cri::VersionRequest::default()).await.is_ok()
}

/// A connection, made when it is needed, and again when it has ended.
fn channel(socket: &Path) -> Channel {
    let socket = socket.to_owned();
    let connector = service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://localhost").initial_stream_window_size(WINDOW);
    endpoint.initial_connection_window_size(WINDOW).connect_with_connector_lazy(connector)
}

fn client(socket: &Path) -> Cri {
    RuntimeServiceClient::new(channel(socket)).max_decoding_message_size(MESSAGE)
}

/// A pod with a container that does nothing; as its creation returns them.
async fn run_pod(runtime: &mut Cri, name: &str) -> Result<(events::Pod, String)> {
    let labels = [("name", name), ("namespace", "default"), ("uid", name)];
    let labels = labels.map(|(key, value)| (format!("io.kubernetes.pod.{key}"), value.to_owned()));
    let config = cri::PodSandboxConfig {
        metadata: Some(cri::PodSandboxMetadata {
            name: name.into(),
            uid: name.into(),
            namespace: "default".into(),
            attempt: 0,
        }),
        labels: labels.into_iter().collect(),
        ..Default::default()
    };
    let request = cri::RunPodSandboxRequest { config: Some(config.clone()), ..Default::default() };
    let pod_sandbox_id = runtime.run_pod_sandbox(request).await?.into_inner().pod_sandbox_id;
    let pod = events::Pod { pod_sandbox_id, config };
    let container = events::start(runtime, &pod, "app", 0).await?;
    Ok((pod, container))
}

/// Bytes in which a part that is lost, doubled or moved shows (xorshift64).
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend(next());
    }
    bytes.truncate(length);
    bytes
}
