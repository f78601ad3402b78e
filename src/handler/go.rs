//! Formats values like Go, for texts that users know from the kubelet: durations, codes, system errors. Pure.

use std::{io, time::Duration};

use super::OUTPUT_LIMIT;
use crate::duration::GoDuration;

/// A duration as Go's `Duration.String`: `1s`, `1m30s`, `1.5s`, `250ms`.
pub(crate) fn duration(of: Duration) -> String {
    GoDuration(of).to_string()
}

/// A gRPC code as Go names it.
pub(crate) fn code(of: tonic::Code) -> &'static str {
    use tonic::Code;
    match of {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

/// A system error as Go prints an errno: the system's own words in lower case, without its number.
pub(crate) fn system_error(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

/// A text in quotes, as Go's `%q` prints it: what cannot be printed is escaped, and so is what is no UTF-8. Of a text
/// that is longer than any output only so much is read: escapes would make four times as much of it, to be cut off.
pub(crate) fn quoted(text: &[u8]) -> String {
    let text = &text[..text.len().min(OUTPUT_LIMIT)];
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for chunk in text.utf8_chunks() {
        chunk.valid().chars().for_each(|letter| quote(letter, &mut quoted));
        for byte in chunk.invalid() {
            quoted.push_str(&format!("\\x{byte:02x}"));
        }
    }
    quoted.push('"');
    quoted
}

fn quote(letter: char, into: &mut String) {
    let named = [
        ('\u{7}', 'a'),
        ('\u{8}', 'b'),
        ('\u{c}', 'f'),
        ('\n', 'n'),
        ('\r', 'r'),
        ('\t', 't'),
        ('\u{b}', 'v'),
    ];
    let code = u32::from(letter);
    if let Some((_, name)) = named.iter().find(|(named, _)| *named == letter) {
        into.extend(['\\', *name]);
    } else if matches!(letter, '"' | '\\') {
        into.extend(['\\', letter]);
    } else if letter.is_ascii_control() {
        into.push_str(&format!("\\x{code:02x}"));
    } else if letter == ' ' || !letter.is_control() && !letter.is_whitespace() {
        into.push(letter);
    } else if code > 0xffff {
        into.push_str(&format!("\\U{code:08x}"));
    } else {
        into.push_str(&format!("\\u{code:04x}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_system_errors_print_as_in_go() {
        assert_eq!(code(tonic::Code::NotFound), "NotFound");
        assert_eq!(code(tonic::Code::Cancelled), "Canceled");
        let refused = io::Error::from_raw_os_error(rustix::io::Errno::CONNREFUSED.raw_os_error());
        assert_eq!(system_error(&refused), "connection refused");
    }

    #[test]
    fn texts_are_quoted_as_by_gos_percent_q() {
        let rows: [(&[u8], &str); 6] = [
            (b"a b", r#""a b""#),
            (b"\"\\", r#""\"\\""#),
            (b"\x00\x07\n\x7f", r#""\x00\a\n\x7f""#),
            (b"\x15\x03\x01\xff", r#""\x15\x03\x01\xff""#),
            ("ü\u{85}\u{a0}".as_bytes(), r#""ü\u0085\u00a0""#),
            (b"", r#""""#),
        ];
        for (text, expected) in rows {
            assert_eq!(quoted(text), expected);
        }
    }
}
