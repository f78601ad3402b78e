//! One accepted connection that can be closed from outside: bytes pass unchanged until its hangup is called. Never
//! interprets the bytes.

use std::{
    future::Future as _,
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::UnixStream,
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

/// A client's connection.
pub(super) struct Connection {
    stream: UnixStream,
    hangup: Hangup,
    hung_up: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Connection {
    /// Wraps an accepted stream; it ends when `serving` does, if not before.
    pub(super) fn new(stream: UnixStream, serving: &CancellationToken) -> Self {
        let token = serving.child_token();
        let hung_up = Box::pin(token.clone().cancelled_owned());
        Self { stream, hangup: Hangup(token), hung_up }
    }

    fn check(&self) -> io::Result<()> {
        match self.hangup.0.is_cancelled() {
            true => Err(io::ErrorKind::ConnectionReset.into()),
            false => Ok(()),
        }
    }
}

/// Ends the connection that a request came on; each request carries it among its extensions.
#[derive(Clone, Debug)]
pub(super) struct Hangup(CancellationToken);

impl Hangup {
    /// Ends the connection: what was not yet written is lost.
    #[cfg(feature = "faults")]
    pub(super) fn call(&self) {
        self.0.cancel();
    }
}

impl Connected for Connection {
    type ConnectInfo = Hangup;

    fn connect_info(&self) -> Hangup {
        self.hangup.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check()?;
        // Polled for its waker: the connection's task has to learn of a hangup while nothing comes in.
        if self.hung_up.as_mut().poll(cx).is_ready() {
            return Poll::Ready(self.check());
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
