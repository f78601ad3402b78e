//! What a container died of shows in pods, descriptions and events, however it died.

use anyhow::Result;
use criprobe::{
    demo::{EnvValues, FaultKind},
    ids::ContainerId,
    proto::cri as pb,
};
use serde_json::{Value, json};

use crate::{
    rig::{LIVENESS, READINESS, Rig, UNTIL_GO, run, runtime},
    support::{
        PATIENCE,
        cri::{self, Container, Pod},
        eventually,
    },
};

/// The container `app` of a pod, once it is as wanted.
async fn becomes(rig: &Rig, pod: &Pod, what: &str, is_wanted: impl Fn(&Value) -> bool) -> Result<Value> {
    eventually(what, PATIENCE, async || {
        let pods = rig.daemon.json("/v1/pods").await?;
        let found = pods.as_array().into_iter().flatten().find(|known| known["podUid"] == pod.uid.as_str());
        Ok(found.map(|pod| pod["containers"][0].clone()).filter(|app| is_wanted(app)))
    })
    .await
}

fn has_ended(app: &Value) -> bool {
    app["state"] == "exited" && !app["finishedAt"].is_null()
}

/// The events of a pod that are about no probe: type, reason and message, without how long it ran.
async fn events(rig: &Rig, pod: &Pod) -> Result<Vec<String>> {
    let all = rig.daemon.events().await?;
    let of_pod = all.iter().filter(|event| event["podUid"] == pod.uid.as_str() && event["probe"] == "");
    let line = |event: &Value| {
        let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
        let message = text("message").replace(" after less than 1s", "").replace(" after 1s", "");
        format!("{} {}: {message}", text("type"), text("reason"))
    };
    Ok(of_pod.map(line).collect())
}

/// Starts another container of the name.
async fn restart(rig: &mut Rig, pod: &Pod, attempt: u32, command: &[&str]) -> Result<ContainerId> {
    let mut next = cri::creation(pod, &Container { command, ..Container::IDLE });
    if let Some(metadata) = next.config.as_mut().and_then(|config| config.metadata.as_mut()) {
        metadata.attempt = attempt;
    }
    let container_id = rig.client.create_container(next).await?.into_inner().container_id;
    rig.client.start_container(pb::StartContainerRequest { container_id: container_id.clone() }).await?;
    Ok(container_id.into())
}

