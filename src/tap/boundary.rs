//! Where the frames of one direction end, and nothing else of them: all that is needed to add a frame of ours. Its bytes mean
//! the same in every version of criprobe. Pure.

use super::frame::{CONTINUATION, END_HEADERS, GOAWAY, HEADERS, PUSH_PROMISE};

/// How far a direction has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    pub(super) head: [u8; 9],
    /// How much of the next frame's head there is.
    pub(super) head_len: u8,
    /// How much is left of the payload of the current frame.
    pub(super) left: u32,
    /// After this payload, the current header block goes on.
    pub(super) is_in_block: bool,
    pub(super) has_begun: bool,
    pub(super) has_goodbye: bool,
}

impl Boundary {
    /// The size of its encoded form.
    pub const SIZE: usize = 15;

    /// Bytes were passed on.
    pub fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let skipped = bytes.len().min(self.left as usize);
            self.left -= skipped as u32;
            bytes = &bytes[skipped..];
            let read = usize::from(self.head_len);
            let (piece, rest) = bytes.split_at(bytes.len().min(self.head.len() - read));
            self.head[read..][..piece.len()].copy_from_slice(piece);
            self.head_len += piece.len() as u8;
            bytes = rest;
            if usize::from(self.head_len) == self.head.len() {
                self.begin();
            }
        }
    }

    /// Whether a frame of ours may stand here, and the runtime has not said goodbye.
    pub fn is_between_frames(&self) -> bool {
        self.has_begun && !self.has_goodbye && self.head_len == 0 && self.left == 0 && !self.is_in_block
    }

    fn begin(&mut self) {
        let [a, b, c, kind, flags, ..] = self.head;
        self.head_len = 0;
        self.left = u32::from_be_bytes([0, a, b, c]);
        self.has_begun = true;
        self.has_goodbye |= kind == GOAWAY;
        if matches!(kind, HEADERS | PUSH_PROMISE | CONTINUATION) {
            self.is_in_block = flags & END_HEADERS == 0;
        }
    }

    /// As bytes.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let bits = [self.is_in_block, self.has_begun, self.has_goodbye];
        bytes[..9].copy_from_slice(&self.head);
        bytes[9] = self.head_len;
        bytes[10..14].copy_from_slice(&self.left.to_le_bytes());
        bytes[14] = bits.iter().enumerate().map(|(at, bit)| u8::from(*bit) << at).sum();
        bytes
    }

    /// From bytes; `None` if they are no such thing.
    pub fn decode(bytes: [u8; Self::SIZE]) -> Option<Self> {
        let [head @ .., head_len, a, b, c, d, bits] = bytes;
        let (left, bit) = (u32::from_le_bytes([a, b, c, d]), |at: u8| bits & (1 << at) != 0);
        let is_sound = usize::from(head_len) < head.len() && left < 1 << 24 && bits < 8;
        is_sound.then_some(Self {
            head,
            head_len,
            left,
            is_in_block: bit(0),
            has_begun: bit(1),
            has_goodbye: bit(2),
        })
    }
}
