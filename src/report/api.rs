//! Serves the API: HTTP/1.1 on a Unix socket that the caller has bound, and on a TCP address where there is one.
//! Connections in, answers from [`Sources`] out. Any process that can open the socket can read everything, and do what an
//! operator can; what TCP may ask for is decided by `rights`. The two share no place, no room and no turn, so that nobody
//! on TCP can take those of the socket.

use std::{convert::Infallible, future::Future, io, panic, pin::pin, sync::Arc, time::Duration};

use axum::{
    Router,
    http::{HeaderValue, StatusCode, header::ALLOW, request::Parts},
    response::{IntoResponse as _, Response},
};
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::{Semaphore, SemaphorePermit},
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::{either::Either, sync::CancellationToken};
use tower::ServiceExt as _;

use super::{
    Sources, body,
    commands::CommandLog,
    live::Live,
    places::{Place, Places},
    redacted::Redacting,
    rights::{self, HttpRights},
    room::Room,
    routes::{self, Refusal},
};

/// 128: connections at a time of the socket, and as many over TCP, followers among them. A further one takes the place of the one whose client has kept us
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

/// 2 answers over TCP are worked on at once, and 2 of metrics and health; others wait. So whoever asks over TCP takes the
/// time of a few clients of the socket, however many ask.
const TCP_TURNS: usize = 2;

/// 5 s for such a turn; then 503.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);

/// 60 s after the last byte of a TCP client, the kernel asks whether it is still there, every 15 s; one that is gone is
/// found after four questions.
const KEEP_ALIVE: (Duration, Duration, u32) = (Duration::from_secs(60), Duration::from_secs(15), 4);

/// 128 KiB, of which the kernel makes twice as much: what it keeps for a TCP client that does not read. By itself it would
/// keep megabytes.
const SEND_BUFFER: usize = 128 << 10;

/// What the API is served on.
#[derive(Debug)]
pub struct Listeners {
    pub(crate) socket: Option<UnixListener>,
    /// The TCP address, and what may be asked for there.
    pub(crate) http: Option<(TcpListener, HttpRights)>,
}

impl From<UnixListener> for Listeners {
    fn from(socket: UnixListener) -> Self {
        Self { socket: Some(socket), http: None }
    }
}

/// Serves until `drain` is done: then accepts no more, ends the streams of followers, and returns when the answers
/// under way are written, 2 s later at most.
pub async fn serve(listeners: impl Into<Listeners>, sources: Sources, drain: impl Future<Output = ()>) {
    let listeners = listeners.into();
    let drained = CancellationToken::new();
    let commands = CommandLog::new();
    let redacting = Redacting::new(sources.redactor.clone());
    let live = Live::new(sources.clone(), redacting.clone(), drained.clone());
    let router = |room| {
        let (sources, drained, commands) = (sources.clone(), drained.clone(), commands.clone());
        routes::router(sources, drained, commands, (room, live.clone(), redacting.clone()))
    };
    let mut serving = JoinSet::new();
    if let Some(socket) = listeners.socket {
        let served = Served { router: router(Room::of_socket()), http: None };
        serving.spawn(accept_all(Either::Left(socket), served, Places::of_socket(), drained.clone()));
    }
    if let Some((listener, rights)) = listeners.http {
        let turns = [Semaphore::new(TCP_TURNS), Semaphore::new(TCP_TURNS)];
        let served = Served { router: router(Room::of_tcp()), http: Some(Arc::new(Http { rights, turns })) };
        serving.spawn(accept_all(Either::Right(listener), served, Places::of_tcp(), drained.clone()));
    }
    let mut minutes = interval(Duration::from_secs(60));
    minutes.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut drain = pin!(drain);
    loop {
        tokio::select! {
            biased;
            () = &mut drain => break,
            Some(ended) = serving.join_next() => pass_on(ended),
            _ = minutes.tick() => log_unlogged(&commands),
        }
    }
    drained.cancel();
    while let Some(ended) = serving.join_next().await {
        pass_on(ended);
    }
    log_unlogged(&commands);
}

/// A panic of one that accepts is one of the stage.
fn pass_on(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && let Ok(payload) = error.try_into_panic()
    {
        panic::resume_unwind(payload);
    }
}

/// Who answers the connections of one listener.
#[derive(Clone)]
struct Served {
    router: Router,
    /// Of TCP.
    http: Option<Arc<Http>>,
}

