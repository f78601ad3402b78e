//! One HTTP/2 connection of the load driver: canned requests out, answers checked for completeness by their frames.
//!
//! Obeys flow control, SETTINGS and PING of whatever stands in the middle, and takes nothing on trust: an answer
//! counts when every octet of it arrived and grpc-status is 0.

use std::{
    io::{self, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use criprobe::{
    clock,
    tap::hpack::{Decoder, Name},
};

use crate::{call::Call, header_block::HeaderEncoder, header_block::unkept_field, http2::*};

/// 10 s: an answer that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// 1 GiB: what we take on a connection before we say so again.
const WINDOW: u32 = 1 << 30;

/// Answers whose every octet is compared; of later ones the length counts.
const COMPARED: u32 = 4;

/// A connection that makes one kind of call over and over.
pub(crate) struct Client {
    stream: UnixStream,
    inbox: Inbox,
    decoder: Decoder,
    call: Call,
    /// A request as it stands when all of its header is in the peer's table.
    request: Request,
    encoder: HeaderEncoder,
    calls: Vec<Pending>,
    next_stream: u32,
    started: u32,
    /// What we may send, in all and a call.
    window: i64,
    initial_window: i64,
    received: u32,
    partial: Option<(u32, bool, Vec<u8>)>,
    out: Vec<u8>,
    scratch: Vec<u8>,
}

/// A call whose answer has not come whole.
struct Pending {
    stream: u32,
    sent_at: Instant,
    received: usize,
    compare: bool,
    status: Option<bool>,
}

/// HEADERS and DATA of a request, ready but for the stream.
#[derive(Default)]
struct Request {
    octets: Vec<u8>,
    data_at: usize,
    body: Vec<u8>,
}

impl Client {
    /// Connects, and announces `window` octets for each answer.
    pub(crate) fn connect(socket: &Path, call: Call, window: u32) -> Result<Self> {
        let stream =
            UnixStream::connect(socket).with_context(|| format!("connect to {}", socket.display()))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut out = PREFACE.to_vec();
        put_settings(&mut out, &[(SETTING_INITIAL_WINDOW, window)]);
        put_window_update(&mut out, 0, WINDOW);
        Ok(Self {
            stream,
            inbox: Inbox::new(),
            decoder: Decoder::new(),
            call,
            request: Request { body: call.request(), ..Default::default() },
            encoder: HeaderEncoder::default(),
            calls: Vec::new(),
            next_stream: 1,
            started: 0,
            window: FIRST_WINDOW,
            initial_window: FIRST_WINDOW,
            received: 0,
            partial: None,
            out,
            scratch: Vec::new(),
        })
    }

    /// Makes one call and waits for its answer.
    pub(crate) fn call_once(&mut self) -> Result<Duration> {
        let mut took = Duration::ZERO;
        self.start();
        while !self.calls.is_empty() {
            self.exchange(usize::MAX, |duration| took = duration)?;
        }
        Ok(took)
    }

    /// Keeps `in_flight` calls going until `deadline`, then waits for the last answers. Appends each duration in
    /// nanoseconds to `took`.
    pub(crate) fn run(&mut self, in_flight: usize, deadline: Instant, took: &mut Vec<u32>) -> Result<()> {
        let mut is_over = false;
        loop {
            while !is_over && self.calls.len() < in_flight && self.has_window() {
                self.start();
            }
            if self.calls.is_empty() && is_over {
                return Ok(());
            }
            let now = self.exchange(usize::MAX, |duration| {
                took.push(duration.as_nanos().try_into().unwrap_or(u32::MAX));
            })?;
            is_over = now >= deadline;
        }
    }

    /// Makes one call and reads its answer in pieces of at most `piece` octets, `pause` after each.
    pub(crate) fn call_slowly(&mut self, piece: usize, pause: Duration) -> Result<()> {
        self.start();
        while !self.calls.is_empty() {
            self.exchange(piece, |_| ())?;
            std::thread::sleep(pause);
        }
        Ok(())
    }

    fn has_window(&self) -> bool {
        let needed = self.request.body.len() as i64;
        self.window >= needed && self.initial_window >= needed
    }

    /// Appends a request to what is sent next.
    fn start(&mut self) {
        // The first block enters the fields into the peer's table, the second is what all others are.
        if self.started < 2 {
            self.request.encode(self.call.path(), &mut self.encoder);
        }
        let compare = self.started < COMPARED;
        self.started += 1;
        let stream = self.next_stream;
        self.next_stream += 2;
        let id = stream.to_be_bytes();
        let at = self.out.len();
        self.out.extend_from_slice(&self.request.octets);
        self.out[at + 5..][..4].copy_from_slice(&id);
        self.out[at + self.request.data_at + 5..][..4].copy_from_slice(&id);
        self.window -= self.request.body.len() as i64;
        let sent_at = clock::now();
        self.calls.push(Pending { stream, sent_at, received: 0, compare, status: None });
    }

    /// Sends what is due, waits for octets and settles the calls that they end. Answers when it was back.
    fn exchange(&mut self, limit: usize, mut ended: impl FnMut(Duration)) -> Result<Instant> {
        if !self.out.is_empty() {
            self.stream.write_all(&self.out).context("send")?;
            self.out.clear();
        }
        let count = self.inbox.fill(&mut self.stream, limit).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => anyhow::anyhow!("no answer in {} s", PATIENCE.as_secs()),
            _ => error.into(),
        })?;
        ensure!(count > 0, "the connection was closed with {} calls in flight", self.calls.len());
        let now = clock::now();
        let mut inbox = std::mem::replace(&mut self.inbox, Inbox::empty());
        while let Some(frame) = inbox.frame()? {
            self.on_frame(frame, now, &mut ended)?;
        }
        self.inbox = inbox;
        Ok(now)
    }

    fn on_frame(&mut self, frame: Frame<'_>, now: Instant, ended: &mut impl FnMut(Duration)) -> Result<()> {
        match frame.kind {
            DATA => {
                self.received += frame.payload.len() as u32;
                if self.received > WINDOW / 2 {
                    put_window_update(&mut self.out, 0, self.received);
                    self.received = 0;
                }
                self.on_data(frame.stream, frame.content()?)?;
            }
            HEADERS if frame.has(END_HEADERS) => self.on_block(frame.stream, frame.content()?)?,
            HEADERS => {
                let block = frame.content()?.to_vec();
                self.partial = Some((frame.stream, frame.has(END_STREAM), block));
                return Ok(());
            }
            CONTINUATION => {
                let Some((stream, ends, mut block)) = self.partial.take() else {
                    bail!("stray CONTINUATION")
                };
                block.extend(frame.payload);
                if !frame.has(END_HEADERS) {
                    self.partial = Some((stream, ends, block));
                    return Ok(());
                }
                self.on_block(stream, &block)?;
                if ends {
                    self.settle(stream, now, ended)?;
                }
                return Ok(());
            }
            SETTINGS if !frame.has(ACK) => {
                for (id, value) in frame.settings() {
                    match id {
                        SETTING_TABLE_SIZE => self.encoder.set_limit(value),
                        SETTING_INITIAL_WINDOW => self.initial_window = value.into(),
                        _ => {}
                    }
                }
                put(&mut self.out, SETTINGS, ACK, 0, &[]);
            }
            PING if !frame.has(ACK) => put(&mut self.out, PING, ACK, 0, frame.payload),
            WINDOW_UPDATE if frame.stream == 0 => self.window += i64::from(frame.number()?),
            // After its END_STREAM a call is no longer among ours: a reset is then no loss.
            RST_STREAM if self.calls.iter().any(|call| call.stream == frame.stream) => {
                bail!("a call was reset with code {}", frame.number()?)
            }
            GOAWAY => bail!("the peer sent GOAWAY"),
            _ => {}
        }
        if matches!(frame.kind, DATA | HEADERS) && frame.has(END_STREAM) {
            self.settle(frame.stream, now, ended)?;
        }
        Ok(())
    }

    fn on_data(&mut self, stream: u32, data: &[u8]) -> Result<()> {
        let Some(call) = self.calls.iter_mut().find(|call| call.stream == stream) else {
            bail!("DATA of a call that is not ours")
        };
        if call.compare {
            let expected = self.call.answer().get(call.received..).and_then(|rest| rest.get(..data.len()));
            ensure!(expected == Some(data), "an answer differs at octet {}", call.received);
        }
        call.received += data.len();
        Ok(())
    }

    fn on_block(&mut self, stream: u32, block: &[u8]) -> Result<()> {
        let mut status = None;
        let scratch = &mut self.scratch;
        self.decoder.decode(block, true, |field| {
            if field.name == Name::GrpcStatus {
                status = Some(field.value.get(scratch) == Ok(b"0"));
            }
        })?;
        if let Some(call) = self.calls.iter_mut().find(|call| call.stream == stream) {
            call.status = call.status.or(status);
        }
        Ok(())
    }

    fn settle(&mut self, stream: u32, now: Instant, ended: &mut impl FnMut(Duration)) -> Result<()> {
        let Some(at) = self.calls.iter().position(|call| call.stream == stream) else {
            bail!("the end of a call that is not ours")
        };
        let call = self.calls.swap_remove(at);
        match call.status {
            Some(true) => {}
            Some(false) => bail!("a call failed"),
            None => bail!("a call ended without grpc-status"),
        }
        let whole = self.call.answer().len();
        ensure!(call.received == whole, "{} of {whole} octets arrived", call.received);
        ended(now - call.sent_at);
        Ok(())
    }
}

impl Request {
    fn encode(&mut self, path: &'static str, encoder: &mut HeaderEncoder) {
        let mut block = Vec::new();
        encoder.begin(&mut block);
        block.extend([0x83, 0x86]); // :method POST, :scheme http
        encoder.field(4, ":path", path, &mut block);
        encoder.field(1, ":authority", "localhost", &mut block);
        encoder.field(31, "content-type", "application/grpc", &mut block);
        encoder.field(58, "user-agent", "grpc-go/1.75.0", &mut block);
        encoder.field(0, "te", "trailers", &mut block);
        unkept_field(0, "grpc-timeout", "119999876u", &mut block);
        self.octets.clear();
        put(&mut self.octets, HEADERS, END_HEADERS, 0, &block);
        self.data_at = self.octets.len();
        put(&mut self.octets, DATA, END_STREAM, 0, &self.body);
    }
}
