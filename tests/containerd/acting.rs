//! Verdicts of failure act on real containers: stopped after their hook and within their grace, restarted as they were,
//! and left to whoever else has a hand in it.

mod outages;

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result, ensure};
use criprobe::{
    ids::ContainerId,
    proto::cri::{self as pb, ContainerState},
};
use serde_json::{Value, json};

use crate::{
    paused::{pause, task},
    recipe::{self, Creation},
    support::{
        PATIENCE,
        containerd::Lab,
        cri::{self, Container, Cri, Pod},
        daemon::Daemon,
        eventually, stays,
    },
};

const LIVENESS: &str = "liveness.criprobe.dev/app";
const HOOK: &str = "io.kubernetes.container.preStopHandler";
const GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";

/// Acting is on, pods' annotations may ask for it, and no budget delays a test.
const ACTING: [(&str, &str); 5] = [
    ("CRIPROBE_ACT_ENABLED", "true"),
    ("CRIPROBE_ACT_NAMESPACES", "default"),
    ("CRIPROBE_ACT_MAX_PER_MINUTE", "100"),
    ("CRIPROBE_ACT_MAX_CONCURRENT", "10"),
    ("CRIPROBE_ACT_RESTART_ON_EXIT", "onFailure"),
];

/// Ends with 42 if its hook ran before it was asked to end, and with 7 else.
const POLITE: [&str; 3] =
    ["sh", "-c", "trap '[ ! -e /tmp/hooked ] || exit 42; exit 7' TERM; while :; do sleep 0.2; done"];

/// Does not end when it is asked to.
const STUBBORN: [&str; 3] = ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"];

/// The second restart is 10 s after the exit.
const BACK_OFF: Duration = Duration::from_secs(10);

/// Fails as soon as the file is there.
const CHECK: &str = r#"exec: {command: [test, "!", -e, /tmp/ill]}"#;

/// Fails with its first failure.
fn probe(settings: &str) -> String {
    format!("{{{CHECK}, period: 500ms, failureThreshold: 1, {settings}}}")
}

/// A daemon in front of a runtime, with clients of both.
struct Stage {
    daemon: Daemon,
    /// Through the relay.
    client: Cri,
    /// Past the relay.
    past: Cri,
}

impl Stage {
    async fn before(lab: &Lab, more: &[(&str, &str)]) -> Result<Self> {
        let settings = [&ACTING, more].concat();
        let mut daemon = Daemon::spawn(&lab.socket(), &settings)?;
        daemon.ready().await?;
        Ok(Self { client: daemon.client().await?, past: lab.client().await?, daemon })
    }

    /// A pod with this liveness probe of its container `app`, which runs this command.
    async fn run(
        &self,
        (name, is_kubelets): (&str, bool),
        probe: &str,
        (command, annotations): (&[&str], &[(&str, &str)]),
    ) -> Result<Scene<'_>> {
        let mut client = self.client.clone();
        let pod = cri::run_sandbox(&mut client, pod_config(name, is_kubelets, probe)).await?;
        let id = run_app(&mut client, &pod, command, annotations, 0).await?;
        Ok(Scene::of(self, pod, id))
    }

    /// One that is `polite`, healthy, and restarted when it fails.
    async fn run_healthy(&self, name: &str, annotations: &[(&str, &str)]) -> Result<Scene<'_>> {
        let scene = self.run((name, false), &probe("onFailure: restart"), (&POLITE, annotations)).await?;
        scene.is_healthy().await?;
        Ok(scene)
    }
}

/// The definition of a pod whose container `app` has this liveness probe.
fn pod_config(name: &str, is_kubelets: bool, probe: &str) -> pb::PodSandboxConfig {
    let mut config = cri::pod_config(name, &[(LIVENESS, probe)]);
    if !is_kubelets {
        config.labels.remove("io.kubernetes.pod.uid");
    }
    config
}

