//! Row 20: too many questions at once, and connections that say nothing.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use criprobe::clock;
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    disk::{SmallDisk, may_mount},
    rig::{EAGER, LAZY, LIVENESS, Rig},
    support::{
        PATIENCE,
        cri::{self, Container},
        eventually,
    },
};

/// As many connections, which block until they are accepted or wait to be.
fn connections(api: &Path, count: usize) -> Result<Vec<UnixStream>> {
    (0..count)
        .map(|_| {
            let stream = UnixStream::connect(api)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(stream)
        })
        .collect()
}

/// Connections that follow the trace, as far as they may, and the answers to those that may not.
fn followers(api: &Path, count: usize) -> Result<(Vec<UnixStream>, Vec<String>)> {
    let (mut followers, mut refused) = (Vec::new(), Vec::new());
    for mut stream in connections(api, count)? {
        stream.write_all(b"GET /v1/trace?follow=true HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")?;
        let mut head = vec![0; 12];
        stream.read_exact(&mut head).context("an answer begins")?;
        match &*head {
            b"HTTP/1.1 200" => followers.push(stream),
            _ => {
                let mut rest = String::new();
                stream.read_to_string(&mut rest)?;
                refused.push(String::from_utf8(head)? + &rest);
            }
        }
    }
    Ok((followers, refused))
}

