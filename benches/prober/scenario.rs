//! The situations in which criprobe is measured: a name in, figures out. Each has a criprobe and a runtime of its own.

use std::{path::Path, thread, time::Duration};

use anyhow::Result;
use criprobe::clock;

use crate::{
    beat::Beat,
    daemon::{Daemon, Usage},
    figure::{Figure, Limit},
    node::{CONTAINERS, KINDS, Node, PROBES},
    relayed,
    runtime::Runtime,
    targets::{Targets, Treatment},
};

/// 3 s after all probes are at work they have found their places in their periods.
const SETTLING: Duration = Duration::from_secs(3);

/// 1 s, the period of all probes but those that idle.
const SECOND: Duration = Duration::from_secs(1);

/// 300 s, the period of probes that are in nobody's way.
const LONG: Duration = Duration::from_secs(300);

/// 200 pods, which makes 1,000 containers.
const ADOPTED_PODS: usize = 200;

/// 16: criprobe's default of `prober.execWorkers`.
const EXEC_WORKERS: f64 = 16.0;

/// One situation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Scenario {
    /// 5,000 tcpSocket probes of 1 s
    Tcp,
    /// 1,000 httpGet probes of 1 s
    Http,
    /// 300 exec probes of 1 s, each a process of 30 ms
    Exec,
    /// 5,000 tcpSocket probes of 60 s
    Idle,
    /// The relay, while 5,000 probes run and everything is listed again every second
    Relay,
    /// 900 tcpSocket probes and the relay, beside 100 grpc probes whose peers accept and say nothing
    Silent,
    /// 1,000 containers that are there when criprobe starts, and what listing them again costs
    Adopt,
}

/// Where and how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting<'a> {
    /// The program under test.
    pub(crate) criprobe: &'a Path,
    /// For how long is measured.
    pub(crate) window: Duration,
}

impl Scenario {
    pub(crate) const ALL: [Self; 7] =
        [Self::Tcp, Self::Http, Self::Exec, Self::Idle, Self::Relay, Self::Silent, Self::Adopt];

    /// What it is about, as a heading.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Tcp => "5,000 tcpSocket probes, period 1 s",
            Self::Http => "1,000 httpGet probes, period 1 s",
            Self::Exec => "300 exec probes of 30 ms, period 1 s",
            Self::Idle => "5,000 tcpSocket probes, period 60 s",
            Self::Relay => "The relay at 1 x 1 beside 5,000 probes and a resync of 2,500 containers a second",
            Self::Silent => "900 tcpSocket probes beside 100 grpc probes whose peers say nothing",
            Self::Adopt => "1,000 containers of 200 pods, with what a kubelet writes around them",
        }
    }

    /// Measures.
    ///
    /// # Errors
    /// Fails if criprobe or what it needs does not come up or goes down.
    pub(crate) fn run(self, setting: Setting<'_>) -> Result<Vec<Figure>> {
        match self {
            Self::Tcp => dialled(setting, 500, Treatment::Close, 0.6),
            Self::Http => dialled(setting, 100, Treatment::Answer, 0.4),
            Self::Exec => exec(setting),
            Self::Idle => idle(setting),
            Self::Relay => relay(setting),
            Self::Silent => silent(setting),
            Self::Adopt => adopt(setting),
        }
    }
}

/// A criprobe at work in front of a runtime of its own.
struct Rig {
    daemon: Daemon,
    runtime: Runtime,
    _folder: tempfile::TempDir,
}

impl Rig {
    /// All probes are at work and have settled.
    fn start(setting: Setting<'_>, node: Node) -> Result<Self> {
        let probes = node.probes();
        let mut rig = Self::spawn(setting, node)?;
        rig.daemon.wait_for(probes)?;
        thread::sleep(SETTLING);
        Ok(rig)
    }

    /// The process was started just now.
    fn spawn(setting: Setting<'_>, node: Node) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("criprobe-bench-").tempdir()?;
        crate::process::remove_when_interrupted(folder.path().to_owned());
        let socket = folder.path().join("runtime.sock");
        let runtime = Runtime::start(&socket, node)?;
        let daemon = Daemon::start(setting.criprobe, &socket, folder.path(), &[])?;
        Ok(Self { daemon, runtime, _folder: folder })
    }
}

fn dialled(setting: Setting<'_>, pods: usize, treatment: Treatment, cores: f64) -> Result<Vec<Figure>> {
    let targets = Targets::listen(PROBES, pods, treatment)?;
    let mut rig = Rig::start(setting, node(pods, &targets, treatment, SECOND))?;
    let start = clock::now();
    let used = rig.daemon.use_in(setting.window)?;
    let came = targets.take();
    let beat = Beat::of(&came, SECOND, start, start + setting.window);
    let mut figures = of_beat(&beat, Limit::AtMost(50.0));
    figures.extend(of_usage(used, Limit::AtMost(cores)));
    let all: usize = came.iter().map(Vec::len).sum();
    let (successes, counted) = rig.daemon.counted()?;
    // Those between the two questions come on top: a few hundredths of a second's.
    figures.push(open("attempts counted by criprobe over those that came", counted as f64 / all as f64, ""));
    figures.push(open("of them successes", successes as f64 * 100.0 / counted as f64, " %"));
    Ok(figures)
}

