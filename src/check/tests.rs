//! Files as people write them: what is said of good ones, of wrong ones, and of those that are no good at all.

mod bad_input;

use proptest::prelude::*;

use super::*;
use crate::report::view::{CheckedProbe, Finding};

fn input(name: &str, bytes: impl Into<Vec<u8>>) -> CheckInput {
    CheckInput { name: name.to_owned(), bytes: bytes.into(), is_named: true }
}

fn sample(name: &str) -> CheckInput {
    let path = format!("{}/tests/data/check/{name}", env!("CARGO_MANIFEST_DIR"));
    input(name, std::fs::read(path).unwrap())
}

/// As the command line writes them.
fn findings(view: &CheckView) -> String {
    let line = |file: &str, finding: &Finding| {
        let Finding { severity, line, column, message } = finding;
        let place = line.zip(*column).map(|(line, column)| format!(":{line}:{column}")).unwrap_or_default();
        format!("{file}{place}: {}: {message}\n", severity.as_str())
    };
    let of = |file: &CheckedFile| file.findings.iter().map(|one| line(&file.file, one)).collect::<String>();
    view.files.iter().map(of).collect()
}

fn reported(text: &str) -> String {
    findings(&check(&[input("x", text)], &[], "default"))
}

/// Each probe in a line: where, what, whence, and what became of it.
fn probes(view: &CheckView) -> Vec<String> {
    let mut lines = Vec::new();
    for pod in view.files.iter().flat_map(|file| &file.documents).flat_map(|document| &document.pods) {
        for container in &pod.containers {
            let probe = |probe: &CheckedProbe| {
                let CheckedProbe { kind, source, valid, shadowed, change, .. } = probe;
                let valid = if *valid { "valid" } else { "invalid" };
                let change = change.map(|change| format!(" {change:?}")).unwrap_or_default();
                let name = format!("{}/{}/{}", pod.namespace, pod.pod, container.container);
                format!("{name} {kind} {source} {valid} {shadowed:?}{change}")
            };
            lines.extend(container.probes.iter().map(probe));
        }
    }
    lines
}

#[test]
fn good_files_come_to_these_probes() {
    insta::assert_json_snapshot!("deployment", check(&[sample("deployment.yaml")], &[], "default"));
    insta::assert_json_snapshot!(
        "crictl",
        check(&[sample("pod.json"), sample("container.json")], &[], "default")
    );
}

#[test]
fn every_kind_that_makes_pods_is_found() {
    let view = check(&[sample("kinds.yaml")], &[], "test");
    let pod = |document: &CheckedDocument| {
        let pods = document.pods.iter().map(|pod| {
            let probes: usize = pod.containers.iter().map(|container| container.probes.len()).sum();
            format!("{}/{} at {:?} with {probes}", pod.namespace, pod.pod, pod.path)
        });
        format!("{} {}: {}\n", document.line, document.name, pods.collect::<Vec<_>>().join(", "))
    };
    let reported: String = view.files[0].documents.iter().map(pod).collect();
    insta::assert_snapshot!("kinds", reported + &findings(&view));
}

#[test]
fn what_is_wrong_is_told_at_its_place() {
    insta::assert_snapshot!("wrong", findings(&check(&[sample("wrong.yaml")], &[], "default")));
    insta::assert_snapshot!("config_wrong", findings(&check(&[sample("config-wrong.yaml")], &[], "default")));
    let alone = check(&[sample("pod.json")], &[], "default");
    insta::assert_snapshot!("crictl_wrong", findings(&alone) + &probes(&alone).join("\n"));
}

#[test]
fn annotations_of_a_manifest_in_a_pod_for_crictl_are_warned_of() {
    let text =
        "metadata:\n  name: web\n  annotations: {liveness.criprobe.dev/app: '{exec: {command: [x]}}'}\n";
    let found = findings(&check(&[input("web.yaml", text)], &[], "default"));
    assert!(found.contains("metadata.annotations is not read in a pod for crictl"), "{found}");
}

