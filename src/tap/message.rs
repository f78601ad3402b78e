//! Counts the gRPC messages in the DATA of one direction of a stream. In: bytes in pieces of any size. Out: sizes, and
//! the body of the first message if it is wanted.

use std::sync::Arc;

use super::{cri::ExecResult, exec::ExecMeter};
use crate::proto::grpc::{GrpcPart, GrpcPrefix, GrpcReader};

/// 1 MiB: the largest message that is kept for decoding. A larger one is counted, and its call has no details.
pub(super) const MAX_KEPT: usize = 1024 * 1024;

/// What happens to the messages of one direction of one call.
#[derive(Debug)]
pub(super) enum Body {
    /// Their sizes are counted.
    Skip,
    /// The first one is kept whole.
    Keep(Kept),
    /// The first one is measured as an ExecSync answer.
    Measure(ExecMeter),
    /// It was to be kept, but was compressed, too large, or more than one.
    Spoilt,
}

/// A message, as far as it has arrived. Most arrive in one piece, which is copied once.
#[derive(Debug)]
pub(super) enum Kept {
    /// What has arrived so far.
    Part(Vec<u8>),
    /// All of it; shared with code that keeps it longer.
    Whole(Arc<[u8]>),
}

impl Default for Kept {
    fn default() -> Self {
        Self::Part(Vec::new())
    }
}

impl Kept {
    fn len(&self) -> usize {
        match self {
            Self::Part(part) => part.len(),
            Self::Whole(whole) => whole.len(),
        }
    }

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
}

impl Messages {
    /// Nothing has arrived yet.
    pub(super) fn new(body: Body) -> Self {
        Self { reader: GrpcReader::default(), count: 0, bytes: 0, body }
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

    /// Bytes in memory, counting a message in full from its prefix on, so that the result does not depend on the
    /// pieces.
    pub(super) fn kept(&self) -> usize {
        match &self.body {
            Body::Keep(body) => body.len() + self.reader.left() as usize,
            Body::Skip | Body::Measure(_) | Body::Spoilt => 0,
        }
    }

    /// Drops what was kept: the connection's bound was reached.
    pub(super) fn spoil(&mut self) {
        if matches!(self.body, Body::Keep(_)) {
            self.body = Body::Spoilt;
        }
    }

    /// The kept message, once it is complete.
    pub(super) fn whole(&self) -> Option<Arc<[u8]>> {
        match &self.body {
            Body::Keep(Kept::Whole(whole)) if self.is_whole() => Some(Arc::clone(whole)),
            // A message of zero bytes has no piece.
            Body::Keep(Kept::Part(part)) if self.is_whole() && part.is_empty() => Some(Arc::default()),
            Body::Keep(_) | Body::Skip | Body::Measure(_) | Body::Spoilt => None,
        }
    }

    /// The result of measuring the ExecSync answer, once it is complete.
    pub(super) fn measured(&self) -> Option<ExecResult> {
        match &self.body {
            Body::Measure(meter) if self.is_whole() => meter.finish(),
            Body::Measure(_) | Body::Skip | Body::Keep(_) | Body::Spoilt => None,
        }
    }

    fn is_whole(&self) -> bool {
        self.count == 1 && self.reader.is_between_messages()
    }

    fn begin_message(&mut self, GrpcPrefix { is_compressed, length }: GrpcPrefix) {
        self.count = self.count.saturating_add(1);
        self.bytes += u64::from(length);
        let is_usable = !is_compressed && self.count == 1 && length as usize <= MAX_KEPT;
        match &mut self.body {
            Body::Keep(_) if !is_usable => self.body = Body::Spoilt,
            Body::Measure(_) if is_compressed || self.count > 1 => self.body = Body::Spoilt,
            Body::Keep(_) | Body::Skip | Body::Measure(_) | Body::Spoilt => {}
        }
    }

    fn take_body(&mut self, piece: &[u8], left: u32) {
        match &mut self.body {
            Body::Keep(body) => body.take(piece, left as usize),
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
            let mut messages = Messages::new(Body::Keep(Kept::default()));
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
            let mut messages = Messages::new(Body::Keep(Kept::default()));
            messages.feed(&bytes);
            assert_eq!(messages.whole(), None, "{name}");
            assert_eq!(messages.bytes, size, "{name}");
            assert_eq!(messages.kept(), 0, "{name}");
        }
    }

    #[test]
    fn a_message_cut_short_is_not_whole() {
        let mut messages = Messages::new(Body::Keep(Kept::default()));
        messages.feed(&framed(0, b"hello")[..7]);
        assert_eq!(messages.whole(), None);
    }
}
