//! The output formats for people and machines: views in, text out.

use serde::Serialize;

use crate::report::printable::{is_steering, printable_json};

mod value;

use value::Value;

const INVARIANT: &str = "views are maps with text keys, which always serialise";

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// For people: cut to the width of a terminal
    Table,
    /// For people: everything, nothing is cut
    Wide,
    /// For machines: one record per line in streams
    Json,
    /// For machines: one document per record in streams
    Yaml,
}

/// One view as indented JSON.
pub(super) fn json<T: Serialize>(view: &T) -> String {
    let json = serde_json::to_string_pretty(&Value::of(&written(view))).expect(INVARIANT);
    printable_json(&json).into_owned() + "\n"
}

/// One view as a line of JSON.
pub(super) fn json_line<T: Serialize>(view: &T) -> String {
    printable_json(&written(view)).into_owned() + "\n"
}

/// One view as YAML.
pub(super) fn yaml<T: Serialize>(view: &T) -> String {
    value_as_yaml(&Value::of(&written(view)))
}

/// One view as the API writes it: all formats are made of this, so that the code that writes a view exists once.
fn written<T: Serialize>(view: &T) -> String {
    serde_json::to_string(view).expect(INVARIANT)
}

fn value_as_yaml(value: &Value) -> String {
    let mut yaml = serde_saphyr::to_string(value).expect(INVARIANT);
    if yaml.contains(|character| character != '\n' && is_steering(character)) {
        // The crate escapes only some of these characters, and only where it needs quotes for another reason.
        let options = serde_saphyr::ser_options! { quote_all: true };
        yaml = inert(&serde_saphyr::to_string_with_options(value, options).expect(INVARIANT));
    }
    if !yaml.ends_with('\n') {
        yaml.push('\n');
    }
    yaml
}

/// One view of a stream as a YAML document.
pub(super) fn yaml_document<T: Serialize>(view: &T) -> String {
    format!("---\n{}", yaml(view))
}

/// The same YAML with terminal control characters as escapes. All texts in it except keys are in quotes and on one
/// line.
fn inert(quoted: &str) -> String {
    let mut inert = String::with_capacity(quoted.len());
    for line in quoted.lines() {
        let before = line.len() - line.trim_start_matches([' ', '-']).len();
        let (before, rest) = line.split_at(before);
        let (key, value) = rest.split_at(end_of_scalar(rest));
        inert.push_str(before);
        push_inert(key, &mut inert);
        let separator = value.len() - value.trim_start_matches([':', ' ']).len();
        let (separator, value) = value.split_at(separator);
        inert.push_str(separator);
        push_inert(value, &mut inert);
        inert.push('\n');
    }
    inert
}

/// Where the scalar ends that a line begins with.
fn end_of_scalar(line: &str) -> usize {
    let end = match line.as_bytes().first() {
        // What is in single quotes holds none of these: it would be in double quotes.
        Some(b'\'') => line[1..].find('\'').map(|at| at + 2),
        Some(b'"') => {
            let mut is_escaped = false;
            let is_end = |byte: u8| {
                let is_end = byte == b'"' && !is_escaped;
                is_escaped = byte == b'\\' && !is_escaped;
                is_end
            };
            line[1..].bytes().position(is_end).map(|at| at + 2)
        }
        _ => line.find(": ").or_else(|| line.ends_with(':').then(|| line.len() - 1)),
    };
    end.unwrap_or(line.len())
}

/// One scalar: in double quotes, if something in it has to be escaped.
fn push_inert(scalar: &str, into: &mut String) {
    if !scalar.contains(is_steering) {
        return into.push_str(scalar);
    }
    let is_double = scalar.starts_with('"');
    let text = if scalar.starts_with('\'') { &scalar[1..scalar.len() - 1] } else { scalar };
    into.push_str(if is_double { "" } else { "\"" });
    for character in text.chars() {
        match u32::from(character) {
            _ if matches!(character, '"' | '\\') && !is_double => into.extend(['\\', character]),
            _ if !is_steering(character) => into.push(character),
            code @ ..0x1_0000 => into.push_str(&format!("\\u{code:04x}")),
            code => into.push_str(&format!("\\U{code:08x}")),
        }
    }
    into.push_str(if is_double { "" } else { "\"" });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_of_every_kind_stay_what_and_where_they_are() {
        let json = r#"{"b":[null,true,-1,18446744073709551615,0.031,10.0,"x",[],{}],"a":{"d":"","c":1}}"#;
        assert_eq!(serde_json::to_string(&Value::of(json)).unwrap(), json);
    }

    #[test]
    fn json_says_the_same_without_steering_a_terminal() {
        assert_eq!(json_line(&"a\u{9b}b\n\u{202e}\u{e0001}"), "\"a\\u009bb\\n\\u202e\\udb40\\udc01\"\n");
    }

    /// Any text, including control characters and characters that are special in YAML.
    fn texts() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<String>(),
            "[a \"'\\\\:#\n\t|>&*-]{0,8}[\u{202e}\u{200b}\u{ad}\u{e0041}a\"'\\\\\n -]{0,8}"
        ]
    }

    #[test]
    fn row_02_yaml_says_the_same_without_steering_a_terminal() {
        let view =
            BTreeMap::from([("a", "\u{202e}x: \"\u{e0041}\""), ("b", "plain"), ("c", "it's \\ \u{2066}")]);
        assert_eq!(
            yaml(&view),
            "a: \"\\u202ex: \\\"\\U000e0041\\\"\"\nb: 'plain'\nc: \"it's \\\\ \\u2066\"\n"
        );
        assert_eq!(yaml(&BTreeMap::from([("a", "x\ny\n")])), "a: |\n  x\n  y\n");
    }

    proptest! {
        #[test]
        fn what_machines_get_is_what_was_there(text in texts(), key in texts()) {
            let view = BTreeMap::from([("output".to_owned(), text), (format!("key {key}"), "x".to_owned())]);
            let line = json_line(&view);
            prop_assert!(!line.trim_end().contains(is_steering));
            for json in [line, json(&view)] {
                prop_assert_eq!(&serde_json::from_str::<BTreeMap<String, String>>(&json).unwrap(), &view);
            }
            let yaml = yaml(&view);
            prop_assert!(!yaml.chars().any(|c| c != '\n' && is_steering(c)), "{:?}", yaml);
            let back: BTreeMap<String, String> = serde_saphyr::from_str(&yaml).unwrap();
            prop_assert_eq!(&back["output"], &view["output"], "{:?}", yaml);
        }
    }
}
