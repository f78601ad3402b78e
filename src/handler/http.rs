//! httpGet: a target and a limit in, an outcome out, as the kubelet's own Go client would have it
//! (docs/kubelet-prober.md 7). Asks one server, on a new connection for each request, never through a proxy, and
//! believes any certificate. Keeps no cookies and unpacks no body.
//!
//! HTTP/1.1 is written and read here rather than by hyper, because the verdict and the output have to be the kubelet's:
//! - The output of a failure is the text of Go's client, with the bytes that it could not read (7.5). hyper only reports
//!   the kind of an error.
//! - Go's client accepts answers that hyper refuses, such as a status line with `HTTP/2.0` or with a status below 100.
//! - It refuses answers that hyper accepts, such as `Transfer-Encoding: gzip`, whose body hyper reads to the end of the
//!   connection.
//!
//! `tests/data/prober/answers.jsonl` holds a hundred answers, each with what Go's client makes of it.

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
    exchange::{HttpAnswer, ask},
    redirect::{Next, describe_error, next},
    request::Request,
};
use super::{Fault, Judgement, OUTPUT_LIMIT, Outcome, trouble::Trouble};
use crate::{ids::PodUid, results::text::BoundedText};

/// Go's words for a body that did not come in time.
const BODY_TIMEOUT: &str =
    "context deadline exceeded (Client.Timeout or context cancellation while reading body)";

/// Go's words for a head that did not.
const HEAD_TIMEOUT: &str = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";

/// What to ask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    /// Whose probe it is.
    pub pod: &'a PodUid,
    /// Over TLS.
    pub is_secure: bool,
    /// As it stands in the URL: a name, or an address without brackets.
    pub host: &'a str,
    /// Where to connect to, whatever the host is called; without it, to where the host's name leads.
    pub address: Option<IpAddr>,
    /// 1 to 65535.
    pub port: u16,
    /// Where redirects may lead.
    pub ports: Ports<'a>,
    /// As defined, not yet a URL.
    pub path: &'a str,
    /// As defined, in order.
    pub headers: &'a [(String, String)],
}

/// The ports of its host that a probe may be redirected to. What answers at one of them is shown as the probe's output, so
/// a server must not choose among those that its pod has no part in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ports<'a> {
    /// All: the host is the pod's own.
    Any,
    /// These alone: the host is others', too.
    Only(&'a [u16]),
}

impl Ports<'_> {
    /// Whether this one is among them.
    pub(crate) fn permit(self, port: u16) -> bool {
        match self {
            Self::Any => true,
            Self::Only(ports) => ports.contains(&port),
        }
    }
}

/// What is being waited for: what a timeout comes to depends on it.
#[derive(Debug)]
struct Progress {
    /// Of the request that is under way.
    url: Vec<u8>,
    waits_for_us: bool,
    reads_body: bool,
}

/// Asks, follows redirects to the same host and a permitted port, and judges the last answer by its status: 2xx is a success, 3xx a
/// warning, all else a failure, and so is all that goes wrong before an answer's head is whole. `timeout` bounds names,
/// connections, redirects, head and body together.
///
/// # Errors
/// [`Fault::Target`] when host and path make no URL; [`Fault::Body`] when the last answer's body cannot be read:
/// whatever its status is, it says nothing then; [`Fault::Ours`] for want of something that the server has no part in.
pub(crate) async fn attempt(target: &Target<'_>, timeout: Duration) -> Result<Outcome, Fault> {
    let first = Request::of_probe(target).map_err(Fault::target)?;
    let mut progress = Progress { url: first.url.redacted(), waits_for_us: false, reads_body: false };
    match time::timeout(timeout, run(target, first, &mut progress)).await {
        Ok(ended) => ended,
        Err(_elapsed) if progress.reads_body => Err(Fault::Body(BODY_TIMEOUT.into())),
        Err(_elapsed) if progress.waits_for_us => {
            Err(Fault::Ours(describe_error(&progress.url, HEAD_TIMEOUT).into()))
        }
        Err(_elapsed) => Ok(Outcome::failure(describe_error(&progress.url, HEAD_TIMEOUT))),
    }
}

async fn run(target: &Target<'_>, first: Request, progress: &mut Progress) -> Result<Outcome, Fault> {
    let answer = match last_answer(target, first, progress).await {
        Ok(answer) => answer,
        Err(trouble) => return trouble.judged(),
    };
    progress.reads_body = true;
    let status = answer.status;
    let body = answer.read(OUTPUT_LIMIT).await.map_err(|error| Fault::Body(error.into()))?;
    Ok(judged(status, &body))
}

/// Follows redirects up to the answer that counts.
async fn last_answer(
    target: &Target<'_>,
    first: Request,
    progress: &mut Progress,
) -> Result<HttpAnswer, Trouble> {
    let mut request = first.clone();
    let mut sent = 0;
    loop {
        let answer = ask(target, &request, &mut progress.waits_for_us).await;
        let answer =
            answer.map_err(|trouble| trouble.in_words(|error| describe_error(&progress.url, error)))?;
        sent += 1;
        match next(&first, &request, sent, target.ports, answer.status, &answer.location) {
            Next::Judge => return Ok(answer),
            Next::Fail(text) => return Err(Trouble::Peer(text)),
            Next::Follow(followed) => {
                progress.url = followed.url.redacted();
                let pause = answer.pause;
                answer.drain().await;
                if !pause.is_zero() {
                    time::sleep(pause).await;
                }
                request = *followed;
            }
        }
    }
}

/// docs/kubelet-prober.md 7.5.
fn judged(status: u16, body: &Bytes) -> Outcome {
    let (judgement, output) = match status {
        200..=299 => (Judgement::Success, BoundedText::lossy(body)),
        300..=399 => {
            let prefix = b"Probe terminated redirects, Response body: ";
            (Judgement::Warning, BoundedText::lossy(&[prefix.as_slice(), body].concat()))
        }
        _ => {
            (Judgement::Failure, BoundedText::of(format_args!("HTTP probe failed with statuscode: {status}")))
        }
    };
    Outcome { status: Some(status), ..Outcome::of(judgement, output) }
}

#[cfg(test)]
pub(crate) mod tests;
