//! Configuration files, variables and flags: what wins, what is refused, and in which words.

mod bad_input;

use std::{collections::BTreeMap, fs};

use proptest::prelude::*;

use super::{raw::Raw, *};
use crate::{
    glob::Glob,
    redact::Pattern,
    spec::{acting::ActPolicy, policy::Limits},
};

fn resolved(text: &str, overrides: &Overrides) -> Result<Config, String> {
    loaded(&[("config.yaml", text)], overrides).map(|loaded| loaded.config)
}

fn loaded(files: &[(&str, &str)], overrides: &Overrides) -> Result<Loaded, String> {
    let files: Vec<_> = files.iter().map(|(name, text)| Raw::read(text, Path::new(name))).collect();
    resolve::resolve(&files, overrides, &groups).map_err(|errors| errors.to_string())
}

/// A machine with one group.
fn groups(name: &str) -> Result<Option<u32>, String> {
    Ok((name == "adm").then_some(4))
}

fn reported(text: &str) -> String {
    resolved(text, &Overrides::default()).unwrap_err()
}

fn told_of_flags(flags: &[(Key, &str)]) -> String {
    let overrides =
        flags.iter().fold(Overrides::default(), |all, (key, text)| all.flag(*key, Some((*text).into())));
    resolved("", &overrides).unwrap_err()
}

fn environment(variables: &[(&str, &str)]) -> Overrides {
    let variables: BTreeMap<_, _> = variables.iter().copied().collect();
    Overrides::from_environment(|name| variables.get(name).map(ToString::to_string))
}

fn defaults() -> Config {
    Config {
        listen: "/run/criprobe/criprobe.sock".into(),
        runtime: "/run/containerd/containerd.sock".into(),
        state: Some("/var/lib/criprobe".into()),
        api: ApiConfig {
            listen: "/run/criprobe/api.sock".into(),
            group: None,
            http: None,
            page: PageAccess::Loopback,
        },
        prober: ProberConfig {
            workers: NonZeroUsize::new(64).unwrap(),
            exec_workers: NonZeroUsize::new(16).unwrap(),
            exec_grace: Duration::from_secs(5),
            exec_mode: ExecModeSetting::Sync,
            max_per_pod: NonZeroUsize::new(32).unwrap(),
            max_per_node: NonZeroUsize::new(5000).unwrap(),
            max_rate_per_pod: NonZeroUsize::new(50).unwrap(),
            max_rate_per_node: NonZeroUsize::new(5000).unwrap(),
            node_ip: None,
        },
        policy: Policy::default(),
        act: ActConfig {
            max_per_minute: NonZeroUsize::new(6).unwrap(),
            max_concurrent: NonZeroUsize::MIN,
            grace: Duration::from_secs(10),
            restart_on_exit: RestartOnExit::Never,
        },
        is_observing: true,
        history: HistoryConfig { attempts: 32, output_bytes: 256 },
        attempts: RecordConfig { file: None, max_bytes: 64 << 20 },
        trace: TraceConfig {
            has_output: false,
            record: RecordConfig { file: None, max_bytes: 256 << 20 },
            redact: Patterns::default(),
        },
        log: LogConfig { format: LogFormat::Text, level: LogLevel::Info },
    }
}

#[test]
fn what_nobody_says_has_its_default() {
    for text in ["", "# nothing\n", "{}", "api:\nprober: {}\nlog: null\n"] {
        assert_eq!(resolved(text, &Overrides::default()), Ok(defaults()), "{text:?}");
    }
}

#[test]
fn the_packaged_example_names_every_setting_with_its_default() {
    let text = example::TEXT;
    assert_eq!(resolved(text, &Overrides::default()), Ok(defaults()));
    let raw = Raw::read(text, Path::new("config.yaml"));
    for key in Key::ALL {
        let texts =
            raw.get(key).map(|setting| setting.texts.iter().map(|text| &*text.value).collect::<Vec<_>>());
        assert_eq!(texts.map(|texts| texts.join(",")).as_deref(), Some(key.default()), "{}", key.path());
        assert!(text.contains(key.variable()), "{} is not mentioned", key.variable());
    }
}

