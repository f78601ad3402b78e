//! systemd owns the clients' socket: clients wait in its queue while no criprobe runs. And the notices that systemd gets.

use std::{
    fs,
    os::unix::{fs::MetadataExt as _, net::UnixStream},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Result, ensure};
use tokio::{task::JoinSet, time::interval};

use crate::support::{
    PATIENCE,
    containerd::Lab,
    cri, eventually,
    node::{Node, SERVICE},
};

const SOCKET: &str = "criprobe.socket";

/// What identifies the file of a socket.
fn inode(path: &Path) -> Result<(u64, u64)> {
    let meta = fs::metadata(path)?;
    Ok((meta.dev(), meta.ino()))
}

/// Whether a call was not sent, because the connection got a GOAWAY. gRPC's own clients then use another one by themselves,
/// and tonic does not.
fn is_unsent(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled))
}

/// Calls Version on a connection of its own, again and again until asked to end.
struct Caller {
    is_over: Arc<AtomicBool>,
    calls: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<Result<()>>,
}

impl Caller {
    fn start(socket: PathBuf) -> Self {
        let (is_over, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (ending, counter) = (is_over.clone(), calls.clone());
        let task = tokio::spawn(async move {
            while !ending.load(Ordering::Relaxed) {
                let mut client = cri::connect(&socket).await?;
                cri::version(&mut client).await?;
                counter.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        Self { is_over, calls, task }
    }

    /// How many calls were answered.
    ///
    /// # Errors
    /// One was not.
    async fn end(self) -> Result<usize> {
        self.is_over.store(true, Ordering::Relaxed);
        self.task.await??;
        Ok(self.calls.load(Ordering::Relaxed))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_starts_the_service_and_no_new_one_fails_over_restarts() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };
    node.run(&["systemctl", "start", SOCKET])?;
    let socket = node.socket();
    assert_eq!(fs::metadata(&socket)?.mode() & 0o777, 0o600, "until the runtime's mode is known");
    let created = inode(&socket)?;

    let mut client = node.client().await?;
    assert_eq!(cri::version(&mut client).await?.runtime_name, "containerd");
    eventually("systemd has taken note of the start", PATIENCE, async || {
        Ok((node.property(SERVICE, "ActiveState")? == "active").then_some(()))
    })
    .await?;
    let (ours, theirs) = (fs::metadata(&socket)?, fs::metadata(lab.socket())?);
    assert_eq!((ours.mode(), ours.gid()), (theirs.mode(), theirs.gid()));

    let caller = Caller::start(socket.clone());
    for _ in 0..5 {
        node.service("restart")?;
        assert_eq!(inode(&socket)?, created);
    }
    let calls = caller.end().await?;
    ensure!(calls >= 10, "only {calls} calls");

    // An upgrade is a restart with another binary in the same place.
    let old = node.run(&["readlink", &format!("/proc/{}/exe", node.property(SERVICE, "MainPID")?)])?;
    node.install(Path::new(env!("CARGO_BIN_EXE_criprobe")))?;
    let caller = Caller::start(socket.clone());
    let replaced = format!("/proc/{}/exe", node.property(SERVICE, "MainPID")?);
    assert_eq!(node.run(&["readlink", &replaced])?, format!("{old} (deleted)"));
    node.service("restart")?;
    let new = format!("/proc/{}/exe", node.property(SERVICE, "MainPID")?);
    assert_eq!(node.run(&["readlink", &new])?, old);
    caller.end().await?;

    // While no process runs for a second, clients wait, also after a SIGKILL.
    node.drop_in(SERVICE, "[Service]\nExecStartPre=/bin/sleep 1\n")?;
    let pid = node.property(SERVICE, "MainPID")?;
    node.run(&["kill", "-KILL", &pid])?;
    let mut client = node.client().await?;
    assert_eq!(cri::version(&mut client).await?.runtime_name, "containerd");
    assert_ne!(node.property(SERVICE, "MainPID")?, pid);
    assert_eq!(inode(&socket)?, created);

    node.run(&["systemctl", "stop", SERVICE, SOCKET])?;
    ensure!(!socket.exists(), "the socket unit removes its file");
    Ok(())
}

#[tokio::test]
async fn a_call_in_flight_ends_before_the_next_process_takes_over() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };
    node.service("start")?;
    let mut client = node.client().await?;
    let pod = cri::run_pod(&mut client, "activation", &[]).await?;
    let id = cri::run_container(&mut client, &pod, &cri::Container::IDLE).await?;
    let began = id.clone();
    let call =
        tokio::spawn(
            async move { cri::exec(&mut client, &began, &["sh", "-c", "sleep 2; echo done"]).await },
        );
    eventually("the command runs", PATIENCE, async || {
        let calls = node.get("/v1/top").await?.to_string();
        Ok(calls.contains("sleep 2").then_some(()))
    })
    .await?;
    let caller = Caller::start(node.socket());
    node.service("restart")?;
    assert_eq!(&call.await??.stdout[..], b"done\n");
    ensure!(caller.end().await? > 0, "calls meanwhile are answered");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_client_makes_two_hundred_calls_a_second_over_three_restarts_and_none_fails() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };
    node.service("start")?;
    let client = node.client().await?;
    let restarts = Arc::new(AtomicUsize::new(0));
    let done = restarts.clone();
    let node = Arc::new(node);
    let restarting = node.clone();
    let operator = tokio::task::spawn_blocking(move || {
        for _ in 0..3 {
            restarting.service("restart")?;
            done.fetch_add(1, Ordering::Relaxed);
        }
        anyhow::Ok(())
    });
    let mut calls = JoinSet::new();
    let mut due = interval(Duration::from_millis(5));
    while restarts.load(Ordering::Relaxed) < 3 && !operator.is_finished() {
        due.tick().await;
        let mut client = client.clone();
        calls.spawn(async move {
            match cri::version(&mut client).await {
                Err(error) if is_unsent(&error) => cri::version(&mut client).await,
                answered => answered,
            }
        });
    }
    operator.await??;
    let total = calls.len();
    let results = calls.join_all().await;
    let failures: Vec<_> =
        results.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    ensure!(failures.is_empty(), "{} of {total} calls fail, first with {}", failures.len(), failures[0]);
    ensure!(total > 50, "only {total} calls");
    Ok(())
}

#[tokio::test]
async fn without_a_socket_unit_criprobe_makes_the_socket_itself() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };
    fs::remove_file(node.file("/etc/systemd/system/criprobe.socket"))?;
    node.run(&["systemctl", "mask", SOCKET])?;
    node.service("start")?;
    let mut client = node.client().await?;
    assert_eq!(
        cri::version(&mut client).await?.runtime_name,
        "containerd",
        "it accepts when systemctl returns"
    );
    let first = inode(&node.socket())?;
    node.service("restart")?;
    assert_ne!(inode(&node.socket())?, first);
    node.service("stop")?;
    ensure!(!node.socket().exists(), "criprobe removes a file of its own");
    Ok(())
}

