//! Collects a field that arrives in several fragments of a header block. In: octets in pieces of any size. Out: the
//! field as one string of octets, without the middle and end of long strings. The work is proportional to the octets
//! that come, however small the pieces are.

use super::{Form, HpackError, Strings, integer::read_integer};
use crate::carry::carried;

/// 4 KiB: the buffer that is kept between fields; more is freed.
const KEPT_CAPACITY: usize = 4096;

/// The beginning of a field; empty between fields.
#[derive(Debug, Default)]
pub(super) struct Partial {
    octets: Vec<u8>,
    /// Octets to add before the field is looked at again.
    missing: usize,
    /// Octets to leave out after those.
    left_out: usize,
    /// How often a field was looked at.
    #[cfg(test)]
    pub(super) looks: usize,
}

carried! { struct Partial { octets, missing, left_out } fresh { #[cfg(test)] looks: 0 } }

/// What the beginning of a field needs next.
struct Missing {
    octets: usize,
    /// The rest of a long string, which follows those.
    left_out: usize,
}

impl Missing {
    /// An integer goes on.
    const OCTET: Self = Self { octets: 1, left_out: 0 };
}

impl Partial {
    pub(super) fn is_empty(&self) -> bool {
        self.octets.is_empty()
    }

    /// The octets of the field, without the rest of long strings.
    pub(super) fn octets(&self) -> &[u8] {
        &self.octets
    }

    /// Takes octets off the front of `rest` until the field is complete; says whether it is.
    ///
    /// # Errors
    /// An integer is out of range.
    pub(super) fn gather(&mut self, rest: &mut &[u8], strings: Strings) -> Result<bool, HpackError> {
        loop {
            let added = take(rest, self.missing);
            self.octets.extend_from_slice(added);
            self.missing -= added.len();
            if self.missing > 0 {
                return Ok(false);
            }
            self.left_out -= take(rest, self.left_out).len();
            if self.left_out > 0 {
                return Ok(false);
            }
            #[cfg(test)]
            {
                self.looks += 1;
            }
            let Some(Missing { octets, left_out }) = missing(&self.octets, strings)? else { return Ok(true) };
            // Bounded by the caller's bounds on strings.
            self.octets.reserve_exact(octets);
            (self.missing, self.left_out) = (octets, left_out);
        }
    }

    /// Ready for the next field.
    pub(super) fn clear(&mut self) {
        self.octets.clear();
        self.octets.shrink_to(KEPT_CAPACITY);
    }

    /// Bytes of memory in use.
    pub(super) fn kept(&self) -> usize {
        self.octets.capacity()
    }
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, after) = rest.split_at(count.min(rest.len()));
    *rest = after;
    taken
}

/// What `field` needs next; none if it is complete. Looks at its integers only.
fn missing(field: &[u8], mut strings: Strings) -> Result<Option<Missing>, HpackError> {
    let Some(&first) = field.first() else { return Ok(Some(Missing::OCTET)) };
    let mut rest = field;
    let form = Form::of(first);
    let index = match read_integer(&mut rest, form.prefix()) {
        Err(HpackError::Truncated) => return Ok(Some(Missing::OCTET)),
        index => index?,
    };
    let count = match form {
        Form::KeptLiteral | Form::Literal if index == 0 => 2,
        Form::KeptLiteral | Form::Literal => 1,
        Form::Indexed | Form::SizeUpdate => 0,
    };
    for _ in 0..count {
        let length = match read_integer(&mut rest, 7) {
            Err(HpackError::Truncated) => return Ok(Some(Missing::OCTET)),
            length => length? as usize,
        };
        let kept = strings.keep(length);
        match rest.split_at_checked(kept) {
            Some((_, after)) => rest = after,
            None => return Ok(Some(Missing { octets: kept - rest.len(), left_out: length - kept })),
        }
    }
    Ok(None)
}
