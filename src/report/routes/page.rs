//! The page: three files that are part of the program.

use axum::{
    Router,
    http::{HeaderValue, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};

use super::Shared;
/// The page and what it loads.
pub(super) fn routes() -> Router<Shared> {
    Router::new()
        .route("/", get(async || file("text/html; charset=utf-8", include_str!("../page/index.html"))))
        .route("/page.css", get(async || file("text/css; charset=utf-8", include_str!("../page/page.css"))))
        .route(
            "/page.js",
            get(async || file("text/javascript; charset=utf-8", include_str!("../page/page.js"))),
        )
}

fn file(kind: &'static str, text: &'static str) -> Response {
    let mut response = text.into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
