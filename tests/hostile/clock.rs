//! A clock that is set back: row 19.

use std::time::Duration;

use anyhow::{Result, ensure};
use criprobe::demo::FaultKind;
use jiff::Timestamp;

use crate::{
    rig::{EAGER, LIVENESS, READINESS, Rig, STARTUP},
    support::cri::Container,
};

#[tokio::test(flavor = "multi_thread")]
async fn row_19_a_start_in_the_future_counts_as_now() -> Result<()> {
    const YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
    const HOURS: Duration = Duration::from_secs(2 * 3600);
    let delayed = r#"{"exec": {"command": ["true"]}, "period": "100ms", "initialDelaySeconds": 1}"#;
    let mut rig = Rig::start().await?;
    for (name, ahead) in [("hours", HOURS), ("years", YEARS)] {
        rig.faults().clear();
        rig.always("ContainerStatus", FaultKind::LaterTimes(ahead));
        let probes = [(STARTUP, delayed), (LIVENESS, EAGER), (READINESS, EAGER)];
        let (pod, _) = rig.run(name, &probes, Container::IDLE.command).await?;
        for kind in ["startup", "liveness", "readiness"] {
            rig.last(&pod, kind, "success").await?;
        }
        let status = rig.daemon.json("/v1/pods").await?;
        let of_it = status.as_array().into_iter().flatten().find(|shown| shown["pod"] == name);
        let shown = of_it.cloned().unwrap_or_default();
        ensure!(shown["ready"] == true, "{shown}");
        let started: Timestamp = shown["containers"][0]["startedAt"].as_str().unwrap_or_default().parse()?;
        ensure!(started > Timestamp::now(), "the runtime says that it started in the future: {shown}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_19_containers_that_started_in_the_future_are_probed_after_a_restart_of_criprobe() -> Result<()> {
    let mut rig = Rig::start().await?;
    rig.always("ContainerStatus", FaultKind::LaterTimes(Duration::from_secs(7200)));
    let (pod, _) = rig.run("restarted", &[(LIVENESS, EAGER)], Container::IDLE.command).await?;
    rig.last(&pod, "liveness", "success").await?;
    rig.daemon.terminate();
    let socket = rig.runtime.socket().to_owned();
    rig.daemon.start_again(&socket, &[]).await?;
    let made = rig.last(&pod, "liveness", "success").await?["counts"]["success"].as_u64().unwrap_or_default();
    rig.becomes(&pod, "liveness", "goes on", |probe| probe["counts"]["success"].as_u64() > Some(made + 3))
        .await?;
    let uptime = rig.daemon.status().await?["uptimeSeconds"].as_f64().unwrap_or(-1.0);
    ensure!((0.0..600.0).contains(&uptime), "up for {uptime} s");
    Ok(())
}
