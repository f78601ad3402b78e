//! What was measured of one way: calls and processes in, figures and cells of tables out.

use std::time::{Duration, Instant};

use crate::{
    figure::{Figure, Limit},
    load::{Outcome, calls::TimedCall},
    proxies::Leftovers,
    service::{Handover, Traced},
};

/// 150 ms: what the longest call may wait beyond what the manager itself takes.
const BEYOND: f64 = 150.0;

/// What was measured of one way.
pub(crate) struct Measured {
    pub(crate) title: &'static str,
    /// When each was ordered, and when it was done.
    pub(crate) restarts: Vec<(Instant, Instant)>,
    pub(crate) outcome: Outcome,
    pub(crate) leftovers: Leftovers,
}

impl Measured {
    pub(crate) fn of(
        title: &'static str,
        restarts: Vec<(Instant, Instant)>,
        outcome: Outcome,
        leftovers: Leftovers,
    ) -> Self {
        if let Some(error) = outcome.first_error() {
            eprintln!("  the first call that was cut: {error}");
        }
        Self { title, restarts, outcome, leftovers }
    }

    /// The longest call of each restart, in milliseconds.
    fn stalls(&self) -> Vec<f64> {
        let ends = self.restarts.iter().skip(1).map(|(from, _)| Some(*from)).chain([None]);
        let stalls = self.restarts.iter().zip(ends).map(|((from, _), until)| {
            let is_during = |call: &&TimedCall| {
                call.began + call.took >= *from && until.is_none_or(|until| call.began < until)
            };
            let calls = self.outcome.steady.iter().filter(is_during);
            calls.map(|call| millis(call.took)).fold(0.0, f64::max)
        });
        stalls.collect()
    }

    /// For the table of all ways.
    pub(crate) fn cells(&self) -> [String; 7] {
        let Leftovers { most, longest, left } = self.leftovers;
        let mut cut: Vec<String> = self
            .outcome
            .cut_by_kind()
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, kind)| format!("{count} {kind}"))
            .collect();
        if cut.is_empty() {
            cut.push("none".into());
        }
        let stay = match (most, left) {
            (0, _) => "-".to_owned(),
            (_, 0) => format!("{:.0} s", longest.as_secs_f64()),
            _ => format!("{:.0} s, {left} to the end", longest.as_secs_f64()),
        };
        [
            self.title.to_owned(),
            self.restarts.len().to_string(),
            self.outcome.calls().to_string(),
            cut.join(", "),
            format!("{:.0} ms", millis(self.outcome.longest())),
            most.to_string(),
            stay,
        ]
    }

    /// The figures of criprobe: `gaps` is what restarts of a service that does nothing take.
    pub(crate) fn figures(
        &self,
        gaps: &[Duration],
        calls: usize,
        traced: &Traced,
        handovers: &[Option<Handover>],
    ) -> Vec<Figure> {
        let Outcome { answers, events, .. } = &self.outcome;
        let once = traced.doubled + calls.abs_diff(traced.lines - traced.doubled);
        let (gap, longest_gap) = middle_and_most(gaps.iter().copied().map(millis));
        let (stall, longest) = middle_and_most(self.stalls());
        let known = || handovers.iter().flatten();
        let (own, longest_own) = middle_and_most(known().map(|handover| handover.own));
        let (between, longest_between) = middle_and_most(known().map(|handover| handover.between));
        let stalls = self.stalls().into_iter().zip(handovers);
        let beyond = stalls.filter_map(|(stall, handover)| Some(stall - handover.as_ref()?.between));
        let (_, beyond) = middle_and_most(beyond);
        let open = |name: &str, found| Figure { name: name.into(), limit: Limit::Open, found, unit: " ms" };
        let none = |name: String, found: usize| Figure {
            name,
            limit: Limit::AtMost(0.0),
            found: Some(found as f64),
            unit: "",
        };
        vec![
            none(format!("calls that fail, of {calls}"), self.outcome.cut()),
            none(
                format!("answers with a wrong byte, of {} of 6 MB and the long ones", answers.len()),
                self.outcome.wrong(),
            ),
            none(format!("events lost or doubled, of {}", events.came), events.missing + events.doubled),
            none(format!("calls without exactly one line in the trace, of {calls}"), once),
            none("restarts without a handover".into(), self.restarts.len().abs_diff(handovers.len())),
            open("the longest call of a restart, median", stall),
            open("the longest of those", longest),
            open("of a restart, systemd and the kernel take, median", between),
            open("the longest of those", longest_between),
            open("criprobe takes, before its end and after its start, median", own),
            open("the longest of those", longest_own),
            Figure {
                name: "the longest call beyond what systemd and the kernel take of that restart".into(),
                limit: Limit::AtMost(BEYOND),
                found: beyond,
                unit: " ms",
            },
            open("a service that does nothing, from its end to its next start, median", gap),
            open("the longest of those", longest_gap),
        ]
    }
}

/// The one in the middle, and the largest, if there are any.
fn middle_and_most(figures: impl IntoIterator<Item = f64>) -> (Option<f64>, Option<f64>) {
    let mut sorted: Vec<f64> = figures.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    (sorted.get(sorted.len() / 2).copied(), sorted.last().copied())
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
