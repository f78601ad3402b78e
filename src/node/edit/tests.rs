//! Texts as people and tools write them: what becomes of each, and which are refused.

use proptest::prelude::*;

use super::*;

const KEY: &str = "containerRuntimeEndpoint";
const NEW: &str = "unix:///run/criprobe/criprobe.sock";

/// KEY and NEW, OLD and KIND stand for what is too long here.
fn long(text: &str) -> String {
    text.replace("KIND", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration")
        .replace("KEY", KEY)
        .replace("NEW", NEW)
        .replace("OLD", "unix:///run/containerd/containerd.sock")
}

#[test]
fn one_value_changes_and_all_else_stays() {
    for (before, after) in [
        ("KIND\nKEY: OLD\na: 1\n", "KIND\nKEY: NEW\na: 1\n"),
        ("KIND\nKEY:   OLD   # as \"kubeadm\" wrote it\n", "KIND\nKEY:   NEW   # as \"kubeadm\" wrote it\n"),
        ("KIND\nKEY: \"OLD\" # x\n", "KIND\nKEY: \"NEW\" # x\n"),
        ("KIND\nKEY: 'OLD'\n", "KIND\nKEY: 'NEW'\n"),
        ("KIND\n\"KEY\": \"OLD\"\n", "KIND\n\"KEY\": \"NEW\"\n"),
        ("KIND\nKEY : OLD\n", "KIND\nKEY : NEW\n"),
        ("KIND\nKEY: 'it''s'\n", "KIND\nKEY: 'NEW'\n"),
        ("KIND\nKEY: \"a\\\"b\" # \"\n", "KIND\nKEY: \"NEW\" # \"\n"),
        ("KIND\r\nKEY: OLD\r\na: b\r\n", "KIND\r\nKEY: NEW\r\na: b\r\n"),
        ("KIND\nKEY: OLD", "KIND\nKEY: NEW"),
        ("\u{feff}KIND\nKEY: OLD\n", "\u{feff}KIND\nKEY: NEW\n"),
        ("\u{feff}KEY: OLD\nKIND\n", "\u{feff}KEY: NEW\nKIND\n"),
        ("# é\n---\nKIND\né: \"ü\" # ß\nKEY: OLD\n", "# é\n---\nKIND\né: \"ü\" # ß\nKEY: NEW\n"),
        ("  a: 1\n  KEY: OLD\n", "  a: 1\n  KEY: NEW\n"),
        ("KIND\nKEY:\na: 1\n", "KIND\nKEY: NEW\na: 1\n"),
        ("KIND\nKEY: # none\na: 1\n", "KIND\nKEY: NEW # none\na: 1\n"),
        ("KIND\nKEY: ~\n", "KIND\nKEY: NEW\n"),
        ("KIND\nKEY: \"\"\n", "KIND\nKEY: \"NEW\"\n"),
        ("{\"KEY\":\"OLD\",\"a\":[1]}", "{\"KEY\":\"NEW\",\"a\":[1]}"),
        ("{\"a\": 1,\n \"KEY\": \"OLD\"\n}\n", "{\"a\": 1,\n \"KEY\": \"NEW\"\n}\n"),
        ("{a: 1, KEY: OLD, b: 2}\n", "{a: 1, KEY: NEW, b: 2}\n"),
        ("# all in one\n{a: 1, KEY: OLD}\n", "# all in one\n{a: 1, KEY: NEW}\n"),
        ("a: &one OLD\nKEY: *one\n", "a: &one OLD\nKEY: NEW\n"),
        ("KEY: &one OLD\na: 1\n", "KEY: &one NEW\na: 1\n"),
        ("KEY: !!str OLD\n", "KEY: !!str NEW\n"),
        ("a:\n  KEY: inner\nKEY: OLD\n", "a:\n  KEY: inner\nKEY: NEW\n"),
        ("a: |\n  KEY: text\nKEY: OLD\n", "a: |\n  KEY: text\nKEY: NEW\n"),
        ("KEY: NEW\n", "KEY: NEW\n"),
    ] {
        let edited = set(&long(before), KEY, Some(NEW)).unwrap_or_else(|error| panic!("{before}: {error}"));
        assert_eq!(edited, long(after), "{before}");
    }
}

#[test]
fn a_missing_setting_is_added() {
    for (before, after) in [
        ("KIND\na: 1\n", "KIND\nKEY: NEW\na: 1\n"),
        ("kind: X\n# of a\na: 1\napiVersion: v1\n", "kind: X\n# of a\na: 1\napiVersion: v1\nKEY: NEW\n"),
        ("kind: X\r\na: 1\r\n", "kind: X\r\nKEY: NEW\r\na: 1\r\n"),
        ("kind: X", "kind: X\nKEY: NEW"),
        ("# c\n---\n  a: 1\n  b: 2\n", "# c\n---\n  KEY: NEW\n  a: 1\n  b: 2\n"),
        ("kind: |\n  X\na: 1\n", "KEY: NEW\nkind: |\n  X\na: 1\n"),
        ("{\"kind\": \"X\"}\n", "{\"KEY\": \"NEW\", \"kind\": \"X\"}\n"),
        ("{\n  \"kind\": \"X\"\n}", "{\n  \"KEY\": \"NEW\", \"kind\": \"X\"\n}"),
        ("", "KEY: NEW\n"),
        ("# nothing", "# nothing\nKEY: NEW\n"),
        ("---\n", "---\nKEY: NEW\n"),
    ] {
        let edited = set(&long(before), KEY, Some(NEW)).unwrap_or_else(|error| panic!("{before}: {error}"));
        assert_eq!(edited, long(after), "{before}");
        // And back, to a text that says the same.
        let back = set(&edited, KEY, None).unwrap_or_else(|error| panic!("{edited}: {error}"));
        let (before, back) = (long(before), back);
        let (before, back) = (Settings::read(&before).unwrap(), Settings::read(&back).unwrap());
        assert!(same_but(&before.root, &back.root, "") && back.get(KEY) == Ok(None), "{:?}", back.text);
    }
}

#[test]
fn what_was_added_is_removed_again_with_its_line() {
    for before in ["KIND\na: 1\n", "kind: X\r\na: 1\r\n", "{\"kind\": \"X\"}\n", "# nothing\n", ""] {
        let edited = set(&long(before), KEY, Some(NEW)).unwrap();
        assert_eq!(set(&edited, KEY, None).unwrap(), long(before));
    }
}

#[test]
fn what_cannot_be_changed_alone_is_refused_in_one_line() {
    for (text, says) in [
        ("KEY: &one OLD\na: *one\n", "line 1: cannot change KEY without a change of other lines"),
        ("KEY: >-\n  OLD\n", "line 1: cannot change"),
        ("a: 1\nKEY:\n  OLD\n", "line 2: cannot change"),
        ("KEY: \"OLD\\\n  more\"\n", "line 1: cannot change"),
        ("KEY: 7\n", "line 1: the value of KEY is not text"),
        ("KEY: [a]\n", "line 1: the value of KEY is not text"),
        ("{}\n", "the file: cannot change KEY"),
        ("a: 1\nKEY: OLD\nKEY: OLD\n", "\"KEY\" is written twice"),
        ("KEY: OLD\n---\nKEY: OLD\n", "a second document follows"),
        ("KEY: [\n", "not valid YAML or JSON"),
        ("- KEY\n", "not a map of settings"),
        ("text\n", "not a map of settings"),
    ] {
        let error = set(&long(text), KEY, Some(NEW)).map_err(|error| error.to_string()).expect_err(text);
        assert!(error.contains(&long(says)) && !error.contains('\n'), "{text}: {error}");
    }
}

#[test]
fn a_path_that_yaml_could_misread_is_quoted() {
    for (path, line) in [
        ("unix:///run/a b # c", "KEY: \"unix:///run/a b # c\"\n"),
        ("/run/x.sock", "KEY: /run/x.sock\n"),
        ("unix:///run/\"x\"", "KEY: \"unix:///run/\\\"x\\\"\"\n"),
    ] {
        assert_eq!(set(&long("KEY: OLD\n"), KEY, Some(path)).unwrap(), long(line));
    }
}

#[test]
fn only_lines_that_differ_are_shown() {
    let shown = |before: &str, after: &str| {
        let hunks = hunks(before, after).into_iter();
        hunks
            .map(|hunk| format!("{} -{} +{}", hunk.line, hunk.old.join("|"), hunk.new.join("|")))
            .collect::<Vec<_>>()
    };
    assert_eq!(shown("a\nb\nc\nd\n", "a\nB\nc\nD\n"), ["2 -b +B", "4 -d +D"]);
    assert_eq!(shown("a\r\nc\r\n", "a\r\nb\r\nc\r\n"), ["2 - +b"]);
    assert_eq!(shown("a\nb\nc\n", "a\nc\n"), ["2 -b +"]);
    assert_eq!(shown("a", "a\nb"), ["1 -a +a|b"]);
    assert_eq!(shown("a\n", "a\n"), [""; 0]);
}

proptest! {
    #[test]
    fn no_text_panics_and_what_is_edited_says_what_was_asked(
        text in "([a-c]|k|[:#&*!|>'\"{}\\[\\],~-]|[ \\n\\r\\t]|é){0,40}",
        is_set in any::<bool>(),
    ) {
        for text in [text.clone(), format!("k: {text}"), format!("a: 1\nk: {text}\nb: 2\n")] {
            let value = is_set.then_some("unix:///x");
            if let Ok(edited) = set(&text, "k", value) {
                let (before, after) = (Settings::read(&text).unwrap(), Settings::read(&edited).unwrap());
                prop_assert_eq!(after.get("k").unwrap(), value);
                prop_assert!(same_but(&before.root, &after.root, "k"));
            }
        }
    }
}
