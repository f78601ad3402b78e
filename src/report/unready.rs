//! Why a container is not ready, or a probe fails, in the words of the probe: a container with its probes in, one short line
//! out. Pure.

use std::time::SystemTime;

use super::view::{FailingProbeView, ProbeView};
use crate::{
    clock,
    duration::coarse,
    ids::ProbeKind,
    inventory::pod::{ContainerEnd, ContainerState},
    prober::{
        ContainerStatus,
        status::{ProbePhase, ProbeStatus},
    },
    results::{AttemptRecord, AttemptResult, Verdict, errors::Errors, layers::plain, words},
};

/// 160 characters of what an attempt said: `describe` shows it all.
const MOST: usize = 160;

/// `readiness probe fails since 10:00:00Z (3m): HTTP probe failed with statuscode: 503`; `exited with code 137 (OOMKilled)
/// 2m ago`.
pub(super) fn reason(container: &ContainerStatus, now: SystemTime) -> String {
    let view = &container.view;
    match view.state {
        ContainerState::Running => blamed(container)
            .map_or_else(|| "its probes are not known yet".to_owned(), |probe| of_probe(probe, now)),
        ContainerState::Exited { exit_code } => {
            let code = exit_code.map(|code| format!(" with code {code}")).unwrap_or_default();
            let end = view.end.as_deref();
            let reason = end.and_then(ContainerEnd::telling);
            let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
            let ago = end.and_then(|end| end.finished_at).map(|at| format!(" {} ago", since(at, now)));
            format!("exited{code}{reason}{}", ago.unwrap_or_default())
        }
        ContainerState::Created => "created, not started".to_owned(),
        ContainerState::Unknown => "the runtime does not know its state".to_owned(),
    }
}

/// The probe that makes a running container unready, if it is known.
fn blamed(container: &ContainerStatus) -> Option<&ProbeStatus> {
    let probes = container.probes.iter();
    let probes = probes.filter(|probe| probe.phase != ProbePhase::Invalid && probe.state != Verdict::Success);
    probes.filter(|probe| probe.key.kind != ProbeKind::Liveness).min_by_key(|probe| probe.key.kind)
}

/// `liveness probe fails since 10:00:00Z (3m): cat: healthy: No such file or directory`.
fn of_probe(probe: &ProbeStatus, now: SystemTime) -> String {
    let name = format!("{} probe", probe.key.kind);
    // The newest attempt may be one at a former container.
    let last = probe.last.as_ref().filter(|_| probe.counts.total() > 0);
    let failing = || format!("fails since {} ({})", clock::short(probe.since, now), since(probe.since, now));
    match (probe.phase, last) {
        (ProbePhase::Invalid, _) => format!("{name} is invalid: {}", cut(&probe.reason)),
        (ProbePhase::Waiting | ProbePhase::Stopped, _) => format!("{name} waits: {}", probe.reason),
        (ProbePhase::Held, _) if probe.exited.is_some() => format!("{name} waits: {}", probe.reason),
        (ProbePhase::Paused, Some(last)) if probe.state == Verdict::Failure && is_failure(last) => {
            format!("{name} (paused) {}{}", failing(), said(last))
        }
        (ProbePhase::Paused, _) => format!("{name} is paused"),
        (_, None) => format!("{name} has not been attempted yet"),
        // Its newest attempt was before the outage.
        (_, Some(last)) if probe.errors.is_some_and(|errors| errors.count == 0) => match probe.state {
            Verdict::Failure => format!("{name} {}{}; {}", failing(), said(last), probe.reason),
            Verdict::Success | Verdict::Unknown => format!("{name} {}", probe.reason),
        },
        (_, Some(last)) => match last.result {
            AttemptResult::Failure if probe.state == Verdict::Failure => {
                format!("{name} {}{}", failing(), said(last))
            }
            AttemptResult::Failure => format!("{name} has not succeeded yet{}", said(last)),
            AttemptResult::Error => match (&probe.hidden, probe.state) {
                (Some(failed), Verdict::Failure) => {
                    format!("{name} {}: {}; {}", failing(), cut(failed), untried(probe, now))
                }
                (Some(_) | None, _) => format!("{name} {}", untried(probe, now)),
            },
            AttemptResult::Success | AttemptResult::Warning => {
                let wanted = probe.spec.as_ref().map_or(1, |spec| spec.success_threshold);
                format!("{name} has succeeded {} of {wanted} times in a row", probe.run.count)
            }
        },
    }
}

