//! A client whose calls are timed: ExecSync, one after the other at a steady pace, as long as something else goes on.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Result, anyhow};
use criprobe::clock;

use crate::{call::Call, client::Client};

/// 1 MiB: what the client takes of one answer at once.
const WINDOW: u32 = 1 << 20;

/// 2 ms between two calls: far more than a node's kubelet makes, and not so many that they fill the machine.
const PACE: Duration = Duration::from_millis(2);

/// How long its calls took.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    /// In microseconds, sorted.
    took: Vec<f64>,
    /// Those that failed, or had no answer within 10 s.
    pub(crate) failed: usize,
}

impl Calls {
    /// In microseconds.
    pub(crate) fn percentile(&self, percent: usize) -> Option<f64> {
        let last = self.took.len().checked_sub(1)?;
        self.took.get((self.took.len() * percent / 100).min(last)).copied()
    }

    /// In microseconds.
    pub(crate) fn longest(&self) -> Option<f64> {
        self.took.last().copied()
    }

    /// How many there were.
    pub(crate) fn count(&self) -> usize {
        self.took.len()
    }
}

/// Makes calls by way of each of `sockets` for as long as `work` takes; each has a thread and a connection of its own.
pub(crate) fn calls_while<const N: usize, T>(
    sockets: [&Path; N],
    work: impl FnOnce() -> Result<T>,
) -> Result<([Calls; N], T)> {
    let is_over = AtomicBool::new(false);
    let (calls, done) = thread::scope(|scope| {
        let callers = sockets.map(|socket| scope.spawn(|| make_calls(socket, &is_over)));
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        (callers.map(thread::ScopedJoinHandle::join), done)
    });
    if calls.iter().any(Result::is_err) {
        return Err(anyhow!("a caller panicked"));
    }
    Ok((calls.map(Result::unwrap_or_default), done?))
}

fn make_calls(socket: &Path, is_over: &AtomicBool) -> Calls {
    let (mut calls, mut client) = (Calls::default(), None);
    while !is_over.load(Ordering::Relaxed) {
        let began = clock::now();
        let (took, next) = match call(socket, client.take()) {
            Ok((took, client)) => (took, Some(client)),
            Err(_) => {
                calls.failed += 1;
                (clock::now() - began, None)
            }
        };
        client = next;
        calls.took.push(took.as_secs_f64() * 1e6);
        thread::sleep(PACE);
    }
    calls.took.sort_by(f64::total_cmp);
    calls
}

/// One call, on the connection of the last one if that went well.
fn call(socket: &Path, client: Option<Client>) -> Result<(Duration, Client)> {
    let mut client = match client {
        Some(client) => client,
        None => Client::connect(socket, Call::ExecSync, WINDOW)?,
    };
    Ok((client.call_once()?, client))
}
