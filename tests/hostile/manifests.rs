//! Long annotations of pods whose own probes are observed: row 16.

use std::time::Duration;

use anyhow::{Result, ensure};
use criprobe::{clock, ids::ContainerId};
use serde_json::json;
use tokio::{
    task::{JoinHandle, JoinSet},
    time::MissedTickBehavior,
};

use crate::{
    rig::Rig,
    support::{
        PATIENCE,
        cri::{self, Container, Cri},
    },
};

const CONTAINERS: usize = 60;

/// 1 s: how soon the inventory answers, however much there is to read. It does so in milliseconds; reading the manifest
/// for each container there took several seconds.
const SOON: Duration = Duration::from_secs(1);

/// A pod with a liveness probe in each container, and with 3,000 values of 32 bytes that say nothing.
fn manifest() -> String {
    let container = |number| json!({"name": format!("c{number}"), "livenessProbe": {"exec": {"command": ["true"]}, "timeoutSeconds": 10, "periodSeconds": 1}});
    let containers: Vec<_> = (0..CONTAINERS).map(container).collect();
    json!({"pad": vec!["\u{e9}".repeat(16); 3000], "spec": {"containers": containers}}).to_string()
}

/// Runs a command in each container every second, as a kubelet does, until it is aborted.
fn probe(client: &Cri, containers: Vec<ContainerId>) -> JoinHandle<()> {
    let client = client.clone();
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut calls = JoinSet::new();
        loop {
            ticks.tick().await;
            while calls.try_join_next().is_some() {}
            for id in containers.clone() {
                let mut client = client.clone();
                calls.spawn(async move { cri::exec(&mut client, &id, &["true"]).await });
            }
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn row_16_reading_a_long_manifest_holds_up_no_news_of_other_pods() -> Result<()> {
    let mut rig = Rig::start().await?;
    let written = manifest();
    let annotations = [("kubectl.kubernetes.io/last-applied-configuration", written.as_str())];
    let pod = cri::run_pod(&mut rig.client, "big", &annotations).await?;
    let mut containers = Vec::new();
    for number in 0..CONTAINERS {
        let name = format!("c{number}");
        let container = Container { name: &name, ..Container::IDLE };
        containers.push(cri::run_container(&mut rig.client, &pod, &container).await?);
    }
    let (calls, began, mut slowest) = (probe(&rig.client, containers), clock::now(), Duration::ZERO);
    loop {
        let asked = clock::now();
        let pods = rig.daemon.json("/v1/pods").await?;
        slowest = slowest.max(clock::now() - asked);
        ensure!(pods.as_array().is_some_and(|pods| pods.len() == 1), "{pods}");
        let probes = rig.daemon.probes().await?;
        let observed: Vec<_> = probes.iter().filter(|probe| probe["source"] == "observed").collect();
        if observed.len() >= CONTAINERS / 2 && observed.iter().any(|probe| probe["likelyType"] == "liveness")
        {
            break;
        }
        ensure!(clock::now() - began < 3 * PATIENCE, "only {} probes are observed", observed.len());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    calls.abort();
    ensure!(slowest < SOON, "the inventory answered after {slowest:?}");
    Ok(())
}
