//! Splits one direction of a connection into HTTP/2 frames (RFC 9113). In: bytes in pieces of any size. Out: the frames
//! that matter, header blocks and DATA as they arrive. All others are skipped by length. Never does IO.

use thiserror::Error;

use super::Boundary;
use crate::carry::carried;

/// 4 KiB: the buffer capacity that is kept between frames; more is freed.
const KEPT_CAPACITY: usize = 4096;

/// 16 KiB: the largest SETTINGS payload; normal ones have a few dozen bytes.
const MAX_SETTINGS: u32 = 16 * 1024;

/// RFC 9113, 6.5.2: the initial limit of a peer.
const DEFAULT_MAX_FRAME: u32 = 16_384;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const GOAWAY: u8 = 7;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 0x1;
pub(super) const ACK: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
pub(super) const PADDED: u8 = 0x8;
pub(super) const PRIORITY: u8 = 0x20;

/// Why bytes are not HTTP/2 as CRI uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// A connection starts with SETTINGS.
    #[error("the first frame is not SETTINGS")]
    NoSettings,
    /// The frame is longer than the receiver accepts.
    #[error("a frame is longer than its receiver accepts")]
    TooLong,
    /// A frame's payload does not have the format of its type.
    #[error("a frame is malformed")]
    Malformed,
    /// CONTINUATION without an open header block, or another frame within one.
    #[error("a header block is interrupted")]
    Interrupted,
    /// CRI servers never push.
    #[error("the peer sent PUSH_PROMISE")]
    Push,
}

carried! { enum FrameError { 0 NoSettings, 1 TooLong, 2 Malformed, 3 Interrupted, 4 Push } }

