//! What a node would do with a pod: the plan of each of its containers, with and without the operator's rules. A pod
//! and policies in, views out.

use std::sync::Arc;

use super::{
    annotations::{self, Prober, Rulebook},
    findings::Findings,
    kubelet,
    pod::{WrittenContainer, WrittenPod, with_ports},
};
use crate::{
    document::{Place, fault::quoted},
    inventory::pod::{Container, ContainerState, Pod, PodNetwork},
    report::view::{CheckedContainer, CheckedPod, CheckedProbe, DefinitionView, PlanChange},
    spec::{
        acting::{ActRefusal, Acting},
        annotation,
        need::{Budget, Need},
        plan::{Class, ImageFacts, Planned, ProbeSource, plan},
        policy::Policy,
    },
};

/// Checks a pod and plans its containers, whose probes may take so much together. Where there are rules, `rulebook` has them, and
/// `is_compared` asks for what would be without them, too.
pub(super) fn check(
    pod: &WrittenPod<'_>,
    rulebook: Rulebook<'_>,
    budget: Budget,
    is_compared: bool,
    findings: &mut Findings,
) -> CheckedPod {
    annotations::of_pod(pod, rulebook, findings);
    for container in pod.containers.iter().filter(|container| !container.is_elsewhere) {
        annotations::of_container(container, pod, rulebook, findings);
    }
    let view = Arc::new(pod_view(pod));
    let before = is_compared.then(|| Policy { acting: rulebook.policy.acting.clone(), ..Policy::default() });
    let mut containers: Vec<_> = pod
        .containers
        .iter()
        .map(|container| {
            let by = |policy: &Policy| planned(container, pod, &view, policy);
            Plans { container, ours: by(rulebook.policy), before: before.as_ref().map(by) }
        })
        .collect();
    limit(&mut containers, budget, findings);
    CheckedPod {
        namespace: pod.namespace.clone(),
        pod: pod.name.clone(),
        path: pod.path.clone(),
        containers: containers.into_iter().map(|plans| container_probes(plans, pod, findings)).collect(),
    }
}

/// What is planned for a container, by the policy and, where that is asked for, by another one before it.
struct Plans<'a> {
    container: &'a WrittenContainer<'a>,
    ours: Vec<OurProbe>,
    before: Option<Vec<OurProbe>>,
}

/// A probe of ours.
struct OurProbe {
    /// How much it counts.
    class: Class,
    /// What it takes.
    need: Need,
    acting: Acting,
    /// Whether it is invalid because its pod has too many, which is a finding of its own.
    is_over_budget: bool,
    probe: CheckedProbe,
}

fn planned(
    container: &WrittenContainer<'_>,
    pod: &WrittenPod<'_>,
    view: &Arc<Pod>,
    policy: &Policy,
) -> Vec<OurProbe> {
    let view = container_view(container, view);
    let planned = plan(&view, policy, ImageFacts::default());
    let ours = |one: &Planned| {
        let need = one.spec.as_ref().map(|outline| outline.need).unwrap_or_default();
        let probe = checked(one, &view, container, pod);
        OurProbe { class: one.source.class(), need, acting: one.acting, is_over_budget: false, probe }
    };
    planned.iter().map(ours).collect()
}

