//! Converts a rule into its view. In: the rule, and its place. Out: the JSON shape, without possible secrets.

use super::view::{DefinitionView, HandlerView, HealthcheckView, HistoryView, MatchView, RuleView, Seconds};
use crate::{
    ids::ProbeKind,
    spec::{
        ProbeSpec,
        rule::{HealthcheckRule, Matcher, Rule},
    },
};

/// Replaces what is not shown.
const HIDDEN: &str = "(not shown)";

impl RuleView {
    /// That of a rule which stands there.
    pub fn of(rule: &Rule, from: String) -> Self {
        let probe =
            |kind: ProbeKind| rule.probe(kind).map(|spec| DefinitionView::from(&**spec).without_secrets());
        Self {
            name: rule.name.to_string(),
            from,
            enforce: rule.is_enforced,
            matcher: (&rule.matcher).into(),
            startup: probe(ProbeKind::Startup),
            readiness: probe(ProbeKind::Readiness),
            liveness: probe(ProbeKind::Liveness),
            healthcheck: HealthcheckView::of(&rule.healthcheck),
            history: (!rule.history.is_empty()).then_some(HistoryView {
                attempts: rule.history.attempts,
                output_bytes: rule.history.output_bytes,
            }),
        }
    }
}

impl HealthcheckView {
    /// What a rule says of HEALTHCHECKs, if it says anything.
    pub fn of(rule: &HealthcheckRule) -> Option<Self> {
        let act = rule.act.as_deref();
        (!rule.is_empty()).then(|| Self {
            on_failure: act.map(|act| act.on_failure.as_str().to_owned()),
            on_failure_command: act.and_then(|act| act.on_failure_command.as_ref().map(Into::into)),
            termination_grace_period_seconds: act.and_then(|act| act.termination_grace.map(Seconds)),
            exec_mode: rule.exec_mode.map(|mode| mode.as_str().to_owned()),
        })
    }
}

impl From<&Matcher> for MatchView {
    fn from(matcher: &Matcher) -> Self {
        let labels = matcher.labels.iter().map(|(key, value)| (key.clone(), value.as_str().to_owned()));
        Self {
            namespace: matcher.namespace.as_str().to_owned(),
            pod: matcher.pod.as_str().to_owned(),
            container: matcher.container.as_str().to_owned(),
            image: matcher.image.as_str().to_owned(),
            labels: labels.collect(),
        }
    }
}

impl DefinitionView {
    /// The definition of a probe. `source` is as users see it: one from a rule is shown without possible secrets.
    pub fn of(spec: &ProbeSpec, source: &str) -> Self {
        let view = Self::from(spec);
        if source.starts_with("rule:") { view.without_secrets() } else { view }
    }

    /// The same, without the values of HTTP headers: an operator may have written a token there.
    #[must_use]
    pub fn without_secrets(mut self) -> Self {
        if let HandlerView::HttpGet { http_headers, .. } = &mut self.handler {
            http_headers.iter_mut().for_each(|header| HIDDEN.clone_into(&mut header.value));
        }
        self
    }
}
