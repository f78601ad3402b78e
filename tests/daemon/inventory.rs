//! Containers that came and went in every way there is are known, each within its time.
//!
//! A probe shows what the inventory knows of its container: that it exists, and whether it runs.

use std::{collections::BTreeSet, time::Duration};

use anyhow::Result;
use criprobe::{
    demo::{EnvValues, FaultKind},
    proto::cri as pb,
};
use tonic::Code;

use crate::{
    rig::{EAGER, LAZY, LIVENESS, Rig, SOON, UNTIL_GO, give_up, run, runtime},
    support::{
        PATIENCE,
        cri::{self, Container},
        daemon::Daemon,
        eventually, stays,
    },
};

#[tokio::test(flavor = "multi_thread")]
async fn a_container_made_before_criprobe_started_is_adopted() -> Result<()> {
    let (runtime, dir) = runtime(EnvValues::default())?;
    let mut past = cri::connect(runtime.socket()).await?;
    let (pod, id) = run(&mut past, "adopted", &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
    let rig = Rig::before(runtime, dir, &[]).await?;
    let probe = rig.last(&pod, "liveness", "success").await?;
    assert_eq!(probe["containerId"], id.as_str());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_past_the_relay_shows_within_a_second() -> Result<()> {
    let mut rig = Rig::start().await?;
    let pod = cri::run_pod(&mut rig.past, "past", &[(LIVENESS, LAZY)]).await?;
    let id = cri::run_container(&mut rig.past, &pod, &Container::shell(&UNTIL_GO)).await?;
    let liveness = (&pod, "app", "liveness");
    rig.daemon
        .probe_becomes(liveness, "shows its container running", SOON, |probe| {
            probe["containerId"] == id.as_str() && probe["phase"] == "probing"
        })
        .await?;
    // The container may end before this is answered.
    let _ = cri::exec(&mut rig.past, &id, &["touch", "go"]).await;
    rig.daemon
        .probe_becomes(liveness, "shows its container gone", SOON, |probe| {
            probe["reason"] == "the container exited with code 3" && probe["state"] == "failure"
        })
        .await?;
    rig.past.remove_container(pb::RemoveContainerRequest { container_id: id.to_string() }).await?;
    rig.counts(0, SOON).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_made_past_the_relay_and_never_started_shows_within_a_second() -> Result<()> {
    let mut rig = Rig::start().await?;
    let pod = cri::run_pod(&mut rig.past, "created", &[(LIVENESS, LAZY)]).await?;
    rig.past.create_container(cri::creation(&pod, &Container::IDLE)).await?;
    rig.daemon
        .probe_becomes((&pod, "app", "liveness"), "waits for its start", SOON, |probe| {
            probe["reason"] == "the container has not been started"
        })
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_events_it_shows_with_the_next_list() -> Result<()> {
    let (runtime, dir) = runtime(EnvValues::default())?;
    let none = FaultKind::Code(Code::Unimplemented, "no events here".into());
    runtime.faults().add(criprobe::demo::InjectedFault::always("GetContainerEvents", none));
    let mut rig = Rig::before(runtime, dir, &[]).await?;
    eventually("the daemon knows that there are no events", PATIENCE, async || {
        Ok((rig.daemon.status().await?["runtime"]["eventSource"] == "unsupported").then_some(()))
    })
    .await?;
    let (pod, _) = run(&mut rig.past, "unseen", &[(LIVENESS, LAZY)], &["sleep", "100000"]).await?;
    rig.daemon
        .probe_becomes((&pod, "app", "liveness"), "is found", Duration::from_secs(12), |probe| {
            probe["last"]["result"] == "success"
        })
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_answered_late_does_not_remove_a_container_just_created() -> Result<()> {
    let mut rig = Rig::start().await?;
    // Each of the two lists is answered late, in turn; a call that ended without an answer asks for both.
    for (number, list) in ["ListContainers", "ListPodSandbox"].into_iter().enumerate() {
        let before = rig.faults().count(list);
        rig.once(list, FaultKind::DelayAnswer(Duration::from_millis(700)));
        rig.once("RemoveContainer", FaultKind::Hang);
        let request = pb::RemoveContainerRequest { container_id: "nobody".into() };
        assert!(give_up(rig.client.remove_container(request), Duration::from_millis(20)).await);
        eventually("the list was asked for", PATIENCE, async || {
            Ok((rig.faults().count(list) > before).then_some(()))
        })
        .await?;
        let resyncs = rig.daemon.status().await?["inventory"]["resyncs"].as_u64();
        let name = format!("late-{number}");
        let (pod, id) = rig.run(&name, &[(LIVENESS, LAZY)], &["sleep", "100000"]).await?;
        let is_there = async || -> Result<bool> {
            let probe = rig.daemon.probe(&pod, "app", "liveness").await?;
            Ok(probe.is_some_and(|probe| probe["containerId"] == id.as_str()))
        };
        eventually("it is known", PATIENCE, async || Ok(is_there().await?.then_some(()))).await?;
        assert_eq!(
            rig.daemon.status().await?["inventory"]["resyncs"].as_u64(),
            resyncs,
            "the list came too soon"
        );
        stays("it is known while late lists come in", Duration::from_millis(1_200), is_there).await?;
        let after = rig.daemon.status().await?["inventory"]["resyncs"].as_u64();
        assert!(after > resyncs, "no list came in");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_container_that_its_client_cancelled_is_found() -> Result<()> {
    let mut rig = Rig::start().await?;
    let pod = cri::run_pod(&mut rig.client, "cancelled", &[]).await?;
    let pods = rig.daemon.status().await?;
    for (number, kind) in [
        FaultKind::DelayAnswer(Duration::from_millis(400)),
        FaultKind::Delay(Duration::from_millis(400)),
        FaultKind::Hang,
    ]
    .into_iter()
    .enumerate()
    {
        rig.once("CreateContainer", kind);
        let name = format!("app-{number}");
        let annotation = format!("liveness.criprobe.dev/{name}");
        let annotations = [(annotation.as_str(), LAZY)];
        let container = Container { name: &name, annotations: &annotations, ..Container::IDLE };
        let call = rig.client.create_container(cri::creation(&pod, &container));
        assert!(give_up(call, Duration::from_millis(100)).await, "{pods}");
    }
    let mut past = rig.past.clone();
    eventually("the inventory equals the runtime's list", Duration::from_secs(3), async || {
        let theirs: BTreeSet<_> = cri::containers_of(&mut past, &pod).await?.into_iter().collect();
        let ours: BTreeSet<_> = rig
            .daemon
            .probes()
            .await?
            .iter()
            .filter_map(|probe| Some(probe["containerId"].as_str()?.to_owned().into()))
            .collect();
        Ok((ours == theirs && !ours.is_empty()).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_may_name_a_container_by_the_beginning_of_its_id() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, id) = rig.run("short", &[(LIVENESS, LAZY)], &["sleep", "100000"]).await?;
    rig.last(&pod, "liveness", "success").await?;
    let short = id.as_str()[..13].into();
    cri::exec(&mut rig.client, &short, &["true"]).await?;
    let call = eventually("the call is recorded", PATIENCE, async || {
        Ok(rig.daemon.lines("/v1/trace?method=ExecSync").await?.pop())
    })
    .await?;
    assert_eq!([&call["pod"], &call["container"], &call["containerId"]], ["short", "app", id.as_str()]);
    rig.client
        .stop_container(pb::StopContainerRequest { container_id: short.to_string(), timeout: 0 })
        .await?;
    eventually("nothing runs any more", PATIENCE, async || {
        Ok((rig.daemon.status().await?["inventory"]["running"] == 0).then_some(()))
    })
    .await?;
    rig.client.remove_container(pb::RemoveContainerRequest { container_id: short.to_string() }).await?;
    rig.counts(0, PATIENCE).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_could_not_be_had_is_asked_for_again() -> Result<()> {
    let (runtime, dir) = runtime(EnvValues::default())?;
    let mut past = cri::connect(runtime.socket()).await?;
    let (pod, _) = run(&mut past, "refused", &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
    let refuse = FaultKind::Code(Code::Internal, "not now".into());
    runtime.faults().add(criprobe::demo::InjectedFault::always("ContainerStatus", refuse));
    let rig = Rig::before(runtime, dir, &[]).await?;
    eventually("the status was asked for", PATIENCE, async || {
        Ok((rig.faults().count("ContainerStatus") > 0).then_some(()))
    })
    .await?;
    rig.faults().clear();
    // A gap asks for a list: here a call without an answer.
    rig.once("RemoveContainer", FaultKind::Hang);
    let request = pb::RemoveContainerRequest { container_id: "nobody".into() };
    give_up(rig.client.clone().remove_container(request), Duration::from_millis(20)).await;
    rig.last(&pod, "liveness", "success").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_is_away_at_the_start_is_waited_for() -> Result<()> {
    let (mut runtime, _dir) = runtime(EnvValues::default())?;
    runtime.stop_serving().await;
    let mut daemon = Daemon::spawn(runtime.socket(), &[])?;
    let reason = eventually("the daemon answers that it is not ready", PATIENCE, async || {
        Ok(daemon.get("/readyz").await.ok())
    })
    .await?;
    assert_eq!(reason.0, 503, "{}", reason.1);
    assert!(reason.1.starts_with("the runtime is away"), "{}", reason.1);
    let mut client = daemon.client().await?;
    let call = tokio::spawn(async move { cri::version(&mut client).await });
    stays("a call waits", Duration::from_millis(200), async || Ok(!call.is_finished())).await?;
    runtime.serve_again(Duration::from_millis(200))?;
    call.await??;
    daemon.ready().await
}
