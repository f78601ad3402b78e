//! Takes the pictures of the documentation, on request: a node as an on-call may find it.

use std::{env, fs, path::Path, time::Duration};

use anyhow::Result;
use criprobe::{
    demo::{EmbeddedRuntime, EnvValues, Options},
    ids::ContainerId,
};
use tokio::time::interval;

use crate::{
    browser::{free_address, visit},
    rig::Rig,
    support::cri::{self, Container},
};

/// What a command of a container prints whose `healthy` is gone.
const PING_SAYS: &str =
    "redis: PING timed out after 1s\\nredis: replica is loading the dataset in memory (74 %%)\\n";

/// A container that has been well, with this many seconds until it is not.
fn well_for(seconds: u32) -> String {
    format!("printf '{PING_SAYS}' > ping; echo fine > healthy; sleep {seconds}; rm -f healthy; sleep 100000")
}

async fn add(
    rig: &mut Rig,
    namespace: &str,
    pod: &str,
    script: &str,
    probes: &[(&str, &str)],
) -> Result<ContainerId> {
    let name = pod.split('-').next().unwrap_or(pod);
    let annotations: Vec<_> =
        probes.iter().map(|(kind, probe)| (format!("{kind}.criprobe.dev/{name}"), *probe)).collect();
    let annotations: Vec<_> = annotations.iter().map(|(key, probe)| (key.as_str(), *probe)).collect();
    let mut config = cri::pod_config(pod, &annotations);
    if let Some(metadata) = &mut config.metadata {
        metadata.namespace = namespace.to_owned();
    }
    config.labels.insert("io.kubernetes.pod.namespace".to_owned(), namespace.to_owned());
    let pod = cri::run_sandbox(&mut rig.client, config).await?;
    cri::run_container(&mut rig.client, &pod, &Container { name, ..Container::shell(&["sh", "-c", script]) })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn screenshots() -> Result<()> {
    const CAT: &str =
        r#"{"exec": {"command": ["cat", "healthy"]}, "periodSeconds": 1, "failureThreshold": 3}"#;
    const TEST: &str =
        r#"{"exec": {"command": ["test", "-s", "healthy"]}, "periodSeconds": 1, "failureThreshold": 3}"#;
    const QUICK: &str = r#"{"exec": {"command": ["true"]}, "period": "700ms"}"#;
    const PING: &str = r#"{"exec": {"command": ["sh", "-c", "test -e healthy || { cat ping; exit 1; }"]}, "periodSeconds": 1}"#;
    const SLOW: &str = r#"{"exec": {"command": ["sh", "-c", "sleep 0.$(date +%S | tail -c 2)"]},
        "periodSeconds": 1, "timeoutSeconds": 3}"#;
    const MISSING: &str = r#"{"exec": {"command": ["/usr/local/bin/health", "--deep"]}, "periodSeconds": 1}"#;
    if env::var_os("CRIPROBE_SCREENSHOTS").is_none() {
        eprintln!("skipped: CRIPROBE_SCREENSHOTS is not set");
        return Ok(());
    }
    // The calls of the pictures are those of a kubelet.
    fs::write("/proc/self/comm", "kubelet")?;
    let dir = tempfile::Builder::new().prefix("criprobe-rt-").tempdir()?;
    let options = Options {
        env_values: EnvValues::default(),
        poses_as_containerd: true,
        ..Options::new(dir.path().join("rt.sock"), dir.path().join("rt"))
    };
    let address = free_address()?;
    let mut rig =
        Rig::before(EmbeddedRuntime::start(options)?, dir, &[("CRIPROBE_API_HTTP", &address)]).await?;
    let mut called = Vec::new();
    for (namespace, pod, script, probes) in [
        ("shop", "checkout-7d9f8b6c4-x2lqv", well_for(24), &[("readiness", CAT), ("liveness", TEST)] as &[_]),
        ("shop", "cart-5c4d7f-9k2rt", well_for(999), &[("readiness", CAT), ("liveness", QUICK)]),
        ("shop", "search-0", well_for(999), &[("liveness", SLOW), ("readiness", TEST)]),
        ("data", "redis-0", well_for(30), &[("readiness", PING), ("liveness", QUICK)]),
        ("data", "postgres-0", well_for(999), &[("readiness", TEST), ("liveness", CAT)]),
        ("media", "transcode-84f6-pw8nd", well_for(999), &[("liveness", MISSING), ("readiness", QUICK)]),
        ("payments", "ledger-0", well_for(999), &[("readiness", CAT), ("liveness", TEST)]),
        ("payments", "gateway-66b9d-jj4kz", well_for(999), &[("liveness", QUICK)]),
        ("auth", "keycloak-0", well_for(999), &[("readiness", TEST)]),
        ("web", "frontend-59d8-rt6kl", well_for(999), &[("readiness", CAT), ("liveness", QUICK)]),
        ("web", "frontend-59d8-vb2mn", well_for(999), &[("readiness", CAT), ("liveness", QUICK)]),
        ("ops", "grafana-6b8c-xx2vd", well_for(999), &[]),
        ("ops", "loki-0", well_for(999), &[]),
    ] {
        called.push(add(&mut rig, namespace, pod, &script, probes).await?);
    }
    let (mut client, ids) = (rig.client.clone(), called.clone());
    let calls = tokio::spawn(async move {
        // Without a rhythm: they are to be taken for calls of people, not for probes.
        let mut moments = interval(Duration::from_millis(100));
        for turn in 0_usize.. {
            moments.tick().await;
            if turn * turn % 97 > 10 {
                continue;
            }
            let chance = turn.wrapping_mul(2_654_435_761) >> 7;
            let what =
                format!("wc -c < healthy # {}", ["size", "is it there?", "before the deploy"][chance % 3]);
            let commands: [&[&str]; 3] = [&["cat", "healthy"], &["sh", "-c", &what], &["ls", "-l"]];
            let _ = cri::exec(&mut client, &ids[chance % ids.len()], commands[chance / 16 % 3]).await;
        }
    });
    let (mut client, id) = (rig.client.clone(), called[4].clone());
    let dump = tokio::spawn(async move {
        loop {
            let _ = cri::exec(&mut client, &id, &["sh", "-c", "sleep 8 # pg_dump -Fc orders"]).await;
        }
    });
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/images");
    fs::create_dir_all(&images)?;
    visit(&address, async |page| {
        page.says("3 probes fail").await?;
        let full =
            "[...document.querySelectorAll('.strip .s')].filter((one) => one.getAttribute('d').length > 300)";
        page.until("strips are full", &format!("{full}.length > 15")).await?;
        let desk = (1440, 900);
        for (name, scheme, size) in
            [("light", "light", desk), ("dark", "dark", desk), ("phone", "dark", (390, 844))]
        {
            let (width, height) = size;
            page.size(width, height).await?;
            page.prefer(scheme).await?;
            page.open("").await?;
            page.until("calls are listed", "document.querySelectorAll('#list li').length > 8").await?;
            page.screenshot(&images.join(format!("page-{name}.png"))).await?;
        }
        Ok(())
    })
    .await?;
    calls.abort();
    dump.abort();
    Ok(())
}
