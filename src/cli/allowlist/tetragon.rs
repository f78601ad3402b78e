//! Filters for Tetragon's export: the starts and ends of processes that probes start are not exported.

use serde::Serialize;

use super::{Allowlist, ProbeCommand, document};

/// What is said above the list.
const ABOUT: [&str; 4] = [
    "The commands of this node's exec probes, by criprobe: 'criprobe allowlist --for tetragon' renews it.",
    "Values of Tetragon's Helm chart: their starts and ends are left out of its export, and nothing else of them is.",
    "They replace other values of exportDenyList: add the lines that you have there, the chart's defaults among them.",
    "See docs/security-tools.md of criprobe.",
];

#[derive(Serialize)]
struct Values {
    tetragon: Export,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Export {
    /// A filter as JSON per line.
    export_deny_list: String,
}

/// An event is left out if all of this is true of it.
#[derive(Serialize)]
struct Filter<'a> {
    event_set: [&'static str; 2],
    namespace: [&'a str; 1],
    pod_regex: [String; 1],
    binary_regex: [String; 1],
    arguments_regex: [String; 1],
}

pub(super) fn list(list: Allowlist) -> String {
    let (filters, left_out) = list.express(filter);
    let export_deny_list = filters.join("\n");
    document(&ABOUT, &left_out, &Values { tetragon: Export { export_deny_list } })
}

fn filter(probe: &ProbeCommand) -> Result<String, &'static str> {
    let ProbeCommand { namespace, pod, container: _, command } = probe;
    let Some((program, arguments)) = command.split_first() else { return Err("it has no program") };
    // The runtime looks for a name without a path in the container's PATH; the path that it finds is shown.
    let before = if program.contains('/') { "^" } else { "^(.*/)?" };
    // Tetragon puts a word with spaces in quotes, and some versions put a space before the first one.
    let words =
        arguments.iter().map(|word| if word.contains(' ') { format!("\"{word}\"") } else { word.clone() });
    let arguments = words.collect::<Vec<_>>().join(" ");
    let filter = Filter {
        event_set: ["PROCESS_EXEC", "PROCESS_EXIT"],
        namespace: [namespace],
        pod_regex: [format!("^{}$", literal(pod))],
        binary_regex: [format!("{before}{}$", literal(program))],
        arguments_regex: [format!("^ ?{}$", literal(&arguments))],
    };
    Ok(serde_json::to_string(&filter).expect("texts can be written"))
}

/// A regular expression in RE2's syntax that matches this text only.
fn literal(text: &str) -> String {
    let mut literal = String::with_capacity(text.len());
    for character in text.chars() {
        if r"\.+*?()|[]{}^$".contains(character) {
            literal.push('\\');
        }
        literal.push(character);
    }
    literal
}
