//! Connects to the runtime for an accepted client: at once, or when the runtime is back. Waits for at most 20 s, and
//! stops if the client has left.

use std::{
    io,
    os::unix::net::UnixStream as StdStream,
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::{
    net::UnixStream,
    time::{sleep, timeout},
};

use super::{
    Phase, Shared,
    descriptors::{self, is_shortage},
    socket::Socket,
};
use crate::{clock, peer::Peer};

/// 20 s: how long an accepted connection waits for the runtime. A kubelet gives up after 5 s and tries again.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// 100 ms: how often to check whether the waiting client has left.
const LOOK: Duration = Duration::from_millis(100);

/// 10 ms: the pause before the next dial if the runtime's backlog was full.
const BACKLOG_PAUSE: Duration = Duration::from_millis(10);

/// 100 ms: the pause before the next dial if there was no file descriptor.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

/// 50 ms: the pause before the next dial if the connection was refused.
const REFUSAL_PAUSE: Duration = Duration::from_millis(50);

/// A connection to the runtime; `None` if the client is to be dropped.
pub(super) async fn dial(shared: &Shared, client: &Socket) -> Option<Socket> {
    let mut phase = shared.phase.clone();
    let is_short = AtomicBool::new(false);
    let mut connecting = pin!(connect(shared, &is_short));
    let dialled = tokio::select! {
        dialled = timeout(PATIENCE, &mut connecting) => dialled.ok(),
        () = has_left(client) => None,
        // During a drain, no client waits for a runtime that is away.
        () = async {
            drop(phase.wait_for(|phase| *phase != Phase::Serving).await);
            sleep(LOOK).await;
        } => None,
    };
    if dialled.is_none()
        && !client.is_gone()
        && let Some(passed_over) = shared.notices.let_go.due(clock::now())
    {
        if is_short.load(Ordering::Relaxed) {
            let limit = descriptors::limit();
            tracing::warn!(
                limit,
                passed_over,
                "dropped a client: out of file descriptors, raise LimitNOFILE"
            );
        } else {
            let runtime = shared.runtime.display();
            tracing::warn!(%runtime, passed_over, "dropped a client: the runtime is away");
        }
    }
    dialled
}

/// Dials until it succeeds. `is_short` is set while the cause is a shortage of ours, not the runtime.
async fn connect(shared: &Shared, is_short: &AtomicBool) -> Socket {
    loop {
        is_short.store(false, Ordering::Relaxed);
        shared.gate.there().await;
        let connected = UnixStream::connect(&shared.runtime).await.and_then(UnixStream::into_std);
        match connected.and_then(|runtime| Socket::new(not_ourselves(shared, runtime)?)) {
            Ok(runtime) => return runtime,
            Err(busy) if busy.kind() == io::ErrorKind::WouldBlock => sleep(BACKLOG_PAUSE).await,
            // This is our own shortage: the runtime works, and existing connections to it continue.
            Err(error) if is_shortage(&error) => {
                is_short.store(true, Ordering::Relaxed);
                sleep(SHORTAGE_PAUSE).await;
            }
            Err(error) => {
                if shared.gate.found_away() {
                    // Whoever follows the link reports it: once per outage.
                    tracing::debug!(runtime = %shared.runtime.display(), %error, "cannot dial the runtime: connections wait");
                }
                // If it answers at once, it does so at another place: the file of its socket may be missing.
                sleep(REFUSAL_PAUSE).await;
            }
        }
    }
}

/// Refuses a runtime that is our own listener: a link that was created after the start leads back to us.
fn not_ourselves(shared: &Shared, runtime: StdStream) -> io::Result<StdStream> {
    // A socket keeps the name under which it was bound, and the credentials of the process that listened first.
    let is_ours = match (&shared.bound, runtime.peer_addr()?.as_pathname()) {
        (Some((bound, listener)), Some(name)) => name == bound && Peer::of(&runtime)?.pid == *listener,
        _ => false,
    };
    if is_ours {
        return Err(io::Error::other("the runtime's socket points back to criprobe itself: set --runtime"));
    }
    Ok(runtime)
}

async fn has_left(client: &Socket) {
    while !client.is_gone() {
        sleep(LOOK).await;
    }
}
