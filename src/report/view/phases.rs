//! Where the time of a command went, in the API.

use std::{borrow::Cow, time::Duration};

use serde::{Deserialize, Serialize};

use super::Seconds;
pub(crate) use crate::results::phases::is_slow;
use crate::results::phases::{Part, Phase, Phases, Split};

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
}

/// Where the time of a command went, in the three fields that say so.
#[derive(Debug, Default)]
pub(crate) struct SplitView {
    pub(crate) phases: Option<PhasesView>,
    pub(crate) phases_unknown: Option<Cow<'static, str>>,
    pub(crate) culprit: Option<String>,
}

impl SplitView {
    /// Of a call that took so long. What was slow has a culprit: `1.9 s of 2.0 s before the process started: the runtime is
    /// slow, or short of CPU time`.
    pub(crate) fn of(split: Split, took: Duration) -> Self {
        match split {
            Split::Known(phases) => Self {
                phases: Some(phases.into()),
                phases_unknown: None,
                culprit: is_slow(took).then(|| culprit("", phases.longest(), took)),
            },
            Split::Unknown(why, least) => Self {
                phases: None,
                phases_unknown: Some(why.as_str().into()),
                culprit: least
                    .filter(|_| is_slow(took))
                    .map(|(part, least)| culprit("at least ", (part, rounded_down(least)), took)),
            },
        }
    }
}

/// To what [`spoken`] shows, which would round it up otherwise.
fn rounded_down(took: Duration) -> Duration {
    let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(if millis < 950 { millis } else { millis - millis % 100 })
}

fn culprit(bound: &str, (part, took): (Part, Duration), total: Duration) -> String {
    let words = match part {
        Part::Queue => {
            "before the runtime took the command up: the runtime, or the container's shim, is slow"
        }
        Part::BeforeRun => {
            "before the process started: the runtime is slow or short of CPU time, or the container is throttled or frozen"
        }
        Part::Run => {
            "while the process ran: the command is slow, its container is throttled or frozen, or the container's shim stood still"
        }
        Part::Drain => {
            "after the process had ended: another one that it left behind keeps the output open, or the runtime stood still"
        }
    };
    format!("{bound}{} of {} {words}", spoken(took), spoken(total))
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
    use crate::results::phases::Unknown;

    #[test]
    fn what_is_slow_names_its_culprit() {
        let queue = "before the runtime took the command up: the runtime, or the container's shim, is slow";
        let before = "before the process started: the runtime is slow or short of CPU time, or the container is throttled or frozen";
        let run = "while the process ran: the command is slow, its container is throttled or frozen, or the container's shim stood still";
        let drain = "after the process had ended: another one that it left behind keeps the output open, or the runtime stood still";
        for (times, expected) in [
            ([4, 22, 1, 3], None),
            ([0, 499, 0, 0], None),
            ([0, 500, 0, 0], Some(("500 ms of 500 ms", before))),
            ([1_900, 50, 40, 10], Some(("1.9 s of 2.0 s", queue))),
            ([1_000, 0, 0, 0], Some(("1.0 s of 1.0 s", queue))),
            ([5, 990, 0, 0], Some(("1.0 s of 1.0 s", before))),
            // Both are the runtime's.
            ([400, 500, 600, 0], Some(("900 ms of 1.5 s", before))),
            ([5, 25, 970, 0], Some(("1.0 s of 1.0 s", run))),
            ([5, 25, 20, 5_950], Some(("6.0 s of 6.0 s", drain))),
        ] {
            let expected = expected.map(|(took, words)| format!("{took} {words}"));
            let [queue, start, run, drain] = times.map(Duration::from_millis);
            let phases = Phases { queue, start: Some(start), run: Some(run), drain: Some(drain) };
            let shown = SplitView::of(Split::Known(phases), queue + start + run + drain);
            assert_eq!(shown.culprit, expected, "{times:?}");
            assert!(shown.phases.is_some() && shown.phases_unknown.is_none());
        }
    }

    #[test]
    fn what_is_not_known_says_why_and_what_is_certain() {
        for (least, took, expected) in [
            (None, 9_000, None),
            (Some((Part::Queue, 450)), 480, None),
            (Some((Part::Queue, 9_790)), 9_960, Some("at least 9.7 s of 10.0 s before the runtime took")),
            (
                Some((Part::BeforeRun, 999)),
                1_200,
                Some("at least 900 ms of 1.2 s before the process started"),
            ),
            (Some((Part::Run, 1_000)), 1_200, Some("at least 1.0 s of 1.2 s while the process ran")),
        ] {
            let millis = Duration::from_millis;
            let least = least.map(|(part, took)| (part, millis(took)));
            let shown = SplitView::of(Split::Unknown(Unknown::Overlap, least), millis(took));
            let words = shown.phases_unknown.as_deref();
            assert_eq!(words, Some("another command in the container cannot be distinguished from it"));
            assert_eq!(shown.culprit.is_some(), expected.is_some(), "{least:?}");
            assert!(shown.culprit.unwrap_or_default().starts_with(expected.unwrap_or_default()), "{least:?}");
            assert_eq!(shown.phases, None);
        }
    }
}
