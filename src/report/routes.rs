//! The routes of the API: a request in, a view or a stream of views out.

mod act;
mod live;
mod page;
mod run;

use std::{any::Any, collections::HashMap, ops::Deref, sync::Arc, time::Duration};

use axum::{
    Extension, Json, Router,
    body::Body,
    extract::{FromRequestParts, Path, Query, RawQuery, State},
    http::{
        HeaderMap, Method, StatusCode, Uri,
        header::{ACCEPT, CONTENT_TYPE},
        request::Parts,
    },
    middleware::{map_response, map_response_with_state},
    response::{IntoResponse, Response},
    routing::get,
};
use futures_util::TryFutureExt as _;
use tokio_util::sync::CancellationToken;
use tower_http::{catch_panic::CatchPanicLayer, timeout::TimeoutLayer};

use super::{
    JournaledCall, Sources,
    commands::CommandLog,
    detail::DetailParts,
    filter::{CallFilter, EventFilter, Parameters, PodFilter, ProbeFilter, retain},
    lines::{self, Commands, Shown, Window},
    live::Live,
    lookup::{self, NotFound},
    metrics::negotiation,
    name::ProbeName,
    pieces,
    places::{Following, MAX_FOLLOWERS, Place},
    redacted::{Redacting, redacted},
    room::{Guess, Held, NoRoom, Room},
    top::TopFilter,
    view::{
        ErrorView, EventView, PodDetailView, PodView, ProbeDetailView, ProbeView, ReadyzCheck, RuntimeView,
        StatusView,
    },
};
use crate::stage::Unanswered;

/// 5 s for an answer that is no stream; its stages have 2 s of them. Then 503.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The error for a path whose percent-encoded bytes are not UTF-8.
const PATH_IS_NO_TEXT: &str =
    "the path is not UTF-8: percent-encode each name in it, as in /v1/probes/NAMESPACE/POD/CONTAINER/TYPE";

/// What a view is, for the one who asked.
const JSON: &str = "application/json";

/// The place of the connection that asks.
type On = Extension<Arc<Place>>;

/// What every handler can reach. Clones are the same: each handler takes one, and copies no more than a pointer.
#[derive(Clone)]
struct Shared(Arc<Common>);

impl Deref for Shared {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.0
    }
}

struct Common {
    sources: Sources,
    /// Cancelled when the daemon drains: ends the streams.
    drained: CancellationToken,
    commands: CommandLog,
    room: Room,
    live: Live,
    redacting: Redacting,
    guesses: Guesses,
}

/// What answers whose size depends on pods are expected to hold.
#[derive(Default)]
struct Guesses {
    probes: Guess,
    probe: Guess,
    pods: Guess,
    pod: Guess,
    trace: Guess,
    events: Guess,
    configuration: Guess,
    top: Guess,
    metrics: Guess,
}

/// All routes. Streams end when `drained` is cancelled. Expects the [`Place`] of its connection with each request.
pub(super) fn router(
    sources: Sources,
    drained: CancellationToken,
    commands: CommandLog,
    (room, live, redacting): (Room, Live, Redacting),
) -> Router {
    let streams = Router::new().route("/v1/trace", get(trace)).route("/v1/events", get(events));
    Router::new()
        .route("/v1/status", get(status))
        .route("/v1/runtime", get(runtime))
        .route("/v1/config", get(configuration))
        .route("/v1/probes", get(probes))
        .route("/v1/probes/{uid}/{container}/{type}", get(probe))
        .route("/v1/probes/{namespace}/{pod}/{container}/{type}", get(probe))
        .route("/v1/pods", get(pods))
        .route("/v1/pods/{namespace}/{pod}", get(pod))
        .route("/v1/top", get(top))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .merge(act::routes())
        .layer(TimeoutLayer::with_status_code(StatusCode::SERVICE_UNAVAILABLE, ANSWER_TIMEOUT))
        .route("/livez", get(async || "ok\n"))
        .merge(page::routes())
        .merge(streams)
        .merge(live::routes())
        .merge(run::routes())
        .merge(act::waiting_routes())
        .fallback(async |uri: Uri| {
            Refusal::new(StatusCode::NOT_FOUND, format!("{} does not exist", uri.path()))
        })
        .method_not_allowed_fallback(async |method: Method, uri: Uri| {
            Refusal::new(StatusCode::METHOD_NOT_ALLOWED, format!("{} does not support {method}", uri.path()))
        })
        .layer(map_response(in_our_words))
        .layer(map_response_with_state(redacting.clone(), redacted))
        .layer(CatchPanicLayer::custom(panicked))
        .with_state(Shared(Arc::new(Common {
            sources,
            drained,
            commands,
            room,
            live,
            redacting,
            guesses: Guesses::default(),
        })))
}

