//! What operators do to probes, and what they try on containers, over the API and by the verbs.

use std::{net::TcpListener, process::Command, time::Duration};

use anyhow::Result;
use criprobe::{demo::FaultKind, proto::cri as pb};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::JoinSet,
};

use crate::{
    rig::{EAGER, LAZY, LIVENESS, READINESS, Rig},
    support::{
        PATIENCE,
        cri::{self, Container},
        daemon::ask,
        eventually, stays,
    },
};

/// Passes while the file `healthy` is there; fails at once when it is not.
const WATCH_FILE: &str =
    r#"{"exec": {"command": ["test", "-e", "healthy"]}, "period": "100ms", "failureThreshold": 1}"#;
const HEALTHY: [&str; 3] = ["sh", "-c", "touch healthy; sleep 100000"];

/// Has a command done with the liveness probe of a pod of namespace `default`.
async fn act(rig: &Rig, pod: &str, command: &str) -> Result<(StatusCode, Value)> {
    let path = format!("/v1/probes/default/{pod}/app/liveness/{command}");
    let (status, body) = rig.daemon.post(&path, "").await?;
    Ok((status, serde_json::from_str(&body)?))
}

/// Tries something.
async fn run(rig: &Rig, request: Value) -> Result<(StatusCode, Value)> {
    let (status, body) = rig.daemon.post("/v1/run", &request.to_string()).await?;
    Ok((status, serde_json::from_str(&body)?))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_stops_the_attempts_and_keeps_the_verdict_until_it_is_resumed() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, id) = rig.run("paused", &[(LIVENESS, WATCH_FILE)], &HEALTHY).await?;
    rig.last(&pod, "liveness", "success").await?;

    let (status, paused) = act(&rig, "paused", "pause").await?;
    assert_eq!(
        (status, &paused["phase"], &paused["state"]),
        (StatusCode::OK, &json!("paused"), &json!("success"))
    );
    let reason = paused["reason"].as_str().unwrap_or_default();
    assert!(reason.starts_with("paused by an operator since ") && paused["nextAt"].is_null(), "{paused}");
    let (status, again) = act(&rig, "paused", "pause").await?;
    assert_eq!((status, &again["reason"]), (StatusCode::OK, &paused["reason"]), "twice is once");
    let (status, refused) = act(&rig, "paused", "trigger").await?;
    assert_eq!(status, StatusCode::CONFLICT);
    assert_eq!(
        refused["error"],
        format!("default/paused/app/liveness: no attempt is possible now: {reason}")
    );

    cri::exec(&mut rig.client, &id, &["rm", "healthy"]).await?;
    let before = paused["counts"]["success"].as_u64().unwrap_or_default();
    stays("no attempt is made but the one in flight", Duration::from_secs(1), async || {
        let now = rig.daemon.probe(&pod, "app", "liveness").await?.unwrap_or_default();
        let attempts = now["counts"]["success"].as_u64().unwrap_or_default()
            + now["counts"]["failure"].as_u64().unwrap_or_default();
        Ok(now["phase"] == "paused" && now["state"] == "success" && attempts <= before + 1)
    })
    .await?;
    assert_eq!(rig.daemon.status().await?["probes"]["phases"], json!({"paused": 1}));

    let (status, resumed) = act(&rig, "paused", "resume").await?;
    assert_eq!((status, &resumed["state"]), (StatusCode::OK, &json!("success")));
    rig.becomes(&pod, "liveness", "fails", |probe| probe["state"] == "failure").await?;
    assert_eq!(act(&rig, "paused", "resume").await?.0, StatusCode::OK, "nothing to resume is no error");
    Ok(())
}

