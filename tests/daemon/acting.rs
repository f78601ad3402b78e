//! Verdicts of failure act on their containers, where they may: stop, kill, restart, withheld, dry run; whoever else has
//! a hand in it.

use std::{collections::HashSet, fs, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use criprobe::{
    demo::FaultKind,
    ids::ContainerId,
    proto::cri::{self as pb, ContainerState},
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::Code;

use crate::{
    rig::{LIVENESS, Rig},
    support::{
        PATIENCE,
        cri::{self, Container, Cri, Pod},
        eventually, stays,
    },
};

/// Fails as soon as there is a file `sick`.
fn probe(on_failure: &str) -> String {
    format!(
        r#"{{exec: {{command: [test, "!", -e, sick]}}, period: 100ms, failureThreshold: 1, {on_failure}}}"#
    )
}

/// Ends with 42 if its hook ran before it was asked to end.
const HEALTHY: [&str; 3] =
    ["sh", "-c", "trap 'if [ -e hooked ]; then exit 42; else exit 7; fi' TERM; while :; do sleep 0.05; done"];

/// Acting is on, and the pods' annotations may ask for it.
const ACTING: [(&str, &str); 2] = [("CRIPROBE_ACT_ENABLED", "true"), ("CRIPROBE_ACT_NAMESPACES", "default")];

/// A configuration file in a folder of its own.
fn configured(text: &str) -> Result<(TempDir, String)> {
    let folder = tempfile::Builder::new().prefix("criprobe-conf-").tempdir()?;
    let file = folder.path().join("config.yaml");
    fs::write(&file, text)?;
    Ok((folder, file.display().to_string()))
}

/// A pod that no kubelet manages.
async fn run_unmanaged(client: &mut Cri, name: &str, annotations: &[(&str, &str)]) -> Result<Pod> {
    let mut config = cri::pod_config(name, annotations);
    config.labels.remove("io.kubernetes.pod.uid");
    cri::run_sandbox(client, config).await
}

/// Its container `app`; `change` is done to its definition.
async fn run_app(
    client: &mut Cri,
    pod: &Pod,
    annotations: &[(&str, &str)],
    change: impl FnOnce(&mut pb::ContainerConfig),
) -> Result<ContainerId> {
    let container = Container { command: &HEALTHY, annotations, ..Container::IDLE };
    let mut request = cri::creation(pod, &container);
    if let Some(config) = &mut request.config {
        config.labels.retain(|key, _| pod.config.labels.contains_key(key) || !key.ends_with("pod.uid"));
        change(config);
    }
    let container_id = client.create_container(request).await?.into_inner().container_id;
    client.start_container(pb::StartContainerRequest { container_id: container_id.clone() }).await?;
    Ok(container_id.into())
}

async fn is_healthy(rig: &Rig, pod: &Pod) -> Result<Value> {
    rig.becomes(pod, "liveness", "is healthy", |probe| probe["last"]["result"] == "success").await
}

async fn fall_ill(rig: &mut Rig, id: &ContainerId) -> Result<()> {
    cri::exec(&mut rig.past, id, &["touch", "sick"]).await?;
    Ok(())
}

async fn exits_with(client: &mut Cri, id: &ContainerId, code: i32) -> Result<()> {
    eventually(&format!("the container exits with {code}"), PATIENCE, async || {
        let (state, exit_code) = cri::container_state(client, id).await?;
        if state != ContainerState::ContainerExited {
            return Ok(None);
        }
        ensure!(exit_code == code, "it exited with {exit_code}");
        Ok(Some(()))
    })
    .await
}

/// The containers of a pod: id, attempt, state.
async fn containers(client: &mut Cri, pod: &Pod) -> Result<Vec<(ContainerId, u32, ContainerState)>> {
    let filter = pb::ContainerFilter { pod_sandbox_id: pod.id.to_string(), ..Default::default() };
    let list = client.list_containers(pb::ListContainersRequest { filter: Some(filter) }).await?.into_inner();
    let of = |container: pb::Container| {
        let (state, attempt) = (container.state(), container.metadata.as_ref().map_or(0, |one| one.attempt));
        (container.id.into(), attempt, state)
    };
    Ok(list.containers.into_iter().map(of).collect())
}

/// Exactly one container is left, it runs, and it has this attempt.
async fn runs_once(client: &mut Cri, pod: &Pod, attempt: u32) -> Result<ContainerId> {
    eventually(&format!("attempt {attempt} alone is left, and runs"), PATIENCE, async || {
        Ok(match &containers(client, pod).await?[..] {
            [(id, is, ContainerState::ContainerRunning)] if *is == attempt => Some(id.clone()),
            _ => None,
        })
    })
    .await
}

/// The events of one pod with this reason, the oldest first.
/// The messages of a pod's events, as often as they happened.
async fn events(rig: &Rig, pod: &Pod, reason: &str) -> Result<Vec<String>> {
    let name = pod.config.metadata.as_ref().map(|metadata| metadata.name.clone()).unwrap_or_default();
    let all = rig.daemon.events().await?;
    let of_pod = all.into_iter().filter(|event| event["pod"] == name && event["reason"] == reason);
    let times = |event: &Value| usize::try_from(event["count"].as_u64().unwrap_or(1)).unwrap_or(1);
    let message = |event: &Value| event["message"].as_str().unwrap_or_default().to_owned();
    Ok(of_pod.flat_map(|event| std::iter::repeat_n(message(&event), times(&event))).collect())
}

async fn has_event(rig: &Rig, pod: &Pod, reason: &str) -> Result<String> {
    eventually(&format!("there is an event {reason}"), PATIENCE, async || {
        Ok(events(rig, pod, reason).await?.into_iter().next())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_stopped_once_after_its_hook_and_with_its_grace() -> Result<()> {
    let mut rig = Rig::with(&ACTING).await?;
    let pod = cri::run_pod(&mut rig.client, "stop", &[(LIVENESS, &probe("onFailure: stop"))]).await?;
    let hook = r#"{"exec": {"command": ["touch", "hooked"]}}"#;
    let annotations = [
        ("io.kubernetes.container.preStopHandler", hook),
        ("io.kubernetes.pod.terminationGracePeriod", "20"),
    ];
    let id = run_app(&mut rig.client, &pod, &annotations, |_| {}).await?;
    is_healthy(&rig, &pod).await?;
    fall_ill(&mut rig, &id).await?;
    exits_with(&mut rig.past, &id, 42).await?;
    let held = rig.becomes(&pod, "liveness", "is held", |probe| probe["phase"] == "held").await?;
    ensure!(held["state"] == "failure", "{held}");
    ensure!(events(&rig, &pod, "Killing").await? == ["Container app failed liveness probe"]);
    eventually("the act ends", PATIENCE, async || {
        let describe: Value = rig.daemon.json("/v1/probes/default/stop/app/liveness").await?;
        Ok((describe["acts"]["last"]["end"] == "stopped").then_some(()))
    })
    .await?;
    stays("it is stopped once", Duration::from_secs(1), async || {
        Ok(events(&rig, &pod, "Killing").await?.len() == 1)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_runs_no_hook_and_waits_for_nothing() -> Result<()> {
    let mut rig = Rig::with(&ACTING).await?;
    let pod = cri::run_pod(&mut rig.client, "kill", &[(LIVENESS, &probe("onFailure: kill"))]).await?;
    let annotations = [("io.kubernetes.container.preStopHandler", r#"{"sleep": {"seconds": 600}}"#)];
    let id = run_app(&mut rig.client, &pod, &annotations, |_| {}).await?;
    is_healthy(&rig, &pod).await?;
    fall_ill(&mut rig, &id).await?;
    exits_with(&mut rig.past, &id, 137).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_brings_the_same_container_back_and_it_is_probed_anew() -> Result<()> {
    let mut rig = Rig::with(&ACTING).await?;
    let on_failure = r#"onFailure: restart, onFailureCommand: {command: [sh, -c, "echo last words"]}"#;
    let pod = run_unmanaged(&mut rig.client, "back", &[(LIVENESS, &probe(on_failure))]).await?;
    let id = run_app(&mut rig.client, &pod, &[("note", "kept")], |config| {
        config.envs = vec![pb::KeyValue { key: "SECRET".into(), value: "s3cr3t".into() }];
        config.labels.insert("tier".into(), "front".into());
        config.log_path = "app.log".into();
    })
    .await?;
    is_healthy(&rig, &pod).await?;
    let verbose = async |client: &mut Cri, id: &ContainerId| -> Result<Value> {
        let request = pb::ContainerStatusRequest { container_id: id.to_string(), verbose: true };
        let info = client.container_status(request).await?.into_inner().info;
        let info: Value = serde_json::from_str(info.get("info").context("it has info")?)?;
        Ok(info["config"].clone())
    };
    let before = verbose(&mut rig.past, &id).await?;
    fall_ill(&mut rig, &id).await?;
    let again = runs_once(&mut rig.past, &pod, 1).await?;
    let mut after = verbose(&mut rig.past, &again).await?;
    ensure!(after["metadata"]["attempt"] == 1, "{after}");
    after["metadata"]["attempt"] = json!(0);
    ensure!(before == after, "{before}\n{after}");
    is_healthy(&rig, &pod).await?;
    ensure!(
        events(&rig, &pod, "Killing").await? == ["Container app failed liveness probe, will be restarted"]
    );
    ensure!(has_event(&rig, &pod, "Restarted").await? == "Container app was restarted as attempt 1");
    ensure!(has_event(&rig, &pod, "FailureCommand").await?.contains("last words"));
    let (_, described) = rig.daemon.run(&["describe", "default/back/app/liveness"])?;
    ensure!(described.contains("last words") && described.contains("restart"), "{described}");

    // The second one waits: 10 s from the exit.
    fall_ill(&mut rig, &again).await?;
    rig.becomes(&pod, "liveness", "waits for its back-off", |probe| {
        probe["reason"].as_str().is_some_and(|reason| reason.contains("back-off"))
    })
    .await?;
    let state = fs::read_to_string(rig.daemon.state().join("acts.json"))?;
    ensure!(!state.contains("s3cr3t"), "no value of the environment is written");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_act_only_reports_and_says_why() -> Result<()> {
    let mut rig = Rig::with(&[("CRIPROBE_ACT_ENABLED", "true")]).await?;
    let managed = cri::run_pod(&mut rig.client, "managed", &[(LIVENESS, &probe("onFailure: stop"))]).await?;
    let id = run_app(&mut rig.client, &managed, &[], |_| {}).await?;
    is_healthy(&rig, &managed).await?;
    fall_ill(&mut rig, &id).await?;
    let failed = rig.becomes(&managed, "liveness", "fails", |probe| probe["state"] == "failure").await?;
    ensure!(failed["onFailure"] == "report", "{failed}");
    cri::exec(&mut rig.past, &id, &["rm", "sick"]).await?;
    rig.becomes(&managed, "liveness", "recovers", |probe| probe["state"] == "success").await?;

    let (_folder, file) = configured(
        "act: {enabled: true, namespaces: ['*']}\nrules:\n  - name: heal\n    match: {pod: kubelets}\n    liveness: \
         {exec: {command: [test, '!', -e, sick]}, period: 100ms, failureThreshold: 1, onFailure: restart}\n",
    )?;
    let mut rig = Rig::with(&[("CRIPROBE_CONFIG", &file)]).await?;
    let kubelets = cri::run_pod(&mut rig.client, "kubelets", &[]).await?;
    let id = run_app(&mut rig.client, &kubelets, &[], |_| {}).await?;
    is_healthy(&rig, &kubelets).await?;
    fall_ill(&mut rig, &id).await?;
    let failed = rig.becomes(&kubelets, "liveness", "fails", |probe| probe["state"] == "failure").await?;
    ensure!(failed["actRefusal"].as_str().is_some_and(|reason| reason.contains("kubelet")), "{failed}");
    stays("it runs on", Duration::from_secs(1), async || {
        Ok(cri::container_state(&mut rig.past, &id).await?.0 == ContainerState::ContainerRunning)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_reports_what_would_be_done_once() -> Result<()> {
    let settings = [ACTING[0], ACTING[1], ("CRIPROBE_ACT_DRY_RUN", "true")];
    let mut rig = Rig::with(&settings).await?;
    let pod = run_unmanaged(&mut rig.client, "dry", &[(LIVENESS, &probe("onFailure: restart"))]).await?;
    let id = run_app(&mut rig.client, &pod, &[], |_| {}).await?;
    is_healthy(&rig, &pod).await?;
    fall_ill(&mut rig, &id).await?;
    let said = has_event(&rig, &pod, "WouldAct").await?;
    ensure!(said == "Container app failed liveness probe: would be restarted (act.dryRun)", "{said}");
    stays("it runs on, and that is said once", Duration::from_secs(1), async || {
        let (state, _) = cri::container_state(&mut rig.past, &id).await?;
        Ok(state == ContainerState::ContainerRunning && events(&rig, &pod, "WouldAct").await?.len() == 1)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stops_the_container_meanwhile_wins() -> Result<()> {
    let mut rig = Rig::with(&ACTING).await?;
    let pod = run_unmanaged(&mut rig.client, "theirs", &[(LIVENESS, &probe("onFailure: restart"))]).await?;
    let hook = [("io.kubernetes.container.preStopHandler", r#"{"sleep": {"seconds": 5}}"#)];
    let id = run_app(&mut rig.client, &pod, &hook, |_| {}).await?;
    is_healthy(&rig, &pod).await?;
    fall_ill(&mut rig, &id).await?;
    has_event(&rig, &pod, "Killing").await?;
    let stop = pb::StopContainerRequest { container_id: id.to_string(), timeout: 5 };
    rig.client.stop_container(stop).await?;
    stays("it stays stopped", Duration::from_secs(3), async || {
        let all = containers(&mut rig.past, &pod).await?;
        Ok(matches!(&all[..], [(left, 0, ContainerState::ContainerExited)] if *left == id))
    })
    .await?;
    ensure!(rig.daemon.status().await?["acts"]["inProgress"] == 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_removes_a_stopped_container_in_its_back_off_wins() -> Result<()> {
    let mut rig = Rig::with(&ACTING).await?;
    let pod = run_unmanaged(&mut rig.client, "gone", &[(LIVENESS, &probe("onFailure: restart"))]).await?;
    let id = run_app(&mut rig.client, &pod, &[], |_| {}).await?;
    is_healthy(&rig, &pod).await?;
    fall_ill(&mut rig, &id).await?;
    let second = runs_once(&mut rig.past, &pod, 1).await?;
    is_healthy(&rig, &pod).await?;
    fall_ill(&mut rig, &second).await?;
    rig.becomes(&pod, "liveness", "waits for its back-off", |probe| {
        probe["reason"].as_str().is_some_and(|reason| reason.contains("back-off"))
    })
    .await?;
    rig.client.remove_container(pb::RemoveContainerRequest { container_id: second.to_string() }).await?;
    stays("nothing comes back", Duration::from_secs(12), async || {
        Ok(containers(&mut rig.past, &pod).await?.is_empty())
    })
    .await
}

/// Twenty at once: one at a time, six a minute, and the rest is listed as withheld.
#[tokio::test(flavor = "multi_thread")]
async fn a_shared_fault_does_not_take_the_whole_node_down() -> Result<()> {
    let mut rig = Rig::with(&ACTING).await?;
    let mut apps = Vec::new();
    for number in 0..20 {
        let pod =
            cri::run_pod(&mut rig.client, &format!("n{number}"), &[(LIVENESS, &probe("onFailure: stop"))])
                .await?;
        let id = run_app(&mut rig.client, &pod, &[], |_| {}).await?;
        apps.push((pod, id));
    }
    for (pod, _) in &apps {
        is_healthy(&rig, pod).await?;
    }
    for (_, id) in &apps {
        fall_ill(&mut rig, id).await?;
    }
    let withheld = eventually("six are stopped, and the others withheld", PATIENCE, async || {
        let probes = rig.daemon.probes().await?;
        let withheld: Vec<_> =
            probes.into_iter().filter(|probe| probe["act"]["step"] == "withheld").collect();
        let status = rig.daemon.status().await?;
        ensure!(status["acts"]["inProgress"].as_u64() <= Some(1), "{status}");
        let are_done = status["acts"]["lastMinute"] == 6 && status["acts"]["inProgress"] == 0;
        Ok((withheld.len() == 14 && are_done).then_some(withheld))
    })
    .await?;
    for probe in &withheld {
        ensure!(probe["act"]["reason"] == "6 acts in the last minute (act.maxPerMinute)", "{probe}");
    }
    let mut stopped = 0;
    for (_, id) in &apps {
        let (state, _) = cri::container_state(&mut rig.past, id).await?;
        stopped += usize::from(state == ContainerState::ContainerExited);
    }
    ensure!(stopped == 6, "{stopped} are stopped");

    // One that recovers is no longer asked for: with room for all, it runs on.
    let (_, saved) = apps.pop().context("there is one")?;
    let is_left = cri::container_state(&mut rig.past, &saved).await?.0 == ContainerState::ContainerRunning;
    ensure!(is_left, "the last one that asked was not among the first");
    Ok(())
}

/// A kubelet restarts what exits, by its own policy.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_and_a_kubelet_get_along() -> Result<()> {
    let mut rig = Rig::with(&ACTING).await?;
    let pod = cri::run_pod(&mut rig.client, "kubelet", &[(LIVENESS, &probe("onFailure: stop"))]).await?;
    let mut id = run_app(&mut rig.client, &pod, &[], |_| {}).await?;
    for attempt in 1..=3 {
        is_healthy(&rig, &pod).await?;
        fall_ill(&mut rig, &id).await?;
        exits_with(&mut rig.past, &id, 7).await?;
        let next = run_app(&mut rig.client, &pod, &[], |config| {
            config.metadata = Some(pb::ContainerMetadata { name: "app".into(), attempt });
        })
        .await?;
        rig.client.remove_container(pb::RemoveContainerRequest { container_id: id.to_string() }).await?;
        let probe = rig
            .becomes(&pod, "liveness", "is probed again", |probe| {
                probe["containerId"] == next.as_str() && probe["state"] == "success"
            })
            .await?;
        ensure!(probe["phase"] == "probing", "{probe}");
        id = next;
    }
    ensure!(events(&rig, &pod, "Killing").await?.len() == 3);
    Ok(())
}

/// What exits by itself comes back only where the operator says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_exits_comes_back_where_the_operator_says_so() -> Result<()> {
    for (setting, code, comes_back) in
        [("never", 3, false), ("onFailure", 3, true), ("onFailure", 0, false), ("always", 0, true)]
    {
        let settings = [ACTING[0], ACTING[1], ("CRIPROBE_ACT_RESTART_ON_EXIT", setting)];
        let mut rig = Rig::with(&settings).await?;
        let pod =
            run_unmanaged(&mut rig.client, "exits", &[(LIVENESS, &probe("onFailure: restart"))]).await?;
        let exits = format!("until [ -e go ]; do sleep 0.02; done; exit {code}");
        let id = run_app(&mut rig.client, &pod, &[], |config| {
            config.command = ["sh", "-c", &exits].map(str::to_owned).to_vec();
        })
        .await?;
        is_healthy(&rig, &pod).await?;
        // The container may end before this is answered.
        let _ = cri::exec(&mut rig.past, &id, &["touch", "go"]).await;
        if comes_back {
            runs_once(&mut rig.past, &pod, 1).await.with_context(|| format!("{setting} {code}"))?;
        } else {
            exits_with(&mut rig.past, &id, code).await?;
            stays("it stays as it is", Duration::from_secs(1), async || {
                Ok(containers(&mut rig.past, &pod).await?.len() == 1)
            })
            .await?;
        }
    }
    Ok(())
}

/// Killed at every step: after the next start the container runs exactly once.
#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_step_of_a_restart_the_container_runs_exactly_once() -> Result<()> {
    let faults = tempfile::tempdir()?;
    let folder = faults.path().to_str().context("a path of ours")?.to_owned();
    let settings =
        [ACTING[0], ACTING[1], ("CRIPROBE_FAULTS", &folder), ("CRIPROBE_ACT_MAX_PER_MINUTE", "600")];
    let mut rig = Rig::with(&settings).await?;
    let on_failure = "onFailure: restart, onFailureCommand: {command: [\"true\"]}";
    let hook = [("io.kubernetes.container.preStopHandler", r#"{"exec": {"command": ["touch", "hooked"]}}"#)];
    let steps = [
        "recorded", "held", "command", "hook", "stopping", "stopped", "creating", "created", "started",
        "removed",
    ];
    for step in steps {
        let pod = run_unmanaged(&mut rig.client, step, &[(LIVENESS, &probe(on_failure))]).await?;
        let id = run_app(&mut rig.client, &pod, &hook, |_| {}).await?;
        is_healthy(&rig, &pod).await?;
        fs::write(Path::new(&folder).join(format!("act-{step}")), "")?;
        fall_ill(&mut rig, &id).await?;
        rig.daemon.start_again(rig.runtime.socket(), &settings).await.with_context(|| step.to_owned())?;
        rig.client = rig.daemon.client().await?;
        let left = runs_once(&mut rig.past, &pod, 1).await.with_context(|| step.to_owned())?;
        is_healthy(&rig, &pod).await?;
        if step == "stopping" {
            let exited = has_event(&rig, &pod, "Exited").await?;
            ensure!(exited.ends_with(": criprobe stopped it"), "{exited}");
        }
        stays("it stays so", Duration::from_millis(500), async || {
            let all = containers(&mut rig.past, &pod).await?;
            Ok(matches!(&all[..], [(id, 1, ContainerState::ContainerRunning)] if *id == left))
        })
        .await
        .with_context(|| step.to_owned())?;
        let stop = pb::StopPodSandboxRequest { pod_sandbox_id: pod.id.to_string() };
        rig.client.stop_pod_sandbox(stop).await?;
    }
    Ok(())
}

/// A verdict that was saved, or fell while the runtime was away, does not act: only one from fresh attempts does.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_acted_on_before_a_fresh_verdict() -> Result<()> {
    let patient =
        "{exec: {command: [test, '!', -e, sick]}, period: 100ms, failureThreshold: 30, onFailure: stop}";
    let mut rig = Rig::with(&ACTING).await?;
    let pod = cri::run_pod(&mut rig.client, "fresh", &[(LIVENESS, patient)]).await?;
    let id = run_app(&mut rig.client, &pod, &[], |_| {}).await?;
    is_healthy(&rig, &pod).await?;
    fall_ill(&mut rig, &id).await?;
    rig.becomes(&pod, "liveness", "has failed often", |probe| probe["counts"]["failure"].as_u64() > Some(20))
        .await?;
    rig.daemon.signal(Signal::TERM);
    rig.daemon.start_again(rig.runtime.socket(), &ACTING).await?;
    let failures = |probe: &Value| probe["counts"]["failure"].as_u64().unwrap_or_default();
    let before = failures(&rig.daemon.probe(&pod, "app", "liveness").await?.unwrap_or_default());
    has_event(&rig, &pod, "Killing").await?;
    let after = failures(&rig.daemon.probe(&pod, "app", "liveness").await?.unwrap_or_default());
    ensure!(after >= before + 29, "{before} failures before, {after} after");
    Ok(())
}

/// What the runtime refuses is tried again, and shown; the container is not lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_creation_that_fails_is_tried_again_and_visible() -> Result<()> {
    let mut rig = Rig::with(&ACTING).await?;
    let pod = run_unmanaged(&mut rig.client, "again", &[(LIVENESS, &probe("onFailure: restart"))]).await?;
    let id = run_app(&mut rig.client, &pod, &[], |_| {}).await?;
    is_healthy(&rig, &pod).await?;
    rig.once("CreateContainer", FaultKind::Code(Code::Internal, "no space left".into()));
    fall_ill(&mut rig, &id).await?;
    let shown = rig
        .becomes(&pod, "liveness", "shows the failed restart", |probe| {
            probe["reason"].as_str().is_some_and(|reason| reason.contains("no space left"))
        })
        .await?;
    ensure!(shown["act"]["step"] == "retrying", "{shown}");
    ensure!(has_event(&rig, &pod, "ActFailed").await?.contains("no space left"));
    let (_, metrics) = rig.daemon.get("/metrics").await?;
    let failed = metrics.lines().find(|line| {
        line.starts_with("criprobe_acts_total") && line.contains("restart") && line.contains("failed")
    });
    ensure!(failed.is_some_and(|line| !line.ends_with(" 0")), "a try that failed is counted: {failed:?}");
    let ids: HashSet<_> = containers(&mut rig.past, &pod).await?.into_iter().map(|(id, ..)| id).collect();
    ensure!(ids == HashSet::from([id]), "the dead container is kept");
    runs_once(&mut rig.past, &pod, 1).await?;
    Ok(())
}

/// An outage of the runtime is no failure of the container: no back-off follows.
#[tokio::test(flavor = "multi_thread")]
async fn a_creation_that_an_outage_cut_off_is_tried_again_when_the_runtime_answers() -> Result<()> {
    let mut rig = Rig::with(&ACTING).await?;
    let pod = run_unmanaged(&mut rig.client, "outage", &[(LIVENESS, &probe("onFailure: restart"))]).await?;
    let id = run_app(&mut rig.client, &pod, &[], |_| {}).await?;
    is_healthy(&rig, &pod).await?;
    let starting = "server is not initialized yet";
    rig.once("CreateContainer", FaultKind::Code(Code::Unavailable, starting.into()));
    fall_ill(&mut rig, &id).await?;
    rig.becomes(&pod, "liveness", "waits for the runtime", |probe| {
        let reason = probe["reason"].as_str().unwrap_or_default();
        reason.contains("Z, next try when the runtime answers: server is not initialized yet")
            && probe["act"]["nextAt"].is_null()
    })
    .await?;
    runs_once(&mut rig.past, &pod, 1).await?;
    let act = rig.daemon.json("/v1/pods").await?.to_string();
    ensure!(!act.contains("next try"), "{act}");
    Ok(())
}

/// A successor that was created and did not start is our own: it is started again, not taken for a client's.
#[tokio::test(flavor = "multi_thread")]
async fn a_successor_whose_start_fails_is_started_again() -> Result<()> {
    let mut rig = Rig::with(&ACTING).await?;
    let pod = run_unmanaged(&mut rig.client, "late", &[(LIVENESS, &probe("onFailure: restart"))]).await?;
    let id = run_app(&mut rig.client, &pod, &[], |_| {}).await?;
    is_healthy(&rig, &pod).await?;
    rig.once("StartContainer", FaultKind::Code(Code::Unavailable, "not now".into()));
    fall_ill(&mut rig, &id).await?;
    eventually("attempt 1 alone is left, and runs", 2 * PATIENCE, async || {
        let all = containers(&mut rig.past, &pod).await?;
        Ok(matches!(&all[..], [(_, 1, ContainerState::ContainerRunning)]).then_some(()))
    })
    .await?;
    ensure!(events(&rig, &pod, "ActGivenUp").await?.is_empty());
    Ok(())
}

/// It ends while its hook runs, and criprobe is killed: the act goes on where it would have been without either.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_ends_before_it_is_stopped_comes_back_after_a_crash() -> Result<()> {
    let mut rig = Rig::with(&ACTING).await?;
    let pod = run_unmanaged(&mut rig.client, "ended", &[(LIVENESS, &probe("onFailure: restart"))]).await?;
    let hook = [("io.kubernetes.container.preStopHandler", r#"{"sleep": {"seconds": 9}}"#)];
    let id = run_app(&mut rig.client, &pod, &hook, |_| {}).await?;
    is_healthy(&rig, &pod).await?;
    fall_ill(&mut rig, &id).await?;
    rig.becomes(&pod, "liveness", "runs its hook", |probe| probe["act"]["step"] == "preStop").await?;
    rig.daemon.signal(Signal::KILL);
    let stop = pb::StopContainerRequest { container_id: id.to_string(), timeout: 5 };
    rig.past.stop_container(stop).await?;
    rig.daemon.start_again(rig.runtime.socket(), &ACTING).await?;
    runs_once(&mut rig.past, &pod, 1).await?;
    Ok(())
}

/// A client removes the container while we are down: its successor, which was created and never started, goes as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_successor_of_a_container_that_was_removed_is_not_left_behind() -> Result<()> {
    let faults = tempfile::tempdir()?;
    let folder = faults.path().to_str().context("a path of ours")?.to_owned();
    let settings = [ACTING[0], ACTING[1], ("CRIPROBE_FAULTS", &folder)];
    let mut rig = Rig::with(&settings).await?;
    let pod = run_unmanaged(&mut rig.client, "unwanted", &[(LIVENESS, &probe("onFailure: restart"))]).await?;
    let id = run_app(&mut rig.client, &pod, &[], |_| {}).await?;
    is_healthy(&rig, &pod).await?;
    fs::write(Path::new(&folder).join("act-created"), "")?;
    fall_ill(&mut rig, &id).await?;
    eventually("its successor is created", PATIENCE, async || {
        let all = containers(&mut rig.past, &pod).await?;
        Ok(all.iter().any(|(_, attempt, _)| *attempt == 1).then_some(()))
    })
    .await?;
    rig.past.remove_container(pb::RemoveContainerRequest { container_id: id.to_string() }).await?;
    rig.daemon.start_again(rig.runtime.socket(), &settings).await?;
    eventually("it is removed", PATIENCE, async || {
        Ok(containers(&mut rig.past, &pod).await?.is_empty().then_some(()))
    })
    .await
}

/// A stop of a former run is not asked for again if the operator does not want it any more.
#[tokio::test(flavor = "multi_thread")]
async fn an_act_that_is_no_longer_wanted_is_not_finished_after_a_crash() -> Result<()> {
    let faults = tempfile::tempdir()?;
    let folder = faults.path().to_str().context("a path of ours")?.to_owned();
    let settings = [ACTING[0], ACTING[1], ("CRIPROBE_FAULTS", &folder), ("CRIPROBE_ACT_GRACE_PERIOD", "2s")];
    let mut rig = Rig::with(&settings).await?;
    let pod = run_unmanaged(&mut rig.client, "spared", &[(LIVENESS, &probe("onFailure: restart"))]).await?;
    let until_go = "until [ -e go ]; do sleep 0.02; done; exit 3";
    let id = run_app(&mut rig.client, &pod, &[], |config| {
        config.command = ["sh", "-c", until_go].map(str::to_owned).to_vec();
    })
    .await?;
    is_healthy(&rig, &pod).await?;
    fs::write(Path::new(&folder).join("act-stopping"), "")?;
    fall_ill(&mut rig, &id).await?;
    rig.daemon.start_again(rig.runtime.socket(), &[]).await?;
    let reason = has_event(&rig, &pod, "ActGivenUp").await?;
    ensure!(reason.contains("may not act any more"), "{reason}");
    let all = containers(&mut rig.past, &pod).await?;
    ensure!(matches!(&all[..], [(left, 0, ContainerState::ContainerRunning)] if *left == id), "{all:?}");
    cri::exec(&mut rig.past, &id, &["touch", "go"]).await?;
    let exited = has_event(&rig, &pod, "Exited").await?;
    ensure!(!exited.contains("criprobe"), "it is not our doing any more: {exited}");
    Ok(())
}

/// What a hook prints may be a secret: it is in the event, which needs the right to read, and not in the log.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_failed_hook_prints_is_not_logged() -> Result<()> {
    let mut rig = Rig::with(&ACTING).await?;
    let pod = cri::run_pod(&mut rig.client, "leaky", &[(LIVENESS, &probe("onFailure: stop"))]).await?;
    let hook = r#"{"exec": {"command": ["sh", "-c", "echo s3cr3t; exit 1"]}}"#;
    let id =
        run_app(&mut rig.client, &pod, &[("io.kubernetes.container.preStopHandler", hook)], |_| {}).await?;
    is_healthy(&rig, &pod).await?;
    fall_ill(&mut rig, &id).await?;
    exits_with(&mut rig.past, &id, 7).await?;
    ensure!(has_event(&rig, &pod, "FailedPreStopHook").await?.contains("s3cr3t"));
    let log = rig.daemon.log();
    ensure!(log.contains("failed liveness probe") && !log.contains("s3cr3t"), "{log}");
    Ok(())
}
