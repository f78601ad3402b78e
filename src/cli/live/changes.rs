//! What has changed in a list since it was last seen: a line per change.

use std::collections::{HashMap, HashSet};

use super::item::Item;
use crate::{clock, report::view::Time};

/// What was printed already, by key.
pub(crate) struct Known<T>(HashMap<String, T>);

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

/// An entry that came, changed or went.
pub(crate) struct Change<'a, T> {
    name: String,
    before: Option<&'a T>,
    /// What it is now; none if it is gone.
    pub(crate) item: Option<&'a T>,
}

impl<T: Item> Known<T> {
    /// Whether one of those known is not among these.
    pub(crate) fn is_any_gone(&self, items: &[T]) -> bool {
        let there: HashSet<_> = items.iter().map(Item::key).collect();
        self.0.keys().any(|key| !there.contains(&**key))
    }

    /// Describes each entry that has changed, and remembers it.
    pub(crate) fn changes(&mut self, items: &[T], describe: impl Fn(&Change<'_, T>) -> String) -> String {
        let mut lines = String::new();
        for item in items {
            let before = self.0.get(item.key());
            if before.is_none_or(|before| item.has_changed(before)) {
                lines.push_str(&describe(&Change { name: item.name(), before, item: Some(item) }));
            }
        }
        let now: HashMap<_, _> = items.iter().map(|item| (item.key().to_owned(), item.clone())).collect();
        let mut gone: Vec<_> = self.0.values().filter(|item| !now.contains_key(item.key())).collect();
        gone.sort_by_cached_key(|item| item.name());
        for item in gone {
            lines.push_str(&describe(&Change { name: item.name(), before: Some(item), item: None }));
        }
        self.0 = now;
        lines
    }
}

impl<T: Item> Change<'_, T> {
    /// `TIME NAME STATE: REASON`, with the previous state in the middle.
    pub(crate) fn line(&self, now: Time) -> String {
        let at = clock::rfc3339(now.0);
        let Some(item) = self.item else { return format!("{at} {} gone", self.name) };
        let before = self.before.map(|before| before.state() + " -> ").unwrap_or_default();
        let reason = item.reason();
        let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
        format!("{at} {} {before}{}{reason}", self.name, item.state())
    }

    /// Whether it fails, or did.
    pub(super) fn is_of_failure(&self) -> bool {
        [self.before, self.item].into_iter().flatten().any(Item::is_failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::view::{ProbePhase, ProbeView, Verdict, sample};

    #[test]
    fn each_change_is_told_once() {
        let mut known = Known::default();
        let line = |change: &Change<'_, ProbeView>| change.line(sample::at(0)) + "\n";
        let first = sample::probe();
        let failed = ProbeView {
            state: Verdict::Failure,
            phase: ProbePhase::Held,
            reason: "3 attempts failed".to_owned(),
            ..first.clone()
        };
        let reported = known.changes(std::slice::from_ref(&first), line);
        assert_eq!(
            reported,
            "2026-11-20T10:00:00.000Z default/web/app/liveness success probing, last success\n"
        );
        let counted = ProbeView { attempt: 7, reason: "spaced out".to_owned(), ..first };
        assert_eq!(known.changes(&[counted], line), "");
        let reported = known.changes(&[failed], line);
        assert_eq!(
            reported,
            "2026-11-20T10:00:00.000Z default/web/app/liveness success probing, last success -> failure held, last success: 3 attempts failed\n"
        );
        assert_eq!(known.changes(&[], line), "2026-11-20T10:00:00.000Z default/web/app/liveness gone\n");
        assert_eq!(known.changes(&[], line), "");
    }

    #[test]
    fn a_recovery_is_of_a_failure_too() {
        let (good, bad) = (sample::probe(), sample::failing_probe());
        let is_of_failure = |before, item| Change { name: String::new(), before, item }.is_of_failure();
        assert!(is_of_failure(Some(&bad), Some(&good)) && is_of_failure(None, Some(&bad)));
        assert!(!is_of_failure(Some(&good), None) && !is_of_failure(None, Some(&good)));
    }
}
