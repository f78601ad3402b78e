//! Finds the known word that a mistyped one was meant to be. Never looks at long words.

/// 64 bytes, as long as the names of most pods: longer words are not looked at, so that the search is bounded.
const MAX_WORD: usize = 64;

/// The candidate that `word` differs from by case only, or by few typing errors: one for every three letters, three
/// at most. The first of the nearest wins.
pub fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    candidates
        .iter()
        .filter_map(|candidate| Some((typing_errors(word, candidate)?, *candidate)))
        .min_by_key(|(errors, _)| *errors)
        .map(|(_, candidate)| candidate)
}

/// How many typing errors lead from one word to the other, case and joining signs aside; `None` where they are too
/// many for the one to be meant by the other.
pub fn typing_errors(word: &str, meant: &str) -> Option<usize> {
    if word.len().max(meant.len()) > MAX_WORD {
        return None;
    }
    let allowed = (word.chars().count() / 3).min(3);
    let (word, meant) = (plain(word), plain(meant));
    if word.len().abs_diff(meant.len()) > allowed {
        return None;
    }
    Some(distance(&word, &meant)).filter(|errors| *errors <= allowed)
}

/// Lower case, without the signs that join words.
fn plain(word: &str) -> Vec<char> {
    word.chars().filter(|c| !matches!(c, '-' | '_' | '.')).flat_map(char::to_lowercase).collect()
}

/// Insertions, deletions, replacements and swaps of neighbours from one word to the other.
fn distance(from: &[char], to: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in to.iter().enumerate() {
            let mut cost = (last[j] + usize::from(a != b)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b {
                cost = cost.min(before[j - 1] + 1);
            }
            row.push(cost);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[to.len()]
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
