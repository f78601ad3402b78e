//! Plans of containers with annotations of all kinds: which probes result, and what is invalid and why.

mod precedence;

use std::{sync::Arc, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::{
    glob::Glob,
    ids::ContainerId,
    inventory::{
        fixtures::{self, texts},
        pod::Pod,
    },
};

fn container(pod: &[(&str, &str)], own: &[(&str, &str)]) -> Container {
    let pod = Pod { annotations: texts(pod), ..fixtures::pod() };
    let (image, annotations) = ("busybox", texts(own));
    Container { image: image.into(), image_spec: image.into(), annotations, ..fixtures::container("c1", pod) }
}

/// An image of which nothing is known but this.
fn of_healthcheck(healthcheck: Option<&Healthcheck>) -> ImageFacts<'_> {
    ImageFacts { healthcheck, ..ImageFacts::default() }
}

/// With no rules, and no HEALTHCHECK.
fn plan_by_default(container: &Container) -> Vec<Planned> {
    plan(container, &Policy::default(), ImageFacts::default())
}

const TRUE: &str = "{exec: {command: ['true']}}";

/// Type, source, handler or reason, and what it shadows, one line a probe.
fn reported(container: &Container) -> Vec<String> {
    plan_by_default(container)
        .into_iter()
        .map(|planned| {
            let spec = match &planned.spec {
                Ok(outline) => outline.handler.to_owned(),
                Err(invalid) => format!("invalid {}: {invalid}", invalid.handler.unwrap_or("-")),
            };
            let source = planned.source.in_full();
            format!("{} from {source}: {spec} shadows [{}]", planned.kind, planned.shadowed.join(", "))
        })
        .collect()
}

fn reason(value: &str) -> String {
    let planned = plan_by_default(&container(&[("liveness.criprobe.dev/app", value)], &[])).remove(0);
    planned.spec.unwrap_err().reason
}

#[test]
fn probes_come_in_the_kubelets_order() {
    let pod = [
        ("liveness.criprobe.dev/app", TRUE),
        ("readiness.criprobe.dev/app", TRUE),
        ("startup.criprobe.dev/app", TRUE),
    ];
    assert_eq!(
        reported(&container(&pod, &[])),
        [
            "startup from pod annotation: exec shadows []",
            "readiness from pod annotation: exec shadows []",
            "liveness from pod annotation: exec shadows []",
        ]
    );
}

#[test]
fn a_container_without_annotations_of_its_name_has_no_probes() {
    assert_eq!(plan_by_default(&container(&[], &[])), []);
    assert_eq!(
        plan_by_default(&container(&[("liveness.criprobe.dev/other", TRUE)], &[("app", "liveness")])),
        []
    );
}

#[test]
fn the_containers_annotation_outranks_the_pods_even_where_it_is_bad() {
    let pod = [("liveness.criprobe.dev/app", "{tcpSocket: {port: 80}}")];
    let good = container(&pod, &[("liveness.criprobe.dev/app", TRUE)]);
    assert_eq!(reported(&good), ["liveness from container annotation: exec shadows [pod annotation]"]);
    let bad = container(&pod, &[("liveness.criprobe.dev/app", "{exec: {}}")]);
    assert_eq!(
        reported(&bad),
        [
            "liveness from container annotation: invalid exec: exec.command: Required value shadows [pod annotation]"
        ]
    );
    assert_eq!(plan_by_default(&good)[0].source.to_string(), "annotation");
}

#[test]
fn a_bad_probe_harms_no_other() {
    let pod = [("liveness.criprobe.dev/app", "{"), ("readiness.criprobe.dev/app", TRUE)];
    let reported = reported(&container(&pod, &[]));
    assert_eq!(reported[0], "readiness from pod annotation: exec shadows []");
    assert!(
        reported[1].starts_with("liveness from pod annotation: invalid -: not valid YAML or JSON"),
        "{}",
        reported[1]
    );
}

#[test]
fn the_switch_on_the_pod_turns_all_annotations_off() {
    let pod = |value| [("criprobe.dev/probes", value), ("liveness.criprobe.dev/app", TRUE)];
    let own = [("readiness.criprobe.dev/app", TRUE)];
    assert_eq!(plan_by_default(&container(&pod("off"), &own)), []);
    assert_eq!(plan_by_default(&container(&pod("on"), &own)).len(), 2);
    assert_eq!(
        plan_by_default(&container(&[], &[own[0], ("criprobe.dev/probes", "off")])).len(),
        1,
        "only on the pod"
    );
}

