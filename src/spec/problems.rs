//! What is wrong with annotations that no probe comes from: keys of ours that mean nothing, and keys that name a
//! container which the pod does not have. Annotations and names in, sentences out. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::annotation;
use crate::{
    document::{fault::quoted, suggest},
    ids::ProbeKind,
};

/// 16 problems of one pod, or of one container, are put into words; of more, a last one gives the number.
const MOST: usize = 16;

/// 64 of a pod's containers are compared with a name that none of them has, so that the search is bounded.
const MOST_COMPARED: usize = 64;

/// 8: the most containers that are named to those who named another one.
const MOST_NAMED: usize = 8;

/// So long after its newest container was made, a pod is taken to have all of them: CRI does not say how many there will
/// be. A kubelet waits for init containers and image pulls in between: 10 min. Others make them one after another: 30 s.
/// A name that is nearly that of a container does not wait.
pub(crate) fn settled_after(is_kubelets: bool) -> Duration {
    Duration::from_secs(if is_kubelets { 600 } else { 30 })
}

/// What is wrong with the annotations of a pod that has these containers, and no others if it `is_settled`. Walks all
/// annotations.
pub(crate) fn of_pod(
    annotations: &BTreeMap<String, String>,
    containers: &BTreeSet<&str>,
    is_settled: bool,
) -> Vec<String> {
    let wrong = annotations.iter().filter_map(|(key, value)| {
        if let Some(fault) = annotation::fault(key, value) {
            return Some(Problem::NotUnderstood(key, fault));
        }
        let (kind, name) = annotation::target(key).filter(|(_, name)| !containers.contains(name))?;
        Some(Problem::Stranger { key, kind, name })
    });
    let in_words = |problem: &Problem<'_>| match problem {
        Problem::NotUnderstood(key, fault) => Some(fault.in_words(key)),
        Problem::Stranger { key, kind, name } => {
            // A container that has an annotation of its own is hardly the one that another annotation means.
            let is_free = |one: &&str| annotation::probe(annotations, *kind, one).is_none();
            let free: Vec<_> = containers.iter().copied().take(MOST_COMPARED).filter(is_free).collect();
            // `web-1` and `web-2` are two.
            let letters = |name: &str| name.replace(|character: char| character.is_ascii_digit(), "");
            let meant = nearest(name, &free).filter(|meant| letters(meant) != letters(name));
            let is_certain = meant.is_some() || is_settled && !containers.is_empty();
            let known: Vec<_> = if is_settled { containers.iter().copied().collect() } else { free };
            is_certain.then(|| format!("annotation {}: {}", quoted(key), no_container(name, &known)))
        }
    };
    bounded(wrong, in_words)
}

/// Whether a pod's annotations name a container that is none of these: it may still come.
pub(crate) fn has_strangers(annotations: &BTreeMap<String, String>, containers: &BTreeSet<&str>) -> bool {
    let mut targets = annotations.keys().filter_map(|key| annotation::target(key));
    targets.any(|(_, name)| !name.is_empty() && !containers.contains(name))
}

/// What is wrong with the annotations of a container itself.
pub(crate) fn of_container(annotations: &BTreeMap<String, String>, container: &str) -> Vec<String> {
    let wrong = annotations.iter().filter_map(|(key, value)| {
        if annotation::is_switch(key) {
            return Some(OwnProblem::Switch(key));
        }
        if let Some(fault) = annotation::fault(key, value) {
            return Some(OwnProblem::NotUnderstood(key, fault));
        }
        let (_, name) = annotation::target(key).filter(|(_, name)| *name != container)?;
        Some(OwnProblem::Elsewhere { key, name })
    });
    bounded(wrong, |problem| {
        let of = quoted(container);
        Some(match problem {
            OwnProblem::Switch(key) => format!("annotation {key} of container {of}: {ONLY_POD}"),
            OwnProblem::NotUnderstood(key, fault) => fault.in_words(key),
            OwnProblem::Elsewhere { key, name } => format!(
                "annotation {} of container {of}: it names container {}, so it has no effect here",
                quoted(key),
                quoted(name)
            ),
        })
    })
}

/// What is said of the switch where it is on a container.
pub(crate) const ONLY_POD: &str = "it has an effect only on the pod";

/// Says that a pod has no container of this name, and which one may be meant.
pub(crate) fn no_container(name: &str, known: &[&str]) -> String {
    let shown = || {
        let shown: Vec<_> = known.iter().take(MOST_NAMED).map(|name| quoted(name)).collect();
        let more = if known.len() > MOST_NAMED { ", ..." } else { "" };
        format!("it has {}{more}", shown.join(", "))
    };
    let compared = &known[..known.len().min(MOST_COMPARED)];
    let meant = nearest(name, compared);
    let meant = meant.map_or_else(shown, |meant| format!("did you mean {}?", quoted(meant)));
    format!("the pod has no container {}: {meant}", quoted(name))
}

/// The container that a name was probably meant to be: one within few typing errors, or, as a name of two letters allows
/// none, one that has a letter more or less.
fn nearest<'a>(name: &str, containers: &[&'a str]) -> Option<&'a str> {
    let lacks_one = |long: &str, short: &str| {
        long.char_indices().any(|(at, character)| {
            let rest = &long[at + character.len_utf8()..];
            short.strip_prefix(&long[..at]) == Some(rest)
        })
    };
    let is_near = |other: &&&str| {
        name.len().min(other.len()) == 2 && (lacks_one(name, other) || lacks_one(other, name))
    };
    suggest::nearest(name, containers).or_else(|| containers.iter().find(is_near).copied())
}

enum OwnProblem<'a> {
    Switch(&'a str),
    NotUnderstood(&'a str, annotation::Fault<'a>),
    Elsewhere { key: &'a str, name: &'a str },
}

