//! A CRI client for tests, on whatever socket: makes pods and containers as a kubelet would label them.

use std::{
    collections::HashMap,
    net::IpAddr,
    path::Path,
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context as _, Result};
use criprobe::{
    ids::{ContainerId, PodUid, SandboxId},
    proto::cri::{self as pb, runtime_service_client::RuntimeServiceClient},
};
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::UnixStream;
use tonic::{
    client::Grpc,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

/// A client of `runtime.v1.RuntimeService`.
pub(crate) type Cri = RuntimeServiceClient<Channel>;

/// The image of the rig: a shell and its applets, `PATH=/bin`.
const BUSYBOX: &str = "localhost/busybox:1";

/// 16 MiB, both ways: what the kubelet, crictl and containerd allow a message.
const MESSAGE_MAX: usize = 16 << 20;

/// 16 MiB: what grpc-go, and so the kubelet and crictl, allow the headers of an answer.
const HEADERS_MAX: u32 = 16 << 20;

/// A pod that a test has made.
#[derive(Clone)]
pub(crate) struct Pod {
    /// What the runtime calls it.
    pub(crate) id: SandboxId,
    /// Unlike that of any other pod of any test.
    pub(crate) uid: PodUid,
    /// As it was made; CreateContainer wants it again.
    pub(crate) config: pb::PodSandboxConfig,
}

impl Pod {
    /// One that was made with this definition, and got this id.
    pub(crate) fn of(id: &str, config: pb::PodSandboxConfig) -> Self {
        let uid = config.metadata.as_ref().map(|metadata| metadata.uid.as_str()).unwrap_or_default();
        Self { id: id.into(), uid: uid.into(), config }
    }
}

/// Makes a container's definition: shorter to read than its message.
pub(crate) struct Container<'a> {
    /// Its name in the pod.
    pub(crate) name: &'a str,
    /// Its image.
    pub(crate) image: &'a str,
    /// What it runs.
    pub(crate) command: &'a [&'a str],
    /// Its annotations.
    pub(crate) annotations: &'a [(&'a str, &'a str)],
    /// Its environment.
    pub(crate) env: &'a [(&'a str, &'a str)],
}

impl<'a> Container<'a> {
    /// One that only lives, called `app`.
    pub(crate) const IDLE: Container<'static> =
        Container { name: "app", image: BUSYBOX, command: &["sleep", "100000"], annotations: &[], env: &[] };

    /// One that runs this line in a shell, called `app`.
    pub(crate) fn shell(command: &'a [&'a str; 3]) -> Self {
        Self { command, ..Self::IDLE }
    }
}

/// Opens one connection to a Unix socket.
pub(crate) async fn connect(socket: &Path) -> Result<Cri> {
    let path = socket.to_owned();
    let channel = Endpoint::from_static("http://localhost")
        .http2_max_header_list_size(HEADERS_MAX)
        .connect_with_connector(tower::service_fn(move |_| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        }))
        .await
        .with_context(|| format!("connect to {}", socket.display()))?;
    Ok(RuntimeServiceClient::new(channel)
        .max_decoding_message_size(MESSAGE_MAX)
        .max_encoding_message_size(MESSAGE_MAX))
}

/// Asks for the version, which every CRI answers as soon as it can answer anything.
pub(crate) async fn version(client: &mut Cri) -> Result<pb::VersionResponse> {
    Ok(client.version(pb::VersionRequest::default()).await?.into_inner())
}

/// Makes a call of the runtime service under the package's old name, `runtime.v1alpha2`.
pub(crate) async fn v1alpha2<Q, A>(channel: &Channel, method: &str, message: Q) -> Result<A>
where
    Q: Message + Default + 'static,
    A: Message + Default + 'static,
{
    let mut client = Grpc::new(channel.clone());
    client.ready().await?;
    let path = format!("/runtime.v1alpha2.RuntimeService/{method}").parse()?;
    let codec = ProstCodec::<Q, A>::default();
    Ok(client.unary(tonic::Request::new(message), path, codec).await?.into_inner())
}

/// Starts a pod of this name in namespace `default`.
pub(crate) async fn run_pod(client: &mut Cri, name: &str, annotations: &[(&str, &str)]) -> Result<Pod> {
    run_sandbox(client, pod_config(name, annotations)).await
}

