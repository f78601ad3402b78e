//! The recipe of a container whose request did not pass the socket: from the configurations that the runtime shows in its
//! verbose statuses. In: a container and its sandbox; out: a request, and what it does not contain.

use serde::Deserialize;
use serde_json::value::RawValue;
use thiserror::Error;
use tonic::Status;

use super::{
    Recipe,
    json::{Encoder, Misfit},
    messages::{CONTAINER, SANDBOX},
};
use crate::{
    ids::{ContainerId, SandboxId},
    proto::{
        cri,
        trim::{self, fields::put},
    },
    runtime::{Runtime, acts::VerboseStatus, environment},
};

/// How a container is made again, as far as its runtime shows it.
#[derive(Clone, Debug)]
pub(crate) struct Rebuilt {
    pub recipe: Recipe,
    /// The fields that the runtime shows and that this version does not know, such as `config.linux.novelty`.
    pub not_carried_over: Vec<String>,
}

/// Why a container cannot be made again from what its runtime shows.
#[derive(Clone, Debug, Error)]
pub(crate) enum Unrecoverable {
    /// `container` or `sandbox`.
    #[error("the runtime does not report the configuration that the {0} was created with")]
    NotReported(&'static str),
    #[error("the configuration that the runtime reports is not as expected at {0}")]
    Unexpected(String),
    #[error("the runtime does not report the values of environment variables in a form that is known")]
    Variables,
    #[error("the runtime reports the configuration of another {0}")]
    OfAnother(&'static str),
    #[error(transparent)]
    Runtime(#[from] Status),
}

impl From<Misfit> for Unrecoverable {
    fn from(Misfit(place): Misfit) -> Self {
        Self::Unexpected(place)
    }
}

/// Asks the runtime for what a container was created from. Both must exist: the container may have ended.
///
/// # Errors
/// The runtime does not show it, or shows something else, or it cannot be asked.
pub(crate) async fn from_runtime(
    runtime: &Runtime,
    container: &ContainerId,
    sandbox: &SandboxId,
) -> Result<Rebuilt, Unrecoverable> {
    let of_container = runtime.container_status_verbose(container).await?;
    let of_sandbox = runtime.sandbox_status_verbose(sandbox).await?;
    rebuild(sandbox, &of_container, &of_sandbox)
}

/// What a runtime shows of a container or of a sandbox.
#[derive(Deserialize)]
struct Info<'a> {
    #[serde(borrow)]
    config: Option<&'a RawValue>,
    /// Of a container: the sandbox that it is in.
    #[serde(rename = "sandboxID")]
    sandbox: Option<String>,
}

/// The names in a configuration.
#[derive(Deserialize)]
struct Named {
    #[serde(default)]
    metadata: Names,
}

/// Zeroes are not shown.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Names {
    name: String,
    uid: String,
    attempt: u32,
}

fn rebuild(
    sandbox: &SandboxId,
    of_container: &VerboseStatus<cri::ContainerStatus>,
    of_sandbox: &VerboseStatus<cri::PodSandboxStatus>,
) -> Result<Rebuilt, Unrecoverable> {
    let (info, container) = config(of_container.json(), "container")?;
    let (_, pod) = config(of_sandbox.json(), "sandbox")?;
    let real = of_container.status.metadata.clone().unwrap_or_default();
    let Names { name, attempt, .. } = names(container, "config")?;
    if (&*trim::name(&name), attempt) != (&*real.name, real.attempt)
        || info.sandbox.is_some_and(|shown| shown != sandbox.as_str())
    {
        return Err(Unrecoverable::OfAnother("container"));
    }
    let real = of_sandbox.status.metadata.clone().unwrap_or_default();
    let Names { name, uid, attempt } = names(pod, "sandbox_config")?;
    if (&*trim::name(&name), &*trim::name(&uid), attempt) != (&*real.name, &*real.uid, real.attempt) {
        return Err(Unrecoverable::OfAnother("sandbox"));
    }

    let values = environment::value_form(of_container.json()).ok_or(Unrecoverable::Variables)?;
    let (mut encoder, mut request) = (Encoder::new(values), Vec::new());
    put(&mut request, 1, sandbox.as_str().as_bytes());
    put(&mut request, 2, &encoder.encode("config", container, CONTAINER)?);
    put(&mut request, 3, &encoder.encode("sandbox_config", pod, SANDBOX)?);
    Ok(Rebuilt { recipe: Recipe(request.into()), not_carried_over: encoder.unknown() })
}

fn config<'a>(json: &'a str, of: &'static str) -> Result<(Info<'a>, &'a RawValue), Unrecoverable> {
    let info: Info<'_> = serde_json::from_str(json).map_err(|_| Unrecoverable::NotReported(of))?;
    // A null is none.
    let config = info.config.ok_or(Unrecoverable::NotReported(of))?;
    Ok((info, config))
}

