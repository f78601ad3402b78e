//! Which source wins, for every set of sources there can be; which containers a rule fits; what the limits refuse.

use std::time::Duration;

use super::*;
use crate::{
    glob::Glob,
    spec::{
        ExecMode, FailureCommand, Handler, OnFailure, PortRef, Reach,
        acting::ActRefusal,
        planner::Planner,
        rule::{HealthcheckAct, Matcher},
    },
};

/// Readiness, startup and liveness probes that can be distinguished by their port.
fn rule(name: &str, is_enforced: bool, matcher: Matcher, kinds: &[ProbeKind]) -> Rule {
    let probes = kinds.iter().map(|kind| Rule::defining(spec(*kind, 1))).collect();
    Rule {
        name: name.into(),
        matcher,
        is_enforced,
        probes,
        healthcheck: HealthcheckRule::default(),
        history: HistoryRule::default(),
    }
}

fn spec(kind: ProbeKind, port: u16) -> ProbeSpec {
    ProbeSpec {
        kind,
        handler: Handler::TcpSocket { host: None, port: PortRef::Number(port) },
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

/// All five sources, the best first, as they are described in full.
const RANKS: [&str; 5] =
    ["enforced rule:must", "container annotation", "pod annotation", "rule:may", "healthcheck"];

/// The plan's own words for a container with these of the five sources.
fn of_sources(
    present: [bool; 5],
    kind: ProbeKind,
    is_off: bool,
    is_honoured: bool,
) -> Option<(String, Vec<String>)> {
    let [enforced, own, pod, may, image] = present;
    let key = format!("{kind}.criprobe.dev/app");
    let (mut annotations, own_annotation) = (Vec::new(), [(key.as_str(), TRUE)]);
    annotations.extend(pod.then_some((key.as_str(), TRUE)));
    annotations.extend(is_off.then_some(("criprobe.dev/probes", "off")));
    let container = container(&annotations, if own { &own_annotation } else { &[] });
    // The lesser one is first in the file.
    let rules = [
        may.then(|| rule("may", false, Matcher::any(), &ProbeKind::ALL)),
        enforced.then(|| rule("must", true, Matcher::any(), &ProbeKind::ALL)),
    ];
    let policy = Policy {
        rules: rules.into_iter().flatten().collect(),
        annotations: if is_honoured { vec![Glob::from("*")] } else { Vec::new() },
        healthchecks: vec![Glob::from("*")],
        ..Policy::default()
    };
    let healthcheck: Healthcheck =
        Ok(Outline::shared(&Arc::new(spec(ProbeKind::Liveness, 2)), Class::Author));
    let plan = plan(&container, &policy, of_healthcheck(image.then_some(&healthcheck)));
    let planned = plan.into_iter().find(|planned| planned.kind == kind)?;
    let source = planned.source.in_full();
    Some((if planned.spec.is_ok() { source } else { format!("invalid {source}") }, planned.shadowed))
}

#[test]
fn the_best_of_any_set_of_sources_wins_and_all_others_are_told() {
    for set in 0..32_u32 {
        let present = [0, 1, 2, 3, 4].map(|rank| set >> rank & 1 == 1);
        for kind in ProbeKind::ALL {
            for (is_off, is_honoured) in [(false, true), (true, true), (false, false), (true, false)] {
                let is_annotation = |rank: usize| matches!(rank, 1 | 2);
                // A pod that is not honoured cannot switch anything off either.
                let is_switched_off = |rank: usize| is_off && is_honoured && rank > 0;
                let there: Vec<usize> = (0..5)
                    .filter(|rank| present[*rank] && (*rank < 4 || kind == ProbeKind::Liveness))
                    .filter(|rank| !is_switched_off(*rank))
                    .collect();
                let (counting, dishonoured): (Vec<_>, Vec<_>) =
                    there.into_iter().partition(|rank| is_honoured || !is_annotation(*rank));
                let name = |rank: &usize| RANKS[*rank].to_owned();
                let expected = match (counting.as_slice(), dishonoured.as_slice()) {
                    ([], []) => None,
                    ([], [first, ..]) => Some((format!("invalid {}", name(first)), Vec::new())),
                    ([best, rest @ ..], _) => {
                        let lost = dishonoured.iter().map(|rank| format!("{} (not honoured)", name(rank)));
                        Some((name(best), rest.iter().map(name).chain(lost).collect()))
                    }
                };
                let planned = of_sources(present, kind, is_off, is_honoured);
                assert_eq!(planned, expected, "{present:?} {kind} off {is_off} honoured {is_honoured}");
            }
        }
    }
}

#[test]
fn the_first_rule_that_fits_and_has_a_probe_of_the_type_wins() {
    let other = Matcher { pod: Glob::from("other"), ..Matcher::any() };
    let policy = Policy {
        rules: vec![
            rule("elsewhere", false, other, &ProbeKind::ALL),
            rule("readiness", false, Matcher::any(), &[ProbeKind::Readiness]),
            rule("both", false, Matcher::any(), &[ProbeKind::Readiness, ProbeKind::Liveness]),
            rule("late", true, Matcher::any(), &[ProbeKind::Liveness]),
        ],
        ..Policy::default()
    };
    let plan = plan(&container(&[], &[]), &policy, ImageFacts::default());
    let reported: Vec<_> = plan
        .iter()
        .map(|planned| {
            format!("{} {} over {}", planned.kind, planned.source.in_full(), planned.shadowed.join(", "))
        })
        .collect();
    assert_eq!(
        reported,
        ["readiness rule:readiness over rule:both", "liveness enforced rule:late over rule:both"]
    );
    assert_eq!(plan[1].source.to_string(), "rule:late");
}

#[test]
fn a_dishonoured_annotation_tells_its_author_why_nothing_happens() {
    let annotated = container(&[("liveness.criprobe.dev/app", TRUE)], &[]);
    let policy = Policy { annotations: vec![Glob::from("shop-*")], ..Policy::default() };
    let plan = plan(&annotated, &policy, ImageFacts::default());
    let reason = plan[0].spec.clone().unwrap_err().reason;
    insta::assert_snapshot!(reason, @r#"annotations of namespace "default" are not honoured (annotations.namespaces)"#);
}

#[test]
fn a_rule_fits_a_container_that_fits_all_of_it() {
    let view = {
        let plain = container(&[], &[]);
        let labels = [("tier".to_owned(), "front".to_owned()), ("empty".to_owned(), String::new())];
        let pod = Pod { namespace: "shop-eu".into(), labels: labels.into(), ..(*plain.pod).clone() };
        Container { image_spec: "docker.io/library/nginx:1.27".into(), pod: Arc::new(pod), ..plain }
    };
    let rows: &[(&[(&str, &str)], bool)] = &[
        (&[], true),
        (&[("namespace", "shop-*")], true),
        (&[("namespace", "shop")], false),
        (&[("namespace", "SHOP-*")], false),
        (&[("pod", "web"), ("container", "app")], true),
        (&[("pod", "web"), ("container", "sidecar")], false),
        (&[("pod", "w?b")], true),
        (&[("pod", "web-*")], false),
        (&[("image", "*/nginx:*")], true),
        (&[("image", "nginx:*")], true),
        (&[("image", "library/nginx")], false),
        (&[("tier", "front")], true),
        (&[("tier", "f*"), ("empty", "")], true),
        (&[("tier", "back")], false),
        (&[("tier", "")], false),
        (&[("empty", "*")], true),
        (&[("missing", "*")], false),
        (&[("namespace", "shop-*"), ("tier", "back")], false),
    ];
    for (parts, fits) in rows {
        let mut matcher = Matcher::any();
        for (name, pattern) in *parts {
            let glob = Glob::from(*pattern);
            match *name {
                "namespace" => matcher.namespace = glob,
                "pod" => matcher.pod = glob,
                "container" => matcher.container = glob,
                "image" => matcher.image = glob,
                label => drop(matcher.labels.insert(label.to_owned(), glob)),
            }
        }
        assert_eq!(matcher.fits(&view, None), *fits, "{parts:?}");
    }
}

#[test]
fn a_healthcheck_with_dockers_timeout_is_capped_by_the_operators_maximum_and_another_is_invalid() {
    let image = |timeout: &str| {
        let config = format!(r#"{{"config": {{"Healthcheck": {{"Test": ["CMD", "x"]{timeout}}}}}}}"#);
        crate::spec::healthcheck::read(config.as_bytes()).unwrap()
    };
    let planned = |healthcheck: &Healthcheck, seconds: u64| {
        let limits = Limits { max_timeout: Duration::from_secs(seconds), ..Limits::default() };
        let policy = Policy { limits, healthchecks: vec![Glob::from("*")], ..Policy::default() };
        let facts = ImageFacts { healthcheck: Some(healthcheck), ..ImageFacts::default() };
        let spec = plan(&container(&[], &[]), &policy, facts)[0].spec.clone()?;
        let spec = spec.shared.expect("it is shared");
        Ok::<_, Invalid>((spec.timeout.as_secs(), spec.timeout_before_cap.map(|before| before.as_secs())))
    };
    let (plain, own) = (image(""), image(r#", "Timeout": 20000000000"#));
    assert_eq!(planned(&plain, 10), Ok((10, Some(30))));
    assert_eq!(planned(&plain, 30), Ok((30, None)));
    assert_eq!(planned(&own, 20), Ok((20, None)));
    assert!(planned(&own, 10).unwrap_err().reason.contains("prober.maxTimeout"));
}

#[test]
fn what_exceeds_the_operators_limits_is_invalid_with_the_reason_unless_it_is_a_rule() {
    let limits = Limits {
        allow_hosts: vec![
            "10.0.0.0/8".parse().unwrap(),
            "0.0.0.0/0".parse().unwrap(),
            "fd00::/8".parse().unwrap(),
        ],
        min_period: Duration::from_secs(1),
        max_timeout: Duration::from_secs(5),
    };
    let narrow = Limits { allow_hosts: limits.allow_hosts[..1].to_vec(), ..limits.clone() };
    let reported = |limits: &Limits, probe: &str| {
        let policy = Policy { limits: limits.clone(), ..Policy::default() };
        let plan =
            plan(&container(&[("liveness.criprobe.dev/app", probe)], &[]), &policy, ImageFacts::default());
        plan[0].spec.clone().map_or_else(|invalid| invalid.reason, |_| "ok".to_owned())
    };
    let host = |host: &str| format!("{{httpGet: {{port: 80, host: '{host}'}}}}");
    insta::assert_snapshot!(reported(&narrow, &host("10.1.2.3")), @"ok");
    insta::assert_snapshot!(reported(&narrow, &host("192.0.2.1")), @"httpGet.host: Forbidden: a host other than the pod must be allowed by the operator (prober.allowHosts)");
    insta::assert_snapshot!(reported(&limits, &host("192.0.2.1")), @"ok");
    insta::assert_snapshot!(reported(&limits, &host("fd00::1")), @"ok");
    for never in [
        "127.0.0.1",
        "169.254.169.254",
        "224.0.0.1",
        "0.0.0.0",
        "255.255.255.255",
        "::1",
        "fe80::1",
        "::ffff:127.0.0.1",
    ] {
        assert_ne!(reported(&limits, &host(never)), "ok", "{never} is never allowed");
    }
    insta::assert_snapshot!(reported(&limits, &host("127.0.0.1")), @"httpGet.host: Forbidden: loopback, link-local, multicast, unspecified and cloud metadata addresses are never allowed");
    insta::assert_snapshot!(reported(&limits, "{tcpSocket: {port: 80, host: db.example.org}}"), @"tcpSocket.host: Forbidden: a host other than the pod must be an IP address that the operator allows (prober.allowHosts)");
    insta::assert_snapshot!(reported(&limits, "{exec: {command: [x]}, period: 999ms}"), @"period: Forbidden: the operator's minimum is 1s (prober.minPeriod)");
    insta::assert_snapshot!(reported(&limits, "{exec: {command: [x]}, timeout: 5001ms}"), @"timeout: Forbidden: the operator's maximum is 5s (prober.maxTimeout)");
    insta::assert_snapshot!(reported(&limits, "{exec: {command: [x]}, period: 1s}"), @"ok");
    insta::assert_snapshot!(reported(&limits, "{tcpSocket: {port: 80, host: '::1'}, period: 999ms, timeout: 6s}"), @"period: Forbidden: the operator's minimum is 1s (prober.minPeriod); timeout: Forbidden: the operator's maximum is 5s (prober.maxTimeout); tcpSocket.host: Forbidden: loopback, link-local, multicast, unspecified and cloud metadata addresses are never allowed");
    let dump =
        "{exec: {command: [x]}, onFailure: stop, onFailureCommand: {command: [dump], timeout: 5001ms}}";
    insta::assert_snapshot!(reported(&limits, dump), @"onFailureCommand.timeout: Forbidden: the operator's maximum is 5s (prober.maxTimeout)");
    insta::assert_snapshot!(reported(&limits, &dump.replace("5001ms", "5s")), @"ok");

    let quick = ProbeSpec {
        period: Duration::from_millis(100),
        handler: Handler::TcpSocket { host: Some("127.0.0.1".to_owned()), port: PortRef::Number(80) },
        ..spec(ProbeKind::Liveness, 80)
    };
    let own = Rule { probes: vec![Rule::defining(quick.clone())], ..rule("own", false, Matcher::any(), &[]) };
    let policy = Policy {
        rules: vec![own],
        limits: limits.clone(),
        healthchecks: vec![Glob::from("*")],
        ..Policy::default()
    };
    let planned = plan(&container(&[], &[]), &policy, ImageFacts::default()).remove(0);
    assert_eq!(
        planned.definition(&container(&[], &[])),
        Ok(Arc::new(ProbeSpec { reach: Reach::Any, ..quick.clone() })),
        "a rule is the operator's own"
    );
    let policy = Policy { rules: Vec::new(), ..policy };
    let quick = Outline::shared(&Arc::new(quick), Class::Author);
    let planned = plan(&container(&[], &[]), &policy, of_healthcheck(Some(&Ok(quick)))).remove(0);
    assert!(planned.spec.unwrap_err().reason.starts_with("period: Forbidden"), "an image is not");
}

#[test]
fn the_first_rule_with_the_key_says_what_the_verdict_of_a_healthcheck_does_and_nobody_else_can() {
    let act = |on_failure, grace| {
        let on_failure_command =
            Some(FailureCommand { command: vec!["dump".to_owned()], timeout: seconds(1) });
        let on_failure_command = on_failure_command.filter(|_| on_failure != OnFailure::Report);
        Some(Arc::new(HealthcheckAct {
            on_failure,
            on_failure_command,
            termination_grace: Some(seconds(grace)),
        }))
    };
    let rule = |pod: &str, act| {
        let matcher = Matcher { pod: Glob::from(pod), ..Matcher::any() };
        let healthcheck = HealthcheckRule { act, exec_mode: None };
        Rule { healthcheck, ..rule("a", false, matcher, &[ProbeKind::Startup]) }
    };
    let check = |acting, rules| {
        let healthchecks = vec![Glob::from("*")];
        let policy = Policy { rules, acting, healthchecks, ..Policy::default() };
        let read = Ok(Outline::shared(&Arc::new(spec(ProbeKind::Liveness, 80)), Class::Author));
        let planned = plan(&container(&[], &[]), &policy, of_healthcheck(Some(&read))).pop().unwrap();
        assert_eq!(planned.source, ProbeSource::Healthcheck);
        let definition = planned.definition(&container(&[], &[])).unwrap();
        assert_eq!(planned.spec.unwrap().definition, Definition::of(&definition));
        (planned.acting.effective(), planned.acting.refusal, definition)
    };
    let (enabled, off) = (ActPolicy { is_enabled: true, ..ActPolicy::default() }, ActPolicy::default());
    let (report, stop, kill) = (OnFailure::Report, OnFailure::Stop, OnFailure::Kill);
    let (done, _, plain) = check(enabled.clone(), vec![rule("*", None)]);
    assert_eq!((done, &*plain), (report, &spec(ProbeKind::Liveness, 80)), "no rule says anything");
    let rules = || {
        vec![rule("none", act(kill, 1)), rule("*", None), rule("*", act(stop, 7)), rule("*", act(kill, 9))]
    };
    let (done, refusal, merged) = check(enabled.clone(), rules());
    assert_eq!(
        (done, refusal, merged.on_failure),
        (stop, None, stop),
        "in a namespace where no annotation may"
    );
    assert_eq!(merged.termination_grace, Some(seconds(7)));
    assert_eq!(merged.on_failure_command.as_ref().unwrap().command, ["dump"]);
    let (done, refusal, other) = check(off, rules());
    assert_eq!((done, refusal), (report, Some(ActRefusal::Disabled)));
    assert!(other == merged && Definition::of(&merged) != Definition::of(&plain));
    let (done, refusal, _) = check(enabled, vec![rule("*", act(report, 1)), rule("*", act(stop, 1))]);
    assert_eq!((done, refusal), (report, None), "a rule that says so ends the search");
}

#[test]
fn the_first_rule_that_says_the_mode_of_a_healthcheck_decides_whoever_says_what_its_verdict_does() {
    let (sync, session) = (Some(ExecMode::Sync), Some(ExecMode::Session));
    let stop = || {
        let (on_failure_command, termination_grace) = (None, None);
        Some(Arc::new(HealthcheckAct { on_failure: OnFailure::Stop, on_failure_command, termination_grace }))
    };
    for (modes, expected) in [
        ([None, None], None),
        ([session, None], session),
        ([None, session], session),
        ([sync, session], sync),
        ([session, sync], session),
    ] {
        let [first, second] = modes;
        let rules = [(None, first), (stop(), second)].map(|(act, exec_mode)| Rule {
            healthcheck: HealthcheckRule { act, exec_mode },
            ..rule("a", false, Matcher::any(), &[])
        });
        let healthchecks = vec![Glob::from("*")];
        let policy = Policy { rules: rules.to_vec(), healthchecks, ..Policy::default() };
        let read = Ok(Outline::shared(&Arc::new(spec(ProbeKind::Liveness, 80)), Class::Author));
        let planned = plan(&container(&[], &[]), &policy, of_healthcheck(Some(&read))).pop().unwrap();
        let definition = planned.definition(&container(&[], &[])).unwrap();
        assert_eq!((definition.exec_mode, definition.on_failure), (expected, OnFailure::Stop), "{modes:?}");
        assert_eq!(planned.spec.unwrap().exec_mode, expected, "{modes:?}");
    }
}

#[test]
fn the_definition_that_wins_says_the_mode_and_no_other_does() {
    let command = |mode: &str| format!("{{exec: {{command: [x]}}{mode}}}");
    let kind = ProbeKind::Liveness;
    let asking = definition::read(kind, &command(", execMode: session")).unwrap();
    let of_rule = |is_enforced| Rule {
        probes: vec![Rule::defining(asking.clone())],
        ..rule("a", is_enforced, Matcher::any(), &[])
    };
    let mode = |rule: Rule, annotation: &str| {
        let policy = Policy { rules: vec![rule], ..Policy::default() };
        let container = container(&[("liveness.criprobe.dev/app", annotation)], &[]);
        let planned = plan(&container, &policy, ImageFacts::default()).pop().unwrap();
        let mode = planned.definition(&container).unwrap().exec_mode;
        assert_eq!(planned.spec.unwrap().exec_mode, mode);
        mode
    };
    assert_eq!(mode(of_rule(false), &command("")), None, "the rule is shadowed");
    assert_eq!(mode(of_rule(false), &command(", execMode: sync")), Some(ExecMode::Sync));
    assert_eq!(mode(of_rule(true), &command(", execMode: sync")), Some(ExecMode::Session));
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// The planner's inputs, in any order.
#[derive(Clone, Debug)]
enum Fact {
    Policy,
    Container(usize),
}

fn shop(number: usize) -> Arc<Container> {
    let annotations: &[(&str, &str)] = match number % 3 {
        0 => &[],
        1 => &[("liveness.criprobe.dev/app", TRUE)],
        _ => &[("criprobe.dev/probes", "off")],
    };
    let plain = container(annotations, &[]);
    let pod = Pod { name: format!("web-{number}").into(), ..(*plain.pod).clone() };
    Arc::new(Container { id: ContainerId::from(format!("c{number}").as_str()), pod: Arc::new(pod), ..plain })
}

proptest! {
    #[test]
    fn the_plan_does_not_depend_on_the_order_in_which_facts_arrive(
        facts in Just((0..9).map(Fact::Container).chain([Fact::Policy]).collect::<Vec<_>>()).prop_shuffle(),
        enforced in any::<bool>(),
        pattern in prop::sample::select(vec!["*", "web-1", "web-?", "none"]),
    ) {
        let matcher = Matcher { pod: Glob::from(pattern), ..Matcher::any() };
        let policy = Arc::new(Policy {
            rules: vec![rule("one", enforced, matcher, &[ProbeKind::Liveness, ProbeKind::Startup])],
            ..Policy::default()
        });
        let mut planner = Planner::new(Arc::default());
        let mut last = BTreeMap::new();
        for fact in facts {
            let plans = match fact {
                Fact::Policy => planner.on_policy(policy.clone()).collect(),
                Fact::Container(number) => vec![planner.on_container(shop(number))],
            };
            last.extend(plans.into_iter().map(|made| (made.view.id.clone(), made.probes)));
        }
        for view in (0..9).map(shop) {
            prop_assert_eq!(&last[&view.id], &plan(&view, &policy, ImageFacts::default()));
        }
    }
}
