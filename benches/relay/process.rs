//! The processes that the bench starts: their CPU time and memory, and their end, however the bench ends.

use std::{
    collections::HashMap,
    fs::{self, File},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    str::FromStr,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use criprobe::clock;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::signal::unix::{SignalKind, signal};

/// 10 ms: the unit of the times in /proc/PID/stat (USER_HZ is 100).
const TICK: Duration = Duration::from_millis(10);

/// 1 s: who has not ended by then when asked is killed.
const END: Duration = Duration::from_secs(1);

/// What has to go when the bench is interrupted.
static LEFT: Mutex<Left> = Mutex::new(Left { groups: Vec::new(), cleanups: Vec::new() });

struct Left {
    groups: Vec<Pid>,
    /// What is done once these are killed.
    cleanups: Vec<Box<dyn FnOnce() + Send>>,
}

fn left() -> MutexGuard<'static, Left> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// criprobe as `make build` builds it: cargo puts it in the folder above that of this program.
pub(crate) fn built_binary() -> PathBuf {
    let this = std::env::current_exe().unwrap_or_default();
    let folder = this.ancestors().nth(2).unwrap_or(Path::new("target/release"));
    folder.join("criprobe")
}

/// A child with whatever it forks, killed when dropped.
pub(crate) struct Process {
    child: Child,
    group: Pid,
    log: PathBuf,
}

impl Process {
    /// Starts `command`; what it prints goes to `log`.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let output = File::create(log)?;
        command.process_group(0).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        // Held while starting, so that an interruption finds the child.
        let mut left = left();
        let child = command.spawn().with_context(|| format!("start {}", command.get_program().display()))?;
        let group = Pid::from_child(&child);
        left.groups.push(group);
        Ok(Self { child, group, log: log.to_owned() })
    }

    /// Its process ID.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(self.group, signal)?)
    }

    /// The processes that it has started, as long as they run.
    pub(crate) fn children(&self) -> Vec<u32> {
        let pid = self.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        children.split_whitespace().filter_map(|child| child.parse().ok()).collect()
    }

    /// # Errors
    /// Fails with the last line that the process printed when it has ended.
    pub(crate) fn ensure_running(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        bail!("it ended with {status}: {}", log.lines().last().unwrap_or("(no output)"))
    }

    /// User and system time of the process and all its descendants, those that ended included.
    pub(crate) fn cpu(&self) -> Duration {
        let processes: HashMap<u32, Stat> = fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter_map(|pid| Some((pid, Stat::read(pid)?)))
            .collect();
        let is_ours = |pid: &u32| {
            let mut at = *pid;
            // A fork is a few generations below at most.
            for _ in 0..8 {
                if at == self.id() {
                    return true;
                }
                match processes.get(&at) {
                    Some(stat) => at = stat.parent,
                    None => return false,
                }
            }
            false
        };
        processes.iter().filter(|(pid, _)| is_ours(pid)).map(|(_, stat)| TICK * stat.ticks).sum()
    }

    /// Resident memory in octets.
    pub(crate) fn resident(&self) -> Result<u64> {
        self.memory("VmRSS:")
    }

    /// The highest resident memory since the last reset, in octets.
    pub(crate) fn peak(&self) -> Result<u64> {
        self.memory("VmHWM:")
    }

    /// Makes the peak start again from now.
    pub(crate) fn reset_peak(&self) -> Result<()> {
        let path = format!("/proc/{}/clear_refs", self.id());
        fs::write(&path, "5").with_context(|| format!("write to {path}"))
    }

    /// Open descriptors.
    pub(crate) fn descriptors(&self) -> Result<usize> {
        Ok(fs::read_dir(format!("/proc/{}/fd", self.id()))?.count())
    }

    /// How long its threads whose names begin so have waited for a processor (proc_pid_schedstat(5)).
    pub(crate) fn waited(&self, name: &str) -> Duration {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.id()));
        let waited = tasks.into_iter().flatten().flatten().filter_map(|task| {
            let is_meant = fs::read_to_string(task.path().join("comm")).ok()?.starts_with(name);
            let times = fs::read_to_string(task.path().join("schedstat")).ok()?;
            let waited = times.split_whitespace().nth(1)?.parse().ok()?;
            is_meant.then(|| Duration::from_nanos(waited))
        });
        waited.sum()
    }

    /// Threads.
    pub(crate) fn threads(&self) -> Result<usize> {
        Ok(self.status("Threads:")?.parse()?)
    }

    fn memory(&self, key: &str) -> Result<u64> {
        let kib: u64 = self.status(key)?.trim_end_matches(" kB").parse()?;
        Ok(kib * 1024)
    }

    /// A line of /proc/PID/status without its key.
    fn status(&self, key: &str) -> Result<String> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        Ok(line.with_context(|| format!("the process's status has no {key}"))?.trim().to_owned())
    }
}

impl Drop for Process {
    /// Asks it to end, so that it collects its own children; then kills what is left.
    fn drop(&mut self) {
        // Any of these fails only if it is gone already.
        let _ = kill_process(self.group, Signal::TERM);
        let deadline = clock::now() + END;
        while matches!(self.child.try_wait(), Ok(None)) && clock::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        let _ = kill_process_group(self.group, Signal::KILL);
        let _ = self.child.wait();
        left().groups.retain(|group| *group != self.group);
    }
}

/// What /proc/PID/stat says.
struct Stat {
    parent: u32,
    ticks: u32,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name stands in parentheses and may hold anything; field 3 follows it (proc(5)).
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| u32::from_str(fields.get(number - 3)?).ok();
        let ticks = (14..=17).map(field).sum::<Option<u32>>()?;
        Some(Self { parent: field(4)?, ticks })
    }
}

/// From now on SIGINT and SIGTERM end every process that was started, remove what is to be removed, and then end
/// the bench.
pub(crate) fn clean_up_when_interrupted() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut interrupts, mut terminations) = {
        let _entered = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupts.recv() => {}
                _ = terminations.recv() => {}
            }
        });
        // Held until the end, so that nothing is started any more.
        let mut left = left();
        for group in &left.groups {
            let _ = kill_process_group(*group, Signal::KILL);
        }
        for clean_up in left.cleanups.drain(..) {
            clean_up();
        }
        eprintln!("interrupted");
        std::process::exit(130);
    });
    Ok(())
}

/// Has a file or folder removed by an interruption; else its owner removes it.
pub(crate) fn remove_when_interrupted(path: PathBuf) {
    when_interrupted(move || {
        let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    });
}

/// Has this done by an interruption, when all processes are killed.
pub(crate) fn when_interrupted(clean_up: impl FnOnce() + Send + 'static) {
    left().cleanups.push(Box::new(clean_up));
}
