//! Row 13: a stage that panics is started again, and the relay does not notice.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use criprobe::{clock, demo::FaultKind, proto::cri as pb};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::MissedTickBehavior};

use crate::{
    rig::{EAGER, LAZY, LIVENESS, READINESS, Rig, SOON},
    support::{
        PATIENCE,
        cri::{Cri, Pod},
        eventually, stays,
    },
};

/// Every stage but the relay, in the order in which they are started.
const STAGES: [&str; 9] =
    ["link", "manifests", "inventory", "plan", "state", "prober", "informing", "reload", "api"];

/// Calls a second, each on its way when it is due.
const RATE: u64 = 1_000;

/// Calls the relay until it is asked to stop.
struct Load {
    stop: Arc<AtomicBool>,
    made: Arc<AtomicU64>,
    calling: tokio::task::JoinHandle<Result<Duration>>,
}

impl Load {
    fn start(client: &Cri) -> Self {
        let (stop, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let calling = tokio::spawn(call(client.clone(), stop.clone(), made.clone()));
        Self { stop, made, calling }
    }

    /// How many calls were made, and how long the slowest one took.
    async fn end(self) -> Result<(u64, Duration)> {
        self.stop.store(true, Ordering::Relaxed);
        Ok((self.made.load(Ordering::Relaxed), self.calling.await??))
    }
}

async fn call(client: Cri, stop: Arc<AtomicBool>, made: Arc<AtomicU64>) -> Result<Duration> {
    let mut beat = tokio::time::interval(Duration::from_secs(1) / RATE as u32);
    beat.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut calls = JoinSet::new();
    let mut slowest = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        tokio::select! {
            // No more at once than a machine that is busy with other tests can answer.
            _ = beat.tick(), if calls.len() < 256 => {
                let mut client = client.clone();
                calls.spawn(async move {
                    let began = clock::now();
                    client.version(pb::VersionRequest::default()).await.map(|_| clock::now() - began)
                });
                made.fetch_add(1, Ordering::Relaxed);
            }
            Some(ended) = calls.join_next() => slowest = slowest.max(ended?.context("a call failed")?),
        }
    }
    while let Some(ended) = calls.join_next().await {
        slowest = slowest.max(ended?.context("a call failed")?);
    }
    Ok(slowest)
}

impl Rig {
    /// Has a stage panic, and waits until it is there again. What is done `meanwhile` happens about when it panics.
    async fn fail(
        &mut self,
        faults: &Path,
        stage: &str,
        meanwhile: impl AsyncFnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        fs::write(faults.join(stage), "")?;
        meanwhile(self).await?;
        eventually(&format!("{stage} is started again"), PATIENCE, async || {
            // While the API or what it asks is started again, it need not answer.
            let Ok(status) = self.daemon.status().await else { return Ok(None) };
            let mut stages = status["stages"].as_array().into_iter().flatten();
            Ok(stages.find(|failed| failed["stage"] == stage && failed["restarts"] == 1).cloned())
        })
        .await
        .map(drop)
    }

    async fn probe(&self, pod: &Pod, kind: &str) -> Result<Value> {
        eventually("the probe is listed", PATIENCE, async || {
            Ok(self.daemon.probe(pod, "app", kind).await.ok().flatten())
        })
        .await
    }