/// The relevant content of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    /// A piece of a stream's data, without padding; `is_end` for its last piece.
    Data { stream: u32, piece: &'a [u8], is_end: bool },
    /// A fragment of a header block, without padding and priority; `is_block_end` for its last one. `is_end` if the
    /// stream ends with the block.
    Headers { stream: u32, fragment: &'a [u8], is_block_end: bool, is_end: bool },
    /// Identifiers and values, six bytes each; not the acknowledgement.
    Settings(&'a [u8]),
    /// A stream was reset.
    Reset { stream: u32 },
    /// Streams above this one are not processed.
    GoAway { last_stream: u32 },
}

#[derive(Clone, Copy, Debug)]
struct Head {
    kind: u8,
    flags: u8,
    stream: u32,
}

carried! { struct Head { kind, flags, stream } }

impl Head {
    fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether its payload begins with the length of the padding at its end (RFC 9113, sections 6.1 and 6.2).
    fn is_padded(self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.has(PADDED)
    }

    /// The length of the priority in front of its fragment.
    fn priority(self) -> usize {
        if self.kind == HEADERS && self.has(PRIORITY) { 5 } else { 0 }
    }
}

/// One direction's framing.
#[derive(Debug)]
pub(super) struct FrameReader {
    head: [u8; 9],
    head_len: usize,
    /// The frame whose payload is being read, and how much of it is left.
    current: Option<Head>,
    left: usize,
    /// Padding at the end of the current DATA or HEADERS frame; `None` until its length byte is read.
    padding: Option<usize>,
    /// Bytes of priority that are left in front of the fragment in the current HEADERS frame.
    priority: usize,
    /// The HEADERS whose block is not complete.
    block: Option<Head>,
    /// The payload of another frame that arrives in pieces.
    held: Vec<u8>,
    /// The buffered bytes were handed out and are no longer needed.
    is_spent: bool,
    has_begun: bool,
    max_frame: u32,
}

carried! {
    struct FrameReader {
        head, head_len, current, left, padding, priority, block, held, is_spent, has_begun, max_frame,
    }
    if is_sound
}

impl Default for FrameReader {
    fn default() -> Self {
        Self {
            head: [0; 9],
            head_len: 0,
            current: None,
            left: 0,
            padding: None,
            priority: 0,
            block: None,
            held: Vec::new(),
            is_spent: false,
            has_begun: false,
            max_frame: DEFAULT_MAX_FRAME,
        }
    }
}

impl FrameReader {
    /// The receiver of this direction announced SETTINGS_MAX_FRAME_SIZE. Never lowered: the sender may not have
    /// received the announcement yet.
    pub(super) fn raise_max_frame(&mut self, size: u32) {
        self.max_frame = self.max_frame.max(size);
    }

    /// Whether a frame of ours could be inserted here: the last frame and the last header block are complete.
    pub(super) fn is_between_frames(&self) -> bool {
        self.has_begun && self.head_len == 0 && self.current.is_none() && self.block.is_none()
    }

    /// Where it is in the frames.
    pub(super) fn boundary(&self, has_goodbye: bool) -> Boundary {
        let in_block = match self.current {
            Some(head) if matches!(head.kind, HEADERS | CONTINUATION) => !head.has(END_HEADERS),
            Some(_) | None => self.block.is_some(),
        };
        Boundary {
            head: self.head,
            head_len: self.head_len as u8,
            left: self.left as u32,
            is_in_block: in_block,
            has_begun: self.has_begun,
            has_goodbye: has_goodbye || self.current.is_some_and(|head| head.kind == GOAWAY),
        }
    }

    /// Whether the connection began with a valid first frame.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Consumes `input` up to the end of the next frame, or of the next piece of DATA or of a header block. `None` when
    /// all was consumed.
    ///
    /// # Errors
    /// The bytes are not HTTP/2; nothing after them can be decoded.
    pub(super) fn next<'a, 'b: 'a>(
        &'a mut self,
        input: &mut &'b [u8],
    ) -> Result<Option<Frame<'a>>, FrameError> {
        if self.is_spent {
            self.release();
        }
        while !input.is_empty() || self.is_complete() {
            let Some(head) = self.current else {
                self.take_head(input)?;
                continue;
            };
            if head.kind == DATA {
                let (piece, is_complete) = self.take_content(input)?;
                let is_end = is_complete && head.has(END_STREAM);
                if is_end || !piece.is_empty() {
                    return Ok(Some(Frame::Data { stream: head.stream, piece, is_end }));
                }
            } else if matches!(head.kind, HEADERS | CONTINUATION) {
                let (fragment, is_complete) = self.take_content(input)?;
                let is_end = self.block.get_or_insert(head).has(END_STREAM);
                let is_block_end = is_complete && head.has(END_HEADERS);
                if is_block_end {
                    self.block = None;
                }
                if is_block_end || !fragment.is_empty() {
                    return Ok(Some(Frame::Headers { stream: head.stream, fragment, is_block_end, is_end }));
                }
            } else if !is_of_interest(head) {
                self.take(input);
            } else if self.held.is_empty() && input.len() >= self.left {
                let payload = self.take(input);
                return Ok(Some(frame(head, payload)));
            } else {
                let piece = self.take(input);
                let wanted =
                    if head.kind == GOAWAY { 4_usize.saturating_sub(self.held.len()) } else { piece.len() };
                self.held.extend_from_slice(&piece[..piece.len().min(wanted)]);
                if self.current.is_none() {
                    self.is_spent = true;
                    return Ok(Some(frame(head, &self.held)));
                }
            }
        }
        Ok(None)
    }

    /// Bytes of memory in use.
    pub(super) fn kept(&self) -> usize {
        self.held.capacity()
    }

    /// Lengths are as [`FrameReader::check`] leaves them.
    fn is_sound(&self) -> bool {
        let Some(head) = self.current else { return self.head_len < 9 };
        let to_come = self.held.len() + self.left;
        self.head_len == 0
            && (1..1 << 24).contains(&self.left)
            && self.left >= self.priority + usize::from(self.padding.is_none())
            && (head.kind != GOAWAY || to_come >= 4)
            && (head.kind != SETTINGS || to_come <= MAX_SETTINGS as usize)
    }

    fn release(&mut self) {
        self.is_spent = false;
        self.held.clear();
        self.held.shrink_to(KEPT_CAPACITY);
    }

    /// A frame of length zero is complete with its header.
    fn is_complete(&self) -> bool {
        self.current.is_some() && self.left == 0
    }

    /// The next bytes of the current frame, which ends with its last one.
    fn take<'a>(&mut self, input: &mut &'a [u8]) -> &'a [u8] {
        let (taken, rest) = input.split_at(self.left.min(input.len()));
        *input = rest;
        self.left -= taken.len();
        if self.left == 0 {
            self.current = None;
        }
        taken
    }

    fn take_head(&mut self, input: &mut &[u8]) -> Result<(), FrameError> {
        let head = match input.split_first_chunk().filter(|_| self.head_len == 0) {
            Some((head, rest)) => {
                *input = rest;
                *head
            }
            None => {
                let count = input.len().min(9 - self.head_len);
                self.head[self.head_len..self.head_len + count].copy_from_slice(&input[..count]);
                self.head_len += count;
                *input = &input[count..];
                if self.head_len < 9 {
                    return Ok(());
                }
                self.head_len = 0;
                self.head
            }
        };
        let [a, b, c, kind, flags, s0, s1, s2, s3] = head;
        let length = u32::from_be_bytes([0, a, b, c]);
        let head = Head { kind, flags, stream: u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]) };
        self.check(head, length)?;
        self.has_begun = true;
        self.padding = if head.is_padded() { None } else { Some(0) };
        self.priority = head.priority();
        self.left = length as usize;
        self.current = Some(head);
        Ok(())
    }

    fn check(&self, head: Head, length: u32) -> Result<(), FrameError> {
        if !self.has_begun && (head.kind != SETTINGS || head.has(ACK)) {
            return Err(FrameError::NoSettings);
        }
        if length > self.max_frame {
            return Err(FrameError::TooLong);
        }
        let continues = head.kind == CONTINUATION;
        match self.block {
            Some(block) if !continues || block.stream != head.stream => return Err(FrameError::Interrupted),
            None if continues => return Err(FrameError::Interrupted),
            Some(_) | None => {}
        }
        let needs_stream = matches!(head.kind, DATA | HEADERS | RST_STREAM);
        let forbids_stream = matches!(head.kind, SETTINGS | GOAWAY);
        let is_well_formed = match head.kind {
            RST_STREAM => length == 4,
            SETTINGS => length.is_multiple_of(6) && length <= MAX_SETTINGS && (!head.has(ACK) || length == 0),
            GOAWAY => length >= 8,
            PUSH_PROMISE => return Err(FrameError::Push),
            _ => length as usize >= usize::from(head.is_padded()) + head.priority(),
        };
        if (needs_stream && head.stream == 0) || (forbids_stream && head.stream != 0) || !is_well_formed {
            return Err(FrameError::Malformed);
        }
        Ok(())
    }

    /// The next piece of the content of the current DATA, HEADERS or CONTINUATION frame, without padding and priority,
    /// and whether the frame is complete.
    fn take_content<'a>(&mut self, input: &mut &'a [u8]) -> Result<(&'a [u8], bool), FrameError> {
        let padding = match self.padding {
            Some(padding) => padding,
            None => {
                let Some((&length, rest)) = input.split_first() else { return Ok((&[], false)) };
                *input = rest;
                self.left -= 1;
                let padding = usize::from(length);
                if self.priority + padding > self.left {
                    return Err(FrameError::Malformed);
                }
                self.padding = Some(padding);
                padding
            }
        };
        if self.priority > 0 {
            let count = self.priority.min(input.len());
            *input = &input[count..];
            self.left -= count;
            self.priority -= count;
            if self.priority > 0 {
                return Ok((&[], false));
            }
        }
        let unpadded = self.left.saturating_sub(padding);
        let taken = self.take(input);
        Ok((&taken[..taken.len().min(unpadded)], self.current.is_none()))
    }
}

