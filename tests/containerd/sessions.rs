//! Exec sessions in real containers: what a command is seen to do by a session and by ExecSync, in busybox's ash, dash and bash.

mod adversity;
mod commands;
mod confinement;
mod different;
mod equality;
mod outages;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use criprobe::{ids::ContainerId, proto::cri as pb};
use futures_util::stream::{self, StreamExt as _};
use hyper::StatusCode;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::{
    PATIENCE,
    confined::{Linux, run_confined},
    cri::{self, Container, Cri, Pod},
    daemon::Daemon,
    eventually,
};

/// The images that have a shell, and which it is.
const SHELLS: [(&str, &str); 3] =
    [("ash", "localhost/busybox:1"), ("dash", "localhost/dash:1"), ("bash", "localhost/bash:1")];

/// Prepares a container, and has it live: programs named like what shells have themselves, which print their arguments, and a
/// text in which a cut is mostly inside a character.
const SETUP: &str = r#"mkdir -p /tmp/names
cd /tmp/names
for name in if then else fi for while do done case esac in { } ! function select time coproc \
    . : break cd command continue eval exec exit export getopts hash jobs let local read readonly return set shift source \
    times trap type ulimit umask unalias unset wait alias bg fg builtin declare _g _z _r; do
    printf '#!/bin/sh\nprintf "<%%s>" "$0" "$@"\nexit 9\n' >$name
done
chmod 755 *
cd /
yes 'ä€😀 text' | head -n 100000 >/tmp/text
: >/tmp/ready
exec sleep 100000"#;

/// The environment of a container that was prepared so: much of it is hard to quote.
const ENV: [(&str, &str); 6] = [
    ("PATH", "/bin:/tmp/names"),
    ("EMPTY", ""),
    ("QUOTES", "it's \"$HOME\" `id` \\"),
    ("LINES_2", "one\n two \n"),
    ("UNICODE", "ä€😀"),
    ("HOME", "/root"),
];

/// 4: so many scenes of a test run at once. Others run beside them that have timeouts of a second, on two cores.
const AT_ONCE: usize = 4;

/// 200 ms to 400 ms: the pauses between commands that are run only to wait for something. Each may be an ExecSync, which takes
/// 30 ms of CPU time from what is waited for.
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(400));

/// Where the rig's cgroups are: below any hierarchy of version 1, or the only one of version 2.
const HIERARCHIES: [&str; 2] = ["/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup"];

/// A container in which commands are tried.
struct Subject<'a> {
    daemon: &'a Daemon,
    client: Cri,
    pod: Pod,
    name: String,
    id: ContainerId,
}

/// How a command was judged.
#[derive(Clone, Debug, PartialEq)]
struct Verdict {
    result: String,
    exit_code: Option<i64>,
    output: String,
}

/// An attempt: how the command was judged, and which way it went: `session`, `sync (first attempt)`.
#[derive(Clone, Debug)]
struct Answer {
    verdict: Verdict,
    way: String,
}

impl<'a> Subject<'a> {
    /// A container of this image, prepared.
    async fn start(daemon: &'a Daemon, name: &str, image: &str) -> Result<Self> {
        let command = ["sh", "-c", SETUP];
        let container = Container { image, env: &ENV, ..Container::shell(&command) };
        Self::of(daemon, name, &container, Linux::default()).await
    }

    /// A container of this image that only lives, in a pod, with a session.
    async fn idle(daemon: &'a Daemon, pod: &Pod, name: &str, image: &str) -> Result<Self> {
        let container = Container { name, image, ..Container::IDLE };
        let subject = Self::beside(daemon, pod, &container, Linux::default()).await?;
        subject.opened().await?;
        Ok(subject)
    }

    /// A container, alone in its pod, with processes of its own.
    async fn of(daemon: &'a Daemon, name: &str, container: &Container<'_>, linux: Linux) -> Result<Self> {
        let pod = cri::run_pod(&mut daemon.client().await?, name, &[]).await?;
        Self::beside(daemon, &pod, container, linux).await
    }

