//! Pods that are created with their containers in one call. In: a RestorePod request. Out: a pod whose containers run.
//! Reads no checkpoint: the processes start again.

use std::sync::Arc;

use tonic::Status;

use super::node::Node;
use crate::proto::cri;

impl Node {
    /// Makes a sandbox and its containers, and starts these.
    ///
    /// # Errors
    /// Those of making and starting them; what was made until then stays.
    pub(super) fn restore_pod(
        self: &Arc<Self>,
        request: cri::RestorePodRequest,
    ) -> Result<cri::RestorePodResponse, Status> {
        let cri::RestorePodRequest { config, runtime_handler, container_configs, .. } = request;
        let sandbox = cri::RunPodSandboxRequest { config: config.clone(), runtime_handler };
        let pod_sandbox_id = self.run_pod_sandbox(sandbox)?.pod_sandbox_id;
        for container in container_configs {
            let made = self.create_container(cri::CreateContainerRequest {
                pod_sandbox_id: pod_sandbox_id.clone(),
                config: Some(container),
                sandbox_config: config.clone(),
            })?;
            self.start_container(&made.container_id)?;
        }
        Ok(cri::RestorePodResponse { pod_sandbox_id })
    }
}
