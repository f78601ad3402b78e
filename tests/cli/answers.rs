//! Verbs that print an answer and end: what they print, and their exit codes.

use super::*;

#[test]
fn what_the_daemon_tells_is_printed_in_every_format() {
    let daemon = Daemon::start();
    daemon.push(call());
    daemon.events.push(serde_json::from_str::<EventView>(EVENT).unwrap());
    for (arguments, says) in [
        ("status", "containerd 2.0.1 at unix:///r, ok for"),
        ("status -o json", r#""eventSource": "containerd""#),
        ("status -o yaml", "eventSource: containerd"),
        ("probes", "default/web"),
        ("probes -o wide", "annotation"),
        ("probes -o yaml", "- id: default/web/app/liveness"),
        ("probes --type readiness", "no probes"),
        ("-o json probes --type readiness", "[]"),
        ("probes default/w*/app", "default/web"),
        ("events default/web", "Liveness probe failed: gone"),
        ("wait default/web --for ready", "default/web: ready\n"),
        ("wait default/web/app --for started -o json", "\"reached\": true"),
        ("wait default/* --for ready -o yaml", "reached: true"),
        (
            "trace --last 5",
            "10:00:00Z OK               ExecSync           27ms kubelet[812]     default/web/app cat",
        ),
        ("trace --last 5 -o yaml", "---\nat: "),
        ("events", "10:00:00Z Warning Unhealthy      default/web/app/liveness Liveness probe failed: gone\n"),
        ("events -o json", r#"{"at":"2026-11-20T10:00:00.000Z","type":"Warning","reason":"Unhealthy","#),
        ("version", "daemon   0.1.0, pid 7"),
        ("top", "default/db     probe  30"),
        ("top default/web --since 1m", "0 in flight; 42 execs in 1m: 2 failed"),
        ("top -o json", r#""windowSeconds": 300.0"#),
        ("top -o yaml", "windowSeconds: 300"),
        ("allowlist --for falco", "- macro: criprobe_probe\n"),
        ("allowlist --for tetragon", "tetragon:\n"),
    ] {
        let output = daemon.run(arguments);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()), "{arguments}");
        assert!(text(&output.stdout).contains(says), "{arguments}: {}", text(&output.stdout));
        assert!(!text(&output.stdout).contains('\u{1b}'), "no colours where there is no terminal");
    }
    let probes: Vec<ProbeView> = serde_json::from_slice(&daemon.run("probes -o json").stdout).unwrap();
    assert_eq!(probes, [probe()]);
    let trace = daemon.run("trace --last 1 --method Exec* -o json");
    assert_eq!(serde_json::from_slice::<CallView>(&trace.stdout).unwrap(), call());
    assert_eq!(text(&daemon.run("trace --last 1 --failed").stdout), "no calls\n");
    assert_eq!(text(&daemon.run("trace --last 1 --failed -o json").stdout), "");
    assert_eq!(text(&daemon.run("events --since 1m").stdout), "no events\n");
    daemon.probes.send_replace(vec![ProbeView { reason: "it broke".to_owned(), ..failing() }]);
    let piped = text(&daemon.run("probes").stdout);
    assert_eq!(
        (piped.lines().count(), piped.ends_with(" it broke\n")),
        (2, true),
        "one line for grep: {piped}"
    );
    assert_eq!(text(&daemon.run("probes --failed --type readiness").stdout), "no probes\n");
}

#[test]
fn while_the_runtime_is_away_tables_say_so_and_status_fails() {
    let mut away = status();
    away.runtime.state = RuntimeState::Away;
    away.runtime.reason = "the runtime's socket /r does not exist".to_owned();
    let daemon = Daemon::with(away);
    let banner = "RUNTIME AWAY since 2026-11-20T10:00:00Z (";
    let reason = "): the runtime's socket /r does not exist; verdicts of exec probes and states of containers are as \
                  of then\n";
    for arguments in ["probes", "probes -o wide", "pods", "describe default/web/app/liveness"] {
        let output = daemon.run(arguments);
        let shown = text(&output.stdout);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()), "{arguments}");
        assert!(shown.starts_with(banner) && shown.contains(reason), "{arguments}: {shown}");
    }
    for arguments in ["probes -o json", "pods -o yaml", "describe default/web/app/liveness -o json", "events"]
    {
        assert!(!text(&daemon.run(arguments).stdout).contains("RUNTIME AWAY"), "{arguments}");
    }
    for arguments in ["probes --check", "probes --check -o json"] {
        let output = daemon.run(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments}");
        assert!(said.starts_with(&format!("criprobe: {banner}")) && said.ends_with(&reason), "{said}");
    }
    for arguments in ["status", "status -o json"] {
        let output = daemon.run(arguments);
        let said = "criprobe: degraded: the runtime is away: the runtime's socket /r does not exist\n";
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), said.to_owned()));
        assert_eq!(text(&output.stdout).starts_with(banner), arguments == "status");
    }
}

