//! `criprobe wait`: looks at pods again and again until they are as wanted, or the time is over.

mod missing;

use std::{str::FromStr, time::Duration};

use percent_encoding::percent_decode_str;
use serde::Serialize;
use tokio::time::{sleep, timeout};

use super::{
    Context, Error, Exit,
    format::{self, Format},
    progress::Progress,
    screen::print,
    select::Names,
    span::configured,
};
use crate::{
    clock,
    report::{
        filter::{Glob, PodFilter, ProbeFilter, duration, pattern},
        printable::printable,
        view::{PodView, ProbeView, RuntimeView, Seconds, StatusView, joined},
    },
};

/// Flags of the verb.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct WaitArgs {
    /// A pod or one of its containers; * and ? are wildcards: all that match are waited for; write %2F for a slash within
    /// a name
    #[arg(value_name = "NAMESPACE/POD[/CONTAINER]")]
    target: Target,
    /// What to wait for
    #[arg(long = "for", value_name = "STATE", value_enum)]
    goal: Goal,
    /// For how long
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    timeout: Duration,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Goal {
    /// As READY in 'criprobe pods'
    Ready,
    /// As STARTED in 'criprobe pods'
    Started,
    /// Started, and each probe of criprobe has succeeded at the current container, has the verdict success, and its newest
    /// attempt was no error; not while one is invalid, the pod's annotations are wrong, or the runtime is away
    Healthy,
}

const EXAMPLES: &str = "\
Examples:
  criprobe wait default/web --for ready
  criprobe wait default/web/app --for healthy --timeout 2m
  criprobe wait 'shop/web-*' --for started && echo up

A pod that does not exist yet is waited for. One that goes away meanwhile is reported on standard
error, and waited for again. With wildcards, at least one pod must exist, and all that exist must be
as wanted at the same time. A restart of the daemon is waited for, too.

Exit codes: 0 it is so, 1 the time is over, with what is missing, 2 wrong usage, 3 the daemon is not
reachable.";

/// A pod, or one of its containers, as patterns.
#[derive(Clone, Debug)]
struct Target {
    namespace: Glob,
    pod: Glob,
    container: Option<Glob>,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const WRITE: &str = "write NAMESPACE/POD or NAMESPACE/POD/CONTAINER";
        let parts = text.split('/').map(|part| percent_decode_str(part).decode_utf8());
        let parts: Vec<_> = parts.collect::<Result<_, _>>().map_err(|_| WRITE)?;
        if parts.iter().any(|part| part.is_empty()) {
            return Err(format!("a name is missing: {WRITE}"));
        }
        let mut parts = parts.iter().map(|part| pattern(part));
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(namespace), Some(pod), container, None) => {
                Ok(Self { namespace: namespace?, pod: pod?, container: container.transpose()? })
            }
            _ => Err(WRITE.to_owned()),
        }
    }
}

/// 250 ms between two looks: as old as an answer may be.
const INTERVAL: Duration = Duration::from_millis(250);

/// 3 reasons are named when the time is over; of others only the number.
const MOST_REASONS: usize = 3;

/// Why nothing can be said yet.
const UNREAD: &str = "the daemon does not answer, or the runtime's pods are not known yet: it has not been \
                      listed since criprobe started";

/// What was seen at one look.
#[derive(Debug, Default)]
struct Seen {
    pods: Vec<PodView>,
    /// What is missing, a text each; nothing is missing without any.
    missing: Vec<String>,
}

/// The last state, for machines.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Waited<'a> {
    /// What was waited for.
    r#for: &'static str,
    reached: bool,
    waited_seconds: Seconds,
    missing: &'a [String],
    pods: &'a [PodView],
}

impl WaitArgs {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, Error> {
        let began = clock::now();
        let deadline = began + self.timeout;
        let left = || deadline.saturating_duration_since(clock::now());
        let progress = Progress::start(&format!("waiting for {}", self.target.text()));
        let mut last: Option<Seen> = None;
        let mut away = None;
        loop {
            // The first look may take as long as any question.
            let looked = match &last {
                None => self.look(context).await,
                Some(_) => match timeout(left().max(INTERVAL), self.look(context)).await {
                    Ok(looked) => looked,
                    Err(_) => Ok(None),
                },
            };
            match looked {
                Ok(Some(seen)) => {
                    away = None;
                    for gone in gone(last.as_ref(), &seen) {
                        progress.note(&format!("{gone} went away: waiting until it is there again"));
                    }
                    progress.say(&summary(&seen.missing));
                    let is_reached = seen.missing.is_empty();
                    last = Some(seen);
                    if is_reached {
                        break;
                    }
                }
                Ok(None) => {
                    progress.say(UNREAD);
                    let unread = || Seen { missing: vec![UNREAD.to_owned()], ..Seen::default() };
                    last.get_or_insert_with(unread);
                }
                Err(error) if last.is_some() && error.may_pass() => {
                    progress.say(&format!("waiting for the daemon: {error}"));
                    away = Some(error);
                }
                Err(error) => return Err(error),
            }
            if left().is_zero() {
                break;
            }
            sleep(INTERVAL.min(left())).await;
        }
        drop(progress);
        if let Some(error) = away {
            return Err(error);
        }
        self.report(context, &last.unwrap_or_default(), clock::now().saturating_duration_since(began))
    }

