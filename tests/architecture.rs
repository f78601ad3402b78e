//! Holds the code to ARCHITECTURE.md: which module may import which, that no siblings do so in a circle, which parts are
//! pure, how a file begins, how long it gets.
//! Reads `src/`; compiles and runs none of it. Test code is exempt from everything but its first line.

#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Who may import whom, in reading order: a row names only rows above it, so nothing depends on itself in a circle.
/// An entry with a path allows that part alone. ARCHITECTURE.md shows the same table and says why.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    // What everybody may need.
    ("carry", &[]),
    ("ids", &["carry"]),
    ("clock", &[]),
    ("count", &[]),
    ("proto", &["carry"]),
    ("duration", &[]),
    ("faults", &[]),
    ("document", &[]),
    ("glob", &[]),
    ("peer", &[]),
    ("redact", &[]),
    ("listen", &["peer"]),
    ("manager", &["clock", "listen"]),
    ("record_file", &["clock", "listen::folder"]),
    // A task that is started again when it panics, and the handle through which it is asked.
    ("stage", &["clock"]),
    // The path of the bytes.
    ("tap", &["carry", "ids", "proto", "peer"]),
    ("relay", &["carry", "clock", "count", "ids", "peer", "tap"]),
    // What is known of the node. The link opens the relay's gate: it is the one who knows that the runtime is back.
    ("runtime", &["clock", "ids", "peer", "proto", "relay::gate", "stage"]),
    (
        "inventory",
        &["clock", "ids", "proto", "relay::RelayHandle", "relay::output", "runtime", "stage", "tap"],
    ),
    // Probes.
    ("spec", &["document", "duration", "glob", "ids", "inventory::pod"]),
    // Rules are written in the configuration, so it stands after what a rule is.
    ("config", &["document", "duration", "glob", "ids", "redact", "spec"]),
    ("results", &["ids", "inventory::pod", "spec::OnFailure"]),
    // Where the time of commands went: calls begin and end, the runtime reports what happens in between.
    ("phases", &["clock", "ids", "results::durations", "results::phases", "runtime::marks", "stage"]),
    // An outcome ends in a result, and what it says is bounded; a command is expanded straight into its request.
    (
        "handler",
        &[
            "clock",
            "duration",
            "ids",
            "phases",
            "proto",
            "results::AttemptResult",
            "results::exec_route",
            "results::phases",
            "results::text",
            "runtime::socket",
            "spec::expand",
        ],
    ),
    (
        "prober",
        &["clock", "handler", "ids", "inventory::pod", "results", "runtime::environment", "spec", "stage"],
    ),
    // What a verdict of failure does to its container.
    (
        "act",
        &[
            "clock",
            "document",
            "duration",
            "faults",
            "ids",
            "inventory::pod",
            "prober",
            "proto",
            "results",
            "runtime",
            "spec",
            "stage",
        ],
    ),
    // What clients probe. Changes and calls come from the inventory; a written pod is read as our documents are.
    (
        "observed",
        &[
            "clock",
            "document",
            "ids",
            "inventory::Change",
            "inventory::TracedCall",
            "inventory::pod",
            "peer",
            "results",
            "runtime::turns",
            "spec::expand",
            "tap",
        ],
    ),
    // What containers died of: from the same changes.
    ("exits", &["duration", "ids", "inventory::Change", "inventory::pod", "results::event"]),
    // What people see.
    (
        "report",
        &[
            "act::ActHandle",
            "act::counts",
            "act::status",
            "clock",
            "config",
            "count",
            "document::suggest",
            "duration",
            "exits",
            "glob",
            "handler::exec::session",
            "ids",
            "inventory::InventoryHandle",
            "inventory::TracedCall",
            "inventory::pod",
            "observed::ObservedHandle",
            "observed::ObservedStatus",
            "observed::SilentProbe",
            "peer",
            "phases::PhasesHandle",
            "phases::SessionEnd",
            "prober",
            "record_file",
            "redact",
            "relay::RelayHandle",
            "relay::registry",
            "results",
            "runtime::link",
            "runtime::turns::Backlog",
            "runtime::usage",
            "spec",
            "stage",
            "tap",
        ],
    ),
    // Which socket a node's kubelet and crictl use, and how that is changed. Asks both runtimes as any client would.
    (
        "node",
        &["config::socket", "document", "peer", "runtime::Runtime", "runtime::Version", "runtime::lists"],
    ),
    // What a node would do with files, shown without one: shares the views, so that a definition looks the same.
    ("check", &["config", "document", "ids", "inventory::pod", "report::view", "spec"]),
    (
        "cli",
        &[
            "check",
            "clock",
            "config::example",
            "config::socket",
            "duration",
            "ids",
            "node",
            "report::filter",
            "report::lookup",
            "report::printable",
            "report::top",
            "report::view",
            "results::layers",
            "spec::expand",
        ],
    ),
    ("demo", &["clock", "ids", "proto"]),
    ("app", &["*"]),
];

