//! Row 2: commands that print megabytes, again and again.

use anyhow::{Result, ensure};
use criprobe::clock;
use serde_json::Value;

use crate::{
    rig::{EAGER, LIVENESS, READINESS, Rig},
    support::{
        PATIENCE,
        cri::{self, Container},
        eventually,
    },
};

/// 16 MB, nearly all that an answer may hold.
const PRINTED: u64 = 16_000_000;

/// 2.75 MB, what is read of one answer in a second; 4 of a pod are read at a time.
const A_SECOND: f64 = 2.75e6 * 4.0;

fn successes(probes: &[Value], pod: &str) -> Vec<u64> {
    let own = probes.iter().filter(|probe| probe["pod"] == pod);
    own.map(|probe| probe["counts"]["success"].as_u64().unwrap_or_default()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn row_02_floods_of_output_are_read_at_a_pace_and_delay_no_other_command() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (good, _) = rig.run("good", &[(LIVENESS, EAGER)], Container::IDLE.command).await?;
    rig.last(&good, "liveness", "success").await?;
    let probe =
        format!(r#"{{"exec": {{"command": ["head", "-c", "{PRINTED}", "/dev/zero"]}}, "period": "100ms"}}"#);
    let began = clock::now();
    let second = [LIVENESS, READINESS].map(|key| key.replace("/app", "/second"));
    let mut annotations = vec![(LIVENESS, probe.as_str()), (READINESS, &probe)];
    annotations.extend(second.iter().map(|key| (key.as_str(), probe.as_str())));
    let (flood, _) = rig.run("flood", &annotations, Container::IDLE.command).await?;
    cri::run_container(&mut rig.client, &flood, &Container { name: "second", ..Container::IDLE }).await?;
    let made = successes(&rig.daemon.probes().await?, "good")[0];
    let floods = eventually("each flood was read once", 3 * PATIENCE, async || {
        let floods = successes(&rig.daemon.probes().await?, "flood");
        Ok((floods.len() == 4 && floods.iter().all(|made| *made > 0)).then_some(floods))
    })
    .await?;
    let (read, took) = (floods.iter().sum::<u64>() * PRINTED, (clock::now() - began).as_secs_f64());
    ensure!(read as f64 <= A_SECOND * took, "{read} bytes were read in {took} s");
    let probe = rig.daemon.probe(&flood, "app", "liveness").await?.unwrap_or_default();
    ensure!(probe["last"]["exitCode"] == 0, "{probe}");
    ensure!(probe["counts"]["error"] == 0 && probe["counts"]["failure"] == 0, "{probe}");
    // Unread answers meanwhile do not delay others.
    let others = successes(&rig.daemon.probes().await?, "good")[0] - made;
    ensure!(others as f64 >= took * 2.0, "the other pod had {others} attempts in {took} s");
    Ok(())
}
