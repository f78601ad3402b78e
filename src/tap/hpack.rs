//! Turns header blocks of one direction of an HTTP/2 connection into fields (RFC 7541), passively.
//!
//! Octets in, in fragments of any size; borrowed fields out. A block may have any length: of a string that is too long
//! for the dynamic table only the beginning is read. Never allocates for a field that arrives in one fragment and is not
//! kept in the dynamic table. Never decodes Huffman coding unless the text is requested or an entry of the table has to
//! be sized.

mod dynamic_table;
mod huffman;
mod integer;
mod name;
mod partial;
mod static_table;
#[cfg(test)]
pub(super) mod tests;
mod text;

use std::mem;

use dynamic_table::DynamicTable;
use integer::read_integer;
pub use name::Name;
use partial::Partial;
use static_table::STATIC_TABLE;
use text::Strings;
pub use text::Text;

use crate::carry::carried;

/// 64 KiB: the largest dynamic table that is kept. A peer that needs more gets [`HpackError::TableTooLarge`]; browsers
/// announce this much, gRPC stacks 4 KiB.
const MAX_TABLE: u32 = 64 * 1024;

/// 4096 octets: the size of the dynamic table before anything was announced (RFC 9113, section 6.5.2).
const DEFAULT_TABLE: u32 = 4096;

/// 12 KiB: how much is read of a string that is too long for the dynamic table. At least 3,276 octets once Huffman coding
/// is undone: the longest value that anyone asks for has 3 KiB.
///
/// With what [`Strings`] permits, a field that arrives in fragments takes at most 28 KiB where the table has the usual
/// 4 KiB, and 252 KiB where it has 64 KiB, until it is complete.
pub(super) const BEGINNING: usize = 12 * 1024;

/// Tracks the encoder of one direction of one connection.
///
/// After an error the table no longer matches the encoder's, so the decoder must not be used again.
#[derive(Debug)]
pub struct Decoder {
    table: DynamicTable,
    limit: u32,
    /// The field that the last fragment ended in.
    partial: Partial,
    /// The current block has had a field.
    had_field: bool,
    /// [`BEGINNING`], but for tests.
    beginning: usize,
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

carried! {
    enum HpackError {
        0 Truncated,
        1 IntegerOverflow,
        2 NoSuchEntry(index: u32),
        3 InvalidHuffman,
        4 LateSizeUpdate,
        5 TableTooLarge(size: u32),
    }
}

carried! { struct Decoder { table, limit, partial, had_field } fresh { beginning: BEGINNING } }

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// A decoder for a new connection.
    pub fn new() -> Self {
        Self::with_beginning(BEGINNING)
    }

    fn with_beginning(beginning: usize) -> Self {
        Self {
            table: DynamicTable::new(DEFAULT_TABLE as usize),
            limit: DEFAULT_TABLE,
            partial: Partial::default(),
            had_field: false,
            beginning,
        }
    }

    /// Records a SETTINGS_HEADER_TABLE_SIZE of the receiver of these blocks.
    ///
    /// Only the encoder knows when it applies one, so the highest that was ever announced stays allowed, and the
    /// table changes when the encoder says so.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = self.limit.max(limit);
    }

    /// Decodes the next fragment of a header block (RFC 7541, section 6), or all of it, and hands out the fields that end
    /// in it, in order. `is_end` for the last one.
    ///
    /// # Errors
    /// Fails on what RFC 7541 calls a decoding error; fields before it have been handed out by then. A faulty
    /// Huffman string fails here only if it enters the table, else when its text is asked for.
    pub fn decode(
        &mut self,
        fragment: &[u8],
        is_end: bool,
        mut on_field: impl FnMut(HeaderField<'_>),
    ) -> Result<(), HpackError> {
        let mut rest = fragment;
        while !rest.is_empty() {
            if self.partial.is_empty() {
                match self.field(&mut rest, false, &mut on_field) {
                    // The rest of the field is yet to come.
                    Err(HpackError::Truncated) if !is_end => {}
                    outcome => {
                        outcome?;
                        continue;
                    }
                }
            }
            self.resume(&mut rest, &mut on_field)?;
        }
        if is_end {
            self.had_field = false;
            if !self.partial.is_empty() {
                return Err(HpackError::Truncated);
            }
        }
        Ok(())
    }

    /// Bytes of memory in use.
    pub(super) fn memory(&self) -> usize {
        self.table.memory() + self.partial.kept()
    }

    /// Bytes of memory in use for a field that is not complete.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.partial.kept()
    }

    /// Goes on with a field that arrives in fragments.
    #[cold]
    fn resume(
        &mut self,
        rest: &mut &[u8],
        on_field: &mut impl FnMut(HeaderField<'_>),
    ) -> Result<(), HpackError> {
        if self.partial.gather(rest, self.strings(false))? {
            let mut partial = mem::take(&mut self.partial);
            self.field(&mut partial.octets(), true, on_field)?;
            partial.clear();
            self.partial = partial;
        }
        Ok(())
    }

    /// How the strings of the next field are read; `is_held` if they come from [`Partial`].
    fn strings(&self, is_held: bool) -> Strings {
        Strings::for_table(self.table.capacity(), self.beginning, is_held)
    }

    /// Takes a field off the front of `rest`, which is not empty. Changes nothing where it is truncated.
    #[inline]
    fn field(
        &mut self,
        rest: &mut &[u8],
        is_held: bool,
        on_field: &mut impl FnMut(HeaderField<'_>),
    ) -> Result<(), HpackError> {
        let mut after = *rest;
        match after.first().copied().map(Form::of) {
            None => return Err(HpackError::Truncated),
            Some(form @ Form::Indexed) => {
                let index = read_integer(&mut after, form.prefix())?;
                on_field(self.entry(index)?);
            }
            Some(form @ Form::KeptLiteral) => {
                let literal = Literal::read(&mut after, form.prefix(), self.strings(is_held))?;
                self.keep(literal, on_field)?;
            }
            Some(form @ Form::Literal) => {
                let literal = Literal::read(&mut after, form.prefix(), self.strings(is_held))?;
                on_field(self.resolve(literal)?);
            }
            Some(Form::SizeUpdate) if self.had_field => return Err(HpackError::LateSizeUpdate),
            Some(form @ Form::SizeUpdate) => {
                let size = read_integer(&mut after, form.prefix())?;
                if size > self.limit.min(MAX_TABLE) {
                    return Err(HpackError::TableTooLarge(size));
                }
                self.table.resize(size as usize);
                *rest = after;
                return Ok(());
            }
        }
        self.had_field = true;
        *rest = after;
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
            _ if literal.is_too_long => false,
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
    /// The bits of the first octet that belong to its integer.
    const fn prefix(self) -> u32 {
        match self {
            Self::Indexed => 7,
            Self::KeptLiteral => 6,
            Self::SizeUpdate => 5,
            Self::Literal => 4,
        }
    }

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
    /// Certainly longer than any entry of the table.
    is_too_long: bool,
}

#[derive(Clone, Copy)]
enum LiteralName<'a> {
    /// The name of an entry; never 0.
    Index(u32),
    Text(Text<'a>),
}

impl<'a> Literal<'a> {
    fn read(rest: &mut &'a [u8], prefix: u32, mut strings: Strings) -> Result<Self, HpackError> {
        let name = match read_integer(rest, prefix)? {
            0 => LiteralName::Text(Text::read(rest, &mut strings)?),
            index => LiteralName::Index(index),
        };
        let value = Text::read(rest, &mut strings)?;
        Ok(Self { name, value, is_too_long: strings.is_too_long() })
    }
}