async fn status(State(shared): State<Shared>) -> Result<Json<StatusView>, Refusal> {
    Ok(Json(shared.sources.snapshots.status().await?))
}

async fn runtime(State(shared): State<Shared>) -> Json<RuntimeView> {
    Json(shared.sources.snapshots.runtime())
}

async fn configuration(State(shared): State<Shared>, Extension(place): On) -> Result<Response, Refusal> {
    let collect =
        || async { Ok::<_, Refusal>(pieces::json(&shared.sources.snapshots.configuration().await?)) };
    let (json, held) = shared.room.hold(&place, &shared.guesses.configuration, collect, Vec::len).await?;
    Ok(answer(std::iter::once(json), held))
}

async fn probes(
    State(shared): State<Shared>,
    Extension(place): On,
    Params(filter): Params<ProbeFilter>,
) -> Result<Response, Refusal> {
    let weigh = |probes: &Vec<ProbeView>| probes.iter().map(ProbeView::size).sum();
    let collect = || shared.sources.snapshots.probes().map_err(Refusal::from);
    let (mut probes, mut held) = shared.room.hold(&place, &shared.guesses.probes, collect, weigh).await?;
    retain(&mut probes, |probe| filter.admits(probe)).await;
    probes.shrink_to_fit();
    held.resize(weigh(&probes));
    sort(&mut probes);
    Ok(answer(pieces::array(probes.into_iter()), held))
}

/// The probe with this key, or that of the newest sandbox of that name, in full. Only where there is none, all are listed.
async fn named(sources: &Sources, names: &[String]) -> Result<ProbeDetailView, Refusal> {
    let named = match ProbeName::of_parts(names) {
        Some(name) => sources.snapshots.probe(name).await?,
        None => None,
    };
    if let Some(detail) = named {
        return Ok(detail);
    }
    // No probe has that name, unless one has just come: then the list has it.
    let probe = lookup::probe(names, sources.snapshots.probes().await?)?;
    Err(NotFound::Unknown(format!("no probe {}", probe.id)).into())
}

/// One probe in full.
async fn probe(
    State(shared): State<Shared>,
    Extension(place): On,
    Names(names): Names,
) -> Result<Response, Refusal> {
    let collect = || in_full(&shared.sources, &names);
    let (detail, held) = shared.room.hold(&place, &shared.guesses.probe, collect, DetailParts::size).await?;
    Ok(answer(detail.into_parts(), held))
}

async fn in_full(sources: &Sources, names: &[String]) -> Result<DetailParts, Refusal> {
    let detail = named(sources, names).await?;
    let probe = &detail.probe;
    let mut events = sources.events.last(usize::MAX);
    events.retain(|event| {
        event.pod_uid == probe.pod_uid && event.container == probe.container && event.probe == probe.kind
    });
    Ok(DetailParts::new(detail, events))
}

async fn pods(
    State(shared): State<Shared>,
    Extension(place): On,
    Params(filter): Params<PodFilter>,
) -> Result<Response, Refusal> {
    let weigh = |pods: &Vec<PodView>| pods.iter().map(PodView::size).sum();
    let collect = || shared.sources.snapshots.pods().map_err(Refusal::from);
    let (mut pods, mut held) = shared.room.hold(&place, &shared.guesses.pods, collect, weigh).await?;
    retain(&mut pods, |pod| filter.admits(pod)).await;
    pods.shrink_to_fit();
    held.resize(weigh(&pods));
    Ok(answer(pieces::array(pods.into_iter()), held))
}

/// One pod in full: of several with this name, the newest. Its events, and those of the node: what changed before it failed.
async fn pod(
    State(shared): State<Shared>,
    Extension(place): On,
    Names(names): Names,
) -> Result<Response, Refusal> {
    let collect = || async { Ok::<_, Refusal>(pieces::json(&pod_in_full(&shared.sources, &names).await?)) };
    let (json, held) = shared.room.hold(&place, &shared.guesses.pod, collect, Vec::len).await?;
    Ok(answer(std::iter::once(json), held))
}

