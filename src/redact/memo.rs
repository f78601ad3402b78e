//! Remembers how texts are shown, so that each is searched once, however many readers it leaves for. In: texts as JSON has
//! them; out: the same, as they may be shown. Bounded in bytes: what was not asked for lately is forgotten, and searched again.
//! Pure.

use std::{collections::HashMap, mem};

use super::{Patterns, json::Search};

/// What an entry takes besides its texts.
const ENTRY: usize = 96;

/// Texts that were searched for the patterns in effect.
#[derive(Debug)]
pub(crate) struct Memo {
    patterns: Patterns,
    /// Those that were asked for since the last change of generations; then those of before.
    young: Texts,
    old: Texts,
    /// What the young ones take.
    bytes: usize,
    /// What a generation may take.
    room: usize,
}

/// Texts, and how they are shown; `None` where that is as they are.
type Texts = HashMap<Box<[u8]>, Option<Box<[u8]>>>;

impl Memo {
    /// For so many bytes in all.
    pub(crate) fn new(room: usize) -> Self {
        let (young, old) = (Texts::new(), Texts::new());
        Self { patterns: Patterns::default(), young, old, bytes: 0, room: room / 2 }
    }

    /// From now on, texts are searched for these patterns. What is known of others is forgotten.
    pub(crate) fn set(&mut self, patterns: Patterns) {
        if self.patterns != patterns {
            *self = Self { patterns, ..Self::new(self.room * 2) };
        }
    }

    fn keep(&mut self, text: Box<[u8]>, shown: Option<Box<[u8]>>) {
        let bytes = ENTRY + text.len() + shown.as_ref().map_or(0, |shown| shown.len());
        if bytes > self.room {
            return;
        }
        self.bytes += bytes;
        if self.bytes > self.room {
            self.bytes = bytes;
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(text, shown);
    }
}

impl Search for &mut Memo {
    fn show(&mut self, text: &[u8], out: &mut Vec<u8>) {
        if let Some(shown) = self.young.get(text) {
            return out.extend_from_slice(shown.as_deref().unwrap_or(text));
        }
        let (text, shown) = self.old.remove_entry(text).unwrap_or_else(|| {
            let mut shown = Vec::new();
            (&self.patterns).show(text, &mut shown);
            let is_other = shown != text;
            (text.into(), is_other.then(|| shown.into()))
        });
        out.extend_from_slice(shown.as_deref().unwrap_or(&text));
        self.keep(text, shown);
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{JsonRedactor, tests::patterns},
        *,
    };

    fn redacted(memo: &mut Memo, text: &str) -> String {
        let (mut json, mut out) = (JsonRedactor::default(), Vec::new());
        json.feed(&mut *memo, text.as_bytes(), &mut out);
        json.finish(memo, &mut out);
        String::from_utf8(out).unwrap()
    }

    /// How many texts it knows, and how many bytes they take at least.
    fn held(memo: &Memo) -> (usize, usize) {
        let all = || memo.young.iter().chain(&memo.old);
        let bytes =
            all().map(|(text, shown)| ENTRY + text.len() + shown.as_ref().map_or(0, |shown| shown.len()));
        (all().count(), bytes.sum())
    }

    #[test]
    fn what_is_remembered_is_shown_as_what_is_searched_until_other_patterns_are_set() {
        let text =
            r#"{"command":["a","secret"],"output":"a secret","message":"[\"a\",\"b\"]","pod":"secret"}"#;
        let mut memo = Memo::new(1_000);
        for (found, shown) in [
            (
                &["secret"][..],
                r#"{"command":["a","***"],"output":"a ***","message":"[\"a\",\"b\"]","pod":"secret"}"#,
            ),
            (
                &["secret", "b"],
                r#"{"command":["a","***"],"output":"a ***","message":"[\"a\",\"***\"]","pod":"secret"}"#,
            ),
            (&["nothing"], text),
            (&[], text),
        ] {
            memo.set(patterns(found));
            assert_eq!(held(&memo).0, 0);
            for _ in 0..3 {
                assert_eq!(redacted(&mut memo, text), shown, "{found:?}");
                assert_eq!(held(&memo).0, 3, "the command, the output, the message");
            }
        }
    }

    #[test]
    fn it_keeps_what_is_asked_for_and_never_more_than_its_room() {
        let mut memo = Memo::new(2_000);
        memo.set(patterns(&["x+"]));
        let known = |memo: &Memo, text: &str| {
            let text = format!("{text:?}");
            memo.young.contains_key(text.as_bytes()) || memo.old.contains_key(text.as_bytes())
        };
        for number in 0..1_000 {
            assert_eq!(redacted(&mut memo, "\"often x\""), "\"often ***\"");
            redacted(&mut memo, &format!("\"{number}\""));
            redacted(&mut memo, &format!("\"{}\"", "long".repeat(number)));
            assert!(held(&memo).1 <= 2_000, "{number}");
            assert!(known(&memo, "often x"), "{number}");
        }
        assert!(known(&memo, "999") && !known(&memo, "900"));
    }
}
