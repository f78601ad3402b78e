//! Checks the server's half of the HTTP/2 preface: the server's bytes in; whether the first frame is SETTINGS out.

use std::sync::{Arc, OnceLock};

use crate::handler::watched::Watch;

/// The header of a frame: three octets of length, type, flags, four of the stream (RFC 9113, 4.1).
const HEADER: usize = 9;

/// The type of a SETTINGS frame (RFC 9113, 6.5).
const SETTINGS: u8 = 0x4;

/// The flag of a SETTINGS frame that only acknowledges one.
const ACK: u8 = 0x1;

/// 16 KiB: the longest frame that we let a server send. A longer one is no preface.
const LONGEST: usize = 16_384;

/// Whether the server has shown its preface; false once it has shown something else.
pub(super) type Shown = Arc<OnceLock<bool>>;

/// Looks at the first frame.
#[derive(Debug, Default)]
pub(super) struct Preface {
    first: First,
    shown: Shown,
}

impl Preface {
    /// Where that will be known.
    pub(super) fn shown(&self) -> Shown {
        self.shown.clone()
    }
}

/// How much of the first frame was read.
#[derive(Debug, Default)]
struct First {
    header: [u8; HEADER],
    read: usize,
}

impl First {
    /// Takes the next octets. Returns whether the server speaks HTTP/2, once that is known: when the whole of a
    /// SETTINGS frame was read, or when the frame cannot be one.
    fn take(&mut self, octets: &[u8]) -> Option<bool> {
        for (place, octet) in self.header.iter_mut().skip(self.read).zip(octets) {
            *place = *octet;
        }
        self.read = self.read.saturating_add(octets.len());
        if self.read < HEADER {
            return None;
        }
        let [a, b, c, kind, flags, stream @ ..] = self.header;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        if kind != SETTINGS || flags & ACK != 0 || stream != [0; 4] || length > LONGEST {
            return Some(false);
        }
        (self.read >= HEADER + length).then_some(true)
    }
}

impl Watch for Preface {
    fn on_read(&mut self, octets: &[u8]) {
        if self.shown.get().is_none()
            && let Some(verdict) = self.first.take(octets)
        {
            self.shown.get_or_init(|| verdict);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_speaks_http2_when_its_first_frame_is_settings_however_it_is_cut() {
        let rows: [(&str, &[u8], Option<bool>); 8] = [
            ("nothing", b"", None),
            ("half a header", b"\0\0\0\x04\0", None),
            ("empty settings", b"\0\0\0\x04\0\0\0\0\0", Some(true)),
            ("settings without their end", b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0", None),
            ("settings and more", b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64rest", Some(true)),
            ("an acknowledgement", b"\0\0\0\x04\x01\0\0\0\0", Some(false)),
            ("settings of a stream", b"\0\0\0\x04\0\0\0\0\x01", Some(false)),
            ("HTTP/1", b"HTTP/1.1 400 Bad Request\r\n", Some(false)),
        ];
        for (name, octets, verdict) in rows {
            assert_eq!(First::default().take(octets), verdict, "{name}");
            let mut cut = First::default();
            let last = octets.iter().map(|octet| cut.take(&[*octet])).find(Option::is_some).flatten();
            assert_eq!(last, verdict, "{name}, octet by octet");
        }
    }
}
