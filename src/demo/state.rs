//! The state of the embedded runtime: its sandboxes, containers and images, and the subscribers of events. Bookkeeping
//! only: never does IO, never reads a clock. Code that changes the state holds its lock and starts or ends the
//! processes.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, sync::Arc};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{events::Subscribers, ids, log::Log, process::Group, tokens::Tokens};
use crate::{
    ids::{ContainerId, SandboxId},
    proto::cri,
};

/// 4,096 sandboxes: the next RunPodSandbox is answered ResourceExhausted.
const MAX_SANDBOXES: usize = 4096;

/// 16,384 containers: the next CreateContainer is answered ResourceExhausted.
const MAX_CONTAINERS: usize = 16_384;

/// Everything that the runtime remembers.
#[derive(Default)]
pub(super) struct State {
    /// By id.
    pub(super) sandboxes: BTreeMap<SandboxId, Sandbox>,
    /// By id.
    pub(super) containers: BTreeMap<ContainerId, Container>,
    /// The subscribers to changes.
    pub(super) subscribers: Subscribers,
    /// Where the streaming server listens, if it does.
    pub(super) streaming: Option<SocketAddr>,
    /// The commands that wait for their clients there.
    pub(super) tokens: Tokens,
    /// Whether the end has come: nothing starts any more.
    pub(super) is_closing: bool,
}

/// A pod sandbox: a name for its containers, and no process.
#[derive(Clone)]
pub(super) struct Sandbox {
    /// Its id.
    pub(super) id: SandboxId,
    /// As the client sent it.
    pub(super) config: cri::PodSandboxConfig,
    /// As the client sent it; any is accepted.
    pub(super) runtime_handler: String,
    /// Nanoseconds since the epoch.
    pub(super) created_at: i64,
    /// False once it was stopped.
    pub(super) is_ready: bool,
}

/// A container and where it is in its life.
#[derive(Clone)]
pub(super) struct Container {
    /// Its id.
    pub(super) id: ContainerId,
    /// The sandbox it belongs to.
    pub(super) sandbox: SandboxId,
    /// As the client sent it.
    pub(super) config: cri::ContainerConfig,
    /// Nanoseconds since the epoch.
    pub(super) created_at: i64,
    /// Its scratch folder: the folder in the place of its root file system, and its log if it has no other.
    pub(super) folder: PathBuf,
    /// Where its output goes.
    pub(super) log_path: PathBuf,
    /// Where it is in its life.
    pub(super) phase: Phase,
}

/// Created --start--> Running --end of its process--> Exited; a start that fails leads to Exited at once.
#[derive(Clone)]
pub(super) enum Phase {
    /// Moved on by StartContainer.
    Created,
    /// Moved on by the end of its process, whatever caused it.
    Running(Run),
    /// The end; only removal follows.
    Exited(Ended),
}

/// A container's process while it runs.
#[derive(Clone)]
pub(super) struct Run {
    /// Nanoseconds since the epoch.
    pub(super) started_at: i64,
    /// Its processes.
    pub(super) group: Group,
    /// Cancelled when the state says that it ended.
    pub(super) ended: CancellationToken,
    /// Whether its processes are frozen.
    pub(super) paused: watch::Sender<bool>,
    /// Its log file, to be opened again.
    pub(super) log: Arc<Log>,
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// Nanoseconds since the epoch; 0 if it never started.
    pub(super) started_at: i64,
    /// Nanoseconds since the epoch.
    pub(super) finished_at: i64,
    /// As a shell reports it.
    pub(super) exit_code: i32,
    /// `Completed`, `Error` or `StartError`, containerd's words.
    pub(super) reason: &'static str,
    /// Why it did not start.
    pub(super) message: String,
}

impl State {
    /// The sandbox that `text` names, by its id or a unique prefix.
    ///
    /// # Errors
    /// NotFound.
    pub(super) fn sandbox(&self, text: &str) -> Result<&Sandbox, Status> {
        let id = ids::resolve(&self.sandboxes, text);
        id.and_then(|id| self.sandboxes.get(&id)).ok_or_else(|| {
            Status::not_found(format!("an error occurred when try to find sandbox {text:?}: not found"))
        })
    }

