//! `criprobe check` as people run it: files in, text and exit codes out; no daemon anywhere.

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

use super::text;

const GOOD: &str = "tests/data/check/deployment.yaml";
const WRONG: &str = "tests/data/check/wrong.yaml";

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_criprobe"));
    command.arg("check").args(arguments).current_dir(env!("CARGO_MANIFEST_DIR"));
    command.env_clear().env("CRIPROBE_API", "no socket at all").stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

#[test]
fn a_folder_is_read_as_a_node_reads_it_also_for_rules() {
    let dir = tempfile::tempdir().unwrap();
    let rule = |name: &str, period: u32| {
        format!(
            "rules: [{{name: {name}, match: {{namespace: '*'}}, startup: {{grpc: {{port: 1}}, periodSeconds: {period}}}}}]\n"
        )
    };
    fs::create_dir(dir.path().join("conf.d")).unwrap();
    fs::write(dir.path().join("config.yaml"), rule("first", 7)).unwrap();
    fs::write(dir.path().join("conf.d/10.yaml"), rule("second", 8)).unwrap();
    fs::write(dir.path().join("conf.d/20.yml"), "what a node does not read: [").unwrap();
    fs::write(dir.path().join("aside.yaml"), rule("first", 9)).unwrap();
    let folder = dir.path().to_str().unwrap();
    let output = run(&["--rules", folder, "-o", "json", "-n", "x", GOOD]);
    let view: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> = view["files"].as_array().unwrap().iter().map(|file| &file["file"]).collect();
    assert_eq!(names, [&*format!("{folder}/config.yaml"), &*format!("{folder}/conf.d/10.yaml"), GOOD]);
    assert!(text(&output.stdout).contains("rule:first"), "{}", text(&output.stdout));
    fs::write(dir.path().join("conf.d/10.yaml"), rule("first", 8)).unwrap();
    fs::remove_file(dir.path().join("conf.d/20.yml")).unwrap();
    let (main, other) = (format!("{folder}/config.yaml"), format!("{folder}/conf.d/10.yaml"));
    for named in [vec![folder], vec![&main], vec![&main, &other]] {
        let output = run(&named);
        assert_eq!(code(&output), 1, "{}", text(&output.stdout));
        let lines = text(&output.stdout);
        assert_eq!(lines.matches("conf.d/10.yaml:1:16: error: ").count(), 1, "{lines}");
    }
}

#[test]
fn the_exit_code_tells_whether_anything_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty.yaml");
    fs::write(&empty, "# nothing\n").unwrap();
    let empty = empty.to_str().unwrap();
    for (arguments, expected) in [
        (&[GOOD][..], 0),
        (&[WRONG], 1),
        (&[GOOD, WRONG], 1),
        (&[empty], 0),
        (&["--strict", empty], 1),
        (&["--rules", "tests/data/check/rules", GOOD], 1),
        (&["tests/data/check/rules/10-shop.yaml"], 0),
        (&["tests/data/check/config-wrong.yaml"], 1),
        (&["--rules", "tests/data/check/config-wrong.yaml", "-n", "x", GOOD], 1),
        (&["/nowhere.yaml"], 2),
        (&["--rules", "/nowhere.yaml", GOOD], 2),
        (&[], 2),
        (&["--api", "/x", GOOD], 2),
    ] {
        let output = run(arguments);
        assert_eq!(
            code(&output),
            expected,
            "{arguments:?}: {}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
        assert_eq!(text(&output.stderr).lines().count(), usize::from(expected == 2), "{arguments:?}");
    }
}

#[test]
fn a_file_that_cannot_be_read_does_not_keep_others_from_being_checked() {
    let output = run(&["/nowhere.yaml", WRONG]);
    assert_eq!(code(&output), 2);
    assert_eq!(text(&output.stderr), "criprobe: cannot read /nowhere.yaml: the file does not exist\n");
    assert!(text(&output.stdout).contains("tests/data/check/wrong.yaml:"), "{}", text(&output.stdout));
}

#[test]
fn a_folder_is_all_its_files_and_standard_input_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let pod = "{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"NAME\"}, \
               \"spec\": {\"containers\": [{\"name\": \"app\"}]}}";
    for (name, is_read) in [
        ("b.yaml", true),
        ("a.yml", true),
        ("sub/c.json", true),
        ("values.yaml", true),
        (".hidden/d.yaml", false),
        ("notes.txt", false),
    ] {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let text =
            if name.starts_with("values") { "replicaCount: 1".to_owned() } else { pod.replace("NAME", name) };
        fs::write(&path, text).unwrap();
        let named = run(&["-o", "json", dir.path().to_str().unwrap()]);
        assert_eq!(text_of(&named).contains(&format!("/{name}\"")), is_read, "{name}: {}", text_of(&named));
    }
    let folder = run(&[dir.path().to_str().unwrap()]);
    assert_eq!(code(&folder), 0, "{}", text_of(&folder));
    assert!(text_of(&folder).ends_with("4 files, 0 probes, 0 errors, 0 warnings\n"), "{}", text_of(&folder));
    let nothing = run(&[dir.path().join(".hidden/..").join("sub/..").join(".hidden").to_str().unwrap()]);
    assert_eq!(code(&nothing), 0, "a hidden folder that is named is read");

    let mut child =
        command(&["-", "-o", "yaml"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(pod.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 0);
    assert!(text_of(&output).contains("name: Pod NAME"), "{}", text_of(&output));
}

fn text_of(output: &Output) -> String {
    text(&output.stdout)
}

#[test]
fn json_is_what_is_documented() {
    let output = run(&["-o", "json", "--rules", "tests/data/check/rules", GOOD]);
    let view: criprobe::report::view::CheckView = serde_json::from_slice(&output.stdout).unwrap();
    let again = serde_json::to_value(&view).unwrap();
    assert_eq!(again, serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap());
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/check.md")).unwrap();
    for name in names(&again) {
        assert!(page.contains(&format!("`{name}`")), "{name} is not documented");
    }
}

/// The names of all fields but those of definitions, which another page has.
fn names(value: &serde_json::Value) -> Vec<String> {
    match value {
        serde_json::Value::Object(map) => map
            .iter()
            .filter(|(name, _)| *name != "definition")
            .flat_map(|(name, value)| std::iter::once(name.clone()).chain(names(value)))
            .collect(),
        serde_json::Value::Array(items) => items.iter().flat_map(names).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn a_large_file_is_told_and_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large.yaml");
    fs::write(&path, vec![b'#'; 10_000_000]).unwrap();
    let output = run(&[path.to_str().unwrap()]);
    assert_eq!(code(&output), 1);
    assert!(text_of(&output).contains("error: longer than 8 MiB, so it is not read"), "{}", text_of(&output));
}
