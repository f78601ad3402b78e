//! One probe in the API: a short form of its definition, its state, and its last attempt.

use std::{borrow::Cow, sync::Arc, time::SystemTime};

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use super::{ActView, ExecRouteView, PauseView, PhasesView, Seconds, Time, text_size};
use crate::{
    clock,
    prober::status::ProbePhase,
    results::{self, AttemptResult, Counts, Run, Verdict, errors::Errors},
};

/// One probe of one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeView {
    /// `NAMESPACE/POD/CONTAINER/TYPE`, as [`probe_id`] makes it; shared by the sandboxes of a pod of that name.
    pub id: String,
    /// `POD_UID/CONTAINER/TYPE`: unique.
    pub key: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's uid.
    pub pod_uid: String,
    /// The sandbox that the pod has now.
    pub sandbox_id: String,
    /// The container's name.
    pub container: String,
    /// The container that is probed now; empty while there is none.
    pub container_id: String,
    /// Counts the containers of this name.
    pub attempt: u32,
    /// `startup`, `readiness`, `liveness`, or `observed-N`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `startup`, `readiness`, `liveness`: what a client's own probe is in its pod, where that can be known; else absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub likely_type: Option<String>,
    /// `exec`, `httpGet`, `tcpSocket`, `grpc`; empty if the definition is too broken to know.
    pub handler: String,
    /// Where the definition came from: `annotation`, `rule:NAME`, `healthcheck`, `observed`.
    pub source: String,
    /// What it is doing.
    pub phase: ProbePhase,
    /// The verdict after thresholds.
    pub state: Verdict,
    /// Why it is in this phase or state, in words, after what is done to its container now; empty where that says enough.
    pub reason: String,
    /// Since when `state` is what it is.
    pub since: Time,
    /// From one attempt to the next; null where the definition is wrong.
    pub period_seconds: Option<Seconds>,
    /// When the next attempt is due; null when none is.
    pub next_at: Option<Time>,
    /// Results of the same kind in a row, up to now; null before the first of a container.
    pub run: Option<Run>,
    /// All attempts at the current container, by outcome.
    pub counts: Counts,
    /// The newest attempt; null before the first.
    pub last: Option<AttemptView>,
    /// The newest attempts, where they were errors; absent if the newest one at the current container was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors: Option<ErrorsView>,
    /// When the newest attempt began that was a warning, a failure or an error; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsuccessful_at: Option<Time>,
    /// How long the attempts at the current container took since criprobe started; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyView>,
    /// What a verdict of failure does: `report`, `stop`, `kill`, `restart`.
    pub on_failure: String,
    /// What its definition asks for, where that is not done; else absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure_asked: Option<String>,
    /// Why that is not done; else absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub act_refusal: Option<String>,
    /// Definitions that this one overrides, as they would show in `source`.
    pub shadowed: Vec<String>,
    /// What is done to its container now, or withheld; absent if nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub act: Option<ActView>,
    /// Its pause; absent if it is not paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<PauseView>,
    /// Whether a client stops its container or pod, or has done so; absent if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped_by_client: bool,
}

/// Attempts that could not be made, one after the other, up to now. They change no verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ErrorsView {
    /// How many in a row.
    pub count: u32,
    /// When the first of them began.
    pub since: Time,
    /// Whether there are as many as failures would make a verdict, or the runtime is away: what `state` says is not known any more.
    pub cannot_try: bool,
}

impl LatencyView {
    /// Where its p99 is: `over` the timeout, or `near` it; `None` well below.
    pub fn beside_timeout(&self) -> Option<&'static str> {
        match (self.near_timeout, self.over_timeout) {
            (_, true) => Some("over"),
            (true, false) => Some("near"),
            (false, false) => None,
        }
    }
}

impl ErrorsView {
    /// `cannot be tried since 10:00:00Z (7 attempts)`.
    pub fn in_words(&self, now: SystemTime) -> String {
        Errors::in_words(self.count, &clock::short(self.since.0, now))
    }
}

/// How long the attempts of a probe took, at most 19 % too long. Errors do not count: they are attempts that were not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LatencyView {
    /// How many attempts it is about.
    pub attempts: u32,
    /// Half of them took no longer.
    pub p50_seconds: Seconds,
    /// 99 of 100 took no longer.
    pub p99_seconds: Seconds,
    /// Whether that is more than 80 % of the probe's timeout.
    pub near_timeout: bool,
    /// Whether that is more than the probe's timeout.
    #[serde(default)]
    pub over_timeout: bool,
}

