//! How the process starts, refuses to start, and ends.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, net::UnixListener},
    path::Path,
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use criprobe::{
    demo::{EnvValues, FaultKind},
    proto::cri::StatusRequest,
};
use hyper::Method;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::{
    rig::{Rig, runtime},
    support::{
        PATIENCE, cri,
        daemon::{Daemon, ask},
        eventually,
    },
};

/// The daemon on these sockets.
fn serve(listen: &Path, api: &Path, runtime: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_criprobe"));
    command.arg("serve").arg("--listen").arg(listen).arg("--api").arg(api).arg("--runtime").arg(runtime);
    command.env("CRIPROBE_STATE", listen.with_extension("state"));
    command
}

/// Runs a command that must end by itself: its exit code and what it said.
fn refused(command: &mut Command) -> Result<(i32, String)> {
    let output = command.output()?;
    Ok((output.status.code().context("ended by a signal")?, String::from_utf8(output.stderr)?))
}

/// Waits until one call is under way.
async fn in_flight(rig: &Rig) -> Result<()> {
    eventually("the call is in flight", PATIENCE, async || {
        Ok((rig.daemon.status().await?["calls"]["inFlight"] == 1).then_some(()))
    })
    .await
}

/// A call under way that never ends by itself; gives whether it was answered.
async fn hang(rig: &Rig) -> Result<JoinHandle<bool>> {
    rig.always("Status", FaultKind::Hang);
    let mut client = rig.client.clone();
    let call = tokio::spawn(async move { client.status(StatusRequest::default()).await.is_ok() });
    in_flight(rig).await?;
    Ok(call)
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_lets_the_call_in_flight_end_removes_the_sockets_and_exits_with_0() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (_, id) = rig.run("drained", &[], &["sleep", "100000"]).await?;
    let (mut client, idle) = (rig.client.clone(), rig.daemon.client().await?);
    let call =
        tokio::spawn(async move { cri::exec(&mut client, &id, &["sh", "-c", "sleep 1; echo done"]).await });
    in_flight(&rig).await?;
    rig.daemon.terminate();
    let answer = call.await??;
    assert_eq!(answer.stdout, b"done\n");
    let status = rig.daemon.ended().await?;
    assert_eq!(status.code(), Some(0), "{}", rig.daemon.log());
    for socket in ["criprobe.sock", "api.sock"] {
        assert!(!rig.daemon.dir().join(socket).exists(), "{socket} was left");
    }
    drop(idle);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_does_not_end_is_cut_after_ten_seconds_and_logged() -> Result<()> {
    let mut rig = Rig::start().await?;
    let call = hang(&rig).await?;
    let asked = criprobe::clock::now();
    rig.daemon.terminate();
    let status = rig.daemon.ended().await?;
    let took = criprobe::clock::now() - asked;
    assert_eq!(status.code(), Some(0));
    assert!((Duration::from_secs(9)..Duration::from_secs(13)).contains(&took), "{took:?}");
    assert!(!call.await?);
    let log = rig.daemon.log();
    assert!(log.contains("aborted calls that did not end in time") && log.contains("Status"), "{log}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sighup_reads_the_configuration_again_ends_nothing_and_a_drain_shows_in_the_status() -> Result<()> {
    let mut rig = Rig::start().await?;
    rig.daemon.signal(rustix::process::Signal::HUP);
    eventually("it is logged", PATIENCE, async || {
        Ok(rig.daemon.log().contains("configuration is in effect").then_some(()))
    })
    .await?;
    assert_eq!(rig.daemon.status().await?["draining"], false);
    let call = hang(&rig).await?;
    rig.daemon.terminate();
    eventually("it drains", PATIENCE, async || {
        Ok((rig.daemon.status().await?["draining"] == true).then_some(()))
    })
    .await?;
    let (code, reason) = rig.daemon.get("/readyz").await?;
    assert_eq!((code.as_u16(), &*reason), (503, "the daemon is draining: it stops soon\n"));
    call.abort();
    assert_eq!(rig.daemon.ended().await?.code(), Some(0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_under_way_at_the_end_are_given_and_streams_end_whole() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (_, id) = rig.run("tried", &[], &["sleep", "100000"]).await?;
    let api = rig.daemon.api();
    let follower =
        tokio::spawn(async move { ask(&api, Method::GET, "/v1/trace?follow=true&last=1", "").await });
    let request = |command: &str| {
        let container = id.as_str();
        json!({"container": container, "exec": {"command": [command, "100000"]}, "timeout": "1m"}).to_string()
    };
    eventually("the prober knows it", PATIENCE, async || {
        Ok((rig.daemon.post("/v1/run", &request("true")).await?.0 == 200).then_some(()))
    })
    .await?;
    let (api, request) = (rig.daemon.api(), request("sleep"));
    let asked = tokio::spawn(async move { ask(&api, Method::POST, "/v1/run", &request).await });
    eventually(
        "the command runs",
        PATIENCE,
        async || Ok((rig.faults().count("ExecSync") == 2).then_some(())),
    )
    .await?;
    rig.daemon.terminate();
    let (code, body) = asked.await??;
    assert_eq!((code.as_u16(), &*body), (503, r#"{"error":"the daemon is stopping"}"#));
    let (code, lines) = follower.await??;
    assert!(code.is_success() && lines.ends_with("}\n"), "{lines}");
    assert_eq!(rig.daemon.ended().await?.code(), Some(0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_is_not_there_is_told_in_words() -> Result<()> {
    let dir = tempfile::Builder::new().prefix("criprobe-").tempdir()?;
    let socket = dir.path().join("rt.sock");
    let daemon = Daemon::spawn(&socket, &[])?;
    let reported = format!("the runtime's socket {} does not exist", socket.display());
    eventually("the status shows why", PATIENCE, async || {
        let Ok(status) = daemon.status().await else { return Ok(None) };
        Ok((status["runtime"]["reason"] == reported.as_str()).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_socket_has_the_mode_of_the_runtimes() -> Result<()> {
    let (runtime, dir) = runtime(EnvValues::default())?;
    fs::set_permissions(runtime.socket(), fs::Permissions::from_mode(0o660))?;
    let rig = Rig::before(runtime, dir, &[]).await?;
    let mode = |path: &Path| anyhow::Ok(fs::metadata(path)?.permissions().mode() & 0o777);
    assert_eq!(mode(&rig.socket())?, 0o660);
    assert_eq!(mode(&rig.daemon.dir().join("api.sock"))?, 0o600);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtimes_socket_that_comes_later_lends_its_mode_then() -> Result<()> {
    let (mut runtime, _dir) = runtime(EnvValues::default())?;
    runtime.stop_serving().await;
    let mut daemon = Daemon::spawn(runtime.socket(), &[])?;
    let mode = |daemon: &Daemon| anyhow::Ok(fs::metadata(daemon.socket())?.permissions().mode() & 0o777);
    eventually("the socket is there", PATIENCE, async || Ok(daemon.socket().exists().then_some(()))).await?;
    assert_eq!(mode(&daemon)?, 0o600);
    runtime.serve_again(Duration::from_millis(300))?;
    fs::set_permissions(runtime.socket(), fs::Permissions::from_mode(0o660))?;
    daemon.ready().await?;
    eventually("it has the runtime's mode", PATIENCE, async || Ok((mode(&daemon)? == 0o660).then_some(())))
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_the_next_one_takes_its_place_and_adopts_what_runs() -> Result<()> {
    let (runtime, _dir) = runtime(EnvValues::default())?;
    let dir = tempfile::Builder::new().prefix("criprobe-").tempdir()?;
    let mut first = Daemon::command(dir.path(), runtime.socket()).spawn()?;
    let socket = dir.path().join("criprobe.sock");
    let mut client = eventually("it serves", PATIENCE, async || Ok(cri::connect(&socket).await.ok())).await?;
    cri::run_pod(&mut client, "kept", &[]).await?;
    first.kill()?;
    first.wait()?;
    let mut second = Daemon::command(dir.path(), runtime.socket()).spawn()?;
    let answer = eventually("the next one serves", PATIENCE, async || {
        let Ok(mut client) = cri::connect(&socket).await else { return Ok(None) };
        Ok(cri::version(&mut client).await.ok())
    })
    .await;
    second.kill()?;
    second.wait()?;
    answer.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_instance_is_refused_naming_the_firsts_pid_and_harms_it_not() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (code, said) = refused(&mut Daemon::command(rig.daemon.dir(), rig.runtime.socket()))?;
    assert_eq!(code, 1, "{said}");
    let expected = format!(
        "criprobe: {} is in use by pid {} (criprobe): stop it first, or choose another socket",
        rig.socket().display(),
        rig.daemon.pid()
    );
    assert_eq!(said.trim_end(), expected);
    cri::version(&mut rig.client).await?;
    cri::version(&mut rig.daemon.client().await?).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_socket_file_is_replaced() -> Result<()> {
    let (runtime, _dir) = runtime(EnvValues::default())?;
    let first = {
        let mut daemon = Daemon::start(runtime.socket()).await?;
        let stale = daemon.dir().join("stale.sock");
        drop(UnixListener::bind(&stale)?);
        let mut second = serve(&stale, &daemon.dir().join("api2.sock"), runtime.socket()).spawn()?;
        let served = eventually("it serves", PATIENCE, async || {
            if let Some(status) = second.try_wait()? {
                anyhow::bail!("ended with {status}");
            }
            Ok(cri::connect(&stale).await.ok())
        })
        .await;
        second.kill()?;
        second.wait()?;
        cri::version(&mut served?).await.err();
        daemon.terminate();
        daemon.ended().await?
    };
    assert_eq!(first.code(), Some(0));
    Ok(())
}

#[test]
fn a_socket_that_cannot_be_ours_is_one_line() -> Result<()> {
    let dir = tempfile::Builder::new().prefix("criprobe-").tempdir()?;
    let path = |name: &str| dir.path().join(name);
    fs::write(path("file"), "precious")?;
    fs::create_dir(path("folder"))?;
    let runtime = UnixListener::bind(path("rt.sock"))?;
    std::os::unix::fs::symlink(path("rt.sock"), path("alias.sock"))?;
    for (name, exit, reported) in [
        ("file", 1, "exists and is not a socket: remove it, or choose another path"),
        ("folder", 1, "exists and is not a socket: remove it, or choose another path"),
        ("alias.sock", 2, "is the runtime's own socket: choose another one for criprobe"),
        ("file/below", 1, "cannot create the socket"),
        ("rt.sock", 2, "is the runtime's own socket: choose another one for criprobe"),
    ] {
        let (code, said) = refused(&mut serve(&path(name), &path("api.sock"), &path("rt.sock")))?;
        ensure!(code == exit && said.lines().count() == 1, "{name}: {code}: {said}");
        ensure!(said.starts_with("criprobe: ") && said.contains(reported), "{name}: {said}");
    }
    drop(runtime);
    assert_eq!(fs::read_to_string(path("file"))?, "precious");
    Ok(())
}

#[test]
fn wrong_flags_urls_and_files_are_told_in_words_with_their_exit_codes() -> Result<()> {
    let dir = tempfile::Builder::new().prefix("criprobe-").tempdir()?;
    let config = dir.path().join("config.yaml");
    fs::write(&config, "prober: {workers: none}\nlissten: x\n")?;
    let (config, absent) = (config.display().to_string(), dir.path().join("absent").display().to_string());
    let long = format!("unix:///{}", "x".repeat(120));
    let rows: [(&[&str], i32, usize, &str); 9] = [
        (&["--listen", "tcp://1.2.3.4:5"], 2, 1, "--listen"),
        (&["--runtime", "relative.sock"], 2, 1, "--runtime"),
        (&["--listen", &long], 2, 1, "at most 107"),
        (&["--listne", "/x"], 2, 1, "--listne"),
        (&["--log-level", "loud"], 2, 1, "loud"),
        (&["surplus"], 2, 1, "surplus"),
        (&["--config", &config], 78, 2, "config.yaml:1:"),
        (&["--config", &absent], 78, 1, "cannot read the configuration"),
        (&["--listen", "unix:///run/a.sock", "--runtime", "unix:///run/a.sock"], 2, 1, "/run/a.sock"),
    ];
    for (args, code, lines, reported) in rows {
        let mut command = Command::new(env!("CARGO_BIN_EXE_criprobe"));
        let (ended, said) = refused(command.arg("serve").args(args))?;
        ensure!(ended == code, "{args:?}: {ended} instead of {code}: {said}");
        ensure!(said.lines().count() == lines && said.contains(reported), "{args:?}: {said}");
        ensure!(said.lines().all(|line| line.starts_with("criprobe: ")), "{args:?}: {said}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_criprobe"));
    let (ended, said) = refused(command.arg("serve").env("CRIPROBE_PROBER_WORKERS", "0"))?;
    ensure!(ended == 78 && said.contains("CRIPROBE_PROBER_WORKERS"), "{ended}: {said}");
    Ok(())
}