#[test]
fn rules_show_what_they_change() {
    let rules = [sample("rules/10-shop.yaml")];
    let view = check(&[sample("deployment.yaml")], &rules, "default");
    insta::assert_snapshot!("rules", findings(&view) + &probes(&view).join("\n"));
    let wrong = check(&[sample("deployment.yaml")], &[sample("config-wrong.yaml")], "default");
    assert!(
        wrong.errors > 0 && probes(&wrong) == probes(&check(&[sample("deployment.yaml")], &[], "default"))
    );
}

#[test]
fn what_a_node_reads_together_is_checked_together_in_its_order() {
    let rule = |name: &str| {
        format!("rules: [{{name: {name}, match: {{pod: x}}, liveness: {{grpc: {{port: 1}}}}}}]\n")
    };
    let found = |name: &str, text: String| CheckInput { is_named: false, ..input(name, text) };
    let folder = |main: &str| {
        vec![
            found("etc/conf.d/20.yaml", rule("a")),
            found("etc/conf.d/10.yaml", rule("b")),
            found("etc/conf.d/30.yml", rule("a")),
            found("etc/config.yaml", main.to_owned()),
            found("etc/extra.yaml", rule("a")),
        ]
    };
    let unread = "warning: a node does not read this file: only config.yaml and conf.d/*.yaml\n";
    let both = format!("etc/conf.d/30.yml: {unread}etc/extra.yaml: {unread}");
    let twice = findings(&check(&folder(&rule("a")), &[], "default"));
    assert!(twice.starts_with("etc/conf.d/20.yaml:1:") && twice.contains("error: "), "{twice}");
    assert!(
        twice.contains("etc/config.yaml:1:") && twice.ends_with(&both),
        "the first place is named: {twice}"
    );
    for main in ["", "prober: {workers: 8}\n"] {
        let files = folder(main);
        assert_eq!(findings(&check(&files, &[], "default")), both, "{main:?}");
        assert_eq!(check(&files, &[], "default").files.len(), files.len());
    }
    // What the daemon refuses.
    let (main, other) = ("etc/config.yaml", "etc/conf.d/10.yaml");
    let by_default = "/etc/criprobe/conf.d/10.yaml";
    for (files, refused) in [
        (vec![found(main, "# nothing is set\n".to_owned()), found(other, "foo: 1\n".to_owned())], other),
        (vec![found(main, "prober: {workers: 8}\n".to_owned()), found(other, "foo: 1\n".to_owned())], other),
        (vec![found(by_default, "foo: 1\n".to_owned())], by_default),
    ] {
        let found = findings(&check(&files, &[], "default"));
        assert!(found.starts_with(&format!("{refused}:1:1: error: unknown key \"foo\"")), "{found}");
    }
    let chart = ["etc/config.yaml", "etc/conf.d/10.yaml"].map(|name| found(name, "foo: 1\n".to_owned()));
    assert_eq!(findings(&check(&chart, &[], "default")), "", "no node's folder");
    let named: Vec<_> = ["etc/config.yaml", "etc/more.yaml"].map(|name| input(name, rule("a"))).into();
    assert_eq!(check(&named, &[], "default").errors, 1, "named together");
    let here: Vec<_> = ["./conf.d/10.yaml", "config.yaml"].map(|name| input(name, rule("a"))).into();
    assert!(findings(&check(&here, &[], "default")).starts_with("./conf.d/10.yaml:1:"), "in one folder");
    let of_two: Vec<_> = ["one/config.yaml", "two/config.yaml"].map(|name| input(name, rule("a"))).into();
    assert_eq!(check(&of_two, &[], "default").errors, 0, "two nodes");
    let many: Vec<_> = (0..101)
        .map(|number| found(&format!("conf.d/{number:03}.yaml"), rule(&format!("r{number}"))))
        .collect();
    let refused = findings(&check(&many, &[], "default"));
    assert!(refused.starts_with("conf.d/100.yaml: error: more than 100 files in conf.d"), "{refused}");
    assert_eq!(check(&many[..100], &[], "default").errors, 0);
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n";
    let chart = [found("x/config.yaml", manifest.to_owned()), found("x/conf.d/a.yaml", manifest.to_owned())];
    assert_eq!(findings(&check(&chart, &[], "default")), "", "no node's");
}

