//! Defaults and validation, held against recorded vectors.

use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::{
    document::{Node, parse},
    spec::{Handler, HttpGet, PortRef, Scheme},
};

/// One line of `tests/data/validation.jsonl`; no errors mean that the probe is valid.
#[derive(Deserialize)]
struct Vector {
    id: String,
    kind: ProbeKind,
    probe: serde_json::Value,
    errors: Vec<String>,
}

fn checked(node: &Node, kind: ProbeKind) -> Result<ProbeSpec, Vec<FieldError>> {
    let mut errors = Vec::new();
    match RawProbe::read(node, "", &mut errors) {
        Some(raw) => validate(&raw, kind, "", errors),
        None => Err(errors),
    }
}

fn spec(text: &str, kind: ProbeKind) -> ProbeSpec {
    checked(&parse(text, 1 << 14).unwrap(), kind).unwrap()
}

#[test]
fn probes_are_valid_or_not_as_the_vectors_say() {
    for line in include_str!("../../../tests/data/validation.jsonl").lines() {
        let vector: Vector = serde_json::from_str(line).unwrap();
        let node = parse(&vector.probe.to_string(), 1 << 14).unwrap();
        let errors = checked(&node, vector.kind).map_or_else(|errors| errors, |_| Vec::new());
        let told: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(told, vector.errors, "{}", vector.id);
        assert_eq!(checked(&node, vector.kind).is_ok(), vector.errors.is_empty(), "{}", vector.id);
    }
}

#[test]
fn what_is_not_written_has_kubernetes_defaults() {
    let defaults = ProbeSpec {
        kind: ProbeKind::Liveness,
        handler: Handler::Exec { command: vec!["true".into()] },
        initial_delay: Duration::ZERO,
        timeout: Duration::from_secs(1),
        period: Duration::from_secs(10),
        success_threshold: 1,
        failure_threshold: 3,
        termination_grace: None,
        on_failure: OnFailure::Report,
    };
    assert_eq!(spec("{exec: {command: ['true']}}", ProbeKind::Liveness), defaults);
    let zeros = "{exec: {command: ['true']}, initialDelaySeconds: 0, timeoutSeconds: 0, periodSeconds: 0,
        successThreshold: 0, failureThreshold: 0}";
    assert_eq!(spec(zeros, ProbeKind::Liveness), defaults, "zero is the default, as V02 and V04 say");
    let nulls =
        "{exec: {command: ['true']}, timeoutSeconds: null, httpGet: null, terminationGracePeriodSeconds: ~}";
    assert_eq!(spec(nulls, ProbeKind::Liveness), defaults);
}

#[test]
fn handlers_have_kubernetes_defaults() {
    let http = |text: &str| match spec(text, ProbeKind::Readiness).handler {
        Handler::HttpGet(http) => http,
        other => panic!("{other:?}"),
    };
    let v06 = HttpGet {
        scheme: Scheme::Http,
        host: None,
        port: PortRef::Number(80),
        path: "/".into(),
        headers: vec![],
    };
    assert_eq!(http("{httpGet: {port: 80}}"), v06);
    assert_eq!(http(r#"{"httpGet": {"port": 80, "host": "", "path": "", "scheme": ""}}"#), v06);
    let v08 = Handler::Grpc { port: 80, service: String::new() };
    assert_eq!(spec("{grpc: {port: 80}}", ProbeKind::Readiness).handler, v08);
}

#[test]
fn everything_that_is_written_is_kept() {
    let text = r#"
        httpGet:
          path: /healthz?x=1
          port: http
          host: example.org
          scheme: HTTPS
          httpHeaders: [{name: Host, value: a b}, {name: Host}]
        initialDelay: 1m30s
        timeout: 250ms
        period: 1.5s
        failureThreshold: 7
        terminationGracePeriodSeconds: 5
        onFailure: restart
    "#;
    let expected = ProbeSpec {
        kind: ProbeKind::Startup,
        handler: Handler::HttpGet(HttpGet {
            scheme: Scheme::Https,
            host: Some("example.org".into()),
            port: PortRef::Name("http".into()),
            path: "/healthz?x=1".into(),
            headers: vec![("Host".into(), "a b".into()), ("Host".into(), String::new())],
        }),
        initial_delay: Duration::from_secs(90),
        timeout: Duration::from_millis(250),
        period: Duration::from_millis(1500),
        success_threshold: 1,
        failure_threshold: 7,
        termination_grace: Some(Duration::from_secs(5)),
        on_failure: OnFailure::Restart,
    };
    assert_eq!(spec(text, ProbeKind::Startup), expected);
}

#[test]
fn errors_know_where_they_stand() {
    let text = "exec:\n  command: []\nperiodSeconds: -1\nperiod: 1s\ngrpc: {port: 1}\nfoo: 1\n";
    let errors = checked(&parse(text, 1 << 14).unwrap(), ProbeKind::Liveness).unwrap_err();
    let told: Vec<_> =
        errors.iter().map(|e| (e.path.as_str(), e.place.map(|place| place.to_string()).unwrap())).collect();
    assert_eq!(
        told,
        [
            ("", "6:1".to_owned()),
            ("exec.command", "2:12".to_owned()),
            ("grpc", "5:7".to_owned()),
            ("period", "4:9".to_owned()),
            ("periodSeconds", "3:16".to_owned()),
        ]
    );
}

#[test]
fn paths_begin_where_the_probe_stands() {
    let node = parse("{periodSeconds: -1, x: 1}", 1 << 14).unwrap();
    let mut errors = Vec::new();
    let raw = RawProbe::read(&node, "rules[0].liveness", &mut errors).unwrap();
    let errors = validate(&raw, ProbeKind::Liveness, "rules[0].liveness", errors).unwrap_err();
    let paths: Vec<_> = errors.iter().map(|error| error.path.as_str()).collect();
    assert_eq!(paths, ["rules[0].liveness", "rules[0].liveness", "rules[0].liveness.periodSeconds"]);
}

proptest! {
    #[test]
    fn a_spec_that_exists_is_within_its_bounds(
        kind in prop::sample::select(ProbeKind::ALL.to_vec()),
        seconds in prop::collection::vec(prop_oneof![-2_i64..3, any::<i64>()], 6),
        period in "([0-9]{1,3}(ms|s|h)){0,2}",
    ) {
        let text = format!(
            "{{exec: {{command: [x]}}, initialDelaySeconds: {}, timeoutSeconds: {}, successThreshold: {}, \
             failureThreshold: {}, terminationGracePeriodSeconds: {}, {}}}",
            seconds[0], seconds[1], seconds[2], seconds[3], seconds[4],
            if period.is_empty() { format!("periodSeconds: {}", seconds[5]) } else { format!("period: {period}") },
        );
        if let Ok(spec) = checked(&parse(&text, 1 << 14).unwrap(), kind) {
            prop_assert!(spec.period >= MIN_PERIOD && spec.timeout >= MIN_TIMEOUT);
            prop_assert!(spec.success_threshold >= 1 && spec.failure_threshold >= 1);
            prop_assert!(kind == ProbeKind::Readiness || spec.success_threshold == 1);
            prop_assert!(spec.termination_grace.is_none_or(|grace| !grace.is_zero()));
        }
    }
}
