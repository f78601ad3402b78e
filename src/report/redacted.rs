//! Redacts what the API answers, on its way out: the one place that all answers and streams pass. In: a response; out: the
//! same, without what the operator's patterns match.

use axum::{
    body::{Body, Bytes, HttpBody as _},
    extract::State,
    http::header::{CONTENT_LENGTH, CONTENT_TYPE},
    response::Response,
};
use futures_util::{StreamExt as _, stream};
use tokio::task::yield_now;

use crate::redact::{JsonRedactor, Redactor};

/// The types of answers that are made of JSON: whole, a line each, and as events.
const JSON: [&str; 3] = ["application/json", "application/x-ndjson", "text/event-stream"];

/// 512 bytes are redacted at once; then other tasks have their turn. Patterns may take microseconds a byte.
const AT_ONCE: usize = 512;

/// Redacts a response, if it is made of JSON. One that is whole is left as it is while there are no patterns; a stream may
/// outlast that.
pub(super) async fn redacted(State(redactor): State<Redactor>, response: Response) -> Response {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_json = JSON.iter().any(|json| kind.starts_with(json));
    if !is_json || (response.body().size_hint().exact().is_some() && redactor.patterns().is_empty()) {
        return response;
    }
    let (mut head, body) = response.into_parts();
    head.headers.remove(CONTENT_LENGTH);
    let state = Some((body.into_data_stream(), redactor, JsonRedactor::default()));
    let pieces = stream::unfold(state, async |state| {
        let (mut pieces, redactor, mut json) = state?;
        let mut shown = Vec::new();
        while shown.is_empty() {
            match pieces.next().await {
                Some(Ok(piece)) => {
                    let patterns = redactor.patterns();
                    if patterns.is_empty() && json.is_plain() {
                        return Some((Ok(piece), Some((pieces, redactor, json))));
                    }
                    for part in piece.chunks(AT_ONCE) {
                        json.feed(&patterns, part, &mut shown);
                        yield_now().await;
                    }
                }
                Some(Err(error)) => return Some((Err(error), None)),
                None => {
                    json.finish(&redactor.patterns(), &mut shown);
                    return Some((Ok(Bytes::from(shown)), None));
                }
            }
        }
        Some((Ok(Bytes::from(shown)), Some((pieces, redactor, json))))
    });
    Response::from_parts(head, Body::from_stream(pieces))
}
