//! A runtime that does not answer for some containers.

use std::time::Duration;

use anyhow::Result;
use criprobe::demo::{EnvValues, FaultKind};

use crate::{
    rig::{self, EAGER, LIVENESS, Rig},
    support::{
        PATIENCE,
        cri::{self, Container},
        daemon::Daemon,
        eventually,
    },
};

const IDLE: [&str; 2] = ["sleep", "100000"];

/// How soon a container is probed beside others whose status never comes: these are asked for in groups of 8, a second each.
const SOON: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn row_20_statuses_that_never_come_delay_no_other_container_and_are_shown() -> Result<()> {
    let (runtime, dir) = rig::runtime(EnvValues::default())?;
    let mut past = cri::connect(runtime.socket()).await?;
    // One pod with many containers is as good as many pods, and starts faster.
    let hung = cri::run_pod(&mut past, "hung", &[(LIVENESS, EAGER)]).await?;
    let mut ids = Vec::new();
    for number in 0..120 {
        let name = format!("app-{number}");
        let container = Container { name: &name, command: &IDLE, ..Container::IDLE };
        ids.push(cri::run_container(&mut past, &hung, &container).await?.to_string());
    }
    // The pod comes to be last, so that nothing but fairness brings it forward.
    let (well, _) = rig::run(&mut past, "well", &[(LIVENESS, EAGER)], &IDLE).await?;
    runtime.faults().add(criprobe::demo::InjectedFault::always("ContainerStatus", FaultKind::HangAbout(ids)));
    let daemon = Daemon::spawn(runtime.socket(), &[])?;
    eventually("the other container is probed", SOON, async || {
        let probe = daemon.probe(&well, "app", "liveness").await.ok().flatten();
        Ok(probe.filter(|probe| probe["last"]["result"] == "success"))
    })
    .await?;
    let (late, _) = rig::run(&mut past, "late", &[(LIVENESS, EAGER)], &IDLE).await?;
    daemon
        .probe_becomes((&late, "app", "liveness"), "is probed", SOON, |probe| {
            probe["last"]["result"] == "success"
        })
        .await?;
    let waiting = daemon.status().await?["inventory"]["waiting"].clone();
    assert_eq!(waiting["count"], 120, "{waiting}");
    assert!(waiting["since"].is_string(), "{waiting}");
    eventually("it is doubtful", 2 * PATIENCE, async || {
        let (code, text) = daemon.get("/readyz?verbose").await?;
        assert_eq!(code, 200, "{text}");
        Ok(text
            .contains("[!] inventory doubtful: waiting for the status of containers or pods: 120")
            .then_some(()))
    })
    .await?;
    let log = daemon.log();
    assert_eq!(log.matches("runtime does not report the status").count(), 1, "{log}");
    assert!(daemon.run(&["status"])?.1.contains("status of containers or pods: 120"));
    runtime.faults().clear();
    eventually("all are answered", PATIENCE, async || {
        Ok(daemon.status().await?["inventory"]["waiting"].is_null().then_some(()))
    })
    .await?;
    drop((daemon, runtime, dir));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_20_pods_whose_status_never_comes_delay_no_other_pod() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (first, _) = rig.run("first", &[(LIVENESS, EAGER)], &IDLE).await?;
    rig.last(&first, "liveness", "success").await?;
    let mut pods = Vec::new();
    for number in 0..100 {
        pods.push(cri::run_pod(&mut rig.past, &format!("hung-{number}"), &[]).await?.id.to_string());
    }
    let (well, _) = rig::run(&mut rig.past, "well", &[(LIVENESS, EAGER)], &IDLE).await?;
    rig.always("PodSandboxStatus", FaultKind::HangAbout(pods));
    rig.daemon.terminate();
    rig.daemon.start_again(rig.runtime.socket(), &[]).await?;
    rig.daemon
        .probe_becomes((&well, "app", "liveness"), "is probed", 2 * SOON, |probe| {
            probe["last"]["result"] == "success"
        })
        .await?;
    let (late, _) = rig::run(&mut rig.past, "late", &[(LIVENESS, EAGER)], &IDLE).await?;
    rig.daemon
        .probe_becomes((&late, "app", "liveness"), "is probed", SOON, |probe| {
            probe["last"]["result"] == "success"
        })
        .await?;
    Ok(())
}
