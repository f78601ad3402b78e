//! Reads the body of a request, before anything else is done with it. In: a request whose head has come. Out: the request
//! with its whole body, or the answer that refuses it.

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    http::StatusCode,
};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::{
    Request,
    body::{Body as _, Incoming},
};
use tokio::time::timeout;

use super::routes::Refusal;

/// 64 KiB of a request's body; a longer one is answered 413.
const MAX_BODY: usize = 64 * 1024;

/// 5 s for a body; a later one is answered 408. Until it is whole, the client counts as silent, so its connection gives way
/// to others.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The request with its whole body.
pub(super) async fn whole(request: Request<Incoming>) -> Result<Request<Body>, Refusal> {
    let (head, body) = request.into_parts();
    // One that says that it is too long is not read.
    if body.size_hint().lower() > MAX_BODY as u64 {
        return Err(too_long());
    }
    let read = timeout(TIMEOUT, Limited::new(body, MAX_BODY).collect()).await.map_err(|_| {
        Refusal::new(StatusCode::REQUEST_TIMEOUT, format!("the body did not arrive within {TIMEOUT:?}"))
    })?;
    let body = read.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
        Some(_) => too_long(),
        None => Refusal::new(StatusCode::BAD_REQUEST, format!("the body cannot be read: {error}")),
    })?;
    // Not a part of a buffer in which more may be kept.
    let body = Bytes::from(body.to_bytes().to_vec());
    Ok(Request::from_parts(head, body.into()))
}

fn too_long() -> Refusal {
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is longer than {MAX_BODY} bytes"))
}
