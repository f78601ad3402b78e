//! What a node would do with a pod: the plan of each of its containers, with the operator's rules and without. A pod and
//! policies in, views out.

use std::sync::Arc;

use super::{
    annotations::{self, Prober, Rulebook},
    findings::Findings,
    kubelet,
    pod::{Container, Pod, with_ports},
};
use crate::{
    document::fault::quoted,
    inventory::view::{ContainerState, ContainerView, PodNetwork, PodView},
    report::view::{Change, CheckedContainer, CheckedPod, CheckedProbe},
    spec::{
        annotation,
        image::ImageNames,
        plan::{ImageFacts, Planned, Source, plan},
        policy::Policy,
    },
};

/// Checks a pod and plans its containers; so many probes may run at most. Where there are rules, `rulebook` has them, and
/// `is_compared` asks for what would be without them, too.
pub(super) fn check(
    pod: &Pod<'_>,
    rulebook: Rulebook<'_>,
    per_pod: usize,
    is_compared: bool,
    findings: &mut Findings,
) -> CheckedPod {
    annotations::of_pod(pod, rulebook, findings);
    for container in pod.containers.iter().filter(|container| !container.is_elsewhere) {
        annotations::of_container(container, pod, rulebook, findings);
    }
    let view = Arc::new(pod_view(pod));
    let mut room = Room { per_pod, left: per_pod };
    let container = |container| {
        let before = is_compared.then(Policy::default);
        container_probes(container, pod, &view, (rulebook.policy, before), &mut room, findings)
    };
    CheckedPod {
        namespace: pod.namespace.clone(),
        pod: pod.name.clone(),
        path: pod.path.clone(),
        containers: pod.containers.iter().map(container).collect(),
    }
}

/// How many more probes of a pod may run.
struct Room {
    per_pod: usize,
    left: usize,
}

impl Room {
    /// Lets a probe in, or makes it invalid.
    fn admit(&mut self, probe: &mut CheckedProbe, container: &Container<'_>, findings: &mut Findings) {
        if !probe.valid {
            return;
        }
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            return;
        }
        let reason = format!("the pod has {} probes already, which is prober.maxPerPod", self.per_pod);
        let (kind, name) = (&probe.kind, quoted(&container.name));
        findings.error(container.place, format!("{kind} of {name}: {reason}"));
        (probe.valid, probe.reason, probe.definition) = (false, reason, None);
    }
}

/// By a policy and, where that is asked for, by another one before it.
fn container_probes(
    container: &Container<'_>,
    pod: &Pod<'_>,
    view: &Arc<PodView>,
    (policy, before): (&Policy, Option<Policy>),
    room: &mut Room,
    findings: &mut Findings,
) -> CheckedContainer {
    let view = container_view(container, view);
    let names = ImageNames::of_manifest(&container.image);
    let image = ImageFacts { healthcheck: None, names: Some(&names) };
    let planned = |policy: &Policy| -> Vec<CheckedProbe> {
        plan(&view, policy, image).iter().map(|one| checked(one, container, pod)).collect()
    };
    let mut ours = planned(policy);
    let before = before.as_ref().map(planned);
    for probe in &mut ours {
        room.admit(probe, container, findings);
    }
    if let Some(before) = &before {
        for probe in &mut ours {
            probe.change = Some(change(before, probe));
        }
    }
    let is_refused = |probe: &&CheckedProbe| !probe.valid && !probe.reason.contains("prober.maxPerPod");
    for probe in ours.iter().filter(is_refused).filter(|probe| probe.source.starts_with("rule:")) {
        let (name, kind, reason) = (quoted(&container.name), &probe.kind, &probe.reason);
        findings.error(container.place, format!("{}: {kind} of {name}: {reason}", probe.source));
    }
    let mut probes = kubelet::probes(container, pod, findings);
    probes.append(&mut ours);
    CheckedContainer {
        container: container.name.clone(),
        role: container.role,
        image: container.image.clone(),
        line: container.place.filter(|_| !container.is_elsewhere).map(|place| place.line),
        probes,
        before,
    }
}

fn checked(planned: &Planned, container: &Container<'_>, pod: &Pod<'_>) -> CheckedProbe {
    let place = place(planned, container, pod);
    let handler = match &planned.spec {
        Ok(spec) => spec.handler.name(),
        Err(invalid) => invalid.handler.unwrap_or_default(),
    };
    let spec = planned
        .spec
        .as_ref()
        .map_err(|invalid| invalid.reason.clone())
        .and_then(|spec| annotations::port_fault(spec, container, pod, Prober::Us).map_or(Ok(spec), Err));
    CheckedProbe {
        kind: planned.kind.as_str().to_owned(),
        source: planned.source.to_string(),
        valid: spec.is_ok(),
        reason: spec.as_ref().err().cloned().unwrap_or_default(),
        handler: handler.to_owned(),
        resolved_port: spec.as_ref().ok().and_then(|spec| annotations::resolved(spec, container)),
        definition: spec.ok().map(Into::into),
        line: place.map(|place| place.line),
        column: place.map(|place| place.column),
        shadowed: planned.shadowed.clone(),
        change: None,
    }
}

/// Where the annotation stands that a probe comes from.
fn place(planned: &Planned, container: &Container<'_>, pod: &Pod<'_>) -> Option<crate::document::Place> {
    let among = match planned.source {
        Source::ContainerAnnotation if container.is_elsewhere => return None,
        Source::ContainerAnnotation => &container.annotations,
        Source::PodAnnotation => &pod.annotations,
        Source::EnforcedRule(_) | Source::Rule(_) | Source::Healthcheck => return None,
    };
    let is_it = |key: &str| annotation::target(key) == Some((planned.kind, container.name.as_str()));
    among.iter().find(|one| is_it(one.key))?.place
}

/// What became of a probe by the rules, beside what there was before.
fn change(before: &[CheckedProbe], after: &CheckedProbe) -> Change {
    match before.iter().find(|one| one.kind == after.kind) {
        None => Change::Added,
        Some(one) if one.source != after.source => Change::Replaced,
        Some(one) if one.valid && !after.valid => Change::Invalidated,
        Some(_) => Change::Same,
    }
}

fn pod_view(pod: &Pod<'_>) -> PodView {
    let texts =
        pod.annotations.iter().filter_map(|one| Some((one.key.to_owned(), one.value.text()?.to_owned())));
    PodView {
        sandbox_id: "".into(),
        uid: "".into(),
        name: pod.name.as_str().into(),
        namespace: pod.namespace.as_str().into(),
        attempt: 0,
        is_ready: true,
        network: if pod.is_host_network { PodNetwork::Host } else { PodNetwork::Unknown },
        labels: pod.labels.clone(),
        annotations: texts.collect(),
        omitted: 0,
    }
}

fn container_view(container: &Container<'_>, pod: &Arc<PodView>) -> ContainerView {
    ContainerView {
        id: "".into(),
        name: container.name.as_str().into(),
        attempt: 0,
        image: container.image.as_str().into(),
        image_spec: container.image.as_str().into(),
        image_ref: "".into(),
        state: ContainerState::Created,
        created_at: None,
        started_at: None,
        omitted: 0,
        annotations: with_ports(container),
        pod: pod.clone(),
    }
}
