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
    // The sign of life comes every 2 s and waits 3 s.
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
    assert!(!rig.daemon.log().contains("runtime is away"), "a refusal is no loss");
    let (pod, _) = crate::rig::run(&mut rig.past, "told", &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
    rig.daemon
        .probe_becomes((&pod, "app", "liveness"), "is found by events", Duration::from_secs(3), |probe| {
            probe["last"]["result"] == "success"
        })
        .await?;
    Ok(())
}

/// What happened to the runtime, oldest first.
async fn reported(rig: &Rig) -> Result<Vec<(String, String)>> {
    let events = rig.daemon.events().await?.into_iter();
    let of_node = events.filter(|event| event["namespace"] == "" && event["pod"] == "");
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let of_node = of_node.map(|event| (text(&event["reason"]), text(&event["message"])));
    Ok(of_node.filter(|(reason, _)| reason.starts_with("Runtime")).collect())
}

async fn reports(rig: &Rig, reasons: &[&str]) -> Result<Vec<(String, String)>> {
    eventually(&format!("{reasons:?} are reported"), 2 * PATIENCE, async || {
        let reported = reported(rig).await?;
        Ok(reported.iter().map(|(reason, _)| reason).eq(reasons).then_some(reported))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_said_in_words_wherever_one_looks_and_once_in_the_log() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, _) = rig.run("looks", &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
    rig.last(&pod, "liveness", "success").await?;
    assert_eq!(rig.daemon.json("/v1/runtime").await?["state"], "ok");
    let (is_well, shown) = rig.daemon.run(&["status"])?;
    assert!(is_well && !shown.contains("RUNTIME AWAY"), "{shown}");

    rig.runtime.stop_serving().await;
    let away = reports(&rig, &["RuntimeAway"]).await?;
    assert!(away[0].1.starts_with("the runtime is away: ") && away[0].1.contains("socket /"), "{away:?}");
    let (is_fine, shown) = rig.daemon.run(&["probes", "--check", "-o", "json"])?;
    assert!(!is_fine && shown.contains("\ncriprobe: RUNTIME AWAY since "), "{shown}");
    let untried =
        rig.becomes(&pod, "liveness", "cannot be tried", |probe| probe["errors"]["cannotTry"] == true);
    assert_eq!(untried.await?["state"], "success");
    let failed = rig
        .becomes(&pod, "liveness", "names the socket", |probe| {
            let output = probe["last"]["output"].as_str().unwrap_or_default();
            output.starts_with("the runtime is away: ") && output.contains("its socket /")
        })
        .await?;
    let runtime = rig.daemon.json("/v1/runtime").await?;
    assert_eq!((&runtime["state"], &runtime["since"].is_string()), (&json!("away"), &true), "{runtime}");
    let id = failed["id"].as_str().unwrap_or_default();
    let name = id.trim_end_matches("/liveness");
    for verb in
        [&["probes"][..], &["probes", "-o", "wide"], &["pods"], &["describe", id], &["describe", name]]
    {
        let (is_fine, shown) = rig.daemon.run(verb)?;
        assert!(is_fine && shown.starts_with("RUNTIME AWAY since "), "{verb:?}: {shown}");
        assert!(
            shown.contains("; verdicts of exec probes and states of containers are")
                && !shown.contains("os error"),
            "{shown}"
        );
    }
    let (_, json) = rig.daemon.run(&["probes", "-o", "json"])?;
    assert!(json.starts_with('['), "{json}");
    let (is_well, said) = rig.daemon.run(&["status"])?;
    assert!(!is_well && said.starts_with("RUNTIME AWAY since "), "{said}");
    assert!(said.contains("\ncriprobe: degraded: the runtime is away: "), "{said}");
    let wanted = json!({"container": failed["containerId"], "exec": {"command": ["true"]}});
    let (_, tried) = rig.daemon.post("/v1/run", &wanted.to_string()).await?;
    assert!(tried.contains("the runtime is away: ") && !tried.contains("os error"), "{tried}");

    let events = rig.daemon.events().await?;
    assert!(!events.iter().any(|event| event["reason"] == "Unhealthy"), "one event is enough: {events:?}");

    rig.runtime.serve_again(Duration::ZERO)?;
    let back = reports(&rig, &["RuntimeAway", "RuntimeBack"]).await?;
    assert!(back[1].1.starts_with("the runtime answers again after "), "{back:?}");
    let (is_well, shown) = rig.daemon.run(&["status"])?;
    assert!(is_well && !shown.contains("RUNTIME AWAY"), "{shown}");
    let log = rig.daemon.log();
    for line in ["runtime is away: connections wait for it", "runtime answers again"] {
        assert_eq!(log.matches(line).count(), 1, "{line}: {log}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_hangs_is_an_outage_too_with_one_warning() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, _) = rig.run("hangs", &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
    rig.last(&pod, "liveness", "success").await?;
    rig.always("*", FaultKind::Hang);
    let away = reports(&rig, &["RuntimeAway"]).await?;
    assert_eq!(away[0].1, "the runtime is away: it accepts connections, but does not answer calls");
    rig.becomes(&pod, "liveness", "says so", |probe| {
        probe["last"]["output"] == "the runtime is away: it does not answer"
    })
    .await?;
    rig.faults().clear();
    reports(&rig, &["RuntimeAway", "RuntimeBack"]).await?;
    let log = rig.daemon.log();
    let warned = "runtime is away: it accepts connections, but does not answer calls unanswered=\"3";
    for line in [warned, "runtime answers again"] {
        assert_eq!(log.matches(line).count(), 1, "{line}: {log}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_comes_and_goes_fills_neither_the_journal_nor_the_log() -> Result<()> {
    let mut rig = Rig::start().await?;
    for _ in 0..20 {
        rig.runtime.stop_serving().await;
        eventually("it is away", PATIENCE, async || {
            Ok((rig.daemon.json("/v1/runtime").await?["state"] == "away").then_some(()))
        })
        .await?;
        rig.runtime.serve_again(Duration::ZERO)?;
        eventually("it is back", PATIENCE, async || {
            Ok((rig.daemon.json("/v1/runtime").await?["state"] == "ok").then_some(()))
        })
        .await?;
    }
    eventually("it is reported that it is back", 2 * PATIENCE, async || {
        Ok(reported(&rig).await?.last().is_some_and(|(reason, _)| reason == "RuntimeBack").then_some(()))
    })
    .await?;
    // One outage, or a few on a machine that is so busy that seconds pass between two.
    let (reported, log) = (reported(&rig).await?, rig.daemon.log());
    assert!(reported.len() <= 8 && reported.len() % 2 == 0, "{reported:?}");
    assert!(log.matches("runtime is away").count() <= 4, "{log}");
    assert!(!log.contains("lost the connection"), "{log}");
    Ok(())
}
