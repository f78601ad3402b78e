//! What became of a container or a sandbox, as an event of containerd. State in, messages out; pure.

use std::time::SystemTime;

use super::state::{Phase, State};
use crate::{
    ids::ContainerId,
    proto::{
        containerd::{
            Envelope,
            events::{
                ContainerCreate, ContainerDelete, TaskExecAdded, TaskExecStarted, TaskExit, TaskPaused,
                TaskResumed, TaskStart,
            },
        },
        cri::ContainerEventType,
    },
};

/// Where the CRI plugin keeps its containers.
pub(super) const NAMESPACE: &str = "k8s.io";

/// What became of `id`, a container or a sandbox, in containerd's words.
pub(super) fn of_change(state: &State, kind: ContainerEventType, id: &str) -> Envelope {
    let id = id.to_owned();
    match kind {
        ContainerEventType::ContainerCreatedEvent => wrap("/containers/create", &ContainerCreate { id }),
        ContainerEventType::ContainerDeletedEvent => wrap("/containers/delete", &ContainerDelete { id }),
        ContainerEventType::ContainerStartedEvent => {
            wrap("/tasks/start", &TaskStart { container_id: id, ..TaskStart::default() })
        }
        ContainerEventType::ContainerStoppedEvent => {
            let exit_code = match state.containers.get(id.as_str()).map(|container| &container.phase) {
                Some(Phase::Exited(ended)) => ended.exit_code,
                Some(Phase::Created | Phase::Running(_)) | None => 0,
            };
            let exit_status = u32::try_from(exit_code).unwrap_or_default();
            wrap(
                "/tasks/exit",
                &TaskExit { container_id: id.clone(), id, exit_status, ..TaskExit::default() },
            )
        }
    }
}

/// A container was paused or resumed. CRI has no such event.
pub(super) fn of_pause(id: &ContainerId, is_paused: bool) -> Envelope {
    let container_id = id.to_string();
    match is_paused {
        true => wrap("/tasks/paused", &TaskPaused { container_id }),
        false => wrap("/tasks/resumed", &TaskResumed { container_id }),
    }
}

/// One step of a command in a container.
#[derive(Clone, Copy)]
pub(super) enum ExecStep {
    Added,
    Started { pid: u32 },
    Exited { exit_status: u32 },
}

/// What became of a command, at that time.
pub(super) fn of_exec(container: &ContainerId, exec: &str, step: ExecStep, at: SystemTime) -> Envelope {
    let (container_id, exec_id) = (container.to_string(), exec.to_owned());
    let envelope = match step {
        ExecStep::Added => wrap("/tasks/exec-added", &TaskExecAdded { container_id, exec_id }),
        ExecStep::Started { pid } => {
            wrap("/tasks/exec-started", &TaskExecStarted { container_id, exec_id, pid })
        }
        ExecStep::Exited { exit_status } => {
            wrap("/tasks/exit", &TaskExit { container_id, id: exec_id, exit_status, ..TaskExit::default() })
        }
    };
    Envelope { timestamp: Some(at.into()), ..envelope }
}

fn wrap(topic: &str, payload: &impl prost::Message) -> Envelope {
    let event = prost_types::Any { type_url: String::new(), value: payload.encode_to_vec() };
    Envelope { timestamp: None, namespace: NAMESPACE.to_owned(), topic: topic.to_owned(), event: Some(event) }
}
