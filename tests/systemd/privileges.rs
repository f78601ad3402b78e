//! The few privileges of the unit are enough for everything that criprobe does.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::support::{
    PATIENCE,
    containerd::Lab,
    cri::{self, Container, Cri, Pod},
    eventually,
    node::{Node, SERVICE},
};

/// Acts, records, TCP and a group: all that is off by default.
const SETTINGS: &str = r#"
api: {group: daemon, http: "127.0.0.1:0"}
trace: {file: /var/log/criprobe/calls.jsonl, output: true}
attempts: {file: /var/lib/criprobe/attempts.jsonl}
act: {enabled: true, namespaces: [default], maxPerMinute: 100}
"#;

/// The group `daemon` of Debian and Ubuntu.
const DAEMON: u32 = 1;

/// Serves HTTP.
const SERVER: [&str; 3] = ["sh", "-c", "echo fine >/tmp/index.html; exec httpd -f -p 8080 -h /tmp"];

/// Probes of all kinds, of two containers. Nobody speaks gRPC there, which is a failure and no error.
const PROBES: [(&str, &str); 4] = [
    (
        "liveness.criprobe.dev/app",
        r#"{exec: {command: [test, "!", -e, /tmp/ill]}, period: 500ms, failureThreshold: 1, onFailure: restart}"#,
    ),
    ("readiness.criprobe.dev/app", "{httpGet: {path: /index.html, port: 8080}, period: 500ms}"),
    ("liveness.criprobe.dev/side", "{grpc: {port: 8080}, period: 500ms}"),
    ("readiness.criprobe.dev/side", "{tcpSocket: {port: 8080}, period: 500ms}"),
];

/// A pod without a kubelet, with its two containers.
async fn run_pod(client: &mut Cri) -> Result<Pod> {
    let mut config = cri::pod_config("privileges", &PROBES);
    config.labels.remove("io.kubernetes.pod.uid");
    let pod = cri::run_sandbox(client, config).await?;
    for (name, command) in [("app", &SERVER[..]), ("side", Container::IDLE.command)] {
        cri::run_container(client, &pod, &Container { name, command, ..Container::IDLE }).await?;
    }
    Ok(pod)
}

/// Waits until a probe of the pod is as wanted.
async fn becomes(node: &Node, path: &str, what: &str, is_wanted: impl Fn(&Value) -> bool) -> Result<Value> {
    let mut seen = Value::Null;
    let found = eventually(&format!("{path} {what}"), PATIENCE, async || {
        seen = node.get(&format!("/v1/probes/default/privileges/{path}")).await.unwrap_or_default();
        Ok(is_wanted(&seen).then(|| seen.clone()))
    })
    .await;
    found.with_context(|| seen.to_string())
}

/// What a path answers over TCP, head and body.
fn over_tcp(address: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_traces_acts_phases_and_the_page_work_and_no_system_call_is_refused() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };
    // A call that the filter leaves out ends the process, and so the test. The unit itself lets it fail.
    node.drop_in(SERVICE, "[Service]\nSystemCallErrorNumber=kill\n")?;
    fs::write(node.file("/etc/criprobe/conf.d/50-test.yaml"), SETTINGS)?;
    node.service("start")?;
    let pid = node.property(SERVICE, "MainPID")?;
    let mut client = node.client().await?;
    run_pod(&mut client).await?;

    let succeeds = |probe: &Value| probe["last"]["result"] == "success";
    for path in ["app/liveness", "app/readiness", "side/readiness"] {
        becomes(&node, path, "succeeds", succeeds).await?;
    }
    becomes(&node, "side/liveness", "fails", |probe| probe["last"]["result"] == "failure").await?;

    // In a container without commands of probes, so that it is certain which one the runtime's events are about.
    let side = becomes(&node, "side/readiness", "succeeds", succeeds).await?;
    let side = side["containerId"].as_str().context("it has a container")?.into();
    eventually("the trace has a call with its phases", PATIENCE, async || {
        cri::exec(&mut client, &side, &["sleep", "0.7"]).await?;
        let calls = node.lines("/v1/trace?method=ExecSync&container=side").await?;
        let is_wanted = |call: &&Value| call["exec"]["phases"]["runSeconds"].as_f64() > Some(0.5);
        Ok(calls.iter().find(is_wanted).map(drop))
    })
    .await?;

    let first = becomes(&node, "app/liveness", "succeeds", succeeds).await?;
    let id = first["containerId"].as_str().context("it has a container")?.into();
    cri::exec(&mut client, &id, &["touch", "/tmp/ill"]).await?;
    let is_new = |probe: &Value| probe["containerId"] != first["containerId"] && succeeds(probe);
    becomes(&node, "app/liveness", "has a new container", is_new).await?;

    let status = node.get("/v1/status").await?;
    let address = status["http"]["address"].as_str().context("TCP is served")?;
    for (path, part) in
        [("/", "<!doctype html>"), ("/metrics", "prober_probe_total"), ("/v1/pods", "privileges")]
    {
        let answer = over_tcp(address, path)?;
        ensure!(
            answer.starts_with("HTTP/1.1 200") && answer.to_lowercase().contains(part),
            "{path}: {answer}"
        );
    }
    for (file, part) in [
        ("/var/log/criprobe/calls.jsonl", "\"ExecSync\""),
        ("/var/lib/criprobe/attempts.jsonl", "\"liveness\""),
    ] {
        eventually("records are written", PATIENCE, async || {
            Ok(fs::read_to_string(node.file(file)).is_ok_and(|text| text.contains(part)).then_some(()))
        })
        .await?;
    }
    let api = fs::metadata(node.file("/run/criprobe/api.sock"))?;
    assert_eq!((api.mode() & 0o777, api.gid()), (0o660, DAEMON));
    // Where systemd itself may not raise limits (without CAP_SYS_RESOURCE), the relay's threads run like the others.
    let limits = node.run(&["cat", &format!("/proc/{pid}/limits")])?;
    let limit =
        limits.lines().find_map(|line| line.strip_prefix("Max nice priority")?.split_whitespace().next());
    assert_eq!(relays_nice(&node)?, if limit == Some("30") { "-10" } else { "0" });

    node.service("reload")?;
    node.client_that_is_answered().await?;
    assert_eq!(node.property(SERVICE, "MainPID")?, pid, "no system call was refused");
    node.service("restart")?;
    becomes(&node, "app/readiness", "is remembered", |probe| probe["state"] == "success").await?;
    ensure!(node.file("/var/lib/criprobe/probes.json").exists());
    node.service("stop")?;
    assert_eq!(node.property(SERVICE, "Result")?, "success");
    let log = node.log()?;
    for refused in ["Permission denied", "not permitted", "Read-only", "SIGSYS"] {
        ensure!(!log.contains(refused), "{refused}");
    }
    Ok(())
}

