//! Containers that `ctr tasks pause` freezes: left alone, also over a restart of criprobe, and probed again afterwards.

use std::{path::Path, time::Duration};

use anyhow::{Result, ensure};
use criprobe::clock;
use serde_json::Value;

use crate::support::{
    PATIENCE,
    containerd::Lab,
    cri::{self, Container, Pod},
    daemon::Daemon,
    eventually, stays,
};

/// Runs `ctr tasks VERB` on a container.
pub(crate) async fn task(socket: &Path, verb: &str, id: &str) -> Result<()> {
    let ctr = tokio::process::Command::new("ctr")
        .arg("-a")
        .arg(socket)
        .args(["-n", "k8s.io", "tasks", verb, id])
        .output()
        .await?;
    ensure!(ctr.status.success(), "{}", String::from_utf8_lossy(&ctr.stderr));
    Ok(())
}

/// Pauses a container in which a probe of this type runs commands, at a moment when none is starting: containerd 1.6 can neither
/// resume nor stop a container that was paused while it started a command in it.
pub(crate) async fn pause(daemon: &Daemon, socket: &Path, id: &str, probe: (&Pod, &str)) -> Result<()> {
    let (pod, kind) = probe;
    let command = async |verb: &str| -> Result<()> {
        let (status, said) = daemon.post(&format!("/v1/probes/{}/app/{kind}/{verb}", pod.uid), "").await?;
        ensure!(status.is_success(), "{said}");
        Ok(())
    };
    command("pause").await?;
    let mut seen = (None, clock::now());
    eventually("no command has ended for a second", PATIENCE, async || {
        let probe = daemon.probe(pod, "app", kind).await?;
        if probe != seen.0 {
            seen = (probe, clock::now());
        }
        Ok((clock::now() - seen.1 > Duration::from_secs(1)).then_some(()))
    })
    .await?;
    task(socket, "pause", id).await?;
    daemon
        .probe_becomes((pod, "app", kind), "is paused", PATIENCE, |probe| probe["phase"] == "paused")
        .await?;
    command("resume").await
}

fn is_waiting(probe: &Value) -> bool {
    probe["phase"] == "waiting" && probe["reason"] == "the container is paused"
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_container_is_left_alone_also_over_a_restart_and_goes_on_when_it_is_resumed() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let mut daemon = Daemon::start(&lab.socket()).await?;
    let mut client = daemon.client().await?;
    let exec = r#"{"exec": {"command": ["sleep", "0.1"]}, "period": "200ms", "failureThreshold": 1}"#;
    let http = r#"{"httpGet": {"port": 8080}, "period": "200ms", "timeout": "500ms", "failureThreshold": 1}"#;
    let annotations = [("liveness.criprobe.dev/app", exec), ("readiness.criprobe.dev/app", http)];
    let pod = cri::run_pod(&mut client, "paused", &annotations).await?;
    let serve = ["sh", "-c", "echo fine >/tmp/index.html; exec httpd -f -p 8080 -h /tmp"];
    let id = cri::run_container(&mut client, &pod, &Container::shell(&serve)).await?;
    let kinds = ["liveness", "readiness"].map(|kind| (&pod, "app", kind));
    for probe in kinds {
        daemon
            .probe_becomes(probe, "succeeds", PATIENCE, |probe| probe["counts"]["success"].as_u64() > Some(1))
            .await?;
    }

    pause(&daemon, &lab.socket(), id.as_str(), (&pod, "liveness")).await?;
    for time in ["first", "after a restart"] {
        for probe in kinds {
            daemon.probe_becomes(probe, "waits", PATIENCE, is_waiting).await?;
        }
        // The rig is shared: others have probes, too.
        let of_pod = async || {
            let mut probes = daemon.probes().await?;
            probes.retain(|probe| probe["podUid"] == pod.uid.as_str());
            anyhow::Ok(probes)
        };
        let before = of_pod().await?;
        stays("nothing is tried and nothing changes", Duration::from_secs(3), async || {
            let now = of_pod().await?;
            ensure!(now == before, "before: {before:?}\nnow: {now:?}");
            Ok(true)
        })
        .await?;
        for (_, _, kind) in kinds {
            let probe = daemon.probe(&pod, "app", kind).await?.unwrap_or_default();
            assert_eq!(probe["state"], "success", "{time}: {probe}");
        }
        let shown = daemon.json("/v1/pods?pod=paused").await?;
        assert_eq!(shown[0]["containers"][0]["paused"], true, "{shown}");
        if time == "first" {
            daemon.terminate();
            daemon.start_again(&lab.socket(), &[]).await?;
        }
    }

    task(&lab.socket(), "resume", id.as_str()).await?;
    for key in kinds {
        let waited = daemon.probe(key.0, key.1, key.2).await?.unwrap_or_default();
        let goes_on = |probe: &Value| {
            probe["phase"] == "probing"
                && probe["counts"]["success"].as_u64() > waited["counts"]["success"].as_u64()
        };
        daemon.probe_becomes(key, "goes on", PATIENCE, goes_on).await?;
    }
    Ok(())
}