/// What must not stand in pure code: it would do IO, wait, log, or read a clock.
const IMPURE: &[&str] = &[
    "tokio::",
    "tracing::",
    "std::fs",
    "std::env",
    "std::io",
    "std::process",
    "std::thread",
    "crate::clock",
    "clock::",
];

/// Code that is pure, by the beginning of its path below `src/`.
const PURE: &[&str] = &[
    "act/back_off.rs",
    "act/grace.rs",
    "act/guard",
    "act/recipe.rs",
    "act/recipe/json.rs",
    "act/recipe/messages.rs",
    "act/recipe/store.rs",
    "carry.rs",
    "ids.rs",
    "duration.rs",
    "document",
    "check",
    "glob.rs",
    "redact",
    "config/key.rs",
    "config/pattern.rs",
    "config/raw.rs",
    "config/resolve.rs",
    "config/rules",
    "proto/",
    "tap",
    "spec",
    "results",
    "handler/dial/allowance.rs",
    "handler/exec/mask",
    "handler/http/chunk.rs",
    "handler/http/fields.rs",
    "handler/http/head.rs",
    "handler/http/headers.rs",
    "handler/http/redirect.rs",
    "handler/http/request.rs",
    "handler/http/url",
    "handler/http/wire.rs",
    "exits/",
    "inventory/fact.rs",
    "inventory/model",
    "inventory/pod.rs",
    "node/edit",
    "node/flags.rs",
    "observed/",
    "prober/containers.rs",
    "prober/pool.rs",
    "prober/pauses.rs",
    "prober/quota.rs",
    "prober/roster",
    "prober/schedule.rs",
    "prober/state",
    "prober/readiness.rs",
    "prober/timing.rs",
    "prober/worker",
    "report/lookup.rs",
    "report/nearest.rs",
    "runtime/outage.rs",
    "runtime/turns.rs",
];

/// 400 lines of code before its tests, without blank lines and comments: a longer file holds more than one concept.
const MAX_LINES: usize = 400;

#[test]
fn nobody_imports_against_the_table() {
    report(&faults_of(&sources(), |source| {
        let allowed = row(&source.module);
        source
            .imports()
            .filter(|import| import.path[0] != source.module && !allows(allowed, &import.path))
            .map(|import| {
                let path = import.path.join("::");
                let rule = match allowed {
                    [] => "nothing of this crate".to_owned(),
                    _ => format!("only {}", allowed.join(", ")),
                };
                (import.line, format!("imports {path}, but {} may import {rule}", source.module))
            })
            .collect()
    }));
}

#[test]
fn the_table_names_each_module_once_and_only_earlier_rows() {
    let mut above = Vec::new();
    for (module, allowed) in MAY_IMPORT {
        assert!(!above.contains(module), "two rows for {module}");
        for entry in allowed.iter().filter(|entry| **entry != "*") {
            let first = entry.split("::").next().unwrap_or(entry);
            assert!(
                above.contains(&first),
                "the row of {module} names {first}, which does not stand above it"
            );
        }
        above.push(module);
    }
    let declared = ["src/lib.rs", "src/wire.rs"].map(|file| fs::read_to_string(root().join(file)).unwrap());
    let mut declared: Vec<String> = declared
        .iter()
        .flat_map(|text| text.lines())
        .filter_map(|line| {
            Some(without_visibility(line).strip_prefix("mod ")?.trim_end_matches(';').to_owned())
        })
        .collect();
    declared.sort_unstable();
    above.sort_unstable();
    assert_eq!(
        declared, above,
        "left: the modules of src/lib.rs and src/wire.rs, right: the rows of the table"
    );
}

#[test]
fn the_page_shows_the_same_table() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for (module, allowed) in MAY_IMPORT {
        let list = match allowed {
            [] => "nothing".to_owned(),
            ["*"] => "everything".to_owned(),
            _ => allowed.iter().map(|entry| format!("`{entry}`")).collect::<Vec<_>>().join(", "),
        };
        let row = format!("| `{module}` | {list} |");
        assert!(page.contains(&row), "ARCHITECTURE.md has no such row in its table:\n{row}");
    }
}

