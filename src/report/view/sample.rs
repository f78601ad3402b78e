//! One of each view, for tests; fixed times, so that snapshots hold.

use std::time::{Duration, UNIX_EPOCH};

use super::*;
use crate::ids::ProbeKind;

/// 2026-11-20T10:00:00Z, and so many milliseconds.
pub(crate) fn at(millis: u64) -> Time {
    Time(UNIX_EPOCH + Duration::from_secs(1_795_168_800) + Duration::from_millis(millis))
}

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
            lag_seconds: None,
            container_attempt: None,
            first_of_container: false,
            output: "".into(),
            phases: None,
            culprit: None,
        }),
        errors: None,
        unsuccessful_at: None,
        latency: Some(LatencyView {
            attempts: 12,
            p50_seconds: Seconds(Duration::from_millis(31)),
            p99_seconds: Seconds(Duration::from_millis(340)),
            near_timeout: false,
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
            lag_seconds: Some(Seconds(Duration::from_micros(400))),
            container_attempt: None,
            first_of_container: false,
            output: "cat: /tmp/healthy: \u{1b}[31mno such file\u{1b}[0m\n".into(),
            phases: None,
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
    ProbeView {
        source: "observed".to_owned(),
        likely_type: Some("readiness".to_owned()),
        period_seconds: Some(Seconds(Duration::from_millis(9_990))),
        ..named_probe("default", "web", "app", "observed-1")
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

/// An ExecSync that went well.
pub(crate) fn call() -> CallView {
    CallView {
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
        state: Verdict::Success,
        output: "no such file\n".into(),
    }
}

/// A daemon that is well, with one blind connection.
pub(crate) fn status() -> StatusView {
    StatusView {
        version: "0.1.0".to_owned(),
        pid: 4_711,
        started_at: at(0),
        uptime_seconds: Seconds(Duration::from_secs(93_784)),
        draining: false,
        listen: "unix:///run/criprobe/criprobe.sock".to_owned(),
        api: "unix:///run/criprobe/api.sock".to_owned(),
        http: Some(HttpView { address: "127.0.0.1:9090".to_owned(), page: true }),
        runtime: RuntimeView {
            endpoint: "unix:///run/containerd/containerd.sock".to_owned(),
            name: "containerd".to_owned(),
            version: "2.0.1".to_owned(),
            state: RuntimeState::Ok,
            since: at(0),
            reason: String::new(),
            event_source: "containerd".to_owned(),
        },
        connections: ConnectionsView {
            open: 3,
            total: 17,
            blind: vec![BlindView {
                id: 4,
                peer: PeerView { pid: 99, uid: 0, comm: "curl".to_owned() },
                since: at(5_000),
                reason: "not HTTP/2".to_owned(),
            }],
            accepting_paused_since: None,
        },
        calls: CallsView { in_flight: 1, total: 1_204 },
        gaps: 0,
        inventory: InventoryView {
            pods: 4,
            containers: 7,
            running: 5,
            last_resync_at: Some(at(60_000)),
            resyncs: 40,
            lists_fail: false,
            waiting: None,
            waiting_images: None,
        },
        probes: ProbesView::count([
            (Verdict::Success, ProbePhase::Probing),
            (Verdict::Success, ProbePhase::Probing),
            (Verdict::Failure, ProbePhase::Held),
            (Verdict::Unknown, ProbePhase::Invalid),
        ]),
        acts: acts(),
        state: StateFileView {
            file: "/var/lib/criprobe/probes.json".to_owned(),
            saved_at: Some(at(120_000)),
            trouble: String::new(),
        },
        attempts: Some(RecordFileView {
            file: "/var/lib/criprobe/attempts.jsonl".to_owned(),
            written: 12_345,
            dropped: 7,
            trouble: String::new(),
        }),
        trace: Some(RecordFileView {
            file: "/var/lib/criprobe/calls.jsonl".to_owned(),
            written: 54_321,
            dropped: 0,
            trouble: "the disk is nearly full, and 102400 KiB are left free for others: free some space, or name another file"
                .to_owned(),
        }),
        stages: Vec::new(),
        log: LogView::default(),
        config: ConfigView {
            files: vec!["/etc/criprobe/config.yaml".to_owned()],
            workers: 64,
            exec_workers: 16,
            exec_grace_seconds: Seconds(Duration::from_secs(5)),
            loaded_at: Some(at(60_000)),
            errors: Vec::new(),
            needs_restart: Vec::new(),
        },
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

/// A configuration with a setting of each origin, and a rule.
pub(crate) fn configuration() -> ConfigurationView {
    let setting = |key: &str, value: SettingValue, from: &str| SettingView {
        key: key.to_owned(),
        value,
        from: from.to_owned(),
    };
    let one = |text: &str| SettingValue::One(text.to_owned());
    ConfigurationView {
        files: vec!["/etc/criprobe/config.yaml".to_owned(), "/etc/criprobe/conf.d/web.yaml".to_owned()],
        settings: vec![
            setting("listen", one("unix:///run/criprobe/criprobe.sock"), "default"),
            setting("prober.workers", one("8"), "/etc/criprobe/config.yaml:3:12"),
            setting("prober.nodeIP", one(""), "default"),
            setting(
                "annotations.namespaces",
                SettingValue::Many(vec!["shop-*".to_owned(), "cart".to_owned()]),
                "CRIPROBE_ANNOTATIONS_NAMESPACES",
            ),
            setting("log.level", one("debug"), "--log-level"),
        ],
        rules: vec![RuleView {
            name: "web-default".to_owned(),
            from: "/etc/criprobe/conf.d/web.yaml:2:5".to_owned(),
            enforce: true,
            matcher: MatchView {
                namespace: "shop-*".to_owned(),
                pod: "*".to_owned(),
                container: "*".to_owned(),
                image: "*/nginx:*".to_owned(),
                labels: [("tier".to_owned(), "front".to_owned())].into(),
            },
            startup: None,
            readiness: None,
            liveness: detail().definition,
            healthcheck: Some(HealthcheckActView {
                on_failure: "stop".to_owned(),
                on_failure_command: Some(FailureCommandView {
                    command: ["/bin/dump", "--all"].map(str::to_owned).to_vec(),
                    timeout_seconds: Seconds(Duration::from_secs(10)),
                }),
                termination_grace_period_seconds: None,
            }),
            history: Some(HistoryView { attempts: Some(200), output_bytes: None }),
        }],
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
