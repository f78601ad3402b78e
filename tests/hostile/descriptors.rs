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
    // Attempts that happen to be in flight may make it pause sooner, for a moment.
    eventually("it says that it is short of descriptors, and some are served", PATIENCE, async || {
        let connections = &daemon.status().await?["connections"];
        let is_paused = !connections["acceptingPausedSince"].is_null();
        Ok((is_paused && connections["open"].as_u64() >= Some(4)).then_some(()))
    })
    .await?;
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

    // Those that wait are served in turn, as others leave.
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

mod handlers {
    use std::net::TcpListener;

    use anyhow::{Context as _, Result};
    use http_body_util::{BodyExt as _, Full};
    use hyper::{Request, body::Bytes};
    use hyper_util::client::legacy::Client;
    use hyperlocal::{UnixClientExt as _, UnixConnector};
    use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
    use serde_json::json;

    use crate::{
        rig::{LIVENESS, READINESS, Rig},
        support::PATIENCE,
    };

    /// Lets the daemon open no descriptor beyond this number; returns what it could before.
    fn limit(rig: &Rig, limit: Rlimit) -> Result<Rlimit> {
        let pid = i32::try_from(rig.daemon.pid()).ok().and_then(Pid::from_raw).context("a pid")?;
        Ok(prlimit(Some(pid), Resource::Nofile, limit)?)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn row_15_probes_without_a_descriptor_are_errors_and_no_verdict_changes() -> Result<()> {
        let mut rig = Rig::start().await?;
        // It accepts, and so passes a tcp probe; nothing answers the other two, which would be failures.
        let server = TcpListener::bind("127.0.0.1:0")?;
        let port = server.local_addr()?.port();
        let with = |handler: &str, key: &str| {
            json!({handler: {key: port}, "period": "200ms", "timeout": "50ms", "failureThreshold": 1000})
                .to_string()
        };
        let (tcp, http) = (with("tcpSocket", "port"), with("httpGet", "port"));
        let grpc = with("grpc", "port");
        let probes = [(LIVENESS, tcp.as_str()), (READINESS, http.as_str())];
        let (pod, _) = rig.run("wanting", &probes, &["sleep", "100000"]).await?;
        let (other, _) = rig.run("wanting-too", &[(READINESS, &grpc)], &["sleep", "100000"]).await?;
        rig.last(&pod, "liveness", "success").await?;
        rig.last(&pod, "readiness", "failure").await?;
        rig.last(&other, "readiness", "failure").await?;

        // A follower that is there already needs no further descriptor.
        let client: Client<UnixConnector, Full<Bytes>> = Client::unix();
        let url: hyper::Uri = hyperlocal::Uri::new(rig.daemon.api(), "/v1/events?follow=true").into();
        let mut events = client.request(Request::get(url).body(Full::default())?).await?.into_body();
        // The hard limit is the one that the daemon has from us.
        let maximum = getrlimit(Resource::Nofile).maximum;
        let before = limit(&rig, Rlimit { current: Some(4), maximum })?;
        let mut missing = vec!["Liveness probe errored", "Readiness probe errored"];
        let waits = async {
            let mut text = String::new();
            let mut errors = 0;
            while !missing.is_empty() || errors < 6 {
                let frame = events.frame().await.context("the events end")??;
                text.push_str(&String::from_utf8_lossy(frame.data_ref().context("no data")?));
                errors = text.matches("too many open files").count();
                missing.retain(|words| !text.contains(words));
            }
            anyhow::Ok(text)
        };
        let text = tokio::time::timeout(PATIENCE, waits).await.context("no errors are reported")??;
        let failures: Vec<_> = text
            .lines()
            .filter(|line| line.contains("too many open files") && line.contains("probe failed"))
            .collect();
        assert!(failures.is_empty(), "{failures:?}");
        limit(&rig, before)?;

        let back = rig.last(&pod, "liveness", "success").await?;
        assert_eq!((&back["counts"]["failure"], &back["state"]), (&json!(0), &json!("success")), "{back}");
        for (pod, kind) in [(&pod, "readiness"), (&other, "readiness")] {
            let found = rig.last(pod, kind, "failure").await?;
            assert!(found["counts"]["error"].as_u64() > Some(0), "{found}");
        }
        drop(server);
        Ok(())
    }
}
