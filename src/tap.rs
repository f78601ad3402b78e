//! Turns the bytes of a connection into calls, passively. Never does IO, never reads a clock, never logs.

pub mod hpack;
