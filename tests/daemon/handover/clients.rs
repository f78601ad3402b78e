//! Clients that notice when a byte is lost, doubled, or another one.

use std::{
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use criprobe::{clock, ids::ContainerId, proto::cri::runtime_service_client::RuntimeServiceClient};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    task::JoinHandle,
};
use tonic::transport::Endpoint;

use crate::support::{
    PATIENCE,
    cri::{self, Cri},
};

/// HTTP/2's preface, and settings without any.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

const PING: u8 = 6;
const GOAWAY: u8 = 7;

/// A connection on which each ping has a number, and is answered with the same, in turn.
pub(super) struct Pinger {
    stream: UnixStream,
    sent: u64,
    answered: u64,
    /// Read, and not a whole frame yet.
    rest: Vec<u8>,
    pub(super) goaways: usize,
}

impl Pinger {
    /// One that has been answered once.
    pub(super) fn connect(socket: &Path) -> Result<Self> {
        let mut pinger = Self::knock(socket)?;
        pinger.receive_all()?;
        Ok(pinger)
    }

    /// One that waits for its first answer.
    pub(super) fn knock(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        (&stream).write_all(HELLO)?;
        let mut pinger = Self { stream, sent: 0, answered: 0, rest: Vec::new(), goaways: 0 };
        pinger.send()?;
        Ok(pinger)
    }

    /// Sends a ping, and waits for all answers.
    pub(super) fn exchange(&mut self) -> Result<()> {
        self.send()?;
        self.receive_all()
    }

    pub(super) fn receive_all(&mut self) -> Result<()> {
        while self.answered < self.sent {
            ensure!(self.receive()? > 0, "the connection ended after {} of {}", self.answered, self.sent);
        }
        Ok(())
    }

