//! Suggestions for a mistyped path of names: the path and all candidates in, the nearest out. Pure.

use std::collections::HashMap;

use crate::document::suggest::typing_errors;

/// 3 are named at most, where several are equally near.
pub(super) const MOST: usize = 3;

/// The paths nearest to `wanted`, none twice, in their order: the first few of them, whatever the order of the candidates.
///
/// Each part is as it is written in `wanted`, or a few typing errors away. Failing that, one part may be another altogether,
/// if all others are as they stand; but never the part `pod`, as all pods of a workload would do then.
pub(super) fn nearest<'a, const N: usize>(
    wanted: [&str; N],
    pod: usize,
    candidates: impl IntoIterator<Item = [&'a str; N]>,
) -> Vec<[&'a str; N]> {
    let mut known = HashMap::new();
    let mut found: Vec<[&str; N]> = Vec::new();
    let mut best = usize::MAX;
    for candidate in candidates {
        let errors: [Option<usize>; N] = std::array::from_fn(|part| {
            *known.entry((part, candidate[part])).or_insert_with(|| errors(wanted[part], candidate[part]))
        });
        let Some(distance) = total(errors, pod) else { continue };
        if distance < best {
            best = distance;
            found.clear();
        }
        if distance == best
            && let Err(at) = found.binary_search(&candidate)
        {
            found.insert(at, candidate);
            found.truncate(MOST);
        }
    }
    found
}

/// `; did you mean a, b or c?`; nothing where there is nothing near.
pub(super) fn did_you_mean(ids: &[String]) -> String {
    match ids {
        [] => String::new(),
        [one] => format!("; did you mean {one}?"),
        [first @ .., last] => format!("; did you mean {} or {last}?", first.join(", ")),
    }
}

/// Twice the typing errors, so that what differs by case or a sign only stands between none and one.
fn errors(wanted: &str, candidate: &str) -> Option<usize> {
    if wanted == candidate {
        Some(0)
    } else {
        typing_errors(wanted, candidate).map(|errors| (2 * errors).max(1))
    }
}

/// More than any number of typing errors comes to.
const ANOTHER: usize = 1_000;

fn total<const N: usize>(errors: [Option<usize>; N], pod: usize) -> Option<usize> {
    let near: usize = errors.iter().flatten().sum();
    let mut others = (0..N).filter(|&part| errors[part].is_none());
    match (others.next(), others.next()) {
        (None, _) => Some(near),
        (Some(other), None) if other != pod && near == 0 => Some(ANOTHER),
        (Some(_), _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_paths_are_found_and_far_ones_are_not() {
        let there = [
            ["default", "web-0", "app", "liveness"],
            ["default", "web-1", "app", "liveness"],
            ["default", "web-1", "app", "liveness"],
            ["default", "web-2", "app", "liveness"],
            ["default", "web-3", "app", "liveness"],
            ["default", "moody", "app", "readiness"],
            ["shop", "cart", "main", "startup"],
            ["a/b", "x", "y", "liveness"],
        ];
        for (wanted, found) in [
            ("default modoy app readiness", vec!["default moody app readiness"]),
            ("defualt moody apt readyness", vec!["default moody app readiness"]),
            ("Default Moody App Readiness", vec!["default moody app readiness"]),
            // A few equally near, and not all of them.
            (
                "default web-9 app liveness",
                vec![
                    "default web-0 app liveness",
                    "default web-1 app liveness",
                    "default web-2 app liveness",
                ],
            ),
            ("default web1 app liveness", vec!["default web-1 app liveness"]),
            // One part is another.
            ("default moody app startup", vec!["default moody app readiness"]),
            ("prod cart main startup", vec!["shop cart main startup"]),
            ("shop cart sidecar startup", vec!["shop cart main startup"]),
            // A part near beats a part far.
            ("shop cart mian startup", vec!["shop cart main startup"]),
            ("shop checkout main startup", vec![]),
            ("prod cart sidecar startup", vec![]),
            ("shop crat main liveness", vec![]),
            ("nothing at all there", vec![]),
        ] {
            let wanted: Vec<_> = wanted.split(' ').collect();
            let wanted = <[&str; 4]>::try_from(wanted).unwrap();
            let nearest: Vec<_> = nearest(wanted, 1, there).into_iter().map(|path| path.join(" ")).collect();
            assert_eq!(nearest, found, "{wanted:?}");
        }
    }

    #[test]
    fn they_are_told_in_a_sentence() {
        for (ids, reported) in [
            (vec![], ""),
            (vec!["a"], "; did you mean a?"),
            (vec!["a", "b"], "; did you mean a or b?"),
            (vec!["a", "b", "c"], "; did you mean a, b or c?"),
        ] {
            let ids: Vec<_> = ids.into_iter().map(str::to_owned).collect();
            assert_eq!(did_you_mean(&ids), reported);
        }
    }
}
