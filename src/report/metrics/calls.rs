//! Counts clients' calls by method and code. Ended calls in, on the inventory's task; numbers out, when asked.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{results::durations::DurationHistogram, tap::EndedCall};

/// Counts of calls; all clones count together.
///
/// Methods and codes are closed sets, whatever clients send: the methods of the CRI and `other`, 17 codes of gRPC and the 3
/// ways to end without one.
#[derive(Clone, Debug, Default)]
pub struct CallCounts(Arc<Mutex<ByMethod>>);

/// Durations by code, by method.
type ByMethod = HashMap<&'static str, HashMap<&'static str, DurationHistogram>>;

impl CallCounts {
    /// A call ended. The lock is held for a few nanoseconds here, and for one copy of the numbers elsewhere.
    pub(crate) fn ended(&self, ended: &EndedCall) {
        let method = ended.call.method.known_name().unwrap_or("other");
        let code = ended.code.map_or(ended.end.as_str(), |code| code.name());
        let duration = ended.at.saturating_duration_since(ended.call.began);
        self.counts().entry(method).or_default().entry(code).or_default().note(duration);
    }

    /// All of them: method, code, durations.
    pub(crate) fn all(&self) -> Vec<(&'static str, &'static str, DurationHistogram)> {
        let counts = self.counts();
        let of = counts.iter().flat_map(|(method, codes)| {
            codes.iter().map(|(code, durations)| (*method, *code, durations.clone()))
        });
        of.collect()
    }

    fn counts(&self) -> MutexGuard<'_, ByMethod> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
