//! One of each view, for tests; fixed times, so that snapshots hold.

mod daemon;
mod pod;
mod probe;

use std::time::{Duration, UNIX_EPOCH};

use super::*;
use crate::{
    ids::ProbeKind,
    results::exec_route::{ExecRoute, WhySync},
};

pub(crate) use self::{
    daemon::{configuration, status},
    pod::{pod, pod_detail},
    probe::{
        act, acting_detail, acts, detail, failing_probe, handlers, invalid_detail, invalid_probe,
        named_probe, observed_detail, probe, run, session_detail, untried_probe,
    },
};

/// 2026-11-20T10:00:00Z, and so many milliseconds.
pub(crate) fn at(millis: u64) -> Time {
    Time(UNIX_EPOCH + Duration::from_secs(1_795_168_800) + Duration::from_millis(millis))
}

/// An ExecSync that went well.
pub(crate) fn call() -> CallView {
    CallView {
        id: String::new(),
        at: at(0),
        duration_seconds: Seconds(Duration::from_millis(27)),
        service: "runtime.v1.RuntimeService".to_owned(),
        method: "ExecSync".to_owned(),
        code: "OK".to_owned(),
        message: String::new(),
        end: CallEnd::Complete,
        peer: PeerView { pid: 812, uid: 0, comm: "kubelet".to_owned() },
        request_bytes: 91,
        response_bytes: 12,
        namespace: "default".to_owned(),
        pod: "web".to_owned(),
        container: "app".to_owned(),
        container_id: "c1".to_owned(),
        exec: Some(ExecView {
            command: vec!["cat".to_owned(), "/tmp/healthy".to_owned()],
            timeout_seconds: Some(1),
            exit_code: Some(0),
            stdout_bytes: Some(0),
            stderr_bytes: Some(0),
            stdout: None,
            stderr: None,
            phases: Some(PhasesView {
                queue_seconds: Seconds(Duration::from_millis(4)),
                start_seconds: Some(Seconds(Duration::from_millis(22))),
                run_seconds: Some(Seconds(Duration::from_millis(1))),
                drain_seconds: Some(Seconds(Duration::from_millis(3))),
            }),
            phases_unknown: None,
            culprit: None,
        }),
        stream_opened: false,
        session: None,
        traceparent: String::new(),
    }
}

/// A call about no pod, refused.
pub(crate) fn refused_call() -> CallView {
    CallView {
        id: String::new(),
        method: "ImageStatus".to_owned(),
        service: "runtime.v1.ImageService".to_owned(),
        code: "NotFound".to_owned(),
        message: "no such image".to_owned(),
        namespace: String::new(),
        pod: String::new(),
        container: String::new(),
        container_id: String::new(),
        exec: None,
        ..call()
    }
}

/// A failed attempt.
pub(crate) fn event() -> EventView {
    EventView {
        at: at(0),
        first_at: None,
        count: 1,
        kind: EventType::Warning,
        reason: "Unhealthy".to_owned(),
        message: "Liveness probe failed: no such file\n".to_owned(),
        namespace: "default".to_owned(),
        pod: "web".to_owned(),
        pod_uid: "uid-1".to_owned(),
        container: "app".to_owned(),
        container_id: "c1".to_owned(),
        probe: "liveness".to_owned(),
    }
}

/// One that has happened often.
pub(crate) fn repeated_event() -> EventView {
    EventView { at: at(50_000), first_at: Some(at(0)), count: 494, ..event() }
}

/// A line of the file of attempts.
pub(crate) fn attempt_line() -> AttemptLineView {
    AttemptLineView {
        at: at(110_000),
        namespace: "default".into(),
        pod: "web".into(),
        pod_uid: "uid-1".to_owned(),
        container: "app".into(),
        container_id: "c1".to_owned(),
        kind: ProbeKind::Liveness,
        result: AttemptResult::Failure,
        duration_seconds: Seconds(Duration::from_millis(31)),
        lag_seconds: Some(Seconds(Duration::from_millis(2))),
        exit_code: Some(1),
        status: None,
        route: Some(ExecRoute::Fallback(WhySync::NoShell)).into(),
        state: Verdict::Success,
        output: "no such file\n".into(),
    }
}

