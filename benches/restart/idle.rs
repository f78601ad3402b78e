//! What a restart takes that is none of criprobe's: a service that does nothing, under the same unit. It notes when its code
//! begins and when it ends; between the one and the next is what systemd and the kernel need.

use std::{
    env,
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::net::UnixDatagram,
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, Result};
use criprobe::clock;
use tokio::signal::unix::{SignalKind, signal};

/// The first argument that makes this program the service.
pub(crate) const ARGUMENT: &str = "idle-service";

/// Where it is installed, and where it notes its times.
pub(crate) const PROGRAM: &str = "/usr/bin/criprobe-idle";
pub(crate) const TIMES: &str = "/var/log/criprobe/idle-times";

/// Runs the service until SIGUSR1 or SIGTERM, as `began` at this time.
pub(crate) fn serve(began: Duration) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _entered = runtime.enter();
    let (mut replace, mut terminate) =
        (signal(SignalKind::user_defined1())?, signal(SignalKind::terminate())?);
    let mut times = OpenOptions::new().create(true).append(true).open(TIMES)?;
    let socket = env::var_os("NOTIFY_SOCKET").context("no service manager has started this")?;
    UnixDatagram::unbound()?.send_to(b"READY=1", Path::new(&socket))?;
    runtime.block_on(async {
        tokio::select! {
            _ = replace.recv() => {}
            _ = terminate.recv() => {}
        }
    });
    Ok(writeln!(times, "{} {}", began.as_nanos(), clock::since_boot().as_nanos())?)
}

/// The times between one process and the next that are noted in this file.
pub(crate) fn gaps(file: &Path) -> Result<Vec<Duration>> {
    let text = fs::read_to_string(file)?;
    let times: Vec<(u64, u64)> = text
        .lines()
        .map(|line| {
            let (began, ended) = line.split_once(' ').context("a line has two times")?;
            Ok((began.parse()?, ended.parse()?))
        })
        .collect::<Result<_>>()?;
    let pairs = times.windows(2).map(|pair| Duration::from_nanos(pair[1].0.saturating_sub(pair[0].1)));
    Ok(pairs.collect())
}
