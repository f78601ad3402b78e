//! The routes that change probes: pause, resume, trigger. In: names in the path. Out: the probes after the change.

use std::time::Duration;

use axum::{
    Json, Router,
    body::Bytes,
    extract::{RawQuery, State},
    http::StatusCode,
    routing::post,
};
use serde::Deserialize;
use tokio::time::timeout;

use super::{Names, Refusal, Shared, named};
use crate::{
    ids::{ProbeKey, ProbeKind},
    prober::{CommandRefusal, PauseTerms, ProbeCommand, TriggerEnd, pauses::MAX_REASON},
    report::{
        lookup,
        printable::is_steering,
        view::{CommandedView, ProbePhase, ProbeView, Seconds, TriggeredView},
    },
};

/// 1 year: the longest time of a pause. Longer ones, as by a wrong unit, are refused; a pause without a time is possible.
const LONGEST_PAUSE: Duration = Duration::from_secs(365 * 24 * 3600);

/// 200 s: how long an attempt is waited for: three tries of 60 s each, the longest timeout by default, and the wait for a
/// place. Then 409; the attempt goes on.
const TRIGGER_TIMEOUT: Duration = Duration::from_secs(200);

/// What to do with a probe, by the last part of the path.
#[derive(Clone, Copy)]
enum Verb {
    Pause,
    Resume,
}

/// `POST .../pause` and `.../resume` of a probe, a container and a pod. Never on TCP.
pub(super) fn routes() -> Router<Shared> {
    let mut routes = Router::new();
    for (verb, word) in [(Verb::Pause, "pause"), (Verb::Resume, "resume")] {
        for probe in PROBES {
            let act = move |shared: State<Shared>, names: Names, body: Bytes| one(shared, names, body, verb);
            routes = routes.route(&format!("{probe}/{word}"), post(act));
        }
        for place in ["/v1/pods/{namespace}/{pod}", "/v1/containers/{namespace}/{pod}/{container}"] {
            let act = move |shared: State<Shared>, names: Names, body: Bytes| all(shared, names, body, verb);
            routes = routes.route(&format!("{place}/{word}"), post(act));
        }
    }
    routes
}

/// `POST .../trigger`, which may take as long as the attempt. Never on TCP.
pub(super) fn waiting_routes() -> Router<Shared> {
    let mut routes = Router::new();
    for probe in PROBES {
        routes = routes.route(&format!("{probe}/trigger"), post(trigger));
    }
    routes
}

const PROBES: [&str; 2] =
    ["/v1/probes/{uid}/{container}/{type}", "/v1/probes/{namespace}/{pod}/{container}/{type}"];

/// The body of a pause; all of it may be left out.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PauseBody {
    for_seconds: Option<Seconds>,
    #[serde(default)]
    reason: String,
}

impl Verb {
    /// The command with its terms, which only a pause has.
    fn command(self, body: &Bytes) -> Result<ProbeCommand, Refusal> {
        match self {
            Self::Pause => terms(body).map(ProbeCommand::Pause),
            Self::Resume => Ok(ProbeCommand::Resume),
        }
        .map_err(|reason| Refusal::new(StatusCode::BAD_REQUEST, reason))
    }
}

fn terms(body: &Bytes) -> Result<PauseTerms, String> {
    let read = if body.is_empty() { Ok(PauseBody::default()) } else { serde_json::from_slice(body) };
    let PauseBody { for_seconds, reason } = read
        .map_err(|error| format!("the body must be {{\"forSeconds\": N, \"reason\": \"...\"}}: {error}"))?;
    let length = for_seconds.map(|Seconds(length)| length);
    if length.is_some_and(|length| length.is_zero() || length > LONGEST_PAUSE) {
        return Err("a pause lasts for more than 0 s and at most a year".to_owned());
    }
    if reason.len() > MAX_REASON || reason.contains(is_steering) {
        return Err(format!(
            "a reason is one line of at most {MAX_REASON} bytes, without control characters"
        ));
    }
    Ok(PauseTerms { length, reason: reason.trim().into() })
}

async fn one(
    State(shared): State<Shared>,
    Names(names): Names,
    body: Bytes,
    verb: Verb,
) -> Result<Json<CommandedView>, Refusal> {
    let command = verb.command(&body)?;
    let probe = named(&shared.sources, &names).await?.probe;
    let key = own_key(&probe)?;
    shared
        .sources
        .prober
        .command(key, command.clone())
        .await?
        .map_err(|refusal| refused(&probe, &refusal))?;
    log(&shared, &probe, word(&command));
    let was_paused = Some(probe.pause.is_some());
    let probe = named(&shared.sources, &[probe.pod_uid, probe.container, probe.kind]).await?.probe;
    Ok(Json(CommandedView { probe, was_paused }))
}