async fn run_app(
    client: &mut Cri,
    pod: &Pod,
    command: &[&str],
    annotations: &[(&str, &str)],
    attempt: u32,
) -> Result<ContainerId> {
    let mut request = cri::creation(pod, &Container { command, annotations, ..Container::IDLE });
    if let Some(config) = &mut request.config {
        config.metadata = Some(pb::ContainerMetadata { name: "app".to_owned(), attempt });
    }
    let container_id = client.create_container(request).await?.into_inner().container_id;
    client.start_container(pb::StartContainerRequest { container_id: container_id.clone() }).await?;
    Ok(container_id.into())
}

/// The containers `app` of a pod, by attempt: id, attempt, state.
async fn apps(client: &mut Cri, pod: &Pod) -> Result<Vec<(ContainerId, u32, ContainerState)>> {
    let filter = pb::ContainerFilter { pod_sandbox_id: pod.id.to_string(), ..Default::default() };
    let list = client.list_containers(pb::ListContainersRequest { filter: Some(filter) }).await?.into_inner();
    let apps = list.containers.into_iter().filter_map(|container| {
        let (state, metadata) = (container.state(), container.metadata?);
        (metadata.name == "app").then(|| (container.id.into(), metadata.attempt, state))
    });
    let mut apps: Vec<_> = apps.collect();
    apps.sort_by_key(|(_, attempt, _)| *attempt);
    Ok(apps)
}

/// One pod, and its container `app` as it is now.
struct Scene<'a> {
    stage: &'a Stage,
    client: Cri,
    past: Cri,
    pod: Pod,
    id: ContainerId,
}

impl<'a> Scene<'a> {
    fn of(stage: &'a Stage, pod: Pod, id: ContainerId) -> Self {
        Self { stage, client: stage.client.clone(), past: stage.past.clone(), pod, id }
    }

    async fn becomes(&self, what: &str, is_wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        self.stage.daemon.probe_becomes((&self.pod, "app", "liveness"), what, PATIENCE, is_wanted).await
    }

    async fn is_healthy(&self) -> Result<Value> {
        self.becomes("is healthy", |probe| {
            probe["containerId"] == self.id.as_str() && probe["last"]["result"] == "success"
        })
        .await
    }

    async fn fall_ill(&mut self) -> Result<()> {
        cri::exec(&mut self.past, &self.id, &["touch", "/tmp/ill"]).await?;
        Ok(())
    }

    async fn status(&mut self) -> Result<pb::ContainerStatus> {
        let request = pb::ContainerStatusRequest { container_id: self.id.to_string(), verbose: false };
        self.past.container_status(request).await?.into_inner().status.context("it has a status")
    }

    /// Its status, once it does not run any more.
    async fn exited(&mut self) -> Result<pb::ContainerStatus> {
        eventually("the container exits", PATIENCE, async || {
            Ok(Some(self.status().await?).filter(|status| status.state() == ContainerState::ContainerExited))
        })
        .await
    }

    /// This attempt runs and is the only one; until then there was always one container at least.
    async fn runs_once(&mut self, attempt: u32) -> Result<()> {
        let id = eventually(&format!("attempt {attempt} alone is left, and runs"), PATIENCE, async || {
            let all = apps(&mut self.past, &self.pod).await?;
            let is_kept =
                all.iter().any(|(id, _, state)| *id == self.id || *state == ContainerState::ContainerRunning);
            ensure!(is_kept, "the former one was removed before its successor ran: {all:?}");
            Ok(match &all[..] {
                [(id, is, ContainerState::ContainerRunning)] if *is == attempt => Some(id.clone()),
                _ => None,
            })
        })
        .await?;
        self.id = id;
        Ok(())
    }

    /// The messages of its events of this reason, and when they were, the oldest first.
    /// When and what, as often as it happened.
    async fn events(&self, reason: &str) -> Result<Vec<(SystemTime, String)>> {
        let name = self.pod.config.metadata.clone().unwrap_or_default().name;
        let all = self.stage.daemon.events().await?;
        let of_pod = all.iter().filter(|event| event["pod"] == *name && event["reason"] == reason);
        let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
        let times = |event: &Value| usize::try_from(event["count"].as_u64().unwrap_or(1)).unwrap_or(1);
        of_pod
            .flat_map(|event| std::iter::repeat_n(event, times(event)))
            .map(|event| Ok((humantime::parse_rfc3339(&text(event, "at"))?, text(event, "message"))))
            .collect()
    }

