//! The runtime service: gRPC requests in, answers out. Contains every method; each only calls the responsible part of
//! the runtime.

use std::{collections::HashMap, sync::Arc, time::Duration, vec};

use tokio_stream::{Iter, wrappers::ReceiverStream};
use tonic::{Request, Response, Status};

use super::{ISOLATES_NOTHING, RUNTIME_NAME, RUNTIME_VERSION, events::Event, faults::Forgery, node::Node};
use crate::proto::cri::{self, runtime_service_server::RuntimeService};

/// Answers for a node.
#[derive(Clone)]
pub(super) struct Runtime(pub(super) Arc<Node>);

type Answer<T> = Result<Response<T>, Status>;

/// A list that is sent item by item.
type OneByOne<T> = Iter<vec::IntoIter<Result<T, Status>>>;

#[tonic::async_trait]
impl RuntimeService for Runtime {
    type GetContainerEventsStream = ReceiverStream<Event>;
    type StreamPodSandboxesStream = OneByOne<cri::StreamPodSandboxesResponse>;
    type StreamContainersStream = OneByOne<cri::StreamContainersResponse>;

    async fn version(&self, _: Request<cri::VersionRequest>) -> Answer<cri::VersionResponse> {
        answer(cri::VersionResponse {
            version: "0.1.0".to_owned(),
            runtime_name: if self.0.poses_as_containerd { "containerd" } else { RUNTIME_NAME }.to_owned(),
            runtime_version: RUNTIME_VERSION.to_owned(),
            runtime_api_version: "v1".to_owned(),
        })
    }

    async fn status(&self, request: Request<cri::StatusRequest>) -> Answer<cri::StatusResponse> {
        let is_true = |name: &str| cri::RuntimeCondition {
            r#type: name.to_owned(),
            status: true,
            ..Default::default()
        };
        let conditions = vec![is_true("RuntimeReady"), is_true("NetworkReady")];
        let info = match request.into_inner().verbose {
            true => HashMap::from([("message".to_owned(), ISOLATES_NOTHING.to_owned())]),
            false => HashMap::new(),
        };
        answer(cri::StatusResponse { status: Some(cri::RuntimeStatus { conditions }), info })
    }

    async fn runtime_config(
        &self,
        _: Request<cri::RuntimeConfigRequest>,
    ) -> Answer<cri::RuntimeConfigResponse> {
        let linux = cri::LinuxRuntimeConfiguration { cgroup_driver: cri::CgroupDriver::Cgroupfs.into() };
        answer(cri::RuntimeConfigResponse { linux: Some(linux) })
    }

    async fn update_runtime_config(
        &self,
        _: Request<cri::UpdateRuntimeConfigRequest>,
    ) -> Answer<cri::UpdateRuntimeConfigResponse> {
        answer(cri::UpdateRuntimeConfigResponse {})
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<cri::RunPodSandboxRequest>,
    ) -> Answer<cri::RunPodSandboxResponse> {
        answer(self.0.run_pod_sandbox(request.into_inner())?)
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<cri::StopPodSandboxRequest>,
    ) -> Answer<cri::StopPodSandboxResponse> {
        self.0.stop_pod_sandbox(&request.into_inner().pod_sandbox_id).await;
        answer(cri::StopPodSandboxResponse {})
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<cri::RemovePodSandboxRequest>,
    ) -> Answer<cri::RemovePodSandboxResponse> {
        self.0.remove_pod_sandbox(&request.into_inner().pod_sandbox_id).await;
        answer(cri::RemovePodSandboxResponse {})
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<cri::PodSandboxStatusRequest>,
    ) -> Answer<cri::PodSandboxStatusResponse> {
        answer(self.0.pod_sandbox_status(&request.into_inner())?)
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<cri::ListPodSandboxRequest>,
    ) -> Answer<cri::ListPodSandboxResponse> {
        answer(self.0.list_pod_sandbox(&request.into_inner().filter.unwrap_or_default()))
    }

    async fn stream_pod_sandboxes(
        &self,
        request: Request<cri::StreamPodSandboxesRequest>,
    ) -> Answer<Self::StreamPodSandboxesStream> {
        let list = self.0.list_pod_sandbox(&request.into_inner().filter.unwrap_or_default());
        let one = |sandbox| cri::StreamPodSandboxesResponse { pod_sandbox: Some(sandbox) };
        one_by_one(list.items.into_iter().map(one))
    }

    async fn restore_pod(&self, request: Request<cri::RestorePodRequest>) -> Answer<cri::RestorePodResponse> {
        answer(self.0.restore_pod(request.into_inner())?)
    }

    async fn create_container(
        &self,
        request: Request<cri::CreateContainerRequest>,
    ) -> Answer<cri::CreateContainerResponse> {
        answer(self.0.create_container(request.into_inner())?)
    }

