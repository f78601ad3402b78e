//! The queries themselves: a runtime and a request in; facts with the time of the query out.

use std::time::{Duration, Instant};

use tokio::{sync::oneshot, time::timeout};
use tonic::{Code, Status};

use super::super::fact::{Fact, Lookup};
use crate::{clock, runtime::Runtime};

/// The result of a lookup.
#[derive(Debug)]
pub(super) enum Reply {
    /// This fact, as of the time of the query.
    Fact(Fact, Instant),
    /// The runtime does not know the id, or not yet.
    Unknown,
    /// There was no answer; the next list asks again.
    Failed,
}

/// 1 s: how long the lists wait for what is paused, so that no attempt begins on a container that was paused before. It may
/// take longer if a shim hangs; then it is applied when it comes.
const PATIENCE: Duration = Duration::from_secs(1);

/// Both complete lists, sandboxes first: the sandbox of a listed container is in the list, or it is looked up. Then what is
/// paused, unless that takes longer or was not requested.
///
/// # Errors
/// The error of the runtime or of the connection to it.
pub(super) async fn list(
    runtime: &Runtime,
    mut paused: oneshot::Receiver<(Fact, Instant)>,
) -> Result<Vec<(Fact, Instant)>, Status> {
    let sent = clock::now();
    let sandboxes = (Fact::SandboxesListed(runtime.sandboxes().await?), sent);
    let sent = clock::now();
    let containers = (Fact::ContainersListed(runtime.containers().await?), sent);
    let paused = match timeout(PATIENCE, &mut paused).await {
        Ok(answer) => answer.ok(),
        Err(_elapsed) => {
            paused.close();
            paused.try_recv().ok()
        }
    };
    Ok([sandboxes, containers].into_iter().chain(paused).collect())
}

/// What is paused. A runtime that has no such service pauses nothing.
pub(super) async fn paused(runtime: &Runtime) -> (Fact, Instant) {
    let sent = clock::now();
    let paused = match runtime.paused().await {
        Ok(paused) => Some(paused.unwrap_or_default()),
        Err(status) => {
            tracing::debug!(error = status.message(), "cannot read which containers are paused");
            None
        }
    };
    (Fact::PausedListed(paused), sent)
}

/// One object.
pub(super) async fn look_up(runtime: &Runtime, lookup: &Lookup) -> Reply {
    let sent = clock::now();
    let answer = match lookup {
        Lookup::List => return Reply::Failed,
        Lookup::Container(id) | Lookup::ContainerAgain(id) => container(runtime, id.as_str()).await,
        Lookup::Sandbox(id) => sandbox(runtime, id.as_str()).await,
        Lookup::Unexplained(id) | Lookup::Named(id) => match container(runtime, id).await {
            Err(status) if is_unknown(&status) => sandbox(runtime, id).await,
            answer => answer,
        },
    };
    match (answer, lookup) {
        (Ok(fact), _) if is_about(&fact, lookup) => Reply::Fact(fact, sent),
        (Ok(_), lookup) => {
            tracing::debug!(?lookup, "the runtime answered with the status of something else");
            Reply::Failed
        }
        (Err(status), Lookup::Container(id) | Lookup::ContainerAgain(id)) if is_unknown(&status) => {
            Reply::Fact(Fact::NotFound(id.to_string()), sent)
        }
        (Err(status), Lookup::Sandbox(id)) if is_unknown(&status) => {
            Reply::Fact(Fact::NotFound(id.to_string()), sent)
        }
        (Err(status), Lookup::Unexplained(_) | Lookup::Named(_)) if is_unknown(&status) => Reply::Unknown,
        (Err(status), lookup) => {
            tracing::debug!(?lookup, error = status.message(), "cannot read the status");
            Reply::Failed
        }
    }
}

async fn container(runtime: &Runtime, id: &str) -> Result<Fact, Status> {
    let status = runtime.container_status(id).await?;
    Ok(status.map_or(Fact::NotFound(id.to_owned()), |status| Fact::ContainerReported(Box::new(status))))
}

async fn sandbox(runtime: &Runtime, id: &str) -> Result<Fact, Status> {
    let status = runtime.sandbox_status(id).await?;
    Ok(status.map_or(Fact::NotFound(id.to_owned()), |status| Fact::SandboxReported(Box::new(status))))
}

/// Whether an answer is about what was asked for. A client may have named a sandbox, or something of unknown kind, by the
/// beginning of its ID.
fn is_about(fact: &Fact, lookup: &Lookup) -> bool {
    let answered = match fact {
        Fact::ContainerReported(status) => &status.id,
        Fact::SandboxReported(status) => &status.id,
        _ => return true,
    };
    match lookup {
        Lookup::Container(id) | Lookup::ContainerAgain(id) => answered == id.as_str(),
        Lookup::Sandbox(id) => answered.starts_with(id.as_str()),
        Lookup::Unexplained(id) | Lookup::Named(id) => answered.starts_with(id.as_str()),
        Lookup::List => true,
    }
}

/// Errors of runtimes for ids that they do not know.
fn is_unknown(status: &Status) -> bool {
    status.code() == Code::NotFound || status.message().contains("not found")
}