async fn remove(rig: &mut Rig, id: &ContainerId) -> Result<()> {
    rig.client.remove_container(pb::RemoveContainerRequest { container_id: id.to_string() }).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_loop_shows_how_each_container_ended() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, first) = rig.run("looping", &[], &["sh", "-c", "exit 3"]).await?;
    let app = becomes(&rig, &pod, "the first has ended", has_ended).await?;
    assert_eq!((&app["exitCode"], &app["exitReason"]), (&json!(3), &json!("Error")), "{app}");
    assert!(app["logPath"].as_str().is_some_and(|path| path.ends_with("/log")), "{app}");
    assert_eq!(app.get("exits"), None, "{app}");
    let second = restart(&mut rig, &pod, 1, &["sh", "-c", "exit 0"]).await?;
    remove(&mut rig, &first).await?;
    becomes(&rig, &pod, "the second has ended", |app| has_ended(app) && app["restarts"] == 1).await?;
    remove(&mut rig, &second).await?;
    let third = restart(&mut rig, &pod, 2, &["sleep", "100000"]).await?;
    let app = becomes(&rig, &pod, "the third runs", |app| app["state"] == "running").await?;
    let ended: Vec<_> = app["exits"].as_array().into_iter().flatten().collect();
    let brief =
        |exit: &Value| (exit["attempt"].clone(), exit["containerId"].clone(), exit["exitCode"].clone());
    assert_eq!(
        ended.iter().map(|exit| brief(exit)).collect::<Vec<_>>(),
        [(json!(0), json!(first.as_str()), json!(3)), (json!(1), json!(second.as_str()), json!(0))],
        "{app}"
    );
    let id = |id: &ContainerId| id.as_str()[..13].to_owned();
    assert_eq!(
        events(&rig, &pod).await?,
        [
            "Normal Started: Container app started".to_owned(),
            "Warning Exited: Container app exited with code 3".to_owned(),
            format!(
                "Normal Replaced: Container app was replaced by a new one, attempt 1, ID {}",
                id(&second)
            ),
            "Normal Started: Container app started, attempt 1".to_owned(),
            "Normal Exited: Container app exited with code 0".to_owned(),
            format!("Normal Replaced: Container app was replaced by a new one, attempt 2, ID {}", id(&third)),
            "Normal Started: Container app started, attempt 2".to_owned(),
        ]
    );
    let (is_well, text) = rig.daemon.run(&["describe", "default/looping/app"])?;
    assert!(
        is_well && text.contains("last exit   exit code 0, ") && text.contains("earlier exits\n"),
        "{text}"
    );
    let events = text.split_once("\nevents\n").map_or("", |(_, events)| events);
    assert!(events.contains(" Started ") && events.contains("exited with code 3"), "{text}");
    let (_, text) = rig.daemon.run(&["describe", "default/looping"])?;
    let exits = text.split_once("\nearlier exits\n").map_or("", |(_, exits)| exits);
    let exits: Vec<_> = exits.lines().skip(1).take_while(|line| !line.is_empty()).collect();
    assert!(exits.len() == 2 && exits[0].contains("  0        3 "), "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_oom_kill_is_named() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, id) =
        rig.run("greedy", &[], &["sh", "-c", "until [ -e go ]; do sleep 0.02; done; kill -9 $$"]).await?;
    becomes(&rig, &pod, "it runs", |app| app["state"] == "running").await?;
    rig.always("ContainerStatus", FaultKind::OutOfMemory);
    // The container may end before this is answered.
    let _ = cri::exec(&mut rig.past, &id, &["touch", "go"]).await;
    let app = becomes(&rig, &pod, "it has ended", has_ended).await?;
    assert_eq!((&app["exitCode"], &app["exitReason"]), (&json!(137), &json!("OOMKilled")), "{app}");
    let reported = events(&rig, &pod).await?;
    assert_eq!(
        reported[1..],
        ["Warning OOMKilled: Container app was OOM-killed, exit code 137"],
        "{reported:?}"
    );
    let (_, text) = rig.daemon.run(&["pods", "default/greedy"])?;
    assert!(text.contains("exited 137 OOMKilled"), "{text}");
    assert!(text.contains(" app: exited with code 137 (OOMKilled) "), "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_s_own_stop_is_no_warning() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, id) = rig.run("stopped", &[], &["sleep", "100000"]).await?;
    becomes(&rig, &pod, "it runs", |app| app["state"] == "running").await?;
    rig.client.stop_container(pb::StopContainerRequest { container_id: id.to_string(), timeout: 5 }).await?;
    becomes(&rig, &pod, "it has ended", has_ended).await?;
    let reported = events(&rig, &pod).await?;
    assert_eq!(
        reported[1..],
        ["Normal Exited: Container app exited with code 143: a client stopped it"],
        "{reported:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_had_ended_before_criprobe_started_is_shown_and_no_event() -> Result<()> {
    let (runtime, dir) = runtime(EnvValues::default())?;
    let mut past = cri::connect(runtime.socket()).await?;
    let (pod, id) = run(&mut past, "former", &[], &["sh", "-c", "exit 4"]).await?;
    eventually("it has ended", PATIENCE, async || {
        let (state, _) = cri::container_state(&mut past, &id).await?;
        Ok((state == pb::ContainerState::ContainerExited).then_some(()))
    })
    .await?;
    let mut rig = Rig::before(runtime, dir, &[]).await?;
    let app = becomes(&rig, &pod, "its end is known", has_ended).await?;
    assert_eq!(app["exitCode"], 4);
    assert_eq!(events(&rig, &pod).await?, [""; 0]);
    let all = rig.daemon.events().await?;
    let begins = |event: &Value| event["reason"] == "CriprobeStarted" && event["podUid"] == "";
    assert!(begins(&all[0]) && all.iter().filter(|event| begins(event)).count() == 1, "{all:?}");
    let message = all[0]["message"].as_str().unwrap_or_default();
    assert!(message.ends_with(" started; earlier events are not kept"), "{message}");
    let older = rig.daemon.json("/v1/pods/default/former").await?;
    assert!(begins(&older["events"][0]), "its events from before are missing: {older}");
    let (_, shown) = rig.daemon.run(&["describe", "default/former"])?;
    assert!(shown.contains("CriprobeStarted"), "{shown}");
    rig.run("younger", &[], &["sleep", "100000"]).await?;
    let younger = rig.daemon.json("/v1/pods/default/younger").await?;
    assert!(!younger["events"].as_array().into_iter().flatten().any(begins), "nothing is missing: {younger}");
    restart(&mut rig, &pod, 1, &["sleep", "100000"]).await?;
    let app = becomes(&rig, &pod, "another one runs", |app| app["state"] == "running").await?;
    assert_eq!(app["exits"][0]["exitCode"], 4, "{app}");
    let reported = events(&rig, &pod).await?;
    assert_eq!(reported.len(), 2, "{reported:?}");
    Ok(())
}

/// Succeeds at once, and needs three successes.
const THREE: &str = r#"{"exec": {"command": ["true"]}, "period": "100ms", "successThreshold": 3}"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_run_and_a_history_show_which_container_they_are_of() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, first) = rig.run("counted", &[(READINESS, THREE)], &UNTIL_GO).await?;
    rig.becomes(&pod, "readiness", "has a long run", |probe| {
        probe["run"]["count"].as_u64().is_some_and(|count| count >= 6)
    })
    .await?;
    // The container may end before this is answered.
    let _ = cri::exec(&mut rig.past, &first, &["touch", "go"]).await;
    becomes(&rig, &pod, "it has ended", has_ended).await?;
    let second = restart(&mut rig, &pod, 1, &["sleep", "100000"]).await?;
    let probe = rig
        .becomes(&pod, "readiness", "goes on at the next container", |probe| {
            probe["containerId"] == second.as_str() && probe["state"] == "success"
        })
        .await?;
    let (run, count) = (probe["run"]["count"].as_u64(), probe["counts"]["success"].as_u64());
    assert_eq!(run, count, "the run shown is of this container: {probe}");
    let detail = rig.daemon.json(&format!("/v1/probes/{}/app/readiness", pod.uid)).await?;
    let history = detail["history"].as_array().cloned().unwrap_or_default();
    let firsts: Vec<_> = history.iter().filter(|attempt| attempt["firstOfContainer"] == true).collect();
    assert_eq!(firsts.len(), 2, "{history:?}");
    assert_eq!((&firsts[0]["containerAttempt"], &firsts[1]["containerAttempt"]), (&json!(0), &json!(1)));
    let changes = detail["changes"].as_array().cloned().unwrap_or_default();
    let last = changes.last().and_then(|change| change["why"].as_str()).unwrap_or_default();
    // An attempt may have failed while the first container ended; then successes are counted from there.
    let has_failed = history.iter().any(|attempt| attempt["result"] != "success");
    let is_continued = last.starts_with("1 success, after ") && last.ends_with(" at earlier containers");
    assert!(is_continued || has_failed, "{changes:?}");
    let (_, text) = rig.daemon.run(&["describe", "default/counted/app/readiness"])?;
    assert!(text.contains("last exit   exit code 3, ") && text.contains(".|."), "{text}");
    assert!(text.contains("-- a new container, attempt 1 --"), "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_described_with_all_that_is_known_of_it() -> Result<()> {
    let mut rig = Rig::start().await?;
    let readiness = r#"{"exec": {"command": ["sh", "-c", "echo no database; exit 1"]}, "period": "100ms"}"#;
    let annotations = [(READINESS, readiness), (LIVENESS, "{exec: {}}")];
    let (pod, _) = rig.run("shown-pod", &annotations, &["sleep", "100000"]).await?;
    rig.last(&pod, "readiness", "failure").await?;
    let detail = eventually("its failure is an event", PATIENCE, async || {
        let detail = rig.daemon.json("/v1/pods/default/shown-pod").await?;
        let events = detail["events"].as_array().cloned().unwrap_or_default();
        Ok(events.iter().any(|event| event["reason"] == "Unhealthy").then_some(detail))
    })
    .await?;
    assert_eq!(detail["podUid"], pod.uid.as_str());
    let kinds: Vec<_> =
        detail["probes"].as_array().into_iter().flatten().map(|probe| &probe["type"]).collect();
    assert_eq!(kinds, ["readiness", "liveness"]);
    let reason = detail["reason"].as_str().unwrap_or_default();
    assert!(
        reason.starts_with("app: readiness probe fails since ")
            && reason.ends_with("): no database; containers with unready status: [app]"),
        "{reason}"
    );
    let (is_well, text) = rig.daemon.run(&["describe", "default/shown-pod"])?;
    for part in [
        "pod         default/shown-pod\n",
        "1 failure, 1 invalid",
        "no database",
        "\nlogs\n  app: /",
        "Started",
    ] {
        assert!(is_well && text.contains(part), "{part:?} is not in:\n{text}");
    }
    let (_, json) = rig.daemon.run(&["describe", "default/shown-pod", "-o", "json"])?;
    assert_eq!(serde_json::from_str::<Value>(&json)?["podUid"], pod.uid.as_str());
    let (_, pods) = rig.daemon.run(&["pods", "default/shown-*"])?;
    assert!(pods.contains("1 failure, 1 invalid"), "{pods}");
    for (wrong, reported) in [
        ("default/shwon-pod", "no pod default/shwon-pod; did you mean default/shown-pod?"),
        ("shown-pod/app", "no pod shown-pod/app; did you mean default/shown-pod/app?"),
    ] {
        let (is_well, text) = rig.daemon.run(&["describe", wrong])?;
        assert!(!is_well && text.contains(reported), "{wrong}: {text}");
    }
    for (arguments, lines) in [
        (&["events", "default/shown-pod", "-o", "json"][..], true),
        (&["events", "default/other", "-o", "json"], false),
        (&["trace", "default/shown-pod/app", "--last", "9", "-o", "json"], true),
        (&["trace", "other", "--last", "9", "-o", "json"], false),
    ] {
        let (is_well, text) = rig.daemon.run(arguments)?;
        assert_eq!(
            (is_well, text.contains("no pod matches") || text.contains("no namespace matches")),
            (lines, !lines),
            "{arguments:?}: {text}"
        );
    }
    Ok(())
}
