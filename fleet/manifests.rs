//! The manifests in packaging/kubernetes.

use std::{
    fs,
    path::{Path, PathBuf},
};

use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Namespace, ServiceAccount},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/kubernetes")
}

fn read(file: &str) -> Value {
    serde_saphyr::from_str(&fs::read_to_string(folder().join(file)).unwrap()).unwrap()
}

/// What is missing from, or differs in, `decoded`: fields that the type does not know.
fn unknown(written: &Value, decoded: &Value, path: &str) -> Vec<String> {
    match (written, decoded) {
        (Value::Object(written), Value::Object(decoded)) => written
            .iter()
            .flat_map(|(key, value)| match decoded.get(key) {
                Some(decoded) => unknown(value, decoded, &format!("{path}.{key}")),
                None => vec![format!("{path}.{key}")],
            })
            .collect(),
        (Value::Array(written), Value::Array(decoded)) if written.len() == decoded.len() => {
            let pairs = written.iter().zip(decoded).enumerate();
            pairs
                .flat_map(|(at, (written, decoded))| unknown(written, decoded, &format!("{path}[{at}]")))
                .collect()
        }
        (written, decoded) if written == decoded => Vec::new(),
        _ => vec![path.to_owned()],
    }
}

fn decoded<T: DeserializeOwned + Serialize>(file: &str) -> T {
    let written = read(file);
    let object: T = serde_json::from_value(written.clone()).unwrap_or_else(|error| panic!("{file}: {error}"));
    assert_eq!(unknown(&written, &serde_json::to_value(&object).unwrap(), file), [""; 0]);
    object
}

/// The part of monitoring.coreos.com/v1 that we use; the crate has only Kubernetes' own types.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct PodMonitor {
    api_version: String,
    kind: String,
    metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    spec: PodMonitorSpec,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct PodMonitorSpec {
    selector: k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector,
    namespace_selector: NamespaceSelector,
    pod_metrics_endpoints: Vec<PodMetricsEndpoint>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct NamespaceSelector {
    match_names: Vec<String>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct PodMetricsEndpoint {
    port: String,
    path: String,
    interval: String,
    relabelings: Vec<Relabeling>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Relabeling {
    source_labels: Vec<String>,
    target_label: String,
}

#[test]
fn every_manifest_decodes_into_its_type_without_an_unknown_field() {
    let namespace: Namespace = decoded("base/namespace.yaml");
    assert_eq!(namespace.metadata.name.as_deref(), Some("criprobe"));
    let account: ServiceAccount = decoded("base/serviceaccount.yaml");
    assert_eq!(account.automount_service_account_token, Some(false));
    decoded::<DaemonSet>("base/daemonset.yaml");
    decoded::<DaemonSet>("uninstall/remove.yaml");
}

#[test]
fn an_unknown_field_is_found() {
    let mut written = read("base/daemonset.yaml");
    written["spec"]["template"]["spec"]["hostNetwrk"] = true.into();
    let object: DaemonSet = serde_json::from_value(written.clone()).unwrap();
    let found = unknown(&written, &serde_json::to_value(&object).unwrap(), "x");
    assert_eq!(found, ["x.spec.template.spec.hostNetwrk"]);
}

#[test]
fn the_pods_have_the_fewest_privileges_and_go_one_node_at_a_time() {
    let set: DaemonSet = decoded("base/daemonset.yaml");
    let spec = set.spec.unwrap();
    let rolling = spec.update_strategy.unwrap().rolling_update.unwrap();
    assert_eq!(serde_json::to_value(rolling).unwrap(), serde_json::json!({"maxUnavailable": 1}));
    let pod = spec.template.spec.unwrap();
    assert_eq!((pod.host_pid, pod.host_ipc, pod.automount_service_account_token), (None, None, Some(false)));
    for container in &pod.containers {
        let security = container.security_context.clone().unwrap();
        assert_eq!((security.privileged, security.allow_privilege_escalation), (Some(false), Some(false)));
        assert_eq!(security.read_only_root_filesystem, Some(true));
        let capabilities = security.capabilities.unwrap();
        assert_eq!((capabilities.add, capabilities.drop), (None, Some(vec!["ALL".to_owned()])));
        let volumes: Vec<_> = pod.volumes.iter().flatten().map(|volume| &volume.name).collect();
        for mount in container.volume_mounts.iter().flatten() {
            assert!(volumes.contains(&&mount.name), "no volume {}", mount.name);
        }
    }
    for volume in pod.volumes.iter().flatten() {
        let path = volume.host_path.as_ref().map(|host| &*host.path);
        assert!(path.is_none_or(|path| path.matches('/').count() > 1), "{path:?} is too much");
    }
}

#[test]
fn every_kustomization_names_files_that_are_there() {
    for file in ["base/kustomization.yaml", "podmonitor/kustomization.yaml", "uninstall/kustomization.yaml"] {
        let kustomization = read(file);
        let of = |key: &str| kustomization[key].as_array().cloned().unwrap_or_default();
        let generated = of("configMapGenerator");
        let files = generated.iter().flat_map(|map| map["files"].as_array().cloned().unwrap_or_default());
        let patches = of("patches").into_iter().map(|patch| patch["path"].clone());
        let all: Vec<_> = of("resources").into_iter().chain(files).chain(patches).collect();
        assert!(!all.is_empty(), "{file}");
        for path in all {
            let path = folder().join(file).with_file_name(path.as_str().unwrap());
            assert!(path.exists(), "{file}: {}", path.display());
        }
    }
}

#[test]
fn prometheus_finds_the_port_of_the_pods() {
    let monitor: PodMonitor = serde_json::from_value(read("podmonitor/podmonitor.yaml")).unwrap();
    assert_eq!((&*monitor.api_version, &*monitor.kind), ("monitoring.coreos.com/v1", "PodMonitor"));
    let set: DaemonSet = decoded("base/daemonset.yaml");
    let template = set.spec.unwrap().template;
    let ports: Vec<_> = template
        .spec
        .unwrap()
        .containers
        .into_iter()
        .flat_map(|container| container.ports.unwrap_or_default())
        .collect();
    assert_eq!(ports[0].name.as_deref(), Some(&*monitor.spec.pod_metrics_endpoints[0].port));
    assert_eq!(monitor.spec.selector.match_labels, template.metadata.unwrap().labels);
    let config = fs::read_to_string(folder().join("base/config.yaml")).unwrap();
    assert!(config.contains(&format!("http: \":{}\"", ports[0].container_port)), "{config}");
}
