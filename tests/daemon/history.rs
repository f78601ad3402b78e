//! What is kept of attempts and events, what is written to a file, and how long attempts took.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use anyhow::{Context as _, Result};
use rustix::process::Signal;
use serde_json::Value;

use crate::{
    rig::{EAGER, LIVENESS, READINESS, Rig},
    support::{PATIENCE, eventually},
};

/// Fails ten times a second.
const FLOOD: &str = r#"{"exec": {"command": ["cat", "nowhere"]}, "period": "100ms", "failureThreshold": 1}"#;

/// Fails once, and rests for longer than any test.
const RARE: &str =
    r#"{"exec": {"command": ["cat", "nowhere"]}, "periodSeconds": 300, "failureThreshold": 1}"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_that_repeats_is_one_event_that_counts_and_says_since_when() -> Result<()> {
    let mut rig = Rig::start().await?;
    rig.run("loud", &[(LIVENESS, FLOOD)], &["sleep", "100000"]).await?;
    let events = eventually("it has failed often", PATIENCE, async || {
        let events = rig.daemon.events().await?;
        Ok(events.iter().any(|event| event["count"].as_u64() >= Some(10)).then_some(events))
    })
    .await?;
    let events: Vec<_> = events.into_iter().filter(|event| event["probe"] == "liveness").collect();
    let reasons: Vec<_> = events.iter().filter_map(|event| event["reason"].as_str()).collect();
    assert_eq!(reasons, ["VerdictChanged", "Unhealthy"], "the newest is the last");
    let repeated = &events[1];
    assert!(repeated["firstAt"].as_str() < repeated["at"].as_str(), "{repeated}");
    assert!(events[0].get("count").is_none() && events[0].get("firstAt").is_none(), "{}", events[0]);
    let (_, table) = rig.daemon.run(&["events", "--pod", "loud"])?;
    assert!(table.lines().any(|line| line.contains(" (x") && line.contains(" over ")), "{table}");
    let (_, described) = rig.daemon.run(&["describe", "default/loud/app/liveness"])?;
    assert!(described.contains(" over "), "{described}");

    let count = async |path: &str| Ok::<_, anyhow::Error>(rig.daemon.lines(path).await?.len());
    // And the start of the container, and of criprobe.
    assert_eq!(count("/v1/events?since=1h").await?, 4);
    assert_eq!(count("/v1/events?since=3600").await?, 4);
    assert_eq!(count("/v1/events?since=2999-01-01T00:00:00Z").await?, 0);
    let (status, refused) = rig.daemon.get("/v1/events?since=soon").await?;
    assert!(status == 400 && refused.contains("write a duration such as 10m"), "{refused}");
    let probes =
        async |path: &str| Ok::<_, anyhow::Error>(rig.daemon.json(path).await?.as_array().map(Vec::len));
    assert_eq!(probes("/v1/probes?since=1h").await?, Some(1));
    assert_eq!(probes("/v1/probes?since=2999-01-01T00:00:00Z").await?, Some(0));
    let (ok, listed) = rig.daemon.run(&["probes", "--since", "10m"])?;
    assert!(ok && listed.contains("default/loud"), "{listed}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_attempt_outlives_a_restart_and_one_that_would_not_be_tried_for_long_is_tried_once()
-> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, id) = rig.run("rare", &[(LIVENESS, RARE)], &["sleep", "100000"]).await?;
    let before = rig.becomes(&pod, "liveness", "fails", |probe| probe["last"]["result"] == "failure").await?;
    rig.daemon.signal(Signal::TERM);
    rig.daemon.ended().await?;
    let runtime = rig.runtime.socket().to_owned();
    rig.daemon.start_again(&runtime, &[]).await?;
    let after =
        rig.becomes(&pod, "liveness", "is there", |probe| probe["containerId"] == id.as_str()).await?;
    let shown = |probe: &Value| [&probe["last"]["result"], &probe["last"]["output"]].map(Clone::clone);
    assert_eq!(shown(&after), shown(&before));
    assert!(after["last"]["output"].as_str().is_some_and(|output| output.starts_with("cat: ")), "{after}");
    rig.daemon
        .probe_becomes((&pod, "app", "liveness"), "is tried", 2 * PATIENCE, |probe| {
            probe["counts"]["failure"] == 2
        })
        .await?;
    Ok(())
}

fn records(file: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(file)?;
    text.lines().map(|line| serde_json::from_str(line).context("parse a line")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_attempt_is_a_line_of_the_file_that_the_operator_names_also_the_last_one_before_the_end()
-> Result<()> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("records/attempts.jsonl");
    let mut rig = Rig::with(&[("CRIPROBE_ATTEMPTS_FILE", &file.display().to_string())]).await?;
    let annotations = [(LIVENESS, FLOOD), (READINESS, EAGER)];
    let (pod, id) = rig.run("recorded", &annotations, &["sleep", "100000"]).await?;
    rig.becomes(&pod, "readiness", "is tried often", |probe| probe["counts"]["success"].as_u64() >= Some(5))
        .await?;
    rig.becomes(&pod, "readiness", "shows how long attempts take", |probe| {
        probe["latency"]["attempts"].as_u64() >= Some(5)
            && probe["latency"]["p50Seconds"].as_f64() > Some(0.0)
    })
    .await?;
    let (_, described) = rig.daemon.run(&["describe", "default/recorded/app/readiness"])?;
    assert!(described.contains("latency") && described.contains(" of a timeout of 1s"), "{described}");
    eventually("the status counts lines", PATIENCE, async || {
        let attempts = rig.daemon.status().await?["attempts"].take();
        assert_eq!((&attempts["dropped"], &attempts["trouble"]), (&0.into(), &"".into()), "{attempts}");
        Ok((attempts["written"].as_u64() >= Some(5)).then_some(()))
    })
    .await?;
    for kind in ["liveness", "readiness"] {
        rig.daemon.post(&format!("/v1/probes/{}/app/{kind}/pause", pod.uid), "").await?;
    }
    let settled = eventually("nothing is in flight", PATIENCE, async || {
        let total = async || {
            let probes = rig.daemon.probes().await?;
            let counts =
                probes.iter().flat_map(|probe| probe["counts"].as_object().cloned().unwrap_or_default());
            Ok::<_, anyhow::Error>(counts.filter_map(|(_, count)| count.as_u64()).sum::<u64>())
        };
        let one = total().await?;
        Ok((one == total().await? && one >= 10).then_some(one))
    })
    .await?;
    rig.daemon.signal(Signal::TERM);
    rig.daemon.ended().await?;
    let records = records(&file)?;
    assert!(records.len() as u64 >= settled, "{} of {settled}", records.len());
    assert_eq!(fs::metadata(&file)?.mode() & 0o777, 0o600);
    let failed = records.iter().find(|record| record["type"] == "liveness").context("one that failed")?;
    assert_eq!([&failed["namespace"], &failed["pod"], &failed["container"]], ["default", "recorded", "app"]);
    assert_eq!(
        (&failed["result"], &failed["exitCode"], &failed["containerId"], &failed["execRoute"]),
        (&"failure".into(), &1.into(), &id.as_str().into(), &"sync".into())
    );
    assert!(failed["output"].as_str().is_some_and(|output| output.starts_with("cat: ")), "{failed}");
    Ok(())
}
