//! Reads what the runtime reports into plain values: times, states, the verbose JSON. In: messages; out: values; what
//! is missing or malformed is absent, never an error.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;

use super::view::{ContainerState, Env, PodNetwork};
use crate::proto::cri;

/// 16 addresses of a pod are kept, the primary one first: Kubernetes gives it two.
const MAX_ADDRESSES: usize = 16;

/// 2 MiB of environment are kept of a container: what Linux accepts as the arguments and environment of a process, with
/// the stack that containers have by default. A larger one counts as not known: commands that refer to it are errors.
const MAX_ENV: usize = 2 << 20;

/// Nanoseconds since the epoch; 0 and less is "not yet".
pub fn time(nanoseconds: i64) -> Option<SystemTime> {
    u64::try_from(nanoseconds)
        .ok()
        .filter(|nanos| *nanos > 0)
        .map(|nanos| UNIX_EPOCH + Duration::from_nanos(nanos))
}

/// A container's state, with its exit code where that is known.
pub fn state(state: i32, exit_code: Option<i32>) -> ContainerState {
    match cri::ContainerState::try_from(state) {
        Ok(cri::ContainerState::ContainerCreated) => ContainerState::Created,
        Ok(cri::ContainerState::ContainerRunning) => ContainerState::Running,
        Ok(cri::ContainerState::ContainerExited) => ContainerState::Exited { exit_code },
        Ok(cri::ContainerState::ContainerUnknown) | Err(_) => ContainerState::Unknown,
    }
}

/// The image as people named it. A kubelet creates containers by the image's id, and tells the name of the pod's manifest
/// beside it (`user_specified_image`).
pub fn image(spec: Option<cri::ImageSpec>) -> Arc<str> {
    let spec = spec.unwrap_or_default();
    if spec.user_specified_image.is_empty() { spec.image.into() } else { spec.user_specified_image.into() }
}

/// Where a sandbox is reached.
pub fn network(status: &cri::PodSandboxStatus) -> PodNetwork {
    let options = status.linux.as_ref().and_then(|linux| linux.namespaces.as_ref()?.options.as_ref());
    if options.is_some_and(is_host_network) {
        return PodNetwork::Host;
    }
    let Some(network) = &status.network else { return PodNetwork::Unknown };
    let others = network.additional_ips.iter().map(|ip| &ip.ip);
    let addresses: Vec<IpAddr> = std::iter::once(&network.ip)
        .chain(others)
        .filter_map(|ip| ip.parse().ok())
        .take(MAX_ADDRESSES)
        .collect();
    if addresses.is_empty() { PodNetwork::Unknown } else { PodNetwork::Pod(addresses) }
}

fn is_host_network(options: &cri::NamespaceOption) -> bool {
    options.network == cri::NamespaceMode::Node as i32
}

/// The environment of a container that a client asked for. Values that are no UTF-8 are shown as best they can be.
/// `None` where it is too large to be kept.
pub fn env(pairs: &[cri::KeyValue]) -> Option<Env> {
    let env: Env = pairs
        .iter()
        .map(|pair| (pair.key.clone(), String::from_utf8_lossy(&pair.value).into_owned()))
        .collect();
    (env.weight() <= MAX_ENV).then_some(env)
}

/// The environment in a verbose status: of containerd as the client set it (`info["info"]`, the container's config), of
/// a runtime that does not tell that, as the process got it. `None` where neither is told, or it is too large.
pub fn env_of_info(info: &HashMap<String, String>) -> Option<Env> {
    read_env(info).filter(|env| env.weight() <= MAX_ENV)
}

fn read_env(info: &HashMap<String, String>) -> Option<Env> {
    #[derive(Deserialize)]
    struct Info {
        config: Option<Config>,
        #[serde(rename = "runtimeSpec")]
        spec: Option<Spec>,
    }
    #[derive(Deserialize)]
    struct Config {
        #[serde(default)]
        envs: Vec<Pair>,
    }
    #[derive(Deserialize)]
    struct Pair {
        key: String,
        #[serde(default)]
        value: String,
    }
    #[derive(Deserialize)]
    struct Spec {
        process: Option<Process>,
    }
    #[derive(Deserialize)]
    struct Process {
        #[serde(default)]
        env: Vec<String>,
    }
    let info: Info = serde_json::from_str(info.get("info")?).ok()?;
    let process = info.spec.and_then(|spec| spec.process).map(|process| process.env);
    let process = process.map(|env| {
        env.iter()
            .filter_map(|pair| pair.split_once('='))
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect()
    });
    let Some(config) = info.config else { return process };
    let shown: Env = config.envs.into_iter().map(|pair| (pair.key, pair.value)).collect();
    Some(match &process {
        Some(process) if is_base64(&shown, process) => shown
            .iter()
            .map(|(key, value)| (key.to_owned(), base64(value).unwrap_or_else(|| value.to_owned())))
            .collect(),
        _ => shown,
    })
}