/// Starts a pod's sandbox.
pub(crate) async fn run_sandbox(client: &mut Cri, config: pb::PodSandboxConfig) -> Result<Pod> {
    let request = pb::RunPodSandboxRequest { config: Some(config.clone()), ..Default::default() };
    let id = client.run_pod_sandbox(request).await?.into_inner().pod_sandbox_id;
    Ok(Pod::of(&id, config))
}

/// The definition of a pod of this name in namespace `default`, with a uid of its own.
pub(crate) fn pod_config(name: &str, annotations: &[(&str, &str)]) -> pb::PodSandboxConfig {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    let uid = format!("{name}-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    pb::PodSandboxConfig {
        metadata: Some(pb::PodSandboxMetadata {
            name: name.into(),
            uid: uid.clone(),
            namespace: "default".into(),
            attempt: 0,
        }),
        hostname: name.into(),
        labels: pod_labels(name, &uid),
        annotations: owned(annotations),
        linux: Some(pb::LinuxPodSandboxConfig::default()),
        ..Default::default()
    }
}

/// The address that the runtime gave a pod.
pub(crate) async fn pod_address(client: &mut Cri, pod: &Pod) -> Result<IpAddr> {
    let request = pb::PodSandboxStatusRequest { pod_sandbox_id: pod.id.to_string(), verbose: false };
    let status = client.pod_sandbox_status(request).await?.into_inner().status.unwrap_or_default();
    Ok(status.network.unwrap_or_default().ip.parse()?)
}

/// The request that would make a container.
pub(crate) fn creation(pod: &Pod, container: &Container<'_>) -> pb::CreateContainerRequest {
    let metadata = pod.config.metadata.clone().unwrap_or_default();
    let mut labels = pod_labels(&metadata.name, pod.uid.as_str());
    labels.insert("io.kubernetes.container.name".into(), container.name.into());
    let env = |(key, value): &(&str, &str)| pb::KeyValue { key: (*key).into(), value: (*value).into() };
    pb::CreateContainerRequest {
        pod_sandbox_id: pod.id.to_string(),
        config: Some(pb::ContainerConfig {
            metadata: Some(pb::ContainerMetadata { name: container.name.into(), attempt: 0 }),
            image: Some(pb::ImageSpec { image: container.image.into(), ..Default::default() }),
            command: container.command.iter().map(ToString::to_string).collect(),
            envs: container.env.iter().map(env).collect(),
            labels,
            annotations: owned(container.annotations),
            ..Default::default()
        }),
        sandbox_config: Some(pod.config.clone()),
    }
}

/// Makes a container and starts it.
pub(crate) async fn run_container(
    client: &mut Cri,
    pod: &Pod,
    container: &Container<'_>,
) -> Result<ContainerId> {
    let container_id = client.create_container(creation(pod, container)).await?.into_inner().container_id;
    client.start_container(pb::StartContainerRequest { container_id: container_id.clone() }).await?;
    Ok(container_id.into())
}

/// Runs a command in a container.
pub(crate) async fn exec(
    client: &mut Cri,
    id: &ContainerId,
    command: &[&str],
) -> Result<pb::ExecSyncResponse> {
    let request = pb::ExecSyncRequest {
        container_id: id.to_string(),
        cmd: command.iter().map(ToString::to_string).collect(),
        timeout: 10,
    };
    Ok(client.exec_sync(request).await?.into_inner())
}

/// The state and, once it has ended, the exit code of a container.
pub(crate) async fn container_state(client: &mut Cri, id: &ContainerId) -> Result<(pb::ContainerState, i32)> {
    let request = pb::ContainerStatusRequest { container_id: id.to_string(), verbose: false };
    let status = client.container_status(request).await?.into_inner().status.unwrap_or_default();
    Ok((status.state(), status.exit_code))
}

/// The ids of all containers of a pod that the runtime lists.
pub(crate) async fn containers_of(client: &mut Cri, pod: &Pod) -> Result<Vec<ContainerId>> {
    let filter = pb::ContainerFilter { pod_sandbox_id: pod.id.to_string(), ..Default::default() };
    let list = client.list_containers(pb::ListContainersRequest { filter: Some(filter) }).await?.into_inner();
    Ok(list.containers.into_iter().map(|container| container.id.into()).collect())
}

fn pod_labels(name: &str, uid: &str) -> HashMap<String, String> {
    owned(&[
        ("io.kubernetes.pod.name", name),
        ("io.kubernetes.pod.namespace", "default"),
        ("io.kubernetes.pod.uid", uid),
    ])
}

fn owned(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}