async fn pod_in_full(sources: &Sources, names: &[String]) -> Result<PodDetailView, Refusal> {
    let pod = lookup::pod(names, sources.snapshots.pods().await?)?;
    let mut probes = sources.snapshots.probes().await?;
    retain(&mut probes, |probe| probe.pod_uid == pod.pod_uid && probe.sandbox_id == pod.sandbox_id).await;
    sort(&mut probes);
    let since = pod.known_since();
    let is_of_interest = |event: &EventView| match (&*event.pod_uid, since) {
        // Nothing that happened to the node before the pod came is of interest to it.
        ("", Some(since)) => since < event.at,
        ("", None) => event.reason != EventView::DAEMON_STARTED,
        (uid, _) => uid == pod.pod_uid,
    };
    let events = sources.events.last(usize::MAX).into_iter().filter(|event| is_of_interest(event));
    let events = events.map(|event| EventView::clone(&event)).collect();
    Ok(PodDetailView { pod, probes, events })
}

/// What runs now, and what commands cost.
async fn top(
    State(shared): State<Shared>,
    Extension(place): On,
    Params(filter): Params<TopFilter>,
) -> Result<Response, Refusal> {
    let collect =
        || async { Ok::<_, Refusal>(pieces::json(&shared.sources.snapshots.top(filter.clone()).await?)) };
    let (json, held) = shared.room.hold(&place, &shared.guesses.top, collect, Vec::len).await?;
    Ok(answer(std::iter::once(json), held))
}

async fn trace(
    State(shared): State<Shared>,
    Extension(place): On,
    Params(filter): Params<CallFilter>,
) -> Result<Response, Refusal> {
    let (last, following) = (filter.last, following(&place, filter.follow)?);
    // Only calls that are wanted otherwise are searched for what is redacted.
    let command = filter.command.clone().map(|glob| Commands::new(glob, shared.redacting.clone()));
    let admits = move |call: &_| filter.admits(call);
    let window = Window { admits, command, last, following };
    let (show, size) = (JournaledCall::view as fn(&_) -> _, JournaledCall::size as fn(&_) -> _);
    let shown = Shown { journal: &shared.sources.trace, show, size, guess: &shared.guesses.trace };
    Ok(lines::respond(shown, window, &place, &shared.room, shared.drained.clone()).await?)
}

async fn events(
    State(shared): State<Shared>,
    Extension(place): On,
    Params(filter): Params<EventFilter>,
) -> Result<Response, Refusal> {
    let (last, following) = (filter.last, following(&place, filter.follow)?);
    let window = Window { admits: move |event: &_| filter.admits(event), command: None, last, following };
    let (show, size) = (EventView::clone as fn(&_) -> _, EventView::size as fn(&_) -> _);
    let shown = Shown { journal: &shared.sources.events, show, size, guess: &shared.guesses.events };
    Ok(lines::respond(shown, window, &place, &shared.room, shared.drained.clone()).await?)
}

/// JSON whose parts are made when they are written.
fn answer(parts: impl Iterator<Item = Vec<u8>> + Send + 'static, held: Held) -> Response {
    ([(CONTENT_TYPE, JSON)], pieces::body(parts, held)).into_response()
}

/// A follower's right to stay, if one is wanted and there are not too many.
fn following(place: &Arc<Place>, is_wanted: bool) -> Result<Option<Following>, Refusal> {
    let too_many = || {
        let reason =
            format!("{MAX_FOLLOWERS} clients are already following: stop one of them, or omit follow");
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, reason)
    };
    is_wanted.then(|| place.follow().ok_or_else(too_many)).transpose()
}

/// 200 when the runtime answers, its pods and containers are known, and the daemon does not end; otherwise 503 and the
/// first reason why not. `?verbose` lists each check, also those that do not decide.
async fn readyz(State(shared): State<Shared>, RawQuery(query): RawQuery) -> Response {
    let checks = match shared.sources.snapshots.status().await {
        Ok(status) => Vec::from(status.checks()),
        Err(error) => vec![("status", ReadyzCheck::Failed(error.to_string()))],
    };
    let failed = checks.iter().find_map(|(_, check)| match check {
        ReadyzCheck::Failed(reason) => Some(reason),
        ReadyzCheck::Ok | ReadyzCheck::Doubtful(_) => None,
    });
    let code = if failed.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let is_verbose = query
        .is_some_and(|query| query.split('&').any(|pair| pair == "verbose" || pair.starts_with("verbose=")));
    let text = match failed {
        _ if is_verbose => checks.iter().map(check_line).collect(),
        Some(reason) => format!("{reason}\n"),
        None => "ok\n".to_owned(),
    };
    (code, text).into_response()
}