#[test]
fn siblings_import_each_other_in_no_circle() {
    report(&circles(&sources()));
}

#[test]
fn pure_code_does_no_io_and_reads_no_clock() {
    report(&faults_of(&sources(), |source| {
        if !PURE.iter().any(|start| source.path.starts_with(start)) {
            return Vec::new();
        }
        source
            .lines()
            .flat_map(|(line, text)| {
                IMPURE.iter().filter(move |word| mentions(text, word)).map(move |word| (line, word))
            })
            .map(|(line, word)| {
                (line, format!("mentions {word}, but this file is pure: no IO, no clock, no logging"))
            })
            .collect()
    }));
}

#[test]
fn the_binary_is_thin() {
    let main = fs::read_to_string(root().join("src/main.rs")).unwrap();
    for path in uses(&main, "criprobe::").map(|(_, path)| path) {
        assert!(
            matches!(&*path[0], "app" | "cli"),
            "src/main.rs imports {}, but only app and cli are its",
            path[0]
        );
    }
}

#[test]
fn every_file_says_first_what_it_is_for() {
    let is_untitled = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        let first = text.lines().next().unwrap_or_default();
        (!text.trim().is_empty() && !first.starts_with("//! "))
            .then(|| format!("{}:1: line 1 must begin with //!", shown(path)))
    };
    report(&files().iter().filter_map(is_untitled).collect::<Vec<_>>());
}

#[test]
fn no_file_holds_more_than_one_concept_can_fill() {
    let is_too_long = |source: &Source| {
        let lines = source.lines().filter(|(_, text)| !text.trim().is_empty()).count();
        let reported = || {
            format!("src/{}: {lines} lines of code before its tests, {MAX_LINES} is the most", source.path)
        };
        (lines > MAX_LINES).then(reported)
    };
    report(&sources().iter().filter_map(is_too_long).collect::<Vec<_>>());
}

#[test]
fn the_reader_of_imports_sees_groups_paths_and_aliases() {
    let text = "use crate::{\n    a::{self, B, c::D},\n    e as f,\n};\nlet x = crate::g::h(1); // crate::no\nuse crate::i;";
    let found: Vec<String> = uses(&without_comments(text), "crate::")
        .map(|(line, path)| format!("{line} {}", path.join("::")))
        .collect();
    assert_eq!(found, ["1 a::self", "1 a::B", "1 a::c::D", "1 e", "5 g::h", "6 i"]);
}

#[test]
fn super_counts_only_where_it_leaves_the_row() {
    let source =
        |path: &str, text: &str| Source { path: path.into(), module: module_of(path), text: text.into() };
    let paths = |source: Source| source.imports().map(|import| import.path.join("::")).collect::<Vec<_>>();
    assert_eq!(paths(source("tap.rs", "use super::app::Daemon;")), ["app::Daemon"]);
    assert_eq!(paths(source("tap/frame.rs", "use super::call::Call;")), [""; 0]);
    assert_eq!(paths(source("tap/frame.rs", "use super::super::app;")), ["app"]);
    assert_eq!(paths(source("tap.rs", "mod inner {\n    use super::Tap;\n}\n")), [""; 0]);
    assert_eq!(paths(source("tap.rs", "pub(crate) mod inner {\n    use super::Tap;\n}\n")), [""; 0]);
}

#[test]
fn a_circle_is_found_however_its_imports_are_written() {
    let source =
        |path: &str, text: &str| Source { path: path.into(), module: module_of(path), text: text.into() };
    let sources = [
        source("a.rs", "mod b;\nuse b::B;"),
        source("a/b.rs", "use super::{A, c::C};"),
        source("a/c.rs", "use crate::a::{b, d::D};"),
        source("a/c/deep.rs", "fn f() { super::super::e::f() }"),
        source("a/d.rs", "use super::*;"),
        source("a/e.rs", "use super::c;"),
        source("a/f.rs", "use super::b::B;"),
    ];
    assert_eq!(circles(&sources), ["src/a: a circle among b, c, e"]);
    assert_eq!(circles(&sources[..3]), ["src/a: a circle among b, c"]);
    assert_eq!(circles(&sources[2..]), ["src/a: a circle among c, e"]);
    assert_eq!(circles(&sources[4..]), [""; 0]);
}

