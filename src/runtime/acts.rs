//! What acting on a container takes: its verbose status, and the calls that create, start, stop and remove it. In: ids, and
//! a request in its encoded form; out: what the runtime answers. Repeats nothing.

use std::{fmt, time::Duration};

use bytes::Bytes;
use prost::Message;
use tonic::{Status, codegen::http::uri::PathAndQuery, transport::Channel};

use super::{
    QUICK, Runtime,
    call::{Service, ask, read, send},
};
use crate::{
    ids::{ContainerId, SandboxId},
    proto::{
        cri,
        trim::{self, Trim, Trimmed},
    },
};

/// 2 min: how long the runtime may take to create, start or remove a container, and to stop one beyond its grace period. It
/// is what a kubelet waits for.
const LIMIT: Duration = Duration::from_secs(120);

/// 8 MiB: the longest verbose status that is read: those of usual containers have 20 KiB, and one with an environment of
/// 2 MiB contains it twice. A longer one is an error.
const MAX_STATUS: usize = 8 << 20;

/// 64 KiB: the longest other answer that is read. They contain an id, or nothing.
const MAX_ANSWER: usize = 64 << 10;

/// A status with what else the runtime shows in it, which is JSON in the runtimes that have it. That may contain secrets, so
/// `Debug` does not show it.
#[derive(Clone)]
pub(crate) struct VerboseStatus<T> {
    pub status: Trimmed<T>,
    /// The text `info`; empty if there is none.
    pub info: Bytes,
}

impl<T> VerboseStatus<T> {
    /// The JSON; empty if it is not text.
    pub(crate) fn json(&self) -> &str {
        std::str::from_utf8(&self.info).unwrap_or_default()
    }
}

impl<T: fmt::Debug> fmt::Debug for VerboseStatus<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerboseStatus").field("status", &self.status).finish_non_exhaustive()
    }
}

/// A ContainerStatusResponse or a PodSandboxStatusResponse.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
struct Answer {
    #[prost(bytes = "bytes", optional, tag = "1")]
    status: Option<Bytes>,
    #[prost(message, repeated, tag = "2")]
    info: Vec<Entry>,
}

/// One text of the status.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
struct Entry {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

impl Runtime {
    /// The status of a container, with the configuration that it was created with, if the runtime shows that.
    ///
    /// # Errors
    /// The error of the runtime or of the connection to it; NotFound if there is none.
    pub(crate) async fn container_status_verbose(
        &self,
        id: &ContainerId,
    ) -> Result<VerboseStatus<cri::ContainerStatus>, Status> {
        let request = cri::ContainerStatusRequest { container_id: id.to_string(), verbose: true };
        verbose_status(self.channel(), path("ContainerStatus"), request).await
    }

    /// Likewise that of a sandbox.
    ///
    /// # Errors
    /// The error of the runtime or of the connection to it; NotFound if there is none.
    pub(crate) async fn sandbox_status_verbose(
        &self,
        id: &SandboxId,
    ) -> Result<VerboseStatus<cri::PodSandboxStatus>, Status> {
        let request = cri::PodSandboxStatusRequest { pod_sandbox_id: id.to_string(), verbose: true };
        verbose_status(self.channel(), path("PodSandboxStatus"), request).await
    }

    /// Creates a container from an encoded CreateContainerRequest, which is sent as it is.
    ///
    /// # Errors
    /// The error of the runtime or of the connection to it. After DeadlineExceeded, Canceled, Unknown and Unavailable, the
    /// container may be there.
    pub(crate) async fn create_container(&self, request: Bytes) -> Result<ContainerId, Status> {
        let path = path("CreateContainer");
        let answer = send(Service::Cri, self.channel(), path, request, LIMIT, MAX_ANSWER).await?;
        let answer: cri::CreateContainerResponse = read(answer)?;
        if answer.container_id.is_empty() {
            return Err(Status::internal(
                "the runtime did not return the id of the container that it created",
            ));
        }
        Ok(answer.container_id.into())
    }

