//! What clients call is recorded: who, for which pod, what, how long, how it ended; and the daemon reports its state.

use std::{fs, process, time::Duration};

use anyhow::Result;
use criprobe::{demo::FaultKind, ids::ContainerId, proto::cri as pb};
use serde_json::{Value, json};

use crate::{
    rig::{EAGER, LIVENESS, Rig, give_up},
    support::{PATIENCE, cri, eventually},
};

/// The newest recorded ExecSync with this command.
async fn recorded(rig: &Rig, command: &[&str]) -> Result<Value> {
    eventually(&format!("{command:?} is recorded"), PATIENCE, async || {
        let calls = rig.daemon.calls(1_000).await?;
        let is_it = |call: &Value| call["method"] == "ExecSync" && call["exec"]["command"] == json!(command);
        Ok(calls.into_iter().rev().find(is_it))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exec_sync_is_recorded_with_exit_code_duration_command_pod_and_caller() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (_, id) = rig.run("traced", &[], &["sleep", "100000"]).await?;
    let command = ["sh", "-c", "echo four; sleep 0.2; echo no >&2; exit 5"];
    assert_eq!(cri::exec(&mut rig.client, &id, &command).await?.exit_code, 5);
    let call = recorded(&rig, &command).await?;
    assert_eq!(call["service"], "runtime.v1.RuntimeService");
    assert_eq!([&call["end"], &call["code"], &call["message"]], ["complete", "OK", ""]);
    assert_eq!(
        call["exec"],
        json!({
            "command": command, "timeoutSeconds": 10, "exitCode": 5, "stdoutBytes": 5, "stderrBytes": 3,
            "phasesUnknown": "the runtime sends no events about commands",
        })
    );
    assert_eq!(
        [&call["namespace"], &call["pod"], &call["container"], &call["containerId"]],
        ["default", "traced", "app", id.as_str()]
    );
    let (comm, status) = (fs::read_to_string("/proc/self/comm")?, fs::read_to_string("/proc/self/status")?);
    let uid: u32 = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next()?.parse().ok())
        .unwrap_or_default();
    assert_eq!(call["peer"], json!({"pid": process::id(), "uid": uid, "comm": comm.trim_end()}));
    assert!(call["durationSeconds"].as_f64().is_some_and(|took| (0.2..10.0).contains(&took)), "{call}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_name_a_pod_or_container_only_by_its_id_are_found_by_its_name() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, id) = rig.run("named", &[], &["sleep", "100000"]).await?;
    rig.run("other", &[], &["sleep", "100000"]).await?;
    let sandbox =
        |id: &str| pb::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), ..Default::default() };
    let container =
        |id: &str| pb::ContainerStatusRequest { container_id: id.to_owned(), ..Default::default() };
    let short = |id: &str| id[..id.len() - 3].to_owned();
    rig.client.pod_sandbox_status(sandbox(pod.id.as_str())).await?;
    rig.client.container_status(container(id.as_str())).await?;
    // The runtime may know none by the beginning of its ID: it is the call that counts.
    let _ = rig.client.container_status(container(&short(id.as_str()))).await;
    rig.client.container_stats(pb::ContainerStatsRequest { container_id: id.to_string() }).await?;
    let filter = pb::ContainerFilter { pod_sandbox_id: pod.id.to_string(), ..Default::default() };
    rig.client.list_containers(pb::ListContainersRequest { filter: Some(filter) }).await?;
    rig.client.list_containers(pb::ListContainersRequest::default()).await?;
    rig.client.stop_pod_sandbox(pb::StopPodSandboxRequest { pod_sandbox_id: pod.id.to_string() }).await?;
    rig.client.remove_pod_sandbox(pb::RemovePodSandboxRequest { pod_sandbox_id: pod.id.to_string() }).await?;
    assert!(rig.client.pod_sandbox_status(sandbox(pod.id.as_str())).await.is_err());
    assert!(rig.client.pod_sandbox_status(sandbox(&short(pod.id.as_str()))).await.is_err());
    let methods = |query: &'static str| {
        let daemon = &rig.daemon;
        async move {
            let calls = daemon.lines(&format!("/v1/trace?{query}")).await?;
            Ok::<_, anyhow::Error>(calls.iter().map(|call| call["method"].clone()).collect::<Vec<_>>())
        }
    };
    let of_pod = eventually("all calls are recorded", PATIENCE, async || {
        let methods = methods("namespace=default&pod=named").await?;
        Ok((methods.len() >= 12).then_some(methods))
    })
    .await?;
    assert_eq!(
        of_pod,
        [
            "RunPodSandbox",
            "CreateContainer",
            "StartContainer",
            "PodSandboxStatus",
            "ContainerStatus",
            "ContainerStatus",
            "ContainerStats",
            "ListContainers",
            "StopPodSandbox",
            "RemovePodSandbox",
            "PodSandboxStatus",
            "PodSandboxStatus",
        ]
    );
    let of_container = methods("pod=named&container=app").await?;
    let expected =
        ["CreateContainer", "StartContainer", "ContainerStatus", "ContainerStatus", "ContainerStats"];
    assert_eq!(of_container, expected);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_method_that_there_is_not_is_refused_with_the_nearest() -> Result<()> {
    let rig = Rig::start().await?;
    let (is_good, output) = rig.daemon.run(&["trace", "--last", "5", "--method", "ExceSync"])?;
    assert!(!is_good && output.contains("did you mean ExecSync?"), "{output}");
    let (is_good, output) = rig.daemon.run(&["trace", "--last", "5", "--method", "*/ExceSync"])?;
    assert!(is_good, "{output}");
    Ok(())
}

