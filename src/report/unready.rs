//! Why a container is not ready, in the words of the probe that fails: a container with its probes in, one short line out.
//! Pure.

use std::time::SystemTime;

use crate::{
    clock,
    duration::coarse,
    ids::ProbeKind,
    inventory::pod::ContainerState,
    prober::{
        ContainerStatus,
        status::{ProbePhase, ProbeStatus},
    },
    results::{AttemptRecord, AttemptResult, Verdict},
};

/// 160 characters of what an attempt said, of its first line: `describe` shows it all.
const MOST: usize = 160;

/// `readiness probe fails since 10:00:00Z (3m): HTTP probe failed with statuscode: 503`; `exited with code 137 (OOMKilled)
/// 2m ago`.
pub(super) fn reason(container: &ContainerStatus, now: SystemTime) -> String {
    let view = &container.view;
    match view.state {
        ContainerState::Running => container
            .probes
            .iter()
            .filter(|probe| probe.phase != ProbePhase::Invalid && probe.state != Verdict::Success)
            .filter(|probe| probe.key.kind != ProbeKind::Liveness)
            .min_by_key(|probe| probe.key.kind)
            .map_or_else(|| "its probes are not known yet".to_owned(), |probe| of_probe(probe, now)),
        ContainerState::Exited { exit_code } => {
            let code = exit_code.map(|code| format!(" with code {code}")).unwrap_or_default();
            let end = view.end.as_deref();
            let reason =
                end.map(|end| &*end.reason).filter(|reason| !matches!(*reason, "" | "Error" | "Completed"));
            let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
            let ago = end.and_then(|end| end.finished_at).map(|at| format!(" {} ago", since(at, now)));
            format!("exited{code}{reason}{}", ago.unwrap_or_default())
        }
        ContainerState::Created => "created, not started".to_owned(),
        ContainerState::Unknown => "the runtime does not know its state".to_owned(),
    }
}

fn of_probe(probe: &ProbeStatus, now: SystemTime) -> String {
    let name = format!("{} probe", probe.key.kind);
    // The newest attempt may be one at a former container.
    let last = probe.last.as_ref().filter(|_| probe.counts.total() > 0);
    match (probe.phase, last) {
        (ProbePhase::Waiting | ProbePhase::Stopped, _) => format!("{name} waits: {}", probe.reason),
        (ProbePhase::Paused, _) => format!("{name} is {}", probe.reason),
        (_, None) => format!("{name} has not been attempted yet"),
        (_, Some(last)) => match last.result {
            AttemptResult::Failure if probe.state == Verdict::Failure => {
                let failing = format!("{} ({})", clock_time(probe.since, now), since(probe.since, now));
                format!("{name} fails since {failing}{}", said(last))
            }
            AttemptResult::Failure => format!("{name} has not succeeded yet{}", said(last)),
            AttemptResult::Error => format!("{name} cannot be attempted{}", said(last)),
            AttemptResult::Success | AttemptResult::Warning => {
                let wanted = probe.spec.as_ref().map_or(1, |spec| spec.success_threshold);
                format!("{name} has succeeded {} of {wanted} times in a row", probe.run.count)
            }
        },
    }
}

/// `: ` and the first line.
fn said(last: &AttemptRecord) -> String {
    let line = last.output.trim().lines().next().unwrap_or_default();
    match line.char_indices().nth(MOST) {
        _ if line.is_empty() => String::new(),
        None => format!(": {line}"),
        Some((end, _)) => format!(": {}…", &line[..end]),
    }
}

/// `10:00:00Z`; with its date if that is not today.
fn clock_time(at: SystemTime, now: SystemTime) -> String {
    let (at, now) = (clock::rfc3339(at), clock::rfc3339(now));
    let seconds = at.split_once('.').map_or(&*at, |(seconds, _)| seconds);
    match seconds.split_once('T') {
        Some((date, time)) if now.starts_with(date) => format!("{time}Z"),
        Some(_) | None => format!("{seconds}Z"),
    }
}

