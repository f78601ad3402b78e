//! Commands that name variables of their containers: what reading and keeping the values may cost others.

use anyhow::Result;
use criprobe::{demo::FaultKind, ids::ContainerId};
use serde_json::Value;
use tonic::Code;

use crate::{
    rig::Rig,
    support::{
        PATIENCE,
        cri::{self, Container, Pod},
        eventually,
    },
};

/// A pod with so many containers, each with a liveness and a readiness probe.
pub(crate) async fn run(
    rig: &mut Rig,
    (namespace, name): (&str, &str),
    count: usize,
    env: &[(&str, &str)],
    probe: &str,
) -> Result<(Pod, Vec<ContainerId>)> {
    let names: Vec<_> = (0..count).map(|number| format!("c{number}")).collect();
    let keys: Vec<_> = names
        .iter()
        .flat_map(|name| ["liveness", "readiness"].map(|kind| format!("{kind}.criprobe.dev/{name}")))
        .collect();
    let annotations: Vec<_> = keys.iter().map(|key| (key.as_str(), probe)).collect();
    let mut config = cri::pod_config(name, &annotations);
    config.labels.insert("io.kubernetes.pod.namespace".into(), namespace.into());
    config.metadata.iter_mut().for_each(|metadata| metadata.namespace = namespace.into());
    let pod = cri::run_sandbox(&mut rig.client, config).await?;
    let mut ids = Vec::new();
    for name in &names {
        let container = Container { name, env, ..Container::IDLE };
        ids.push(cri::run_container(&mut rig.client, &pod, &container).await?);
    }
    Ok((pod, ids))
}

/// Waits until each of a pod's probes has a last attempt, and has made so many that are errors.
async fn all_have_errors(rig: &Rig, pod: &Pod, at_least: u64) -> Result<()> {
    eventually("each probe has errors", 2 * PATIENCE, async || {
        let probes = rig.daemon.probes().await?;
        let is_of_pod =
            |probe: &&Value| probe["key"].as_str().is_some_and(|key| key.starts_with(pod.uid.as_str()));
        let of_pod: Vec<_> = probes.iter().filter(is_of_pod).collect();
        let has_errors = |probe: &&Value| probe["counts"]["error"].as_u64() >= Some(at_least);
        Ok((!of_pod.is_empty() && of_pod.iter().all(has_errors)).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_20_a_verbose_status_that_fails_is_not_asked_for_by_each_attempt() -> Result<()> {
    let mut rig = Rig::start().await?;
    let probe = r#"{"exec": {"command": ["test", "$(X)", "=", "x"]}, "period": "100ms"}"#;
    let (pod, ids) = run(&mut rig, ("hostile", "large"), 2, &[("X", "x")], probe).await?;
    let healthy = eventually("they succeed", PATIENCE, async || {
        let probes = rig.daemon.probes().await?;
        Ok(probes.iter().all(|probe| probe["last"]["result"] == "success").then_some(probes.len()))
    });
    assert_eq!(healthy.await?, 4);
    // The request's last field says that it is verbose: the inventory's own are answered.
    let about = ids.iter().map(|id| format!("{id}\u{10}\u{1}")).collect();
    let message = "trying to send message larger than max (22660495 vs. 16777216)".to_owned();
    rig.always("ContainerStatus", FaultKind::CodeAbout(about, Code::ResourceExhausted, message));
    rig.daemon.terminate();
    rig.daemon.start_again(rig.runtime.socket(), &[]).await?;
    all_have_errors(&rig, &pod, 1).await?;
    let before = rig.faults().count("ContainerStatus");
    all_have_errors(&rig, &pod, 40).await?;
    // Each of the 2 after 1 s, 3 s, 7 s and 15 s. Without a pause it is 39 times of each of the 4 probes.
    let asked = rig.faults().count("ContainerStatus") - before;
    assert!(asked <= 24, "{asked} statuses were asked for");
    let probes = rig.daemon.probes().await?;
    for probe in &probes {
        let text = probe["last"]["output"].as_str().unwrap_or_default();
        assert!(text.contains("ResourceExhausted") && text.contains("larger than max"), "{probe}");
        assert_eq!(probe["counts"]["failure"], 0, "it says nothing of the container: {probe}");
    }
    rig.faults().clear();
    eventually("they succeed again", 2 * PATIENCE, async || {
        let probes = rig.daemon.probes().await?;
        Ok(probes.iter().all(|probe| probe["last"]["result"] == "success").then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_03_a_namespace_finds_room_for_its_variables_whatever_those_of_others_take() -> Result<()> {
    let mut rig = Rig::start().await?;
    let value = "a".repeat(125_000);
    let probe = r#"{"exec": {"command": ["true", "$(A)", "$(B)"]}, "periodSeconds": 10}"#;
    // 90 probes whose values take 22 MB together, of which 16 MiB are kept.
    for (namespace, name) in [("a", "1"), ("a", "2"), ("a", "3"), ("b", "4"), ("b", "5")] {
        run(&mut rig, (namespace, name), 9, &[("A", &value), ("B", &value)], probe).await?;
    }
    let is_refused = |probe: &Value| {
        probe["last"]["output"].as_str().is_some_and(|text| text.ends_with("there is no room for them"))
    };
    // On a busy machine, some are tried twice: their statuses come too late.
    eventually("all were tried and the room is used up", 4 * PATIENCE, async || {
        let probes = rig.daemon.probes().await?;
        let were_tried = probes.iter().all(|probe| !probe["last"].is_null());
        Ok((probes.len() == 90 && were_tried && probes.iter().any(is_refused)).then_some(()))
    })
    .await?;
    let modest = r#"{"exec": {"command": ["test", "-n", "$(X)"]}, "periodSeconds": 1}"#;
    let value = "x".repeat(30_000);
    let (pod, _) = run(&mut rig, ("shop", "web"), 4, &[("X", &value)], modest).await?;
    for name in ["c0", "c1", "c2", "c3"] {
        for kind in ["liveness", "readiness"] {
            let is_tried = |probe: &Value| !probe["last"].is_null();
            let probe = rig.daemon.probe_becomes((&pod, name, kind), "is tried", PATIENCE, is_tried).await?;
            assert_eq!(probe["last"]["result"], "success", "{probe}");
        }
    }
    Ok(())
}
