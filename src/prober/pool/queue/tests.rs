//! Turns by time used.