    /// A container with processes of its own, beside others in a pod.
    async fn beside(daemon: &'a Daemon, pod: &Pod, container: &Container<'_>, linux: Linux) -> Result<Self> {
        let mut client = daemon.client().await?;
        let linux = linux.with_own_pids();
        let id = run_confined(&daemon.socket(), &mut client, pod, (container, 0), linux).await?;
        Ok(Self { daemon, client, pod: pod.clone(), name: container.name.to_owned(), id })
    }

    /// The same after its container has ended and begun again.
    async fn restarted(mut self, container: &Container<'_>) -> Result<Self> {
        let request = pb::StopContainerRequest { container_id: self.id.to_string(), timeout: 0 };
        self.client.stop_container(request).await?;
        let linux = Linux::default().with_own_pids();
        let socket = self.daemon.socket();
        self.id = run_confined(&socket, &mut self.client, &self.pod, (container, 1), linux).await?;
        Ok(self)
    }

    fn name(&self) -> String {
        let pod = self.pod.config.metadata.as_ref().map_or("", |metadata| &metadata.name);
        format!("default/{pod}/{}", self.name)
    }

    /// Makes an attempt.
    async fn run(&self, mode: &str, command: &[impl AsRef<str>], timeout: &str) -> Result<Answer> {
        // A probe's `$$` is a `$`.
        let command: Vec<_> = command.iter().map(|word| word.as_ref().replace('$', "$$")).collect();
        let body = json!({
            "container": self.name(), "exec": { "command": command }, "execMode": mode, "timeout": timeout,
        });
        let body = ascii(&body.to_string());
        // The container may not be known yet.
        let answer = eventually("an attempt is made", PATIENCE, async || {
            let (status, text) = self.daemon.attempt(&body).await?;
            if matches!(status, StatusCode::NOT_FOUND | StatusCode::CONFLICT) {
                return Ok(None);
            }
            ensure!(status == StatusCode::OK, "{body} was answered {status}: {text}");
            Ok(Some(serde_json::from_str::<Value>(&text)?))
        })
        .await
        .with_context(|| format!("run {command:?} in {}", self.name()))?;
        let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
        let why = answer["execReason"].as_str().map(|why| format!(" ({why})")).unwrap_or_default();
        Ok(Answer {
            verdict: Verdict {
                result: text("result"),
                exit_code: answer["exitCode"].as_i64(),
                output: without_ids(&text("output")),
            },
            way: text("execRoute") + &why,
        })
    }

    /// Waits until commands go by a session.
    async fn opened(&self) -> Result<()> {
        self.goes("session").await.map(drop)
    }

    /// Waits until commands go this way, and return well all the time.
    async fn goes(&self, way: &str) -> Result<Answer> {
        let mut seen = None;
        let found = rarely("commands go that way", async || {
            let answer = self.run("session", &["cat", "/dev/null"], "5s").await?;
            ensure!(answer.verdict.exit_code == Some(0) && answer.verdict.output.is_empty(), "{answer:?}");
            let found = (answer.way == way).then(|| answer.clone());
            seen = Some(answer);
            Ok(found)
        })
        .await;
        found.with_context(|| format!("{}: wanted {way}, seen last: {seen:?}", self.name()))
    }

    /// Waits until the container is prepared, and commands go by a session.
    async fn ready(self) -> Result<Self> {
        self.prepared().await?;
        self.opened().await?;
        Ok(self)
    }

    /// Waits until the container's first process has made what it makes.
    async fn prepared(&self) -> Result<()> {
        eventually("the container is prepared", PATIENCE, async || {
            Ok(self.file("/tmp/ready").is_ok_and(|file| file.exists()).then_some(()))
        })
        .await
    }

    /// Makes an empty file in the container.
    fn touch(&self, path: &str) -> Result<()> {
        fs::write(self.file(path)?, "").with_context(|| format!("make {path} in {}", self.name()))
    }

