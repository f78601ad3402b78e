//! Writes HTTP/2 and gRPC by hand: both sides of one connection, in the order in which their bytes pass.

use crate::tap::hpack::tests::encoder::{Choice, Encoder};

pub(super) use super::super::frame::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PADDED, PRIORITY, PUSH_PROMISE,
    RST_STREAM, SETTINGS,
};

pub(super) const VERSION: &str = "/runtime.v1.RuntimeService/Version";
pub(super) const EXEC_SYNC: &str = "/runtime.v1.RuntimeService/ExecSync";
pub(super) const START: &str = "/runtime.v1.RuntimeService/StartContainer";

/// Error codes of RST_STREAM (RFC 9113, section 7).
pub(super) const NO_ERROR: u32 = 0;
pub(super) const CANCEL: u32 = 8;

/// How the encoders here send fields by default: as grpc-go does.
const USUAL: Choice = Choice { use_index: true, form: 0, code_name: true, code_value: true };

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum From {
    Client,
    Runtime,
}

/// Bytes that were passed on at once.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) from: From,
    pub(super) bytes: Vec<u8>,
}

/// A connection that is being written.
pub(super) struct Wire {
    pub(super) steps: Vec<Step>,
    client: Encoder,
    runtime: Encoder,
}

/// A connection's bytes from preface and SETTINGS on.
pub(super) fn conversation(write: impl FnOnce(&mut Wire)) -> Vec<Step> {
    let mut wire = Wire::unopened();
    wire.open();
    write(&mut wire);
    wire.steps
}

impl Wire {
    /// Nothing was sent yet.
    pub(super) fn unopened() -> Self {
        Self { steps: vec![], client: Encoder::new(), runtime: Encoder::new() }
    }

    /// Preface and SETTINGS.
    pub(super) fn open(&mut self) {
        self.send(From::Client, super::super::PREFACE.to_vec());
        self.settings(From::Client, &[(4, 65_535)]);
        self.settings(From::Runtime, &[(5, 16_384)]);
    }

    /// A call's headers and its only message.
    pub(super) fn request(&mut self, stream: u32, path: &str, message: &[u8]) {
        self.head(stream, path, 0);
        self.data(From::Client, stream, &framed(message), END_STREAM);
    }

    /// A call's headers.
    pub(super) fn head(&mut self, stream: u32, path: &str, flags: u8) {
        let fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("user-agent", "grpc-go/1.72.2"),
            ("te", "trailers"),
            ("grpc-timeout", &format!("1199{stream}n")),
        ];
        self.headers(From::Client, stream, &fields, flags);
    }

    /// A whole answer: headers, message, trailers.
    pub(super) fn answer(&mut self, stream: u32, message: &[u8]) {
        self.answer_head(stream);
        self.data(From::Runtime, stream, &framed(message), 0);
        self.trailers(stream, "0", "");
    }

    pub(super) fn answer_head(&mut self, stream: u32) {
        let fields = [(":status", "200"), ("content-type", "application/grpc")];
        self.headers(From::Runtime, stream, &fields, 0);
    }

    pub(super) fn trailers(&mut self, stream: u32, status: &str, message: &str) {
        let fields = [("grpc-status", status), ("grpc-message", message)];
        self.headers(From::Runtime, stream, &fields, END_STREAM);
    }

    /// A header block in one frame.
    pub(super) fn headers(&mut self, from: From, stream: u32, fields: &[(&str, &str)], flags: u8) {
        let block = self.block(from, fields);
        self.frame(from, HEADERS, flags | END_HEADERS, stream, &block);
    }

    /// A header block that is yet to be sent; its fields are in the sender's table from now on.
    pub(super) fn block(&mut self, from: From, fields: &[(&str, &str)]) -> Vec<u8> {
        let mut block = vec![];
        for (name, value) in fields {
            self.encoder(from).field(name.as_bytes(), value.as_bytes(), USUAL, &mut block);
        }
        block
    }

    /// The header block that only changes the size of the sender's table, to stand before another.
    pub(super) fn resize(&mut self, from: From, size: u32) -> Vec<u8> {
        let mut block = vec![];
        self.encoder(from).resize(size, &mut block);
        block
    }

    pub(super) fn data(&mut self, from: From, stream: u32, bytes: &[u8], flags: u8) {
        self.frame(from, DATA, flags, stream, bytes);
    }

    pub(super) fn reset(&mut self, from: From, stream: u32, code: u32) {
        self.frame(from, RST_STREAM, 0, stream, &code.to_be_bytes());
    }

    pub(super) fn settings(&mut self, from: From, settings: &[(u16, u32)]) {
        let payload: Vec<u8> = settings
            .iter()
            .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        self.frame(from, SETTINGS, 0, 0, &payload);
    }

    pub(super) fn go_away(&mut self, from: From, last: u32) {
        let payload = [&last.to_be_bytes()[..], &[0; 4], b"bye"].concat();
        self.frame(from, GOAWAY, 0, 0, &payload);
    }

    pub(super) fn frame(&mut self, from: From, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        self.send(from, bytes);
    }

    pub(super) fn send(&mut self, from: From, bytes: Vec<u8>) {
        self.steps.push(Step { from, bytes });
    }

    fn encoder(&mut self, from: From) -> &mut Encoder {
        match from {
            From::Client => &mut self.client,
            From::Runtime => &mut self.runtime,
        }
    }
}

/// A gRPC message on the wire.
pub(super) fn framed(message: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend((message.len() as u32).to_be_bytes());
    bytes.extend(message);
    bytes
}
