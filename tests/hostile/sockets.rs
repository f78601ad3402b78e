//! Rows 14 and 19b: sockets, locks and folders that others may touch, and starts right after a kill; and a configuration
//! that is no regular file.

use std::{
    fs::{self, File, Permissions},
    os::unix::{fs::PermissionsExt as _, net::UnixListener},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use criprobe::demo::EnvValues;
use rustix::{
    fs::{CWD, Mode, mkfifoat},
    process::Signal,
};

use crate::{
    rig::{Rig, runtime},
    support::{PATIENCE, cri, daemon::Daemon, eventually},
};

/// Starts a daemon that is expected to end by itself, and gives its exit code and what it said.
async fn refused(listen: &Path, api: &Path) -> Result<(Option<i32>, String)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_criprobe"));
    command.arg("serve").arg("--listen").arg(listen).arg("--api").arg(api);
    command.args(["--runtime", "/run/none.sock"]).env("CRIPROBE_STATE", listen.with_extension("state"));
    let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let mut process = Killed(process);
    eventually("it ends", PATIENCE, async || Ok(process.0.try_wait()?)).await?;
    let said = std::io::read_to_string(process.0.stderr.take().context("it is piped")?)?;
    Ok((process.0.try_wait()?.and_then(|status| status.code()), said))
}

/// A process that does not outlive its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_14_a_folder_that_others_may_write_to_is_refused_for_each_socket() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (open, safe) = (dir.path().join("open"), dir.path().join("safe"));
    fs::create_dir(&open)?;
    fs::create_dir(&safe)?;
    // What another user could do in a sticky folder: hold the lock that a start takes.
    let lock = File::create(open.join(".criprobe.sock.lock"))?;
    lock.lock()?;
    for mode in [0o777, 0o1777] {
        fs::set_permissions(&open, Permissions::from_mode(mode))?;
        for (listen, api) in [(&open, &safe), (&safe, &open)] {
            let (code, said) = refused(&listen.join("criprobe.sock"), &api.join("api.sock")).await?;
            let reported = format!("others can write to {} (mode {mode:04o})", open.display());
            ensure!(
                code == Some(1) && said.lines().count() == 1 && said.contains(&reported),
                "{mode:o}: {code:?} {said}"
            );
            ensure!(said.contains("use a folder that only root can write to"), "{said}");
        }
    }
    assert_eq!(fs::read_dir(&safe)?.count(), 0, "nothing is left of the socket that could be made");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_19b_a_socket_whose_holder_is_just_ending_is_tried_again() -> Result<()> {
    let (runtime, _dir) = runtime(EnvValues::default())?;
    for name in ["criprobe.sock", "api.sock"] {
        let dir = tempfile::Builder::new().prefix("criprobe-").tempdir()?;
        let holder = UnixListener::bind(dir.path().join(name))?;
        // A kernel that takes its time to end a process that was killed.
        let ending = thread::spawn(move || {
            thread::sleep(Duration::from_millis(300));
            drop(holder);
        });
        let mut daemon = Killed(Daemon::command(dir.path(), runtime.socket()).spawn()?);
        let socket = dir.path().join("criprobe.sock");
        let mut client = eventually(&format!("it serves in spite of {name}"), PATIENCE, async || {
            ensure!(daemon.0.try_wait()?.is_none(), "the start was refused: {name}");
            Ok(cri::connect(&socket).await.ok())
        })
        .await?;
        ending.join().expect("the holder ends");
        eventually("the runtime answers", PATIENCE, async || Ok(cri::version(&mut client).await.ok()))
            .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_19b_ten_kills_with_a_start_at_once_are_ten_starts() -> Result<()> {
    let (runtime, _dir) = runtime(EnvValues::default())?;
    let dir = tempfile::Builder::new().prefix("criprobe-").tempdir()?;
    let api = dir.path().join("api.sock");
    let mut daemon = Killed(Daemon::command(dir.path(), runtime.socket()).spawn()?);
    for round in 0..10 {
        let pid = daemon.0.id();
        eventually("the newest one answers", PATIENCE, async || {
            ensure!(daemon.0.try_wait()?.is_none(), "start {round} was refused");
            // Its predecessor's socket is still there for a moment.
            let Ok(stream) = tokio::net::UnixStream::connect(&api).await else { return Ok(None) };
            Ok((stream.peer_cred()?.pid() == i32::try_from(pid).ok()).then_some(()))
        })
        .await?;
        daemon.0.kill()?;
        let next = Killed(Daemon::command(dir.path(), runtime.socket()).spawn()?);
        drop(std::mem::replace(&mut daemon, next));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_pipe_as_configuration_holds_up_neither_the_start_nor_a_reload() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let config = dir.path().join("config.yaml");
    let pipe = || mkfifoat(CWD, &config, Mode::from_raw_mode(0o600));
    pipe()?;
    let reported = format!(
        "{}: cannot read the configuration: it is a named pipe, not a regular file",
        config.display()
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_criprobe"));
    command.arg("serve").arg("--config").arg(&config).stderr(Stdio::piped());
    let mut process = Killed(command.spawn()?);
    let status = eventually("it ends", PATIENCE, async || Ok(process.0.try_wait()?)).await?;
    let said = std::io::read_to_string(process.0.stderr.take().context("it is piped")?)?;
    assert_eq!((status.code(), said.trim_end()), (Some(78), &*format!("criprobe: {reported}")));

    fs::remove_file(&config)?;
    fs::write(&config, "prober: {workers: 3}\n")?;
    let rig = Rig::with(&[("CRIPROBE_CONFIG", &config.display().to_string())]).await?;
    fs::remove_file(&config)?;
    pipe()?;
    rig.daemon.signal(Signal::HUP);
    let errors = async |is_wanted: &dyn Fn(&serde_json::Value) -> bool| {
        eventually("the status says how the configuration is", PATIENCE, async || {
            let errors = rig.daemon.status().await?["config"]["errors"].clone();
            Ok(is_wanted(&errors).then_some(()))
        })
        .await
    };
    errors(&|errors| errors[0] == reported.as_str()).await?;
    fs::remove_file(&config)?;
    fs::write(&config, "prober: {workers: 4}\n")?;
    errors(&|errors| errors.as_array().is_some_and(Vec::is_empty)).await
}
