//! Takes what variables put into a command out of what a runtime says of it: its message and the command in, a text with
//! the command as it was defined out. Pure. Its work and its memory are bounded by the message, [`MOST_TEXTS`] and
//! [`MOST_BYTES`], however long the command is.

mod beginnings;
mod parts;

use std::{collections::HashSet, fmt, ops::Range};

use self::{
    beginnings::{Beginnings, Least},
    parts::Parts,
};
use super::decoded::{Decoded, normal};
use crate::{
    results::text::BoundedText,
    spec::expand::{Expansion, Piece, Word},
};

/// 16 KiB: how much of a message is looked at, as much as the headers of an answer may hold. The rest is cut off, and what
/// may be the beginning of a value there with it.
const MESSAGE_LIMIT: usize = 16 << 10;

/// 4 bytes: a shorter value is not replaced. It occurs in a message by chance, and replacing each occurrence would
/// disclose the value rather than hide it. As many are enough at a place where the message was cut.
const SHORTEST: usize = 4;

/// 8 bytes: the shortest beginning of a value that is replaced wherever it is. A runtime that shortens what it quotes
/// keeps the beginning. A shorter one is replaced only where dots or the end of the message follow.
const PREFIX: usize = 8;

/// 16 bytes: the shortest part of a value that is replaced wherever it is, as many as a `u128` holds. A shorter one also
/// occurs by chance, such as a word of English in a long value.
const PART: usize = 16;

/// 4 layers of a message are searched: as it came, and without one, two and three layers of quotes. A runtime quotes what
/// its helper has quoted. A value that is quoted more often is found only if nothing in it has to be escaped.
const LAYERS: usize = 4;

/// 64 different texts are looked for. If a command has more, its message is not shown at all.
const MOST_TEXTS: usize = 64;

/// 64 KiB of different values are looked for: each of their bytes is looked up. If a command has more, its message is not
/// shown at all.
const MOST_BYTES: usize = 64 << 10;

/// Replaces a message that cannot be searched.
const WITHHELD: &str = "the runtime's message is withheld: it may contain too many variables of the command";

/// A message without the values of variables: each word of the command that they changed stands there as it was defined,
/// and each value elsewhere as the reference to it, also if the message holds only a part of it. Every occurrence is found
/// in the message as it came; what is put in is never searched.
pub(super) fn masked(message: &str, command: Expansion<'_>) -> BoundedText {
    let message = &message[..message.floor_char_boundary(MESSAGE_LIMIT)];
    let Some(texts) = Texts::of(command, message.len()) else {
        return BoundedText::from(WITHHELD);
    };
    let Texts { words, values } = &texts;
    let beginnings = Beginnings::of(texts.wanted());
    let parts = Parts::of(values);
    let mut found = vec![Found::default(); message.len()];
    let mut layer = Some(Decoded::plain(message));
    for _ in 0..LAYERS {
        let Some(decoded) = layer else { break };
        let mut note = |range: Range<usize>, text| note(&mut found, decoded.source(range), text);
        beginnings.search(decoded.bytes(), &mut note);
        if let Some(parts) = &parts {
            parts.search(decoded.bytes(), &mut |range, value| note(range, words.len() + value));
        }
        layer = decoded.unescaped();
    }
    BoundedText::of(Masked { message, found: &found, texts: &texts })
}

/// What is looked for, numbered: words first.
struct Texts<'a> {
    words: Vec<Changed<'a>>,
    values: Vec<Value<'a>>,
}

/// A word that variables changed, with something of its own around them.
struct Changed<'a> {
    /// As it is run; no more of it than could occur.
    run: String,
    /// Where in it the first value begins.
    lead: usize,
    /// As it was defined.
    shown: &'a str,
}

/// The value of a variable.
#[derive(Debug)]
struct Value<'a> {
    text: String,
    /// The reference to it.
    shown: &'a str,
}

