//! Where the time of a command went, in words.

use std::time::Duration;

use super::span::measured;
use crate::report::view::{AttemptView, ExecView, PhasesView, is_slow};

/// `queue 4.0ms, start 22ms, run 1.0ms, drain 3.0ms`.
pub(super) fn words(phases: &PhasesView) -> String {
    let each = phases.each().map(|(phase, took)| format!("{} {}", phase.as_str(), measured(took)));
    each.collect::<Vec<_>>().join(", ")
}

/// Of a call that took so long; a slow one has its culprit, too, or the reason why that is not known.
pub(super) fn of_call(exec: &ExecView, took: Duration) -> Option<String> {
    let known = exec.phases.as_ref().map(words);
    let phases = known.or_else(|| unknown(exec.phases_unknown.as_deref(), took));
    both(phases, exec.culprit.clone())
}

/// Why an attempt was slow, or why that is not known; none of a quick one.
pub(super) fn of_slow(attempt: &AttemptView) -> Option<String> {
    let unknown = unknown(attempt.phases_unknown.as_deref(), attempt.duration_seconds.0);
    let took = unknown.as_ref().map(|_| measured(attempt.duration_seconds.0));
    both(attempt.culprit.clone().or(took), unknown)
}

fn unknown(why: Option<&str>, took: Duration) -> Option<String> {
    why.filter(|_| is_slow(took)).map(|why| format!("phases unknown: {why}"))
}

fn both(first: Option<String>, second: Option<String>) -> Option<String> {
    let all: Vec<_> = first.into_iter().chain(second).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::view::{Seconds, sample};

    #[test]
    fn what_is_not_known_of_a_slow_command_is_said() {
        let culprit = "at least 9.7 s of 9.9 s before the runtime took the command up";
        for (millis, why, culprit, of_call, of_slow) in [
            (499, Some("events were lost"), None, None, None),
            (500, None, None, None, None),
            (
                500,
                Some("events were lost"),
                None,
                Some("phases unknown: events were lost"),
                Some("500ms; phases unknown: events were lost"),
            ),
            (
                9_900,
                Some("two overlap"),
                Some(culprit),
                Some(
                    "phases unknown: two overlap; at least 9.7 s of 9.9 s before the runtime took the command up",
                ),
                Some(
                    "at least 9.7 s of 9.9 s before the runtime took the command up; phases unknown: two overlap",
                ),
            ),
            (1_000, None, Some("1.0 s of 1.0 s"), Some("1.0 s of 1.0 s"), Some("1.0 s of 1.0 s")),
        ] {
            let (why, culprit) = (why.map(Into::into), culprit.map(str::to_owned));
            let took = Duration::from_millis(millis);
            let exec =
                ExecView { phases_unknown: why.clone(), culprit: culprit.clone(), ..ExecView::default() };
            assert_eq!(super::of_call(&exec, took).as_deref(), of_call);
            let last = sample::probe().last.unwrap();
            let (phases, phases_unknown, duration_seconds) = (None, why, Seconds(took));
            let attempt = AttemptView { phases, phases_unknown, culprit, duration_seconds, ..last };
            assert_eq!(super::of_slow(&attempt).as_deref(), of_slow);
        }
    }
}
