//! What the runtime of this bench says is on its node: pods and containers with probes in their annotations. Counts in,
//! messages of the CRI out.

use std::{collections::HashMap, net::Ipv4Addr};

use criprobe::proto::cri;

use crate::kubelet;

/// When everything was made: long ago, in nanoseconds since the epoch.
const MADE_AT: i64 = 1_700_000_000_000_000_000;

/// The containers in each pod.
pub(crate) const CONTAINERS: usize = 5;

/// What a verbose status says of a container without environment variables, as containerd words it.
const INFO: &str = r#"{"config":{"envs":[]},"runtimeSpec":{"process":{"env":["PATH=/bin"]}}}"#;

/// The two types of probe that every container has.
pub(crate) const KINDS: [&str; 2] = ["readiness", "liveness"];

/// The probes in each pod.
pub(crate) const PROBES: usize = CONTAINERS * KINDS.len();

/// A node full of pods; each has [`CONTAINERS`] containers with a probe of each of [`KINDS`], or with none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub(crate) pods: usize,
    /// The definitions of the probes, one for each place in a pod, as `container * 2 + kind`, or none at all; the first
    /// pods may have others.
    pub(crate) probes: Vec<String>,
    /// Those of the first pods, and how many these are.
    pub(crate) first: (usize, Vec<String>),
    /// Whether everything has besides what a kubelet and containerd write around it.
    pub(crate) is_dressed: bool,
}

impl Node {
    /// All probes.
    pub(crate) fn probes(&self) -> usize {
        self.pods * self.probes.len()
    }

    /// All containers.
    pub(crate) fn all_containers(&self) -> usize {
        self.pods * CONTAINERS
    }

    /// The address of a pod: each has one of loopback's.
    pub(crate) fn address(pod: usize) -> Ipv4Addr {
        Ipv4Addr::new(127, 1, (pod / 250) as u8, (pod % 250 + 1) as u8)
    }

    /// The pod of an address.
    pub(crate) fn pod(address: Ipv4Addr) -> Option<usize> {
        let [127, 1, high, low @ 1..=255] = address.octets() else { return None };
        Some(usize::from(high) * 250 + usize::from(low) - 1)
    }

    pub(crate) fn sandboxes(&self) -> cri::ListPodSandboxResponse {
        cri::ListPodSandboxResponse { items: (0..self.pods).map(|pod| self.sandbox(pod)).collect() }
    }

    pub(crate) fn containers(&self) -> cri::ListContainersResponse {
        let all = (0..self.pods).flat_map(|pod| (0..CONTAINERS).map(move |number| (pod, number)));
        cri::ListContainersResponse {
            containers: all.map(|(pod, number)| self.container(pod, number)).collect(),
        }
    }

    pub(crate) fn sandbox_status(&self, id: &str) -> Option<cri::PodSandboxStatusResponse> {
        let pod = id.strip_prefix("pod-")?.parse().ok().filter(|pod| *pod < self.pods)?;
        let sandbox = self.sandbox(pod);
        let status = cri::PodSandboxStatus {
            id: sandbox.id,
            metadata: sandbox.metadata,
            state: sandbox.state,
            created_at: MADE_AT,
            network: Some(cri::PodSandboxNetworkStatus {
                ip: Self::address(pod).to_string(),
                ..Default::default()
            }),
            labels: sandbox.labels,
            annotations: sandbox.annotations,
            ..Default::default()
        };
        Some(cri::PodSandboxStatusResponse { status: Some(status), ..Default::default() })
    }

    pub(crate) fn container_status(&self, id: &str) -> Option<cri::ContainerStatusResponse> {
        let (pod, number) = id.strip_prefix("container-")?.split_once('-')?;
        let (pod, number) = (pod.parse().ok()?, number.parse().ok()?);
        if pod >= self.pods || number >= CONTAINERS {
            return None;
        }
        let listed = self.container(pod, number);
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
        let info = if self.is_dressed { kubelet::info() } else { INFO };
        let info = HashMap::from([("info".to_owned(), info.to_owned())]);
        Some(cri::ContainerStatusResponse { status: Some(status), info })
    }

    fn container(&self, pod: usize, number: usize) -> cri::Container {
        let probes = if pod < self.first.0 { &self.first.1 } else { &self.probes };
        let name = format!("c{number}");
        let annotation = |(place, kind): (usize, &&str)| {
            let definition = probes.get(number * KINDS.len() + place)?.clone();
            Some((format!("{kind}.criprobe.dev/{name}"), definition))
        };
        let mut annotations: HashMap<_, _> = KINDS.iter().enumerate().filter_map(annotation).collect();
        if self.is_dressed {
            annotations.extend(kubelet::of_container());
        }
        let mut labels = labels(pod);
        labels.insert("io.kubernetes.container.name".to_owned(), name.clone());
        cri::Container {
            id: format!("container-{pod}-{number}"),
            pod_sandbox_id: format!("pod-{pod}"),
            annotations,
            metadata: Some(cri::ContainerMetadata { name, attempt: 0 }),
            state: cri::ContainerState::ContainerRunning as i32,
            created_at: MADE_AT,
            labels,
            ..Default::default()
        }
    }

    fn sandbox(&self, pod: usize) -> cri::PodSandbox {
        let name = format!("web-{pod}");
        cri::PodSandbox {
            id: format!("pod-{pod}"),
            annotations: if self.is_dressed { kubelet::of_pod(&name) } else { HashMap::new() },
            metadata: Some(cri::PodSandboxMetadata {
                name,
                uid: uid(pod),
                namespace: "default".to_owned(),
                attempt: 0,
            }),
            state: cri::PodSandboxState::SandboxReady as i32,
            created_at: MADE_AT,
            labels: labels(pod),
            ..Default::default()
        }
    }
}

fn labels(pod: usize) -> HashMap<String, String> {
    HashMap::from([
        ("io.kubernetes.pod.name".to_owned(), format!("web-{pod}")),
        ("io.kubernetes.pod.namespace".to_owned(), "default".to_owned()),
        ("io.kubernetes.pod.uid".to_owned(), uid(pod)),
    ])
}

fn uid(pod: usize) -> String {
    format!("5f3a1c9e-7b2d-4e86-9c41-{pod:012}")
}
