//! A string of a header block, still as it came (RFC 7541, section 5.2). Never copied, never decoded unasked.

use std::fmt;

use super::{HpackError, huffman, integer::read_integer};

/// How much is read of the strings of one field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strings {
    /// Octets that are read whole, of name and value together.
    left: usize,
    /// Octets that are read of a longer one.
    beginning: usize,
    /// The rest of longer ones was left out of the octets.
    is_held: bool,
    is_too_long: bool,
}

impl Strings {
    /// Strings are read whole while they could make an entry of a table of that capacity, or are no longer than a
    /// beginning: an entry larger than the table empties it (RFC 7541, section 4.4), whatever its text is.
    ///
    /// `is_held` for octets from which the rest of longer ones was left out.
    pub(super) fn for_table(capacity: usize, beginning: usize, is_held: bool) -> Self {
        let (coded, plain) = huffman::LEAST_YIELD;
        let left = beginning.max(capacity * coded / plain);
        Self { left, beginning, is_held, is_too_long: false }
    }

    /// How many octets of the next string, of that length, are read.
    pub(super) fn keep(&mut self, length: usize) -> usize {
        if let Some(left) = self.left.checked_sub(length) {
            self.left = left;
            return length;
        }
        self.left = 0;
        self.is_too_long = true;
        length.min(self.beginning)
    }

    /// Whether a string was too long for any entry, together with the one before.
    pub(super) fn is_too_long(self) -> bool {
        self.is_too_long
    }
}

/// Borrowed octets of a name or value, Huffman-coded or plain; of one too long for the dynamic table, those it begins
/// with.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    octets: &'a [u8],
    is_coded: bool,
    is_whole: bool,
}

impl<'a> Text<'a> {
    /// Appends the octets to `into`, Huffman coding undone: at most 8/5 of what came.
    ///
    /// # Errors
    /// Fails with [`HpackError::InvalidHuffman`]; `into` then holds what came before the fault.
    pub fn decode(&self, into: &mut Vec<u8>) -> Result<(), HpackError> {
        self.decode_within(usize::MAX, into).map(drop)
    }

    /// The octets, Huffman coding undone; `scratch` is overwritten where that is needed.
    ///
    /// # Errors
    /// Fails with [`HpackError::InvalidHuffman`].
    pub fn get<'b>(&self, scratch: &'b mut Vec<u8>) -> Result<&'b [u8], HpackError>
    where
        'a: 'b,
    {
        self.get_within(usize::MAX, scratch)
    }

    /// Like [`Text::get`], but no more than the first `limit` octets.
    pub(in crate::tap) fn get_within<'b>(
        &self,
        limit: usize,
        scratch: &'b mut Vec<u8>,
    ) -> Result<&'b [u8], HpackError>
    where
        'a: 'b,
    {
        if self.is_coded {
            scratch.clear();
            self.decode_within(limit, scratch)?;
            Ok(scratch)
        } else {
            Ok(&self.octets[..self.octets.len().min(limit)])
        }
    }

    pub(super) const fn plain(octets: &'a [u8]) -> Self {
        Self { octets, is_coded: false, is_whole: true }
    }

    /// The octets as they came, and whether they are Huffman-coded; none if the end is missing.
    pub(super) fn whole(&self) -> Option<(&'a [u8], bool)> {
        self.is_whole.then_some((self.octets, self.is_coded))
    }

    /// Takes a string off the front of `rest`.
    pub(super) fn read(rest: &mut &'a [u8], strings: &mut Strings) -> Result<Self, HpackError> {
        let is_coded = rest.first().ok_or(HpackError::Truncated)? & 0x80 != 0;
        let length = read_integer(rest, 7)? as usize;
        let kept = strings.keep(length);
        let present = if strings.is_held { kept } else { length };
        let (octets, tail) = rest.split_at_checked(present).ok_or(HpackError::Truncated)?;
        *rest = tail;
        Ok(Self { octets: &octets[..kept], is_coded, is_whole: kept == length })
    }

    /// Like [`Text::decode`], but appends no more than the first `limit` octets; says whether that was all.
    pub(in crate::tap) fn decode_within(&self, limit: usize, into: &mut Vec<u8>) -> Result<bool, HpackError> {
        if self.is_coded && self.is_whole {
            return huffman::decode_within(self.octets, limit, into);
        }
        if self.is_coded {
            return huffman::decode_beginning(self.octets, limit, into).map(|()| false);
        }
        into.extend_from_slice(&self.octets[..self.octets.len().min(limit)]);
        Ok(self.is_whole && self.octets.len() <= limit)
    }
}

impl fmt::Debug for Text<'_> {
    /// Shows the kind and length only: header values may be credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let coding = if self.is_coded { "coded" } else { "plain" };
        write!(f, "Text({coding}, {} octets)", self.octets.len())
    }
}
