//! Configs of images, as tools write them and as none should: literal in, literal out.

use proptest::prelude::*;

use super::*;

/// A config with this HEALTHCHECK.
fn with(healthcheck: &str) -> Option<Healthcheck> {
    read(format!(r#"{{"architecture": "amd64", "config": {{"Healthcheck": {healthcheck}}}}}"#).as_bytes())
}

fn spec(healthcheck: &str) -> ProbeSpec {
    let outline = with(healthcheck).expect("there is one").expect("it can be used");
    outline.spec().expect("it is shared").as_ref().clone()
}

fn reason(healthcheck: &str) -> String {
    with(healthcheck).expect("there is one").expect_err("it cannot be used").reason
}

fn command(healthcheck: &str) -> Vec<String> {
    let Handler::Exec { command } = spec(healthcheck).handler else { panic!("no command") };
    command
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn an_image_without_a_healthcheck_asks_for_nothing() {
    for config in [
        "{}",
        r#"{"config": null}"#,
        r#"{"config": {}}"#,
        r#"{"config": {"Healthcheck": null}}"#,
        r#"{"config": {"Healthcheck": {}}}"#,
        r#"{"config": {"Healthcheck": {"Test": null, "Interval": -1}}}"#,
        r#"{"config": {"Healthcheck": {"Test": []}}}"#,
        r#"{"config": {"Healthcheck": {"Test": ["NONE"]}}}"#,
        r#"{"config": {"Healthcheck": {"Test": ["NONE", "x"], "Interval": "x"}}}"#,
        r#"{"container_config": {"Healthcheck": {"Test": ["CMD", "true"]}}, "config": {"healthcheck": 1}}"#,
    ] {
        assert_eq!(read(config.as_bytes()), None, "{config}");
    }
}

#[test]
fn what_is_not_given_or_zero_is_dockers_default() {
    let expected = ProbeSpec {
        kind: ProbeKind::Liveness,
        handler: Handler::Exec { command: vec!["curl".into(), "-f".into(), "http://localhost/".into()] },
        initial_delay: 30 * SECOND,
        timeout: 30 * SECOND,
        period: 30 * SECOND,
        success_threshold: 1,
        failure_threshold: 3,
        termination_grace: None,
        on_failure: OnFailure::Report,
        on_failure_command: None,
        start: None,
        timeout_before_cap: None,
        is_literal: true,
        exec_mode: None,
        reach: Reach::Declared,
    };
    let test = r#""Test": ["CMD", "curl", "-f", "http://localhost/"]"#;
    for rest in [
        "",
        r#", "Interval": 0, "Timeout": 0, "StartPeriod": 0, "StartInterval": 0, "Retries": 0"#,
        r#", "Interval": null, "Timeout": null, "StartPeriod": null, "StartInterval": null, "Retries": null"#,
        r#", "StartInterval": 7000000000, "Command": {"x": [1.5]}"#,
    ] {
        assert_eq!(spec(&format!("{{{test}{rest}}}")), expected, "{rest}");
    }
}

#[test]
fn what_is_given_counts_in_nanoseconds() {
    let all = spec(
        r#"{"Test": ["CMD", "x"], "Interval": 90000000000, "Timeout": 1500000000, "StartPeriod": 60000000000,
            "StartInterval": 2000000000, "Retries": 5}"#,
    );
    assert_eq!((all.period, all.timeout), (90 * SECOND, SECOND * 3 / 2));
    assert_eq!((all.failure_threshold, all.success_threshold), (5, 1));
    assert_eq!(all.start, Some(StartPeriod { length: 60 * SECOND, interval: 2 * SECOND }));
    assert_eq!(all.initial_delay, 2 * SECOND, "the first attempt comes an interval after the start");
    let start = spec(r#"{"Test": ["CMD", "x"], "StartPeriod": 1}"#).start;
    assert_eq!(start, Some(StartPeriod { length: Duration::from_nanos(1), interval: 5 * SECOND }));
}

#[test]
fn a_command_is_run_as_it_is_or_by_a_shell() {
    assert_eq!(command(r#"{"Test": ["CMD", "/bin/check", "$HOME", ""]}"#), ["/bin/check", "$HOME", ""]);
    assert_eq!(
        command(r#"{"Test": ["CMD-SHELL", "curl -f $URL || exit 1"]}"#),
        ["/bin/sh", "-c", "curl -f $URL || exit 1"]
    );
    assert_eq!(command(r#"{"Test": ["CMD-SHELL", "echo $0", "x"]}"#), ["/bin/sh", "-c", "echo $0", "x"]);
    let shell = |shell: &str| {
        let config =
            format!(r#"{{"config": {{"Shell": {shell}, "Healthcheck": {{"Test": ["CMD-SHELL", "x"]}}}}}}"#);
        let outline = read(config.as_bytes()).unwrap().unwrap();
        let Handler::Exec { command } = &outline.spec().unwrap().handler else { panic!() };
        command.join(" ")
    };
    assert_eq!(shell(r#"["/bin/bash", "-o", "pipefail", "-c"]"#), "/bin/bash -o pipefail -c x");
    for none in ["null", "[]", "[1]", r#""/bin/bash""#] {
        assert_eq!(shell(none), "/bin/sh -c x", "{none}");
    }
}

#[test]
fn what_cannot_be_used_says_why_all_at_once() {
    for (healthcheck, reported) in [
        ("7", "HEALTHCHECK: Invalid value: 7: must be an object"),
        (r#"["CMD", "x"]"#, "HEALTHCHECK: Invalid value: a list: must be an object"),
        (r#"{"Test": "x"}"#, "HEALTHCHECK.Test: Invalid value: \"x\": must be a list of strings"),
        (r#"{"Test": ["CMD", 1]}"#, "HEALTHCHECK.Test: Invalid value: a list: must be a list of strings"),
        (r#"{"Test": {}}"#, "HEALTHCHECK.Test: Invalid value: an object: must be a list of strings"),
        (r#"{"Test": ["CMD"]}"#, "HEALTHCHECK.Test[1]: Required value: there is no command"),
        (r#"{"Test": ["CMD-SHELL"]}"#, "HEALTHCHECK.Test[1]: Required value: there is no command"),
        (
            r#"{"Test": ["curl", "x"]}"#,
            "HEALTHCHECK.Test[0]: Invalid value: \"curl\": must be NONE, CMD or CMD-SHELL",
        ),
        (
            r#"{"Test": ["CMD", "x"], "Interval": -1, "Timeout": "30s", "StartPeriod": 1.5, "StartInterval": 99999999,
                "Retries": -3}"#,
            "HEALTHCHECK.Interval: Invalid value: -1: must be greater than or equal to 0; \
             HEALTHCHECK.Timeout: Invalid value: \"30s\": must be a whole number of nanoseconds; \
             HEALTHCHECK.StartPeriod: Invalid value: 1.5: must be a whole number of nanoseconds; \
             HEALTHCHECK.StartInterval: Invalid value: 99999999: must be at least 100ms; \
             HEALTHCHECK.Retries: Invalid value: -3: must be greater than or equal to 0",
        ),
        (
            r#"{"Test": ["CMD", "x"], "Interval": 9223372036854775807, "Timeout": 9223372036854775808, "Retries": 2147483648}"#,
            "HEALTHCHECK.Interval: Invalid value: 9223372036854775807: must be at most 2147483647 seconds; \
             HEALTHCHECK.Timeout: Invalid value: 9223372036854775808: must be a whole number of nanoseconds; \
             HEALTHCHECK.Retries: Invalid value: 2147483648: must be less than or equal to 2147483647",
        ),
        (
            r#"{"Test": ["CMD", "x"], "Interval": 1, "Timeout": 999999, "Retries": true}"#,
            "HEALTHCHECK.Interval: Invalid value: 1: must be at least 100ms; \
             HEALTHCHECK.Timeout: Invalid value: 999999: must be at least 1ms; \
             HEALTHCHECK.Retries: Invalid value: true: must be a whole number",
        ),
    ] {
        assert_eq!(reason(healthcheck), reported, "{healthcheck}");
    }
}

#[test]
fn a_config_that_cannot_be_read_says_where_and_repeats_nothing_of_it() {
    for config in [
        &b""[..],
        b"secret",
        b"[\"secret\"]",
        b"{\"config\": \"secret\"}",
        b"{\"config\": {\"Healthcheck\": 1, \"Healthcheck\": \"secret\"}}",
        b"{\"config\": \xff}",
        b"{\"config\": {}} {}",
    ] {
        let reason = read(config).unwrap().unwrap_err().reason;
        let column = reason.strip_prefix("the image's config cannot be read (line 1, column ");
        let column: usize = column.and_then(|rest| rest.strip_suffix(')')).unwrap().parse().unwrap();
        assert!(column <= config.len(), "{reason}");
    }
    let deep = format!(r#"{{"config": {{"Healthcheck": {}}}}}"#, "[".repeat(100_000));
    assert!(read(deep.as_bytes()).unwrap().is_err());
}

#[test]
fn a_config_of_just_1_mib_is_read_and_a_command_of_16_kib_used() {
    let config = |length: usize| {
        let mut config = br#"{"config": {"Healthcheck": {"Test": ["CMD", "x"]}}}"#.to_vec();
        config.resize(length, b' ');
        read(&config).unwrap()
    };
    assert!(config(MAX_CONFIG).is_ok());
    assert_eq!(config(MAX_CONFIG + 1).unwrap_err().reason, "the image's config is longer than 1048576 bytes");
    let command = |length: usize| with(&format!(r#"{{"Test": ["CMD", "{}"]}}"#, "x".repeat(length))).unwrap();
    assert!(command(16 << 10).is_ok());
    assert_eq!(
        command((16 << 10) + 1).unwrap_err().reason,
        "HEALTHCHECK.Test: Forbidden: the command is longer than 16384 bytes"
    );
}

/// One whose command has so many empty words.
fn of_words(count: usize) -> String {
    format!(r#"{{"Test": ["CMD"{}]}}"#, r#","""#.repeat(count))
}

#[test]
fn row_03_a_command_of_more_words_than_an_annotation_may_have_cannot_be_used() {
    assert_eq!(command(&of_words(512)).len(), 512);
    for count in [513, 600, 349_000] {
        let expected = format!("HEALTHCHECK.Test: Invalid value: {count}: must have at most 512 words");
        assert_eq!(reason(&of_words(count)), expected);
    }
    let empty = r#""","#.repeat(400);
    let config = format!(
        r#"{{"config": {{"Shell": [{empty} "-c"], "Healthcheck": {{"Test": ["CMD-SHELL", {empty} "x"]}}}}}}"#
    );
    let reason = read(config.as_bytes()).unwrap().unwrap_err().reason;
    assert_eq!(reason, "HEALTHCHECK.Test: Invalid value: 802: must have at most 512 words");
    assert_eq!(with(&of_words(349_000).replace("CMD", "NONE")), None);
    assert!(self::reason(&of_words(9000).replace("CMD", "true")).contains("must be NONE, CMD or CMD-SHELL"));
}

#[test]
fn row_03_whatever_a_config_contains_a_healthcheck_is_small() {
    let words = |count: usize, word: &str| format!("[\"CMD\"{}]", format!(",\"{word}\"").repeat(count));
    for test in [
        words(512, &"x".repeat(32)),
        words(512, ""),
        words(100_000, ""),
        words(1000, &"\u{e9}".repeat(200)),
        format!("[[{}]]", words(100_000, "")),
        format!("{{\"Test\": {}}}", words(100_000, "")),
        format!("\"{}\"", "x".repeat(400_000)),
        format!("[\"{}\"]", "x".repeat(400_000)),
    ] {
        let healthcheck = with(&format!("{{\"Test\": {test}, \"x\": {test}}}")).expect("there is one");
        assert!(weight(&healthcheck) < 64 << 10, "{}", weight(&healthcheck));
    }
}

/// Some JSON, nested or not.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0i64..100_000_000_000).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,80}".prop_map(Value::from),
        prop::collection::vec("(CMD|CMD-SHELL|NONE|.{0,9})", 0..4).prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::hash_map("Test|x", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_bytes_are_nothing_or_a_reason_in_one_line(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Some(Err(Invalid { reason, .. })) = read(&bytes) {
            prop_assert!(!reason.is_empty() && !reason.chars().any(char::is_control));
        }
    }

    #[test]
    fn any_healthcheck_is_valid_or_has_a_reason_in_one_line(
        fields in prop::collection::hash_map("Test|Interval|Timeout|StartPeriod|StartInterval|Retries", value(), 0..7),
    ) {
        let healthcheck = serde_json::to_string(&fields).unwrap();
        match with(&healthcheck) {
            None => {}
            Some(Err(Invalid { reason, .. })) => {
                prop_assert!(!reason.is_empty() && !reason.chars().any(char::is_control), "{:?}", reason);
                prop_assert!(reason.len() < 4096);
            }
            Some(Ok(outline)) => {
                let spec = outline.spec().unwrap();
                let Handler::Exec { command } = &spec.handler else { panic!("no command") };
                prop_assert!(!command.is_empty() && spec.is_literal && spec.on_failure == OnFailure::Report);
                prop_assert!(spec.period >= MIN_PERIOD && spec.timeout >= MIN_TIMEOUT && spec.failure_threshold >= 1);
                prop_assert!(spec.start.is_none_or(|start| start.interval >= MIN_PERIOD && !start.length.is_zero()));
            }
        }
    }
}
