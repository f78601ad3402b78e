//! The life of containers: each is a child process in its own scratch folder, without isolation.

use std::{fs, io, path::Path, sync::Arc, time::Duration};

use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{
    envelope, filters, ids,
    log::Log,
    node::Node,
    place,
    process::{ExitCode, Launch, Process},
    state::{Container, Ended, Phase, Run, State},
    verbose, view, wall_nanos,
};
use crate::{
    ids::ContainerId,
    proto::cri::{self, ContainerEventType},
};

/// What a container runs whose client named no command: it stays, as most images do.
const DEFAULT_COMMAND: [&str; 2] = ["sleep", "2147483647"];

/// What containerd reports as the exit code of a container that did not start.
const START_ERROR: ExitCode = ExitCode(128);

impl Node {
    /// Makes a container with its scratch folder; nothing runs yet. Any image will do, pulled or not.
    ///
    /// # Errors
    /// NotFound without its sandbox, those of `State::admit_container`; Unknown when its sandbox was stopped or its
    /// folder cannot be made.
    pub(super) fn create_container(
        &self,
        request: cri::CreateContainerRequest,
    ) -> Result<cri::CreateContainerResponse, Status> {
        let config = request.config.unwrap_or_default();
        let mut state = self.state();
        let sandbox = state.sandbox(&request.pod_sandbox_id)?.clone();
        state.admit_container(&sandbox, &config)?;
        if !sandbox.is_ready {
            return Err(Status::unknown(format!("sandbox container {:?} is not running", sandbox.id)));
        }
        if config.image.as_ref().is_none_or(|image| image.image.is_empty()) {
            return Err(Status::invalid_argument("container config must include an image"));
        }
        let (id, created_at) = (ContainerId::from(ids::fresh()), wall_nanos());
        let folder = self.folder.join(id.as_str());
        fs::create_dir_all(place::work_folder(&folder, &config))
            .map_err(|error| Status::unknown(format!("failed to create container folder: {error}")))?;
        let log_path = place::log_path(&folder, &sandbox.config, &config);
        let container = Container {
            id: id.clone(),
            sandbox: sandbox.id.clone(),
            config,
            created_at,
            folder,
            log_path,
            phase: Phase::Created,
        };
        state.containers.insert(id.clone(), container);
        state.announce(ContainerEventType::ContainerCreatedEvent, id.as_str(), &sandbox.id, created_at);
        Ok(cri::CreateContainerResponse { container_id: id.to_string() })
    }

    /// Starts a container's process. All of it happens under the state's lock, so that no reader sees a container that
    /// is half started. One that does not start has exited, with containerd's code and reason.
    ///
    /// # Errors
    /// NotFound; Unknown when it is not in the state `created`, or does not start.
    pub(super) fn start_container(self: &Arc<Self>, text: &str) -> Result<(), Status> {
        let mut state = self.state();
        state.admit()?;
        let container = state.container(text)?.clone();
        if !matches!(container.phase, Phase::Created) {
            let name = container.cri_state().as_str_name();
            return Err(Status::unknown(format!("failed to start container: container is in {name} state")));
        }
        if !state.sandboxes.get(&container.sandbox).is_some_and(|sandbox| sandbox.is_ready) {
            return Err(Status::unknown(format!("sandbox container {:?} is not running", container.sandbox)));
        }
        let started = self.launch(&container);
        let now = wall_nanos();
        match started {
            Ok((process, run)) => {
                let log = run.log.clone();
                move_on(&mut state, &container, Phase::Running(run), now);
                let task = self.clone().supervise(container.id.clone(), process, log);
                self.tasks.spawn(task);
                Ok(())
            }
            Err(error) => {
                let message = format!("failed to start container {:?}: {error}", container.id);
                let ended = Ended {
                    started_at: 0,
                    finished_at: now,
                    exit_code: START_ERROR.0,
                    reason: "StartError",
                    message: message.clone(),
                };
                move_on(&mut state, &container, Phase::Exited(ended), now);
                Err(Status::unknown(message))
            }
        }
    }

    fn launch(&self, container: &Container) -> io::Result<(Process, Run)> {
        let config = &container.config;
        let folder = place::work_folder(&container.folder, config);
        if let Some(parent) = container.log_path.parent() {
            fs::create_dir_all(parent)?;
        }
        let log = Arc::new(Log::open(container.log_path.clone())?);
        let mut argv = [config.command.as_slice(), config.args.as_slice()].concat();
        if argv.is_empty() {
            argv = DEFAULT_COMMAND.map(str::to_owned).to_vec();
        }
        let env = place::environment(&folder, config, &self.search_path);
        let launch = Launch { argv: &argv, env: &env, folder: &folder, has_input: false };
        let process = Process::start(launch, &self.guard)?;
        let (group, ended) = (process.group(), CancellationToken::new());
        let paused = watch::Sender::new(false);
        Ok((process, Run { started_at: wall_nanos(), group, ended, paused, log }))
    }