    pub(super) fn send(&mut self) -> Result<()> {
        self.sent += 1;
        let mut frame = [0, 0, 8, PING, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        frame[9..].copy_from_slice(&self.sent.to_be_bytes());
        Ok(self.stream.write_all(&frame)?)
    }

    /// Sends without reading until nothing more is taken; returns how many were sent whole. The rest of the last one goes out
    /// with the next answers.
    pub(super) fn send_all_that_fits(&mut self) -> Result<u64> {
        let before = self.sent;
        self.stream.set_write_timeout(Some(Duration::from_millis(300)))?;
        let mut tail = Vec::new();
        loop {
            let mut frame = [0, 0, 8, PING, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            frame[9..].copy_from_slice(&(self.sent + 1).to_be_bytes());
            self.sent += 1;
            let mut left = &frame[..];
            while !left.is_empty() {
                match self.stream.write(left) {
                    Ok(count) => left = &left[count..],
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error.into()),
                }
            }
            if !left.is_empty() {
                tail.extend_from_slice(left);
                break;
            }
        }
        self.stream.set_write_timeout(Some(PATIENCE))?;
        let mut writer = self.stream.try_clone()?;
        // It waits for whoever reads the answers.
        std::thread::spawn(move || writer.write_all(&tail));
        Ok(self.sent - before)
    }

    /// Whether the connection ends, with nothing before that was not sent.
    pub(super) fn is_over(&mut self) -> Result<bool> {
        loop {
            match self.receive() {
                Ok(0) => return Ok(true),
                Ok(_) => {}
                Err(error) => {
                    let is_reset = error
                        .downcast_ref::<io::Error>()
                        .is_some_and(|error| error.kind() == io::ErrorKind::ConnectionReset);
                    return if is_reset { Ok(true) } else { Err(error) };
                }
            }
        }
    }

    /// Reads once, and checks what came.
    fn receive(&mut self) -> Result<usize> {
        let mut buffer = vec![0; 64 << 10];
        let count = self.stream.read(&mut buffer).context("no answer")?;
        self.rest.extend_from_slice(&buffer[..count]);
        while let Some(head) = self.rest.first_chunk::<9>() {
            let end = 9 + u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let (kind, flags) = (head[3], head[4]);
            let Some(frame) = self.rest.get(..end) else { break };
            match kind {
                PING if flags == 1 => {
                    self.answered += 1;
                    ensure!(
                        frame[9..] == self.answered.to_be_bytes(),
                        "answer {} is {frame:?}",
                        self.answered
                    );
                }
                GOAWAY => self.goaways += 1,
                // Settings, and how much may be sent.
                4 | 8 => {}
                _ => bail!("a frame of kind {kind}: {frame:?}"),
            }
            self.rest.drain(..end);
        }
        Ok(count)
    }
}

/// What a command prints of which no part is like another.
pub(super) const LINES: &str = "i=1; while [ $i -le 4000 ]; do echo $i; i=$((i+1)); done";

/// What it prints.
pub(super) fn lines() -> Vec<u8> {
    (1..=4000).flat_map(|number: u32| format!("{number}\n").into_bytes()).collect()
}

/// Runs a command that takes so many seconds, and checks what it prints.
pub(super) fn run(mut client: Cri, id: &ContainerId, seconds: &str) -> JoinHandle<Result<()>> {
    let (id, command) = (id.clone(), format!("sleep {seconds}; {LINES}"));
    tokio::spawn(async move {
        let answer = cri::exec(&mut client, &id, &["sh", "-c", &command]).await?;
        assert!(answer.stdout == lines(), "{} of {} bytes, or others", answer.stdout.len(), lines().len());
        Ok(())
    })
}

/// Calls Version again and again until it has to stop. Returns how many calls, and the longest.
pub(super) async fn call_steadily(mut client: Cri, is_over: Arc<AtomicBool>) -> Result<(usize, Duration)> {
    let (mut calls, mut longest) = (0, Duration::ZERO);
    while !is_over.load(Ordering::Relaxed) {
        let began: Instant = clock::now();
        cri::version(&mut client).await?;
        (calls, longest) = (calls + 1, longest.max(clock::now() - began));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok((calls, longest))
}

/// Holds what a client may read.
#[derive(Clone, Default)]
pub(super) struct Gate(Arc<Mutex<Budget>>);

#[derive(Default)]
struct Budget {
    left: usize,
    waker: Option<Waker>,
}

impl Gate {
    /// So much is read before it closes.
    pub(super) fn after(bytes: usize) -> Self {
        Self(Arc::new(Mutex::new(Budget { left: bytes, waker: None })))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.budget().left == 0
    }

    pub(super) fn open(&self) {
        let mut budget = self.budget();
        budget.left = usize::MAX;
        budget.waker.take().into_iter().for_each(Waker::wake);
    }

    fn budget(&self) -> MutexGuard<'_, Budget> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client that reads no more once its gate is closed, and that lets a runtime send whole answers at once.
pub(super) async fn connect_behind(gate: &Gate, socket: &Path) -> Result<Cri> {
    let (gate, socket) = (gate.clone(), socket.to_owned());
    let channel = Endpoint::from_static("http://localhost")
        .initial_stream_window_size(32 << 20)
        .initial_connection_window_size(32 << 20)
        .connect_with_connector(tower::service_fn(move |_| {
            let (gate, socket) = (gate.clone(), socket.clone());
            async move {
                let stream = tokio::net::UnixStream::connect(socket).await?;
                io::Result::Ok(TokioIo::new(Gated { stream, gate }))
            }
        }))
        .await?;
    Ok(RuntimeServiceClient::new(channel).max_decoding_message_size(16 << 20))
}

struct Gated {
    stream: tokio::net::UnixStream,
    gate: Gate,
}

impl AsyncRead for Gated {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let mut budget = this.gate.budget();
        if budget.left == 0 {
            budget.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.stream).poll_read(cx, buffer);
        budget.left = budget.left.saturating_sub(buffer.filled().len() - before);
        polled
    }
}

impl AsyncWrite for Gated {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