    async fn has_event(&self, reason: &str) -> Result<(SystemTime, String)> {
        self.has_events(reason, 1).await
    }

    /// The last of so many events of this reason.
    async fn has_events(&self, reason: &str, number: usize) -> Result<(SystemTime, String)> {
        eventually(&format!("there are {number} events {reason}"), PATIENCE, async || {
            let mut events = self.events(reason).await?;
            Ok(if events.len() == number { events.pop() } else { None })
        })
        .await
    }

    /// It was restarted once, has failed again, and waits for its second restart.
    async fn backs_off(&mut self) -> Result<()> {
        self.fall_ill().await?;
        self.runs_once(1).await?;
        self.is_healthy().await?;
        self.fall_ill().await?;
        self.becomes("waits for its back-off", |probe| probe["act"]["step"] == "backOff").await?;
        Ok(())
    }

    /// The act ends as a client has taken over, and 12 s later all is as the client left it.
    async fn is_left_to_the_client(
        &mut self,
        reasons: &[&str],
        left: &[(ContainerId, u32, ContainerState)],
    ) -> Result<()> {
        let (_, message) = self.has_event("ActGivenUp").await?;
        let reason = message.strip_prefix("restart of container app was given up: ").unwrap_or_default();
        ensure!(reasons.contains(&reason), "{message}");
        stays("nothing is done", BACK_OFF + Duration::from_secs(2), async || {
            Ok(apps(&mut self.past, &self.pod).await? == left)
        })
        .await
    }
}

fn at(nanos: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos.unsigned_abs())
}

/// All at once: most of their time they wait.
#[tokio::test(flavor = "multi_thread")]
async fn containers_that_fail_are_stopped_and_restarted_as_with_a_kubelet() -> Result<()> {
    let Some(lab) = Lab::start()? else { return Ok(()) };
    let logs = tempfile::Builder::new().prefix("criprobe-acting-").tempdir()?;
    let logs = logs.path().to_str().context("a path of ours")?;
    let mut past = lab.client().await?;
    let former = run_with_many_options(&lab.socket(), &mut past, "former", logs, |_| {}).await?;
    let stage = &Stage::before(&lab, &[]).await?;
    let seen = run_with_many_options(&stage.daemon.socket(), &mut past, "seen", logs, |_| {}).await?;
    let (hook, grace, kubelet, seen, former, exits, memory) = tokio::join!(
        a_container_is_stopped_after_its_hook(stage),
        a_container_that_ignores_it_is_killed_after_its_grace(stage),
        a_stop_and_a_kubelet_get_along(stage),
        it_comes_back_as_it_was(stage, seen),
        it_comes_back_as_it_was(stage, former),
        a_container_that_exits_by_itself_backs_off(stage),
        a_container_that_runs_out_of_memory_comes_back(stage, logs),
    );
    hook.context("hook")?;
    grace.context("grace")?;
    kubelet.context("kubelet")?;
    seen.context("created through criprobe")?;
    former.context("created before criprobe ran")?;
    exits.context("exits")?;
    memory.context("memory")
}

