//! One request and its answer over a separate connection, in HTTP/1.1 or, if a TLS server chose it, HTTP/2. Does not
//! judge the answer and has no time limit: the caller has one.

use std::{io, time::Duration};

use bytes::Bytes;
use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::{
    Target,
    connect::{broken, connect},
    head::{Framing, Head},
    http2::Http2,
    redirect::DRAINED,
    request::Request,
    source::Source,
    tls::{self, Secured},
    wire,
};
use crate::handler::{dial::Connection, trouble::Trouble};

/// An answer up to the end of its head.
#[derive(Debug)]
pub(super) struct HttpAnswer {
    /// Three digits.
    pub status: u16,
    /// Where to instead; empty without one.
    pub location: Vec<u8>,
    /// How long to wait before the next request of the attempt.
    pub pause: Duration,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Plain(Source<Connection>, Framing),
    Secured(Box<Source<Secured>>, Framing),
    Http2(Box<Http2>),
}

/// Asks, on a new connection. `waits_for_us` is true while it waits for one of our own places.
///
/// # Errors
/// In the words of Go's client, without the URL.
pub(super) async fn ask(
    target: &Target<'_>,
    request: &Request,
    waits_for_us: &mut bool,
) -> Result<HttpAnswer, Trouble> {
    request.check()?;
    let connection = connect(target, &request.url, waits_for_us).await?;
    if !request.is_secure() {
        let mut source = Source::new(connection, |connection, error| broken(connection, "read", error));
        let head =
            exchange(&mut source, request, |connection, error| broken(connection, "write", error)).await?;
        return Ok(HttpAnswer {
            status: head.status,
            location: head.location,
            pause: Duration::ZERO,
            body: Body::Plain(source, head.framing),
        });
    }
    let host = String::from_utf8_lossy(request.url.hostname());
    let secured = tls::secure(connection, &host).await?;
    let pause = tls::pause_after(&secured);
    if tls::chose_http2(&secured) {
        let (http2, status, location) = Http2::ask(secured, wire::http2(request)?).await?;
        return Ok(HttpAnswer { status, location, pause, body: Body::Http2(Box::new(http2)) });
    }
    let mut source = Source::new(secured, tls::read_error);
    let head = exchange(&mut source, request, tls::read_error).await?;
    let body = Body::Secured(Box::new(source), head.framing);
    Ok(HttpAnswer { status: head.status, location: head.location, pause, body })
}

/// Sends the request and reads the head. A server may answer and close before it has read all: its answer counts.
async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    source: &mut Source<S>,
    request: &Request,
    describe: fn(&S, &io::Error) -> String,
) -> Result<Head, String> {
    let stream = source.stream();
    let bytes = wire::http1(request);
    let written = async {
        stream.write_all(&bytes).await?;
        stream.flush().await
    };
    let unwritten = written.await.err().map(|error| describe(source.stream(), &error));
    source.head().await.map_err(|error| unwritten.unwrap_or(error))
}

impl HttpAnswer {
    /// Reads the body, at most `limit` bytes of it, and ends the connection.
    ///
    /// # Errors
    /// In the words of Go's client, when the body ends too early or is not framed as it should be.
    pub(super) async fn read(self, limit: usize) -> Result<Bytes, String> {
        match self.body {
            Body::Plain(mut source, framing) => source.body(framing, limit).await,
            Body::Secured(mut source, framing) => {
                let body = source.body(framing, limit).await;
                // Says goodbye if that takes no time.
                let _ = source.stream().shutdown().now_or_never();
                body
            }
            Body::Http2(mut http2) => http2.body(limit).await,
        }
    }

    /// Reads what Go's client reads of a redirect's body before it goes on: a little, and nothing of a long one. What
    /// goes wrong with it does not matter.
    pub(super) async fn drain(self) {
        let is_long = match &self.body {
            Body::Plain(_, framing) | Body::Secured(_, framing) => {
                matches!(framing, Framing::Length(length) if *length > DRAINED as u64)
            }
            Body::Http2(http2) => http2.length().is_some_and(|length| length > DRAINED as u64),
        };
        if !is_long {
            let _ = self.read(DRAINED).await;
        }
    }
}