impl<'a> Texts<'a> {
    /// All texts that have to be found, each once; none if they are too many.
    fn of(command: Expansion<'a>, message: usize) -> Option<Self> {
        let (mut words, mut values) = (Vec::<Changed<'a>>::new(), Vec::<Value<'a>>::new());
        // A command may refer to one variable thousands of times.
        let mut known = HashSet::new();
        let mut bytes = 0;
        for word in command.words() {
            let mut pieces = 0;
            for piece in word.pieces() {
                pieces += 1;
                let Piece::Value { value, written } = piece else { continue };
                if value.len() < SHORTEST || !known.insert(written) {
                    continue;
                }
                bytes += value.len();
                if words.len() + values.len() == MOST_TEXTS || bytes > MOST_BYTES {
                    return None;
                }
                values.push(Value { text: normal(value), shown: written });
            }
            if pieces == 1 || words.iter().any(|known| known.shown == word.defined()) {
                continue;
            }
            let Some(changed) = Changed::of(word, message) else { continue };
            if words.len() + values.len() == MOST_TEXTS {
                return None;
            }
            words.push(changed);
        }
        Some(Self { words, values })
    }

    fn wanted(&self) -> impl Iterator<Item = (&[u8], Least)> + Clone {
        self.words.iter().map(Changed::wanted).chain(self.values.iter().map(Value::wanted))
    }

    /// What replaces one of them.
    fn shown(&self, text: usize) -> &'a str {
        let word = self.words.get(text).map(|word| word.shown);
        word.unwrap_or_else(|| self.values[text - self.words.len()].shown)
    }
}

impl<'a> Changed<'a> {
    /// None if no variable changed the word, or if it is too short to be found.
    fn of(word: Word<'a>, message: usize) -> Option<Self> {
        let (mut run, mut lead) = (String::new(), None);
        for piece in word.pieces() {
            if lead.is_none() && matches!(piece, Piece::Value { value, .. } if !value.is_empty()) {
                lead = Some(run.len());
            }
            if run.len() <= message {
                let text = piece.text();
                // A character may have four bytes.
                run.push_str(&text[..text.floor_char_boundary(message + 4 - run.len())]);
            }
        }
        let lead = lead.filter(|_| run.len() >= SHORTEST)?;
        Some(Self { run: normal(&run), lead, shown: word.defined() })
    }

    /// The whole; where the message was cut, what holds something of a value.
    fn wanted(&self) -> (&[u8], Least) {
        let least = Least { anywhere: usize::MAX, where_cut: SHORTEST.max(self.lead + 1) };
        (self.run.as_bytes(), least)
    }
}

impl Value<'_> {
    /// A short value, and enough of the beginning of any.
    fn wanted(&self) -> (&[u8], Least) {
        let text = self.text.as_bytes();
        let least = Least { anywhere: PREFIX, where_cut: SHORTEST };
        (&text[..text.len().min(PART)], least)
    }
}

/// The longest text that begins at a byte of the message; the first of several.
#[derive(Clone, Copy, Default)]
struct Found {
    length: usize,
    text: usize,
}

fn note(found: &mut [Found], range: Range<usize>, text: usize) {
    let start = &mut found[range.start];
    if start.length < range.len() || start.length == range.len() && text < start.text {
        *start = Found { length: range.len(), text };
    }
}

