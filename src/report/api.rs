//! Serves the API: HTTP/1.1 on a Unix socket that the caller has bound. Connections in, answers from [`Sources`] out.
//! Any process that can open the socket can read everything, and do what an operator can.

use std::{convert::Infallible, future::Future, io, pin::pin, sync::Arc, time::Duration};

use axum::{Router, body::Body, response::IntoResponse as _};
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{UnixListener, UnixStream},
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep},
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::{
    Sources, body,
    commands::CommandLog,
    places::{Place, Places},
    routes,
};

/// 128: connections at a time, followers among them. A further one takes the place of the one whose client has kept us
/// waiting the longest; where all are being answered, it waits until one of them is.
const MAX_CONNECTIONS: usize = 128;

/// 20 ms: how long a new connection is not closed in favour of another, from when it is read first. A client asks at once;
/// those that do not make way for 6,400 others per second.
const NEW: Duration = Duration::from_millis(20);

/// 2 s for the head of a connection's first request: a client that connects has something to ask. The connection is
/// closed then.
const FIRST_HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// 10 s for the heads of later requests: an idle connection is closed then.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// 10 s between two looks whether a client takes its answer. One that has neither taken it nor asked again from one look
/// to the next is cut; a follower never is, as it misses records instead of holding any.
const READ_LOOK: Duration = Duration::from_secs(10);

/// 64 KiB of a request's head; a longer one is answered 431.
const MAX_HEAD: usize = 64 * 1024;

/// 2 s for answers under way when draining begins; what is not written by then is cut.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// 100 ms after an accept that failed, as when file descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `drain` is done: then accepts no more, ends the streams of followers, and returns when the answers
/// under way are written, 2 s later at most.
pub async fn serve(listener: UnixListener, sources: Sources, drain: impl Future<Output = ()>) {
    let drained = CancellationToken::new();
    let commands = CommandLog::new();
    let router = routes::router(sources, drained.clone(), commands.clone());
    let places = Places::new();
    let mut connections = JoinSet::new();
    let mut minutes = interval(Duration::from_secs(60));
    minutes.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // A shortage is logged once, however long it lasts.
    let mut is_short = false;
    let mut drain = pin!(drain);
    loop {
        let is_full = connections.len() >= MAX_CONNECTIONS;
        // Those that were ended are gone soon: only so many more may be on their way out.
        let may_accept = !is_full || connections.len() < 2 * MAX_CONNECTIONS && places.can_end_one();
        tokio::select! {
            biased;
            () = &mut drain => break,
            Some(_) = connections.join_next() => {}
            _ = minutes.tick() => log_unlogged(&commands),
            () = places.grown(), if !may_accept => {}
            accepted = listener.accept(), if may_accept => match accepted {
                Ok((stream, _)) => {
                    is_short = false;
                    if is_full {
                        places.end_one();
                    }
                    connections.spawn(converse(stream, router.clone(), places.take(), drained.clone()));
                }
                Err(error) => pause_accepting(&error, std::mem::replace(&mut is_short, true)).await,
            },
        }
    }
    drop(listener);
    drained.cancel();
    let rest = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN_TIMEOUT, rest).await.is_err() {
        tracing::warn!(connections = connections.len(), "API answers were cut off at the end of the drain");
    }
    log_unlogged(&commands);
}

/// One connection, to its end or the drain's, or until its place is needed.
async fn converse(stream: UnixStream, router: Router, place: Arc<Place>, drained: CancellationToken) {
    let service = service_fn(|request| answer(router.clone(), place.clone(), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = place.ended() => return tracing::debug!("API connection was closed to make room for another"),
        () = silent(&place) => return tracing::debug!("API connection sent no request"),
        () = stuck(&place) => return tracing::debug!("API connection did not read its answer"),
        () = drained.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "API connection ended");
    }
}

async fn answer(
    router: Router,
    place: Arc<Place>,
    request: Request<Incoming>,
) -> Result<axum::http::Response<Body>, Infallible> {
    place.begun();
    let mut request = match body::whole(request).await {
        Ok(request) => request,
        Err(refusal) => return Ok(refusal.into_response()),
    };
    place.asked();
    request.extensions_mut().insert(place.clone());
    let answer = router.oneshot(request).await;
    place.answered();
    answer
}

/// Returns when the head of the first request is overdue; never after it has come.
async fn silent(place: &Place) {
    sleep(NEW).await;
    place.settle();
    sleep(FIRST_HEAD_TIMEOUT.saturating_sub(NEW)).await;
    if place.has_begun() {
        std::future::pending::<()>().await;
    }
}

/// Returns when nothing has moved from one look to the next.
async fn stuck(place: &Place) {
    loop {
        let before = place.waits_since();
        sleep(READ_LOOK).await;
        if before.is_some() && place.waits_since() == before {
            return;
        }
    }
}

/// Counts the commands that were too many to be logged one by one.
fn log_unlogged(commands: &CommandLog) {
    let unlogged = commands.minute();
    if unlogged > 0 {
        tracing::info!(commands = unlogged, "too many operator commands: these were not logged one by one");
    }
}

async fn pause_accepting(error: &io::Error, is_known: bool) {
    if !is_known {
        tracing::warn!(%error, "API connections are not accepted: trying again");
    }
    sleep(ACCEPT_PAUSE).await;
}

#[cfg(test)]
mod tests;
