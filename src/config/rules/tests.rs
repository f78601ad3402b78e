//! Rules as they are written: what they come to, and what is wrong with them, in which words and where.

use std::{path::Path, time::Duration};

use super::super::{Loaded, Overrides, raw::Raw, resolve::resolve};
use crate::{
    glob::Glob,
    spec::{
        ExecMode, Handler, OnFailure,
        rule::{HealthcheckRule, Rule},
    },
};

fn loaded(files: &[(&str, &str)]) -> Result<Loaded, String> {
    let files: Vec<_> = files.iter().map(|(name, text)| Raw::read(text, Path::new(name))).collect();
    resolve(&files, &Overrides::default(), &|_| Ok(None)).map_err(|errors| errors.to_string())
}

fn rules(text: &str) -> Vec<Rule> {
    loaded(&[("c.yaml", text)]).unwrap().config.policy.rules
}

fn reported(text: &str) -> String {
    loaded(&[("c.yaml", text)]).unwrap_err()
}

#[test]
fn a_rule_is_all_that_was_written_with_kubernetes_defaults() {
    let rules = rules(
        r#"
rules:
  - name: web-default
    match: {namespace: "shop-*", pod: "web-*", container: "*", image: "*/nginx:*", labels: {tier: front, app: ""}}
    enforce: true
    liveness: {httpGet: {path: /healthz, port: http, host: example.org}, periodSeconds: 5}
    readiness: {tcpSocket: {port: 80}, period: 500ms}
"#,
    );
    let [rule] = rules.as_slice() else { panic!("{rules:?}") };
    assert_eq!((&*rule.name, rule.is_enforced), ("web-default", true));
    let matcher = &rule.matcher;
    let patterns = [&matcher.namespace, &matcher.pod, &matcher.container, &matcher.image];
    assert_eq!(patterns.map(Glob::as_str), ["shop-*", "web-*", "*", "*/nginx:*"]);
    let labels: Vec<_> = matcher.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(labels, [("app", ""), ("tier", "front")]);
    let reported: Vec<_> =
        rule.probes.iter().map(|spec| (spec.kind.as_str(), spec.period, spec.timeout)).collect();
    let second = Duration::from_secs(1);
    assert_eq!(
        reported,
        [("readiness", second / 2, second), ("liveness", 5 * second, second)],
        "in the types' order"
    );
    let Handler::HttpGet(http) = &rule.probes[1].handler else { panic!("{rule:?}") };
    assert_eq!(http.host.as_deref(), Some("example.org"), "the operator may name any host");
}

#[test]
fn rules_keep_the_order_of_their_files_and_know_where_they_stand() {
    let rule =
        |name: &str| format!("- {{name: {name}, match: {{pod: x}}, liveness: {{grpc: {{port: 1}}}}}}\n");
    let first = format!("rules:\n{}{}", rule("z"), rule("b"));
    let second = format!("rules:\n\n{}", rule("a"));
    let loaded = loaded(&[("config.yaml", &first), ("conf.d/1.yaml", &second)]).unwrap();
    let names: Vec<_> = loaded.config.policy.rules.iter().map(|rule| &*rule.name).collect();
    assert_eq!(names, ["z", "b", "a"]);
    let places: Vec<_> = loaded.rules.iter().map(ToString::to_string).collect();
    assert_eq!(places, ["config.yaml:2:3", "config.yaml:3:3", "conf.d/1.yaml:3:3"]);
}

#[test]
fn a_rule_of_one_type_says_nothing_of_the_others() {
    let rules =
        rules("rules: [{name: a, match: {namespace: '*'}, startup: {exec: {command: [x]}}, liveness: null}]");
    assert_eq!(rules[0].probes.len(), 1);
    assert!(!rules[0].is_enforced, "unless it says so");
}

#[test]
fn no_rules_are_none() {
    for text in ["", "rules:\n", "rules: []\n", "rules: null\n"] {
        assert_eq!(rules(text), [], "{text:?}");
    }
}

#[test]
fn everything_that_is_wrong_with_rules_is_told_at_once_with_its_place() {
    let text = r#"rules:
  - match: {namespace: shop, pods: web}
    liveness: {exec: {command: [x]}}
  - name: "a b"
    match: {}
    liveness: {exec: {command: [x]}, peroidSeconds: 5}
  - name: empty
    match: {namespace: "", labels: {tier: "a b", "x*": y}}
    enforce: "true"
  - name: probes
    match: {container: "web-[0-9]"}
    readiness: {httpGet: {port: 0}, successThreshold: -1}
    liveness: {tcpSocket: {port: 80}, grpc: {port: 1}, successThreshold: 2}
    livness: {exec: {command: [x]}}
  - just a text
  - name: types
    match: shop
    enforce: yes
    startup: 5
  - name: probes
    match: {pod: 5, labels: [x], image: "*"}
    liveness: {period: 5, timeout: "5", exec: {command: x}}
"#;
    insta::assert_snapshot!(reported(text));
}

#[test]
fn a_rule_may_only_say_what_the_verdict_of_a_healthcheck_does() {
    let text = "
rules:
  - name: heal
    match: {namespace: edge}
    healthcheck: {onFailure: stop, onFailureCommand: {command: [dump]}, terminationGracePeriodSeconds: 5}
  - name: leave
    match: {namespace: '*'}
    healthcheck: {onFailure: report}
";
    let rules = rules(text);
    let act = rules[0].healthcheck.act.as_deref().unwrap();
    let command = act.on_failure_command.as_ref().unwrap();
    assert_eq!((act.on_failure, act.termination_grace), (OnFailure::Stop, Some(Duration::from_secs(5))));
    assert_eq!((command.command.join(" "), command.timeout), ("dump".to_owned(), Duration::from_secs(10)));
    assert!(rules[0].probes.is_empty());
    assert_eq!(rules[1].healthcheck.act.as_deref().unwrap().on_failure, OnFailure::Report);
}

