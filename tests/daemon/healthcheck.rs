//! HEALTHCHECKs of images that the embedded runtime has, or fails to report.

use std::time::Duration;

use anyhow::{Context as _, Result};
use criprobe::demo::{EnvValues, FaultKind, InjectedFault};
use serde_json::{Value, json};
use tonic::Code;

use crate::{
    rig::{self, LAZY, LIVENESS, Rig},
    support::{
        PATIENCE,
        cri::{self, Container, Pod},
        eventually, stays,
    },
};

const ENABLED: (&str, &str) = ("CRIPROBE_HEALTHCHECK_ENABLED", "true");

/// Passes once a file `go` is there, and is tried every 100 ms.
const EAGER: &str = r#"{"Test": ["CMD", "test", "-e", "go"], "Interval": 100000000, "Retries": 2}"#;

/// The config of an image with this HEALTHCHECK.
fn config(healthcheck: &str) -> Vec<u8> {
    format!(r#"{{"architecture": "amd64", "config": {{"Healthcheck": {healthcheck}}}}}"#).into_bytes()
}

/// A rig whose runtime has these images.
async fn with(images: &[(&str, &str)], settings: &[(&str, &str)]) -> Result<Rig> {
    let (runtime, dir) = rig::runtime(EnvValues::default())?;
    images.iter().for_each(|(name, healthcheck)| runtime.add_image(name, &config(healthcheck)));
    Rig::before(runtime, dir, settings).await
}

/// A running container `app` of an image.
async fn run(rig: &mut Rig, pod: &str, image: &str, annotations: &[(&str, &str)]) -> Result<Pod> {
    let pod = cri::run_pod(&mut rig.client, pod, annotations).await?;
    cri::run_container(&mut rig.client, &pod, &Container { image, ..Container::IDLE }).await?;
    Ok(pod)
}

async fn describe(rig: &Rig, id: &str) -> Result<Value> {
    let (_, text) = rig.daemon.get(&format!("/v1/probes/{id}")).await?;
    serde_json::from_str(&text).with_context(|| format!("parse {text}"))
}

#[tokio::test]
async fn containers_get_the_healthcheck_of_their_image_also_those_that_ran_before() -> Result<()> {
    let (runtime, dir) = rig::runtime(EnvValues::default())?;
    runtime.add_image("web", &config(EAGER));
    let mut past = cri::connect(runtime.socket()).await?;
    let pod = cri::run_pod(&mut past, "before", &[]).await?;
    cri::run_container(&mut past, &pod, &Container { image: "web", ..Container::IDLE }).await?;
    let mut rig = Rig::before(runtime, dir, &[ENABLED]).await?;
    let new = run(&mut rig, "new", "web", &[]).await?;
    for pod in [&pod, &new] {
        let failed = rig
            .becomes(pod, "liveness", "fails", |probe| {
                (&probe["state"], &probe["phase"]) == (&"failure".into(), &"probing".into())
            })
            .await?;
        assert_eq!(failed["source"], "healthcheck");
        assert!(failed["counts"]["failure"].as_u64() >= Some(2), "{failed}");
    }
    let definition = describe(&rig, "default/new/app/liveness").await?["definition"].take();
    assert_eq!(
        definition,
        json!({"exec": {"command": ["test", "-e", "go"]}, "initialDelaySeconds": 0.1, "timeoutSeconds": 30.0,
               "periodSeconds": 0.1, "successThreshold": 1, "failureThreshold": 2,
               "terminationGracePeriodSeconds": null, "onFailure": "report", "onFailureCommand": null,
               "startPeriodSeconds": null, "startIntervalSeconds": null})
    );
    assert_eq!(rig.faults().count("Read"), 1, "one image is read once");
    Ok(())
}

#[tokio::test]
async fn a_healthcheck_that_cannot_be_used_is_listed_with_its_reason_and_what_shadows_it_is_shown()
-> Result<()> {
    let mut rig = with(&[("bad", r#"{"Test": "x"}"#), ("good", EAGER)], &[ENABLED]).await?;
    let bad = run(&mut rig, "bad", "bad", &[]).await?;
    let invalid = rig.becomes(&bad, "liveness", "is invalid", |probe| probe["phase"] == "invalid").await?;
    assert_eq!(invalid["source"], "healthcheck");
    assert_eq!(invalid["reason"], r#"HEALTHCHECK.Test: Invalid value: "x": must be a list of strings"#);

    let good = run(&mut rig, "good", "good", &[(LIVENESS, LAZY)]).await?;
    let shadows = |probe: &Value| probe["shadowed"] == json!(["healthcheck"]);
    let annotated = rig.becomes(&good, "liveness", "shadows it", shadows).await?;
    assert_eq!(annotated["source"], "annotation");

    let off = run(&mut rig, "off", "good", &[("criprobe.dev/probes", "off")]).await?;
    let known = run(&mut rig, "on", "good", &[]).await?;
    rig.becomes(&known, "liveness", "is there", |_| true).await?;
    assert_eq!(rig.daemon.probe(&off, "app", "liveness").await?, None);
    Ok(())
}

#[tokio::test]
async fn unless_it_is_enabled_for_the_namespace_no_image_is_asked_for() -> Result<()> {
    let elsewhere = [ENABLED, ("CRIPROBE_HEALTHCHECK_NAMESPACES", "shop")];
    for settings in [&[][..], &elsewhere] {
        let mut rig = with(&[("web", EAGER)], settings).await?;
        let pod = run(&mut rig, "web", "web", &[("readiness.criprobe.dev/app", LAZY)]).await?;
        rig.last(&pod, "readiness", "success").await?;
        stays("nothing is asked for", Duration::from_millis(500), async || {
            let asked = rig.faults().count("ImageStatus") + rig.faults().count("Read");
            Ok(asked == 0 && rig.daemon.probe(&pod, "app", "liveness").await?.is_none())
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_runtime_without_a_content_store_costs_one_line_and_nothing_else() -> Result<()> {
    let (runtime, dir) = rig::runtime(EnvValues::default())?;
    let unknown = FaultKind::Code(Code::Unimplemented, "unknown service".to_owned());
    runtime.faults().add(InjectedFault::always("Read", unknown));
    ["a", "b", "c"].iter().for_each(|name| runtime.add_image(name, &config(EAGER)));
    let mut rig = Rig::before(runtime, dir, &[ENABLED]).await?;
    let line = "runtime has no content store";
    for name in ["a", "b", "c"] {
        let pod = run(&mut rig, name, name, &[("readiness.criprobe.dev/app", LAZY)]).await?;
        rig.last(&pod, "readiness", "success").await?;
        eventually("it is reported", PATIENCE, async || Ok(rig.daemon.log().contains(line).then_some(())))
            .await?;
        assert_eq!(rig.daemon.probe(&pod, "app", "liveness").await?, None);
    }
    assert_eq!(rig.daemon.log().matches(line).count(), 1);
    assert_eq!(rig.faults().count("Read"), 1);
    Ok(())
}

#[tokio::test]
async fn an_image_that_is_slow_or_fails_holds_up_no_other_probe_and_comes_in_the_end() -> Result<()> {
    let (runtime, dir) = rig::runtime(EnvValues::default())?;
    runtime.add_image("web", &config(EAGER));
    runtime.faults().add(InjectedFault::always("ImageStatus", FaultKind::Hang));
    let mut rig = Rig::before(runtime, dir, &[ENABLED]).await?;
    let pod = run(&mut rig, "web", "web", &[("readiness.criprobe.dev/app", LAZY)]).await?;
    rig.last(&pod, "readiness", "success").await?;
    assert_eq!(rig.daemon.probe(&pod, "app", "liveness").await?, None);
    rig.faults().clear();
    rig.once("Read", FaultKind::Code(Code::Internal, "not now".to_owned()));
    rig.becomes(&pod, "liveness", "comes", |probe| probe["source"] == "healthcheck").await?;
    Ok(())
}

#[tokio::test]
async fn failures_in_the_start_period_are_shown_and_do_not_count_also_over_a_restart() -> Result<()> {
    let start = r#"{"Test": ["CMD", "test", "-e", "go"], "Interval": 300000000000, "Retries": 1,
        "StartPeriod": 3600000000000, "StartInterval": 100000000}"#;
    let mut rig = with(&[("web", start)], &[ENABLED]).await?;
    let pod = run(&mut rig, "web", "web", &[]).await?;
    let is_starting = |probe: &Value| {
        probe["counts"]["failure"].as_u64() >= Some(3)
            && probe["state"] == "success"
            && probe["reason"].as_str().is_some_and(|why| why.starts_with("start period of 1h"))
    };
    rig.becomes(&pod, "liveness", "is starting", is_starting).await?;
    rig.daemon.terminate();
    rig.daemon.start_again(rig.runtime.socket(), &[ENABLED]).await?;
    rig.becomes(&pod, "liveness", "is starting still", is_starting).await?;
    Ok(())
}
