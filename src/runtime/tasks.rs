//! Which containers are paused, from containerd's own service: CRI has no such state. An id, or nothing, in; what is paused
//! out. Keeps nothing.

use std::time::Duration;

use prost::Message;
use tonic::{Code, Status, codegen::http::uri::PathAndQuery};

use super::{
    LONG, QUICK, Runtime,
    call::{Service, read, send},
    marks::MAX_ID,
};
use crate::proto::containerd::tasks::{
    GetRequest, GetResponse, ListTasksRequest, ListTasksResponse, Process, Status as TaskStatus,
};

/// 8 MiB: the longest list of tasks. A task takes about 700 bytes, most of them paths, so this is enough for 10,000
/// containers. A longer list is an error: then nothing is known to be paused.
const MAX_LIST: usize = 8 << 20;

/// 64 KiB: the longest answer about one task.
const MAX_TASK: usize = 64 << 10;

impl Runtime {
    /// The ids of all that is paused, containers and sandboxes; `None` if the runtime cannot report it. This asks the shim
    /// of each container, one after the other, so it is not for every list, and may take long: containerd waits up to 2 s for
    /// each shim that hangs.
    ///
    /// # Errors
    /// The error of the runtime or of the connection to it.
    pub(crate) async fn paused(&self) -> Result<Option<Vec<String>>, Status> {
        let Some(list) =
            self.tasks::<ListTasksResponse>("List", ListTasksRequest {}, (LONG, MAX_LIST)).await?
        else {
            return Ok(None);
        };
        let paused = list.tasks.into_iter().filter(|task| is_paused(task) && task.id.len() <= MAX_ID);
        Ok(Some(paused.map(|task| task.id).collect()))
    }

    /// Whether a container is paused; `None` if the runtime cannot report it.
    ///
    /// # Errors
    /// The error of the runtime or of the connection to it; NotFound if the container has no process.
    pub(crate) async fn is_paused(&self, id: &str) -> Result<Option<bool>, Status> {
        let request = GetRequest { container_id: id.to_owned() };
        let Some(found) = self.tasks::<GetResponse>("Get", request, (QUICK, MAX_TASK)).await? else {
            return Ok(None);
        };
        let task = found.process.ok_or_else(|| Status::internal("the answer contains no task"))?;
        // What containerd answers of a shim that does not.
        if task.status() == TaskStatus::Unknown {
            return Err(Status::unavailable("the state of the container's process is not known"));
        }
        Ok(Some(is_paused(&task)))
    }

    /// Only containerd has this service: none of others.
    async fn tasks<A: Message + Default>(
        &self,
        method: &str,
        request: impl Message,
        (limit, most): (Duration, usize),
    ) -> Result<Option<A>, Status> {
        let path = PathAndQuery::from_maybe_shared(format!("/containerd.services.tasks.v1.Tasks/{method}"))
            .expect("the name of a method is valid in a path");
        let request = request.encode_to_vec().into();
        match send(Service::Containerd, self.channel(), path, request, limit, most).await {
            Ok(answer) => read(answer).map(Some),
            Err(status) if status.code() == Code::Unimplemented => Ok(None),
            Err(status) => Err(status),
        }
    }
}

fn is_paused(task: &Process) -> bool {
    matches!(task.status(), TaskStatus::Paused | TaskStatus::Pausing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        demo::{EmbeddedRuntime, FaultKind, InjectedFault, Options},
        ids::ContainerId,
        proto::cri,
    };

    /// A running container.
    async fn run(runtime: &Runtime) -> ContainerId {
        let mut client = runtime.client();
        let metadata = Some(cri::PodSandboxMetadata { name: "web".into(), ..Default::default() });
        let config = Some(cri::PodSandboxConfig { metadata, ..Default::default() });
        let pod = client.run_pod_sandbox(cri::RunPodSandboxRequest { config, ..Default::default() }).await;
        let config = cri::ContainerConfig {
            metadata: Some(cri::ContainerMetadata { name: "app".into(), attempt: 0 }),
            image: Some(cri::ImageSpec { image: "any".into(), ..Default::default() }),
            ..Default::default()
        };
        let pod_sandbox_id = pod.unwrap().into_inner().pod_sandbox_id;
        let request =
            cri::CreateContainerRequest { pod_sandbox_id, config: Some(config), sandbox_config: None };
        let container_id = client.create_container(request).await.unwrap().into_inner().container_id;
        let request = cri::StartContainerRequest { container_id: container_id.clone() };
        client.start_container(request).await.unwrap();
        container_id.into()
    }

    #[tokio::test]
    async fn containerd_reports_what_is_paused_and_others_do_not() {
        for poses_as_containerd in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let socket = dir.path().join("runtime.sock");
            let options =
                Options { poses_as_containerd, ..Options::new(&socket, dir.path().join("containers")) };
            let embedded = EmbeddedRuntime::start(options).unwrap();
            let runtime = Runtime::new(&socket);
            let id = run(&runtime).await;
            for is_paused in [false, true, false] {
                embedded.set_paused(&id, is_paused);
                let expected =
                    poses_as_containerd.then(|| if is_paused { vec![id.to_string()] } else { vec![] });
                assert_eq!(runtime.paused().await.unwrap(), expected);
                assert_eq!(
                    runtime.is_paused(id.as_str()).await.unwrap(),
                    poses_as_containerd.then_some(is_paused)
                );
            }
            let unknown = runtime.is_paused("unknown").await.map_err(|status| status.code());
            assert_eq!(unknown, if poses_as_containerd { Err(Code::NotFound) } else { Ok(None) });
            embedded
                .faults()
                .add(InjectedFault::once("List", FaultKind::Code(Code::Unknown, "broken".into())));
            assert_eq!(runtime.paused().await.unwrap_err().message(), "broken");
            embedded.shutdown().await;
        }
    }
}
