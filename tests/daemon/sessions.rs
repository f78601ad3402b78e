//! Exec probes by sessions against exec probes by ExecSync: the same verdicts, outputs, exit codes and events, and what no
//! session can serve is decided by ExecSync, with the reason visible.

use std::{collections::BTreeSet, time::Duration};

use anyhow::Result;
use criprobe::{demo::FaultKind, ids::ContainerId, proto::cri as pb};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tonic::Code;

use crate::{
    rig::{EAGER, LIVENESS, Rig},
    support::{PATIENCE, cri::Pod, daemon::EXEC_MODES, eventually, stays},
};

/// A container that stays.
const STAYS: [&str; 3] = ["sh", "-c", "sleep 100000"];

/// A command, how the attempts after the first go in session mode, and how all end.
struct Row {
    name: &'static str,
    command: &'static [&'static str],
    way: &'static str,
    reason: Option<&'static str>,
    result: &'static str,
    exit_code: Option<i32>,
}

const fn by_session(name: &'static str, command: &'static [&'static str], exit_code: i32) -> Row {
    let result = if exit_code == 0 { "success" } else { "failure" };
    Row { name, command, way: "session", reason: None, result, exit_code: Some(exit_code) }
}

const ROWS: [Row; 12] = [
    by_session("success", &["true"], 0),
    by_session("outputs", &["sh", "-c", "echo out; echo err >&2; exit 3"], 3),
    by_session("killed", &["sh", "-c", "kill -s KILL $$$$"], 137),
    by_session("highest", &["sh", "-c", "exit 255"], 255),
    by_session("input", &["cat"], 0),
    by_session("quoting", &["printf", "%s|", "a'b", "", "$HOME `id` \\ *", "two\nlines", "\"q\""], 0),
    by_session("variables", &["sh", "-c", "env | cut -d= -f1 | sort"], 0),
    by_session("long", &["sh", "-c", "head -c 30000 /dev/zero | tr '\\0' x"], 0),
    by_session("signals", &["sh", "-c", "trap '' TERM; kill 0; exit 4"], 4),
    by_session("marker", &["sh", "-c", "echo 0123456789abcdef0123456789abcdef 0; exit 5"], 5),
    Row {
        name: "doubtful",
        command: &["sh", "-c", "exit 127"],
        way: "sync",
        reason: Some("the exit code may be the shell's own"),
        result: "failure",
        exit_code: Some(127),
    },
    Row {
        name: "missing",
        command: &["no-such-program"],
        way: "sync",
        reason: Some("first attempt"),
        result: "error",
        exit_code: None,
    },
];

/// What users see of a probe's last attempt, and of its events.
async fn seen(rig: &Rig, pod: &Pod, probe: &Value) -> Result<(Value, BTreeSet<String>)> {
    let last = &probe["last"];
    let shown = json!([last["result"], last["exitCode"], last["output"], probe["state"]]);
    let events = rig.daemon.events().await?;
    let own = events.iter().filter(|event| {
        event["pod"] == pod.config.metadata.as_ref().map(|pod| &*pod.name).unwrap_or_default()
    });
    let own = own.map(|event| format!("{} {} {}", event["type"], event["reason"], event["message"]));
    Ok((shown, own.collect()))
}

/// Waits until some attempts have gone this way, and returns the probe.
async fn settled(rig: &Rig, pod: &Pod, way: &str, reason: Option<&str>) -> Result<Value> {
    let is_so = |probe: &Value| {
        let attempts: u64 =
            probe["counts"].as_object().into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum();
        attempts >= 3 && probe["last"]["execRoute"] == way && probe["last"]["execReason"].as_str() == reason
    };
    rig.becomes(pod, "liveness", &format!("goes by {way}, {reason:?}"), is_so).await
}

#[tokio::test(flavor = "multi_thread")]
async fn verdict_output_exit_code_and_events_are_the_same_in_both_modes() -> Result<()> {
    let mut rigs = Vec::new();
    for mode in EXEC_MODES {
        rigs.push(Rig::in_mode(mode).await?);
    }
    for Row { name, command, way, reason, result, exit_code } in ROWS {
        let probe =
            json!({"exec": {"command": command}, "period": "200ms", "timeout": "20s", "failureThreshold": 1})
                .to_string();
        let mut found = Vec::new();
        for (rig, (way, reason)) in rigs.iter_mut().zip([("sync", None), (way, reason)]) {
            let (pod, _) = rig.run(name, &[(LIVENESS, &probe)], &STAYS).await?;
            let probe = settled(rig, &pod, way, reason).await?;
            assert_eq!(probe["last"]["result"], result, "{name}: {probe}");
            assert_eq!(probe["last"]["exitCode"], json!(exit_code), "{name}: {probe}");
            found.push(seen(rig, &pod, &probe).await?);
        }
        assert_eq!(found[0], found[1], "{name}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_turns_slow_is_killed_at_its_timeout_in_both_modes_and_recovers() -> Result<()> {
    let script = "[ ! -e slow ] || sleep 100";
    let probe = json!({"exec": {"command": ["sh", "-c", script]}, "period": "200ms", "timeout": "300ms", "failureThreshold": 1});
    for mode in EXEC_MODES {
        let mut rig = Rig::in_mode(mode).await?;
        let (pod, id) = rig.run("slow", &[(LIVENESS, &probe.to_string())], &STAYS).await?;
        rig.went_by(&pod, "liveness", mode).await?;
        crate::support::cri::exec(&mut rig.client, &id, &["touch", "slow"]).await?;
        let slow = rig.last(&pod, "liveness", "failure").await?;
        let said = slow["last"]["output"].as_str().unwrap_or_default();
        assert!(
            said.starts_with("command timed out: ") && said.ends_with(" timed out after 300ms"),
            "{slow}"
        );
        assert_eq!(
            (&slow["last"]["execRoute"], &slow["last"]["exitCode"]),
            (&json!(mode), &Value::Null),
            "{slow}"
        );
        crate::support::cri::exec(&mut rig.client, &id, &["rm", "slow"]).await?;
        rig.last(&pod, "liveness", "success").await?;
        rig.went_by(&pod, "liveness", mode).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_stream_serves_is_decided_by_exec_sync_and_says_why() -> Result<()> {
    let url = |url: &str| ("Exec", FaultKind::OtherUrl(url.to_owned()));
    let code = |method, code| (method, FaultKind::Code(code, "no".to_owned()));
    let elsewhere = "the runtime's streaming server is not on this node, or wants TLS";
    let refused = "the runtime's streaming server refused the stream";
    let rows = [
        ("no streams", code("Exec", Code::Unimplemented), "the runtime refused Exec"),
        ("TLS", url("https://127.0.0.1:{port}/exec/{token}"), elsewhere),
        ("another node", url("http://192.0.2.1:{port}/exec/{token}"), elsewhere),
        ("no URL", url(""), elsewhere),
        ("no server listens", url("http://127.0.0.1:1/exec/{token}"), refused),
        ("another token", url("http://127.0.0.1:{port}/exec/x"), refused),
        ("403", code("Stream", Code::PermissionDenied), refused),
        ("503", code("Stream", Code::Unavailable), refused),
        ("hangs up", ("Stream", FaultKind::DropConnection), refused),
    ];
    for (name, (method, kind), reason) in rows {
        println!("{name}");
        let mut rig = Rig::in_mode("session").await?;
        rig.always(method, kind);
        let (pod, _) = rig.run("alone", &[(LIVENESS, EAGER)], &STAYS).await?;
        let probe = settled(&rig, &pod, "sync", Some(reason)).await?;
        assert_eq!(
            (&probe["state"], &probe["counts"]["failure"]),
            (&json!("success"), &json!(0)),
            "{name}: {probe}"
        );
        assert!(rig.faults().count("Exec") < 20, "{name}: openings are spaced out");
        rig.faults().clear();
        rig.went_by(&pod, "liveness", "session").await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_come_back_after_a_restart_of_the_runtime_and_no_attempt_fails() -> Result<()> {
    let mut rig = Rig::in_mode("session").await?;
    let (pod, _) = rig.run("kept", &[(LIVENESS, EAGER)], &STAYS).await?;
    rig.went_by(&pod, "liveness", "session").await?;
    let before = rig.faults().count("Stream");
    rig.runtime.stop_serving().await;
    rig.runtime.serve_again(Duration::ZERO)?;
    eventually("another session is open", PATIENCE, async || {
        Ok((rig.faults().count("Stream") > before).then_some(()))
    })
    .await?;
    let probe = rig.went_by(&pod, "liveness", "session").await?;
    assert_eq!(probe["counts"]["failure"], 0, "{probe}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probes_own_mode_takes_precedence_unless_the_operator_has_switched_sessions_off() -> Result<()> {
    let with = |mode: &str| EAGER.replacen('{', &format!("{{\"execMode\": \"{mode}\", "), 1);
    let off = Some("switched off by prober.execMode");
    for (setting, own, way, reason) in [
        ("sync", "session", "session", None),
        ("session", "sync", "sync", None),
        ("never", "session", "sync", off),
    ] {
        let mut rig = Rig::in_mode(setting).await?;
        let (pod, _) = rig.run("own", &[(LIVENESS, &with(own))], &STAYS).await?;
        settled(&rig, &pod, way, reason).await?;
        assert_eq!(rig.faults().count("Exec") == 0, way == "sync", "{setting}: a session is opened");
    }
    Ok(())
}

/// The shells of a container's session.
fn shells(id: &ContainerId) -> Result<Vec<Pid>> {
    let own = format!("in {id}\n");
    let mut shells = Vec::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let is_one = String::from_utf8_lossy(&line).contains(&own);
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        shells.extend(pid.filter(|_| is_one));
    }
    Ok(shells)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_stands_still_past_the_timeout_fails_no_probe() -> Result<()> {
    let mut rig = Rig::in_mode("session").await?;
    let probe =
        json!({"exec": {"command": ["true"]}, "period": "100ms", "timeout": "1s", "failureThreshold": 1});
    let (pod, id) = rig.run("still", &[(LIVENESS, &probe.to_string())], &STAYS).await?;
    rig.went_by(&pod, "liveness", "session").await?;
    let shells = shells(&id)?;
    anyhow::ensure!(shells.len() == 3, "{shells:?}");
    for shell in &shells {
        kill_process(*shell, Signal::STOP)?;
    }
    // Longer than the timeout, and not as long as the shells may take to answer when it is over.
    stays("it does not fail", Duration::from_millis(1_300), async || {
        let probe = rig.daemon.probe(&pod, "app", "liveness").await?;
        Ok(probe.is_some_and(|probe| probe["counts"]["failure"] == 0))
    })
    .await?;
    for shell in &shells {
        let _ = kill_process(*shell, Signal::CONT);
    }
    let probe = rig.went_by(&pod, "liveness", "session").await?;
    assert_eq!(probe["counts"]["failure"], 0, "{probe}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_being_stopped_has_no_session_left() -> Result<()> {
    let mut rig = Rig::in_mode("session").await?;
    let waits = ["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"];
    let (pod, id) = rig.run("ends", &[(LIVENESS, EAGER)], &waits).await?;
    rig.went_by(&pod, "liveness", "session").await?;
    anyhow::ensure!(shells(&id)?.len() == 3);
    let mut client = rig.client.clone();
    let stop = pb::StopContainerRequest { container_id: id.to_string(), timeout: 600 };
    let stopping = tokio::spawn(async move { client.stop_container(stop).await });
    eventually("its shells end", PATIENCE, async || Ok(shells(&id)?.is_empty().then_some(()))).await?;
    anyhow::ensure!(!stopping.is_finished(), "the container itself goes on");
    stopping.abort();
    Ok(())
}
