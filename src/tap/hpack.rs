//! Turns header blocks of one direction of an HTTP/2 connection into fields (RFC 7541), passively.
//!
//! Octets in, borrowed fields out. Never allocates for a field that is not kept in the dynamic table. Never decodes
//! Huffman coding unless the text is requested or an entry of the table has to be sized.

mod dynamic_table;
mod huffman;
mod integer;
mod name;
mod static_table;
#[cfg(test)]
pub(super) mod tests;
mod text;

use dynamic_table::DynamicTable;
use integer::read_integer;
pub use name::Name;
use static_table::STATIC_TABLE;
pub(crate) use text::Text;

/// 64 KiB: the largest dynamic table that is kept. A peer that needs more gets [`HpackError::TableTooLarge`]; browsers
/// announce this much, gRPC stacks 4 KiB.
const MAX_TABLE: u32 = 64 * 1024;

/// 4096 octets: the size of the dynamic table before anything was announced (RFC 9113, section 6.5.2).
const DEFAULT_TABLE: u32 = 4096;

/// Tracks the encoder of one direction of one connection.
///
/// After an error the table no longer matches the encoder's, so the decoder must not be used again.
#[derive(Debug)]
pub struct Decoder {
    table: DynamicTable,
    limit: u32,
}

/// One field of a header block; the texts are valid only during the callback.
#[derive(Clone, Copy, Debug)]
pub struct HeaderField<'a> {
    /// Which of the names of interest this is.
    pub name: Name,
    /// The name, not decoded.
    pub raw_name: Text<'a>,
    /// The value, not decoded.
    pub value: Text<'a>,
}

/// Why a header block cannot be decoded; always the fault of the peer that sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HpackError {
    /// The block ends within a field.
    #[error("header block ends within a field")]
    Truncated,
    /// An integer needs more than 32 bits, or more octets than those take.
    #[error("integer out of range")]
    IntegerOverflow,
    /// No entry has this index.
    #[error("no header table entry {0}")]
    NoSuchEntry(u32),
    /// A string contains the end-of-string code, or ends in anything but a short run of ones.
    #[error("invalid Huffman coding")]
    InvalidHuffman,
    /// A table size update follows a field.
    #[error("table size update within a header block")]
    LateSizeUpdate,
    /// A table size update exceeds what was announced, or `MAX_TABLE`.
    #[error("a header table of {0} octets was not agreed on")]
    TableTooLarge(u32),
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// A decoder for a new connection.
    pub fn new() -> Self {
        Self { table: DynamicTable::new(DEFAULT_TABLE as usize), limit: DEFAULT_TABLE }
    }

    /// Records a SETTINGS_HEADER_TABLE_SIZE of the receiver of these blocks.
    ///
    /// Only the encoder knows when it applies one, so the highest that was ever announced stays allowed, and the
    /// table changes when the encoder says so.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = self.limit.max(limit);
    }

    /// Decodes a whole header block (RFC 7541, section 6) and hands out its fields in order.
    ///
    /// The caller bounds the block; here its length bounds everything that is read from it.
    ///
    /// # Errors
    /// Fails on what RFC 7541 calls a decoding error; fields before it have been handed out by then. A faulty
    /// Huffman string fails here only if it enters the table, else when its text is asked for.
    pub fn decode(
        &mut self,
        block: &[u8],
        mut on_field: impl FnMut(HeaderField<'_>),
    ) -> Result<(), HpackError> {
        let mut rest = block;
        let mut had_field = false;
        while let Some(&first) = rest.first() {
            match Form::of(first) {
                Form::Indexed => {
                    let index = read_integer(&mut rest, 7)?;
                    on_field(self.entry(index)?);
                }
                Form::KeptLiteral => {
                    let literal = Literal::read(&mut rest, 6)?;
                    self.keep(literal, &mut on_field)?;
                }
                Form::Literal => {
                    let literal = Literal::read(&mut rest, 4)?;
                    on_field(self.resolve(literal)?);
                }
                Form::SizeUpdate if had_field => return Err(HpackError::LateSizeUpdate),
                Form::SizeUpdate => {
                    let size = read_integer(&mut rest, 5)?;
                    if size > self.limit.min(MAX_TABLE) {
                        return Err(HpackError::TableTooLarge(size));
                    }
                    self.table.resize(size as usize);
                    continue;
                }
            }
            had_field = true;
        }
        Ok(())
    }

    /// The entry at `index` of both tables, seen as one (RFC 7541, section 2.3.3).
    fn entry(&self, index: u32) -> Result<HeaderField<'_>, HpackError> {
        let at = (index as usize).checked_sub(1).ok_or(HpackError::NoSuchEntry(0))?;
        match STATIC_TABLE.get(at) {
            Some(entry) => Ok(entry.field()),
            None => self.table.get(at - STATIC_TABLE.len()).ok_or(HpackError::NoSuchEntry(index)),
        }
    }

    fn resolve<'a>(&'a self, literal: Literal<'a>) -> Result<HeaderField<'a>, HpackError> {
        let value = literal.value;
        match literal.name {
            LiteralName::Text(raw_name) => Ok(HeaderField { name: Name::of(raw_name), raw_name, value }),
            LiteralName::Index(index) => Ok(HeaderField { value, ..self.entry(index)? }),
        }
    }

    /// Adds a literal to the dynamic table and hands it out, from the table if it fits.
    fn keep(
        &mut self,
        literal: Literal<'_>,
        on_field: &mut impl FnMut(HeaderField<'_>),
    ) -> Result<(), HpackError> {
        let value = literal.value;
        let kept = match literal.name {
            LiteralName::Text(name) => self.table.insert(Name::of(name), name, value)?,
            LiteralName::Index(index) => match STATIC_TABLE.get((index as usize).wrapping_sub(1)) {
                Some(entry) => self.table.insert_static(entry.name, entry.raw_name, value)?,
                None => {
                    let age = index as usize - STATIC_TABLE.len() - 1;
                    self.table.insert_like(age, value)?.ok_or(HpackError::NoSuchEntry(index))?
                }
            },
        };
        match self.table.newest().filter(|_| kept) {
            Some(field) => on_field(field),
            None => {
                on_field(self.resolve(literal)?);
                self.table.clear();
            }
        }
        Ok(())
    }
}

/// The forms of a field in a header block, distinguished by the first bits of its first octet (RFC 7541, section 6).
#[derive(Clone, Copy)]
enum Form {
    Indexed,
    KeptLiteral,
    Literal,
    SizeUpdate,
}

impl Form {
    fn of(first: u8) -> Self {
        match first {
            0x80.. => Self::Indexed,
            0x40.. => Self::KeptLiteral,
            0x20.. => Self::SizeUpdate,
            // Never indexed or just not indexed: the difference only matters for re-encoding.
            _ => Self::Literal,
        }
    }
}

/// A literal field as encoded in the block.
#[derive(Clone, Copy)]
struct Literal<'a> {
    name: LiteralName<'a>,
    value: Text<'a>,
}

#[derive(Clone, Copy)]
enum LiteralName<'a> {
    /// The name of an entry; never 0.
    Index(u32),
    Text(Text<'a>),
}

impl<'a> Literal<'a> {
    fn read(rest: &mut &'a [u8], prefix: u32) -> Result<Self, HpackError> {
        let name = match read_integer(rest, prefix)? {
            0 => LiteralName::Text(Text::read(rest)?),
            index => LiteralName::Index(index),
        };
        Ok(Self { name, value: Text::read(rest)? })
    }
}
