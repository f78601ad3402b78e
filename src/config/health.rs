//! The configuration in effect, and what is wrong with what has been written since. Pure.

use std::{sync::Arc, time::SystemTime};

use super::Loaded;

/// The configuration as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigHealth {
    /// The last good one: in effect, but for what needs a restart. Its list of settings is what is in effect.
    pub loaded: Arc<Loaded>,
    /// When it was read.
    pub loaded_at: SystemTime,
    /// What is wrong with what is written now, a line each; none where that is in effect. As bounded
    /// as [`ConfigErrors`](super::ConfigErrors) are: 100, and a line that counts the others.
    pub errors: Vec<String>,
    /// What differs from the start and cannot change before the next one: `listen: changed in FILE:1:9, needs a restart`.
    pub needs_restart: Vec<String>,
}

impl ConfigHealth {
    /// The files that were read, in order.
    pub fn files(&self) -> Vec<String> {
        self.loaded.files.iter().map(|file| file.display().to_string()).collect()
    }

    /// What somebody should know of a configuration that is in effect.
    pub fn warnings(&self) -> impl Iterator<Item = &String> {
        self.needs_restart.iter().chain(&self.loaded.notes)
    }
}
