//! Input that is no good: each row is reported with a place, in bounded time, and never crashes.

use std::time::Duration;

use super::*;

/// A manifest with one annotation of ours and one probe of the kubelet's.
fn pod(annotation: &str, probe: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n  annotations:\n    liveness.criprobe.dev/app: {annotation}\n\
         spec:\n  containers:\n  - name: app\n    readinessProbe: {probe}\n"
    )
}

const GOOD: &str = "{exec: {command: [x]}}";

/// Aliases that repeat each other, ten at a level.
fn bomb() -> String {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..30 {
        text += &format!("a{level}: &a{level} [{}]\n", format!("*a{}, ", level - 1).repeat(9));
    }
    text
}

fn rows() -> Vec<(&'static str, Vec<u8>)> {
    let in_annotation = |text: &str| pod(&format!("'{text}'"), GOOD).into_bytes();
    let in_probe = |text: &str| pod(&format!("'{GOOD}'"), text).into_bytes();
    let text = |text: &str| text.as_bytes().to_vec();
    vec![
        ("empty", vec![]),
        ("comments only", text("# nothing\n---\n# here\n")),
        ("binary", text("\u{7f}ELF\u{2}\u{1}\u{1}\0")),
        ("compressed", vec![0x1f, 0x8b, 8, 0]),
        ("UTF-16", b"\xff\xfea\0:\0".to_vec()),
        ("not UTF-8", [&b"apiVersion: v1\nkind: P\xe9d\n"[..]].concat()),
        ("a byte order mark", [b"\xef\xbb\xbf".to_vec(), in_annotation("{exec: {}}")].concat()),
        ("CRLF", pod("'{exec: {}}'", GOOD).replace('\n', "\r\n").into_bytes()),
        (
            "CRLF in a block",
            pod("|\n      exec:\n        comand: [x]", GOOD).replace('\n', "\r\n").into_bytes(),
        ),
        ("tabs", text("apiVersion: v1\nkind: Pod\nmetadata:\n\tname: x\n")),
        ("tabs in an annotation", pod("|\n      exec:\n      \tcommand: [x]", GOOD).into_bytes()),
        ("a key twice", text("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nkind: Pod\n")),
        ("a key twice in an annotation", in_annotation("{exec: {command: [x]}, exec: {command: [y]}}")),
        (
            "an annotation twice",
            text("apiVersion: v1\nkind: Pod\nmetadata:\n  annotations:\n    a: b\n    a: c\n"),
        ),
        ("10 MB", vec![b'x'; 10_000_000]),
        ("aliases that explode", bomb().into_bytes()),
        (
            "aliases that explode in an annotation",
            pod(&format!("|\n      {}", bomb().trim_end().replace('\n', "\n      ")), GOOD).into_bytes(),
        ),
        ("an alias in its own anchor", text("a: &a [*a]\n")),
        ("an unknown alias", text("a: *b\n")),
        ("deep lists", text(&"[".repeat(100_000))),
        ("deep maps", text(&(0..200).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect::<String>())),
        ("deep in an annotation", in_annotation(&"[".repeat(8_000))),
        (
            "an annotation of 17 KiB",
            in_annotation(&format!("{{exec: {{command: [{}]}}}}", "x".repeat(17 << 10))),
        ),
        ("an unclosed bracket", text("a: [1, 2\n")),
        ("an unclosed quote", text("a: 'x\n")),
        ("a second document that is broken", [pod("'x'", GOOD).into_bytes(), text("---\na: [\n")].concat()),
        ("a foreign tag", text("a: !vault x\n")),
        (
            "a template",
            text("apiVersion: v1\nkind: {{ .Values.kind }}\n{{- if .Values.x }}\nspec: {}\n{{- end }}\n"),
        ),
        ("plain words", text("hello world\n")),
        ("a list", text("- a\n- b\n")),
        ("two JSON texts", text("{\"a\": 1}\n{\"b\": 2}\n")),
        ("a pod without kind", text("metadata: {name: p}\nspec: {containers: [{name: app}]}\n")),
        ("an unknown key", in_annotation("{exec: {command: [x]}, periodSecond: 5}")),
        ("an unknown key for the kubelet", in_probe("{exec: {command: [x]}, periodSecond: 5}")),
        ("a mode that is none", in_annotation("{exec: {command: [x]}, execMode: sesion}")),
        ("a mode of no command", in_annotation("{tcpSocket: {port: 80}, execMode: session}")),
        ("a mode for the kubelet", in_probe("{exec: {command: [x]}, execMode: session}")),
        ("a key of ours for the kubelet", in_probe("{exec: {command: [x]}, period: 5s}")),
        ("numbers as strings", in_annotation("{exec: {command: [x]}, periodSeconds: \"5\"}")),
        ("numbers as strings for the kubelet", in_probe("{tcpSocket: {port: '80'}, periodSeconds: '5'}")),
        (
            "negative numbers",
            in_annotation("{exec: {command: [x]}, periodSeconds: -5, failureThreshold: -1}"),
        ),
        ("negative numbers for the kubelet", in_probe("{tcpSocket: {port: -1}, initialDelaySeconds: -5}")),
        ("huge numbers", in_annotation("{tcpSocket: {port: 99999999999999999999}, periodSeconds: 1e99}")),
        ("a duration without unit", in_annotation("{exec: {command: [x]}, period: \"5\", timeout: 2}")),
        ("a negative duration", in_annotation("{exec: {command: [x]}, period: -5s}")),
        ("two handlers", in_annotation("{exec: {command: [x]}, tcpSocket: {port: 80}}")),
        ("no handler", in_annotation("{periodSeconds: 5}")),
        ("an empty annotation", in_annotation("")),
        ("a null annotation", pod("", GOOD).into_bytes()),
        ("a number for an annotation", pod("5", GOOD).into_bytes()),
        (
            "what steers a terminal",
            text(
                "apiVersion: v1\nkind: Pod\nmetadata: {annotations: {\"x.criprobe.dev/\\e[2J\": y}}\nspec: {containers: [{name: a}]}\n",
            ),
        ),
    ]
}

#[test]
fn each_is_told_with_a_place() {
    let mut reported = String::new();
    for (name, bytes) in rows() {
        let (done, finished) = std::sync::mpsc::channel();
        let checking = move || done.send(findings(&check(&[input("x", bytes)], &[], "default")));
        std::thread::Builder::new().stack_size(16 << 20).spawn(checking).unwrap();
        let Ok(found) = finished.recv_timeout(Duration::from_secs(120)) else { panic!("{name} did not end") };
        assert!(!found.is_empty(), "{name}: nothing is reported");
        reported += &format!("== {name}\n{found}");
    }
    assert!(!reported.contains('\u{1b}'));
    insta::assert_snapshot!("bad_input", reported);
}