#[tokio::test]
async fn a_restart_of_the_socket_unit_restarts_the_service_ends_no_connection_and_a_stop_stops_both()
-> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };
    node.service("start")?;
    let mut client = node.client_that_is_answered().await?;
    let pid = node.property(SERVICE, "MainPID")?;
    node.run(&["systemctl", "restart", SOCKET])?;
    cri::version(&mut client).await?;
    node.client_that_is_answered().await?;
    assert_eq!(node.property(SOCKET, "ActiveState")?, "active");
    assert_ne!(node.property(SERVICE, "MainPID")?, pid);
    drop(client);
    node.run(&["systemctl", "stop", SOCKET])?;
    assert_eq!(node.property(SERVICE, "ActiveState")?, "inactive");
    ensure!(!node.socket().exists());
    Ok(())
}

#[tokio::test]
async fn a_socket_unit_at_another_path_than_configured_is_one_line_and_serves() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };
    fs::write(node.file("/etc/criprobe/conf.d/50-test.yaml"), "listen: unix:///run/criprobe/other.sock\n")?;
    node.service("start")?;
    let mut client = node.client().await?;
    assert_eq!(cri::version(&mut client).await?.runtime_name, "containerd");
    let log = node.log()?;
    let lines: Vec<_> = log.lines().filter(|line| line.contains("other.sock")).collect();
    let expected =
        "criprobe.socket: listens on /run/criprobe/criprobe.sock, but `listen` is /run/criprobe/other.sock";
    ensure!(lines.len() == 1 && lines[0].contains(expected), "{lines:?}");
    Ok(())
}

