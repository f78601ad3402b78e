//! Serves the API: HTTP/1.1 on a Unix socket that others bound. Connections in, answers out of [`Sources`].
//! Who may open the socket may read, and change what an operator may.

use std::{future::Future, io, pin::pin, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{UnixListener, UnixStream},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::{Sources, routes};

/// 128: connections at a time, followers among them; further ones wait to be accepted until one ends.
const MAX_CONNECTIONS: usize = 128;

/// 10 s for a request's head to come, also the first one and those after: an idle connection is closed then.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

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
    let router = routes::router(sources, drained.clone());
    let mut connections = JoinSet::new();
    let mut drain = pin!(drain);
    loop {
        tokio::select! {
            biased;
            () = &mut drain => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(converse(stream, router.clone(), drained.clone()));
                }
                Err(error) => pause_accepting(&error).await,
            },
        }
    }
    drop(listener);
    drained.cancel();
    let rest = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN_TIMEOUT, rest).await.is_err() {
        tracing::warn!(connections = connections.len(), "API answers were cut at the end of the drain");
    }
}

/// One connection, to its end or the drain's.
async fn converse(stream: UnixStream, router: Router, drained: CancellationToken) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = drained.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "API connection ended");
    }
}

async fn pause_accepting(error: &io::Error) {
    tracing::warn!(%error, "API connection not accepted");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

#[cfg(test)]
mod tests;
