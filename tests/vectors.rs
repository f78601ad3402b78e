//! Each sample of the kubelet's behaviour is data of one test, or the page of differences says why it cannot be.
//! Reads the data, the sources that include it, and the page; the rows themselves are played where the code stands.

#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Whether a word is an id such as `N04`.
fn is_row(word: &str) -> bool {
    matches!(word.as_bytes(), [family, tens, ones]
        if family.is_ascii_uppercase() && tens.is_ascii_digit() && ones.is_ascii_digit())
}

fn rows_in(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| is_row(word)).map(str::to_owned).collect()
}

/// Every id in a document; an id may name several rows, and may be followed by words.
fn ids(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| ids(item, found)),
        Value::Object(fields) => {
            if let Some(Value::String(id)) = fields.get("id") {
                found.extend(rows_in(id));
            }
            fields.values().for_each(|field| ids(field, found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The documents of a file of rows; of another file, a certificate say, none.
fn data_of(path: &Path) -> Vec<Value> {
    let text = || fs::read_to_string(path).unwrap();
    let reported = |error| panic!("{}: {error}", path.display());
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => vec![serde_json::from_str(&text()).unwrap_or_else(reported)],
        Some("jsonl") => {
            text().lines().map(|line| serde_json::from_str(line).unwrap_or_else(reported)).collect()
        }
        // Certificates, and the list of rows itself.
        _ => Vec::new(),
    }
}

/// The files of rows, by name.
fn files() -> BTreeMap<String, Vec<Value>> {
    let entries = fs::read_dir(root().join("tests/data/prober")).unwrap();
    let files = entries.map(|entry| entry.unwrap().path());
    files
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), data_of(&path)))
        .filter(|(_, data)| !data.is_empty())
        .collect()
}

#[test]
fn each_row_of_the_samples_is_data_or_cannot_apply_for_a_reason() {
    let all = rows_in(&fs::read_to_string(root().join("tests/data/prober/rows.txt")).unwrap());
    let mut data = BTreeSet::new();
    for (name, file) in files() {
        let mut own = BTreeSet::new();
        file.iter().for_each(|value| ids(value, &mut own));
        let twice: Vec<_> = own.intersection(&data).collect();
        assert!(twice.is_empty(), "{name} has rows that another file has, too: {twice:?}");
        data.extend(own);
    }
    let page = fs::read_to_string(root().join("docs/kubelet-differences.md")).unwrap();
    let (_, table) = page.split_once("## Rows that cannot apply").unwrap();
    let listed = |line: &str| rows_in(line.split('|').nth(1).unwrap_or_default());
    let excused: BTreeSet<String> = table.lines().flat_map(listed).collect();
    let played = scenarios();

    let missing: Vec<_> =
        all.iter().filter(|row| ![&data, &excused, &played].iter().any(|rows| rows.contains(*row))).collect();
    assert!(missing.is_empty(), "neither data of a test nor excused: {missing:?}");
    let both: Vec<_> = excused.intersection(&data).chain(excused.intersection(&played)).collect();
    assert!(both.is_empty(), "excused, but data of a test: {both:?}");
    let unknown: Vec<_> = excused.difference(&all).chain(data.difference(&all)).collect();
    assert!(unknown.is_empty(), "no such rows: {unknown:?}");
    assert_eq!(all.len(), 278, "the samples are complete");
}

/// The sources, by their paths in the repository.
fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join("src"), root().join("tests")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    found
}

/// The scenarios of section Z: each is played by the function of `tests/containerd/` that begins with its id, and that
/// a test there calls.
fn scenarios() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (path, text) in
        sources().into_iter().filter(|(path, _)| path.starts_with(root().join("tests/containerd")))
    {
        for name in text.lines().filter_map(|line| line.strip_prefix("async fn z")) {
            let name = name.split('(').next().unwrap();
            let row = format!("Z{}", &name[..2]);
            let is_called = text.contains(&format!("        z{name}("));
            assert!(is_called, "{}: z{name} is not called", path.display());
            assert!(found.insert(row.clone()), "{row} is played twice");
        }
    }
    found
}

/// A row that stands in a file is played: the file is included by one test, at compile time; a loader that refuses
/// fields it does not know plays all that a row says; and what runs through all rows has none to leave out by id.
#[test]
fn each_file_of_rows_is_read_by_one_test_that_knows_all_its_fields() {
    let sources = sources();
    for name in files().into_keys() {
        let included = format!("tests/data/prober/{name}\")");
        let readers: Vec<_> = sources
            .iter()
            .filter_map(|(path, text)| {
                let at = text.match_indices(&included).map(|(at, _)| at).collect::<Vec<_>>();
                (!at.is_empty()).then_some((path, text, at))
            })
            .collect();
        let [(path, text, places)] = &readers[..] else {
            panic!("{name} is read in {} sources", readers.len());
        };
        let [at] = places[..] else { panic!("{name} is read {} times in {}", places.len(), path.display()) };
        let before = text[..at].trim_end_matches(['.', '/']).trim_end_matches('"');
        assert!(before.ends_with("include_str!("), "{}: {name} is only named", path.display());
        let function = before.rfind("fn ").unwrap();
        let attribute = text[..function].trim_end().rsplit('\n').take(2).collect::<String>();
        assert!(
            attribute.contains("#[test]") || attribute.contains("#[tokio::test"),
            "{}: {name} is read by no test: {attribute}",
            path.display()
        );
        assert!(text.contains("deny_unknown_fields"), "{}: unknown fields are not refused", path.display());
    }
}
