//! A runtime that does nothing: canned, valid answers at once, over HTTP/2 on a Unix socket, a thread a connection.
//!
//! Obeys flow control, SETTINGS and PING. Calls that it does not know get grpc-status 12.

use std::{
    collections::VecDeque,
    io::{self, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    thread,
};

use criprobe::tap::hpack::{Decoder, Name};

use crate::{call::Call, header_block::HeaderEncoder, header_block::unkept_field, http2::*};

/// 1 GiB: what a connection may send before it hears of the window again.
const WINDOW: u32 = 1 << 30;

/// Serves on `socket` until the process ends.
pub(crate) fn serve(socket: &Path) -> io::Result<()> {
    let listener = UnixListener::bind(socket)?;
    thread::Builder::new().name("null runtime".into()).spawn(move || {
        for stream in listener.incoming().flatten() {
            // A connection that breaks is the client's affair; the client reports it.
            thread::spawn(move || Connection::new(stream).run());
        }
    })?;
    Ok(())
}

struct Connection {
    stream: UnixStream,
    decoder: Decoder,
    encoder: HeaderEncoder,
    /// Requests whose end has not come.
    open: Vec<(u32, Option<Call>)>,
    /// Answers that wait for the peer's window, in order.
    waiting: VecDeque<Answer>,
    /// A header block that CONTINUATION goes on with: stream, END_STREAM, octets.
    partial: (u32, bool, Vec<u8>),
    out: Vec<u8>,
    scratch: Vec<u8>,
    window: i64,
    initial_window: i64,
    received: u32,
}

struct Answer {
    stream: u32,
    rest: &'static [u8],
    window: i64,
}

impl Connection {
    fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            decoder: Decoder::new(),
            encoder: HeaderEncoder::default(),
            open: Vec::new(),
            waiting: VecDeque::new(),
            partial: (0, false, Vec::new()),
            out: Vec::new(),
            scratch: Vec::new(),
            window: FIRST_WINDOW,
            initial_window: FIRST_WINDOW,
            received: 0,
        }
    }

    fn run(mut self) -> io::Result<()> {
        put_settings(&mut self.out, &[(SETTING_INITIAL_WINDOW, 1 << 20)]);
        put_window_update(&mut self.out, 0, WINDOW);
        let mut inbox = Inbox::new();
        let mut has_begun = false;
        loop {
            while !self.out.is_empty() {
                self.stream.write_all(&self.out)?;
                self.out.clear();
                self.answer();
            }
            if inbox.fill(&mut self.stream, usize::MAX)? == 0 {
                return Ok(());
            }
            if !has_begun {
                match inbox.take(PREFACE.len()) {
                    Some(PREFACE) => has_begun = true,
                    Some(_) => return Err(io::ErrorKind::InvalidData.into()),
                    None => continue,
                }
            }
            while let Some(frame) = inbox.frame()? {
                self.on_frame(frame)?;
            }
            self.answer();
        }
    }

    fn on_frame(&mut self, frame: Frame<'_>) -> io::Result<()> {
        match frame.kind {
            DATA => self.on_data(frame),
            HEADERS if frame.has(END_HEADERS) => {
                self.on_block(frame.stream, frame.has(END_STREAM), frame.content()?)?;
            }
            HEADERS => {
                self.partial = (frame.stream, frame.has(END_STREAM), frame.content()?.to_vec());
            }
            CONTINUATION => {
                self.partial.2.extend(frame.payload);
                if frame.has(END_HEADERS) {
                    let (stream, ends, block) = std::mem::take(&mut self.partial);
                    self.on_block(stream, ends, &block)?;
                }
            }
            SETTINGS if !frame.has(ACK) => self.on_settings(frame),
            PING if !frame.has(ACK) => put(&mut self.out, PING, ACK, 0, frame.payload),
            WINDOW_UPDATE if frame.stream == 0 => self.window += i64::from(frame.number()?),
            WINDOW_UPDATE => {
                let octets = i64::from(frame.number()?);
                if let Some(answer) = self.waiting.iter_mut().find(|answer| answer.stream == frame.stream) {
                    answer.window += octets;
                }
            }
            RST_STREAM => {
                self.open.retain(|(stream, _)| *stream != frame.stream);
                self.waiting.retain(|answer| answer.stream != frame.stream);
            }
            _ => {}
        }
        Ok(())
    }

    fn on_settings(&mut self, frame: Frame<'_>) {
        for (id, value) in frame.settings() {
            match id {
                SETTING_TABLE_SIZE => self.encoder.set_limit(value),
                SETTING_INITIAL_WINDOW => {
                    let change = i64::from(value) - self.initial_window;
                    self.initial_window += change;
                    for answer in &mut self.waiting {
                        answer.window += change;
                    }
                }
                _ => {}
            }
        }
        put(&mut self.out, SETTINGS, ACK, 0, &[]);
    }

    fn on_block(&mut self, stream: u32, ends: bool, block: &[u8]) -> io::Result<()> {
        let mut call = None;
        let scratch = &mut self.scratch;
        let decoded = self.decoder.decode(block, true, |field| {
            if field.name == Name::Path {
                call = field.value.get(scratch).ok().and_then(Call::of_path);
            }
        });
        decoded.map_err(io::Error::other)?;
        self.open.push((stream, call));
        if ends {
            self.on_request_end(stream);
        }
        Ok(())
    }

    fn on_data(&mut self, frame: Frame<'_>) {
        self.received += frame.payload.len() as u32;
        if self.received > WINDOW / 2 {
            put_window_update(&mut self.out, 0, self.received);
            self.received = 0;
        }
        if frame.has(END_STREAM) {
            self.on_request_end(frame.stream);
        }
    }

    fn on_request_end(&mut self, stream: u32) {
        let Some(at) = self.open.iter().position(|open| open.0 == stream) else { return };
        match self.open.swap_remove(at).1 {
            Some(call) => {
                self.put_block(stream, 0, |encoder, block| {
                    block.push(0x88); // :status 200
                    encoder.field(31, "content-type", "application/grpc", block);
                });
                let answer = Answer { stream, rest: call.answer(), window: self.initial_window };
                self.waiting.push_back(answer);
            }
            None => self.put_block(stream, END_STREAM, |_, block| {
                block.push(0x88);
                unkept_field(31, "content-type", "application/grpc", block);
                unkept_field(0, "grpc-status", "12", block);
            }),
        }
    }

    /// Sends what the windows take.
    fn answer(&mut self) {
        for _ in 0..self.waiting.len() {
            let Some(mut answer) = self.waiting.pop_front() else { return };
            // One write holds 1 MiB at most; the rest follows it.
            while !answer.rest.is_empty() && self.window > 0 && answer.window > 0 && self.out.len() < 1 << 20
            {
                let allowed = self.window.min(answer.window).min(MAX_FRAME as i64) as usize;
                let (data, rest) = answer.rest.split_at(allowed.min(answer.rest.len()));
                put(&mut self.out, DATA, 0, answer.stream, data);
                self.window -= data.len() as i64;
                answer.window -= data.len() as i64;
                answer.rest = rest;
            }
            if answer.rest.is_empty() {
                self.put_block(answer.stream, END_STREAM, |encoder, block| {
                    encoder.field(0, "grpc-status", "0", block);
                    encoder.field(0, "grpc-message", "", block);
                });
            } else {
                self.waiting.push_back(answer);
            }
        }
    }

    fn put_block(&mut self, stream: u32, flags: u8, fields: impl FnOnce(&mut HeaderEncoder, &mut Vec<u8>)) {
        let mut block = std::mem::take(&mut self.scratch);
        block.clear();
        self.encoder.begin(&mut block);
        fields(&mut self.encoder, &mut block);
        put(&mut self.out, HEADERS, flags | END_HEADERS, stream, &block);
        self.scratch = block;
    }
}
