//! Places held by commands and servers that never end: rows 4 and 5.

use std::{
    net::Ipv4Addr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use anyhow::{Result, ensure};
use criprobe::{clock, demo::FaultKind, proto::cri as pb};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use crate::{
    rig::{EAGER, LIVENESS, READINESS, Rig},
    support::{
        PATIENCE,
        cri::{self, Container, Pod},
        eventually,
    },
    variables,
};

/// A command that does not end before its timeout does, which is the longest that an annotation may ask for.
const ENDLESS: &str = r#"{"exec": {"command": ["sleep", "600"]}, "timeoutSeconds": 60, "periodSeconds": 1}"#;

/// A pod in which each container has a liveness and a readiness probe of this definition.
async fn crowd(rig: &mut Rig, name: &str, containers: usize, probe: &str) -> Result<Pod> {
    crowd_in(rig, "default", name, containers, probe).await
}

/// One in this namespace.
async fn crowd_in(rig: &mut Rig, namespace: &str, name: &str, containers: usize, probe: &str) -> Result<Pod> {
    let (pod, _ids) = variables::run(rig, (namespace, name), containers, &[], probe).await?;
    Ok(pod)
}

/// No attempt failed, and next to none was an error: on a machine that is busy with other things, even a command that
/// does nothing may take a second, and then counts among the slow.
fn ensure_well(probe: &Value) -> Result<()> {
    let count = |result: &str| probe["counts"][result].as_u64().unwrap_or_default();
    ensure!(count("failure") == 0 && count("error") <= 1 + count("success") / 20, "{probe}");
    Ok(())
}

/// Waits until a probe was tried so often, and all went well.
async fn goes_on(rig: &Rig, pod: &Pod, kind: &str, times: u64) -> Result<()> {
    let what = format!("is tried {times} times");
    let is_wanted = |probe: &Value| probe["counts"]["success"].as_u64().is_some_and(|made| made >= times);
    let probe = rig.becomes(pod, kind, &what, is_wanted).await?;
    ensure_well(&probe)?;
    Ok(())
}

/// Waits until so many calls of ExecSync have reached the runtime.
async fn execs(rig: &Rig, least: usize) -> Result<()> {
    let faults = rig.faults();
    let what = format!("{least} commands run");
    eventually(&what, PATIENCE, async || Ok((faults.count("ExecSync") >= least).then_some(()))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_04_endless_commands_of_one_pod_delay_no_other_pod() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (before, _) = rig.run("before", &[(LIVENESS, EAGER)], Container::IDLE.command).await?;
    goes_on(&rig, &before, "liveness", 3).await?;
    crowd(&mut rig, "hostile", 8, ENDLESS).await?;
    eventually("its probes run", PATIENCE, async || {
        let all = rig.daemon.probes().await?;
        Ok((all.iter().filter(|probe| probe["pod"] == "hostile").count() == 16).then_some(()))
    })
    .await?;
    // One that was there goes on, and one that comes now is tried at once.
    let made = rig.daemon.probe(&before, "app", "liveness").await?.unwrap_or_default();
    let made = made["counts"]["success"].as_u64().unwrap_or_default();
    goes_on(&rig, &before, "liveness", made + 10).await?;
    let (after, _) =
        rig.run("after", &[(LIVENESS, EAGER), (READINESS, EAGER)], Container::IDLE.command).await?;
    goes_on(&rig, &after, "liveness", 10).await?;
    goes_on(&rig, &after, "readiness", 10).await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_04_endless_commands_of_many_pods_delay_no_probe_that_answers() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (before, _) = rig.run("before", &[(LIVENESS, EAGER)], Container::IDLE.command).await?;
    goes_on(&rig, &before, "liveness", 3).await?;
    for pod in 0..8 {
        crowd(&mut rig, &format!("hostile-{pod}"), 2, ENDLESS).await?;
    }
    // Nine of them run: three quarters of what is for first attempts, as all are of one namespace.
    let made = rig.daemon.probe(&before, "app", "liveness").await?.unwrap_or_default();
    let made = made["counts"]["success"].as_u64().unwrap_or_default();
    goes_on(&rig, &before, "liveness", made + 20).await
}

/// A command that is quick until this file is there, and then does not end.
fn until(file: &Path) -> String {
    let command = json!(["sh", "-c", format!("test ! -e {} || sleep 600", file.display())]);
    json!({"exec": {"command": command}, "timeoutSeconds": 60, "periodSeconds": 1}).to_string()
}

/// How many attempts of a probe went well, as far as all did.
async fn made(rig: &Rig, pod: &Pod) -> Result<u64> {
    let probe = rig.daemon.probe(pod, "app", "liveness").await?.unwrap_or_default();
    ensure_well(&probe)?;
    Ok(probe["counts"]["success"].as_u64().unwrap_or_default())
}

/// Waits until each probe was tried.
async fn all_were_tried(rig: &Rig) -> Result<()> {
    eventually("all were tried", PATIENCE, async || {
        let all = rig.daemon.probes().await?;
        Ok(all.iter().all(|probe| probe["counts"]["success"] != json!(0)).then_some(()))
    })
    .await
}

/// How many probes' last attempts were given up for others.
async fn gave_way(rig: &Rig) -> Result<usize> {
    let is_error = |probe: &Value| {
        let output = probe["last"]["output"].as_str().unwrap_or_default();
        probe["last"]["result"] == "error" && output.starts_with("gave up after ")
    };
    Ok(rig.daemon.probes().await?.iter().filter(|probe| is_error(probe)).count())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_04_probes_that_turn_to_hang_together_delay_no_probe_that_answers() -> Result<()> {
    // The pods that hang are in other namespaces, or in that of the one that answers.
    for namespaces in [["a", "b"], ["default", "default"]] {
        let mut rig = Rig::start().await?;
        let (pod, _) = rig.run("modest", &[(LIVENESS, EAGER)], Container::IDLE.command).await?;
        let go = rig.daemon.dir().join("go");
        for (number, namespace) in namespaces.iter().cycle().take(4).enumerate() {
            crowd_in(&mut rig, namespace, &format!("hostile-{number}"), 4, &until(&go)).await?;
        }
        all_were_tried(&rig).await?;
        std::fs::write(&go, "")?;
        // Each of them is tried again within a second, and would hang for a minute.
        let before = made(&rig, &pod).await?;
        goes_on(&rig, &pod, "liveness", before + 60).await?;
        eventually("attempts gave way", PATIENCE, async || Ok((gave_way(&rig).await? > 0).then_some(())))
            .await?;
        let hung = rig.daemon.events().await?.into_iter().filter(|event| {
            event["message"].as_str().is_some_and(|message| message.contains("others wait for a place"))
        });
        ensure!(hung.count() > 0, "what was given up is listed");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_04_commands_of_just_under_a_second_take_no_others_attempts() -> Result<()> {
    let mut rig = Rig::start().await?;
    let probe = r#"{"exec": {"command": ["sleep", "0.9"]}, "timeoutSeconds": 60, "periodSeconds": 1}"#;
    for number in 0..4 {
        let namespace = ["a", "b"][number % 2];
        crowd_in(&mut rig, namespace, &format!("hostile-{number}"), 8, probe).await?;
    }
    let brisk = r#"{"exec": {"command": ["true"]}, "period": "500ms"}"#;
    let mut pods = Vec::new();
    for number in 0..8 {
        pods.push(
            rig.run(&format!("modest-{number}"), &[(LIVENESS, brisk)], Container::IDLE.command).await?.0,
        );
    }
    all_were_tried(&rig).await?;
    let sum = async |rig: &Rig| {
        let mut sum = 0;
        for pod in &pods {
            sum += made(rig, pod).await?;
        }
        anyhow::Ok(sum)
    };
    // 16 attempts are due each second: 112 in 7 s. Turns without regard to time used made six a second: 112 in 19 s.
    let (before, began) = (sum(&rig).await?, clock::now());
    eventually("their attempts are made", PATIENCE, async || {
        Ok((sum(&rig).await? >= before + 112).then_some(()))
    })
    .await?;
    let took = clock::now() - began;
    ensure!(took < Duration::from_secs(16), "112 attempts in {took:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_04_a_longer_timeout_than_the_operator_allows_is_invalid_with_the_reason() -> Result<()> {
    let endless = r#"{"exec": {"command": ["sleep", "600"]}, "timeoutSeconds": 2147483647}"#;
    let mut rig = Rig::start().await?;
    let (pod, _) = rig.run("endless", &[(LIVENESS, endless)], Container::IDLE.command).await?;
    let probe = rig.becomes(&pod, "liveness", "is listed", |_| true).await?;
    assert_eq!(probe["phase"], "invalid", "{probe}");
    assert_eq!(probe["reason"], "timeout: Forbidden: the operator's maximum is 1m0s (prober.maxTimeout)");
    assert_eq!(rig.faults().count("ExecSync"), 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_04_probes_that_wait_for_too_long_are_shown_and_logged_once() -> Result<()> {
    let places = [("CRIPROBE_PROBER_WORKERS", "1"), ("CRIPROBE_PROBER_EXEC_WORKERS", "1")];
    let mut rig = Rig::with(&places).await?;
    rig.always("ExecSync", FaultKind::Hang);
    let (_, hostile) = rig.run("hostile", &[(LIVENESS, ENDLESS)], Container::IDLE.command).await?;
    execs(&rig, 1).await?;
    let (pod, _) = rig.run("late", &[(LIVENESS, EAGER), (READINESS, EAGER)], Container::IDLE.command).await?;
    let status = eventually("two probes are late", PATIENCE, async || {
        Ok(Some(rig.daemon.status().await?).filter(|status| status["probes"]["late"]["count"] == json!(2)))
    })
    .await?;
    let longest = status["probes"]["late"]["longestSeconds"].as_f64().unwrap_or_default();
    ensure!(longest > 0.2, "{status}");
    let (_, checks) = rig.daemon.get("/readyz?verbose").await?;
    ensure!(checks.contains("[!] probes doubtful: 2 waiting for a place"), "{checks}");
    ensure!(rig.daemon.run(&["status"])?.1.contains("2 waiting for a place"), "the verb shows it, too");
    let probe = rig.daemon.probe(&pod, "app", "liveness").await?.unwrap_or_default();
    ensure!(
        probe["reason"].as_str().is_some_and(|reason| reason.starts_with("has waited for a place")),
        "{probe}"
    );
    let lines =
        |rig: &Rig| rig.daemon.log().lines().filter(|line| line.contains("probes wait for a place")).count();
    assert_eq!(lines(&rig), 1, "{}", rig.daemon.log());

    // It ends with what was in the way.
    rig.faults().clear();
    let container_id = hostile.to_string();
    rig.client.stop_container(pb::StopContainerRequest { container_id, timeout: 0 }).await?;
    goes_on(&rig, &pod, "liveness", 3).await?;
    assert_eq!(rig.daemon.status().await?["probes"].get("late"), None);
    assert_eq!(lines(&rig), 1);
    Ok(())
}

/// Accepts connections and says nothing on them, or only while it is silent; counts those that are open.
struct Silent {
    port: u16,
    open: Arc<AtomicUsize>,
    is_silent: Arc<AtomicBool>,
}

impl Silent {
    async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (port, open) = (listener.local_addr()?.port(), Arc::new(AtomicUsize::new(0)));
        let is_silent = Arc::new(AtomicBool::new(true));
        let (count, silence) = (open.clone(), is_silent.clone());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (count, silence) = (count.clone(), silence.clone());
                count.fetch_add(1, SeqCst);
                tokio::spawn(async move {
                    if !silence.load(SeqCst) {
                        let _ = stream.read(&mut [0; 4096]).await;
                        let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n").await;
                        let _ = stream.shutdown().await;
                    }
                    // The request is read, and then there is nothing but the end.
                    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
                    count.fetch_sub(1, SeqCst);
                });
            }
        });
        Ok(Self { port, open, is_silent })
    }

    fn open(&self) -> usize {
        self.open.load(SeqCst)
    }

    async fn has(&self, what: &str, is_wanted: impl Fn(usize) -> bool) -> Result<()> {
        eventually(what, PATIENCE, async || Ok(is_wanted(self.open()).then_some(()))).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_05_first_attempts_on_silent_servers_leave_places_and_end_with_their_containers() -> Result<()> {
    let mut rig = Rig::start().await?;
    let silent = Silent::start().await?;
    let probe = format!("{{httpGet: {{port: {}}}, timeoutSeconds: 60, periodSeconds: 1}}", silent.port);
    let mut hostile = Vec::new();
    for pod in 0..4 {
        hostile.push(crowd(&mut rig, &format!("silent-{pod}"), 16, &probe).await?);
    }
    silent.has("first attempts wait for an answer", |open| open >= 16).await?;

    // Commands have places of their own, and so has what answered before.
    let (exec, _) = rig.run("exec", &[(LIVENESS, EAGER)], Container::IDLE.command).await?;
    goes_on(&rig, &exec, "liveness", 5).await?;
    ensure!(silent.open() <= 36, "{} places are held by first attempts", silent.open());

    for pod in &hostile {
        let pod_sandbox_id = pod.id.to_string();
        rig.client
            .stop_pod_sandbox(pb::StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() })
            .await?;
        rig.client.remove_pod_sandbox(pb::RemovePodSandboxRequest { pod_sandbox_id }).await?;
    }
    silent.has("no connection is left", |open| open == 0).await?;
    let answering = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let probe = format!("{{tcpSocket: {{port: {}}}, period: 100ms}}", answering.local_addr()?.port());
    let (next, _) = rig.run("next", &[(LIVENESS, &probe)], Container::IDLE.command).await?;
    goes_on(&rig, &next, "liveness", 3).await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_05_servers_that_turn_silent_together_delay_no_probe_that_answers() -> Result<()> {
    let mut rig = Rig::start().await?;
    let answering = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let probe = format!("{{tcpSocket: {{port: {}}}, period: 100ms}}", answering.local_addr()?.port());
    let (pod, _) = rig.run("modest", &[(LIVENESS, &probe)], Container::IDLE.command).await?;
    let server = Silent::start().await?;
    server.is_silent.store(false, SeqCst);
    let probe = format!("{{httpGet: {{port: {}}}, timeoutSeconds: 60, periodSeconds: 1}}", server.port);
    for number in 0..6 {
        let namespace = ["a", "b"][number % 2];
        crowd_in(&mut rig, namespace, &format!("silent-{number}"), 8, &probe).await?;
    }
    all_were_tried(&rig).await?;
    server.is_silent.store(true, SeqCst);
    server.has("what is slow has its places", |open| open >= 24).await?;
    // For longer than it takes until each of them was tried again.
    let before = made(&rig, &pod).await?;
    goes_on(&rig, &pod, "liveness", before + 40).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_05_an_attempt_ends_with_its_container_past_the_relay_and_the_next_one_is_tried() -> Result<()> {
    let mut rig = Rig::start().await?;
    let silent = Silent::start().await?;
    let probe = format!("{{httpGet: {{port: {}}}, timeoutSeconds: 60, periodSeconds: 300}}", silent.port);
    let (pod, first) = rig.run("replaced", &[(READINESS, &probe)], Container::IDLE.command).await?;
    silent.has("the first container's attempt waits", |open| open == 1).await?;
    let container_id = first.to_string();
    rig.past.stop_container(pb::StopContainerRequest { container_id, timeout: 0 }).await?;
    silent.has("it ended with its container", |open| open == 0).await?;
    let mut creation = cri::creation(&pod, &Container::IDLE);
    for metadata in creation.config.iter_mut().filter_map(|config| config.metadata.as_mut()) {
        metadata.attempt = 1;
    }
    let container_id = rig.client.create_container(creation).await?.into_inner().container_id;
    rig.client.start_container(pb::StartContainerRequest { container_id }).await?;
    silent.has("the next container's attempt waits", |open| open == 1).await?;
    let probe = rig.becomes(&pod, "readiness", "is there", |_| true).await?;
    assert_eq!((&probe["last"], &probe["counts"]["failure"]), (&Value::Null, &json!(0)), "{probe}");
    let unhealthy = rig.daemon.events().await?.into_iter().filter(|event| event["reason"] == "Unhealthy");
    assert_eq!(unhealthy.count(), 0, "what was given up is no failure");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_05_a_command_that_outlasts_a_short_timeout_keeps_its_place_to_its_end() -> Result<()> {
    let mut rig = Rig::start().await?;
    let dir = tempfile::tempdir()?;
    let ends = dir.path().join("ends");
    // It takes longer than its timeout, and less than a command may run before it is cancelled.
    let command = json!(["sh", "-c", format!("sleep 0.1; echo >> {}", ends.display())]);
    let probe = json!({"exec": {"command": command}, "timeout": "1ms", "period": "100ms"}).to_string();
    let (pod, _) = rig.run("hasty", &[(READINESS, &probe)], Container::IDLE.command).await?;
    let failed = |probe: &Value| probe["counts"]["failure"].as_u64();
    let probe = rig.becomes(&pod, "readiness", "fails five times", |probe| failed(probe) >= Some(5)).await?;
    let text = probe["last"]["output"].as_str().unwrap_or_default();
    ensure!(text.ends_with("timed out after 1ms"), "{probe}");
    // Each ran to its end before the next one began, but for the last.
    let ended = std::fs::read_to_string(&ends).unwrap_or_default().lines().count();
    let begun = rig.faults().count("ExecSync");
    ensure!(ended + 1 >= begun, "{begun} commands began, and {ended} ended");
    Ok(())
}