    /// Waits until a probe makes attempts that it had not made before.
    async fn goes_on(&self, pod: &Pod) -> Result<()> {
        let before = self.probe(pod, "liveness").await?["last"]["at"].clone();
        self.becomes(pod, "liveness", "goes on", |probe| {
            probe["state"] == "success" && !probe["last"]["at"].is_null() && probe["last"]["at"] != before
        })
        .await
        .map(drop)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_13_a_stage_that_panics_is_started_again_and_the_relay_does_not_notice() -> Result<()> {
    let faults = tempfile::tempdir()?;
    let folder = faults.path().to_str().context("a path of ours")?;
    let mut rig = Rig::with(&[("CRIPROBE_FAULTS", folder)]).await?;
    let (pod, _) = rig.run("stays", &[(LIVENESS, EAGER), (READINESS, LAZY)], &["sleep", "100000"]).await?;
    rig.last(&pod, "liveness", "success").await?;
    let (status, said) =
        rig.daemon.post(&format!("/v1/probes/default/{}/app/readiness/pause", name(&pod)), "").await?;
    ensure!(status.is_success(), "{said}");
    // A pause is saved within a second; a panic before that may lose it, as SIGKILL may.
    eventually("the pause is saved", PATIENCE, async || {
        let saved = fs::read_to_string(rig.daemon.state().join("probes.json")).unwrap_or_default();
        Ok(saved.contains("paused").then_some(()))
    })
    .await?;

    let load = Load::start(&rig.client);
    for stage in STAGES {
        let (goes, id) =
            rig.run(&format!("goes-with-{stage}"), &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
        rig.last(&goes, "liveness", "success").await?;
        rig.fail(faults.path(), stage, async |rig| {
            rig.past
                .stop_container(pb::StopContainerRequest { container_id: id.to_string(), timeout: 0 })
                .await?;
            rig.past.remove_container(pb::RemoveContainerRequest { container_id: id.to_string() }).await?;
            Ok(())
        })
        .await
        .with_context(|| format!("while {stage} fails"))?;
        rig.goes_on(&pod).await.with_context(|| format!("after {stage} failed"))?;
        eventually(&format!("what went while {stage} failed is not listed"), PATIENCE, async || {
            Ok(rig.daemon.probe(&goes, "app", "liveness").await?.is_none().then_some(()))
        })
        .await?;
        assert_eq!(rig.probe(&pod, "readiness").await?["phase"], "paused", "after {stage} failed");
        // What comes now is seen as fast as ever.
        let (comes, _) =
            rig.run(&format!("comes-after-{stage}"), &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
        let listed = async || Ok(rig.daemon.probe(&comes, "app", "liveness").await?);
        eventually(&format!("what comes after {stage} failed is listed"), 10 * SOON, listed).await?;
    }
    let (made, slowest) = load.end().await?;
    println!("{made} calls, the slowest took {slowest:?}");
    ensure!(made > RATE, "only {made} calls were made");

    let status = rig.daemon.status().await?;
    let failed: Vec<_> =
        status["stages"].as_array().into_iter().flatten().map(|stage| &stage["stage"]).collect();
    let mut expected = STAGES.map(|stage| json!(stage));
    expected.sort_by_key(ToString::to_string);
    assert_eq!(failed, expected.iter().collect::<Vec<_>>(), "{status}");
    assert_eq!(
        (&status["connections"]["total"], &status["connections"]["blind"]),
        (&json!(1), &json!([])),
        "{status}"
    );
    let (_, metrics) = rig.daemon.get("/metrics").await?;
    ensure!(metrics.contains("criprobe_stage_restarts_total{stage=\"prober\"} 1\n"), "{metrics}");
    let log = rig.daemon.log();
    ensure!(log.contains("src/stage.rs:"), "the log names the place: {log}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_13_a_stop_that_is_open_outlives_the_stages_that_know_of_it() -> Result<()> {
    let faults = tempfile::tempdir()?;
    let folder = faults.path().to_str().context("a path of ours")?;
    let mut rig = Rig::with(&[("CRIPROBE_FAULTS", folder)]).await?;
    let (pod, id) = rig.run("stops", &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
    rig.last(&pod, "liveness", "success").await?;
    // The runtime takes its time, as for a container with a long grace period.
    rig.once("StopContainer", FaultKind::Hang);
    let (gone, mut client) = (id.to_string(), rig.client.clone());
    let stop = tokio::spawn(async move {
        client.stop_container(pb::StopContainerRequest { container_id: gone, timeout: 30 }).await
    });
    rig.becomes(&pod, "liveness", "is stopped", |probe| probe["phase"] == "stopped").await?;
    for stage in ["prober", "plan", "inventory"] {
        rig.fail(faults.path(), stage, async |_| Ok(())).await?;
        // What comes now has passed all stages: so has what was replayed before it.
        let (comes, _) =
            rig.run(&format!("after-{stage}"), &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
        rig.last(&comes, "liveness", "success").await?;
        eventually("the stop is known again", PATIENCE, async || {
            Ok((rig.probe(&pod, "liveness").await?["phase"] == "stopped").then_some(()))
        })
        .await
        .with_context(|| format!("after {stage} failed"))?;
        let before = rig.probe(&pod, "liveness").await?["last"]["at"].clone();
        stays("no attempt is made", Duration::from_secs(1), async || {
            let probe = rig.probe(&pod, "liveness").await?;
            Ok(probe["phase"] == "stopped" && probe["last"]["at"] == before)
        })
        .await
        .with_context(|| format!("after {stage} failed"))?;
    }
    // The client gives up, the stop has failed, and the container goes on.
    stop.abort();
    rig.goes_on(&pod).await
}

fn name(pod: &Pod) -> String {
    pod.config.metadata.as_ref().map(|metadata| metadata.name.clone()).unwrap_or_default()
}