/// Whether a frame without content of its stream matters.
fn is_of_interest(head: Head) -> bool {
    match head.kind {
        RST_STREAM | GOAWAY => true,
        SETTINGS => !head.has(ACK),
        _ => false,
    }
}

/// The content of such a frame, once it is complete. The lengths were checked with the frame header.
fn frame(head: Head, payload: &[u8]) -> Frame<'_> {
    match head.kind {
        SETTINGS => Frame::Settings(payload),
        RST_STREAM => Frame::Reset { stream: head.stream },
        _ => Frame::GoAway {
            last_stream: u32::from_be_bytes([payload[0] & 0x7f, payload[1], payload[2], payload[3]]),
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    /// Everything that the bytes say, with pieces of DATA and of header blocks put together, in one line a frame.
    fn read(bytes: &[u8], piece: usize) -> Result<Vec<String>, FrameError> {
        let mut reader = FrameReader::default();
        let mut reported: Vec<String> = Vec::new();
        let mut data = String::new();
        let mut block = vec![];
        for chunk in bytes.chunks(piece.max(1)) {
            let mut input = chunk;
            loop {
                match reader.next(&mut input)? {
                    None => break,
                    Some(Frame::Data { piece, is_end, .. }) => {
                        data.push_str(&String::from_utf8_lossy(piece));
                        if is_end {
                            reported.push(format!("data {data} end"));
                        }
                    }
                    Some(Frame::Headers { stream, fragment, is_block_end, is_end }) => {
                        block.extend_from_slice(fragment);
                        if is_block_end {
                            let block = std::mem::take(&mut block);
                            reported.push(format!(
                                "Headers {{ stream: {stream}, block: {block:?}, is_end: {is_end} }}"
                            ));
                        }
                    }
                    Some(other) => reported.push(format!("{other:?}")),
                }
            }
        }
        Ok(reported)
    }

    fn conversation() -> Vec<u8> {
        [
            frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 16, 0]),
            frame(SETTINGS, ACK, 0, &[]),
            frame(8, 0, 0, &[0, 0, 0, 9]),
            frame(HEADERS, END_HEADERS | PADDED | PRIORITY, 1, &[3, 0, 0, 0, 0, 7, b'a', b'b', 0, 0, 0]),
            frame(HEADERS, 0, 3, b"c"),
            frame(CONTINUATION, 0, 3, b"d"),
            frame(CONTINUATION, END_HEADERS, 3, b""),
            frame(DATA, PADDED, 1, &[2, b'x', b'y', 0, 0]),
            frame(DATA, END_STREAM, 1, b"z"),
            frame(HEADERS, END_HEADERS | END_STREAM, 5, b""),
            frame(RST_STREAM, 0, 3, &[0, 0, 0, 8]),
            frame(GOAWAY, 0, 0, &[0x80, 0, 0, 5, 0, 0, 0, 0, b'!']),
            frame(0xee, 0xff, 9, b"unknown"),
        ]
        .concat()
    }

    #[test]
    fn frames_cut_at_every_position_say_the_same() {
        let bytes = conversation();
        let whole = read(&bytes, bytes.len()).unwrap();
        assert_eq!(
            whole,
            [
                "Settings([0, 1, 0, 0, 16, 0])",
                "Headers { stream: 1, block: [97, 98], is_end: false }",
                "Headers { stream: 3, block: [99, 100], is_end: false }",
                "data xyz end",
                "Headers { stream: 5, block: [], is_end: true }",
                "Reset { stream: 3 }",
                "GoAway { last_stream: 5 }",
            ]
        );
        for piece in 1..bytes.len() {
            assert_eq!(read(&bytes, piece).unwrap(), whole, "cut every {piece} bytes");
        }
    }

    #[test]
    fn a_frame_of_ours_stands_only_between_frames() {
        let bytes = conversation();
        let mut ends = vec![];
        let mut reader = FrameReader::default();
        for (at, byte) in bytes.iter().enumerate() {
            let mut input = std::slice::from_ref(byte);
            while reader.next(&mut input).unwrap().is_some() {}
            if reader.is_between_frames() {
                ends.push(at + 1);
            }
        }
        // After every frame but the two that leave a header block open.
        assert_eq!(ends.len(), 11);
        assert_eq!((ends[0], ends.last()), (15, Some(&bytes.len())));
    }

    #[test]
    fn what_is_not_http2_is_an_error() {
        let start = frame(SETTINGS, 0, 0, &[]);
        let rows: [(&str, Vec<u8>, FrameError); 12] = [
            ("HTTP/1", b"HTTP/1.1 200 OK\r\n".to_vec(), FrameError::NoSettings),
            ("no settings first", frame(DATA, 0, 1, b"x"), FrameError::NoSettings),
            ("too long", [start.clone(), frame(DATA, 0, 1, &[0; 16_385])].concat(), FrameError::TooLong),
            (
                "interrupted",
                [start.clone(), frame(HEADERS, 0, 1, b""), frame(DATA, 0, 1, b"")].concat(),
                FrameError::Interrupted,
            ),
            (
                "lone continuation",
                [start.clone(), frame(CONTINUATION, 0, 1, b"")].concat(),
                FrameError::Interrupted,
            ),
            ("data on stream 0", [start.clone(), frame(DATA, 0, 0, b"x")].concat(), FrameError::Malformed),
            ("all padding", [start.clone(), frame(DATA, PADDED, 1, &[9, 0])].concat(), FrameError::Malformed),
            (
                "a header block that is all padding",
                [start.clone(), frame(HEADERS, PADDED | PRIORITY, 1, &[1, 0, 0, 0, 0, 0])].concat(),
                FrameError::Malformed,
            ),
            (
                "no padding length",
                [start.clone(), frame(HEADERS, PADDED, 1, &[])].concat(),
                FrameError::Malformed,
            ),
            (
                "no priority",
                [start.clone(), frame(HEADERS, PRIORITY, 1, &[0; 4])].concat(),
                FrameError::Malformed,
            ),
            ("short reset", [start.clone(), frame(RST_STREAM, 0, 1, &[0])].concat(), FrameError::Malformed),
            ("push", [start, frame(PUSH_PROMISE, 0, 1, &[0; 8])].concat(), FrameError::Push),
        ];
        for (name, bytes, error) in rows {
            assert_eq!(read(&bytes, bytes.len()).unwrap_err(), error, "{name}");
        }
    }

    #[test]
    fn an_announced_frame_size_is_accepted() {
        let mut reader = FrameReader::default();
        reader.raise_max_frame(20_000);
        let bytes = [frame(SETTINGS, 0, 0, &[]), frame(DATA, 0, 1, &[0; 20_000])].concat();
        let mut input = &bytes[..];
        while reader.next(&mut input).unwrap().is_some() {}
        assert!(reader.is_between_frames());
    }

    #[test]
    fn lengths_that_no_bytes_lead_to_are_not_taken_over() {
        let within = |kind, left| FrameReader {
            current: Some(Head { kind, flags: 0, stream: 1 }),
            left,
            padding: Some(0),
            ..FrameReader::default()
        };
        let rows = [
            ("a frame", within(DATA, 5), true),
            ("a frame without an end", within(DATA, 1 << 24), false),
            ("a frame that is over", within(DATA, 0), false),
            ("a head that is too long", FrameReader { head_len: 9, ..FrameReader::default() }, false),
            ("a head in a frame", FrameReader { head_len: 1, ..within(DATA, 5) }, false),
            (
                "a frame without room for the length of its padding",
                FrameReader { padding: None, priority: 5, ..within(HEADERS, 5) },
                false,
            ),
            (
                "a frame without room for its priority",
                FrameReader { priority: 5, ..within(HEADERS, 4) },
                false,
            ),
            ("a goodbye", within(GOAWAY, 4), true),
            ("a goodbye without a stream", FrameReader { held: vec![0], ..within(GOAWAY, 2) }, false),
            (
                "settings",
                FrameReader { held: vec![0; 6], ..within(SETTINGS, MAX_SETTINGS as usize - 6) },
                true,
            ),
            (
                "too many settings",
                FrameReader { held: vec![0; 6], ..within(SETTINGS, MAX_SETTINGS as usize) },
                false,
            ),
        ];
        for (rule, reader, is_taken) in rows {
            assert_eq!(crate::carry::tests::carried_over(&reader).is_ok(), is_taken, "{rule}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(mut bytes in prop::collection::vec(any::<u8>(), 0..400), piece in 1usize..50) {
            let _ = read(&bytes, piece);
            let mut begun = frame(SETTINGS, 0, 0, &[]);
            begun.append(&mut bytes);
            let _ = read(&begun, piece);
        }
    }
}
