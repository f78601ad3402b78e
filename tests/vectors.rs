//! Each sample of the kubelet's behaviour is data of some test, or the page of differences says why it cannot be.
//! Reads the data and the page; the rows themselves are played where the code stands.

#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeSet,
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

fn data_of(path: &Path) -> Vec<Value> {
    let text = || fs::read_to_string(path).unwrap();
    let told = |error| panic!("{}: {error}", path.display());
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => vec![serde_json::from_str(&text()).unwrap_or_else(told)],
        Some("jsonl") => text().lines().map(|line| serde_json::from_str(line).unwrap_or_else(told)).collect(),
        // Certificates, and the list of rows itself.
        _ => Vec::new(),
    }
}

#[test]
fn each_row_of_the_samples_is_data_or_cannot_apply_for_a_reason() {
    let all = rows_in(&fs::read_to_string(root().join("tests/data/prober/rows.txt")).unwrap());
    let mut data = BTreeSet::new();
    for entry in fs::read_dir(root().join("tests/data/prober")).unwrap() {
        data_of(&entry.unwrap().path()).iter().for_each(|value| ids(value, &mut data));
    }
    let page = fs::read_to_string(root().join("docs/kubelet-differences.md")).unwrap();
    let (_, table) = page.split_once("## Rows that cannot apply").unwrap();
    let listed = |line: &str| rows_in(line.split('|').nth(1).unwrap_or_default());
    let excused: BTreeSet<String> = table.lines().flat_map(listed).collect();

    let missing: Vec<_> = all.iter().filter(|row| !data.contains(*row) && !excused.contains(*row)).collect();
    assert!(missing.is_empty(), "neither data of a test nor excused: {missing:?}");
    let both: Vec<_> = excused.intersection(&data).collect();
    assert!(both.is_empty(), "excused, but data of a test: {both:?}");
    let unknown: Vec<_> = excused.difference(&all).chain(data.difference(&all)).collect();
    assert!(unknown.is_empty(), "no such rows: {unknown:?}");
    assert_eq!(all.len(), 278, "the samples are complete");
}
