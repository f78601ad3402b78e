//! What writing every call to a file costs: ExecSync calls at a steady rate through two daemons in turn, one of which writes
//! them. Out: the relay's medians side by side, and whether every call is a line of the file.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use criprobe::clock;
use serde_json::Value;

use crate::{
    call::Call,
    client::Client,
    measure::{median, percentile},
    middle::{Middle, Places, Via},
};

/// 5,000 calls a second, more than the busiest kubelet makes; from 4 connections.
const RATE: u32 = 5_000;
const CONNECTIONS: u32 = 4;

/// 20,000 calls in all, and as many without the file.
const CALLS: u32 = 20_000;

/// What is shown where a round's median is this much worse with the file.
const MOST: f64 = 1.05;

/// 10 s: how long the last lines may take.
const WRITTEN: Duration = Duration::from_secs(10);

/// What was found.
pub(crate) struct TraceCost {
    /// Of each round: the median duration of a call without and with the file, in microseconds.
    rounds: Vec<(f64, f64)>,
    /// Calls that were made with the file, and those of them that are lines in it.
    calls: usize,
    lines: usize,
    /// What the daemon's status says was dropped, and how often it missed something.
    dropped: u64,
    gaps: u64,
}

impl TraceCost {
    /// How much longer a call takes with the file: the median of the rounds' own ratios.
    fn ratio(&self) -> f64 {
        median(self.rounds.iter().map(|(without, with)| with / without)).unwrap_or(f64::NAN)
    }

    /// Whether no call is missing and calls are as fast as without.
    pub(crate) fn is_good(&self) -> bool {
        self.lines == self.calls && self.dropped == 0 && self.gaps == 0 && self.ratio() <= MOST
    }
}

impl fmt::Display for TraceCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, calls, lines, dropped, gaps } = self;
        writeln!(
            f,
            "{calls} ExecSync calls at {RATE} a second, {CONNECTIONS} connections, in {} rounds",
            rounds.len()
        )?;
        writeln!(f, "lines in the file    {lines} of {calls}; {dropped} dropped, {gaps} gaps")?;
        let (without, with): (Vec<_>, Vec<_>) = rounds.iter().copied().unzip();
        let of = |medians: Vec<f64>| median(medians).unwrap_or(f64::NAN);
        writeln!(f, "p50 without the file {:.1} us", of(without))?;
        writeln!(f, "p50 with the file    {:.1} us", of(with))?;
        writeln!(f, "ratio                {:.3} (at most {MOST})", self.ratio())
    }
}

/// Measures both in turn, so that both see the same machine; which one begins changes.
pub(crate) fn trace_cost(places: &Places, rounds: u32) -> Result<TraceCost> {
    let file = places.folder.join("calls.jsonl");
    let plain = Middle::start(Via::Criprobe, places)?;
    let settings = [("CRIPROBE_TRACE_FILE", file.as_os_str())];
    let writing = Middle::start_as("traced", places, &settings)?;
    // Those that only warm up.
    drive(&plain.socket, CALLS / 20)?;
    drive(&writing.socket, CALLS / 20)?;
    let before = settled(places, 0)?;
    let (mut pairs, mut calls) = (Vec::new(), 0);
    for round in 0..rounds {
        eprintln!("calls with and without a file, round {} of {rounds}", round + 1);
        let mut took = [Vec::new(), Vec::new()];
        for turn in 0..2 {
            let is_writing = (round + turn) % 2 == 1;
            let socket = if is_writing { &writing.socket } else { &plain.socket };
            took[usize::from(is_writing)] = drive(socket, CALLS / rounds)?;
        }
        calls += took[1].len();
        let [mut without, mut with] = took;
        pairs.push((percentile(&mut without, 50), percentile(&mut with, 50)));
    }
    let status = settled(places, before.0 + calls as u64)?;
    let lines = lines(&file)?.checked_sub(usize::try_from(before.0)?).context("lines of the warm-up")?;
    Ok(TraceCost { rounds: pairs, calls, lines, dropped: status.1, gaps: status.2 })
}

/// Makes so many calls at the rate, and returns their durations in nanoseconds. A call that is late is made at once.
fn drive(socket: &Path, calls: u32) -> Result<Vec<u32>> {
    let interval = Duration::from_secs(1) * CONNECTIONS / RATE;
    let start = clock::now() + Duration::from_millis(20);
    let run = |number: u32| {
        let mut client = Client::connect(socket, Call::ExecSync, 1 << 20)?;
        let mut due = start + interval * number / CONNECTIONS;
        let mut took = Vec::new();
        for _ in 0..calls / CONNECTIONS {
            rest_until(due);
            took.push(client.call_once()?.as_nanos().try_into().unwrap_or(u32::MAX));
            due += interval;
        }
        anyhow::Ok(took)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..CONNECTIONS).map(|number| scope.spawn(move || run(number))).collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().map_err(|_| anyhow!("a driver panicked"))??);
        }
        Ok(all)
    })
}

fn rest_until(due: Instant) {
    thread::sleep(due.saturating_duration_since(clock::now()));
}

/// What the status says once so many lines were written or dropped: both, and the gaps.
fn settled(places: &Places, lines: u64) -> Result<(u64, u64, u64)> {
    let api = format!("unix://{}", places.folder.join("traced-api.sock").display());
    let deadline = clock::now() + WRITTEN;
    let mut last = 0;
    loop {
        let output = Command::new(&places.criprobe).args(["status", "-o", "json", "--api", &api]).output()?;
        let status: Value = serde_json::from_slice(&output.stdout).context("read the status")?;
        let count = |value: &Value| value.as_u64().unwrap_or_default();
        let trace = &status["trace"];
        let (written, dropped) = (count(&trace["written"]), count(&trace["dropped"]));
        let is_still = lines > 0 || (written > 0 && written == last);
        if written + dropped >= lines && is_still {
            return Ok((written, dropped, count(&status["gaps"])));
        }
        ensure!(clock::now() < deadline, "{trace} after {WRITTEN:?}");
        last = written;
        thread::sleep(Duration::from_millis(300));
    }
}

/// The lines of the file and of the one before it, each of which is a call.
fn lines(file: &Path) -> Result<usize> {
    let former = PathBuf::from(format!("{}.1", file.display()));
    let text = fs::read_to_string(&former).unwrap_or_default() + &fs::read_to_string(file)?;
    text.lines().try_fold(0, |count, line| {
        let call: Value = serde_json::from_str(line).context("a line of the file is no JSON")?;
        ensure!(call["method"].is_string(), "a line is no call: {line}");
        Ok(count + 1)
    })
}
