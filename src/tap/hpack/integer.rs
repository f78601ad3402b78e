//! Reads HPACK's integers (RFC 7541, section 5.1). Never reads past the block, never beyond 32 bits.

use super::HpackError;

/// Takes an integer whose first octet ends in `prefix` bits of it (1 to 8) off the front of `rest`.
///
/// # Errors
/// Fails when the block ends within the integer, or when it does not fit 32 bits or takes more octets than a
/// 32-bit integer needs.
pub(super) fn read_integer(rest: &mut &[u8], prefix: u32) -> Result<u32, HpackError> {
    let (&first, mut tail) = rest.split_first().ok_or(HpackError::Truncated)?;
    let mask = u8::MAX >> (8 - prefix);
    let mut value = u32::from(first & mask);
    if first & mask == mask {
        let mut shift = 0;
        loop {
            let (&octet, after) = tail.split_first().ok_or(HpackError::Truncated)?;
            tail = after;
            let more = u64::from(octet & 0x7f) << shift;
            value = u32::try_from(u64::from(value) + more).map_err(|_| HpackError::IntegerOverflow)?;
            if octet & 0x80 == 0 {
                break;
            }
            shift += 7;
            if shift > 28 {
                return Err(HpackError::IntegerOverflow);
            }
        }
    }
    *rest = tail;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_read_as_rfc_7541_appendix_c1_says() {
        let rows: &[(&str, &[u8], u32, u32)] = &[
            ("C.1.1: 10 in a 5-bit prefix", &[0b1110_1010], 5, 10),
            ("C.1.2: 1337 in a 5-bit prefix", &[0b0001_1111, 0b1001_1010, 0b0000_1010], 5, 1337),
            ("C.1.3: 42 on an octet boundary", &[0b0010_1010], 8, 42),
            ("a prefix full of ones goes on, if by zero", &[0x7f, 0x00], 7, 127),
            ("padding octets are allowed while they are few", &[0x7f, 0x80, 0x80, 0x00], 7, 127),
            ("the highest value is 2^32 - 1", &[0xff, 0x80, 0xfe, 0xff, 0xff, 0x0f], 8, u32::MAX),
        ];
        for (rule, octets, prefix, value) in rows {
            let mut rest = *octets;
            assert_eq!(read_integer(&mut rest, *prefix), Ok(*value), "{rule}");
            assert!(rest.is_empty(), "{rule}");
        }
    }

    #[test]
    fn integers_stay_within_the_block_and_32_bits() {
        let rows: &[(&str, &[u8], HpackError)] = &[
            ("nothing at all", &[], HpackError::Truncated),
            ("the end after a full prefix", &[0x7f], HpackError::Truncated),
            ("the end after a continued octet", &[0x7f, 0xff], HpackError::Truncated),
            ("2^32", &[0x7f, 0x81, 0xff, 0xff, 0xff, 0x0f], HpackError::IntegerOverflow),
            ("bits above the 32nd", &[0x7f, 0xff, 0xff, 0xff, 0xff, 0x7f], HpackError::IntegerOverflow),
            ("zeros without end", &[0x7f, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00], HpackError::IntegerOverflow),
        ];
        for (rule, octets, error) in rows {
            assert_eq!(read_integer(&mut &octets[..], 7), Err(*error), "{rule}");
        }
    }
}
