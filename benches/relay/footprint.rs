//! What criprobe takes beside time a call: memory idle and in use, size, start. Numbers out, no judgement.

use std::{fs, os::unix::net::UnixStream, thread, time::Duration};

use anyhow::{Context, Result};
use criprobe::clock;

use crate::{
    call::{Call, HUGE_LENGTH},
    client::Client,
    measure::median,
    middle::{Middle, Places, Via},
};

/// Connections that have made a call and then rest.
const IDLE_CONNECTIONS: usize = 200;

/// 8 MB/s: how fast the slow reader reads.
const SLOW_RATE: usize = 8_000_000;

/// 16 KiB: how much it reads at once.
const SLOW_PIECE: usize = 16 * 1024;

/// 32 MiB: the slow reader's flow-control window; the message fits, so nothing but the socket holds it back.
const SLOW_WINDOW: u32 = 32 << 20;

/// Sizes in octets.
pub(crate) struct Footprint {
    pub(crate) idle: u64,
    pub(crate) with_idle_connections: u64,
    pub(crate) slow_reader: u64,
    pub(crate) binary: u64,
    /// From spawn to an accepted connection.
    pub(crate) start_to_accept: Duration,
    /// From spawn to the answer of a call.
    pub(crate) start_to_answer: Duration,
}

/// Takes all of them, `starts` of the cold starts.
pub(crate) fn footprint(places: &Places, starts: usize) -> Result<Footprint> {
    let (start_to_accept, start_to_answer) = cold_start(places, starts)?;
    let (idle, with_idle_connections) = idle(places).context("idle memory")?;
    Ok(Footprint {
        idle,
        with_idle_connections,
        slow_reader: slow_reader(places).context("a slow reader")?,
        binary: fs::metadata(&places.criprobe)?.len(),
        start_to_accept,
        start_to_answer,
    })
}

fn idle(places: &Places) -> Result<(u64, u64)> {
    let middle = Middle::start(Via::Criprobe, places)?;
    let process = middle.process.as_ref().context("no process")?;
    settle();
    let idle = process.resident()?;
    let mut clients = Vec::new();
    for _ in 0..IDLE_CONNECTIONS {
        let mut client = Client::connect(&middle.socket, Call::ExecSync, 1 << 20)?;
        client.call_once()?;
        clients.push(client);
    }
    settle();
    Ok((idle, process.resident()?))
}

/// How much the memory grows, at its peak, while a message of 16 MiB passes.
fn slow_reader(places: &Places) -> Result<u64> {
    let middle = Middle::start(Via::Criprobe, places)?;
    let process = middle.process.as_ref().context("no process")?;
    let mut client = Client::connect(&middle.socket, Call::Huge, SLOW_WINDOW)?;
    settle();
    let before = process.resident()?;
    process.reset_peak()?;
    let pieces = HUGE_LENGTH / SLOW_PIECE;
    let pause = Duration::from_secs_f64(HUGE_LENGTH as f64 / SLOW_RATE as f64 / pieces as f64);
    client.call_slowly(SLOW_PIECE, pause)?;
    Ok(process.peak()?.saturating_sub(before))
}

/// Lets what a start or a call set off come to rest; nothing shows when it has.
fn settle() {
    thread::sleep(Duration::from_secs(1));
}

/// The medians of some starts.
fn cold_start(places: &Places, starts: usize) -> Result<(Duration, Duration)> {
    let mut accepts = Vec::new();
    let mut answers = Vec::new();
    for number in 0..starts {
        let start = clock::now();
        let mut middle = Middle::spawn(Via::Criprobe, places, &format!("start-{number}"))?;
        while UnixStream::connect(&middle.socket).is_err() {
            middle.process.as_mut().context("no process")?.ensure_running()?;
            thread::sleep(Duration::from_micros(200));
        }
        accepts.push(start.elapsed().as_secs_f64());
        Client::connect(&middle.socket, Call::Version, 1 << 20)?.call_once()?;
        answers.push(start.elapsed().as_secs_f64());
    }
    let middle_one = |values| median(values).map(Duration::from_secs_f64).context("no start");
    Ok((middle_one(accepts)?, middle_one(answers)?))
}
