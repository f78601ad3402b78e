//! What runs now, and what the commands of the last minutes cost.

use std::time::Duration;

use anyhow::Result;
use criprobe::proto::cri as pb;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    rig::{LIVENESS, Rig, UNTIL_GO},
    support::{PATIENCE, cri, eventually},
};

/// The first of these rows that is about this command.
fn of(rows: &Value, command: &[&str]) -> Option<Value> {
    let is_it = |row: &&Value| row["command"] == json!(command) || row["exec"]["command"] == json!(command);
    rows.as_array()?.iter().find(is_it).cloned()
}

/// Waits until something is true of what `/v1/top` answers.
async fn top<T>(rig: &Rig, what: &str, wanted: impl Fn(&Value) -> Option<T>) -> Result<T> {
    eventually(what, PATIENCE, async || Ok(wanted(&rig.daemon.json("/v1/top").await?))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_in_flight_until_it_ends_and_then_its_pod_is_charged_for_it() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (_, id) = rig.run("slow", &[], &["sleep", "100000"]).await?;
    let mut events = rig.daemon.client().await?;
    let _stream = events.get_container_events(pb::GetEventsRequest::default()).await?;
    let mut client = rig.client.clone();
    let container = id.clone();
    let running = tokio::spawn(async move { cri::exec(&mut client, &container, &UNTIL_GO).await });
    let call = top(&rig, "the command is in flight for a while", |top| {
        let call = of(&top["inFlight"]["calls"], &UNTIL_GO)?;
        (call["ageSeconds"].as_f64()? > 0.3 && top["inFlight"]["eventStreams"] == 1).then_some(call)
    })
    .await?;
    let names = ["method", "namespace", "pod", "container"].map(|name| call[name].clone());
    assert_eq!(names, ["ExecSync", "default", "slow", "app"]);
    assert_eq!((&call["isProbe"], &call["caller"]["pid"]), (&json!(false), &json!(std::process::id())));

    cri::exec(&mut rig.client, &id, &["touch", "go"]).await?;
    assert_eq!(running.await??.exit_code, 3);
    let (cost, pods) = top(&rig, "the command has a cost", |top| {
        let is_over = of(&top["inFlight"]["calls"], &UNTIL_GO).is_none();
        let cost = of(&top["commands"], &UNTIL_GO).filter(|_| is_over)?;
        of(&top["commands"], &["touch", "go"]).map(|_| (cost, top["pods"].clone()))
    })
    .await?;
    let records = rig.daemon.lines("/v1/trace?command=*go*").await?;
    let records = json!(records);
    assert_eq!(of(&records, &UNTIL_GO).map(|record| record["id"].clone()), Some(call["id"].clone()));
    assert!(call["id"].is_string() && records[0]["id"] != records[1]["id"], "{records}");
    assert_eq!([&cost["pod"], &cost["container"]], ["slow", "app"]);
    assert_eq!([&cost["calls"], &cost["failures"]], [1, 1]);
    assert_eq!(cost["execRoute"], "sync");
    assert!(cost["totalSeconds"].as_f64() > Some(0.3) && cost["p50Seconds"] == cost["p99Seconds"], "{cost}");
    let pod = &pods[0];
    assert_eq!([&pod["calls"], &pod["failures"]], [2, 1]);
    assert_eq!(
        (&pod["pod"], &pod["isProbe"], &pod["command"]),
        (&json!("slow"), &json!(false), &Value::Null)
    );
    let other = rig.daemon.json("/v1/top?namespace=other&sinceSeconds=60").await?;
    assert_eq!((&other["pods"], &other["windowSeconds"]), (&json!([]), &json!(60.0)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_its_client_gives_up_or_leaves_behind_is_in_flight_no_more() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (_, id) = rig.run("left", &[], &["sleep", "100000"]).await?;
    for is_given_up in [true, false] {
        let (mut client, container) = (rig.daemon.client().await?, id.clone());
        let kept = is_given_up.then(|| client.clone());
        let running = tokio::spawn(async move { cri::exec(&mut client, &container, &UNTIL_GO).await });
        top(&rig, "it is in flight", |top| of(&top["inFlight"]["calls"], &UNTIL_GO)).await?;
        running.abort();
        top(&rig, "it is in flight no more", |top| {
            of(&top["inFlight"]["calls"], &UNTIL_GO).is_none().then_some(())
        })
        .await?;
        drop(kept);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_of_ours_and_of_clients_are_told_apart_from_people() -> Result<()> {
    let mut rig = Rig::start().await?;
    let ours = ["sh", "-c", "sleep 0.2"];
    let probe = json!({"exec": {"command": ours}, "period": "300ms", "timeoutSeconds": 10}).to_string();
    let (_, id) = rig.run("probed", &[(LIVENESS, &probe)], &["sleep", "100000"]).await?;
    let call =
        top(&rig, "an attempt of ours is in flight", |top| of(&top["inFlight"]["calls"], &ours)).await?;
    assert_eq!((&call["isProbe"], &call["caller"]["comm"]), (&json!(true), &json!("criprobe")));
    assert_eq!([&call["method"], &call["pod"]], ["ExecSync", "probed"]);
    let cost = top(&rig, "it has a cost", |top| of(&top["commands"], &ours)).await?;
    assert_eq!((&cost["isProbe"], &cost["failures"]), (&json!(true), &json!(0)), "{cost}");

    let mut client = rig.client.clone();
    let container = id.clone();
    let theirs = tokio::spawn(async move {
        let mut ticks = interval(Duration::from_millis(500));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            // How it ends is what the daemon is asked about.
            let _ = cri::exec(&mut client, &container, &["true"]).await;
        }
    });
    cri::exec(&mut rig.client, &id, &["ls"]).await?;
    let cost = top(&rig, "a client's rhythm makes its calls a probe's", |top| {
        of(&top["commands"], &["true"]).filter(|cost| cost["isProbe"] == true)
    })
    .await?;
    theirs.abort();
    assert!(cost["calls"].as_u64() >= Some(4), "its first calls count, too: {cost}");
    let top = rig.daemon.json("/v1/top").await?;
    assert_eq!(of(&top["commands"], &["ls"]).unwrap_or_default()["isProbe"], false);
    let of_pod = |is_probe: bool| {
        let rows = top["pods"].as_array().into_iter().flatten();
        rows.filter(|row| row["pod"] == "probed" && row["isProbe"] == is_probe).count()
    };
    assert_eq!((of_pod(true), of_pod(false)), (1, 1));
    Ok(())
}
