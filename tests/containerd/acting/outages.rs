//! criprobe killed at each step of an act, and containerd restarted in the middle of one: the container runs exactly once,
//! and nothing is acted on before a fresh verdict.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use criprobe::{clock, proto::cri::ContainerState};
use rustix::process::Signal;
use serde_json::Value;

use super::{ACTING, CHECK, HOOK, POLITE, STUBBORN, Scene, Stage, apps, probe};
use crate::support::{containerd::Lab, stays};

/// In the order in which an act passes them. A second restart passes `waiting`, before the others of these tests, which
/// kill criprobe again while that one waits.
const POINTS: [&str; 11] = [
    "waiting", "recorded", "held", "command", "hook", "stopping", "stopped", "creating", "created",
    "started", "removed",
];

/// Needs twenty failures.
fn needs_twenty() -> String {
    format!("{{{CHECK}, period: 200ms, failureThreshold: 20, onFailure: stop}}")
}

fn failures(probe: &Value) -> u64 {
    probe["counts"]["failure"].as_u64().unwrap_or_default()
}

impl Scene<'_> {
    /// It runs exactly once, is probed, and that stays so.
    async fn runs_on_once(mut self, attempt: u32) -> Result<()> {
        self.runs_once(attempt).await?;
        self.is_healthy().await?;
        stays("it runs once", Duration::from_millis(500), async || {
            let all = apps(&mut self.past, &self.pod).await?;
            Ok(all == [(self.id.clone(), attempt, ContainerState::ContainerRunning)])
        })
        .await
    }
}

/// It was acted on, after as many failures as it needs since it had so many.
async fn was_stopped_by_a_fresh_verdict(scene: &mut Scene<'_>, before: u64) -> Result<()> {
    ensure!(scene.exited().await?.exit_code == 7);
    let stopped = scene.becomes("is held", |probe| probe["phase"] == "held").await?;
    ensure!(failures(&stopped) >= before + 20, "{before} failures before, then {stopped}");
    ensure!(scene.events("Killing").await?.len() == 1);
    Ok(())
}

async fn has_failed_often(scene: &mut Scene<'_>) -> Result<()> {
    scene.is_healthy().await?;
    scene.fall_ill().await?;
    scene.becomes("has failed often", |probe| failures(probe) > 10).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_step_of_a_restart_the_container_runs_exactly_once() -> Result<()> {
    let Some(lab) = Lab::start()? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let faults = [("CRIPROBE_FAULTS", folder.path().to_str().context("a path of ours")?)];
    let settings = [&ACTING[..], &faults].concat();
    let mut stage = Stage::before(&lab, &faults).await?;
    let restarts = format!(
        "{{{CHECK}, period: 200ms, failureThreshold: 1, onFailure: restart, onFailureCommand: {{command: [\"true\"]}}}}"
    );
    let hook = [(HOOK, r#"{"exec": {"command": ["touch", "/tmp/hooked"]}}"#)];
    let mut waits = None;
    for point in POINTS {
        let mut scene = stage.run((point, false), &restarts, (&POLITE, &hook)).await?;
        scene.is_healthy().await?;
        if point == "waiting" {
            scene.fall_ill().await?;
            scene.runs_once(1).await?;
            scene.is_healthy().await?;
        }
        fs::write(folder.path().join(format!("act-{point}")), "")?;
        scene.fall_ill().await?;
        let Scene { pod, id, .. } = scene;
        stage.daemon.start_again(&lab.socket(), &settings).await.context(point)?;
        stage.client = stage.daemon.client().await?;
        if point == "waiting" {
            waits = Some((pod, id));
            continue;
        }
        Scene::of(&stage, pod, id).runs_on_once(1).await.context(point)?;
        // Before it could come to the point that is next.
        if point == "stopped"
            && let Some((pod, id)) = waits.take()
        {
            Scene::of(&stage, pod, id).runs_on_once(2).await.context("waiting")?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn containerd_and_criprobe_may_go_away_in_the_middle_of_an_act() -> Result<()> {
    let Some(lab) = Lab::start()? else { return Ok(()) };
    let mut stage = Stage::before(&lab, &[]).await?;
    let slow = probe("onFailure: restart, terminationGracePeriodSeconds: 8");
    let mut stopping = stage.run(("stopping", false), &slow, (&STUBBORN, &[])).await?;
    let mut patient = stage.run(("patient", true), &needs_twenty(), (&POLITE, &[])).await?;
    let mut waiting = stage.run_healthy("waiting", &[]).await?;
    waiting.backs_off().await?;
    stopping.is_healthy().await?;
    stopping.fall_ill().await?;
    stopping.becomes("is being stopped", |probe| probe["act"]["step"] == "stopping").await?;
    has_failed_often(&mut patient).await?;
    lab.stop()?;
    let before = patient.becomes("shows an error", |probe| probe["last"]["result"] == "error").await?;
    ensure!(failures(&before) < 20, "{before}");
    lab.resume()?;
    let past = lab.client().await?;
    for scene in [&mut stopping, &mut patient, &mut waiting] {
        scene.past = past.clone();
    }
    stopping.runs_once(1).await.context("stopping")?;
    waiting.runs_once(2).await.context("waiting")?;
    for scene in [&stopping, &waiting] {
        scene.is_healthy().await?;
        ensure!(scene.events("Restarted").await?.len() == scene.events("Killing").await?.len());
    }
    was_stopped_by_a_fresh_verdict(&mut patient, failures(&before)).await?;

    let mut again = stage.run(("patient-again", true), &needs_twenty(), (&POLITE, &[])).await?;
    again.past = past.clone();
    has_failed_often(&mut again).await?;
    let Scene { pod, id, .. } = again;
    stage.past = past;
    stage.daemon.signal(Signal::KILL);
    let killed_at = clock::wall();
    stage.daemon.start_again(&lab.socket(), &ACTING).await?;
    stage.client = stage.daemon.client().await?;
    let mut again = Scene::of(&stage, pod, id);
    ensure!(again.exited().await?.exit_code == 7);
    // How many failures were saved before is not known. All of the twenty came after the kill.
    let (stopped_at, _) = again.has_event("Killing").await?;
    let after = stopped_at.duration_since(killed_at)?;
    ensure!(after >= 19 * Duration::from_millis(200), "stopped after {after:?}");
    Ok(())
}
