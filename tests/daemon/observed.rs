//! Probes that clients run on their own are seen, with no configuration at all; nothing is run for them.

use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};
use criprobe::{clock, demo::EnvValues, ids::ContainerId};
use serde_json::Value;
use tokio::{task::JoinHandle, time::MissedTickBehavior};

use crate::{
    rig::{EAGER, LIVENESS, Rig, runtime},
    support::{
        PATIENCE,
        cri::{self, Cri, Pod},
        daemon::Daemon,
        eventually, stays,
    },
};

/// Runs a command at each tick, as a kubelet does, until it is aborted.
fn every(period: Duration, client: Cri, id: &ContainerId, command: &[&str]) -> JoinHandle<()> {
    every_noting(period, client, id, command, Arc::default())
}

/// The same; sets `is_uneven` where this machine was too busy to call at the ticks, or to answer soon.
fn every_noting(
    period: Duration,
    mut client: Cri,
    id: &ContainerId,
    command: &[&str],
    is_uneven: Arc<AtomicBool>,
) -> JoinHandle<()> {
    let (id, command) = (id.clone(), command.iter().map(ToString::to_string).collect::<Vec<_>>());
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        loop {
            let due = ticks.tick().await.into_std();
            // How it ends is what the daemon is asked about.
            let _ = cri::exec(&mut client, &id, &words).await;
            is_uneven.fetch_or(clock::now() - due > period / 33, Ordering::Relaxed);
        }
    })
}

async fn observed(daemon: &Daemon) -> Result<Vec<Value>> {
    Ok(daemon.probes().await?.into_iter().filter(|probe| probe["source"] == "observed").collect())
}

async fn one(daemon: &Daemon, what: &str, is_wanted: impl Fn(&Value) -> bool) -> Result<Value> {
    eventually(what, PATIENCE, async || Ok(observed(daemon).await?.into_iter().find(&is_wanted))).await
}