#[test]
fn an_act_that_will_only_be_reported_is_warned_of_with_the_reason() {
    let manifest = |on_failure: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n  namespace: shop\n  annotations:\n    \
             liveness.criprobe.dev/app: '{{exec: {{command: [x]}}, onFailure: {on_failure}}}'\n\
             spec:\n  containers:\n  - name: app\n"
        )
    };
    let crictl = |label: &str| {
        format!(
            "metadata: {{name: p, namespace: shop}}\nlabels: {{{label}: x}}\nannotations:\n  \
             liveness.criprobe.dev/app: '{{exec: {{command: [x]}}, onFailure: restart}}'\n"
        )
    };
    let rule = "rules:\n- name: heal\n  match: {namespace: '*'}\n  startup: {exec: {command: [x]}, onFailure: restart}\n  \
                healthcheck: {onFailure: stop}\n";
    let on = |more: &str| format!("act: {{enabled: true{more}}}\n");
    for (name, pod, rules, expected) in [
        ("no configuration", manifest("stop"), None, None),
        (
            "no configuration, restart",
            manifest("restart"),
            None,
            Some("asks for restart, but only reports: a kubelet"),
        ),
        ("crictl's pod", crictl("app"), None, None),
        (
            "a kubelet's in crictl's form",
            crictl("io.kubernetes.pod.uid"),
            None,
            Some("a kubelet manages this pod"),
        ),
        (
            "off",
            manifest("kill"),
            Some("prober: {}".to_owned()),
            Some("asks for kill, but only reports: acting is not enabled"),
        ),
        ("no namespaces", manifest("stop"), Some(on("")), Some("annotations in this namespace may not act")),
        ("another namespace", manifest("stop"), Some(on(", namespaces: [lab]")), Some("may not act")),
        ("its namespace", manifest("stop"), Some(on(", namespaces: ['s*']")), None),
        ("dry run", manifest("stop"), Some(on(", namespaces: ['*'], dryRun: true")), None),
        (
            "a rule",
            manifest("report"),
            Some(on("") + rule),
            Some("rule:heal: startup of \"app\" asks for restart"),
        ),
        ("a rule for crictl's pod", crictl("app").replace("restart", "report"), Some(on("") + rule), None),
    ] {
        let rules: Vec<_> = rules.into_iter().map(|text| input("config", text)).collect();
        let view = check(&[input("x", pod)], &rules, "default");
        let reported = findings(&view);
        assert_eq!(
            (view.errors, reported.lines().count()),
            (0, expected.iter().count()),
            "{name}: {reported}"
        );
        assert!(reported.contains(expected.unwrap_or_default()), "{name}: {reported}");
    }
    let off = findings(&check(&[], &[input("config", rule)], "default"));
    insta::assert_snapshot!(off, @"
    config:2:3: warning: rule:heal: startup asks for restart, but only reports: acting is not enabled (act.enabled)
    config:2:3: warning: rule:heal: healthcheck asks for stop, but only reports: acting is not enabled (act.enabled)
    ");
    assert_eq!(reported(rule), "", "another file may enable it");
    assert_eq!(reported(&format!("act: {{enabled: false}}\n{rule}")).lines().count(), 2);
    assert_eq!(reported(&(on("") + rule)), "");
}

