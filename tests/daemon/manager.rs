//! What a service manager passes and learns, by its protocol alone: `tests/systemd/` has a real one.

use std::{os::unix::net::UnixDatagram, process::Command};

use anyhow::{Context as _, Result, ensure};
use criprobe::demo::EnvValues;
use rustix::process::Signal;

use crate::{
    rig::runtime,
    support::{PATIENCE, cri, daemon::Daemon},
};

/// The end of a service manager that receives notices.
struct Notices(UnixDatagram);

impl Notices {
    /// Waits for a datagram with a line that begins like this, and returns its lines.
    fn with(&self, beginning: &str) -> Result<Vec<String>> {
        let mut buffer = [0; 4096];
        loop {
            let length = self.0.recv(&mut buffer).with_context(|| format!("no notice {beginning}"))?;
            let lines: Vec<_> =
                String::from_utf8_lossy(&buffer[..length]).lines().map(str::to_owned).collect();
            if lines.iter().any(|line| line.starts_with(beginning)) {
                return Ok(lines);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_learns_of_the_start_of_reloads_of_each_third_of_its_watchdogs_time_and_of_the_end()
-> Result<()> {
    let (runtime, _containers) = runtime(EnvValues::default())?;
    let dir = tempfile::Builder::new().prefix("criprobe-").tempdir()?;
    let path = dir.path().join("notify.sock");
    let notices = Notices(UnixDatagram::bind(&path)?);
    notices.0.set_read_timeout(Some(PATIENCE))?;
    let notify = path.to_str().context("a path in UTF-8")?;
    let settings = [("NOTIFY_SOCKET", notify), ("WATCHDOG_USEC", "900000")];
    let mut daemon = Daemon::spawn(runtime.socket(), &settings)?;

    notices.with("READY=1")?;
    cri::version(&mut daemon.client().await?).await?;
    notices.with("STATUS=relaying to ")?;
    for _ in 0..3 {
        notices.with("WATCHDOG=1")?;
    }
    daemon.signal(Signal::HUP);
    let reloading = notices.with("RELOADING=1")?;
    ensure!(reloading.iter().any(|line| line.starts_with("MONOTONIC_USEC=")), "{reloading:?}");
    notices.with("READY=1")?;
    daemon.terminate();
    let stopping = notices.with("STOPPING=1")?;
    ensure!(stopping.contains(&"STATUS=draining: calls in flight end".to_owned()), "{stopping:?}");
    ensure!(daemon.ended().await?.success());
    Ok(())
}

#[tokio::test]
async fn descriptors_that_were_announced_and_do_not_exist_are_one_line() -> Result<()> {
    let (runtime, _containers) = runtime(EnvValues::default())?;
    let dir = tempfile::Builder::new().prefix("criprobe-").tempdir()?;
    let plain = Daemon::command(dir.path(), runtime.socket());
    let mut command = Command::new("sh");
    command.args(["-c", "LISTEN_PID=$$ exec \"$@\"", "sh"]).arg(plain.get_program()).args(plain.get_args());
    for (name, value) in plain.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    let log = std::fs::File::create(dir.path().join("log"))?;
    let process = command.env("LISTEN_FDS", "900").stderr(log).spawn()?;
    let mut daemon = Daemon::of(process, dir);
    daemon.ready().await?;
    cri::version(&mut daemon.client().await?).await?;
    let log = daemon.log();
    ensure!(log.lines().filter(|line| line.contains("LISTEN_FDS")).count() == 1, "{log}");
    Ok(())
}