    /// A file of the container, as the host sees it.
    fn file(&self, path: &str) -> Result<PathBuf> {
        let pids = self.pids()?;
        let first = pids.lines().find(|pid| is_first(pid)).context("the container has no first process")?;
        Ok(PathBuf::from(format!("/proc/{first}/root{path}")))
    }

    /// Runs a command by ExecSync, past any probe.
    async fn exec(&self, command: &[&str]) -> Result<i32> {
        Ok(cri::exec(&mut self.client.clone(), &self.id, command).await?.exit_code)
    }

    /// The processes in the container, a line each.
    fn pids(&self) -> Result<String> {
        let mut cgroups = HIERARCHIES.iter().map(|top| format!("{top}/k8s.io/{}/cgroup.procs", self.id));
        let cgroup = cgroups.find(|path| Path::new(path).exists()).context("the container has no cgroup")?;
        Ok(fs::read_to_string(cgroup)?)
    }

    /// The processes in the container but its first, in the order in which they began: pid and command line.
    fn processes(&self) -> Result<Vec<(i32, String)>> {
        let mut found = Vec::new();
        for pid in self.pids()?.lines().filter(|pid| !is_first(pid)) {
            let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else { continue };
            // A process that has ended has no command line.
            if !line.is_empty() {
                found.push((pid.parse()?, String::from_utf8_lossy(&line).replace('\0', " ")));
            }
        }
        found.sort();
        Ok(found)
    }

    /// Waits until a process of this command line runs in the container.
    async fn sees(&self, line: &str) -> Result<()> {
        let is_there = || Ok::<_, anyhow::Error>(self.processes()?.iter().any(|(_, of)| of == line));
        eventually("the command runs", PATIENCE, async || Ok(is_there()?.then_some(()))).await
    }

    /// The shells of its session, the first one first.
    fn helpers(&self) -> Result<Vec<i32>> {
        let is_helper = |line: &str| line.starts_with("sh -c ") && line.contains("IFS= read -r");
        Ok(self.processes()?.into_iter().filter(|(_, line)| is_helper(line)).map(|(pid, _)| pid).collect())
    }

    /// Waits until nothing but the container's first process is left.
    async fn is_left_alone(&self, within: Duration) -> Result<()> {
        let mut seen = Vec::new();
        let ended = eventually("all other processes have ended", within, async || {
            seen = self.processes()?;
            Ok(seen.is_empty().then_some(()))
        })
        .await;
        ended.with_context(|| format!("{}: {seen:?}", self.name()))
    }
}

/// Runs these, and returns what came of each.
async fn few_at_a_time<T>(scenes: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    stream::iter(scenes).buffered(AT_ONCE).collect().await
}

/// Runs commands until the answer is `Some`, less and less often. Waits for longer than others: the back-offs before the next
/// session add up, and an opening that no shell answers takes 10 s.
async fn rarely<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    let mut pause = PAUSE.0;
    eventually(what, 2 * PATIENCE, async || {
        let found = ask().await?;
        if found.is_none() {
            sleep(pause).await;
            pause = PAUSE.1.min(pause * 2);
        }
        Ok(found)
    })
    .await
}

/// An error of the runtime's without the number of the exec, which is another one each time.
fn without_ids(text: &str) -> String {
    let is_id = |part: &str| part.len() == 64 && part.bytes().all(|octet| octet.is_ascii_hexdigit());
    if !text.starts_with("rpc error") {
        return text.to_owned();
    }
    text.split('"').map(|part| if is_id(part) { "ID" } else { part }).collect::<Vec<_>>().join("\"")
}

/// The same JSON in ASCII: whoever reads it may take it for YAML, in which some characters may only be escaped.
fn ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for one in json.chars() {
        if one.is_ascii() && !one.is_ascii_control() {
            text.push(one);
        } else {
            let mut units = [0; 2];
            text.extend(one.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    text
}

/// Whether a process is the first of its namespace.
fn is_first(pid: &str) -> bool {
    let status = fs::read_to_string(Path::new("/proc").join(pid).join("status")).unwrap_or_default();
    let own = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    own.and_then(|pids| pids.split_whitespace().last()) == Some("1")
}
