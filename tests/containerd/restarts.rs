//! containerd goes away and comes back: its clients wait, probes show errors, and nothing fails.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::support::{
    PATIENCE,
    containerd::Lab,
    cri::{self, Container},
    daemon::Daemon,
};

/// How often containerd is stopped and started.
const TIMES: usize = 50;

#[tokio::test(flavor = "multi_thread")]
async fn while_containerd_is_away_probes_show_errors_and_new_calls_wait_fifty_times_over() -> Result<()> {
    let Some(lab) = Lab::start()? else { return Ok(()) };
    let daemon = Daemon::start(&lab.socket()).await?;
    let mut client = daemon.client().await?;
    let probe = r#"{"exec": {"command": ["true"]}, "period": "100ms", "failureThreshold": 1}"#;
    let pod = cri::run_pod(&mut client, "restarts", &[("liveness.criprobe.dev/app", probe)]).await?;
    let id = cri::run_container(&mut client, &pod, &Container::IDLE).await?;
    let liveness = (&pod, "app", "liveness");
    let last_is = |wanted: &'static str| move |probe: &serde_json::Value| probe["last"]["result"] == wanted;
    daemon.probe_becomes(liveness, "succeeds", PATIENCE, last_is("success")).await?;

    lab.stop()?;
    let away = daemon.probe_becomes(liveness, "shows an error", PATIENCE, last_is("error")).await?;
    assert_eq!((&away["state"], &away["counts"]["failure"]), (&"success".into(), &0.into()), "{away}");
    lab.resume()?;
    daemon.probe_becomes(liveness, "recovers", PATIENCE, last_is("success")).await?;

    for time in 1..=TIMES {
        lab.stop()?;
        let mut client = daemon.client().await?;
        let call = tokio::spawn(async move { cri::version(&mut client).await });
        tokio::time::sleep(Duration::from_millis(20)).await; // the outage: it has to outlast the call's way
        ensure!(
            !call.is_finished(),
            "restart {time}: a call ended while containerd was away: {:?}",
            call.await?
        );
        lab.resume()?;
        let answer = tokio::time::timeout(PATIENCE, call).await??;
        ensure!(answer.is_ok(), "restart {time}: a call that had to wait failed: {answer:?}");
    }

    let back = daemon
        .probe_becomes(liveness, "recovers", PATIENCE, |probe| {
            probe["last"]["result"] == "success" && probe["phase"] == "probing"
        })
        .await?;
    assert_eq!((&back["state"], &back["counts"]["failure"]), (&"success".into(), &0.into()), "{back}");
    assert_eq!(back["containerId"], id.as_str());
    Ok(())
}