#[test]
fn a_history_has_its_bounds_and_a_file_of_attempts_a_path_and_a_size() {
    for (text, reported) in [
        ("history: {attempts: 0}", "history.attempts: must be 1 to 1000, not 0"),
        ("history: {attempts: 1001}", "history.attempts: must be 1 to 1000, not 1001"),
        ("history: {outputBytes: -1}", "history.outputBytes: must be 0 to 10240, not -1"),
        ("history: {outputBytes: 10241}", "history.outputBytes: must be 0 to 10240, not 10241"),
        ("attempts: {file: attempts.jsonl}", r#"attempts.file: "attempts.jsonl" is not an absolute path"#),
        ("attempts: {file: /var/}", r#"attempts.file: "/var/" is not the path of a file"#),
        ("attempts: {file: /}", r#"attempts.file: "/" is not the path of a file"#),
        ("attempts: {file: /var/..}", r#"attempts.file: "/var/.." is not the path of a file"#),
        (
            "{attempts: {file: /a/b}, trace: {file: /a/b}}",
            "trace.file: /a/b would overwrite the file of attempts.file: name another",
        ),
        (
            "{attempts: {file: /a/b}, trace: {file: /a/b.1}}",
            "trace.file: /a/b.1 would overwrite the file of attempts.file: name another",
        ),
        (
            "trace: {redact: ['']}",
            "trace.redact: an empty pattern matches nothing that could be replaced: remove it",
        ),
        ("attempts: {maxBytes: 255KiB}", "attempts.maxBytes: must be 256KiB to 1024GiB, not 255KiB"),
        ("attempts: {maxBytes: 9999999GiB}", "attempts.maxBytes: must be 256KiB to 1024GiB, not 9999999GiB"),
        (
            "attempts: {maxBytes: 64Mi}",
            r#"attempts.maxBytes: "64Mi" is not a size: write one such as 64MiB, with KiB, MiB or GiB"#,
        ),
        (
            "attempts: {maxBytes: -1MiB}",
            r#"attempts.maxBytes: "-1MiB" is not a size: write one such as 64MiB, with KiB, MiB or GiB"#,
        ),
        (
            "rules: [{name: a, match: {namespace: a}, history: {attempts: 2000}}]",
            "rules[0].history.attempts: must be 1 to 1000, not 2000",
        ),
        (
            "rules: [{name: a, match: {namespace: a}, history: {}}]",
            "rules[0].history: Required value: must say attempts or outputBytes",
        ),
        (
            "rules: [{name: a, match: {namespace: a}}]",
            "rules[0]: Required value: must have a probe: startup, readiness or liveness; or healthcheck; or history",
        ),
    ] {
        let errors = resolved(text, &Overrides::default()).unwrap_err();
        assert!(
            errors.ends_with(&format!(": {reported}")) && errors.lines().count() == 1,
            "{text}: {errors}"
        );
    }
    let text = "rules: [{name: a, match: {namespace: a}, history: {outputBytes: 1024}}]";
    let rules = resolved(text, &Overrides::default()).unwrap().policy.rules;
    assert_eq!((rules[0].history.attempts, rules[0].history.output_bytes), (None, Some(1_024)));
}

#[test]
fn everything_that_a_file_says_is_kept() {
    let text = r#"
listen: /tmp/l.sock
runtime: unix:///tmp/r.sock
state: /tmp/state
api: {listen: /tmp/a.sock, group: adm, http: "[::1]:9090", page: always}
prober: {workers: 8, execWorkers: 4, execGrace: 1m30s, execMode: session, maxPerPod: 1, maxPerNode: 100000, nodeIP: "2001:db8::1",
  maxRatePerPod: 10000, maxRatePerNode: 100000,
  minPeriod: 1s, maxTimeout: 5s, allowHosts: [10.0.0.0/8, "2001:db8::1"]}
annotations: {namespaces: [shop-*, cart]}
healthcheck: {enabled: true, namespaces: [default]}
observed: {enabled: false}
history: {attempts: 1000, outputBytes: 0}
attempts: {file: /var/lib/attempts.jsonl, maxBytes: 2 GiB}
trace: {output: true, file: /var/lib/calls.jsonl, maxBytes: 1GiB, redact: ['--password[= ](\S+)']}
act: {enabled: true, dryRun: true, namespaces: [edge-*, lab], maxPerMinute: 600, maxConcurrent: 64, gracePeriod: 1h,
  restartOnExit: onFailure}
log: {format: json, level: debug}
"#;
    let expected = Config {
        listen: "/tmp/l.sock".into(),
        runtime: "/tmp/r.sock".into(),
        state: Some("/tmp/state".into()),
        api: ApiConfig {
            listen: "/tmp/a.sock".into(),
            group: Some(4),
            http: Some("[::1]:9090".parse().unwrap()),
            page: PageAccess::Always,
        },
        prober: ProberConfig {
            workers: NonZeroUsize::new(8).unwrap(),
            exec_workers: NonZeroUsize::new(4).unwrap(),
            exec_grace: Duration::from_secs(90),
            exec_mode: ExecModeSetting::Session,
            max_per_pod: NonZeroUsize::new(1).unwrap(),
            max_per_node: NonZeroUsize::new(100_000).unwrap(),
            max_rate_per_pod: NonZeroUsize::new(10_000).unwrap(),
            max_rate_per_node: NonZeroUsize::new(100_000).unwrap(),
            node_ip: Some("2001:db8::1".parse().unwrap()),
        },
        policy: Policy {
            rules: Vec::new(),
            annotations: vec![Glob::from("shop-*"), Glob::from("cart")],
            healthchecks: vec![Glob::from("default")],
            limits: Limits {
                allow_hosts: vec!["10.0.0.0/8".parse().unwrap(), "2001:db8::1/128".parse().unwrap()],
                min_period: Duration::from_secs(1),
                max_timeout: Duration::from_secs(5),
            },
            acting: ActPolicy {
                is_enabled: true,
                is_dry_run: true,
                namespaces: vec![Glob::from("edge-*"), Glob::from("lab")],
            },
        },
        act: ActConfig {
            max_per_minute: NonZeroUsize::new(600).unwrap(),
            max_concurrent: NonZeroUsize::new(64).unwrap(),
            grace: Duration::from_secs(3600),
            restart_on_exit: RestartOnExit::OnFailure,
        },
        is_observing: false,
        history: HistoryConfig { attempts: 1_000, output_bytes: 0 },
        attempts: RecordConfig { file: Some("/var/lib/attempts.jsonl".into()), max_bytes: 2 << 30 },
        trace: TraceConfig {
            has_output: true,
            record: RecordConfig { file: Some("/var/lib/calls.jsonl".into()), max_bytes: 1 << 30 },
            redact: [Pattern::parse(r"--password[= ](\S+)").unwrap()].into_iter().collect(),
        },
        log: LogConfig { format: LogFormat::Json, level: LogLevel::Debug },
    };
    assert_eq!(resolved(text, &Overrides::default()), Ok(expected));
}

#[test]
fn a_flag_stands_over_the_environment_and_that_over_the_file() {
    let file = "listen: /tmp/file\nlog: {level: error}\nprober: {workers: 3}\n";
    let environment = environment(&[
        ("CRIPROBE_LISTEN", "/tmp/env"),
        ("CRIPROBE_LOG_LEVEL", ""),
        ("CRIPROBE_PROBER_WORKERS", "5"),
    ]);
    let config = resolved(file, &environment).unwrap();
    assert_eq!(config.listen, Path::new("/tmp/env"));
    assert_eq!(config.log.level, LogLevel::Error, "an empty variable says nothing");
    assert_eq!(config.prober.workers.get(), 5);
    assert_eq!(config.prober.exec_workers.get(), 5, "the default yields to fewer workers");
    let flags = environment.flag(Key::Listen, Some("/tmp/flag".into())).flag(Key::LogLevel, None);
    assert_eq!(resolved(file, &flags).unwrap().listen, Path::new("/tmp/flag"));
}

#[test]
fn a_later_file_stands_over_an_earlier_one_and_each_setting_knows_who_said_it() {
    let files = [
        ("config.yaml", "log: {level: error}\nprober: {workers: 3, allowHosts: [10.0.0.1]}\n"),
        ("conf.d/a.yaml", "log: {level: warn}\n"),
        ("conf.d/b.yaml", "prober:\n  allowHosts: [10.0.0.2]\n"),
    ];
    let environment = environment(&[("CRIPROBE_ANNOTATIONS_NAMESPACES", "shop-*, cart,")]);
    let loaded = loaded(&files, &environment).unwrap();
    let reported = |key: Key| {
        let setting = loaded.settings.iter().find(|setting| setting.key == key).unwrap();
        format!("{} by {}", setting.texts.join("+"), setting.origin)
    };
    assert_eq!(reported(Key::LogLevel), "warn by conf.d/a.yaml:1:14");
    assert_eq!(reported(Key::Workers), "3 by config.yaml:2:19");
    assert_eq!(reported(Key::AllowHosts), "10.0.0.2 by conf.d/b.yaml:2:15", "a list is replaced as a whole");
    assert_eq!(reported(Key::AnnotationNamespaces), "shop-*+cart by CRIPROBE_ANNOTATIONS_NAMESPACES");
    assert_eq!(reported(Key::NodeIp), " by default");
    assert_eq!(loaded.config.policy.annotations, [Glob::from("shop-*"), Glob::from("cart")]);
    assert_eq!(loaded.settings.iter().map(|setting| setting.key).collect::<Vec<_>>(), Key::ALL);
    assert_eq!(loaded.files, ["config.yaml", "conf.d/a.yaml", "conf.d/b.yaml"].map(PathBuf::from));
}

#[test]
fn errors_of_several_files_are_told_in_the_files_order() {
    let files = [
        ("config.yaml", "log: {level: x}\nlisten: 5\n"),
        ("conf.d/a.yaml", "log: {levle: x}\n{"),
        ("conf.d/b.yaml", "x: 1"),
    ];
    insta::assert_snapshot!(loaded(&files, &Overrides::default()).unwrap_err(), @r#"
    config.yaml:1:14: log.level: "x" is not a log level: one of error, warn, info, debug, trace
    config.yaml:2:9: listen: Invalid value: 5: write unix:///PATH
    conf.d/a.yaml:2:1: not valid YAML or JSON: unclosed bracket '{'
    conf.d/b.yaml:1:1: unknown key "x": known keys are listen, runtime, state, api, prober, annotations, healthcheck, observed, history, attempts, act, trace, log, rules
    "#);
}

#[test]
fn every_error_of_a_file_is_told_with_its_place() {
    let text = r#"listen: tcp://127.0.0.1:80
runtme: /tmp/r
state: [x]
api:
  group: "a b"
  http: node-1:9090
  page: public
prober:
  workers: 0
  execWorkers: "4"
  execGrace: 5
  nodeIP: localhost
  maxPerPod: 0
  minPeriod: 1ms
  allowHosts: [127.0.0.1, 10.0.0.0/8, x]
rules: {}
annotations: {namespaces: "*"}
healthcheck: {enabled: yes, namespaces: [a b]}
trace: {output: yes, redact: ["("]}
log: {format: yaml, level: loud}
"#;
    insta::assert_snapshot!(reported(text), @r#"
    config.yaml:1:9: listen: "tcp://127.0.0.1:80" is not a Unix socket: write unix:///PATH
    config.yaml:2:1: unknown key "runtme": did you mean "runtime"?
    config.yaml:3:8: state: Invalid value: a list: must be a string
    config.yaml:5:10: api.group: "a b" is not the name of a group
    config.yaml:6:9: api.http: "node-1:9090" is not a TCP address: write ADDRESS:PORT, such as 127.0.0.1:9090, [::1]:9090, localhost:9090, or :9090 for all addresses
    config.yaml:7:9: api.page: "public" is not one of loopback, always, never
    config.yaml:9:12: prober.workers: must be at least 1, not 0
    config.yaml:10:16: prober.execWorkers: Invalid value: "4": must be a whole number: write it without quotes
    config.yaml:11:14: prober.execGrace: Invalid value: 5: write a duration such as 250ms, 5s or 1m30s
    config.yaml:12:11: prober.nodeIP: "localhost" is not an IP address
    config.yaml:13:14: prober.maxPerPod: must be at least 1, not 0
    config.yaml:14:14: prober.minPeriod: must be at least 100ms, not 1ms
    config.yaml:15:16: prober.allowHosts: 127.0.0.1/32 has no effect: only rules may use loopback, link-local, multicast, unspecified and cloud metadata addresses
    config.yaml:15:39: prober.allowHosts: "x" is not a network: write one such as 10.0.0.0/8, or an address
    config.yaml:16:8: rules: Invalid value: a map: must be a list of maps
    config.yaml:17:27: annotations.namespaces: Invalid value: "*": must be a list of strings
    config.yaml:18:24: healthcheck.enabled: Invalid value: "yes": must be true or false, as in YAML 1.2
    config.yaml:18:42: healthcheck.namespaces: "a b" matches nothing: names contain no spaces
    config.yaml:19:17: trace.output: Invalid value: "yes": must be true or false, as in YAML 1.2
    config.yaml:19:31: trace.redact: not a regular expression: found open group without closing ')'
    config.yaml:20:15: log.format: "yaml" is not a log format: one of text, json
    config.yaml:20:28: log.level: "loud" is not a log level: one of error, warn, info, debug, trace
    "#);
}

#[test]
fn values_out_of_bounds_are_told_with_the_bound() {
    insta::assert_snapshot!(reported("prober: {workers: 1025}"), @"config.yaml:1:19: prober.workers: must be at most 1024, not 1025");
    insta::assert_snapshot!(reported("prober: {workers: -1}"), @"config.yaml:1:19: prober.workers: must be at least 1, not -1");
    insta::assert_snapshot!(reported("prober: {execWorkers: 65}"), @"config.yaml:1:23: prober.execWorkers: must be at most 64, the number of prober.workers");
    insta::assert_snapshot!(reported("prober: {maxPerNode: 100001}"), @"config.yaml:1:22: prober.maxPerNode: must be at most 100000, not 100001");
    insta::assert_snapshot!(reported("prober: {execGrace: 99ms}"), @"config.yaml:1:21: prober.execGrace: must be at least 100ms, not 99ms");
    insta::assert_snapshot!(reported("prober: {execGrace: 1h}"), @"config.yaml:1:21: prober.execGrace: must be at most 10m0s, not 1h0m0s");
    insta::assert_snapshot!(reported("prober: {execGrace: '5'}"), @r#"config.yaml:1:21: prober.execGrace: "5": the unit is missing: write a duration such as 250ms, 5s or 1m30s"#);
    insta::assert_snapshot!(reported("prober: {execMode: sesion}"), @r#"config.yaml:1:20: prober.execMode: "sesion" is not one of sync, session, never"#);
    insta::assert_snapshot!(reported("prober: {execMode: 5}"), @"config.yaml:1:20: prober.execMode: Invalid value: 5: must be a string: put it in quotes");
    insta::assert_snapshot!(reported("prober: {nodeIP: 0.0.0.0}"), @"config.yaml:1:18: prober.nodeIP: 0.0.0.0 is not the address of a node");
    insta::assert_snapshot!(reported("act: {maxPerMinute: 0, maxConcurrent: 65, gracePeriod: 1999ms, restartOnExit: sometimes}"), @r#"
    config.yaml:1:21: act.maxPerMinute: must be at least 1, not 0
    config.yaml:1:39: act.maxConcurrent: must be at most 64, not 65
    config.yaml:1:56: act.gracePeriod: must be at least 2s, not 1.999s
    config.yaml:1:79: act.restartOnExit: "sometimes" is not one of never, onFailure, always
    "#);
    insta::assert_snapshot!(reported("act: {enabled: on, dryRun: 1, namespaces: lab, maxPerMinute: 601, gracePeriod: 61m}"), @r#"
    config.yaml:1:16: act.enabled: Invalid value: "on": must be true or false, as in YAML 1.2
    config.yaml:1:28: act.dryRun: Invalid value: 1: must be true or false
    config.yaml:1:43: act.namespaces: Invalid value: "lab": must be a list of strings
    config.yaml:1:62: act.maxPerMinute: must be at most 600, not 601
    config.yaml:1:80: act.gracePeriod: must be at most 1h0m0s, not 1h1m0s
    "#);
    insta::assert_snapshot!(reported("state: var"), @r#"config.yaml:1:8: state: "var" is not an absolute path"#);
}

#[test]
fn a_group_that_is_not_there_is_told_with_its_place_and_all_else() {
    insta::assert_snapshot!(reported("listen: 5\napi: {group: nobodies}\n"), @r#"
    config.yaml:1:9: listen: Invalid value: 5: write unix:///PATH
    config.yaml:2:14: api.group: the group "nobodies" does not exist on this machine: create it, or name another
    "#);
    let variable = environment(&[("CRIPROBE_API_GROUP", "nobodies")]);
    insta::assert_snapshot!(resolved("", &variable).unwrap_err(), @r#"CRIPROBE_API_GROUP: the group "nobodies" does not exist on this machine: create it, or name another"#);
}

#[test]
fn a_file_that_is_no_map_is_told_in_one_line() {
    insta::assert_snapshot!(reported("listen"), @r#"config.yaml:1:1: Invalid value: "listen": must be a map of keys and values"#);
    insta::assert_snapshot!(reported("listen: [\n"), @"config.yaml:1:9: not valid YAML or JSON: unclosed bracket '['");
    insta::assert_snapshot!(reported("log: {level: info}\nlog: {level: warn}\n"), @r#"config.yaml:2:1: not valid YAML or JSON: "log" is written twice"#);
    insta::assert_snapshot!(reported(&"#".repeat(MAX_FILE + 1)), @"config.yaml: 1048577 bytes, but at most 1048576 are allowed");
}

#[test]
fn each_mode_of_exec_is_read_by_its_name() {
    for mode in ExecModeSetting::ALL {
        let text = format!("prober: {{execMode: {}}}", mode.as_str());
        assert_eq!(resolved(&text, &Overrides::default()).unwrap().prober.exec_mode, mode);
    }
}

#[test]
fn errors_of_flags_and_variables_are_told_by_their_name() {
    insta::assert_snapshot!(told_of_flags(&[(Key::Listen, "x.sock"), (Key::LogLevel, "loud"), (Key::ApiListen, "")]), @r#"
    --api: empty: write unix:///PATH
    --listen: "x.sock" is not an absolute path: write unix:///PATH
    --log-level: "loud" is not a log level: one of error, warn, info, debug, trace
    "#);
    let environment = environment(&[
        ("CRIPROBE_PROBER_WORKERS", "many"),
        ("CRIPROBE_STATE", "x"),
        ("CRIPROBE_PROBER_EXEC_MODE", "Session"),
    ]);
    insta::assert_snapshot!(resolved("", &environment).unwrap_err(), @r#"
    CRIPROBE_PROBER_EXEC_MODE: "Session" is not one of sync, session, never
    CRIPROBE_PROBER_WORKERS: "many" is not a whole number
    CRIPROBE_STATE: "x" is not an absolute path
    "#);
}

#[test]
fn no_two_sockets_are_the_same() {
    insta::assert_snapshot!(told_of_flags(&[(Key::Listen, "/run/containerd//containerd.sock")]), @"--listen: /run/containerd//containerd.sock is the runtime's own socket: choose another one for criprobe");
    insta::assert_snapshot!(told_of_flags(&[(Key::Runtime, "/run/criprobe/criprobe.sock")]), @"--runtime: /run/criprobe/criprobe.sock is the runtime's own socket: choose another one for criprobe");
    insta::assert_snapshot!(reported("listen: /tmp/x\nruntime: /tmp/./x\n"), @"config.yaml:2:10: runtime: /tmp/x is the runtime's own socket: choose another one for criprobe");
    insta::assert_snapshot!(reported("api: {listen: /run/criprobe/criprobe.sock}"), @"config.yaml:1:15: api.listen: /run/criprobe/criprobe.sock is already the socket of listen: use another path");
    insta::assert_snapshot!(reported("api: {listen: /run/containerd/containerd.sock}"), @"config.yaml:1:15: api.listen: /run/containerd/containerd.sock is already the socket of runtime: use another path");
}

#[test]
fn a_named_file_must_be_readable() {
    let folder = tempfile::tempdir().unwrap();
    let load = |path: &Path| match load(Some(path), &Overrides::default(), &groups) {
        Ok(loaded) => format!("ok {:?}", loaded.config.log.level),
        Err(errors) => errors.to_string().replace(&folder.path().display().to_string(), "DIR"),
    };
    let file = folder.path().join("c.yaml");
    insta::assert_snapshot!(load(&file), @"DIR/c.yaml: cannot read the configuration: No such file or directory (os error 2)");
    insta::assert_snapshot!(load(folder.path()), @"DIR: cannot read the configuration: it is a folder, not a regular file");
    fs::write(&file, b"log: {level: \xff}").unwrap();
    insta::assert_snapshot!(load(&file), @"DIR/c.yaml:1:14: not UTF-8 text: the byte 0xff is not allowed here: save the file as UTF-8");
    fs::write(&file, "log: {level: warn}\r\n").unwrap();
    insta::assert_snapshot!(load(&file), @"ok Warn");
}

proptest! {
    #[test]
    fn no_file_panics_and_every_refusal_has_a_reason(
        text in prop_oneof![any::<String>(), "((listen|api|prober|log|workers|x): ?|[-{}\\[\\],0-9\n ]){0,20}"],
    ) {
        if let Err(reported) = resolved(&text, &Overrides::default()) {
            prop_assert!(reported.lines().all(|line| line.starts_with("config.yaml") && line.len() > 20), "{}", reported);
        }
    }
}

#[test]
fn a_variable_that_is_no_setting_is_noted_with_the_one_that_was_meant() {
    let names = [
        "CRIPROBE_API",
        "CRIPROBE_CONFIG",
        "CRIPROBE_PROBER_WORKRES",
        "CRIPROBE_log_level",
        "CRIPROBE_WHATEVER",
        "CRIPROBE_FOO",
        "CRIPROBE_APY",
        "CRIPROBE_SERVICE_HOST",
        "CRIPROBE_PORT_80_TCP",
        "PATH",
        "XCRIPROBE_API",
    ];
    insta::assert_snapshot!(unknown_variables(names.map(str::to_owned)).join("\n"), @r#"
    "CRIPROBE_APY" is not a setting: did you mean CRIPROBE_API?
    "CRIPROBE_FOO" is not a setting
    "CRIPROBE_PROBER_WORKRES" is not a setting: did you mean CRIPROBE_PROBER_WORKERS?
    "CRIPROBE_WHATEVER" is not a setting
    "CRIPROBE_log_level" is not a setting: did you mean CRIPROBE_LOG_LEVEL?
    "#);
    let many = unknown_variables((0..1_000).map(|number| format!("CRIPROBE_{}{number}", "\n".repeat(1_000))));
    assert!(many.len() == MAX_UNKNOWN && many.iter().all(|line| line.len() < 200 && !line.contains('\n')));
}

#[test]
fn a_tcp_address_is_an_address_with_a_port_and_names_are_not_looked_up() {
    for (text, address) in [
        ("127.0.0.1:9090", Some("127.0.0.1:9090")),
        ("localhost:9090", Some("127.0.0.1:9090")),
        ("[::1]:9090", Some("[::1]:9090")),
        (":9090", Some("[::]:9090")),
        ("0.0.0.0:0", Some("0.0.0.0:0")),
        ("[fe80::1%2]:9090", Some("[fe80::1%2]:9090")),
        ("9090", None),
        (":", None),
        (":+9090", None),
        (":99999", None),
        ("localhost", None),
        ("localhost:", None),
        ("node-1:9090", None),
        ("127.0.0.1", None),
        ("::1:9090", None),
        ("http://127.0.0.1:9090", None),
        ("unix:///run/x.sock", None),
        (" 127.0.0.1:9090", None),
    ] {
        let loaded = resolved("", &environment(&[("CRIPROBE_API_HTTP", text)]));
        assert_eq!(
            loaded.ok().map(|config| config.api.http.unwrap().to_string()).as_deref(),
            address,
            "{text}"
        );
    }
    assert_eq!(resolved("api: {http: ''}", &Overrides::default()).unwrap().api.http, None);
}
