//! State that outlives a restart of the prober: a checkpoint of each probe, and whether the probe is paused. Here are
//! the types and bounds. `json` converts them to text and back, `due` decides when to save, and `pending` holds what was
//! restored until its probe is planned. Pure: `app::state` reads and writes the file.

pub(in crate::prober) mod due;
mod json;
pub(in crate::prober) mod pending;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};

use crate::{
    ids::{ContainerId, ProbeKey, ProbeKind},
    prober::pauses::Pause,
    results::{AttemptRecord, AttemptResult, Counts, Run, Verdict, errors::Errors},
    spec::identity::Definition,
};

pub(crate) use json::{SavedError, time};

/// 16 MiB: the longest text that is read or written. A longer one is an error where it is read; where it is written,
/// probes are left out, those that are not paused first.
pub(crate) const MAX_BYTES: usize = 16 << 20;

/// 100,000 probes are read or written at most; likewise.
pub(crate) const MAX_PROBES: usize = 100_000;

/// 256 bytes of what the last attempt said are saved, cut at a character. The rest is lost with a restart.
const OUTPUT: usize = 256;

/// 2 MiB: what the saved outputs of all probes take together, as they are written. If all would take more, each probe
/// saves no more than an equal share.
const OUTPUTS: usize = 2 << 20;

/// All probes, in no order.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Saved {
    /// At most one a key; of several, the last counts.
    pub probes: Vec<SavedProbe>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SavedProbe {
    /// Which.
    pub key: ProbeKey,
    /// Its pause, if it is paused: on whatever container.
    pub pause: Option<Pause>,
    /// Its progress on its container, if it has seen that run.
    pub checkpoint: Option<Checkpoint>,
}

/// The progress of a probe on one container. Means nothing for another container or another definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    #[serde(rename = "containerId")]
    pub container: ContainerId,
    /// Of what the probe was.
    pub definition: Definition,
    /// The verdict; of startup, success is what releases the others.
    #[serde(rename = "state")]
    pub verdict: Option<Verdict>,
    /// Since when it stands.
    #[serde(with = "json::time")]
    pub since: SystemTime,
    /// The results in a row.
    pub run: Run,
    /// How many there are of this container, where a verdict has ended the run meanwhile.
    #[serde(default, rename = "runHere", skip_serializing_if = "Option::is_none")]
    pub run_here: Option<u32>,
    /// The attempts of this container.
    #[serde(deserialize_with = "json::bounded_counts")]
    pub counts: Counts,
    /// Whether startup succeeded, which ends its work on this container. Versions that did not act wrote it of every verdict
    /// of failure of liveness and startup, too: see [`Checkpoint::holds`].
    #[serde(rename = "held")]
    pub is_held: bool,
    /// The last attempt, also one of a former container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<SavedAttempt>,
    /// The newest attempts of this container, where they were errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors: Option<SavedErrors>,
}

/// What is saved of errors in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedErrors {
    count: u32,
    #[serde(with = "json::time")]
    since: SystemTime,
    /// How many of them came outside of outages of the runtime.
    #[serde(default)]
    pub own: u32,
    /// Whether an event says that the probe cannot be tried.
    #[serde(rename = "reported", default)]
    pub is_reported: bool,
}

impl SavedErrors {
    /// The same to be saved.
    pub(in crate::prober) fn of(Errors { count, since }: Errors, own: u32, is_reported: bool) -> Self {
        Self { count, since, own, is_reported }
    }

    /// The errors; those that began ahead of the clock, which was set back since, began now.
    pub(in crate::prober) fn restored(self, now: SystemTime) -> Errors {
        Errors { count: self.count, since: self.since.min(now) }
    }
}

/// What is saved of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SavedAttempt {
    /// When it began.
    #[serde(with = "json::time")]
    at: SystemTime,
    result: AttemptResult,
    /// How long it took.
    micros: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    /// The beginning of what it said: it may hold secrets, so the file is for its owner alone.
    #[serde(default, skip_serializing_if = "is_empty")]
    output: Arc<str>,
}

fn is_empty(text: &Arc<str>) -> bool {
    text.is_empty()
}

impl From<&AttemptRecord> for SavedAttempt {
    fn from(attempt: &AttemptRecord) -> Self {
        Self {
            at: attempt.at,
            result: attempt.result,
            micros: u64::try_from(attempt.duration.as_micros()).unwrap_or(u64::MAX),
            exit_code: attempt.exit_code,
            status: attempt.status,
            output: cut(&attempt.output),
        }
    }
}

impl SavedAttempt {
    /// The attempt, as far as it was saved. One that lies ahead of the clock, which was set back since, began now.
    pub(in crate::prober) fn into_record(self, now: SystemTime) -> AttemptRecord {
        AttemptRecord {
            at: self.at.min(now),
            result: self.result,
            duration: Duration::from_micros(self.micros),
            lag: None,
            exit_code: self.exit_code,
            status: self.status,
            container_attempt: None,
            is_first: false,
            output: cut(&self.output),
            phases: None,
            route: None,
        }
    }
}

/// At most [`OUTPUT`] bytes of a text.
fn cut(text: &Arc<str>) -> Arc<str> {
    if text.len() <= OUTPUT { Arc::clone(text) } else { text[..text.floor_char_boundary(OUTPUT)].into() }
}

impl Checkpoint {
    /// Whether a probe of this type has nothing left to find out on the container.
    pub(in crate::prober) fn holds(&self, kind: ProbeKind) -> bool {
        self.is_held && kind == ProbeKind::Startup && self.verdict == Some(Verdict::Success)
    }
}
