//! Where the time of a command went: faults are injected, and what is said to be at fault is.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use criprobe::{clock, ids::ContainerId, proto::cri as pb};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::sleep,
};

use crate::support::{
    PATIENCE,
    containerd::Lab,
    cri::{self, Container, Cri, Pod},
    daemon::Daemon,
    eventually,
};

/// What makes a command slow, by [`FAULT`] at least.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// The shim is stopped.
    ShimStopped,
    /// The OCI runtime waits for a file.
    RuntimeStalled,
    /// The shim, and the OCI runtime with it, gets a thirtieth of a CPU.
    ShortOfCpu,
    /// The container is frozen while the command runs.
    Frozen,
    /// It sleeps.
    SlowCommand,
    /// It leaves a child behind that keeps the output open.
    OutputHeld,
}

impl Fault {
    const ALL: [Self; 6] = [
        Self::ShimStopped,
        Self::RuntimeStalled,
        Self::ShortOfCpu,
        Self::Frozen,
        Self::SlowCommand,
        Self::OutputHeld,
    ];

    /// What the command does, and the words that name the culprit.
    fn expected(self) -> (&'static str, &'static str) {
        match self {
            Self::ShimStopped => ("true", "before the runtime took the command up"),
            Self::RuntimeStalled | Self::ShortOfCpu => ("true", "before the process started"),
            Self::Frozen => ("sleep 0.2", "while the process ran"),
            Self::SlowCommand => ("sleep 0.7", "while the process ran"),
            Self::OutputHeld => ("sleep 0.7 & true", "after the process had ended"),
        }
    }
}

const FAULT: Duration = Duration::from_millis(700);

/// The script that the commands run, in the container.
const SCRIPT: &str = "/tmp/fault";

/// A container, and the processes and files of the host that faults need.
struct Target<'a> {
    daemon: &'a Daemon,
    client: Cri,
    pod: Pod,
    id: ContainerId,
    shim: Pid,
    /// The container's first process.
    init: i32,
    /// What the OCI runtime logs to.
    log: PathBuf,
}

impl<'a> Target<'a> {
    async fn new(lab: &Lab, daemon: &'a Daemon, name: &str) -> Result<Self> {
        let probe =
            r#"{"exec": {"command": ["sh", "/tmp/fault"]}, "periodSeconds": 3600, "timeoutSeconds": 9}"#;
        let mut client = daemon.client().await?;
        let pod = cri::run_pod(&mut client, name, &[("liveness.criprobe.dev/app", probe)]).await?;
        let idle = ["sh", "-c", "echo true >/tmp/fault; exec sleep 100000"];
        let id = cri::run_container(&mut client, &pod, &Container::shell(&idle)).await?;
        let first = |probe: &Value| probe["counts"]["success"] == 1;
        daemon.probe_becomes((&pod, "app", "liveness"), "has been tried", PATIENCE, first).await?;
        let ctr = tokio::process::Command::new("ctr")
            .arg("-a")
            .arg(lab.socket())
            .args(["-n", "k8s.io", "tasks", "list"])
            .output()
            .await?;
        let listed = String::from_utf8(ctr.stdout)?;
        let line = listed.lines().find(|line| line.starts_with(id.as_str())).context("the task is listed")?;
        let init: i32 = line.split_whitespace().nth(1).context("it has a pid")?.parse()?;
        let status = fs::read_to_string(format!("/proc/{init}/status"))?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).context("it has a parent")?;
        let shim = Pid::from_raw(parent.trim().parse()?).context("it has a parent")?;
        let log = fs::read_link(format!("/proc/{}/cwd", shim.as_raw_nonzero()))?
            .with_file_name(id.as_str())
            .join("log.json");
        Ok(Self { daemon, client, pod, id, shim, init, log })
    }

    /// Has a client run the command, or our probe, while there is this fault. Returns the command's phases and culprit.
    async fn slowed(&mut self, fault: Fault, is_probe: bool, round: usize) -> Result<Value> {
        let script = format!("echo '{}' >{SCRIPT}", fault.expected().0);
        ensure!(cri::exec(&mut self.client, &self.id, &["sh", "-c", &script]).await?.exit_code == 0);
        let before = match fault {
            Fault::ShimStopped => {
                kill_process(self.shim, Signal::STOP)?;
                None
            }
            Fault::RuntimeStalled => Some(Undo::stall(&self.log)?),
            Fault::ShortOfCpu => Some(Undo::starve(self.shim)?),
            Fault::Frozen | Fault::SlowCommand | Fault::OutputHeld => None,
        };
        let (mut client, id, daemon, pod) = (self.client.clone(), &self.id, self.daemon, &self.pod);
        let name = format!("{fault:?} {round}");
        let command = ["sh", SCRIPT, &name];
        let called = async {
            if is_probe {
                let path = format!("/v1/probes/{}/app/liveness/trigger?wait=true", pod.uid);
                let (status, said) = daemon.post(&path, "").await?;
                ensure!(status.is_success(), "{said}");
                let at = serde_json::from_str::<Value>(&said)?["triggered"]["at"].clone();
                let has_phases =
                    |probe: &Value| probe["last"]["at"] == at && probe["last"]["phases"].is_object();
                let wait = Duration::from_secs(2);
                let known =
                    daemon.probe_becomes((pod, "app", "liveness"), "has phases", wait, has_phases).await;
                return Ok(known.map(|probe| probe["last"].clone()).unwrap_or_default());
            }
            ensure!(cri::exec(&mut client, id, &command).await?.exit_code == 0, "{command:?} succeeds");
            let call = eventually(&format!("{command:?} is recorded"), PATIENCE, async || {
                let calls = daemon.calls(100).await?;
                Ok(calls.into_iter().rev().find(|call| call["exec"]["command"] == json!(command)))
            })
            .await?;
            let mut exec = call["exec"].clone();
            exec["durationSeconds"] = call["durationSeconds"].clone();
            Ok(exec)
        };
        let injected = async {
            match fault {
                Fault::ShimStopped => {
                    sleep(FAULT).await;
                    kill_process(self.shim, Signal::CONT)?;
                }
                Fault::RuntimeStalled => {
                    sleep(FAULT).await;
                    return before.map(Undo::release).transpose();
                }
                Fault::Frozen => {
                    let freezer = Freezer::of(self.init)?;
                    eventually("the command runs", PATIENCE, async || Ok(freezer.runs(SCRIPT).then_some(())))
                        .await?;
                    freezer.freeze(true)?;
                    sleep(FAULT).await;
                    freezer.freeze(false)?;
                }
                Fault::ShortOfCpu | Fault::SlowCommand | Fault::OutputHeld => {}
            }
            Ok(before)
        };
        let (called, injected): (Result<Value>, Result<Option<Undo>>) = tokio::join!(called, injected);
        drop(injected?);
        called
    }
}

