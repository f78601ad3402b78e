//! An event stream through the middle beside one on the runtime's own socket, and containers that come and go. Out: what the one
//! has and the other has not.

use std::{collections::HashMap, time::Duration};

use anyhow::Result;
use criprobe::proto::cri;
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{interval, timeout},
};
use tonic::{Status, Streaming};

use super::Cri;

/// 250 ms between two containers, each of which makes a few events.
const PACE: Duration = Duration::from_millis(250);

/// 1 s: when no event has come for that long after the end, none is on its way.
const QUIET: Duration = Duration::from_secs(1);

/// A pod, as CreateContainer wants it.
#[derive(Clone)]
pub(super) struct Pod {
    pub(super) pod_sandbox_id: String,
    pub(super) config: cri::PodSandboxConfig,
}

/// Of which container it is, of what kind, and when it was made.
type Event = (String, i32, i64);

type Stream = Streaming<cri::ContainerEventResponse>;

/// Both streams at work.
pub(crate) struct Compared {
    through: JoinHandle<Followed>,
    past: JoinHandle<Followed>,
    churn: JoinHandle<Result<()>>,
}

/// What came of a stream.
#[derive(Default)]
struct Followed {
    events: HashMap<Event, usize>,
    ends: Vec<String>,
}

/// What came of both.
#[derive(Debug)]
pub(crate) struct Events {
    /// Through the middle.
    pub(crate) came: usize,
    /// On the runtime's own socket only.
    pub(crate) missing: usize,
    /// Twice, through the middle.
    pub(crate) doubled: usize,
    /// How often the stream through the middle ended.
    pub(crate) ends: usize,
    /// Why, the first time.
    pub(crate) first_error: Option<String>,
}

impl Compared {
    /// Begins both, then the containers.
    pub(super) async fn begin(
        through: &Cri,
        past: &Cri,
        pod: &Pod,
        is_over: watch::Receiver<bool>,
    ) -> Result<Self> {
        let streams = (subscribe(through).await?, subscribe(past).await?);
        Ok(Self {
            through: tokio::spawn(follow(through.clone(), streams.0, is_over.clone())),
            past: tokio::spawn(follow(past.clone(), streams.1, is_over.clone())),
            churn: tokio::spawn(churn(past.clone(), pod.clone(), is_over)),
        })
    }

    /// Waits until both are quiet, once all is over.
    pub(super) async fn end(self) -> Result<Events> {
        self.churn.await??;
        let (through, past) = (self.through.await?, self.past.await?);
        let missing = past.events.keys().filter(|event| !through.events.contains_key(*event)).count();
        let came = through.events.values().sum();
        Ok(Events {
            came,
            missing,
            doubled: came - through.events.len(),
            ends: through.ends.len(),
            first_error: through.ends.into_iter().next(),
        })
    }
}

async fn subscribe(client: &Cri) -> Result<Stream, Status> {
    Ok(client.clone().get_container_events(cri::GetEventsRequest {}).await?.into_inner())
}

/// Collects events until all is over and quiet. Subscribes again when the stream ends.
async fn follow(client: Cri, mut stream: Stream, is_over: watch::Receiver<bool>) -> Followed {
    let mut followed = Followed::default();
    loop {
        let error = match timeout(QUIET, stream.message()).await {
            Err(_elapsed) if *is_over.borrow() => return followed,
            Err(_elapsed) => continue,
            Ok(Ok(Some(event))) => {
                let event = (event.container_id, event.container_event_type, event.created_at);
                *followed.events.entry(event).or_default() += 1;
                continue;
            }
            Ok(Ok(None)) => "the stream ended".to_owned(),
            Ok(Err(status)) => status.to_string(),
        };
        followed.ends.push(error);
        while !*is_over.borrow() {
            match timeout(QUIET, subscribe(&client)).await {
                Ok(Ok(again)) => {
                    stream = again;
                    break;
                }
                Ok(Err(_)) => tokio::time::sleep(PACE).await,
                Err(_elapsed) => {}
            }
        }
        if *is_over.borrow() {
            return followed;
        }
    }
}

/// Containers that come and go, one after the other.
async fn churn(mut past: Cri, pod: Pod, mut is_over: watch::Receiver<bool>) -> Result<()> {
    let mut due = interval(PACE);
    for attempt in 0.. {
        tokio::select! {
            _ = is_over.changed() => break,
            _ = due.tick() => {}
        }
        let container_id = start(&mut past, &pod, "brief", attempt).await?;
        let stop = cri::StopContainerRequest { container_id: container_id.clone(), timeout: 0 };
        past.stop_container(stop).await?;
        past.remove_container(cri::RemoveContainerRequest { container_id }).await?;
    }
    Ok(())
}

/// Makes a container that does nothing, and starts it.
pub(super) async fn start(runtime: &mut Cri, pod: &Pod, name: &str, attempt: u32) -> Result<String> {
    let mut labels = pod.config.labels.clone();
    labels.insert("io.kubernetes.container.name".into(), name.into());
    let config = cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata { name: name.into(), attempt }),
        image: Some(cri::ImageSpec { image: "localhost/idle:1".into(), ..Default::default() }),
        labels,
        ..Default::default()
    };
    let create = cri::CreateContainerRequest {
        pod_sandbox_id: pod.pod_sandbox_id.clone(),
        config: Some(config),
        sandbox_config: Some(pod.config.clone()),
    };
    let container_id = runtime.create_container(create).await?.into_inner().container_id;
    runtime.start_container(cri::StartContainerRequest { container_id: container_id.clone() }).await?;
    Ok(container_id)
}
