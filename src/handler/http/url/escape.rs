//! Percent-escapes by the part of a URL that they stand in, as Go's `net/url` has them. Pure.

use super::Problem;

/// The part of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Between host and query.
    Path,
    /// Host and port.
    Host,
    /// What follows the `%25` of an IPv6 address.
    Zone,
    /// Name or password.
    User,
    /// After the `#`.
    Fragment,
}

/// Escapes what may not stand in that part.
pub(super) fn escape(bytes: &[u8], part: Part) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(bytes.len());
    for &byte in bytes {
        if is_escaped(byte, part) {
            let digit = |value: u8| b"0123456789ABCDEF"[usize::from(value)];
            escaped.extend([b'%', digit(byte >> 4), digit(byte & 0xf)]);
        } else {
            escaped.push(byte);
        }
    }
    escaped
}

/// Undoes escapes.
///
/// # Errors
/// A `%` without two hexadecimal digits; in a host, an escape of ASCII other than `%25`, or a byte that no host holds.
pub(super) fn unescape(bytes: &[u8], part: Part) -> Result<Vec<u8>, Problem> {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&byte, tail)) = rest.split_first() {
        if byte == b'%' {
            let escaped =
                escaped_byte(tail).ok_or_else(|| Problem::Escape(rest[..rest.len().min(3)].into()))?;
            if !is_escape_allowed(escaped, part) {
                return Err(Problem::Escape(rest[..3].into()));
            }
            plain.push(escaped);
            rest = &rest[3..];
        } else {
            if matches!(part, Part::Host | Part::Zone) && byte.is_ascii() && is_escaped(byte, part) {
                return Err(Problem::HostByte(byte));
            }
            plain.push(byte);
            rest = tail;
        }
    }
    Ok(plain)
}

/// A path or fragment as it goes on: as written if its escapes are fitting, else escaped again.
///
/// # Errors
/// As [`unescape`].
pub(super) fn kept(bytes: &[u8], part: Part) -> Result<Vec<u8>, Problem> {
    let plain = unescape(bytes, part)?;
    let is_fitting = |byte: u8| b"!$&'()*+,;=:@[]%".contains(&byte) || !is_escaped(byte, part);
    if bytes.iter().copied().all(is_fitting) { Ok(bytes.to_vec()) } else { Ok(escape(&plain, part)) }
}

/// The byte that two hexadecimal digits at the beginning of `tail` encode.
fn escaped_byte(tail: &[u8]) -> Option<u8> {
    let digit = |at: usize| tail.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

/// In a host only what is not ASCII may be escaped, and the `%` before a zone; in a zone also what a host holds.
fn is_escape_allowed(byte: u8, part: Part) -> bool {
    match part {
        Part::Host => !byte.is_ascii() || byte == b'%',
        Part::Zone => byte == b'%' || byte == b' ' || !is_escaped(byte, Part::Host),
        Part::Path | Part::User | Part::Fragment => true,
    }
}

/// RFC 3986, section 2.3 and the sections on each part.
fn is_escaped(byte: u8, part: Part) -> bool {
    if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
        return false;
    }
    let unescaped: &[u8] = match part {
        Part::Path => b"$&+,/:;=@",
        Part::Host | Part::Zone => b"!$&'()*+,;=:[]<>\"",
        Part::User => b"$&+,;=",
        Part::Fragment => b"$&+,/:;=?@!()*",
    };
    !unescaped.contains(&byte)
}
