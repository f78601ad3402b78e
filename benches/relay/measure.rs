//! One measurement: a driver, a call, a load, a way; out comes a sample. Checks every answer (see the clients), prints
//! nothing.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use criprobe::clock;

use crate::{call::Call, client::Client, grpc, middle::Middle, process::Process};

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

/// What makes the calls, and answers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Driver {
    /// A client and a null runtime of our own, which cost next to nothing.
    Light,
    /// Those of a gRPC library.
    Tonic,
}

impl Driver {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Tonic => "tonic",
        }
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
pub(crate) fn measure(
    driver: Driver,
    middle: &Middle,
    call: Call,
    load: Load,
    duration: Duration,
) -> Result<Sample> {
    match driver {
        Driver::Light => {
            let clients = (0..load.connections).map(|_| Client::connect(&middle.socket, call, WINDOW));
            let mut clients = clients.collect::<Result<Vec<Client>>>()?;
            sample(middle, duration, |deadline| run_all(&mut clients, load.in_flight, deadline))
        }
        Driver::Tonic => {
            let mut clients = grpc::Clients::connect(&middle.socket, call, load)?;
            sample(middle, duration, |deadline| clients.run(deadline))
        }
    }
}

/// Calls `run` twice with a deadline, and measures the second time. It returns the durations of calls in nanoseconds, and
/// leaves the connections open, so that the processes that socat forked for them can still be asked for their CPU time.
fn sample(
    middle: &Middle,
    duration: Duration,
    mut run: impl FnMut(Instant) -> Result<Vec<u32>>,
) -> Result<Sample> {
    run(clock::now() + duration / 8)?;
    let before = middle.process.as_ref().map(Process::cpu);
    let start = clock::now();
    let mut took = run(start + duration)?;
    let elapsed = clock::now() - start;
    let used =
        middle.process.as_ref().zip(before).map(|(process, before)| process.cpu().saturating_sub(before));
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

/// Runs each client in a thread of its own.
fn run_all(clients: &mut [Client], in_flight: usize, deadline: Instant) -> Result<Vec<u32>> {
    let ran: Result<Vec<Vec<u32>>> = thread::scope(|scope| {
        let run = |client: &mut Client| {
            let mut took = Vec::with_capacity(1 << 17);
            client.run(in_flight, deadline, &mut took).map(|()| took)
        };
        let threads: Vec<_> = clients.iter_mut().map(|client| scope.spawn(move || run(client))).collect();
        let ended = threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a driver panicked")));
        ended.map(|ended| ended.context("drive").and_then(|ran| ran)).collect()
    });
    Ok(ran?.concat())
}

/// Of durations in nanoseconds, in microseconds.
pub(crate) fn percentile(took: &mut [u32], percent: usize) -> f64 {
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
