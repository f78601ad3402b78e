//! One HTTP/2 connection to a health server: an address in, one answer to Check out. Has no task of its own: dropping
//! it ends it at any point.
//!
//! Uses h2 rather than a tonic channel, because tonic does not report when the server has answered, connects in tasks
//! that outlive the attempt, and panics on a malformed `grpc-status-details-bin`.

use std::{
    future::{pending, poll_fn},
    io,
    net::SocketAddr,
    pin::Pin,
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use h2::client::{self, SendRequest};
use http::{HeaderMap, Method, Request, header};
use prost::Message;
use tokio::time::{sleep, timeout};

use super::{
    USER_AGENT,
    answer::{GrpcAnswer, Refusal},
    preface::Preface,
};
use crate::{
    handler::{dial, trouble::is_ours, watched::Watched},
    ids::PodUid,
    proto::{grpc::GrpcPrefix, health::HealthCheckRequest},
};

/// 1 s, then 1.6 times the last pause, at most 120 s: Go's pauses between two tries to connect, without its jitter.
const PAUSE: (Duration, f64, Duration) = (Duration::from_secs(1), 1.6, Duration::from_secs(120));

/// 20 s: what Go gives one try to connect. A server that is silent for longer is dialled again.
const PATIENCE: Duration = Duration::from_secs(20);

/// 16 KiB: the most that headers and trailers may hold. More resets the call, which is a failure.
const HEADERS: u32 = 16 * 1024;

/// 64 KiB - 1, HTTP/2's own default: what a server may send of an answer; one is refused long before that.
const WINDOW: u32 = 65_535;

/// A connection over which the server has shown that it speaks HTTP/2.
pub(super) struct Connection {
    requests: SendRequest<Bytes>,
    frames: client::Connection<Watched<Preface>, Bytes>,
}

/// Connects for a probe of `pod`, again and again. Ends only when it succeeds: the caller has the limit.
///
/// # Errors
/// What the kernel said, where that is for want of something of our own.
pub(super) async fn connect(address: SocketAddr, pod: &PodUid) -> io::Result<Connection> {
    let (mut pause, growth, longest) = PAUSE;
    loop {
        if let Some(connection) = timeout(PATIENCE, connect_once(address, pod)).await.unwrap_or(Ok(None))? {
            return Ok(connection);
        }
        sleep(pause).await;
        pause = pause.mul_f64(growth).min(longest);
    }
}

/// Dials, and waits for the server's SETTINGS; `None` if that fails. The reason is not shown anywhere, so it is not
/// kept, unless it is our own want.
async fn connect_once(address: SocketAddr, pod: &PodUid) -> io::Result<Option<Connection>> {
    let connection = match dial::connect(address, pod).await {
        Ok(connection) => connection,
        Err(error) if is_ours(&error) => return Err(error),
        Err(_) => return Ok(None),
    };
    Ok(speak(connection).await)
}

async fn speak(connection: dial::Connection) -> Option<Connection> {
    connection.set_no_delay().ok()?;
    let preface = Preface::default();
    let shown = preface.shown();
    let (requests, mut frames) = client::Builder::new()
        .enable_push(false)
        .max_header_list_size(HEADERS)
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .handshake(Watched::new(connection, preface))
        .await
        .ok()?;
    let speaks = poll_fn(|cx| {
        let ended = Pin::new(&mut frames).poll(cx).is_ready();
        match shown.get() {
            Some(speaks) => Poll::Ready(*speaks),
            None if ended => Poll::Ready(false),
            None => Poll::Pending,
        }
    });
    speaks.await.then_some(Connection { requests, frames })
}

impl Connection {
    /// Asks for the health of a service and returns the number of its status. The request announces that
    /// the caller gives up within `timeout`, which is the caller's to keep; connecting has taken some of it already.
    ///
    /// # Errors
    /// The server's own status, or one that says how the call went wrong.
    pub(super) async fn check(
        &mut self,
        address: SocketAddr,
        service: &str,
        timeout: Duration,
    ) -> Result<i32, Refusal> {
        let Self { requests, frames } = self;
        let drive = async {
            // The call learns what ended it, and waits for nothing more.
            let _ = frames.await;
            pending().await
        };
        tokio::select! {
            biased;
            answer = call(requests, address, service, timeout) => answer,
            never = drive => never,
        }
    }
}

async fn call(
    requests: &mut SendRequest<Bytes>,
    address: SocketAddr,
    service: &str,
    timeout: Duration,
) -> Result<i32, Refusal> {
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("http://{address}/grpc.health.v1.Health/Check"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::TE, "trailers")
        .header("grpc-timeout", grpc_timeout(timeout))
        .body(())
        .expect("an address and constants make a valid request");
    let (response, mut upload) = requests.send_request(request, false).map_err(Refusal::of_transport)?;
    upload.send_data(framed(service), true).map_err(Refusal::of_transport)?;
    let (head, mut body) = response.await.map_err(Refusal::of_transport)?.into_parts();
    let mut answer = GrpcAnswer::begin(head.status, &head.headers)?;
    while let Some(octets) = body.data().await {
        answer.take(&octets.map_err(Refusal::of_transport)?)?;
    }
    let trailers = body.trailers().await.map_err(Refusal::of_transport)?;
    answer.end(trailers.as_ref().unwrap_or(&HeaderMap::new()))
}

/// The question as a gRPC message.
fn framed(service: &str) -> Bytes {
    let question = HealthCheckRequest { service: service.to_owned() }.encode_to_vec();
    let prefix =
        GrpcPrefix::encode(question.len()).expect("a service is named in a definition of at most 16 KiB");
    [&prefix[..], &question].concat().into()
}

/// A duration as the header says it: at most eight digits and a unit, the finest in which it fits.
fn grpc_timeout(timeout: Duration) -> String {
    let units = [("n", timeout.as_nanos()), ("u", timeout.as_micros()), ("m", timeout.as_millis())];
    let fits = units.into_iter().find(|(_, amount)| *amount < 100_000_000);
    fits.map_or_else(
        || format!("{}S", timeout.as_secs().min(99_999_999)),
        |(unit, amount)| format!("{amount}{unit}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_takes_the_finest_unit_that_fits_eight_digits() {
        let rows = [
            (Duration::ZERO, "0n"),
            (Duration::from_millis(99), "99000000n"),
            (Duration::from_millis(100), "100000u"),
            (Duration::from_secs(99), "99000000u"),
            (Duration::from_secs(100), "100000m"),
            (Duration::from_secs(100_000), "100000S"),
            (Duration::MAX, "99999999S"),
        ];
        for (left, text) in rows {
            assert_eq!(grpc_timeout(left), text);
        }
    }
}