#[test]
fn probes_beyond_what_a_pod_or_a_node_may_have_are_told() {
    let pod = |name: &str, containers: usize| {
        let annotations: String = (0..containers)
            .flat_map(|number| ["liveness", "readiness"].map(|kind| (kind, number)))
            .map(|(kind, number)| {
                format!("    {kind}.criprobe.dev/c{number}: '{{tcpSocket: {{port: 80}}}}'\n")
            })
            .collect();
        let listed: String =
            (0..containers).map(|number| format!("  - {{name: c{number}, image: x}}\n")).collect();
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  annotations:\n{annotations}\
             spec:\n  containers:\n{listed}"
        )
    };
    let files = [input("a", pod("a", 2)), input("b", pod("b", 1))];
    let rules = [input("config", "prober: {maxPerPod: 3, maxPerNode: 4}")];
    let view = check(&files, &rules, "default");
    insta::assert_snapshot!(findings(&view), @r#"
    a:13:5: error: liveness of "c1": the pod has more probes than prober.maxPerPod, which is 3: enforced rules come first, then other rules, then older containers
    b:1:1: warning: with pod default/b there are 5 probes: a node runs at most 4 (prober.maxPerNode), and lists the others as invalid
    "#);
    assert_eq!((view.probes, view.errors, view.warnings), (5, 1, 1));
    let invalid: Vec<_> = probes(&view).into_iter().filter(|line| line.contains(" invalid ")).collect();
    assert_eq!(invalid, ["default/a/c1 liveness annotation invalid [] Invalidated"]);
    // A third of an attempt per second each.
    let rules = [input("config", "prober: {maxRatePerPod: 1, maxRatePerNode: 1}")];
    let quick: Vec<_> = [files[0].clone(), input("b", pod("b", 2))]
        .map(|file| {
            let text = String::from_utf8(file.bytes).unwrap().replace("80}", "80}, periodSeconds: 3");
            input(&file.name, text)
        })
        .into();
    insta::assert_snapshot!(findings(&check(&quick, &rules, "default")), @r#"
    a:13:5: error: readiness of "c1": the probes of the pod ask for 1.4 attempts per second, more than prober.maxRatePerPod, which is 1: enforced rules come first, then other rules, then older containers
    a:13:5: error: liveness of "c1": the probes of the pod ask for 1.4 attempts per second, more than prober.maxRatePerPod, which is 1: enforced rules come first, then other rules, then older containers
    b:1:1: warning: with pod default/b there are probes for 1.4 attempts per second: a node makes at most 1 (prober.maxRatePerNode), and lists the others as invalid
    b:13:5: error: readiness of "c1": the probes of the pod ask for 1.4 attempts per second, more than prober.maxRatePerPod, which is 1: enforced rules come first, then other rules, then older containers
    b:13:5: error: liveness of "c1": the probes of the pod ask for 1.4 attempts per second, more than prober.maxRatePerPod, which is 1: enforced rules come first, then other rules, then older containers
    "#);

    let view = check(&[input("a", pod("a", 17))], &[], "default");
    assert_eq!((view.probes, view.errors), (32, 2), "the defaults");

    // Of a rule, each probe that is too many is an error once.
    let rule = "rules: [{name: web, match: {namespace: default}, readiness: {tcpSocket: {port: 80}}}]";
    let rules = [input("config", format!("prober: {{maxPerPod: 2}}\n{rule}"))];
    let pod = pod("a", 5).replace("criprobe.dev/", "example.com/");
    assert_eq!(check(&[input("a", pod)], &rules, "default").errors, 3);
}

#[test]
fn a_container_is_found_with_the_pod_that_it_is_given_with() {
    let pod = r#"{"metadata": {"name": "web", "namespace": "edge"},
        "annotations": {"liveness.criprobe.dev/ap": "{\"exec\": {\"command\": [\"true\"]}}"}}"#;
    let view = check(&[sample("container.json"), input("pod.json", pod)], &[], "default");
    assert_eq!(
        findings(&view),
        "pod.json:2:25: error: annotation \"liveness.criprobe.dev/ap\": the pod has no container \"ap\": did you \
         mean \"app\"?\n"
    );
    assert_eq!(probes(&view), ["edge/web/app liveness annotation valid []"]);
    let alone = check(&[sample("container.json")], &[], "other");
    assert_eq!(probes(&alone), ["other//app liveness annotation valid []"]);
    let two = check(&[input("a", pod), input("b", pod), sample("container.json")], &[], "other");
    assert_eq!(findings(&two), "", "its owner is unknown");
}

