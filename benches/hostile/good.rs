//! The pods that behave: what the runtime lists of them, and when their probes came. Each has one container with two
//! probes of a second; a quarter of all probes are exec, httpGet, tcpSocket and grpc each.

use std::{
    collections::HashMap,
    io,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use criprobe::{clock, proto::cri};
use prost::Message;

use crate::{
    call::Call,
    kubelet,
    node::{KINDS, Node},
    targets::{Targets, Treatment},
};

/// 200 pods.
pub(crate) const PODS: usize = 200;

/// Their probes.
pub(crate) const PROBES: usize = PODS * KINDS.len();

/// Their namespace.
pub(crate) const NAMESPACE: &str = "default";

/// When they were made: long ago, in nanoseconds since the epoch.
const MADE_AT: i64 = 1_700_000_000_000_000_000;

/// What dials them: a listener for each kind of probe.
const DIALLED: [(&str, Treatment); 3] =
    [("httpGet", Treatment::Answer), ("tcpSocket", Treatment::Close), ("grpc", Treatment::Serve)];

/// All of them.
pub(crate) struct Good {
    targets: [Targets; 3],
    /// When each command began, by probe.
    begun: Mutex<Vec<Vec<Instant>>>,
    /// The container that the relay's client runs its command in; the first pod's.
    relayed: String,
}

impl Good {
    /// Listens for what dials them.
    pub(crate) fn listen() -> io::Result<Self> {
        let [http, tcp, grpc] =
            DIALLED.map(|(_, treatment)| Targets::listen_promptly(KINDS.len(), PODS, treatment));
        let asked = cri::ExecSyncRequest::decode(&Call::ExecSync.request()[5..]).map_err(io::Error::other)?;
        Ok(Self {
            targets: [http?, tcp?, grpc?],
            begun: Mutex::new(vec![Vec::new(); PROBES]),
            relayed: asked.container_id,
        })
    }

    /// Takes the moments of all attempts so far, probe by probe.
    pub(crate) fn take(&self) -> Vec<Vec<Instant>> {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = std::mem::replace(&mut *begun, vec![Vec::new(); PROBES]);
        for targets in &self.targets {
            // By kind and pod.
            for (place, times) in targets.take().into_iter().enumerate() {
                all[place % PODS * KINDS.len() + place / PODS].extend(times);
            }
        }
        all
    }

    /// Notes that a command of theirs begins; says whether it is one.
    pub(crate) fn note(&self, asked: &cri::ExecSyncRequest) -> bool {
        let kind = KINDS.iter().position(|kind| asked.cmd.last().is_some_and(|word| word == kind));
        let Some((pod, kind)) = self.pod(&asked.container_id).zip(kind) else { return false };
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun[pod * KINDS.len() + kind].push(clock::now());
        true
    }

    /// Whether it is the command of the relay's client.
    pub(crate) fn is_relayed(&self, asked: &cri::ExecSyncRequest) -> bool {
        asked.container_id == self.relayed && asked.cmd.first().is_some_and(|word| word == "cat")
    }

    pub(crate) fn sandboxes(&self) -> cri::ListPodSandboxResponse {
        cri::ListPodSandboxResponse { items: (0..PODS).map(sandbox).collect() }
    }

    pub(crate) fn containers(&self) -> cri::ListContainersResponse {
        cri::ListContainersResponse { containers: (0..PODS).map(|pod| self.container(pod)).collect() }
    }

    pub(crate) fn sandbox_status(&self, id: &str) -> Option<cri::PodSandboxStatusResponse> {
        let pod = id.strip_prefix("pod-")?.parse().ok().filter(|pod| *pod < PODS)?;
        let sandbox = sandbox(pod);
        let status = cri::PodSandboxStatus {
            id: sandbox.id,
            metadata: sandbox.metadata,
            created_at: MADE_AT,
            network: Some(cri::PodSandboxNetworkStatus {
                ip: Node::address(pod).to_string(),
                ..Default::default()
            }),
            labels: sandbox.labels,
            annotations: sandbox.annotations,
            ..Default::default()
        };
        Some(cri::PodSandboxStatusResponse { status: Some(status), ..Default::default() })
    }

    pub(crate) fn container_status(&self, id: &str) -> Option<cri::ContainerStatusResponse> {
        let listed = self.container(self.pod(id)?);
        let status = cri::ContainerStatus {
            id: listed.id,
            metadata: listed.metadata,
            state: listed.state,
            created_at: MADE_AT,
            started_at: MADE_AT,
            labels: listed.labels,
            annotations: listed.annotations,
            ..Default::default()
        };
        let info = HashMap::from([("info".to_owned(), kubelet::info().to_owned())]);
        Some(cri::ContainerStatusResponse { status: Some(status), info })
    }

    fn pod(&self, container: &str) -> Option<usize> {
        if container == self.relayed {
            return Some(0);
        }
        container.strip_prefix("container-")?.parse().ok().filter(|pod| (1..PODS).contains(pod))
    }

    fn container(&self, pod: usize) -> cri::Container {
        let mut annotations = kubelet::of_container();
        for (place, kind) in KINDS.iter().enumerate() {
            annotations.insert(format!("{kind}.criprobe.dev/app"), self.probe(pod, place));
        }
        let mut labels = labels(pod);
        labels.insert("io.kubernetes.container.name".to_owned(), "app".to_owned());
        cri::Container {
            id: if pod == 0 { self.relayed.clone() } else { format!("container-{pod}") },
            pod_sandbox_id: format!("pod-{pod}"),
            metadata: Some(cri::ContainerMetadata { name: "app".to_owned(), attempt: 0 }),
            state: cri::ContainerState::ContainerRunning as i32,
            created_at: MADE_AT,
            labels,
            annotations,
            ..Default::default()
        }
    }

    /// The definition of a pod's probe: the pods take the handlers in turn.
    fn probe(&self, pod: usize, place: usize) -> String {
        match (pod + place) % (DIALLED.len() + 1) {
            0 => {
                let kind = KINDS[place];
                format!(r#"{{"exec":{{"command":["check","{kind}"]}},"periodSeconds":1}}"#)
            }
            dialled => {
                let (handler, port) = (DIALLED[dialled - 1].0, self.targets[dialled - 1].ports[place]);
                format!(r#"{{"{handler}":{{"port":{port}}},"periodSeconds":1}}"#)
            }
        }
    }
}

fn sandbox(pod: usize) -> cri::PodSandbox {
    let name = format!("web-{pod}");
    cri::PodSandbox {
        id: format!("pod-{pod}"),
        annotations: kubelet::of_pod(&name),
        metadata: Some(cri::PodSandboxMetadata {
            name,
            uid: uid(pod),
            namespace: NAMESPACE.to_owned(),
            attempt: 0,
        }),
        state: cri::PodSandboxState::SandboxReady as i32,
        created_at: MADE_AT,
        labels: labels(pod),
        ..Default::default()
    }
}

fn labels(pod: usize) -> HashMap<String, String> {
    HashMap::from([
        ("io.kubernetes.pod.name".to_owned(), format!("web-{pod}")),
        ("io.kubernetes.pod.namespace".to_owned(), NAMESPACE.to_owned()),
        ("io.kubernetes.pod.uid".to_owned(), uid(pod)),
    ])
}

fn uid(pod: usize) -> String {
    format!("5f3a1c9e-7b2d-4e86-9c41-{pod:012}")
}
