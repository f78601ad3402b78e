//! criprobe: a CRI proxy that relays bytes, watches pods come up, probes them, and reports what it sees.
//!
//! `ARCHITECTURE.md` shows the stages and which of them may use which.

pub mod act;
pub mod app;
pub mod check;
pub mod cli;
pub mod clock;
pub mod config;
pub mod count;
pub mod demo;
pub mod document;
mod duration;
mod exits;
mod glob;
mod handler;
pub mod ids;
pub mod inventory;
mod listen;
mod observed;
pub mod peer;
pub mod prober;
pub mod proto;
mod record_file;
mod relay;
pub mod report;
mod results;
pub mod runtime;
pub mod spec;
pub mod stage;
pub mod tap;
