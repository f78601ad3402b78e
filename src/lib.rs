//! criprobe: a CRI proxy that relays bytes, watches pods come up, probes them, and reports what it saw.
//!
//! The modules stand in reading order; each uses those above it. `ARCHITECTURE.md` draws the picture.

pub mod clock;
pub mod demo;
pub mod ids;
pub mod inventory;
pub mod proto;
pub mod spec;
