//! `criprobe allowlist`: the commands of this node's exec probes, as an exception list for a security tool.

mod falco;
mod tetragon;

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    Context, Error, Exit,
    format::{self, Format},
    nothing::known,
    screen::print,
    select::{Names, Select},
};
use crate::{
    report::{
        filter::ProbeFilter,
        view::{HandlerView, ProbeDetailView, ProbeView, joined},
    },
    spec::expand::without_variables,
};

/// Flags of the verb.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AllowlistArgs {
    /// For which tool
    #[arg(long = "for", value_name = "TOOL", value_enum)]
    tool: Tool,
    /// Also list commands that a client of this process name runs with a rhythm; whoever may run commands with it can get
    /// any command listed
    #[arg(long = "client", value_name = "NAME", default_value = KUBELET)]
    clients: Vec<String>,
    #[command(flatten)]
    select: Select,
}

/// The client whose ExecSync calls are its probes: `kubectl exec` opens streams.
const KUBELET: &str = "kubelet";

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Tool {
    /// A macro for Falco's rules
    Falco,
    /// Filters for Tetragon's export, as values of its Helm chart
    Tetragon,
}

const EXAMPLES: &str = "\
Examples:
  criprobe allowlist --for falco > /etc/falco/rules.d/criprobe.yaml
  criprobe allowlist --for falco shop          only namespace shop
  criprobe allowlist --for tetragon > values-criprobe.yaml

Lists the commands of criprobe's own exec probes and of those of the kubelet that it recognised. Each entry is
tied to its namespace and pod, and for Falco also to its container and to a parent that is the runtime: the
same command elsewhere, or run by a process of the container, is still reported. Someone who may run
commands through the runtime can run the same one unreported.

A command that cannot be expressed safely is left out; a comment in the list says which one and why, and
nothing that it contains is repeated there. The list does not change unless probes do, so a timer can
renew it. docs/security-tools.md shows how both tools use it.";

/// A command that a probe runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ProbeCommand {
    namespace: String,
    pod: String,
    container: String,
    command: Vec<String>,
}

/// A probe that is not on the list, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LeftOut {
    probe: String,
    reason: &'static str,
}

/// What the list is made of: commands with the types of the probes that run them.
#[derive(Debug, Default)]
struct Allowlist {
    commands: BTreeMap<ProbeCommand, Vec<String>>,
    left_out: Vec<LeftOut>,
}

impl AllowlistArgs {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, Error> {
        if matches!(context.format, Format::Json | Format::Yaml) {
            let reason =
                "'allowlist' does not support -o json or yaml: the list has the format that --for names";
            return Err(Error::Usage(format!("{reason}; see 'criprobe allowlist --help'")));
        }
        let names = self.select.names()?;
        let Names { namespace, pod, container } = names.clone();
        let filter = ProbeFilter { namespace, pod, container, ..ProbeFilter::default() };
        let mut probes: Vec<ProbeView> =
            context.client.get(&format!("/v1/probes{}", filter.to_query())).await?;
        if probes.is_empty() {
            known(context, &names, false).await?;
        }
        probes.retain(|probe| probe.handler == "exec");
        let mut list = Allowlist::default();
        for probe in probes {
            let path = joined([&*probe.pod_uid, &*probe.container, &*probe.kind]);
            match context.client.get(&format!("/v1/probes/{path}")).await {
                Ok(detail) => list.add(&detail, &self.clients),
                // It has gone since it was listed.
                Err(Error::Usage(_)) => {}
                Err(error) => return Err(error),
            }
        }
        print(&match self.tool {
            Tool::Falco => falco::list(list),
            Tool::Tetragon => tetragon::list(list),
        })?;
        Ok(Exit::Fine)
    }
}

