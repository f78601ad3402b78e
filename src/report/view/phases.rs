//! Where the time of a command went, in the API.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Seconds;
use crate::results::phases::{Phase, Phases, SLOW};

/// Phases of a command that was run in a container, in order. Those that it did not reach are absent; together they are its
/// duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PhasesView {
    /// Until the runtime took the command up.
    pub queue_seconds: Seconds,
    /// Until its process ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_seconds: Option<Seconds>,
    /// Until its process ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_seconds: Option<Seconds>,
    /// Until the runtime answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_seconds: Option<Seconds>,
}

impl From<Phases> for PhasesView {
    fn from(phases: Phases) -> Self {
        let Phases { queue, start, run, drain } = phases;
        Self {
            queue_seconds: Seconds(queue),
            start_seconds: start.map(Seconds),
            run_seconds: run.map(Seconds),
            drain_seconds: drain.map(Seconds),
        }
    }
}

impl PhasesView {
    /// Those that were reached, in order.
    pub fn each(&self) -> impl Iterator<Item = (Phase, Duration)> + use<> {
        let phases = [
            (Phase::Queue, Some(self.queue_seconds)),
            (Phase::Start, self.start_seconds),
            (Phase::Run, self.run_seconds),
            (Phase::Drain, self.drain_seconds),
        ];
        phases.into_iter().filter_map(|(phase, took)| Some((phase, took?.0)))
    }

    /// What took so long, of one that took longer than `SLOW`: `1.9 s of 2.0 s before the process started: the runtime is
    /// slow, or short of CPU time`.
    pub fn culprit(self) -> Option<String> {
        let total: Duration = self.each().map(|(_, took)| took).sum();
        let took = |phase: Option<Seconds>| phase.map_or(Duration::ZERO, |took| took.0);
        let (queue, start) = (self.queue_seconds.0, took(self.start_seconds));
        let (before, run, drain) = (queue + start, took(self.run_seconds), took(self.drain_seconds));
        let (took, words) = if before >= run.max(drain) {
            if queue > start {
                (
                    queue,
                    "before the runtime took the command up: the runtime, or the container's shim, is slow",
                )
            } else {
                (before, "before the process started: the runtime is slow, or short of CPU time")
            }
        } else if run >= drain {
            (run, "while the process ran: the command is slow, or short of CPU time")
        } else {
            (drain, "after the process had ended: another one that it left behind keeps the output open")
        };
        (total > SLOW).then(|| format!("{} of {} {words}", spoken(took), spoken(total)))
    }
}

/// `1.9 s`, `250 ms`.
fn spoken(took: Duration) -> String {
    let tenths = (took.as_millis() + 50) / 100;
    if tenths < 10 {
        format!("{} ms", took.as_millis())
    } else {
        format!("{}.{} s", tenths / 10, tenths % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_slow_names_its_culprit() {
        for (times, expected) in [
            ([Some(4), Some(22), Some(1), Some(3)], None),
            ([Some(0), Some(100), Some(0), Some(0)], None),
            (
                [Some(1_900), Some(50), Some(40), Some(10)],
                Some(
                    "1.9 s of 2.0 s before the runtime took the command up: the runtime, or the container's shim, is slow",
                ),
            ),
            (
                [Some(1_000), None, None, None],
                Some(
                    "1.0 s of 1.0 s before the runtime took the command up: the runtime, or the container's shim, is slow",
                ),
            ),
            (
                [Some(5), Some(990), None, None],
                Some("1.0 s of 1.0 s before the process started: the runtime is slow, or short of CPU time"),
            ),
            // Both are the runtime's.
            (
                [Some(400), Some(500), Some(600), Some(0)],
                Some("900 ms of 1.5 s before the process started: the runtime is slow, or short of CPU time"),
            ),
            (
                [Some(5), Some(25), Some(970), None],
                Some("1.0 s of 1.0 s while the process ran: the command is slow, or short of CPU time"),
            ),
            (
                [Some(5), Some(25), Some(20), Some(5_950)],
                Some(
                    "6.0 s of 6.0 s after the process had ended: another one that it left behind keeps the output open",
                ),
            ),
        ] {
            let [queue, start, run, drain] =
                times.map(|took| took.map(|took| Seconds(Duration::from_millis(took))));
            let phases = PhasesView {
                queue_seconds: queue.unwrap(),
                start_seconds: start,
                run_seconds: run,
                drain_seconds: drain,
            };
            assert_eq!(phases.culprit().as_deref(), expected, "{times:?}");
        }
    }
}
