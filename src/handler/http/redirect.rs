//! What follows an answer: the final result, another request, or an error after too many redirects
//! (docs/kubelet-prober.md 7.4).
//! Pure.

use super::{Ports, request::Request, url::Url};
use crate::handler::go;

/// 10: how many requests a probe sends; a redirect after the last is a failure.
const MAX_REQUESTS: usize = 10;

/// 2 KiB: how much of a redirect's body Go's client reads before it goes on.
pub(super) const DRAINED: usize = 2 << 10;

/// 8 KiB: how long a `Location` may be, and the URL that it leads to; a longer one is a failure. Common servers refuse such
/// a request with a 414. Up to nine requests of an attempt contain it as target, and then as `Referer`: without a bound, the
/// server would choose how much a probe sends.
const MAX_URL: usize = 8 << 10;

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The answer is judged as it is.
    Judge,
    /// That is asked instead.
    Follow(Box<Request>),
    /// The probe failed, with that text.
    Fail(String),
}

/// Decides. `first` is the probe's own request, `last` the one that was answered, `sent` how many were, the last one
/// included; `ports` those that may be asked.
pub(super) fn next(
    first: &Request,
    last: &Request,
    sent: usize,
    ports: Ports<'_>,
    status: u16,
    location: &[u8],
) -> Next {
    if !matches!(status, 301 | 302 | 303 | 307 | 308) || location.is_empty() {
        return Next::Judge;
    }
    let too_long = || {
        let error = format!("the URL of the redirect has more than {MAX_URL} bytes");
        Next::Fail(describe_error(&last.url.redacted(), &error))
    };
    // Before it is parsed, which takes time.
    if location.len() > MAX_URL {
        return too_long();
    }
    let reference = match Url::parse(location) {
        Ok(reference) => reference,
        Err(error) => {
            let error = format!("failed to parse Location header {}: {error}", go::quoted(location));
            return Next::Fail(describe_error(&last.url.redacted(), &error));
        }
    };
    let keeps_host = reference.scheme.is_empty() && last.host.as_bytes() != last.url.host;
    let url = last.url.join(reference);
    if url.hostname() != first.url.hostname() || leads_astray(&url, ports) {
        return Next::Judge;
    }
    if url.to_bytes().len() > MAX_URL {
        return too_long();
    }
    if sent >= MAX_REQUESTS {
        return Next::Fail(describe_error(location, &format!("stopped after {MAX_REQUESTS} redirects")));
    }
    let mut headers = first.headers.clone();
    if headers.first("Referer").is_empty() && !(last.is_secure() && url.scheme == "http") {
        headers.set("Referer", String::from_utf8_lossy(&last.url.without_user()).into_owned());
    }
    let host = if keeps_host { last.host.clone() } else { String::new() };
    Next::Follow(Box::new(Request { url, host, headers }))
}

/// Whether a URL leads to a port of the host that may not be asked. One that cannot be asked at all leads nowhere, and
/// fails in Go's words.
fn leads_astray(url: &Url, ports: Ports<'_>) -> bool {
    matches!(url.scheme.as_str(), "http" | "https") && url.meant_port().is_ok_and(|port| !ports.permit(port))
}

/// An error as Go's client words it: `Get "http://10.0.0.1:80/": EOF`.
pub(super) fn describe_error(url: &[u8], error: &str) -> String {
    format!("Get {}: {error}", go::quoted(url))
}
