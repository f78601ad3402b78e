//! The daemon as a whole, and its configuration.

use std::time::Duration;

use super::{super::*, *};

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
            exec_mode: "sync".to_owned(),
            loaded_at: Some(at(60_000)),
            errors: Vec::new(),
            needs_restart: Vec::new(),
        },
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
            healthcheck: Some(HealthcheckView {
                on_failure: Some("stop".to_owned()),
                on_failure_command: Some(FailureCommandView {
                    command: ["/bin/dump", "--all"].map(str::to_owned).to_vec(),
                    timeout_seconds: Seconds(Duration::from_secs(10)),
                }),
                termination_grace_period_seconds: None,
                exec_mode: None,
            }),
            history: Some(HistoryView { attempts: Some(200), output_bytes: None }),
        }],
    }
}
