//! One probe is described in full: by its names, by its key, with its container; to programs and to people.

use anyhow::Result;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use crate::{
    rig::{EAGER, LIVENESS, READINESS, Rig},
    support::{PATIENCE, cri, eventually},
};

const HEALTHY: [&str; 3] = ["sh", "-c", "echo fine >healthy; sleep 100000"];

/// Fails as soon as the file is gone; refers to a variable, which no report may expand.
const SECRET: &str = r#"{"exec": {"command": ["sh", "-c", "cat healthy; test -e healthy # $(TOKEN)"]},
 "period": "100ms", "failureThreshold": 2, "terminationGracePeriodSeconds": 7}"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_is_told_with_its_definition_its_history_and_its_events() -> Result<()> {
    let mut rig = Rig::start().await?;
    let pod = cri::run_pod(&mut rig.client, "told", &[(LIVENESS, SECRET), (READINESS, EAGER)]).await?;
    let container =
        cri::Container { command: &HEALTHY, env: &[("TOKEN", "hunter2")], ..cri::Container::IDLE };
    let id = cri::run_container(&mut rig.client, &pod, &container).await?;
    rig.last(&pod, "liveness", "success").await?;
    cri::exec(&mut rig.client, &id, &["rm", "healthy"]).await?;
    rig.becomes(&pod, "liveness", "fails", |probe| probe["state"] == "failure").await?;
    let by_key = format!("/v1/probes/{}/app/liveness", pod.uid);
    rig.daemon.post(&format!("{by_key}/pause"), "").await?;

    let detail = eventually("a paused probe does not change", PATIENCE, async || {
        let detail = rig.daemon.json("/v1/probes/default/told/app/liveness").await?;
        Ok((detail == rig.daemon.json(&by_key).await?).then_some(detail))
    })
    .await?;
    let listed = rig.daemon.probe(&pod, "app", "liveness").await?.unwrap_or_default();
    for (field, value) in listed.as_object().into_iter().flatten() {
        assert_eq!(&detail[field], value, "{field} is as in the list");
    }
    assert_eq!(
        detail["definition"],
        json!({
            "exec": {"command": ["sh", "-c", "cat healthy; test -e healthy # $(TOKEN)"]},
            "initialDelaySeconds": 0.0, "timeoutSeconds": 1.0, "periodSeconds": 0.1,
            "successThreshold": 1, "failureThreshold": 2, "terminationGracePeriodSeconds": 7.0,
            "onFailure": "report", "onFailureCommand": null, "startPeriodSeconds": null, "startIntervalSeconds": null,
        })
    );
    let history = detail["history"].as_array().cloned().unwrap_or_default();
    let counts = &detail["counts"];
    let attempts =
        counts["success"].as_u64().unwrap_or_default() + counts["failure"].as_u64().unwrap_or_default();
    assert_eq!(history.len() as u64, attempts.min(32));
    let mut last = detail["last"].clone();
    let lag = last.as_object_mut().and_then(|last| last.remove("lagSeconds"));
    assert!(lag.is_some_and(|lag| lag.as_f64() < Some(5.0)), "the last one shows how late it began");
    last["containerAttempt"] = json!(0);
    // The embedded runtime has no events; a history says so of what was slow.
    let unknown = last.as_object_mut().and_then(|last| last.remove("phasesUnknown"));
    assert_eq!(unknown, Some(json!("the runtime sends no events about commands")));
    assert_eq!(history.last(), Some(&last), "a short output is whole in the history, too");
    assert_eq!((&history[0]["exitCode"], &history[0]["execRoute"]), (&json!(0), &json!("sync")));
    let changes = detail["changes"].as_array().cloned().unwrap_or_default();
    let [.., up, down] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!([&up["to"], &up["why"]], ["success", "the container started"]);
    assert_eq!([&down["from"], &down["to"], &down["why"]], ["success", "failure", "2 failures in a row"]);
    assert_eq!(down["at"], detail["since"]);
    let events = detail["events"].as_array().into_iter().flatten();
    let events: std::collections::BTreeSet<_> = events.filter_map(|event| event["reason"].as_str()).collect();
    assert_eq!(Vec::from_iter(events), ["Paused", "Unhealthy", "VerdictChanged"]);
    assert!(!detail.to_string().contains("hunter2"), "no variable is expanded: {detail}");

    let other = rig.daemon.json("/v1/probes/default/told/app/readiness").await?;
    let events = other["events"].as_array().cloned().unwrap_or_default();
    assert!(events.iter().all(|event| event["probe"] == "readiness"), "each has its own: {events:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn people_see_it_by_the_names_the_key_and_the_container() -> Result<()> {
    let mut rig = Rig::start().await?;
    let annotations = [(LIVENESS, SECRET), (READINESS, "{exec: {}}")];
    let (pod, id) = rig.run("shown", &annotations, &HEALTHY).await?;
    rig.last(&pod, "liveness", "success").await?;

    let (uid, id) = (pod.uid.as_str(), id.as_str());
    for probe in ["default/shown/app/liveness".to_owned(), format!("{uid}/app/liveness")] {
        let (is_well, text) = rig.daemon.run(&["describe", &probe])?;
        assert!(is_well, "{text}");
        for part in [
            "probe       default/shown/app/liveness\n",
            "source      annotation\n",
            "timing      every 100ms, timeout 1s, no start delay\n",
            "on failure  report, grace period 7s\n",
            "state       success for ",
            "history     .",
            "last output, success\n  fine\n",
            "success  the container started\n",
        ] {
            assert!(text.contains(part), "{part:?} is not in:\n{text}");
        }
        let mut lines = text.lines().filter(|line| !line.starts_with("log "));
        assert!(lines.all(|line| line.chars().count() <= 100), "{text}");
    }
    for container in ["default/shown/app", &id[..12], id] {
        let (is_well, text) = rig.daemon.run(&["describe", container])?;
        assert!(is_well && text.starts_with("container   default/shown/app\n"), "{text}");
        let kinds: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("probe       ")).collect();
        assert_eq!(kinds, ["default/shown/app/readiness", "default/shown/app/liveness"]);
        assert!(text.contains("reason      exec.command: Required value\nphase       invalid\n"), "{text}");
    }
    let (_, json) = rig.daemon.run(&["describe", "default/shown/app", "-o", "json"])?;
    let probes: Vec<Value> = serde_json::from_str(&json)?;
    assert_eq!((probes.len(), &probes[1]["definition"]["failureThreshold"]), (2, &json!(2)));
    assert_eq!(probes[0]["definition"], Value::Null);

    for (wrong, reported) in [
        ("default/shown/app/startup", "no probe default/shown/app/startup"),
        ("nobody/app/liveness", "no probe nobody/app/liveness"),
        ("default/shown/other", "no container default/shown/other"),
        ("ffffffffffffffff", "no container ID begins with \"ffffffffffffffff\""),
    ] {
        let (is_well, text) = rig.daemon.run(&["describe", wrong])?;
        assert!(!is_well && text.contains(reported), "{wrong}: {text}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_pods_of_one_name_the_newer_one_is_told_and_the_key_tells_either() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (older, _) = rig.run("twice", &[(LIVENESS, EAGER)], &HEALTHY).await?;
    rig.last(&older, "liveness", "success").await?;
    let (newer, _) = rig.run("twice", &[(LIVENESS, EAGER)], &HEALTHY).await?;
    rig.last(&newer, "liveness", "success").await?;
    let reported = rig.daemon.json("/v1/probes/default/twice/app/liveness").await?;
    assert_eq!(reported["podUid"], newer.uid.as_str());
    for pod in [older, newer] {
        let reported = rig.daemon.json(&format!("/v1/probes/{}/app/liveness", pod.uid)).await?;
        assert_eq!(reported["sandboxId"], pod.id.as_str());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_of_an_http_response_is_told_and_the_history_is_bounded() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let _ = connection.read(&mut request).await;
                let answer = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy";
                let _ = connection.write_all(answer).await;
            });
        }
    });
    let mut rig = Rig::start().await?;
    let probe = format!("{{httpGet: {{port: {port}}}, period: 100ms, failureThreshold: 2}}");
    let (pod, _) = rig.run("busy", &[(READINESS, &probe)], &HEALTHY).await?;
    rig.becomes(&pod, "readiness", "was asked often", |probe| {
        probe["counts"]["failure"].as_u64().is_some_and(|count| count > 33)
    })
    .await?;
    let detail = rig.daemon.json("/v1/probes/default/busy/app/readiness").await?;
    assert_eq!((&detail["last"]["status"], &detail["last"]["exitCode"]), (&json!(503), &Value::Null));
    let history = detail["history"].as_array().cloned().unwrap_or_default();
    assert_eq!(history.len(), 32);
    assert!(history.iter().all(|attempt| attempt["status"] == 503), "{history:?}");
    let port = json!({"path": "", "port": port, "host": null, "scheme": "HTTP", "httpHeaders": []});
    assert_eq!(detail["definition"]["httpGet"]["port"], port["port"], "{detail}");
    eventually("events of a readiness below its threshold are reported, too", PATIENCE, async || {
        let events = rig.daemon.events().await?;
        Ok(events.iter().any(|event| event["reason"] == "Unhealthy").then_some(()))
    })
    .await
}