impl Allowlist {
    fn add(&mut self, detail: &ProbeDetailView, clients: &[String]) {
        let ProbeDetailView { probe, client, definition, .. } = detail;
        let defined = definition.as_ref().map(|definition| &definition.handler);
        let command = match (client, defined) {
            (Some(client), _) => &client.command,
            (None, Some(HandlerView::Exec { command })) => command,
            (None, _) => return,
        };
        if client.as_ref().is_some_and(|client| !clients.contains(&client.comm)) {
            let reason = "a client other than the kubelet runs it, and only its rhythm makes it a probe; \
                          --client NAME lists those of a client";
            return self.left_out.push(LeftOut { probe: probe.id.clone(), reason });
        }
        if command.iter().any(|word| word.contains(MASK)) {
            let reason = "its command has *** where trace.redact hides what would have to be compared";
            return self.left_out.push(LeftOut { probe: probe.id.clone(), reason });
        }
        // What clients run is expanded already, and a HEALTHCHECK never is.
        let is_literal = client.is_some() || probe.source == "healthcheck";
        let becomes = if is_literal { Some(command.clone()) } else { without_variables(command) };
        let Some(command) = becomes else {
            let reason = "its command names variables of its container, whose values are not shown";
            return self.left_out.push(LeftOut { probe: probe.id.clone(), reason });
        };
        let entry = ProbeCommand {
            namespace: probe.namespace.clone(),
            pod: probe.pod.clone(),
            container: probe.container.clone(),
            command,
        };
        self.commands.entry(entry).or_default().push(probe.kind.clone());
    }

    /// Each command as a tool expects it, or the reason why it cannot be.
    fn express<T>(
        self,
        express: impl Fn(&ProbeCommand) -> Result<T, &'static str>,
    ) -> (Vec<T>, Vec<LeftOut>) {
        let mut left_out = self.left_out;
        let mut expressed = Vec::new();
        for (command, kinds) in &self.commands {
            match safe(command).and_then(|()| express(command)) {
                Ok(entry) => expressed.push(entry),
                Err(reason) => left_out.extend(kinds.iter().map(|kind| {
                    let ProbeCommand { namespace, pod, container, .. } = command;
                    LeftOut { probe: joined([&**namespace, &**pod, &**container, &**kind]), reason }
                })),
            }
        }
        left_out.sort();
        (expressed, left_out)
    }
}

/// What the API shows in place of what is redacted.
const MASK: &str = "***";

/// 1,024 bytes: a longer command is not written down; the tools cut command lines at 4 KiB.
const LONGEST: usize = 1_024;

/// Whether all of it consists of characters that mean the same everywhere.
fn safe(command: &ProbeCommand) -> Result<(), &'static str> {
    let ProbeCommand { namespace, pod, container, command } = command;
    let words = command.iter().chain([namespace, pod, container]);
    let is_plain = |word: &String| word.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    let length: usize = command.iter().map(|word| word.len() + 1).sum();
    match () {
        () if command.first().is_none_or(String::is_empty) => Err("it has no program"),
        () if length > LONGEST => Err("its command is longer than 1,024 bytes"),
        () if !words.clone().all(is_plain) => {
            Err("it has line breaks, controls, or characters that are not ASCII")
        }
        () if command.iter().skip(1).any(String::is_empty) => {
            Err("it has an empty argument, which command lines do not show")
        }
        () => Ok(()),
    }
}

/// The list as a document: comments, and what a tool reads.
fn document<T: Serialize>(about: &[&str], left_out: &[LeftOut], content: &T) -> String {
    let mut text: String = about.iter().map(|line| format!("# {line}\n")).collect();
    for LeftOut { probe, reason } in left_out {
        text += &format!("# Left out: {}: {reason}.\n", comment(probe));
    }
    text + &format::yaml(content)
}

