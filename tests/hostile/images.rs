//! Row 17: images that are known by their id.

use std::fs;

use anyhow::{Context as _, Result};
use criprobe::{
    demo::{EnvValues, FaultKind, InjectedFault},
    proto::cri::{self as pb, image_service_client::ImageServiceClient},
    runtime,
};
use rustix::process::Signal;
use tempfile::TempDir;
use tonic::Code;

use crate::{
    rig::{self, Rig},
    support::cri::{self, Container, Pod},
};

const IMAGE: &str = "docker.io/library/web:1";

/// A name that another pod's author gives to the same image.
const COPY: &str = "evil.io/other:1";

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
async fn run(rig: &mut Rig, pod: &str, image: &str) -> Result<Pod> {
    let id = image_id(rig, image).await?;
    let pod = cri::run_pod(&mut rig.client, pod, &[]).await?;
    cri::run_container(&mut rig.client, &pod, &Container { image: &id, ..Container::IDLE }).await?;
    Ok(pod)
}

async fn image_id(rig: &Rig, image: &str) -> Result<String> {
    let mut images = ImageServiceClient::new(runtime::channel(rig.runtime.socket().to_owned()));
    let spec = pb::ImageSpec { image: image.to_owned(), ..Default::default() };
    let status = images.image_status(pb::ImageStatusRequest { image: Some(spec), verbose: false }).await?;
    Ok(status.into_inner().image.context("the image is there")?.id)
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
    let pod = run(&mut rig, "web", IMAGE).await?;
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
    let first = run(&mut rig, "first", IMAGE).await?;
    has_the_probes_of_its_rules(&rig, &first).await?;
    rig.faults().add(InjectedFault { method: "ImageStatus".into(), times: Some(4), kind: FaultKind::Hang });
    let annotated = cri::run_pod(&mut rig.client, "annotated", &[(rig::LIVENESS, rig::LAZY)]).await?;
    cri::run_container(&mut rig.client, &annotated, &Container { image: "other", ..Container::IDLE }).await?;
    rig.last(&annotated, "liveness", "success").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_17_names_that_others_gave_an_image_keep_no_rule_from_applying() -> Result<()> {
    let folder = configured()?;
    let file = folder.path().join("config.yaml").display().to_string();
    let settings = [("CRIPROBE_CONFIG", file.as_str())];
    let (runtime, dir) = rig::runtime(EnvValues::default())?;
    runtime.add_image(COPY, b"{}");
    let mut rig = Rig::before(runtime, dir, &settings).await?;
    let first = run(&mut rig, "first", COPY).await?;
    rig.last(&first, "startup", "success").await?;
    for number in 0..300 {
        rig.runtime.tag_image(COPY, &format!("a.io/copy-{number:03}:1"));
    }
    rig.runtime.tag_image(COPY, IMAGE);
    let second = run(&mut rig, "second", COPY).await?;
    for pod in [&first, &second] {
        rig.last(pod, "liveness", "success").await?;
        rig.last(pod, "readiness", "success").await?;
    }
    rig.daemon.terminate();
    let socket = rig.runtime.socket().to_owned();
    rig.daemon.start_again(&socket, &settings).await?;
    for pod in [&first, &second] {
        rig.last(pod, "liveness", "success").await?;
        rig.last(pod, "readiness", "success").await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_17_a_reload_has_the_names_of_images_asked_for_again() -> Result<()> {
    let folder = configured()?;
    let file = folder.path().join("config.yaml").display().to_string();
    let (runtime, dir) = rig::runtime(EnvValues::default())?;
    runtime.add_image(COPY, b"{}");
    let mut rig = Rig::before(runtime, dir, &[("CRIPROBE_CONFIG", file.as_str())]).await?;
    let pod = run(&mut rig, "web", COPY).await?;
    rig.last(&pod, "startup", "success").await?;
    rig.runtime.tag_image(COPY, IMAGE);
    assert_eq!(rig.daemon.probe(&pod, "app", "liveness").await?, None);
    rig.daemon.signal(Signal::HUP);
    rig.last(&pod, "liveness", "success").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_17_names_that_others_gave_an_image_count_for_no_container_that_has_one_of_its_own() -> Result<()>
{
    let folder = configured()?;
    let file = folder.path().join("config.yaml").display().to_string();
    let settings = [("CRIPROBE_CONFIG", file.as_str())];
    let (runtime, dir) = rig::runtime(EnvValues::default())?;
    runtime.add_image(IMAGE, b"{}");
    runtime.tag_image(IMAGE, COPY);
    let mut rig = Rig::before(runtime, dir, &settings).await?;
    let by_id = run(&mut rig, "by-id", IMAGE).await?;
    let pod = cri::run_pod(&mut rig.client, "named", &[]).await?;
    cri::run_container(&mut rig.client, &pod, &Container { image: IMAGE, ..Container::IDLE }).await?;
    for is_restarted in [false, true] {
        if is_restarted {
            rig.daemon.terminate();
            let socket = rig.runtime.socket().to_owned();
            rig.daemon.start_again(&socket, &settings).await?;
        }
        let all_count = |probe: &serde_json::Value| probe["source"] == "rule:other";
        rig.becomes(&by_id, "startup", "is that of the other name", all_count).await?;
        has_the_probes_of_its_rules(&rig, &pod).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_17_an_image_service_that_comes_late_is_asked() -> Result<()> {
    let folder = configured()?;
    let file = folder.path().join("config.yaml").display().to_string();
    let (runtime, dir) = rig::runtime(EnvValues::default())?;
    runtime.add_image(IMAGE, b"{}");
    let mut rig = Rig::before(runtime, dir, &[("CRIPROBE_CONFIG", file.as_str())]).await?;
    let id = image_id(&rig, IMAGE).await?;
    let fault = FaultKind::Code(Code::Unimplemented, "unknown service runtime.v1.ImageService".into());
    rig.once("ImageStatus", fault);
    let pod = cri::run_pod(&mut rig.client, "web", &[]).await?;
    cri::run_container(&mut rig.client, &pod, &Container { image: &id, ..Container::IDLE }).await?;
    has_the_probes_of_its_rules(&rig, &pod).await
}
