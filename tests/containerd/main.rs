//! criprobe in front of a real, private containerd with real containers.
//!
//! Runs as root on Debian and Ubuntu, which `make test` equips; elsewhere each test says why not, and passes.

#[path = "../support/mod.rs"]
#[allow(dead_code)]
mod support;

/// The rig itself, without criprobe.
mod rig;

/// From an annotation to a verdict.
mod probes;

/// Clients' own probes, known by their rhythm.
mod observed;

/// Containers that are paused.
mod paused;

/// From an image's HEALTHCHECK to a verdict.
mod healthcheck;

/// The kubelet's own end-to-end scenarios.
mod scenarios;

/// What criprobe knows of pods and containers, however they came and went.
mod inventory;

/// What containers died of.
mod exits;

/// Commands by exec sessions, beside the same by ExecSync.
mod sessions;

/// containerd goes away and comes back.
mod restarts;

/// Calls of clients, as they are recorded.
mod trace;

/// Why a command is slow.
mod phases;

/// Rows of the hostile review.
mod hostile;

/// A container is made again as it was.
mod recipe;

/// Verdicts of failure act on their containers.
mod acting;
