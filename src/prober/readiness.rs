//! Whether a container has started and is ready: its state and its probes in, what the kubelet writes into a pod's
//! status out (docs/kubelet-prober.md 2, UpdatePodStatus). Pure.

use std::sync::Arc;

use super::status::{ProbePhase, ProbeStatus};
use crate::{
    ids::ProbeKind,
    inventory::pod::{Container, ContainerState},
    results::Verdict,
};

/// One container with its probes, as they were at one moment.
#[derive(Clone, Debug)]
pub struct ContainerStatus {
    /// As the prober saw it last.
    pub view: Arc<Container>,
    /// Whether it has started and is ready.
    pub readiness: ContainerReadiness,
    /// Those that look at it; none where a newer container of its name has them.
    pub probes: Vec<ProbeStatus>,
}

/// What the kubelet reports of a container beside its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ContainerReadiness {
    /// Its startup probe succeeded, or it has none and runs.
    pub is_started: bool,
    /// It has started, and its readiness probe says success, or it has none.
    pub is_ready: bool,
}

impl ContainerReadiness {
    /// That of a container, by all probes that look at it; those of others must not be among them. An invalid probe
    /// has no say, as if it were not there.
    pub fn of(state: ContainerState, probes: &[ProbeStatus]) -> Self {
        if state != ContainerState::Running {
            return Self::default();
        }
        let verdict = |kind| {
            let able =
                probes.iter().find(|probe| probe.key.kind == kind && probe.phase != ProbePhase::Invalid);
            able.map(|probe| probe.state)
        };
        let is_started = allows(verdict(ProbeKind::Startup));
        Self { is_started, is_ready: is_started && allows(verdict(ProbeKind::Readiness)) }
    }
}

/// Whether a probe that may not be there lets the container pass: there is none, or its verdict is success.
pub(super) fn allows(verdict: Option<Verdict>) -> bool {
    verdict.is_none_or(|verdict| verdict == Verdict::Success)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::{
        ids::ProbeKey,
        prober::{
            Moment,
            fixtures::{container, planned, spec},
            worker::Worker,
        },
    };

    /// One row of `tests/data/prober/readiness.json`: what each probe found, `none` if there is no verdict yet.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    struct Row {
        id: String,
        rule: String,
        #[serde(default = "running")]
        state: String,
        startup: Option<String>,
        readiness: Option<String>,
        liveness: Option<String>,
        is_started: bool,
        is_ready: bool,
    }

    fn running() -> String {
        "running".to_owned()
    }

    fn status(kind: ProbeKind, found: &str) -> ProbeStatus {
        let (now, view, planned) = (Moment::now(), container("web", "c1", 0), planned(spec(kind)));
        let key = ProbeKey { pod: "web".into(), container: "app".into(), kind };
        let worker = Worker::new(Arc::new(spec(kind)), now, false, now);
        let status = ProbeStatus::of(&key, &view, &planned, &worker, None, now);
        let state = match found {
            "success" => Verdict::Success,
            "failure" => Verdict::Failure,
            "unknown" | "none" | "invalid" => Verdict::Unknown,
            other => panic!("no such verdict: {other}"),
        };
        let phase = if found == "invalid" { ProbePhase::Invalid } else { ProbePhase::Probing };
        ProbeStatus { state, phase, ..status }
    }

    #[test]
    fn a_container_stands_as_the_kubelet_writes_it() {
        let rows: Vec<Row> =
            serde_json::from_str(include_str!("../../tests/data/prober/readiness.json")).unwrap();
        for row in rows {
            let found = [
                (ProbeKind::Startup, row.startup),
                (ProbeKind::Readiness, row.readiness),
                (ProbeKind::Liveness, row.liveness),
            ];
            let probes: Vec<_> =
                found.into_iter().filter_map(|(kind, found)| Some(status(kind, &found?))).collect();
            let state = match &*row.state {
                "running" => ContainerState::Running,
                "created" => ContainerState::Created,
                "exited" => ContainerState::Exited { exit_code: Some(0) },
                other => panic!("no such state: {other}"),
            };
            let expected = ContainerReadiness { is_started: row.is_started, is_ready: row.is_ready };
            assert_eq!(ContainerReadiness::of(state, &probes), expected, "{}: {}", row.id, row.rule);
        }
    }
}
