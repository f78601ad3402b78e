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
        ("probes -n other", "no probes"),
        ("-o json probes -n other", "[]"),
        (
            "trace --last 5",
            "10:00:00.000Z OK               ExecSync           27ms kubelet[812] default/web/app cat",
        ),
        ("trace --last 5 -o yaml", "---\nat: "),
        (
            "events",
            "10:00:00.000Z Warning Unhealthy      default/web/app/liveness\n  └ Liveness probe failed: gone\n",
        ),
        ("events -o json", r#"{"at":"2026-11-20T10:00:00.000Z","type":"Warning","reason":"Unhealthy","#),
        ("version", "daemon   0.1.0, pid 7"),
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
    assert_eq!(text(&daemon.run("trace --last 1 --failed").stdout), "");
}

#[test]
fn what_an_operator_wants_is_done_or_refused_with_an_exit_code_that_tells_whose_fault_it_is() {
    let daemon = Daemon::start();
    let done = daemon.run("pause default/web/app/liveness");
    assert_eq!((done.status.code(), text(&done.stderr)), (Some(0), String::new()));
    assert_eq!(text(&done.stdout), "default/web/app/liveness: probing, success\n");
    let json = daemon.run("pause u/app/liveness -o json");
    assert_eq!(serde_json::from_slice::<ProbeView>(&json.stdout).unwrap(), probe());
    for (arguments, code, says) in [
        (
            "trigger default/web/app/liveness",
            1,
            "default/web/app/liveness: no attempt is possible now: paused by an operator",
        ),
        (
            "resume default/wbe/app/liveness",
            2,
            "no probe default/wbe/app/liveness; did you mean default/web/app/liveness?",
        ),
        ("run default/web/app --probe liveness", 2, "no container default/web/app"),
        ("describe default/wbe/app", 2, "no container default/wbe/app; did you mean default/web/app?"),
        ("describe web", 2, "no container ID begins with \"web\"; did you mean default/web/app?"),
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
    let nothing = daemon.run("probes --check --pod wbe");
    assert_eq!(nothing.status.code(), Some(0));
    assert_eq!(text(&nothing.stderr), "criprobe: nothing was checked: no probe matches\n");
    daemon.probes.send_replace(vec![failing()]);
    let output = daemon.run("probes --check");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "criprobe: 1 probe is failing: default/web/app/liveness\n");
    assert!(text(&output.stdout).contains("failure"));
    assert_eq!(daemon.run("probes --check --type readiness").status.code(), Some(0));
    assert_eq!(daemon.run("probes").status.code(), Some(0), "no check was requested");
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
        sources(Stages { status: status(), probes: None }, prober())
    };
    runtime.spawn(api::serve(listener, sources, std::future::pending()));
    let output = criprobe(&other, "probes").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "criprobe: the daemon reported an error: prober is not running\n");
}