/// What is undone when a fault is over.
enum Undo {
    /// The log is a pipe that nobody reads.
    Stalled(PathBuf),
    /// It is read.
    Released(PathBuf, #[allow(dead_code)] File),
    /// This process belongs into this cgroup again, and the other one is removed.
    Starved(Pid, PathBuf, PathBuf),
}

impl Undo {
    /// The OCI runtime waits as soon as it opens its log.
    fn stall(log: &Path) -> Result<Self> {
        let _ = fs::remove_file(log);
        ensure!(std::process::Command::new("mkfifo").arg(log).status()?.success());
        Ok(Self::Stalled(log.to_owned()))
    }

    fn release(self) -> Result<Self> {
        let Self::Stalled(log) = &self else { return Ok(self) };
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let reader = OpenOptions::new().read(true).custom_flags(nonblocking).open(log)?;
        Ok(Self::Released(log.clone(), reader))
    }

    /// A thirtieth of a CPU for the shim and what it starts, except for what joins the container.
    fn starve(shim: Pid) -> Result<Self> {
        let pid = shim.as_raw_nonzero();
        let (mount, own) = cgroup("cpu", pid.get())?;
        let lean = mount.join(format!("criprobe-lean-{pid}"));
        fs::create_dir(&lean)?;
        fs::write(lean.join("cpu.cfs_period_us"), "60000")?;
        fs::write(lean.join("cpu.cfs_quota_us"), "2000")?;
        fs::write(lean.join("cgroup.procs"), pid.to_string())?;
        Ok(Self::Starved(shim, own, lean))
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        let undone = match self {
            // The shim may have removed it.
            Self::Stalled(log) | Self::Released(log, _) => fs::remove_file(log).or(Ok(())),
            Self::Starved(shim, own, lean) => {
                let moved = fs::write(own.join("cgroup.procs"), shim.as_raw_nonzero().to_string());
                moved.and_then(|()| fs::remove_dir(lean))
            }
        };
        if let Err(error) = undone {
            eprintln!("a fault is not undone: {error}");
        }
    }
}

/// Where a controller of cgroup v1 is mounted, and the folder of a process below it.
fn cgroup(controller: &str, pid: i32) -> Result<(PathBuf, PathBuf)> {
    let mounts = fs::read_to_string("/proc/mounts")?;
    let has = |list: &str| list.split(',').any(|one| one == controller);
    let mount = mounts.lines().find_map(|line| {
        let fields: Vec<_> = line.split(' ').collect();
        (fields[2] == "cgroup" && has(fields[3])).then(|| PathBuf::from(fields[1]))
    });
    let mount = mount.context("the controller is mounted")?;
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    let own =
        groups.lines().map(|line| line.splitn(3, ':').collect::<Vec<_>>()).find(|fields| has(fields[1]));
    let own = mount.join(own.context("the process has a group")?[2].trim_start_matches('/'));
    Ok((mount, own))
}

/// The control group that freezes a container, of either version.
struct Freezer(PathBuf);

impl Freezer {
    fn of(pid: i32) -> Result<Self> {
        if let Ok((_, own)) = cgroup("freezer", pid) {
            return Ok(Self(own));
        }
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
        let own = groups.lines().find_map(|line| line.strip_prefix("0::/")).context("it is in cgroup v2")?;
        Ok(Self(Path::new("/sys/fs/cgroup").join(own)))
    }

