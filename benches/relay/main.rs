//! Compares criprobe with socat, nginx and HAProxy, over a runtime that costs nothing: `make bench`.
//!
//! Flags in; a table on stdout, progress on stderr, and Markdown in a file if asked. Ends only what it started.

mod call;
mod client;
mod comparators;
mod figures;
mod footprint;
mod header_block;
mod http2;
mod machine;
mod measure;
mod middle;
mod null_runtime;
// What it asks of descriptors and threads is for the hostile benchmark.
#[allow(dead_code)]
mod process;
mod recording;
mod report;
mod results;
mod table;
mod tap_cost;

use std::{fs, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Result};
use call::Call;
use clap::Parser;
use figures::{Figure, absolute, relative};
use footprint::{Footprint, footprint};
use measure::{Load, measure};
use middle::{Middle, Places, Via};
use report::Report;
use results::Results;
use tap_cost::{TapCost, tap_cost};

/// Compares criprobe with other ways from a client to a runtime.
#[derive(Parser)]
#[command(name = "relay")]
struct Arguments {
    /// Fewer rounds, shorter ones: under a minute
    #[arg(long)]
    quick: bool,
    /// How often everything is measured in turn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// How long each measurement takes, in seconds
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Only these ways
    #[arg(long, value_name = "WAY", value_delimiter = ',')]
    via: Vec<Via>,
    /// Only these calls; memory, size and start are left out then
    #[arg(long, value_name = "CALL", value_delimiter = ',', value_parser = call)]
    call: Vec<Call>,
    /// Only these loads, as CONNECTIONSxIN_FLIGHT; memory, size and start are left out then
    #[arg(long, value_name = "LOAD", value_delimiter = ',', value_parser = load)]
    load: Vec<Load>,
    /// Also writes the result as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Exits with 1 if a figure is missed, or criprobe could not be measured
    #[arg(long)]
    check: bool,
    /// The program under test
    #[arg(long, value_name = "FILE", default_value_os_t = process::built_binary())]
    criprobe: PathBuf,
    /// Given by cargo, means nothing
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(is_good) => ExitCode::from(u8::from(!is_good)),
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Says whether every figure that had to be reached was.
fn run(arguments: &Arguments) -> Result<bool> {
    let rounds = arguments.rounds.unwrap_or(if arguments.quick { 3 } else { 13 });
    let seconds = arguments.seconds.unwrap_or(if arguments.quick { 0.2 } else { 0.25 });
    let duration = Duration::try_from_secs_f64(seconds).context("--seconds")?;
    process::clean_up_when_interrupted()?;
    comparators::install_missing();

    let scratch = tempfile::Builder::new().prefix("criprobe-bench-").tempdir()?;
    process::remove_when_interrupted(scratch.path().to_owned());
    let places = Places {
        folder: scratch.path().to_owned(),
        runtime: scratch.path().join("runtime.sock"),
        criprobe: arguments.criprobe.clone(),
    };
    null_runtime::serve(&places.runtime)?;

    let mut left_out = Vec::new();
    let middles = start(&places, &arguments.via, &mut left_out);
    let calls = wanted_of(Call::MEASURED, &arguments.call);
    let loads = wanted_of(Load::ALL, &arguments.load);
    let plan: Vec<(Call, Load)> =
        calls.iter().flat_map(|&call| loads.iter().map(move |&load| (call, load))).collect();
    let results = compare(&middles, rounds as usize, &plan, duration, &mut left_out);
    let ways: Vec<(Via, String)> =
        middles.iter().map(|middle| (middle.via, middle.version.clone())).collect();
    drop(middles);

    let is_partial = !arguments.call.is_empty() || !arguments.load.is_empty();
    let (footprint, tap) =
        if is_partial { (None, None) } else { alone(&places, arguments.quick, &mut left_out) };
    let mut figures = relative(&results);
    figures.extend(absolute(footprint.as_ref(), tap.as_ref()));

    let settings = format!(
        "Medians of {rounds} rounds of {seconds} s; ratios are medians of each round's own; CPU is of all rounds.\n{}",
        middle::SETTINGS
    );
    // What was not measured of a comparator is its affair, what was not measured of criprobe is a failure.
    let wanted = rounds as usize * plan.len();
    let is_whole =
        results.count(Via::Criprobe) == wanted && (is_partial || footprint.is_some() && tap.is_some());
    let is_good = is_whole && !figures.iter().any(Figure::is_missed);
    let report = Report { machine: machine::describe(), settings, ways, left_out, results, figures };
    print!("{}", report.text());
    if let Some(file) = &arguments.markdown {
        fs::write(file, report.markdown()).with_context(|| format!("write {}", file.display()))?;
    }
    Ok(is_good || !arguments.check)
}

/// Starts all that are wanted and can be had.
fn start(places: &Places, wanted: &[Via], left_out: &mut Vec<String>) -> Vec<Middle> {
    let is_wanted = |via: &Via| wanted.is_empty() || wanted.contains(via);
    let all = Via::ALL.into_iter().filter(is_wanted);
    all.filter_map(|via| note(Middle::start(via, places), via.name(), left_out)).collect()
}

/// Measures everything in turn, `rounds` times. Ways follow each other at once, so that all see the same machine;
/// which one begins changes.
fn compare(
    middles: &[Middle],
    rounds: usize,
    plan: &[(Call, Load)],
    duration: Duration,
    left_out: &mut Vec<String>,
) -> Results {
    let mut results = Results::default();
    for round in 0..rounds {
        for &(call, load) in plan {
            eprintln!("round {} of {rounds}: {call:?}, {load}", round + 1);
            for turn in 0..middles.len() {
                let middle = &middles[(round + turn) % middles.len()];
                let what = format!("{}, {call:?}, {load}, round {}", middle.via.name(), round + 1);
                if let Some(sample) = note(measure(middle, call, load, duration), &what, left_out) {
                    results.add(round, call, load, middle.via, sample);
                }
            }
        }
    }
    results
}

/// Measures what needs no comparison.
fn alone(
    places: &Places,
    is_quick: bool,
    left_out: &mut Vec<String>,
) -> (Option<Footprint>, Option<TapCost>) {
    eprintln!("memory, size and start of criprobe");
    let footprint = note(footprint(places, if is_quick { 3 } else { 9 }), "footprint", left_out);
    (footprint, note(tap_cost(places), "the tap's own cost", left_out))
}

/// Those that were asked for, in the order of all; all where none was.
fn wanted_of<T: Copy + PartialEq, const N: usize>(all: [T; N], wanted: &[T]) -> Vec<T> {
    all.into_iter().filter(|one| wanted.is_empty() || wanted.contains(one)).collect()
}

fn call(name: &str) -> Result<Call, String> {
    let named = Call::MEASURED.into_iter().find(|call| format!("{call:?}").eq_ignore_ascii_case(name));
    named.ok_or_else(|| format!("one of {:?}", Call::MEASURED))
}

fn load(text: &str) -> Result<Load, String> {
    let named = Load::ALL.into_iter().find(|load| load.to_string().replace(' ', "") == text);
    named.ok_or_else(|| "one of 1x1, 1x32, 8x8".to_owned())
}

/// Keeps what went well; of the rest it keeps why not.
fn note<T>(outcome: Result<T>, what: &str, left_out: &mut Vec<String>) -> Option<T> {
    outcome
        .map_err(|error| {
            eprintln!("left out: {what}: {error:#}");
            left_out.push(format!("{what}: {error:#}"));
        })
        .ok()
}
