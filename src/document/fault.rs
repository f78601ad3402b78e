//! An error of one field: its path, a reason in Kubernetes' words, its place in the text. Never contains user text that
//! is unescaped or unbounded.

use std::fmt;

use super::Place;

/// How many characters of a wrong value are shown; the rest becomes an ellipsis.
const MAX_SHOWN: usize = 64;

/// How many errors one line lists; the others are counted.
const MAX_JOINED: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}{}{reason}", if .path.is_empty() { "" } else { ": " })]
pub(crate) struct FieldError {
    /// As Kubernetes writes it, `exec.command[1]`; empty for the whole value.
    pub path: String,
    /// What is wrong, and what to write instead if that is not obvious.
    pub reason: String,
    /// Its place; `None` for what is missing from an empty text.
    pub place: Option<Place>,
}

impl FieldError {
    /// A value that is not allowed: `Invalid value: 2: must be 1`. The value is shown as given; see [`quoted`].
    pub(crate) fn invalid(
        path: String,
        place: Option<Place>,
        value: impl fmt::Display,
        detail: &str,
    ) -> Self {
        Self { path, place, reason: format!("Invalid value: {value}: {detail}") }
    }

    /// A value that is not in a fixed set.
    pub(crate) fn unsupported(path: String, place: Option<Place>, value: &str, supported: &[&str]) -> Self {
        let supported = supported.iter().map(|one| format!("{one:?}")).collect::<Vec<_>>().join(", ");
        Self {
            path,
            place,
            reason: format!("Unsupported value: {}: supported values: {supported}", quoted(value)),
        }
    }

    /// A field that is not allowed here.
    pub(crate) fn forbidden(path: String, place: Option<Place>, detail: &str) -> Self {
        Self { path, place, reason: format!("Forbidden: {detail}") }
    }

    /// A field that is missing; `detail` may be empty.
    pub(crate) fn required(path: String, place: Option<Place>, detail: &str) -> Self {
        let colon = if detail.is_empty() { "" } else { ": " };
        Self { path, place, reason: format!("Required value{colon}{detail}") }
    }
}

/// User text for messages: in quotes, control characters escaped, truncated if long.
pub(crate) fn quoted(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}...", &text[..end]),
    }
}

/// 32 characters of an unknown key are shown.
const MAX_KEY: usize = 32;

/// An unknown key for messages: only letters, digits and `_.-` are shown, because the text may be that of quite another
/// file.
pub(crate) fn key(text: &str) -> String {
    let shown = |c: char| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '?' };
    let mut key: String = text.chars().take(MAX_KEY).map(shown).collect();
    if text.chars().nth(MAX_KEY).is_some() {
        key.push_str("...");
    }
    format!("\"{key}\"")
}

/// A message that may contain user text, with invisible characters and cursor movements escaped.
pub(crate) fn one_line(message: &str) -> String {
    let mut line = String::with_capacity(message.len());
    for c in message.chars() {
        match c {
            '\\' | '\'' | '"' => line.push(c),
            other => line.extend(other.escape_debug()),
        }
    }
    line
}

/// All errors in one line, in order; none of those that are listed twice.
pub(crate) fn joined(errors: &[FieldError]) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut rest = errors.iter();
    while texts.len() < MAX_JOINED
        && let Some(error) = rest.next()
    {
        let text = error.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    // Texts of thousands of errors take milliseconds to make.
    let omitted = rest.len();
    if omitted > 0 {
        texts.push(format!("and {omitted} more"));
    }
    texts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(path: &str, reason: &str) -> FieldError {
        FieldError { path: path.into(), reason: reason.into(), place: None }
    }

    #[test]
    fn a_users_text_is_shown_harmless_and_short() {
        for (text, shown) in [
            ("plain", r#""plain""#),
            ("a \u{1b}[2J b\n", r#""a \u{1b}[2J b\n""#),
            ("\u{202e}evil", r#""\u{202e}evil""#),
        ] {
            assert_eq!(quoted(text), shown);
        }
        assert_eq!(quoted(&"\u{e9}".repeat(65)), format!("\"{}\"...", "\u{e9}".repeat(64)));
        assert_eq!(one_line("it's \"x\" \\ \u{1b}\n\u{2028}"), "it's \"x\" \\ \\u{1b}\\n\\u{2028}");
    }

    #[test]
    fn of_an_unknown_key_little_is_shown() {
        for (text, shown) in [
            ("periodSecond", "\"periodSecond\""),
            ("root:$6$a b\n\u{e9}", "\"root??6?a?b??\""),
            ("example.com/a-b_c", "\"example.com?a-b_c\""),
        ] {
            assert_eq!(key(text), shown);
        }
        assert_eq!(key(&"k".repeat(32)), format!("\"{}\"", "k".repeat(32)));
        assert_eq!(key(&"k".repeat(33)), format!("\"{}...\"", "k".repeat(32)));
    }

    #[test]
    fn errors_join_to_one_line_that_tells_each_once_and_counts_the_rest() {
        let same = [error("a", "x"), error("a", "x"), error("", "y")];
        assert_eq!(joined(&same), "a: x; y");
        let many: Vec<_> = (0..10).map(|n| error(&n.to_string(), "x")).collect();
        assert_eq!(joined(&many), "0: x; 1: x; 2: x; 3: x; 4: x; 5: x; 6: x; 7: x; and 2 more");
    }
}
