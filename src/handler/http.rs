//! httpGet: a target and a limit in, an outcome out, as the kubelet's own Go client would have it
//! (docs/kubelet-prober.md 7). Asks one server, on a new connection for each request, never through a proxy, and
//! believes any certificate. Keeps no cookies and unpacks no body.

mod chunk;
mod connect;
mod exchange;
mod fields;
mod head;
mod headers;
mod http2;
mod redirect;
mod request;
mod source;
mod tls;
mod url;
mod wire;

use std::{net::IpAddr, time::Duration};

use bytes::Bytes;
use tokio::time;

use self::{
    exchange::{Answer, ask},
    redirect::{Next, next, told},
    request::Request,
};
use super::{Fault, Judgement, OUTPUT_LIMIT, Outcome};

/// Go's words for a body that did not come in time.
const BODY_TIMEOUT: &str =
    "context deadline exceeded (Client.Timeout or context cancellation while reading body)";

/// Go's words for a head that did not.
const HEAD_TIMEOUT: &str = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";

/// What to ask.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// Over TLS.
    pub is_secure: bool,
    /// As it stands in the URL: a name, or an address without brackets.
    pub host: &'a str,
    /// Where to connect to, whatever the host is called; without it, to where the host's name leads.
    pub address: Option<IpAddr>,
    /// 1 to 65535.
    pub port: u16,
    /// As defined, not yet a URL.
    pub path: &'a str,
    /// As defined, in order.
    pub headers: &'a [(String, String)],
}

/// What is being waited for: what a timeout comes to depends on it.
#[derive(Debug)]
struct Progress {
    /// Of the request that is under way.
    url: Vec<u8>,
    reads_body: bool,
}

/// Asks, follows redirects to the same host, and judges the last answer by its status: 2xx is a success, 3xx a
/// warning, all else a failure, and so is all that goes wrong before an answer's head is whole. `timeout` bounds names,
/// connections, redirects, head and body together.
///
/// # Errors
/// [`Fault::Target`] when host and path make no URL; [`Fault::Body`] when the last answer's body cannot be read:
/// whatever its status is, it says nothing then.
pub async fn attempt(target: &Target<'_>, timeout: Duration) -> Result<Outcome, Fault> {
    let first = Request::of_probe(target).map_err(|error| Fault::Target(error.to_string()))?;
    let mut progress = Progress { url: first.url.redacted(), reads_body: false };
    match time::timeout(timeout, run(target, first, &mut progress)).await {
        Ok(ended) => ended,
        Err(_elapsed) if progress.reads_body => Err(Fault::Body(BODY_TIMEOUT.to_owned())),
        Err(_elapsed) => Ok(Outcome::failure(told(&progress.url, HEAD_TIMEOUT))),
    }
}

async fn run(target: &Target<'_>, first: Request, progress: &mut Progress) -> Result<Outcome, Fault> {
    let answer = match last_answer(target, first, progress).await {
        Ok(answer) => answer,
        Err(text) => return Ok(Outcome::failure(text)),
    };
    progress.reads_body = true;
    let status = answer.status;
    let body = answer.read(OUTPUT_LIMIT).await.map_err(Fault::Body)?;
    Ok(judged(status, body))
}

/// Follows redirects up to the answer that counts.
async fn last_answer(target: &Target<'_>, first: Request, progress: &mut Progress) -> Result<Answer, String> {
    let mut request = first.clone();
    let mut sent = 0;
    loop {
        let answer = ask(target, &request).await.map_err(|error| told(&progress.url, &error))?;
        sent += 1;
        match next(&first, &request, sent, answer.status, &answer.location) {
            Next::Judge => return Ok(answer),
            Next::Fail(text) => return Err(text),
            Next::Follow(followed) => {
                progress.url = followed.url.redacted();
                answer.drain().await;
                request = *followed;
            }
        }
    }
}

/// docs/kubelet-prober.md 7.5.
fn judged(status: u16, body: Bytes) -> Outcome {
    let judged =
        |judgement, output: Bytes| Outcome { status: Some(status), ..Outcome::of(judgement, output) };
    match status {
        200..=299 => judged(Judgement::Success, body),
        300..=399 => {
            let prefix = b"Probe terminated redirects, Response body: ";
            judged(Judgement::Warning, [prefix.as_slice(), &body].concat().into())
        }
        _ => judged(Judgement::Failure, format!("HTTP probe failed with statuscode: {status}").into()),
    }
}

#[cfg(test)]
pub(crate) mod tests;