#[tokio::test]
async fn a_wrong_configuration_refuses_clients_in_the_end_and_a_restart_heals_it() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };
    let wrong = node.file("/etc/criprobe/conf.d/50-test.yaml");
    fs::write(&wrong, "lisen: unix:///run/x.sock\n")?;
    node.run(&["systemctl", "start", SOCKET])?;
    let connection = UnixStream::connect(node.socket())?;
    eventually("systemd closes the socket", PATIENCE, async || {
        Ok((node.property(SOCKET, "ActiveState")? == "failed").then_some(()))
    })
    .await?;
    ensure!(UnixStream::connect(node.socket()).is_err());
    drop(connection);

    fs::remove_file(&wrong)?;
    node.service("restart")?;
    assert_eq!(cri::version(&mut node.client().await?).await?.runtime_name, "containerd");
    assert_eq!(node.property(SOCKET, "ActiveState")?, "active");
    Ok(())
}

#[tokio::test]
async fn a_second_socket_that_is_passed_is_one_line_and_the_right_one_serves() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };
    let both = "[Socket]\nListenStream=\nListenStream=/run/criprobe/a.sock\nListenStream=/run/criprobe/criprobe.sock\n";
    node.drop_in(SOCKET, both)?;
    node.service("start")?;
    assert_eq!(cri::version(&mut node.client().await?).await?.runtime_name, "containerd");
    let log = node.log()?;
    ensure!(log.lines().filter(|line| line.contains("/a.sock")).count() == 1, "{log}");
    Ok(())
}

#[tokio::test]
async fn a_socket_is_passed_by_hand_as_well() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };
    let socket = "/run/by-hand/criprobe.sock";
    fs::create_dir(node.file("/run/by-hand"))?;
    node.run(&[
        "systemd-run",
        "--quiet",
        "--unit=by-hand",
        "systemd-socket-activate",
        "--listen",
        socket,
        "/usr/bin/criprobe",
        "serve",
        "--listen",
        &format!("unix://{socket}"),
        "--api",
        "unix:///run/by-hand/api.sock",
    ])?;
    eventually("it is answered", PATIENCE, async || {
        let Ok(mut client) = cri::connect(&node.file(socket)).await else { return Ok(None) };
        Ok(cri::version(&mut client).await.ok())
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn systemd_learns_what_criprobe_does_and_acts_when_it_hangs() -> Result<()> {
    let Some(lab) = Lab::start()? else { return Ok(()) };
    let Some(node) = Node::boot(&lab)? else { return Ok(()) };
    node.drop_in(SERVICE, "[Service]\nWatchdogSec=3s\n")?;
    node.service("start")?;
    let status_says = async |what: &str| {
        let mut text = String::new();
        let said = eventually("the status says so", PATIENCE, async || {
            text = node.property(SERVICE, "StatusText")?;
            Ok(text.contains(what).then_some(()))
        });
        said.await.map_err(|error| error.context(format!("{what:?} in {text:?}")))
    };
    status_says("relaying to containerd 1.").await?;

    lab.stop()?;
    status_says("the runtime is away since ").await?;
    lab.resume()?;
    status_says("relaying to containerd 1.").await?;

    let wrong = node.file("/etc/criprobe/conf.d/50-test.yaml");
    fs::write(&wrong, "lisen: x\n")?;
    node.service("reload")?;
    status_says("the configuration is wrong, and the previous one stays in effect: ").await?;
    fs::remove_file(&wrong)?;
    node.service("reload")?;
    eventually("the reload is over", PATIENCE, async || {
        let text = node.property(SERVICE, "StatusText")?;
        let state = node.property(SERVICE, "ActiveState")?;
        Ok((state == "active" && !text.contains("wrong")).then_some(()))
    })
    .await?;

    let pid = node.property(SERVICE, "MainPID")?;
    node.run(&["kill", "-STOP", &pid])?;
    eventually("the watchdog replaces a process that hangs", PATIENCE, async || {
        let now = node.property(SERVICE, "MainPID")?;
        Ok((now != "0" && now != pid).then_some(()))
    })
    .await?;
    node.client_that_is_answered().await?;
    ensure!(node.property(SERVICE, "NRestarts")? == "1");
    Ok(())
}