#[test]
fn as_long_as_no_pod_was_listed_none_is_denied() {
    let mut away = status();
    away.runtime.state = RuntimeState::Away;
    away.inventory.last_resync_at = None;
    let daemon = Daemon::with(away);
    daemon.probes.send_replace(Vec::new());
    let said =
        "criprobe: the runtime's pods are not known yet: it has not been listed since criprobe started\n";
    for (arguments, code) in [
        ("probes", 1),
        ("probes --check", 1),
        ("probes shop/cart --check", 1),
        ("probes shop/cart", 2),
        ("pods shop/cart", 2),
        ("describe shop/cart", 2),
        ("trigger shop/cart", 2),
        ("pause shop/cart", 2),
        ("events shop/cart", 2),
    ] {
        let output = daemon.run(arguments);
        assert_eq!(
            (output.status.code(), text(&output.stderr)),
            (Some(code), said.to_owned()),
            "{arguments}"
        );
        let shown = text(&output.stdout);
        let is_said = shown.starts_with("RUNTIME AWAY since ") || arguments.starts_with("events");
        assert!(is_said && !shown.contains("no p"), "{arguments}: {shown}");
    }
    assert_eq!(text(&daemon.run("probes -o json").stdout), "[]\n");
}

#[test]
fn events_of_a_pod_are_those_of_the_runtime_too_and_none_says_since_when() {
    let daemon = Daemon::start();
    let none = "no events since criprobe started at ";
    assert!(text(&daemon.run("events default/web/log").stdout).starts_with(none));
    let of_runtime = |reason: &str| {
        let mut event: EventView = serde_json::from_str(EVENT).unwrap();
        event.reason = reason.to_owned();
        (event.namespace, event.pod, event.container) = Default::default();
        event
    };
    daemon.events.push(of_runtime("ConfigurationReloaded"));
    assert!(text(&daemon.run("events default/web/log").stdout).starts_with(none));
    daemon.events.push(of_runtime("RuntimeAway"));
    let shown = text(&daemon.run("events default/web/log").stdout);
    assert!(shown.contains(" RuntimeAway ") && shown.lines().count() == 1, "{shown}");
    let unknown = daemon.run("events default/wbe");
    assert_eq!(unknown.status.code(), Some(2), "{}", text(&unknown.stderr));
}

#[test]
fn what_an_operator_wants_is_done_or_refused_with_an_exit_code_that_tells_whose_fault_it_is() {
    let daemon = Daemon::start();
    let of_removed = EVENT.replace(r#""pod":"web""#, r#""pod":"removed""#);
    daemon.events.push(serde_json::from_str::<EventView>(&of_removed).unwrap());
    let done = daemon.run("pause default/web/app/liveness");
    assert_eq!((done.status.code(), text(&done.stderr)), (Some(0), String::new()));
    assert_eq!(text(&done.stdout), "default/web/app/liveness: probing, success\n");
    let json = daemon.run("pause u/app/liveness -o json");
    assert_eq!(serde_json::from_slice::<ProbeView>(&json.stdout).unwrap(), probe());
    for (arguments, code, says) in [
        (
            "trigger default/web/app/liveness",
            4,
            "default/web/app/liveness: no attempt is possible now: paused by an operator",
        ),
        (
            "resume default/wbe/app/liveness",
            2,
            "no probe default/wbe/app/liveness; did you mean default/web/app/liveness?",
        ),
        ("run default/web/app --probe liveness", 2, "no container default/web/app"),
        ("describe default/wbe/app", 2, "no container default/wbe/app; did you mean default/web/app?"),
        ("describe default/wbe", 2, "no pod default/wbe; did you mean default/web?"),
        ("describe web/app", 2, "no pod web/app; did you mean default/web/app?"),
        (
            "pods web -n default",
            2,
            "'web' is read as a namespace, and -n names one, too: write default/web for the pod",
        ),
        ("probes default/web --pod x", 2, "'default/web' and --pod both name the pod: omit --pod"),
        ("describe web", 2, "web is the name of a pod: write it with its namespace, default/web"),
        (
            "describe default",
            2,
            "default is a namespace: write NAMESPACE/POD for one of its pods, as default/web; 'criprobe pods default' lists them",
        ),
        ("describe default/other", 2, "no pod default/other; namespace default has the pod web"),
        ("pause default/other", 2, "no pod default/other; namespace default has the pod web"),
        (
            "describe default/removed",
            2,
            "no pod default/removed; namespace default has the pod web; the last events of one of this name are kept: criprobe events default/removed",
        ),
        (
            "trigger default/web",
            4,
            "default/web/app/liveness: no attempt is possible now: paused by an operator",
        ),
        (
            "run default/web/app --grpc 0",
            2,
            "grpc.port: Invalid value: 0: must be between 1 and 65535, inclusive",
        ),
    ] {
        let output = daemon.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments}");
        assert_eq!(text(&output.stderr), format!("criprobe: {says}\n"), "{arguments}");
        assert_eq!(text(&output.stdout), "");
    }
}

