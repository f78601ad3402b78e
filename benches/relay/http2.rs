//! The frames of HTTP/2 (RFC 9113), as both ends of the bench write and read them. Octets only, no state of streams.

use std::io::{self, Read};

/// What a client says first.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// 16,384 octets: the payload that every peer takes (RFC 9113, section 4.2).
pub(crate) const MAX_FRAME: usize = 16_384;
/// 65,535 octets: every flow-control window before anything was announced.
pub(crate) const FIRST_WINDOW: i64 = 65_535;
/// Octets of a frame's head.
pub(crate) const HEAD: usize = 9;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const ACK: u8 = 0x1;
pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

pub(crate) const SETTING_TABLE_SIZE: u16 = 1;
pub(crate) const SETTING_INITIAL_WINDOW: u16 = 4;

/// A whole frame as it was read.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'a> {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    /// As it came, padding and all: what flow control counts.
    pub(crate) payload: &'a [u8],
}

impl<'a> Frame<'a> {
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The payload of DATA or HEADERS without padding and priority.
    pub(crate) fn content(&self) -> io::Result<&'a [u8]> {
        let mut content = self.payload;
        if self.has(PADDED) {
            let (&padding, rest) = content.split_first().ok_or_else(malformed)?;
            let length = rest.len().checked_sub(padding.into()).ok_or_else(malformed)?;
            content = &rest[..length];
        }
        if self.kind == HEADERS && self.has(PRIORITY) {
            content = content.get(5..).ok_or_else(malformed)?;
        }
        Ok(content)
    }

    /// The number in a WINDOW_UPDATE, or the first one of any other payload.
    pub(crate) fn number(&self) -> io::Result<u32> {
        let octets = self.payload.first_chunk().ok_or_else(malformed)?;
        Ok(u32::from_be_bytes(*octets) & 0x7fff_ffff)
    }

    /// What a SETTINGS frame announces.
    pub(crate) fn settings(&self) -> impl Iterator<Item = (u16, u32)> {
        let settings = self.payload.chunks_exact(6);
        settings.map(|s| (u16::from_be_bytes([s[0], s[1]]), u32::from_be_bytes([s[2], s[3], s[4], s[5]])))
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed frame")
}

/// Appends a whole frame.
pub(crate) fn put(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = (payload.len() as u32).to_be_bytes();
    out.extend([length[1], length[2], length[3], kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
}

/// Appends a SETTINGS frame.
pub(crate) fn put_settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    let mut payload = Vec::with_capacity(settings.len() * 6);
    for (id, value) in settings {
        payload.extend(id.to_be_bytes());
        payload.extend(value.to_be_bytes());
    }
    put(out, SETTINGS, 0, 0, &payload);
}

/// Appends a WINDOW_UPDATE.
pub(crate) fn put_window_update(out: &mut Vec<u8>, stream: u32, octets: u32) {
    put(out, WINDOW_UPDATE, 0, stream, &octets.to_be_bytes());
}

/// Octets that were read and not yet consumed.
pub(crate) struct Inbox {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self { buffer: vec![0; 256 * 1024], start: 0, end: 0 }
    }

    /// One that nothing is read into, as a stand-in.
    pub(crate) fn empty() -> Self {
        Self { buffer: Vec::new(), start: 0, end: 0 }
    }

    /// Waits for octets and reads at most `limit` of them; 0 is the end.
    pub(crate) fn fill(&mut self, from: &mut impl Read, limit: usize) -> io::Result<usize> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.buffer.len() - self.end < MAX_FRAME + HEAD {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let room = (self.buffer.len() - self.end).min(limit);
        let count = from.read(&mut self.buffer[self.end..][..room])?;
        self.end += count;
        Ok(count)
    }

    /// Takes that many octets, once they are there.
    pub(crate) fn take(&mut self, count: usize) -> Option<&[u8]> {
        let taken = self.buffer[self.start..self.end].get(..count)?;
        self.start += count;
        Some(taken)
    }

    /// Takes a whole frame, once it is there.
    pub(crate) fn frame(&mut self) -> io::Result<Option<Frame<'_>>> {
        let held = &self.buffer[self.start..self.end];
        let Some(head) = held.first_chunk::<HEAD>() else { return Ok(None) };
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        if length > MAX_FRAME {
            return Err(malformed());
        }
        let Some(payload) = held[HEAD..].get(..length) else { return Ok(None) };
        self.start += HEAD + length;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
        Ok(Some(Frame { kind: head[3], flags: head[4], stream, payload }))
    }
}