    async fn start_container(
        &self,
        request: Request<cri::StartContainerRequest>,
    ) -> Answer<cri::StartContainerResponse> {
        self.0.start_container(&request.into_inner().container_id)?;
        answer(cri::StartContainerResponse {})
    }

    async fn stop_container(
        &self,
        request: Request<cri::StopContainerRequest>,
    ) -> Answer<cri::StopContainerResponse> {
        let request = request.into_inner();
        let grace = u64::try_from(request.timeout).ok().filter(|seconds| *seconds > 0);
        if let Some(id) = self.0.container_id(&request.container_id) {
            self.0.stop(&id, grace.map(Duration::from_secs)).await;
        }
        answer(cri::StopContainerResponse {})
    }

    async fn remove_container(
        &self,
        request: Request<cri::RemoveContainerRequest>,
    ) -> Answer<cri::RemoveContainerResponse> {
        if let Some(id) = self.0.container_id(&request.into_inner().container_id) {
            self.0.remove(&id).await;
        }
        answer(cri::RemoveContainerResponse {})
    }

    async fn list_containers(
        &self,
        request: Request<cri::ListContainersRequest>,
    ) -> Answer<cri::ListContainersResponse> {
        let forgery = Forgery::of(&request);
        let list = self.0.list_containers(&request.into_inner().filter.unwrap_or_default());
        answer(forgery.list(list))
    }

    async fn stream_containers(
        &self,
        request: Request<cri::StreamContainersRequest>,
    ) -> Answer<Self::StreamContainersStream> {
        let list = self.0.list_containers(&request.into_inner().filter.unwrap_or_default());
        let one = |container| cri::StreamContainersResponse { container: Some(container) };
        one_by_one(list.containers.into_iter().map(one))
    }

    async fn container_status(
        &self,
        request: Request<cri::ContainerStatusRequest>,
    ) -> Answer<cri::ContainerStatusResponse> {
        let forgery = Forgery::of(&request);
        answer(forgery.status(self.0.container_status(&request.into_inner())?))
    }

    async fn update_container_resources(
        &self,
        request: Request<cri::UpdateContainerResourcesRequest>,
    ) -> Answer<cri::UpdateContainerResourcesResponse> {
        self.0.state().container(&request.into_inner().container_id)?;
        answer(cri::UpdateContainerResourcesResponse {})
    }

    async fn reopen_container_log(
        &self,
        request: Request<cri::ReopenContainerLogRequest>,
    ) -> Answer<cri::ReopenContainerLogResponse> {
        self.0.reopen_container_log(&request.into_inner().container_id)?;
        answer(cri::ReopenContainerLogResponse {})
    }

    async fn exec_sync(&self, request: Request<cri::ExecSyncRequest>) -> Answer<cri::ExecSyncResponse> {
        let forgery = Forgery::of(&request);
        answer(forgery.output(self.0.exec_sync(&request.into_inner()).await?))
    }

    async fn exec(&self, request: Request<cri::ExecRequest>) -> Answer<cri::ExecResponse> {
        let forgery = Forgery::of(&request);
        answer(forgery.url(self.0.exec(request.into_inner())?))
    }

    async fn attach(&self, _: Request<cri::AttachRequest>) -> Answer<cri::AttachResponse> {
        Err(no_streams())
    }

    async fn port_forward(&self, _: Request<cri::PortForwardRequest>) -> Answer<cri::PortForwardResponse> {
        Err(no_streams())
    }

    async fn container_stats(
        &self,
        request: Request<cri::ContainerStatsRequest>,
    ) -> Answer<cri::ContainerStatsResponse> {
        let stats = self.0.container_stats(&request.into_inner().container_id)?;
        answer(cri::ContainerStatsResponse { stats: Some(stats) })
    }

    async fn list_container_stats(
        &self,
        request: Request<cri::ListContainerStatsRequest>,
    ) -> Answer<cri::ListContainerStatsResponse> {
        let stats = self.0.list_container_stats(request.into_inner().filter.unwrap_or_default());
        answer(cri::ListContainerStatsResponse { stats })
    }

    async fn get_container_events(
        &self,
        _: Request<cri::GetEventsRequest>,
    ) -> Answer<Self::GetContainerEventsStream> {
        let mut state = self.0.state();
        state.admit()?;
        answer(ReceiverStream::new(state.subscribers.cri.add()))
    }
}

fn answer<T>(message: T) -> Answer<T> {
    Ok(Response::new(message))
}

fn one_by_one<T>(messages: impl Iterator<Item = T>) -> Answer<OneByOne<T>> {
    answer(tokio_stream::iter(messages.map(Ok).collect::<Vec<_>>()))
}

fn no_streams() -> Status {
    Status::unimplemented("the embedded runtime has streams for Exec only")
}
