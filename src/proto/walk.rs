//! Walks an encoded message while it arrives. In: the message in pieces of any size; out: its fields, one level deep. Pure;
//! holds nothing of the message, however large it is.

use super::trim::Malformed;
use crate::carry::carried;

/// The wire types of protobuf (proto3 has no groups).
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED32: u64 = 5;

/// What a message contains next, with the number of its field. The last one counts where a field comes twice, as
/// everywhere in protobuf.
#[derive(Debug, PartialEq, Eq)]
pub enum FieldPart<'a> {
    /// A number.
    Number(u64, u64),
    /// A value of four or eight bytes, which is not read.
    Fixed(u64),
    /// A value of so many bytes begins.
    Begins(u64, u64),
    /// The next bytes of the value that began.
    Bytes(u64, &'a [u8]),
}

/// A message as far as it was read.
#[derive(Debug, Default)]
pub struct FieldWalker {
    place: Place,
    /// The varint that is being read, and how many bits of it are there.
    varint: u64,
    shift: u32,
}

carried! { struct FieldWalker { place, varint, shift } if is_sound }

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// The number and the wire type of a field.
    #[default]
    Key,
    /// The value of a varint field.
    Value { field: u64 },
    /// The length of a length-delimited field.
    Length { field: u64 },
    /// That many bytes of a field; of none if its size is fixed.
    Bytes { of: Option<u64>, left: u64 },
    /// Not a protobuf message that we can walk.
    Lost,
}

carried! {
    enum Place {
        0 Key,
        1 Value { field: u64 },
        2 Length { field: u64 },
        3 Bytes { of: Option<u64>, left: u64 },
        4 Lost,
    }
}

impl FieldWalker {
    /// Takes the next piece of the message, and hands out what it contains.
    ///
    /// # Errors
    /// The message is malformed; then so is all that follows.
    pub fn feed(&mut self, mut bytes: &[u8], mut out: impl FnMut(FieldPart<'_>)) -> Result<(), Malformed> {
        while let Some((&byte, rest)) = bytes.split_first() {
            match self.place {
                Place::Lost => return Err(Malformed),
                Place::Bytes { of, left } => {
                    let count = left.min(bytes.len() as u64);
                    let (taken, rest) = bytes.split_at(count as usize);
                    bytes = rest;
                    self.place = Place::of_bytes(of, left - count);
                    if let Some(field) = of {
                        out(FieldPart::Bytes(field, taken));
                    }
                }
                Place::Key | Place::Value { .. } | Place::Length { .. } => {
                    bytes = rest;
                    self.take_varint_byte(byte, &mut out);
                }
            }
        }
        if self.place == Place::Lost { Err(Malformed) } else { Ok(()) }
    }

    /// Whether the message may end here.
    pub fn is_between_fields(&self) -> bool {
        self.place == Place::Key && self.shift == 0
    }

    fn is_sound(&self) -> bool {
        self.shift <= 63 && self.shift.is_multiple_of(7)
    }

    fn take_varint_byte(&mut self, byte: u8, out: &mut impl FnMut(FieldPart<'_>)) {
        // 64 bits end in the tenth byte.
        if self.shift == 63 && byte > 1 {
            self.place = Place::Lost;
            return;
        }
        self.varint |= u64::from(byte & 0x7f) << self.shift;
        self.shift += 7;
        if byte & 0x80 == 0 {
            let value = std::mem::take(&mut self.varint);
            self.shift = 0;
            self.place = self.after_varint(value, out);
        }
    }

    fn after_varint(&self, value: u64, out: &mut impl FnMut(FieldPart<'_>)) -> Place {
        match self.place {
            Place::Key => {
                let field = value >> 3;
                match value & 7 {
                    _ if field == 0 || value > u64::from(u32::MAX) => Place::Lost,
                    VARINT => Place::Value { field },
                    LENGTH => Place::Length { field },
                    kind @ (FIXED64 | FIXED32) => {
                        out(FieldPart::Fixed(field));
                        Place::of_bytes(None, if kind == FIXED64 { 8 } else { 4 })
                    }
                    _ => Place::Lost,
                }
            }
            Place::Value { field } => {
                out(FieldPart::Number(field, value));
                Place::Key
            }
            Place::Length { field } => {
                out(FieldPart::Begins(field, value));
                Place::of_bytes(Some(field), value)
            }
            Place::Bytes { .. } | Place::Lost => Place::Lost,
        }
    }
}

impl Place {
    /// Before so many bytes of a field.
    fn of_bytes(of: Option<u64>, left: u64) -> Self {
        if left == 0 { Self::Key } else { Self::Bytes { of, left } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carry::tests::carried_over;

    #[test]
    fn a_varint_that_has_more_bits_than_there_are_is_not_taken_over() {
        for (shift, is_taken) in [(0, true), (63, true), (62, false), (70, false)] {
            let walker = FieldWalker { shift, ..FieldWalker::default() };
            assert_eq!(carried_over(&walker).is_ok(), is_taken, "{shift}");
        }
    }
}
