//! One direction of a connection: copies bytes from one socket to the other, unchanged. Each written prefix goes
//! through the tap before the next await; there is nothing else between read and write. Never interprets the bytes
//! itself.

use std::{
    fmt, io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::clock;

/// How one direction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finished {
    /// The reading side ended; everything was passed on, including the end.
    Ended,
    /// The receiving side accepts no more.
    Refused,
}

/// 16 reads, at most 1 MiB: then the other direction and the thread's other connections get their turn.
const ROUNDS: usize = 16;

/// 200 us: after that the turn ends, too. If a single read takes longer, the next one is half as large. A read of 64 KiB takes 40 us where
/// frames are large, and over a millisecond where each starts a call: with hundreds of such connections on a thread,
/// everyone else's calls would take seconds.
const TURN: Duration = Duration::from_micros(200);

/// 8 MiB wait for slow receivers of all connections; then 4 KiB are read at a time, so that each further direction that is
/// stalled adds no more than that.
const ALL_WAITING: usize = 8 << 20;

/// 4 KiB: the size of one read while so much waits, and the least one otherwise.
const SMALL_READ: usize = 4 << 10;

/// How many bytes wait for slow receivers of all connections.
#[derive(Debug, Default)]
pub(super) struct Waiting(AtomicUsize);

impl Waiting {
    /// The size of the next read.
    fn read_size(&self, buffer: usize) -> usize {
        if self.0.load(Ordering::Relaxed) < ALL_WAITING { buffer } else { buffer.min(SMALL_READ) }
    }
}

/// One direction. Holds bytes only while the receiving side is slow.
#[derive(Debug)]
pub(super) struct Pump {
    /// Read and not yet written; at most one scratch buffer full. While it is not empty, nothing more is read: this is
    /// the back-pressure.
    pending: Vec<u8>,
    /// Counts what is pending in all directions.
    waiting: Arc<Waiting>,
    written: usize,
    /// A frame of ours, to be written before anything else; the tap does not see it.
    ours: Vec<u8>,
    has_ended: bool,
    finished: Option<Finished>,
    /// The size of the next read, as far as the buffer is that large.
    read_size: usize,
    /// Bytes passed on so far.
    pub bytes: u64,
}

/// A direction that stopped.
#[derive(Default)]
pub(super) struct FrozenPump {
    /// What is left of a frame of ours, to be written before anything else.
    pub(super) ours: Vec<u8>,
    /// Read and not yet written.
    pub(super) pending: Vec<u8>,
    /// Bytes passed on so far.
    pub(super) bytes: u64,
    pub(super) has_ended: bool,
    pub(super) finished: Option<Finished>,
}

impl Pump {
    /// Nothing is read yet.
    pub(super) fn new(waiting: &Arc<Waiting>) -> Self {
        Self {
            pending: Vec::new(),
            waiting: Arc::clone(waiting),
            written: 0,
            ours: Vec::new(),
            has_ended: false,
            finished: None,
            read_size: usize::MAX,
            bytes: 0,
        }
    }

    /// Goes on where another pump stopped.
    pub(super) fn resume(waiting: &Arc<Waiting>, frozen: FrozenPump) -> Self {
        let FrozenPump { ours, pending, bytes, has_ended, finished } = frozen;
        let mut pump = Self::new(waiting);
        (pump.ours, pump.bytes, pump.has_ended, pump.finished) = (ours, bytes, has_ended, finished);
        pump.hold(&pending);
        pump
    }

    /// Stops.
    pub(super) fn freeze(self) -> FrozenPump {
        let Self { ours, pending, written, bytes, has_ended, finished, .. } = &self;
        FrozenPump {
            ours: ours.clone(),
            pending: pending[*written..].to_vec(),
            bytes: *bytes,
            has_ended: *has_ended,
            finished: *finished,
        }
    }

    /// Whether every byte that was read is written.
    pub(super) fn is_flushed(&self) -> bool {
        self.pending.is_empty() && self.ours.is_empty()
    }

    /// How it ended, once it has.
    pub(super) fn finished(&self) -> Option<Finished> {
        self.finished
    }

