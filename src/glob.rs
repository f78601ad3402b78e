//! Patterns for names: `*` matches any text, `?` any one character, all others match themselves.

use std::sync::OnceLock;

use wildmatch::WildMatch;

/// A pattern.
#[derive(Clone, Debug)]
pub struct Glob {
    written: Box<str>,
    matcher: WildMatch,
    /// Made when it is first needed.
    in_any_case: OnceLock<Box<WildMatch>>,
}

impl From<&str> for Glob {
    fn from(pattern: &str) -> Self {
        let (written, matcher) = (pattern.into(), WildMatch::new(pattern));
        Self { written, matcher, in_any_case: OnceLock::new() }
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
        let compile = || Box::new(WildMatch::new_case_insensitive(&self.written));
        self.in_any_case.get_or_init(compile).matches(text)
    }

    /// Whether all of `text` fits. Takes at most the product of both lengths.
    pub fn matches(&self, text: &str) -> bool {
        self.matcher.matches(text)
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

    proptest! {
        #[test]
        fn matching_agrees_with_the_definition(pattern in "[ab*?]{0,8}", text in "[ab]{0,10}") {
            let (p, t): (Vec<_>, Vec<_>) = (pattern.chars().collect(), text.chars().collect());
            prop_assert_eq!(Glob::from(pattern.as_str()).matches(&text), naive(&p, &t));
        }
    }
}
