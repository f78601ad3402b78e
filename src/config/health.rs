//! The configuration in effect, and the errors in files that were changed since. Pure.

use std::{sync::Arc, time::SystemTime};

use super::Loaded;

/// The configuration as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigHealth {
    /// The last good one: in effect, except for settings that need a restart. Its list of settings is the list in
    /// effect.
    pub loaded: Arc<Loaded>,
    /// When it was read.
    pub loaded_at: SystemTime,
    /// Errors in the current files, one line each; empty if these are in effect. Bounded like
    /// [`ConfigErrors`](super::ConfigErrors): 100, and a line that counts the others.
    pub errors: Vec<String>,
    /// Settings that differ from those at the start and need a restart: `listen: changed in FILE:1:9, needs a restart`.
    pub needs_restart: Vec<String>,
}

impl ConfigHealth {
    /// The files that were read, in order.
    pub(crate) fn files(&self) -> Vec<String> {
        self.loaded.files.iter().map(|file| file.display().to_string()).collect()
    }

    /// Warnings about a configuration that is in effect.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = &String> {
        self.needs_restart.iter().chain(&self.loaded.notes)
    }
}
