//! Row 17: images that are known by their id.

use std::fs;

use anyhow::{Context as _, Result};
use criprobe::{
    demo::{EnvValues, FaultKind, InjectedFault},
    proto::cri::{self as pb, image_service_client::ImageServiceClient},
    runtime,
};
use tempfile::TempDir;
use tonic::Code;

use crate::{
    rig::{self, Rig},
    support::cri::{self, Container, Pod},
};

const IMAGE: &str = "docker.io/library/web:1";

const RULES: &str = r#"
rules:
  - name: long
    match: {image: "*/library/web:*"}
    liveness: {exec: {command: ["true"]}, period: 200ms}
  - name: short
    match: {image: "web:1"}
    readiness: {exec: {command: ["true"]}, period: 200ms}
  - name: other
    match: {image: "*/other:*"}
    startup: {exec: {command: ["true"]}, period: 200ms}
"#;

fn configured() -> Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("criprobe-conf-").tempdir()?;
    fs::write(folder.path().join("config.yaml"), RULES)?;
    Ok(folder)
}

/// A running container `app` of an image that is named by its id, as a kubelet names it; criprobe sees no other name.
async fn run(rig: &mut Rig, pod: &str) -> Result<Pod> {
    let mut images = ImageServiceClient::new(runtime::channel(rig.runtime.socket().to_owned()));
    let spec = pb::ImageSpec { image: IMAGE.to_owned(), ..Default::default() };
    let status = images.image_status(pb::ImageStatusRequest { image: Some(spec), verbose: false }).await?;
    let id = status.into_inner().image.context("the image is there")?.id;
    let pod = cri::run_pod(&mut rig.client, pod, &[]).await?;
    cri::run_container(&mut rig.client, &pod, &Container { image: &id, ..Container::IDLE }).await?;
    Ok(pod)
}

async fn has_the_probes_of_its_rules(rig: &Rig, pod: &Pod) -> Result<()> {
    for (kind, source) in [("liveness", "rule:long"), ("readiness", "rule:short")] {
        let probe = rig.last(pod, kind, "success").await?;
        assert_eq!(probe["source"], source);
    }
    assert_eq!(rig.daemon.probe(pod, "app", "startup").await?, None);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_17_a_rule_finds_an_image_by_its_names_before_a_restart_and_after_it() -> Result<()> {
    let folder = configured()?;
    let file = folder.path().join("config.yaml").display().to_string();
    let settings = [("CRIPROBE_CONFIG", file.as_str())];
    let (runtime, dir) = rig::runtime(EnvValues::default())?;
    runtime.add_image(IMAGE, b"{}");
    let mut rig = Rig::before(runtime, dir, &settings).await?;
    let pod = run(&mut rig, "web").await?;
    has_the_probes_of_its_rules(&rig, &pod).await?;
    rig.daemon.terminate();
    let socket = rig.runtime.socket().to_owned();
    rig.daemon.start_again(&socket, &settings).await?;
    has_the_probes_of_its_rules(&rig, &pod).await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_17_names_that_are_not_to_be_had_now_are_asked_for_again_and_keep_nothing_waiting() -> Result<()>
{
    let folder = configured()?;
    let file = folder.path().join("config.yaml").display().to_string();
    let (runtime, dir) = rig::runtime(EnvValues::default())?;
    runtime.add_image(IMAGE, b"{}");
    // No content store is no reason to ask for no names.
    runtime
        .faults()
        .add(InjectedFault::always("Read", FaultKind::Code(Code::Unimplemented, "unknown service".into())));
    let settings = [("CRIPROBE_CONFIG", file.as_str()), ("CRIPROBE_HEALTHCHECK_ENABLED", "true")];
    let mut rig = Rig::before(runtime, dir, &settings).await?;
    let first = run(&mut rig, "first").await?;
    has_the_probes_of_its_rules(&rig, &first).await?;
    rig.faults().add(InjectedFault { method: "ImageStatus".into(), times: Some(4), kind: FaultKind::Hang });
    let annotated = cri::run_pod(&mut rig.client, "annotated", &[(rig::LIVENESS, rig::LAZY)]).await?;
    cri::run_container(&mut rig.client, &annotated, &Container { image: "other", ..Container::IDLE }).await?;
    rig.last(&annotated, "liveness", "success").await?;
    Ok(())
}