/// Prints the message; what overlaps is one, and stands there as the longest text in it.
struct Masked<'a> {
    message: &'a str,
    found: &'a [Found],
    texts: &'a Texts<'a>,
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
            f.write_str(self.texts.shown(longest.text))?;
            shown = end;
        }
        f.write_str(&self.message[shown..])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::decoded::is_cut, *};
    use crate::{handler::go, results::text::TEXT_LIMIT, spec::expand::Env};

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
            ("pass\u{200d}word", r#"exec: "pass\u200dword": b"#, r#"exec: "$(X)": b"#),
            ("pass\u{1}\u{e000}word", r#"a \"pass\\x01\\ue000word\""#, r#"a \"$(X)\""#),
            ("a=1&b=<2>", r#"{"args":["a=1\u0026b=\u003c2\u003e"]}"#, r#"{"args":["$(X)"]}"#),
            ("se\u{fffd}\u{fffd}cret", r#""se\xffcret" "se\ufffd\ufffdcret""#, r#""$(X)" "$(X)""#),
            ("w\u{f6}rdlich", r#"w\xc3\xb6rdlich w\u00f6rdlich"#, "$(X) $(X)"),
            ("plainsecret", "exec: plainsec... failed", "exec: $(X)... failed"),
            ("plainsecret", "exec: plains... failed", "exec: $(X)... failed"),
            ("plainsecret", "exec: plains failed, plainsec failed", "exec: plains failed, $(X) failed"),
            ("plain\u{200d}secret", r"exec: plain\u20...", "exec: $(X)..."),
            ("0123456789abcdefghij", "...3456789abcdefghi...", "...$(X)..."),
            ("0123456789abcdefghij", "...3456789abcdefgh...", "...3456789abcdefgh..."),
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
        assert_eq!(mask(&message, &[&command], &env).len(), TEXT_LIMIT);
    }

    #[test]
    fn a_value_longer_than_the_message_leaves_nothing_of_itself_there() {
        let value = "s3cr3t".repeat(10_000);
        let message = format!("exec: {value}");
        assert_eq!(mask(&message, &["$(X)"], &[("X", &value)]), "exec: $(X)");
        let escaped = "\n\t".repeat(10_000);
        let message = format!("exec: {}", go::quoted(escaped.as_bytes()));
        assert_eq!(mask(&message, &["$(X)"], &[("X", &escaped)]), "exec: \"$(X)");
    }

    #[test]
    fn the_end_of_a_message_is_a_word_only_if_it_holds_something_of_a_value() {
        let env = [("X", "secret")];
        assert_eq!(mask("fatal error", &["error: $(X)"], &env), "fatal error");
        assert_eq!(mask("fatal error: se", &["error: $(X)"], &env), "fatal error: $(X)");
    }

    #[test]
    fn values_of_whatever_form_take_a_bounded_time() {
        let value = "a".repeat(MOST_BYTES);
        let message = format!("{}{}", "\\x5c".repeat(2048), "a".repeat(MESSAGE_LIMIT / 2));
        let shown = mask(&message, &["$(X)"], &[("X", &value)]);
        assert!(shown.ends_with("$(X)") && !shown.contains("aa"), "{shown}");
        assert_eq!(mask(&message, &["$(X)"], &[("X", &format!("{value}b"))]), WITHHELD);
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

    /// The same, by comparing everything with everything.
    fn plainly_masked(message: &str, command: Expansion<'_>) -> String {
        let texts = Texts::of(command, message.len()).unwrap();
        let mut found = vec![Found::default(); message.len()];
        let mut layer = Some(Decoded::plain(message));
        for _ in 0..LAYERS {
            let Some(decoded) = layer else { break };
            let bytes = decoded.bytes();
            for (number, (text, least)) in texts.wanted().enumerate() {
                for start in 0..bytes.len() {
                    for length in 1..=text.len().min(bytes.len() - start) {
                        let counts = length == text.len()
                            || length >= least.anywhere
                            || length >= least.where_cut && is_cut(&bytes[start + length..]);
                        if counts && bytes[start..].starts_with(&text[..length]) {
                            note(&mut found, decoded.source(start..start + length), number);
                        }
                    }
                }
            }
            let mut runs: Vec<(Range<usize>, usize)> = Vec::new();
            for (start, part) in bytes.windows(PART).enumerate() {
                let holds_it = |value: &Value<'_>| {
                    value.text.len() > PART && value.text.as_bytes().windows(PART).any(|other| other == part)
                };
                let Some(value) = texts.values.iter().position(holds_it) else { continue };
                match runs.last_mut() {
                    Some((range, of)) if *of == value && start <= range.end => range.end = start + PART,
                    _ => runs.push((start..start + PART, value)),
                }
            }
            for (range, value) in runs {
                note(&mut found, decoded.source(range), texts.words.len() + value);
            }
            layer = decoded.unescaped();
        }
        Masked { message, found: &found, texts: &texts }.to_string()
    }

    proptest! {
        #[test]
        fn what_is_found_is_what_a_plain_search_finds(
            values in prop::collection::vec(
                prop_oneof!["[ab]{0,9}", "[ab]{14,40}", "[ab.\"\\\\\u{e9}\u{fffd}]{0,24}"], 1..5,
            ),
            words in prop::collection::vec("[ab]{0,4}(V|v[ab.]{0,3}v|abav)", 0..5),
            message in prop::collection::vec((0_usize..12, 0_usize..48, 0_usize..48, 0_usize..3), 0..12),
            noise in prop::collection::vec(
                prop_oneof!["[ab]{0,24}", r#"(\\\\(\\|"|x6[12]|u0061|u00e9)|a|b|\.){0,12}"#, "(\\.\\.\\.|\u{2026})"], 12,
            ),
        ) {
            let env: Vec<_> = values.iter().enumerate().map(|(n, value)| (format!("V{n}"), value.clone())).collect();
            let last = values.len() - 1;
            let mut command: Vec<_> = env.iter().map(|(name, _)| format!("$({name})")).collect();
            command.extend(words.iter().enumerate().map(|(n, word)| {
                word.replace('V', &format!("$(V{})", n % values.len())).replace('v', &format!("$(V{last})"))
            }));
            let env: Env = env.into_iter().collect();
            let command_run = Expansion::new(&command, &env, usize::MAX).unwrap();
            let argv = command_run.to_argv();
            let mut text = String::new();
            for ((pick, from, to, quotes), noise) in message.iter().zip(&noise) {
                let mut piece = argv[pick % argv.len()].clone();
                for _ in 0..*quotes {
                    piece = ascii(&go::quoted(piece.as_bytes()));
                }
                let (from, to) = (piece.floor_char_boundary(*from.min(to)), piece.floor_char_boundary(*from.max(to)));
                text += &piece[from..to];
                text += noise;
            }
            prop_assert_eq!(&*masked(&text, command_run), plainly_masked(&text, command_run), "{:?} of {:?}", text, argv);
        }
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
            prop_assert!(shown.len() <= TEXT_LIMIT);
        }

        #[test]
        fn what_no_value_occurs_in_stays_as_it_is(message in "[a-z ]{0,200}", value in "[A-Z]{4,9}") {
            prop_assert_eq!(mask(&message, &["x", "$(X)"], &[("X", &value)]), message);
        }

        #[test]
        fn no_16_bytes_of_a_value_are_left_however_it_is_written(
            value in prop::collection::vec(any::<char>().prop_filter("no dollar", |c| *c != '$'), 16..80),
            layers in prop::collection::vec(0..3_usize, 0..3),
            (from, to) in (0_usize..400, 0_usize..400),
            (before, after) in ("[a-z:\" ]{0,20}", "[a-z:\" ]{0,20}"),
        ) {
            let value: String = value.into_iter().collect();
            let mut written = value.clone();
            for layer in &layers {
                written = match layer {
                    0 => ascii(&go::quoted(written.as_bytes())),
                    1 => serde_json::to_string(&written).unwrap(),
                    _ => gos_json(&written),
                };
            }
            let (from, to) = (written.floor_char_boundary(from), written.floor_char_boundary(to));
            let written = &written[from.min(to)..from.max(to)];
            let shown = mask(&format!("{before}{written}{after}"), &["$(X)"], &[("X", &value)]);
            let mut layer = Some(Decoded::plain(&shown));
            for _ in 0..LAYERS {
                let Some(decoded) = layer else { break };
                let secret = normal(&value);
                let left = decoded.bytes().windows(PART).find(|part| {
                    secret.as_bytes().windows(PART).any(|of_value| of_value == *part)
                });
                prop_assert_eq!(left, None, "{:?} in {:?}", value, shown);
                layer = decoded.unescaped();
            }
        }
    }

    /// What Go quotes with all that is not ASCII as escapes, whether it can be printed or not.
    fn ascii(quoted: &str) -> String {
        let mut ascii = String::new();
        for letter in quoted.chars() {
            match u32::from(letter) {
                0..0x80 => ascii.push(letter),
                code @ 0x80..0x1_0000 => ascii.push_str(&format!("\\u{code:04x}")),
                code => ascii.push_str(&format!("\\U{code:08x}")),
            }
        }
        ascii
    }

    /// As Go's `encoding/json` writes a text.
    fn gos_json(text: &str) -> String {
        let mut json = serde_json::to_string(text).unwrap();
        for letter in ['<', '>', '&', '\u{2028}', '\u{2029}', '\u{fffd}'] {
            json = json.replace(letter, &format!("\\u{:04x}", u32::from(letter)));
        }
        json
    }
}
