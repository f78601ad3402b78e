//! The end-to-end scenarios of the kubelet's own tests that need no restart by a kubelet, with real containers and
//! periods of 1 s: `zNN` plays row `ZNN` of the samples. What they watch for minutes there, at periods of 10 s, is
//! watched here for as many attempts as a verdict needs twice.
//!
//! What containerd 1.6 has not, values of the environment in base64 and containers as streams, is played on the embedded
//! runtime, in `tests/daemon/`.

use anyhow::{Context as _, Result, ensure};
use criprobe::{
    ids::ContainerId,
    proto::cri::{self as pb, ContainerState},
};
use serde_json::Value;

use crate::support::{
    PATIENCE,
    containerd::Lab,
    cri::{self, Container, Cri, Pod},
    daemon::{Daemon, EXEC_MODES},
};

const LIVENESS: &str = "liveness.criprobe.dev/app";
const READINESS: &str = "readiness.criprobe.dev/app";

/// Twice the default threshold.
const ATTEMPTS: u64 = 6;

/// Where they all run at once: one daemon in front of the rig that all tests share.
struct Stage {
    daemon: Daemon,
    client: Cri,
}

/// A container in a pod of its own, and what its probes are asked about.
struct Scene<'a> {
    stage: &'a Stage,
    client: Cri,
    pod: Pod,
    id: ContainerId,
}

impl Stage {
    async fn run(&self, name: &str, probes: &[(&str, &str)], container: &Container<'_>) -> Result<Scene<'_>> {
        let mut client = self.client.clone();
        let pod = cri::run_pod(&mut client, name, probes).await?;
        let id = cri::run_container(&mut client, &pod, container).await?;
        Ok(Scene { stage: self, client, pod, id })
    }
}

impl Scene<'_> {
    async fn becomes(&self, kind: &str, what: &str, is_wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        self.stage.daemon.probe_becomes((&self.pod, "app", kind), what, PATIENCE, is_wanted).await
    }

    async fn probe(&self, kind: &str) -> Result<Value> {
        self.stage.daemon.probe(&self.pod, "app", kind).await?.context("the probe is listed")
    }

    async fn exec(&mut self, command: &[&str]) -> Result<i32> {
        Ok(cri::exec(&mut self.client, &self.id, command).await?.exit_code)
    }

    /// After that many attempts, all of them had this result, which is the verdict, too.
    async fn all_are(&self, kind: &str, result: &str) -> Result<Value> {
        let probe = self
            .becomes(kind, "was tried often enough", |probe| {
                ["success", "warning", "failure", "error"]
                    .iter()
                    .map(|other| count(probe, other))
                    .sum::<u64>()
                    >= ATTEMPTS
            })
            .await?;
        let others = ["success", "warning", "failure", "error"].into_iter().filter(|other| *other != result);
        ensure!(
            others.map(|other| count(&probe, other)).sum::<u64>() == 0,
            "{kind} had other results: {probe}"
        );
        ensure!(probe["state"] == result && probe["phase"] == "probing", "{kind}: {probe}");
        Ok(probe)
    }

    /// It is the pod's first and only container, and runs.
    async fn was_not_restarted(mut self) -> Result<()> {
        let all = cri::containers_of(&mut self.client, &self.pod).await?;
        ensure!(all == [self.id.clone()], "the containers are now {all:?}");
        ensure!(self.is_running().await?, "the container does not run any more");
        Ok(())
    }

    async fn is_running(&mut self) -> Result<bool> {
        Ok(cri::container_state(&mut self.client, &self.id).await?.0 == ContainerState::ContainerRunning)
    }
}

fn count(probe: &Value, result: &str) -> u64 {
    probe["counts"][result].as_u64().unwrap_or_default()
}

fn says(probe: &Value, words: &str) -> bool {
    probe["last"]["output"].as_str().is_some_and(|output| output.contains(words))
}

/// All at once: most of their time they wait.
#[tokio::test(flavor = "multi_thread")]
async fn the_scenarios_that_need_no_restart_end_as_with_a_kubelet() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    for mode in EXEC_MODES {
        let daemon = Daemon::in_mode(&lab.socket(), mode).await?;
        let client = daemon.client().await?;
        let stage = &Stage { daemon, client };
        let (z02, z04, z06, z08, z10, z20, z22, z26) = tokio::join!(
            z02_a_closed_port_is_never_ready(stage),
            z04_a_file_that_stays_keeps_its_container(stage),
            z06_an_open_socket_is_enough_for_tcp_whatever_http_says(stage),
            z08_a_healthy_server_keeps_its_container(stage),
            z10_a_command_that_takes_too_long_is_never_ready(stage),
            z20_a_healthy_grpc_server_keeps_its_container(stage),
            z22_a_container_turns_not_ready_while_it_terminates(stage),
            z26_readiness_goes_on_while_a_failed_container_is_being_stopped(stage),
        );
        z02.context("Z02")?;
        z04.context("Z04")?;
        z06.context("Z06")?;
        z08.context("Z08")?;
        z10.context("Z10")?;
        z20.context("Z20")?;
        z22.context("Z22")?;
        z26.context("Z26")?;
    }
    Ok(())
}