fn exec(setting: Setting<'_>) -> Result<Vec<Figure>> {
    let command = |kind: &str| {
        format!(r#"{{"exec":{{"command":["sh","-c","exec sleep 0.03","{kind}"]}},"periodSeconds":1}}"#)
    };
    let probes = (0..CONTAINERS).flat_map(|_| KINDS.map(command)).collect();
    let mut rig = Rig::start(setting, Node { pods: 300 / PROBES, probes, ..Node::default() })?;
    let since_start = rig.runtime.take_commands().most;
    let start = clock::now();
    let used = rig.daemon.use_in(setting.window)?;
    let commands = rig.runtime.take_commands();
    let beat = Beat::of(&commands.begun, SECOND, start, start + setting.window);
    let mut figures = of_beat(&beat, Limit::Open);
    let most = since_start.max(commands.most) as f64;
    figures.push(figure(
        "commands at a time, adoption included",
        Limit::AtMost(EXEC_WORKERS),
        Some(most),
        "",
    ));
    figures.extend(of_usage(used, Limit::Open));
    Ok(figures)
}

fn idle(setting: Setting<'_>) -> Result<Vec<Figure>> {
    let targets = Targets::listen(PROBES, 500, Treatment::Close)?;
    let mut rig = Rig::start(setting, node(500, &targets, Treatment::Close, 60 * SECOND))?;
    targets.take();
    // A whole period at least, wherever in it the attempts lie.
    let used = rig.daemon.use_in(setting.window.max(60 * SECOND))?;
    let came: usize = targets.take().iter().map(Vec::len).sum();
    Ok(vec![
        figure("attempts", Limit::AtLeast(4995.0), Some(came as f64), ""),
        figure("CPU", Limit::Below(2.0), Some(used.cores * 100.0), " % of a core"),
        figure("memory, most", Limit::Open, Some(used.mib), " MiB"),
    ])
}

fn relay(setting: Setting<'_>) -> Result<Vec<Figure>> {
    let part = setting.window / 3;
    let before = idle_p99(setting, part)?;
    let (loaded, resyncs, used, beat) = {
        let targets = Targets::listen(PROBES, 500, Treatment::Close)?;
        let mut rig = Rig::start(setting, node(500, &targets, Treatment::Close, SECOND))?;
        let socket = rig.daemon.socket.clone();
        let (listed, start) = (rig.daemon.resyncs()?, clock::now());
        let (loaded, used) = relayed::while_resyncing(&socket, || {
            thread::scope(|scope| {
                let p99 = scope.spawn(|| relayed::p99(&socket, part));
                let used = rig.daemon.use_in(part);
                (p99.join(), used)
            })
        })?;
        let loaded = loaded.map_err(|_| anyhow::anyhow!("the driver panicked"))??;
        let end = clock::now();
        let resyncs = (rig.daemon.resyncs()? - listed) as f64 / (end - start).as_secs_f64();
        (loaded, resyncs, used?, Beat::of(&targets.take(), SECOND, start, end))
    };
    let after = idle_p99(setting, part)?;
    // The lower of both: what else happens on the machine only adds.
    let over = loaded / before.min(after);
    Ok(vec![
        figure("p99 over an idle criprobe's", Limit::AtMost(2.0), Some(over), ""),
        open("p99, idle, before", before, " us"),
        open("p99, idle, after", after, " us"),
        open("p99, loaded", loaded, " us"),
        figure("resyncs a second", Limit::AtLeast(0.9), Some(resyncs), ""),
        figure("due attempts made meanwhile", Limit::AtLeast(99.9), beat.share(), " %"),
        figure("start lag meanwhile, p99", Limit::Open, beat.lag(99), " ms"),
        open("CPU with the relayed calls", used.cores, " cores"),
    ])
}

fn silent(setting: Setting<'_>) -> Result<Vec<Figure>> {
    let (pods, silent) = (100, 100 / PROBES);
    let part = setting.window / 3;
    let before = idle_p99(setting, part)?;
    let targets = Targets::listen(PROBES, pods, Treatment::Close)?;
    let mute = Targets::listen(PROBES, silent, Treatment::Silence)?;
    let ask = |port: &u16| {
        format!(
            r#"{{"grpc":{{"port":{port}}},"periodSeconds":1,"timeoutSeconds":1,"failureThreshold":100000}}"#
        )
    };
    let mut node = node(pods, &targets, Treatment::Close, SECOND);
    node.first = (silent, mute.ports.iter().map(ask).collect());
    let mut rig = Rig::start(setting, node)?;
    let start = clock::now();
    let used = rig.daemon.use_in(part)?;
    let end = clock::now();
    let (came, silenced) = (targets.take(), mute.take());
    // The silent pods have no attempts at the other listeners; they are the first of each.
    let others: Vec<_> = came.chunks(pods).flat_map(|pods| &pods[silent..]).cloned().collect();
    let (beat, quiet) = (Beat::of(&others, SECOND, start, end), Beat::of(&silenced, SECOND, start, end));
    let loaded = relayed::p99(&rig.daemon.socket, part)?;
    drop(rig);
    let idle = before.min(idle_p99(setting, part)?);
    let mut figures = of_beat(&beat, Limit::AtMost(50.0));
    figures.push(open(
        "of the silent: attempts a second and probe",
        quiet.attempts as f64 / 100.0 / part.as_secs_f64(),
        "",
    ));
    figures.push(figure(
        "p99 of a relayed call over an idle criprobe's",
        Limit::AtMost(2.0),
        Some(loaded / idle),
        "",
    ));
    figures.extend(of_usage(used, Limit::Open));
    Ok(figures)
}

/// Nothing is taken off the time until all are known: this runtime answers at once, and what its answers take all the
/// same, as the process's own start, counts against criprobe.
fn adopt(setting: Setting<'_>) -> Result<Vec<Figure>> {
    let targets = Targets::listen(PROBES, ADOPTED_PODS, Treatment::Close)?;
    let bare = Node { pods: ADOPTED_PODS, is_dressed: true, ..Node::default() };
    let probed = Node { is_dressed: true, ..node(ADOPTED_PODS, &targets, Treatment::Close, LONG) };
    let mut figures = Vec::new();
    for (what, node) in [("without probes", bare), ("with 2 probes each", probed)] {
        let (containers, probes) = (node.all_containers(), node.probes());
        let mut rig = Rig::spawn(setting, node)?;
        let took = rig.daemon.time_until_known(containers, probes)?;
        thread::sleep(SETTLING);
        let idle = rig.daemon.use_in(setting.window)?;
        let (listed, start) = (rig.daemon.resyncs()?, clock::now());
        let socket = rig.daemon.socket.clone();
        let used = relayed::while_resyncing(&socket, || rig.daemon.use_in(setting.window))??;
        let resyncs = (rig.daemon.resyncs()? - listed) as f64;
        let seconds = (clock::now() - start).as_secs_f64();
        let each = (used.cores - idle.cores) * 1e3 * seconds / resyncs;
        figures.extend([
            figure(
                &format!("{what}: all known after the process was started"),
                Limit::AtMost(1.0),
                Some(took.as_secs_f64()),
                " s",
            ),
            figure(&format!("{what}: CPU of a resync"), Limit::Below(50.0), Some(each), " ms"),
            open(&format!("{what}: resyncs measured"), resyncs, ""),
            open(&format!("{what}: CPU between them"), idle.cores * 100.0, " % of a core"),
            figure(&format!("{what}: memory, most"), Limit::AtMost(64.0), Some(used.mib), " MiB"),
        ]);
    }
    Ok(figures)
}

fn idle_p99(setting: Setting<'_>, window: Duration) -> Result<f64> {
    let rig = Rig::start(setting, Node::default())?;
    relayed::p99(&rig.daemon.socket, window)
}

/// A node whose probes dial these targets.
fn node(pods: usize, targets: &Targets, treatment: Treatment, period: Duration) -> Node {
    let handler = if treatment == Treatment::Answer { "httpGet" } else { "tcpSocket" };
    let seconds = period.as_secs();
    let probe = |port: &u16| format!(r#"{{"{handler}":{{"port":{port}}},"periodSeconds":{seconds}}}"#);
    Node { pods, probes: targets.ports.iter().map(probe).collect(), ..Node::default() }
}

fn of_beat(beat: &Beat, lag: Limit) -> Vec<Figure> {
    vec![
        figure("due attempts made", Limit::AtLeast(99.9), beat.share(), " %"),
        figure("start lag, p99", lag, beat.lag(99), " ms"),
        figure("start lag, p50", Limit::Open, beat.lag(50), " ms"),
        open("attempts", beat.attempts as f64, ""),
    ]
}

fn of_usage(used: Usage, cores: Limit) -> [Figure; 2] {
    [
        figure("CPU", cores, Some(used.cores), " cores"),
        figure("memory, most", Limit::AtMost(64.0), Some(used.mib), " MiB"),
    ]
}

fn open(name: &str, found: f64, unit: &'static str) -> Figure {
    figure(name, Limit::Open, Some(found), unit)
}

fn figure(name: &str, limit: Limit, found: Option<f64>, unit: &'static str) -> Figure {
    Figure { name: name.to_owned(), limit, found, unit }
}