fn is_failure(last: &AttemptRecord) -> bool {
    last.result == AttemptResult::Failure
}

/// `cannot be tried since 10:00:00Z (7 attempts): ...`.
fn untried(probe: &ProbeStatus, now: SystemTime) -> String {
    let last = probe.last.as_ref().map(said).unwrap_or_default();
    match probe.errors {
        Some(errors) => Errors::in_words(errors.count, &clock::short(errors.since, now)) + &last,
        None => format!("cannot be tried{last}"),
    }
}

/// The probes that fail, what has the worst consequence first, and then those whose definition is wrong.
pub(super) fn failing(probes: &[ProbeStatus], now: SystemTime) -> Vec<FailingProbeView> {
    // Few fail: only these are worth a view.
    let is_suspect = |probe: &&ProbeStatus| {
        probe.state == Verdict::Failure
            || probe.phase == ProbePhase::Invalid
            || probe.away.is_some()
            || probe.last.as_ref().is_some_and(|last| last.result == AttemptResult::Error)
    };
    let is_failing = |probe: &&ProbeStatus| {
        let view = ProbeView::from(*probe);
        view.is_failing() || view.phase == ProbePhase::Invalid && !view.stopped_by_client
    };
    let mut failing: Vec<_> = probes.iter().filter(is_suspect).filter(is_failing).collect();
    failing.sort_by_key(|probe| {
        let rank = match probe.key.kind {
            ProbeKind::Liveness => 0,
            ProbeKind::Startup => 1,
            ProbeKind::Readiness => 2,
        };
        (probe.phase == ProbePhase::Invalid, rank)
    });
    let view = |probe: &ProbeStatus| FailingProbeView {
        kind: probe.key.kind.to_string(),
        phase: probe.phase,
        since: probe.since.into(),
        reason: of_probe(probe, now),
    };
    failing.into_iter().map(view).collect()
}

/// `: ` and what it said.
fn said(last: &AttemptRecord) -> String {
    match words(last.result, last.exit_code, &last.output) {
        text if text.is_empty() => String::new(),
        text => format!(": {}", cut(&plain(&text))),
    }
}

