//! What clients call is recorded: who, for which pod, what, how long, how it ended.

use std::{fs, path::Path, process};

use anyhow::Result;
use criprobe::{ids::ContainerId, proto::cri as pb};
use serde_json::{Value, json};

use crate::support::{
    PATIENCE,
    containerd::Lab,
    cri::{self, Container},
    daemon::Daemon,
    eventually,
};

/// The newest recorded ExecSync with this command.
async fn recorded(daemon: &Daemon, command: &[&str]) -> Result<Value> {
    eventually(&format!("{command:?} is recorded"), PATIENCE, async || {
        let calls = daemon.calls(100).await?;
        let is_it = |call: &Value| call["method"] == "ExecSync" && call["exec"]["command"] == json!(command);
        Ok(calls.into_iter().rev().find(is_it))
    })
    .await
}

#[tokio::test]
async fn an_exec_sync_is_recorded_with_exit_code_duration_command_pod_and_caller() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let daemon = Daemon::start(&lab.socket()).await?;
    let mut client = daemon.client().await?;
    let pod = cri::run_pod(&mut client, "traced", &[]).await?;
    let id = cri::run_container(&mut client, &pod, &Container::IDLE).await?;

    let command = ["sh", "-c", "echo four; sleep 0.6; exit 5"];
    assert_eq!(cri::exec(&mut client, &id, &command).await?.exit_code, 5);
    let mut call = recorded(&daemon, &command).await?;
    assert_eq!(call["service"], "runtime.v1.RuntimeService");
    assert_eq!(
        (&call["end"], &call["code"], &call["message"]),
        (&"complete".into(), &"OK".into(), &"".into())
    );
    let exec = call["exec"].as_object_mut().expect("it is an object");
    let culprit = exec.remove("culprit").unwrap_or_default();
    assert!(
        exec.remove("phases").is_some() && culprit.as_str().is_some_and(|text| text.contains("process ran"))
    );
    assert_eq!(
        call["exec"],
        json!({"command": command, "timeoutSeconds": 10, "exitCode": 5, "stdoutBytes": 5, "stderrBytes": 0})
    );
    assert_eq!(
        [&call["namespace"], &call["pod"], &call["container"], &call["containerId"]],
        ["default", "traced", "app", id.as_str()]
    );
    let comm = fs::read_to_string("/proc/self/comm")?;
    assert_eq!(call["peer"], json!({"pid": process::id(), "uid": 0, "comm": comm.trim_end()}));
    assert!(call["durationSeconds"].as_f64().is_some_and(|took| (0.6..10.0).contains(&took)), "{call}");
    Ok(())
}

#[tokio::test]
async fn an_exec_sync_that_fails_is_recorded_with_its_code() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let daemon = Daemon::start(&lab.socket()).await?;
    let mut client = daemon.client().await?;
    let pod = cri::run_pod(&mut client, "traced-errors", &[]).await?;
    let id = cri::run_container(&mut client, &pod, &Container::IDLE).await?;

    let nowhere = ContainerId::from("no-such-container");
    assert!(cri::exec(&mut client, &nowhere, &["true"]).await.is_err());
    let call = recorded(&daemon, &["true"]).await?;
    assert_eq!((&call["end"], &call["code"]), (&"complete".into(), &"NotFound".into()), "{call}");
    assert!(call["message"].as_str().is_some_and(|text| text.contains("no-such-container")), "{call}");

    let slow = ["sleep", "60"];
    let request =
        pb::ExecSyncRequest { container_id: id.to_string(), cmd: slow.map(Into::into).into(), timeout: 1 };
    assert!(client.exec_sync(request).await.is_err());
    let call = recorded(&daemon, &slow).await?;
    assert_eq!((&call["end"], &call["code"]), (&"complete".into(), &"DeadlineExceeded".into()), "{call}");
    Ok(())
}

#[tokio::test]
async fn containerds_own_client_works_through_the_relay() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let daemon = Daemon::start(&lab.socket()).await?;
    let list = async |socket: &Path| {
        let ctr = tokio::process::Command::new("ctr")
            .arg("-a")
            .arg(socket)
            .args(["-n", "k8s.io", "images", "list", "-q"])
            .output()
            .await?;
        anyhow::ensure!(ctr.status.success(), "{}", String::from_utf8_lossy(&ctr.stderr));
        anyhow::Ok(String::from_utf8(ctr.stdout)?)
    };
    let images = list(&lab.socket()).await?;
    assert!(images.contains("localhost/busybox:1"), "{images}");
    assert_eq!(list(&daemon.socket()).await?, images);
    Ok(())
}