enum Problem<'a> {
    NotUnderstood(&'a str, annotation::Fault<'a>),
    Stranger { key: &'a str, kind: ProbeKind, name: &'a str },
}

/// The first of them in words, and how many others there are. Those that are no problem yet have no words, and are not
/// counted among the first.
fn bounded<T>(problems: impl Iterator<Item = T>, in_words: impl Fn(&T) -> Option<String>) -> Vec<String> {
    let (mut shown, mut tried, mut more) = (Vec::new(), 0, 0_usize);
    for problem in problems {
        // To put one into words may cost a search.
        if tried < 2 * MOST && shown.len() < MOST {
            tried += 1;
            shown.extend(in_words(&problem));
        } else {
            more += 1;
        }
    }
    if more > 0 && !shown.is_empty() {
        shown.push(format!("and {more} more annotations of criprobe that may be wrong"));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::fixtures::texts;

    fn reported(annotations: &[(&str, &str)], containers: &[&str], is_settled: bool) -> Vec<String> {
        of_pod(&texts(annotations), &containers.iter().copied().collect(), is_settled)
    }

    #[test]
    fn a_container_that_the_pod_does_not_have_is_a_problem_once_that_is_certain() {
        let near =
            r#"annotation "liveness.criprobe.dev/apq": the pod has no container "apq": did you mean "app"?"#;
        let far =
            r#"annotation "liveness.criprobe.dev/web": the pod has no container "web": it has "app", "log""#;
        for (key, containers, is_settled, expected) in [
            ("liveness.criprobe.dev/apq", &["app", "log"][..], false, Some(near)),
            ("liveness.criprobe.dev/apq", &["app", "log"], true, Some(near)),
            ("liveness.criprobe.dev/web", &["app", "log"], false, None),
            ("liveness.criprobe.dev/web", &["app", "log"], true, Some(far)),
            ("liveness.criprobe.dev/web", &[], true, None),
            ("liveness.criprobe.dev/app", &["app"], true, None),
        ] {
            let found = reported(&[(key, "x")], containers, is_settled);
            assert_eq!(found, Vec::from_iter(expected.map(str::to_owned)), "{key} {containers:?}");
        }
        for (name, container, is_near) in [
            ("ap", "app", true),
            ("aap", "ap", true),
            ("ab", "ap", false),
            ("a1", "a2", false),
            ("db", "db2", false),
            ("db2", "db", false),
            ("web-2", "web-1", false),
            ("a", "ab", false),
            ("", "ab", false),
            ("\u{20ac}", "a\u{20ac}", false),
        ] {
            let found = reported(&[(&format!("liveness.criprobe.dev/{name}"), "x")], &[container], false);
            let is_named = found.iter().any(|one| one.contains(&format!("did you mean {container:?}?")));
            assert_eq!(is_named, is_near, "{name} {container}: {found:?}");
        }
        let both = [("liveness.criprobe.dev/app1", "x"), ("liveness.criprobe.dev/app2", "x")];
        assert_eq!(reported(&both, &["app1"], false), [""; 0], "app2 may still be made");
        assert_eq!(reported(&both, &["app1"], true).len(), 1);
        assert!(has_strangers(&texts(&both), &["app1"].into()));
        assert!(!has_strangers(&texts(&both), &["app1", "app2"].into()));
    }

    #[test]
    fn a_key_that_means_nothing_is_a_problem_at_once_also_before_there_is_a_container() {
        let found = reported(&[("livenes.criprobe.dev/app", "x"), ("criprobe.dev/probe", "off")], &[], false);
        assert_eq!(
            found,
            [
                r#"annotation "criprobe.dev/probe": unknown key: did you mean "criprobe.dev/probes"?"#,
                r#"annotation "livenes.criprobe.dev/app": unknown type: did you mean "liveness"?"#,
            ]
        );
    }

    #[test]
    fn an_annotation_of_a_container_is_about_that_container_alone() {
        let all = [
            ("criprobe.dev/probes", "off"),
            ("liveness.criprobe.dev/app", "x"),
            ("liveness.criprobe.dev/log", "x"),
        ];
        assert_eq!(
            of_container(&texts(&all), "app"),
            [
                r#"annotation criprobe.dev/probes of container "app": it has an effect only on the pod"#,
                r#"annotation "liveness.criprobe.dev/log" of container "app": it names container "log", so it has no effect here"#,
            ]
        );
    }

    #[test]
    fn of_thousands_of_wrong_keys_of_a_container_only_the_first_are_put_into_words() {
        let put = std::cell::Cell::new(0);
        let found = bounded(0..1_400, |number| {
            put.set(put.get() + 1);
            Some(number.to_string())
        });
        assert_eq!((put.get(), found.len()), (MOST, MOST + 1));
        let keys: Vec<_> = (0..1_400).map(|number| format!("x.criprobe.dev/c{number}")).collect();
        let all: Vec<_> = keys.iter().map(|key| (&**key, "x")).collect();
        let found = of_container(&texts(&all), "app");
        assert_eq!((found.len(), found[MOST].contains("1384 more")), (MOST + 1, true), "{found:?}");
    }

    #[test]
    fn of_thousands_of_wrong_keys_the_first_are_shown_and_the_others_counted() {
        for prefix in ["liveness.criprobe.dev/c", "x.criprobe.dev/c"] {
            let keys: Vec<_> = (0..1_400).map(|number| format!("{prefix}{number}")).collect();
            let all: Vec<_> = keys.iter().map(|key| (&**key, "x")).collect();
            let found = reported(&all, &["app"], true);
            assert_eq!((found.len(), found[MOST].contains("1384 more")), (MOST + 1, true), "{found:?}");
            assert!(found.iter().all(|one| one.len() < 256), "{found:?}");
        }
    }
}
