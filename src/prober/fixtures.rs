//! Containers and definitions that the prober's tests are made of.

use std::{net::IpAddr, sync::Arc, time::Duration};

use super::attempt::AttemptOutcome;
use crate::{
    ids::{ProbeKind, SandboxId},
    inventory::{
        fixtures,
        pod::{Container, Pod, PodNetwork},
    },
    results::AttemptResult,
    spec::{
        Handler, OnFailure, PortRef, ProbeSpec, Reach,
        acting::Acting,
        plan::{Outline, Planned, ProbeSource},
        rule::HistoryRule,
    },
};

/// tcpSocket on port 80 with Kubernetes' defaults.
pub(crate) fn spec(kind: ProbeKind) -> ProbeSpec {
    ProbeSpec {
        kind,
        handler: Handler::TcpSocket { host: None, port: PortRef::Number(80) },
        initial_delay: Duration::ZERO,
        timeout: Duration::from_secs(1),
        period: Duration::from_secs(10),
        success_threshold: 1,
        failure_threshold: 3,
        termination_grace: None,
        on_failure: OnFailure::Report,
        on_failure_command: None,
        start: None,
        timeout_before_cap: None,
        is_literal: false,
        exec_mode: None,
        reach: Reach::Declared,
    }
}

/// As an annotation of the pod.
pub(super) fn planned(spec: ProbeSpec) -> Planned {
    let (kind, source) = (spec.kind, ProbeSource::PodAnnotation);
    let outline = Outline::shared(&Arc::new(spec), source.class());
    let (acting, history) = (Acting::default(), HistoryRule::default());
    Planned { kind, source, spec: Ok(outline), acting, history, shadowed: vec![] }
}

/// A running container `app` of a pod; its sandbox is `<pod>-sandbox`, its address 10.0.0.1.
pub(crate) fn container(pod: &str, id: &str, attempt: u32) -> Container {
    let sandbox = Pod {
        sandbox_id: SandboxId::from(format!("{pod}-sandbox")),
        uid: pod.into(),
        name: pod.into(),
        network: PodNetwork::Pod(vec![IpAddr::from([10, 0, 0, 1])]),
        ..fixtures::pod()
    };
    Container { attempt, ..fixtures::container(id, sandbox) }
}

/// The outcome of an attempt whose output is `out`.
pub(super) fn outcome(result: AttemptResult) -> AttemptOutcome {
    AttemptOutcome {
        tries: 1,
        result,
        output: "out".into(),
        exit_code: None,
        status: None,
        error_state: "unknown",
        is_unanswered: false,
        is_outage: false,
        phases: None,
        route: None,
    }
}