struct Http {
    rights: HttpRights,
    /// For metrics and health, and for all else.
    turns: [Semaphore; 2],
}

/// Accepts the connections of one listener until `drained` is cancelled, and returns when their answers are written.
async fn accept_all(
    listener: Either<UnixListener, TcpListener>,
    served: Served,
    places: Places,
    drained: CancellationToken,
) {
    let mut connections = JoinSet::new();
    // A shortage is logged once, however long it lasts.
    let mut is_short = false;
    loop {
        let is_full = connections.len() >= MAX_CONNECTIONS;
        // Those that were ended are gone soon: only so many more may be on their way out.
        let may_accept = !is_full || connections.len() < 2 * MAX_CONNECTIONS && places.can_end_one();
        tokio::select! {
            biased;
            () = drained.cancelled() => break,
            Some(_) = connections.join_next() => {}
            () = places.grown(), if !may_accept => {}
            accepted = accept(&listener), if may_accept => match accepted {
                Ok(stream) => {
                    is_short = false;
                    if is_full {
                        places.end_one();
                    }
                    connections.spawn(converse(stream, served.clone(), places.take(), drained.clone()));
                }
                Err(error) => pause_accepting(&error, std::mem::replace(&mut is_short, true)).await,
            },
        }
    }
    drop(listener);
    let rest = async { while connections.join_next().await.is_some() {} };
    if timeout(DRAIN_TIMEOUT, rest).await.is_err() {
        tracing::warn!(connections = connections.len(), "API answers were cut off at the end of the drain");
    }
}

/// The next connection. One type for both: all that serves them is compiled once.
async fn accept(listener: &Either<UnixListener, TcpListener>) -> io::Result<Either<UnixStream, TcpStream>> {
    match listener {
        Either::Left(listener) => Ok(Either::Left(listener.accept().await?.0)),
        Either::Right(listener) => {
            let stream = listener.accept().await?.0;
            let (after, every, times) = KEEP_ALIVE;
            let alive = TcpKeepalive::new().with_time(after).with_interval(every).with_retries(times);
            // They fail where the connection has just been closed, and matter to no other one.
            let _ = stream.set_nodelay(true);
            let _ = SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER);
            let _ = SockRef::from(&stream).set_tcp_keepalive(&alive);
            Ok(Either::Right(stream))
        }
    }
}

/// One connection, to its end or the drain's, or until its place is needed.
async fn converse(
    stream: Either<UnixStream, TcpStream>,
    served: Served,
    place: Arc<Place>,
    drained: CancellationToken,
) {
    let service = service_fn(|request| answer(&served, place.clone(), request));
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
    served: &Served,
    place: Arc<Place>,
    request: Request<Incoming>,
) -> Result<Response, Infallible> {
    place.begun();
    let (head, body) = request.into_parts();
    let mut response = match served.check(&head) {
        Ok(()) => served.respond(&place, Request::from_parts(head, body)).await,
        Err(refusal) => refusal.into_response(),
    };
    if served.http.is_some() && response.status() == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    // Those of the socket, too: somebody may have forwarded it to a port of their own.
    rights::protect(response.headers_mut());
    Ok(response)
}

impl Served {
    fn check(&self, head: &Parts) -> Result<(), Refusal> {
        self.http.as_ref().map_or_else(|| rights::check_site(head), |http| http.rights.check(head))
    }

    async fn respond(&self, place: &Arc<Place>, request: Request<Incoming>) -> Response {
        let mut request = match body::whole(request).await {
            Ok(request) => request,
            Err(refusal) => return refusal.into_response(),
        };
        place.asked();
        request.extensions_mut().insert(place.clone());
        let response = match self.turn(request.uri().path()).await {
            Ok(_turn) => match self.router.clone().oneshot(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            },
            Err(refusal) => refusal.into_response(),
        };
        place.answered();
        response
    }

    /// The right to be worked on, over TCP.
    async fn turn(&self, path: &str) -> Result<Option<SemaphorePermit<'_>>, Refusal> {
        let Some(http) = &self.http else { return Ok(None) };
        let turns = &http.turns[usize::from(rights::is_always(path))];
        match timeout(TURN_TIMEOUT, turns.acquire()).await {
            Ok(turn) => Ok(turn.ok()),
            Err(_) => {
                let words = "too many clients ask over TCP: try again, or use the API socket";
                Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, words.to_owned()))
            }
        }
    }
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
