//! A pod with its containers.

use super::{super::*, *};

/// How three containers of one name ended.
fn exits() -> Vec<ExitView> {
    let exit = |attempt: u32, from: u64, to: u64, exit_code, reason: &str| ExitView {
        attempt,
        container_id: format!("c2-{attempt}").repeat(13),
        started_at: Some(at(from)),
        finished_at: Some(at(to)),
        exit_code,
        reason: reason.to_owned(),
    };
    vec![
        exit(0, 300, 4_100, Some(3), "Error"),
        exit(1, 5_000, 9_000, Some(0), "Completed"),
        exit(2, 10_000, 34_000, Some(137), "OOMKilled"),
    ]
}

/// All of that pod.
pub(crate) fn pod_detail() -> PodDetailView {
    let of_container = EventView {
        at: at(115_000),
        reason: "OOMKilled".to_owned(),
        message: "Container log was OOM-killed after 1m20s, exit code 137".to_owned(),
        container: "log".to_owned(),
        container_id: "c2".repeat(32),
        probe: String::new(),
        ..event()
    };
    let failing = ProbeView { pod: "web".to_owned(), container: "log".to_owned(), ..failing_probe() };
    PodDetailView { pod: pod(), probes: vec![probe(), failing], events: vec![event(), of_container] }
}

/// A pod that is not ready: one of its containers runs, the other has ended.
pub(crate) fn pod() -> PodView {
    let app = ContainerView {
        container: "app".to_owned(),
        container_id: "c1".repeat(32),
        image: "registry.example/shop/web:1.2".to_owned(),
        state: ContainerStateView::Running,
        paused: false,
        exit_code: None,
        stopped_by_client: false,
        finished_at: None,
        exit_reason: None,
        exit_message: None,
        log_path: Some("/var/log/pods/default_web_uid-1/app/0.log".to_owned()),
        exits: Vec::new(),
        created_at: Some(at(0)),
        started_at: Some(at(250)),
        started: true,
        ready: true,
        restarts: 0,
        probes: ProbesView::count([
            (Verdict::Success, ProbePhase::Probing),
            (Verdict::Success, ProbePhase::Held),
        ]),
        act: None,
        paused_probes: Vec::new(),
        failing_probes: Vec::new(),
    };
    let log = ContainerView {
        container: "log".to_owned(),
        container_id: "c2".repeat(32),
        image: "busybox:1.36".to_owned(),
        state: ContainerStateView::Exited,
        exit_code: Some(137),
        started_at: Some(at(35_000)),
        finished_at: Some(at(115_000)),
        exit_reason: Some("OOMKilled".to_owned()),
        log_path: Some("/var/log/pods/default_web_uid-1/log/3.log".to_owned()),
        exits: exits(),
        started: false,
        ready: false,
        restarts: 3,
        probes: ProbesView::default(),
        ..app.clone()
    };
    PodView {
        namespace: "default".to_owned(),
        pod: "web".to_owned(),
        pod_uid: "uid-1".to_owned(),
        sandbox_id: "s1".to_owned(),
        attempt: 0,
        sandbox_ready: true,
        ready: false,
        reason: "log: exited with code 137 (OOMKilled) 10s ago; containers with unready status: [log]"
            .to_owned(),
        problems: Vec::new(),
        probes_off: false,
        containers: vec![app, log],
    }
}
