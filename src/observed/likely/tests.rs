//! What a written pod says of a client's calls.

use proptest::prelude::*;

use super::*;
use crate::observed::fixtures::command;

const POD: &str = r#"{"spec": {"initContainers": [{"name": "app", "x": 1}, {"name": "proxy",
    "startupProbe": {"exec": {"command": ["ready"]}}}],
  "containers": [{"name": "web", "livenessProbe": {"exec": {"command": ["other"]}}},
    {"name": "main", "startupProbe": {"exec": {"command": ["a", "$(B)"]}, "periodSeconds": 2},
     "readinessProbe": {"exec": {"command": ["a", "$(B)"]}, "timeoutSeconds": 3},
     "livenessProbe": {"exec": {"command": ["a", "$(B)"]}}},
    {"name": "twice", "readinessProbe": {"exec": {"command": ["c"]}}, "livenessProbe": {"exec": {"command": ["c"]}}},
    {"name": "web2", "readinessProbe": {"httpGet": {"port": 1}}, "livenessProbe": {"exec": {"command": "no list"}}}]}}"#;

fn likely(text: &str, name: &str, words: &[&str], timeout: i64, period: f64) -> Option<ProbeKind> {
    Written::read(text).likely(name, &command("c1", words, timeout), Duration::from_secs_f64(period))
}

#[test]
fn a_probe_of_the_same_command_timeout_and_period_is_likely_it() {
    let (startup, readiness, liveness) =
        (Some(ProbeKind::Startup), Some(ProbeKind::Readiness), Some(ProbeKind::Liveness));
    for (rule, name, words, timeout, period, kind) in [
        ("with all defaults", "web", &["other"][..], 1, 10.0, liveness),
        ("of a sidecar", "proxy", &["ready"], 1, 10.0, startup),
        ("expanded; by its period", "main", &["a", "b c"], 1, 2.0, startup),
        ("not expanded", "main", &["a", "$(B)"], 1, 2.0, startup),
        ("by its timeout", "main", &["a", "b c"], 3, 10.0, readiness),
        ("by both", "main", &["a", "b c"], 1, 10.4, liveness),
        ("another period", "main", &["a", "b c"], 1, 5.0, None),
        ("another timeout", "main", &["a", "b c"], 2, 10.0, None),
        ("another command", "main", &["a"], 1, 10.0, None),
        ("several fit", "twice", &["c"], 1, 10.0, None),
        ("no exec", "web2", &["c"], 1, 10.0, None),
        ("no such container", "nobody", &["c"], 1, 10.0, None),
    ] {
        assert_eq!(likely(POD, name, words, timeout, period), kind, "{rule}");
        let template = format!(r#"{{"spec": {{"replicas": 1, "template": {POD}}}}}"#);
        let job = format!(r#"{{"spec": {{"jobTemplate": {template}}}}}"#);
        assert_eq!(likely(&template, name, words, timeout, period), kind, "{rule}, in a template");
        assert_eq!(likely(&job, name, words, timeout, period), kind, "{rule}, in a job's template");
    }
}

#[test]
fn row_16_a_manifest_of_tens_of_thousands_of_values_is_read_and_one_that_is_too_long_is_not() {
    let padded = |values: usize| format!(r#"{{"pad": [{}0], {}"#, "1,".repeat(values), &POD[1..]);
    assert_eq!(likely(&padded(49_000), "web", &["other"], 1, 10.0), Some(ProbeKind::Liveness));
    assert_eq!(likely(&padded(LONGEST_MANIFEST / 2), "web", &["other"], 1, 10.0), None);
}

#[test]
fn row_16_what_is_kept_of_a_pod_is_bounded_whatever_its_manifest_says() {
    let container = |name: usize, command: &str| {
        format!(r#"{{"name": "c{name}", "livenessProbe": {{"exec": {{"command": [{command}]}}}}}}"#)
    };
    let pod =
        |containers: Vec<String>| format!(r#"{{"spec": {{"containers": [{}]}}}}"#, containers.join(","));
    let usual = pod((0..100).map(|number| container(number, r#""test", "-e", "/ready""#)).collect());
    assert_eq!(Written::read(&usual).containers.len(), 100);
    let long = format!("\"{}\"", "x".repeat(LONGEST_COMMAND));
    let too_long = format!("\"{}\"", "x".repeat(LONGEST_COMMAND + 1));
    let kept = Written::read(&pod(vec![container(0, &too_long), container(1, &long)]));
    assert_eq!(kept.containers.keys().collect::<Vec<_>>(), ["c1"]);
    for commands in [vec![long; 50], vec![vec!["\"\""; 40_000].join(",")], vec!["\"\"".to_owned(); 3_000]] {
        let text = pod(commands.iter().enumerate().map(|(name, command)| container(name, command)).collect());
        let written = Written::read(&text);
        assert!(text.len() <= LONGEST_MANIFEST && written.weight() <= MOST_OF_POD, "{}", written.weight());
    }
}

#[test]
fn a_manifest_names_its_pod() {
    let names = |text| Manifest::read(text).map(|pod| format!("{}/{}", pod.namespace, pod.name));
    assert_eq!(names("metadata: {name: etcd, namespace: kube-system}").as_deref(), Some("kube-system/etcd"));
    assert_eq!(names("metadata: {name: etcd}").as_deref(), Some("default/etcd"));
    assert_eq!(
        [names("kind: Pod"), names("metadata: {name: 5}"), names("{"), names("")],
        [const { None }; 4]
    );
    let pod = Manifest::read(&format!("metadata: {{name: etcd}}\n{}", &POD[1..POD.len() - 1])).unwrap();
    let ready = command("c1", &["ready"], 1);
    assert_eq!(pod.written.likely("proxy", &ready, Duration::from_secs(10)), Some(ProbeKind::Startup));
}

proptest! {
    #[test]
    fn any_text_is_survived(text: String, cut in 0..POD.len()) {
        for text in [&text, &POD[..cut]] {
            let _ = likely(text, "main", &["a"], 1, 10.0);
            let _ = Manifest::read(text);
        }
    }
}