async fn z02_a_closed_port_is_never_ready(stage: &Stage) -> Result<()> {
    let probe = "{httpGet: {port: 81}, periodSeconds: 1}";
    let scene = stage.run("z02", &[(READINESS, probe)], &Container::IDLE).await?;
    let probe = scene.all_are("readiness", "failure").await?;
    ensure!(says(&probe, ":81: connect: connection refused"), "{probe}");
    scene.was_not_restarted().await
}

async fn z04_a_file_that_stays_keeps_its_container(stage: &Stage) -> Result<()> {
    let probe = "{exec: {command: [cat, /tmp/health]}, periodSeconds: 1, failureThreshold: 1}";
    let command = ["sh", "-c", "echo ok >/tmp/health; sleep 100000"];
    let scene = stage.run("z04", &[(LIVENESS, probe)], &Container::shell(&command)).await?;
    scene.all_are("liveness", "success").await?;
    scene.was_not_restarted().await
}

async fn z06_an_open_socket_is_enough_for_tcp_whatever_http_says(stage: &Stage) -> Result<()> {
    /// A server that turns bad when a file is there, and listens all the same.
    const SERVE: &str = r#"cat >/tmp/serve <<'END'
read request
until read field; [ ${#field} -le 1 ]; do :; done
status=200; [ ! -e /tmp/broken ] || status=500
printf 'HTTP/1.1 %s X\r\nContent-Length: 0\r\n\r\n' $status
END
exec nc -ll -p 8080 -e sh /tmp/serve"#;
    // It listens a moment after it runs. A delay of 2 s is one of more than 1 s: the start is cut to whole seconds.
    let tcp = "{tcpSocket: {port: 8080}, initialDelaySeconds: 2, periodSeconds: 1, failureThreshold: 1}";
    let http = "{httpGet: {port: 8080}, initialDelaySeconds: 2, periodSeconds: 1, failureThreshold: 1}";
    let probes = [(LIVENESS, tcp), (READINESS, http)];
    let mut scene = stage.run("z06", &probes, &Container::shell(&["sh", "-c", SERVE])).await?;
    scene.becomes("readiness", "succeeds", |probe| probe["state"] == "success").await?;
    scene.exec(&["touch", "/tmp/broken"]).await?;
    let broken = scene.becomes("readiness", "fails", |probe| probe["state"] == "failure").await?;
    ensure!(says(&broken, "HTTP probe failed with statuscode: 500"), "{broken}");
    scene.all_are("liveness", "success").await?;
    scene.was_not_restarted().await
}

async fn z08_a_healthy_server_keeps_its_container(stage: &Stage) -> Result<()> {
    let probe =
        "{httpGet: {path: /, port: 80}, initialDelaySeconds: 2, periodSeconds: 1, failureThreshold: 5}";
    let command = ["sh", "-c", "echo fine >/tmp/index.html; exec httpd -f -p 80 -h /tmp"];
    let scene = stage.run("z08", &[(LIVENESS, probe)], &Container::shell(&command)).await?;
    let probe = scene.all_are("liveness", "success").await?;
    ensure!(probe["last"]["output"] == "fine\n", "{probe}");
    scene.was_not_restarted().await
}

async fn z10_a_command_that_takes_too_long_is_never_ready(stage: &Stage) -> Result<()> {
    let probe = "{exec: {command: [sleep, '10']}, timeoutSeconds: 1, periodSeconds: 1}";
    let scene = stage.run("z10", &[(READINESS, probe)], &Container::IDLE).await?;
    let probe = scene.all_are("readiness", "failure").await?;
    ensure!(probe["last"]["output"] == "command timed out: \"sleep 10\" timed out after 1s", "{probe}");
    scene.was_not_restarted().await
}

async fn z20_a_healthy_grpc_server_keeps_its_container(stage: &Stage) -> Result<()> {
    /// As much of a gRPC server as one Check needs: its SETTINGS, what the client sends up to the frame of type DATA, and
    /// then an acknowledgement, headers, the message that says SERVING, and trailers, all of stream 1.
    const SERVE: &str = r#"cat >/tmp/serve <<'END'
printf '\0\0\0\4\0\0\0\0\0'
dd bs=1 count=24 >/dev/null
kind=4
until [ "$kind" = 0 ]; do
    set -- $(dd bs=1 count=9 | od -An -tu1)
    kind=${4:-0}
    dd bs=1 count=$((${1:-0} * 65536 + ${2:-0} * 256 + ${3:-0})) >/dev/null
done
printf '\0\0\0\4\1\0\0\0\0'
printf '\0\0\023\1\4\0\0\0\1\210\137\020application/grpc'
printf '\0\0\7\0\0\0\0\0\1\0\0\0\0\2\10\1'
printf '\0\0\017\1\5\0\0\0\1\0\013grpc-status\0010'
cat >/dev/null
END
exec nc -ll -p 5000 -e sh /tmp/serve 2>/dev/null"#;
    let probe = "{grpc: {port: 5000}, initialDelaySeconds: 2, periodSeconds: 1, timeoutSeconds: 5}";
    let container = Container { command: &["sh", "-c", SERVE], ..Container::IDLE };
    let scene = stage.run("z20", &[(LIVENESS, probe)], &container).await?;
    let probe = scene.all_are("liveness", "success").await?;
    ensure!(probe["last"]["output"] == "service healthy", "{probe}");
    scene.was_not_restarted().await
}

async fn z22_a_container_turns_not_ready_while_it_terminates(stage: &Stage) -> Result<()> {
    let liveness = "{exec: {command: ['true']}, periodSeconds: 1}";
    let readiness = "{exec: {command: [cat, /tmp/ready]}, periodSeconds: 1, failureThreshold: 1}";
    let line = "trap 'rm /tmp/ready; sleep 5; exit 0' TERM; touch /tmp/ready; while :; do sleep 0.1; done";
    let probes = [(LIVENESS, liveness), (READINESS, readiness)];
    let mut scene = stage.run("z22", &probes, &Container::shell(&["sh", "-c", line])).await?;
    scene.becomes("readiness", "succeeds", |probe| probe["state"] == "success").await?;

    let mut client = scene.client.clone();
    let container_id = scene.id.to_string();
    let stop = client.stop_container(pb::StopContainerRequest { container_id, timeout: 60 });
    let watch = async {
        let probe = scene.becomes("readiness", "fails", |probe| probe["state"] == "failure").await?;
        let (liveness, is_running) = (scene.probe("liveness").await?, scene.is_running().await?);
        anyhow::Ok((probe, liveness, is_running))
    };
    let (stopped, watched) = tokio::join!(stop, watch);
    stopped?;
    let (readiness, liveness, is_running) = watched?;
    ensure!(is_running && readiness["phase"] == "probing", "it failed only when it had ended: {readiness}");
    ensure!(says(&readiness, "No such file"), "{readiness}");
    ensure!(liveness["phase"] == "stopped" && liveness["state"] == "success", "{liveness}");
    Ok(())
}

async fn z26_readiness_goes_on_while_a_failed_container_is_being_stopped(stage: &Stage) -> Result<()> {
    let liveness = "{exec: {command: [cat, /tmp/alive]}, periodSeconds: 1, failureThreshold: 1}";
    let readiness = "{exec: {command: ['true']}, periodSeconds: 1}";
    let probes = [(LIVENESS, liveness), (READINESS, readiness)];
    let command = ["sh", "-c", "touch /tmp/alive; sleep 100000"];
    let mut scene = stage.run("z26", &probes, &Container::shell(&command)).await?;
    scene.becomes("liveness", "succeeds", |probe| count(probe, "success") > 0).await?;
    scene.exec(&["rm", "/tmp/alive"]).await?;
    let failed = scene.becomes("liveness", "fails", |probe| probe["state"] == "failure").await?;
    ensure!(failed["phase"] == "probing", "{failed}");

    // What a kubelet does then: its hook, and only after that the stop.
    let before = scene.probe("readiness").await?;
    ensure!(scene.exec(&["sleep", "4"]).await? == 0, "the hook failed");
    let (readiness, liveness) = (scene.probe("readiness").await?, scene.probe("liveness").await?);
    let more = count(&readiness, "success") - count(&before, "success");
    ensure!((2..=5).contains(&more), "readiness was tried {more} times in 4 s");
    ensure!(liveness["state"] == "failure", "what only reports goes on: {liveness}");
    let request = pb::StopContainerRequest { container_id: scene.id.to_string(), timeout: 0 };
    scene.client.stop_container(request).await?;
    scene.becomes("readiness", "fails with its container", |probe| probe["state"] == "failure").await?;
    Ok(())
}