async fn a_container_is_stopped_after_its_hook(stage: &Stage) -> Result<()> {
    let hook = [(HOOK, r#"{"exec": {"command": ["touch", "/tmp/hooked"]}}"#), (GRACE, "20")];
    let mut scene = stage.run(("hook", true), &probe("onFailure: stop"), (&POLITE, &hook)).await?;
    scene.is_healthy().await?;
    scene.fall_ill().await?;
    let status = scene.exited().await?;
    ensure!(status.exit_code == 42, "the hook ran before: {status:?}");
    scene.becomes("is held", |probe| probe["phase"] == "held" && probe["state"] == "failure").await?;
    stays("it is stopped once", Duration::from_secs(2), async || {
        let said: Vec<_> = scene.events("Killing").await?.into_iter().map(|(_, message)| message).collect();
        Ok(said == ["Container app failed liveness probe"])
    })
    .await
}

/// The whole grace period is for the hook and what comes after it.
async fn a_container_that_ignores_it_is_killed_after_its_grace(stage: &Stage) -> Result<()> {
    let hook = (HOOK, r#"{"sleep": {"seconds": 2}}"#);
    for (name, settings, annotations) in [
        ("grace-of-the-probe", "onFailure: stop, terminationGracePeriodSeconds: 5", [hook, (GRACE, "600")]),
        ("grace-of-the-pod", "onFailure: stop", [hook, (GRACE, "5")]),
    ] {
        let mut scene = stage.run((name, true), &probe(settings), (&STUBBORN, &annotations)).await?;
        scene.is_healthy().await?;
        scene.fall_ill().await?;
        let status = scene.exited().await?;
        ensure!(status.exit_code == 137, "{status:?}");
        let (killing, _) = scene.has_event("Killing").await?;
        let took = at(status.finished_at).duration_since(killing)?;
        eprintln!("{name}: SIGKILL after {took:?}");
        ensure!((4900..7000).contains(&took.as_millis()), "{name}: SIGKILL after {took:?}");
    }
    Ok(())
}

/// A kubelet restarts what exits, by its own policy.
async fn a_stop_and_a_kubelet_get_along(stage: &Stage) -> Result<()> {
    let mut scene = stage.run(("kubelet", true), &probe("onFailure: stop"), (&POLITE, &[])).await?;
    for attempt in 1..=2 {
        scene.is_healthy().await?;
        scene.fall_ill().await?;
        ensure!(scene.exited().await?.exit_code == 7);
        let former = std::mem::replace(
            &mut scene.id,
            run_app(&mut scene.client, &scene.pod, &POLITE, &[], attempt).await?,
        );
        let request = pb::RemoveContainerRequest { container_id: former.to_string() };
        scene.client.remove_container(request).await?;
    }
    let probe = scene.is_healthy().await?;
    ensure!(probe["phase"] == "probing", "{probe}");
    ensure!(scene.events("Killing").await?.len() == 2);
    Ok(())
}

/// A pod with an `app` that has nearly all that a container can have, and one with another beside it.
async fn run_with_many_options(
    socket: &Path,
    past: &mut Cri,
    name: &str,
    logs: &str,
    change: impl FnOnce(&mut recipe::Config),
) -> Result<(Pod, ContainerId, ContainerId)> {
    let config = pod_config(name, false, &probe("onFailure: restart, terminationGracePeriodSeconds: 2"));
    let (pod, sandbox_config) = recipe::run_pod(socket, config, logs).await?;
    let mut options = recipe::many_options(&pod, logs);
    options.labels.remove("io.kubernetes.pod.uid");
    change(&mut options);
    let creation =
        Creation { sandbox: pod.id.to_string(), config: Some(options), sandbox_config: Some(sandbox_config) };
    let made: pb::CreateContainerResponse = recipe::call(socket, "CreateContainer", creation).await?;
    past.start_container(pb::StartContainerRequest { container_id: made.container_id.clone() }).await?;
    let beside = cri::run_container(past, &pod, &Container { name: "beside", ..Container::IDLE }).await?;
    Ok((pod, made.container_id.into(), beside))
}

/// At once for the first time, 10 s after its exit for the second.
async fn it_comes_back_as_it_was(
    stage: &Stage,
    (pod, id, beside): (Pod, ContainerId, ContainerId),
) -> Result<()> {
    let mut scene = Scene::of(stage, pod, id);
    scene.is_healthy().await?;
    let mut expected = recipe::shown(&mut scene.past, &scene.id).await?;
    for (attempt, least) in [(1_u32, Duration::ZERO), (2, BACK_OFF)] {
        scene.fall_ill().await?;
        scene.runs_once(attempt).await?;
        expected["metadata"]["attempt"] = json!(attempt);
        let shown = recipe::shown(&mut scene.past, &scene.id).await?;
        ensure!(shown == expected, "{shown}\n{expected}");
        let probe = scene.is_healthy().await?;
        ensure!(probe["phase"] == "probing" && probe["state"] == "success", "{probe}");
        let (killed, said) = scene.has_events("Killing", attempt as usize).await?;
        ensure!(said == "Container app failed liveness probe, will be restarted", "{said}");
        let (back, said) = scene.has_events("Restarted", attempt as usize).await?;
        ensure!(said == format!("Container app was restarted as attempt {attempt}"), "{said}");
        let took = back.duration_since(killed)?;
        eprintln!("attempt {attempt} after {took:?}");
        ensure!((least..least + Duration::from_secs(6)).contains(&took), "attempt {attempt} after {took:?}");
    }
    let (state, _) = cri::container_state(&mut scene.past, &beside).await?;
    ensure!(state == ContainerState::ContainerRunning, "the one beside it goes on");
    Ok(())
}

async fn a_container_that_exits_by_itself_backs_off(stage: &Stage) -> Result<()> {
    let exits = |code| format!("sleep 3; exit {code}");
    let (fails, ends) = (exits(1), exits(0));
    let settings = probe("onFailure: restart");
    let fails = stage.run(("fails", false), &settings, (&["sh", "-c", &fails], &[])).await;
    let ends = stage.run(("ends", false), &settings, (&["sh", "-c", &ends], &[])).await;
    let (mut fails, mut ends) = (fails?, ends?);
    fails.runs_once(1).await?;
    let first = fails.exited().await?;
    fails.runs_once(2).await?;
    let second = fails.status().await?;
    let took = at(second.started_at).duration_since(at(first.finished_at))?;
    eprintln!("started again {took:?} after the exit");
    ensure!((BACK_OFF..BACK_OFF + Duration::from_secs(4)).contains(&took), "{took:?}");
    ensure!(ends.exited().await?.exit_code == 0 && ends.events("Killing").await?.is_empty());
    Ok(())
}

async fn a_container_that_runs_out_of_memory_comes_back(stage: &Stage, logs: &str) -> Result<()> {
    let grows = "until [ -e /tmp/go ]; do sleep 0.2; done; exec tail /dev/zero";
    let socket = stage.daemon.socket();
    let made = run_with_many_options(&socket, &mut stage.past.clone(), "memory", logs, |options| {
        (options.command, options.args) = (["sh", "-c", grows].map(str::to_owned).to_vec(), Vec::new());
        let resources = options.linux.as_mut().and_then(|linux| linux.resources.as_mut());
        resources.into_iter().for_each(|resources| resources.memory_limit = 16 << 20);
    })
    .await?;
    let mut scene = Scene::of(stage, made.0, made.1);
    for attempt in 1..=2 {
        scene.is_healthy().await?;
        cri::exec(&mut scene.past, &scene.id, &["touch", "/tmp/go"]).await?;
        if attempt == 2 {
            // It waits for its back-off, and can be looked at.
            let status = scene.exited().await?;
            ensure!((status.exit_code, &*status.reason) == (137, "OOMKilled"), "{status:?}");
        }
        scene.runs_once(attempt).await?;
    }
    let (_, said) = scene.has_events("Killing", 2).await?;
    ensure!(said == "Container app exited with code 137, will be restarted", "{said}");
    Ok(())
}

/// Whoever else has a hand in it wins, at every step.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_takes_over_meanwhile_wins() -> Result<()> {
    let Some(lab) = Lab::start()? else { return Ok(()) };
    let stage = &Stage::before(&lab, &[]).await?;
    let (stop, remove, create, pod, paused) = tokio::join!(
        a_client_stops_it_while_its_hook_runs(stage),
        a_client_removes_it_in_its_back_off(stage),
        a_client_makes_the_next_one_in_its_back_off(stage),
        a_client_stops_the_pod_in_its_back_off(stage),
        a_paused_container_is_left_alone(&lab, stage),
    );
    stop.context("StopContainer")?;
    remove.context("RemoveContainer")?;
    create.context("CreateContainer")?;
    pod.context("StopPodSandbox")?;
    paused.context("paused")
}

async fn a_client_stops_it_while_its_hook_runs(stage: &Stage) -> Result<()> {
    let hook = [(HOOK, r#"{"sleep": {"seconds": 60}}"#), (GRACE, "600")];
    let mut scene = stage.run_healthy("stopped", &hook).await?;
    scene.fall_ill().await?;
    scene.becomes("runs its hook", |probe| probe["act"]["step"] == "preStop").await?;
    let request = pb::StopContainerRequest { container_id: scene.id.to_string(), timeout: 5 };
    scene.client.stop_container(request).await?;
    let left = [(scene.id.clone(), 0, ContainerState::ContainerExited)];
    scene.is_left_to_the_client(&["a client stopped or removed the container"], &left).await
}

async fn a_client_removes_it_in_its_back_off(stage: &Stage) -> Result<()> {
    let mut scene = stage.run_healthy("removed", &[]).await?;
    scene.backs_off().await?;
    let request = pb::RemoveContainerRequest { container_id: scene.id.to_string() };
    scene.client.remove_container(request).await?;
    // The first one if that is noticed while containerd still removes it.
    let reasons = ["a client stopped or removed the container", "the container was removed"];
    scene.is_left_to_the_client(&reasons, &[]).await
}

async fn a_client_makes_the_next_one_in_its_back_off(stage: &Stage) -> Result<()> {
    let mut scene = stage.run_healthy("replaced", &[]).await?;
    scene.backs_off().await?;
    let former = (scene.id.clone(), 1, ContainerState::ContainerExited);
    scene.id = run_app(&mut scene.client, &scene.pod, &POLITE, &[], 2).await?;
    let left = [former, (scene.id.clone(), 2, ContainerState::ContainerRunning)];
    scene.is_left_to_the_client(&["a client replaced the container"], &left).await?;
    scene.is_healthy().await?;
    Ok(())
}

async fn a_client_stops_the_pod_in_its_back_off(stage: &Stage) -> Result<()> {
    let mut scene = stage.run_healthy("ended", &[]).await?;
    scene.backs_off().await?;
    let request = pb::StopPodSandboxRequest { pod_sandbox_id: scene.pod.id.to_string() };
    scene.client.stop_pod_sandbox(request).await?;
    let left = [(scene.id.clone(), 1, ContainerState::ContainerExited)];
    scene.is_left_to_the_client(&["the pod was stopped"], &left).await
}

/// Also if it failed before it was paused; then it needs as many failures again.
async fn a_paused_container_is_left_alone(lab: &Lab, stage: &Stage) -> Result<()> {
    let patient = format!("{{{CHECK}, period: 500ms, failureThreshold: 8, onFailure: stop}}");
    let mut scene = stage.run(("paused", true), &patient, (&POLITE, &[])).await?;
    scene.is_healthy().await?;
    scene.fall_ill().await?;
    let failures = |probe: &Value| probe["counts"]["failure"].as_u64().unwrap_or_default();
    scene.becomes("has failed", |probe| failures(probe) >= 3).await?;
    pause(&stage.daemon, &lab.socket(), scene.id.as_str(), (&scene.pod, "liveness")).await?;
    let before = scene.becomes("waits", |probe| probe["reason"] == "the container is paused").await?;
    ensure!(failures(&before) < 8, "{before}");
    stays("it is left alone", Duration::from_secs(6), async || Ok(scene.events("Killing").await?.is_empty()))
        .await?;
    let waited = scene.becomes("still waits", |probe| probe["phase"] == "waiting").await?;
    ensure!(failures(&waited) == failures(&before), "{before}\n{waited}");
    task(&lab.socket(), "resume", scene.id.as_str()).await?;
    ensure!(scene.exited().await?.exit_code == 7);
    let stopped = scene.becomes("is held", |probe| probe["phase"] == "held").await?;
    ensure!(failures(&stopped) >= failures(&waited) + 8, "{waited}\n{stopped}");
    Ok(())
}
