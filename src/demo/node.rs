//! The shared parts of the embedded runtime's services: the state under its lock, the folder, and the tasks that wait
//! for processes to end.

use std::{
    ffi::OsString,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::{envelope, events::Subscribers, guard::Guard, state::State, verbose::EnvValues, view};
use crate::{ids::SandboxId, proto::cri::ContainerEventType};

/// 5 s for killed processes to be gone at the end; longer waits are logged and given up.
const END_LIMIT: Duration = Duration::from_secs(5);

/// The runtime behind its services.
pub(super) struct Node {
    state: Mutex<State>,
    /// Holds a folder for each container.
    pub(super) folder: PathBuf,
    /// The PATH of containers that set none.
    pub(super) search_path: OsString,
    /// How verbose statuses show values of environment variables.
    pub(super) env_values: EnvValues,
    /// Whether it says that it is containerd, and has its services.
    pub(super) poses_as_containerd: bool,
    /// Kills what is left should we die.
    pub(super) guard: Arc<Guard>,
    /// One task for each running container, and for each client of the streaming server.
    pub(super) tasks: TaskTracker,
}

impl Node {
    /// A runtime without pods.
    pub(super) fn new(
        folder: PathBuf,
        search_path: OsString,
        env_values: EnvValues,
        poses_as_containerd: bool,
        guard: Arc<Guard>,
    ) -> Arc<Self> {
        let state = Mutex::default();
        let tasks = TaskTracker::new();
        Arc::new(Self { state, folder, search_path, env_values, poses_as_containerd, guard, tasks })
    }

    /// The state, for as long as the answer is held; never across an await.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends every subscription; a new one may come.
    pub(super) fn end_subscriptions(&self) {
        self.state().subscribers = Subscribers::default();
    }

    /// Refuses all that is new, and kills all that runs.
    pub(super) fn kill_all(&self) {
        let mut state = self.state();
        state.is_closing = true;
        state.subscribers = Subscribers::default();
        for run in state.containers.values().filter_map(|container| container.run()) {
            run.group.kill();
        }
    }

    /// Waits until what was killed is gone.
    pub(super) async fn all_ended(&self) {
        self.tasks.close();
        if timeout(END_LIMIT, self.tasks.wait()).await.is_err() {
            tracing::warn!(left = self.tasks.len(), "processes of the embedded runtime do not end");
        }
    }
}

impl State {
    /// Reports to all subscribers what became of `id`, a container or the sandbox itself, with its pod as it is now.
    pub(super) fn announce(&mut self, kind: ContainerEventType, id: &str, sandbox: &SandboxId, at: i64) {
        let event = view::container_event(self, kind, id, sandbox, at);
        self.subscribers.cri.send(&event);
        self.subscribers.containerd.send(&envelope::of_change(self, kind, id));
    }
}
