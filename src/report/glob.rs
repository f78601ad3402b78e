//! Patterns as people write them for names: `*` is any text, `?` any one character, all else is itself.

use serde::{Deserialize, Serialize};

/// A pattern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Glob(String);

impl From<&str> for Glob {
    fn from(pattern: &str) -> Self {
        Self(pattern.to_owned())
    }
}

impl Glob {
    /// The pattern as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether all of `text` fits. Takes at most the product of both lengths.
    pub fn matches(&self, text: &str) -> bool {
        let (mut pattern, mut text) = (self.0.chars(), text.chars());
        // Where to go on when a later character does not fit: after the last star, one character further on.
        let mut retry = None;
        loop {
            let (rest, ahead) = (text.clone(), pattern.next());
            match (ahead, text.next()) {
                (Some('*'), _) => {
                    text = rest;
                    retry = Some((pattern.clone(), text.clone()));
                }
                (None, None) => return true,
                (Some('?'), Some(_)) => {}
                (Some(wanted), Some(found)) if wanted == found => {}
                (Some(_), None) => return false,
                (Some(_) | None, Some(_)) => {
                    let Some((after_star, mut tail)) = retry.take() else { return false };
                    tail.next();
                    (pattern, text) = (after_star.clone(), tail.clone());
                    retry = Some((after_star, tail));
                }
            }
        }
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
            ("exec*", "ExecSync", false),
        ] {
            assert_eq!(Glob::from(pattern).matches(text), fits, "{pattern:?} on {text:?}");
        }
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
