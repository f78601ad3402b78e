//! A client's own probe is seen on real containerd, with no configuration at all.

use std::time::Duration;

use anyhow::Result;
use criprobe::proto::cri as pb;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::support::{
    PATIENCE,
    containerd::Lab,
    cri::{self, Container},
    daemon::Daemon,
    eventually,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_of_calls_becomes_an_observed_probe_and_its_failing_is_seen() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let daemon = Daemon::start(&lab.socket()).await?;
    let mut client = daemon.client().await?;
    let pod = cri::run_pod(&mut client, "observed", &[]).await?;
    let id = cri::run_container(&mut client, &pod, &Container::IDLE).await?;
    let key = format!("{}/app/observed-1", pod.uid);
    let (mut looping, looped) = (client.clone(), id.clone());
    let client_loop = tokio::spawn(async move {
        let mut ticks = interval(Duration::from_secs(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            // How it ends is what the daemon is asked about.
            let _ = cri::exec(&mut looping, &looped, &["test", "!", "-e", "/tmp/bad"]).await;
        }
    });
    let becomes = async |what: &str, is_wanted: &dyn Fn(&Value) -> bool| {
        eventually(what, PATIENCE, async || {
            Ok(daemon.probes().await?.into_iter().find(|probe| probe["key"] == key && is_wanted(probe)))
        })
        .await
    };
    let probe = becomes("the loop is a probe", &|_| true).await?;
    assert_eq!([&probe["source"], &probe["handler"], &probe["state"]], ["observed", "exec", "success"]);
    assert!(probe["periodSeconds"].as_f64().is_some_and(|period| (period - 1.0).abs() < 0.1), "{probe}");
    cri::exec(&mut client, &id, &["touch", "/tmp/bad"]).await?;
    let probe = becomes("it fails", &|probe| probe["state"] == "failure").await?;
    assert_eq!(probe["last"]["exitCode"], json!(1));
    client.stop_container(pb::StopContainerRequest { container_id: id.to_string(), timeout: 0 }).await?;
    eventually("it is gone with its container", PATIENCE, async || {
        Ok(daemon.probes().await?.iter().all(|probe| probe["key"] != key).then_some(()))
    })
    .await?;
    client_loop.abort();
    Ok(())
}
