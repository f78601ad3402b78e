//! Images in Docker's format, imported from an archive, on a real containerd: their HEALTHCHECK becomes a probe where the
//! operator lets it.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result};
use criprobe::proto::cri::ContainerState;

use crate::support::{
    PATIENCE,
    containerd::Lab,
    cri::{self, Container, Cri, Pod},
    daemon::Daemon,
    eventually, stays,
};

/// Whether HEALTHCHECKs count.
const ENABLED: &str = "CRIPROBE_HEALTHCHECK_ENABLED";

/// Passes while `/tmp/healthy` is there; two failures make a verdict.
const CHECKED: &str = r#"{"Test": ["CMD-SHELL", "test \"$$\" -gt 0 && cat /tmp/healthy || exit 1"],
    "Interval": 300000000, "Timeout": 5000000000, "Retries": 2}"#;

/// Fails, and may do so for as long as any test runs.
const STARTING: &str = r#"{"Test": ["CMD", "cat", "/tmp/healthy"], "Interval": 300000000000, "Retries": 1,
    "StartPeriod": 3600000000000, "StartInterval": 300000000}"#;

async fn daemon(lab: &Lab, is_enabled: &str) -> Result<(Daemon, Cri)> {
    let mut daemon = Daemon::spawn(&lab.socket(), &[(ENABLED, is_enabled)])?;
    daemon.ready().await?;
    let client = daemon.client().await?;
    Ok((daemon, client))
}

/// A running container `app` of an image, which has `/tmp/healthy`.
async fn run(client: &mut Cri, pod: &str, image: &str) -> Result<(Pod, criprobe::ids::ContainerId)> {
    let pod = cri::run_pod(client, pod, &[]).await?;
    let command = ["sh", "-c", "echo fine >/tmp/healthy; sleep 100000"];
    let id = cri::run_container(client, &pod, &Container { image, ..Container::shell(&command) }).await?;
    Ok((pod, id))
}

#[tokio::test]
async fn the_healthcheck_of_an_image_becomes_a_liveness_probe_whose_failing_is_seen() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let image = "localhost/checked:1";
    lab.add_image(image, CHECKED)?;
    let (daemon, mut client) = daemon(lab, "true").await?;
    let (pod, id) = run(&mut client, "checked", image).await?;
    let liveness = (&pod, "app", "liveness");

    let good = daemon
        .probe_becomes(liveness, "succeeds", PATIENCE, |probe| probe["last"]["result"] == "success")
        .await?;
    assert_eq!((&good["source"], &good["handler"]), (&"healthcheck".into(), &"exec".into()));
    assert_eq!((&good["periodSeconds"], &good["onFailure"]), (&0.3.into(), &"report".into()));
    assert_eq!((&good["last"]["output"], &good["shadowed"]), (&"fine\n".into(), &serde_json::json!([])));

    cri::exec(&mut client, &id, &["rm", "/tmp/healthy"]).await?;
    let bad = daemon
        .probe_becomes(liveness, "fails", PATIENCE, |probe| {
            probe["state"] == "failure" && probe["phase"] == "probing"
        })
        .await?;
    assert!(bad["counts"]["failure"].as_u64() >= Some(2), "as many as its retries: {bad}");
    assert!(bad["last"]["output"].as_str().is_some_and(|said| said.contains("No such file")), "{bad}");
    Ok(())
}

/// Of two containers of one image, that which a rule names is stopped.
#[tokio::test]
async fn a_healthcheck_acts_only_where_a_rule_says_so() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let image = "localhost/acting:1";
    lab.add_image(image, CHECKED)?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("config.yaml");
    fs::write(
        &file,
        "healthcheck: {enabled: true}\nact: {enabled: true}\nrules:\n  - name: heal\n    match: {pod: hc-acts}\n    \
         healthcheck: {onFailure: kill}\n",
    )?;
    let mut daemon = Daemon::spawn(&lab.socket(), &[("CRIPROBE_CONFIG", &file.display().to_string())])?;
    daemon.ready().await?;
    let mut client = daemon.client().await?;
    let mut states = Vec::new();
    for name in ["hc-acts", "hc-reports"] {
        let (pod, id) = run(&mut client, name, image).await?;
        let liveness = (&pod, "app", "liveness");
        daemon
            .probe_becomes(liveness, "succeeds", PATIENCE, |probe| probe["last"]["result"] == "success")
            .await?;
        cri::exec(&mut client, &id, &["rm", "/tmp/healthy"]).await?;
        daemon.probe_becomes(liveness, "fails", PATIENCE, |probe| probe["state"] == "failure").await?;
        states.push(id);
    }
    eventually("the one is killed", PATIENCE, async || {
        let state = cri::container_state(&mut client, &states[0]).await?;
        Ok((state == (ContainerState::ContainerExited, 137)).then_some(()))
    })
    .await?;
    stays("the other runs", Duration::from_secs(2), async || {
        Ok(cri::container_state(&mut client, &states[1]).await?.0 == ContainerState::ContainerRunning)
    })
    .await
}

