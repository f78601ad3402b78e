//! Takes what variables put into a command out of what a runtime says of it: its message and the command in, a text with
//! the command as it was defined out. Pure. Its work and its memory are bounded by the message and [`MOST_TEXTS`], however
//! long the command is.

use std::fmt;

use crate::{
    handler::go,
    results::said::Said,
    spec::expand::{Expansion, Piece, Word},
};

/// 16 KiB: how much of a message is looked at, as much as the headers of an answer may hold. The rest is cut off, and what
/// may be the beginning of a value there with it.
const MESSAGE_LIMIT: usize = 16 << 10;

/// 4 bytes: a shorter value is not replaced. It occurs in a message by chance, and replacing each occurrence would tell
/// the value rather than hide it.
const SHORTEST: usize = 4;

/// 64 different texts are looked for: each costs a pass over the message. Of a command with more of them no message is
/// shown at all.
const MOST_TEXTS: usize = 64;

/// Stands for a message that cannot be searched.
const WITHHELD: &str = "the runtime's message is withheld: too many variables of the command may occur in it";

/// 3 forms of each text: as it is, as Go quotes it, and as Go quotes what it had quoted already.
const FORMS: usize = 3;

/// A message without the values of variables: each word of the command that they changed stands there as it was defined,
/// and each value elsewhere as the reference to it. Every occurrence is found in the message as it came; what is put in is
/// never searched.
pub(super) fn masked(message: &str, command: Expansion<'_>) -> Said {
    let message = &message[..message.floor_char_boundary(MESSAGE_LIMIT)];
    let Some(texts) = texts(command, message.len()) else { return Said::from(WITHHELD) };
    let mut found = vec![Found::default(); message.len()];
    for (index, text) in texts.iter().enumerate() {
        for form in text.forms(message.len()) {
            search(message.as_bytes(), form.as_bytes(), index, &mut found);
        }
    }
    Said::of(Masked { message, texts: &texts, found: &found })
}

/// What is looked for.
struct Text<'a> {
    /// As it is run; no more of it than could occur.
    run: String,
    /// What stands for it.
    shown: &'a str,
}

impl Text<'_> {
    /// The forms in which a runtime may write it.
    fn forms(&self, message: usize) -> Vec<String> {
        let mut forms = vec![self.run.clone()];
        while forms.len() < FORMS {
            let mut escaped = go::escaped(&forms[forms.len() - 1]);
            cut(&mut escaped, message);
            if forms.last() == Some(&escaped) {
                break;
            }
            forms.push(escaped);
        }
        forms
    }
}

/// All texts that have to be found, each once; none where they are too many.
fn texts(command: Expansion<'_>, message: usize) -> Option<Vec<Text<'_>>> {
    let mut texts: Vec<Text<'_>> = Vec::new();
    for (pieces, shown) in command.words().flat_map(changed) {
        if pieces.iter().map(|piece| piece.text().len()).sum::<usize>() < SHORTEST {
            continue;
        }
        let mut run = String::new();
        for piece in &pieces {
            if run.len() <= message {
                run.push_str(beginning(piece.text(), message + 1));
            }
        }
        cut(&mut run, message);
        if texts.iter().any(|text| text.run == run) {
            continue;
        }
        if texts.len() == MOST_TEXTS {
            return None;
        }
        texts.push(Text { run, shown });
    }
    Some(texts)
}

/// A word that variables changed, as a whole, and each of their values in it.
fn changed(word: Word<'_>) -> impl Iterator<Item = (Vec<Piece<'_>>, &str)> {
    let values = word.pieces().filter_map(|piece| match piece {
        Piece::Value { value: "", .. } | Piece::Literal(_) => None,
        Piece::Value { written, .. } => Some((vec![piece], written)),
    });
    let is_changed = values.clone().next().is_some();
    is_changed.then(|| (word.pieces().collect(), word.defined())).into_iter().chain(values)
}

/// Keeps one byte more than could occur in the message: so much of it is found at the message's end only, as a beginning.
fn cut(text: &mut String, message: usize) {
    // A character may have four bytes.
    text.truncate(text.floor_char_boundary(message + 4));
}

fn beginning(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes + 4)]
}

