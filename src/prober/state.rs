//! State that outlives a restart of the prober: a checkpoint of each probe, and whether the probe is paused. Here are
//! the types and bounds. `json` converts them to text and back, `due` decides when to save, and `pending` holds what was
//! restored until its probe is planned. Pure: `app::state` reads and writes the file.

pub(in crate::prober) mod due;
mod json;
pub(in crate::prober) mod pending;

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::{
    ids::{ContainerId, ProbeKey, ProbeKind},
    results::{Counts, Run, Verdict},
    spec::identity::Definition,
};

pub(crate) use json::{SavedError, time};

/// 16 MiB: the longest text that is read or written. A longer one is an error where it is read; where it is written,
/// probes are left out, those that are not paused first.
pub(crate) const MAX_BYTES: usize = 16 << 20;

/// 100,000 probes are read or written at most; likewise.
pub(crate) const MAX_PROBES: usize = 100_000;

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
    /// Since when it is paused, if it is: on whatever container.
    pub paused_since: Option<SystemTime>,
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
    /// The attempts of this container.
    #[serde(deserialize_with = "json::bounded_counts")]
    pub counts: Counts,
    /// Whether startup succeeded, which ends its work on this container. Versions that did not act wrote it of every verdict
    /// of failure of liveness and startup, too: see [`Checkpoint::holds`].
    #[serde(rename = "held")]
    pub is_held: bool,
}

impl Checkpoint {
    /// Whether a probe of this type has nothing left to find out on the container.
    pub(in crate::prober) fn holds(&self, kind: ProbeKind) -> bool {
        self.is_held && kind == ProbeKind::Startup && self.verdict == Some(Verdict::Success)
    }
}
