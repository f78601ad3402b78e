//! A runtime that does not answer for some containers.

use std::time::Duration;

use anyhow::{Result, ensure};
use criprobe::{
    clock,
    demo::{EnvValues, FaultKind, InjectedFault},
    ids::ContainerId,
    proto::cri as pb,
};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::{
    rig::{self, EAGER, LIVENESS, Rig},
    support::{
        PATIENCE,
        cri::{self, Container, Cri, Pod},
        daemon::Daemon,
        eventually,
    },
};

const IDLE: [&str; 2] = ["sleep", "100000"];

/// How soon a container is probed beside others whose status never comes: these are asked for in groups of 8, a second each.
const SOON: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn row_20_statuses_that_never_come_delay_no_other_container_and_are_shown() -> Result<()> {
    let (runtime, dir) = rig::runtime(EnvValues::default())?;
    let mut past = cri::connect(runtime.socket()).await?;
    // One pod with many containers is as good as many pods, and starts faster.
    let hung = cri::run_pod(&mut past, "hung", &[(LIVENESS, EAGER)]).await?;
    let mut ids = Vec::new();
    for number in 0..120 {
        let name = format!("app-{number}");
        let container = Container { name: &name, command: &IDLE, ..Container::IDLE };
        ids.push(cri::run_container(&mut past, &hung, &container).await?.to_string());
    }
    // The pod comes to be last, so that nothing but fairness brings it forward.
    let (well, _) = rig::run(&mut past, "well", &[(LIVENESS, EAGER)], &IDLE).await?;
    runtime.faults().add(InjectedFault::always("ContainerStatus", FaultKind::HangAbout(ids)));
    let daemon = Daemon::spawn(runtime.socket(), &[])?;
    eventually("the other container is probed", SOON, async || {
        let probe = daemon.probe(&well, "app", "liveness").await.ok().flatten();
        Ok(probe.filter(|probe| probe["last"]["result"] == "success"))
    })
    .await?;
    let (late, _) = rig::run(&mut past, "late", &[(LIVENESS, EAGER)], &IDLE).await?;
    daemon
        .probe_becomes((&late, "app", "liveness"), "is probed", SOON, |probe| {
            probe["last"]["result"] == "success"
        })
        .await?;
    // Another status may just be under way.
    let waiting = eventually("120 wait", PATIENCE, async || {
        let waiting = daemon.status().await?["inventory"]["waiting"].clone();
        Ok((waiting["count"] == 120).then_some(waiting))
    })
    .await?;
    assert!(waiting["since"].is_string(), "{waiting}");
    eventually("it is doubtful", 2 * PATIENCE, async || {
        let (code, text) = daemon.get("/readyz?verbose").await?;
        assert_eq!(code, 200, "{text}");
        Ok(text
            .contains("[!] inventory doubtful: waiting for the status of containers or pods: 120")
            .then_some(()))
    })
    .await?;
    let log = daemon.log();
    assert_eq!(log.matches("runtime does not report the status").count(), 1, "{log}");
    assert!(daemon.run(&["status"])?.1.contains("status of containers or pods: 120"));
    runtime.faults().clear();
    eventually("all are answered", PATIENCE, async || {
        Ok(daemon.status().await?["inventory"]["waiting"].is_null().then_some(()))
    })
    .await?;
    drop((daemon, runtime, dir));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_20_pods_whose_status_never_comes_delay_no_other_pod() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (first, _) = rig.run("first", &[(LIVENESS, EAGER)], &IDLE).await?;
    rig.last(&first, "liveness", "success").await?;
    let mut pods = Vec::new();
    for number in 0..100 {
        pods.push(cri::run_pod(&mut rig.past, &format!("hung-{number}"), &[]).await?.id.to_string());
    }
    let (well, _) = rig::run(&mut rig.past, "well", &[(LIVENESS, EAGER)], &IDLE).await?;
    rig.always("PodSandboxStatus", FaultKind::HangAbout(pods));
    rig.daemon.terminate();
    rig.daemon.start_again(rig.runtime.socket(), &[]).await?;
    rig.daemon
        .probe_becomes((&well, "app", "liveness"), "is probed", 2 * SOON, |probe| {
            probe["last"]["result"] == "success"
        })
        .await?;
    let (late, _) = rig::run(&mut rig.past, "late", &[(LIVENESS, EAGER)], &IDLE).await?;
    rig.daemon
        .probe_becomes((&late, "app", "liveness"), "is probed", SOON, |probe| {
            probe["last"]["result"] == "success"
        })
        .await?;
    Ok(())
}

/// More than the lookups that may wait.
const MADE_UP: usize = 5_000;