/// The code of one file, without comments and tests.
struct Source {
    /// Below `src/`.
    path: String,
    /// The row of the table that it belongs to.
    module: String,
    text: String,
}

/// One thing of another module that a file names.
struct Import {
    line: usize,
    path: Vec<String>,
}

impl Source {
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, text)| (index + 1, text))
    }

    /// What it takes through `crate::`, and through as many `super::` as lead to the crate's root.
    fn imports(&self) -> impl Iterator<Item = Import> {
        let depth = Path::new(&self.path).components().count();
        let ups = "super::".repeat(depth);
        let from_root = uses(&self.text, "crate::");
        let inner = inner_modules(&self.text);
        let upwards = uses(&self.text, &ups).filter(move |(line, _)| !inner.contains(line));
        let found: Vec<_> = from_root.chain(upwards).map(|(line, path)| Import { line, path }).collect();
        found.into_iter()
    }
}

impl Source {
    /// Its module, from the root of the crate.
    fn segments(&self) -> Vec<String> {
        self.path.trim_end_matches(".rs").split('/').map(str::to_owned).collect()
    }

    /// What it names of this crate, from its root.
    fn names(&self) -> Vec<Vec<String>> {
        let own = self.segments();
        let inner = inner_modules(&self.text);
        let mut names: Vec<_> = uses(&self.text, "crate::").map(|(_, path)| path).collect();
        for ups in 1..=own.len() {
            let (start, above) = ("super::".repeat(ups), &own[..own.len() - ups]);
            let found = uses(&self.text, &start).filter(|(line, _)| !inner.contains(line));
            names.extend(found.map(|(_, path)| [above, path.as_slice()].concat()));
        }
        names
    }
}

/// The modules of one folder that import each other in a circle, each with all that is in it.
fn circles(sources: &[Source]) -> Vec<String> {
    let modules: BTreeSet<_> = sources.iter().map(Source::segments).collect();
    let mut folders = BTreeMap::<_, BTreeSet<(String, String)>>::new();
    for source in sources {
        let own = source.segments();
        for mut path in source.names() {
            while !path.is_empty() && !modules.contains(&path) {
                path.pop();
            }
            let common = own.iter().zip(&path).take_while(|(a, b)| a == b).count();
            if let (Some(from), Some(to)) = (own.get(common), path.get(common)) {
                let imports = folders.entry(own[..common].join("/")).or_default();
                imports.insert((from.clone(), to.clone()));
            }
        }
    }
    folders.into_iter().filter_map(|(folder, imports)| circle(&folder, imports)).collect()
}

