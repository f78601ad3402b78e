//! Counts the gRPC messages in the DATA of one direction of a stream. In: bytes in pieces of any size. Out: sizes, and
//! the body of the first message if it is wanted.

use std::sync::Arc;

use super::{
    cri::{ExecResult, Wanted},
    exec::ExecMeter,
    sieve::{MAX_SIEVED, Sieve},
};
use crate::{
    carry::carried,
    proto::grpc::{GrpcPart, GrpcPrefix, GrpcReader},
};

/// 1 MiB: the largest message that is decoded, except for commands. A larger one is counted, and its call has no details.
pub(super) const MAX_KEPT: usize = 1024 * 1024;

/// 512 bytes: the largest message with an id that is kept as it came: an id has 64 bytes, and the call little more. Of a
/// larger one, only the id is kept.
const MAX_PLAIN_ID: usize = 512;

/// 4 KiB: the largest message with a command that is kept as it came. Of a larger one, the beginning is kept.
const MAX_PLAIN_COMMAND: usize = 4096;

/// What happens to the messages of one direction of one call.
#[derive(Debug)]
pub(super) enum Body {
    /// Their sizes are counted.
    Skip,
    /// Of the first one, this is kept.
    Keep(Wanted, Kept),
    /// The first one is measured as an ExecSync answer.
    Measure(ExecMeter),
    /// It was to be kept, but was compressed, too large, or more than one.
    Spoilt,
}

carried! {
    enum Body { 0 Skip, 1 Keep(wanted: Wanted, kept: Kept), 2 Measure(meter: ExecMeter), 3 Spoilt }
}

/// A message, as far as it has arrived. Most arrive in one piece, which is copied once.
#[derive(Debug)]
pub(super) enum Kept {
    /// What has arrived so far.
    Part(Vec<u8>),
    /// All of it; shared with code that keeps it longer.
    Whole(Arc<[u8]>),
    /// Some fields of a long one.
    Sieved(Box<Sieve>),
}

carried! { enum Kept { 0 Part(part: Vec<u8>), 1 Whole(whole: Arc<[u8]>), 2 Sieved(sieve: Box<Sieve>) } }

impl Default for Kept {
    fn default() -> Self {
        Self::Part(Vec::new())
    }
}

impl Wanted {
    /// Before a message of that length; `None` if it is too long.
    fn of_length(self, length: usize) -> Option<Kept> {
        match self {
            Self::Id if length > MAX_PLAIN_ID && length <= MAX_KEPT => {
                Some(Kept::Sieved(Box::new(Sieve::of_id())))
            }
            Self::Command if length > MAX_PLAIN_COMMAND => Some(Kept::Sieved(Box::new(Sieve::of_command()))),
            Self::Filter => (length <= MAX_PLAIN_ID).then(Kept::default),
            Self::Id | Self::Command | Self::Creation => (length <= MAX_KEPT).then(Kept::default),
        }
    }

    /// What is counted of a message of that length. Ids are not: a stream is taken to have one.
    fn counted(self, length: usize) -> usize {
        match self {
            Self::Id | Self::Filter => 0,
            Self::Command => length.min(MAX_SIEVED),
            Self::Creation => length,
        }
    }
}

impl Kept {
    /// Adds the next piece, after which `left` bytes are still missing.
    fn take(&mut self, piece: &[u8], left: usize) {
        match self {
            Self::Part(part) if part.is_empty() && left == 0 => *self = Self::Whole(piece.into()),
            Self::Part(part) => {
                part.reserve_exact(piece.len() + left);
                part.extend_from_slice(piece);
                if left == 0 {
                    *self = Self::Whole(std::mem::take(part).into());
                }
            }
            Self::Whole(_) => {}
            Self::Sieved(sieve) => sieve.feed(piece),
        }
    }
}

/// The messages of one direction of one call.
#[derive(Debug)]
pub(super) struct Messages {
    reader: GrpcReader,
    /// Messages whose prefix was read.
    count: u32,
    /// Bytes of message bodies so far.
    pub bytes: u64,
    /// What happens to them.
    body: Body,
    counted: usize,
}

carried! { struct Messages { reader, count, bytes, body, counted } if is_sound }

impl Messages {
    /// What is kept has the bounds that [`Wanted::of_length`] sets, and no sum becomes too large.
    fn is_sound(&self) -> bool {
        let has_room = match &self.body {
            Body::Keep(_, Kept::Part(part)) => part.len() + self.reader.left() as usize <= MAX_KEPT,
            Body::Keep(_, Kept::Whole(whole)) => whole.len() <= MAX_KEPT,
            Body::Keep(_, Kept::Sieved(_)) | Body::Skip | Body::Measure(_) | Body::Spoilt => true,
        };
        has_room && self.counted <= MAX_KEPT && self.bytes <= u64::MAX / 2
    }

    /// Nothing has arrived yet.
    pub(super) fn new(body: Body) -> Self {
        Self { reader: GrpcReader::default(), count: 0, bytes: 0, body, counted: 0 }
    }

    /// Adds the next piece.
    pub(super) fn feed(&mut self, mut piece: &[u8]) {
        while let Some(part) = self.reader.next(&mut piece) {
            match part {
                GrpcPart::Begins(prefix) => self.begin_message(prefix),
                GrpcPart::Body(body, left) => self.take_body(body, left),
            }
        }
    }