/// Makes the probes invalid that are beyond what a pod may have: those of enforced rules are the last to be, then those of
/// other rules, then those of earlier containers, which are made first. As on a node, the first that does not fit ends the
/// list, unless it would not fit alone.
fn limit(containers: &mut [Plans<'_>], budget: Budget, findings: &mut Findings) {
    let of_pod = containers.iter_mut().map(|plans| (plans.container, &mut plans.ours));
    let mut valid: Vec<_> = of_pod
        .flat_map(|(container, probes)| probes.iter_mut().map(move |probe| (container, probe)))
        .filter(|(_, ours)| ours.probe.valid)
        .collect();
    // Those of one class stay in their order.
    valid.sort_by_key(|(_, ours)| ours.class);
    let alone = |class: Class, need: Need| budget.excess(need, class);
    let mut asked = Need::default();
    let sharing = valid.iter().filter(|(_, ours)| alone(ours.class, ours.need).is_none());
    sharing.for_each(|(_, ours)| asked += ours.need);
    let (mut used, mut full) = (Need::default(), None);
    for (container, OurProbe { class, need, acting: _, is_over_budget, probe }) in valid {
        let alone = alone(*class, *need);
        if alone.is_none() {
            used += *need;
            full = full.or_else(|| budget.excess(used, *class));
        }
        let refused = alone.map(|what| (what, *need)).or(full.map(|what| (what, asked)));
        let Some((what, asked)) = refused else { continue };
        let reason = budget.refuse(what, asked).to_string();
        let (kind, name) = (&probe.kind, quoted(&container.name));
        findings.error(container.place, format!("{kind} of {name}: {reason}"));
        (probe.valid, probe.reason, probe.definition) = (false, reason, None);
        *is_over_budget = true;
    }
}

fn container_probes(plans: Plans<'_>, pod: &WrittenPod<'_>, findings: &mut Findings) -> CheckedContainer {
    plans.ours.iter().for_each(|ours| warn_of_act(ours, plans.container, findings));
    let is_refused = |ours: &&OurProbe| !ours.probe.valid && !ours.is_over_budget;
    let of_rule = |ours: &&OurProbe| ours.probe.source.starts_with("rule:");
    for OurProbe { probe, .. } in plans.ours.iter().filter(is_refused).filter(of_rule) {
        let (name, kind, reason) = (quoted(&plans.container.name), &probe.kind, &probe.reason);
        findings.error(plans.container.place, format!("{}: {kind} of {name}: {reason}", probe.source));
    }
    let checked = |probes: Vec<OurProbe>| probes.into_iter().map(|ours| ours.probe).collect::<Vec<_>>();
    let (container, mut ours, before) = (plans.container, checked(plans.ours), plans.before.map(checked));
    if let Some(before) = &before {
        for probe in &mut ours {
            probe.change = Some(change(before, probe));
        }
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

/// Warns of a probe that only reports although it asks for an act. That a rule may not act at all is said once, of the rule.
fn warn_of_act(ours: &OurProbe, container: &WrittenContainer<'_>, findings: &mut Findings) {
    let OurProbe { class, acting, probe, .. } = ours;
    let is_rules = *class != Class::Author;
    let Some(reason) = acting.refusal.filter(|reason| !is_rules || *reason != ActRefusal::Disabled) else {
        return;
    };
    if probe.valid {
        let own = probe.line.zip(probe.column).map(|(line, column)| Place { line, column });
        let (source, kind, name, asked) =
            (&probe.source, &probe.kind, quoted(&container.name), acting.asked.as_str());
        let message = format!("{source}: {kind} of {name} asks for {asked}, but only reports: {reason}");
        findings.warning(own.or(container.place), message);
    }
}

fn checked(
    planned: &Planned,
    view: &Container,
    container: &WrittenContainer<'_>,
    pod: &WrittenPod<'_>,
) -> CheckedProbe {
    let place = place(planned, container, pod);
    let handler = match &planned.spec {
        Ok(outline) => outline.handler,
        Err(invalid) => invalid.handler.unwrap_or_default(),
    };
    let definition = planned.definition(view);
    let spec = definition
        .as_deref()
        .map_err(|invalid| invalid.reason.clone())
        .and_then(|spec| annotations::port_fault(spec, container, pod, Prober::Us).map_or(Ok(spec), Err));
    CheckedProbe {
        kind: planned.kind.as_str().to_owned(),
        source: planned.source.to_string(),
        valid: spec.is_ok(),
        reason: spec.as_ref().err().cloned().unwrap_or_default(),
        handler: handler.to_owned(),
        act_refusal: planned.acting.why_not().map(str::to_owned),
        resolved_port: spec.as_ref().ok().and_then(|spec| annotations::resolved(spec, container)),
        definition: spec.ok().map(|spec| DefinitionView::of(spec, &planned.source.to_string())),
        line: place.map(|place| place.line),
        column: place.map(|place| place.column),
        shadowed: planned.shadowed.clone(),
        change: None,
    }
}

/// Where the annotation stands that a probe comes from.
fn place(planned: &Planned, container: &WrittenContainer<'_>, pod: &WrittenPod<'_>) -> Option<Place> {
    let among = match planned.source {
        ProbeSource::ContainerAnnotation if container.is_elsewhere => return None,
        ProbeSource::ContainerAnnotation => &container.annotations,
        ProbeSource::PodAnnotation => &pod.annotations,
        ProbeSource::EnforcedRule(_) | ProbeSource::Rule(_) | ProbeSource::Healthcheck => return None,
    };
    let is_it = |key: &str| annotation::target(key) == Some((planned.kind, container.name.as_str()));
    among.iter().find(|one| is_it(one.key))?.place
}

/// What became of a probe by the rules, beside what there was before.
fn change(before: &[CheckedProbe], after: &CheckedProbe) -> PlanChange {
    match before.iter().find(|one| one.kind == after.kind) {
        None => PlanChange::Added,
        Some(one) if one.source != after.source => PlanChange::Replaced,
        Some(one) if one.valid && !after.valid => PlanChange::Invalidated,
        Some(_) => PlanChange::Same,
    }
}

fn pod_view(pod: &WrittenPod<'_>) -> Pod {
    let texts =
        pod.annotations.iter().filter_map(|one| Some((one.key.to_owned(), one.value.text()?.to_owned())));
    Pod {
        sandbox_id: "".into(),
        uid: "".into(),
        name: pod.name.as_str().into(),
        namespace: pod.namespace.as_str().into(),
        attempt: 0,
        copied_uid: None,
        is_ready: true,
        is_kubelets: pod.is_kubelets,
        network: if pod.is_host_network { PodNetwork::Host } else { PodNetwork::Unknown },
        labels: pod.labels.clone(),
        annotations: texts.collect(),
        omitted: 0,
    }
}

fn container_view(container: &WrittenContainer<'_>, pod: &Arc<Pod>) -> Container {
    Container {
        id: "".into(),
        name: container.name.as_str().into(),
        attempt: 0,
        image: container.image.as_str().into(),
        image_spec: container.image.as_str().into(),
        image_ref: "".into(),
        state: ContainerState::Created,
        is_paused: false,
        created_at: None,
        started_at: None,
        end: None,
        log_path: "".into(),
        omitted: 0,
        annotations: with_ports(container),
        pod: pod.clone(),
    }
}
