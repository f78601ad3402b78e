//! Probes, alone and with all that is known of them, and what was done about them.

use std::time::Duration;

use super::{super::*, *};
use crate::results::exec_route::{ExecRoute, WhySync};

/// A liveness probe of `default/web/app` that succeeds.
pub(crate) fn probe() -> ProbeView {
    ProbeView {
        id: probe_id("default", "web", "app", "liveness"),
        key: "uid-1/app/liveness".to_owned(),
        namespace: "default".to_owned(),
        pod: "web".to_owned(),
        pod_uid: "uid-1".to_owned(),
        sandbox_id: "s1".to_owned(),
        container: "app".to_owned(),
        container_id: "c1".to_owned(),
        attempt: 0,
        kind: "liveness".to_owned(),
        likely_type: None,
        handler: "exec".to_owned(),
        source: "annotation".to_owned(),
        phase: ProbePhase::Probing,
        state: Verdict::Success,
        reason: String::new(),
        since: at(0),
        period_seconds: Some(Seconds(Duration::from_secs(10))),
        next_at: Some(at(120_000)),
        run: Some(Run { verdict: Verdict::Success, count: 12 }),
        counts: Counts { success: 12, ..Counts::default() },
        last: Some(AttemptView {
            at: at(110_000),
            result: AttemptResult::Success,
            duration_seconds: Seconds(Duration::from_millis(31)),
            exit_code: Some(0),
            status: None,
            route: Some(ExecRoute::Sync).into(),
            lag_seconds: None,
            container_attempt: None,
            first_of_container: false,
            output: "".into(),
            phases: None,
            phases_unknown: None,
            culprit: None,
        }),
        errors: None,
        unsuccessful_at: None,
        latency: Some(LatencyView {
            attempts: 12,
            p50_seconds: Seconds(Duration::from_millis(31)),
            p99_seconds: Seconds(Duration::from_millis(340)),
            near_timeout: false,
            over_timeout: false,
        }),
        on_failure: "report".to_owned(),
        on_failure_asked: None,
        act_refusal: None,
        shadowed: Vec::new(),
        act: None,
        pause: None,
        stopped_by_client: false,
    }
}

/// A restart that failed and is tried again.
pub(crate) fn act() -> ActView {
    ActView {
        action: "restart".to_owned(),
        step: ActStep::Retrying,
        reason: "no space left on device".to_owned(),
        since: at(115_000),
        next_at: Some(at(135_000)),
    }
}

/// A node that acts, and withholds some.
pub(crate) fn acts() -> ActsView {
    ActsView {
        enabled: true,
        dry_run: false,
        max_per_minute: 6,
        max_concurrent: 1,
        last_minute: 6,
        in_progress: 1,
        withheld: 14,
        trouble: String::new(),
    }
}

/// A container that is being restarted, while the new one cannot be created: its liveness probe.
pub(crate) fn acting_detail() -> ProbeDetailView {
    let plain = detail();
    let last = ActRecordView {
        at: at(112_000),
        container_id: "c1".to_owned(),
        action: "restart".to_owned(),
        after: "liveness failure".to_owned(),
        end: None,
        reason: String::new(),
        successor_id: String::new(),
        took_seconds: Seconds(Duration::ZERO),
        command: Some(ActCommandView {
            exit_code: Some(0),
            took_seconds: Seconds(Duration::from_millis(310)),
            output: "thread 1: \u{1b}[1mblocked\u{1b}[0m\nthread 2: idle\n".into(),
        }),
    };
    let probe = ProbeView {
        act: Some(act()),
        reason: act().in_words(),
        on_failure: "restart".to_owned(),
        phase: ProbePhase::Held,
        state: Verdict::Failure,
        since: at(111_031),
        next_at: None,
        run: Some(Run { verdict: Verdict::Failure, count: 0 }),
        counts: plain.probe.counts,
        last: plain.probe.last.clone(),
        ..probe()
    };
    let definition = plain.definition.clone();
    let definition =
        definition.map(|definition| DefinitionView { on_failure: "restart".to_owned(), ..definition });
    ProbeDetailView {
        probe,
        definition,
        acts: Some(ProbeActsView {
            asked: "restart".to_owned(),
            action: "restart".to_owned(),
            refusal: String::new(),
            node: acts(),
            next_allowed_at: Some(at(135_000)),
            back_off_seconds: Seconds(Duration::from_secs(20)),
            last: Some(last),
        }),
        acted: vec![
            ActNoteView { at: at(112_000), text: "restart after liveness failure".to_owned() },
            ActNoteView {
                at: at(112_310),
                text: "onFailureCommand exited with code 0: thread 1: \u{1b}[1mblocked".to_owned(),
            },
        ],
        events: vec![EventView {
            kind: EventType::Normal,
            reason: "Killing".to_owned(),
            message: "Container app failed liveness probe, will be restarted".to_owned(),
            at: at(112_400),
            ..event()
        }],
        ..plain
    }
}