/// The longest text that begins at a byte of the message.
#[derive(Clone, Copy, Default)]
struct Found {
    length: usize,
    text: usize,
}

/// Notes where a text occurs, also where occurrences overlap, and whether the message ends within one. By Knuth, Morris and
/// Pratt: one pass over each, whatever they are.
fn search(message: &[u8], text: &[u8], index: usize, found: &mut [Found]) {
    if text.is_empty() {
        return;
    }
    let borders = borders(text);
    let mut matched = 0;
    for (at, byte) in message.iter().enumerate() {
        while matched > 0 && text.get(matched) != Some(byte) {
            matched = borders[matched - 1];
        }
        matched += usize::from(text[matched] == *byte);
        let is_last = at + 1 == message.len();
        if matched == text.len() || (is_last && matched >= SHORTEST) {
            let start = &mut found[at + 1 - matched];
            if start.length < matched {
                *start = Found { length: matched, text: index };
            }
        }
    }
}

/// For each beginning of a text how long the longest shorter one is that it ends with.
fn borders(text: &[u8]) -> Vec<usize> {
    let mut borders = vec![0; text.len()];
    let mut length = 0;
    for at in 1..text.len() {
        while length > 0 && text[length] != text[at] {
            length = borders[length - 1];
        }
        length += usize::from(text[length] == text[at]);
        borders[at] = length;
    }
    borders
}

/// Prints the message; what overlaps is one, and stands there as the longest text in it.
struct Masked<'a> {
    message: &'a str,
    texts: &'a [Text<'a>],
    found: &'a [Found],
}

