//! Containers with limits or a security context, which criprobe's own messages do not have.

use std::path::Path;

use anyhow::Result;
use criprobe::{
    ids::ContainerId,
    proto::cri::{self as pb},
    runtime::channel,
};
use tonic::client::Grpc;
use tonic_prost::ProstCodec;

use super::cri::{self, Container, Cri, Pod};

#[derive(Clone, PartialEq, prost::Message)]
struct Request {
    #[prost(string, tag = "1")]
    pod_sandbox_id: String,
    #[prost(message, optional, tag = "2")]
    config: Option<Config>,
    #[prost(message, optional, tag = "3")]
    sandbox_config: Option<pb::PodSandboxConfig>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Config {
    #[prost(message, optional, tag = "1")]
    metadata: Option<pb::ContainerMetadata>,
    #[prost(message, optional, tag = "2")]
    image: Option<pb::ImageSpec>,
    #[prost(string, repeated, tag = "3")]
    command: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    envs: Vec<pb::KeyValue>,
    #[prost(message, optional, tag = "15")]
    linux: Option<Linux>,
}

/// `LinuxContainerConfig`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Linux {
    #[prost(message, optional, tag = "1")]
    pub(crate) resources: Option<Resources>,
    #[prost(message, optional, tag = "2")]
    pub(crate) security_context: Option<SecurityContext>,
}

/// `LinuxContainerResources`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Resources {
    #[prost(int64, tag = "4")]
    pub(crate) memory_limit_in_bytes: i64,
    #[prost(int64, tag = "5")]
    pub(crate) oom_score_adj: i64,
}

/// `LinuxContainerSecurityContext`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SecurityContext {
    #[prost(message, optional, tag = "1")]
    pub(crate) capabilities: Option<Capabilities>,
    #[prost(message, optional, tag = "3")]
    pub(crate) namespaces: Option<Namespaces>,
    #[prost(message, optional, tag = "5")]
    pub(crate) run_as_user: Option<i64>,
    #[prost(bool, tag = "7")]
    pub(crate) readonly_rootfs: bool,
    #[prost(int64, repeated, tag = "8")]
    pub(crate) supplemental_groups: Vec<i64>,
    #[prost(bool, tag = "11")]
    pub(crate) no_new_privs: bool,
    #[prost(message, optional, tag = "12")]
    pub(crate) run_as_group: Option<i64>,
    #[prost(message, optional, tag = "15")]
    pub(crate) seccomp: Option<Profile>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Capabilities {
    #[prost(string, repeated, tag = "1")]
    pub(crate) add: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(crate) drop: Vec<String>,
}

/// `NamespaceOption`: 0 is the pod's, 1 the container's own.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Namespaces {
    #[prost(int32, tag = "2")]
    pub(crate) pid: i32,
}

/// `SecurityProfile`: 0 is the runtime's default, 1 none, 2 one on this node.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Profile {
    #[prost(int32, tag = "1")]
    pub(crate) kind: i32,
    #[prost(string, tag = "2")]
    pub(crate) localhost_ref: String,
}

impl Linux {
    /// This much memory.
    pub(crate) fn memory(bytes: i64) -> Self {
        let resources = Some(Resources { memory_limit_in_bytes: bytes, oom_score_adj: 0 });
        Self { resources, security_context: None }
    }

    /// Processes of its own, as the kubelet has it: it sees no others, and its first one is init to them.
    #[must_use]
    pub(crate) fn with_own_pids(mut self) -> Self {
        self.security_context.get_or_insert_default().namespaces = Some(Namespaces { pid: 1 });
        self
    }
}

/// Makes such a container, through this socket, and starts it. `attempt`: how many of its name there were before.
pub(crate) async fn run_confined(
    socket: &Path,
    client: &mut Cri,
    pod: &Pod,
    (container, attempt): (&Container<'_>, u32),
    linux: Linux,
) -> Result<ContainerId> {
    let whole = cri::creation(pod, container);
    let config = whole.config.unwrap_or_default();
    let request = Request {
        pod_sandbox_id: whole.pod_sandbox_id,
        config: Some(Config {
            metadata: config.metadata.map(|metadata| pb::ContainerMetadata { attempt, ..metadata }),
            image: config.image,
            command: config.command,
            envs: config.envs,
            linux: Some(linux),
        }),
        sandbox_config: whole.sandbox_config,
    };
    let mut raw = Grpc::new(channel(socket.to_owned()));
    raw.ready().await?;
    let path = "/runtime.v1.RuntimeService/CreateContainer".parse()?;
    let codec = ProstCodec::<Request, pb::CreateContainerResponse>::default();
    let container_id = raw.unary(tonic::Request::new(request), path, codec).await?.into_inner().container_id;
    client.start_container(pb::StartContainerRequest { container_id: container_id.clone() }).await?;
    Ok(container_id.into())
}