/// The same probe by another name.
pub(crate) fn named_probe(namespace: &str, pod: &str, container: &str, kind: &str) -> ProbeView {
    ProbeView {
        id: probe_id(namespace, pod, container, kind),
        key: format!("uid-{pod}/{container}/{kind}"),
        namespace: namespace.to_owned(),
        pod: pod.to_owned(),
        pod_uid: format!("uid-{pod}"),
        container: container.to_owned(),
        kind: kind.to_owned(),
        ..probe()
    }
}

/// A probe that fails, with something nasty to say.
pub(crate) fn failing_probe() -> ProbeView {
    ProbeView {
        latency: Some(LatencyView {
            attempts: 15,
            p50_seconds: Seconds(Duration::from_millis(31)),
            p99_seconds: Seconds(Duration::from_millis(1_030)),
            near_timeout: true,
            over_timeout: true,
        }),
        unsuccessful_at: Some(at(110_000)),
        phase: ProbePhase::Held,
        state: Verdict::Failure,
        reason: "3 attempts failed; waits for a new container".to_owned(),
        next_at: None,
        run: Some(Run { verdict: Verdict::Failure, count: 3 }),
        counts: Counts { success: 12, failure: 3, ..Counts::default() },
        last: Some(AttemptView {
            at: at(110_000),
            result: AttemptResult::Failure,
            duration_seconds: Seconds(Duration::from_millis(1_031)),
            exit_code: Some(1),
            status: None,
            route: Some(ExecRoute::Sync).into(),
            lag_seconds: Some(Seconds(Duration::from_micros(400))),
            container_attempt: None,
            first_of_container: false,
            output: "cat: /tmp/healthy: \u{1b}[31mno such file\u{1b}[0m\n".into(),
            phases: None,
            phases_unknown: None,
            culprit: None,
        }),
        ..named_probe("default", "bad", "app", "readiness")
    }
}

/// One whose command keeps its output open, so that no attempt returns any more.
pub(crate) fn untried_probe() -> ProbeView {
    let error =
        "no answer within 6s (timeout 1s, grace 5s): the command, or a child of it, keeps its output open";
    ProbeView {
        reason: format!(
            "cannot be tried since 10:00:20Z (7 attempts): {error}; slowed down to every 5m0s, the next at \
             10:05:00Z: `criprobe trigger` tries now"
        ),
        period_seconds: Some(Seconds(Duration::from_secs(300))),
        counts: Counts { success: 66, error: 7, ..Counts::default() },
        run: Some(Run { verdict: Verdict::Success, count: 66 }),
        errors: Some(ErrorsView { count: 7, since: at(20_000), cannot_try: true }),
        last: Some(AttemptView {
            result: AttemptResult::Error,
            duration_seconds: Seconds(Duration::from_millis(6_012)),
            exit_code: None,
            output: error.into(),
            ..probe().last.expect("it was attempted")
        }),
        unsuccessful_at: Some(at(110_000)),
        ..named_probe("default", "web", "app", "startup")
    }
}

/// A client's own probe.
fn observed_probe() -> ProbeView {
    let ours = named_probe("default", "web", "app", "observed-1");
    ProbeView {
        source: "observed".to_owned(),
        likely_type: Some("readiness".to_owned()),
        period_seconds: Some(Seconds(Duration::from_millis(9_990))),
        last: ours.last.clone().map(|last| AttemptView { route: None.into(), ..last }),
        ..ours
    }
}

/// All of a client's own probe.
pub(crate) fn observed_detail() -> ProbeDetailView {
    ProbeDetailView {
        client: Some(ClientView {
            comm: "kubelet".to_owned(),
            uid: 0,
            command: vec!["cat".to_owned(), "/tmp/a b".to_owned()],
            timeout_seconds: Seconds(Duration::from_secs(1)),
        }),
        changes: Vec::new(),
        events: Vec::new(),
        history: observed_probe().last.into_iter().collect(),
        definition: None,
        acts: None,
        acted: Vec::new(),
        probe: observed_probe(),
    }
}

/// A probe whose definition is wrong.
pub(crate) fn invalid_probe() -> ProbeView {
    ProbeView {
        latency: None,
        phase: ProbePhase::Invalid,
        state: Verdict::Unknown,
        handler: String::new(),
        container_id: String::new(),
        reason: "unknown field \"tcpSockets\"".to_owned(),
        next_at: None,
        period_seconds: None,
        run: None,
        counts: Counts::default(),
        last: None,
        ..named_probe("kube-system", "dns-7c9f6b8d9c-x2x2x", "resolver", "startup")
    }
}

