//! The runtime goes away and comes back: its clients wait, probes show errors, and nothing fails that must not.

use std::time::Duration;

use anyhow::{Result, ensure};
use criprobe::demo::FaultKind;
use serde_json::json;

use crate::{
    rig::{EAGER, LIVENESS, Rig, give_up},
    support::{PATIENCE, cri, eventually, stays},
};

#[tokio::test(flavor = "multi_thread")]
async fn while_the_runtime_is_away_probes_show_errors_and_then_recover() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, id) = rig.run("restarts", &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
    rig.last(&pod, "liveness", "success").await?;
    rig.runtime.stop_serving().await;
    let away = rig.last(&pod, "liveness", "error").await?;
    assert_eq!((&away["state"], &away["counts"]["failure"]), (&json!("success"), &json!(0)), "{away}");
    let status = eventually("the daemon says so", PATIENCE, async || {
        let status = rig.daemon.status().await?;
        Ok((status["runtime"]["state"] == "away").then_some(status))
    })
    .await?;
    assert_ne!(status["runtime"]["reason"], "");
    assert_eq!(rig.daemon.get("/readyz").await?.0, 503);

    rig.runtime.serve_again(Duration::from_millis(300))?;
    let back = rig.last(&pod, "liveness", "success").await?;
    assert_eq!(
        (&back["containerId"], &back["counts"]["failure"]),
        (&json!(id.as_str()), &json!(0)),
        "{back}"
    );
    eventually("the daemon is ready again", PATIENCE, async || {
        Ok((rig.daemon.get("/readyz").await?.0 == 200).then_some(()))
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_while_the_runtime_is_away_is_known_when_it_is_back() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, id) = rig.run("missed", &[(LIVENESS, EAGER)], &crate::rig::UNTIL_GO).await?;
    rig.last(&pod, "liveness", "success").await?;
    // The file is made by a command that outlasts its call's connection.
    let go = ["sh", "-c", "sleep 0.3; touch go"];
    let mut past = rig.past.clone();
    let call = tokio::spawn(async move { cri::exec(&mut past, &id, &go).await });
    call.await??;
    rig.runtime.stop_serving().await;
    rig.runtime.serve_again(Duration::ZERO)?;
    rig.becomes(&pod, "liveness", "shows its container gone", |probe| {
        probe["reason"] == "the container exited with code 3"
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_call_waits_for_the_runtime_instead_of_failing_twenty_times_over() -> Result<()> {
    let mut rig = Rig::start().await?;
    for time in 1..=20 {
        rig.runtime.stop_serving().await;
        let mut client = rig.daemon.client().await?;
        let call = tokio::spawn(async move { cri::version(&mut client).await });
        stays("a call waits", Duration::from_millis(30), async || Ok(!call.is_finished())).await?;
        rig.runtime.serve_again(Duration::from_millis(50))?;
        let answer = tokio::time::timeout(PATIENCE, call).await??;
        ensure!(answer.is_ok(), "outage {time}: a call that had to wait failed: {answer:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_the_runtime_drops_takes_its_client_with_it_and_no_other() -> Result<()> {
    let mut rig = Rig::start().await?;
    let mut other = rig.daemon.client().await?;
    cri::version(&mut other).await?;
    rig.once("Status", FaultKind::DropConnection);
    let status = rig.client.status(criprobe::proto::cri::StatusRequest { verbose: false }).await;
    assert!(status.is_err(), "{status:?}");
    cri::version(&mut other).await?;
    let call = eventually("the call is recorded", PATIENCE, async || {
        Ok(rig.daemon.lines("/v1/trace?method=Status").await?.pop())
    })
    .await?;
    assert_eq!([&call["end"], &call["code"]], ["lost", ""]);
    // The client's channel connects again, and is served.
    eventually("the client is served again", PATIENCE, async || {
        Ok(cri::version(&mut rig.client.clone()).await.ok())
    })
    .await?;
    let (pod, _) = rig.run("after", &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
    rig.last(&pod, "liveness", "success").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn our_own_connection_that_the_runtime_drops_is_made_again() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, _) = rig.run("own", &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
    rig.last(&pod, "liveness", "success").await?;
    rig.once("ExecSync", FaultKind::DropConnection);
    let after =
        |errors: u64| move |probe: &serde_json::Value| probe["counts"]["error"].as_u64() >= Some(errors);
    let _ = give_up(rig.becomes(&pod, "liveness", "meets it", after(1)), Duration::from_secs(1)).await;
    let before = rig.daemon.probe(&pod, "app", "liveness").await?.unwrap_or_default();
    let count = before["counts"]["success"].as_u64();
    rig.becomes(&pod, "liveness", "goes on", |probe| probe["counts"]["success"].as_u64() > count).await?;
    let (next, _) =
        crate::rig::run(&mut rig.past, "next", &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
    rig.daemon
        .probe_becomes((&next, "app", "liveness"), "is found by events", Duration::from_secs(3), |probe| {
            probe["last"]["result"] == "success"
        })
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_without_answers_to_version_is_told_and_clients_go_on() -> Result<()> {
    let mut rig = Rig::start().await?;
    rig.always("Version", FaultKind::Hang);
    // The sign of life comes every 10 s and waits 5 s.
    eventually("the daemon says so", Duration::from_secs(20), async || {
        Ok((rig.daemon.get("/readyz").await?.0 == 503).then_some(()))
    })
    .await?;
    cri::run_pod(&mut rig.client, "meanwhile", &[]).await?;
    let mut fresh = rig.daemon.client().await?;
    cri::run_pod(&mut fresh, "fresh", &[]).await?;
    rig.faults().clear();
    eventually("it is ready again", Duration::from_secs(20), async || {
        Ok((rig.daemon.get("/readyz").await?.0 == 200).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_are_refused_for_a_while_are_subscribed_to_again() -> Result<()> {
    let (runtime, dir) = crate::rig::runtime(criprobe::demo::EnvValues::default())?;
    let refuse = FaultKind::Code(tonic::Code::Internal, "not now".into());
    runtime.faults().add(criprobe::demo::InjectedFault {
        method: "GetContainerEvents".into(),
        times: Some(2),
        kind: refuse,
    });
    let mut rig = Rig::before(runtime, dir, &[]).await?;
    let began = criprobe::clock::now();
    eventually("events are read", PATIENCE, async || {
        Ok((rig.daemon.status().await?["runtime"]["eventSource"] == "cri").then_some(()))
    })
    .await?;
    assert!(criprobe::clock::now() - began < Duration::from_secs(2));
    assert!(!rig.daemon.log().contains("lost the connection to the runtime"), "a refusal is no loss");
    let (pod, _) = crate::rig::run(&mut rig.past, "told", &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
    rig.daemon
        .probe_becomes((&pod, "app", "liveness"), "is found by events", Duration::from_secs(3), |probe| {
            probe["last"]["result"] == "success"
        })
        .await?;
    Ok(())
}
