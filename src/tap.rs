//! Decodes both directions of one relayed connection on the side, and reports the calls.
//!
//! In: the bytes in the order in which they were written. Out: [`TapEvent`]s. Never does IO, never reads a clock, never
//! delays a byte. Bytes that it does not understand blind it for that connection; they are still relayed.

mod blindness;
mod boundary;
pub mod call;
mod carried;
mod creation;
pub mod cri;
mod exec;
mod frame;
mod header;
pub mod hpack;
mod message;
mod room;
mod sieve;
mod streams;

use std::{fmt, sync::Arc, time::Instant};

use frame::{Frame, FrameReader};
use header::{RequestFields, ResponseFields};
use hpack::Decoder;
use room::Share;
use streams::Streams;

pub use self::{
    blindness::Blindness,
    boundary::Boundary,
    call::{Call, Code, EndedCall},
    room::Room,
};
pub use self::{
    call::{CallEnd, TapEvent},
    creation::CreationRequest,
};
use crate::{ids::ConnId, peer::Peer};

/// The connection preface of an HTTP/2 client (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// SETTINGS identifiers (RFC 9113, 6.5.2).
const HEADER_TABLE_SIZE: u16 = 1;
const MAX_FRAME_SIZE: u16 = 5;

/// The passive decoder of one connection.
pub struct Tap {
    conn: ConnId,
    state: State,
}

enum State {
    /// Boxed, so that a blind connection costs a pointer.
    Sighted(Box<Sighted>),
    Blind(Blindness),
}

struct Sighted {
    /// How much of the preface the client has sent.
    preface: usize,
    client: Direction,
    runtime: Direction,
    streams: Streams,
    request: RequestFields,
    response: ResponseFields,
    /// The runtime sent a GOAWAY.
    has_goodbye: bool,
    /// What header tables and buffers count.
    tables: Share,
}

#[derive(Debug, Default)]
struct Direction {
    frames: FrameReader,
    hpack: Decoder,
}

impl Tap {
    /// A tap for a connection that was just accepted, alone in its room.
    pub fn new(conn: ConnId, peer: Arc<Peer>) -> Self {
        Self::within(&Arc::default(), conn, peer)
    }

    /// A tap for a connection that was just accepted; all of them share the room.
    pub fn within(room: &Arc<Room>, conn: ConnId, peer: Arc<Peer>) -> Self {
        let sighted = Sighted {
            preface: 0,
            client: Direction::default(),
            runtime: Direction::default(),
            streams: Streams::new(conn, peer, room),
            request: RequestFields::default(),
            response: ResponseFields::default(),
            has_goodbye: false,
            tables: Share::of_tables(room),
        };
        Self { conn, state: State::Sighted(Box::new(sighted)) }
    }

    /// Bytes from the client were passed on.
    pub fn client_bytes(&mut self, bytes: &[u8], now: Instant, mut out: impl FnMut(TapEvent)) {
        if let State::Sighted(sighted) = &mut self.state
            && let Err(lost) =
                sighted.client_bytes(bytes, now, &mut out).and_then(|()| sighted.count_tables())
        {
            self.blind(lost, now, out);
        }
    }

    /// Bytes from the runtime were passed on.
    pub fn runtime_bytes(&mut self, bytes: &[u8], now: Instant, mut out: impl FnMut(TapEvent)) {
        if let State::Sighted(sighted) = &mut self.state
            && let Err(lost) =
                sighted.runtime_bytes(bytes, now, &mut out).and_then(|()| sighted.count_tables())
        {
            self.blind(lost, now, out);
        }
    }

    /// The connection is over: open calls are lost.
    pub fn closed(&mut self, now: Instant, mut out: impl FnMut(TapEvent)) {
        if let State::Sighted(sighted) = &mut self.state {
            sighted.streams.lost(now, &mut out);
        }
        out(TapEvent::Closed { conn: self.conn });
    }

    /// Gives up: no more bytes of this connection are decoded.
    fn blind(&mut self, reason: Blindness, now: Instant, mut out: impl FnMut(TapEvent)) {
        if let State::Sighted(sighted) = &mut self.state {
            sighted.streams.lost(now, &mut out);
            self.state = State::Blind(reason);
            out(TapEvent::Blinded { conn: self.conn, reason });
        }
    }

    /// Gives up without looking at open calls: after a panic of ours, this state is not reliable.
    pub fn abandon(&mut self, mut out: impl FnMut(TapEvent)) {
        let reason = Blindness::Panicked;
        self.state = State::Blind(reason);
        out(TapEvent::Blinded { conn: self.conn, reason });
    }

    /// Whether the runtime sent bytes and then closed the connection without a GOAWAY while calls were open.
    pub fn is_ended_without_word(&self) -> bool {
        match &self.state {
            State::Sighted(sighted) => sighted.runtime.frames.has_begun() && !sighted.has_goodbye,
            State::Blind(_) => false,
        }
    }

    /// Whether the runtime has sent a GOAWAY.
    pub fn has_goodbye(&self) -> bool {
        matches!(&self.state, State::Sighted(sighted) if sighted.has_goodbye)
    }

    /// A tap for a connection of another process, whose state is of no use for this reason.
    pub fn handed_over(conn: ConnId, reason: Blindness, mut out: impl FnMut(TapEvent)) -> Self {
        out(TapEvent::Blinded { conn, reason });
        Self { conn, state: State::Blind(reason) }
    }

