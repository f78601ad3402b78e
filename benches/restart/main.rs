//! Measures what clients notice while criprobe is restarted by a real systemd, and while HAProxy and nginx are reloaded: `make
//! bench-restart`. The runtime is criprobe's embedded one.
//!
//! Flags in; tables on stdout, progress on stderr, and Markdown in a file if asked. Ends only what it started.

mod idle;
mod lab;
mod load;
mod measured;
mod node;
mod proxies;
mod service;

#[path = "../relay/comparators.rs"]
mod comparators;
#[path = "../shared.rs"]
#[allow(dead_code)]
mod shared;

use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use criprobe::{
    clock,
    demo::{EmbeddedRuntime, Options},
};
use figure::Figure;
use flags::Flags;
use load::Load;
use measured::Measured;
use node::Node;
use proxies::{Kind, Leftovers, Proxy};
use service::{Idle, Service};
use shared::{figure, flags, machine, process, table};
use table::Table;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// 10 s: what does not answer by then is left out.
const START: Duration = Duration::from_secs(10);

/// 60 s: how long the long calls may take beyond their time.
const LATE: Duration = Duration::from_secs(60);

/// 2: each takes 10 s if it drains, while a command runs.
const DRAINS: u32 = 2;

/// Measures what clients notice of restarts.
#[derive(Parser)]
#[command(name = "restart")]
struct Arguments {
    /// Five restarts each, a command of 8 s, a pull of 12 s
    #[arg(long)]
    quick: bool,
    /// How often each is restarted, in equal steps while the long command runs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    restarts: Option<u32>,
    /// Only these
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<Way>,
    /// The build that runs first: the restart in the middle is the upgrade from it
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags,
}

/// What is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    /// criprobe, as its unit has it; first, what a restart takes that is none of its own
    Criprobe,
    /// criprobe, whose connections no service manager keeps
    Drained,
    /// HAProxy with a master, which passes its sockets on
    Haproxy,
    /// nginx, which passes bytes on (stream)
    Nginx,
}

impl Way {
    const ALL: [Self; 4] = [Self::Criprobe, Self::Drained, Self::Haproxy, Self::Nginx];

    fn title(self) -> &'static str {
        match self {
            Self::Criprobe => "criprobe",
            Self::Drained => "criprobe that drains (no fd store)",
            Self::Haproxy => "HAProxy, reloaded",
            Self::Nginx => "nginx stream, reloaded",
        }
    }
}

/// What all ways share.
struct Setting<'a> {
    arguments: &'a Arguments,
    restarts: u32,
    /// How long the command runs.
    exec: Duration,
    /// How long the pull takes.
    pull: Duration,
    threads: Runtime,
    runtime: Option<EmbeddedRuntime>,
    folder: TempDir,
}

fn main() -> ExitCode {
    let began = clock::since_boot();
    let ran = match env::args().nth(1) {
        Some(argument) if argument == idle::ARGUMENT => idle::serve(began).map(|()| true),
        _ => run(&Arguments::parse()),
    };
    flags::exit_code(ran)
}

/// Says whether every figure that had to be reached was, as far as that was asked for.
fn run(arguments: &Arguments) -> Result<bool> {
    process::clean_up_when_interrupted()?;
    comparators::install_missing(&[
        ("haproxy", "haproxy"),
        ("nginx", "nginx-light"),
        (proxies::STREAM_MODULE, "libnginx-mod-stream"),
    ]);
    let setting = Setting::new(arguments)?;
    let is_wanted = |way: &Way| arguments.only.is_empty() || arguments.only.contains(way);
    let (mut measured, mut figures) = (Vec::new(), Vec::new());
    let mut node = None;
    for way in Way::ALL.into_iter().filter(is_wanted) {
        eprintln!("{}", way.title());
        let found = match way {
            Way::Criprobe | Way::Drained => setting.on_node(&mut node, way, &mut figures),
            Way::Haproxy => setting.reloaded(way, Kind::Haproxy).map(|found| vec![found]),
            Way::Nginx => setting.reloaded(way, Kind::Nginx).map(|found| vec![found]),
        };
        match found {
            Ok(found) => measured.extend(found),
            Err(error) if way == Way::Criprobe => figures.push(Figure::unmeasured(&error)),
            Err(error) => eprintln!("left out: {}: {error:#}", way.title()),
        }
    }
    let head = setting.head();
    let figures_table = figure::table("criprobe", &figures);
    let compared = Table {
        title: "Side by side".to_owned(),
        head: ["", "restarts", "calls", "cut", "longest call", "old processes", "for up to"],
        rows: measured.iter().map(Measured::cells).collect(),
    };
    println!("{head}\n\n{}\n{}", figures_table.text(), compared.text());
    let markdown = format!("{head}\n\n{}\n{}", figures_table.markdown(), compared.markdown());
    arguments.flags.conclude(&markdown, figure::are_reached(&figures))
}

impl<'a> Setting<'a> {
    fn new(arguments: &'a Arguments) -> Result<Self> {
        let (restarts, exec, pull) = if arguments.quick { (5, 8, 12) } else { (20, 30, 60) };
        let (exec, pull) = (Duration::from_secs(exec), Duration::from_secs(pull));
        let folder = tempfile::Builder::new().prefix("criprobe-restart-").tempdir()?;
        process::remove_when_interrupted(folder.path().to_owned());
        let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let places = (folder.path().join("rt/containerd.sock"), folder.path().join("containers"));
        let options = Options { pull, ..Options::new(places.0, places.1) };
        let runtime = {
            let _entered = threads.enter();
            Some(EmbeddedRuntime::start(options).context("start the embedded runtime")?)
        };
        let restarts = arguments.restarts.unwrap_or(restarts);
        Ok(Self { arguments, restarts, exec, pull, threads, runtime, folder })
    }

