//! What a worker remembers of its attempts and of acts, and how much. Pure.

use std::time::SystemTime;

use super::Worker;
use crate::{
    prober::state::SavedErrors,
    results::{AttemptResult, errors::Errors, history::HistoryLimits, text::BoundedText},
    spec::Handler,
};

impl Worker {
    /// Why the last attempt was an error, if it was.
    pub(crate) fn error(&self) -> Option<&str> {
        let last = self.results.last().filter(|last| last.result == AttemptResult::Error);
        last.map(|last| &*last.output)
    }

    /// What is saved of errors in a row, and whether an event says it.
    pub(super) fn errors_restored(&mut self, saved: Option<SavedErrors>, now: SystemTime) -> Option<Errors> {
        self.is_said_untried = saved.is_some_and(|errors| errors.is_reported);
        self.own_errors = saved.map_or(0, |errors| errors.own);
        saved.map(|errors| errors.restored(now))
    }

    /// The same to be saved.
    pub(super) fn errors_saved(&self) -> Option<SavedErrors> {
        let errors = self.results.errors()?;
        Some(SavedErrors::of(errors, self.own_errors, self.is_said_untried))
    }

    /// Whether its attempts are commands, which the runtime runs.
    pub(crate) fn runs_command(&self) -> bool {
        matches!(self.spec.handler, Handler::Exec { .. })
    }

    /// Whether so many attempts in a row were errors as failures would make a verdict: what the verdict says is not known
    /// any more.
    pub(crate) fn cannot_try(&self) -> bool {
        self.results.errors().is_some_and(|errors| errors.count >= self.spec.failure_threshold)
    }

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
