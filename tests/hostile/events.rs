//! Events of one pod beside those of others.

use anyhow::Result;
use serde_json::Value;

use crate::{
    rig::{LIVENESS, Rig},
    support::{
        PATIENCE,
        cri::{self, Container},
        eventually,
    },
};

/// Fails ten times a second.
const FLOOD: &str = r#"{"tcpSocket": {"port": 1}, "period": "100ms", "failureThreshold": 1000000}"#;

/// Fails once, and rests for longer than any test.
const RARE: &str = r#"{"exec": {"command": ["false"]}, "periodSeconds": 300, "failureThreshold": 1}"#;

#[tokio::test(flavor = "multi_thread")]
async fn row_02_events_of_one_pod_do_not_push_out_those_of_others() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (calm, _) = rig.run("calm", &[(LIVENESS, RARE)], &["sleep", "100000"]).await?;
    rig.becomes(&calm, "liveness", "fails", |probe| probe["state"] == "failure").await?;
    let names: Vec<String> = (0..24).map(|number| format!("c{number}")).collect();
    let keys: Vec<String> = names.iter().map(|name| format!("readiness.criprobe.dev/{name}")).collect();
    let annotations: Vec<_> = keys.iter().map(|key| (key.as_str(), FLOOD)).collect();
    let loud = cri::run_pod(&mut rig.client, "loud", &annotations).await?;
    for name in &names {
        cri::run_container(&mut rig.client, &loud, &Container { name, ..Container::IDLE }).await?;
    }
    let of = |events: &[Value], uid: &str| -> Vec<Value> {
        events.iter().filter(|event| event["podUid"] == uid).cloned().collect()
    };
    let first = eventually("the journal is full", 2 * PATIENCE, async || {
        let events = rig.daemon.events().await?;
        Ok((events.len() == 500).then(|| of(&events, loud.uid.as_str()).first().cloned()).flatten())
    })
    .await?;
    let events = eventually("the journal has let events go", PATIENCE, async || {
        let events = rig.daemon.events().await?;
        let oldest = of(&events, loud.uid.as_str()).first().cloned();
        Ok((oldest.as_ref() != Some(&first)).then_some(events))
    })
    .await?;
    assert_eq!(events.len(), 500);
    assert!(events.is_sorted_by_key(|event| event["at"].as_str()), "they are in order");
    let kept: Vec<_> = of(&events, calm.uid.as_str()).iter().map(|event| event["reason"].clone()).collect();
    assert_eq!(kept, ["Unhealthy", "VerdictChanged"]);
    let probe = rig.daemon.json(&format!("/v1/probes/{}/app/liveness", calm.uid)).await?;
    assert_eq!(probe["events"].as_array().map(Vec::len), Some(2), "{probe}");
    Ok(())
}