    fn head(&self) -> String {
        format!(
            "{}. criprobe {}\n200 calls a second on one connection, large answers on another, a command of {} s, a pull of {} s, \
             an event stream; {} restarts while the command runs.",
            machine::describe(),
            env!("CARGO_PKG_VERSION"),
            self.exec.as_secs(),
            self.pull.as_secs(),
            self.restarts,
        )
    }

    /// The runtime's own socket.
    fn past(&self) -> PathBuf {
        self.folder.path().join("rt/containerd.sock")
    }

    /// criprobe on a node, which is booted for the first one.
    fn on_node(&self, node: &mut Option<Node>, way: Way, figures: &mut Vec<Figure>) -> Result<Vec<Measured>> {
        if node.is_none() {
            eprintln!("  booting a node");
            *node = Some(Node::boot(&self.folder.path().join("rt"))?);
        }
        let node = node.as_ref().context("it has just been booted")?;
        if way == Way::Drained {
            let service = Service::start(node, &self.arguments.flags.criprobe, "FileDescriptorStoreMax=0\n")?;
            let front = service.socket();
            let drains = self.restarts.min(DRAINS);
            let (load, restarts) = self.drive(&front, "drained", drains, |_| service.restart(None))?;
            let outcome = self.threads.block_on(load.end())?;
            service.stop()?;
            return Ok(vec![Measured::of(way.title(), restarts, outcome, Leftovers::default())]);
        }
        eprintln!("  what systemd and the kernel take");
        let idle = Idle::start(node)?;
        let (load, _) = self.drive(&self.past(), "idle", self.restarts, |_| idle.restart())?;
        let direct = self.threads.block_on(load.end())?;
        let direct = Measured::of("nothing in the middle", Vec::new(), direct, Leftovers::default());
        let gaps = idle.stop()?;

        eprintln!("  criprobe itself");
        let first = self.arguments.from.as_ref().unwrap_or(&self.arguments.flags.criprobe);
        let service = Service::start(node, first, "")?;
        let front = service.socket();
        let (load, restarts) = self.drive(&front, "criprobe", self.restarts, |round| {
            service.restart((round == self.restarts / 2).then_some(&self.arguments.flags.criprobe))
        })?;
        let outcome = self.threads.block_on(load.end())?;
        let measured = Measured::of(way.title(), restarts, outcome, Leftovers::default());
        let calls = measured.outcome.calls();
        let traced = service.traced(calls)?;
        service.print_trouble()?;
        let handovers = service.handovers()?;
        service.stop()?;
        figures.extend(measured.figures(&gaps, calls, &traced, &handovers));
        Ok(vec![direct, measured])
    }

    /// A proxy that is reloaded.
    fn reloaded(&self, way: Way, kind: Kind) -> Result<Measured> {
        let proxy = Proxy::start(kind, &self.past(), self.folder.path())?;
        self.wait_until_answered(&proxy.socket)?;
        let (load, restarts) = self.drive(&proxy.socket, way.title(), self.restarts, |_| proxy.reload())?;
        let at: Vec<Instant> = restarts.iter().map(|(ordered, _)| *ordered).collect();
        let leftovers = proxy.leftovers(&at);
        let outcome = self.threads.block_on(load.end())?;
        Ok(Measured::of(way.title(), restarts, outcome, leftovers))
    }

    /// Waits until somebody answers on the socket.
    fn wait_until_answered(&self, socket: &Path) -> Result<()> {
        let deadline = clock::now() + START;
        while !self.threads.block_on(load::is_answered(socket)) {
            ensure!(clock::now() < deadline, "nobody answers on {}", socket.display());
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Begins the load, restarts so often while the long command runs, and waits until that and the pull have ended. The
    /// stream is still open then.
    fn drive(
        &self,
        front: &Path,
        name: &str,
        restarts: u32,
        mut restart: impl FnMut(u32) -> Result<()>,
    ) -> Result<(Load, Vec<(Instant, Instant)>)> {
        let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        let began = clock::now();
        let (past, folder) = (self.past(), self.folder.path());
        let load = self.threads.block_on(Load::begin(front, &past, folder, &name, self.exec))?;
        let mut times = Vec::new();
        for round in 0..restarts {
            let due = began + self.exec * (round + 1) / (restarts + 2);
            thread::sleep(due.saturating_duration_since(clock::now()));
            let ordered = clock::now();
            restart(round)?;
            let done = clock::now();
            times.push((ordered, done));
            eprintln!("  restart {} of {restarts}: {} ms", round + 1, (done - ordered).as_millis());
        }
        eprintln!("  waiting for the long calls");
        let deadline = began + self.exec.max(self.pull) + LATE;
        while !load.has_ended_long_calls() {
            ensure!(clock::now() < deadline, "the long calls do not end");
            thread::sleep(Duration::from_millis(100));
        }
        Ok((load, times))
    }
}

impl Drop for Setting<'_> {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            self.threads.block_on(runtime.shutdown());
        }
    }
}