#[test]
fn what_depends_on_the_pod_is_told() {
    let pod = |spec: &str, annotations: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n  annotations:\n    {annotations}\nspec:\n  {spec}\n"
        )
    };
    let app = "containers: [{name: app, ports: [{name: http, containerPort: 80}]}]";
    for (spec, annotations, says) in [
        (app, "liveness.criprobe.dev/app: '{tcpSocket: {port: http}}'", ""),
        (app, "liveness.criprobe.dev/app: '{tcpSocket: {port: 81}}'", ""),
        (
            app,
            "liveness.criprobe.dev/app: '{tcpSocket: {port: htp}}'",
            "x:6:52: error: liveness.criprobe.dev/app: tcpSocket.port: the container declares no port named \"htp\": \
             did you mean \"http\"?\n",
        ),
        (
            "hostNetwork: true\n  containers: [{name: app, ports: [{name: http, containerPort: 80}]}]",
            "liveness.criprobe.dev/app: '{tcpSocket: {port: 81}}'",
            "x:6:52: error: liveness.criprobe.dev/app: tcpSocket.port: the container does not declare port 81: \
             a pod in the node's network is probed only at ports that its container declares, unless a rule allows \
             others\n",
        ),
        (
            "containers: [{name: app}, {name: other, ports: [{name: http, containerPort: 80}]}]",
            "liveness.criprobe.dev/app: '{tcpSocket: {port: http}}'",
            "x:6:52: error: liveness.criprobe.dev/app: tcpSocket.port: the container declares no port named \"http\": \
             container \"other\" does\n",
        ),
        (
            app,
            "liveness.criprobe.dev/app: {tcpSocket: {port: 80}}",
            "x:6:32: error: annotation \"liveness.criprobe.dev/app\": the value is YAML, not a string: put a '|' after \
             the colon\n",
        ),
        (
            app,
            "criprobe.dev/probes: off",
            "x:6:26: error: annotation \"criprobe.dev/probes\": kubectl reads it as a boolean: put it in \
             quotes\n",
        ),
        (app, "criprobe.dev/probes: 'off'", ""),
        (app, "criprobe.dev/probes: |-\n      off", ""),
        (
            "containers: [{name: app, ports: [{name: http, containerPort: '80'}]}]",
            "a: b",
            "x:8:64: error: spec.containers[0].ports[0].containerPort: Invalid value: \"80\": must be a whole number: \
             write it without quotes\n",
        ),
        ("containers: []", "a: b", "x:8:3: error: spec.containers: Required value\n"),
        (
            "containers: [{image: x}]",
            "a: b",
            "x:8:16: error: spec.containers[0].name: Required value\nx:8:3: error: spec.containers: Required value\n",
        ),
    ] {
        let mut said: Vec<_> = reported(&pod(spec, annotations)).lines().map(str::to_owned).collect();
        let mut says: Vec<_> = says.lines().collect();
        said.sort();
        says.sort_unstable();
        assert_eq!(said, says, "{spec} {annotations}");
    }
}

#[test]
fn a_file_that_is_nothing_is_wrong_only_if_it_was_named() {
    let values = "replicaCount: 1\nimage: {tag: x}\n";
    assert!(reported(values).contains("x:1:1: error: not a Kubernetes manifest"));
    let found = CheckInput { is_named: false, ..input("values.yaml", values) };
    let view = check(&[found], &[], "default");
    assert_eq!((findings(&view), view.files[0].documents[0].taken), (String::new(), DocumentKind::Unknown));
}

/// Pieces that manifests are made of, to be put together at random.
const PIECES: [&str; 24] = [
    "apiVersion: v1\n",
    "kind: Pod\n",
    "kind: List\n",
    "items:\n",
    "- ",
    "metadata:\n",
    "  name: x\n",
    "  annotations:\n",
    "    liveness.criprobe.dev/x: ",
    "|\n",
    ">-\n",
    "      exec: {command: [x]}\n",
    "'{exec: ",
    "\"{\\\"exec\\\": ",
    "spec:\n",
    "  containers:\n",
    "  - name: x\n",
    "    livenessProbe: ",
    "{tcpSocket: {port: ",
    "}}\n",
    "---\n",
    "&a ",
    "*a\n",
    "rules:\n",
];

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = check(&[input("x", bytes.clone())], &[input("y", bytes)], "default");
    }

    #[test]
    fn no_pieces_of_manifests_panic(pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..30)) {
        let text = pieces.concat();
        let view = check(&[input("x", text.clone())], &[], "default");
        for finding in &view.files[0].findings {
            let lines = u32::try_from(text.split('\n').count()).unwrap();
            prop_assert!(finding.line.is_none_or(|line| (1..=lines).contains(&line)), "{finding:?}");
        }
    }
}