fn check_line((name, check): &(&str, ReadyzCheck)) -> String {
    match check {
        ReadyzCheck::Ok => format!("[+] {name} ok\n"),
        ReadyzCheck::Doubtful(reason) => format!("[!] {name} doubtful: {reason}\n"),
        ReadyzCheck::Failed(reason) => format!("[-] {name} failed: {reason}\n"),
    }
}

/// All numbers, in the text format that the client prefers.
async fn metrics(
    State(shared): State<Shared>,
    Extension(place): On,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let accept = headers.get_all(ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
    let format = negotiation::format(accept);
    let collect = || shared.sources.snapshots.metrics(format).map_err(Refusal::from);
    let (text, held) = shared.room.hold(&place, &shared.guesses.metrics, collect, String::len).await?;
    let body = pieces::body(pieces::chunks(text), held);
    Ok(([(CONTENT_TYPE, format.content_type())], body).into_response())
}

/// By namespace and pod; a pod's older sandboxes before its newer ones; then container, then the kubelet's order of
/// types. Expects what [`Snapshots::probes`](super::Snapshots::probes) promises.
fn sort(probes: &mut [ProbeView]) {
    let mut ages = HashMap::new();
    for probe in &*probes {
        let next = ages.len();
        ages.entry(probe.pod_uid.clone()).or_insert(next);
    }
    probes.sort_by(|a, b| {
        let place = |probe: &ProbeView| (ages.get(&probe.pod_uid).copied(), type_rank(&probe.kind));
        let ((age_a, rank_a), (age_b, rank_b)) = (place(a), place(b));
        (&a.namespace, &a.pod, age_a, &a.container, rank_a, &a.kind).cmp(&(
            &b.namespace,
            &b.pod,
            age_b,
            &b.container,
            rank_b,
            &b.kind,
        ))
    });
}

/// Startup, readiness, liveness, and then whatever else there is.
fn type_rank(kind: &str) -> usize {
    let kinds = crate::ids::ProbeKind::ALL;
    kinds.iter().position(|known| known.as_str() == kind).unwrap_or(kinds.len())
}

/// Query parameters; wrong ones are refused with a reason.
struct Params<T>(T);

impl<T: Parameters, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let refused = |reason: String| Refusal::new(StatusCode::BAD_REQUEST, reason);
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri)
            .map_err(|_| refused("the query is not of the form NAME=VALUE&NAME=VALUE".to_owned()))?;
        T::read(&pairs).map(Self).map_err(refused)
    }
}

/// The names in a path, decoded.
struct Names(Vec<String>);

impl<S: Send + Sync> FromRequestParts<S> for Names {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let names = Path::<Vec<String>>::from_request_parts(parts, state).await;
        let Path(names) =
            names.map_err(|_| Refusal::new(StatusCode::BAD_REQUEST, PATH_IS_NO_TEXT.to_owned()))?;
        Ok(Self(names))
    }
}

/// An answer that is an error.
pub(super) struct Refusal {
    code: StatusCode,
    view: ErrorView,
}

impl Refusal {
    pub(super) fn new(code: StatusCode, error: String) -> Self {
        Self { code, view: ErrorView { error } }
    }

    #[cfg(test)]
    pub(super) fn code(&self) -> StatusCode {
        self.code
    }
}

impl From<Unanswered> for Refusal {
    fn from(error: Unanswered) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}

impl From<NoRoom> for Refusal {
    fn from(error: NoRoom) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}

impl From<NotFound> for Refusal {
    fn from(error: NotFound) -> Self {
        let code = match error {
            NotFound::Malformed(_) => StatusCode::BAD_REQUEST,
            NotFound::Unknown(_) => StatusCode::NOT_FOUND,
        };
        Self::new(code, error.to_string())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.code, Json(self.view)).into_response()
    }
}

/// The layer that keeps the time answers without words: it gets ours.
async fn in_our_words(response: Response) -> Response {
    let code = response.status();
    if code == StatusCode::SERVICE_UNAVAILABLE && !response.headers().contains_key(CONTENT_TYPE) {
        return Refusal::new(code, format!("no answer within {ANSWER_TIMEOUT:?}")).into_response();
    }
    response
}

/// A panic of ours costs one request its answer, and nothing else.
#[allow(clippy::needless_pass_by_value)]
fn panicked(_: Box<dyn Any + Send>) -> axum::http::Response<Body> {
    tracing::error!("an API handler panicked");
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the daemon failed to answer; see its log".to_owned())
        .into_response()
}
