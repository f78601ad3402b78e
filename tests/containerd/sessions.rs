//! Exec sessions in real containers: what a command is seen to do by a session and by ExecSync, in busybox's ash, dash and bash.

mod adversity;
mod commands;
mod confinement;
mod different;
mod equality;
mod outages;

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use criprobe::{ids::ContainerId, proto::cri as pb};
use hyper::StatusCode;
use serde_json::{Value, json};

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
for name in if then else fi for while do done case esac in { } ! function select time coproc \
    . : break cd command continue eval exec exit export getopts hash jobs let local read readonly return set shift source \
    times trap type ulimit umask unalias unset wait alias bg fg builtin declare _g _z _r; do
    printf '#!/bin/sh\nprintf "<%%s>" "$0" "$@"\nexit 9\n' >/tmp/names/$name
    chmod 755 /tmp/names/$name
done
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

/// A container in which commands are tried.
struct Subject<'a> {
    daemon: &'a Daemon,
    client: Cri,
    pod: Pod,
    name: &'static str,
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

    /// A container, alone in its pod, with processes of its own.
    async fn of(daemon: &'a Daemon, name: &str, container: &Container<'_>, linux: Linux) -> Result<Self> {
        let mut client = daemon.client().await?;
        let pod = cri::run_pod(&mut client, name, &[]).await?;
        let linux = linux.with_own_pids();
        let id = run_confined(&daemon.socket(), &mut client, &pod, (container, 0), linux).await?;
        Ok(Self { daemon, client, pod, name: "app", id })
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
        // The container may not be known yet, and no more than four attempts are made at a time.
        let answer = eventually("an attempt is made", PATIENCE, async || {
            let (status, text) = self.daemon.post("/v1/run", &body).await?;
            if matches!(status, StatusCode::NOT_FOUND | StatusCode::TOO_MANY_REQUESTS | StatusCode::CONFLICT)
            {
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
        let found = eventually("commands go that way", PATIENCE, async || {
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
            Ok((self.exec(&["test", "-e", "/tmp/ready"]).await? == 0).then_some(()))
        })
        .await
    }

    /// Runs a command by ExecSync, past any probe.
    async fn exec(&self, command: &[&str]) -> Result<i32> {
        Ok(cri::exec(&mut self.client.clone(), &self.id, command).await?.exit_code)
    }

    /// The processes in the container but its first, in the order in which they began: pid and command line.
    fn processes(&self) -> Result<Vec<(i32, String)>> {
        let cgroup = |pid: &str| fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let Ok(pid) = name.parse::<i32>() else { continue };
            if !cgroup(&name).contains(self.id.as_str()) || is_first(&name) {
                continue;
            }
            let Ok(line) = fs::read(format!("/proc/{name}/cmdline")) else { continue };
            // A process that has ended has no command line.
            if !line.is_empty() {
                found.push((pid, String::from_utf8_lossy(&line).replace('\0', " ")));
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
