//! gRPC's framing: before each message stand five octets, whether it is compressed and its length. Reads messages that come
//! in pieces of any size, and writes the prefix of one. Pure; holds nothing of a message.

use crate::carry::carried;

/// The octets before a message.
pub const PREFIX: usize = 5;

/// What is before a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrpcPrefix {
    /// Whether the message is compressed, by whatever its headers name.
    pub is_compressed: bool,
    /// Octets of the message.
    pub length: u32,
}

impl GrpcPrefix {
    /// Reads one.
    pub fn decode([is_compressed, length @ ..]: [u8; PREFIX]) -> Self {
        Self { is_compressed: is_compressed != 0, length: u32::from_be_bytes(length) }
    }

    /// Of a message of this length that is not compressed; `None` from 4 GiB on, which no message has.
    pub fn encode(length: usize) -> Option<[u8; PREFIX]> {
        let [a, b, c, d] = u32::try_from(length).ok()?.to_be_bytes();
        Some([0, a, b, c, d])
    }
}

/// The messages of one direction of one call, as they come.
#[derive(Debug, Default)]
pub struct GrpcReader {
    prefix: [u8; PREFIX],
    prefix_len: u8,
    left: u32,
}

carried! { struct GrpcReader { prefix, prefix_len, left } if is_sound }

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub enum GrpcPart<'a> {
    /// A message begins. One of no octets ends here, too.
    Begins(GrpcPrefix),
    /// Octets of a message, behind which so many are still to come.
    Body(&'a [u8], u32),
}

impl GrpcReader {
    /// Takes the next part off the front of `input`; `None` when all was taken.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Option<GrpcPart<'a>> {
        if self.left == 0 {
            let read = usize::from(self.prefix_len);
            let (taken, rest) = input.split_at(input.len().min(PREFIX - read));
            *input = rest;
            self.prefix[read..][..taken.len()].copy_from_slice(taken);
            self.prefix_len += taken.len() as u8;
            if usize::from(self.prefix_len) < PREFIX {
                return None;
            }
            self.prefix_len = 0;
            let prefix = GrpcPrefix::decode(self.prefix);
            self.left = prefix.length;
            return Some(GrpcPart::Begins(prefix));
        }
        if input.is_empty() {
            return None;
        }
        let (piece, rest) = input.split_at(input.len().min(self.left as usize));
        *input = rest;
        self.left -= piece.len() as u32;
        Some(GrpcPart::Body(piece, self.left))
    }

    /// How much of the current message is to come.
    pub fn left(&self) -> u32 {
        self.left
    }

    /// Whether nothing is half read: neither a message nor the prefix of one.
    pub fn is_between_messages(&self) -> bool {
        self.left == 0 && self.prefix_len == 0
    }

    fn is_sound(&self) -> bool {
        usize::from(self.prefix_len) < PREFIX
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_prefix_that_is_too_long_is_not_taken_over() {
        for (prefix_len, is_taken) in [(4, true), (5, false)] {
            let reader = GrpcReader { prefix_len, ..GrpcReader::default() };
            assert_eq!(crate::carry::tests::carried_over(&reader).is_ok(), is_taken);
        }
    }

    proptest! {
        #[test]
        fn messages_are_the_same_in_any_pieces(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..5),
            piece in 1usize..32,
        ) {
            let framed: Vec<u8> = messages
                .iter()
                .flat_map(|message| [&GrpcPrefix::encode(message.len()).unwrap()[..], message].concat())
                .collect();
            let (mut reader, mut read) = (GrpcReader::default(), Vec::<Vec<u8>>::new());
            for mut piece in framed.chunks(piece) {
                while let Some(part) = reader.next(&mut piece) {
                    match part {
                        GrpcPart::Begins(prefix) => {
                            prop_assert!(!prefix.is_compressed);
                            read.push(Vec::new());
                        }
                        GrpcPart::Body(piece, left) => {
                            prop_assert_eq!(left, reader.left());
                            read.last_mut().unwrap().extend_from_slice(piece);
                        }
                    }
                }
                prop_assert!(piece.is_empty());
            }
            prop_assert_eq!(read, messages);
            prop_assert!(reader.is_between_messages());
        }
    }
}
