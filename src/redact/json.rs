//! Redacts JSON while it is written, whatever it describes: pieces in, pieces out. Names and the words of closed sets stay;
//! every other text is searched, so a field that is added is redacted without a change here. Pure.
//!
//! Plain --quote--> Text --quote--> Ended --colon--> Plain (it was a key)   Plain --[ after "command"--> Words --]--> Plain
//!                                       --other--> Plain (it was a value)

use std::borrow::Cow;

use super::{MASK, Patterns};

/// 256 KiB of one text, or of one command, as it is written: the longest that there are take a fraction. A longer one is
/// replaced.
const MAX_HELD: usize = 256 << 10;

/// The key of a list of words that is a command.
const COMMAND: &[u8] = b"\"command\"";

/// Keys whose values are no free text: names and ids of Kubernetes and the runtime, words of closed sets, and versions. So are
/// keys that end with `At`, `Id` or `Uid`, and `at` itself. A pattern must not make what is named unreachable.
const NAMES: &[&str] = &[
    "at",
    "code",
    "comm",
    "container",
    "definition",
    "end",
    "from",
    "handler",
    "id",
    "image",
    "key",
    "level",
    "likelyType",
    "method",
    "name",
    "namespace",
    "phase",
    "pod",
    "probe",
    "result",
    "service",
    "since",
    "state",
    "step",
    "timestamp",
    "successor",
    "to",
    "traceparent",
    "type",
    "version",
];

/// Searches texts, as JSON has them: in quotes, or a list of words in brackets.
pub(crate) trait Search {
    /// Adds a text as it may be shown.
    fn show(&mut self, text: &[u8], out: &mut Vec<u8>);
}

impl Search for &Patterns {
    fn show(&mut self, text: &[u8], out: &mut Vec<u8>) {
        if text.first() == Some(&b'[') {
            let words = serde_json::from_slice::<Vec<String>>(text);
            return put_words(&words.map_or_else(|_| vec![MASK.to_owned()], |words| self.words(&words)), out);
        }
        match serde_json::from_slice::<Cow<'_, str>>(text).map(|value| {
            let shown = self.text(&value);
            (shown != value).then(|| shown.into_owned())
        }) {
            Ok(None) => out.extend_from_slice(text),
            Ok(Some(shown)) => put(&shown, out),
            Err(_) => put(MASK, out),
        }
    }
}

/// JSON as far as it was read. The patterns may change between two pieces.
#[derive(Debug, Default)]
pub(crate) struct JsonRedactor {
    state: State,
    /// A text, or a list of words, as far as it has come: with its quote or bracket.
    held: Vec<u8>,
    /// It was longer than what is held.
    is_cut: bool,
    /// The key of the values that come.
    key: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Between texts.
    #[default]
    Plain,
    /// Within a text; `true` behind a backslash.
    Text(bool),
    /// A text has ended: what comes next says whether it is a key.
    Ended,
    /// In a list that began right after the key of a command; within a text of it, and there behind a backslash.
    Words(bool, bool),
}

impl JsonRedactor {
    /// Takes the next piece, and adds what of it may be shown. What is not yet known is held back.
    pub(crate) fn feed(&mut self, mut search: impl Search, piece: &[u8], out: &mut Vec<u8>) {
        for &byte in piece {
            match self.state {
                State::Plain => self.plain(byte, out),
                State::Text(is_escaped) => {
                    self.hold(byte);
                    self.state = match byte {
                        _ if is_escaped => State::Text(false),
                        b'\\' => State::Text(true),
                        b'"' => State::Ended,
                        _ => State::Text(false),
                    };
                }
                State::Ended if byte.is_ascii_whitespace() => self.hold(byte),
                State::Ended => {
                    self.end_text(&mut search, byte == b':', out);
                    self.plain(byte, out);
                }
                State::Words(is_text, is_escaped) => {
                    self.hold(byte);
                    self.state = match byte {
                        _ if is_escaped => State::Words(true, false),
                        b'\\' if is_text => State::Words(true, true),
                        b'"' => State::Words(!is_text, false),
                        b']' if !is_text => {
                            self.end_words(&mut search, out);
                            State::Plain
                        }
                        _ => State::Words(is_text, false),
                    };
                }
            }
        }
    }

    /// Whether nothing is held back. What passes without it must be whole texts.
    pub(crate) fn is_plain(&self) -> bool {
        self.state == State::Plain
    }

    /// The end of the JSON. What has no end is not shown.
    pub(crate) fn finish(&mut self, mut search: impl Search, out: &mut Vec<u8>) {
        if self.state == State::Ended {
            self.end_text(&mut search, false, out);
        }
        *self = Self::default();
    }