fn id_of(pod: &str) -> String {
    format!("default/{pod}/app/observed-1")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_of_calls_at_a_second_becomes_an_observed_probe_within_five_and_its_failing_is_seen()
-> Result<()> {
    let mut rig = Rig::start().await?;
    let written = r#"{"spec": {"containers": [{"name": "app", "readinessProbe":
        {"exec": {"command": ["test", "!", "-e", "bad"]}, "periodSeconds": 1, "timeoutSeconds": 10}}]}}"#;
    let annotations = [("kubectl.kubernetes.io/last-applied-configuration", written), (LIVENESS, EAGER)];
    let (pod, id) = rig.run("looped", &annotations, &["sleep", "100000"]).await?;
    let began = clock::now();
    let (is_uneven, command) = (Arc::new(AtomicBool::new(false)), ["test", "!", "-e", "bad"]);
    let client = every_noting(Duration::from_secs(1), rig.client.clone(), &id, &command, is_uneven.clone());
    // What its pod was written with is read once there is something to name.
    let named = |probe: &Value| !probe["likelyType"].is_null();
    let probe = one(&rig.daemon, "the loop is a named probe", named).await?;
    let took = clock::now() - began;
    // Returns that differ by more than 3 % of the period take more of them to be a rhythm.
    assert!(took < Duration::from_secs(5) || is_uneven.load(Ordering::Relaxed), "{took:?}");
    assert_eq!(probe["id"], id_of("looped"));
    assert_eq!(probe["key"], format!("{}/app/observed-1", pod.uid));
    assert_eq!(
        [&probe["type"], &probe["handler"], &probe["likelyType"]],
        ["observed-1", "exec", "readiness"]
    );
    assert_eq!([&probe["phase"], &probe["state"], &probe["onFailure"]], ["probing", "success", "report"]);
    assert!(probe["periodSeconds"].as_f64().is_some_and(|period| (period - 1.0).abs() < 0.1), "{probe}");
    assert!(probe["counts"]["success"].as_u64().is_some_and(|count| count >= 4), "{probe}");
    assert_eq!(
        [&probe["last"]["result"], &probe["shadowed"]],
        [&Value::from("success"), &Value::Array(vec![])]
    );

    cri::exec(&mut rig.past, &id, &["touch", "bad"]).await?;
    let probe = one(&rig.daemon, "it fails", |probe| probe["state"] == "failure").await?;
    assert_eq!((&probe["last"]["exitCode"], &probe["run"]["result"]), (&1.into(), &"failure".into()));

    // It counts beside the others, and has no say in what the container is.
    let status = rig.daemon.status().await?;
    assert_eq!((&status["probes"]["total"], &status["probes"]["observed"]), (&1.into(), &1.into()));
    let pods = rig.daemon.json("/v1/pods").await?;
    let container = &pods[0]["containers"][0];
    assert_eq!((&container["ready"], &container["probes"]["total"]), (&true.into(), &1.into()), "{pods}");

    // By its name and by its key, listed by its type, and described.
    let full = rig.daemon.json("/v1/probes/default/looped/app/observed-1").await?;
    assert_eq!(full["client"]["command"], serde_json::json!(["test", "!", "-e", "bad"]));
    assert!(full["history"].as_array().is_some_and(|history| history.len() >= 5), "{full}");
    let by_key = rig.daemon.json(&format!("/v1/probes/{}/app/observed-1", pod.uid)).await?;
    assert_eq!(by_key["id"], full["id"]);
    let (_, listed) = rig.daemon.run(&["probes", "--type", "observed-1"])?;
    assert!(listed.contains("observed-1 (readiness?)") && !listed.contains("liveness"), "{listed}");
    let (_, reported) = rig.daemon.run(&["describe", "default/looped/app/observed-1"])?;
    assert!(
        reported.contains("exec test '!' -e bad") || reported.contains("exec test ! -e bad"),
        "{reported}"
    );
    client.abort();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_goes_after_five_missed_periods_and_with_its_container() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (_, id) = rig.run("ends", &[], &["sleep", "100000"]).await?;
    let period = Duration::from_millis(200);
    let client = every(period, rig.client.clone(), &id, &["true"]);
    one(&rig.daemon, "the loop is a probe", |_| true).await?;
    stays("it stays while the loop does", 6 * period, async || Ok(observed(&rig.daemon).await?.len() == 1))
        .await?;
    client.abort();
    let left = clock::now();
    eventually("it is gone", PATIENCE, async || Ok(observed(&rig.daemon).await?.is_empty().then_some(())))
        .await?;
    assert!(clock::now() - left > 3 * period, "sooner than five periods after the last call");

    let client = every(period, rig.client.clone(), &id, &["true"]);
    one(&rig.daemon, "the loop is a probe again", |probe| probe["type"] == "observed-1").await?;
    cri::exec(&mut rig.past, &id, &["true"]).await?;
    let stop = criprobe::proto::cri::StopContainerRequest { container_id: id.to_string(), timeout: 0 };
    rig.client.stop_container(stop).await?;
    eventually("it is gone with its container", PATIENCE, async || {
        Ok(observed(&rig.daemon).await?.is_empty().then_some(()))
    })
    .await?;
    client.abort();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_turns_it_off_and_on_again() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("config.yaml");
    let write = |is_on: bool| std::fs::write(&file, format!("observed: {{enabled: {is_on}}}"));
    write(true)?;
    let (runtime, place) = runtime(EnvValues::default())?;
    let settings = [("CRIPROBE_CONFIG", file.to_str().context("a path that is text")?)];
    let mut rig = Rig::before(runtime, place, &settings).await?;
    let (_, id) = rig.run("switched", &[], &["sleep", "100000"]).await?;
    let period = Duration::from_millis(200);
    let client = every(period, rig.client.clone(), &id, &["true"]);
    one(&rig.daemon, "the loop is a probe", |_| true).await?;
    write(false)?;
    eventually("nothing is observed", PATIENCE, async || {
        Ok(observed(&rig.daemon).await?.is_empty().then_some(()))
    })
    .await?;
    stays("nothing is observed", 12 * period, async || Ok(observed(&rig.daemon).await?.is_empty())).await?;
    assert!(rig.daemon.status().await?["probes"].get("observed").is_none());
    write(true)?;
    one(&rig.daemon, "the loop is a probe again", |probe| probe["type"] == "observed-1").await?;
    client.abort();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_without_a_rhythm_never_show() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (_, id) = rig.run("one-offs", &[], &["sleep", "100000"]).await?;
    for wait in [0_u64, 150, 420, 0, 30, 260, 700, 110, 350, 50, 0, 900] {
        tokio::time::sleep(Duration::from_millis(wait)).await;
        cri::exec(&mut rig.client, &id, &["true"]).await?;
        assert_eq!(observed(&rig.daemon).await?, [Value::Null; 0]);
    }
    for n in 0..100 {
        cri::exec(&mut rig.client, &id, &["echo", &n.to_string()]).await?;
    }
    assert_eq!(observed(&rig.daemon).await?, [Value::Null; 0]);
    assert!(rig.daemon.status().await?["probes"].get("observed").is_none());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_its_client_runs_is_not_commanded() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, id): (Pod, _) = rig.run("watched", &[], &["sleep", "100000"]).await?;
    let client = every(Duration::from_millis(200), rig.client.clone(), &id, &["true"]);
    one(&rig.daemon, "the loop is a probe", |_| true).await?;
    let name = id_of("watched");
    let reported = "criprobe only watches it";
    for verb in ["pause", "resume", "trigger"] {
        let (code, body) = rig.daemon.post(&format!("/v1/probes/{name}/{verb}"), "").await?;
        assert_eq!((code.as_u16(), body.contains(reported)), (400, true), "{verb}: {body}");
        let (code, body) =
            rig.daemon.post(&format!("/v1/probes/{}/app/observed-1/{verb}", pod.uid), "").await?;
        assert_eq!((code.as_u16(), body.contains(reported)), (400, true), "{verb}: {body}");
    }
    let body = r#"{"container": "default/watched/app", "probe": "observed-1"}"#;
    let (code, body) = rig.daemon.post("/v1/run", body).await?;
    assert_eq!((code.as_u16(), body.contains(reported)), (400, true), "{body}");
    for arguments in [vec!["pause", &name], vec!["run", "default/watched/app", "--probe", "observed-1"]] {
        let mut verb = Command::new(env!("CARGO_BIN_EXE_criprobe"));
        let ended = verb.args(&arguments).env("CRIPROBE_API", rig.daemon.api()).output()?;
        let error = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(
            (ended.status.code(), error.contains(reported)),
            (Some(2), true),
            "{arguments:?}: {error}"
        );
    }
    client.abort();
    Ok(())
}
