//! The formats that people may ask for, and what machines get: views in, text out.

use serde::Serialize;

use crate::report::printable::is_steering;

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// For people, as wide as the terminal; uncut elsewhere
    Table,
    /// For people, all of it, uncut
    Wide,
    /// For machines; of streams, a record a line
    Json,
    /// For machines; of streams, a document each
    Yaml,
}

/// One view as indented JSON.
pub(super) fn json<T: Serialize>(view: &T) -> String {
    let json =
        serde_json::to_string_pretty(view).expect("views are maps with text keys, which always serialise");
    inert(&json) + "\n"
}

/// One view as a line of JSON.
pub(super) fn json_line<T: Serialize>(view: &T) -> String {
    let json = serde_json::to_string(view).expect("views are maps with text keys, which always serialise");
    inert(&json) + "\n"
}

/// One view as YAML.
pub(super) fn yaml<T: Serialize>(view: &T) -> String {
    let mut yaml =
        serde_saphyr::to_string(view).expect("views are maps with text keys, which always serialise");
    if !yaml.ends_with('\n') {
        yaml.push('\n');
    }
    yaml
}

/// One view of a stream as a YAML document.
pub(super) fn yaml_document<T: Serialize>(view: &T) -> String {
    format!("---\n{}", yaml(view))
}

/// The same JSON, with what could steer a terminal as escapes: only within strings can such characters be.
fn inert(json: &str) -> String {
    let mut inert = String::with_capacity(json.len());
    for character in json.chars() {
        if character != '\n' && is_steering(character) {
            let mut units = [0; 2];
            inert.extend(character.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            inert.push(character);
        }
    }
    inert
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn json_says_the_same_without_steering_a_terminal() {
        assert_eq!(json_line(&"a\u{9b}b\n\u{202e}\u{e0001}"), "\"a\\u009bb\\n\\u202e\\udb40\\udc01\"\n");
    }

    proptest! {
        #[test]
        fn what_machines_get_is_what_was_there(text in any::<String>()) {
            let view = BTreeMap::from([("output".to_owned(), text)]);
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