#[test]
fn a_check_ends_with_1_and_names_what_is_failing() {
    let daemon = Daemon::start();
    assert_eq!(daemon.run("probes --check").status.code(), Some(0));
    let nothing = daemon.run("probes --check --type readiness");
    assert_eq!(nothing.status.code(), Some(2));
    assert_eq!(text(&nothing.stderr), "criprobe: nothing was checked: no probe matches\n");
    daemon.probes.send_replace(vec![failing()]);
    let output = daemon.run("probes --check");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("criprobe: default/web/app/liveness: failure for "));
    assert_eq!(text(&output.stderr).lines().count(), 1);
    assert!(text(&output.stdout).contains("failure"));
    assert_eq!(daemon.run("probes").status.code(), Some(0), "no check was requested");
}

#[test]
fn a_filter_that_matches_nothing_known_ends_with_2_and_names_what_is_near() {
    let daemon = Daemon::start();
    for (arguments, says) in [
        ("probes --check --pod wbe", "no pod matches wbe; did you mean web?"),
        ("probes -n defautl", "no namespace matches defautl; did you mean default?"),
        ("pods --pod wbe -n default", "no pod matches wbe in namespace default; did you mean web?"),
        ("events --container ap --pod web", "no container matches ap in pod web; did you mean app?"),
        ("trace --last 5 --pod x-*", "no pod matches x-*; 'criprobe pods' lists what there is"),
    ] {
        let output = daemon.run(arguments);
        assert_eq!(text(&output.stderr), format!("criprobe: {says}\n"), "{arguments}");
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()), "{arguments}");
    }
    let machine = daemon.run("probes --pod wbe -o json");
    assert_eq!((machine.status.code(), text(&machine.stdout)), (Some(2), "[]\n".to_owned()));
    for arguments in ["events --pod web", "trace --last 5 -n default"] {
        let output = daemon.run(arguments);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()), "{arguments}");
    }
}

#[test]
fn a_wait_ends_with_1_at_its_timeout_and_says_what_is_missing() {
    let daemon = Daemon::start();
    for (arguments, code, says) in [
        (
            "wait default/wbe --for ready --timeout 300ms",
            1,
            "not ready within 300ms: no pod matches wbe in namespace default; did you mean web?",
        ),
        (
            "wait default/web/ap --for started --timeout 100ms",
            1,
            "not started within 100ms: default/web: it has no container ap; did you mean app?",
        ),
        (
            "wait web --for ready",
            2,
            "invalid value 'web' for '<NAMESPACE/POD[/CONTAINER]>': write NAMESPACE/POD or NAMESPACE/POD/CONTAINER; see \
             'criprobe wait --help'",
        ),
    ] {
        let output = daemon.run(arguments);
        assert_eq!(text(&output.stderr), format!("criprobe: {says}\n"), "{arguments}");
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(code), String::new()), "{arguments}");
    }
    let output = daemon.run("wait default/wbe --for ready --timeout 100ms -o json");
    assert_eq!(output.status.code(), Some(1));
    let state: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&state["for"], &state["reached"]), (&"ready".into(), &false.into()), "{state}");
    daemon.probes.send_replace(vec![failing()]);
    let output = daemon.run("wait default/web --for healthy --timeout 100ms");
    let says = "criprobe: not healthy within 100ms: default/web: liveness of app is failure\n";
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), says.to_owned()));
}

#[test]
fn a_stage_that_is_gone_ends_with_1() {
    let mut daemon = Daemon::start();
    let other = daemon.dir.path().join("other.sock");
    let runtime = daemon.runtime.as_mut().unwrap();
    let listener = {
        let _entered = runtime.enter();
        tokio::net::UnixListener::bind(&other).unwrap()
    };
    let sources = {
        let _entered = runtime.enter();
        sources(Stages { status: status(), probes: None, in_flight: watch::channel(None).1 }, prober())
    };
    runtime.spawn(api::serve(listener, sources, std::future::pending()));
    let output = criprobe(&other, "probes").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "criprobe: the daemon reported an error: prober is not running\n");
}
