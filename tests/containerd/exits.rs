//! What real containers died of: out of memory, by themselves, in a loop, stopped by a client.

use anyhow::Result;
use criprobe::{
    ids::ContainerId,
    proto::cri::{self as pb},
};
use serde_json::Value;

use crate::support::{
    PATIENCE,
    confined::{Linux, run_confined},
    containerd::Lab,
    cri::{self, Container, Cri, Pod},
    daemon::Daemon,
    eventually,
};

/// Starts a container that takes more memory than its 16 MiB.
async fn run_greedy(daemon: &Daemon, client: &mut Cri, pod: &Pod) -> Result<()> {
    let command = ["sh", "-c", "x=0123456789abcdef; while true; do x=$x$x; done"];
    let linux = Linux::memory(16 << 20);
    run_confined(&daemon.socket(), client, pod, (&Container::shell(&command), 0), linux).await?;
    Ok(())
}

/// Starts another container of the name.
async fn run_attempt(client: &mut Cri, pod: &Pod, attempt: u32, command: &[&str; 3]) -> Result<ContainerId> {
    let mut next = cri::creation(pod, &Container::shell(command));
    if let Some(metadata) = next.config.as_mut().and_then(|config| config.metadata.as_mut()) {
        metadata.attempt = attempt;
    }
    let container_id = client.create_container(next).await?.into_inner().container_id;
    client.start_container(pb::StartContainerRequest { container_id: container_id.clone() }).await?;
    Ok(container_id.into())
}

/// A pod's container, once it has exited so and the runtime has reported how.
async fn ends(daemon: &Daemon, pod: &Pod, code: i32) -> Result<Value> {
    eventually("the container has ended", PATIENCE, async || {
        let pods = daemon.json("/v1/pods").await?;
        let found = pods.as_array().into_iter().flatten().find(|known| known["podUid"] == pod.uid.as_str());
        let app = found.map(|pod| pod["containers"][0].clone());
        Ok(app.filter(|app| app["exitCode"] == code && !app["finishedAt"].is_null()))
    })
    .await
}

/// The ends of a pod's containers among the events: type and reason.
async fn reported(daemon: &Daemon, pod: &Pod) -> Result<Vec<String>> {
    let all = daemon.events().await?;
    let of_pod = all.iter().filter(|event| event["podUid"] == pod.uid.as_str() && event["probe"] == "");
    let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
    Ok(of_pod.map(|event| format!("{} {}", text(event, "type"), text(event, "reason"))).collect())
}

/// What people see of a pod; printed, so that the log of the test shows it.
fn show(daemon: &Daemon, name: &str) -> Result<String> {
    let mut shown = String::new();
    for arguments in [["pods", name], ["describe", name], ["events", name]] {
        let (_, text) = daemon.run(&arguments)?;
        shown += &format!("$ criprobe {}\n{text}\n", arguments.join(" "));
    }
    println!("{shown}");
    Ok(shown)
}

#[tokio::test]
async fn a_container_that_runs_out_of_memory_says_so() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let daemon = Daemon::start(&lab.socket()).await?;
    let mut client = daemon.client().await?;
    let pod = cri::run_pod(&mut client, "greedy", &[]).await?;
    run_greedy(&daemon, &mut client, &pod).await?;
    ends(&daemon, &pod, 137).await?;
    eventually("the runtime says what it was", PATIENCE, async || {
        let app = ends(&daemon, &pod, 137).await?;
        Ok((app["exitReason"] == "OOMKilled").then_some(()))
    })
    .await?;
    let shown = show(&daemon, "default/greedy")?;
    assert!(shown.contains("exited 137 OOMKilled"), "{shown}");
    let events = reported(&daemon, &pod).await?;
    assert_eq!(events.first().map(String::as_str), Some("Normal Started"), "{events:?}");
    assert_eq!(events.last().map(String::as_str), Some("Warning OOMKilled"), "{events:?}");
    Ok(())
}

#[tokio::test]
async fn a_crash_loop_and_a_clean_exit_are_told_apart() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let daemon = Daemon::start(&lab.socket()).await?;
    let mut client = daemon.client().await?;
    let pod = cri::run_pod(&mut client, "crashing", &[]).await?;
    let commands = [["sh", "-c", "sleep 1; exit 3"], ["sh", "-c", "exit 3"], ["sh", "-c", "exit 0"]];
    for (attempt, (command, code)) in (0..).zip(commands.iter().zip([3, 3, 0])) {
        let id = run_attempt(&mut client, &pod, attempt, command).await?;
        eventually("this attempt has ended", PATIENCE, async || {
            let app = ends(&daemon, &pod, code).await?;
            Ok((app["containerId"] == id.as_str()).then_some(()))
        })
        .await?;
        if attempt < 2 {
            client.remove_container(pb::RemoveContainerRequest { container_id: id.to_string() }).await?;
        }
    }
    let app = ends(&daemon, &pod, 0).await?;
    let codes: Vec<_> =
        app["exits"].as_array().into_iter().flatten().map(|exit| exit["exitCode"].as_i64()).collect();
    assert_eq!((codes, &app["exitReason"]), (vec![Some(3), Some(3)], &"Completed".into()), "{app}");
    show(&daemon, "default/crashing")?;
    assert_eq!(
        reported(&daemon, &pod).await?,
        [
            "Normal Started",
            "Warning Exited",
            "Normal Replaced",
            "Normal Started",
            "Warning Exited",
            "Normal Replaced",
            "Normal Started",
            "Normal Exited",
        ]
    );
    Ok(())
}

#[tokio::test]
async fn a_container_that_a_client_stops_is_no_warning() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let daemon = Daemon::start(&lab.socket()).await?;
    let mut client = daemon.client().await?;
    let pod = cri::run_pod(&mut client, "halted", &[]).await?;
    let id = cri::run_container(&mut client, &pod, &Container::IDLE).await?;
    client.stop_container(pb::StopContainerRequest { container_id: id.to_string(), timeout: 1 }).await?;
    // It shares the process namespace of its pod, so the signal ends it.
    ends(&daemon, &pod, 143).await?;
    let shown = show(&daemon, "default/halted")?;
    assert!(shown.contains("a client stopped it"), "{shown}");
    assert_eq!(reported(&daemon, &pod).await?, ["Normal Started", "Normal Exited"]);
    Ok(())
}
