//! The CPU time of the runtime: that of its cgroup, in which its shims are, too. The runtime's process is the one that listens
//! on its socket. Where it has no cgroup of its own, or none that can be read, nothing is known.

use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::{
    net::UnixStream,
    sync::watch,
    task::spawn_blocking,
    time::{sleep, timeout},
};

use super::link::Link;
use crate::{clock, peer::Peer, stage::Tasks};

/// 10 s from one look to the next: two short files are read.
const LOOK: Duration = Duration::from_secs(10);

/// 64 looks are kept: more than 10 minutes.
const MOST: usize = 64;

/// 1 s for a connection by which the runtime's process is found.
const CONNECT: Duration = Duration::from_secs(1);

/// Where the kernel shows processes and cgroups.
const PROC: &str = "/proc";
const CGROUPS: &str = "/sys/fs/cgroup";

/// What is known of the CPU time of the runtime; clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuntimeUsage(Arc<Mutex<Looks>>);

/// The CPU time that was used up at some moments, oldest first.
#[derive(Debug, Default)]
struct Looks(VecDeque<(Instant, Duration)>);

impl RuntimeUsage {
    /// Looks every now and then at the runtime with this socket.
    pub(crate) fn spawn(socket: PathBuf, link: watch::Receiver<Link>, tasks: &mut Tasks) -> Self {
        let usage = Self::default();
        let kept = usage.clone();
        tasks.spawn(tasks.supervise("runtime usage", async move || {
            watch(&kept, &socket, link.clone()).await;
        }));
        usage
    }

    /// How many cores were busy on average, over about that time.
    pub(crate) fn cores(&self, within: Duration, now: Instant) -> Option<f64> {
        self.looks().cores(within, now)
    }

    fn looks(&self) -> MutexGuard<'_, Looks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Looks {
    fn note(&mut self, at: Instant, used: Duration) {
        // A cgroup that was made again counts from zero.
        if self.0.back().is_some_and(|(_, before)| used < *before) {
            self.0.clear();
        }
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back((at, used));
    }

    fn cores(&self, within: Duration, now: Instant) -> Option<f64> {
        let (last_at, last) = self.0.back()?;
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) <= within + LOOK;
        let (first_at, first) = self.0.iter().find(|(at, _)| is_recent(at))?;
        let over = last_at.saturating_duration_since(*first_at);
        (!over.is_zero()).then(|| (*last - *first).as_secs_f64() / over.as_secs_f64())
    }
}

/// Looks until the link is gone. The process is looked up again whenever the runtime has come back.
async fn watch(usage: &RuntimeUsage, socket: &Path, mut link: watch::Receiver<Link>) {
    loop {
        if link.wait_for(|link| link.is_up).await.is_err() {
            return std::future::pending().await;
        }
        usage.looks().0.clear();
        let file = match process(socket).await {
            Some(peer) => {
                spawn_blocking(move || usage_file(Path::new(PROC), Path::new(CGROUPS), &peer)).await
            }
            None => Ok(None),
        };
        // An error is a panic of ours, which is logged.
        let Some(file) = file.ok().flatten() else {
            tracing::debug!(
                "the runtime's CPU time is not known: it has no cgroup of its own that can be read"
            );
            if link.wait_for(|link| !link.is_up).await.is_err() {
                return std::future::pending().await;
            }
            continue;
        };
        while link.borrow_and_update().is_up {
            let read = file.clone();
            if let Ok(Some(used)) = spawn_blocking(move || read.used()).await {
                usage.looks().note(clock::now(), used);
            }
            tokio::select! {
                () = sleep(LOOK) => {}
                is_over = async { link.wait_for(|link| !link.is_up).await.is_err() } => if is_over {
                    return std::future::pending().await;
                },
            }
        }
    }
}

/// The process that listens on the socket.
async fn process(socket: &Path) -> Option<Peer> {
    let connection = timeout(CONNECT, UnixStream::connect(socket)).await.ok()?.ok()?;
    Peer::of(&connection).ok().filter(|peer| peer.pid > 0 && !peer.comm.is_empty())
}

/// Where the kernel counts the CPU time of a cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
enum UsageFile {
    /// Version 2: `cpu.stat`, in microseconds.
    Stat(PathBuf),
    /// Version 1: `cpuacct.usage`, in nanoseconds.
    Account(PathBuf),
}

