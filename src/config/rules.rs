//! The rules of one file: keys as written in; valid rules with their places, and all errors of the others, out.
//! `resolve` reports names that are used in several files. Pure.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    pattern::{self, Of},
    value,
};
use crate::{
    document::{
        Place,
        fault::{FieldError, quoted},
        fields::{Field, Fields, Written},
    },
    glob::Glob,
    ids::ProbeKind,
    spec::{
        ProbeSpec,
        raw::{RawHealthcheck, RawProbe},
        rule::{HealthcheckRule, HistoryRule, Matcher, Rule},
        validate::{validate, validate_healthcheck},
    },
};

/// 500 rules in all files, because each container is matched against all of them. More are an error.
pub(crate) const MAX_RULES: usize = 500;

/// 63 characters: the maximum length of a rule's name; a longer one is an error.
const MAX_NAME: usize = 63;

/// The keys of `history`.
const HISTORY: [&str; 2] = ["attempts", "outputBytes"];

/// One rule of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WrittenRule {
    /// Its name in errors: `rules[0]`.
    pub path: String,
    /// Where it starts.
    pub place: Option<Place>,
    /// Its name, if it is valid.
    pub name: Option<Written<String>>,
    /// The rule; `None` if it is invalid, which has been reported.
    pub rule: Option<Rule>,
}

/// Reads the key `rules`; without it, there are none.
pub(super) fn read(top: &mut Fields<'_>) -> Vec<RawRule> {
    top.each_map("rules", raw_rule)
}

/// A rule as it was written.
#[derive(Debug)]
pub(super) struct RawRule {
    path: String,
    place: Option<Place>,
    name: Field<String>,
    matcher: Field<RawMatch>,
    enforce: Field<bool>,
    probes: [(ProbeKind, Field<RawProbe>); 3],
    healthcheck: Field<RawHealthcheck>,
    history: Field<[Field<i64>; 2]>,
}

