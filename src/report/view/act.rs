//! Acts on containers in the API: what is going on, what the operator allows, what was done last.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Seconds, Time, text_size};
use crate::clock;

/// An act on a container that is asked for, or in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActView {
    /// `stop`, `kill`, `restart`.
    pub action: String,
    /// How far it is.
    pub step: ActStep,
    /// Why it is withheld, or why the last try failed; at most 512 bytes, empty in other steps.
    pub reason: String,
    /// Since when it is in this step.
    pub since: Time,
    /// When it goes on; null where that is not a matter of time.
    pub next_at: Option<Time>,
}

/// How far an act is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ActStep {
    /// It has not begun.
    Withheld,
    /// `onFailureCommand` runs.
    Command,
    /// The preStop hook runs.
    PreStop,
    /// The runtime stops the container.
    Stopping,
    /// The container has ended, and its successor is created later.
    BackOff,
    /// Its successor is created and started.
    Creating,
    /// That failed, and is tried again later.
    Retrying,
}

impl ActView {
    /// What is going on: `stopping`, `restart: back-off until 12:03:04Z`.
    pub fn in_words(&self) -> String {
        let Self { action, reason, .. } = self;
        let at = self.next_at.map(|at| clock::short(at.0, at.0)).unwrap_or_default();
        match self.step {
            ActStep::Withheld => format!("withheld: {reason}"),
            ActStep::Command => format!("{action}: onFailureCommand runs"),
            ActStep::PreStop => format!("{action}: the preStop hook runs"),
            ActStep::Stopping => "stopping".to_owned(),
            ActStep::BackOff => format!("{action}: back-off until {at}"),
            ActStep::Creating => format!("{action}: the new container is created"),
            ActStep::Retrying => {
                let failed_at = clock::short(self.since.0, self.since.0);
                let at = if at.is_empty() { "when the runtime answers" } else { &*at };
                format!("{action} failed at {failed_at}, next try {at}: {reason}")
            }
        }
    }

    /// What its texts take, in bytes.
    pub(super) fn text_size(&self) -> usize {
        text_size(&self.action) + text_size(&self.reason)
    }
}

/// Acts on this node: what the operator allows, and how much is going on.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActsView {
    /// Whether anything may act.
    pub enabled: bool,
    /// Whether acts are only reported.
    pub dry_run: bool,
    /// Acts that may begin in a minute.
    pub max_per_minute: u64,
    /// Acts that may be in progress at a time.
    pub max_concurrent: u64,
    /// Acts that began in the last minute.
    pub last_minute: u64,
    /// Acts in progress; one that waits for its back-off does not count.
    pub in_progress: u64,
    /// Acts that are asked for and withheld.
    pub withheld: u64,
    /// Why acts cannot be recorded, so that all are withheld; empty if they can.
    pub trouble: String,
}

/// What a probe's verdict of failure does, and what was done to its container last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeActsView {
    /// What the definition asks for: `report`, `stop`, `kill`, `restart`.
    pub asked: String,
    /// What is done: the same, or `report`.
    pub action: String,
    /// Why it is only a report although more is asked for; empty otherwise.
    pub refusal: String,
    /// The node's acts.
    pub node: ActsView,
    /// From when on a restart is allowed; null if nothing delays it.
    pub next_allowed_at: Option<Time>,
    /// The back-off before the next restart; 0 if it comes at once.
    pub back_off_seconds: Seconds,
    /// The last act on a container of this name in this pod; null if there was none that is remembered.
    pub last: Option<ActRecordView>,
}

/// One act, as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActRecordView {
    /// When it began.
    pub at: Time,
    /// The container that it was done to.
    pub container_id: String,
    /// `stop`, `kill`, `restart`.
    pub action: String,
    /// After what: `liveness failure`, `exit with code 1`.
    pub after: String,
    /// How it ended; null while it is in progress.
    pub end: Option<ActEndView>,
    /// Why it was given up; empty otherwise.
    pub reason: String,
    /// The container that runs in its place; empty if none was started.
    pub successor_id: String,
    /// How long it took until its end.
    pub took_seconds: Seconds,
    /// How `onFailureCommand` ended; null if there is none.
    pub command: Option<ActCommandView>,
}

/// How an act ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ActEndView {
    /// The container was stopped.
    Stopped,
    /// Another container runs in its place.
    Restarted,
    /// Only what would have been done was reported.
    DryRun,
    /// It was given up.
    GivenUp,
}

/// How an `onFailureCommand` ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActCommandView {
    /// Null if it did not end in time, or could not be run.
    pub exit_code: Option<i32>,
    /// How long it took.
    pub took_seconds: Seconds,
    /// What it printed, up to 10 KiB; if it could not be run, why.
    pub output: Arc<str>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::view::sample;

    #[test]
    fn every_step_has_words() {
        let said = |step| ActView { step, ..sample::act() }.in_words();
        assert_eq!(said(ActStep::Withheld), "withheld: no space left on device");
        assert_eq!(said(ActStep::Command), "restart: onFailureCommand runs");
        assert_eq!(said(ActStep::PreStop), "restart: the preStop hook runs");
        assert_eq!(said(ActStep::Stopping), "stopping");
        assert_eq!(said(ActStep::BackOff), "restart: back-off until 10:02:15Z");
        assert_eq!(said(ActStep::Creating), "restart: the new container is created");
        assert_eq!(
            said(ActStep::Retrying),
            "restart failed at 10:01:55Z, next try 10:02:15Z: no space left on device"
        );
        let away = ActView { next_at: None, ..sample::act() };
        assert!(
            away.in_words().starts_with("restart failed at 10:01:55Z, next try when the runtime answers: ")
        );
    }
}
