//! Compares criprobe with socat, nginx and HAProxy, over a runtime that costs nothing: `make bench`.
//!
//! Flags in; a table on stdout, progress on stderr, and Markdown in a file if asked. Ends only what it started.

mod call;
mod cgroups;
mod client;
mod comparators;
mod figures;
mod flags;
mod footprint;
mod grpc;
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
mod trace_cost;

use std::{fmt, fs, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use call::Call;
use cgroups::Cgroups;
use clap::Parser;
use figures::{Figure, absolute, relative};
use flags::Flags;
use footprint::{Footprint, footprint};
use measure::{Driver, Load, measure};
use middle::{Middle, Places, Via};
use report::Report;
use results::Results;
use tap_cost::{TapCost, tap_cost};
use trace_cost::trace_cost;

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
    /// Only these drivers; memory, size and start are left out then
    #[arg(long, value_name = "DRIVER", value_delimiter = ',')]
    driver: Vec<Driver>,
    /// Only these ways
    #[arg(long, value_name = "WAY", value_delimiter = ',')]
    via: Vec<Via>,
    /// Only these calls; memory, size and start are left out then
    #[arg(long, value_name = "CALL", value_delimiter = ',', value_parser = call)]
    call: Vec<Call>,
    /// Only these loads, as CONNECTIONSxIN_FLIGHT; memory, size and start are left out then
    #[arg(long, value_name = "LOAD", value_delimiter = ',', value_parser = load)]
    load: Vec<Load>,
    /// Only what writing calls to a file costs: 20,000 calls at 5,000 a second, with and without
    #[arg(long)]
    trace: bool,
    /// Leaves all processes in one cgroup, which no node does
    #[arg(long)]
    one_cgroup: bool,
    #[command(flatten)]
    flags: Flags,
}

fn main() -> ExitCode {
    flags::exit_code(run(&Arguments::parse()))
}

/// Says whether every figure that had to be reached was.
fn run(arguments: &Arguments) -> Result<bool> {
    process::clean_up_when_interrupted()?;
    comparators::install_missing(&[("socat", "socat"), ("nginx", "nginx-light"), ("haproxy", "haproxy")]);

    let scratch = tempfile::Builder::new().prefix("criprobe-bench-").tempdir()?;
    process::remove_when_interrupted(scratch.path().to_owned());
    if arguments.trace {
        let folder = scratch.path().to_owned();
        let runtime = folder.join("runtime.sock");
        let places = Places { folder, runtime, criprobe: arguments.flags.criprobe.clone(), cgroups: None };
        null_runtime::serve(&places.runtime)?;
        let cost = trace_cost(&places, arguments.rounds.unwrap_or(10))?;
        print!("{cost}");
        return Ok(cost.is_good() || !arguments.flags.check);
    }
    let (cgroups, separation) = separate(arguments.one_cgroup);
    let mut left_out = Vec::new();
    let mut ways = Vec::new();
    let mut compared = Vec::new();
    let mut settings = String::new();
    let mut is_whole = true;
    for driver in wanted_of([Driver::Light, Driver::Tonic], &arguments.driver) {
        let series = Series::of(driver, arguments)?;
        let folder = scratch.path().join(driver.name());
        fs::create_dir(&folder)?;
        let places = Places {
            runtime: folder.join("runtime.sock"),
            folder,
            criprobe: arguments.flags.criprobe.clone(),
            cgroups: cgroups.clone(),
        };
        match driver {
            Driver::Light => null_runtime::serve(&places.runtime)?,
            Driver::Tonic => grpc::serve(&places.runtime)?,
        }
        let results = compare(&series, &places, &arguments.via, &mut ways, &mut left_out);
        // What was not measured of a comparator is its affair, what was not measured of criprobe is a failure.
        is_whole &= results.count(Via::Criprobe) == series.rounds * series.plan.len();
        settings += &format!("{series}\n");
        compared.push((driver, results));
    }

    let mut figures: Vec<Figure> =
        compared.iter().flat_map(|(driver, results)| relative(*driver, results)).collect();
    let is_partial = !arguments.call.is_empty() || !arguments.load.is_empty() || !arguments.driver.is_empty();
    if !is_partial {
        let places = Places {
            folder: scratch.path().to_owned(),
            runtime: scratch.path().join(Driver::Light.name()).join("runtime.sock"),
            criprobe: arguments.flags.criprobe.clone(),
            // The shell that enters one would be counted.
            cgroups: None,
        };
        let (footprint, tap) = alone(&places, arguments.quick, &mut left_out);
        is_whole &= footprint.is_some() && tap.is_some();
        figures.extend(absolute(footprint.as_ref(), tap.as_ref()));
    }
    settings += &format!(
        "Ratios are medians of each round's own; CPU is of all rounds.\n{separation}\n{}",
        middle::SETTINGS
    );
    let is_good = is_whole && !figures.iter().any(Figure::is_missed);
    let report = Report { machine: machine::describe(), settings, ways, left_out, compared, figures };
    print!("{}", report.text());
    arguments.flags.conclude(&report.markdown(), is_good)
}

