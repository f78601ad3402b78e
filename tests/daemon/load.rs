//! Many connections, many calls at once, large answers: all pass, and are seen.

use std::time::Duration;

use anyhow::{Result, ensure};
use criprobe::{demo::FaultKind, proto::cri as pb};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tokio::{net::UnixStream, task::JoinSet};

use crate::{
    rig::{EAGER, LIVENESS, Rig},
    support::{PATIENCE, cri, eventually},
};

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_idle_connections_hold_nobody_up() -> Result<()> {
    let mut rig = Rig::start().await?;
    let mut idle = Vec::new();
    for _ in 0..200 {
        let mut client = rig.daemon.client().await?;
        cri::version(&mut client).await?;
        idle.push(client);
    }
    assert_eq!(rig.daemon.status().await?["connections"]["open"], 201);
    let (pod, _) = rig.run("busy", &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
    rig.last(&pod, "liveness", "success").await?;
    drop(idle);
    eventually("their connections are gone", PATIENCE, async || {
        Ok((rig.daemon.status().await?["connections"]["open"] == 1).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_nearly_16_mib_passes_unchanged_and_is_measured() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (_, id) = rig.run("huge", &[], &["sleep", "100000"]).await?;
    let size = (16 << 20) - 1024;
    rig.always("ExecSync", FaultKind::HugeAnswer(size));
    let ours = cri::exec(&mut rig.client, &id, &["echo", "huge"]).await?;
    let theirs = cri::exec(&mut rig.past, &id, &["echo", "huge"]).await?;
    ensure!(ours == theirs, "the answer changed on its way");
    ensure!(ours.stdout.len() >= size - 64, "the runtime answered {} bytes only", ours.stdout.len());
    let call = eventually("the call is recorded", PATIENCE, async || {
        Ok(rig.daemon.lines("/v1/trace?method=ExecSync").await?.pop())
    })
    .await?;
    assert_eq!(call["exec"]["stdoutBytes"].as_u64(), Some(ours.stdout.len() as u64));
    assert_eq!(call["exec"]["exitCode"], 0);
    assert!(call["responseBytes"].as_u64() >= Some(ours.stdout.len() as u64), "{call}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_calls_at_once_on_one_connection_are_all_answered_and_recorded() -> Result<()> {
    let rig = Rig::start().await?;
    let mut calls = JoinSet::new();
    rig.always("Version", FaultKind::Delay(Duration::from_millis(200)));
    for _ in 0..500 {
        let mut client = rig.client.clone();
        calls.spawn(async move { client.version(pb::VersionRequest::default()).await });
    }
    while let Some(call) = calls.join_next().await {
        call??;
    }
    rig.faults().clear();
    eventually("all are recorded", PATIENCE, async || {
        let calls = rig.daemon.lines("/v1/trace?method=Version").await?;
        Ok((calls.len() == 500 && calls.iter().all(|call| call["code"] == "OK")).then_some(()))
    })
    .await?;
    let status = rig.daemon.status().await?;
    assert_eq!((&status["gaps"], &status["connections"]["total"]), (&0.into(), &1.into()), "{status}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_file_descriptors_new_connections_wait_and_old_ones_go_on() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, _) = rig.run("short-of", &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
    rig.last(&pod, "liveness", "success").await?;
    let pid = i32::try_from(rig.daemon.pid()).ok().and_then(Pid::from_raw);
    let few = Rlimit { current: Some(64), maximum: Some(64) };
    prlimit(pid, Resource::Nofile, few)?;
    let mut crowd = Vec::new();
    for _ in 0..100 {
        crowd.push(UnixStream::connect(rig.socket()).await?);
    }
    eventually("the shortage is reported", PATIENCE, async || {
        Ok(rig.daemon.log().contains("out of file descriptors: new clients wait").then_some(()))
    })
    .await?;
    cri::version(&mut rig.client).await?;
    drop(crowd);
    cri::version(&mut rig.daemon.client().await?).await?;
    rig.last(&pod, "liveness", "success").await?;
    let log = rig.daemon.log();
    assert!(!log.contains("runtime is away"), "the runtime was well");
    assert!(log.matches("out of file descriptors").count() < 50, "the shortage floods the log");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_pods_made_at_once_are_all_known_and_probed() -> Result<()> {
    let mut rig = Rig::start().await?;
    let mut pods = JoinSet::new();
    for number in 0..100 {
        let mut client = if number % 2 == 0 { rig.client.clone() } else { rig.past.clone() };
        pods.spawn(async move {
            let probe = r#"{"exec": {"command": ["true"]}, "periodSeconds": 2, "timeoutSeconds": 10}"#;
            crate::rig::run(&mut client, &format!("many-{number}"), &[(LIVENESS, probe)], &["sleep", "1000"])
                .await
        });
    }
    let made = pods.join_all().await.into_iter().collect::<Result<Vec<_>>>()?;
    eventually("each has a probe that passed", PATIENCE, async || {
        let probes = rig.daemon.probes().await?;
        let passed = probes.iter().filter(|probe| probe["last"]["result"] == "success").count();
        Ok((passed == made.len()).then_some(()))
    })
    .await?;
    for (pod, _) in &made {
        let pod_sandbox_id = pod.id.to_string();
        rig.past.remove_pod_sandbox(pb::RemovePodSandboxRequest { pod_sandbox_id }).await?;
    }
    rig.counts(0, PATIENCE).await
}
