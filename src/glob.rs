//! Patterns for names: `*` matches any text, `?` any one character, all others match themselves. Matching follows all
//! ways in which a text may fit at the same time, a bit for each, so that no pattern makes it slow.

use std::{collections::BTreeMap, sync::OnceLock};

/// A pattern.
#[derive(Clone, Debug)]
pub struct Glob {
    written: Box<str>,
    matcher: Box<Matcher>,
    /// Made when it is first needed.
    in_any_case: OnceLock<Box<Matcher>>,
}

/// A set of states of a [`Matcher`], 64 to a word.
type States = Box<[u64]>;

/// A pattern as an automaton. In state `n`, the text so far fits the first `n` characters of the pattern, not counting
/// stars. A text leads to a set of states.
#[derive(Clone, Debug)]
struct Matcher {
    /// The number of characters, not counting stars: in this state, all of the pattern fits.
    end: usize,
    /// States that remain whatever comes: those before a star.
    staying: States,
    /// States from which any character leads to the next: those before a `?`.
    passing: States,
    /// States from which this character leads to the next, those of `passing` among them.
    passing_with: BTreeMap<char, States>,
}

impl From<&str> for Glob {
    fn from(pattern: &str) -> Self {
        Self { written: pattern.into(), matcher: Box::new(pattern.into()), in_any_case: OnceLock::new() }
    }
}

impl PartialEq for Glob {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl Eq for Glob {}

impl Glob {
    /// The pattern as written.
    pub fn as_str(&self) -> &str {
        &self.written
    }

    /// Whether all of `text` fits, whatever the case of its letters: for names that no two things share but for case.
    pub fn matches_in_any_case(&self, text: &str) -> bool {
        let compile = || Box::new(Matcher::from(&*self.written.to_lowercase()));
        self.in_any_case.get_or_init(compile).matches(&text.to_lowercase())
    }

    /// Whether all of `text` fits. Takes a step for each character of the text, and one more for each further 64 of the
    /// pattern: a few microseconds for a name of 253 characters, whatever the pattern of 512.
    pub fn matches(&self, text: &str) -> bool {
        self.matcher.matches(text)
    }
}

impl From<&str> for Matcher {
    fn from(pattern: &str) -> Self {
        let end = pattern.chars().filter(|c| *c != '*').count();
        let none: States = vec![0; end / 64 + 1].into();
        let (mut staying, mut passing) = (none.clone(), none.clone());
        let mut passing_with = BTreeMap::<char, States>::new();
        let mut state = 0;
        for c in pattern.chars() {
            let before = match c {
                '*' => &mut staying,
                '?' => &mut passing,
                _ => passing_with.entry(c).or_insert_with(|| none.clone()),
            };
            before[state / 64] |= 1 << (state % 64);
            state += usize::from(c != '*');
        }
        for with in passing_with.values_mut() {
            with.iter_mut().zip(&passing).for_each(|(with, any)| *with |= any);
        }
        Self { end, staying, passing, passing_with }
    }
}

impl Matcher {
    fn matches(&self, text: &str) -> bool {
        let mut states = vec![0; self.staying.len()];
        states[0] = 1;
        for c in text.chars() {
            if self.has_end(&states) && self.has_end(&self.staying) {
                return true;
            }
            let passing = self.passing_with.get(&c).unwrap_or(&self.passing);
            let (mut carried, mut any) = (0, 0);
            for ((states, passing), staying) in states.iter_mut().zip(passing).zip(&self.staying) {
                let passed = *states & passing;
                *states = *states & staying | passed << 1 | carried;
                carried = passed >> 63;
                any |= *states;
            }
            if any == 0 {
                return false;
            }
        }
        self.has_end(&states)
    }

    fn has_end(&self, states: &[u64]) -> bool {
        states[self.end / 64] >> (self.end % 64) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_fit_what_people_expect() {
        for (pattern, text, fits) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything/at all", true),
            ("Exec*", "ExecSync", true),
            ("Exec*", "Exec", true),
            ("Exec", "ExecSync", false),
            ("*Container", "StartContainer", true),
            ("*Container", "StartContainers", false),
            ("List*s", "ListPodStats", true),
            ("*a*b", "aab", true),
            ("*ab", "aab", true),
            ("*ab*ab", "abab", true),
            ("*ab*ab", "ab", false),
            ("web-?", "web-1", true),
            ("web-?", "web-", false),
            ("?", "ü", true),
            ("*ü", "xü", true),
            ("**", "x", true),
        ] {
            assert_eq!(Glob::from(pattern).matches(text), fits, "{pattern:?} on {text:?}");
        }
    }

    #[test]
    fn case_matters_only_where_it_shall() {
        assert!(!Glob::from("exec*").matches("ExecSync"));
        assert!(Glob::from("exec*").matches_in_any_case("ExecSync"));
        assert!(!Glob::from("exec").matches_in_any_case("ExecSync"));
    }

    /// The definition, written down without regard to cost.
    fn naive(pattern: &[char], text: &[char]) -> bool {
        match (pattern, text) {
            ([], []) => true,
            (['*', after @ ..], _) => {
                naive(after, text) || text.split_first().is_some_and(|(_, rest)| naive(pattern, rest))
            }
            ([wanted, after @ ..], [found, rest @ ..]) => {
                (*wanted == '?' || wanted == found) && naive(after, rest)
            }
            ([], [_, ..]) | ([_, ..], []) => false,
        }
    }

    /// The same by a table of which beginnings of the pattern fit which beginnings of the text: for longer ones.
    fn by_table(pattern: &[char], text: &[char]) -> bool {
        let mut fits = vec![false; text.len() + 1];
        fits[0] = true;
        for wanted in pattern {
            let before = fits.clone();
            for read in 0..fits.len() {
                fits[read] = match (wanted, read.checked_sub(1)) {
                    ('*', last) => before[read] || last.is_some_and(|last| fits[last]),
                    (_, None) => false,
                    (_, Some(last)) => (*wanted == '?' || *wanted == text[last]) && before[last],
                };
            }
        }
        fits[text.len()]
    }

    proptest! {
        #[test]
        fn long_patterns_agree_with_it_too(pattern in "[aab?*]{0,4}([aa?]{30,70}[*]?){1,4}[ab]?", text in "b?a{0,300}b?") {
            let (p, t): (Vec<_>, Vec<_>) = (pattern.chars().collect(), text.chars().collect());
            prop_assert_eq!(Glob::from(pattern.as_str()).matches(&text), by_table(&p, &t));
        }

        #[test]
        fn matching_agrees_with_the_definition(pattern in "[ab*?]{0,8}", text in "[ab]{0,10}") {
            let (p, t): (Vec<_>, Vec<_>) = (pattern.chars().collect(), text.chars().collect());
            prop_assert_eq!(Glob::from(pattern.as_str()).matches(&text), naive(&p, &t));
            prop_assert_eq!(by_table(&p, &t), naive(&p, &t));
        }
    }
}
