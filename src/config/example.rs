//! The commented configuration that is packaged: every setting with its default. A test holds it equal to the defaults.

/// A valid file, ready to be changed.
pub const TEXT: &str = include_str!("../../packaging/config.yaml");
