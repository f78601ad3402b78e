//! Connections between two processes: what the one before has left in, the relay's connections out, and the other way round.

use std::{os::fd::OwnedFd, sync::Arc, time::Instant};

use crate::{
    clock, manager,
    relay::handover::{
        FrozenRelay, Handover,
        carrier::{Carrier, Takeover},
    },
    tap,
};

/// What the process before has left, and when; nothing if that is of no use.
pub(super) fn taken_over(handover: Option<OwnedFd>, room: tap::Room) -> (Handover, Option<Instant>) {
    let Some(carrier) = handover else { return (Handover::nothing(room), None) };
    let room = Arc::new(room);
    match Takeover::unload(&carrier, &room) {
        Ok(taken) => {
            taken.log();
            (taken.handover, Some(taken.left_at))
        }
        Err(error) => {
            tracing::error!(%error, "cannot go on with the connections of the process before: they end");
            (Handover { room, connections: Vec::new(), last_id: 0, events: Vec::new() }, None)
        }
    }
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

/// Has the service manager keep all connections; returns how many. With the reason if it does not.
pub(super) fn store(frozen: FrozenRelay) -> Result<usize, (FrozenRelay, String)> {
    let stored = Carrier::load(&frozen).and_then(|carrier| match manager::store(carrier.descriptor()) {
        Ok(()) => Ok(carrier.is_kept()),
        Err(error) => {
            // It may store it later, while this process goes on.
            carrier.recall();
            Err(error)
        }
    });
    match stored {
        Ok(true) => Ok(frozen.connections.len()),
        Ok(false) => Err((frozen, "its store is full, or off (FileDescriptorStoreMax=)".to_owned())),
        Err(error) => Err((frozen, error.to_string())),
    }
}
