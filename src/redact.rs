//! Replaces what the operator's patterns match in what leaves the process. In: texts, commands, or JSON in pieces of any
//! size; out: the same, with `***` in place of what matched. Pure.
//!
//! Who chooses the texts is not who chooses the patterns: the work for a text is bounded, and what is beyond the bounds is
//! replaced, not shown.

mod json;
mod memo;

use std::{
    borrow::Cow,
    fmt,
    ops::Range,
    sync::{Arc, PoisonError, RwLock},
};

use regex_lite::{Regex, RegexBuilder};

pub(crate) use self::{json::JsonRedactor, memo::Memo};

/// What is shown in place of what matched.
pub(crate) const MASK: &str = "***";

/// 32 patterns; more are an error, because each text is searched for each of them.
pub(crate) const MAX_PATTERNS: usize = 32;

/// 512 bytes: the longest pattern. A longer one is an error.
const MAX_PATTERN: usize = 512;

/// 64 KiB: what a pattern may take once it is compiled. A search takes the longer the more it has. A larger one, as by
/// `{1000}`, is an error.
const MAX_COMPILED: usize = 64 << 10;

/// 16 KiB of a text, or of all words of a command together, are searched: as much as an annotation has. The rest is
/// replaced.
const MAX_TEXT: usize = 16 << 10;

/// 512 words of a command are searched; the rest are replaced by one mask.
const MAX_WORDS: usize = 512;

/// 128 matches of a pattern in a text. Each search may have to read the text to its end, so what comes after the last of
/// them is replaced.
const MAX_MATCHES: usize = 128;

/// What must not be shown.
#[derive(Clone)]
pub struct Pattern(Regex);

impl Pattern {
    /// Reads a regular expression.
    ///
    /// # Errors
    /// It is none, or too large; the error says what to write instead.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("an empty pattern matches nothing that could be replaced: remove it".to_owned());
        }
        if text.len() > MAX_PATTERN {
            return Err(format!("the pattern has {} bytes: at most {MAX_PATTERN} are allowed", text.len()));
        }
        let compiled = RegexBuilder::new(text).size_limit(MAX_COMPILED).build();
        compiled.map(Self).map_err(|error| format!("not a regular expression: {error}"))
    }

    /// Adds what is to be replaced in a text: of each match its groups, or all of it where it has none.
    fn find(&self, text: &str, found: &mut Vec<Range<usize>>) {
        if !self.0.is_match(text) {
            return;
        }
        for (number, captures) in self.0.captures_iter(text).enumerate() {
            let whole = captures.get(0).map_or(0..0, |whole| whole.range());
            if number == MAX_MATCHES {
                found.push(whole.start..text.len());
                return;
            }
            let before = found.len();
            found.extend(captures.iter().skip(1).flatten().map(|group| group.range()));
            // No group took part, as in `(a)|b`.
            if found.len() == before {
                found.push(whole);
            }
        }
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for Pattern {}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0.as_str(), f)
    }
}

/// All patterns that are in effect. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patterns(Arc<[Pattern]>);

impl Patterns {
    /// Whether everything is shown as it is.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A text as it may be shown.
    pub(crate) fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.is_empty() {
            return Cow::Borrowed(text);
        }
        let searched = &text[..text.floor_char_boundary(MAX_TEXT)];
        let mut found = Vec::new();
        self.0.iter().for_each(|pattern| pattern.find(searched, &mut found));
        if searched.len() < text.len() {
            found.push(searched.len()..text.len());
        }
        merge(&mut found);
        match found.is_empty() {
            true => Cow::Borrowed(text),
            false => Cow::Owned(masked(text, 0, &found)),
        }
    }

    /// A command as it may be shown. Patterns match within a word, and in all words with a space between them, as in
    /// `--password hunter2`.
    pub(crate) fn words(&self, words: &[String]) -> Vec<String> {
        if self.is_empty() {
            return words.to_vec();
        }
        let mut length = 0;
        let is_searched = |word: &&String| {
            length += word.len() + 1;
            length <= MAX_TEXT + 1
        };
        let searched = &words[..words.iter().take(MAX_WORDS).take_while(is_searched).count()];
        let line = searched.join(" ");
        let mut found = Vec::new();
        self.0.iter().for_each(|pattern| pattern.find(&line, &mut found));
        let mut at = 0;
        // A single word is the line.
        if searched.len() > 1 {
            for word in searched {
                let before = found.len();
                self.0.iter().for_each(|pattern| pattern.find(word, &mut found));
                found[before..].iter_mut().for_each(|range| *range = range.start + at..range.end + at);
                at += word.len() + 1;
            }
        }
        merge(&mut found);
        let mut at = 0;
        let mut shown: Vec<_> = searched
            .iter()
            .map(|word| {
                let start = at;
                at += word.len() + 1;
                masked(word, start, &found)
            })
            .collect();
        if searched.len() < words.len() {
            shown.push(MASK.to_owned());
        }
        shown
    }

    /// JSON as it may be shown.
    pub(crate) fn json(&self, text: Vec<u8>) -> Vec<u8> {
        if self.is_empty() {
            return text;
        }
        let mut shown = Vec::with_capacity(text.len());
        let mut redactor = JsonRedactor::default();
        redactor.feed(self, &text, &mut shown);
        redactor.finish(self, &mut shown);
        shown
    }
}

impl FromIterator<Pattern> for Patterns {
    fn from_iter<I: IntoIterator<Item = Pattern>>(patterns: I) -> Self {
        Self(patterns.into_iter().collect())
    }
}

