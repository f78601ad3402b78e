//! Finds the known word that a mistyped word was probably meant to be. Ignores long words.

/// 64 bytes, the length of most pod names: longer words are ignored, so that the search is bounded.
const MAX_WORD: usize = 64;

/// The candidate that differs from `word` only in case, or by few typing errors: one per three letters, at most three.
/// The first of the nearest ones is chosen.
pub(crate) fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    candidates
        .iter()
        .filter_map(|candidate| Some((typing_errors(word, candidate)?, *candidate)))
        .min_by_key(|(errors, _)| *errors)
        .map(|(_, candidate)| candidate)
}

/// The number of typing errors between two words, ignoring case and joining characters; `None` if there are too many.
pub(crate) fn typing_errors(word: &str, meant: &str) -> Option<usize> {
    if word.len().max(meant.len()) > MAX_WORD {
        return None;
    }
    let allowed = (word.chars().count() / 3).min(3);
    let (word, meant) = (plain(word), plain(meant));
    Some(strsim::osa_distance(&word, &meant)).filter(|errors| *errors <= allowed)
}

/// Lower case, without characters that join words.
fn plain(word: &str) -> String {
    word.chars().filter(|c| !matches!(c, '-' | '_' | '.')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_key_finds_the_one_that_was_meant() {
        let keys = ["exec", "httpGet", "periodSeconds", "period", "successThreshold", "failureThreshold"];
        for (typed, meant) in [
            ("periodSecond", Some("periodSeconds")),
            ("perodSeconds", Some("periodSeconds")),
            ("peroid", Some("period")),
            ("PERIODSECONDS", Some("periodSeconds")),
            ("failure_threshold", Some("failureThreshold")),
            ("http-get", Some("httpGet")),
            ("excec", Some("exec")),
            ("ex", None),
            ("command", None),
            ("", None),
            ("ééééé", None),
        ] {
            assert_eq!(nearest(typed, &keys), meant, "{typed}");
        }
        assert_eq!(nearest(&"period".repeat(100), &keys), None);
    }
}