#[derive(Debug)]
struct RawMatch {
    place: Option<Place>,
    names: [(&'static str, Field<String>); 4],
    labels: Field<Vec<(Written<String>, Written<String>)>>,
}

fn raw_rule(rule: &mut Fields<'_>) -> RawRule {
    RawRule {
        path: rule.path().to_owned(),
        place: rule.place(),
        name: rule.text("name"),
        matcher: rule.map("match", |matcher| RawMatch {
            place: matcher.place(),
            names: ["namespace", "pod", "container", "image"].map(|name| (name, matcher.text(name))),
            labels: matcher.pairs("labels"),
        }),
        enforce: rule.boolean("enforce"),
        probes: ProbeKind::ALL.map(|kind| (kind, rule.map(kind.as_str(), RawProbe::of))),
        healthcheck: rule.map("healthcheck", RawHealthcheck::of),
        history: rule.map("history", |history| HISTORY.map(|name| history.integer(name))),
    }
}

impl RawRule {
    /// Validates it; all violations of our rules and Kubernetes' are added to `errors`.
    pub(super) fn check(self, errors: &mut Vec<FieldError>) -> WrittenRule {
        let name = self.name(errors);
        let matcher = self.matcher(errors);
        let probes = self.probes(errors);
        let healthcheck = self.healthcheck(errors);
        let history = self.history(errors);
        let is_enforced = match &self.enforce {
            Field::Absent => Some(false),
            Field::Bad => None,
            Field::Given(written) => Some(written.value),
        };
        let rule = || {
            let name = name.as_ref()?.value.as_str().into();
            Some(Rule {
                name,
                matcher: matcher?,
                is_enforced: is_enforced?,
                probes: probes?,
                healthcheck: healthcheck?,
                history: history?,
            })
        };
        let rule = rule();
        WrittenRule { path: self.path, place: self.place, name, rule }
    }

    fn name(&self, errors: &mut Vec<FieldError>) -> Option<Written<String>> {
        let path = self.at("name");
        let written = match &self.name {
            Field::Bad => return None,
            Field::Absent => {
                let detail = "reports refer to a rule by its name";
                errors.push(FieldError::required(path, self.place, detail));
                return None;
            }
            Field::Given(written) => written,
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let text = &written.value;
        if text.is_empty() || text.len() > MAX_NAME || !text.chars().all(is_plain) {
            let detail = "must be 1 to 63 letters, digits, '-', '_' or '.'";
            errors.push(FieldError::invalid(path, written.place, quoted(text), detail));
            return None;
        }
        Some(written.clone())
    }

    fn matcher(&self, errors: &mut Vec<FieldError>) -> Option<Matcher> {
        let path = self.at("match");
        let raw = match &self.matcher {
            Field::Bad => return None,
            Field::Absent => None,
            Field::Given(written) => Some(&written.value),
        };
        let Some(raw) = raw.filter(|raw| !raw.is_empty()) else {
            let detail = "must say which containers: namespace, pod, container, image or labels; \
                          {namespace: \"*\"} is all";
            errors.push(FieldError::required(path, raw.map_or(self.place, |raw| raw.place), detail));
            return None;
        };
        let before = errors.len();
        let [namespace, pod, container, image] = raw.names.each_ref().map(|(name, field)| match field {
            Field::Absent => Some(Glob::from("*")),
            Field::Bad => None,
            Field::Given(written) => glob(written, format!("{path}.{name}"), Of::Name, errors),
        });
        let labels = labels(&raw.labels, &format!("{path}.labels"), errors);
        let matcher = Matcher {
            namespace: namespace?,
            pod: pod?,
            container: container?,
            image: image?,
            labels: labels?,
        };
        (errors.len() == before).then_some(matcher)
    }

    fn probes(&self, errors: &mut Vec<FieldError>) -> Option<Vec<Arc<ProbeSpec>>> {
        let has_others = !self.healthcheck.is_absent() || !self.history.is_absent();
        if self.probes.iter().all(|(_, field)| field.is_absent()) && !has_others {
            let detail = "must have a probe: startup, readiness or liveness; or healthcheck; or history";
            errors.push(FieldError::required(self.path.clone(), self.place, detail));
            return None;
        }
        let mut checked = Vec::new();
        for (kind, field) in &self.probes {
            match field {
                Field::Absent => {}
                Field::Bad => checked.push(None),
                Field::Given(raw) => {
                    let valid = validate(&raw.value, *kind, &self.at(kind.as_str()), Vec::new());
                    let valid = valid.map_err(|mut faults| errors.append(&mut faults));
                    checked.push(valid.map(Rule::defining).ok());
                }
            }
        }
        checked.into_iter().collect()
    }

    /// What it says of HEALTHCHECKs; `None` if that is invalid.
    fn healthcheck(&self, errors: &mut Vec<FieldError>) -> Option<HealthcheckRule> {
        match &self.healthcheck {
            Field::Absent => Some(HealthcheckRule::default()),
            Field::Bad => None,
            Field::Given(raw) => validate_healthcheck(&raw.value, &self.at("healthcheck"), errors),
        }
    }

    /// How much is kept of attempts; `None` if that is invalid.
    fn history(&self, errors: &mut Vec<FieldError>) -> Option<HistoryRule> {
        let [attempts, output_bytes] = match &self.history {
            Field::Absent => return Some(HistoryRule::default()),
            Field::Bad => return None,
            Field::Given(written) => &written.value,
        };
        let before = errors.len();
        let mut read = |field: &Field<i64>, name: &str, parse: fn(&str) -> Result<u16, String>| match field {
            Field::Absent => Some(None),
            Field::Bad => None,
            Field::Given(number) => {
                let valid = parse(&number.value.to_string());
                let path = self.at(&format!("history.{name}"));
                valid
                    .map_err(|reason| errors.push(FieldError { path, reason, place: number.place }))
                    .ok()
                    .map(Some)
            }
        };
        let [first, second] = HISTORY;
        let attempts = read(attempts, first, value::history_attempts);
        let output_bytes = read(output_bytes, second, value::history_output);
        if let (Some(None), Some(None), Field::Given(written)) = (attempts, output_bytes, &self.history) {
            let detail = "must say attempts or outputBytes";
            errors.push(FieldError::required(self.at("history"), written.place, detail));
        }
        let history = HistoryRule { attempts: attempts?, output_bytes: output_bytes? };
        (errors.len() == before).then_some(history)
    }

    fn at(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }
}

impl RawMatch {
    /// Whether it is empty.
    fn is_empty(&self) -> bool {
        let has_labels = match &self.labels {
            Field::Absent => false,
            Field::Bad => true,
            Field::Given(labels) => !labels.value.is_empty(),
        };
        !has_labels && self.names.iter().all(|(_, field)| field.is_absent())
    }
}

fn glob(written: &Written<String>, path: String, of: Of, errors: &mut Vec<FieldError>) -> Option<Glob> {
    pattern::parse(&written.value, of)
        .map_err(|reason| errors.push(FieldError { path, reason, place: written.place }))
        .ok()
}

fn labels(
    field: &Field<Vec<(Written<String>, Written<String>)>>,
    path: &str,
    errors: &mut Vec<FieldError>,
) -> Option<BTreeMap<String, Glob>> {
    let pairs = match field {
        Field::Absent => return Some(BTreeMap::new()),
        Field::Bad => return None,
        Field::Given(written) => &written.value,
    };
    let mut labels = BTreeMap::new();
    for (key, value) in pairs {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
        if key.value.is_empty() || !key.value.chars().all(is_plain) {
            let detail = "must be a label key: only values can be patterns";
            errors.push(FieldError::invalid(path.to_owned(), key.place, quoted(&key.value), detail));
            continue;
        }
        let path = format!("{path}[{}]", quoted(&key.value));
        labels.extend(glob(value, path, Of::LabelValue, errors).map(|glob| (key.value.clone(), glob)));
    }
    Some(labels)
}

#[cfg(test)]
mod tests;