    fn plain(&mut self, byte: u8, out: &mut Vec<u8>) {
        self.state = match byte {
            b'"' => State::Text(false),
            b'[' if self.key == COMMAND => State::Words(false, false),
            _ => {
                out.push(byte);
                return;
            }
        };
        self.hold(byte);
    }

    fn hold(&mut self, byte: u8) {
        if self.held.len() < MAX_HELD {
            self.held.push(byte);
        } else {
            self.is_cut = true;
        }
    }

    fn end_text(&mut self, search: &mut impl Search, is_key: bool, out: &mut Vec<u8>) {
        let text = self.held.trim_ascii_end();
        if is_key {
            self.key.clear();
            self.key.extend_from_slice(text);
            out.extend_from_slice(text);
        } else if self.is_cut {
            put(MASK, out);
        } else if is_name(&self.key) {
            out.extend_from_slice(text);
        } else {
            search.show(text, out);
        }
        self.held.clear();
        (self.is_cut, self.state) = (false, State::Plain);
    }

    fn end_words(&mut self, search: &mut impl Search, out: &mut Vec<u8>) {
        match self.is_cut {
            true => put_words(&[MASK.to_owned()], out),
            false => search.show(&self.held, out),
        }
        self.held.clear();
        self.key.clear();
        self.is_cut = false;
    }
}

fn put_words(words: &[String], out: &mut Vec<u8>) {
    serde_json::to_writer(out, words).expect("texts can be written to memory");
}

fn put(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("a text can be written to memory");
}

/// Whether the values of a key, in quotes, are no free text.
fn is_name(key: &[u8]) -> bool {
    let Some(key) = key.strip_prefix(b"\"").and_then(|key| key.strip_suffix(b"\"")) else { return false };
    NAMES.iter().any(|name| name.as_bytes() == key)
        || [&b"At"[..], b"Id", b"Uid"].iter().any(|suffix| key.ends_with(suffix))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::tests::patterns, *};

    fn redacted(found: &[&str], text: &str, piece: usize) -> String {
        let (mut redactor, mut out, patterns) = (JsonRedactor::default(), Vec::new(), patterns(found));
        text.as_bytes().chunks(piece).for_each(|piece| redactor.feed(&patterns, piece, &mut out));
        redactor.finish(&patterns, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn texts_and_commands_are_redacted_and_names_are_not_in_any_pieces() {
        let found = [r"--password[= ](\S+)", "s3cr\"3t"];
        for (text, shown) in [
            (
                r#"{"pod":"a s3cr\"3t","command":["x","--password","y\"z"],"output":"a s3cr\"3t b"}"#,
                r#"{"pod":"a s3cr\"3t","command":["x","--password","***"],"output":"a *** b"}"#,
            ),
            (
                r#"{"exec":{"command":[]},"n":[1,"s3cr\"3t",null],"podUid":"s3cr\"3t","k" : "s3cr\"3t" }"#,
                r#"{"exec":{"command":[]},"n":[1,"***",null],"podUid":"s3cr\"3t","k": "***"}"#,
            ),
            (r#"{"s3cr\"3t":1,"command":[[1]]}"#, r#"{"s3cr\"3t":1,"command":["***"]]}"#),
            (r#"["s3cr\"3t"]"#, r#"["***"]"#),
            ("\"--password=\\u0078\"", "\"--password=***\""),
            ("event: row\ndata: {\"a\":\"s3cr\\\"3t\"}\n\n", "event: row\ndata: {\"a\":\"***\"}\n\n"),
            ("true", "true"),
            (r#"{"a":"never ends s3cr"#, r#"{"a":"#),
        ] {
            for piece in [1, 2, 7, 1000] {
                assert_eq!(redacted(&found, text, piece), shown, "{piece}");
            }
        }
    }

    #[test]
    fn what_is_too_long_to_be_held_is_not_shown() {
        let [a, y] = ["x", "y"].map(|letter| letter.repeat(MAX_HELD));
        let text = format!(r#"{{"a":"{a}","command":["{y}"],"b":"c"}}"#);
        let shown = redacted(&["never"], &text, 4096);
        assert_eq!(shown, r#"{"a":"***","command":["***"],"b":"c"}"#);
    }

    proptest! {
        #[test]
        fn what_nothing_matches_in_stays_as_it_is(
            texts in prop::collection::vec(any::<String>(), 0..6),
            piece in 1usize..40,
        ) {
            let text = serde_json::json!({"command": texts, "output": texts, "message": texts.first()}).to_string();
            prop_assert_eq!(redacted(&["\u{10fffe}never"], &text, piece), text);
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(prop_oneof![Just(b'"'), Just(b'['), any::<u8>()], 0..60)) {
            let (mut redactor, mut out) = (JsonRedactor::default(), Vec::new());
            redactor.feed(&patterns(&["a"]), &bytes, &mut out);
            redactor.finish(&patterns(&["a"]), &mut out);
        }
    }
}