/// Newer versions show values in base64, for they are bytes there. What the process really got tells which it is: no
/// value is as shown, and one is as shown in base64.
fn is_base64(shown: &Env, process: &Env) -> bool {
    let last = |key: &str| (shown.get(key).unwrap_or_default().to_owned(), process.get(key));
    let mut is_it = false;
    for (key, _) in shown.iter() {
        match last(key) {
            (text, _) if text.is_empty() => {}
            (text, Some(real)) if text == real => return false,
            (text, Some(real)) => is_it |= base64(&text).is_some_and(|plain| plain == real),
            (_, None) => {}
        }
    }
    is_it
}

/// Go's JSON writes bytes in standard base64 with padding.
fn base64(text: &str) -> Option<String> {
    STANDARD.decode(text).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(json: &str) -> HashMap<String, String> {
        HashMap::from([("info".to_owned(), json.to_owned())])
    }

    #[test]
    fn the_environment_is_read_plain_or_in_base64() {
        let rows = [
            (
                "plain",
                r#"{"config":{"envs":[{"key":"A","value":"blue"}]},"runtimeSpec":{"process":{"env":["A=blue"]}}}"#,
                "blue",
            ),
            ("plain that looks like base64", r#"{"config":{"envs":[{"key":"A","value":"blue"}]}}"#, "blue"),
            (
                "base64",
                r#"{"config":{"envs":[{"key":"A","value":"Ymx1ZQ=="}]},"runtimeSpec":{"process":{"env":["PATH=/bin","A=blue"]}}}"#,
                "blue",
            ),
            (
                "plain that looks like base64, twice",
                r#"{"config":{"envs":[{"key":"A","value":"deep"},{"key":"A","value":"blue"}]},"runtimeSpec":{"process":{"env":["A=blue"]}}}"#,
                "blue",
            ),
            (
                "base64 beside an empty value and one that the process did not get",
                r#"{"config":{"envs":[{"key":"E"},{"key":"X","value":"eA=="},{"key":"A","value":"Ymx1ZQ=="}]},"runtimeSpec":{"process":{"env":["E=","A=blue"]}}}"#,
                "blue",
            ),
            ("only the process's own", r#"{"runtimeSpec":{"process":{"env":["A=blue"]}}}"#, "blue"),
        ];
        for (name, json, value) in rows {
            assert_eq!(env_of_info(&info(json)).unwrap().get("A"), Some(value), "{name}");
        }
        for nothing in ["not json", "{}", r#"{"config":null}"#] {
            assert_eq!(env_of_info(&info(nothing)), None, "{nothing}");
        }
    }

    #[test]
    fn an_image_is_called_as_people_named_it() {
        let spec = |image: &str, user_specified: &str| cri::ImageSpec {
            image: image.to_owned(),
            user_specified_image: user_specified.to_owned(),
            ..cri::ImageSpec::default()
        };
        for (told, name) in [
            (Some(spec("nginx:1", "")), "nginx:1"),
            (Some(spec("sha256:0123", "docker.io/library/nginx:1")), "docker.io/library/nginx:1"),
            (None, ""),
        ] {
            assert_eq!(&*image(told), name);
        }
    }

    #[test]
    fn a_time_of_zero_is_not_yet() {
        assert_eq!(time(0), None);
        assert_eq!(time(1_500_000_000), Some(UNIX_EPOCH + Duration::from_millis(1500)));
    }

    #[test]
    fn an_unknown_address_is_never_an_address() {
        let mut status = cri::PodSandboxStatus::default();
        assert_eq!(network(&status), PodNetwork::Unknown);
        status.network = Some(cri::PodSandboxNetworkStatus { ip: String::new(), additional_ips: vec![] });
        assert_eq!(network(&status), PodNetwork::Unknown);
        status.network = Some(cri::PodSandboxNetworkStatus {
            ip: "10.1.2.3".into(),
            additional_ips: vec![cri::PodIp { ip: "fd00::3".into() }],
        });
        assert_eq!(
            network(&status),
            PodNetwork::Pod(vec!["10.1.2.3".parse().unwrap(), "fd00::3".parse().unwrap()])
        );
    }
}
