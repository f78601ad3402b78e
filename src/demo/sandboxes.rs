//! The life of pod sandboxes. A sandbox is a name, an address and a log folder: it has no process and no namespaces.

use std::fs;

use tonic::Status;

use super::{filters, ids, node::Node, state::Sandbox, verbose, view, wall_nanos};
use crate::{
    ids::{ContainerId, SandboxId},
    proto::cri::{self, ContainerEventType},
};

impl Node {
    /// Makes a sandbox, ready at once.
    ///
    /// # Errors
    /// Those of `State::admit_sandbox`; Unknown when its log folder cannot be made.
    pub(super) fn run_pod_sandbox(
        &self,
        request: cri::RunPodSandboxRequest,
    ) -> Result<cri::RunPodSandboxResponse, Status> {
        let config = request.config.unwrap_or_default();
        let mut state = self.state();
        state.admit_sandbox(&config)?;
        if !config.log_directory.is_empty() {
            fs::create_dir_all(&config.log_directory).map_err(|error| {
                Status::unknown(format!("failed to create sandbox log directory: {error}"))
            })?;
        }
        let (id, created_at) = (SandboxId::from(ids::fresh()), wall_nanos());
        let runtime_handler = request.runtime_handler;
        let sandbox = Sandbox { id: id.clone(), config, runtime_handler, created_at, is_ready: true };
        state.sandboxes.insert(id.clone(), sandbox);
        state.announce(ContainerEventType::ContainerCreatedEvent, id.as_str(), &id, created_at);
        state.announce(ContainerEventType::ContainerStartedEvent, id.as_str(), &id, created_at);
        Ok(cri::RunPodSandboxResponse { pod_sandbox_id: id.to_string() })
    }

    /// Kills the sandbox's containers and makes it not ready. An unknown or stopped one is fine, as CRI asks.
    pub(super) async fn stop_pod_sandbox(&self, text: &str) {
        let found = self.state().sandbox(text).map(|sandbox| sandbox.id.clone());
        let Ok(id) = found else { return };
        // Not ready first, so that no container is made or started behind our back.
        let was_ready =
            self.state().sandboxes.get_mut(&id).is_some_and(|one| std::mem::take(&mut one.is_ready));
        for container in self.ids_of(&id) {
            self.stop(&container, None).await;
        }
        if was_ready {
            self.state().announce(ContainerEventType::ContainerStoppedEvent, id.as_str(), &id, wall_nanos());
        }
    }

    /// Stops the sandbox, and removes its containers and itself. An unknown one is fine, as CRI asks.
    pub(super) async fn remove_pod_sandbox(&self, text: &str) {
        let found = self.state().sandbox(text).map(|sandbox| sandbox.id.clone());
        let Ok(id) = found else { return };
        self.stop_pod_sandbox(id.as_str()).await;
        for container in self.ids_of(&id) {
            self.remove(&container).await;
        }
        let mut state = self.state();
        if state.sandboxes.contains_key(&id) {
            state.announce(ContainerEventType::ContainerDeletedEvent, id.as_str(), &id, wall_nanos());
            state.sandboxes.remove(&id);
        }
    }

    /// What is known of a sandbox.
    ///
    /// # Errors
    /// NotFound.
    pub(super) fn pod_sandbox_status(
        &self,
        request: &cri::PodSandboxStatusRequest,
    ) -> Result<cri::PodSandboxStatusResponse, Status> {
        let state = self.state();
        let sandbox = state.sandbox(&request.pod_sandbox_id)?;
        Ok(cri::PodSandboxStatusResponse {
            status: Some(view::sandbox_status(sandbox)),
            info: if request.verbose { verbose::sandbox(sandbox) } else { Default::default() },
            containers_statuses: state
                .containers_of(&sandbox.id)
                .into_iter()
                .map(view::container_status)
                .collect(),
            timestamp: wall_nanos(),
        })
    }

    /// The sandboxes that a filter lets pass.
    pub(super) fn list_pod_sandbox(&self, filter: &cri::PodSandboxFilter) -> cri::ListPodSandboxResponse {
        let state = self.state();
        let items = filters::sandboxes(&state, filter).into_iter().map(view::sandbox_item).collect();
        cri::ListPodSandboxResponse { items }
    }

    fn ids_of(&self, sandbox: &SandboxId) -> Vec<ContainerId> {
        self.state().containers_of(sandbox).into_iter().map(|container| container.id.clone()).collect()
    }
}
