//! The tap's own cost: its decoder alone on recordings of a real client, without sockets. CPU time a call out.

use std::{fs, hint, sync::Arc};

use anyhow::{Context, Result, ensure};
use criprobe::{
    clock,
    ids::ConnId,
    peer::Peer,
    tap::{Tap, TapEvent},
};

use crate::{
    call::Call,
    middle::Places,
    recording::{Recording, Sender, record},
};

/// Calls that are timed of each kind, over and over the same recording.
const TIMED: u32 = 40_000;

/// What decoding both directions of a call costs, in microseconds.
pub(crate) struct TapCost {
    pub(crate) version: f64,
    pub(crate) list_containers: f64,
    /// Its bodies are kept and decoded.
    pub(crate) exec_sync: f64,
}

/// Records and replays each kind of call.
pub(crate) fn tap_cost(places: &Places) -> Result<TapCost> {
    // A recording stays within the processor's cache, as do octets that a relay has just read.
    let cost = |call: Call, calls: u32| {
        let socket = places.folder.join(format!("record-{call:?}.sock"));
        let recording = record(&places.runtime, &socket, call, calls).context("record")?;
        replay(&recording, calls)?;
        let before = cpu_nanos()?;
        for _ in 0..TIMED / calls {
            replay(&recording, calls)?;
        }
        anyhow::Ok((cpu_nanos()? - before) as f64 / 1e3 / f64::from(TIMED))
    };
    Ok(TapCost {
        version: cost(Call::Version, 2000)?,
        list_containers: cost(Call::ListContainers, 50)?,
        exec_sync: cost(Call::ExecSync, 2000)?,
    })
}

/// Decodes a recording, and makes sure that all of its calls were seen.
fn replay(recording: &Recording, calls: u32) -> Result<()> {
    let mut tap = Tap::new(ConnId(1), Arc::new(Peer::default()));
    let mut ended = 0;
    for (sender, piece) in recording {
        let now = clock::now();
        let out = |event: TapEvent| {
            ended += u32::from(matches!(event, TapEvent::Ended(_)));
            hint::black_box(event);
        };
        match sender {
            Sender::Client => tap.client_bytes(piece, now, out),
            Sender::Runtime => tap.runtime_bytes(piece, now, out),
        }
    }
    ensure!(ended == calls, "the tap saw {ended} of {calls} calls end");
    Ok(())
}

/// The time that this thread has run, as the scheduler counts it.
fn cpu_nanos() -> Result<u64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").context("read the thread's CPU time")?;
    Ok(text.split(' ').next().unwrap_or_default().parse()?)
}
