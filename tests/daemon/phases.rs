//! Where the time of commands went, in front of a runtime that reports what happens to them as containerd does.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{
    paused,
    rig::{LIVENESS, Rig},
    support::{PATIENCE, cri, eventually},
};

/// The newest recorded call of this command.
async fn recorded(rig: &Rig, command: &[&str]) -> Result<Value> {
    eventually(&format!("{command:?} is recorded"), PATIENCE, async || {
        let calls = rig.daemon.calls(1_000).await?;
        Ok(calls.into_iter().rev().find(|call| call["exec"]["command"] == json!(command)))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_command_of_a_client_and_of_a_probe_names_its_culprit() -> Result<()> {
    let mut rig = paused::rig("sync").await?;
    let slow = r#"{"exec": {"command": ["sleep", "0.7"]}, "periodSeconds": 1}"#;
    let (pod, id) = rig.run("slow", &[(LIVENESS, slow)], &["sleep", "100000"]).await?;
    let (_, other) = rig.run("other", &[], &["sleep", "100000"]).await?;
    let command = ["sleep", "0.6"];
    cri::exec(&mut rig.client, &other, &command).await?;
    let call = recorded(&rig, &command).await?;
    let run = call["exec"]["phases"]["runSeconds"].as_f64().context("it ran")?;
    ensure!((0.6..10.0).contains(&run), "{call}");
    let says = |culprit: &Value| culprit.as_str().is_some_and(|text| text.contains("while the process ran"));
    ensure!(says(&call["exec"]["culprit"]), "{call}");
    let (_, wide) = rig.daemon.run(&["trace", "--last", "1", "--method", "ExecSync", "-o", "wide"])?;
    ensure!(wide.contains("[queue ") && wide.contains("while the process ran"), "{wide}");

    rig.daemon
        .probe_becomes((&pod, "app", "liveness"), "has a culprit", PATIENCE, |probe| {
            says(&probe["last"]["culprit"])
        })
        .await?;
    let (_, described) = rig.daemon.run(&["describe", &format!("{}/app/liveness", pod.uid)])?;
    ensure!(described.contains("\nslow ") && described.contains("while the process ran"), "{described}");
    // In its container, two commands that could be exchanged run at a time: neither is split, or both are right.
    let both = ["sleep", "0.25"];
    let mut client = rig.client.clone();
    let (one, two) = tokio::join!(cri::exec(&mut rig.client, &id, &both), cri::exec(&mut client, &id, &both));
    ensure!(one?.exit_code == 0 && two?.exit_code == 0);
    let call = recorded(&rig, &both).await?;
    ensure!(call["exec"]["phases"]["runSeconds"].as_f64().is_none_or(|run| run >= 0.25), "{call}");
    let (_, metrics) = rig.daemon.get("/metrics").await?;
    for caller in ["client", "probe"] {
        let counted = format!(r#"criprobe_exec_phase_seconds_count{{caller="{caller}",phase="run"}}"#);
        ensure!(metrics.contains(&counted), "{metrics}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_refused_or_times_out_is_recorded_without_delay() -> Result<()> {
    let mut rig = paused::rig("sync").await?;
    let (_, id) = rig.run("errors", &[], &["sleep", "100000"]).await?;
    let missing = ["no-such-program"];
    ensure!(cri::exec(&mut rig.client, &id, &missing).await.is_err());
    let call = recorded(&rig, &missing).await?;
    ensure!(call["exec"].get("phases").is_none(), "nobody asks where a millisecond went: {call}");
    // In another container: what was added to that one a moment ago could be the next call's.
    let (_, id) = rig.run("slow", &[], &["sleep", "100000"]).await?;
    let slow = ["sleep", "50"];
    let request = criprobe::proto::cri::ExecSyncRequest {
        container_id: id.to_string(),
        cmd: slow.map(str::to_owned).to_vec(),
        timeout: 1,
    };
    ensure!(rig.client.exec_sync(request).await.is_err());
    let call = recorded(&rig, &slow).await?;
    let run = call["exec"]["phases"]["runSeconds"].as_f64().context("it ran")?;
    ensure!((0.9..1.5).contains(&run) && call["code"] == "DeadlineExceeded", "{call}");
    Ok(())
}
