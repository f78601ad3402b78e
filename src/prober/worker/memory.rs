//! What a worker remembers of its attempts and of acts, and how much. Pure.

use std::time::SystemTime;

use super::Worker;
use crate::results::{history::HistoryLimits, text::BoundedText};

impl Worker {
    /// Keeps what was done to the container because of it, see `Results::note_act`.
    pub(crate) fn note_act(&mut self, text: &BoundedText, at: SystemTime) {
        self.results.note_act(text, at);
    }

    /// Keeps so much of attempts from now on, see `Results::limit`.
    pub(crate) fn limit(&mut self, limits: HistoryLimits) {
        self.limits = limits;
        self.results.limit(limits);
    }

    /// Forgets attempts beyond so many, see `Results::trim`.
    pub(crate) fn trim(&mut self, most: usize) {
        self.results.trim(most);
    }

    /// Forgets outputs of attempts until they take so many bytes, see `Results::forget`.
    pub(crate) fn forget(&mut self, most: usize) {
        self.results.forget(most);
    }
}
