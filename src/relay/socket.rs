//! One end of a relayed connection. Registers with the kernel for readable events always, and for writable events only
//! while there is no room: a socket registered for both wakes its thread needlessly each time the other side reads.

use std::{
    future::Future,
    io::{self, Read, Write},
    net::Shutdown,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec},
    io::Errno,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf, unix::AsyncFd},
    time::{Sleep, sleep},
};

use super::descriptors;

/// 10 ms: how long a blocked write waits if no file descriptor outside the reserve is left to watch for room.
const RETRY: Duration = Duration::from_millis(10);

/// A connected, non-blocking Unix socket.
#[derive(Debug)]
pub(super) struct Socket {
    reader: AsyncFd<UnixStream>,
    room: Room,
}

/// How to wait for room to write.
#[derive(Debug)]
enum Room {
    /// There is room, as far as is known.
    Known,
    /// The same socket through another descriptor, registered for writable events only.
    Watched(AsyncFd<UnixStream>),
    /// No descriptor was left: it is tried again later.
    Later(Pin<Box<Sleep>>),
}

impl Socket {
    /// Takes a connected socket. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The kernel cannot watch it.
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { reader: watch(stream, Interest::READABLE)?, room: Room::Known })
    }

    /// The socket alone.
    pub(super) fn into_stream(self) -> UnixStream {
        self.reader.into_inner()
    }

    /// Whether the other end has closed its socket completely, not only its sending side.
    pub(super) fn is_gone(&self) -> bool {
        let mut fds = [PollFd::new(&self.reader, PollFlags::empty())];
        let polled = rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        polled.is_ok() && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// Lets the other end's writes fail, as those to the socket behind us do.
    pub(super) fn refuse(&self) {
        // It fails only if there is no other end any more.
        let _gone_already = self.reader.get_ref().shutdown(Shutdown::Read);
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match &mut self.room {
                Room::Known => {
                    let watched = self.reader.get_ref().try_clone().and_then(|twin| {
                        if descriptors::is_reserved(&twin) {
                            return Err(Errno::MFILE.into());
                        }
                        watch(twin, Interest::WRITABLE)
                    });
                    self.room = watched.map_or_else(|_| Room::Later(Box::pin(sleep(RETRY))), Room::Watched);
                }
                Room::Watched(watched) => {
                    ready!(watched.poll_write_ready(cx))?.retain_ready();
                    self.room = Room::Known;
                    return Poll::Ready(Ok(()));
                }
                Room::Later(sleep) => {
                    ready!(sleep.as_mut().poll(cx));
                    self.room = Room::Known;
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

/// Registers a socket with the kernel for one kind of event.
#[expect(
    deprecated,
    reason = "what is wrong with it cannot happen here: a UnixStream owns its descriptor until it is dropped, and the \
              replacement needs unsafe code"
)]
fn watch(stream: UnixStream, interest: Interest) -> io::Result<AsyncFd<UnixStream>> {
    AsyncFd::with_interest(stream, interest)
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.reader.poll_read_ready(cx))?;
            let buffer = into.initialize_unfilled();
            let room = buffer.len();
            match ready.try_io(|stream| stream.get_ref().read(buffer)) {
                Ok(Ok(count)) => {
                    // Less than requested: the socket is drained, and the next byte wakes us.
                    if count > 0 && count < room {
                        ready.clear_ready();
                    }
                    into.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            if !matches!(self.room, Room::Known) {
                ready!(self.poll_room(cx))?;
            }
            match self.reader.get_ref().write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready!(self.poll_room(cx))?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.reader.get_ref().shutdown(Shutdown::Write))
    }
}
