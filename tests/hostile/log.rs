//! A log that is not read: standard error is a pipe, and full.

use std::{
    fs::{self, OpenOptions},
    io::{self, BufRead, BufReader, PipeReader, PipeWriter, Read, Write, pipe},
    net::TcpListener,
    os::{
        fd::AsRawFd,
        unix::{fs::OpenOptionsExt, net::UnixStream},
    },
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Result, ensure};
use criprobe::{clock, demo::EnvValues};
use rustix::fs::OFlags;
use tokio::time::timeout;

use crate::{
    rig::{self, LIVENESS, READINESS, Rig},
    support::{PATIENCE, cri, daemon::Daemon, eventually},
};

/// How soon a call has to be answered; a relay thread that waits for the log never answers.
const PROMPTLY: Duration = Duration::from_secs(5);

/// Fills a pipe to the last byte.
fn fill(pipe: &PipeWriter) -> Result<()> {
    // Opened again, so that only this end of it does not wait.
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let flags = OFlags::NONBLOCK.bits() as i32;
    let mut pipe = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
    for size in [4096, 1] {
        loop {
            match pipe.write(&vec![b'\n'; size]) {
                Ok(_) => {}
                Err(full) if full.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Says something that is no HTTP/2, and leaves.
fn garbage(socket: &Path) -> Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(&[b'?'; 64])?;
    stream.set_read_timeout(Some(PROMPTLY))?;
    // The runtime ends it; what it says before does not matter.
    match io::copy(&mut stream, &mut io::sink()) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            anyhow::bail!("garbage was not passed on")
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The lines that come out of a pipe until one has this in it.
fn read_until(pipe: PipeReader, wanted: &'static str) -> Result<String> {
    let mut lines = BufReader::new(pipe).lines();
    let found = lines.find(|line| line.as_ref().map_or(true, |line| line.contains(wanted)));
    Ok(found.ok_or_else(|| anyhow::anyhow!("the log ended without {wanted:?}"))??)
}

#[tokio::test(flavor = "multi_thread")]
async fn row_06_a_log_that_nobody_reads_delays_no_call() -> Result<()> {
    let (runtime, _dir) = rig::runtime(EnvValues::default())?;
    let (reader, writer) = pipe()?;
    let dir = tempfile::Builder::new().prefix("criprobe-").tempdir()?;
    let process = Daemon::command(dir.path(), runtime.socket())
        .env("CRIPROBE_LOG_LEVEL", "debug")
        .stderr(Stdio::from(writer.try_clone()?))
        .spawn()?;
    let mut daemon = Daemon::of(process, dir);
    daemon.ready().await?;
    let mut established = daemon.client().await?;
    cri::version(&mut established).await?;
    fill(&writer)?;

    let dropped = async || -> Result<u64> {
        Ok(timeout(PROMPTLY, daemon.status()).await??["log"]["dropped"].as_u64().unwrap_or_default())
    };
    let began = clock::now();
    for number in 0.. {
        garbage(&daemon.socket())?;
        if number % 100 == 0 {
            timeout(PROMPTLY, cri::version(&mut established)).await??;
            let mut fresh = timeout(PROMPTLY, daemon.client()).await??;
            timeout(PROMPTLY, cri::version(&mut fresh)).await??;
            if number >= 900 && dropped().await? > 0 {
                break;
            }
            ensure!(clock::now() - began < Duration::from_secs(120), "nothing is dropped: where does it go?");
        }
    }
    let metrics = daemon.get("/metrics").await?.1;
    assert!(!metrics.contains("criprobe_log_lines_dropped_total 0"), "{metrics}");
    let (_, table) = daemon.run(&["status"])?;
    assert!(table.contains("dropped lines: "), "{table}");

    // The reader is back.
    let reported = tokio::task::spawn_blocking(move || {
        let line = read_until(reader.try_clone()?, "log lines were dropped")?;
        Ok::<_, anyhow::Error>((line, reader))
    });
    let (line, reader) = timeout(PATIENCE, reported).await???;
    assert!(line.contains("lines="), "{line}");

    // It is full again at the end, which comes all the same.
    fill(&writer)?;
    daemon.terminate();
    let asked = clock::now();
    assert_eq!(daemon.ended().await?.code(), Some(0));
    assert!(clock::now() - asked < Duration::from_secs(8));
    drop(reader);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_06_a_demo_whose_log_nobody_reads_serves_and_ends() -> Result<()> {
    let (_reader, writer) = pipe()?;
    fill(&writer)?;
    let dir = tempfile::Builder::new().prefix("criprobe-").tempdir()?;
    let folder = dir.path().join("demo");
    let process = Command::new(env!("CARGO_BIN_EXE_criprobe"))
        .args(["demo", "--dir"])
        .arg(&folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::from(writer))
        .spawn()?;
    let mut demo = Daemon::of(process, dir);
    let socket = folder.join("criprobe.sock");
    let mut client = eventually("it serves", PATIENCE, async || Ok(cri::connect(&socket).await.ok())).await?;
    for _ in 0..100 {
        garbage(&socket)?;
    }
    timeout(PROMPTLY, cri::version(&mut client)).await??;
    demo.terminate();
    assert_eq!(demo.ended().await?.code(), Some(0));
    Ok(())
}

#[test]
fn row_06_a_daemon_that_fails_at_the_end_says_so_without_waiting_for_a_reader() -> Result<()> {
    let dir = tempfile::Builder::new().prefix("criprobe-").tempdir()?;
    fs::write(dir.path().join("criprobe.sock"), "no socket")?;
    let (mut reader, writer) = pipe()?;
    let mut process = Daemon::command(dir.path(), &dir.path().join("rt.sock")).stderr(writer).spawn()?;
    assert_eq!(process.wait()?.code(), Some(1));
    let mut said = String::new();
    reader.read_to_string(&mut said)?;
    assert!(said.lines().any(|line| line.starts_with("criprobe: ")), "{said}");

    let (reader, writer) = pipe()?;
    fill(&writer)?;
    let mut process = Daemon::command(dir.path(), &dir.path().join("rt.sock")).stderr(writer).spawn()?;
    let began = clock::now();
    let code = loop {
        if let Some(status) = process.try_wait()? {
            break status.code();
        }
        if clock::now() - began > PATIENCE {
            process.kill()?;
            process.wait()?;
            anyhow::bail!("it waits for a reader");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(code, Some(1));
    drop(reader);
    Ok(())
}

/// A server of gRPC that acknowledges pings that were never sent, for as long as it is read.
fn pings() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                // SETTINGS, and PINGs with the flag ACK.
                let mut frames = vec![0, 0, 0, 4, 0, 0, 0, 0, 0];
                frames.extend([0, 0, 8, 6, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8].repeat(1000));
                while stream.write_all(&frames).is_ok() {
                    frames.drain(..frames.len() % 17);
                }
            });
        }
    });
    Ok(port)
}

#[tokio::test(flavor = "multi_thread")]
async fn row_06_no_pod_writes_as_much_of_the_log_as_it_likes() -> Result<()> {
    let mut rig = Rig::start().await?;
    let grpc =
        format!("{{grpc: {{port: {}}}, period: 100ms, timeout: 100ms, failureThreshold: 1000}}", pings()?);
    let turns = r#"{"exec": {"command": ["sh", "-c", "rm turn || { touch turn; exit 1; }"]},
        "period": "100ms", "failureThreshold": 1}"#;
    let (pod, _) = rig.run("loud", &[(LIVENESS, &grpc), (READINESS, turns)], &["sleep", "100000"]).await?;
    let attempts = |probe: &serde_json::Value| {
        let counts = probe["counts"].as_object().into_iter().flat_map(serde_json::Map::values);
        counts.filter_map(serde_json::Value::as_u64).sum::<u64>()
    };
    rig.becomes(&pod, "liveness", "was often tried", |probe| attempts(probe) >= 20).await?;
    eventually("readiness has changed often", PATIENCE, async || {
        let events = rig.daemon.events().await?;
        let changes = events.iter().filter(|event| event["reason"] == "VerdictChanged");
        let changes: u64 = changes.map(|event| event["count"].as_u64().unwrap_or(1)).sum();
        Ok((changes >= 60).then_some(()))
    })
    .await?;
    let log = rig.daemon.log();
    let lines = log.lines().count();
    ensure!(lines < 45, "{lines} lines: {}", &log[log.len().saturating_sub(2000)..]);
    ensure!(log.contains("readiness of app"), "{log}");
    Ok(())
}
