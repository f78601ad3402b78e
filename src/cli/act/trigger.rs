//! `criprobe trigger` of a container or a pod: all its valid probes at once, a line for each as it ends.

use futures_util::{StreamExt, stream};
use serde_json::Value;

use super::{Subject, result};
use crate::{
    cli::{
        Context, Error, Exit,
        format::{self, Format},
        nothing,
        probes::explanation,
        progress::Progress,
        screen::{fit, print},
        select::Names,
    },
    clock,
    ids::ProbeKind,
    report::{
        filter::ProbeFilter,
        printable::printable,
        view::{ProbePhase, ProbeView, TriggeredView, joined},
    },
};

/// 4 attempts are waited for at once, half of those that may be waited for in one namespace: the daemon spaces those of a pod
/// out anyway.
const AT_ONCE: usize = 4;

/// 200 columns of why a probe cannot be triggered.
const MOST_WORDS: usize = 200;

impl Subject {
    /// Triggers a probe, and waits for the attempt.
    pub(super) async fn trigger(&self, context: &Context) -> Result<TriggeredView, Error> {
        let paths = self.paths();
        let path = paths.first().expect("there is at least one path");
        context.client.post_and_wait(&format!("{path}/trigger?wait=true"), &Value::Null).await
    }
}

/// Triggers all valid probes of criprobe's own: of several pods of this name, those of the newest.
///
/// # Errors
/// There is no such pod or container, or the daemon cannot be asked.
pub(super) async fn all(Subject(names): Subject, context: &Context) -> Result<Exit, Error> {
    let probes = valid(&names, context).await?;
    let progress =
        Progress::start(&format!("waiting for the attempts of {}", fit(&joined(parts(&names)), 80)));
    let tried = stream::iter(&probes).map(|probe| async move {
        if probe.phase != ProbePhase::Probing {
            return Ok(Err(idle(probe)));
        }
        let names = [&probe.pod_uid, &probe.container, &probe.kind].map(Clone::clone);
        match Subject(names.to_vec()).trigger(context).await {
            Ok(triggered) => Ok(Ok(triggered)),
            // It went away meanwhile, or the daemon makes no attempt now.
            Err(Error::Usage(reason) | Error::Declined(reason)) => Ok(Err(reason)),
            Err(error) => Err(error),
        }
    });
    let mut tried = tried.buffered(AT_ONCE);
    let (mut all, mut untried, mut is_erring) = (Vec::new(), Vec::new(), false);
    while let Some(one) = tried.next().await {
        match one? {
            Ok(triggered) => {
                is_erring |= Exit::of_attempt(triggered.triggered.result) == Exit::NotTried;
                all.push(triggered);
            }
            Err(reason) => untried.push(reason),
        }
    }
    drop(progress);
    let now = clock::wall().into();
    print(&match context.format {
        Format::Json => format::json(&all),
        Format::Yaml => format::yaml(&all),
        Format::Table | Format::Wide => all.iter().map(|one| result(one, now, context.screen)).collect(),
    })?;
    let is_failing = all.iter().any(|one| Exit::of_attempt(one.triggered.result) == Exit::Failed);
    let exit = match (is_failing, is_erring || all.is_empty()) {
        (true, _) => Exit::Failed,
        (false, true) => Exit::NotTried,
        (false, false) => Exit::Fine,
    };
    Ok(untried.iter().fold(exit, Exit::because))
}

/// `default/web/app/startup: not triggered: it is held: the container has started`.
fn idle(probe: &ProbeView) -> String {
    let why = explanation(probe);
    let why = if why.is_empty() { why } else { format!(": {}", fit(&why, MOST_WORDS)) };
    let phase = probe.phase.as_str();
    let is_said = why.trim_start_matches([':', ' ']).starts_with(phase);
    let phase = if is_said { "" } else { phase };
    format!(
        "{}: not triggered: it is {}",
        printable(&probe.id),
        format!("{phase}{why}").trim_start_matches(": ")
    )
}

async fn valid(names: &[String], context: &Context) -> Result<Vec<ProbeView>, Error> {
    let glob = |at: usize| names.get(at).map(|name| (&**name).into());
    let wanted = Names { namespace: glob(0), pod: glob(1), container: glob(2) };
    let Names { namespace, pod, container } = wanted.clone();
    let filter = ProbeFilter { namespace, pod, container, kind: None, since: None };
    let mut probes: Vec<ProbeView> = context.client.get(&format!("/v1/probes{}", filter.to_query())).await?;
    // The filter's names are patterns.
    probes.retain(|probe| {
        let its = [&probe.namespace, &probe.pod, &probe.container];
        names.iter().zip(its).all(|(name, its)| name == its)
    });
    let is_ours =
        |probe: &ProbeView| probe.kind.parse::<ProbeKind>().is_ok() && probe.phase != ProbePhase::Invalid;
    probes.retain(is_ours);
    // The daemon lists a newer one after an older one of its name.
    let newest = probes.last().map(|probe| probe.pod_uid.clone());
    probes.retain(|probe| Some(&probe.pod_uid) == newest.as_ref());
    if probes.is_empty() {
        if let Err(unknown) = wanted.check(context).await {
            return Err(nothing::with_events(context, names, unknown).await);
        }
        let problems = wanted.problems(context).await?;
        let problems = problems.iter().map(|problem| format!("; {problem}")).collect::<String>();
        let name = joined(parts(names));
        return Err(Error::NotTried(format!("{name} has no valid probe of criprobe's own{problems}")));
    }
    Ok(probes)
}

fn parts(names: &[String]) -> impl Iterator<Item = &str> {
    names.iter().map(String::as_str)
}
