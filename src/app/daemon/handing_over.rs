//! Leaves connections to the next process, and takes over those of the one before: in between, the service manager keeps them.

use std::{
    os::fd::OwnedFd,
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use tokio::{
    task::spawn_blocking,
    time::{sleep, timeout},
};

use super::{
    super::{End, bindings::remove},
    DRAINING, Daemon, LAST_RECORDS, LAST_SAVE,
};
use crate::{
    clock, faults,
    manager::{self, Notice},
    relay::{
        RelayHandle,
        handover::{
            FrozenRelay, Handover,
            carrier::{Carrier, CarrierError, Keeper, Takeover},
        },
    },
    tap,
};

/// 200 ms: how long a handover waits for the API's answers under way. Calls go on meanwhile.
const LAST_ANSWERS: Duration = Duration::from_millis(200);

/// 500 ms: how long a handover waits until everything that was observed is in the trace. Clients wait meanwhile; it takes
/// milliseconds.
const LAST_OBSERVATIONS: Duration = Duration::from_millis(500);

/// 100 ms: how long a handover waits for the records of the calls that ended since the others were written. Clients wait
/// meanwhile.
const LAST_LINES: Duration = Duration::from_millis(100);

impl Daemon {
    /// Ends everything but the connections, which the service manager keeps for the next process: not a byte moves meanwhile.
    /// If it does not keep them, they are drained.
    pub(in crate::app) async fn hand_over(mut self) -> End {
        if !manager::is_there() {
            tracing::warn!("no service manager keeps connections (NOTIFY_SOCKET is not set): draining");
            self.drain().await;
            return End::Drained;
        }
        let began = clock::now();
        self.is_draining.store(true, Ordering::Relaxed);
        self.act_stop.cancel();
        self.probing_stop.cancel();
        self.api.stop.cancel();
        let records = self.records.clone();
        let flush = |limit| {
            let records = records.clone();
            spawn_blocking(move || records.iter().for_each(|file| file.flush(limit)))
        };
        // What a disk may hold up comes before clients wait.
        let answers = timeout(LAST_ANSWERS, self.api.ended.wait());
        let (_late, was_saved, _flushed) =
            tokio::join!(answers, timeout(LAST_SAVE, self.saved.wait()), flush(LAST_RECORDS));
        if was_saved.is_err() {
            tracing::warn!("the disk does not respond: changes since the last save of the state are lost");
        }
        // One that is busy is waited for while calls go on.
        if let Err(error) = spawn_blocking(manager::answers).await.unwrap_or_else(|error| Err(error.into())) {
            return self
                .drain_instead(&format!("it does not answer BARRIER=1 by NOTIFY_SOCKET: {error}"))
                .await;
        }

        faults::point("handover-begun").await;
        let stopped = clock::now();
        let frozen = self.relay.freeze().await;
        if frozen.lost > 0 {
            tracing::error!(connections = frozen.lost, "connections did not stop: they end");
        }
        faults::point("handover-frozen").await;
        let connections = frozen.connections.len();
        let (stored, ()) = tokio::join!(store(frozen), worked_off(&self.relayed));
        match stored {
            Stored::Kept => {}
            Stored::TakenOver => {
                tracing::warn!("another process has taken the connections over before this one ended");
            }
            Stored::Back(frozen, reason) => {
                let relay = match frozen.thaw() {
                    Ok(relay) => relay,
                    Err(error) => {
                        tracing::error!(%error, "connections end");
                        return End::Drained;
                    }
                };
                return Self { relay, ..self }.drain_instead(&reason).await;
            }
        }

        faults::point("handover-stored").await;
        self.phases.end();
        self.tasks.stop().cancel();
        let _flushed = flush(LAST_LINES).await;
        self.sockets.iter().for_each(remove);
        let (now, millis) = (clock::now(), |took: Duration| took.as_millis());
        tracing::info!(
            connections,
            millis = millis(now - began),
            stalled_millis = millis(now - stopped),
            "handed over"
        );
        // Without a word to the manager, which may be busy: clients wait until this process has ended.
        End::HandedOver
    }

    /// The manager does not keep the connections.
    async fn drain_instead(self, reason: &str) -> End {
        tracing::warn!(reason, "the service manager does not keep the connections: draining");
        manager::send(vec![Notice::Stopping, Notice::status(DRAINING)]).await;
        self.drain().await;
        End::Drained
    }
}

/// What the processes before have left for one that serves `runtime`, and when; nothing if that is of no use.
pub(super) fn taken_over(
    handovers: Vec<OwnedFd>,
    room: tap::Room,
    runtime: &Path,
) -> (Handover, Option<Instant>) {
    let (room, mut going_on) = (Arc::new(room), None);
    for carrier in handovers {
        match Takeover::unload(&carrier, &room, runtime) {
            Ok(_) if going_on.is_some() => {
                tracing::error!("connections of more than one process were passed: those of the others end");
            }
            Ok(taken) => {
                taken.log();
                going_on = Some((taken.handover, Some(taken.left_at)));
            }
            Err(error @ CarrierError::Empty) => {
                tracing::info!(reason = %error, "no connections were left to take over");
            }
            Err(error) => {
                tracing::error!(%error, "cannot go on with the connections of the process before: they end");
            }
        }
    }
    going_on.unwrap_or_else(|| (Handover::nothing(room), None))
}

/// Says that the connections are relayed again, and for how long they were not: in all, and since this process began.
pub(super) fn log_again(left_at: Option<Instant>, began: Instant) {
    let Some(left_at) = left_at else { return };
    let now = clock::now();
    tracing::info!(
        stalled_millis = (now - left_at).as_millis(),
        starting_millis = (now - began).as_millis(),
        "clients' connections are relayed again"
    );
}

/// What became of connections that the service manager was to keep.
enum Stored {
    /// It keeps them.
    Kept,
    /// The next process has them already.
    TakenOver,
    /// Only this process has them, for this reason.
    Back(FrozenRelay, String),
}

/// Has the service manager keep all connections.
async fn store(frozen: FrozenRelay) -> Stored {
    let storing = spawn_blocking(move || {
        let carrier = match Carrier::load(&frozen) {
            Ok(carrier) => carrier,
            Err(error) => return Stored::Back(frozen, error.to_string()),
        };
        let (keeper, reason) = match manager::store(carrier.descriptor()) {
            Ok(()) => (carrier.release(), "its store is full, or off (FileDescriptorStoreMax=)".to_owned()),
            // It may store it later, while this process goes on.
            Err(error) => (carrier.recall(), format!("asking it by NOTIFY_SOCKET failed: {error}")),
        };
        match keeper {
            Keeper::Manager => Stored::Kept,
            Keeper::NextProcess => Stored::TakenOver,
            Keeper::None => Stored::Back(frozen, reason),
        }
    });
    // A panic has been logged, and has closed the connections.
    storing.await.unwrap_or(Stored::Kept)
}

/// Returns when everything that was observed has reached those who keep it.
async fn worked_off(relayed: &RelayHandle) {
    let is_over = async {
        while !relayed.is_worked_off() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    if timeout(LAST_OBSERVATIONS, is_over).await.is_err() {
        tracing::warn!("the last calls may be missing from the trace");
    }
}
