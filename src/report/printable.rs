//! Makes text from containers safe to show: characters that would control a terminal or reorder a line are escaped.

use std::borrow::Cow;

/// The text with every control and every invisible steering character escaped: `\n`, `\t`, `\u{1b}`.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_steering) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_steering(character) {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

/// JSON that says the same, with such characters as its escapes: only within strings can they be. Line breaks stay.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    let is_escaped = |character: char| character != '\n' && is_steering(character);
    if !json.contains(is_escaped) {
        return Cow::Borrowed(json);
    }
    let mut shown = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        if is_escaped(character) {
            let mut units = [0; 2];
            shown.extend(character.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

/// Whether a character acts on what shows it: C0, DEL and C1 controls, line and paragraph separators,
/// bidirectional marks and overrides (Unicode TR 36), zero-width and tag characters.
pub fn is_steering(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_steers_a_terminal_is_shown() {
        for (text, shown) in [
            ("plain, über 漢字 🙂 \\n", "plain, über 漢字 🙂 \\n"),
            ("a\nb\r\n\tc", r"a\nb\r\n\tc"),
            ("\u{1b}[2J\u{1b}]0;title\u{7}", r"\u{1b}[2J\u{1b}]0;title\u{7}"),
            ("\u{9b}31m\u{7f}\0", r"\u{9b}31m\u{7f}\u{0}"),
            ("abc\u{202e}fed\u{2066}", r"abc\u{202e}fed\u{2066}"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }

    proptest! {
        #[test]
        fn nothing_that_steers_is_left(text in any::<String>()) {
            prop_assert!(!printable(&text).contains(is_steering));
        }
    }
}
