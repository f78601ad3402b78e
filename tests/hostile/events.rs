//! Events of one pod beside those of others.

use std::collections::BTreeSet;

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
    let names: Vec<String> = (0..5).map(|number| format!("c{number}")).collect();
    let keys: Vec<String> = names.iter().map(|name| format!("readiness.criprobe.dev/{name}")).collect();
    let annotations: Vec<_> = keys.iter().map(|key| (key.as_str(), FLOOD)).collect();
    let loud = cri::run_pod(&mut rig.client, "loud", &annotations).await?;
    for name in &names {
        cri::run_container(&mut rig.client, &loud, &Container { name, ..Container::IDLE }).await?;
    }
    let of = |events: &[Value], uid: &str| -> Vec<Value> {
        events.iter().filter(|event| event["podUid"] == uid).cloned().collect()
    };
    let events = eventually("each of the loud ones has failed often", 2 * PATIENCE, async || {
        let events = rig.daemon.events().await?;
        let often = of(&events, loud.uid.as_str());
        let often = often.iter().filter(|event| event["count"].as_u64() >= Some(20)).count();
        Ok((often == names.len()).then_some(events))
    })
    .await?;
    let mut failed = of(&events, loud.uid.as_str());
    failed.retain(|event| event["reason"] == "Unhealthy");
    // On a busy machine, one may also say that a connection took too long.
    let said: BTreeSet<_> =
        failed.iter().map(|event| (event["container"].as_str(), event["message"].as_str())).collect();
    assert_eq!(failed.len(), said.len(), "what repeats is one: {failed:#?}");
    assert!(said.len() < 2 * names.len(), "{failed:#?}");
    // Those of two stages may differ by the time that one of them needs to write.
    let of_probes = events.iter().filter(|event| event["probe"] != "");
    assert!(of_probes.is_sorted_by_key(|event| event["at"].as_str()), "they are in order");
    let kept: Vec<_> = of(&events, calm.uid.as_str()).iter().map(|event| event["reason"].clone()).collect();
    assert_eq!(kept, ["Started", "Unhealthy", "VerdictChanged"]);
    let probe = rig.daemon.json(&format!("/v1/probes/{}/app/liveness", calm.uid)).await?;
    assert_eq!(probe["events"].as_array().map(Vec::len), Some(2), "{probe}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_that_says_something_else_each_time_has_no_more_than_its_share_of_the_journal() -> Result<()>
{
    let mut rig = Rig::start().await?;
    let (calm, _) = rig.run("calm", &[(LIVENESS, RARE)], &["sleep", "100000"]).await?;
    rig.becomes(&calm, "liveness", "fails", |probe| probe["state"] == "failure").await?;
    // Letters, as figures alone would not make a difference.
    let babble = r#"{"exec": {"command": ["sh", "-c", "date +%s%N | tr 0-9 a-j; false"]}, "period": "100ms", "failureThreshold": 1000000}"#;
    let (loud, _) = rig.run("babbles", &[(LIVENESS, babble)], &["sleep", "100000"]).await?;
    rig.becomes(&loud, "liveness", "fails often", |probe| probe["counts"]["failure"].as_u64() >= Some(50))
        .await?;
    let events = rig.daemon.events().await?;
    let of_probes = events.iter().filter(|event| event["probe"] != "");
    let of = |uid: &str| of_probes.clone().filter(|event| event["podUid"] == uid).count();
    assert_eq!((of(loud.uid.as_str()), of(calm.uid.as_str())), (20, 2));
    Ok(())
}