/// Takes away what imports nothing of the rest, or is imported by nothing of it: what is left leads back to itself.
fn circle(folder: &str, mut imports: BTreeSet<(String, String)>) -> Option<String> {
    loop {
        let from: BTreeSet<_> = imports.iter().map(|(from, _)| from.clone()).collect();
        let to: BTreeSet<_> = imports.iter().map(|(_, to)| to.clone()).collect();
        let before = imports.len();
        imports.retain(|(a, b)| to.contains(a) && from.contains(b));
        if imports.is_empty() {
            return None;
        }
        if imports.len() == before {
            let names: Vec<_> = from.into_iter().collect();
            return Some(format!("src/{folder}: a circle among {}", names.join(", ")));
        }
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// All files of `src/`, tests too.
fn files() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("src/ can be read") {
            let path = entry.expect("src/ can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The library's code without its tests.
fn sources() -> Vec<Source> {
    let mut texts = BTreeMap::new();
    let mut for_tests = Vec::new();
    for file in files() {
        let path =
            file.strip_prefix(root().join("src")).expect("files() looks below src/").display().to_string();
        let text = fs::read_to_string(&file).expect("source is UTF-8");
        let folder = path.trim_end_matches(".rs").to_owned();
        for module in test_modules(&text) {
            for_tests.push(format!("{folder}/{module}.rs"));
            for_tests.push(format!("{folder}/{module}/"));
        }
        texts.insert(path, text);
    }
    texts
        .into_iter()
        .filter(|(path, _)| !["main.rs", "lib.rs", "wire.rs"].contains(&path.as_str()))
        .filter(|(path, _)| !for_tests.iter().any(|start| path.starts_with(start)))
        .map(|(path, text)| Source {
            module: module_of(&path),
            text: without_comments(before_tests(&text)),
            path,
        })
        .collect()
}

fn module_of(path: &str) -> String {
    path.split('/').next().unwrap_or(path).trim_end_matches(".rs").to_owned()
}

/// Names of modules in files of their own that are compiled for tests only.
fn test_modules(text: &str) -> impl Iterator<Item = &str> {
    text.split("#[cfg(test)]\n").skip(1).filter_map(|after| {
        let (_, declared) = after.lines().next()?.rsplit_once("mod ")?;
        declared.strip_suffix(';')
    })
}

/// The part before `mod tests { ... }`, which is the last thing in a file.
fn before_tests(text: &str) -> &str {
    text.find("#[cfg(test)]\nmod tests {").map_or(text, |end| &text[..end])
}

/// Comments become empty; lines keep their numbers.
fn without_comments(text: &str) -> String {
    let code = |line: &str| line.split("//").next().unwrap_or_default().to_owned() + "\n";
    text.lines().map(code).collect()
}

/// `mod name;` of `pub(crate) mod name;`.
fn without_visibility(line: &str) -> &str {
    let item = line.strip_prefix("pub").unwrap_or(line);
    let item = item.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(item, |(_, item)| item);
    item.trim_start()
}

/// Lines within `mod name { ... }` at the left edge: one `super::` more is needed to leave them.
fn inner_modules(text: &str) -> Vec<usize> {
    let mut is_inside = false;
    let mut inside = Vec::new();
    for (index, line) in text.lines().enumerate() {
        is_inside |= line.ends_with('{') && without_visibility(line).starts_with("mod ");
        if is_inside {
            inside.push(index + 1);
        }
        is_inside &= line != "}";
    }
    inside
}

/// Each path that follows `start` in the code, with the number of the line that `start` stands in; groups are taken
/// apart.
fn uses<'a>(text: &'a str, start: &'a str) -> impl Iterator<Item = (usize, Vec<String>)> + 'a {
    let is_start =
        |at: usize| !text[..at].ends_with(|before: char| before.is_alphanumeric() || "_:$".contains(before));
    text.match_indices(start).filter(move |(at, _)| is_start(*at)).flat_map(move |(at, _)| {
        let line = text[..at].matches('\n').count() + 1;
        let mut paths = Vec::new();
        read_tree(&text[at + start.len()..], &mut Vec::new(), &mut paths);
        paths
            .into_iter()
            .filter(|path| path.first().is_some_and(|first| first != "super"))
            .map(move |path| (line, path))
    })
}

/// Reads one tree of a `use`, adds its paths, and gives back what follows it.
fn read_tree<'a>(text: &'a str, prefix: &mut Vec<String>, paths: &mut Vec<Vec<String>>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = rest.trim_start_matches([',', ' ', '\n']);
            if rest.is_empty() || rest.starts_with('}') {
                return rest.strip_prefix('}').unwrap_or(rest);
            }
            rest = read_tree(rest, prefix, paths);
            // Passes over `as name`.
            rest = rest.trim_start_matches(|c: char| !",}".contains(c));
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    if end == 0 {
        paths.push(prefix.clone());
        return text.strip_prefix('*').unwrap_or(text);
    }
    prefix.push(text[..end].to_owned());
    let rest = &text[end..];
    let rest = match rest.strip_prefix("::") {
        Some(deeper) => read_tree(deeper, prefix, paths),
        None => {
            paths.push(prefix.clone());
            rest
        }
    };
    prefix.pop();
    rest
}

fn row(module: &str) -> &'static [&'static str] {
    MAY_IMPORT.iter().find(|(name, _)| *name == module).map_or(&[], |(_, allowed)| *allowed)
}

/// Whether one of the entries is the path or stands above it.
fn allows(entries: &[&str], path: &[String]) -> bool {
    entries
        .iter()
        .any(|entry| *entry == "*" || entry.split("::").eq(path.iter().take(entry.split("::").count())))
}

fn mentions(text: &str, word: &str) -> bool {
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_'))
}

/// All faults of all sources, each as `src/FILE:LINE: what`.
fn faults_of(sources: &[Source], find: impl Fn(&Source) -> Vec<(usize, String)>) -> Vec<String> {
    assert!(sources.len() > 50, "src/ was not found");
    let reported = |source: &Source| {
        let path = source.path.clone();
        find(source).into_iter().map(move |(line, what)| format!("src/{path}:{line}: {what}"))
    };
    sources.iter().flat_map(reported).collect()
}

fn report(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}
