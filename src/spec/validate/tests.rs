//! Defaults and validation, held against recorded vectors.

use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::{
    document::{Node, parse},
    spec::{Handler, HttpGet, PortRef, Scheme},
};

/// One line of `tests/data/prober/validation.jsonl`; no errors mean that the probe is valid.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
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
    for line in include_str!("../../../tests/data/prober/validation.jsonl").lines() {
        let vector: Vector = serde_json::from_str(line).unwrap();
        let node = parse(&vector.probe.to_string(), 1 << 14).unwrap();
        let errors = checked(&node, vector.kind).map_or_else(|errors| errors, |_| Vec::new());
        let reported: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(reported, vector.errors, "{}", vector.id);
        assert_eq!(checked(&node, vector.kind).is_ok(), vector.errors.is_empty(), "{}", vector.id);
    }
}

/// One row of `tests/data/prober/defaults.json`: what is expected of those fields that are named.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Defaults {
    id: String,
    rule: String,
    kind: ProbeKind,
    probe: serde_json::Value,
    expect: std::collections::BTreeMap<String, serde_json::Value>,
}

#[test]
fn what_is_not_written_has_kubernetes_defaults() {
    let rows: Vec<Defaults> =
        serde_json::from_str(include_str!("../../../tests/data/prober/defaults.json")).unwrap();
    for Defaults { id, rule, kind, probe, expect } in rows {
        let spec = spec(&probe.to_string(), kind);
        assert!(!expect.is_empty(), "{id}: {rule}");
        for (field, expected) in expect {
            let found = match (field.as_str(), &spec.handler) {
                ("initialDelayMs", _) => serde_json::json!(spec.initial_delay.as_millis()),
                ("timeoutMs", _) => serde_json::json!(spec.timeout.as_millis()),
                ("periodMs", _) => serde_json::json!(spec.period.as_millis()),
                ("success", _) => serde_json::json!(spec.success_threshold),
                ("failure", _) => serde_json::json!(spec.failure_threshold),
                ("path", Handler::HttpGet(http)) => serde_json::json!(http.path),
                ("scheme", Handler::HttpGet(http)) => match http.scheme {
                    Scheme::Http => serde_json::json!("HTTP"),
                    Scheme::Https => serde_json::json!("HTTPS"),
                },
                ("service", Handler::Grpc { service, .. }) => serde_json::json!(service),
                other => panic!("{id}: no such field: {other:?}"),
            };
            assert_eq!(found, expected, "{id}: {rule}: {field}");
        }
    }
}

#[test]
fn null_and_empty_are_as_if_they_were_not_written() {
    let nulls =
        "{exec: {command: ['true']}, timeoutSeconds: null, httpGet: null, terminationGracePeriodSeconds: ~}";
    assert_eq!(spec(nulls, ProbeKind::Liveness), spec("{exec: {command: ['true']}}", ProbeKind::Liveness));
    let empty = r#"{"httpGet": {"port": 80, "host": "", "path": "", "scheme": ""}}"#;
    assert_eq!(spec(empty, ProbeKind::Liveness), spec("{httpGet: {port: 80}}", ProbeKind::Liveness));
}

#[test]
fn the_command_before_an_act_has_ten_seconds_unless_it_says_otherwise() {
    for (timeout, expected) in
        [("", 10_000), (", timeoutSeconds: 0", 10_000), (", timeoutSeconds: 3", 3_000), (", timeout: 1ms", 1)]
    {
        let text = format!(
            "{{exec: {{command: [x]}}, onFailure: kill, onFailureCommand: {{command: [y]{timeout}}}}}"
        );
        let before = spec(&text, ProbeKind::Startup).on_failure_command.unwrap();
        assert_eq!((before.command, before.timeout), (vec!["y".to_owned()], Duration::from_millis(expected)));
    }
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
        onFailureCommand: {command: [sh, -c, dump], timeout: 1500ms}
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
        on_failure_command: Some(FailureCommand {
            command: ["sh", "-c", "dump"].map(str::to_owned).to_vec(),
            timeout: Duration::from_millis(1500),
        }),
        start: None,
        timeout_before_cap: None,
        is_literal: false,
        exec_mode: None,
        reach: Reach::Declared,
    };
    assert_eq!(spec(text, ProbeKind::Startup), expected);
}

#[test]
fn a_command_goes_the_way_that_is_written() {
    for (mode, expected) in [
        ("", None),
        (", execMode: null", None),
        (", execMode: sync", Some(ExecMode::Sync)),
        (", execMode: session", Some(ExecMode::Session)),
    ] {
        for kind in ProbeKind::ALL {
            let spec = spec(&format!("{{exec: {{command: [x]}}{mode}}}"), kind);
            assert_eq!(spec.exec_mode, expected, "{kind} {mode}");
        }
    }
}

#[test]
fn errors_know_where_they_stand() {
    let text = "exec:\n  command: []\nperiodSeconds: -1\nperiod: 1s\ngrpc: {port: 1}\nfoo: 1\n";
    let errors = checked(&parse(text, 1 << 14).unwrap(), ProbeKind::Liveness).unwrap_err();
    let reported: Vec<_> =
        errors.iter().map(|e| (e.path.as_str(), e.place.map(|place| place.to_string()).unwrap())).collect();
    assert_eq!(
        reported,
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
        handler in prop::sample::select(vec!["exec: {command: [x]}", "tcpSocket: {port: 1}", "grpc: {port: 1}"]),
        mode in prop::sample::select(vec!["", "execMode: sync, ", "execMode: session, ", "execMode: Session, "]),
    ) {
        let text = format!(
            "{{{handler}, {mode}initialDelaySeconds: {}, timeoutSeconds: {}, successThreshold: {}, \
             failureThreshold: {}, terminationGracePeriodSeconds: {}, {}}}",
            seconds[0], seconds[1], seconds[2], seconds[3], seconds[4],
            if period.is_empty() { format!("periodSeconds: {}", seconds[5]) } else { format!("period: {period}") },
        );
        if let Ok(spec) = checked(&parse(&text, 1 << 14).unwrap(), kind) {
            prop_assert!(spec.period >= MIN_PERIOD && spec.timeout >= MIN_TIMEOUT);
            prop_assert!(spec.success_threshold >= 1 && spec.failure_threshold >= 1);
            prop_assert!(kind == ProbeKind::Readiness || spec.success_threshold == 1);
            prop_assert!(spec.termination_grace.is_none_or(|grace| !grace.is_zero()));
            prop_assert_eq!(spec.exec_mode.is_some(), !mode.is_empty());
            prop_assert!(mode.is_empty() || handler.starts_with("exec") && !mode.contains('S'));
        }
    }
}
