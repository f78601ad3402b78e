//! Verdicts, runs and pauses over a restart; and a state that cannot be read or written.

use std::{fs, os::unix::fs::MetadataExt, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result};
use criprobe::{demo::EnvValues, proto::cri as pb};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    rig::{EAGER, LIVENESS, READINESS, Rig, runtime},
    support::{
        PATIENCE,
        cri::{self, Container, Pod},
        daemon::exec_mode,
        eventually, stays,
    },
};

/// Rests for so long between two attempts that a daemon can be ended in between.
const SLOW: &str = r#"{"exec": {"command": ["cat", "healthy"]}, "periodSeconds": 3, "failureThreshold": 3}"#;

impl Rig {
    /// Ends the daemon as a service manager does, lets something happen, starts it again where it was, and
    /// waits for the first probe.
    pub(crate) async fn restart(
        &mut self,
        signal: Signal,
        meanwhile: impl AsyncFnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        self.daemon.signal(signal);
        self.daemon.ended().await?;
        meanwhile(self).await?;
        let runtime = self.runtime.socket().to_owned();
        self.daemon.start_again(&runtime, &[exec_mode(&self.exec_mode)]).await?;
        self.client = self.daemon.client().await?;
        eventually("its probes are there", PATIENCE, async || {
            Ok((!self.daemon.probes().await?.is_empty()).then_some(()))
        })
        .await
    }

    fn state_file(&self) -> PathBuf {
        self.daemon.state().join("probes.json")
    }

    /// What the state file holds.
    pub(crate) fn saved(&self) -> Result<Value> {
        Ok(serde_json::from_slice(&fs::read(self.state_file())?)?)
    }

    async fn reported(&self, reason: &str) -> Result<usize> {
        Ok(self.daemon.events().await?.iter().filter(|event| event["reason"] == reason).count())
    }
}

async fn nothing(_: &mut Rig) -> Result<()> {
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_failures_before_a_restart_and_one_after_it_are_three() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, _) = rig.run("runs", &[(LIVENESS, SLOW)], &["sleep", "100000"]).await?;
    let before = rig.becomes(&pod, "liveness", "fails twice", |probe| probe["run"]["count"] == 2).await?;
    assert_eq!((&before["state"], &before["counts"]["failure"]), (&json!("success"), &json!(2)));
    rig.restart(Signal::TERM, nothing).await?;
    let after = rig.daemon.probe(&pod, "app", "liveness").await?.context("it is there")?;
    assert_eq!([&after["state"], &after["since"]], [&before["state"], &before["since"]]);
    let failed = rig.becomes(&pod, "liveness", "fails", |probe| probe["state"] == "failure").await?;
    assert_eq!((&failed["counts"]["failure"], &failed["phase"]), (&json!(3), &json!("probing")));
    assert_eq!((rig.reported("Unhealthy").await?, rig.reported("VerdictChanged").await?), (1, 1));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verdict_does_not_flap_over_a_restart() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, _) = rig.run("ready", &[(READINESS, EAGER)], &["sleep", "100000"]).await?;
    rig.becomes(&pod, "readiness", "succeeds", |probe| probe["state"] == "success").await?;
    rig.restart(Signal::TERM, nothing).await?;
    stays("it is ready all the time", Duration::from_secs(1), async || {
        let probe = rig.daemon.probe(&pod, "app", "readiness").await?.unwrap_or_default();
        Ok(probe["state"] == "success" && rig.reported("VerdictChanged").await? == 0)
    })
    .await?;
    rig.last(&pod, "readiness", "success").await?;
    assert!(!rig.daemon.log().contains("WARN"), "{}", rig.daemon.log());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verdict_is_on_the_disk_soon_after_it_fell_and_so_outlives_a_kill() -> Result<()> {
    let mut rig = Rig::start().await?;
    let failing = r#"{"exec": {"command": ["false"]}, "period": "100ms", "failureThreshold": 1}"#;
    let (pod, id) = rig.run("killed", &[(LIVENESS, failing)], &["sleep", "100000"]).await?;
    rig.becomes(&pod, "liveness", "fails", |probe| {
        probe["state"] == "failure" && probe["phase"] == "probing"
    })
    .await?;
    eventually("it is saved", PATIENCE, async || {
        let saved = rig.saved().unwrap_or_default();
        Ok((saved["probes"][0]["stand"]["state"] == "failure").then_some(()))
    })
    .await?;
    let file = fs::metadata(rig.state_file())?;
    assert_eq!((file.mode() & 0o777, fs::metadata(rig.daemon.state())?.mode() & 0o777), (0o600, 0o700));
    let status = rig.daemon.status().await?;
    assert_eq!(status["state"]["file"], rig.state_file().display().to_string());
    assert!(status["state"]["savedAt"].is_string() && status["state"]["trouble"] == "", "{status}");

    rig.restart(Signal::KILL, nothing).await?;
    stays("it is known", Duration::from_millis(500), async || {
        let probe = rig.daemon.probe(&pod, "app", "liveness").await?.unwrap_or_default();
        Ok(probe["phase"] == "probing" && probe["state"] == "failure" && probe["containerId"] == id.as_str())
    })
    .await
}