impl UsageFile {
    fn used(&self) -> Option<Duration> {
        match self {
            Self::Stat(path) => {
                let text = fs::read_to_string(path).ok()?;
                let micros = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
                Some(Duration::from_micros(micros.trim().parse().ok()?))
            }
            Self::Account(path) => {
                Some(Duration::from_nanos(fs::read_to_string(path).ok()?.trim().parse().ok()?))
            }
        }
    }
}

/// That of the cgroup of a process, if that is a unit of systemd which is named after it: `containerd.service`. Others may
/// have other work, as `k3s.service` has, or a session. A process behind socket activation shows as systemd's own.
fn usage_file(proc: &Path, cgroups: &Path, peer: &Peer) -> Option<UsageFile> {
    let lines = fs::read_to_string(proc.join(format!("{}/cgroup", peer.pid))).ok()?;
    // NUMBER:CONTROLLERS:PATH; version 2 has the number 0 and no controllers.
    let of = |wanted: &dyn Fn(&str) -> bool| {
        lines.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let unit = path.rsplit('/').next().and_then(|name| name.strip_suffix(".service"));
            let is_own = unit.is_some_and(|unit| unit.contains(&*peer.comm)) && !path.contains("..");
            (controllers.split(',').any(wanted) && is_own).then(|| path.trim_start_matches('/').to_owned())
        })
    };
    let stat = of(&str::is_empty).map(|path| UsageFile::Stat(cgroups.join(path).join("cpu.stat")));
    let account = of(&|controller| controller == "cpuacct")
        .map(|path| UsageFile::Account(cgroups.join("cpuacct").join(path).join("cpuacct.usage")));
    [stat, account].into_iter().flatten().find(|file| file.used().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cores_are_those_of_the_window_and_a_cgroup_that_was_made_again_begins_anew() {
        let (mut looks, start) = (Looks::default(), clock::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(looks.cores(LOOK, start), None);
        for (seconds, used) in [(0, 100), (10, 101), (20, 102), (30, 112)] {
            looks.note(at(seconds), Duration::from_secs(used));
        }
        assert_eq!(looks.cores(Duration::from_secs(60), at(30)), Some(0.4));
        assert_eq!(looks.cores(Duration::from_secs(5), at(32)), Some(1.0));
        looks.note(at(40), Duration::from_secs(3));
        assert_eq!(looks.cores(Duration::from_secs(60), at(40)), None);
        for more in 0..200 {
            looks.note(at(50 + more), Duration::from_secs(more));
        }
        assert_eq!(looks.0.len(), MOST);
    }

    #[test]
    fn only_a_unit_that_is_named_after_the_runtime_is_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let (proc, cgroups) = (dir.path().join("proc"), dir.path().join("cgroup"));
        let write = |path: PathBuf, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for unit in
            ["system.slice/containerd.service", "system.slice/k3s.service", "user.slice/session-1.scope", ""]
        {
            write(cgroups.join(unit).join("cpu.stat"), "usage_usec 2500000\nuser_usec 1\n");
        }
        write(cgroups.join("cpuacct/system.slice/containerd.service/cpuacct.usage"), "1500000000\n");
        let peer = Peer { pid: 7, uid: 0, comm: "containerd".to_owned() };
        for (lines, used) in [
            ("0::/system.slice/containerd.service\n", Some(2_500)),
            ("5:cpu,cpuacct:/system.slice/containerd.service\n0::/\n", Some(1_500)),
            ("0::/system.slice/k3s.service\n", None),
            ("0::/user.slice/session-1.scope\n", None),
            ("0::/\n", None),
            ("0::/../system.slice/containerd.service\n", None),
            ("0::/system.slice/other-containerd.service\n", None),
            ("nonsense\n", None),
        ] {
            write(proc.join("7/cgroup"), lines);
            let file = usage_file(&proc, &cgroups, &peer);
            let used = used.map(Duration::from_millis);
            assert_eq!(file.as_ref().and_then(UsageFile::used), used, "{lines}");
        }
        assert_eq!(usage_file(&proc, &cgroups, &Peer { pid: 1, ..peer }), None);
    }
}