    /// Starts a container that was created.
    ///
    /// # Errors
    /// The error of the runtime or of the connection to it.
    pub(crate) async fn start_container(&self, id: &ContainerId) -> Result<(), Status> {
        let request = cri::StartContainerRequest { container_id: id.to_string() };
        let answer: cri::StartContainerResponse =
            ask(self.channel(), path("StartContainer"), request, LIMIT, MAX_ANSWER).await?;
        let cri::StartContainerResponse {} = answer;
        Ok(())
    }

    /// Stops a container: by its stop signal, and by SIGKILL after the grace period, which is sent in whole seconds. One
    /// that has stopped or is gone is no error to a runtime.
    ///
    /// # Errors
    /// The error of the runtime or of the connection to it.
    pub(crate) async fn stop_container(&self, id: &ContainerId, grace: Duration) -> Result<(), Status> {
        let (timeout, limit) = stop_times(grace);
        let request = cri::StopContainerRequest { container_id: id.to_string(), timeout };
        let answer: cri::StopContainerResponse =
            ask(self.channel(), path("StopContainer"), request, limit, MAX_ANSWER).await?;
        let cri::StopContainerResponse {} = answer;
        Ok(())
    }

    /// Removes a container. One that is gone is no error to a runtime.
    ///
    /// # Errors
    /// The error of the runtime or of the connection to it.
    pub(crate) async fn remove_container(&self, id: &ContainerId) -> Result<(), Status> {
        let request = cri::RemoveContainerRequest { container_id: id.to_string() };
        let answer: cri::RemoveContainerResponse =
            ask(self.channel(), path("RemoveContainer"), request, LIMIT, MAX_ANSWER).await?;
        let cri::RemoveContainerResponse {} = answer;
        Ok(())
    }
}

/// The grace period in seconds, rounded up, and how long the call may take.
fn stop_times(grace: Duration) -> (i64, Duration) {
    let seconds = grace.as_secs().saturating_add((grace.subsec_nanos() > 0).into());
    (i64::try_from(seconds).unwrap_or(i64::MAX), Duration::from_secs(seconds).saturating_add(LIMIT))
}

fn path(method: &'static str) -> PathAndQuery {
    PathAndQuery::from_maybe_shared(format!("/runtime.v1.RuntimeService/{method}"))
        .expect("the name of a method is valid in a path")
}

async fn verbose_status<T: Trim>(
    channel: Channel,
    path: PathAndQuery,
    request: impl Message,
) -> Result<VerboseStatus<T>, Status> {
    let answer: Answer = ask(channel, path, request, QUICK, MAX_STATUS).await?;
    let status = answer.status.ok_or_else(|| Status::internal("the runtime's answer contains no status"))?;
    let status = trim::decode(&status).map_err(|error| Status::internal(error.to_string()))?;
    let info = answer.info.into_iter().find(|entry| entry.key == "info").map(|entry| entry.value);
    Ok(VerboseStatus { status, info: info.unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tonic::Code;

    use super::*;
    use crate::demo::{EmbeddedRuntime, FaultKind, InjectedFault, Options};

    fn embedded(dir: &Path) -> (EmbeddedRuntime, Runtime) {
        let socket = dir.join("cri.sock");
        let embedded = EmbeddedRuntime::start(Options::new(&socket, dir.join("scratch"))).unwrap();
        (embedded, Runtime::new(&socket))
    }

    /// A pod, and a request that creates a container in it.
    async fn creation(runtime: &Runtime) -> (SandboxId, Bytes) {
        let metadata = cri::PodSandboxMetadata { name: "web".into(), uid: "u1".into(), ..Default::default() };
        let config = cri::PodSandboxConfig { metadata: Some(metadata), ..Default::default() };
        let run = cri::RunPodSandboxRequest { config: Some(config), ..Default::default() };
        let sandbox = runtime.client().run_pod_sandbox(run).await.unwrap().into_inner().pod_sandbox_id;
        let request = cri::CreateContainerRequest {
            pod_sandbox_id: sandbox.clone(),
            config: Some(cri::ContainerConfig {
                metadata: Some(cri::ContainerMetadata { name: "app".into(), attempt: 3 }),
                image: Some(cri::ImageSpec { image: "any".into(), ..Default::default() }),
                command: vec!["sh".into(), "-c".into(), "sleep 1000".into()],
                ..Default::default()
            }),
            sandbox_config: None,
        };
        (sandbox.into(), request.encode_to_vec().into())
    }

    #[tokio::test]
    async fn a_container_is_created_started_stopped_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (embedded, runtime) = embedded(dir.path());
        let (sandbox, request) = creation(&runtime).await;
        let id = runtime.create_container(request).await.unwrap();
        let state = async || runtime.container_status_verbose(&id).await.map(|shown| shown.status.state());
        assert_eq!(state().await.unwrap(), cri::ContainerState::ContainerCreated);
        runtime.start_container(&id).await.unwrap();
        assert_eq!(state().await.unwrap(), cri::ContainerState::ContainerRunning);

        let shown = runtime.container_status_verbose(&id).await.unwrap();
        assert_eq!(shown.status.metadata.as_ref().unwrap().attempt, 3);
        assert!(shown.json().contains("sleep 1000") && !format!("{shown:?}").contains("sleep 1000"));
        let shown = runtime.sandbox_status_verbose(&sandbox).await.unwrap();
        assert!(shown.json().contains("\"web\""), "{}", shown.json());

        runtime.stop_container(&id, Duration::from_millis(1)).await.unwrap();
        assert_eq!(state().await.unwrap(), cri::ContainerState::ContainerExited);
        runtime.stop_container(&id, Duration::ZERO).await.unwrap();
        runtime.remove_container(&id).await.unwrap();
        runtime.remove_container(&id).await.unwrap();
        assert_eq!(state().await.unwrap_err().code(), Code::NotFound);
        embedded.shutdown().await;
    }

    #[test]
    fn the_grace_period_is_sent_in_whole_seconds_and_the_call_may_take_two_minutes_longer() {
        let rows: [(u64, i64); 5] = [(0, 0), (1, 1), (1_000, 1), (1_001, 2), (30_000, 30)];
        for (millis, seconds) in rows {
            let times = stop_times(Duration::from_millis(millis));
            assert_eq!(times, (seconds, Duration::from_secs(seconds.unsigned_abs() + 120)), "{millis} ms");
        }
        assert_eq!(stop_times(Duration::MAX), (i64::MAX, Duration::MAX));
    }

    #[tokio::test]
    async fn what_the_runtime_refuses_is_an_error_in_its_words() {
        let dir = tempfile::tempdir().unwrap();
        let (embedded, runtime) = embedded(dir.path());
        let (_, request) = creation(&runtime).await;
        let none = ContainerId::from("none");
        assert_eq!(runtime.start_container(&none).await.unwrap_err().code(), Code::NotFound);
        assert_eq!(runtime.sandbox_status_verbose(&"none".into()).await.unwrap_err().code(), Code::NotFound);
        let fault = FaultKind::Code(Code::FailedPrecondition, "not now".to_owned());
        embedded.faults().add(InjectedFault::once("CreateContainer", fault));
        let error = runtime.create_container(request.clone()).await.unwrap_err();
        assert_eq!((error.code(), error.message()), (Code::FailedPrecondition, "not now"));
        let malformed = runtime.create_container(request.slice(..request.len() - 1)).await.unwrap_err();
        assert_ne!(malformed.code(), Code::Ok);
        assert_eq!(embedded.faults().count("CreateContainer"), 2, "nothing is repeated");
        embedded.shutdown().await;
    }
}