    /// Inserts a frame of ours between what was written and what follows. Only between two frames, and only when
    /// flushed.
    pub(super) fn inject(&mut self, frame: &[u8]) {
        debug_assert!(self.pending.is_empty(), "a frame of ours never splits one of theirs");
        self.ours.extend_from_slice(frame);
    }

    /// Moves the bytes that can be moved now. Ready when this direction has ended; calling it again is harmless.
    pub(super) fn poll<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        mut from: R,
        mut to: W,
        scratch: &mut [u8],
        mut seen: impl FnMut(&[u8]),
    ) -> Poll<Finished>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        if let Some(finished) = self.finished {
            return Poll::Ready(finished);
        }
        let began = clock::now();
        let mut before = began;
        for _ in 0..ROUNDS {
            if ready!(self.poll_flush(cx, &mut to, &mut seen)).is_err() {
                return self.finish(Finished::Refused);
            }
            if self.has_ended {
                let _gone_already = ready!(Pin::new(&mut to).poll_shutdown(cx));
                return self.finish(Finished::Ended);
            }
            let size = self.waiting.read_size(scratch.len()).min(self.read_size);
            let mut buffer = ReadBuf::new(&mut scratch[..size]);
            match ready!(Pin::new(&mut from).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {
                    if self.write_through(cx, &mut to, buffer.filled(), &mut seen).is_err() {
                        return self.finish(Finished::Refused);
                    }
                }
                // A reset means the same as an end: what was read before it has been passed on.
                Ok(()) | Err(_) => self.has_ended = true,
            }
            let now = clock::now();
            let is_slow = now.duration_since(before) >= TURN;
            self.read_size = if is_slow { (size / 2).max(SMALL_READ) } else { size.saturating_mul(2) };
            if now.duration_since(began) >= TURN {
                break;
            }
            before = now;
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes as much as the socket takes now and keeps the rest.
    fn write_through<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut W,
        bytes: &[u8],
        seen: &mut impl FnMut(&[u8]),
    ) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match Pin::new(&mut *to).poll_write(cx, rest) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => {
                    let (done, left) = rest.split_at(count);
                    self.bytes += count as u64;
                    seen(done);
                    rest = left;
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => {
                    self.hold(rest);
                    break;
                }
            }
        }
        Ok(())
    }

    fn poll_flush<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut W,
        seen: &mut impl FnMut(&[u8]),
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_ours(cx, to))?;
        while self.written < self.pending.len() {
            let count = ready!(Pin::new(&mut *to).poll_write(cx, &self.pending[self.written..]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.bytes += count as u64;
            seen(&self.pending[self.written..self.written + count]);
            self.written += count;
        }
        self.release();
        Poll::Ready(Ok(()))
    }

    /// Writes a frame of ours as far as the socket takes it.
    ///
    /// # Errors
    /// The socket accepts no more.
    pub(super) fn poll_ours<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut W,
    ) -> Poll<io::Result<()>> {
        while !self.ours.is_empty() {
            let count = ready!(Pin::new(&mut *to).poll_write(cx, &self.ours))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.ours.drain(..count);
        }
        Poll::Ready(Ok(()))
    }

    fn finish(&mut self, finished: Finished) -> Poll<Finished> {
        self.release();
        self.ours = Vec::new();
        self.finished = Some(finished);
        Poll::Ready(finished)
    }

    fn hold(&mut self, rest: &[u8]) {
        self.waiting.0.fetch_add(rest.len(), Ordering::Relaxed);
        self.pending = rest.to_vec();
        self.written = 0;
    }

    fn release(&mut self) {
        if !self.pending.is_empty() {
            self.waiting.0.fetch_sub(self.pending.len(), Ordering::Relaxed);
            self.pending = Vec::new();
        }
        self.written = 0;
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.release();
    }
}

