//! What the daemon knows, as words to go on with: the beginning of a word in, names out. Silent and quick: whatever goes
//! wrong, or takes long, there are none.

use std::{env, ffi::OsStr, time::Duration};

use clap::{Arg, Command};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::{runtime::Builder, time::timeout};

use crate::{
    cli::{client::Client, endpoint::Endpoint},
    report::{
        filter::{PodFilter, ProbeFilter},
        view::joined,
    },
};

/// 300 ms for all questions of one completion: who types does not wait longer.
const PATIENCE: Duration = Duration::from_millis(300);

/// 1,000 words: more are not read, and a shell shows none before asking.
const MOST: usize = 1_000;

/// What an argument names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Namespace,
    /// A pod's name, without its namespace.
    Pod,
    /// A container's name, without its pod.
    Container,
    /// One of the types of a probe.
    Type,
    /// `NAMESPACE/POD`, `NAMESPACE/POD/CONTAINER`, `NAMESPACE/POD/CONTAINER/TYPE`: which of them.
    Path {
        pods: bool,
        containers: bool,
        probes: bool,
    },
}

/// What is read of a pod.
#[derive(Deserialize)]
struct Pod {
    namespace: String,
    pod: String,
    containers: Vec<Container>,
}

#[derive(Deserialize)]
struct Container {
    container: String,
}

/// What is read of a probe.
#[derive(Deserialize)]
struct Probe {
    id: String,
}

/// All verbs, with arguments that complete what the daemon knows.
pub(super) fn with_live_values(command: Command) -> Command {
    command.mut_subcommands(|verb| {
        verb.mut_args(|argument| match Kind::of(&argument) {
            Some(kind) => argument.add(ArgValueCompleter::new(move |word: &OsStr| kind.candidates(word))),
            None => argument,
        })
    })
}

impl Kind {
    /// What an argument names, by its name and that of its value.
    fn of(argument: &Arg) -> Option<Self> {
        let name =
            argument.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
        if argument.is_positional() {
            let (pods, containers) = (name.contains("POD"), name.contains("CONTAINER"));
            let probes = name.contains("PROBE");
            return (pods || containers || probes).then_some(Self::Path { pods, containers, probes });
        }
        match name {
            "NS" => Some(Self::Namespace),
            "POD" => Some(Self::Pod),
            "CONTAINER" => Some(Self::Container),
            "TYPE" => Some(Self::Type),
            _ => None,
        }
    }

    fn candidates(self, word: &OsStr) -> Vec<CompletionCandidate> {
        let Some(word) = word.to_str() else { return Vec::new() };
        let mut names = self.names(word).unwrap_or_default();
        names.retain(|name| name.starts_with(word) && is_harmless(name));
        names.sort();
        names.dedup();
        names.into_iter().take(MOST).map(CompletionCandidate::new).collect()
    }

    fn names(self, word: &str) -> Option<Vec<String>> {
        if self == Self::Type {
            return Some(["startup", "readiness", "liveness", "observed-1"].map(str::to_owned).to_vec());
        }
        let client = Client::new(endpoint()?);
        let runtime = Builder::new_current_thread().enable_all().build().ok()?;
        let names = async {
            let mut names = Vec::new();
            if !matches!(self, Self::Path { pods: false, containers: false, .. }) {
                let path = format!("/v1/pods{}", self.pods_of(word).to_query());
                names.extend(self.of_pods(&ask::<Vec<Pod>>(&client, &path).await?));
            }
            if matches!(self, Self::Path { probes: true, .. }) {
                let PodFilter { namespace, pod } = self.pods_of(word);
                let filter = ProbeFilter { namespace, pod, ..ProbeFilter::default() };
                let path = format!("/v1/probes{}", filter.to_query());
                names.extend(ask::<Vec<Probe>>(&client, &path).await?.into_iter().map(|probe| probe.id));
            }
            Some(names)
        };
        runtime.block_on(async { timeout(PATIENCE, names).await.ok().flatten() })
    }

    /// The pods that a path may go on with, so that a node with thousands of them answers in time.
    fn pods_of(self, word: &str) -> PodFilter {
        let is_plain = |text: &&str| !text.contains(['%', '*', '?']);
        let Self::Path { .. } = self else { return PodFilter::default() };
        let Some((namespace, rest)) = word.split_once('/').filter(|_| is_plain(&word)) else {
            return PodFilter::default();
        };
        let pod = rest.split_once('/').map_or_else(|| format!("{rest}*"), |(pod, _)| pod.to_owned());
        PodFilter { namespace: Some(namespace.into()), pod: Some((&*pod).into()) }
    }