fn names(config: &RawValue, place: &str) -> Result<Names, Unrecoverable> {
    let named: Named = serde_json::from_str(config.get())
        .map_err(|_| Unrecoverable::Unexpected(format!("{place}.metadata")))?;
    Ok(named.metadata)
}

/// What a container was made again from, for the tests against real runtimes.
#[cfg(feature = "faults")]
#[derive(Clone, Debug)]
pub struct Remade {
    /// The new container.
    pub id: ContainerId,
    /// The request that created it.
    pub request: Vec<u8>,
    /// What the request does not contain.
    pub not_carried_over: Vec<String>,
}

/// For the tests against real runtimes: makes a container again as this attempt, from what its runtime shows.
///
/// # Errors
/// There is no such request, or the runtime refuses a call, for this reason.
#[cfg(feature = "faults")]
pub async fn remake_for_test(
    socket: &std::path::Path,
    container: &ContainerId,
    sandbox: &SandboxId,
    attempt: u32,
) -> Result<Remade, String> {
    let runtime = Runtime::new(socket);
    let rebuilt = from_runtime(&runtime, container, sandbox).await.map_err(|error| error.to_string())?;
    let request = rebuilt.recipe.again(attempt).map_err(|error| error.to_string())?;
    let call = async {
        runtime.stop_container(container, std::time::Duration::from_secs(1)).await?;
        let id = runtime.create_container(request.clone()).await?;
        runtime.start_container(&id).await?;
        runtime.remove_container(container).await?;
        Ok(id)
    };
    let id = call.await.map_err(|error: Status| error.to_string())?;
    Ok(Remade { id, request: request.into(), not_carried_over: rebuilt.not_carried_over })
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::demo::{EmbeddedRuntime, EnvValues, Options};

    fn container(info: &str) -> VerboseStatus<cri::ContainerStatus> {
        let metadata = Some(cri::ContainerMetadata { name: "app".into(), attempt: 1 });
        let status = cri::ContainerStatus { metadata, ..Default::default() }.into();
        VerboseStatus { status, info: info.to_owned().into() }
    }

    fn sandbox(info: &str) -> VerboseStatus<cri::PodSandboxStatus> {
        let metadata = cri::PodSandboxMetadata { name: "web".into(), uid: "u1".into(), ..Default::default() };
        let status = cri::PodSandboxStatus { metadata: Some(metadata), ..Default::default() }.into();
        VerboseStatus { status, info: info.to_owned().into() }
    }

    const CONTAINER_INFO: &str = r#"{"sandboxID": "s1", "config": {
        "metadata": {"name": "app", "attempt": 1}, "novelty": {"x": 1},
        "envs": [{"key": "TOKEN", "value": "aHVudGVyMg=="}]
    }, "runtimeSpec": {"process": {"env": ["TOKEN=hunter2"]}}}"#;

    const SANDBOX_INFO: &str =
        r#"{"config": {"metadata": {"name": "web", "uid": "u1"}, "hostname": "h", "windows": {}}}"#;

    #[test]
    fn a_request_is_made_of_both_configurations() {
        let rebuilt = rebuild(&"s1".into(), &container(CONTAINER_INFO), &sandbox(SANDBOX_INFO)).unwrap();
        assert_eq!(rebuilt.not_carried_over, ["config.novelty", "sandbox_config.windows"]);
        let request = rebuilt.recipe.again(2).unwrap();
        let metadata = cri::PodSandboxMetadata { name: "web".into(), uid: "u1".into(), ..Default::default() };
        let expected = cri::CreateContainerRequest {
            pod_sandbox_id: "s1".into(),
            config: Some(cri::ContainerConfig {
                metadata: Some(cri::ContainerMetadata { name: "app".into(), attempt: 2 }),
                envs: vec![cri::KeyValue { key: "TOKEN".into(), value: "hunter2".into() }],
                ..Default::default()
            }),
            sandbox_config: Some(cri::PodSandboxConfig {
                metadata: Some(metadata),
                hostname: "h".into(),
                ..Default::default()
            }),
        };
        assert_eq!(cri::CreateContainerRequest::decode(&*request).unwrap(), expected);
    }

    #[test]
    fn what_is_not_reported_or_not_understood_makes_no_container() {
        let of = |from: &str, to: &str| CONTAINER_INFO.replace(from, to);
        let rows = [
            (
                "",
                SANDBOX_INFO,
                "the runtime does not report the configuration that the container was created with",
            ),
            (
                "no JSON",
                SANDBOX_INFO,
                "the runtime does not report the configuration that the container was created with",
            ),
            (
                r#"{"pid": 7, "sandboxID": "s1", "runtimeSpec": {}}"#,
                SANDBOX_INFO,
                "the runtime does not report the configuration that the container was created with",
            ),
            (
                r#"{"config": null}"#,
                SANDBOX_INFO,
                "the runtime does not report the configuration that the container was created with",
            ),
            (
                CONTAINER_INFO,
                "{}",
                "the runtime does not report the configuration that the sandbox was created with",
            ),
            (
                &of("\"app\"", "\"other\""),
                SANDBOX_INFO,
                "the runtime reports the configuration of another container",
            ),
            (
                &of("\"attempt\": 1", "\"attempt\": 2"),
                SANDBOX_INFO,
                "the runtime reports the configuration of another container",
            ),
            (
                &of("\"s1\"", "\"s2\""),
                SANDBOX_INFO,
                "the runtime reports the configuration of another container",
            ),
            (
                CONTAINER_INFO,
                r#"{"config": {"metadata": {"name": "web", "uid": "u2"}}}"#,
                "the runtime reports the configuration of another sandbox",
            ),
            (
                &of("TOKEN=hunter2", "TOKEN=other"),
                SANDBOX_INFO,
                "the runtime does not report the values of environment variables in a form that is known",
            ),
            (
                &of("{\"x\": 1}", "1, \"mounts\": [\"hunter2\"]"),
                SANDBOX_INFO,
                "the configuration that the runtime reports is not as expected at config.mounts",
            ),
            (
                &of("\"attempt\": 1", "\"attempt\": -1"),
                SANDBOX_INFO,
                "the configuration that the runtime reports is not as expected at config.metadata",
            ),
        ];
        for (of_container, of_sandbox, expected) in rows {
            let rebuilt = rebuild(&"s1".into(), &container(of_container), &sandbox(of_sandbox));
            assert_eq!(rebuilt.unwrap_err().to_string(), expected, "{of_container}");
        }
    }

    #[test]
    fn no_secret_shows() {
        let status = container(CONTAINER_INFO);
        let rebuilt = rebuild(&"s1".into(), &status, &sandbox(SANDBOX_INFO)).unwrap();
        let shown = format!("{status:?} {rebuilt:?}");
        assert!(!shown.contains("hunter2") && !shown.contains("aHVudGVyMg"), "{shown}");
    }

    #[tokio::test]
    async fn a_container_is_made_again_from_what_its_runtime_shows_of_it() {
        for env_values in [EnvValues::Plain, EnvValues::Base64] {
            let dir = tempfile::tempdir().unwrap();
            let socket = dir.path().join("cri.sock");
            let options = Options { env_values, ..Options::new(&socket, dir.path().join("scratch")) };
            let embedded = EmbeddedRuntime::start(options).unwrap();
            let runtime = Runtime::new(&socket);
            let pod = cri::PodSandboxConfig {
                metadata: Some(cri::PodSandboxMetadata {
                    name: "web".into(),
                    uid: "u1".into(),
                    ..Default::default()
                }),
                ..Default::default()
            };
            let mut client = cri::runtime_service_client::RuntimeServiceClient::new(crate::runtime::channel(
                socket.clone(),
            ));
            let run = cri::RunPodSandboxRequest { config: Some(pod.clone()), ..Default::default() };
            let sandbox =
                SandboxId::from(client.run_pod_sandbox(run).await.unwrap().into_inner().pod_sandbox_id);
            let mut creation = cri::CreateContainerRequest {
                pod_sandbox_id: sandbox.to_string(),
                config: Some(cri::ContainerConfig {
                    metadata: Some(cri::ContainerMetadata { name: "app".into(), attempt: 0 }),
                    image: Some(cri::ImageSpec { image: "any".into(), ..Default::default() }),
                    command: vec!["sleep".into()],
                    args: vec!["1000".into()],
                    envs: vec![
                        cri::KeyValue { key: "EMPTY".into(), value: "".into() },
                        cri::KeyValue { key: "LIKE".into(), value: "YQ==".into() },
                    ],
                    labels: [("app".to_owned(), "web".to_owned())].into(),
                    ..Default::default()
                }),
                sandbox_config: Some(pod),
            };
            let former = runtime.create_container(creation.encode_to_vec().into()).await.unwrap();
            runtime.start_container(&former).await.unwrap();

            let remade = remake_for_test(&socket, &former, &sandbox, 1).await.unwrap();
            creation.config.as_mut().unwrap().metadata.as_mut().unwrap().attempt = 1;
            assert_eq!(
                cri::CreateContainerRequest::decode(&*remade.request).unwrap(),
                creation,
                "{env_values:?}"
            );
            assert_eq!(remade.not_carried_over, [""; 0]);
            let status = runtime.container_status_verbose(&remade.id).await.unwrap().status;
            assert_eq!(
                (status.state(), status.metadata.clone().unwrap().attempt),
                (cri::ContainerState::ContainerRunning, 1)
            );
            let gone = from_runtime(&runtime, &former, &sandbox).await.unwrap_err();
            assert!(
                matches!(&gone, Unrecoverable::Runtime(status) if status.code() == tonic::Code::NotFound),
                "{gone}"
            );
            embedded.shutdown().await;
        }
    }
}
