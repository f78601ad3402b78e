//! A string of a header block, still as it came (RFC 7541, section 5.2). Never copied, never decoded unasked.

use std::fmt;

use super::{HpackError, huffman, integer::read_integer};

/// Borrowed octets of a name or value, Huffman-coded or plain.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    octets: &'a [u8],
    is_coded: bool,
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
        Self { octets, is_coded: false }
    }

    /// The octets as they came, and whether they are Huffman-coded.
    pub(super) fn parts(&self) -> (&'a [u8], bool) {
        (self.octets, self.is_coded)
    }

    /// Takes a string off the front of `rest`.
    pub(super) fn read(rest: &mut &'a [u8]) -> Result<Self, HpackError> {
        let is_coded = rest.first().ok_or(HpackError::Truncated)? & 0x80 != 0;
        let length = read_integer(rest, 7)? as usize;
        let (octets, tail) = rest.split_at_checked(length).ok_or(HpackError::Truncated)?;
        *rest = tail;
        Ok(Self { octets, is_coded })
    }

    /// Like [`Text::decode`], but appends no more than the first `limit` octets; says whether that was all.
    pub(in crate::tap) fn decode_within(&self, limit: usize, into: &mut Vec<u8>) -> Result<bool, HpackError> {
        if self.is_coded {
            return huffman::decode_within(self.octets, limit, into);
        }
        into.extend_from_slice(&self.octets[..self.octets.len().min(limit)]);
        Ok(self.octets.len() <= limit)
    }
}

impl fmt::Debug for Text<'_> {
    /// Shows the kind and length only: header values may be credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let coding = if self.is_coded { "coded" } else { "plain" };
        write!(f, "Text({coding}, {} octets)", self.octets.len())
    }
}
