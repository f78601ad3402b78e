//! What outlives a restart of the prober: of each probe where it stood on its container, and whether it is paused. Only
//! shapes and bounds: `json` makes text of them, `roster::continuity` takes and gives them. Pure.

mod json;

use std::time::SystemTime;

use crate::{
    ids::{ContainerId, ProbeKey},
    results::{Counts, Run, Verdict},
    spec::identity::Definition,
};

pub use json::SavedError;

/// 16 MiB: the longest text that is read or written. A longer one is an error where it is read; where it is written,
/// probes are left out, those that are not paused first.
pub const MAX_BYTES: usize = 16 << 20;

/// 100,000 probes are read or written at most; likewise.
pub const MAX_PROBES: usize = 100_000;

/// All probes, in no order.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Saved {
    /// At most one a key; of several, the last counts.
    pub probes: Vec<SavedProbe>,
}

/// One probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedProbe {
    /// Which.
    pub key: ProbeKey,
    /// Since when it is paused, if it is: on whatever container.
    pub paused_since: Option<SystemTime>,
    /// Where it stood, if it has seen a container run.
    pub stand: Option<Stand>,
}

/// Where a probe stood on one container. Says nothing about another container, nor under another definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stand {
    /// Which container.
    pub container: ContainerId,
    /// Of what the probe was.
    pub definition: Definition,
    /// The verdict; of startup, success is what releases the others.
    pub verdict: Option<Verdict>,
    /// Since when it stands.
    pub since: SystemTime,
    /// The results in a row.
    pub run: Run,
    /// The attempts of this container.
    pub counts: Counts,
    /// Whether a verdict fell that ends the work on this container.
    pub is_held: bool,
}
