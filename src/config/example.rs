//! The packaged configuration with comments: every setting with its default. A test checks that it matches the
//! defaults.

/// A valid file to start from.
pub(crate) const TEXT: &str = include_str!("../../packaging/config.yaml");