#[tokio::test(flavor = "multi_thread")]
async fn row_20_silence_and_followers_keep_no_question_from_its_answer() -> Result<()> {
    let rig = Rig::start().await?;
    let api = rig.daemon.api();
    let reported =
        thread::spawn(move || {
            let (followers, refused) = followers(&api, 128)?;
            ensure!(followers.len() == 64 && refused.len() == 64, "{} follow", followers.len());
            ensure!(
                refused.iter().all(|text| text.starts_with("HTTP/1.1 503")
                    && text.contains("64 clients are already following")),
                "{refused:?}"
            );
            let silent = connections(&api, 300)?;
            Ok((followers, silent))
        });
    let (followers, mut silent) = reported.join().expect("it does not panic")?;
    for round in 0..3 {
        let asked = clock::now();
        let (is_good, text) = rig.daemon.run(&["status"])?;
        let took = clock::now() - asked;
        ensure!(is_good && took < Duration::from_secs(3), "{round}: {took:?}: {text}");
    }
    // The newest has waited behind none: it is closed as it has not said anything for two seconds.
    let asked = clock::now();
    let mut newest = silent.pop().context("there are 300")?;
    let read = tokio::task::spawn_blocking(move || newest.read(&mut [0; 1])).await?;
    // Closed with what was not read in it, or without.
    ensure!(matches!(read, Ok(0)) || read.is_err(), "{read:?}");
    ensure!(clock::now() - asked < Duration::from_secs(8), "{:?}", clock::now() - asked);
    drop(followers);
    eventually("a follower that leaves makes room for another follower", PATIENCE, async || {
        let api = rig.daemon.api();
        let (followed, _) = tokio::task::spawn_blocking(move || self::followers(&api, 1)).await??;
        Ok((!followed.is_empty()).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_20_bodies_that_never_come_keep_no_question_from_its_answer() -> Result<()> {
    let rig = Rig::start().await?;
    let mut silent = connections(&rig.daemon.api(), 300)?;
    for stream in &mut silent {
        // One that gives way to another is closed.
        let _ = stream.write_all(b"POST /v1/run HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\n\r\n");
    }
    for round in 0..3 {
        let asked = clock::now();
        let (is_good, text) = rig.daemon.run(&["status"])?;
        let took = clock::now() - asked;
        ensure!(is_good && took < Duration::from_secs(3), "{round}: {took:?}: {text}");
    }
    Ok(())
}

/// Asks for the same run again and again, each time on another connection, until it is asked to stop.
fn ask_in_a_loop(api: &Path, request: &[u8], stop: &AtomicBool) -> Result<usize> {
    let mut asked = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut stream = UnixStream::connect(api)?;
        let mut answer = Vec::new();
        // One that gives way to another is closed.
        let _ = stream.write_all(request).and_then(|()| stream.read_to_end(&mut answer));
        asked += 1;
    }
    Ok(asked)
}

#[tokio::test(flavor = "multi_thread")]
async fn row_20_runs_that_are_long_to_read_take_no_time_from_probes() -> Result<()> {
    const FLOOD: Duration = Duration::from_secs(5);
    let mut rig = Rig::start().await?;
    let (pod, _) = rig.run("probed", &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
    rig.last(&pod, "liveness", "success").await?;
    let attempts = async |rig: &Rig| {
        let probe = rig.becomes(&pod, "liveness", "is there", |_| true).await?;
        probe["counts"]["success"].as_u64().context("it counts")
    };
    let body = format!(r#"{{"container":"a/b/c","exec":{{"command":[{}0]}}}}"#, "0,".repeat(30_000));
    let head =
        format!("POST /v1/run HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}", body.len());
    let (request, stop) = (format!("{head}\r\n\r\n{body}"), Arc::new(AtomicBool::new(false)));
    let before = attempts(&rig).await?;
    let loops: Vec<_> = (0..16)
        .map(|_| {
            let (api, request, stop) = (rig.daemon.api(), request.clone(), stop.clone());
            thread::spawn(move || ask_in_a_loop(&api, request.as_bytes(), &stop))
        })
        .collect();
    tokio::time::sleep(FLOOD).await;
    stop.store(true, Ordering::Relaxed);
    let made = attempts(&rig).await? - before;
    let mut asked = 0;
    for questions in loops {
        asked += questions.join().expect("it does not panic")?;
    }
    // A fifth of those that are due.
    ensure!(made >= 10, "{made} attempts beside {asked} runs");
    Ok(())
}

/// Prints as much as is kept, in bytes that JSON escapes as six.
const LOUD: &str =
    r#"{"exec": {"command": ["sh", "-c", "head -c 10240 /dev/zero | tr '\\0' '\\1'"]}, "period": "300s"}"#;

/// The most memory that the daemon has held so far, in MiB.
fn peak(rig: &Rig) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", rig.daemon.pid()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? >> 10)
}

#[tokio::test(flavor = "multi_thread")]
async fn row_20_answers_that_are_not_read_take_bounded_memory_and_keep_no_question_from_its_answer()
-> Result<()> {
    const UNREAD: usize = 120;
    let mut rig = Rig::start().await?;
    let names: Vec<String> = (0..32).map(|number| format!("c{number}")).collect();
    let keys: Vec<String> = names.iter().map(|name| format!("liveness.criprobe.dev/{name}")).collect();
    let annotations: Vec<_> = keys.iter().map(|key| (key.as_str(), LOUD)).collect();
    for pod in ["loud-0", "loud-1"] {
        let pod = cri::run_pod(&mut rig.client, pod, &annotations).await?;
        for name in &names {
            cri::run_container(&mut rig.client, &pod, &Container { name, ..Container::IDLE }).await?;
        }
    }
    let whole = eventually("all have printed", 4 * PATIENCE, async || {
        let (code, text) = rig.daemon.get("/v1/probes").await?;
        ensure!(code.is_success(), "{code}: {text}");
        Ok((text.len() > 64 * 6 * 10_000).then_some(text.len()))
    })
    .await?;
    let before = peak(&rig)?;
    let mut unread = connections(&rig.daemon.api(), UNREAD)?;
    for stream in &mut unread {
        stream.write_all(b"GET /v1/probes HTTP/1.1\r\nhost: x\r\n\r\n")?;
    }
    for _ in 0..3 {
        let (code, text) = rig.daemon.get("/v1/probes").await?;
        ensure!(code.is_success() && text.len() >= whole - 4_096, "{code}: {} bytes", text.len());
    }
    let grown = peak(&rig)? - before;
    ensure!(grown < 150, "{grown} MiB for {UNREAD} answers of {whole} bytes");
    drop(unread);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_20_a_flood_of_commands_is_no_flood_of_log_lines() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, _) = rig.run("paused", &[(LIVENESS, LAZY)], &["sleep", "100000"]).await?;
    rig.last(&pod, "liveness", "success").await?;
    for command in ["pause", "resume"].iter().cycle().take(400) {
        let (code, body) =
            rig.daemon.post(&format!("/v1/probes/{}/app/liveness/{command}", pod.uid), "").await?;
        ensure!(code.is_success(), "{code}: {body}");
    }
    rig.daemon.terminate();
    rig.daemon.ended().await?;
    let log = rig.daemon.log();
    let one_by_one = log.lines().filter(|line| line.contains("operator command ")).count();
    // 100, and 6 for each minute that the test may have taken.
    ensure!((100..150).contains(&one_by_one), "{one_by_one}");
    let counted = log.lines().filter_map(|line| {
        let (_, rest) =
            line.split_once("too many operator commands: these were not logged one by one commands=")?;
        rest.trim().parse::<usize>().ok()
    });
    assert_eq!(one_by_one + counted.sum::<usize>(), 400, "none is left out of both");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_20_a_socket_that_cannot_be_removed_is_still_ours() -> Result<()> {
    if !may_mount() {
        return Ok(());
    }
    let (disk, rig) = (SmallDisk::mount()?, Rig::start().await?);
    let sockets = disk.path();
    let log: PathBuf = rig.daemon.dir().join("second.log");
    let mut command = Command::new(env!("CARGO_BIN_EXE_criprobe"));
    command.arg("serve").arg("--runtime").arg(rig.runtime.socket());
    command.arg("--listen").arg(sockets.join("criprobe.sock")).arg("--api").arg(sockets.join("api.sock"));
    command.env("CRIPROBE_STATE", rig.daemon.dir().join("second")).stderr(File::create(&log)?);
    let mut daemon = command.spawn()?;
    let ended = async {
        eventually("it serves", PATIENCE, async || Ok(sockets.join("api.sock").exists().then_some(())))
            .await?;
        disk.make_read_only()?;
        kill_process(Pid::from_raw(i32::try_from(daemon.id())?).context("it has a pid")?, Signal::TERM)?;
        eventually("it ends", PATIENCE, async || Ok(daemon.try_wait()?)).await
    };
    let ended = ended.await;
    if ended.is_err() {
        let _ = daemon.kill();
    }
    let (status, log) = (ended?, std::fs::read_to_string(&log)?);
    let left: Vec<_> = log.lines().filter(|line| line.contains("cannot remove the socket file")).collect();
    ensure!(status.success() && left.len() == 2, "{status}: {log}");
    ensure!(left.iter().all(|line| line.contains("cannot remove it: Read-only file system")), "{left:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_20_a_run_holds_its_place_no_longer_than_the_operator_allows() -> Result<()> {
    let mut rig = Rig::with(&[("CRIPROBE_PROBER_MAX_TIMEOUT", "3s")]).await?;
    let (pod, _) = rig.run("capped", &[(LIVENESS, LAZY)], &["sleep", "100000"]).await?;
    rig.last(&pod, "liveness", "success").await?;
    let command = ["run", "default/capped/app", "--timeout"];
    for what in [["--probe", "liveness"].as_slice(), &["--exec", "--", "true"]] {
        let (ended, printed) = rig.daemon.run(&[&command, ["3s"].as_slice(), what].concat())?;
        assert!(ended, "{printed}");
        let (ended, printed) = rig.daemon.run(&[&command, ["1h"].as_slice(), what].concat())?;
        assert!(!ended && printed.contains("the operator's maximum is 3s (prober.maxTimeout)"), "{printed}");
    }
    Ok(())
}
