//! Pods with more probes than they may have, and with definitions that mean nothing: rows 4 and 10.

use std::fs;

use anyhow::Result;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    rig::{LAZY, LIVENESS, Rig},
    support::{
        PATIENCE,
        cri::{self, Container},
        eventually,
    },
};

/// So many annotations for containers `a0`, `a1`, ...
fn annotations(count: usize, text: &str) -> Vec<(String, String)> {
    let kinds = ["startup", "readiness", "liveness"];
    (0..count)
        .map(|number| (format!("{}.criprobe.dev/a{}", kinds[number % 3], number / 3), text.to_owned()))
        .collect()
}

fn borrowed(pairs: &[(String, String)]) -> Vec<(&str, &str)> {
    pairs.iter().map(|(key, value)| (&**key, &**value)).collect()
}

/// A rig with this configuration, the folder of the file, and the file.
async fn configured(text: &str) -> Result<(Rig, TempDir, String)> {
    let folder = tempfile::Builder::new().prefix("criprobe-conf-").tempdir()?;
    let file = folder.path().join("config.yaml");
    fs::write(&file, text)?;
    let file = file.display().to_string();
    Ok((Rig::with(&[("CRIPROBE_CONFIG", &file)]).await?, folder, file))
}

fn phases(probes: &[Value], phase: &str) -> usize {
    probes.iter().filter(|probe| probe["phase"] == phase).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn row_04_annotations_leave_no_enforced_rule_and_no_other_namespace_without_a_place() -> Result<()> {
    const CONFIG: &str = r#"
prober: {maxPerPod: 6, maxPerNode: 8}
rules:
  - name: must
    match: {namespace: default, container: app}
    enforce: true
    readiness: {exec: {command: ["true"]}, period: 200ms}
"#;
    let (mut rig, _folder, file) = configured(CONFIG).await?;
    let many = annotations(12, LAZY);
    let (mut pods, names) = (Vec::new(), ["a0", "a1", "a2", "a3"]);
    for pod in ["greedy", "second"] {
        let pod = cri::run_sandbox(&mut rig.client, cri::pod_config(pod, &borrowed(&many))).await?;
        for name in names {
            cri::run_container(&mut rig.client, &pod, &Container { name, ..Container::IDLE }).await?;
        }
        pods.push(pod);
    }
    eventually("the node is full, and attempts were made", PATIENCE, async || {
        let all = rig.daemon.probes().await?;
        let is_tried = all.iter().any(|probe| probe["counts"]["success"] == 1);
        Ok((is_tried && all.len() - phases(&all, "invalid") == 8).then_some(()))
    })
    .await?;
    cri::run_container(&mut rig.client, &pods[0], &Container::IDLE).await?;
    let mut config = cri::pod_config("later", &[(LIVENESS, LAZY)]);
    if let Some(metadata) = &mut config.metadata {
        metadata.namespace = "elsewhere".to_owned();
    }
    let later = cri::run_sandbox(&mut rig.client, config).await?;
    cri::run_container(&mut rig.client, &later, &Container::IDLE).await?;
    let expected = async |rig: &Rig| -> Result<Option<()>> {
        let all = rig.daemon.probes().await?;
        let is = |pod: &str, container: &str| {
            all.iter().any(|probe| {
                (&probe["pod"], &probe["container"]) == (&pod.into(), &container.into())
                    && probe["counts"]["success"].as_u64() >= Some(1)
            })
        };
        Ok((is("greedy", "app") && is("later", "app") && all.len() - phases(&all, "invalid") == 8)
            .then_some(()))
    };
    eventually("the rule and the other namespace have places", PATIENCE, async || expected(&rig).await)
        .await?;
    rig.daemon.terminate();
    let socket = rig.runtime.socket().to_owned();
    rig.daemon.start_again(&socket, &[("CRIPROBE_CONFIG", &file)]).await?;
    eventually("and after a restart", PATIENCE, async || expected(&rig).await).await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_04_a_startup_annotation_that_never_succeeds_holds_no_enforced_rule_back() -> Result<()> {
    const CONFIG: &str = r#"
rules:
  - name: must
    match: {namespace: default, container: app}
    enforce: true
    liveness: {exec: {command: ["true"]}, period: 200ms}
"#;
    let (mut rig, _folder, _) = configured(CONFIG).await?;
    let never = "{exec: {command: ['false']}, periodSeconds: 1, failureThreshold: 2147483647}";
    let annotations = [("startup.criprobe.dev/app", never), ("readiness.criprobe.dev/app", LAZY)];
    let pod = cri::run_sandbox(&mut rig.client, cri::pod_config("evasive", &annotations)).await?;
    cri::run_container(&mut rig.client, &pod, &Container::IDLE).await?;
    let counts = |probes: &[Value], kind: &str, count: &str| {
        let probe = probes.iter().find(|probe| probe["type"] == kind)?;
        probe["counts"][count].as_u64()
    };
    eventually("the rule's probe is attempted beside a startup probe that fails", PATIENCE, async || {
        let all = rig.daemon.probes().await?;
        let is_held = counts(&all, "startup", "failure") >= Some(1);
        Ok((is_held && counts(&all, "liveness", "success") >= Some(2)).then_some(all))
    })
    .await
    .map(|all| assert_eq!(counts(&all, "readiness", "success"), Some(0), "the pod's own one waits"))
}

#[tokio::test(flavor = "multi_thread")]
async fn row_04_a_pod_with_many_quick_probes_makes_no_more_attempts_per_second_than_it_may() -> Result<()> {
    let mut rig = Rig::with(&[("CRIPROBE_PROBER_MAX_RATE_PER_POD", "20")]).await?;
    let quick =
        annotations(9, r#"{"tcpSocket": {"port": 1}, "period": "100ms", "failureThreshold": 100000}"#);
    let pod = cri::run_sandbox(&mut rig.client, cri::pod_config("quick", &borrowed(&quick))).await?;
    for name in ["a0", "a1", "a2"] {
        cri::run_container(&mut rig.client, &pod, &Container { name, ..Container::IDLE }).await?;
    }
    let reported =
        "the probes of the pod ask for 90 attempts per second, more than prober.maxRatePerPod, which is 20: ";
    eventually("two of them make attempts, and the others say why not", PATIENCE, async || {
        let all = rig.daemon.probes().await?;
        let refused = all.iter().filter(|probe| text(probe).starts_with(reported)).count();
        Ok((refused == 7 && all.len() - phases(&all, "invalid") == 2).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_10_hundreds_of_invalid_probes_take_a_few_lines_events_and_rows() -> Result<()> {
    let mut rig = Rig::start().await?;
    // Each unknown key of a definition is a fault of its own.
    let keys: Vec<_> = (0..60).map(|number| format!("x{number:04}: 1")).collect();
    let wrong = annotations(90, &format!("{{{}}}", keys.join(", ")));
    let pod = cri::run_sandbox(&mut rig.client, cri::pod_config("noisy", &borrowed(&wrong))).await?;
    for number in 0..30 {
        let name = format!("a{number}");
        cri::run_container(&mut rig.client, &pod, &Container { name: &name, ..Container::IDLE }).await?;
    }
    let listed = eventually("the last of them is known", PATIENCE, async || {
        let all = rig.daemon.probes().await?;
        Ok(all.iter().any(|probe| text(probe).contains("and 58 more of this pod")).then_some(all))
    })
    .await?;
    assert_eq!((listed.len(), phases(&listed, "invalid")), (32, 32));
    assert!(listed.iter().all(|probe| text(probe).len() < 1_200), "{listed:?}");
    // One more for each ten seconds that the test took.
    let events = rig.daemon.events().await?;
    let events = events.iter().filter(|event| event["reason"] == "InvalidProbe").count();
    let lines = rig.daemon.log().matches("probe is invalid").count();
    assert!((20..30).contains(&events) && lines == events, "{events} events, {lines} lines");
    Ok(())
}

fn text(probe: &Value) -> &str {
    probe["reason"].as_str().unwrap_or_default()
}
