//! A connection that reports what its peer sends: the same bytes in and out. Never changes a byte. Yields the thread
//! from time to time, so that a flood from a peer does not accumulate.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::dial::Connection;

/// 16 KiB: how much is read at once, before what was made of it is looked at. A library that reads ahead for as long as
/// something comes turns 10 bytes into some hundred: all that a peer sent meanwhile would be kept for nothing.
const AT_ONCE: usize = 16 << 10;

/// A connection with who watches it.
#[derive(Debug)]
pub(super) struct Watched<W> {
    connection: Connection,
    watch: W,
    /// How much was read since there was nothing to read.
    at_once: usize,
}

/// Wants to know what comes.
pub(super) trait Watch {
    /// The next octets came.
    fn on_read(&mut self, octets: &[u8]);
}

impl<W> Watched<W> {
    /// Watches `connection`, of which nothing has been read yet.
    pub(super) fn new(connection: Connection, watch: W) -> Self {
        Self { connection, watch, at_once: 0 }
    }

    /// What is watched.
    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Who watches.
    pub(super) fn watch(&self) -> &W {
        &self.watch
    }
}

impl<W: Watch + Unpin> AsyncRead for Watched<W> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.at_once >= AT_ONCE {
            this.at_once = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = into.filled().len();
        let polled = Pin::new(&mut this.connection).poll_read(cx, into);
        let octets = into.filled().get(before..).unwrap_or_default();
        this.at_once = if polled.is_pending() { 0 } else { this.at_once + octets.len() };
        this.watch.on_read(octets);
        polled
    }
}

impl<W: Unpin> AsyncWrite for Watched<W> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::{io::AsyncWriteExt, net::TcpListener};

    use super::*;
    use crate::{handler::dial, ids::PodUid};

    impl Watch for Vec<u8> {
        fn on_read(&mut self, octets: &[u8]) {
            self.extend_from_slice(octets);
        }
    }

    #[tokio::test]
    async fn all_that_comes_is_told_and_a_flood_is_read_in_pieces() {
        let flood: Vec<u8> = (0..200_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connection = dial::connect(listener.local_addr().unwrap(), &PodUid::default()).await.unwrap();
        let (mut peer, _) = listener.accept().await.unwrap();
        let sent = flood.clone();
        tokio::spawn(async move { peer.write_all(&sent).await.unwrap() });
        let mut watched = Watched::new(connection, Vec::new());
        let (mut read, mut most) = (Vec::new(), 0);
        let mut buffer = [0; 4096];
        poll_fn(|cx| {
            let before = read.len();
            loop {
                let mut into = ReadBuf::new(&mut buffer);
                let polled = Pin::new(&mut watched).poll_read(cx, &mut into);
                read.extend_from_slice(into.filled());
                match polled {
                    Poll::Ready(ended) => {
                        ended.unwrap();
                        if into.filled().is_empty() {
                            return Poll::Ready(());
                        }
                    }
                    Poll::Pending => {
                        most = most.max(read.len() - before);
                        return Poll::Pending;
                    }
                }
            }
        })
        .await;
        assert_eq!((&read, watched.watch()), (&flood, &flood));
        assert!(most <= AT_ONCE + buffer.len(), "{most} at once");
    }
}