fn since(at: SystemTime, now: SystemTime) -> String {
    coarse(now.duration_since(at).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::{
        ids::ProbeKey,
        inventory::{
            fixtures,
            pod::{Container, ContainerEnd},
        },
        prober::readiness::ContainerReadiness,
        results::{Counts, Run, Tally},
        spec::acting::Acting,
    };

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> SystemTime {
        SystemTime::UNIX_EPOCH + 36_000 * SECOND + SECOND * seconds
    }

    /// A container whose probe of this type failed or succeeded once.
    fn probe(kind: ProbeKind, state: Verdict, result: AttemptResult, output: &str) -> ProbeStatus {
        let last = AttemptRecord {
            at: at(170),
            result,
            duration: SECOND,
            lag: None,
            exit_code: None,
            status: None,
            container_attempt: None,
            is_first: false,
            output: output.into(),
        };
        ProbeStatus {
            key: ProbeKey { pod: "u1".into(), container: "app".into(), kind },
            namespace: "default".into(),
            pod: "web".into(),
            sandbox_id: "s1".into(),
            container_id: "c1".into(),
            attempt: 0,
            created_at: None,
            spec: None,
            handler: None,
            source: "annotation".to_owned(),
            phase: ProbePhase::Probing,
            state,
            reason: String::new(),
            since: at(0),
            period: None,
            late: None,
            next_at: None,
            run: Run { verdict: Verdict::Success, count: 0 },
            counts: Counts { failure: 1, ..Counts::default() },
            last: Some(last),
            tally: Tally::default(),
            unsuccessful_at: None,
            latency: None,
            pause: None,
            is_clients: false,
            history: Arc::default(),
            acting: Acting::default(),
            shadowed: Vec::new(),
        }
    }

    fn status(state: ContainerState, probes: Vec<ProbeStatus>) -> ContainerStatus {
        let end = Some(Arc::new(ContainerEnd {
            finished_at: Some(at(60)),
            reason: "OOMKilled".into(),
            message: "".into(),
        }));
        let view = Arc::new(Container { state, end, ..fixtures::container("c1", fixtures::pod()) });
        ContainerStatus { view, readiness: ContainerReadiness::default(), probes }
    }

    #[test]
    fn a_container_is_unready_in_the_words_of_its_probe() {
        use AttemptResult::{Error, Failure, Success};
        use ProbeKind::{Liveness, Readiness, Startup};
        let running = |probes| status(ContainerState::Running, probes);
        let readiness = |state, result, output: &str| probe(Readiness, state, result, output);
        let idle =
            ProbeStatus { counts: Counts::default(), ..readiness(Verdict::Failure, Failure, "of another") };
        let paused = ProbeStatus {
            phase: ProbePhase::Paused,
            reason: "paused by an operator".to_owned(),
            ..readiness(Verdict::Failure, Failure, "")
        };
        let startup = probe(Startup, Verdict::Unknown, Failure, "no file\nmore\n");
        let rows = [
            (
                running(vec![readiness(Verdict::Failure, Failure, "HTTP probe failed with statuscode: 503")]),
                "readiness probe fails since 10:00:00Z (3m0s): HTTP probe failed with statuscode: 503"
                    .to_owned(),
            ),
            (
                running(vec![readiness(Verdict::Failure, Failure, &"x".repeat(161))]),
                format!("readiness probe fails since 10:00:00Z (3m0s): {}…", "x".repeat(160)),
            ),
            (
                running(vec![readiness(Verdict::Failure, Failure, ""), startup]),
                "startup probe has not succeeded yet: no file".to_owned(),
            ),
            (
                running(vec![
                    probe(Liveness, Verdict::Failure, Failure, "x"),
                    readiness(Verdict::Failure, Error, "away"),
                ]),
                "readiness probe cannot be attempted: away".to_owned(),
            ),
            (
                running(vec![readiness(Verdict::Failure, Success, "")]),
                "readiness probe has succeeded 0 of 1 times in a row".to_owned(),
            ),
            (running(vec![idle]), "readiness probe has not been attempted yet".to_owned()),
            (running(vec![paused]), "readiness probe is paused by an operator".to_owned()),
            (running(vec![]), "its probes are not known yet".to_owned()),
            (
                status(ContainerState::Exited { exit_code: Some(137) }, vec![]),
                "exited with code 137 (OOMKilled) 2m0s ago".to_owned(),
            ),
            (status(ContainerState::Created, vec![]), "created, not started".to_owned()),
        ];
        for (container, words) in rows {
            assert_eq!(reason(&container, at(180)), words);
        }
    }
}
