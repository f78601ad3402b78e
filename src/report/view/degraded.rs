//! What makes `criprobe status` exit with 1, and is at the top of the page: the state of the daemon in, reasons out. Pure.
//!
//! Only what is wrong now, and what needs attention: not counts since the start, not what waits for a restart, and
//! not failing probes, for which there is `probes --check`.

use super::{ReadyzCheck, RecordKind, StatusView};

/// Each reason in a few words; none if all is well.
pub(crate) fn reasons(status: &StatusView) -> Vec<String> {
    // Who stops the daemon knows that; of the configuration, only what is refused counts.
    let checks = status.checks().into_iter().filter(|(name, _)| !matches!(*name, "shutdown" | "config"));
    let mut reasons: Vec<_> = checks
        .filter_map(|(name, check)| match check {
            ReadyzCheck::Ok => None,
            ReadyzCheck::Doubtful(reason) | ReadyzCheck::Failed(reason) => Some(match name {
                "probes" => format!("probes: {reason}"),
                _ => reason,
            }),
        })
        .collect();
    let connections = &status.connections;
    if connections.accepting_paused_since.is_some() {
        reasons.push("new connections have to wait".to_owned());
    }
    match connections.blind.len() {
        0 => {}
        1 => reasons.push("1 connection is blind".to_owned()),
        many => reasons.push(format!("{many} connections are blind")),
    }
    if !status.state.trouble.is_empty() {
        reasons.push(status.state.trouble.clone());
    }
    let files = [(RecordKind::Attempts, &status.attempts), (RecordKind::Calls, &status.trace)];
    reasons.extend(files.into_iter().filter_map(|(kind, file)| kind.problem(file.as_ref()?)));
    if !status.config.errors.is_empty() {
        reasons
            .push("the configuration files are wrong: the previous configuration stays in effect".to_owned());
    }
    reasons
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::report::view::{LateView, RuntimeState, StageRestartView, WaitingView, sample};

    fn well() -> StatusView {
        let mut status = sample::status();
        status.runtime.state = RuntimeState::Ok;
        status.runtime.reason = String::new();
        status.inventory.last_resync_at = Some(sample::at(0));
        (status.inventory.waiting, status.inventory.waiting_images) = (None, None);
        status.connections.blind = Vec::new();
        status.connections.accepting_paused_since = None;
        status.probes.late = None;
        status.acts.trouble = String::new();
        status.state.trouble = String::new();
        let files = [&mut status.attempts, &mut status.trace];
        files.into_iter().flatten().for_each(|file| file.trouble = String::new());
        status.config.errors = Vec::new();
        status
    }

    #[test]
    fn what_is_wrong_now_is_a_reason_and_what_is_past_or_on_purpose_is_none() {
        let blind = sample::status().connections.blind[0].clone();
        let waited = |seconds| Duration::from_secs(seconds).into();
        type Change<'a> = Box<dyn Fn(&mut StatusView) + 'a>;
        let rows: Vec<(Change<'_>, Option<&str>)> = vec![
            (Box::new(|_| {}), None),
            (
                Box::new(|status| {
                    status.runtime.state = RuntimeState::Away;
                    status.runtime.reason = "no process listens".to_owned();
                }),
                Some("the runtime is away: no process listens"),
            ),
            (Box::new(|status| status.runtime.reason = "it refuses".to_owned()), Some("it refuses")),
            (
                Box::new(|status| status.inventory.last_resync_at = None),
                Some("the runtime's pods and containers have not been listed yet"),
            ),
            (
                Box::new(|status| status.inventory.lists_fail = true),
                Some("the runtime's lists cannot be read, so pods may be missing: the log says why"),
            ),
            (
                Box::new(|status| {
                    let since = sample::at(0);
                    let waiting = WaitingView { count: 3, since, longest_seconds: waited(45) };
                    status.inventory.waiting = Some(waiting);
                }),
                Some("waiting for the status of containers or pods: 3, the longest for 45s"),
            ),
            (
                Box::new(|status| {
                    status.probes.late = Some(LateView { count: 3, longest_seconds: waited(12) });
                }),
                Some("probes: 3 waiting"),
            ),
            (Box::new(|status| status.acts.trouble = "disk".to_owned()), Some("disk")),
            (
                Box::new(|status| status.connections.blind = vec![blind.clone()]),
                Some("1 connection is blind"),
            ),
            (
                Box::new(|status| status.connections.accepting_paused_since = Some(sample::at(0))),
                Some("new connections have to wait"),
            ),
            (Box::new(|status| status.state.trouble = "read-only".to_owned()), Some("read-only")),
            (
                Box::new(|status| {
                    status.trace.iter_mut().for_each(|file| file.trouble = "full: free some".to_owned());
                }),
                Some("calls are not written to /var/lib/criprobe/calls.jsonl (trace.file): full: free some"),
            ),
            (Box::new(|status| status.trace = None), None),
            (Box::new(|status| status.trace.iter_mut().for_each(|file| file.dropped = 9)), None),
            (
                Box::new(|status| status.config.errors = vec!["c.yaml:1:1: wrong".to_owned()]),
                Some("the configuration files are wrong: the previous configuration stays in effect"),
            ),
            (Box::new(|status| status.config.needs_restart = vec!["listen".to_owned()]), None),
            (Box::new(|status| status.draining = true), None),
            (Box::new(|status| (status.gaps, status.log.dropped) = (4, 7)), None),
            (
                Box::new(|status| {
                    let (stage, reason) = ("prober".to_owned(), "panicked".to_owned());
                    status.stages =
                        vec![StageRestartView { stage, restarts: 1, last_at: sample::at(0), reason }];
                }),
                None,
            ),
        ];
        for (row, (change, expected)) in rows.into_iter().enumerate() {
            let mut status = well();
            change(&mut status);
            let reasons = reasons(&status);
            match expected {
                None => assert_eq!(reasons, [""; 0], "row {row}"),
                Some(expected) => assert!(
                    matches!(&*reasons, [only] if only.starts_with(expected)),
                    "row {row}: {reasons:?} instead of {expected}"
                ),
            }
        }
    }
}
