//! What was measured of one way: calls and processes in, figures and cells of tables out.

use std::time::{Duration, Instant};

use crate::{
    figure::{Figure, Limit},
    load::{Outcome, calls::TimedCall},
    proxies::Leftovers,
    service::Traced,
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

    /// The longest call of each restart, in milliseconds, the shortest first.
    fn stalls(&self) -> Vec<f64> {
        let ends = self.restarts.iter().skip(1).map(|(from, _)| Some(*from)).chain([None]);
        let mut stalls: Vec<f64> = self
            .restarts
            .iter()
            .zip(ends)
            .map(|((from, _), until)| {
                let is_during = |call: &&TimedCall| {
                    call.began + call.took >= *from && until.is_none_or(|until| call.began < until)
                };
                let calls = self.outcome.steady.iter().filter(is_during);
                calls.map(|call| millis(call.took)).fold(0.0, f64::max)
            })
            .collect();
        stalls.sort_by(f64::total_cmp);
        stalls
    }

    /// For the table of all ways.
    pub(crate) fn cells(&self) -> [String; 7] {
        let Leftovers { most, longest, left } = self.leftovers;
        let stay = match (most, left) {
            (0, _) => "-".to_owned(),
            (_, 0) => format!("{:.0} s", longest.as_secs_f64()),
            _ => format!("{:.0} s, {left} to the end", longest.as_secs_f64()),
        };
        [
            self.title.to_owned(),
            self.restarts.len().to_string(),
            self.outcome.calls().to_string(),
            self.outcome.cut().to_string(),
            format!("{:.0} ms", millis(self.outcome.longest())),
            most.to_string(),
            stay,
        ]
    }

    /// The figures of criprobe: `gaps` is what restarts take systemd and the kernel, `stalls` what criprobe says that it has
    /// added before each of its ends.
    pub(crate) fn figures(
        &self,
        gaps: &[Duration],
        calls: usize,
        traced: &Traced,
        stalls: &[u64],
    ) -> Vec<Figure> {
        let Outcome { answers, events, .. } = &self.outcome;
        let mut gaps: Vec<f64> = gaps.iter().copied().map(millis).collect();
        gaps.sort_by(f64::total_cmp);
        let of_calls = self.stalls();
        let longest = millis(self.outcome.longest());
        let once = traced.doubled + calls.abs_diff(traced.lines - traced.doubled);
        let open = |name: &str, found: f64, unit| Figure {
            name: name.to_owned(),
            limit: Limit::Open,
            found: Some(found),
            unit,
        };
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
            Figure {
                name: "restarts without a handover".to_owned(),
                limit: Limit::AtMost(0.0),
                found: Some(self.restarts.len().abs_diff(stalls.len()) as f64),
                unit: "",
            },
            open("a restart of a service that does nothing, median", middle(&gaps), " ms"),
            open("the longest of those", gaps.last().copied().unwrap_or(f64::NAN), " ms"),
            open("the longest call of a restart of criprobe, median", middle(&of_calls), " ms"),
            open("the longest call", longest, " ms"),
            Figure {
                name: "the longest call beyond the median of the service that does nothing".to_owned(),
                limit: Limit::AtMost(BEYOND),
                found: Some(longest - middle(&gaps)),
                unit: " ms",
            },
            open(
                "criprobe's own part before its end, the longest",
                stalls.iter().max().map_or(f64::NAN, |most| *most as f64),
                " ms",
            ),
        ]
    }
}

/// The one in the middle of sorted figures.
fn middle(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
