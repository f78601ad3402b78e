//! exec: a container, a command and a limit in, an outcome out, by one ExecSync of the runtime. Never shows the
//! expanded command: values of the container's environment stand in it, secrets among them.

use std::time::Duration;

use bytes::Bytes;
use tokio::time;
use tonic::{Code, transport::Channel};

use super::{Fault, Judgement, OUTPUT_LIMIT, Outcome, go};
use crate::{
    ids::ContainerId,
    proto::cri::{ExecSyncRequest, runtime_service_client::RuntimeServiceClient},
};

/// 16 MiB: what the kubelet accepts of one answer (prober.md 6.2). A larger one is an error, as it is there; of a
/// smaller one 10 KiB are kept.
const ANSWER_LIMIT: usize = 16 << 20;

/// Runs commands through the runtime.
#[derive(Clone, Debug)]
pub struct Exec {
    client: RuntimeServiceClient<Channel>,
    grace: Duration,
}

impl Exec {
    /// `grace`: how long after its timeout a command of whole seconds is given up, if the runtime is still silent.
    pub fn new(client: RuntimeServiceClient<Channel>, grace: Duration) -> Self {
        Self { client: client.max_decoding_message_size(ANSWER_LIMIT), grace }
    }

    /// The same with another grace.
    #[must_use]
    pub fn with_grace(&self, grace: Duration) -> Self {
        Self { client: self.client.clone(), grace }
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
        let request =
            ExecSyncRequest { container_id: container.as_str().to_owned(), cmd: expanded, timeout: asked };
        let mut client = self.client.clone();
        let timed_out = || {
            let command = defined.join(" ");
            Outcome::failure(format!(
                "command timed out: \"{command}\" timed out after {}",
                go::duration(timeout)
            ))
        };
        match time::timeout(limit, client.exec_sync(request)).await {
            Ok(Ok(answer)) => {
                let answer = answer.into_inner();
                let judgement = if answer.exit_code == 0 { Judgement::Success } else { Judgement::Failure };
                let output = joined(&answer.stdout, &answer.stderr);
                Ok(Outcome { exit_code: Some(answer.exit_code), ..Outcome::of(judgement, output) })
            }
            Ok(Err(status)) if status.code() == Code::DeadlineExceeded => Ok(timed_out()),
            Ok(Err(status)) => {
                Err(Fault::Runtime { code: go::code(status.code()), message: status.message().to_owned() })
            }
            Err(_elapsed) if is_whole(timeout) => Err(Fault::Unanswered),
            Err(_elapsed) => Ok(timed_out()),
        }
    }
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

/// Standard output, then standard error, cut to [`OUTPUT_LIMIT`] bytes. A copy, so that a large answer is let go.
fn joined(stdout: &[u8], stderr: &[u8]) -> Bytes {
    stdout.iter().chain(stderr).take(OUTPUT_LIMIT).copied().collect()
}

#[cfg(test)]
pub(crate) mod tests;
