//! criprobe: a CRI proxy that relays bytes, watches pods come up, probes them, and reports what it sees.
//!
//! `ARCHITECTURE.md` shows the stages and which of them may use which.

pub mod act;
pub mod app;
pub mod check;
pub mod cli;
pub mod config;
pub mod demo;
pub mod document;
mod duration;
mod exits;
mod faults;
mod glob;
mod handler;
pub mod inventory;
mod listen;
mod manager;
mod node;
mod observed;
mod phases;
pub mod prober;
mod record_file;
pub mod redact;
pub mod report;
mod results;
pub mod runtime;
pub mod spec;
pub mod stage;

pub use criprobe_wire::{carry, clock, count, ids, peer, proto, relay, tap};
