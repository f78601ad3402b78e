//! The hostile pods that the runtime has at the moment. Requests of clients in; answers, events, lists and statuses out.

use std::collections::BTreeMap;

use bytes::Bytes;
use criprobe::{
    clock,
    proto::cri::{self, ContainerEventType as Kind},
};
use prost::Message;
use tonic::Status;

use crate::{runtime, tricks};

/// By the ids of their sandboxes.
#[derive(Debug, Default)]
pub(crate) struct Pods(BTreeMap<String, Pod>);

#[derive(Debug)]
struct Pod {
    sandbox: cri::PodSandbox,
    address: String,
    containers: BTreeMap<String, Container>,
}

#[derive(Debug)]
struct Container {
    listed: cri::Container,
    variables: Vec<cri::KeyValue>,
    started_at: i64,
    finished_at: i64,
}

/// What a change comes to: the answer, and what subscribers hear.
type Changed = (Bytes, Vec<cri::ContainerEventResponse>);

impl Pods {
    /// RunPodSandbox.
    pub(crate) fn run(&mut self, asked: cri::RunPodSandboxRequest) -> Result<Changed, Status> {
        let config = asked.config.ok_or_else(|| Status::invalid_argument("no sandbox"))?;
        let uid = config.metadata.as_ref().map(|metadata| metadata.uid.clone()).unwrap_or_default();
        let number = tricks::number(&uid).ok_or_else(|| Status::invalid_argument("not a hostile pod"))?;
        let id = format!("sandbox-{uid}");
        let sandbox = cri::PodSandbox {
            id: id.clone(),
            metadata: config.metadata,
            state: cri::PodSandboxState::SandboxReady as i32,
            created_at: nanoseconds(),
            labels: config.labels,
            annotations: config.annotations,
            ..Default::default()
        };
        let address = tricks::address(number).to_string();
        self.0.insert(id.clone(), Pod { sandbox, address, containers: BTreeMap::new() });
        let events = [Kind::ContainerCreatedEvent, Kind::ContainerStartedEvent];
        let events = events.into_iter().filter_map(|kind| self.event(&id, &id, kind)).collect();
        Ok((octets(&cri::RunPodSandboxResponse { pod_sandbox_id: id }), events))
    }

    /// CreateContainer.
    pub(crate) fn create(&mut self, asked: cri::CreateContainerRequest) -> Result<Changed, Status> {
        let sandbox = asked.pod_sandbox_id;
        let pod = self.0.get_mut(&sandbox).ok_or_else(|| Status::not_found("no such sandbox"))?;
        let config = asked.config.ok_or_else(|| Status::invalid_argument("no container"))?;
        let name = config.metadata.as_ref().map(|metadata| metadata.name.clone()).unwrap_or_default();
        let id = format!("{sandbox}-{name}");
        let listed = cri::Container {
            id: id.clone(),
            pod_sandbox_id: sandbox.clone(),
            metadata: config.metadata,
            image: config.image,
            state: cri::ContainerState::ContainerCreated as i32,
            created_at: nanoseconds(),
            labels: config.labels,
            annotations: config.annotations,
            ..Default::default()
        };
        let container = Container { listed, variables: config.envs, started_at: 0, finished_at: 0 };
        pod.containers.insert(id.clone(), container);
        let event = self.event(&sandbox, &id, Kind::ContainerCreatedEvent);
        Ok((octets(&cri::CreateContainerResponse { container_id: id }), event.into_iter().collect()))
    }

    /// StartContainer.
    pub(crate) fn start(&mut self, id: &str) -> Result<Changed, Status> {
        let container = self.0.values_mut().find_map(|pod| pod.containers.get_mut(id));
        let container = container.ok_or_else(|| Status::not_found("no such container"))?;
        container.listed.state = cri::ContainerState::ContainerRunning as i32;
        container.started_at = nanoseconds();
        let sandbox = container.listed.pod_sandbox_id.clone();
        let event = self.event(&sandbox, id, Kind::ContainerStartedEvent);
        Ok((Bytes::new(), event.into_iter().collect()))
    }