/// Triggers a probe until its verdict is this.
async fn triggered_until(rig: &Rig, pod: &Pod, state: &str) -> Result<()> {
    let trigger = format!("/v1/probes/{}/app/liveness/trigger", pod.uid);
    eventually(&format!("a trigger makes it {state}"), PATIENCE, async || {
        let (status, body) = rig.daemon.post(&trigger, "").await?;
        // Also before criprobe has seen its container.
        let is_early = ["the last attempt began", "has not been started", "no probe "]
            .into_iter()
            .any(|reason| body.contains(reason));
        assert!(status == 200 || is_early, "{status}: {body}");
        let probe = rig.daemon.probe(pod, "app", "liveness").await?.unwrap_or_default();
        Ok((probe["state"] == state).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_liveness_probe_that_failed_and_only_reports_recovers_by_a_trigger_also_over_a_restart()
-> Result<()> {
    let mut rig = Rig::start().await?;
    let rare = r#"{"exec": {"command": ["cat", "healthy"]}, "periodSeconds": 300, "failureThreshold": 1}"#;
    let command = ["sh", "-c", "echo fine >healthy; sleep 100000"];
    let (pod, id) = rig.run("recovers", &[(LIVENESS, rare)], &command).await?;
    triggered_until(&rig, &pod, "success").await?;
    cri::exec(&mut rig.client, &id, &["rm", "healthy"]).await?;
    triggered_until(&rig, &pod, "failure").await?;
    cri::exec(&mut rig.client, &id, &["touch", "healthy"]).await?;
    triggered_until(&rig, &pod, "success").await?;

    cri::exec(&mut rig.client, &id, &["rm", "healthy"]).await?;
    triggered_until(&rig, &pod, "failure").await?;
    rig.restart(Signal::TERM, nothing).await?;
    let after = rig.daemon.probe(&pod, "app", "liveness").await?.context("it is there")?;
    assert_eq!((&after["state"], &after["phase"]), (&json!("failure"), &json!("probing")));
    cri::exec(&mut rig.client, &id, &["touch", "healthy"]).await?;
    triggered_until(&rig, &pod, "success").await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_version_that_did_not_act_saved_as_held_goes_on() -> Result<()> {
    let mut rig = Rig::start().await?;
    let never = r#"{"exec": {"command": ["cat", "healthy"]}, "period": "100ms", "failureThreshold": 1}"#;
    let (pod, id) = rig.run("former", &[(LIVENESS, never)], &["sleep", "100000"]).await?;
    rig.becomes(&pod, "liveness", "fails", |probe| {
        probe["state"] == "failure" && probe["phase"] == "probing"
    })
    .await?;
    rig.restart(Signal::TERM, async |rig| {
        let mut saved = rig.saved()?;
        let stand = &mut saved["probes"][0]["stand"];
        assert_eq!([&stand["state"], &stand["held"]], [&json!("failure"), &json!(false)]);
        stand["held"] = true.into();
        fs::write(rig.state_file(), serde_json::to_vec(&saved)?).context("write the state")
    })
    .await?;
    cri::exec(&mut rig.client, &id, &["touch", "healthy"]).await?;
    let restored = rig.becomes(&pod, "liveness", "recovers", |probe| probe["state"] == "success").await?;
    assert!(restored["counts"]["failure"].as_u64() >= Some(1), "it was restored: {restored}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_probe_that_only_goes_on_is_not_written_again_and_again() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, _) = rig.run("healthy", &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
    rig.becomes(&pod, "liveness", "succeeds often", |probe| probe["counts"]["success"].as_u64() > Some(3))
        .await?;
    eventually("its success is saved", PATIENCE, async || {
        let saved = rig.saved().unwrap_or_default();
        Ok((saved["probes"][0]["stand"]["run"]["count"].as_u64() > Some(0)).then_some(()))
    })
    .await?;
    let written = || anyhow::Ok(fs::metadata(rig.state_file()).map(|file| (file.ino(), file.mtime_nsec()))?);
    let first = written()?;
    stays("it is not written", Duration::from_secs(3), async || Ok(written()? == first)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_probe_stays_paused_and_a_container_that_was_replaced_starts_anew() -> Result<()> {
    let mut rig = Rig::start().await?;
    let annotations = [(LIVENESS, SLOW), (READINESS, EAGER)];
    let (pod, id) = rig.run("replaced", &annotations, &["sleep", "100000"]).await?;
    rig.becomes(&pod, "readiness", "succeeds", |probe| probe["state"] == "success").await?;
    rig.becomes(&pod, "liveness", "fails twice", |probe| probe["run"]["count"] == 2).await?;
    rig.restart(Signal::TERM, async |rig| {
        let mut saved = rig.saved()?;
        for probe in saved["probes"].as_array_mut().context("probes")? {
            if probe["type"] == "readiness" {
                probe["pausedSince"] = json!("2026-11-20T10:00:00Z");
            }
        }
        fs::write(rig.state_file(), saved.to_string())?;
        let container_id = id.to_string();
        rig.past.stop_container(pb::StopContainerRequest { container_id, timeout: 0 }).await?;
        let mut next = cri::creation(&pod, &Container::IDLE);
        if let Some(metadata) = next.config.as_mut().and_then(|config| config.metadata.as_mut()) {
            metadata.attempt = 1;
        }
        let container_id = rig.past.create_container(next).await?.into_inner().container_id;
        rig.past.start_container(pb::StartContainerRequest { container_id }).await?;
        Ok(())
    })
    .await?;
    let anew = rig.becomes(&pod, "liveness", "is tried", |probe| !probe["last"].is_null()).await?;
    assert_eq!(
        (&anew["attempt"], &anew["run"]["count"], &anew["state"]),
        (&json!(1), &json!(1), &json!("success"))
    );
    for _ in 0..2 {
        let paused = rig.daemon.probe(&pod, "app", "readiness").await?.context("it is there")?;
        assert_eq!((&paused["phase"], &paused["last"]), (&json!("paused"), &Value::Null), "{paused}");
        rig.restart(Signal::TERM, nothing).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_cannot_be_read_is_one_warning_and_is_replaced() -> Result<()> {
    let dir = tempfile::tempdir()?;
    fs::write(dir.path().join("probes.json"), "{\"version\":1,\"probes\":[{")?;
    let mut rig = Rig::with(&[("CRIPROBE_STATE", &dir.path().display().to_string())]).await?;
    let (pod, _) = rig.run("damaged", &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
    rig.last(&pod, "liveness", "success").await?;
    eventually("it is replaced", PATIENCE, async || {
        let text = fs::read(dir.path().join("probes.json"))?;
        let saved: Option<Value> = serde_json::from_slice(&text).ok();
        Ok(saved.filter(|saved| saved["probes"][0]["stand"]["state"] == "success").map(drop))
    })
    .await?;
    let log = rig.daemon.log();
    assert_eq!(
        (log.matches("WARN").count(), log.matches("it is damaged at line 1").count()),
        (1, 1),
        "{log}"
    );
    eventually("nothing is amiss any more", PATIENCE, async || {
        Ok((rig.daemon.status().await?["state"]["trouble"] == "").then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_cannot_be_written_is_one_warning_and_shows_in_the_status() -> Result<()> {
    let (runtime, dir) = runtime(EnvValues::default())?;
    let folder = dir.path().join("no-folder");
    fs::write(&folder, "")?;
    let mut rig = Rig::before(runtime, dir, &[("CRIPROBE_STATE", &folder.display().to_string())]).await?;
    for pod in ["one", "two"] {
        let (pod, _) = rig.run(pod, &[(READINESS, EAGER)], &["sleep", "100000"]).await?;
        rig.becomes(&pod, "readiness", "succeeds", |probe| probe["state"] == "success").await?;
    }
    let trouble = rig.daemon.status().await?["state"]["trouble"].clone();
    assert!(trouble.as_str().is_some_and(|text| text.starts_with("cannot use the folder ")), "{trouble}");
    rig.daemon.terminate();
    assert!(rig.daemon.ended().await?.success());
    let log = rig.daemon.log();
    assert_eq!((log.matches("WARN").count(), log.matches("state cannot be saved").count()), (1, 1), "{log}");
    Ok(())
}