    /// Writes a container's output and waits for its end, whatever causes it.
    async fn supervise(self: Arc<Self>, id: ContainerId, mut process: Process, log: Arc<Log>) {
        let outputs = process.take_output();
        let pumping = async {
            if let Some((stdout, stderr)) = outputs {
                tokio::join!(log.pump("stdout", stdout), log.pump("stderr", stderr));
            }
        };
        let exit_code = process.end_while(pumping).await.unwrap_or_else(|error| {
            tracing::warn!(%error, container.id = %id, "end of a container's process was not seen");
            ExitCode(255)
        });
        let mut state = self.state();
        let Some(container) = state.containers.get(&id).cloned() else { return };
        if let Phase::Running(run) = &container.phase {
            let ended = Ended {
                started_at: run.started_at,
                finished_at: wall_nanos(),
                exit_code: exit_code.0,
                reason: if exit_code == ExitCode(0) { "Completed" } else { "Error" },
                message: String::new(),
            };
            let at = ended.finished_at;
            move_on(&mut state, &container, Phase::Exited(ended), at);
            run.ended.cancel();
        }
    }

    /// Ends a container's process: asks it to end and waits for `grace`, then kills its group. Without grace it is
    /// killed at once. One that is unknown or does not run is fine, as CRI asks.
    pub(super) async fn stop(&self, id: &ContainerId, grace: Option<Duration>) {
        let run = self.state().containers.get(id).and_then(Container::run).cloned();
        let Some(run) = run else { return };
        if let Some(grace) = grace {
            run.group.terminate();
            if timeout(grace, run.ended.cancelled()).await.is_ok() {
                return;
            }
        }
        run.group.kill();
        run.ended.cancelled().await;
    }

    /// Freezes the processes of a container, or has them run on. Returns whether that changed anything.
    pub(super) fn set_paused(&self, id: &ContainerId, is_paused: bool) -> bool {
        let mut state = self.state();
        let Some(run) = state.containers.get(id).and_then(Container::run) else { return false };
        if run.paused.send_replace(is_paused) == is_paused {
            return false;
        }
        run.group.freeze(is_paused);
        state.subscribers.containerd.send(&envelope::of_pause(id, is_paused));
        true
    }

    /// Ends a container and forgets it with its folder. One that is unknown is fine, as CRI asks.
    pub(super) async fn remove(&self, id: &ContainerId) {
        self.stop(id, None).await;
        let folder = {
            let mut state = self.state();
            let Some(container) = state.containers.remove(id) else { return };
            let kind = ContainerEventType::ContainerDeletedEvent;
            state.announce(kind, id.as_str(), &container.sandbox, wall_nanos());
            container.folder
        };
        remove_folder(&folder).await;
    }

    /// The id of the container that a client named, if there is one.
    pub(super) fn container_id(&self, text: &str) -> Option<ContainerId> {
        self.state().container(text).ok().map(|container| container.id.clone())
    }

    /// What is known of a container.
    ///
    /// # Errors
    /// NotFound.
    pub(super) fn container_status(
        &self,
        request: &cri::ContainerStatusRequest,
    ) -> Result<cri::ContainerStatusResponse, Status> {
        let state = self.state();
        let container = state.container(&request.container_id)?;
        Ok(cri::ContainerStatusResponse {
            status: Some(view::container_status(container)),
            info: match request.verbose {
                true => verbose::container(container, self.env_values),
                false => Default::default(),
            },
        })
    }

    /// The containers that a filter lets pass.
    pub(super) fn list_containers(&self, filter: &cri::ContainerFilter) -> cri::ListContainersResponse {
        let state = self.state();
        let containers = filters::containers(&state, filter).into_iter().map(view::container_item).collect();
        cri::ListContainersResponse { containers }
    }

    /// Opens a container's log again.
    ///
    /// # Errors
    /// NotFound; Unknown when it does not run, or the file cannot be opened.
    pub(super) fn reopen_container_log(&self, text: &str) -> Result<(), Status> {
        let state = self.state();
        let container = state.container(text)?;
        let run = container.run().ok_or_else(|| Status::unknown("container is not running"))?;
        run.log.reopen().map_err(|error| Status::unknown(format!("failed to reopen container log: {error}")))
    }
}

/// The one place where a container's phase changes; reports it to the subscribers.
fn move_on(state: &mut State, container: &Container, phase: Phase, at: i64) {
    let kind = match phase {
        Phase::Created => ContainerEventType::ContainerCreatedEvent,
        Phase::Running(_) => ContainerEventType::ContainerStartedEvent,
        Phase::Exited(_) => ContainerEventType::ContainerStoppedEvent,
    };
    if let Some(kept) = state.containers.get_mut(&container.id) {
        kept.phase = phase;
    }
    state.announce(kind, container.id.as_str(), &container.sandbox, at);
}

async fn remove_folder(folder: &Path) {
    match tokio::fs::remove_dir_all(folder).await {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!(%error, path = %folder.display(), "container folder could not be removed");
        }
    }
}
