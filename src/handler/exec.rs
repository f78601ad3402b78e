//! exec: a container, a command and a limit in, an outcome out, by one ExecSync of the runtime. Never shows the
//! expanded command: values of the container's environment stand in it, secrets among them.

mod answer;

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use prost::Message;
use tokio::time;
use tonic::{Code, Status, body::Body, transport::Channel};
use tower::ServiceExt;

use self::answer::{Answer, Reader};
use super::{Fault, Judgement, OUTPUT_LIMIT, Outcome, go};
use crate::{ids::ContainerId, proto::cri::ExecSyncRequest};

/// The method of CRI that runs a command.
const EXEC_SYNC: &str = "/runtime.v1.RuntimeService/ExecSync";

/// Runs commands through the runtime.
///
/// By hand rather than by tonic's client, as that holds the whole of an answer, twice: sixteen commands that say 16 MiB
/// each would take half a gigabyte.
#[derive(Clone, Debug)]
pub struct Exec {
    channel: Channel,
    grace: Duration,
}

impl Exec {
    /// `grace`: how long after its timeout a command of whole seconds is given up, if the runtime is still silent.
    pub fn new(channel: Channel, grace: Duration) -> Self {
        Self { channel, grace }
    }

    /// The same with another grace.
    #[must_use]
    pub fn with_grace(&self, grace: Duration) -> Self {
        Self { channel: self.channel.clone(), grace }
    }

    /// Runs a command and judges it by its exit code.
    ///
    /// Whole seconds of `timeout` are the runtime's to keep, and it answers DeadlineExceeded; other timeouts are sent
    /// rounded up and kept by us. Both are failures that name the command as it was `defined`.
    ///
    /// # Errors
    /// [`Fault::Runtime`] for every other status of the runtime's, and for an answer above 16 MiB;
    /// [`Fault::Unanswered`] when it is silent past the grace.
    pub async fn attempt(
        &self,
        container: &ContainerId,
        defined: &[String],
        expanded: Vec<String>,
        timeout: Duration,
    ) -> Result<Outcome, Fault> {
        let (asked, limit) = limits(timeout, self.grace);
        let secrets = secrets(defined, &expanded);
        let request =
            ExecSyncRequest { container_id: container.as_str().to_owned(), cmd: expanded, timeout: asked };
        let timed_out = || {
            let command = defined.join(" ");
            Outcome::failure(format!(
                "command timed out: \"{command}\" timed out after {}",
                go::duration(timeout)
            ))
        };
        match time::timeout(limit, call(self.channel.clone(), &request)).await {
            Ok(Ok(Answer { exit_code, output })) => {
                let judgement = if exit_code == 0 { Judgement::Success } else { Judgement::Failure };
                Ok(Outcome { exit_code: Some(exit_code), ..Outcome::of(judgement, output) })
            }
            Ok(Err(status)) if status.code() == Code::DeadlineExceeded => Ok(timed_out()),
            Ok(Err(status)) => {
                let message = as_defined(status.message(), &secrets);
                Err(Fault::Runtime { code: go::code(status.code()), message })
            }
            Err(_elapsed) if is_whole(timeout) => Err(Fault::Unanswered),
            Err(_elapsed) => Ok(timed_out()),
        }
    }
}

/// Asks, and reads the answer as it comes. Dropped, it cancels the command.
async fn call(channel: Channel, request: &ExecSyncRequest) -> Result<Answer, Status> {
    let request = Request::post(EXEC_SYNC)
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .body(Body::new(Full::new(framed(request)?)))
        .expect("constants make a valid request");
    let answer = channel.oneshot(request).await.map_err(|error| Status::from_error(error.into()))?;
    if let Some(status) = Status::from_header_map(answer.headers()) {
        // There is no answer behind headers that tell how the call ended.
        return Err(if status.code() == Code::Ok { Status::internal("no answer came") } else { status });
    }
    let mut body = answer.into_body();
    let mut reader = Reader::new();
    let mut ended = None;
    while let Some(frame) = body.frame().await {
        match frame?.into_data() {
            Ok(octets) => reader.take(&octets)?,
            Err(frame) => ended = frame.trailers_ref().and_then(Status::from_header_map),
        }
    }
    match ended {
        Some(status) if status.code() == Code::Ok => reader.end(),
        Some(status) => Err(status),
        None => Err(Status::internal("the runtime did not tell how the call ended")),
    }
}

/// The request as a gRPC message: not compressed, its length, itself.
fn framed(request: &ExecSyncRequest) -> Result<Bytes, Status> {
    let length = u32::try_from(request.encoded_len());
    let length = length.map_err(|_| Status::out_of_range("the command is too long"))?;
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(length);
    framed.put(request.encode_to_vec().as_slice());
    Ok(framed.freeze())
}

/// What the runtime is asked to keep, in whole seconds, and when we give up.
fn limits(timeout: Duration, grace: Duration) -> (i64, Duration) {
    let seconds = timeout.as_secs() + u64::from(!is_whole(timeout));
    let limit = if is_whole(timeout) { timeout.saturating_add(grace) } else { timeout };
    (i64::try_from(seconds).unwrap_or(i64::MAX), limit)
}

fn is_whole(timeout: Duration) -> bool {
    timeout.subsec_nanos() == 0
}

/// The words of a command that variables changed, as they are run and as they were defined; the longest first, as one
/// may stand in another.
fn secrets(defined: &[String], expanded: &[String]) -> Vec<(String, String)> {
    let words = expanded.iter().zip(defined).filter(|(run, defined)| run != defined && !run.is_empty());
    let mut words: Vec<_> = words.map(|(run, defined)| (run.clone(), defined.clone())).collect();
    words.sort_by_key(|(run, _)| std::cmp::Reverse(run.len()));
    words
}

/// What a runtime says, cut to [`OUTPUT_LIMIT`] bytes, with the words of the command as they were defined: it names the
/// executable that it does not find, say, as that was run, in quotes or with their escapes.
fn as_defined(message: &str, secrets: &[(String, String)]) -> String {
    let mut message = message[..message.floor_char_boundary(OUTPUT_LIMIT)].to_owned();
    for (run, defined) in secrets {
        let quoted = go::quoted(run.as_bytes());
        let escaped = &quoted[1..quoted.len() - 1];
        message = message.replace(run, defined);
        if escaped != run {
            message = message.replace(escaped, defined);
        }
    }
    message
}

#[cfg(test)]
pub(crate) mod tests;