    /// The container that `text` names, by its id or a unique prefix.
    ///
    /// # Errors
    /// NotFound.
    pub(super) fn container(&self, text: &str) -> Result<&Container, Status> {
        let id = ids::resolve(&self.containers, text);
        id.and_then(|id| self.containers.get(&id)).ok_or_else(|| {
            Status::not_found(format!("an error occurred when try to find container {text:?}: not found"))
        })
    }

    /// The containers of a sandbox, oldest first.
    pub(super) fn containers_of(&self, sandbox: &SandboxId) -> Vec<&Container> {
        let mut found: Vec<_> = self.containers.values().filter(|one| one.sandbox == *sandbox).collect();
        found.sort_by_key(|one| one.created_at);
        found
    }

    /// Whether a new sandbox may have this name; a name is taken from its making until its removal.
    ///
    /// # Errors
    /// InvalidArgument without a name, AlreadyExists, ResourceExhausted, Unavailable at the end.
    pub(super) fn admit_sandbox(&self, config: &cri::PodSandboxConfig) -> Result<(), Status> {
        self.admit()?;
        let metadata = config.metadata.as_ref().filter(|metadata| !metadata.name.is_empty());
        let metadata =
            metadata.ok_or_else(|| Status::invalid_argument("sandbox config must include metadata"))?;
        let same = self.sandboxes.values().find(|one| one.config.metadata.as_ref() == Some(metadata));
        if let Some(other) = same {
            let cri::PodSandboxMetadata { name, uid, namespace, attempt } = metadata;
            return Err(reserved(
                "sandbox",
                &format!("{name}_{namespace}_{uid}_{attempt}"),
                other.id.as_str(),
            ));
        }
        bound(self.sandboxes.len(), MAX_SANDBOXES, "sandboxes")
    }

    /// Whether a new container may have this name in its sandbox; a name is taken from its making until its removal.
    ///
    /// # Errors
    /// InvalidArgument without a name, AlreadyExists, ResourceExhausted, Unavailable at the end.
    pub(super) fn admit_container(
        &self,
        sandbox: &Sandbox,
        config: &cri::ContainerConfig,
    ) -> Result<(), Status> {
        self.admit()?;
        let metadata = config.metadata.as_ref().filter(|metadata| !metadata.name.is_empty());
        let metadata =
            metadata.ok_or_else(|| Status::invalid_argument("container config must include metadata"))?;
        let mut siblings = self.containers.values().filter(|one| one.sandbox == sandbox.id);
        if let Some(other) = siblings.find(|one| one.config.metadata.as_ref() == Some(metadata)) {
            let name = format!("{}_{}", metadata.name, metadata.attempt);
            return Err(reserved("container", &name, other.id.as_str()));
        }
        bound(self.containers.len(), MAX_CONTAINERS, "containers")
    }

    /// Whether anything new may begin.
    ///
    /// # Errors
    /// Unavailable at the end.
    pub(super) fn admit(&self) -> Result<(), Status> {
        match self.is_closing {
            true => Err(Status::unavailable("the runtime is shutting down")),
            false => Ok(()),
        }
    }
}

impl Container {
    /// Its process, if it runs.
    pub(super) fn run(&self) -> Option<&Run> {
        match &self.phase {
            Phase::Running(run) => Some(run),
            Phase::Created | Phase::Exited(_) => None,
        }
    }

    /// Its state in CRI's words.
    pub(super) fn cri_state(&self) -> cri::ContainerState {
        match self.phase {
            Phase::Created => cri::ContainerState::ContainerCreated,
            Phase::Running(_) => cri::ContainerState::ContainerRunning,
            Phase::Exited(_) => cri::ContainerState::ContainerExited,
        }
    }
}

impl Sandbox {
    /// Its state in CRI's words.
    pub(super) fn cri_state(&self) -> cri::PodSandboxState {
        match self.is_ready {
            true => cri::PodSandboxState::SandboxReady,
            false => cri::PodSandboxState::SandboxNotready,
        }
    }
}

fn reserved(what: &str, name: &str, owner: &str) -> Status {
    Status::already_exists(format!(
        "failed to reserve {what} name {name:?}: name {name:?} is reserved for {owner:?}"
    ))
}

fn bound(now: usize, most: usize, what: &str) -> Result<(), Status> {
    match now < most {
        true => Ok(()),
        false => Err(Status::resource_exhausted(format!("the embedded runtime holds {most} {what} at most"))),
    }
}
