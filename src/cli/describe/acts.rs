//! Acts of one probe in words: their view in, named values out.

use std::time::SystemTime;

use super::super::{
    screen::Paint,
    span::{age, configured, measured, moment},
};
use crate::report::view::{ActCommandView, ActEndView, ActRecordView, ActView, ProbeActsView};

/// What the verdict does, what is going on, what the budget is, and what was done last.
pub(super) fn lines(
    acts: &ProbeActsView,
    current: Option<&ActView>,
    now: SystemTime,
) -> Vec<(&'static str, String, Paint)> {
    let action = match &*acts.refusal {
        "" => acts.action.clone(),
        refusal => format!("{}, although {} is asked for: {refusal}", acts.action, acts.asked),
    };
    let mut lines = vec![("action", action, Paint::Plain)];
    if let Some(act) = current {
        let since = age(act.since.0, now);
        lines.push(("now", format!("{}, for {since}", act.in_words()), Paint::Doubtful));
    }
    let node = &acts.node;
    if node.enabled {
        let budget = format!(
            "{} of {} acts on this node in the last minute, {} of {} in progress",
            node.last_minute, node.max_per_minute, node.in_progress, node.max_concurrent
        );
        lines.push(("budget", budget, Paint::Plain));
    }
    if let Some(at) = acts.next_allowed_at {
        let back_off = acts.back_off_seconds.0;
        let back_off =
            if back_off.is_zero() { String::new() } else { format!(", back-off {}", configured(back_off)) };
        lines.push(("next", format!("not before {}{back_off}", moment(at.0, now)), Paint::Plain));
    }
    match &acts.last {
        None => lines.push(("last", "none".to_owned(), Paint::Plain)),
        Some(last) => {
            lines.push(("last", record(last, now), Paint::Plain));
            lines.push(("of", container(last, now), Paint::Plain));
            lines.extend(last.command.as_ref().map(|run| ("command", command(run), Paint::Plain)));
        }
    }
    lines
}

/// `stop after liveness failure, 12s ago: stopped in 1.20s`.
fn record(last: &ActRecordView, now: SystemTime) -> String {
    let took = measured(last.took_seconds.0);
    let end = match last.end {
        None => "in progress".to_owned(),
        Some(ActEndView::Stopped) => format!("stopped in {took}"),
        Some(ActEndView::Restarted) => format!("restarted in {took}"),
        Some(ActEndView::DryRun) => "only reported (act.dryRun)".to_owned(),
        Some(ActEndView::GivenUp) => format!("given up: {}", last.reason),
    };
    format!("{} after {}, {} ago: {end}", last.action, last.after, age(last.at.0, now))
}

/// Which container that was, and which one runs in its place.
fn container(last: &ActRecordView, now: SystemTime) -> String {
    let at = moment(last.at.0, now);
    let successor = match &*last.successor_id {
        "" => String::new(),
        id => format!(", replaced by {id}"),
    };
    format!("{}, at {at}{successor}", last.container_id)
}

fn command(run: &ActCommandView) -> String {
    let took = measured(run.took_seconds.0);
    match run.exit_code {
        Some(code) => format!("onFailureCommand exited with code {code} after {took}"),
        None => format!("onFailureCommand failed after {took}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::report::view::{Seconds, sample};

    #[test]
    fn the_end_of_an_act_and_a_refusal_are_in_words() {
        let mut acts = sample::acting_detail().acts.unwrap();
        let now = sample::at(125_000).0;
        let said = |end, reason: &str| {
            let mut last = acts.last.clone().unwrap();
            (last.end, last.reason) = (end, reason.to_owned());
            last.took_seconds = Seconds(Duration::from_millis(1_200));
            record(&last, now)
        };
        let begin = "restart after liveness failure, 13s ago";
        for (end, reason, words) in [
            (None, "", "in progress"),
            (Some(ActEndView::Stopped), "", "stopped in 1.20s"),
            (Some(ActEndView::Restarted), "", "restarted in 1.20s"),
            (Some(ActEndView::DryRun), "", "only reported (act.dryRun)"),
            (Some(ActEndView::GivenUp), "a client removed it", "given up: a client removed it"),
        ] {
            assert_eq!(said(end, reason), format!("{begin}: {words}"));
        }
        let successor_id = "c2".to_owned();
        let replaced = ActRecordView { successor_id, ..acts.last.clone().unwrap() };
        assert_eq!(container(&replaced, now), "c1, at 10:01:52.000Z, replaced by c2");
        (acts.action, acts.refusal) = ("report".to_owned(), "acting is not enabled".to_owned());
        let first = lines(&acts, None, now).swap_remove(0);
        assert_eq!(first.1, "report, although restart is asked for: acting is not enabled");
    }
}