    /// Where the runtime is in its frames; `None` if blind.
    pub fn boundary(&self) -> Option<Boundary> {
        match &self.state {
            State::Sighted(sighted) => Some(sighted.runtime.frames.boundary(sighted.has_goodbye)),
            State::Blind(_) => None,
        }
    }

    /// Why the connection is blind, if it is.
    pub fn blindness(&self) -> Option<Blindness> {
        match self.state {
            State::Blind(reason) => Some(reason),
            State::Sighted(_) => None,
        }
    }

    /// Calls that have not ended; 0 when blind.
    pub fn open_calls(&self) -> usize {
        self.streams().map_or(0, Streams::open)
    }

    /// The methods of the calls that have not ended.
    pub fn open_methods(&self) -> Vec<String> {
        self.streams().map(|streams| streams.open_methods().map(str::to_owned).collect()).unwrap_or_default()
    }

    /// The highest stream of the client, if a frame of ours could now be inserted between two of the runtime's; `None`
    /// if blind, or within a frame or header block.
    pub fn between_answers(&self) -> Option<u32> {
        match &self.state {
            State::Sighted(sighted) if sighted.runtime.frames.is_between_frames() => {
                Some(sighted.streams.highest())
            }
            State::Sighted(_) | State::Blind(_) => None,
        }
    }

    fn streams(&self) -> Option<&Streams> {
        match &self.state {
            State::Sighted(sighted) => Some(&sighted.streams),
            State::Blind(_) => None,
        }
    }
}

impl fmt::Debug for Tap {
    /// Shows none of the buffered bytes: they may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tap")
            .field("conn", &self.conn)
            .field("blindness", &self.blindness())
            .field("open_calls", &self.open_calls())
            .finish_non_exhaustive()
    }
}

impl Sighted {
    /// Counts what header tables and buffers take now.
    fn count_tables(&mut self) -> Result<(), Blindness> {
        let Self { client, runtime, request, response, tables, .. } = self;
        let count = client.memory() + runtime.memory() + request.kept() + response.kept();
        if tables.set(count) { Ok(()) } else { Err(Blindness::NoRoom) }
    }

    /// Bytes that are buffered for calls and header fields, without the HPACK tables.
    #[cfg(test)]
    fn kept(&self) -> usize {
        let Self { client, runtime, streams, request, response, .. } = self;
        client.kept() + runtime.kept() + streams.kept().0 + request.kept() + response.kept()
    }

    fn client_bytes(
        &mut self,
        mut bytes: &[u8],
        now: Instant,
        out: &mut dyn FnMut(TapEvent),
    ) -> Result<(), Blindness> {
        if self.preface < PREFACE.len() {
            let count = bytes.len().min(PREFACE.len() - self.preface);
            if bytes[..count] != PREFACE[self.preface..self.preface + count] {
                return Err(Blindness::NotHttp2);
            }
            self.preface += count;
            bytes = &bytes[count..];
        }
        let Self { client, runtime, streams, request, .. } = self;
        while let Some(frame) = client.frames.next(&mut bytes)? {
            match frame {
                Frame::Data { stream, piece, is_end } => streams.request_data(stream, piece, is_end, out),
                Frame::Headers { stream, fragment, is_block_end, is_end } => {
                    if let Some(header) = request.read(&mut client.hpack, fragment, is_block_end)? {
                        streams.request_header(stream, header, is_end, now, out);
                    }
                }
                Frame::Settings(payload) => runtime.announced(payload),
                Frame::Reset { stream } => streams.reset(stream, CallEnd::Cancelled, now, out),
                // Only clients open streams; a stream of the runtime's does not end anything.
                Frame::GoAway { .. } => {}
            }
        }
        Ok(())
    }

    fn runtime_bytes(
        &mut self,
        mut bytes: &[u8],
        now: Instant,
        out: &mut dyn FnMut(TapEvent),
    ) -> Result<(), Blindness> {
        let Self { client, runtime, streams, response, has_goodbye, .. } = self;
        while let Some(frame) = runtime.frames.next(&mut bytes)? {
            match frame {
                Frame::Data { stream, piece, is_end } => {
                    streams.response_data(stream, piece, is_end, now, out);
                }
                Frame::Headers { stream, fragment, is_block_end, is_end } => {
                    if let Some(header) = response.read(&mut runtime.hpack, fragment, is_block_end)? {
                        streams.response_header(stream, header, is_end, now, out);
                    }
                }
                Frame::Settings(payload) => client.announced(payload),
                Frame::Reset { stream } => streams.reset(stream, CallEnd::Reset, now, out),
                Frame::GoAway { last_stream } => {
                    *has_goodbye = true;
                    streams.go_away(last_stream, now, out);
                }
            }
        }
        Ok(())
    }
}

impl Direction {
    /// Bytes of memory in use.
    fn memory(&self) -> usize {
        self.frames.kept() + self.hpack.memory()
    }

    /// Bytes that are buffered for frames and fields, without the HPACK table.
    #[cfg(test)]
    fn kept(&self) -> usize {
        self.frames.kept() + self.hpack.kept()
    }

    /// The receiver of this direction announced its settings.
    fn announced(&mut self, settings: &[u8]) {
        for setting in settings.chunks_exact(6) {
            let value = u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]);
            match u16::from_be_bytes([setting[0], setting[1]]) {
                HEADER_TABLE_SIZE => self.hpack.set_limit(value),
                MAX_FRAME_SIZE => self.frames.raise_max_frame(value),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