/// Does it with all valid probes of ours of a pod, or of one of its containers: of the newest pod of that name.
async fn all(
    State(shared): State<Shared>,
    Names(names): Names,
    body: Bytes,
    verb: Verb,
) -> Result<Json<Vec<CommandedView>>, Refusal> {
    let command = verb.command(&body)?;
    let mut probes = shared.sources.snapshots.probes().await?;
    let is_meant = |probe: &ProbeView| {
        let its = [&probe.namespace, &probe.pod, &probe.container];
        names.iter().zip(its).all(|(name, its)| name == its)
    };
    let uid = probes.iter().rfind(|probe| is_meant(probe)).map(|probe| probe.pod_uid.clone());
    let Some(uid) = uid else {
        let pods = shared.sources.snapshots.pods().await?;
        let of_pods = pods.iter().flat_map(|pod| {
            let name = |container| [&*pod.namespace, &*pod.pod, container];
            let containers = pod.containers.iter().map(move |container| name(&*container.container));
            containers.chain((names.len() == 2).then_some(name("")))
        });
        return Err(lookup::without_probes(&names, of_pods).into());
    };
    probes.retain(|probe| probe.pod_uid == uid && is_meant(probe) && own_key(probe).is_ok());
    let is_able = |probe: &&ProbeView| probe.phase != ProbePhase::Invalid;
    let mut done = Vec::new();
    let mut failed = None;
    for probe in probes.iter().filter(is_able) {
        let key = own_key(probe)?;
        let answer = shared.sources.prober.command(key.clone(), command.clone()).await;
        match answer.map_err(Refusal::from) {
            Ok(Ok(())) => done.push((key, probe.pause.is_some())),
            // It has gone, or become invalid, meanwhile.
            Ok(Err(CommandRefusal::Unknown | CommandRefusal::Invalid(_))) => {}
            Ok(Err(refusal @ CommandRefusal::NotNow(_))) => failed = Some(refused(probe, &refusal)),
            Err(unanswered) => failed = Some(unanswered),
        }
        if failed.is_some() {
            break;
        }
    }
    if let (Some(first), false) = (probes.first(), done.is_empty()) {
        log(&shared, first, word(&command));
    }
    if let Some(failed) = failed {
        return Err(failed);
    }
    if done.is_empty() {
        let reason = format!("{} has no valid probe of criprobe's own", lookup::written(&names));
        return Err(Refusal::new(StatusCode::CONFLICT, reason));
    }
    let mut probes = shared.sources.snapshots.probes().await?;
    super::sort(&mut probes);
    let commanded = probes.into_iter().filter_map(|probe| {
        let key = own_key(&probe).ok()?;
        let was_paused = done.iter().find_map(|(done, was_paused)| (*done == key).then_some(*was_paused))?;
        Some(CommandedView { probe, was_paused: Some(was_paused) })
    });
    Ok(Json(commanded.collect()))
}

/// With `?wait=true`, waits for the attempt, and answers with it.
async fn trigger(
    State(shared): State<Shared>,
    Names(names): Names,
    RawQuery(query): RawQuery,
) -> Result<axum::response::Response, Refusal> {
    use axum::response::IntoResponse as _;
    let probe = named(&shared.sources, &names).await?.probe;
    let key = own_key(&probe)?;
    let waits = query.is_some_and(|query| query.split('&').any(|pair| pair == "wait=true"));
    let names = [probe.pod_uid.clone(), probe.container.clone(), probe.kind.clone()];
    if !waits {
        let done = shared.sources.prober.command(key, ProbeCommand::Trigger).await?;
        done.map_err(|refusal| refused(&probe, &refusal))?;
        log(&shared, &probe, "trigger");
        return Ok(Json(named(&shared.sources, &names).await?.probe).into_response());
    }
    let ended = shared.sources.prober.trigger(key).await?.map_err(|refusal| refused(&probe, &refusal))?;
    log(&shared, &probe, "trigger");
    let ended = tokio::select! {
        biased;
        () = shared.drained.cancelled() => {
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the daemon is stopping".to_owned()));
        }
        ended = timeout(TRIGGER_TIMEOUT, ended) => ended,
    };
    let not_made = |reason: &str| Refusal::new(StatusCode::CONFLICT, format!("{}: {reason}", probe.id));
    let attempt = match ended {
        Ok(Ok(TriggerEnd::Made(attempt))) => attempt,
        Ok(Ok(TriggerEnd::NotMade(reason))) => {
            return Err(not_made(&format!("no attempt was made: {reason}")));
        }
        Ok(Err(_)) => return Err(not_made("the prober was started again: the attempt is lost")),
        Err(_) => return Err(not_made(&format!("the attempt has not ended within {TRIGGER_TIMEOUT:?}"))),
    };
    let probe = named(&shared.sources, &names).await?.probe;
    Ok(Json(TriggeredView { probe, triggered: (&attempt).into() }).into_response())
}

/// The key of a probe of ours.
fn own_key(probe: &ProbeView) -> Result<ProbeKey, Refusal> {
    let kind: ProbeKind = probe.kind.parse().map_err(|_: String| {
        let reason = format!("a client runs the probe {}, criprobe only watches it", probe.id);
        Refusal::new(StatusCode::BAD_REQUEST, reason)
    })?;
    Ok(ProbeKey { pod: probe.pod_uid.as_str().into(), container: probe.container.as_str().into(), kind })
}

/// Logs a command once, also if it concerns all probes of a container or a pod.
fn log(shared: &Shared, probe: &ProbeView, command: &str) {
    if shared.commands.admit() {
        tracing::info!(
            namespace = probe.namespace,
            pod = probe.pod,
            container = probe.container,
            probe.type = probe.kind,
            command,
            "operator command"
        );
    }
}

fn refused(probe: &ProbeView, refusal: &CommandRefusal) -> Refusal {
    let code = match refusal {
        CommandRefusal::Unknown => StatusCode::NOT_FOUND,
        CommandRefusal::Invalid(_) | CommandRefusal::NotNow(_) => StatusCode::CONFLICT,
    };
    Refusal::new(code, format!("{}: {refusal}", probe.id))
}

fn word(command: &ProbeCommand) -> &'static str {
    match command {
        ProbeCommand::Pause(_) => "pause",
        ProbeCommand::Resume => "resume",
        ProbeCommand::Trigger => "trigger",
    }
}
