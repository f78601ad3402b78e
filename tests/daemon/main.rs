//! criprobe as its users run it, in front of the embedded runtime: the binary, real sockets, real processes, and faults
//! of the runtime on request. Needs no root and no containerd.

#[path = "../support/mod.rs"]
#[allow(dead_code)]
mod support;

/// The embedded runtime and a daemon in front of it.
mod rig;

/// From an annotation to a verdict.
mod probes;

/// Exec probes in both modes: the same verdicts by sessions as by ExecSync, and what falls back.
mod sessions;

/// From an image's HEALTHCHECK to a verdict, and runtimes that have no such thing.
mod healthcheck;

/// From an operator's rule to a verdict, and what is in effect.
mod rules;

/// Periods and timeouts below a second.
mod pace;

/// What operators do: pause, resume, trigger, run.
mod acts;

/// What verdicts of failure do to their containers.
mod acting;

/// Containers that are paused.
mod paused;

/// Why a command is slow.
mod phases;

/// All of one probe: its definition, its history, its events.
mod describe;

/// What containers died of.
mod exits;

/// Pods and their containers: running, started, ready.
mod pods;

/// What criprobe knows of pods and containers, however they came and went.
mod inventory;

/// Containers that no client of the relay made one by one: adopted, restored, made under the protocol's old name, and in
/// pods that were made again.
mod adoption;

/// The runtime goes away, comes back, hangs, and breaks off.
mod outages;

/// What outlives a restart of criprobe, and what the state file may be like.
mod continuity;

/// What a service manager passes and learns.
mod manager;

/// Connections that one process leaves to the next, whatever goes wrong meanwhile.
mod handover;

/// What is kept of attempts and events, what is written to a file, and how long attempts took.
mod history;

/// The configuration changes while the daemon runs.
mod reload;

/// Calls of clients, as they are recorded and told.
mod trace;

/// Calls that are written to a file, and what is never shown.
mod records;
/// Calls in flight, and what commands cost.
mod top;

/// Clients' own probes, known by their rhythm.
mod observed;

/// What is served over TCP, for whom, and the live stream.
mod http;

/// What a scrape gets, and the alerts and the dashboard that are made of it.
mod metrics;

/// Many clients, many calls, large answers.
mod load;

/// How the process starts, refuses to start, and ends.
mod process;
