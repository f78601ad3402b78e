//! A number that only grows, counted in one stage and read in another. Cheap to clone: all clones count together.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// How often something has happened since the start.
#[derive(Clone, Debug, Default)]
pub struct Count(Arc<AtomicU64>);

impl Count {
    /// It happened once more.
    pub fn inc(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How often it happened so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