/// A node with a slow command, a stream of a client, and three commands that cost something.
pub(crate) fn top() -> TopView {
    let seconds = |millis| Seconds(Duration::from_millis(millis));
    let command = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let phases = |calls, [queue, start, run, drain]: [u64; 4]| CostPhasesView {
        calls,
        queue_seconds: seconds(queue),
        start_seconds: seconds(start),
        run_seconds: seconds(run),
        drain_seconds: seconds(drain),
    };
    let exec = |words| Some(ExecView { command: command(words), ..ExecView::default() });
    let slow = CallInFlightView {
        id: String::new(),
        began: at(107_600),
        age_seconds: seconds(12_400),
        method: "ExecSync".to_owned(),
        caller: call().peer,
        namespace: "default".to_owned(),
        pod: "web".to_owned(),
        container: "app".to_owned(),
        exec: exec(&["sh", "-c", "sleep 30"]),
        is_probe: false,
    };
    let pull = CallInFlightView {
        id: String::new(),
        began: at(119_100),
        age_seconds: seconds(900),
        method: "PullImage".to_owned(),
        namespace: String::new(),
        pod: String::new(),
        container: String::new(),
        exec: None,
        ..slow.clone()
    };
    let probe = CostView {
        namespace: "default".to_owned(),
        pod: "web".to_owned(),
        container: None,
        command: None,
        is_probe: true,
        exec_route: ExecMode::Sync,
        calls: 120,
        failures: 3,
        total_seconds: seconds(6_100),
        p50_seconds: seconds(41),
        p99_seconds: seconds(340),
        phases: Some(phases(118, [600, 4_100, 900, 300])),
    };
    let person = CostView {
        is_probe: false,
        calls: 1,
        failures: 0,
        total_seconds: seconds(500),
        p50_seconds: seconds(500),
        p99_seconds: seconds(500),
        phases: Some(phases(1, [4, 32, 460, 4])),
        ..probe.clone()
    };
    let other = CostView {
        namespace: "kube-system".to_owned(),
        pod: "dns-7c9f6b8d9c-x2x2x".to_owned(),
        calls: 30,
        failures: 0,
        total_seconds: seconds(900),
        p50_seconds: seconds(30),
        p99_seconds: seconds(52),
        phases: None,
        ..probe.clone()
    };
    let of = |cost: &CostView, container: &str, words| CostView {
        container: Some(container.to_owned()),
        command: Some(command(words)),
        ..cost.clone()
    };
    let commands = vec![
        of(&probe, "app", &["cat", "/tmp/healthy"]),
        of(&other, "resolver", &["nslookup", "a\u{1b}[2Jb.example"]),
        of(&person, "app", &["ls", "-l", "/var/lib/very/long/path/to/some/folder"]),
    ];
    TopView {
        at: at(120_000),
        window_seconds: seconds(300_000),
        in_flight: InFlightView { total: 2, event_streams: 1, calls: vec![slow, pull] },
        pods: vec![probe, other, person],
        commands,
        others: OthersView::default(),
        runtime_cpu: Some(RuntimeCpuView { cores: 0.31, seconds_per_exec: Some(seconds(616)) }),
    }
}

/// The same node after its probes went by sessions for a while.
pub(crate) fn top_with_sessions() -> TopView {
    let seconds = |millis| Seconds(Duration::from_millis(millis));
    let by_session = |cost: &CostView| CostView {
        exec_route: ExecMode::Session,
        calls: 2_400,
        failures: 0,
        total_seconds: seconds(2_880),
        p50_seconds: seconds(1),
        p99_seconds: seconds(3),
        phases: None,
        ..cost.clone()
    };
    let mut top = top();
    for costs in [&mut top.pods, &mut top.commands] {
        costs.insert(1, by_session(&costs[0]));
    }
    top
}
