//! Keeps of a long request only what is needed later: the id, and of a command its beginning. In: the message in pieces of any
//! size; out: a message with these fields alone, once it is whole. Pure.

use std::str;

use prost::encoding::{self, WireType};

use super::cri::MAX_ID;
use crate::{
    carry::carried,
    proto::walk::{FieldPart, FieldWalker},
};

/// The fields of the requests: the id is the first of all of them, the others are those of ExecSync.
const ID: u64 = 1;
const COMMAND: u64 = 2;
const TIMEOUT: u64 = 3;

/// 4 KiB and 16 bytes of a command's words, as they are encoded: about what is shown of a command. The rest is dropped, and
/// as what is cut has more than 4 KiB, it is not taken for a whole short one.
const MAX_WORDS: usize = 4096 + 16;

/// Marks what was dropped: at the end of a word that is cut, or as the last word.
const MORE: &str = "…";

/// 4.5 KiB: the most that a sieve takes.
pub(super) const MAX_SIEVED: usize = MAX_WORDS + 8 + 2 * MAX_ID;

/// What a message contains of these fields so far.
#[derive(Debug)]
pub(super) struct Sieve {
    walker: FieldWalker,
    is_command: bool,
    id: Vec<u8>,
    /// Encoded, as far as there is room.
    words: Vec<u8>,
    room: usize,
    /// How much of the last word there is room for, and is missing.
    missing: usize,
    /// No more words are kept.
    is_full: bool,
    timeout: u64,
    is_lost: bool,
}

carried! {
    struct Sieve { walker, is_command, id, words, room, missing, is_full, timeout, is_lost } if is_sound
}

impl Sieve {
    /// Of a request that names one container or sandbox, in its first field.
    pub(super) fn of_id() -> Self {
        Self {
            walker: FieldWalker::default(),
            is_command: false,
            id: Vec::new(),
            words: Vec::new(),
            room: 0,
            missing: 0,
            is_full: true,
            timeout: 0,
            is_lost: false,
        }
    }

    /// Of an ExecSyncRequest or an ExecRequest.
    pub(super) fn of_command() -> Self {
        Self { is_command: true, room: MAX_WORDS, is_full: false, ..Self::of_id() }
    }

    /// Takes the next piece of the message.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let Self { walker, is_command, id, words, room, missing, is_full, timeout, is_lost } = self;
        let walked = walker.feed(bytes, |part| match part {
            FieldPart::Begins(ID, length) => {
                id.clear();
                *is_lost |= length > MAX_ID as u64;
            }
            FieldPart::Bytes(ID, bytes) if !*is_lost && id.len() + bytes.len() <= MAX_ID => {
                id.extend_from_slice(bytes);
            }
            FieldPart::Begins(COMMAND, length) if !*is_full => {
                words.reserve_exact((MAX_WORDS + 8).saturating_sub(words.len()));
                let head = 1 + encoding::encoded_len_varint(length);
                *is_full = length.saturating_add(head as u64) > *room as u64;
                // What is cut has a head of three bytes at most.
                *missing = if *is_full { room.saturating_sub(3) } else { length as usize };
                *room = if *is_full { 0 } else { *room - head - *missing };
                let kept = if *is_full { *missing + MORE.len() } else { *missing };
                encoding::encode_key(COMMAND as u32, WireType::LengthDelimited, words);
                encoding::encode_varint(kept as u64, words);
                if *is_full && *missing == 0 {
                    words.extend_from_slice(MORE.as_bytes());
                }
            }
            FieldPart::Bytes(COMMAND, bytes) if *missing > 0 => {
                let taken = &bytes[..bytes.len().min(*missing)];
                words.extend_from_slice(taken);
                *missing -= taken.len();
                if *missing == 0 && *is_full {
                    end_at_character(words);
                    words.extend_from_slice(MORE.as_bytes());
                }
            }
            FieldPart::Number(TIMEOUT, value) => *timeout = value,
            // Of another type than it must have.
            FieldPart::Number(ID, _) | FieldPart::Fixed(ID) => *is_lost = true,
            FieldPart::Number(COMMAND, _)
            | FieldPart::Fixed(COMMAND | TIMEOUT)
            | FieldPart::Begins(TIMEOUT, _) => *is_lost |= *is_command,
            FieldPart::Number(..) | FieldPart::Fixed(_) | FieldPart::Begins(..) | FieldPart::Bytes(..) => {}
        });
        self.is_lost |= walked.is_err();
    }

    fn is_sound(&self) -> bool {
        self.id.len() <= MAX_ID && self.words.len() <= MAX_SIEVED && self.room.max(self.missing) <= MAX_WORDS
    }

    /// Bytes of memory in use.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.id.capacity() + self.words.capacity()
    }

    /// A message with the fields that were kept; `None` if it was cut short or malformed, or its id is too long.
    pub(super) fn finish(&self) -> Option<Vec<u8>> {
        if self.is_lost || !self.walker.is_between_fields() {
            return None;
        }
        let mut message = Vec::with_capacity(self.id.len() + self.words.len() + 20);
        encoding::bytes::encode(ID as u32, &self.id, &mut message);
        message.extend_from_slice(&self.words);
        if self.is_command {
            encoding::uint64::encode(TIMEOUT as u32, &self.timeout, &mut message);
        }
        Some(message)
    }
}

