//! Measures what exec probes cost on a real containerd, everything counted: by ExecSync with runc and with crun, and by exec
//! sessions: `make bench-exec`.
//!
//! Flags in; tables on stdout, progress on stderr, and Markdown in a file if asked. Ends only what it started.

mod accounts;
mod attempts;
mod course;
mod probing;
mod rig;
mod verdicts;

#[path = "../../tests/support/cri.rs"]
#[allow(dead_code)]
mod cri;
#[path = "../prober/daemon.rs"]
#[allow(dead_code)]
mod daemon;
#[path = "../restart/lab.rs"]
#[allow(dead_code)]
mod lab;
#[path = "../shared.rs"]
#[allow(dead_code)]
mod shared;

use std::{
    process::{Command, ExitCode},
    time::Duration,
};

use anyhow::Result;
use clap::Parser;
use course::{Part, Setting};
use flags::Flags;
use shared::{figure, flags, machine, process, table};

/// Measures what exec probes cost on a real containerd.
///
/// Starts a private containerd with 50 pods, as root; on Debian and Ubuntu it installs what is missing. criprobe probes them 1,
/// 10, 100 and 500 times a second, each way in turn. Keep the machine idle meanwhile. docs/exec-cost.md explains the tables.
///
/// make bench-exec ARGS="--quick --only session,runc"
#[derive(Parser)]
#[command(name = "exec")]
struct Arguments {
    /// 6 s for each way and rate, one round of openings, 100 idle sessions
    #[arg(long)]
    quick: bool,
    /// How long each way is measured at each rate, in seconds; 20 if not given
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(3..=90))]
    seconds: Option<u64>,
    /// Idle sessions, each in a container; 1000 if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=2000))]
    sessions: Option<u16>,
    /// Only these; all if not given
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<Part>,
    #[command(flatten)]
    flags: Flags,
}

fn main() -> ExitCode {
    flags::exit_code(run(&Arguments::parse()))
}

/// Says whether every figure that had to be reached was, as far as that was asked for.
fn run(arguments: &Arguments) -> Result<bool> {
    process::clean_up_when_interrupted()?;
    let (seconds, rounds, sessions) = if arguments.quick { (6, 1, 100) } else { (20, 3, 1000) };
    let setting = Setting {
        only: &arguments.only,
        criprobe: &arguments.flags.criprobe,
        window: Duration::from_secs(arguments.seconds.unwrap_or(seconds)),
        rounds,
        sessions: arguments.sessions.unwrap_or(sessions).into(),
    };
    let found = course::run(&setting)?;
    let head = format!(
        "{}, {}. criprobe {}, {} s each.\n{}",
        machine::describe(),
        versions(),
        env!("CARGO_PKG_VERSION"),
        setting.window.as_secs(),
        verdicts::idle(found.idle.as_ref()),
    );
    let costs = verdicts::costs(&found);
    let times = verdicts::times(&found);
    let figures = verdicts::figures(&found);
    let verdicts = figure::table("Figures", &figures);
    println!("{head}\n\n{}\n{}\n{}", costs.text(), times.text(), verdicts.text());
    let markdown = format!("{head}\n\n{}\n{}\n{}", costs.markdown(), times.markdown(), verdicts.markdown());
    arguments.flags.conclude(&markdown, figure::are_reached(&figures))
}

/// What runs the containers.
fn versions() -> String {
    let version = |program: &str| {
        let output = Command::new(program).arg("--version").output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().next()?;
        // containerd names its module before the version.
        let version =
            line.split_whitespace().find(|word| word.starts_with(|first: char| first.is_ascii_digit()))?;
        Some(format!("{program} {version}"))
    };
    let versions: Vec<String> = ["containerd", "runc", "crun"].into_iter().filter_map(version).collect();
    versions.join(", ")
}
