//! Documents in JSON and YAML: what is read, where things stand, what is refused.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// A text that no bound of size stands against.
const LIMIT: usize = 1 << 20;

/// Names and values on one line, without places.
fn shown(node: &Node) -> String {
    match &node.value {
        Value::Null => "null".into(),
        Value::Bool(value) => value.to_string(),
        Value::Integer(value) => value.to_string(),
        Value::Float(value) => format!("{value:?}f"),
        Value::Text(value) => format!("{value:?}"),
        Value::List(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(", ")),
        Value::Map(entries) => {
            let pairs = entries.iter().map(|entry| format!("{}: {}", entry.name, shown(&entry.node)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
    }
}

fn read(text: &str) -> String {
    parse(text, LIMIT).map_or_else(|error| error.to_string(), |node| shown(&node))
}

#[test]
fn json_is_read_as_json() {
    for (text, value) in [
        (r#"{"a":1,"b":[true,null,"x",-1.5]}"#, r#"{a: 1, b: [true, null, "x", -1.5f]}"#),
        ("{\n\t\"a\":\t1,\n\t\"b\": [\n\t\t\"x\"\n\t]\n}\n", r#"{a: 1, b: ["x"]}"#),
        ("\t{\"a\":1}", "{a: 1}"),
        ("{\r\n  \"a\": 1\r\n}\r\n", "{a: 1}"),
        (r#"{"a":"\ud83d\ude00\u00e9\/\t\n\"\\\b\f"}"#, r#"{a: "😀é/\t\n\"\\\u{8}\u{c}"}"#),
        (
            r##"{"command":["sh","-c","echo \"hi\" # no: comment"]}"##,
            r##"{command: ["sh", "-c", "echo \"hi\" # no: comment"]}"##,
        ),
        (r#"{"a":{},"b":[]}"#, "{a: {}, b: []}"),
        (r#"{"a":3000000000,"b":-9223372036854775808}"#, "{a: 3000000000, b: -9223372036854775808}"),
    ] {
        assert_eq!(read(text), value, "{text}");
        assert!(serde_json::from_str::<serde_json::Value>(text).is_ok(), "this is JSON: {text}");
    }
}

#[test]
fn yaml_is_read_as_version_1_2() {
    for (text, value) in [
        ("", "null"),
        (" \n# a comment\n", "null"),
        ("---\n", "null"),
        ("\u{feff}a: 1", "{a: 1}"),
        ("a: 1\r\nb: x\r\n", r#"{a: 1, b: "x"}"#),
        ("a: 1\n...\n", "{a: 1}"),
        ("{a: 1,}", "{a: 1}"),
        (
            "[yes, on, off, no, ~, true, 'true', '5']",
            r#"["yes", "on", "off", "no", null, true, "true", "5"]"#,
        ),
        ("[0o17, 0x1f, +5, 1e3, 2026-01-01, 1:30]", r#"[15, 31, 5, 1000.0f, "2026-01-01", "1:30"]"#),
        ("a: |\n  x\n  y\n", r#"{a: "x\ny\n"}"#),
        ("1: x\ntrue: y", r#"{1: "x", true: "y"}"#),
        ("a: &x {b: 1}\nc:\n  <<: *x\n  d: *x", "{a: {b: 1}, c: {d: {b: 1}, b: 1}}"),
    ] {
        assert_eq!(read(text), value, "{text:?}");
    }
}

#[test]
fn what_cannot_be_read_is_told_with_its_place() {
    insta::assert_snapshot!(read("a: [1, 2"), @"not valid YAML or JSON (line 1, column 4): unclosed bracket '['");
    insta::assert_snapshot!(read("a:\n\tb: 1"), @"not valid YAML or JSON (line 2, column 2): tabs disallowed within this context (block indentation)");
    insta::assert_snapshot!(read("a: b: c"), @"not valid YAML or JSON (line 1, column 5): mapping values are not allowed in this context");
    insta::assert_snapshot!(read("a: 1\nb: 2\na: 3"), @r#"not valid YAML or JSON (line 3, column 1): "a" is written twice"#);
    insta::assert_snapshot!(read("a: 1\n---\nb: 2"), @"not valid YAML or JSON (line 3, column 1): a second document follows: only one is read");
    insta::assert_snapshot!(read("a: *x"), @"not valid YAML or JSON (line 1, column 4): alias references unknown anchor");
    insta::assert_snapshot!(read("a: &a [*a]"), @"not valid YAML or JSON (line 1, column 8): an alias refers to an anchor that contains it");
    insta::assert_snapshot!(read("a: !foo x"), @"not valid YAML or JSON (line 1, column 9): unsupported tag `!foo`");
    insta::assert_snapshot!(read(r#"{"a":"\ud83d"}"#), @"not valid YAML or JSON (line 1, column 6): while parsing a quoted scalar, found high surrogate without following low surrogate");
    insta::assert_snapshot!(read("a: x\u{1b}[2J"), @r"not valid YAML or JSON (line 1, column 4): unexpected character: `\u{1b}'");
    let long = parse("{a: 1}", 3).unwrap_err();
    insta::assert_snapshot!(long.to_string(), @"6 bytes, but at most 3 are allowed");
    assert_eq!(long.place(), None);
    assert_eq!(parse("a: [1, 2", LIMIT).unwrap_err().place(), Some(Place { line: 1, column: 4 }));
}

#[test]
fn every_value_knows_its_place() {
    let node = parse("a: 1\nb:\n  - x\n", LIMIT).unwrap();
    let Value::Map(entries) = &node.value else { panic!("{node:?}") };
    let Value::List(items) = &entries[1].node.value else { panic!("{node:?}") };
    let places = [node.place, entries[0].place, entries[0].node.place, entries[1].place, items[0].place];
    let places = places.map(|place| place.unwrap().to_string());
    assert_eq!(places, ["1:1", "1:1", "1:4", "2:1", "3:5"]);
}

#[test]
fn aliases_repeat_no_more_than_a_text_may_hold() {
    let text = |times: usize| format!("a: &a {}\nb: [{}]", "v".repeat(1_000), "*a, ".repeat(times));
    assert!(parse(&text(15), 16 << 10).is_ok());
    let error = parse(&text(16), 16 << 10).unwrap_err();
    assert_eq!(error.reason(), "not valid YAML or JSON: aliases repeat more than 16384 bytes of text");
}

/// Texts that grow or nest, each in about 16 KiB.
fn attacks() -> Vec<(&'static str, String)> {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..30 {
        let before = level - 1;
        bomb += &format!("a{level}: &a{level} [{}]\n", format!("*a{before}, ").repeat(9));
    }
    let merges: String = (0..400).map(|n| format!("m{n}: &m{n}\n  <<: *m{}\n", n - 1)).collect();
    vec![
        ("alias bomb", bomb),
        ("merge chain", format!("m-1: &m-1 {{a: 1}}\n{merges}")),
        ("open lists", "[".repeat(16_000)),
        ("open maps", "{a: ".repeat(4_000)),
        ("nested block lists", "- ".repeat(8_000)),
        ("nested block maps", (0..120).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect()),
        ("many keys", (0..2_500).map(|n| format!("k{n}: 1\n")).collect()),
        ("many anchors", (0..1_500).map(|n| format!("- &a{n} x\n")).collect()),
        ("many aliases", format!("- &a x\n{}", "- *a\n".repeat(3_000))),
        ("many documents", "---\n".repeat(4_000)),
        ("explicit keys", "? ".repeat(8_000)),
        ("tags", "!a ".repeat(5_000)),
        ("percent signs", "%".repeat(16_000)),
        ("quotes", "\"".repeat(16_000)),
        ("colons", ":".repeat(16_000)),
        ("long key", format!("{}: 1", "k".repeat(16_000))),
        ("comments", "#\n".repeat(8_000)),
        ("blank lines in quotes", format!("\"{}\"", "\n".repeat(16_000))),
        ("digits", "9".repeat(16_000)),
        ("folded scalar", format!(">\n{}", " \n".repeat(8_000))),
    ]
}

#[test]
fn attacks_end_soon_and_small() {
    for (name, text) in attacks() {
        let (done, finished) = std::sync::mpsc::channel();
        std::thread::Builder::new()
            .stack_size(1 << 20)
            .spawn(move || done.send(parse(&text, LIMIT).map(|node| size(&node))))
            .unwrap();
        let read = finished.recv_timeout(Duration::from_secs(10));
        let Ok(read) = read else { panic!("{name} did not end") };
        assert!(read.unwrap_or(0) <= MAX_NODES, "{name}");
    }
}

fn size(node: &Node) -> usize {
    match &node.value {
        Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Text(_) => 1,
        Value::List(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Map(entries) => 1 + entries.iter().map(|entry| size(&entry.node)).sum::<usize>(),
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in any::<String>()) {
        let _ = parse(&text, LIMIT);
    }

    #[test]
    fn no_text_of_yamls_signs_panics(text in r#"([-\[\]{},:?&*!|>'"%@`#~<=. \t\r\n\u{feff}ab01]|\n  |: |- |&a |\*a ){0,60}"#) {
        let _ = parse(&text, LIMIT);
    }

    #[test]
    fn text_written_as_json_reads_back_the_same(text in any::<String>()) {
        let json = serde_json::to_string(&[&text]).unwrap();
        let read = parse(&json, LIMIT).map(|node| node.value);
        prop_assert!(matches!(&read, Ok(Value::List(items)) if items[0].value == Value::Text(text)), "{:?}", read);
    }
}