/// As a kubelet does from 1.36 on, of runtimes that are newer than containerd 1.6.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_is_taken_as_a_stream_is_relayed_and_recorded() -> Result<()> {
    let mut rig = Rig::start().await?;
    for pod in ["one", "two"] {
        rig.run(pod, &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
    }
    let request = pb::StreamContainersRequest::default();
    let mut stream = rig.client.stream_containers(request).await?.into_inner();
    let mut streamed = Vec::new();
    while let Some(message) = stream.message().await? {
        streamed.extend(message.container);
    }
    let listed = rig.past.list_containers(pb::ListContainersRequest::default()).await?.into_inner();
    assert_eq!((streamed.len(), streamed), (2, listed.containers));
    let mut sandboxes = 0;
    let request = pb::StreamPodSandboxesRequest::default();
    let mut stream = rig.client.stream_pod_sandboxes(request).await?.into_inner();
    while let Some(message) = stream.message().await? {
        sandboxes += usize::from(message.pod_sandbox.is_some());
    }
    assert_eq!(sandboxes, 2);
    for method in ["StreamContainers", "StreamPodSandboxes"] {
        let call = eventually(&format!("{method} is recorded"), PATIENCE, async || {
            Ok(rig.daemon.calls(1_000).await?.into_iter().find(|call| call["method"] == method))
        })
        .await?;
        assert_eq!([&call["end"], &call["code"]], ["complete", "OK"]);
    }
    assert_eq!(rig.daemon.status().await?["gaps"], json!(0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_fails_is_cancelled_or_is_lost_is_recorded_so() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (_, id) = rig.run("ends", &[], &["sleep", "100000"]).await?;
    let nowhere = ContainerId::from("no-such-container");
    assert!(cri::exec(&mut rig.client, &nowhere, &["refused"]).await.is_err());
    let call = recorded(&rig, &["refused"]).await?;
    assert_eq!([&call["end"], &call["code"], &call["pod"]], ["complete", "NotFound", ""]);
    assert!(call["message"].as_str().is_some_and(|text| text.contains("no-such-container")), "{call}");

    let slow = ["sleep", "60"];
    let request =
        pb::ExecSyncRequest { container_id: id.to_string(), cmd: slow.map(Into::into).into(), timeout: 1 };
    assert!(rig.client.exec_sync(request).await.is_err());
    let call = recorded(&rig, &slow).await?;
    assert_eq!([&call["end"], &call["code"]], ["complete", "DeadlineExceeded"]);

    let cancelled = ["sleep", "61"];
    assert!(give_up(cri::exec(&mut rig.client, &id, &cancelled), Duration::from_millis(200)).await);
    let call = recorded(&rig, &cancelled).await?;
    assert_eq!([&call["end"], &call["code"], &call["pod"]], ["cancelled", "", "ends"]);
    assert!(call["exec"].get("exitCode").is_none(), "{call}");

    rig.once("ExecSync", FaultKind::DropConnection);
    assert!(cri::exec(&mut rig.client, &id, &["lost"]).await.is_err());
    // The runtime breaks off at the first sight of the call: its request may never have been whole.
    let call = eventually("the call is recorded", PATIENCE, async || {
        let calls = rig.daemon.lines("/v1/trace?method=ExecSync").await?;
        Ok(calls.into_iter().find(|call| call["end"] == "lost"))
    })
    .await?;
    assert_eq!(call["code"], "");
    let failed = rig.daemon.lines("/v1/trace?failed=true&method=ExecSync").await?;
    assert_eq!(failed.len(), 4);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_dies_ends_its_call_at_the_runtime() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (_, id) = rig.run("dies", &[], &["sleep", "100000"]).await?;
    let mut doomed = rig.daemon.client().await?;
    let command = ["sh", "-c", "touch began; sleep 62; touch survived"];
    {
        let call = cri::exec(&mut doomed, &id, &command);
        let began = eventually("the command runs", PATIENCE, async || {
            let found = cri::exec(&mut rig.client.clone(), &id, &["test", "-e", "began"]).await?;
            Ok((found.exit_code == 0).then_some(()))
        });
        tokio::select! {
            ended = call => panic!("ended by itself: {ended:?}"),
            began = began => began?,
        }
    }
    drop(doomed);
    let call = recorded(&rig, &command).await?;
    assert_ne!(call["end"], "complete");
    eventually("the command is killed", PATIENCE, async || {
        let found = cri::exec(&mut rig.past.clone(), &id, &["pgrep", "-f", "^sleep 62$"]).await?;
        Ok((found.exit_code != 0).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_thousand_calls_are_kept() -> Result<()> {
    let mut rig = Rig::start().await?;
    for _ in 0..1_050 {
        cri::version(&mut rig.client).await?;
    }
    cri::run_pod(&mut rig.client, "newest", &[]).await?;
    eventually("the last call is recorded", PATIENCE, async || {
        let last = rig.daemon.calls(1).await?.pop().unwrap_or_default();
        Ok((last["method"] == "RunPodSandbox" && last["pod"] == "newest").then_some(()))
    })
    .await?;
    assert_eq!(rig.daemon.calls(5_000).await?.len(), 1_000);
    assert_eq!(rig.daemon.calls(7).await?.len(), 7);
    assert_eq!(rig.daemon.lines("/v1/trace?method=Run*").await?.len(), 1);
    assert_eq!(rig.daemon.status().await?["calls"]["total"], 1_051);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_tells_runtime_connections_calls_inventory_and_probes() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, _) = rig.run("status", &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
    rig.last(&pod, "liveness", "success").await?;
    let status = rig.daemon.status().await?;
    assert_eq!([&status["runtime"]["name"], &status["runtime"]["state"]], ["criprobe-demo", "ok"]);
    assert_eq!([&status["runtime"]["eventSource"], &status["runtime"]["reason"]], ["cri", ""]);
    assert_eq!(status["listen"], format!("unix://{}", rig.socket().display()));
    assert_eq!((&status["connections"]["open"], &status["connections"]["blind"]), (&json!(1), &json!([])));
    assert_eq!((&status["calls"], &status["gaps"]), (&json!({"inFlight": 0, "total": 3}), &json!(0)));
    let inventory = &status["inventory"];
    assert_eq!([&inventory["pods"], &inventory["containers"], &inventory["running"]], [1, 1, 1]);
    assert!(inventory["lastResyncAt"].is_string() && inventory["resyncs"].as_u64() > Some(0), "{inventory}");
    assert_eq!(status["probes"], json!({"total": 1, "states": {"success": 1}, "phases": {"probing": 1}}));
    assert_eq!(status["pid"], rig.daemon.pid());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_pod_is_recorded_with_its_names() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, id) = rig.run("ending", &[], &["sleep", "100000"]).await?;
    let container_id = id.to_string();
    let pod_sandbox_id = pod.id.to_string();
    let stop = pb::StopContainerRequest { container_id: container_id.clone(), timeout: 0 };
    rig.client.stop_container(stop).await?;
    rig.client.remove_container(pb::RemoveContainerRequest { container_id }).await?;
    rig.client.stop_pod_sandbox(pb::StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() }).await?;
    rig.client.remove_pod_sandbox(pb::RemovePodSandboxRequest { pod_sandbox_id }).await?;
    let rows = [
        ("StopContainer", "app"),
        ("RemoveContainer", "app"),
        ("StopPodSandbox", ""),
        ("RemovePodSandbox", ""),
    ];
    for (method, container) in rows {
        let call = eventually(&format!("{method} is recorded"), PATIENCE, async || {
            Ok(rig.daemon.calls(1_000).await?.into_iter().find(|call| call["method"] == method))
        })
        .await?;
        assert_eq!(
            [&call["namespace"], &call["pod"], &call["container"]],
            ["default", "ending", container],
            "{method}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_not_understood_is_a_gap_that_the_runtime_is_asked_to_fill() -> Result<()> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let rig = Rig::start().await?;
    let before = rig.daemon.status().await?;
    let mut stream = tokio::net::UnixStream::connect(rig.socket()).await?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await?;
    // The runtime speaks HTTP/2 only: what it says to that comes through, and then its end.
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let after = eventually("the gap is counted, and the runtime asked", PATIENCE, async || {
        let after = rig.daemon.status().await?;
        let resyncs = after["inventory"]["resyncs"].as_u64();
        Ok((after["gaps"] == 1 && resyncs > before["inventory"]["resyncs"].as_u64()).then_some(after))
    })
    .await?;
    assert_eq!(after["runtime"], before["runtime"], "the runtime is none the worse for it");
    Ok(())
}
