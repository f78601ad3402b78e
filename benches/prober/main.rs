//! Measures the prober as a user runs it: the criprobe binary in front of a made-up runtime, with probes of real
//! listeners and real processes: `make bench-prober`.
//!
//! Flags in; tables on stdout, progress on stderr, and Markdown in a file if asked. Ends only what it started.

mod beat;
mod daemon;
mod kubelet;
mod node;
mod octets;
mod relayed;
mod runtime;
mod scenario;
// Its health service is for the hostile benchmark.
#[allow(dead_code)]
mod targets;

// The load driver of the relay's benchmark, of which one call at one load is used here.
#[path = "../relay/call.rs"]
#[allow(dead_code)]
mod call;
#[path = "../relay/client.rs"]
#[allow(dead_code)]
mod client;
#[path = "../relay/header_block.rs"]
mod header_block;
#[path = "../relay/http2.rs"]
#[allow(dead_code)]
mod http2;
#[path = "../shared.rs"]
#[allow(dead_code)]
mod shared;

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use clap::Parser;
use figure::Figure;
use flags::Flags;
use scenario::{Scenario, Setting};
use shared::{figure, flags, machine, process, table};

/// Measures how criprobe probes a full node.
#[derive(Parser)]
#[command(name = "prober")]
struct Arguments {
    /// 10 s each instead of a minute
    #[arg(long)]
    quick: bool,
    /// How long each is measured, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(3..))]
    seconds: Option<u64>,
    /// Only these
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<Scenario>,
    #[command(flatten)]
    flags: Flags,
}

fn main() -> ExitCode {
    flags::exit_code(run(&Arguments::parse()))
}

/// Says whether every figure that had to be reached was, as far as that was asked for.
fn run(arguments: &Arguments) -> Result<bool> {
    process::clean_up_when_interrupted()?;
    let seconds = arguments.seconds.unwrap_or(if arguments.quick { 10 } else { 60 });
    let setting = Setting { criprobe: &arguments.flags.criprobe, window: Duration::from_secs(seconds) };
    let head = format!("{}. criprobe {}, {seconds} s each", machine::describe(), env!("CARGO_PKG_VERSION"));
    println!("{head}");
    let (mut text, mut is_good) = (format!("{head}.\n"), true);
    let is_wanted = |scenario: &Scenario| arguments.only.is_empty() || arguments.only.contains(scenario);
    for scenario in Scenario::ALL.into_iter().filter(is_wanted) {
        eprintln!("{}", scenario.title());
        let figures = scenario.run(setting).unwrap_or_else(|error| vec![Figure::unmeasured(&error)]);
        is_good &= figure::are_reached(&figures);
        let table = figure::table(scenario.title(), &figures);
        println!("\n{}", table.text());
        text += &format!("\n{}", table.markdown());
    }
    arguments.flags.conclude(&text, is_good)
}