/// The niceness of the relay's threads; that of all others is 0.
fn relays_nice(node: &Node) -> Result<String> {
    let pid = node.property(SERVICE, "MainPID")?;
    let threads = node.run(&["sh", "-c", &format!("cat /proc/{pid}/task/*/stat")])?;
    let nice = |line: &str| line.rsplit(')').next()?.split_whitespace().nth(16).map(str::to_owned);
    let is_relays = |line: &&str| line.contains("(relay-") || line.contains("(accept)");
    let (relays, others): (Vec<_>, Vec<_>) = threads.lines().partition(is_relays);
    ensure!(others.iter().all(|line| nice(line).as_deref() == Some("0")), "{others:#?}");
    let first = relays.first().and_then(|line| nice(line)).context("it has a thread")?;
    ensure!(relays.iter().all(|line| nice(line).as_ref() == Some(&first)), "{relays:#?}");
    Ok(first)
}

/// 30 is what setrlimit(2) calls a niceness of -10. A machine whose systemd may not raise limits shows only that the rest of
/// the unit allows the change: CAP_SYS_NICE is used in place of the limit.
#[test]
fn the_threads_of_the_relay_have_priority_under_the_unit() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };
    assert_eq!(node.property(SERVICE, "LimitNICE")?, "30");
    node.drop_in(SERVICE, "[Service]\nCapabilityBoundingSet=CAP_SYS_NICE\n")?;
    node.service("start")?;
    assert_eq!(relays_nice(&node)?, "-10");
    Ok(())
}

/// The node that criprobe runs on shows it the processes that it relays and probes for; a node's processes are not visible
/// in the rig, so another command looks at one of the rig's own.
#[test]
fn the_command_of_another_users_process_is_readable_under_the_unit() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };
    node.run(&["systemd-run", "--quiet", "--uid=65534", "--unit=other", "/bin/sleep", "12345"])?;
    let pid = node.property("other.service", "MainPID")?;
    let unit = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging").join(SERVICE))?;
    let reads = format!("ExecStart=/bin/cat /proc/{pid}/cmdline /proc/{pid}/comm /proc/{pid}/cgroup");
    let unit = unit
        .replace("ExecStart=/usr/bin/criprobe serve", &reads)
        .replace("Type=notify", "Type=oneshot\nStandardOutput=file:/run/peek.out")
        .replace("Restart=always", "Restart=no");
    fs::write(node.file("/etc/systemd/system/peek.service"), unit)?;
    node.run(&["systemctl", "daemon-reload"])?;
    node.run(&["systemctl", "start", "peek.service"])?;
    let read = fs::read_to_string(node.file("/run/peek.out"))?;
    ensure!(read.starts_with("/bin/sleep\x0012345\0sleep\n") && read.contains("other.service"), "{read:?}");
    Ok(())
}
