//! What a client of the relay sees meanwhile: Version calls, one after the other on one connection, and calls that are
//! given up so that criprobe asks for the lists again.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Result, ensure};
use criprobe::{
    clock,
    proto::cri::{RemovePodSandboxRequest, runtime_service_client::RuntimeServiceClient},
    runtime,
};
use tokio::time::timeout;

use crate::{call::Call, client::Client};

/// 1 MiB: what the client takes of one answer at once.
const WINDOW: u32 = 1 << 20;

/// 1 s from one given-up call to the next.
const BEAT: Duration = Duration::from_secs(1);

/// 50 ms: after that a call that is never answered is given up.
const PATIENCE: Duration = Duration::from_millis(50);

/// How many slices a measurement is cut into, whose median is taken: what else happens on the machine strikes some.
const SLICES: u32 = 10;

/// The median of the 99th percentiles of [`SLICES`] slices of `window`, in microseconds.
pub(crate) fn p99(socket: &Path, window: Duration) -> Result<f64> {
    let mut client = Client::connect(socket, Call::Version, WINDOW)?;
    client.run(1, clock::now() + window / 20, &mut Vec::new())?;
    let mut found = Vec::new();
    for _ in 0..SLICES {
        let mut took = Vec::with_capacity(1 << 17);
        client.run(1, clock::now() + window / SLICES, &mut took)?;
        ensure!(!took.is_empty(), "no call ended");
        let at = (took.len() * 99 / 100).min(took.len() - 1);
        found.push(f64::from(*took.select_nth_unstable(at).1) / 1e3);
    }
    found.sort_by(f64::total_cmp);
    Ok(found[found.len() / 2])
}

/// Gives a call up once a second for as long as `work` takes. Each may have changed something, so that criprobe lists
/// everything again.
pub(crate) fn while_resyncing<T>(socket: &Path, work: impl FnOnce() -> T) -> Result<T> {
    let threads = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let is_over = AtomicBool::new(false);
    Ok(thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = {
                let _entered = threads.enter();
                RuntimeServiceClient::new(runtime::channel(socket.to_owned()))
            };
            while !is_over.load(Ordering::Relaxed) {
                let request = RemovePodSandboxRequest { pod_sandbox_id: "none".to_owned() };
                // It is given up on purpose.
                threads.block_on(async { drop(timeout(PATIENCE, client.remove_pod_sandbox(request)).await) });
                thread::sleep(BEAT - PATIENCE);
            }
        });
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        done
    }))
}