/// What a verb ends with, and prints.
async fn verb(rig: &Rig, line: &str) -> Result<(Option<i32>, String, String)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_criprobe"));
    command.args(line.split(' ')).env("CRIPROBE_API", rig.daemon.api());
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    Ok((output.status.code(), String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_makes_the_next_attempt_at_once_by_id_and_by_key() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, _) = rig.run("triggered", &[(LIVENESS, LAZY)], &HEALTHY).await?;
    rig.last(&pod, "liveness", "success").await?;
    let path = "/v1/probes/default/triggered/app/liveness/trigger".to_owned();
    assert_eq!(rig.daemon.post(&path, "").await?.0, StatusCode::OK);
    rig.becomes(&pod, "liveness", "is tried again", |probe| probe["counts"]["success"] == 2).await?;
    let path = format!("/v1/probes/{}/app/liveness/trigger?wait=true", pod.uid);
    for successes in 3..6 {
        let (status, body) = rig.daemon.post(&path, "").await?;
        let triggered: Value = serde_json::from_str(&body)?;
        assert_eq!(
            (status, &triggered["triggered"]["result"]),
            (StatusCode::OK, &json!("success")),
            "{body}"
        );
        assert_eq!(triggered["counts"]["success"], successes, "the next one, and the probe after it");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_done_is_refused_with_the_reason_and_the_nearest_name() -> Result<()> {
    let mut rig = Rig::start().await?;
    let invalid = r#"{"exec": {"command": []}, "periodSeconds": -1}"#;
    let (pod, _) = rig.run("refused", &[(LIVENESS, invalid)], &HEALTHY).await?;
    rig.becomes(&pod, "liveness", "is invalid", |probe| probe["phase"] == "invalid").await?;
    for command in ["pause", "resume", "trigger"] {
        let (status, refused) = act(&rig, "refused", command).await?;
        let reported = "default/refused/app/liveness: the probe is invalid: exec.command: Required value; periodSeconds: \
                    Invalid value: -1: must be greater than or equal to 0";
        assert_eq!((status, &refused["error"]), (StatusCode::CONFLICT, &json!(reported)));
        let (status, unknown) = act(&rig, "refsued", command).await?;
        let reported = "no probe default/refsued/app/liveness; did you mean default/refused/app/liveness?";
        assert_eq!((status, &unknown["error"]), (StatusCode::NOT_FOUND, &json!(reported)));
    }
    let (status, refused) =
        run(&rig, json!({"container": "default/refused/app", "probe": "liveness"})).await?;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(refused["error"].as_str().is_some_and(|text| text.contains("exec.command: Required value")));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_form_of_a_run_is_judged_as_a_probe_is_and_leaves_no_trace() -> Result<()> {
    let mut rig = Rig::start().await?;
    let annotations = [(LIVENESS, LAZY), (READINESS, r#"{"tcpSocket": {"port": 1}, "periodSeconds": 300}"#)];
    let (pod, id) = rig.run("tried", &annotations, &HEALTHY).await?;
    rig.last(&pod, "liveness", "success").await?;
    rig.last(&pod, "readiness", "failure").await?;
    let before = rig.daemon.probes().await?;
    let events = rig.daemon.events().await?;

    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    let server = tokio::spawn(serve(tokio::net::TcpListener::from_std(listener)?));
    let by_id = &id.as_str()[..id.as_str().len() - 1];
    for (request, result, tells) in [
        (json!({"probe": "liveness"}), "success", json!({"handler": "exec", "exitCode": 0, "tries": 1})),
        (json!({"probe": "readiness"}), "failure", json!({"handler": "tcpSocket"})),
        (json!({"probe": "liveness", "execMode": "session"}), "success", json!({"exitCode": 0, "tries": 1})),
        (
            json!({"exec": {"command": ["sh", "-c", "exit 7"]}, "execMode": "session"}),
            "failure",
            json!({"exitCode": 7}),
        ),
        (
            json!({"exec": {"command": ["sh", "-c", "echo out; echo err >&2; exit 7"]}}),
            "failure",
            json!({"exitCode": 7, "output": "out\nerr\n"}),
        ),
        (
            json!({"exec": {"command": ["sleep", "100"]}, "timeoutSeconds": 1}),
            "failure",
            json!({"output": "command timed out: \"sleep 100\" timed out after 1s"}),
        ),
        (json!({"exec": {"command": ["no such command"]}}), "error", json!({"tries": 3, "handler": "exec"})),
        (
            json!({"httpGet": {"port": port, "path": "/fine?x"}}),
            "success",
            json!({"status": 200, "output": "GET /fine?x", "handler": "httpGet"}),
        ),
        (
            json!({"httpGet": {"port": port, "path": "/bad"}}),
            "failure",
            json!({"status": 503, "output": "HTTP probe failed with statuscode: 503"}),
        ),
        (json!({"httpGet": {"port": port, "path": "/else"}}), "warning", json!({"status": 304})),
        (json!({"tcpSocket": {"port": port}}), "success", json!({"handler": "tcpSocket"})),
        (json!({"tcpSocket": {"port": "http"}}), "error", json!({"tries": 3})),
        (json!({"grpc": {"port": 1}, "timeout": "300ms"}), "failure", json!({"handler": "grpc"})),
    ] {
        for container in ["default/tried/app", by_id] {
            let mut request = request.clone();
            request["container"] = json!(container);
            let (status, ran) = run(&rig, request.clone()).await?;
            assert_eq!((status, &ran["result"]), (StatusCode::OK, &json!(result)), "{request}: {ran}");
            for (key, value) in tells.as_object().into_iter().flatten() {
                assert_eq!(&ran[key], value, "{request}: {ran}");
            }
            assert_eq!(ran["container"]["containerId"], id.as_str());
            assert_eq!(
                [&ran["container"]["id"], &ran["container"]["podUid"]],
                ["default/tried/app", pod.uid.as_str()]
            );
            assert!(ran["durationSeconds"].as_f64().is_some());
        }
    }
    let no_command = json!({"container": by_id, "probe": "readiness", "execMode": "sync"});
    let (status, refused) = run(&rig, no_command).await?;
    let reason = "execMode: Forbidden: may not be set for tcpSocket probes: they run no command";
    assert_eq!((status, &refused["error"]), (StatusCode::BAD_REQUEST, &json!(reason)));
    assert_eq!(rig.daemon.probes().await?, before, "no counts, no verdict, no last attempt");
    assert_eq!(rig.daemon.events().await?, events);
    server.abort();
    Ok(())
}

/// Answers by the path: `/fine` with its request line, `/bad` with 503, all else with 304.
async fn serve(listener: tokio::net::TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut head = vec![0; 4096];
        let length = stream.read(&mut head).await.unwrap_or_default();
        let head = String::from_utf8_lossy(&head[..length]).into_owned();
        let line = head.split(" HTTP/").next().unwrap_or_default();
        let (code, body) = match line {
            line if line.contains("/fine") => ("200 OK", line),
            line if line.contains("/bad") => ("503 Service Unavailable", "down"),
            _ => ("304 Not Modified", ""),
        };
        let length = body.len();
        let answer =
            format!("HTTP/1.1 {code}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
        let _ = stream.write_all(answer.as_bytes()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_without_a_container_that_runs_or_a_valid_definition_says_so() -> Result<()> {
    let mut rig = Rig::start().await?;
    rig.run("stays", &[(LIVENESS, LAZY)], &HEALTHY).await?;
    let (_, ended) = rig.run("ended", &[], &["sh", "-c", "exit 3"]).await?;
    let created = cri::run_pod(&mut rig.client, "created", &[]).await?;
    rig.client.create_container(cri::creation(&created, &Container::IDLE)).await?;
    rig.counts(3, PATIENCE).await?;
    eventually("the end is known", PATIENCE, async || {
        let (status, reported) =
            run(&rig, json!({"container": ended.as_str(), "tcpSocket": {"port": 1}})).await?;
        let why = "no attempt on default/ended/app is possible: the container exited with code 3";
        Ok((status == StatusCode::CONFLICT && reported["error"] == why).then_some(()))
    })
    .await?;
    for (request, status, reported) in [
        (
            json!({"container": "default/created/app", "exec": {"command": ["true"]}}),
            StatusCode::CONFLICT,
            "no attempt on default/created/app is possible: the container has not been started",
        ),
        (
            json!({"container": "default/satys/app", "exec": {"command": ["true"]}}),
            StatusCode::NOT_FOUND,
            "no container default/satys/app; did you mean default/stays/app?",
        ),
        (
            json!({"container": "default/stays/app", "probe": "startup"}),
            StatusCode::NOT_FOUND,
            "no probe default/stays/app/startup: the container has liveness",
        ),
        (
            json!({"container": "default/stays/app", "httpGet": {"port": 0, "scheme": "FTP"}, "timeoutSeconds": -1}),
            StatusCode::BAD_REQUEST,
            "httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive; httpGet.scheme: Unsupported \
             value: \"FTP\": supported values: \"HTTP\", \"HTTPS\"; timeoutSeconds: Invalid value: -1: must be greater \
             than or equal to 0",
        ),
        (
            json!({"container": "default/stays/app", "httpGet": {"port": 80, "host": "10.0.0.1"}}),
            StatusCode::BAD_REQUEST,
            "httpGet.host: Forbidden: a host other than the pod must be allowed by the operator (prober.allowHosts)",
        ),
    ] {
        let (found, answer) = run(&rig, request.clone()).await?;
        assert_eq!((found, &answer["error"]), (status, &json!(reported)), "{request}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_have_places_of_their_own_and_who_leaves_gives_his_back() -> Result<()> {
    let settings = [("CRIPROBE_PROBER_WORKERS", "1"), ("CRIPROBE_PROBER_EXEC_WORKERS", "1")];
    let mut rig = Rig::with(&settings).await?;
    let (pod, _) = rig.run("busy", &[(LIVENESS, EAGER)], &HEALTHY).await?;
    rig.last(&pod, "liveness", "success").await?;
    let long = json!({"container": "default/busy/app", "exec": {"command": ["sleep", "1000"]}, "timeoutSeconds": 60});
    let mut clients = JoinSet::new();
    for _ in 0..4 {
        let (api, long) = (rig.daemon.api(), long.to_string());
        // The question below may take a place for a moment: without one, ask again.
        clients.spawn(async move {
            while matches!(
                ask(&api, Method::POST, "/v1/run", &long).await,
                Ok((StatusCode::TOO_MANY_REQUESTS, _))
            ) {}
        });
    }
    let quick = json!({"container": "default/busy/app", "tcpSocket": {"port": 1}});
    let becomes = async |wanted: StatusCode| {
        eventually(&format!("a run is answered {wanted}"), PATIENCE, async || {
            Ok((run(&rig, quick.clone()).await?.0 == wanted).then_some(()))
        })
        .await
    };
    becomes(StatusCode::TOO_MANY_REQUESTS).await?;
    let probe = rig.daemon.probe(&pod, "app", "liveness").await?.unwrap_or_default();
    let more = probe["counts"]["success"].as_u64().unwrap_or_default() + 3;
    rig.becomes(&pod, "liveness", "goes on meanwhile", |probe| {
        probe["counts"]["success"].as_u64().is_some_and(|count| count >= more)
    })
    .await?;
    clients.shutdown().await;
    becomes(StatusCode::OK).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_does_not_wait_for_a_run() -> Result<()> {
    let mut rig = Rig::start().await?;
    rig.run("drained", &[], &HEALTHY).await?;
    // The relay answers a start before the inventory has learnt of it.
    eventually("the container runs", PATIENCE, async || {
        let pods = rig.daemon.json("/v1/pods?pod=drained").await?;
        Ok((pods[0]["containers"][0]["state"] == "running").then_some(()))
    })
    .await?;
    rig.always("ExecSync", FaultKind::Hang);
    let request =
        json!({"container": "default/drained/app", "exec": {"command": ["true"]}, "timeoutSeconds": 60});
    let api = rig.daemon.api();
    let asked = tokio::spawn(async move { ask(&api, Method::POST, "/v1/run", &request.to_string()).await });
    eventually("the runtime is asked", PATIENCE, async || {
        Ok((rig.faults().count("ExecSync") > 0).then_some(()))
    })
    .await?;
    rig.daemon.terminate();
    assert!(rig.daemon.ended().await?.success());
    assert!(!asked.await?.is_ok_and(|(status, _)| status == StatusCode::OK), "it was given up");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_verbs_print_a_line_and_end_with_the_code_of_what_they_found() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, _) = rig.run("verbs", &[(LIVENESS, LAZY)], &HEALTHY).await?;
    rig.last(&pod, "liveness", "success").await?;
    for (line, code, stdout, stderr) in [
        ("run default/verbs/app --probe liveness", 0, "success in ", ""),
        ("run default/verbs/app --exec -- sh -c false", 1, "failure in ", ""),
        ("run default/verbs/app --exec -- sh -c false -o json", 1, "failure in ", ""),
        ("run default/verbs/app --tcp 1 -o json", 1, "{\n  \"result\": \"failure\",\n", ""),
        ("run default/verbs/app --tcp http", 4, "error in ", ""),
        (
            "run default/vrebs/app --tcp 1",
            2,
            "",
            "criprobe: no container default/vrebs/app; did you mean default/verbs/app?\n",
        ),
        (
            "pause default/verbs/app/liveness",
            0,
            "default/verbs/app/liveness: paused, success (paused by an operator since ",
            "",
        ),
        ("resume default/verbs/app/liveness", 0, "default/verbs/app/liveness: probing, success\n", ""),
        ("trigger default/verbs/app/liveness", 0, "default/verbs/app/liveness: success in ", ""),
    ] {
        let (ended, out, err) = verb(&rig, line).await?;
        assert_eq!((ended, err.as_str()), (Some(code), stderr), "{line}: {out}");
        assert!(out.starts_with(stdout), "{line}: {out}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_of_a_pod_with_a_time_and_a_reason_is_shown_survives_a_restart_and_ends() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, _) = rig.run("upgrade", &[(LIVENESS, EAGER), (READINESS, EAGER)], &HEALTHY).await?;
    rig.last(&pod, "liveness", "success").await?;
    rig.last(&pod, "readiness", "success").await?;
    let (code, out, err) = verb(&rig, "pause default/upgrade --for 6s --reason kernel").await?;
    assert_eq!((code, out.lines().count(), err.as_str()), (Some(0), 2, ""), "{out}");
    let (_, pods, _) = verb(&rig, "pods").await?;
    assert!(pods.contains("liveness paused until ") && pods.contains("Z by an operator: kernel"), "{pods}");
    let before = rig.daemon.probe(&pod, "app", "liveness").await?.unwrap_or_default();
    assert_eq!((&before["phase"], &before["pause"]["reason"]), (&json!("paused"), &json!("kernel")));
    rig.restart(rustix::process::Signal::TERM, async |_| Ok(())).await?;
    let after = rig.becomes(&pod, "liveness", "is there", |probe| !probe["pause"].is_null()).await?;
    assert_eq!(after["pause"], before["pause"]);
    for kind in ["liveness", "readiness"] {
        rig.becomes(&pod, kind, "goes on", |probe| probe["phase"] == "probing").await?;
    }
    let events = rig.daemon.events().await?;
    let is_over =
        |event: &&Value| event["reason"] == "Resumed" && event["message"].to_string().contains("is over");
    assert_eq!(events.iter().filter(is_over).count(), 2, "{events:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_fails_for_a_container_that_died_and_not_for_one_that_a_client_stopped() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, id) = rig.run("stopped", &[(LIVENESS, LAZY)], &HEALTHY).await?;
    rig.last(&pod, "liveness", "success").await?;
    assert_eq!(verb(&rig, "probes --check").await?.0, Some(0));
    rig.client.stop_container(pb::StopContainerRequest { container_id: id.to_string(), timeout: 0 }).await?;
    rig.becomes(&pod, "liveness", "falls", |probe| probe["state"] == "failure").await?;
    assert_eq!(verb(&rig, "probes --check").await?.0, Some(0), "on purpose");
    let (dead, _) = rig.run("dead", &[(LIVENESS, LAZY)], &["sh", "-c", "sleep 0.2; exit 3"]).await?;
    let has_died = |probe: &Value| probe["reason"].to_string().contains("exited");
    rig.becomes(&dead, "liveness", "falls", has_died).await?;
    let (code, _, err) = verb(&rig, "probes --check").await?;
    assert_eq!((code, err.lines().count()), (Some(1), 1), "{err}");
    assert!(
        err.starts_with("criprobe: default/dead/app/liveness: failure for ") && err.contains("exited"),
        "{err}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_sees_a_pod_come_go_and_come_again_and_outlives_the_daemon() -> Result<()> {
    let mut rig = Rig::start().await?;
    let wait = |line: &'static str, rig: &Rig| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_criprobe"));
        command.args(line.split(' ')).env("CRIPROBE_API", rig.daemon.api());
        tokio::task::spawn_blocking(move || command.output())
    };
    let line = "wait default/later --for healthy --timeout 60s";
    let waits = wait(line, &rig);
    let failing = r#"{"exec": {"command": ["false"]}, "period": "100ms"}"#;
    let (pod, _) = rig.run("later", &[(READINESS, failing)], &HEALTHY).await?;
    rig.last(&pod, "readiness", "failure").await?;
    rig.restart(rustix::process::Signal::TERM, async |_| Ok(())).await?;
    rig.last(&pod, "readiness", "failure").await?;
    stays("it is waited for", Duration::from_millis(600), async || Ok(!waits.is_finished())).await?;
    let pod_sandbox_id = pod.id.to_string();
    rig.client.stop_pod_sandbox(pb::StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() }).await?;
    rig.client.remove_pod_sandbox(pb::RemovePodSandboxRequest { pod_sandbox_id }).await?;
    eventually("it is gone", PATIENCE, async || Ok(rig.daemon.probes().await?.is_empty().then_some(())))
        .await?;
    stays("it is waited for again", Duration::from_millis(600), async || Ok(!waits.is_finished())).await?;
    rig.run("later", &[(READINESS, EAGER)], &HEALTHY).await?;
    let output = waits.await??;
    let (out, err) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    assert_eq!((output.status.code(), out.as_str()), (Some(0), "default/later: healthy\n"), "{err}");
    assert_eq!(err, "criprobe: default/later went away: waiting until it is there again\n");
    Ok(())
}
