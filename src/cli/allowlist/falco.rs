//! A macro for Falco's rules: true of the processes that probes start.

use serde::Serialize;

use super::{Allowlist, ProbeCommand, document};

/// What is said above the list.
const ABOUT: [&str; 4] = [
    "The commands of this node's exec probes, by criprobe: 'criprobe allowlist --for falco' renews it.",
    "True of a process that the runtime starts in the named container with the named command line. To except it from a rule:",
    "  {rule: NAME OF THE RULE, condition: and not criprobe_probe, override: {condition: append}}",
    "See docs/security-tools.md of criprobe.",
];

/// The parents of a process at the moment when the runtime starts it in a container: runc and crun with their stages, the shim
/// that adopts it, and CRI-O's monitor.
const PARENTS: [&str; 8] = [
    "runc",
    "runc:[0:PARENT]",
    "runc:[1:CHILD]",
    "runc:[2:INIT]",
    "exe",
    "crun",
    "containerd-shim",
    "conmon",
];

/// The condition of a list without entries: false of every event.
pub(super) const NOTHING: &str = "(evt.num=0)";

/// The condition of a list with one entry, without the texts in quotes.
#[cfg(test)]
pub(super) const SKELETON: &str = "proc.pname in (, , , , , , , )\nand (\n(k8s.ns.name= and k8s.pod.name= and container.name= and proc.exe= and proc.args=)\n)";

#[derive(Serialize)]
struct Macro {
    #[serde(rename = "macro")]
    name: &'static str,
    condition: String,
}

pub(super) fn list(list: Allowlist) -> String {
    let (entries, left_out) = list.express(condition);
    let condition = if entries.is_empty() {
        NOTHING.to_owned()
    } else {
        let parents = PARENTS.map(|name| format!("\"{name}\"")).join(", ");
        format!("proc.pname in ({parents})\nand (\n{}\n)", entries.join("\nor "))
    };
    document(&ABOUT, &left_out, &[Macro { name: "criprobe_probe", condition }])
}

fn condition(probe: &ProbeCommand) -> Result<String, &'static str> {
    let ProbeCommand { namespace, pod, container, command } = probe;
    let Some((program, arguments)) = command.split_first() else { return Err("it has no program") };
    let fields = [
        format!("k8s.ns.name={}", quoted(namespace)?),
        format!("k8s.pod.name={}", quoted(pod)?),
        format!("container.name={}", quoted(container)?),
        format!("proc.exe={}", quoted(program)?),
        match arguments {
            [] => "proc.cmdnargs=0".to_owned(),
            arguments => format!("proc.args={}", quoted(&arguments.join(" "))?),
        },
    ];
    Ok(format!("({})", fields.join(" and ")))
}

/// A text in quotes that it does not contain itself. Falco takes a backslash for the beginning of an escape.
fn quoted(text: &str) -> Result<String, &'static str> {
    match () {
        () if text.contains('\\') => Err("it has a backslash, which Falco's conditions cannot hold safely"),
        () if !text.contains('"') => Ok(format!("\"{text}\"")),
        () if !text.contains('\'') => Ok(format!("'{text}'")),
        () => Err("it has both kinds of quotes, which Falco's conditions cannot hold safely"),
    }
}
