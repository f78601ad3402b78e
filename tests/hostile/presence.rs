//! Runtimes that answer in unusual ways.

use std::time::Duration;

use anyhow::{Result, ensure};
use criprobe::{
    clock,
    demo::{EnvValues, FaultKind, InjectedFault},
};
use tokio::time::timeout;
use tonic::Code;

use crate::{
    made_up::{self, END_HEADERS, END_STREAM, GOAWAY, HEADERS, HOLD, RESET},
    rig::{self, Rig},
    support::{PATIENCE, cri, daemon::Daemon, eventually, stays},
};

/// How soon a client is served by a runtime that does not answer Version: well before the 20 s after which it is cut.
const LET_THROUGH: Duration = Duration::from_secs(12);

#[tokio::test(flavor = "multi_thread")]
async fn row_07_a_runtime_that_refuses_version_is_there() -> Result<()> {
    let (runtime, dir) = rig::runtime(EnvValues::default())?;
    let refusal = "unknown service runtime.v1.RuntimeService";
    runtime
        .faults()
        .add(InjectedFault::always("Version", FaultKind::Code(Code::Unimplemented, refusal.into())));
    let mut rig = Rig::before(runtime, dir, &[]).await?;
    let runtime = &rig.daemon.status().await?["runtime"];
    assert_eq!((&runtime["state"], &runtime["name"]), (&"ok".into(), &"".into()), "{runtime}");
    assert!(runtime["reason"].as_str().unwrap_or_default().contains(refusal), "{runtime}");
    let answer = timeout(LET_THROUGH, cri::version(&mut rig.client)).await?;
    assert!(format!("{answer:?}").contains(refusal), "the runtime speaks for itself: {answer:?}");
    timeout(LET_THROUGH, cri::run_pod(&mut rig.client, "served", &[])).await??;
    // A connection that the runtime drops raises a doubt, which the refusal settles.
    rig.once("Status", FaultKind::DropConnection);
    let _lost = rig.client.status(criprobe::proto::cri::StatusRequest { verbose: false }).await;
    let mut fresh = rig.daemon.client().await?;
    timeout(LET_THROUGH, cri::run_pod(&mut fresh, "after-a-doubt", &[])).await??;
    assert!(!rig.daemon.log().contains("runtime is away"));
    rig.faults().clear();
    eventually("it says who it is", PATIENCE, async || {
        let status = rig.daemon.status().await?;
        Ok((status["runtime"]["reason"] == "" && status["runtime"]["name"] != "").then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_07_a_runtime_that_accepts_and_never_answers_version_is_left_to_its_clients() -> Result<()> {
    let (runtime, dir) = rig::runtime(EnvValues::default())?;
    runtime.faults().add(InjectedFault::always("Version", FaultKind::Hang));
    let daemon = Daemon::spawn(runtime.socket(), &[])?;
    eventually("a call was not answered in time", PATIENCE, async || {
        let status = daemon.status().await.ok();
        Ok(status.filter(|status| status["runtime"]["reason"].to_string().contains("does not answer")))
    })
    .await?;
    let mut client = daemon.client().await?;
    timeout(LET_THROUGH, cri::run_pod(&mut client, "served", &[])).await??;
    runtime.faults().clear();
    eventually("it is ready at last", PATIENCE, async || {
        Ok((daemon.get("/readyz").await?.0 == 200).then_some(()))
    })
    .await?;
    drop((daemon, runtime, dir));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_07_clients_whose_connections_the_runtime_closes_do_not_hold_others() -> Result<()> {
    const TRIES: u32 = 8;
    let mut rig = Rig::start().await?;
    cri::version(&mut rig.client).await?;
    rig.faults().add(InjectedFault::always("Version", FaultKind::Delay(Duration::from_secs(1))));
    rig.faults().add(InjectedFault::always("Status", FaultKind::DropConnection));
    let socket = rig.daemon.socket();
    let closed = tokio::spawn(async move {
        loop {
            if let Ok(mut client) = cri::connect(&socket).await {
                let _lost = client.status(criprobe::proto::cri::StatusRequest { verbose: false }).await;
            }
        }
    });
    let mut held = Duration::ZERO;
    for _ in 0..TRIES {
        let began = clock::now();
        let mut fresh = rig.daemon.client().await?;
        timeout(PATIENCE, fresh.list_pod_sandbox(criprobe::proto::cri::ListPodSandboxRequest::default()))
            .await??;
        held += clock::now() - began;
        // Each time, there may be another doubt.
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let held = held / TRIES;
    closed.abort();
    ensure!(held < Duration::from_millis(400), "a new client waited for {held:?} on average");
    ensure!(!rig.daemon.log().contains("clients are connected anyway"), "{}", rig.daemon.log());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_08_after_the_runtimes_goaway_none_of_ours_follows() -> Result<()> {
    let (socket, _dir) = made_up::start()?;
    let daemon = Daemon::spawn(&socket, &[])?;
    eventually("the runtime is there", PATIENCE, async || {
        Ok(daemon.status().await.ok().filter(|status| status["runtime"]["state"] == "ok"))
    })
    .await?;
    let mut client = made_up::connect(&daemon.socket())?;
    client.set_read_timeout(Some(PATIENCE))?;
    let call = made_up::frame(HEADERS, END_HEADERS | END_STREAM, 1, &made_up::call(HOLD));
    std::io::Write::write_all(&mut client, &call)?;
    while made_up::read_frame(&mut client)?.kind != GOAWAY {}
    daemon.terminate();
    eventually("it drains", PATIENCE, async || {
        Ok(daemon.status().await.ok().filter(|status| status["draining"] == true))
    })
    .await?;
    // The call that the drain waits for ends.
    std::io::Write::write_all(&mut client, &made_up::frame(RESET, 0, 1, &[0, 0, 0, 8]))?;
    let mut later = Vec::new();
    while let Ok(frame) = made_up::read_frame(&mut client) {
        later.push((frame.kind, frame.payload));
    }
    assert!(later.iter().all(|(kind, _)| *kind != GOAWAY), "{later:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_11_events_that_end_at_once_twice_are_none() -> Result<()> {
    let (runtime, dir) = rig::runtime(EnvValues::default())?;
    runtime
        .faults()
        .add(InjectedFault::always("GetContainerEvents", FaultKind::Code(Code::Ok, String::new())));
    let mut rig = Rig::before(runtime, dir, &[]).await?;
    let reads_from = async |rig: &Rig, source: &str| {
        eventually(source, PATIENCE, async || {
            Ok((rig.daemon.status().await?["runtime"]["eventSource"] == source).then_some(()))
        })
        .await
    };
    reads_from(&rig, "unsupported").await?;
    let asked = rig.faults().count("GetContainerEvents");
    assert_eq!(asked, 2);
    stays("they are left alone", Duration::from_secs(1), async || {
        Ok(rig.faults().count("GetContainerEvents") == asked)
    })
    .await?;

    // Another runtime, or the same with another configuration, is asked again.
    rig.faults().clear();
    rig.runtime.stop_serving().await;
    rig.runtime.serve_again(Duration::ZERO)?;
    reads_from(&rig, "cri").await
}
