//! The rules of the model, each as a short story, and then any story at all.

mod pauses;
mod scenarios;
mod simulation;

use std::time::{Duration, Instant};

use super::{super::fact::Lost, *};
use crate::{ids::ConnId, proto::cri};

/// A model, and moments to report to it.
struct Rig {
    model: Model,
    start: Instant,
}

impl Rig {
    fn new() -> Self {
        Self { model: Model::default(), start: crate::clock::now() }
    }

    /// As many milliseconds after the start.
    fn at(&self, millis: u64) -> Instant {
        self.start + Duration::from_millis(millis)
    }

    fn apply(&mut self, at: u64, fact: Fact) {
        self.model.apply(fact, self.at(at));
    }

    /// What is to be asked, in words: `container c`.
    fn lookups(&mut self) -> Vec<String> {
        let lookups = self.model.take_lookups();
        lookups
            .iter()
            .map(|(lookup, _)| match lookup {
                Lookup::List => "list".to_owned(),
                Lookup::Sandbox(id) => format!("sandbox {id}"),
                Lookup::Container(id) => format!("container {id}"),
                Lookup::ContainerAgain(id) => format!("again {id}"),
                Lookup::Unexplained(id) | Lookup::Named(id) => format!("what is {id}"),
            })
            .collect()
    }

    /// What changed, in words: `c running`, `c gone`.
    fn changes(&mut self) -> Vec<String> {
        let changes = self.model.take_changes();
        changes
            .iter()
            .map(|change| match change {
                Change::Container(view) => {
                    let paused = if view.is_paused { " paused" } else { "" };
                    format!("{} {}{paused}", view.id, word(view.state))
                }
                Change::ContainerGone(id) => format!("{id} gone"),
                Change::Listed(all) => format!("{} listed", all.len()),
                Change::ContainerStopping(id) => format!("{id} stopping"),
                Change::ContainerStopFailed(id) => format!("{id} stop failed"),
                Change::PodStopping(id) => format!("pod {id} stopping"),
                Change::PodStopFailed(id) => format!("pod {id} stop failed"),
                Change::RuntimeAnswers => "runtime answers".to_owned(),
                Change::StopsListed(open) => {
                    let (containers, pods): (u32, u32) =
                        (open.containers.values().sum(), open.pods.values().sum());
                    format!("{containers} and {pods} stops listed")
                }
            })
            .collect()
    }

    /// A pod as it is known.
    fn pod(&self, id: &str) -> &Pod {
        &self.model.sandboxes[id].view
    }

    /// What there is, in words, whether it was reported or not.
    fn containers(&self) -> Vec<String> {
        let mut all: Vec<_> =
            self.model.containers.iter().map(|(id, known)| format!("{id} {}", word(known.state))).collect();
        all.sort();
        all
    }
}

fn word(state: ContainerState) -> String {
    match state {
        ContainerState::Created => "created".to_owned(),
        ContainerState::Running => "running".to_owned(),
        ContainerState::Exited { exit_code: Some(code) } => format!("exited {code}"),
        ContainerState::Exited { exit_code: None } => "exited".to_owned(),
        ContainerState::Unknown => "unknown".to_owned(),
    }
}

fn metadata(id: &str) -> Option<cri::PodSandboxMetadata> {
    Some(cri::PodSandboxMetadata {
        name: id.into(),
        uid: format!("uid-{id}"),
        namespace: "default".into(),
        attempt: 0,
    })
}

fn run(id: &str) -> Fact {
    let config = cri::PodSandboxConfig { metadata: metadata(id), ..Default::default() };
    Fact::SandboxRun { id: id.into(), config: Arc::new(config.into()) }
}

fn create(id: &str, sandbox: &str) -> Fact {
    let request = cri::CreateContainerRequest {
        pod_sandbox_id: sandbox.into(),
        config: Some(cri::ContainerConfig {
            metadata: Some(cri::ContainerMetadata { name: "app".into(), attempt: 0 }),
            ..Default::default()
        }),
        sandbox_config: None,
    };
    Fact::ContainerCreated { id: id.into(), request: Arc::new(request.into()) }
}

fn call(number: u32) -> CallId {
    CallId { conn: ConnId(1), stream: number }
}

fn stop(number: u32, container: &str) -> Fact {
    Fact::StopBegun { call: call(number), target: Target::Container(container.into()) }
}

fn stop_pod(number: u32, sandbox: &str) -> Fact {
    Fact::StopBegun { call: call(number), target: Target::Sandbox(sandbox.into()) }
}

fn started(id: &str) -> Fact {
    Fact::ContainerStarted(id.into())
}

fn paused(id: &str) -> Fact {
    Fact::ContainerPaused(id.into())
}

fn resumed(id: &str) -> Fact {
    Fact::ContainerResumed(id.into())
}

fn paused_listed<const N: usize>(ids: [&str; N]) -> Fact {
    Fact::PausedListed(Some(ids.map(str::to_owned).into()))
}

fn exited(id: &str, code: i32) -> Fact {
    Fact::ContainerExited { id: id.into(), exit_code: Some(code) }
}

fn item(id: &str, sandbox: &str, state: cri::ContainerState) -> cri::Container {
    cri::Container {
        id: id.into(),
        pod_sandbox_id: sandbox.into(),
        metadata: Some(cri::ContainerMetadata { name: "app".into(), attempt: 0 }),
        state: state.into(),
        created_at: 1,
        ..Default::default()
    }
}

fn containers<const N: usize>(items: [(&str, &str, cri::ContainerState); N]) -> Fact {
    Fact::ContainersListed(items.map(|(id, sandbox, state)| item(id, sandbox, state).into()).into())
}

fn sandbox_item(id: &str, is_ready: bool) -> cri::PodSandbox {
    let state =
        if is_ready { cri::PodSandboxState::SandboxReady } else { cri::PodSandboxState::SandboxNotready };
    cri::PodSandbox { id: id.into(), metadata: metadata(id), state: state.into(), ..Default::default() }
}

fn sandboxes<const N: usize>(ids: [&str; N]) -> Fact {
    Fact::SandboxesListed(ids.map(|id| sandbox_item(id, true).into()).into())
}

/// A sandbox's status with this address.
fn pod(id: &str, ip: &str) -> Fact {
    sandbox_status(id, true, ip)
}

fn sandbox_status(id: &str, is_ready: bool, ip: &str) -> Fact {
    let status = cri::PodSandboxStatus {
        id: id.into(),
        metadata: metadata(id),
        state: sandbox_item(id, is_ready).state,
        network: Some(cri::PodSandboxNetworkStatus { ip: ip.into(), additional_ips: vec![] }),
        ..Default::default()
    };
    Fact::SandboxReported(Box::new(status.into()))
}

/// A container's status.
fn status(id: &str, state: cri::ContainerState, started_at: i64, exit_code: i32) -> Fact {
    Fact::ContainerReported(Box::new(cri::ContainerStatus {
        id: id.into(),
        state: state.into(),
        created_at: 1,
        started_at,
        exit_code,
        ..Default::default()
    }))
}
