//! A container is made again from what containerd shows of it: with the same configuration, in the same sandbox.

use std::{collections::HashMap, fs, path::Path};

use anyhow::{Context as _, Result, anyhow};
use criprobe::{
    act::{self, Remade},
    ids::ContainerId,
    proto::cri::{self as pb, ContainerState, runtime_service_client::RuntimeServiceClient},
    runtime::channel,
};
use prost::Message;
use serde_json::{Value, json};
use tonic::client::Grpc;
use tonic_prost::ProstCodec;

use crate::support::{
    containerd::Lab,
    cri::{self, Container, Cri, Pod},
};

/// A CreateContainerRequest with all that this test sets.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Creation {
    #[prost(string, tag = "1")]
    pub(crate) sandbox: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) config: Option<Config>,
    #[prost(message, optional, tag = "3")]
    pub(crate) sandbox_config: Option<SandboxConfig>,
}

/// A ContainerConfig.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Config {
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<pb::ContainerMetadata>,
    #[prost(message, optional, tag = "2")]
    image: Option<pb::ImageSpec>,
    #[prost(string, repeated, tag = "3")]
    pub(crate) command: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub(crate) args: Vec<String>,
    #[prost(string, tag = "5")]
    working_dir: String,
    #[prost(message, repeated, tag = "6")]
    envs: Vec<pb::KeyValue>,
    #[prost(message, repeated, tag = "7")]
    mounts: Vec<Mount>,
    #[prost(message, repeated, tag = "8")]
    devices: Vec<Device>,
    #[prost(map = "string, string", tag = "9")]
    pub(crate) labels: HashMap<String, String>,
    #[prost(map = "string, string", tag = "10")]
    pub(crate) annotations: HashMap<String, String>,
    #[prost(string, tag = "11")]
    log_path: String,
    #[prost(bool, tag = "12")]
    stdin: bool,
    #[prost(bool, tag = "13")]
    stdin_once: bool,
    #[prost(message, optional, tag = "15")]
    pub(crate) linux: Option<Linux>,
}