impl fmt::Debug for FrozenPump {
    /// Shows none of the bytes: they may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ours, pending, bytes, has_ended, finished } = self;
        let shown = (ours.len(), pending.len(), bytes, has_ended, finished);
        f.debug_tuple("FrozenPump").field(&shown).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_frame_of_ours_and_of_theirs_is_written_by_the_next_pump() {
        let (waiting, mut cx) = (Arc::new(Waiting::default()), Context::from_waker(std::task::Waker::noop()));
        let (mut to, mut end) = tokio::io::duplex(5);
        let mut pump = Pump::new(&waiting);
        pump.inject(b"OURS");
        assert!(pump.poll(&mut cx, &b"theirs, and more"[..], &mut to, &mut [0; 64], |_| {}).is_pending());
        let mut arrived = Vec::new();
        let mut pump = Pump::resume(&waiting, pump.freeze());
        let mut after = std::io::Cursor::new(b"; after");
        loop {
            let mut buffer = [0; 64];
            let mut read = ReadBuf::new(&mut buffer);
            let is_ready = Pin::new(&mut end).poll_read(&mut cx, &mut read).is_ready();
            assert!(is_ready && arrived.len() < 64, "what follows {arrived:?}");
            if read.filled().is_empty() {
                break;
            }
            arrived.extend_from_slice(read.filled());
            // Once more at each step.
            pump = Pump::resume(&waiting, pump.freeze());
            let _ = pump.poll(&mut cx, &mut after, &mut to, &mut [0; 64], |_| {});
        }
        assert_eq!(arrived, b"OURStheirs, and more; after");
        assert_eq!((pump.bytes, waiting.0.load(Ordering::Relaxed)), (23, 0));
    }

    /// Moves what can be moved from a reader that always has bytes.
    fn pumped(pump: &mut Pump, to: &mut tokio::io::DuplexStream) {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let from = tokio::io::repeat(b'x');
        assert!(pump.poll(&mut cx, from, to, &mut [0; 64 << 10], |_| {}).is_pending());
    }

    #[test]
    fn row_20_a_turn_ends_after_its_time_and_what_takes_long_is_read_in_small_pieces() {
        let mut pump = Pump::new(&Arc::default());
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut turn = |slow: bool| {
            let mut reads = Vec::new();
            let polled =
                pump.poll(&mut cx, tokio::io::repeat(b'x'), tokio::io::sink(), &mut [0; 64 << 10], |bytes| {
                    reads.push(bytes.len());
                    if slow {
                        std::thread::sleep(TURN);
                    }
                });
            assert!(polled.is_pending());
            reads
        };
        let slow: Vec<_> = (0..6).map(|_| turn(true)).collect();
        assert_eq!(slow, [65536, 32768, 16384, 8192, 4096, 4096].map(|size| vec![size]));
        // Quick again, as far as nothing else delays this thread.
        assert!((0..1000).any(|_| turn(false).contains(&65536)), "it grows again");
    }

    #[test]
    fn row_16_what_waits_for_slow_receivers_is_bounded_for_all_connections_together() {
        let waiting = Arc::new(Waiting::default());
        // Each takes one byte and no more.
        let mut ends: Vec<_> = (0..1_000).map(|_| tokio::io::duplex(1)).collect();
        let mut pumps: Vec<_> = ends.iter().map(|_| Pump::new(&waiting)).collect();
        for (pump, (to, _)) in pumps.iter_mut().zip(&mut ends) {
            pumped(pump, to);
            assert!(!pump.is_flushed(), "each holds something");
        }
        let held: usize = pumps.iter().map(|pump| pump.pending.len()).sum();
        assert_eq!(waiting.0.load(Ordering::Relaxed), held);
        assert!(held <= ALL_WAITING + (64 << 10) + 1_000 * SMALL_READ, "{held}");
        // One that is read goes on.
        let before = pumps[999].bytes;
        let mut byte = [0];
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut read = ReadBuf::new(&mut byte);
        assert!(Pin::new(&mut ends[999].1).poll_read(&mut cx, &mut read).is_ready());
        pumped(&mut pumps[999], &mut ends[999].0);
        assert_eq!(pumps[999].bytes, before + 1);
        drop(pumps);
        assert_eq!(waiting.0.load(Ordering::Relaxed), 0);
    }
}
