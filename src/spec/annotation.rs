//! Finds probes among annotations: `liveness.criprobe.dev/<container>` and the like, and the switch
//! `criprobe.dev/probes`. Only finds the text of a probe, never parses it.

use std::{collections::BTreeMap, ops::Bound};

use crate::{
    document::{fault::quoted, suggest},
    ids::ProbeKind,
};

/// 16 KiB: the longest annotation that is read. A longer one makes its probe invalid.
pub(crate) const MAX_ANNOTATION: usize = 16 << 10;

/// Turns a pod's probes off where its value is [`OFF`], in any case.
const SWITCH: &str = "criprobe.dev/probes";
const OFF: &str = "off";
const ON: &str = "on";

/// What all our keys have before their slash, alone or after a type and a dot.
const DOMAIN: &str = "criprobe.dev";

/// The text of a container's probe, if there is one. Costs no more than one look into the map if there is none.
pub(crate) fn probe<'a>(
    annotations: &'a BTreeMap<String, String>,
    kind: ProbeKind,
    container: &str,
) -> Option<&'a str> {
    let prefix = prefix(kind);
    let (first, _) = annotations.range::<str, _>((Bound::Included(prefix), Bound::Unbounded)).next()?;
    if !first.starts_with(prefix) {
        return None;
    }
    annotations.get(&format!("{prefix}{container}")).map(String::as_str)
}

/// Which probe of which container a key asks for, if it is one of ours; the container's name may be empty.
pub(crate) fn target(key: &str) -> Option<(ProbeKind, &str)> {
    ProbeKind::ALL.into_iter().find_map(|kind| Some((kind, key.strip_prefix(prefix(kind))?)))
}

/// Whether a key turns a pod's probes on and off.
pub(crate) fn is_switch(key: &str) -> bool {
    key == SWITCH
}

/// Whether a key is under our domain, understood or not.
pub(crate) fn is_ours(key: &str) -> bool {
    let domain = before_slash(key).0.strip_suffix(DOMAIN);
    domain.is_some_and(|kind| kind.is_empty() || kind.ends_with('.'))
}

/// The part of a key before its slash, and the name after it. A key without a slash is all prefix: someone forgot the
/// container's name.
fn before_slash(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or((key, ""))
}

/// Whether the pod with these annotations wants no probes.
pub(crate) fn are_off(annotations: &BTreeMap<String, String>) -> bool {
    annotations.get(SWITCH).is_some_and(|value| value.eq_ignore_ascii_case(OFF))
}

