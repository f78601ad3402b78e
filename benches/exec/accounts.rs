//! CPU time by process: cgroups and /proc in, what was used between two looks out. Cgroups count every process that has ended,
//! however short its life.

use std::{
    fs,
    path::{Path, PathBuf},
    process,
    str::FromStr,
    thread,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, Result};
use criprobe::{clock, ids::ContainerId};

use crate::process::when_interrupted;

/// Where cgroups count CPU time: the `cpuacct` hierarchy of version 1, or the only one of version 2 (cgroups(7)).
const HIERARCHIES: [&str; 2] = ["/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup"];

/// 10 ms: the unit of the times in /proc/stat (USER_HZ is 100).
const TICK: Duration = Duration::from_millis(10);

/// 5 s: for the end of the last process of a cgroup.
const END: Duration = Duration::from_secs(5);

/// A cgroup that this bench has made. Removed when dropped, or by an interruption; its processes have to be gone by then.
pub(crate) struct Cgroup {
    folder: PathBuf,
}

impl Cgroup {
    /// Makes an empty one.
    pub(crate) fn make(name: &str) -> Result<Self> {
        let folder = top()?.join(format!("criprobe-bench-{}-{name}", process::id()));
        fs::create_dir(&folder).with_context(|| format!("make the cgroup {}", folder.display()))?;
        when_interrupted({
            let folder = folder.clone();
            move || remove(&folder)
        });
        Ok(Self { folder })
    }

    /// Moves a process into it, with its threads. What it starts from now on is in it, too.
    pub(crate) fn adopt(&self, pid: u32) -> Result<()> {
        let procs = self.folder.join("cgroup.procs");
        fs::write(&procs, pid.to_string()).with_context(|| format!("write to {}", procs.display()))
    }

    /// Its processes whose names begin so.
    fn processes(&self, name: &str) -> Result<Vec<u32>> {
        let pids = fs::read_to_string(self.folder.join("cgroup.procs"))?;
        let is_named = |pid: &u32| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.starts_with(name))
        };
        Ok(pids.lines().filter_map(|pid| pid.parse().ok()).filter(is_named).collect())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        remove(&self.folder);
    }
}

/// Removes a cgroup, as soon as its last process has ended.
fn remove(folder: &Path) {
    let deadline = clock::now() + END;
    while fs::remove_dir(folder).is_err() && folder.exists() && clock::now() < deadline {
        thread::sleep(Duration::from_millis(20));
    }
}

/// Where a container's processes are counted, as runc and crun place them without systemd.
pub(crate) fn of_container(id: &ContainerId) -> Result<PathBuf> {
    Ok(top()?.join("k8s.io").join(id.as_str()))
}

/// How many processes a cgroup has.
pub(crate) fn population(folder: &Path) -> usize {
    fs::read_to_string(folder.join("cgroup.procs")).map_or(0, |pids| pids.lines().count())
}

fn top() -> Result<&'static Path> {
    let mut hierarchies = HIERARCHIES.into_iter().map(Path::new);
    let mounted = hierarchies.find(|path| path.join("cgroup.procs").exists());
    mounted.context("no hierarchy of cgroups that counts CPU time is mounted")
}

/// What a cgroup has used.
fn used(folder: &Path) -> Result<Duration> {
    if let Ok(nanos) = fs::read_to_string(folder.join("cpuacct.usage")) {
        return Ok(Duration::from_nanos(nanos.trim().parse()?));
    }
    let path = folder.join("cpu.stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let micros = stat.lines().find_map(|line| line.strip_prefix("usage_usec "));
    Ok(Duration::from_micros(micros.context("cpu.stat has no usage")?.parse()?))
}

/// What the threads of a process have used that are there; a daemon's stay.
fn used_by(pid: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let nanos = threads.filter_map(|thread| {
        let times = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        times.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}

/// How long the machine's processors were busy since its start: user, nice, system, irq, softirq (proc_stat(5)).
fn busy() -> Result<Duration> {
    let stat = fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().context("/proc/stat is empty")?;
    let fields: Vec<&str> = line.split_whitespace().collect();
    let ticks = [1, 2, 3, 6, 7].map(|field| fields.get(field).and_then(|ticks| u32::from_str(ticks).ok()));
    let ticks = ticks.into_iter().sum::<Option<u32>>().context("/proc/stat begins with no times")?;
    Ok(TICK * ticks)
}

/// Whose time is looked at.
pub(crate) struct Accounts<'a> {
    /// containerd, its shims, and what these start, until that is in its container.
    pub(crate) service: &'a Cgroup,
    /// containerd.
    pub(crate) daemon: u32,
    pub(crate) containers: &'a [PathBuf],
    pub(crate) criprobe: Option<&'a Cgroup>,
}

/// One look: times since some start.
pub(crate) struct Look {
    at: Instant,
    pub(crate) wall: SystemTime,
    shares: Shares,
    machine: Duration,
}

/// CPU time by process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shares {
    pub(crate) containerd: Duration,
    pub(crate) shims: Duration,
    /// runc or crun, as long as it is in none of the containers.
    pub(crate) runtime: Duration,
    /// The command, and the part of the runtime's start that is in the container.
    pub(crate) containers: Duration,
    pub(crate) criprobe: Duration,
}

/// What was used between two looks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    pub(crate) took: Duration,
    pub(crate) shares: Shares,
    /// By all processes of the machine.
    pub(crate) machine: Duration,
}

impl Accounts<'_> {
    /// Resident memory of containerd and of its shims, in octets.
    pub(crate) fn resident(&self) -> Result<u64> {
        let pids = self.service.processes("containerd")?;
        let kib = pids.into_iter().filter_map(|pid| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
            kib.trim().trim_end_matches(" kB").parse::<u64>().ok()
        });
        Ok(kib.sum::<u64>() << 10)
    }

    pub(crate) fn look(&self) -> Result<Look> {
        let service = used(&self.service.folder)?;
        let containerd = used_by(self.daemon);
        let shims = self.service.processes("containerd-shim")?.into_iter().map(used_by).sum();
        let containers = self.containers.iter().map(|folder| used(folder)).sum::<Result<_>>()?;
        let criprobe = self.criprobe.map(|cgroup| used(&cgroup.folder)).transpose()?.unwrap_or_default();
        let runtime = service.saturating_sub(containerd + shims);
        let shares = Shares { containerd, shims, runtime, containers, criprobe };
        Ok(Look { at: clock::now(), wall: clock::wall(), shares, machine: busy()? })
    }
}

impl Look {
    /// What was used since an earlier look.
    pub(crate) fn since(&self, before: &Self) -> Used {
        Used {
            took: self.at - before.at,
            shares: self.shares.with(before.shares, Duration::saturating_sub),
            machine: self.machine.saturating_sub(before.machine),
        }
    }
}

impl Shares {
    /// Of all together.
    pub(crate) fn total(&self) -> Duration {
        let Self { containerd, shims, runtime, containers, criprobe } = *self;
        containerd + shims + runtime + containers + criprobe
    }

    fn with(self, other: Self, combine: impl Fn(Duration, Duration) -> Duration) -> Self {
        Self {
            containerd: combine(self.containerd, other.containerd),
            shims: combine(self.shims, other.shims),
            runtime: combine(self.runtime, other.runtime),
            containers: combine(self.containers, other.containers),
            criprobe: combine(self.criprobe, other.criprobe),
        }
    }
}