    /// Bytes of memory in use.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        match &self.body {
            Body::Keep(_, Kept::Part(part)) => part.capacity(),
            Body::Keep(_, Kept::Whole(whole)) => whole.len(),
            Body::Keep(_, Kept::Sieved(sieve)) => sieve.kept(),
            Body::Skip | Body::Measure(_) | Body::Spoilt => 0,
        }
    }

    /// Bytes that count against the connection's bounds: of the first message in full from its prefix on, until it is
    /// dropped, so that the result does not depend on the pieces.
    pub(super) fn counted(&self) -> usize {
        self.counted
    }

    /// Drops what was kept.
    pub(super) fn spoil(&mut self) {
        if matches!(self.body, Body::Keep(..)) {
            self.body = Body::Spoilt;
        }
        self.counted = 0;
    }

    /// The kept message, once it is complete: all of it, or the fields that are wanted of it.
    pub(super) fn whole(&self) -> Option<Arc<[u8]>> {
        match &self.body {
            Body::Keep(_, kept) if self.is_whole() => match kept {
                Kept::Whole(whole) => Some(Arc::clone(whole)),
                // A message of zero bytes has no piece.
                Kept::Part(part) => part.is_empty().then(Arc::default),
                Kept::Sieved(sieve) => sieve.finish().map(Arc::from),
            },
            Body::Keep(..) | Body::Skip | Body::Measure(_) | Body::Spoilt => None,
        }
    }

    /// The result of measuring the ExecSync answer, once it is complete.
    pub(super) fn measured(&self) -> Option<ExecResult> {
        match &self.body {
            Body::Measure(meter) if self.is_whole() => meter.finish(),
            Body::Measure(_) | Body::Skip | Body::Keep(..) | Body::Spoilt => None,
        }
    }

    fn is_whole(&self) -> bool {
        self.count == 1 && self.reader.is_between_messages()
    }

    fn begin_message(&mut self, GrpcPrefix { is_compressed, length }: GrpcPrefix) {
        self.count = self.count.saturating_add(1);
        self.bytes += u64::from(length);
        let (length, is_usable) = (length as usize, !is_compressed && self.count == 1);
        match &mut self.body {
            Body::Keep(wanted, kept) if is_usable => match wanted.of_length(length) {
                Some(empty) => {
                    *kept = empty;
                    self.counted = wanted.counted(length);
                }
                None => self.body = Body::Spoilt,
            },
            Body::Measure(_) if is_usable => {}
            Body::Keep(..) | Body::Measure(_) => self.body = Body::Spoilt,
            Body::Skip | Body::Spoilt => {}
        }
    }

    fn take_body(&mut self, piece: &[u8], left: u32) {
        match &mut self.body {
            Body::Keep(_, kept) => kept.take(piece, left as usize),
            Body::Measure(meter) => meter.feed(piece),
            Body::Skip | Body::Spoilt => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn framed(flag: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![flag];
        bytes.extend((body.len() as u32).to_be_bytes());
        bytes.extend(body);
        bytes
    }

    proptest! {
        #[test]
        fn a_message_is_the_same_in_any_pieces(body in prop::collection::vec(any::<u8>(), 0..200), piece in 1usize..32) {
            let mut messages = Messages::new(Body::Keep(Wanted::Creation, Kept::default()));
            framed(0, &body).chunks(piece).for_each(|piece| { messages.feed(piece); });
            let whole = messages.whole();
            prop_assert_eq!(whole.as_deref(), Some(&*body));
            prop_assert_eq!(messages.bytes, body.len() as u64);
        }
    }

    #[test]
    fn what_cannot_be_decoded_is_counted_and_not_kept() {
        let rows: [(&str, Vec<u8>, u64); 3] = [
            ("compressed", framed(1, b"zip"), 3),
            ("two messages", [framed(0, b"one"), framed(0, b"two")].concat(), 6),
            ("over the bound", framed(0, &vec![7; MAX_KEPT + 1]), MAX_KEPT as u64 + 1),
        ];
        for (name, bytes, size) in rows {
            let mut messages = Messages::new(Body::Keep(Wanted::Creation, Kept::default()));
            messages.feed(&bytes);
            assert_eq!(messages.whole(), None, "{name}");
            assert_eq!(messages.bytes, size, "{name}");
            assert_eq!(messages.kept(), 0, "{name}");
        }
    }

    #[test]
    fn a_message_beyond_the_bound_is_not_taken_over() {
        for (length, is_taken) in [(MAX_KEPT, true), (MAX_KEPT + 1, false)] {
            let mut messages = Messages::new(Body::Skip);
            messages.feed(&framed(0, &vec![7; length])[..9]);
            messages.body = Body::Keep(Wanted::Creation, Kept::Part(vec![7; 4]));
            assert_eq!(crate::carry::tests::carried_over(&messages).is_ok(), is_taken, "{length}");
        }
    }

    #[test]
    fn a_message_cut_short_is_not_whole() {
        let mut messages = Messages::new(Body::Keep(Wanted::Creation, Kept::default()));
        messages.feed(&framed(0, b"hello")[..7]);
        assert_eq!(messages.whole(), None);
    }
}
