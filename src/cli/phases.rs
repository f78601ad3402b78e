//! Where the time of a command went, in words.

use super::span::measured;
use crate::report::view::PhasesView;

/// `queue 4.0ms, start 22ms, run 1.0ms, drain 3.0ms`; a slow one has its culprit, too.
pub(super) fn words(phases: &PhasesView, culprit: Option<&str>) -> String {
    let each: Vec<_> =
        phases.each().map(|(phase, took)| format!("{} {}", phase.as_str(), measured(took))).collect();
    [each.join(", ").as_str()].into_iter().chain(culprit).collect::<Vec<_>>().join("; ")
}
