//! HAProxy and nginx as Debian has them, which are reloaded: new processes take the socket, old ones keep their connections.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use criprobe::clock;
use rustix::process::Signal;

use crate::{comparators::find, process::Process};

/// nginx's module for streams, where Debian puts it.
pub(crate) const STREAM_MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

/// 10 s: a reload that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// 20 ms between two looks at the processes.
const LOOK: Duration = Duration::from_millis(20);

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Haproxy,
    Nginx,
}

/// One of them at work.
pub(crate) struct Proxy {
    kind: Kind,
    process: Arc<Process>,
    seen: Arc<Mutex<HashMap<u32, (Instant, Instant)>>>,
    is_over: Arc<AtomicBool>,
    watcher: Option<thread::JoinHandle<()>>,
    pub(crate) socket: PathBuf,
}

/// Processes that were replaced, and went on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Leftovers {
    /// The most at a time.
    pub(crate) most: usize,
    /// How long the longest went on.
    pub(crate) longest: Duration,
    /// How many were there at the end.
    pub(crate) left: usize,
}

impl Proxy {
    /// Starts it in front of the runtime; its files go to `folder`.
    pub(crate) fn start(kind: Kind, runtime: &Path, folder: &Path) -> Result<Self> {
        let name = match kind {
            Kind::Haproxy => "haproxy",
            Kind::Nginx => "nginx",
        };
        let program = find(name).with_context(|| format!("{name} is not installed"))?;
        let socket = folder.join(format!("{name}.sock"));
        let mut command = Command::new(program);
        match kind {
            Kind::Haproxy => haproxy(&mut command, runtime, folder, &socket)?,
            Kind::Nginx => nginx(&mut command, runtime, folder, &socket)?,
        }
        let process = Arc::new(Process::start(&mut command, &folder.join(format!("{name}.log")))?);
        let seen = Arc::new(Mutex::new(HashMap::new()));
        let is_over = Arc::new(AtomicBool::new(false));
        let watcher = thread::spawn({
            let (process, seen, is_over) = (process.clone(), seen.clone(), is_over.clone());
            move || watch(&process, &seen, &is_over)
        });
        Ok(Self { kind, process, seen, is_over, watcher: Some(watcher), socket })
    }

    /// Has it replace its processes, and waits until a new one is there.
    pub(crate) fn reload(&self) -> Result<()> {
        let before = self.process.children();
        self.process.signal(match self.kind {
            Kind::Haproxy => Signal::USR2,
            Kind::Nginx => Signal::HUP,
        })?;
        let deadline = clock::now() + PATIENCE;
        while self.process.children().iter().all(|child| before.contains(child)) {
            ensure!(clock::now() < deadline, "it starts no new process");
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// What is left of those that were replaced by reloads that were ordered at these times.
    pub(crate) fn leftovers(&self, reloads: &[Instant]) -> Leftovers {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock::now();
        let old: Vec<(Instant, Instant)> = seen
            .values()
            .filter_map(|(first, last)| Some((*reloads.iter().find(|at| *at > first)?, *last)))
            .filter(|(replaced, last)| last > replaced)
            .collect();
        let at = |time: Instant| old.iter().filter(|(from, to)| (*from..=*to).contains(&time)).count();
        Leftovers {
            most: old.iter().map(|(from, _)| at(*from)).max().unwrap_or(0),
            longest: old.iter().map(|(from, to)| *to - *from).max().unwrap_or_default(),
            left: old.iter().filter(|(_, last)| now - *last < 5 * LOOK).count(),
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // A panic in it has been printed.
        let _ = self.watcher.take().map(thread::JoinHandle::join);
    }
}

/// Notes when each process of it was seen first and last.
fn watch(process: &Process, seen: &Mutex<HashMap<u32, (Instant, Instant)>>, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let (now, children) = (clock::now(), process.children());
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        for child in children {
            seen.entry(child).or_insert((now, now)).1 = now;
        }
        drop(seen);
        thread::sleep(LOOK);
    }
}

/// With a master, and new processes that get the sockets from the old ones.
fn haproxy(command: &mut Command, runtime: &Path, folder: &Path, socket: &Path) -> Result<()> {
    let config = format!(
        "global
    maxconn 4096
    stats socket {folder}/haproxy-admin.sock mode 600 level admin expose-fd listeners
defaults
    mode http
    timeout connect 10s
    timeout client 1h
    timeout server 1h
    http-reuse always
frontend clients
    bind unix@{socket} proto h2
    default_backend runtime
backend runtime
    server runtime unix@{runtime} proto h2
",
        folder = folder.display(),
        runtime = runtime.display(),
        socket = socket.display(),
    );
    let path = folder.join("haproxy.cfg");
    fs::write(&path, config)?;
    command.arg("-W").arg("-f").arg(path);
    Ok(())
}

/// Passes bytes on, as criprobe does.
fn nginx(command: &mut Command, runtime: &Path, folder: &Path, socket: &Path) -> Result<()> {
    // Without the line, a worker of root's nginx may not open our sockets.
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let module = find(STREAM_MODULE).map(|module| format!("load_module {};", module.display()));
    let config = format!(
        "{module}
{user}
daemon off;
worker_processes auto;
pid {folder}/nginx.pid;
error_log {folder}/nginx-error.log error;
events {{ worker_connections 4096; }}
stream {{
    server {{
        listen unix:{socket};
        proxy_pass unix:{runtime};
        proxy_timeout 1h;
    }}
}}
",
        module = module.unwrap_or_default(),
        folder = folder.display(),
        runtime = runtime.display(),
        socket = socket.display(),
    );
    let path = folder.join("nginx.conf");
    fs::write(&path, config)?;
    command.arg("-p").arg(folder).arg("-c").arg(path).arg("-e").arg("stderr");
    Ok(())
}
