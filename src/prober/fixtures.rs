//! Containers and definitions that the prober's tests are made of.

use std::{net::IpAddr, sync::Arc, time::Duration};

use super::attempt::Tried;
use crate::{
    ids::{ProbeKind, SandboxId},
    inventory::{
        fixtures,
        view::{ContainerView, PodNetwork, PodView},
    },
    results::AttemptResult,
    spec::{
        Handler, OnFailure, PortRef, ProbeSpec, Reach,
        plan::{Outline, Planned, Source},
    },
};

/// tcpSocket on port 80 with Kubernetes' defaults.
pub(super) fn spec(kind: ProbeKind) -> ProbeSpec {
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
        start: None,
        is_literal: false,
        reach: Reach::Declared,
    }
}

/// As an annotation of the pod.
pub(super) fn planned(spec: ProbeSpec) -> Planned {
    let (kind, source) = (spec.kind, Source::PodAnnotation);
    let outline = Outline::shared(&Arc::new(spec), source.class());
    Planned { kind, source, spec: Ok(outline), shadowed: vec![] }
}

/// A running container `app` of a pod; its sandbox is `<pod>-sandbox`, its address 10.0.0.1.
pub(super) fn container(pod: &str, id: &str, attempt: u32) -> ContainerView {
    let sandbox = PodView {
        sandbox_id: SandboxId::from(format!("{pod}-sandbox")),
        uid: pod.into(),
        name: pod.into(),
        network: PodNetwork::Pod(vec![IpAddr::from([10, 0, 0, 1])]),
        ..fixtures::pod()
    };
    ContainerView { attempt, ..fixtures::container(id, sandbox) }
}

/// The end of an attempt that said `out`.
pub(super) fn tried(result: AttemptResult) -> Tried {
    Tried {
        tries: 1,
        result,
        output: "out".into(),
        exit_code: None,
        status: None,
        error_state: "unknown",
        is_unanswered: false,
    }
}
