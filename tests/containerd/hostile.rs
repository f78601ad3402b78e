//! Rows of the hostile review that only a real containerd shows as they were: 15a and 17.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result};
use criprobe::{
    proto::cri::{self as pb, image_service_client::ImageServiceClient},
    runtime,
};
use rustix::process::Signal;

use crate::support::{
    PATIENCE,
    containerd::Lab,
    cri::{self, Container},
    daemon::Daemon,
};

fn count(probe: &serde_json::Value, result: &str) -> u64 {
    probe["counts"][result].as_u64().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn row_15a_while_containerd_is_frozen_no_timeout_below_a_second_is_a_failure() -> Result<()> {
    let Some(lab) = Lab::start()? else { return Ok(()) };
    let daemon = Daemon::start(&lab.socket()).await?;
    let mut client = daemon.client().await?;
    let mut pods = Vec::new();
    for timeout in ["500ms", "900ms", "1500ms"] {
        let probe =
            format!("{{exec: {{command: ['true']}}, period: 1s, timeout: {timeout}, failureThreshold: 1}}");
        let name = format!("frozen-{timeout}");
        let pod = cri::run_pod(&mut client, &name, &[("liveness.criprobe.dev/app", &probe)]).await?;
        cri::run_container(&mut client, &pod, &Container::IDLE).await?;
        pods.push(pod);
    }
    for pod in &pods {
        let is_well = |probe: &serde_json::Value| count(probe, "success") >= 2;
        daemon.probe_becomes((pod, "app", "liveness"), "succeeds", PATIENCE, is_well).await?;
    }
    let mut before = Vec::new();
    for pod in &pods {
        let probe = daemon.probe(pod, "app", "liveness").await?.context("it is listed")?;
        // A machine that is busy with other tests may have been too slow for half a second.
        before.push((count(&probe, "failure"), count(&probe, "error")));
    }
    let thaw = lab.freeze()?;
    for (pod, (failures, errors)) in pods.iter().zip(&before) {
        let has_erred = |probe: &serde_json::Value| count(probe, "error") >= errors + 2;
        let liveness = (pod, "app", "liveness");
        let probe = daemon.probe_becomes(liveness, "shows errors", PATIENCE, has_erred).await?;
        assert_eq!((count(&probe, "failure"), &probe["state"]), (*failures, &"success".into()), "{probe}");
    }
    drop(thaw);
    for pod in &pods {
        let is_back = |probe: &serde_json::Value| probe["last"]["result"] == "success";
        let probe = daemon.probe_becomes((pod, "app", "liveness"), "recovers", PATIENCE, is_back).await?;
        assert_eq!(probe["state"], "success", "{probe}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_17_a_rule_finds_the_name_of_an_image_that_containerd_lists_by_its_id() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let folder = tempfile::Builder::new().prefix("criprobe-conf-").tempdir()?;
    let file = folder.path().join("config.yaml");
    fs::write(
        &file,
        "rules: [{name: box, match: {pod: by-id, image: '*/busybox:*'}, liveness: {exec: {command: ['true']}, period: 500ms}}]",
    )?;
    let file = file.display().to_string();
    let settings = [("CRIPROBE_CONFIG", file.as_str())];
    let mut daemon = Daemon::spawn(&lab.socket(), &settings)?;
    daemon.ready().await?;
    let mut images = ImageServiceClient::new(runtime::channel(lab.socket()));
    let spec = pb::ImageSpec { image: Container::IDLE.image.to_owned(), ..Default::default() };
    let request = pb::ImageStatusRequest { image: Some(spec), verbose: false };
    let id = images.image_status(request).await?.into_inner().image.context("the image is there")?.id;
    assert!(id.starts_with("sha256:"), "{id}");
    let mut client = daemon.client().await?;
    let pod = cri::run_pod(&mut client, "by-id", &[]).await?;
    cri::run_container(&mut client, &pod, &Container { image: &id, ..Container::IDLE }).await?;
    let succeeds = async |daemon: &Daemon| {
        let is_well = |probe: &serde_json::Value| probe["last"]["result"] == "success";
        let probe = daemon.probe_becomes((&pod, "app", "liveness"), "succeeds", PATIENCE, is_well).await?;
        assert_eq!(probe["source"], "rule:box");
        anyhow::Ok(())
    };
    succeeds(&daemon).await?;
    daemon.signal(Signal::KILL);
    daemon.start_again(&lab.socket(), &settings).await?;
    tokio::time::timeout(Duration::from_secs(60), succeeds(&daemon)).await?
}
