//! criprobe: a CRI proxy that relays bytes, watches pods come up, probes them, and reports what it saw.
//!
//! The modules stand in reading order; each uses those above it. `ARCHITECTURE.md` draws the picture.

pub mod cli;
pub mod clock;
pub mod config;
pub mod document;
pub mod duration;
pub mod ids;
pub mod inventory;
pub mod listen;
pub mod peer;
pub mod proto;
pub mod relay;
pub mod report;
pub mod runtime;
pub mod spec;
pub mod tap;