/// No more of it than [`MOST`].
fn cut(text: &str) -> String {
    match text.char_indices().nth(MOST) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
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
        prober::{readiness::ContainerReadiness, status::Exited},
        results::{AttemptRecord, Counts, Run, Tally},
        spec::acting::Acting,
    };

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> SystemTime {
        SystemTime::UNIX_EPOCH + 36_000 * SECOND + SECOND * seconds
    }

    /// A container whose probe of this type failed or succeeded once.
    pub(in crate::report) fn probe(
        kind: ProbeKind,
        state: Verdict,
        result: AttemptResult,
        output: &str,
    ) -> ProbeStatus {
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
            phases: None,
            route: None,
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
            in_flight_since: None,
            run: Run { verdict: Verdict::Success, count: 0 },
            counts: Counts { failure: 1, ..Counts::default() },
            last: Some(last),
            errors: None,
            away: None,
            hidden: None,
            tally: Tally::default(),
            unsuccessful_at: None,
            latency: None,
            pause: None,
            is_clients: false,
            exited: None,
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
        let paused = |result, output| ProbeStatus {
            phase: ProbePhase::Paused,
            reason: "paused by an operator".to_owned(),
            ..readiness(Verdict::Failure, result, output)
        };
        let held = ProbeStatus {
            phase: ProbePhase::Held,
            reason: "the container exited with code 3; waits for a new one".to_owned(),
            exited: Some(Exited { code: Some(3) }),
            ..readiness(Verdict::Failure, Success, "")
        };
        let layers = format!("failed to exec in container: failed to start exec \"{}\": ", "5d".repeat(32));
        let erring = |failed: &str| ProbeStatus {
            errors: Some(Errors { count: 2, since: at(120) }),
            hidden: Some(failed.into()),
            ..readiness(Verdict::Failure, Error, "away")
        };
        let mut silent = readiness(Verdict::Failure, Failure, "\n");
        silent.last.as_mut().unwrap().exit_code = Some(1);
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
                "startup probe has not succeeded yet: no file\nmore".to_owned(),
            ),
            (
                running(vec![
                    probe(Liveness, Verdict::Failure, Failure, "x"),
                    readiness(Verdict::Failure, Error, "away"),
                ]),
                "readiness probe cannot be tried: away".to_owned(),
            ),
            (
                running(vec![erring("HTTP probe failed with statuscode: 503")]),
                "readiness probe fails since 10:00:00Z (3m0s): HTTP probe failed with statuscode: 503; cannot be tried \
                 since 10:02:00Z (2 attempts): away"
                    .to_owned(),
            ),
            (
                running(vec![ProbeStatus { hidden: None, ..erring("") }]),
                "readiness probe cannot be tried since 10:02:00Z (2 attempts): away".to_owned(),
            ),
            (
                running(vec![silent]),
                "readiness probe fails since 10:00:00Z (3m0s): exit code 1, no output".to_owned(),
            ),
            (
                running(vec![readiness(Verdict::Failure, Success, "")]),
                "readiness probe has succeeded 0 of 1 times in a row".to_owned(),
            ),
            (running(vec![idle]), "readiness probe has not been attempted yet".to_owned()),
            (
                running(vec![paused(Failure, "no file")]),
                "readiness probe (paused) fails since 10:00:00Z (3m0s): no file".to_owned(),
            ),
            (running(vec![paused(Success, "")]), "readiness probe is paused".to_owned()),
            (
                running(vec![held]),
                "readiness probe waits: the container exited with code 3; waits for a new one".to_owned(),
            ),
            (
                running(vec![readiness(Verdict::Failure, Error, &format!("{layers}exec: \"/bin/nothere\": no such file"))]),
                "readiness probe cannot be tried: exec: \"/bin/nothere\": no such file".to_owned(),
            ),
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

    #[test]
    fn probes_that_fail_or_are_invalid_are_named_liveness_first() {
        use ProbeKind::{Liveness, Readiness, Startup};
        let reasons = |probes: &[(ProbeKind, Verdict, ProbePhase, bool)]| {
            let probes = probes.iter().map(|&(kind, state, phase, is_clients)| ProbeStatus {
                phase,
                is_clients,
                reason: "unknown field".to_owned(),
                ..probe(kind, state, AttemptResult::Failure, "no")
            });
            let failing = failing(&probes.collect::<Vec<_>>(), at(180));
            failing.into_iter().map(|probe| probe.reason).collect::<Vec<_>>()
        };
        let (bad, good, unknown) = (Verdict::Failure, Verdict::Success, Verdict::Unknown);
        let (probing, invalid, stopped) = (ProbePhase::Probing, ProbePhase::Invalid, ProbePhase::Stopped);
        for (probes, expected) in [
            (&[(Startup, good, probing, false), (Liveness, good, probing, false)][..], &[][..]),
            (
                &[
                    (Startup, unknown, invalid, false),
                    (Readiness, bad, probing, false),
                    (Liveness, bad, probing, false),
                ],
                &[
                    "liveness probe fails since 10:00:00Z (3m0s): no",
                    "readiness probe fails since 10:00:00Z (3m0s): no",
                    "startup probe is invalid: unknown field",
                ],
            ),
            (&[(Liveness, bad, stopped, true), (Readiness, unknown, invalid, true)], &[]),
        ] {
            assert_eq!(reasons(probes), expected);
        }
    }

    #[test]
    fn a_probe_that_cannot_be_tried_fails_whatever_its_verdict() {
        let spec = Arc::new(crate::prober::fixtures::spec(ProbeKind::Liveness));
        let erring = |count| ProbeStatus {
            errors: Some(Errors { count, since: at(120) }),
            spec: Some(spec.clone()),
            ..probe(ProbeKind::Liveness, Verdict::Success, AttemptResult::Error, "no answer")
        };
        let reasons =
            |probe| failing(&[probe], at(180)).into_iter().map(|probe| probe.reason).collect::<Vec<_>>();
        let words = "liveness probe cannot be tried since 10:02:00Z (3 attempts): no answer";
        assert_eq!(reasons(erring(3)), [words]);
        assert!(reasons(erring(2)).is_empty(), "as many failures would be none");
        let stopped = ProbeStatus { phase: ProbePhase::Stopped, ..erring(3) };
        assert!(reasons(stopped).is_empty());
        assert!(reasons(ProbeStatus { is_clients: true, ..erring(3) }).is_empty());
    }
}