    /// One look; nothing while the daemon has not listed the runtime's pods yet, as then none may be missed.
    async fn look(&self, context: &Context) -> Result<Option<Seen>, Error> {
        let Target { namespace, pod, container } = &self.target;
        let (namespace, pod) = (Some(namespace.clone()), Some(pod.clone()));
        let filter = PodFilter { namespace: namespace.clone(), pod: pod.clone() };
        let pods: Vec<PodView> = context.client.get(&format!("/v1/pods{}", filter.to_query())).await?;
        if pods.is_empty() {
            let status: StatusView = context.client.get("/v1/status").await?;
            if status.inventory.last_resync_at.is_none() {
                return Ok(None);
            }
            let all: Vec<PodView> = context.client.get("/v1/pods").await?;
            let names = Names { namespace, pod, container: None };
            let missing = names.unknown(&all).unwrap_or_else(|| format!("no pod {}", self.target.text()));
            return Ok(Some(Seen { missing: vec![missing], ..Seen::default() }));
        }
        let filter = ProbeFilter { namespace, pod, container: container.clone(), kind: None, since: None };
        let probes: Vec<ProbeView> = context.client.get(&format!("/v1/probes{}", filter.to_query())).await?;
        let mut missing = missing::missing(self.goal, container.as_ref(), (&pods, &probes), clock::wall());
        if self.goal == Goal::Healthy {
            // Probes are as they were before it went away.
            let runtime: RuntimeView = context.client.get("/v1/runtime").await?;
            let is_said = missing.iter().any(|reason| reason.contains(missing::AWAY));
            missing.extend(missing::runtime(&runtime, clock::wall()).filter(|_| !is_said));
        }
        Ok(Some(Seen { pods, missing }))
    }

    fn report(&self, context: &Context, seen: &Seen, waited: Duration) -> Result<Exit, Error> {
        let is_reached = seen.missing.is_empty() && !seen.pods.is_empty();
        let state = Waited {
            r#for: self.goal.as_str(),
            reached: is_reached,
            waited_seconds: Seconds(waited),
            missing: &seen.missing,
            pods: &seen.pods,
        };
        let lines = seen.pods.iter().filter(|_| is_reached).map(|pod| {
            let names = [&*pod.namespace, &*pod.pod].into_iter();
            let container = self.target.container.as_ref().map(Glob::as_str);
            format!("{}: {}\n", printable(&joined(names.chain(container))), self.goal.as_str())
        });
        print(&match context.format {
            Format::Json => format::json(&state),
            Format::Yaml => format::yaml(&state),
            Format::Table | Format::Wide => lines.collect(),
        })?;
        if is_reached {
            return Ok(Exit::Fine);
        }
        let (goal, time) = (self.goal.as_str(), configured(self.timeout));
        Ok(Exit::Failed.because(&format!("not {goal} within {time}: {}", summary(&seen.missing))))
    }
}

impl Target {
    /// As it is written.
    fn text(&self) -> String {
        let parts = [Some(&self.namespace), Some(&self.pod), self.container.as_ref()];
        parts.into_iter().flatten().map(Glob::as_str).collect::<Vec<_>>().join("/")
    }
}

impl Goal {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Started => "started",
            Self::Healthy => "healthy",
        }
    }
}

/// The pods that were there at the last look, and are not any more.
fn gone(last: Option<&Seen>, seen: &Seen) -> Vec<String> {
    let is_there = |gone: &&PodView| !seen.pods.iter().any(|pod| pod.pod_uid == gone.pod_uid);
    let gone = last.iter().flat_map(|last| &last.pods).filter(is_there);
    gone.map(|pod| joined([&*pod.namespace, &*pod.pod])).collect()
}

/// The first reasons in one line.
fn summary(missing: &[String]) -> String {
    let shown = missing.iter().take(MOST_REASONS).cloned().collect::<Vec<_>>().join("; ");
    match missing.len().checked_sub(MOST_REASONS) {
        Some(more @ 1..) => format!("{shown}; and {more} more"),
        Some(0) | None => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::view::sample;

    #[test]
    fn a_target_is_a_pod_or_a_container_and_nothing_else() {
        for (text, shown) in
            [("default/web", "default/web"), ("a%2Fb/web-*/app", "a/b/web-*/app"), ("*/*", "*/*")]
        {
            assert_eq!(text.parse::<Target>().map(|target| target.text()), Ok(shown.to_owned()));
        }
        for text in ["", "web", "default/", "a/b/c/d", "%ff/a"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
        assert!("x".repeat(2_000).parse::<Target>().is_err());
    }

    #[test]
    fn what_went_away_and_what_is_missing_take_a_line() {
        let seen = |pods| Seen { pods, ..Seen::default() };
        assert_eq!(gone(Some(&seen(vec![sample::pod()])), &Seen::default()), ["default/web"]);
        assert!(gone(Some(&seen(vec![sample::pod()])), &seen(vec![sample::pod()])).is_empty());
        assert!(gone(None, &seen(vec![])).is_empty());
        let reasons = |number: usize| (0..number).map(|at| at.to_string()).collect::<Vec<_>>();
        assert_eq!(summary(&reasons(3)), "0; 1; 2");
        assert_eq!(summary(&reasons(5)), "0; 1; 2; and 2 more");
    }
}
