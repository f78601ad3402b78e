//! Creates and removes the pods of the demo scenario through any CRI channel: the embedded runtime's, containerd's, or
//! criprobe's own socket in front of either. `scenario` defines the pods.

use prost::Message;
use tonic::{Code, Status, transport::Channel};

use super::RUNTIME_VERSION;
use crate::{
    ids::{ContainerId, PodUid, SandboxId},
    proto::{
        cri::{self, runtime_service_server::SERVICE_NAME},
        encoded,
    },
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
    let mut pods = DemoPods::default();
    match create_all(&channel, image, run_id, &mut pods).await {
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
    let mut result = Ok(());
    for pod in pods.iter() {
        result = result.and(remove(&channel, pod).await);
    }
    result
}

async fn create_all(
    channel: &Channel,
    image: &str,
    run_id: &str,
    pods: &mut DemoPods,
) -> Result<(), PodsError> {
    let version: cri::VersionResponse =
        call(channel, "Version", "steady", &cri::VersionRequest::default()).await?;
    let surroundings = match version.runtime_version == RUNTIME_VERSION {
        true => Surroundings::Embedded,
        false => Surroundings::Busybox,
    };
    for pod in scenario::pods(surroundings) {
        create(channel, &pod, image, run_id, pods).await?;
    }
    Ok(())
}

async fn create(
    channel: &Channel,
    pod: &DemoPod,
    image: &str,
    run_id: &str,
    pods: &mut DemoPods,
) -> Result<(), PodsError> {
    let sandbox_config = pod.sandbox_config(run_id);
    let request = cri::RunPodSandboxRequest { config: Some(sandbox_config.clone()), ..Default::default() };
    let sandbox: cri::RunPodSandboxResponse = call(channel, "RunPodSandbox", pod.name, &request).await?;
    let pod_sandbox_id = sandbox.pod_sandbox_id;
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
    let container: cri::CreateContainerResponse =
        call(channel, "CreateContainer", pod.name, &request).await?;
    let container_id = container.container_id;
    if let Some(created) = pods.0.last_mut() {
        created.container_id = Some(ContainerId::from(container_id.as_str()));
    }
    let request = cri::StartContainerRequest { container_id };
    let _: cri::StartContainerResponse = call(channel, "StartContainer", pod.name, &request).await?;
    Ok(())
}

async fn remove(channel: &Channel, pod: &CreatedPod) -> Result<(), PodsError> {
    let pod_sandbox_id = pod.sandbox_id.to_string();
    let request = cri::StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() };
    or_gone::<cri::StopPodSandboxResponse>(call(channel, "StopPodSandbox", pod.name, &request).await)?;
    let request = cri::RemovePodSandboxRequest { pod_sandbox_id };
    or_gone::<cri::RemovePodSandboxResponse>(call(channel, "RemovePodSandbox", pod.name, &request).await)
}

/// What is gone is as good as removed: containerd 1.6 answers NotFound where CRI asks for success.
fn or_gone<T>(answer: Result<T, PodsError>) -> Result<(), PodsError> {
    match answer {
        Err(error) if error.source.code() != Code::NotFound => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

async fn call<A: Message + Default>(
    channel: &Channel,
    call: &'static str,
    pod: &'static str,
    request: &impl Message,
) -> Result<A, PodsError> {
    let answer = encoded::call(channel, SERVICE_NAME, call, request).await;
    answer.map_err(|source| PodsError { call, pod, source })
}
