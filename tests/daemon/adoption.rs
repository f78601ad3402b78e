//! Containers that criprobe did not see made, or saw made in an unusual way, have their probes all the same; and those of
//! a pod that was made again are no others'.

use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result, ensure};
use criprobe::{
    demo::{EnvValues, FaultKind, InjectedFault},
    proto::cri as pb,
    runtime::channel,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tonic::Code;

use crate::{
    rig::{EAGER, LAZY, LIVENESS, READINESS, Rig, SOON, STARTUP, run, runtime},
    support::{
        PATIENCE,
        cri::{self, Container, Pod},
        eventually, stays,
    },
};

/// A probe that passes where there is such a file, and fails for good where there is none.
const HEALTHY: &str =
    r#"{"exec": {"command": ["cat", "healthy"]}, "periodSeconds": 1, "failureThreshold": 3}"#;

impl Rig {
    /// In front of a runtime that reports nothing by itself: what is known in time was read from what passed.
    async fn without_events() -> Result<Self> {
        let (runtime, dir) = runtime(EnvValues::default())?;
        let none = FaultKind::Code(Code::Unimplemented, "no events here".into());
        runtime.faults().add(InjectedFault::always("GetContainerEvents", none));
        let rig = Self::before(runtime, dir, &[]).await?;
        eventually("the daemon knows that there are no events", PATIENCE, async || {
            Ok((rig.daemon.status().await?["runtime"]["eventSource"] == "unsupported").then_some(()))
        })
        .await?;
        Ok(rig)
    }

    /// Stops a sandbox past the relay, which leaves it listed.
    async fn stop_past(&mut self, pod: &Pod) -> Result<()> {
        let pod_sandbox_id = pod.id.to_string();
        self.past.stop_pod_sandbox(pb::StopPodSandboxRequest { pod_sandbox_id }).await?;
        Ok(())
    }

    async fn remove_past(&mut self, pod: &Pod) -> Result<()> {
        let pod_sandbox_id = pod.id.to_string();
        self.past.remove_pod_sandbox(pb::RemovePodSandboxRequest { pod_sandbox_id }).await?;
        Ok(())
    }

    /// The types of a pod's probes that are listed, with the containers that they look at.
    async fn kinds(&self, pod: &Pod) -> Result<BTreeSet<(String, String)>> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let all = self.daemon.probes().await?;
        let of_pod = all.iter().filter(|probe| probe["podUid"] == pod.uid.as_str());
        Ok(of_pod.map(|probe| (text(&probe["type"]), text(&probe["containerId"]))).collect())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_containers_that_ran_before_have_their_probes_at_once_and_spread_over_a_period()
-> Result<()> {
    const PODS: usize = 50;
    const EACH: usize = 4;
    const PERIOD: f64 = 300.0;
    let (runtime, dir) = runtime(EnvValues::default())?;
    let past = cri::connect(runtime.socket()).await?;
    let mut pods = JoinSet::new();
    for number in 0..PODS {
        let mut past = past.clone();
        pods.spawn(async move {
            // Half of each pod's containers are annotated at the pod, the others themselves.
            let of_pod = [("liveness.criprobe.dev/c0", LAZY), ("liveness.criprobe.dev/c1", LAZY)];
            let pod = cri::run_pod(&mut past, &format!("adopted-{number}"), &of_pod).await?;
            for container in 0..EACH {
                let (name, key) = (format!("c{container}"), format!("liveness.criprobe.dev/c{container}"));
                let own = [(key.as_str(), LAZY)];
                let annotations = if container < of_pod.len() { &[] } else { &own[..] };
                let container = Container { name: &name, annotations, ..Container::IDLE };
                cri::run_container(&mut past, &pod, &container).await?;
            }
            anyhow::Ok(())
        });
    }
    pods.join_all().await.into_iter().collect::<Result<Vec<_>>>()?;

    let rig = Rig::before(runtime, dir, &[]).await?;
    let ready = criprobe::clock::wall();
    let probes = eventually("all have probes", Duration::from_secs(5), async || {
        let probes = rig.daemon.probes().await?;
        Ok((probes.len() == PODS * EACH).then_some(probes))
    })
    .await?;
    let all = |field: &str, wanted: &str| probes.iter().all(|probe| probe[field] == wanted);
    ensure!(all("source", "annotation") && all("phase", "probing") && all("type", "liveness"), "{probes:?}");
    let containers: BTreeSet<_> = probes.iter().map(|probe| probe["containerId"].to_string()).collect();
    assert_eq!(containers.len(), PODS * EACH);
    // Each is first tried at some time within its first period. A few were by now: their next is a period later.
    let wait = |probe: &Value| -> Result<f64> {
        let Some(next) = probe["nextAt"].as_str() else { return Ok(0.0) };
        let next = SystemTime::from(next.parse::<jiff::Timestamp>()?);
        let wait = next.duration_since(ready).unwrap_or_default().as_secs_f64();
        Ok(if probe["last"].is_null() { wait } else { (wait - PERIOD).max(0.0) })
    };
    let waits = probes.iter().map(wait).collect::<Result<Vec<_>>>()?;
    let early = waits.iter().filter(|wait| **wait < PERIOD / 2.0).count();
    ensure!((60..=140).contains(&early), "{early} of 200 in the first half: {waits:?}");
    // A container counts from when its status was read, which is up to 5 s later.
    ensure!(waits.iter().all(|wait| *wait <= PERIOD + 5.0), "{waits:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_pod_and_its_containers_are_known_within_a_second() -> Result<()> {
    let mut rig = Rig::without_events().await?;
    let config = cri::pod_config("restored", &[(LIVENESS, LAZY), ("readiness.criprobe.dev/side", LAZY)]);
    let pod = Pod::of("", config.clone());
    let side = Container { name: "side", ..Container::IDLE };
    let containers = [Container::IDLE, side].map(|container| cri::creation(&pod, &container).config);
    let request = pb::RestorePodRequest {
        checkpoint_path: "/checkpoint".into(),
        config: Some(config),
        container_configs: containers.into_iter().flatten().collect(),
        ..Default::default()
    };
    let id = rig.client.restore_pod(request).await?.into_inner().pod_sandbox_id;
    for (container, kind) in [("app", "liveness"), ("side", "readiness")] {
        let probe = rig
            .daemon
            .probe_becomes((&pod, container, kind), "shows its container running", SOON, |probe| {
                probe["phase"] == "probing"
            })
            .await?;
        assert_eq!(probe["sandboxId"], id.as_str());
    }
    let call = eventually("the call is recorded", PATIENCE, async || {
        Ok(rig.daemon.lines("/v1/trace?method=RestorePod").await?.pop())
    })
    .await?;
    assert_eq!((&call["code"], &call["pod"]), (&json!("OK"), &json!("")), "{call}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_under_the_old_name_of_the_protocol_are_understood() -> Result<()> {
    let rig = Rig::without_events().await?;
    // No list shows it, either.
    for list in ["ListPodSandbox", "ListContainers"] {
        rig.always(list, FaultKind::Code(Code::Internal, "not now".into()));
    }
    let client = channel(rig.socket());
    let config = cri::pod_config("old-name", &[(LIVENESS, LAZY)]);
    let request = pb::RunPodSandboxRequest { config: Some(config.clone()), ..Default::default() };
    let made: pb::RunPodSandboxResponse = cri::v1alpha2(&client, "RunPodSandbox", request).await?;
    let pod = Pod::of(&made.pod_sandbox_id, config);
    let creation = cri::creation(&pod, &Container::IDLE);
    let made: pb::CreateContainerResponse = cri::v1alpha2(&client, "CreateContainer", creation).await?;
    let container_id = made.container_id;
    let request = pb::StartContainerRequest { container_id: container_id.clone() };
    let _: pb::StartContainerResponse = cri::v1alpha2(&client, "StartContainer", request).await?;
    let liveness = (&pod, "app", "liveness");
    rig.daemon
        .probe_becomes(liveness, "shows its container running", SOON, |probe| {
            probe["containerId"] == container_id.as_str() && probe["phase"] == "probing"
        })
        .await?;

    let cmd = vec!["sh".to_owned(), "-c".to_owned(), "exit 4".to_owned()];
    let request = pb::ExecSyncRequest { container_id: container_id.clone(), cmd, timeout: 10 };
    let ran: pb::ExecSyncResponse = cri::v1alpha2(&client, "ExecSync", request).await?;
    assert_eq!(ran.exit_code, 4);
    let call = eventually("the command is recorded", PATIENCE, async || {
        Ok(rig.daemon.lines("/v1/trace?method=ExecSync&pod=old-name").await?.pop())
    })
    .await?;
    assert_eq!((&call["container"], &call["exec"]["exitCode"]), (&json!("app"), &json!(4)), "{call}");

    let request = pb::RemovePodSandboxRequest { pod_sandbox_id: pod.id.to_string() };
    let _: pb::RemovePodSandboxResponse = cri::v1alpha2(&client, "RemovePodSandbox", request).await?;
    rig.counts(0, SOON).await?;
    ensure!(rig.daemon.probe(&pod, "app", "liveness").await?.is_none(), "its probe is left");
    let status = rig.daemon.status().await?;
    assert_eq!(status["gaps"], 0, "{status}");
    Ok(())
}

/// A pod's definition as it is when its sandbox is made once more.
fn next_attempt(pod: &Pod, annotations: &[(&str, &str)]) -> pb::PodSandboxConfig {
    let mut config = pod.config.clone();
    config.annotations = annotations.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    if let Some(metadata) = config.metadata.as_mut() {
        metadata.attempt += 1;
    }
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn the_annotations_of_the_newest_sandbox_of_a_pod_count_and_no_others() -> Result<()> {
    let (runtime, dir) = runtime(EnvValues::default())?;
    let mut past = cri::connect(runtime.socket()).await?;
    let sleep = ["sleep", "100000"];
    let (first, _) = run(&mut past, "remade", &[(LIVENESS, EAGER), (STARTUP, LAZY)], &sleep).await?;
    past.stop_pod_sandbox(pb::StopPodSandboxRequest { pod_sandbox_id: first.id.to_string() }).await?;
    let config = next_attempt(&first, &[(LIVENESS, LAZY), (READINESS, LAZY)]);
    let second = cri::run_sandbox(&mut past, config).await?;
    let id = cri::run_container(&mut past, &second, &Container::IDLE).await?;
    let looks_at = |kinds: &[&str], id: &str| -> BTreeSet<_> {
        kinds.iter().map(|kind| ((*kind).to_owned(), id.to_owned())).collect()
    };

    // Both are there when criprobe starts: in whatever order they are read.
    let mut rig = Rig::before(runtime, dir, &[]).await?;
    let of_second = looks_at(&["liveness", "readiness"], id.as_str());
    eventually("those of the second count", PATIENCE, async || {
        Ok((rig.kinds(&second).await? == of_second).then_some(()))
    })
    .await?;
    let liveness =
        rig.becomes(&second, "liveness", "is at work", |probe| probe["phase"] == "probing").await?;
    assert_eq!(
        (&liveness["periodSeconds"], &liveness["sandboxId"]),
        (&json!(300.0), &json!(second.id.as_str()))
    );

    // The third is made while criprobe runs, and while the second is still there.
    rig.stop_past(&second).await?;
    let config = next_attempt(&second, &[(STARTUP, LAZY)]);
    let third = cri::run_sandbox(&mut rig.client, config).await?;
    let id = cri::run_container(&mut rig.client, &third, &Container::IDLE).await?;
    let of_third = looks_at(&["startup"], id.as_str());
    eventually("those of the third count", PATIENCE, async || {
        Ok((rig.kinds(&third).await? == of_third).then_some(()))
    })
    .await?;
    rig.last(&third, "startup", "success").await?;
    rig.remove_past(&first).await?;
    rig.remove_past(&second).await?;
    rig.counts(1, PATIENCE).await?;
    let startup = rig.daemon.probe(&third, "app", "startup").await?.context("it is there")?;
    assert_eq!((rig.kinds(&third).await?, &startup["counts"]["success"]), (of_third, &json!(1)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_the_same_name_with_another_uid_begins_anew_also_over_a_restart() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (old, _) = rig.run("again", &[(LIVENESS, HEALTHY)], &["sleep", "100000"]).await?;
    rig.becomes(&old, "liveness", "fails", |probe| {
        probe["state"] == "failure" && probe["phase"] == "probing"
    })
    .await?;
    let healthy = Container::shell(&["sh", "-c", "touch healthy; sleep 100000"]);
    let (mut new, mut id) = (old.clone(), String::new());
    rig.restart(Signal::TERM, async |rig| {
        assert_eq!(rig.saved()?["probes"][0]["stand"]["state"], "failure");
        rig.stop_past(&old).await?;
        new = cri::run_pod(&mut rig.past, "again", &[(LIVENESS, HEALTHY)]).await?;
        id = cri::run_container(&mut rig.past, &new, &healthy).await?.to_string();
        Ok(())
    })
    .await?;
    // What the old one found is not the new one's.
    let anew = rig.last(&new, "liveness", "success").await?;
    assert_eq!(
        (&anew["state"], &anew["phase"], &anew["containerId"]),
        (&json!("success"), &json!("probing"), &json!(id))
    );

    // While both are listed, the name is the newer one's.
    ensure!(rig.daemon.probe(&old, "app", "liveness").await?.is_some(), "the old one is not listed any more");
    let named = rig.daemon.json("/v1/probes/default/again/app/liveness").await?;
    assert_eq!(named["podUid"], new.uid.as_str());
    let (is_well, text) = rig.daemon.run(&["describe", "default/again/app/liveness"])?;
    ensure!(is_well && text.contains(new.uid.as_str()) && !text.contains(old.uid.as_str()), "{text}");

    rig.remove_past(&old).await?;
    eventually("the old one's probe goes", PATIENCE, async || {
        Ok(rig.daemon.probe(&old, "app", "liveness").await?.is_none().then_some(()))
    })
    .await?;
    let probe = rig.daemon.probe(&new, "app", "liveness").await?.context("it is there")?;
    assert_eq!((&probe["state"], &probe["since"]), (&anew["state"], &anew["since"]), "{probe}");
    eventually("only the new one's is saved", PATIENCE, async || {
        let text = rig.saved()?.to_string();
        Ok((text.contains(new.uid.as_str()) && !text.contains(old.uid.as_str())).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_replaced_by_one_of_its_name_takes_its_probes_with_it() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (old, _) = rig.run("replaced", &[(LIVENESS, EAGER), (READINESS, LAZY)], &["sleep", "100000"]).await?;
    rig.last(&old, "liveness", "success").await?;
    let pod_sandbox_id = old.id.to_string();
    rig.client.stop_pod_sandbox(pb::StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() }).await?;
    rig.client.remove_pod_sandbox(pb::RemovePodSandboxRequest { pod_sandbox_id }).await?;
    let (new, id) = rig.run("replaced", &[(LIVENESS, LAZY)], &["sleep", "100000"]).await?;
    let anew = rig.last(&new, "liveness", "success").await?;
    assert_eq!(
        (&anew["counts"]["success"], &anew["containerId"]),
        (&json!(1), &json!(id.as_str())),
        "{anew}"
    );
    stays("there is one probe", Duration::from_millis(300), async || {
        let all = rig.daemon.probes().await?;
        Ok(all.len() == 1 && all[0]["podUid"] == new.uid.as_str())
    })
    .await
}
