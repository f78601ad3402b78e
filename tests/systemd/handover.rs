//! Restarts that nobody notices: connections live on in the next process.

use std::{
    collections::HashSet,
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use criprobe::{
    clock,
    demo::{EmbeddedRuntime, Options},
};
use serde_json::Value;
use tokio::{task::JoinSet, time::interval};

use crate::{
    load::Load,
    support::{
        PATIENCE,
        containerd::Lab,
        cri::{self, Cri},
        eventually,
        node::{Node, SERVICE},
    },
};

/// How often criprobe is restarted: `RESTARTS=20` for a figure.
fn restarts() -> usize {
    std::env::var("RESTARTS").map_or(5, |restarts| restarts.parse().expect("RESTARTS is a number"))
}

/// Calls Version 200 times a second on one connection until it has to stop. Returns how many calls, and the longest.
pub(crate) async fn call_steadily(client: Cri, is_over: Arc<AtomicBool>) -> Result<(usize, Duration)> {
    let mut calls = JoinSet::new();
    let mut due = interval(Duration::from_millis(5));
    while !is_over.load(Ordering::Relaxed) {
        due.tick().await;
        let mut client = client.clone();
        calls.spawn(async move {
            let began: Instant = clock::now();
            cri::version(&mut client).await.map(|_| clock::now() - began)
        });
    }
    let total = calls.len();
    let times = calls.join_all().await.into_iter().collect::<Result<Vec<_>>>()?;
    Ok((total, times.into_iter().max().unwrap_or_default()))
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_ends_and_each_is_traced_once_over_restarts_and_an_upgrade() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };
    let file = "/var/log/criprobe/calls.jsonl";
    fs::write(node.file("/etc/criprobe/conf.d/50-test.yaml"), format!("trace:\n  file: {file}\n"))?;
    node.service("start")?;
    let mut client = node.client().await?;
    let pod = cri::run_pod(&mut client, "handover", &[]).await?;
    let id = cri::run_container(&mut client, &pod, &cri::Container::IDLE).await?;
    let (mut long, long_id) = (node.client().await?, id.clone());
    let long = tokio::spawn(async move {
        // 6 MB, some of it before each restart.
        let command = [
            "sh",
            "-c",
            "i=0; while test $i -lt 60; do head -c 100000 /dev/zero | tr '\\0' x; sleep 0.1; i=$((i+1)); done",
        ];
        cri::exec(&mut long, &long_id, &command).await
    });
    let is_over = Arc::new(AtomicBool::new(false));
    let steady = tokio::spawn(call_steadily(node.client().await?, is_over.clone()));
    // Not a byte of its preface was sent.
    let silent = std::os::unix::net::UnixStream::connect(node.socket())?;
    let pid = node.property(SERVICE, "MainPID")?;
    for round in 0..restarts() {
        if round == 1 {
            node.install(Path::new(env!("CARGO_BIN_EXE_criprobe")))?;
        }
        node.service("restart")?;
    }
    ensure!(node.property(SERVICE, "MainPID")? != pid);
    ensure!(node.property(SERVICE, "NFileDescriptorStore")? == "0", "nothing is left in the store");
    let answered = long.await??;
    ensure!(answered.exit_code == 0 && answered.stdout.len() == 6_000_000, "{}", answered.stdout.len());
    ensure!(answered.stdout.iter().all(|byte| *byte == b'x'));
    is_over.store(true, Ordering::Relaxed);
    let (calls, longest) = steady.await??;
    eprintln!("{calls} calls over {} restarts, the longest {longest:?}", restarts());
    ensure!(calls > 200, "only {calls} calls");
    cri::version(&mut client).await.context("the first connection goes on")?;
    drop(silent);
    let log = node.log()?;
    let taken = log.lines().filter(|line| line.contains("going on with the connections")).count();
    ensure!(taken == restarts(), "{taken} handovers: {log}");
    let calls = calls + 1;
    eventually("each call is in the file once", PATIENCE, async || {
        let text = fs::read_to_string(node.file(file))?;
        let lines: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        let of = |method: &str| lines.iter().filter(|line| line["method"] == method).count();
        ensure!(of("Version") <= calls, "{} of {calls}", of("Version"));
        Ok((of("Version") == calls && of("ExecSync") == 1).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_an_event_stream_and_large_answers_go_on_over_restarts() -> Result<()> {
    let dir = tempfile::Builder::new().prefix("criprobe-rt-").tempdir()?;
    let folder = dir.path().join("rt");
    let options = Options {
        pull: Duration::from_secs(5),
        ..Options::new(folder.join("containerd.sock"), dir.path().join("containers"))
    };
    let runtime = EmbeddedRuntime::start(options)?;
    let Some(node) = Node::boot_before(&folder)? else { return Ok(()) };
    let file = "/var/log/criprobe/calls.jsonl";
    fs::write(node.file("/etc/criprobe/conf.d/50-test.yaml"), format!("trace:\n  file: {file}\n"))?;
    node.service("start")?;
    let load =
        Load::begin(&node.socket(), runtime.socket(), dir.path(), "handover", Duration::from_secs(4)).await?;
    for _ in 0..4 {
        node.service("restart")?;
    }
    let outcome = load.end().await?;
    let (calls, events) = (outcome.calls(), &outcome.events);
    ensure!(outcome.cut() == 0, "{} of {calls} calls were cut: {:?}", outcome.cut(), outcome.first_error());
    ensure!(outcome.wrong() == 0, "{} answers have wrong bytes", outcome.wrong());
    ensure!(events.came > 0 && events.missing == 0 && events.doubled == 0, "{events:?}");
    eventually("each call is in the file once", PATIENCE, async || {
        let text = fs::read_to_string(node.file(file))?;
        let mut ids = HashSet::new();
        for line in text.lines() {
            let line: Value = serde_json::from_str(line)?;
            ensure!(ids.insert(line["id"].to_string()), "it is there twice: {line}");
        }
        ensure!(ids.len() <= calls, "{} of {calls}", ids.len());
        Ok((ids.len() == calls).then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_stop_drains_and_a_process_without_a_manager_too() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };
    node.service("start")?;
    let mut client = node.client_that_is_answered().await?;
    node.service("stop")?;
    ensure!(cri::version(&mut client).await.is_err(), "nobody relays this connection");
    ensure!(node.log()?.contains("relay drained"));
    node.service("start")?;
    node.client_that_is_answered().await?;
    Ok(())
}

#[tokio::test]
async fn a_store_that_is_off_drains_as_before() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };
    node.drop_in(SERVICE, "[Service]\nFileDescriptorStoreMax=0\n")?;
    node.service("start")?;
    let mut client = node.client_that_is_answered().await?;
    node.service("restart")?;
    let log = node.log()?;
    ensure!(
        log.contains("the service manager does not keep the connections") && log.contains("relay drained"),
        "{log}"
    );
    ensure!(cri::version(&mut client).await.is_err());
    node.client_that_is_answered().await?;
    Ok(())
}

#[tokio::test]
async fn a_kill_ends_connections_and_the_next_process_starts_clean() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };
    node.service("start")?;
    for _ in 0..3 {
        let mut client = node.client_that_is_answered().await?;
        let pid = node.property(SERVICE, "MainPID")?;
        node.run(&["sh", "-c", &format!("kill -USR1 {pid}; kill -KILL {pid}")])?;
        eventually("another process runs", PATIENCE, async || {
            let now = node.property(SERVICE, "MainPID")?;
            Ok((now != "0" && now != pid).then_some(()))
        })
        .await?;
        drop(cri::version(&mut client).await);
        node.client_that_is_answered().await?;
    }
    Ok(())
}
