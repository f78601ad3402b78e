//! One measurement: a call, a load, a way; out comes a sample. Checks every answer (see the client), prints nothing.

use std::{thread, time::Duration};

use anyhow::{Context, Result, anyhow, ensure};
use criprobe::clock;

use crate::{call::Call, client::Client, middle::Middle, process::Process};

/// 1 MiB: what the driver takes of one answer at once; more than any of those that are compared.
const WINDOW: u32 = 1 << 20;

/// How many connections there are, and how many calls in flight on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) connections: usize,
    pub(crate) in_flight: usize,
}

impl Load {
    pub(crate) const ONE: Self = Self { connections: 1, in_flight: 1 };
    pub(crate) const DEEP: Self = Self { connections: 1, in_flight: 32 };
    pub(crate) const WIDE: Self = Self { connections: 8, in_flight: 8 };
    pub(crate) const ALL: [Self; 3] = [Self::ONE, Self::DEEP, Self::WIDE];
}

impl std::fmt::Display for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} x {}", self.connections, self.in_flight)
    }
}

/// What one measurement found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// The median duration of a call, in microseconds.
    pub(crate) p50: f64,
    /// In microseconds, too.
    pub(crate) p99: f64,
    /// Calls a second.
    pub(crate) rate: f64,
    /// Calls that ended.
    pub(crate) calls: usize,
    /// CPU time of the thing in the middle meanwhile.
    pub(crate) cpu: Option<Duration>,
}

/// Drives calls through `middle` for `duration`, after some that do not count.
pub(crate) fn measure(middle: &Middle, call: Call, load: Load, duration: Duration) -> Result<Sample> {
    let clients = warm(middle, call, load, duration / 8)?;
    let before = middle.process.as_ref().map(Process::cpu);
    let start = clock::now();
    let ran = run_all(clients, load.in_flight, start + duration)?;
    let elapsed = clock::now() - start;
    // The connections are open still, so that forks of socat's are there to be asked.
    let used =
        middle.process.as_ref().zip(before).map(|(process, before)| process.cpu().saturating_sub(before));
    let mut took: Vec<u32> = ran.into_iter().flat_map(|(_, took)| took).collect();
    ensure!(!took.is_empty(), "no call ended in {duration:?}");
    let calls = took.len();
    Ok(Sample {
        p50: percentile(&mut took, 50),
        p99: percentile(&mut took, 99),
        rate: calls as f64 / elapsed.as_secs_f64(),
        calls,
        cpu: used,
    })
}

fn warm(middle: &Middle, call: Call, load: Load, duration: Duration) -> Result<Vec<Client>> {
    let clients: Result<Vec<Client>> =
        (0..load.connections).map(|_| Client::connect(&middle.socket, call, WINDOW)).collect();
    let ran = run_all(clients?, load.in_flight, clock::now() + duration)?;
    Ok(ran.into_iter().map(|(client, _)| client).collect())
}

/// Runs each client in a thread of its own.
fn run_all(
    clients: Vec<Client>,
    in_flight: usize,
    deadline: std::time::Instant,
) -> Result<Vec<(Client, Vec<u32>)>> {
    thread::scope(|scope| {
        let threads: Vec<_> = clients
            .into_iter()
            .map(|mut client| {
                scope.spawn(move || {
                    let mut took = Vec::with_capacity(1 << 17);
                    client.run(in_flight, deadline, &mut took).map(|()| (client, took))
                })
            })
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a driver panicked")));
        ended.map(|ended| ended.context("drive").and_then(|ran| ran)).collect()
    })
}

/// Of durations in nanoseconds, in microseconds.
fn percentile(took: &mut [u32], percent: usize) -> f64 {
    let at = (took.len() * percent / 100).min(took.len() - 1);
    f64::from(*took.select_nth_unstable(at).1) / 1e3
}

/// The middle one, or the mean of the two in the middle. None of none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2)?;
    let lower = values.get(values.len().saturating_sub(1) / 2)?;
    Some((lower + upper) / 2.0)
}
