//! Accepts clients, and assigns their connections to the relay's threads.

use std::{
    io,
    os::unix::net::UnixListener as StdListener,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{net::UnixListener, sync::mpsc, time::sleep};

use super::{
    Accepted, Client, Phase, Shared,
    descriptors::{self, Budget, MAX_CONNECTIONS, Shortage, is_shortage},
    handover::FrozenConnection,
    notice::Notice,
    registry::{Registry, RelayedConnection},
};
use crate::clock;

/// 100 ms: how often to check whether there are descriptors for another client again. Meanwhile, connections wait in
/// the backlog.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts until the end, and assigns connections to the threads in turn.
pub(super) async fn accept(
    listener: StdListener,
    resumed: Vec<(Arc<RelayedConnection>, FrozenConnection)>,
    is_kept: bool,
    shared: Arc<Shared>,
    workers: Vec<mpsc::Sender<Accepted>>,
) {
    let listener = match UnixListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot accept"),
    };
    let mut phase = shared.phase.clone();
    let last = if is_kept { Phase::Leaving } else { Phase::Closing };
    let (budget, pause) = (Budget::default(), Notice::default());
    for ((connection, frozen), worker) in resumed.into_iter().zip(workers.iter().cycle()) {
        let client = Client::Resumed(connection, Box::new(frozen));
        drop(worker.send(Accepted { client, place: budget.accepted() }).await);
    }
    for worker in workers.iter().cycle() {
        let accepted = tokio::select! {
            () = async { drop(phase.wait_for(|phase| *phase >= last).await) } => break,
            accepted = accept_next(&listener, &budget, &pause, &shared.registry) => accepted,
        };
        shared.arriving.fetch_add(1, Ordering::Relaxed);
        // A thread that has ended has panicked; the drain reports it.
        drop(worker.send(accepted).await);
    }
    drop(listener);
    shared.arriving.fetch_sub(1, Ordering::Release);
    // The threads go on for as long as these channels are open.
    drop(phase.wait_for(|phase| *phase >= Phase::Closing).await);
}

/// Accepts the next client once there are descriptors for it, and few enough others.
async fn accept_next(
    listener: &UnixListener,
    budget: &Budget,
    pause: &Notice,
    registry: &Registry,
) -> Accepted {
    // By the kernel: that there seems to be room says nothing then.
    let mut was_refused = false;
    loop {
        let refused = match budget.shortage(listener) {
            Some(shortage) => {
                was_refused = false;
                Refused::Short(shortage)
            }
            None => {
                if !was_refused {
                    registry.accepting_resumed();
                }
                let accepted = listener.accept().await;
                match accepted.and_then(|(stream, _)| stream.into_std()) {
                    Ok(stream) => return Accepted { client: Client::New(stream), place: budget.accepted() },
                    Err(error) => {
                        was_refused = true;
                        if is_shortage(&error) {
                            Refused::Short(Shortage::Descriptors)
                        } else {
                            Refused::Failed(error)
                        }
                    }
                }
            }
        };
        if let Refused::Short(_) = refused {
            registry.accepting_paused();
        }
        if let Some(passed_over) = pause.due(clock::now()) {
            match refused {
                Refused::Failed(error) => {
                    tracing::warn!(%error, passed_over, "cannot accept a connection: trying again");
                }
                Refused::Short(Shortage::Connections) => {
                    tracing::warn!(
                        limit = MAX_CONNECTIONS,
                        "too many connections: new clients wait until others leave"
                    );
                }
                Refused::Short(Shortage::Descriptors) => {
                    let (limit, open) = (descriptors::limit(), registry.count());
                    tracing::warn!(
                        limit,
                        open,
                        "out of file descriptors: new clients wait until others leave, raise LimitNOFILE"
                    );
                }
            }
        }
        sleep(ACCEPT_PAUSE).await;
    }
}

/// Why no client was accepted.
enum Refused {
    Short(Shortage),
    Failed(io::Error),
}