    fn of_pods(self, known: &[Pod]) -> Vec<String> {
        let paths = |containers: bool| {
            known.iter().flat_map(move |pod| {
                let of_pod =
                    |name: Option<&str>| joined([&*pod.namespace, &*pod.pod].into_iter().chain(name));
                let names: Vec<_> = match containers {
                    true => pod.containers.iter().map(|one| of_pod(Some(&one.container))).collect(),
                    false => vec![of_pod(None)],
                };
                names
            })
        };
        match self {
            Self::Namespace => known.iter().map(|pod| pod.namespace.clone()).collect(),
            Self::Pod => known.iter().map(|pod| pod.pod.clone()).collect(),
            Self::Container => {
                known.iter().flat_map(|pod| &pod.containers).map(|one| one.container.clone()).collect()
            }
            Self::Type => Vec::new(),
            Self::Path { pods, containers, .. } => {
                let of_pods = pods.then(|| paths(false)).into_iter().flatten();
                of_pods.chain(containers.then(|| paths(true)).into_iter().flatten()).collect()
            }
        }
    }
}

async fn ask<T: DeserializeOwned>(client: &Client, path: &str) -> Option<T> {
    client.get(path).await.ok()
}

/// Whether a shell takes a name for nothing but a word. Pods' authors choose names, and bash puts them into the command
/// line as they are.
fn is_harmless(name: &str) -> bool {
    name.chars().all(|character| character.is_ascii_alphanumeric() || "-._/:%".contains(character))
        && !name.starts_with('-')
}

/// Where the daemon is, as the words so far and the environment say.
fn endpoint() -> Option<Endpoint> {
    let words: Vec<String> = env::args_os().filter_map(|word| word.into_string().ok()).collect();
    let flag = words.iter().enumerate().rev().find_map(|(at, word)| {
        let next = || words.get(at + 1).filter(|_| word == "--api").map(String::as_str);
        word.strip_prefix("--api=").or_else(next)
    });
    Endpoint::choose(flag, env::var("CRIPROBE_API").ok().as_deref()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_name_something_complete_it() {
        let command = with_live_values(crate::cli::command());
        let kind = |verb: &str, id: &str| {
            let verb = command.find_subcommand(verb).unwrap();
            Kind::of(verb.get_arguments().find(|argument| argument.get_id() == id).unwrap())
        };
        let path = |pods, containers, probes| Some(Kind::Path { pods, containers, probes });
        assert_eq!(kind("pause", "subject"), path(true, true, true));
        assert_eq!(kind("trigger", "subject"), path(true, true, true));
        assert_eq!(kind("run", "container"), path(false, true, false));
        assert_eq!(kind("wait", "target"), path(true, true, false));
        assert_eq!(kind("run", "probe"), Some(Kind::Type));
        assert_eq!(kind("probes", "namespace"), Some(Kind::Namespace));
        assert_eq!(kind("trace", "slower"), None);
    }

    #[test]
    fn only_words_that_no_shell_takes_for_more_are_offered() {
        for (name, is_fine) in [
            ("default/web-0/app/liveness", true),
            ("a%2Fb/web/app/observed-1", true),
            ("$(reboot)", false),
            ("a b", false),
            ("a;b", false),
            ("*", false),
            ("-n", false),
            ("ü", false),
        ] {
            assert_eq!(is_harmless(name), is_fine, "{name}");
        }
    }

    #[test]
    fn a_path_asks_only_for_what_it_may_go_on_with() {
        let asked =
            |word: &str| Kind::Path { pods: true, containers: true, probes: true }.pods_of(word).to_query();
        for (word, query) in [
            ("", ""),
            ("def", ""),
            ("default/", "?namespace=default&pod=%2A"),
            ("default/we", "?namespace=default&pod=we%2A"),
            ("default/web/a", "?namespace=default&pod=web"),
            ("a%2Fb/we", ""),
        ] {
            assert_eq!(asked(word), query, "{word}");
        }
    }

    #[test]
    fn paths_are_those_of_pods_and_containers() {
        let known: Vec<Pod> = serde_json::from_str(
            r#"[{"namespace":"a/b","pod":"web","containers":[{"container":"app","state":"running"}]}]"#,
        )
        .unwrap();
        let all = Kind::Path { pods: true, containers: true, probes: true };
        assert_eq!(all.of_pods(&known), ["a%2Fb/web", "a%2Fb/web/app"]);
        assert_eq!(Kind::Container.of_pods(&known), ["app"]);
    }
}