impl fmt::Display for Masked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut at, mut shown) = (0, 0);
        while at < self.found.len() {
            if self.found[at].length == 0 {
                at += 1;
                continue;
            }
            f.write_str(&self.message[shown..at])?;
            let mut longest = self.found[at];
            let mut end = at + longest.length;
            while at < end {
                let next = self.found[at];
                end = end.max(at + next.length);
                if next.length > longest.length {
                    longest = next;
                }
                at += 1;
            }
            f.write_str(self.texts[longest.text].shown)?;
            shown = end;
        }
        f.write_str(&self.message[shown..])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{results::said::SAID_LIMIT, spec::expand::Env};

    fn mask(message: &str, command: &[&str], env: &[(&str, &str)]) -> String {
        let command: Vec<_> = command.iter().map(|&word| word.to_owned()).collect();
        let env: Env = env.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        masked(message, Expansion::new(&command, &env, usize::MAX).unwrap()).to_string()
    }

    #[test]
    fn values_are_replaced_wherever_and_however_they_stand() {
        for (value, message, shown) in [
            ("hunter2", "exec: \"hunter2\": no such file", "exec: \"$(X)\": no such file"),
            ("two\nlines", r#"exec: "two\nlines": b"#, r#"exec: "$(X)": b"#),
            ("two\nlines", r#"open "exec: \"two\\nlines\"": b"#, r#"open "exec: \"$(X)\"": b"#),
            ("two\nlines", "two\nlines", "$(X)"),
            ("secret", "secretsecret", "$(X)$(X)"),
            ("abcabc", "-abcabcabc-", "-$(X)-"),
            ("secret", "not found: secr", "not found: $(X)"),
            ("secret", "not found: sec", "not found: sec"),
            ("a long secret", "a long secret that", "$(X) that"),
            ("X", "exec: \"X\": eXact", "exec: \"X\": eXact"),
            ("", "exec: \"\": b", "exec: \"\": b"),
            ("$(X)", "exec: \"$(X)\": b", "exec: \"$(X)\": b"),
        ] {
            assert_eq!(mask(message, &["$(X)"], &[("X", value)]), shown, "{value:?}");
        }
    }

    #[test]
    fn a_word_is_shown_as_it_was_defined_and_a_value_outside_it_as_its_reference() {
        let env = [("A", "alpha"), ("AB", "alphabet"), ("N", "7")];
        let command = ["sh", "-c", "echo $(A) $$HOME", "$(AB)", "--pin=$(N)"];
        for (message, shown) in [
            (r#"["sh" "-c" "echo alpha $HOME"]: no"#, r#"["sh" "-c" "echo $(A) $$HOME"]: no"#),
            ("echo alpha.", "echo $(A)."),
            ("echo alpha", "echo $(A) $$HOME"),
            ("alphabet soup, alpha", "$(AB) soup, $(A)"),
            ("--pin=7, 7 times", "--pin=$(N), 7 times"),
        ] {
            assert_eq!(mask(message, &command, &env), shown);
        }
    }

    #[test]
    fn what_is_put_in_is_never_searched_and_the_whole_is_bounded() {
        let env = [("A", "$(B)"), ("B", "$(A)$(A)"), ("LONG", "long")];
        assert_eq!(mask("$(A)$(A) $(B)", &["$(A)", "$(B)"], &env), "$(B) $(A)");
        let command = format!("$(LONG){}", "x".repeat(16 << 10));
        let message = format!("long{} ", "x".repeat(4)).repeat(4000);
        assert_eq!(mask(&message, &[&command], &env).len(), SAID_LIMIT);
    }

    #[test]
    fn a_value_longer_than_the_message_leaves_nothing_of_itself_there() {
        let value = "s3cr3t".repeat(10_000);
        let message = format!("exec: {value}");
        assert_eq!(mask(&message, &["$(X)"], &[("X", &value)]), "exec: $(X)");
        let escaped = "\n\t".repeat(10_000);
        let message = format!("exec: {}", go::escaped(&escaped));
        assert_eq!(mask(&message, &["$(X)"], &[("X", &escaped)]), "exec: $(X)");
    }

    #[test]
    fn of_too_many_values_nothing_is_shown() {
        let env: Vec<_> = (0..=MOST_TEXTS).map(|n| (format!("V{n}"), format!("value {n}"))).collect();
        let env: Vec<_> = env.iter().map(|(name, value)| (&**name, &**value)).collect();
        let words: Vec<_> = env.iter().map(|(name, _)| format!("$({name})")).collect();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        assert_eq!(mask("value 1", &words[1..], &env), "$(V1)");
        assert_eq!(mask("value 1", &words, &env), WITHHELD);
    }

    proptest! {
        #[test]
        fn no_long_value_is_left_and_nothing_grows_beyond_the_bound(
            parts in prop::collection::vec("[ab\"\\\\$()\u{e9}]{0,6}", 0..12),
            values in prop::collection::vec("[ab\"\\\\\u{e9}]{4,7}", 1..4),
        ) {
            let env: Vec<_> = values.iter().enumerate().map(|(n, value)| (format!("V{n}"), value)).collect();
            let message = parts.iter().zip(values.iter().cycle()).map(|(part, value)| format!("{part}{value}"));
            let message: String = message.collect();
            let words: Vec<_> = env.iter().map(|(name, _)| format!("$({name})")).collect();
            let pairs: Vec<_> = env.iter().map(|(name, value)| (&**name, value.as_str())).collect();
            let words: Vec<_> = words.iter().map(String::as_str).collect();
            let shown = mask(&message, &words, &pairs);
            for value in &values {
                prop_assert!(!shown.contains(value.as_str()), "{:?} in {:?}", value, shown);
            }
            prop_assert!(shown.len() <= SAID_LIMIT);
        }

        #[test]
        fn what_no_value_occurs_in_stays_as_it_is(message in "[a-z ]{0,200}", value in "[A-Z]{4,9}") {
            prop_assert_eq!(mask(&message, &["x", "$(X)"], &[("X", &value)]), message);
        }
    }
}
