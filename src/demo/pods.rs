//! Creates and removes the pods of the demo scenario through any CRI channel: the embedded runtime's, containerd's, or
//! criprobe's own socket in front of either. `scenario` defines the pods.

use tonic::{Code, Status, transport::Channel};

use super::RUNTIME_VERSION;
use crate::{
    ids::{ContainerId, PodUid, SandboxId},
    proto::cri::{self, runtime_service_client::RuntimeServiceClient},
};

mod scenario;

use scenario::{DemoPod, Surroundings};
pub use scenario::{NAMESPACE, configuration};

/// The pods that were created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DemoPods(Vec<CreatedPod>);

impl DemoPods {
    /// Them, in the order of their creation.
    pub fn iter(&self) -> impl Iterator<Item = &CreatedPod> {
        self.0.iter()
    }
}

/// One pod with its one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedPod {
    /// Its name in the namespace `demo`.
    pub name: &'static str,
    /// Its sandbox.
    pub sandbox_id: SandboxId,
    /// Its uid.
    pub uid: PodUid,
    /// Its first container; `None` where creation failed before it.
    pub container_id: Option<ContainerId>,
    /// Whether criprobe is to restart that container.
    pub is_restarted: bool,
}

/// A call that went wrong.
#[derive(Debug, thiserror::Error)]
#[error("{call} for demo pod {pod}: {}", source.message())]
pub struct PodsError {
    /// The method.
    pub call: &'static str,
    /// The pod's name.
    pub pod: &'static str,
    /// The runtime's answer.
    pub source: Status,
}

/// Creates the scenario's pods and starts their containers. The image has to be there already, and holds a busybox,
/// except on the embedded runtime, which takes any name. `run_id` becomes a part of the pods' uids, so that two runs on
/// one runtime do not meet.
///
/// # Errors
/// The first call that failed; what was created until then is removed again.
pub async fn create_pods(channel: Channel, image: &str, run_id: &str) -> Result<DemoPods, PodsError> {
    let mut client = RuntimeServiceClient::new(channel.clone());
    let mut pods = DemoPods::default();
    match create_all(&mut client, image, run_id, &mut pods).await {
        Ok(()) => Ok(pods),
        Err(error) => {
            if let Err(left) = remove_pods(channel, &pods).await {
                tracing::warn!(error = %left, "demo pod was left behind");
            }
            Err(error)
        }
    }
}

/// Stops and removes pods with their containers. Those that are gone already are fine.
///
/// # Errors
/// The first call that failed; the other pods are removed nevertheless.
pub async fn remove_pods(channel: Channel, pods: &DemoPods) -> Result<(), PodsError> {
    let mut client = RuntimeServiceClient::new(channel);
    let mut result = Ok(());
    for pod in pods.iter() {
        result = result.and(remove(&mut client, pod).await);
    }
    result
}

async fn create_all(
    client: &mut RuntimeServiceClient<Channel>,
    image: &str,
    run_id: &str,
    pods: &mut DemoPods,
) -> Result<(), PodsError> {
    let version = client.version(cri::VersionRequest::default()).await;
    let version = version.map_err(failed("Version", "steady"))?.into_inner();
    let surroundings = match version.runtime_version == RUNTIME_VERSION {
        true => Surroundings::Embedded,
        false => Surroundings::Busybox,
    };
    for pod in scenario::pods(surroundings) {
        create(client, &pod, image, run_id, pods).await?;
    }
    Ok(())
}

async fn create(
    client: &mut RuntimeServiceClient<Channel>,
    pod: &DemoPod,
    image: &str,
    run_id: &str,
    pods: &mut DemoPods,
) -> Result<(), PodsError> {
    let sandbox_config = pod.sandbox_config(run_id);
    let request = cri::RunPodSandboxRequest { config: Some(sandbox_config.clone()), ..Default::default() };
    let sandbox = client.run_pod_sandbox(request).await.map_err(failed("RunPodSandbox", pod.name))?;
    let pod_sandbox_id = sandbox.into_inner().pod_sandbox_id;
    let sandbox_id = SandboxId::from(pod_sandbox_id.as_str());
    pods.0.push(CreatedPod {
        name: pod.name,
        sandbox_id,
        uid: pod.uid(run_id).as_str().into(),
        container_id: None,
        is_restarted: pod.is_restarted,
    });
    let request = cri::CreateContainerRequest {
        pod_sandbox_id,
        config: Some(pod.container_config(image, run_id)),
        sandbox_config: Some(sandbox_config),
    };
    let container = client.create_container(request).await.map_err(failed("CreateContainer", pod.name))?;
    let container_id = container.into_inner().container_id;
    if let Some(created) = pods.0.last_mut() {
        created.container_id = Some(ContainerId::from(container_id.as_str()));
    }
    let request = cri::StartContainerRequest { container_id };
    client.start_container(request).await.map_err(failed("StartContainer", pod.name))?;
    Ok(())
}

async fn remove(client: &mut RuntimeServiceClient<Channel>, pod: &CreatedPod) -> Result<(), PodsError> {
    let pod_sandbox_id = pod.sandbox_id.to_string();
    let request = cri::StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() };
    or_gone(client.stop_pod_sandbox(request).await).map_err(failed("StopPodSandbox", pod.name))?;
    let request = cri::RemovePodSandboxRequest { pod_sandbox_id };
    or_gone(client.remove_pod_sandbox(request).await).map_err(failed("RemovePodSandbox", pod.name))
}

/// What is gone is as good as removed: containerd 1.6 answers NotFound where CRI asks for success.
fn or_gone<T>(answer: Result<T, Status>) -> Result<(), Status> {
    match answer {
        Err(status) if status.code() != Code::NotFound => Err(status),
        Ok(_) | Err(_) => Ok(()),
    }
}

fn failed(call: &'static str, pod: &'static str) -> impl FnOnce(Status) -> PodsError {
    move |source| PodsError { call, pod, source }
}
