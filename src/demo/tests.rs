//! The embedded runtime as its clients see it: a real server on a real socket, a real client, real processes.

use std::{future::Future, time::Duration};

use tempfile::TempDir;
use tonic::{
    Code,
    transport::{Channel, Endpoint},
};

use super::*;
use crate::proto::cri::{
    self, image_service_client::ImageServiceClient, runtime_service_client::RuntimeServiceClient,
};

/// ExecSync.
mod commands;
/// Pods, containers, statuses, lists, events, images.
mod life;
/// Faults, restarts, and what is left at the end.
mod mishaps;
/// Exec and the streaming server.
mod streams;

/// A runtime in a folder of its own, and a client of it.
struct Rig {
    runtime: EmbeddedRuntime,
    client: RuntimeServiceClient<Channel>,
    dir: TempDir,
}

impl Rig {
    async fn new() -> Self {
        Self::with(EnvValues::Plain).await
    }

    async fn with(env_values: EnvValues) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options =
            Options { env_values, ..Options::new(dir.path().join("cri.sock"), dir.path().join("scratch")) };
        let runtime = EmbeddedRuntime::start(options).unwrap();
        let client = RuntimeServiceClient::new(channel(&runtime).await).max_decoding_message_size(64 << 20);
        Self { runtime, client, dir }
    }

    /// A sandbox in the namespace `test`.
    async fn sandbox(&self, name: &str) -> String {
        let request = cri::RunPodSandboxRequest { config: Some(pod(name)), ..Default::default() };
        self.client.clone().run_pod_sandbox(request).await.unwrap().into_inner().pod_sandbox_id
    }

    async fn create(&self, sandbox: &str, config: cri::ContainerConfig) -> String {
        let request = cri::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: None,
        };
        self.client.clone().create_container(request).await.unwrap().into_inner().container_id
    }

    async fn start(&self, id: &str) -> Result<(), tonic::Status> {
        let request = cri::StartContainerRequest { container_id: id.to_owned() };
        self.client.clone().start_container(request).await.map(drop)
    }

    /// A running container in a sandbox of its own.
    async fn run(&self, name: &str, script: &str) -> String {
        let sandbox = self.sandbox(name).await;
        let id = self.create(&sandbox, shell("app", script)).await;
        self.start(&id).await.unwrap();
        id
    }

    async fn status(&self, id: &str) -> cri::ContainerStatus {
        let request = cri::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        self.client.clone().container_status(request).await.unwrap().into_inner().status.unwrap()
    }

    async fn exited(&self, id: &str) -> cri::ContainerStatus {
        eventually("the container has exited", || async {
            let status = self.status(id).await;
            (status.state() == cri::ContainerState::ContainerExited).then_some(status)
        })
        .await
    }

    async fn exec(
        &self,
        id: &str,
        cmd: &[&str],
        timeout: i64,
    ) -> Result<cri::ExecSyncResponse, tonic::Status> {
        let cmd = cmd.iter().map(|part| (*part).to_owned()).collect();
        let request = cri::ExecSyncRequest { container_id: id.to_owned(), cmd, timeout };
        self.client.clone().exec_sync(request).await.map(tonic::Response::into_inner)
    }

    async fn list(&self) -> Vec<cri::Container> {
        let request = cri::ListContainersRequest::default();
        self.client.clone().list_containers(request).await.unwrap().into_inner().containers
    }

    /// A file that a container made, once it is there and ends with a line end.
    async fn file(&self, id: &str, name: &str) -> String {
        let path = self.root(id).join(name);
        eventually("the container has made its file", || async {
            fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n'))
        })
        .await
    }

    fn root(&self, id: &str) -> PathBuf {
        self.runtime.node.folder.join(id).join("root")
    }

    async fn pid(&self, id: &str, file: &str) -> u32 {
        self.file(id, file).await.trim().parse().unwrap()
    }
}

async fn channel(runtime: &EmbeddedRuntime) -> Channel {
    let endpoint = Endpoint::try_from(format!("unix://{}", runtime.socket().display())).unwrap();
    endpoint.connect().await.unwrap()
}

fn pod(name: &str) -> cri::PodSandboxConfig {
    cri::PodSandboxConfig {
        metadata: Some(cri::PodSandboxMetadata {
            name: name.to_owned(),
            uid: format!("{name}-uid"),
            namespace: "test".to_owned(),
            attempt: 0,
        }),
        ..Default::default()
    }
}

fn container(name: &str) -> cri::ContainerConfig {
    cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata { name: name.to_owned(), attempt: 0 }),
        image: Some(cri::ImageSpec { image: "any".to_owned(), ..Default::default() }),
        ..Default::default()
    }
}

fn shell(name: &str, script: &str) -> cri::ContainerConfig {
    cri::ContainerConfig {
        command: vec!["sh".to_owned(), "-c".to_owned()],
        args: vec![script.to_owned()],
        ..container(name)
    }
}

/// Whether a process does something still; one that waits to be reaped by a parent that we do not know does not.
fn is_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z')))
}

async fn gone(pid: u32) {
    eventually("the process is gone", || async { (!is_alive(pid)).then_some(()) }).await;
}

/// Asks until there is an answer; ten seconds at most.
async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    let deadline = clock::now() + Duration::from_secs(10);
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(clock::now() < deadline, "not within 10 s: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[track_caller]
fn assert_status<T: std::fmt::Debug>(result: Result<T, tonic::Status>, code: Code, message: &str) {
    let status = result.unwrap_err();
    assert_eq!(status.code(), code, "{status}");
    assert!(status.message().contains(message), "{status}");
}