#[test]
fn a_rule_says_which_way_the_commands_of_its_probes_and_of_healthchecks_go() {
    let rules = rules(
        "
rules:
  - name: web
    match: {namespace: shop}
    startup: {exec: {command: [x]}}
    readiness: {exec: {command: [x]}, execMode: sync}
    liveness: {exec: {command: [x]}, execMode: session, period: 500ms}
    healthcheck: {execMode: session}
  - name: heal
    match: {namespace: '*'}
    healthcheck: {execMode: sync, onFailure: kill}
",
    );
    let modes: Vec<_> = rules[0].probes.iter().map(|spec| spec.exec_mode).collect();
    assert_eq!(modes, [None, Some(ExecMode::Sync), Some(ExecMode::Session)]);
    assert_eq!(rules[0].healthcheck, HealthcheckRule { act: None, exec_mode: Some(ExecMode::Session) });
    let HealthcheckRule { act, exec_mode } = &rules[1].healthcheck;
    assert_eq!(act.as_deref().map(|act| act.on_failure), Some(OnFailure::Kill));
    assert_eq!(*exec_mode, Some(ExecMode::Sync));
}

#[test]
fn a_mode_that_is_wrong_is_reported_with_its_place() {
    for (probe, expected) in [
        (
            "liveness: {exec: {command: [x]}, execMode: sesion}",
            r#"c.yaml:1:79: rules[0].liveness.execMode: Unsupported value: "sesion": supported values: "sync", "session""#,
        ),
        (
            "liveness: {exec: {command: [x]}, execMode: never}",
            r#"c.yaml:1:79: rules[0].liveness.execMode: Unsupported value: "never": supported values: "sync", "session""#,
        ),
        (
            "readiness: {exec: {command: [x]}, execMode: [sync]}",
            "c.yaml:1:80: rules[0].readiness.execMode: Invalid value: a list: must be a string",
        ),
        (
            "startup: {httpGet: {port: 80}, execMode: sync}",
            "c.yaml:1:77: rules[0].startup.execMode: Forbidden: may not be set for httpGet probes: they run no command",
        ),
        (
            "healthcheck: {execMode: both}",
            r#"c.yaml:1:60: rules[0].healthcheck.execMode: Unsupported value: "both": supported values: "sync", "session""#,
        ),
    ] {
        assert_eq!(reported(&format!("rules: [{{name: a, match: {{pod: x}}, {probe}}}]")), expected);
    }
}

#[test]
fn what_is_wrong_with_the_act_of_a_healthcheck_is_reported_with_its_place() {
    for (healthcheck, expected) in [
        ("{}", "healthcheck.onFailure: Required value: what a verdict of failure does"),
        ("stop", r#"healthcheck: Invalid value: "stop": must be a map"#),
        ("{onFailure: 5}", "healthcheck.onFailure: Invalid value: 5: must be a string"),
        ("{onFailure: reboot}", r#"healthcheck.onFailure: Unsupported value: "reboot""#),
        (
            "{onFailure: stop, terminationGracePeriodSeconds: 0}",
            "healthcheck.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0",
        ),
        (
            "{execMode: session, terminationGracePeriodSeconds: 5}",
            "healthcheck.onFailure: Required value: what a verdict of failure does",
        ),
        (
            "{execMode: session, onFailureCommand: {command: [x]}}",
            "healthcheck.onFailureCommand: Forbidden: runs only before an act",
        ),
        ("{execMode: 5}", "healthcheck.execMode: Invalid value: 5: must be a string"),
        ("{onFailure: stop, period: 5s}", r#"healthcheck: unknown key "period""#),
        (
            "{onFailure: report, onFailureCommand: {command: [x]}}",
            "healthcheck.onFailureCommand: Forbidden: runs only before an act",
        ),
        (
            "{onFailure: kill, onFailureCommand: {timeout: 1h}}",
            "healthcheck.onFailureCommand.command: Required value",
        ),
    ] {
        let reported =
            reported(&format!("rules: [{{name: a, match: {{pod: x}}, healthcheck: {healthcheck}}}]"));
        let is_one = reported.lines().count() == 1 && reported.starts_with("c.yaml:1:");
        assert!(is_one && reported.contains(&format!(": rules[0].{expected}")), "{healthcheck}: {reported}");
    }
    let none = reported("rules: [{name: a, match: {pod: x}, healthcheck: null}]");
    assert!(none.contains("must have a probe: startup, readiness or liveness; or healthcheck"), "{none}");
}

#[test]
fn a_name_stands_once_in_all_files() {
    let rule = "rules: [{name: web, match: {pod: x}, liveness: {grpc: {port: 1}}}]";
    insta::assert_snapshot!(
        loaded(&[("config.yaml", rule), ("conf.d/a.yaml", "rules: []"), ("conf.d/b.yaml", rule)]).unwrap_err(),
        @r#"conf.d/b.yaml:1:16: rules[0].name: Duplicate value: "web": the rule at config.yaml:1:16 has the same name"#
    );
}

#[test]
fn rules_that_are_too_many_are_an_error() {
    let rule = |number: usize| {
        format!("- {{name: r{number}, match: {{pod: x}}, liveness: {{grpc: {{port: 1}}}}}}\n")
    };
    let rules = |count: usize| format!("rules:\n{}", (0..count).map(rule).collect::<String>());
    assert_eq!(loaded(&[("c.yaml", &rules(500))]).unwrap().rules.len(), 500);
    insta::assert_snapshot!(reported(&rules(501)), @"c.yaml:502:3: rules[500]: more than 500 rules in all: combine some");
}
