//! criprobe: a CRI proxy that relays bytes, watches pods come up, probes them, and reports what it sees.
//!
//! `ARCHITECTURE.md` shows the stages and which of them may use which.

pub mod app;
pub mod check;
pub mod cli;
pub mod clock;
pub mod config;
pub mod demo;
pub mod document;
pub mod duration;
pub mod glob;
pub mod handler;
pub mod ids;
pub mod inventory;
pub mod listen;
pub mod observed;
pub mod peer;
pub mod prober;
pub mod proto;
pub mod relay;
pub mod report;
pub mod results;
pub mod runtime;
pub mod spec;
pub mod stage;
pub mod tap;