/// A name that cannot end a comment: pods' authors choose names.
fn comment(name: &str) -> String {
    name.chars().map(|character| if character.is_ascii_graphic() { character } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::view::{ClientView, DefinitionView, sample};

    /// A probe of ours with this command, in a pod of this name.
    fn probe(pod: &str, kind: &str, command: &[&str]) -> ProbeDetailView {
        let command = command.iter().map(|word| (*word).to_owned()).collect();
        let plain = sample::detail();
        let definition = plain.definition.clone();
        let definition = definition.map(|it| DefinitionView { handler: HandlerView::Exec { command }, ..it });
        ProbeDetailView { probe: sample::named_probe("shop", pod, "app", kind), definition, ..plain }
    }

    fn lists(probes: &[ProbeDetailView]) -> [String; 2] {
        [falco::list, tetragon::list].map(|list| {
            let mut all = Allowlist::default();
            probes.iter().for_each(|probe| all.add(probe, &[KUBELET.to_owned()]));
            list(all)
        })
    }

    #[test]
    fn lists_look_like_this() {
        let healthcheck = ProbeDetailView {
            probe: ProbeView {
                source: "healthcheck".to_owned(),
                ..sample::named_probe("shop", "image", "app", "liveness")
            },
            ..probe("image", "liveness", &["/bin/sh", "-c", "test $(cat /tmp/x) = 1"])
        };
        let observed = sample::observed_detail();
        let client = observed.client.clone().map(|client| ClientView { comm: "crictl".to_owned(), ..client });
        let by_people = ProbeDetailView {
            probe: sample::named_probe("shop", "people", "app", "observed-1"),
            client,
            ..observed
        };
        let probes = [
            probe("web-0", "liveness", &["cat", "/tmp/healthy"]),
            probe("web-0", "readiness", &["cat", "/tmp/healthy"]),
            probe("web-1", "liveness", &["/bin/sh", "-c", "test -f /tmp/a && echo \"ok\""]),
            probe("web-2", "liveness", &["true"]),
            probe("web-3", "liveness", &["check", "$(TOKEN)"]),
            probe("web-4", "liveness", &["awk", "{print \"it's \\n\"}"]),
            probe("web-5", "liveness", &["check", "--password=***"]),
            probe("web-6", "liveness", &["sh", "-c", "test $(date +%s) -lt $((1 + 2)) && kill -0 $$$$"]),
            healthcheck,
            by_people,
            sample::observed_detail(),
        ];
        let [falco, tetragon] = lists(&probes);
        insta::assert_snapshot!("allowlist_falco", falco);
        insta::assert_snapshot!("allowlist_tetragon", tetragon);
        let [falco, tetragon] = lists(&[]);
        insta::assert_snapshot!("allowlist_falco_empty", falco);
        insta::assert_snapshot!("allowlist_tetragon_empty", tetragon);
    }

    #[test]
    fn no_command_and_no_name_can_add_to_what_the_list_says() {
        let hostile = [
            "x\" or true or proc.name=\"",
            "x' or true or proc.name='",
            "x\\\" or evt.num>0 or proc.exe=\"y",
            "a\n- macro: criprobe_probe\n  condition: (evt.num>0)",
            "a: b # c",
            "{}[]&*!|>%@`",
            "\u{85}next",
            "\u{2028}next",
            "(a) or (b)",
            "$",
            "^.*$",
            "*",
        ];
        for text in hostile {
            for detail in [
                probe("web", "liveness", &["sh", "-c", text]),
                probe("web", "liveness", &[text]),
                probe(text, "liveness", &["true"]),
            ] {
                let [falco, tetragon] = lists(&[detail]);
                let falco: Vec<BTreeMap<String, String>> = serde_saphyr::from_str(&falco).unwrap();
                assert_eq!(falco.len(), 1, "{text}");
                assert_eq!(falco[0].keys().collect::<Vec<_>>(), ["condition", "macro"], "{text}");
                // What is left when each text in quotes is a word: an expression that the author cannot change.
                let mut skeleton = String::new();
                let mut quote = None;
                for character in falco[0]["condition"].chars() {
                    match quote {
                        None if matches!(character, '"' | '\'') => quote = Some(character),
                        None => skeleton.push(character),
                        Some(open) if open == character => quote = None,
                        Some(_) => assert_ne!(character, '\\', "{text}"),
                    }
                }
                assert_eq!(quote, None, "{text}");
                let skeleton = skeleton.replace("proc.cmdnargs=0", "proc.args=");
                let expected = [falco::NOTHING, falco::SKELETON];
                assert!(expected.contains(&&*skeleton), "{text}: {skeleton}");
                let tetragon: BTreeMap<String, BTreeMap<String, String>> =
                    serde_saphyr::from_str(&tetragon).unwrap();
                let lines = &tetragon["tetragon"]["exportDenyList"];
                assert!(lines.lines().count() <= 1, "{text}: {lines}");
                for line in lines.lines() {
                    let filter: BTreeMap<String, Vec<String>> = serde_json::from_str(line).unwrap();
                    assert_eq!(filter.len(), 5, "{text}: {line}");
                }
            }
        }
    }
}
