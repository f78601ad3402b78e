//! What attempts add up to: by probe, for as long as it is there, and of all together.

use serde::Deserialize;

use super::*;
use crate::{
    prober::attempt::AttemptOutcome,
    results::{
        durations::DurationHistogram,
        exec_route::{ExecRoute, WhySync},
    },
};

/// One row of `tests/data/prober/metrics.json`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Row {
    id: String,
    rule: String,
    /// How the attempts end, one after the other.
    attempts: Vec<AttemptResult>,
    /// Whether the container is removed after them.
    is_gone: bool,
    tally: Option<Expected>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    successes: u64,
    failures: u64,
    errors: u64,
}

#[test]
fn attempts_are_counted_as_the_kubelet_counts_them() {
    let rows: Vec<Row> =
        serde_json::from_str(include_str!("../../../../tests/data/prober/metrics.json")).unwrap();
    for row in rows {
        let mut rig = Rig::new(8);
        rig.accept(input(container("web", "c1", 0), &[spec(Readiness)]));
        for result in &row.attempts {
            assert_eq!(rig.started().len(), 1, "{} {}", row.id, row.rule);
            rig.pass(SECOND);
            rig.finish(Readiness, *result);
            rig.pass(10 * SECOND);
        }
        if row.is_gone {
            rig.accept(Input::ContainerGone("c1".into()));
        }
        let statuses = rig.roster.statuses(rig.now);
        let tally = statuses.first().map(|status| &status.tally);
        let counted = tally.map(|tally| Expected {
            successes: tally.successes.count(),
            failures: tally.failures,
            errors: tally.errors,
        });
        assert_eq!(counted, row.tally, "{} {}", row.id, row.rule);
        if let Some(tally) = tally {
            let measured = u32::try_from(tally.successes.count()).unwrap();
            assert_eq!(tally.successes.sum(), measured * SECOND, "{} {}", row.id, row.rule);
        }
        // Of all probes together, nothing is forgotten, and each result is measured.
        let totals = rig.roster.counts(rig.now).attempts;
        let of = |result| {
            totals.durations.get(&(Readiness, "tcpSocket", result)).map_or(0, DurationHistogram::count)
        };
        for result in
            [AttemptResult::Success, AttemptResult::Warning, AttemptResult::Failure, AttemptResult::Error]
        {
            let made = row.attempts.iter().filter(|made| **made == result).count() as u64;
            assert_eq!(of(result), made, "{} {}: {result}", row.id, row.rule);
        }
        assert_eq!(totals.lags[&Readiness].count(), row.attempts.len() as u64);
    }
}

#[test]
fn commands_are_counted_by_their_way_also_when_their_container_is_gone() {
    let mut rig = Rig::new(8);
    rig.accept(input(container("web", "c1", 0), &[spec(Readiness)]));
    let first = ExecRoute::Fallback(WhySync::FirstAttempt);
    let routes = [Some(first), Some(ExecRoute::Session), None, Some(ExecRoute::Session)];
    for route in routes {
        assert_eq!(rig.started().len(), 1);
        let key = ProbeKey { pod: "web".into(), container: "app".into(), kind: Readiness };
        let outcome = AttemptOutcome { route, ..outcome(AttemptResult::Success) };
        rig.roster.finish(&key, Some(outcome), rig.now);
        rig.pass(10 * SECOND);
    }
    let made: Vec<_> = rig.roster.take_attempts().iter().map(|made| made.record.route).collect();
    assert_eq!(made, routes, "each is passed on with its route");
    rig.accept(Input::ContainerGone("c1".into()));
    let counted = rig.roster.counts(rig.now).attempts.routes;
    assert_eq!(Vec::from_iter(counted), [(ExecRoute::Session, 2), (first, 1)]);
}
