//! Checks the probes in a manifest that the kubelet runs, by Kubernetes' rules. Never mixes them with ours: they are
//! listed with the source `kubelet`.

use super::{
    annotations::{Prober, handler_field, port_fault, resolved},
    findings::Findings,
    pod::{KUBELET_PROBES, WrittenContainer, WrittenPod, join},
};
use crate::{
    document::{
        Node,
        fault::{self, FieldError},
        fields::Field,
    },
    ids::ProbeKind,
    report::view::{CheckedProbe, Role},
    spec::{ProbeSpec, raw::RawProbe, validate::validate},
};

/// The source of such a probe.
pub(super) const SOURCE: &str = "kubelet";

/// The kubelet's probes of a container; what is wrong with them is added to `findings`.
pub(super) fn probes(
    container: &WrittenContainer<'_>,
    pod: &WrittenPod<'_>,
    findings: &mut Findings,
) -> Vec<CheckedProbe> {
    container.kubelet.iter().map(|(kind, node)| probe(*kind, node, container, pod, findings)).collect()
}

fn probe(
    kind: ProbeKind,
    node: &Node,
    container: &WrittenContainer<'_>,
    pod: &WrittenPod<'_>,
    findings: &mut Findings,
) -> CheckedProbe {
    let key = KUBELET_PROBES.iter().find(|(one, _)| *one == kind).map_or("", |(_, key)| key);
    let path = join(&container.path, key);
    let mut errors = Vec::new();
    let raw = RawProbe::read(node, &path, &mut errors);
    if container.role == Role::Init {
        let detail = "may not be set for init containers without restartPolicy=Always";
        errors.push(FieldError::forbidden(path.clone(), node.place, detail));
    }
    let handler = raw.as_ref().and_then(RawProbe::handler).unwrap_or_default();
    let spec = match raw {
        Some(raw) => {
            errors.extend(ours(&raw, &path));
            validate(&raw, kind, &path, errors)
        }
        None => Err(errors),
    };
    let spec = spec.and_then(|spec| match port_fault(&spec, container, pod, Prober::Kubelet) {
        None => Ok(spec),
        Some(reason) => Err(vec![FieldError {
            path: path.clone(),
            reason,
            place: handler_field(node, "port").or(node.place),
        }]),
    });
    if let Err(errors) = &spec {
        findings.fields(errors, node.place);
    }
    CheckedProbe {
        kind: kind.as_str().to_owned(),
        source: SOURCE.to_owned(),
        valid: spec.is_ok(),
        reason: spec.as_ref().err().map(|errors| fault::joined(errors)).unwrap_or_default(),
        handler: spec.as_ref().map_or(handler, |spec| spec.handler.name()).to_owned(),
        act_refusal: None,
        resolved_port: spec.as_ref().ok().and_then(|spec: &ProbeSpec| resolved(spec, container)),
        definition: spec.as_ref().ok().map(Into::into),
        line: node.place.map(|place| place.line),
        column: node.place.map(|place| place.column),
        shadowed: Vec::new(),
        change: None,
    }
}

/// Keys of ours, which the kubelet does not know.
fn ours(raw: &RawProbe, path: &str) -> Vec<FieldError> {
    let (act, before) = (&raw.act, &raw.act.on_failure_command);
    let key = |name, is_absent: bool, place| {
        let reason =
            "Forbidden: only criprobe supports this key, not the kubelet: use an annotation".to_owned();
        (!is_absent).then(|| FieldError { path: join(path, name), reason, place })
    };
    let text = |name, field: &Field<String>| key(name, field.is_absent(), field.place());
    [
        text("initialDelay", &raw.initial_delay),
        text("timeout", &raw.timeout),
        text("period", &raw.period),
        text("onFailure", &act.on_failure),
        key("onFailureCommand", before.is_absent(), before.place()),
        text("execMode", &raw.exec_mode),
    ]
    .into_iter()
    .flatten()
    .collect()
}
