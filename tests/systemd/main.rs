//! criprobe as a service of a real, private systemd, in front of a real, private containerd.
//!
//! Runs as root on Debian and Ubuntu, which `make test` equips; elsewhere each test says why not, and passes.

#[path = "../support/mod.rs"]
#[allow(dead_code)]
mod support;

/// What clients do meanwhile, as in `make bench-restart`.
#[path = "../../benches/restart/load/mod.rs"]
#[allow(dead_code)]
mod load;

/// The unit as it is installed: start, reload, restart, the end of its process.
mod unit;

/// The socket unit, and the notices to systemd.
mod activation;

/// The unit's privileges.
mod privileges;

/// A node on which something is wrong.
mod adversity;

/// Connections over restarts.
mod handover;

/// The script of packaging/kubernetes.
mod fleet;