#[tokio::test]
async fn failures_in_the_start_period_do_not_count_until_the_first_success() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let image = "localhost/starting:1";
    lab.add_image(image, STARTING)?;
    let (daemon, mut client) = daemon(lab, "true").await?;
    let pod = cri::run_pod(&mut client, "starting", &[]).await?;
    let id = cri::run_container(&mut client, &pod, &Container { image, ..Container::IDLE }).await?;
    let liveness = (&pod, "app", "liveness");

    let starting = daemon
        .probe_becomes(liveness, "failed often", PATIENCE, |probe| {
            probe["counts"]["failure"].as_u64() >= Some(3)
        })
        .await?;
    assert_eq!(
        (&starting["state"], &starting["phase"]),
        (&"success".into(), &"probing".into()),
        "{starting}"
    );
    assert_eq!(starting["periodSeconds"], 0.3);
    assert!(
        starting["reason"].as_str().is_some_and(|why| why.starts_with("start period of 1h")),
        "{starting}"
    );
    cri::exec(&mut client, &id, &["touch", "/tmp/healthy"]).await?;
    let started = daemon
        .probe_becomes(liveness, "succeeds", PATIENCE, |probe| probe["last"]["result"] == "success")
        .await?;
    assert_eq!((&started["periodSeconds"], &started["reason"]), (&300.0.into(), &"".into()), "{started}");
    Ok(())
}

#[tokio::test]
async fn an_image_without_a_healthcheck_and_one_with_none_give_no_probe() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    lab.add_image("localhost/none:1", r#"{"Test": ["NONE"]}"#)?;
    lab.add_image("localhost/counted:1", CHECKED)?;
    let (daemon, mut client) = daemon(lab, "true").await?;
    let (none, _) = run(&mut client, "none", "localhost/none:1").await?;
    let (plain, _) = run(&mut client, "plain", Container::IDLE.image).await?;
    let (counted, _) = run(&mut client, "counted", "localhost/counted:1").await?;
    let there = (&counted, "app", "liveness");
    daemon.probe_becomes(there, "is there", PATIENCE, |probe| !probe["last"].is_null()).await?;
    for pod in [&none, &plain] {
        assert_eq!(daemon.probe(pod, "app", "liveness").await?, None, "{}", pod.uid);
    }
    Ok(())
}

#[tokio::test]
async fn it_counts_only_where_it_is_enabled_and_an_annotation_shadows_it() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let image = "localhost/shadowed:1";
    lab.add_image(image, CHECKED)?;
    let (off, _) = daemon(lab, "false").await?;
    let (on, mut client) = daemon(lab, "true").await?;
    let lazy = r#"{"exec": {"command": ["true"]}, "periodSeconds": 300}"#;
    let pod = cri::run_pod(&mut client, "shadowed", &[("liveness.criprobe.dev/other", lazy)]).await?;
    cri::run_container(&mut client, &pod, &Container { image, ..Container::IDLE }).await?;
    let other = Container { name: "other", image, ..Container::IDLE };
    cri::run_container(&mut client, &pod, &other).await?;

    on.probe_becomes((&pod, "app", "liveness"), "is there", PATIENCE, |probe| {
        probe["source"] == "healthcheck"
    })
    .await?;
    let shadowing = on
        .probe_becomes((&pod, "other", "liveness"), "shadows", PATIENCE, |probe| {
            probe["shadowed"] == serde_json::json!(["healthcheck"])
        })
        .await?;
    assert_eq!(shadowing["source"], "annotation");
    let known = off
        .probe_becomes((&pod, "other", "liveness"), "is there", PATIENCE, |probe| !probe["last"].is_null())
        .await?;
    assert_eq!(known["shadowed"], serde_json::json!([]));
    stays("where it is not enabled there is no probe of it", Duration::from_secs(1), async || {
        Ok(off.probe(&pod, "app", "liveness").await.context("ask")?.is_none())
    })
    .await
}
