//! Containers that came and went in every way there is are known, each within its time.
//!
//! A probe shows what the inventory knows of its container: that it exists, and whether it runs.

use std::{collections::BTreeSet, time::Duration};

use anyhow::Result;
use criprobe::{clock, proto::cri as pb, runtime::channel};

use crate::support::{
    PATIENCE,
    containerd::Lab,
    cri::{self, Container, Pod},
    daemon::Daemon,
    eventually,
};

const LIVENESS: &str = "liveness.criprobe.dev/app";

/// A probe that passes at once and then rests for longer than any test: what it shows later, it was told.
const LAZY: &str = r#"{"exec": {"command": ["true"]}, "periodSeconds": 300}"#;

/// One that is tried soon also where it is adopted: an adopted probe begins at some time within its first period.
const EAGER: &str = r#"{"exec": {"command": ["true"]}, "periodSeconds": 1}"#;

/// How soon what happens past the relay has to show, where the runtime has events.
const SOON: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_container_made_before_criprobe_started_is_adopted() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let mut runtime = lab.client().await?;
    let pod = cri::run_pod(&mut runtime, "adopted", &[(LIVENESS, EAGER)]).await?;
    let id = cri::run_container(&mut runtime, &pod, &Container::IDLE).await?;

    let daemon = Daemon::start(&lab.socket()).await?;
    let probe = daemon
        .probe_becomes((&pod, "app", "liveness"), "succeeds", PATIENCE, |probe| {
            probe["last"]["result"] == "success"
        })
        .await?;
    assert_eq!(probe["containerId"], id.as_str());
    Ok(())
}

#[tokio::test]
async fn a_container_made_past_the_relay_shows_within_a_second() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let daemon = Daemon::start(&lab.socket()).await?;
    let mut runtime = lab.client().await?;
    let pod = cri::run_pod(&mut runtime, "past", &[(LIVENESS, LAZY)]).await?;
    let id = cri::run_container(&mut runtime, &pod, &Container::IDLE).await?;
    daemon
        .probe_becomes((&pod, "app", "liveness"), "shows its container running", SOON, |probe| {
            probe["containerId"] == id.as_str() && probe["phase"] == "probing"
        })
        .await?;
    Ok(())
}

/// containerd answers to the old name until 1.7.
#[tokio::test]
async fn calls_under_the_old_name_of_the_protocol_are_understood() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let daemon = Daemon::start(&lab.socket()).await?;
    let client = channel(daemon.socket());
    let asked = cri::v1alpha2(&client, "Version", pb::VersionRequest::default()).await;
    let version: pb::VersionResponse = match asked {
        Err(error) if error.to_string().contains("unknown service") => {
            eprintln!("skipped: this containerd has no runtime.v1alpha2 any more");
            return Ok(());
        }
        answer => answer?,
    };
    assert_eq!(version.runtime_name, "containerd");

    let config = cri::pod_config("old-name", &[(LIVENESS, LAZY)]);
    let request = pb::RunPodSandboxRequest { config: Some(config.clone()), ..Default::default() };
    let made: pb::RunPodSandboxResponse = cri::v1alpha2(&client, "RunPodSandbox", request).await?;
    let pod = Pod::of(&made.pod_sandbox_id, config);
    let creation = cri::creation(&pod, &Container::IDLE);
    let made: pb::CreateContainerResponse = cri::v1alpha2(&client, "CreateContainer", creation).await?;
    let request = pb::StartContainerRequest { container_id: made.container_id.clone() };
    let _: pb::StartContainerResponse = cri::v1alpha2(&client, "StartContainer", request).await?;
    let probe = daemon
        .probe_becomes((&pod, "app", "liveness"), "succeeds", PATIENCE, |probe| {
            probe["last"]["result"] == "success"
        })
        .await?;
    assert_eq!(probe["containerId"], made.container_id);

    let request = pb::RemovePodSandboxRequest { pod_sandbox_id: pod.id.to_string() };
    let _: pb::RemovePodSandboxResponse = cri::v1alpha2(&client, "RemovePodSandbox", request).await?;
    eventually("its probe goes", SOON, async || {
        Ok(daemon.probe(&pod, "app", "liveness").await?.is_none().then_some(()))
    })
    .await?;
    let calls = daemon.lines("/v1/trace?pod=old-name").await?;
    let methods: BTreeSet<_> = calls.iter().filter_map(|call| call["method"].as_str()).collect();
    assert!(methods.contains("CreateContainer") && methods.contains("RemovePodSandbox"), "{calls:?}");
    Ok(())
}

#[tokio::test]
async fn a_container_that_exits_by_itself_is_seen_within_a_second() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let daemon = Daemon::start(&lab.socket()).await?;
    let mut client = daemon.client().await?;
    let pod = cri::run_pod(&mut client, "exits", &[(LIVENESS, LAZY)]).await?;
    let command = ["sh", "-c", "until [ -e /tmp/go ]; do sleep 0.02; done; exit 3"];
    let id = cri::run_container(&mut client, &pod, &Container::shell(&command)).await?;
    let liveness = (&pod, "app", "liveness");
    daemon
        .probe_becomes(liveness, "succeeds", PATIENCE, |probe| probe["last"]["result"] == "success")
        .await?;

    // Past the relay: nothing that criprobe reads on the way could show it.
    let mut runtime = lab.client().await?;
    cri::exec(&mut runtime, &id, &["touch", "/tmp/go"]).await?;
    daemon
        .probe_becomes(liveness, "shows its container gone", SOON, |probe| {
            probe["phase"] == "waiting" && probe["state"] == "failure"
        })
        .await?;
    Ok(())
}

#[tokio::test]
async fn a_create_container_that_its_client_cancelled_is_found() -> Result<()> {
    /// A creation takes some 7 ms: early enough to be cancelled on the way, late enough to have happened, and between.
    const PATIENCES_MS: [u64; 8] = [1, 2, 3, 4, 5, 6, 8, 12];
    /// The runtime may finish what was cancelled: only after this time its list says what became of it.
    const SETTLED: Duration = Duration::from_millis(300);
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let daemon = Daemon::start(&lab.socket()).await?;
    let mut client = daemon.client().await?;
    let mut runtime = lab.client().await?;
    let pod = cri::run_pod(&mut client, "cancelled", &[]).await?;

    let mut cancelled = 0;
    for patience in PATIENCES_MS {
        let name = format!("app-{patience}");
        let annotation = format!("liveness.criprobe.dev/{name}");
        let annotations = [(annotation.as_str(), LAZY)];
        let container = Container { name: &name, annotations: &annotations, ..Container::IDLE };
        let call = client.create_container(cri::creation(&pod, &container));
        let ended = tokio::time::timeout(Duration::from_millis(patience), call).await;
        cancelled += usize::from(ended.is_err());
        let end = clock::now();
        eventually("the inventory equals the runtime's list", Duration::from_secs(2), async || {
            let theirs: BTreeSet<_> = cri::containers_of(&mut runtime, &pod).await?.into_iter().collect();
            let ours = daemon.probes().await?.into_iter().filter(|probe| probe["podUid"] == pod.uid.as_str());
            let ours: BTreeSet<_> =
                ours.filter_map(|probe| Some(probe["containerId"].as_str()?.to_owned().into())).collect();
            Ok((clock::now() - end > SETTLED && ours == theirs).then_some(()))
        })
        .await?;
    }
    assert!(cancelled > 0, "no call was cancelled: all were answered sooner");
    Ok(())
}
