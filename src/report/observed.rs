//! Converts clients' own probes into views. In: observed probes, and the time. Out: the JSON shapes.

use std::time::SystemTime;

use super::{
    convert::{errors_view, latency_view},
    view::{ClientView, ProbeDetailView, ProbePhase, ProbeView, Seconds, probe_id, probe_key},
};
use crate::{
    clock,
    observed::ObservedStatus,
    results::{Verdict, errors::Errors},
};

/// As it is listed among the others. While the runtime is `away`, since then, its client cannot try it.
pub(crate) fn view(probe: &ObservedStatus, away: Option<SystemTime>, now: SystemTime) -> ProbeView {
    let (container, results) = (&*probe.container, &probe.results);
    let pod = &*container.pod;
    let kind = probe.kind.to_string();
    let run = results.run();
    let errors = results.errors().or(away.map(|since| Errors { count: 0, since }));
    let timeout = Some(probe.timeout).filter(|timeout| !timeout.is_zero());
    ProbeView {
        id: probe_id(&pod.namespace, &pod.name, &container.name, &kind),
        key: probe_key(pod.uid.as_str(), &container.name, &kind),
        namespace: pod.namespace.to_string(),
        pod: pod.name.to_string(),
        pod_uid: pod.uid.to_string(),
        sandbox_id: pod.sandbox_id.to_string(),
        container: container.name.to_string(),
        container_id: container.id.to_string(),
        attempt: container.attempt,
        kind,
        likely_type: probe.likely.map(|kind| kind.to_string()),
        handler: "exec".to_owned(),
        source: "observed".to_owned(),
        phase: ProbePhase::Probing,
        state: results.verdict().unwrap_or(Verdict::Unknown),
        reason: match away {
            Some(since) => {
                format!("{}: the runtime is away", Errors::in_words(0, &clock::short(since, now)))
            }
            None => probe.reason().to_owned(),
        },
        since: results.since().into(),
        period_seconds: Some(Seconds(probe.period)),
        next_at: Some((now + probe.next_in).into()),
        run: (run.count > 0).then_some(run),
        counts: results.counts(),
        last: results.last().map(Into::into),
        errors: errors.map(|errors| errors_view(errors, away.map(|_| 0))),
        unsuccessful_at: results.unsuccessful_at().map(Into::into),
        latency: results.latency().map(|latency| latency_view(latency, timeout)),
        on_failure: "report".to_owned(),
        on_failure_asked: None,
        act_refusal: None,
        shadowed: Vec::new(),
        act: None,
        pause: None,
        stopped_by_client: false,
    }
}

/// Who makes its attempts, and how.
pub(crate) fn client(probe: &ObservedStatus) -> ClientView {
    ClientView {
        comm: probe.comm.to_string(),
        uid: probe.uid,
        command: probe.command.clone(),
        timeout_seconds: Seconds(probe.timeout),
    }
}

/// All of it: its definition is the client's, and only what it runs is known.
pub(crate) fn detail(probe: &ObservedStatus, away: Option<SystemTime>, now: SystemTime) -> ProbeDetailView {
    let history = probe.results.history();
    ProbeDetailView {
        probe: view(probe, away, now),
        client: Some(client(probe)),
        definition: None,
        acts: None,
        acted: Vec::new(),
        history: history.attempts().map(|attempt| (&attempt).into()).collect(),
        changes: history.changes().map(Into::into).collect(),
        events: Vec::new(),
    }
}