    /// StopPodSandbox: its containers end with it.
    pub(crate) fn stop(&mut self, id: &str) -> Changed {
        let Some(pod) = self.0.get_mut(id) else { return (Bytes::new(), Vec::new()) };
        pod.sandbox.state = cri::PodSandboxState::SandboxNotready as i32;
        for container in pod.containers.values_mut() {
            container.listed.state = cri::ContainerState::ContainerExited as i32;
            container.finished_at = nanoseconds();
        }
        (Bytes::new(), self.events(id, Kind::ContainerStoppedEvent))
    }

    /// RemovePodSandbox.
    pub(crate) fn remove(&mut self, id: &str) -> Changed {
        let events = self.events(id, Kind::ContainerDeletedEvent);
        self.0.remove(id);
        (Bytes::new(), events)
    }

    /// Whether a container runs.
    pub(crate) fn is_running(&self, id: &str) -> bool {
        self.container(id)
            .is_some_and(|container| container.listed.state == cri::ContainerState::ContainerRunning as i32)
    }

    /// Their part of the list of sandboxes, encoded.
    pub(crate) fn sandboxes(&self) -> Vec<u8> {
        let items = self.0.values().map(|pod| pod.sandbox.clone()).collect();
        cri::ListPodSandboxResponse { items }.encode_to_vec()
    }

    /// Their part of the list of containers, encoded.
    pub(crate) fn containers(&self) -> Vec<u8> {
        let all = self.0.values().flat_map(|pod| pod.containers.values());
        cri::ListContainersResponse { containers: all.map(|one| one.listed.clone()).collect() }
            .encode_to_vec()
    }

    pub(crate) fn sandbox_status(&self, id: &str) -> Option<cri::PodSandboxStatusResponse> {
        let status = self.0.get(id)?.status();
        Some(cri::PodSandboxStatusResponse { status: Some(status), ..Default::default() })
    }

    pub(crate) fn container_status(&self, id: &str) -> Option<cri::ContainerStatusResponse> {
        let container = self.container(id)?;
        let info = runtime::info(&container.variables);
        Some(cri::ContainerStatusResponse { status: Some(container.status()), info })
    }

    fn container(&self, id: &str) -> Option<&Container> {
        self.0.values().find_map(|pod| pod.containers.get(id))
    }

    /// What happened to a whole pod: to its containers, and to its sandbox.
    fn events(&self, id: &str, kind: Kind) -> Vec<cri::ContainerEventResponse> {
        let containers = self.0.get(id).into_iter().flat_map(|pod| pod.containers.keys());
        let all = containers.map(String::as_str).chain([id]);
        all.filter_map(|container| self.event(id, container, kind)).collect()
    }

    /// As a runtime reports it: the sandbox's whole status is in each event.
    fn event(&self, sandbox: &str, container: &str, kind: Kind) -> Option<cri::ContainerEventResponse> {
        let pod = self.0.get(sandbox)?;
        Some(cri::ContainerEventResponse {
            container_id: container.to_owned(),
            container_event_type: kind as i32,
            created_at: nanoseconds(),
            pod_sandbox_status: Some(pod.status()),
            containers_statuses: pod.containers.get(container).map(Container::status).into_iter().collect(),
        })
    }
}

impl Pod {
    fn status(&self) -> cri::PodSandboxStatus {
        let sandbox = self.sandbox.clone();
        cri::PodSandboxStatus {
            id: sandbox.id,
            metadata: sandbox.metadata,
            state: sandbox.state,
            created_at: sandbox.created_at,
            network: Some(cri::PodSandboxNetworkStatus { ip: self.address.clone(), ..Default::default() }),
            labels: sandbox.labels,
            annotations: sandbox.annotations,
            ..Default::default()
        }
    }
}

impl Container {
    fn status(&self) -> cri::ContainerStatus {
        let listed = self.listed.clone();
        cri::ContainerStatus {
            id: listed.id,
            metadata: listed.metadata,
            state: listed.state,
            created_at: listed.created_at,
            started_at: self.started_at,
            finished_at: self.finished_at,
            image: listed.image,
            labels: listed.labels,
            annotations: listed.annotations,
            ..Default::default()
        }
    }
}

fn octets(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}

/// The wall clock, since the epoch.
fn nanoseconds() -> i64 {
    let since = clock::wall().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