#[derive(Clone, PartialEq, Message)]
struct Mount {
    #[prost(string, tag = "1")]
    container_path: String,
    #[prost(string, tag = "2")]
    host_path: String,
    #[prost(bool, tag = "3")]
    readonly: bool,
    #[prost(int32, tag = "5")]
    propagation: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Device {
    #[prost(string, tag = "1")]
    container_path: String,
    #[prost(string, tag = "2")]
    host_path: String,
    #[prost(string, tag = "3")]
    permissions: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Linux {
    #[prost(message, optional, tag = "1")]
    pub(crate) resources: Option<Resources>,
    #[prost(message, optional, tag = "2")]
    security: Option<Security>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Resources {
    #[prost(int64, tag = "1")]
    cpu_period: i64,
    #[prost(int64, tag = "2")]
    cpu_quota: i64,
    #[prost(int64, tag = "3")]
    cpu_shares: i64,
    #[prost(int64, tag = "4")]
    pub(crate) memory_limit: i64,
    #[prost(int64, tag = "5")]
    oom_score_adj: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Security {
    #[prost(message, optional, tag = "1")]
    capabilities: Option<Capabilities>,
    #[prost(message, optional, tag = "3")]
    namespaces: Option<Namespaces>,
    #[prost(message, optional, tag = "5")]
    run_as_user: Option<Int64>,
    #[prost(bool, tag = "7")]
    readonly_rootfs: bool,
    #[prost(int64, repeated, tag = "8")]
    groups: Vec<i64>,
    #[prost(bool, tag = "11")]
    no_new_privs: bool,
    #[prost(message, optional, tag = "12")]
    run_as_group: Option<Int64>,
    #[prost(string, repeated, tag = "13")]
    masked_paths: Vec<String>,
    #[prost(string, repeated, tag = "14")]
    readonly_paths: Vec<String>,
    #[prost(message, optional, tag = "15")]
    seccomp: Option<Profile>,
}

#[derive(Clone, PartialEq, Message)]
struct Capabilities {
    #[prost(string, repeated, tag = "1")]
    add: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    drop: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Namespaces {
    #[prost(int32, tag = "1")]
    network: i32,
    #[prost(int32, tag = "2")]
    pid: i32,
    #[prost(int32, tag = "3")]
    ipc: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Int64 {
    #[prost(int64, tag = "1")]
    value: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(int32, tag = "1")]
    profile_type: i32,
}

/// A PodSandboxConfig.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SandboxConfig {
    #[prost(message, optional, tag = "1")]
    metadata: Option<pb::PodSandboxMetadata>,
    #[prost(string, tag = "2")]
    hostname: String,
    #[prost(string, tag = "3")]
    log_directory: String,
    #[prost(message, optional, tag = "4")]
    dns: Option<Dns>,
    #[prost(map = "string, string", tag = "6")]
    labels: HashMap<String, String>,
    #[prost(map = "string, string", tag = "7")]
    annotations: HashMap<String, String>,
    #[prost(message, optional, tag = "8")]
    linux: Option<SandboxLinux>,
}

#[derive(Clone, PartialEq, Message)]
struct Dns {
    #[prost(string, repeated, tag = "1")]
    servers: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    searches: Vec<String>,
    #[prost(string, repeated, tag = "3")]
    options: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct SandboxLinux {
    #[prost(message, optional, tag = "2")]
    security: Option<SandboxSecurity>,
    #[prost(map = "string, string", tag = "3")]
    sysctls: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct SandboxSecurity {
    #[prost(message, optional, tag = "1")]
    namespaces: Option<Namespaces>,
}

/// A RunPodSandboxRequest.
#[derive(Clone, PartialEq, Message)]
struct Run {
    #[prost(message, optional, tag = "1")]
    config: Option<SandboxConfig>,
}

pub(crate) async fn call<Q, A>(socket: &Path, method: &str, message: Q) -> Result<A>
where
    Q: Message + Default + 'static,
    A: Message + Default + 'static,
{
    let mut client = Grpc::new(channel(socket.to_owned()));
    client.ready().await?;
    let path = format!("/runtime.v1.RuntimeService/{method}").parse()?;
    Ok(client.unary(tonic::Request::new(message), path, ProstCodec::<Q, A>::default()).await?.into_inner())
}

/// The configuration of a container as containerd shows it.
pub(crate) async fn shown(client: &mut Cri, id: &ContainerId) -> Result<Value> {
    let request = pb::ContainerStatusRequest { container_id: id.to_string(), verbose: true };
    let info = client.container_status(request).await?.into_inner().info;
    let mut info: Value = serde_json::from_str(info.get("info").context("there is more to show")?)?;
    Ok(info["config"].take())
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

/// A pod with a resolver and sysctls of its own, whose logs go to this folder.
pub(crate) async fn run_pod(
    socket: &Path,
    mut plain: pb::PodSandboxConfig,
    logs: &str,
) -> Result<(Pod, SandboxConfig)> {
    plain.annotations.insert("note.example.com/a".to_owned(), "\"quoted\" <&> \u{2028}".to_owned());
    let config = SandboxConfig {
        metadata: plain.metadata.clone(),
        hostname: plain.hostname.clone(),
        log_directory: logs.to_owned(),
        dns: Some(Dns {
            servers: texts(&["192.0.2.53"]),
            searches: texts(&["example.com"]),
            options: texts(&["ndots:2"]),
        }),
        labels: plain.labels.clone(),
        annotations: plain.annotations.clone(),
        linux: Some(SandboxLinux {
            security: Some(SandboxSecurity { namespaces: Some(Namespaces { pid: 1, ..Default::default() }) }),
            // The range is what containerd 2 adds where it is not set.
            sysctls: [
                ("net.ipv4.ip_unprivileged_port_start", "0"),
                ("net.ipv4.ping_group_range", "0 2147483647"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        }),
    };
    let made: pb::RunPodSandboxResponse =
        call(socket, "RunPodSandbox", Run { config: Some(config.clone()) }).await?;
    Ok((Pod::of(&made.pod_sandbox_id, plain), config))
}

#[tokio::test]
async fn a_container_with_many_options_is_made_again_as_it_was() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let mut client = RuntimeServiceClient::new(channel(lab.socket()));
    let folder = tempfile::Builder::new().prefix("criprobe-remade-").tempdir()?;
    let host = folder.path().display().to_string();
    fs::write(folder.path().join("mark"), "marked")?;
    let (pod, sandbox_config) = run_pod(&lab.socket(), cri::pod_config("remade", &[]), &host).await?;

    let mut creation = Creation {
        sandbox: pod.id.to_string(),
        config: Some(many_options(&pod, &host)),
        sandbox_config: Some(sandbox_config),
    };
    let created: pb::CreateContainerResponse =
        call(&lab.socket(), "CreateContainer", creation.clone()).await?;
    let former = ContainerId::from(created.container_id);
    client.start_container(pb::StartContainerRequest { container_id: former.to_string() }).await?;
    let mut expected = shown(&mut client, &former).await?;

    let remade = act::remake_for_test(&lab.socket(), &former, &pod.id, 1).await;
    let Remade { id, request, not_carried_over } = remade.map_err(|reason| anyhow!(reason))?;
    assert_eq!(not_carried_over, [""; 0]);
    let metadata = creation.config.as_mut().and_then(|config| config.metadata.as_mut());
    metadata.context("it has a name")?.attempt = 1;
    assert_eq!(Creation::decode(&*request)?, creation);
    assert_eq!(request.len(), creation.encoded_len(), "and there is nothing else in it");

    assert_eq!(cri::container_state(&mut client, &id).await?.0, ContainerState::ContainerRunning);
    let left = cri::containers_of(&mut client, &pod).await?;
    assert_eq!(left, std::slice::from_ref(&id), "the former one is removed");
    expected["metadata"]["attempt"] = json!(1);
    assert_eq!(shown(&mut client, &id).await?, expected);
    let look =
        r#"printf '%s,' "$TOKEN" "$EMPTY" "$LIKE"; id -u; cat /ro/mark; touch /ro/x || touch /rw/x; pwd"#;
    let answer = cri::exec(&mut client, &id, &["sh", "-c", look]).await?;
    assert_eq!(String::from_utf8_lossy(&answer.stdout), "hunter2=\u{e9}<&>,,YQ==,0\nmarked/tmp\n");
    assert!(folder.path().join("x").exists() && folder.path().join("app.log").exists());
    Ok(())
}

/// Most of what a container can be created with.
pub(crate) fn many_options(pod: &Pod, host: &str) -> Config {
    let plain =
        cri::creation(pod, &Container::shell(&["sh", "-c", "sleep \"$1\""])).config.unwrap_or_default();
    let env = [("TOKEN", "hunter2=\u{e9}<&>"), ("EMPTY", ""), ("LIKE", "YQ=="), ("LIKE2", "c2VjcmV0")];
    let mount = |path: &str, readonly| Mount {
        container_path: path.to_owned(),
        host_path: host.to_owned(),
        readonly,
        propagation: 0,
    };
    Config {
        metadata: plain.metadata,
        image: plain.image,
        command: plain.command,
        args: texts(&["sh", "100000"]),
        working_dir: "/tmp".to_owned(),
        envs: env.map(|(key, value)| pb::KeyValue { key: key.into(), value: value.into() }).to_vec(),
        mounts: vec![mount("/ro", true), mount("/rw", false)],
        devices: vec![Device {
            container_path: "/dev/nothing".to_owned(),
            host_path: "/dev/null".to_owned(),
            permissions: "rw".to_owned(),
        }],
        labels: plain.labels,
        annotations: [
            (
                "io.kubernetes.container.preStopHandler".to_owned(),
                r#"{"exec":{"command":["true"]}}"#.to_owned(),
            ),
            ("empty.example.com/x".to_owned(), String::new()),
        ]
        .into(),
        log_path: "app.log".to_owned(),
        stdin: true,
        stdin_once: true,
        linux: Some(Linux {
            resources: Some(Resources {
                cpu_period: 100_000,
                cpu_quota: -1,
                cpu_shares: 512,
                memory_limit: 64 << 20,
                oom_score_adj: 500,
            }),
            security: Some(Security {
                capabilities: Some(Capabilities { add: texts(&["NET_ADMIN"]), drop: texts(&["SETPCAP"]) }),
                namespaces: Some(Namespaces { pid: 1, ..Default::default() }),
                // User 0 is not the same as none, although neither is shown with a number.
                run_as_user: Some(Int64 { value: 0 }),
                readonly_rootfs: false,
                groups: vec![7, 2000],
                no_new_privs: true,
                run_as_group: Some(Int64 { value: 0 }),
                masked_paths: texts(&["/proc/kcore"]),
                readonly_paths: texts(&["/proc/sys"]),
                seccomp: Some(Profile { profile_type: 1 }),
            }),
        }),
    }
}
