//! Files that are wrong in every way we know: each is reported in words, with its place, and nothing of it is applied.

use std::time::Duration;

use super::*;

/// A rule whose probe is this.
fn rule(probe: &str) -> String {
    format!("rules:\n  - name: web\n    match: {{pod: web}}\n    liveness: {probe}\n")
}

fn rows() -> Vec<(&'static str, Vec<u8>)> {
    let text = |text: &str| text.as_bytes().to_vec();
    let exec = |keys: &str| rule(&format!("{{exec: {{command: [x]}}, {keys}}}")).into_bytes();
    let mut bomb = String::from("a: &a [x, x, x, x, x, x, x, x, x]\n");
    for (one, before) in "bcdefghi".chars().zip("abcdefgh".chars()) {
        bomb += &format!("{one}: &{one} [{}]\n", vec![format!("*{before}"); 9].join(", "));
    }
    vec![
        ("aliases that explode", bomb.into_bytes()),
        ("an alias of an alias in a rule", text("rules: [&r {name: a, match: &m {pod: x}, liveness: *r}]")),
        ("10 MB", vec![b'#'; 10_000_000]),
        ("deep lists", vec![b'['; 100_000]),
        ("deep maps", "{a: ".repeat(20_000).into_bytes()),
        (
            "deep blocks",
            (0..40).flat_map(|depth| format!("{}a:\n", " ".repeat(depth)).into_bytes()).collect(),
        ),
        ("a key twice", text("log: {level: info}\nprober: {}\nlog: {level: warn}\n")),
        ("a key of a rule twice", text("rules:\n  - name: a\n    name: b\n")),
        ("a tab for indentation", text("log:\n\tlevel: info\n")),
        ("a tab in a rule", text("rules:\n  - name: a\n\t  match: {}\n")),
        ("a byte order mark", text("\u{feff}log: {level: info}\n")),
        ("CRLF", text("log:\r\n  level: info\r\n")),
        ("CRLF and an error", text("log:\r\n  level: loud\r\n")),
        ("no UTF-8", b"log:\n  level: \xe9\n".to_vec()),
        ("UTF-16", b"\xff\xfel\0o\0g\0".to_vec()),
        ("a zero byte", b"log: {level: \0}\n".to_vec()),
        ("an executable", b"\x7fELF\x02\x01\x01\0\0\0".to_vec()),
        ("an unknown key", text("prober: {worker: 5}\n")),
        ("a section that is a text", text("prober: fast\n")),
        ("a list for all", text("- listen: /tmp/x\n")),
        ("a second document", text("log: {}\n---\nlog: {}\n")),
        ("a bracket that stays open", text("prober: {workers: 5\n")),
        ("a number as a text", text("prober: {workers: \"5\"}\n")),
        ("a text as a number", text("listen: 5\n")),
        ("half a worker", text("prober: {workers: 1.5}\n")),
        ("too many digits", text("prober: {workers: 99999999999999999999999}\n")),
        ("a negative number", text("prober: {maxPerPod: -3}\n")),
        ("a duration without unit", text("prober: {minPeriod: 5}\n")),
        ("a duration without unit, as a text", text("prober: {minPeriod: \"5\"}\n")),
        ("a negative duration", text("prober: {minPeriod: -5s}\n")),
        ("a rule's number as a text", exec("periodSeconds: '5'")),
        ("a rule's negative number", exec("periodSeconds: -5")),
        ("a rule's duration without unit", exec("period: 5")),
        ("a rule's negative duration", exec("timeout: -1s")),
        ("a rule's period that is too short", exec("period: 1ms")),
        ("a rule's unknown key", exec("failureThreshhold: 5")),
        ("a rule's unknown tag", rule("!probe {}").into_bytes()),
        ("a rule that is escape codes", text("rules:\n  - {name: \"\\e[2J\", \"\\e[31m\": 1}\n")),
    ]
}

#[test]
fn every_bad_file_is_told_in_words_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.yaml");
    let mut reported = String::new();
    for (name, bytes) in rows() {
        fs::write(&file, bytes).unwrap();
        let loaded = load(Some(&file), &Overrides::default(), &groups);
        let reason = loaded.map_or_else(|errors| errors.to_string(), |_| "ok".to_owned());
        reported += &format!("{name}:\n  {}\n", reason.replace('\n', "\n  "));
    }
    insta::assert_snapshot!(reported.replace(&folder.path().display().to_string(), "DIR"));
}

#[test]
fn what_is_wrong_is_told_up_to_a_bound() {
    let text = format!("rules:\n{}", "- {}\n".repeat(10_000));
    let errors = loaded(&[("c.yaml", &text)], &Overrides::default()).unwrap_err();
    assert_eq!(errors.lines().count(), 101);
    insta::assert_snapshot!(errors.lines().last().unwrap(), @"c.yaml:35:3: 29901 more errors from here on");
}

/// Any bytes; and such as look like a configuration with rules.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let words = "(rules|name|match|pod|labels|enforce|liveness|exec|command|period|httpGet|port|prober|allowHosts\
                 |&a|\\*a|<<|true|-5|5s|\"\\*\"|10.0.0.0/8|x)";
    let pattern = format!("({words}(: |, |\\n|\\n  - |\\n    | )?|[-{{}}\\[\\]:,# \\n\\t]){{0,40}}");
    let text =
        proptest::string::string_regex(&pattern).expect("the pattern is right").prop_map(String::into_bytes);
    prop_oneof![proptest::collection::vec(any::<u8>(), 0..200), text]
}

proptest! {
    #[test]
    fn no_bytes_of_a_file_panic_and_every_refusal_has_a_reason(bytes in bytes()) {
        let began = crate::clock::now();
        let raw = match crate::document::decode(&bytes) {
            Ok(text) => Raw::read(text, Path::new("c.yaml")),
            Err(error) => Raw::malformed(Path::new("c.yaml"), &error),
        };
        if let Err(errors) = resolve::resolve(&[raw], &Overrides::default(), &groups) {
            for line in errors.to_string().lines() {
                prop_assert!(line.starts_with("c.yaml") && line.len() > 12, "{}", line);
                prop_assert!(!line.chars().any(char::is_control), "{:?}", line);
            }
        }
        prop_assert!(crate::clock::now() - began < Duration::from_secs(20));
    }
}