/// The same as `told`, of a container whose image has this HEALTHCHECK, where those count in these namespaces.
fn with_healthcheck(
    healthcheck: &str,
    namespace: &str,
    limits: Limits,
    pod: &[(&str, &str)],
) -> Vec<(String, Vec<String>)> {
    let config = format!(r#"{{"config": {{"Healthcheck": {healthcheck}}}}}"#);
    let healthcheck = super::super::healthcheck::read(config.as_bytes());
    let policy = Policy { healthchecks: vec![Glob::from(namespace)], limits, ..Policy::default() };
    let plan = plan(&container(pod, &[]), &policy, of_healthcheck(healthcheck.as_ref()));
    let reported = plan.into_iter().map(|planned| {
        let kind = planned.kind;
        let spec = planned.spec.map_or_else(|invalid| invalid.reason, |outline| outline.handler.to_owned());
        (format!("{kind} from {}: {spec}", planned.source), planned.shadowed)
    });
    reported.collect()
}

#[test]
fn a_healthcheck_is_a_liveness_probe_where_it_counts_and_nothing_outranks_it() {
    const CHECK: &str = r#"{"Test": ["CMD", "x"], "StartPeriod": 60000000000, "StartInterval": 1000000000}"#;
    let seconds = |seconds| Limits { min_period: Duration::from_secs(seconds), ..Limits::default() };
    let (no, liveness) = (&[][..], &[("liveness.criprobe.dev/app", TRUE)][..]);
    let shadowing = [("liveness from annotation: exec".to_owned(), vec!["healthcheck".to_owned()])];
    for (healthcheck, namespace, min, pod, expected) in [
        (CHECK, "default", 1, no, "liveness from healthcheck: exec"),
        (CHECK, "*", 1, &[("readiness.criprobe.dev/other", TRUE)], "liveness from healthcheck: exec"),
        (CHECK, "other", 1, no, ""),
        (CHECK, "*", 1, &[("criprobe.dev/probes", "off")], ""),
        (r#"{"Test": ["NONE"]}"#, "*", 1, no, ""),
        (
            CHECK,
            "*",
            2,
            no,
            "liveness from healthcheck: start interval: Forbidden: the operator's minimum is 2s (prober.minPeriod)",
        ),
        (
            CHECK,
            "*",
            31,
            no,
            "liveness from healthcheck: period: Forbidden: the operator's minimum is 31s (prober.minPeriod); start interval: Forbidden: the operator's minimum is 31s (prober.minPeriod)",
        ),
        (
            r#"{"Test": ["CMD"]}"#,
            "*",
            1,
            no,
            "liveness from healthcheck: HEALTHCHECK.Test[1]: Required value: there is no command",
        ),
    ] {
        let expected: Vec<_> = Some(expected)
            .filter(|text| !text.is_empty())
            .map(|text| (text.to_owned(), vec![]))
            .into_iter()
            .collect();
        assert_eq!(
            with_healthcheck(healthcheck, namespace, seconds(min), pod),
            expected,
            "{namespace} {min}"
        );
    }
    assert_eq!(with_healthcheck(CHECK, "*", seconds(1), liveness), shadowing);
    let other = [("readiness.criprobe.dev/app", TRUE)];
    assert_eq!(with_healthcheck(CHECK, "*", seconds(1), &other).len(), 2, "of another type");
}

#[test]
fn the_reason_of_an_invalid_probe_is_one_line_for_people() {
    insta::assert_snapshot!(reason(""), @"the annotation is empty: write a probe, such as {exec: {command: [cat, /tmp/healthy]}}");
    insta::assert_snapshot!(reason("{exec: {command: [x]"), @"not valid YAML or JSON (line 1, column 8): unclosed bracket '{'");
    insta::assert_snapshot!(reason("cat /tmp/healthy"), @r#"Invalid value: "cat /tmp/healthy": must be a map of keys and values"#);
    insta::assert_snapshot!(reason("{exec: {command: [x]}, peroidSeconds: 5, successThreshold: 2}"), @r#"unknown key "peroidSeconds": did you mean "periodSeconds"?; successThreshold: Invalid value: 2: must be 1"#);
    insta::assert_snapshot!(reason("{httpGet: {port: 80, host: 10.0.0.1}}"), @"httpGet.host: Forbidden: a host other than the pod must be allowed by the operator (prober.allowHosts)");
    insta::assert_snapshot!(reason("{httpGet: {port: 0}}"), @"httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive");
    insta::assert_snapshot!(reason("{tcpSocket: {port: 80, host: 10.0.0.1}}"), @"tcpSocket.host: Forbidden: a host other than the pod must be allowed by the operator (prober.allowHosts)");
    insta::assert_snapshot!(reason(&" ".repeat(16 * 1024 + 1)), @"16385 bytes, but at most 16384 are allowed");
}

#[test]
fn an_annotation_of_just_16_kib_is_read() {
    let mut value = TRUE.to_owned();
    value.push_str(&" ".repeat(annotation::MAX_ANNOTATION - TRUE.len()));
    assert_eq!(reported(&container(&[("startup.criprobe.dev/app", &value)], &[])).len(), 1);
    assert!(plan_by_default(&container(&[("startup.criprobe.dev/app", &value)], &[]))[0].spec.is_ok());
}

proptest! {
    #[test]
    fn any_annotation_gives_one_probe_that_is_valid_or_has_a_reason_in_one_line(
        value in prop_oneof![any::<String>(), "[-{}\\[\\],:a-z0-9 \"\\n]{0,80}"],
    ) {
        let plan = plan_by_default(&container(&[("liveness.criprobe.dev/app", &value)], &[]));
        prop_assert_eq!(plan.len(), 1);
        if let Err(invalid) = &plan[0].spec {
            prop_assert!(!invalid.reason.is_empty());
            prop_assert!(!invalid.reason.chars().any(char::is_control), "{:?}", invalid.reason);
        }
    }
}

#[test]
fn a_panic_costs_its_own_definition_only() {
    let planned: Result<(), _> = guarded(|| panic!("this panic belongs to the test"));
    assert!(planned.unwrap_err().reason.contains("an internal error of criprobe"));
}