/// Sorts ranges, and joins those that touch.
fn merge(found: &mut Vec<Range<usize>>) {
    found.retain(|range| !range.is_empty());
    found.sort_unstable_by_key(|range| range.start);
    found.dedup_by(|next, range| {
        let touches = next.start <= range.end;
        if touches {
            range.end = range.end.max(next.end);
        }
        touches
    });
}

/// A text that begins at `start` of what the ranges are in.
fn masked(text: &str, start: usize, found: &[Range<usize>]) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut at = 0;
    let within = found.iter().skip_while(|range| range.end <= start);
    for range in within.take_while(|range| range.start < start + text.len()) {
        let (from, to) = (range.start.max(start) - start, range.end.min(start + text.len()) - start);
        shown.push_str(&text[at..from]);
        shown.push_str(MASK);
        at = to;
    }
    shown.push_str(&text[at..]);
    shown
}

/// The patterns in effect, which a reload replaces. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Redactor(Arc<RwLock<Patterns>>);

impl Redactor {
    /// With these patterns.
    pub(crate) fn new(patterns: Patterns) -> Self {
        Self(Arc::new(RwLock::new(patterns)))
    }

    /// With these patterns from now on, also for what was seen before.
    pub(crate) fn set(&self, patterns: Patterns) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = patterns;
    }

    /// The patterns in effect.
    pub(crate) fn patterns(&self) -> Patterns {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(super) fn patterns(texts: &[&str]) -> Patterns {
        texts.iter().map(|text| Pattern::parse(text).unwrap()).collect()
    }

    fn words(patterns: &Patterns, words: &[&str]) -> Vec<String> {
        patterns.words(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn what_matches_is_replaced_or_only_what_the_groups_match() {
        for (pattern, text, shown) in [
            ("hunter2", "mysql -phunter2 -u root", "mysql -p*** -u root"),
            (r"--password[= ](\S+)", "a --password=x --password yy", "a --password=*** --password ***"),
            ("(?i)(?:token|secret)=([^&]+)", "/h?Token=a&b=c&SECRET=d", "/h?Token=***&b=c&SECRET=***"),
            ("(a+)(b+)", "xaabbx", "x***x"),
            ("(a+)-(b+)", "xaa-bbx", "x***-***x"),
            ("(a)|b", "ab", "***"),
            ("x*", "abc", "abc"),
            ("ü", "grün", "gr***n"),
            ("^a", "aa a", "***a a"),
            (r"a\x2cb", "xa,bx", "x***x"),
        ] {
            assert_eq!(patterns(&[pattern]).text(text), shown, "{pattern}");
        }
        assert_eq!(patterns(&["bc", "cd", "x"]).text("abcde"), "a***e", "overlapping matches are one");
    }

    #[test]
    fn a_secret_is_found_in_a_word_and_in_the_word_after_its_flag() {
        let found = patterns(&[r"--password[= ](\S+)", "^s3cr3t$"]);
        for (command, shown) in [
            (&["mysql", "--password", "hunter2", "-e"][..], &["mysql", "--password", "***", "-e"][..]),
            (&["mysql", "--password=hunter2"], &["mysql", "--password=***"]),
            (&["login", "s3cr3t", "now"], &["login", "***", "now"]),
            (&["sh", "-c", "mysql --password hunter2"], &["sh", "-c", "mysql --password ***"]),
            (&["s3cr3t"], &["***"]),
            (&[], &[]),
            (&["", ""], &["", ""]),
        ] {
            assert_eq!(words(&found, command), shown, "{command:?}");
        }
        assert_eq!(words(&patterns(&["a b"]), &["xa", "by"]), ["x***", "***y"]);
    }

    #[test]
    fn what_is_beyond_the_bounds_is_not_shown() {
        let found = patterns(&["never"]);
        let long = "x".repeat(MAX_TEXT + 1);
        assert_eq!(found.text(&long), format!("{}***", &long[1..]));
        assert_eq!(words(&found, &["sh", &long, "end"]), ["sh", "***"]);
        assert_eq!(words(&found, &vec!["a"; MAX_WORDS + 5]).len(), MAX_WORDS + 1);
        let many = "a-".repeat(MAX_MATCHES + 3);
        let shown = patterns(&["a"]).text(&many).into_owned();
        assert_eq!(shown, "***-".repeat(MAX_MATCHES) + MASK);
    }

    #[test]
    fn a_pattern_that_cannot_be_used_says_why() {
        let why = |text: &str| Pattern::parse(text).unwrap_err();
        assert!(why("").contains("empty"));
        assert!(why("(").starts_with("not a regular expression: "), "{}", why("("));
        assert!(why(&"x".repeat(513)).contains("at most 512"));
        assert!(why("(?:a{1000}){1000}").starts_with("not a regular expression: "));
    }

    #[test]
    fn what_is_slow_to_search_is_searched_in_time() {
        let slow = patterns(&["a.*b|a", "(?:a?){30}a{30}", "(?:x*)*y"]);
        let began = crate::clock::now();
        for text in ["a".repeat(MAX_TEXT), "x".repeat(MAX_TEXT)] {
            let _ = slow.text(&text);
        }
        let took = crate::clock::now() - began;
        assert!(took < std::time::Duration::from_secs(20), "{took:?}");
    }

    proptest! {
        #[test]
        fn no_match_is_left_whatever_the_words_are(words in prop::collection::vec("[a-c =-]{0,6}", 0..8)) {
            let found = patterns(&["ab+", "=(c+)"]);
            let shown = found.words(&words);
            prop_assert_eq!(shown.len(), words.len());
            prop_assert!(!shown.iter().any(|word| word.contains("ab") || word.contains("=c")), "{:?}", shown);
            let text = words.join(" ");
            prop_assert!(!found.text(&text).contains("ab"));
        }
    }
}
