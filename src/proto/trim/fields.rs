//! Walks through an encoded message, field by field, without decoding what the fields hold. Pure.

use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};

use super::Malformed;

/// One field as it was encoded.
pub struct Field<'a> {
    /// Its number.
    pub tag: u32,
    /// All of it.
    pub bytes: &'a [u8],
    /// What it holds, where that has a length.
    pub payload: Option<&'a [u8]>,
}

impl<'a> Field<'a> {
    /// Takes the next one off; none is left of an empty rest.
    pub fn next(rest: &mut &'a [u8]) -> Result<Option<Self>, Malformed> {
        let whole = *rest;
        if whole.is_empty() {
            return Ok(None);
        }
        let (tag, wire_type) = decode_key(rest).map_err(|_| Malformed)?;
        let mut payload = None;
        match wire_type {
            WireType::Varint => drop(decode_varint(rest).map_err(|_| Malformed)?),
            WireType::SixtyFourBit => drop(take(rest, 8)?),
            WireType::ThirtyTwoBit => drop(take(rest, 4)?),
            WireType::LengthDelimited => {
                let length = decode_varint(rest).map_err(|_| Malformed)?;
                payload = Some(take(rest, length)?);
            }
            // Groups are of the past: no CRI message has any.
            WireType::StartGroup | WireType::EndGroup => return Err(Malformed),
        }
        Ok(Some(Self { tag, bytes: &whole[..whole.len() - rest.len()], payload }))
    }
}

fn take<'a>(rest: &mut &'a [u8], count: u64) -> Result<&'a [u8], Malformed> {
    let count = usize::try_from(count).map_err(|_| Malformed)?;
    let (taken, left) = rest.split_at_checked(count).ok_or(Malformed)?;
    *rest = left;
    Ok(taken)
}

/// Encodes a field that has a length.
pub fn put(out: &mut Vec<u8>, tag: u32, payload: &[u8]) {
    encode_key(tag, WireType::LengthDelimited, out);
    encode_varint(payload.len() as u64, out);
    out.extend_from_slice(payload);
}
