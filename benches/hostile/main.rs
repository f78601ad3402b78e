//! Measures what one pod that means harm can do to others: the criprobe binary in front of a made-up runtime, with 200
//! well-behaved pods and a hostile one that comes and goes: `make bench-hostile`.
//!
//! Flags in; a table on stdout, progress on stderr, and Markdown in a file if asked. Ends only what it started.

mod caller;
mod course;
mod good;
mod pods;
mod runtime;
mod schedule;
mod servers;
mod tricks;
mod verdicts;
mod visitor;

// What the other benchmarks of criprobe have already.
#[path = "../relay/call.rs"]
#[allow(dead_code)]
mod call;
#[path = "../relay/client.rs"]
#[allow(dead_code)]
mod client;
#[path = "../prober/daemon.rs"]
#[allow(dead_code)]
mod daemon;
#[path = "../relay/header_block.rs"]
mod header_block;
#[path = "../relay/http2.rs"]
#[allow(dead_code)]
mod http2;
#[path = "../prober/kubelet.rs"]
mod kubelet;
#[path = "../prober/node.rs"]
#[allow(dead_code)]
mod node;
#[path = "../prober/octets.rs"]
mod octets;
#[path = "../shared.rs"]
#[allow(dead_code)]
mod shared;
#[path = "../prober/targets.rs"]
#[allow(dead_code)]
mod targets;

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use clap::{Parser, ValueEnum};
use course::Setting;
use figure::Figure;
use flags::Flags;
use shared::{figure, flags, machine, process, table};
use tricks::Family;

/// 60 s: how long a window is in a long run.
const LONG_WINDOW: u64 = 60;

/// 7 rounds of a long run: 14 minutes, with the hostile pod for half of them. Of so many, the median is right even if
/// something else disturbed the machine in three.
const LONG_ROUNDS: u32 = 7;

/// 3 rounds otherwise.
const ROUNDS: u32 = 3;

/// 6 min, so that all takes about 20: by then several pods at a time have made an hour's worth of attempts, or the figure
/// is missed.
const CROWDED: Duration = Duration::from_secs(6 * 60);

/// Measures what a hostile pod can do to the relay and to other pods' probes.
#[derive(Parser)]
#[command(name = "hostile")]
struct Arguments {
    /// 7 rounds with windows of 60 s, and an hour's worth of a hostile pod's attempts
    #[arg(long)]
    long: bool,
    /// How long the hostile pod is there, all rounds together, in seconds; 60 if not given
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "long")]
    seconds: Option<u64>,
    /// Windows without and with the hostile pod, in turn and of equal length; 3 of each if not given, 7 if --long is
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Hostile pods at a time while an hour's worth of attempts is made
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=16))]
    crowd: u8,
    /// Only these tricks, to see which of them does harm
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    tricks: Vec<Family>,
    #[command(flatten)]
    flags: Flags,
}

fn main() -> ExitCode {
    flags::exit_code(run(&Arguments::parse()))
}

/// Says whether every figure that had to be reached was, as far as that was asked for.
fn run(arguments: &Arguments) -> Result<bool> {
    process::clean_up_when_interrupted()?;
    let rounds = arguments.rounds.unwrap_or(if arguments.long { LONG_ROUNDS } else { ROUNDS });
    let seconds = match arguments.seconds {
        Some(seconds) => seconds,
        None if arguments.long => LONG_WINDOW * u64::from(rounds),
        None => 60,
    };
    let families = if arguments.tricks.is_empty() { Family::value_variants() } else { &arguments.tricks };
    let setting = Setting {
        criprobe: &arguments.flags.criprobe,
        rounds,
        window: Duration::from_secs(seconds) / rounds,
        crowd: arguments.crowd.into(),
        crowded: if arguments.long { CROWDED } else { Duration::from_secs(seconds) },
        families,
    };
    // Figures of a build that is not optimized are none.
    let build = if cfg!(debug_assertions) { ", not optimized" } else { "" };
    let head = format!(
        "{}. criprobe {}{build}, {} rounds of {:.0} s without and as long with the hostile pod",
        machine::describe(),
        env!("CARGO_PKG_VERSION"),
        setting.rounds,
        setting.window.as_secs_f64(),
    );
    println!("{head}");
    let figures = match course::run(&setting) {
        Ok(course) => verdicts::figures(&course, arguments.long),
        Err(error) => vec![Figure::unmeasured(&error)],
    };
    let table =
        figure::table("A hostile pod beside 200 well-behaved pods with 400 probes, period 1 s", &figures);
    println!("\n{}", table.text());
    let markdown = format!("{head}.\n\n{}", table.markdown());
    arguments.flags.conclude(&markdown, figure::are_reached(&figures))
}