    fn freeze(&self, is_frozen: bool) -> Result<()> {
        let old = self.0.join("freezer.state");
        if old.exists() {
            return Ok(fs::write(old, if is_frozen { "FROZEN" } else { "THAWED" })?);
        }
        Ok(fs::write(self.0.join("cgroup.freeze"), if is_frozen { "1" } else { "0" })?)
    }

    /// Whether a process with this argument runs in it.
    fn runs(&self, argument: &str) -> bool {
        let pids = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        pids.lines().any(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|word| word == argument.as_bytes())
        })
    }
}

/// `ROUNDS=10` runs ten of each, for a figure.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_to_be_at_fault_is() -> Result<()> {
    let rounds: usize = std::env::var("ROUNDS").map_or(1, |rounds| rounds.parse().unwrap());
    // A rig of its own: other tests' daemons would run the probe, too.
    let Some(lab) = Lab::start()? else { return Ok(()) };
    let daemon = Daemon::start(&lab.socket()).await?;
    let mut target = Target::new(&lab, &daemon, "phases").await?;
    let (mut all, mut wrong) = (0, Vec::new());
    for fault in Fault::ALL {
        if fault == Fault::ShortOfCpu && cgroup("cpu", target.shim.as_raw_nonzero().get()).is_err() {
            eprintln!("skipped: {fault:?} needs cgroup v1");
            continue;
        }
        for (round, is_probe) in (0..rounds).flat_map(|round| [(round, false), (round, true)]) {
            let exec =
                target.slowed(fault, is_probe, round).await.with_context(|| format!("{fault:?} {round}"))?;
            all += 1;
            let culprit = exec["culprit"].as_str().unwrap_or_default();
            if !culprit.contains(fault.expected().1) {
                wrong.push(format!("{fault:?}, {}: {exec}", if is_probe { "probe" } else { "client" }));
                continue;
            }
            let phases = exec["phases"].as_object().context("it has phases")?;
            let sum: f64 = phases.values().filter_map(Value::as_f64).sum();
            let whole = exec["durationSeconds"].as_f64().context("it has a duration")?;
            ensure!((sum - whole).abs() < 0.02, "the phases are the whole: {exec}");
        }
    }
    eprintln!("the culprit is right in {} of {all}", all - wrong.len());
    ensure!(wrong.len() * 20 <= all.max(20), "{} of {all} are wrong or missing: {wrong:#?}", wrong.len());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_wait_together_say_how_long_at_least() -> Result<()> {
    // A rig of its own: other tests' daemons would run the probe, too.
    let Some(lab) = Lab::start()? else { return Ok(()) };
    let daemon = Daemon::start(&lab.socket()).await?;
    let target = Target::new(&lab, &daemon, "together").await?;
    let (mut one, mut two) = (target.client.clone(), daemon.client().await?);
    let commands = [["true", "one"], ["true", "two"]];
    kill_process(target.shim, Signal::STOP)?;
    let goes_on = async {
        sleep(FAULT).await;
        kill_process(target.shim, Signal::CONT)
    };
    let (first, second) =
        (cri::exec(&mut one, &target.id, &commands[0]), cri::exec(&mut two, &target.id, &commands[1]));
    let (goes_on, first, second) = tokio::join!(goes_on, first, second);
    goes_on?;
    ensure!(first?.exit_code == 0 && second?.exit_code == 0);
    for command in commands {
        let call = eventually(&format!("{command:?} is recorded"), PATIENCE, async || {
            let calls = daemon.calls(100).await?;
            Ok(calls.into_iter().find(|call| call["exec"]["command"] == json!(command)))
        })
        .await?;
        let culprit = call["exec"]["culprit"].as_str().context("it has a culprit")?;
        ensure!(culprit.contains("before the runtime took the command up"), "{call}");
        let is_known = call["exec"]["phases"].is_object();
        ensure!(is_known != call["exec"]["phasesUnknown"].is_string(), "{call}");
        ensure!(is_known != culprit.starts_with("at least "), "{call}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_timed_out_says_how_far_it_came() -> Result<()> {
    // A rig of its own: other tests' daemons would run the probe, too.
    let Some(lab) = Lab::start()? else { return Ok(()) };
    let daemon = Daemon::start(&lab.socket()).await?;
    let mut client = daemon.client().await?;
    let probe = r#"{"exec": {"command": ["sleep", "30"]}, "periodSeconds": 1, "timeoutSeconds": 1}"#;
    let pod = cri::run_pod(&mut client, "phased", &[("liveness.criprobe.dev/app", probe)]).await?;
    cri::run_container(&mut client, &pod, &Container::IDLE).await?;
    let says = |probe: &Value| probe["last"]["culprit"].is_string();
    let probe = daemon.probe_becomes((&pod, "app", "liveness"), "has a culprit", PATIENCE, says).await?;
    let culprit = probe["last"]["culprit"].as_str().context("it is text")?;
    ensure!(culprit.contains("while the process ran: the command is slow"), "{probe}");
    ensure!(probe["last"]["exitCode"].is_null(), "{probe}");
    let (_, said) = daemon.run(&["describe", &format!("{}/app/liveness", pod.uid)])?;
    ensure!(said.contains("while the process ran: the command is slow"), "{said}");
    let (_, metrics) = daemon.get("/metrics").await?;
    let counted = r#"criprobe_exec_phase_seconds_count{caller="probe",phase="run"}"#;
    ensure!(metrics.contains(counted), "{metrics}");
    Ok(())
}

/// A pod as they mostly are: readiness and liveness with the same period.
#[tokio::test(flavor = "multi_thread")]
async fn probes_of_a_container_that_start_together_have_their_culprits() -> Result<()> {
    // A rig of its own: other tests' daemons would run the probes, too.
    let Some(lab) = Lab::start()? else { return Ok(()) };
    let daemon = Daemon::start(&lab.socket()).await?;
    let mut client = daemon.client().await?;
    for (name, slow, other) in [
        ("quick", r#"["sleep", "30"]"#, r#"["true"]"#),
        ("scripts", r#"["sh", "-c", "sleep 30"]"#, r#"["sh", "-c", "sleep 31"]"#),
        ("alike", r#"["sleep", "30"]"#, r#"["sleep", "30"]"#),
    ] {
        let probe = |command: &str| {
            format!(
                r#"{{"exec": {{"command": {command}}}, "periodSeconds": 2, "timeoutSeconds": 1, "failureThreshold": 100}}"#
            )
        };
        let (slow, other) = (probe(slow), probe(other));
        let annotations = [("readiness.criprobe.dev/app", &*slow), ("liveness.criprobe.dev/app", &*other)];
        let pod = cri::run_pod(&mut client, name, &annotations).await?;
        cri::run_container(&mut client, &pod, &Container::IDLE).await?;
        // The phases of the last one may come a little later.
        let failed = |probe: &Value| probe["counts"]["failure"].as_u64() >= Some(8);
        daemon.probe_becomes((&pod, "app", "readiness"), "has failed often", 2 * PATIENCE, failed).await?;
        let probe = daemon.json(&format!("/v1/probes/{}/app/readiness", pod.uid)).await?;
        let attempts = probe["history"].as_array().context("it has a history")?;
        let runs = |attempt: &&Value| {
            attempt["culprit"].as_str().is_some_and(|culprit| culprit.contains("while the process ran"))
        };
        let right = attempts.iter().filter(runs).count();
        ensure!(right + 2 >= attempts.len(), "{name}: {right} of {}: {attempts:#?}", attempts.len());
    }
    Ok(())
}

/// Opens the stream that an Exec answered, as WebSocket.
async fn attach(url: &str) -> Result<TcpStream> {
    let (address, path) = url
        .strip_prefix("http://")
        .and_then(|rest| rest.split_once('/'))
        .context("it is an address and a path")?;
    let mut stream = TcpStream::connect(address).await?;
    let head = format!(
        "GET /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
         Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await?);
    }
    ensure!(answer.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer));
    Ok(stream)
}

/// Types a line: a final binary frame, masked with zeros, on the channel of the input.
async fn type_line(stream: &mut TcpStream, line: &str) -> Result<()> {
    let length = u8::try_from(1 + line.len())?;
    ensure!(length < 126);
    let mut frame = vec![0x82, 0x80 | length, 0, 0, 0, 0, 0];
    frame.extend_from_slice(line.as_bytes());
    Ok(stream.write_all(&frame).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interactive_command_is_shown_again_when_its_process_ends() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let daemon = Daemon::start(&lab.socket()).await?;
    let mut client = daemon.client().await?;
    let pod = cri::run_pod(&mut client, "session", &[]).await?;
    let id = cri::run_container(&mut client, &pod, &Container::IDLE).await?;
    let request = pb::ExecRequest {
        container_id: id.to_string(),
        cmd: vec!["sh".to_owned()],
        stdin: true,
        stdout: true,
        stderr: true,
        ..Default::default()
    };
    let url = client.exec(request.clone()).await?.into_inner().url;
    let mut stream = attach(&url).await?;
    let records = async || -> Result<Vec<Value>> {
        Ok(daemon.calls(100).await?.into_iter().filter(|call| call["method"] == "Exec").collect())
    };
    type_line(&mut stream, "echo ready\n").await?;
    let mut said = [0; 256];
    while !String::from_utf8_lossy(&said).contains("ready") {
        ensure!(stream.read(&mut said).await? > 0, "the stream is open");
    }
    // One that begins within 50 ms could have this one's process.
    let attached = clock::now();
    let is_later = async || Ok((clock::now() - attached > Duration::from_millis(200)).then_some(()));
    eventually("a while has passed", PATIENCE, is_later).await?;
    // Other commands in the container have their own phases meanwhile.
    eventually("a command has phases", PATIENCE, async || {
        ensure!(cri::exec(&mut client, &id, &["sleep", "0.2"]).await?.exit_code == 0);
        let calls = daemon.calls(100).await?;
        Ok(calls.into_iter().find(|call| call["exec"]["phases"].is_object()))
    })
    .await?;
    let opened = records().await?;
    let [opened] = &opened[..] else { bail!("{opened:?}") };
    ensure!(opened["streamOpened"] == true && opened["exec"] == json!({"command": ["sh"]}), "{opened}");
    type_line(&mut stream, "exit 3\n").await?;
    let ended = eventually("the end of the process is recorded", PATIENCE, async || {
        Ok(records().await?.into_iter().find(|call| call["session"].is_object()))
    })
    .await?;
    ensure!(ended["exec"] == json!({"command": ["sh"], "exitCode": 3}), "{ended}");
    ensure!(ended["session"]["openedAt"] == opened["at"], "{ended}");
    for field in ["peer", "namespace", "pod", "container", "containerId", "method"] {
        ensure!(ended[field] == opened[field] && !ended[field].is_null(), "{field}: {ended}");
    }
    ensure!(ended["streamOpened"].is_null() && records().await?.len() == 2, "{ended}");
    let (_, said) = daemon.run(&["trace", "--method", "Exec", "--last", "1"])?;
    ensure!(said.contains("exit 3") && said.contains("session/app sh"), "{said}");
    // Commands that replace themselves by others.
    for command in [&["sh", "-c", "sleep 0.4 >/dev/null"][..], &["env", "A=b", "sleep", "0.4"]] {
        let cmd = command.iter().map(|&word| word.to_owned()).collect();
        let opened =
            client.exec(pb::ExecRequest { cmd, stdin: false, ..request.clone() }).await?.into_inner();
        let _open = attach(&opened.url).await?;
        eventually(&format!("{command:?} has ended"), PATIENCE, async || {
            let is_it = |call: &Value| call["exec"] == json!({"command": command, "exitCode": 0});
            Ok(records().await?.into_iter().find(|call| is_it(call) && call["session"].is_object()))
        })
        .await?;
    }
    let before = records().await?.len();
    // The end of a command past criprobe is not that of a stream that nobody uses.
    client.exec(request).await?;
    let past = ["sh", "-c", "sleep 0.3; exit 7"];
    ensure!(cri::exec(&mut lab.client().await?, &id, &past).await?.exit_code == 7);
    let next = ["sleep", "0.21"];
    eventually("a command has phases again", PATIENCE, async || {
        ensure!(cri::exec(&mut client, &id, &next).await?.exit_code == 0);
        let calls = daemon.calls(100).await?;
        let is_next = |call: &Value| call["exec"]["command"] == json!(next);
        Ok(calls.into_iter().find(|call| is_next(call) && call["exec"]["phases"].is_object()))
    })
    .await?;
    ensure!(records().await?.len() == before + 1, "{:?}", records().await?);
    Ok(())
}