/// A word is cut: dots replace the beginning of a character.
fn end_at_character(words: &mut [u8]) {
    let last = words.len().saturating_sub(4);
    if let Some(begin) = words[last..].iter().rposition(|byte| *byte >= 0xc0)
        && let Err(error) = str::from_utf8(&words[last + begin..])
        && error.error_len().is_none()
    {
        words[last + begin..].fill(b'.');
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::{proto::cri::ExecSyncRequest, tap::cri::ExecCommand};

    /// What is kept of a message in pieces of this size.
    fn sieved(mut sieve: Sieve, message: &[u8], piece: usize) -> Option<Vec<u8>> {
        message.chunks(piece).for_each(|piece| sieve.feed(piece));
        assert!(sieve.kept() <= MAX_SIEVED, "{}", sieve.kept());
        sieve.finish()
    }

    fn request(words: Vec<String>) -> ExecSyncRequest {
        ExecSyncRequest { container_id: "c1".into(), cmd: words, timeout: -7 }
    }

    fn kept(request: &ExecSyncRequest, piece: usize) -> ExecSyncRequest {
        let message = sieved(Sieve::of_command(), &request.encode_to_vec(), piece).unwrap();
        assert!(message.len() <= MAX_SIEVED, "{}", message.len());
        let kept = ExecSyncRequest::decode(&*message).unwrap();
        assert!(kept == *request || message.len() > 4096, "it could be taken for another: {}", message.len());
        kept
    }

    proptest! {
        #[test]
        fn a_command_that_fits_is_kept_whole_in_any_pieces(
            container_id in "\\PC{0,60}",
            cmd in prop::collection::vec("\\PC{0,40}", 0..20),
            timeout: i64,
            piece in 1usize..60,
        ) {
            let request = ExecSyncRequest { container_id, cmd, timeout };
            prop_assert_eq!(kept(&request, piece), request);
        }

        #[test]
        fn a_command_of_any_length_keeps_its_first_words(
            cmd in prop::collection::vec("\\PC{0,300}", 0..100),
            piece in 1usize..3000,
        ) {
            let request = request(cmd);
            let mut kept = kept(&request, piece).cmd;
            if kept != request.cmd {
                let cut = kept.pop().unwrap();
                let beginning = cut.strip_suffix(MORE).unwrap().trim_end_matches('.');
                prop_assert!(request.cmd[kept.len()].starts_with(beginning));
            }
            prop_assert_eq!(&kept[..], &request.cmd[..kept.len()]);
        }

        #[test]
        fn no_bytes_panic_and_none_are_read_unlike_before(
            message in prop::collection::vec(prop_oneof![0u8..48, any::<u8>()], 0..60),
            piece in 1usize..20,
        ) {
            let read = |message: &[u8]| {
                let command = ExecCommand::read(&message.into())?;
                let words: Vec<_> = command.arguments().map(str::to_owned).collect();
                Some((command.container().to_owned(), words, command.timeout_seconds()))
            };
            let kept = sieved(Sieve::of_command(), &message, piece).and_then(|kept| read(&kept));
            // An id that is not the last one may be anything: it is not kept.
            if let Some(expected) = read(&message) {
                prop_assert_eq!(kept, Some(expected));
            }
            let _ = sieved(Sieve::of_id(), &message, piece);
        }
    }

    #[test]
    fn a_long_command_keeps_its_beginning_up_to_a_whole_character() {
        for (word, piece) in [("x", 7), ("\u{e9}", 1000), ("\u{1f600}", 1), ("\u{1f600}", 4096)] {
            let long = word.repeat(350_000 / word.len());
            let kept = kept(&request(vec!["echo".into(), long.clone(), "end".into()]), piece);
            assert_eq!((kept.cmd.len(), &*kept.cmd[0]), (2, "echo"));
            let beginning = kept.cmd[1].strip_suffix(MORE).unwrap().trim_end_matches('.');
            assert!(long.starts_with(beginning) && beginning.len() > 4096 - 5, "{}", beginning.len());
            assert_eq!(kept.cmd[1].len(), MAX_WORDS - "echo".len() - 2);
            assert_eq!((&*kept.container_id, kept.timeout), ("c1", -7));
        }
        let many = kept(&request(vec![String::new(); 100_000]), 999).cmd;
        assert_eq!((many.len(), &*many[MAX_WORDS / 2]), (MAX_WORDS / 2 + 1, MORE));
    }

    #[test]
    fn an_id_is_read_wherever_it_is_and_the_last_one_counts() {
        let filling = [&[0x7a, 0xd0, 0x0f][..], &[b'x'; 2000]].concat();
        let message = [b"\x0a\x01a", &*filling, b"\x10\x1e\x0a\x02bc", &*filling].concat();
        for piece in [1, 100, usize::MAX] {
            assert_eq!(sieved(Sieve::of_id(), &message, piece).as_deref(), Some(&b"\x0a\x02bc"[..]));
        }
        let rows: [(&str, &[u8]); 4] = [
            ("cut short", &message[..message.len() - 1]),
            ("a number for an id", b"\x08\x01"),
            ("a group", b"\x0b\x0c"),
            ("an endless id", &[&[0x0a, 0x81, 0x02][..], &[b'c'; 257]].concat()),
        ];
        for (rule, message) in rows {
            assert_eq!(sieved(Sieve::of_id(), message, 3), None, "{rule}");
        }
    }
}
