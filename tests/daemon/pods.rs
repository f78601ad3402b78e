//! Pods and their containers are reported as the kubelet would write their status.

use anyhow::{Result, ensure};
use criprobe::proto::cri as pb;
use serde_json::{Value, json};

use crate::{
    rig::{EAGER, READINESS, Rig, STARTUP},
    support::{
        PATIENCE,
        cri::{self, Container, Pod},
        eventually,
    },
};

const HEALTHY: [&str; 3] = ["sh", "-c", "sleep 100000"];

/// Fails until there is such a file.
fn until(file: &str) -> String {
    format!(
        r#"{{"exec": {{"command": ["test", "-e", "{file}"]}}, "period": "100ms", "failureThreshold": 1000}}"#
    )
}

/// Waits until a pod is as wanted.
async fn becomes(rig: &Rig, pod: &Pod, what: &str, is_wanted: impl Fn(&Value) -> bool) -> Result<Value> {
    eventually(what, PATIENCE, async || {
        let pods = rig.daemon.json("/v1/pods").await?;
        let found = pods.as_array().into_iter().flatten().find(|known| known["podUid"] == pod.uid.as_str());
        Ok(found.filter(|pod| is_wanted(pod)).cloned())
    })
    .await
}

fn stands(container: &Value, started: bool, ready: bool) -> bool {
    container["started"] == started && container["ready"] == ready
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_started_and_ready_as_its_probes_say_and_the_pod_with_it() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (startup, readiness) = (until("up"), until("ready"));
    let (pod, id) = rig.run("gradual", &[(STARTUP, &startup), (READINESS, &readiness)], &HEALTHY).await?;
    let seen = becomes(&rig, &pod, "it runs, and no more", |pod| {
        let app = &pod["containers"][0];
        app["state"] == "running" && stands(app, false, false) && pod["ready"] == false
    })
    .await?;
    let app = &seen["containers"][0];
    assert_eq!([&app["container"], &app["containerId"]], ["app", id.as_str()]);
    assert_eq!((&app["restarts"], &app["exitCode"]), (&json!(0), &Value::Null));
    assert_eq!((&app["probes"]["total"], &seen["sandboxReady"]), (&json!(2), &json!(true)));
    let reason = seen["reason"].as_str().unwrap_or_default();
    assert!(
        reason.starts_with("app: startup probe has not ")
            && reason.ends_with("; containers with unready status: [app]"),
        "{reason}"
    );

    cri::exec(&mut rig.client, &id, &["touch", "up"]).await?;
    becomes(&rig, &pod, "it has started", |pod| stands(&pod["containers"][0], true, false)).await?;
    cri::exec(&mut rig.client, &id, &["touch", "ready"]).await?;
    let ready = becomes(&rig, &pod, "it is ready", |pod| pod["ready"] == true).await?;
    assert!(stands(&ready["containers"][0], true, true) && ready["reason"] == "", "{ready}");
    assert_eq!(ready["containers"][0]["probes"]["states"], json!({"success": 2}));

    let (is_well, text) = rig.daemon.run(&["pods", "--pod", "grad*"])?;
    assert!(
        is_well && text.contains("default/gradual  yes        app        running  yes      yes"),
        "{text}"
    );
    assert_eq!(rig.daemon.json("/v1/pods?pod=other").await?, json!([]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_with_probes_is_never_ready_before_they_are_known() -> Result<()> {
    let rig = Rig::start().await?;
    let readiness = until("never");
    for n in 0..5 {
        let making = rig.client.clone();
        let name = format!("racing-{n}");
        let readiness = readiness.clone();
        let made = tokio::spawn(async move {
            let mut client = making;
            crate::rig::run(&mut client, &name, &[(READINESS, &readiness)], &HEALTHY).await
        });
        let mut seen = 0;
        while seen < 20 {
            let pods = rig.daemon.json(&format!("/v1/pods?pod=racing-{n}")).await?;
            let pod = &pods[0];
            assert_ne!(pod["ready"], true, "{pods}");
            seen += u32::from(pod["containers"][0]["state"] == "running");
        }
        made.await??;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_container_of_a_name_is_told_with_its_restarts() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, first) = rig.run("again", &[], &HEALTHY).await?;
    becomes(&rig, &pod, "without probes it is ready when it runs", |pod| pod["ready"] == true).await?;
    let stop = pb::StopContainerRequest { container_id: first.to_string(), timeout: 0 };
    rig.client.stop_container(stop).await?;
    let down = becomes(&rig, &pod, "it has exited", |pod| pod["containers"][0]["state"] == "exited").await?;
    assert!(stands(&down["containers"][0], false, false) && down["ready"] == false, "{down}");

    let mut next = cri::creation(&pod, &Container::shell(&HEALTHY));
    if let Some(metadata) = next.config.as_mut().and_then(|config| config.metadata.as_mut()) {
        metadata.attempt = 1;
    }
    let container_id = rig.client.create_container(next).await?.into_inner().container_id;
    rig.client.start_container(pb::StartContainerRequest { container_id: container_id.clone() }).await?;
    let up = becomes(&rig, &pod, "it is ready again", |pod| pod["ready"] == true).await?;
    let containers = up["containers"].as_array().cloned().unwrap_or_default();
    assert_eq!((containers.len(), &containers[0]["restarts"]), (1, &json!(1)), "{up}");
    assert_eq!(containers[0]["containerId"], container_id);

    let pod_sandbox_id = pod.id.to_string();
    rig.client.stop_pod_sandbox(pb::StopPodSandboxRequest { pod_sandbox_id }).await?;
    let gone = becomes(&rig, &pod, "its sandbox is stopped", |pod| pod["sandboxReady"] == false).await?;
    assert_eq!((&gone["ready"], &gone["reason"]), (&json!(false), &json!("the sandbox is not ready")));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_without_containers_is_told_and_not_ready() -> Result<()> {
    let mut rig = Rig::start().await?;
    let pod = cri::run_pod(&mut rig.client, "bare", &[]).await?;
    let bare = becomes(&rig, &pod, "it is known", |_| true).await?;
    assert_eq!((&bare["ready"], &bare["containers"]), (&json!(false), &json!([])));
    assert_eq!(bare["reason"], "there are no containers");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn annotations_that_mean_nothing_are_shown_with_the_pod_and_are_events() -> Result<()> {
    let mut rig = Rig::start().await?;
    let annotations = [
        ("livenes.criprobe.dev/app", EAGER),
        ("liveness.criprobe.dev/apq", EAGER),
        ("readiness.criprobe.dev/elsewhere", EAGER),
        ("criprobe.dev/probes", "off"),
    ];
    rig.run("wrong", &annotations, &["sleep", "100000"]).await?;
    let problems = [
        r#"annotation "livenes.criprobe.dev/app": unknown type: did you mean "liveness"?"#,
        r#"annotation "liveness.criprobe.dev/apq": the pod has no container "apq": did you mean "app"?"#,
    ];
    let event = eventually("both are one event", PATIENCE, async || {
        let events = rig.daemon.lines("/v1/events?pod=wrong").await?;
        let mut events: Vec<_> = events.into_iter().filter(|event| event["reason"] != "Started").collect();
        ensure!(events.len() <= 1, "{events:?}");
        Ok(events.pop())
    })
    .await?;
    assert_eq!(event["message"], problems.join("; "));
    assert_eq!((&event["reason"], &event["type"]), (&json!("InvalidAnnotation"), &json!("Warning")));
    let pods = rig.daemon.json("/v1/pods?pod=wrong").await?;
    assert_eq!((&pods[0]["problems"], &pods[0]["probesOff"]), (&json!(problems), &json!(true)));
    for verb in [&["pods"][..], &["describe", "default/wrong/app"]] {
        let (_, shown) = rig.daemon.run(verb)?;
        assert!(shown.contains("probes turned off by annotation"), "{shown}");
        assert!(shown.contains("livenes.criprobe.dev/app"), "{shown}");
    }
    Ok(())
}