/// A run that went well, of a command.
pub(crate) fn run() -> RunView {
    let ProbeView { namespace, pod, pod_uid, sandbox_id, container, container_id, attempt, .. } = probe();
    RunView {
        result: AttemptResult::Success,
        duration_seconds: Seconds(Duration::from_millis(31)),
        exit_code: Some(0),
        status: None,
        route: Some(ExecRoute::Sync).into(),
        output: "fine\n".to_owned(),
        tries: 1,
        handler: "exec".to_owned(),
        container: ContainerRef {
            id: joined([&*namespace, &*pod, &*container]),
            namespace,
            pod,
            pod_uid,
            sandbox_id,
            container,
            container_id,
            attempt,
        },
    }
}

/// All of the probe that fails: it went well for a while, and then did not.
pub(crate) fn detail() -> ProbeDetailView {
    let probe = failing_probe();
    let last = probe.last.clone().expect("it was attempted");
    let well = AttemptView {
        lag_seconds: None,
        result: AttemptResult::Success,
        duration_seconds: Seconds(Duration::from_millis(27)),
        exit_code: Some(0),
        output: "".into(),
        ..last.clone()
    };
    let lost = AttemptView {
        result: AttemptResult::Error,
        duration_seconds: Seconds(Duration::from_millis(6_012)),
        exit_code: None,
        lag_seconds: None,
        output: "runtime did not answer".into(),
        ..last.clone()
    };
    let warned = AttemptView { result: AttemptResult::Warning, output: "moved".into(), ..well.clone() };
    let past = AttemptView { lag_seconds: None, ..last };
    let ended = [&[well][..], &[warned, lost], &vec![past; 3]].concat();
    let history = (0_u64..)
        .zip(ended)
        .map(|(n, attempt)| AttemptView { at: at(60_000 + 10_000 * n), ..attempt })
        .collect();
    let change = |millis, from, to, why: &str| ChangeView { at: at(millis), from, to, why: why.to_owned() };
    ProbeDetailView {
        client: None,
        probe: ProbeView { shadowed: vec!["pod annotation".to_owned()], ..probe },
        definition: Some(DefinitionView {
            handler: handlers().swap_remove(0),
            initial_delay_seconds: Seconds(Duration::ZERO),
            timeout_seconds: Seconds(Duration::from_secs(1)),
            timeout_before_cap_seconds: None,
            period_seconds: Seconds(Duration::from_secs(10)),
            success_threshold: 1,
            failure_threshold: 3,
            termination_grace_period_seconds: None,
            on_failure: "report".to_owned(),
            on_failure_command: None,
            start_period_seconds: None,
            start_interval_seconds: None,
            exec_mode: None,
        }),
        acts: None,
        acted: Vec::new(),
        history,
        changes: vec![
            change(0, Verdict::Unknown, Verdict::Success, "the container started"),
            change(111_031, Verdict::Success, Verdict::Failure, "3 failures in a row"),
        ],
        events: vec![event()],
    }
}

/// All of the same one, whose command goes by a session where it can.
pub(crate) fn session_detail() -> ProbeDetailView {
    let mut detail = detail();
    let fallback = |why| ExecRoute::Fallback(why);
    let routes = [
        fallback(WhySync::FirstAttempt),
        ExecRoute::Session,
        fallback(WhySync::Ended),
        fallback(WhySync::Opening),
        fallback(WhySync::Opening),
        ExecRoute::Session,
    ];
    for (attempt, route) in detail.history.iter_mut().zip(routes) {
        attempt.route = Some(route).into();
    }
    detail.probe.last = detail.probe.last.map(|last| AttemptView { route: Some(routes[5]).into(), ..last });
    detail
}

/// All of a probe whose definition is wrong.
pub(crate) fn invalid_detail() -> ProbeDetailView {
    ProbeDetailView {
        probe: invalid_probe(),
        client: None,
        definition: None,
        acts: None,
        acted: Vec::new(),
        history: Vec::new(),
        changes: Vec::new(),
        events: Vec::new(),
    }
}

pub(crate) fn handlers() -> Vec<HandlerView> {
    vec![
        HandlerView::Exec { command: vec!["cat".to_owned(), "/tmp/$(FILE)".to_owned()] },
        HandlerView::HttpGet {
            path: "/healthz".to_owned(),
            port: PortView::Name("http".to_owned()),
            host: None,
            scheme: "HTTPS".to_owned(),
            http_headers: vec![HeaderView { name: "Accept".to_owned(), value: String::new() }],
        },
        HandlerView::TcpSocket { port: PortView::Number(80), host: Some("10.0.0.1".to_owned()) },
        HandlerView::Grpc { port: 50_051, service: "cart".to_owned() },
    ]
}