#[tokio::test(flavor = "multi_thread")]
async fn row_20_commands_for_ids_that_do_not_exist_delay_no_new_pod() -> Result<()> {
    let mut rig = Rig::start().await?;
    // The runtime is slow to say that it does not know them: so all of them wait at once, without a flood that lasts.
    rig.always("ContainerStatus", FaultKind::HangAbout(vec!["made-up-".to_owned()]));
    let mut calls = JoinSet::new();
    for number in 0..MADE_UP {
        let mut client = rig.client.clone();
        let request = pb::ExecSyncRequest {
            container_id: format!("made-up-{number}"),
            cmd: vec!["true".to_owned()],
            timeout: 1,
        };
        calls.spawn(async move { client.exec_sync(request).await.is_err() });
        if calls.len() == 64 {
            ensure!(
                calls.join_next().await.transpose()? == Some(true),
                "the runtime knows no such container"
            );
        }
    }
    calls.join_all().await;
    let (pod, _) = rig.run("late", &[(LIVENESS, EAGER)], &IDLE).await?;
    rig.daemon
        .probe_becomes((&pod, "app", "liveness"), "is probed", SOON, |probe| {
            probe["last"]["result"] == "success"
        })
        .await?;
    let waiting = rig.daemon.status().await?["inventory"]["waiting"].clone();
    ensure!(waiting.is_null(), "only containers and pods that exist are waited for: {waiting}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_20_a_status_of_another_container_is_no_answer_and_is_asked_for_ever_more_rarely() -> Result<()> {
    let mut rig = Rig::start().await?;
    let pod = cri::run_pod(&mut rig.past, "liar", &[(LIVENESS, EAGER)]).await?;
    let (well, _) = rig.run("well", &[(LIVENESS, EAGER)], &IDLE).await?;
    rig.last(&well, "liveness", "success").await?;
    // The tag of the request's field: of any container. Only this one is asked for from here on.
    rig.always("ContainerStatus", FaultKind::OtherIds(vec!["\n".to_owned()]));
    cri::run_container(&mut rig.past, &pod, &Container { command: &IDLE, ..Container::IDLE }).await?;
    let attempts = async || {
        let probe = rig.daemon.probe(&well, "app", "liveness").await?.unwrap_or_default();
        Ok::<_, anyhow::Error>(probe["counts"]["success"].as_u64().unwrap_or_default())
    };
    let (before, lists) = (attempts().await?, rig.faults().count("ListContainers"));
    // 3 s: ten attempts are a second.
    eventually("the other container is probed", 2 * PATIENCE, async || {
        Ok((attempts().await? >= before + 30).then_some(()))
    })
    .await?;
    let lists = rig.faults().count("ListContainers") - lists;
    assert!(lists <= 5, "{lists} lists in the time of 30 attempts");
    rig.faults().clear();
    rig.becomes(&pod, "liveness", "is probed", |probe| probe["last"]["result"] == "success").await?;
    Ok(())
}

/// A probe whose command names a variable of its container.
const VARIABLE: &str = r#"{"exec": {"command": ["test", "$(X)", "=", "x"]}, "periodSeconds": 1}"#;

/// How soon the first commands of four containers run beside those of 48 of another namespace whose statuses never come.
/// They take turns for four places, each of which is free again after 1 s; without turns it took 5 s and more.
const FIRST_COMMAND: Duration = Duration::from_secs(4);

/// A pod with containers `c0` and so on, each with a liveness probe that names a variable.
async fn run_with_variables(
    past: &mut Cri,
    namespace: &str,
    name: &str,
    count: usize,
) -> Result<(Pod, Vec<ContainerId>)> {
    let names: Vec<_> = (0..count).map(|number| format!("c{number}")).collect();
    let keys: Vec<_> = names.iter().map(|name| format!("liveness.criprobe.dev/{name}")).collect();
    let annotations: Vec<_> = keys.iter().map(|key| (key.as_str(), VARIABLE)).collect();
    let mut config = cri::pod_config(name, &annotations);
    config.labels.insert("io.kubernetes.pod.namespace".into(), namespace.into());
    config.metadata.iter_mut().for_each(|metadata| metadata.namespace = namespace.into());
    let pod = cri::run_sandbox(past, config).await?;
    let mut ids = Vec::new();
    for name in &names {
        let container = Container { name, env: &[("X", "x")], ..Container::IDLE };
        ids.push(cri::run_container(past, &pod, &container).await?);
    }
    Ok((pod, ids))
}

#[tokio::test(flavor = "multi_thread")]
async fn row_20_verbose_statuses_that_never_come_delay_no_first_command_of_another_namespace() -> Result<()> {
    let (runtime, dir) = rig::runtime(EnvValues::default())?;
    let mut past = cri::connect(runtime.socket()).await?;
    let mut hung = Vec::new();
    for number in 0..6 {
        let (_, ids) = run_with_variables(&mut past, "hostile", &format!("hung-{number}"), 8).await?;
        // The request's last field says that it is verbose: the inventory's own are answered.
        hung.extend(ids.iter().map(|id| format!("{id}\u{10}\u{1}")));
    }
    runtime.faults().add(InjectedFault::always("ContainerStatus", FaultKind::HangAbout(hung)));
    let mut daemon = Daemon::spawn(runtime.socket(), &[])?;
    daemon.ready().await?;
    eventually("statuses of the others are awaited", PATIENCE, async || {
        let has_failed = |probe: &Value| probe["last"]["result"] == "error";
        Ok(daemon.probes().await?.iter().any(has_failed).then_some(()))
    })
    .await?;
    let began = clock::now();
    let (pod, _) = run_with_variables(&mut past, "default", "web", 4).await?;
    for number in 0..4 {
        let is_wanted = |probe: &Value| !probe["last"].is_null();
        let of = (&pod, &*format!("c{number}"), "liveness");
        let probe = daemon.probe_becomes(of, "is probed", 2 * PATIENCE, is_wanted).await?;
        assert_eq!(probe["last"]["result"], "success", "{probe}");
    }
    assert!(clock::now() - began < FIRST_COMMAND, "{:?}", clock::now() - began);
    drop((daemon, runtime, dir));
    Ok(())
}
