//! Too few descriptors.

use std::{
    collections::VecDeque,
    fs::File,
    io::Write,
    net::{Ipv4Addr, SocketAddr},
    os::unix::net::UnixStream,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Result, ensure};
use criprobe::demo::EnvValues;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::timeout,
};

use crate::{
    rig::{self, LIVENESS, READINESS},
    support::{
        PATIENCE,
        cri::{self, Container},
        daemon::Daemon,
        eventually,
    },
};

/// A daemon that may have 64 descriptors and no more.
fn with_few_descriptors(runtime: &std::path::Path) -> Result<Daemon> {
    let dir = tempfile::Builder::new().prefix("criprobe-").tempdir()?;
    let serve = Daemon::command(dir.path(), runtime);
    let process = Command::new("sh")
        .args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\""])
        .arg(serve.get_program())
        .args(serve.get_args())
        .envs(serve.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(dir.path().join("log"))?)
        .spawn()?;
    Ok(Daemon::of(process, dir))
}

/// Answers every HTTP request well; a connection that says nothing is closed by its client.
async fn http_server() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 1024]).await;
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
                    .await;
            });
        }
    });
    Ok(address)
}

fn count(probe: &Value, result: &str) -> u64 {
    probe["counts"][result].as_u64().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn row_15_accepting_clients_gives_way_to_probes_and_questions() -> Result<()> {
    let port = http_server().await?.port();
    let (runtime, _dir) = rig::runtime(EnvValues::default())?;
    let mut past = cri::connect(runtime.socket()).await?;
    let tcp = format!("{{tcpSocket: {{port: {port}}}, period: 100ms, failureThreshold: 1}}");
    let http = format!("{{httpGet: {{port: {port}}}, period: 100ms, failureThreshold: 1}}");
    let pod = cri::run_pod(&mut past, "served", &[(LIVENESS, &tcp), (READINESS, &http)]).await?;
    cri::run_container(&mut past, &pod, &Container::IDLE).await?;
    let mut daemon = with_few_descriptors(runtime.socket())?;
    daemon.ready().await?;
    let succeeds = async |kind: &str, before: u64| {
        daemon
            .probe_becomes((&pod, "app", kind), "goes on succeeding", PATIENCE, |probe| {
                count(probe, "success") >= before + 10
            })
            .await
    };
    let before = [
        count(&succeeds("liveness", 0).await?, "success"),
        count(&succeeds("readiness", 0).await?, "success"),
    ];
    let mut established = daemon.client().await?;
    cri::version(&mut established).await?;

    // Each says enough to be taken for a client, and then nothing.
    let mut idle: VecDeque<_> = (0..40)
        .map(|_| {
            let mut stream = UnixStream::connect(daemon.socket())?;
            stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")?;
            Ok(stream)
        })
        .collect::<Result<_>>()?;
    let status = eventually("it says that it is short of descriptors", PATIENCE, async || {
        let status = daemon.status().await?;
        Ok((!status["connections"]["acceptingPausedSince"].is_null()).then_some(status))
    })
    .await?;
    assert!(status["connections"]["open"].as_u64() >= Some(4), "{}", status["connections"]);
    for (kind, before) in ["liveness", "readiness"].into_iter().zip(before) {
        let probe = succeeds(kind, before).await?;
        assert_eq!((count(&probe, "failure"), count(&probe, "error")), (0, 0), "{probe}");
    }
    timeout(PATIENCE, cri::version(&mut established)).await??;
    let mut waiting = {
        let socket = daemon.socket();
        tokio::spawn(async move { cri::version(&mut cri::connect(&socket).await?).await })
    };
    assert!(timeout(Duration::from_millis(500), &mut waiting).await.is_err(), "it waits in the queue");

    // Whoever waits is served in turn, as others leave.
    let answer = loop {
        match timeout(Duration::from_millis(200), &mut waiting).await {
            Ok(answer) => break answer?,
            Err(_still_waits) => {
                ensure!(idle.pop_front().is_some(), "all others have left: {}", daemon.log());
            }
        }
    };
    answer?;
    drop(idle);
    eventually("it accepts again", PATIENCE, async || {
        Ok(daemon.status().await?["connections"]["acceptingPausedSince"].is_null().then_some(()))
    })
    .await?;
    let metrics = daemon.get("/metrics").await?.1;
    assert!(!metrics.contains("criprobe_accept_pauses_total 0"), "{metrics}");
    let log = daemon.log();
    assert!(log.contains("descriptors") && !log.contains("the runtime is away"), "{log}");
    daemon.terminate();
    daemon.ended().await?;
    Ok(())
}
