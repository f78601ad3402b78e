//! The configuration in effect in the API: each setting and each rule, and where it was set.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{DefinitionView, FailureCommandView, Seconds};

/// The configuration in effect.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct ConfigurationView {
    /// The files that were read, in order: a later one takes precedence.
    pub files: Vec<String>,
    /// Every setting, in the order of the packaged file.
    pub settings: Vec<SettingView>,
    /// The rules, in the order in which they are tried.
    pub rules: Vec<RuleView>,
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingView {
    /// Its path in a file: `prober.workers`.
    pub key: String,
    /// As it was written.
    pub value: SettingValue,
    /// Who said it: `/etc/criprobe/config.yaml:7:3`, `CRIPROBE_LISTEN`, `--listen`, `default`.
    pub from: String,
}

/// A text, also of a number, or a list of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SettingValue {
    /// One text.
    One(String),
    /// A list.
    Many(Vec<String>),
}

/// One rule. The values of HTTP headers are not shown: they may be secrets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RuleView {
    /// Its name.
    pub name: String,
    /// Where it is: `/etc/criprobe/conf.d/web.yaml:2:5`.
    pub from: String,
    /// Whether it takes precedence over annotations.
    pub enforce: bool,
    /// Which containers it is for.
    #[serde(rename = "match")]
    pub matcher: MatchView,
    /// Its startup probe; null if it has none.
    pub startup: Option<DefinitionView>,
    /// Its readiness probe; null if it has none.
    pub readiness: Option<DefinitionView>,
    /// Its liveness probe; null if it has none.
    pub liveness: Option<DefinitionView>,
    /// What it says of HEALTHCHECKs; absent if it says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthcheck: Option<HealthcheckView>,
    /// How much is kept of attempts by it; absent if it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<HistoryView>,
}

/// How much is kept of the attempts of a probe, in a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryView {
    /// How many attempts; absent if the setting `history.attempts` applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u16>,
    /// How many bytes of what each said; absent if the setting `history.outputBytes` applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u16>,
}

/// What a rule says of HEALTHCHECKs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthcheckView {
    /// What their verdict of failure does: `report`, `stop`, `kill`, `restart`; null where the rule does not say.
    pub on_failure: Option<String>,
    /// What runs in the container before that; null where nothing does.
    pub on_failure_command: Option<FailureCommandView>,
    /// Overrides the pod's grace period; null where it does not.
    pub termination_grace_period_seconds: Option<Seconds>,
    /// How their commands are run: `sync`, `session`; absent if the rule does not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec_mode: Option<String>,
}

/// Which containers a rule is for: those that fit all of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatchView {
    /// Of the pod's namespace.
    pub namespace: String,
    /// Of the pod's name.
    pub pod: String,
    /// Of the container's name.
    pub container: String,
    /// Of the image.
    pub image: String,
    /// Of the values of the pod's labels.
    pub labels: BTreeMap<String, String>,
}
