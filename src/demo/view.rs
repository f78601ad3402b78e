//! Converts the runtime's state into CRI messages. State in, messages out; pure.

use super::state::{Container, Phase, Sandbox, State};
use crate::{ids::SandboxId, proto::cri};

/// Where a pod is reached: its containers run in the machine's own network.
const POD_IP: &str = "127.0.0.1";

/// A sandbox as PodSandboxStatus reports it.
pub(super) fn sandbox_status(sandbox: &Sandbox) -> cri::PodSandboxStatus {
    let options = sandbox
        .config
        .linux
        .as_ref()
        .and_then(|linux| linux.security_context.as_ref())
        .and_then(|context| context.namespace_options.clone())
        .unwrap_or_default();
    // As CRI has it: a pod in the node's network, or a stopped one, reports no address.
    let has_ip = sandbox.is_ready && options.network() != cri::NamespaceMode::Node;
    let ip = if has_ip { POD_IP.to_owned() } else { String::new() };
    cri::PodSandboxStatus {
        id: sandbox.id.to_string(),
        metadata: sandbox.config.metadata.clone(),
        state: sandbox.cri_state().into(),
        created_at: sandbox.created_at,
        network: Some(cri::PodSandboxNetworkStatus { ip, additional_ips: Vec::new() }),
        linux: Some(cri::LinuxPodSandboxStatus {
            namespaces: Some(cri::Namespace { options: Some(options) }),
        }),
        labels: sandbox.config.labels.clone(),
        annotations: sandbox.config.annotations.clone(),
        runtime_handler: sandbox.runtime_handler.clone(),
    }
}

/// A sandbox as ListPodSandbox reports it.
pub(super) fn sandbox_item(sandbox: &Sandbox) -> cri::PodSandbox {
    cri::PodSandbox {
        id: sandbox.id.to_string(),
        metadata: sandbox.config.metadata.clone(),
        state: sandbox.cri_state().into(),
        created_at: sandbox.created_at,
        labels: sandbox.config.labels.clone(),
        annotations: sandbox.config.annotations.clone(),
        runtime_handler: sandbox.runtime_handler.clone(),
    }
}

/// A container as ContainerStatus reports it.
pub(super) fn container_status(container: &Container) -> cri::ContainerStatus {
    let config = &container.config;
    let mut status = cri::ContainerStatus {
        id: container.id.to_string(),
        metadata: config.metadata.clone(),
        state: container.cri_state().into(),
        created_at: container.created_at,
        image: config.image.clone(),
        image_ref: image_ref(config),
        labels: config.labels.clone(),
        annotations: config.annotations.clone(),
        log_path: container.log_path.display().to_string(),
        image_id: image_ref(config),
        ..Default::default()
    };
    match &container.phase {
        Phase::Created => {}
        Phase::Running(run) => status.started_at = run.started_at,
        Phase::Exited(ended) => {
            status.started_at = ended.started_at;
            status.finished_at = ended.finished_at;
            status.exit_code = ended.exit_code;
            ended.reason.clone_into(&mut status.reason);
            status.message.clone_from(&ended.message);
        }
    }
    status
}

/// A container as ListContainers reports it.
pub(super) fn container_item(container: &Container) -> cri::Container {
    let config = &container.config;
    cri::Container {
        id: container.id.to_string(),
        pod_sandbox_id: container.sandbox.to_string(),
        metadata: config.metadata.clone(),
        image: config.image.clone(),
        image_ref: image_ref(config),
        state: container.cri_state().into(),
        created_at: container.created_at,
        labels: config.labels.clone(),
        annotations: config.annotations.clone(),
        image_id: image_ref(config),
    }
}

/// What became of `id`, a container or the sandbox itself, with its pod as it is now.
pub(super) fn container_event(
    state: &State,
    kind: cri::ContainerEventType,
    id: &str,
    sandbox: &SandboxId,
    at: i64,
) -> cri::ContainerEventResponse {
    cri::ContainerEventResponse {
        container_id: id.to_owned(),
        container_event_type: kind.into(),
        created_at: at,
        pod_sandbox_status: state.sandboxes.get(sandbox).map(sandbox_status),
        containers_statuses: state.containers_of(sandbox).into_iter().map(container_status).collect(),
    }
}

/// Whose usage it is.
pub(super) fn container_attributes(container: &Container) -> cri::ContainerAttributes {
    cri::ContainerAttributes {
        id: container.id.to_string(),
        metadata: container.config.metadata.clone(),
        labels: container.config.labels.clone(),
        annotations: container.config.annotations.clone(),
    }
}

fn image_ref(config: &cri::ContainerConfig) -> String {
    config.image.as_ref().map(|image| super::images::reference(&image.image)).unwrap_or_default()
}
