//! What a kubelet writes around pods and containers, and containerd into a verbose status: about as long as on a real
//! node, so that reading it costs what it costs there. Names in; annotations and JSON out.

use std::{collections::HashMap, sync::LazyLock};

use serde_json::json;

/// The annotations of a pod that was applied with kubectl; its manifest is one of them.
pub(crate) fn of_pod(name: &str) -> HashMap<String, String> {
    let container = |number: usize| {
        json!({
            "name": format!("c{number}"),
            "image": "registry.example.com/shop/web:2026.11.3",
            "command": ["/usr/local/bin/web", "--listen", ":8080", "--log-format", "json"],
            "env": [{ "name": "TIER", "value": "front" }, { "name": "GOMEMLIMIT", "value": "200MiB" }],
            "ports": [{ "name": "http", "containerPort": 8080 }],
            "livenessProbe": { "httpGet": { "path": "/healthz", "port": "http" }, "periodSeconds": 10 },
            "readinessProbe": { "httpGet": { "path": "/readyz", "port": "http" }, "periodSeconds": 5 },
            "resources": { "limits": { "memory": "256Mi" }, "requests": { "cpu": "100m", "memory": "128Mi" } },
        })
    };
    let manifest = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "annotations": {} },
        "spec": { "containers": (0..5).map(container).collect::<Vec<_>>() },
    });
    [
        ("kubectl.kubernetes.io/last-applied-configuration", manifest.to_string()),
        ("kubernetes.io/config.seen", "2026-11-20T10:00:00.000000000Z".to_owned()),
        ("kubernetes.io/config.source", "api".to_owned()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

/// The annotations of a container with a port.
pub(crate) fn of_container() -> HashMap<String, String> {
    let port = r#"[{"name":"http","containerPort":8080,"protocol":"TCP"}]"#;
    [
        ("io.kubernetes.container.hash", "9f21b7ac"),
        ("io.kubernetes.container.ports", port),
        ("io.kubernetes.container.restartCount", "0"),
        ("io.kubernetes.container.terminationMessagePath", "/dev/termination-log"),
        ("io.kubernetes.container.terminationMessagePolicy", "File"),
        ("io.kubernetes.pod.terminationGracePeriod", "30"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

/// What containerd reports of a container besides its status: its definition with the variables of a few services, and
/// the specification that it made of that.
pub(crate) fn info() -> &'static str {
    static INFO: LazyLock<String> = LazyLock::new(|| {
        let services = ["KUBERNETES", "WEB", "CART", "PAYMENT", "STOCK", "MAIL"];
        let kinds = ["SERVICE_HOST", "SERVICE_PORT", "PORT", "PORT_80_TCP", "PORT_80_TCP_ADDR"];
        let names: Vec<String> =
            services.iter().flat_map(|of| kinds.map(|kind| format!("{of}_{kind}"))).collect();
        let envs: Vec<_> = names.iter().map(|name| json!({ "key": name, "value": "10.96.0.1" })).collect();
        let env: Vec<_> = names.iter().map(|name| format!("{name}=10.96.0.1")).collect();
        let mount = |number: usize| {
            json!({
                "destination": format!("/var/run/volume-{number}"),
                "type": "bind",
                "source": format!("/var/lib/kubelet/pods/5f3a1c9e-7b2d-4e86-9c41-000000000000/volumes/{number}"),
                "options": ["rbind", "rprivate", "rw"],
            })
        };
        let mounts: Vec<_> = (0..16).map(mount).collect();
        let capabilities =
            ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW"];
        let info = json!({
            "sandboxID": "5f3a1c9e7b2d4e869c415f3a1c9e7b2d4e869c415f3a1c9e7b2d4e869c410000",
            "pid": 4242,
            "removing": false,
            "snapshotter": "overlayfs",
            "config": { "metadata": { "name": "c0" }, "envs": envs, "annotations": of_container(), "mounts": mounts },
            "runtimeSpec": {
                "ociVersion": "1.2.0",
                "process": {
                    "args": ["/usr/local/bin/web", "--listen", ":8080"],
                    "env": env,
                    "cwd": "/",
                    "capabilities": { "bounding": capabilities, "effective": capabilities },
                },
                "mounts": mounts,
                "linux": { "maskedPaths": ["/proc/acpi", "/proc/kcore", "/proc/keys", "/sys/firmware"] },
            },
        });
        info.to_string()
    });
    &INFO
}