/// Why a key under our domain, or its value, means nothing to us. It changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault<'a> {
    /// A key without a type that is not [`SWITCH`].
    UnknownKey,
    /// A value of the switch.
    UnknownValue(&'a str),
    /// The word in the place of the type of a probe.
    UnknownType(&'a str),
    /// There is a type, and no container.
    NoContainer(&'a str),
}

/// What is wrong with an annotation under our domain, if anything is; costs little.
pub(crate) fn fault<'a>(key: &'a str, value: &'a str) -> Option<Fault<'a>> {
    let (before, name) = before_slash(key);
    let kind = match before.strip_suffix(DOMAIN)? {
        "" => None,
        kind => Some(kind.strip_suffix('.')?),
    };
    match kind {
        None if key == DOMAIN => None,
        None if key != SWITCH => Some(Fault::UnknownKey),
        None if ![OFF, ON].iter().any(|known| value.eq_ignore_ascii_case(known)) => {
            Some(Fault::UnknownValue(value))
        }
        None => None,
        Some(kind) if kind.parse::<ProbeKind>().is_err() => Some(Fault::UnknownType(kind)),
        Some(kind) if name.is_empty() => Some(Fault::NoContainer(kind)),
        Some(_) => None,
    }
}

impl Fault<'_> {
    /// One line for people, about the annotation with this key.
    pub(crate) fn in_words(self, key: &str) -> String {
        let shown = quoted(key);
        match self {
            Self::UnknownKey => format!("annotation {shown}: unknown key: did you mean {SWITCH:?}?"),
            Self::UnknownValue(value) => {
                format!("annotation {SWITCH}: unknown value {}: write \"off\" or \"on\"", quoted(value))
            }
            Self::UnknownType(kind) => {
                let kinds = ProbeKind::ALL.map(ProbeKind::as_str);
                let meant = suggest::nearest(kind, &kinds).map_or_else(
                    || format!("probe type {}: known types are {}", quoted(kind), kinds.join(", ")),
                    |meant| format!("type: did you mean {meant:?}?"),
                );
                format!("annotation {shown}: unknown {meant}")
            }
            Self::NoContainer(kind) => {
                format!("annotation {shown}: the container name is missing: write {kind}.{DOMAIN}/CONTAINER")
            }
        }
    }
}

fn prefix(kind: ProbeKind) -> &'static str {
    match kind {
        ProbeKind::Startup => "startup.criprobe.dev/",
        ProbeKind::Readiness => "readiness.criprobe.dev/",
        ProbeKind::Liveness => "liveness.criprobe.dev/",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_probe_is_found_by_its_type_and_its_containers_exact_name() {
        let annotations = map(&[
            ("liveness.criprobe.dev/app", "a"),
            ("liveness.criprobe.dev/app2", "b"),
            ("readiness.criprobe.dev/app", "c"),
            ("liveness.criprobe.devil/x", "d"),
        ]);
        for (kind, container, found) in [
            (ProbeKind::Liveness, "app", Some("a")),
            (ProbeKind::Liveness, "app2", Some("b")),
            (ProbeKind::Liveness, "ap", None),
            (ProbeKind::Liveness, "", None),
            (ProbeKind::Liveness, "x", None),
            (ProbeKind::Readiness, "app", Some("c")),
            (ProbeKind::Startup, "app", None),
        ] {
            assert_eq!(probe(&annotations, kind, container), found, "{kind} {container}");
        }
    }

    #[test]
    fn only_off_turns_probes_off() {
        for (value, off) in
            [("off", true), ("on", false), ("Off", true), ("OFF", true), ("false", false), ("", false)]
        {
            assert_eq!(are_off(&map(&[("criprobe.dev/probes", value)])), off, "{value}");
        }
        assert!(!are_off(&BTreeMap::new()));
    }

    #[test]
    fn what_we_do_not_know_under_our_domain_is_noted() {
        for (key, value, noted) in [
            ("liveness.criprobe.dev/app", "x", None),
            ("criprobe.dev/probes", "off", None),
            ("criprobe.dev/probes", "on", None),
            ("criprobe.dev/probes", "On", None),
            ("example.org/probes", "x", None),
            ("notcriprobe.dev/probes", "x", None),
            ("criprobe.dev", "x", None),
            (
                "livenes.criprobe.dev/app",
                "x",
                Some(r#"annotation "livenes.criprobe.dev/app": unknown type: did you mean "liveness"?"#),
            ),
            (
                "foo.criprobe.dev/app",
                "x",
                Some(
                    r#"annotation "foo.criprobe.dev/app": unknown probe type "foo": known types are startup, readiness, liveness"#,
                ),
            ),
            (
                "startup.criprobe.dev/",
                "x",
                Some(
                    r#"annotation "startup.criprobe.dev/": the container name is missing: write startup.criprobe.dev/CONTAINER"#,
                ),
            ),
            (
                "liveness.criprobe.dev",
                "x",
                Some(
                    r#"annotation "liveness.criprobe.dev": the container name is missing: write liveness.criprobe.dev/CONTAINER"#,
                ),
            ),
            (
                "criprobe.dev/probe",
                "off",
                Some(r#"annotation "criprobe.dev/probe": unknown key: did you mean "criprobe.dev/probes"?"#),
            ),
            (
                "criprobe.dev/probes",
                "false",
                Some(r#"annotation criprobe.dev/probes: unknown value "false": write "off" or "on""#),
            ),
        ] {
            assert_eq!(fault(key, value).map(|fault| fault.in_words(key)).as_deref(), noted, "{key}");
        }
    }
}