/// One attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptView {
    /// When it began.
    pub at: Time,
    /// How it ended.
    pub result: AttemptResult,
    /// How long it took.
    pub duration_seconds: Seconds,
    /// Of an exec that ended by itself; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Of an HTTP response; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The route of its command.
    #[serde(flatten)]
    pub route: ExecRouteView,
    /// How long after it was due it began: the wait for a place among the workers. Of the newest attempt only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_seconds: Option<Seconds>,
    /// Counts the containers of this name: the one that it was made at. Only in a history; absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_attempt: Option<u32>,
    /// Whether it was the first at its container. Only in a history; absent if it was not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub first_of_container: bool,
    /// What it said: up to 10 KiB of the newest attempt, of one in a history as much as `history.outputBytes` says, by default
    /// 256 bytes.
    pub output: Arc<str>,
    /// Where its time went, of a command; absent where that is not known, or, in a history, where it was quick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phases: Option<PhasesView>,
    /// Why that is not known, of a command, in words of a closed set; absent where it is, or, in a history, where it was quick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phases_unknown: Option<Cow<'static, str>>,
    /// What took so long, in words; absent where that is not known, or where it was quick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub culprit: Option<String>,
}

impl AttemptView {
    /// What it takes, in bytes, with the output, which it may share.
    pub fn size(&self) -> usize {
        size_of::<Self>() + self.output.len()
    }

    /// What it said, without blanks around it; of a failure that said nothing, `exit code 1, no output`.
    pub fn words(&self) -> Cow<'_, str> {
        results::words(self.result, self.exit_code, &self.output)
    }
}

impl ProbeView {
    /// Whether its verdict is failure, in whatever phase: also where its container has exited by itself; or whether it cannot
    /// be tried, so that its verdict says nothing. What a client stops on purpose does not fail. One with a wrong definition
    /// has no verdict.
    pub fn is_failing(&self) -> bool {
        let is_bad = self.state == Verdict::Failure || self.cannot_try();
        is_bad && self.phase != ProbePhase::Stopped && !self.stopped_by_client
    }

    /// Whether its newest attempts were errors, as many as failures would make a verdict.
    pub fn cannot_try(&self) -> bool {
        self.errors.is_some_and(|errors| errors.cannot_try)
    }

    /// What it takes, in bytes, with the output, which it may share.
    pub fn size(&self) -> usize {
        let texts = [
            &self.id,
            &self.key,
            &self.namespace,
            &self.pod,
            &self.pod_uid,
            &self.sandbox_id,
            &self.container,
            &self.container_id,
            &self.kind,
            &self.handler,
            &self.source,
            &self.reason,
            &self.on_failure,
        ];
        let texts = texts.into_iter().chain(&self.likely_type);
        let texts = texts.chain(&self.on_failure_asked).chain(&self.act_refusal);
        size_of::<Self>()
            + texts.map(text_size).sum::<usize>()
            + self.shadowed.iter().map(|source| size_of::<String>() + text_size(source)).sum::<usize>()
            + self.act.as_ref().map_or(0, ActView::text_size)
            + self.pause.as_ref().map_or(0, |pause| text_size(&pause.reason))
            + self.last.as_ref().map_or(0, |last| last.output.len())
    }
}

/// What a name in a probe's id may not hold as it is: the separator, the escape itself, controls.
const NOT_IN_NAMES: &AsciiSet = &CONTROLS.add(b'/').add(b'%');

/// `NAMESPACE/POD/CONTAINER/TYPE`; a slash or a percent sign within a name is percent-encoded.
pub fn probe_id(namespace: &str, pod: &str, container: &str, kind: &str) -> String {
    joined([namespace, pod, container, kind])
}

/// Names with slashes between them; a slash or a percent sign within a name is percent-encoded.
pub fn joined<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names = names.into_iter().map(|name| utf8_percent_encode(name, NOT_IN_NAMES).to_string());
    names.collect::<Vec<_>>().join("/")
}

/// `POD_UID/CONTAINER/TYPE`; a slash or a percent sign within a name is percent-encoded.
pub fn probe_key(pod_uid: &str, container: &str, kind: &str) -> String {
    let name = |name| utf8_percent_encode(name, NOT_IN_NAMES);
    format!("{}/{}/{}", name(pod_uid), name(container), name(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_within_a_name_does_not_split_an_id() {
        assert_eq!(probe_id("default", "web", "app", "liveness"), "default/web/app/liveness");
        assert_eq!(probe_key("uid", "a/b", "liveness"), "uid/a%2Fb/liveness");
        assert_eq!(probe_id("a/b", "50%", "x\n", "liveness"), "a%2Fb/50%25/x%0A/liveness");
    }
}