/// The cgroups, where they can be had, and what is reported of it.
fn separate(is_unwanted: bool) -> (Option<Arc<Cgroups>>, String) {
    if is_unwanted {
        return (None, "All processes share one cgroup.".to_owned());
    }
    match Cgroups::enter() {
        Ok(cgroups) => {
            let cgroups = Arc::new(cgroups);
            let left = Arc::downgrade(&cgroups);
            process::when_interrupted(move || {
                if let Some(cgroups) = left.upgrade() {
                    cgroups.leave();
                }
            });
            (Some(cgroups), "What stands in the middle has a cgroup, its peers have another.".to_owned())
        }
        Err(error) => (None, format!("All processes share one cgroup: {error:#}.")),
    }
}

/// What is measured with one driver.
struct Series {
    driver: Driver,
    rounds: usize,
    duration: Duration,
    plan: Vec<(Call, Load)>,
}

impl Series {
    fn of(driver: Driver, arguments: &Arguments) -> Result<Self> {
        // Where the driver fills the cores, what runs when decides: longer rounds of one call, with new processes each.
        let (rounds, seconds, calls) = match (driver, arguments.quick) {
            (Driver::Light, false) => (13, 0.25, &Call::MEASURED[..]),
            (Driver::Light, true) => (3, 0.2, &Call::MEASURED[..]),
            (Driver::Tonic, false) => (5, 1.0, &[Call::ExecSync][..]),
            (Driver::Tonic, true) => (1, 0.5, &[Call::ExecSync][..]),
        };
        let calls = if arguments.call.is_empty() { calls } else { &arguments.call };
        let loads = wanted_of(Load::ALL, &arguments.load);
        Ok(Self {
            driver,
            rounds: arguments.rounds.unwrap_or(rounds) as usize,
            duration: Duration::try_from_secs_f64(arguments.seconds.unwrap_or(seconds))
                .context("--seconds")?,
            plan: calls.iter().flat_map(|&call| loads.iter().map(move |&load| (call, load))).collect(),
        })
    }

    /// Whether every round starts all processes again.
    fn restarts(&self) -> bool {
        self.driver == Driver::Tonic
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { driver, rounds, duration, .. } = self;
        let restarts = if self.restarts() { ", each with new processes" } else { "" };
        write!(f, "Driver {}: medians of {rounds} rounds of {duration:?}{restarts}.", driver.name())
    }
}

/// Starts all that are wanted and can be had.
fn start(places: &Places, wanted: &[Via], left_out: &mut Vec<String>) -> Vec<Middle> {
    let is_wanted = |via: &Via| wanted.is_empty() || wanted.contains(via);
    let all = Via::ALL.into_iter().filter(is_wanted);
    all.filter_map(|via| note(Middle::start(via, places), via.name(), left_out)).collect()
}

/// Measures everything in turn, round by round. Ways follow each other at once, so that all see the same machine;
/// which one begins changes. Adds to `ways` those that it started.
fn compare(
    series: &Series,
    places: &Places,
    wanted: &[Via],
    ways: &mut Vec<(Via, String)>,
    left_out: &mut Vec<String>,
) -> Results {
    let Series { driver, rounds, duration, .. } = *series;
    let mut results = Results::default();
    let mut middles = Vec::new();
    for round in 0..rounds {
        if round == 0 || series.restarts() {
            middles.clear();
            middles = start(places, wanted, left_out);
            let started = middles.iter().map(|middle: &Middle| (middle.via, middle.version.clone()));
            let added: Vec<_> = started.filter(|way| !ways.contains(way)).collect();
            ways.extend(added);
        }
        for &(call, load) in &series.plan {
            eprintln!("{}, round {} of {rounds}: {call:?}, {load}", driver.name(), round + 1);
            for turn in 0..middles.len() {
                let middle = &middles[(round + turn) % middles.len()];
                let what = format!(
                    "{}, {}, {call:?}, {load}, round {}",
                    driver.name(),
                    middle.via.name(),
                    round + 1
                );
                let sample = measure(driver, middle, call, load, duration);
                if let Some(sample) = note(sample, &what, left_out) {
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
