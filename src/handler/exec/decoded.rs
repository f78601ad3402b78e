//! A message of the runtime as it was before someone quoted it: a text in, bytes that know where in the text they come
//! from out. Reads the escapes of Go's `%q` and of JSON, one layer at a time. Pure; never longer than the message.

use std::ops::Range;

/// Replaces what is not UTF-8, as in Go's JSON. Several in a row are one here: decoders differ in how many they write.
const REPLACEMENT: &str = "\u{fffd}";

/// Bytes of a message, each with the range of the message that encodes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Decoded {
    bytes: Vec<u8>,
    from: Vec<Range<usize>>,
}

impl Decoded {
    /// The message as it came. Each range holds whole characters.
    pub(super) fn plain(message: &str) -> Self {
        let mut decoded = Self::with_room(message.len());
        for (at, letter) in message.char_indices() {
            let mut octets = [0; 4];
            let range = at..at + letter.len_utf8();
            decoded.push_letter(letter.encode_utf8(&mut octets), |_| range.clone());
        }
        decoded
    }

    /// The same with one layer of escapes resolved; none where there is no escape.
    pub(super) fn unescaped(&self) -> Option<Self> {
        if !self.bytes.contains(&b'\\') {
            return None;
        }
        let mut raw = Self::with_room(self.bytes.len());
        let mut at = 0;
        while at < self.bytes.len() {
            match Escape::read(&self.bytes[at..]) {
                Escape::None => {
                    raw.push(self.bytes[at], self.from[at].clone());
                    at += 1;
                }
                // Half an escape where the message was cut belongs to what is before it.
                Escape::Cut { length } => {
                    let end = self.from[at + length - 1].end;
                    if let Some(last) = raw.from.last_mut() {
                        last.end = end;
                    }
                    at += length;
                }
                Escape::Bytes { octets, many, length } => {
                    let range = self.from[at].start..self.from[at + length - 1].end;
                    octets[..many].iter().for_each(|octet| raw.push(*octet, range.clone()));
                    at += length;
                }
            }
        }
        (raw.bytes != self.bytes).then(|| raw.as_utf8())
    }

    /// What is no UTF-8, replaced.
    fn as_utf8(&self) -> Self {
        let mut decoded = Self::with_room(self.bytes.len());
        let mut at = 0;
        for chunk in self.bytes.utf8_chunks() {
            for letter in chunk.valid().chars() {
                let mut octets = [0; 4];
                decoded.push_letter(letter.encode_utf8(&mut octets), |n| self.from[at + n].clone());
                at += letter.len_utf8();
            }
            let invalid = chunk.invalid().len();
            if invalid > 0 {
                let range = self.from[at].start..self.from[at + invalid - 1].end;
                decoded.push_letter(REPLACEMENT, |_| range.clone());
                at += invalid;
            }
        }
        decoded
    }

    fn with_room(length: usize) -> Self {
        Self { bytes: Vec::with_capacity(length), from: Vec::with_capacity(length) }
    }

    fn push(&mut self, octet: u8, from: Range<usize>) {
        self.bytes.push(octet);
        self.from.push(from);
    }

    /// Adds a character, each of its bytes with its range.
    fn push_letter(&mut self, letter: &str, from: impl Fn(usize) -> Range<usize>) {
        if letter == REPLACEMENT && self.bytes.ends_with(REPLACEMENT.as_bytes()) {
            let (end, length) = (from(letter.len() - 1).end, self.from.len());
            self.from[length - letter.len()..].iter_mut().for_each(|range| range.end = end);
            return;
        }
        letter.bytes().enumerate().for_each(|(n, octet)| self.push(octet, from(n)));
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where in the message some of its bytes come from.
    pub(super) fn source(&self, of: Range<usize>) -> Range<usize> {
        self.from[of.start].start..self.from[of.end - 1].end
    }
}

/// A value in the same form.
pub(super) fn normal(value: &str) -> String {
    if !value.contains(REPLACEMENT) {
        return value.to_owned();
    }
    String::from_utf8(Decoded::plain(value).bytes).unwrap_or_default()
}

/// Whether a message was cut here: it ends, or dots replace the rest.
pub(super) fn is_cut(rest: &[u8]) -> bool {
    rest.is_empty() || rest.starts_with(b"...") || rest.starts_with("\u{2026}".as_bytes())
}

/// What is at the beginning of a text.
enum Escape {
    /// Itself.
    None,
    /// The beginning of an escape that was cut.
    Cut { length: usize },
    /// The first `many` of these, as so many bytes of the text.
    Bytes { octets: [u8; 4], many: usize, length: usize },
}

impl Escape {
    fn read(text: &[u8]) -> Self {
        let Some((b'\\', after)) = text.split_first() else { return Self::None };
        let Some((kind, digits)) = after.split_first() else { return Self::Cut { length: 1 } };
        let one = |octet: u8| Self::Bytes { octets: [octet, 0, 0, 0], many: 1, length: 2 };
        match kind {
            b'\\' | b'"' | b'\'' | b'/' => one(*kind),
            b'a' => one(0x07),
            b'b' => one(0x08),
            b'f' => one(0x0c),
            b'n' => one(b'\n'),
            b'r' => one(b'\r'),
            b't' => one(b'\t'),
            b'v' => one(0x0b),
            b'x' => Self::number(digits, 2, 16, 2),
            b'u' => Self::number(digits, 4, 16, 2),
            b'U' => Self::number(digits, 8, 16, 2),
            b'0'..=b'7' => Self::number(after, 3, 8, 1),
            _ if is_cut(after) => Self::Cut { length: 1 },
            _ => Self::None,
        }
    }

