//! The live stream as server-sent events.

use std::convert::Infallible;

use axum::{
    Extension, Router,
    body::Body,
    extract::State,
    http::{
        HeaderName,
        header::{CACHE_CONTROL, CONTENT_TYPE},
    },
    response::{IntoResponse as _, Response},
    routing::get,
};
use futures_util::{StreamExt as _, stream};

use super::{On, Params, Refusal, Shared, following};
use crate::report::live::LiveFilter;

/// Asks proxies between us and the browser to pass on each event at once.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/v1/live", get(live))
}

/// Events until the client leaves or the daemon drains, or the state as it is now.
async fn live(
    State(shared): State<Shared>,
    Extension(place): On,
    Params(filter): Params<LiveFilter>,
) -> Result<Response, Refusal> {
    let following = following(&place, true)?.map(|following| shared.live.subscribe(filter, following));
    let events = stream::unfold(following, async |subscriber| {
        let mut subscriber = subscriber?;
        Some((Ok::<_, Infallible>(subscriber.next().await?), Some(subscriber)))
    });
    let body = Body::from_stream(events.take_until(shared.drained.clone().cancelled_owned()));
    let headers =
        [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store"), (X_ACCEL_BUFFERING, "no")];
    Ok((headers, body).into_response())
}