    /// So many digits behind so many bytes: a byte where they are two or three, else a character.
    fn number(digits: &[u8], many: usize, radix: u32, before: usize) -> Self {
        let found = digits.iter().take(many).take_while(|digit| char::from(**digit).is_digit(radix)).count();
        if found < many {
            return if is_cut(&digits[found..]) { Self::Cut { length: before + found } } else { Self::None };
        }
        let Some(number) = value(&digits[..many], radix) else { return Self::None };
        let length = before + many;
        if many < 4 {
            let Ok(octet) = u8::try_from(number) else { return Self::None };
            return Self::Bytes { octets: [octet, 0, 0, 0], many: 1, length };
        }
        let low = || {
            let rest = digits[many..].strip_prefix(b"\\u")?;
            let low = value(rest.get(..4)?, 16)?;
            (0xdc00..0xe000).contains(&low).then_some(low)
        };
        let (number, length) = match number {
            0xd800..0xdc00 => match low() {
                Some(low) => (0x1_0000 + ((number - 0xd800) << 10) + (low - 0xdc00), length + 6),
                None => (number, length),
            },
            _ => (number, length),
        };
        let mut octets = [0; 4];
        let letter = char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER);
        let many = letter.encode_utf8(&mut octets).len();
        Self::Bytes { octets, many, length }
    }
}

/// What digits spell.
fn value(digits: &[u8], radix: u32) -> Option<u32> {
    let digits = std::str::from_utf8(digits).ok()?;
    u32::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(decoded: &Decoded) -> &str {
        std::str::from_utf8(&decoded.bytes).unwrap()
    }

    #[test]
    fn escapes_of_go_and_of_json_are_read_a_layer_at_a_time() {
        for (message, layers) in [
            ("plain", vec![]),
            (r#"\"a\\n\""#, vec!["\"a\\n\"", "\"a\n\""]),
            (r"\a\b\f\n\r\t\v\/\'", vec!["\u{7}\u{8}\u{c}\n\r\t\u{b}/'"]),
            (r"\x00\u200d\U0001f600\101", vec!["\0\u{200d}\u{1f600}A"]),
            (r"\xc3\xb6 \xff\xfe \ufffd\ufffd", vec!["\u{f6} \u{fffd} \u{fffd}"]),
            (r"\u003c\ud83d\ude00\ud83d.", vec!["<\u{1f600}\u{fffd}."]),
            (r"\q \x0g \u12 \U00110000", vec!["\\q \\x0g \\u12 \u{fffd}"]),
            (r"ab\", vec!["ab"]),
            (r"ab\u20", vec!["ab"]),
            (r"ab\x4...", vec!["ab..."]),
        ] {
            let mut decoded = Decoded::plain(message);
            for layer in layers {
                decoded = decoded.unescaped().unwrap();
                assert_eq!(text(&decoded), layer, "{message}");
            }
            assert_eq!(decoded.unescaped(), None, "{message}");
        }
    }

    #[test]
    fn what_was_escaped_is_found_in_the_message() {
        let message = r"é\u00e9\\n!\u20";
        let once = Decoded::plain(message).unescaped().unwrap();
        assert_eq!(text(&once), "éé\\n!");
        let twice = once.unescaped().unwrap();
        assert_eq!(text(&twice), "éé\n!");
        assert_eq!(&message[twice.source(2..4)], r"\u00e9");
        assert_eq!(&message[twice.source(4..5)], r"\\n");
        assert_eq!(&message[twice.source(5..6)], r"!\u20", "what was cut belongs to it");
        assert_eq!(&message[Decoded::plain(message).source(1..2)], "é", "no half of a character");
    }

    proptest! {
        #[test]
        fn every_layer_is_utf8_and_lies_within_the_message(
            message in prop_oneof![any::<String>(), r#"[\\xuU0-7a-f"é\u{fffd}.]{0,40}"#],
        ) {
            let mut layer = Some(Decoded::plain(&message));
            while let Some(decoded) = layer {
                prop_assert!(std::str::from_utf8(&decoded.bytes).is_ok());
                prop_assert_eq!(decoded.bytes.len(), decoded.from.len());
                for at in 0..decoded.bytes.len() {
                    prop_assert!(message.get(decoded.source(at..at + 1)).is_some());
                }
                layer = decoded.unescaped();
            }
        }
    }
}
