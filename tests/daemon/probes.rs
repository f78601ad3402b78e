//! Annotations become probes, and probes become verdicts.

use std::time::Duration;

use anyhow::Result;
use criprobe::{
    demo::{EnvValues, FaultKind},
    proto::cri as pb,
};
use serde_json::{Value, json};

use crate::{
    rig::{EAGER, LAZY, LIVENESS, READINESS, Rig, STARTUP, give_up, run, runtime},
    support::{
        PATIENCE,
        cri::{self, Container},
        daemon::{EXEC_MODES, exec_mode},
        eventually,
    },
};

const WATCH_FILE: &str =
    r#"{"exec": {"command": ["cat", "healthy"]}, "period": "100ms", "failureThreshold": 3}"#;
const HEALTHY: [&str; 3] = ["sh", "-c", "echo fine >healthy; sleep 100000"];

fn stands(probe: &Value, state: &str, phase: &str) -> bool {
    probe["state"] == state && probe["phase"] == phase
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_made_through_the_relay_fails_after_its_threshold_goes_on_and_a_new_container_starts_anew()
-> Result<()> {
    for mode in EXEC_MODES {
        let mut rig = Rig::in_mode(mode).await?;
        let (pod, id) = rig.run("verdicts", &[(LIVENESS, WATCH_FILE)], &HEALTHY).await?;
        let good = rig
            .becomes(&pod, "liveness", "succeeds", |probe| {
                stands(probe, "success", "probing") && probe["last"]["result"] == "success"
            })
            .await?;
        assert_eq!(good["id"], "default/verdicts/app/liveness");
        assert_eq!(
            (&good["containerId"], &good["sandboxId"]),
            (&json!(id.as_str()), &json!(pod.id.as_str()))
        );
        assert_eq!([&good["source"], &good["handler"], &good["onFailure"]], ["annotation", "exec", "report"]);
        assert_eq!((&good["periodSeconds"], &good["attempt"]), (&json!(0.1), &json!(0)));
        assert_eq!((&good["last"]["exitCode"], &good["last"]["output"]), (&json!(0), &json!("fine\n")));

        rig.went_by(&pod, "liveness", mode).await?;
        cri::exec(&mut rig.client, &id, &["rm", "healthy"]).await?;
        let bad = rig.becomes(&pod, "liveness", "fails", |probe| stands(probe, "failure", "probing")).await?;
        rig.becomes(&pod, "liveness", "goes on", |probe| {
            stands(probe, "failure", "probing")
                && probe["counts"]["failure"].as_u64() > bad["counts"]["failure"].as_u64()
        })
        .await?;
        rig.went_by(&pod, "liveness", mode).await?;
        let events = rig.daemon.events().await?;
        let turned: Vec<_> = events.iter().filter(|event| event["reason"] == "VerdictChanged").collect();
        assert_eq!(turned.len(), 1, "{events:?}");
        assert_eq!(turned[0]["message"], "liveness of app is now failure after 3 failures in a row");

        let mut next = cri::creation(&pod, &Container::shell(&HEALTHY));
        if let Some(metadata) = next.config.as_mut().and_then(|config| config.metadata.as_mut()) {
            metadata.attempt = 1;
        }
        let container_id = rig.client.create_container(next).await?.into_inner().container_id;
        rig.client.start_container(pb::StartContainerRequest { container_id: container_id.clone() }).await?;
        let lifted = rig
            .becomes(&pod, "liveness", "recovers", |probe| {
                probe["containerId"] == container_id && stands(probe, "success", "probing")
            })
            .await?;
        rig.went_by(&pod, "liveness", mode).await?;
        assert_eq!((&lifted["attempt"], &lifted["counts"]["failure"]), (&json!(1), &json!(0)));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_probes_of_a_removed_pod_go() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, _) = rig.run("removed", &[(LIVENESS, EAGER)], &HEALTHY).await?;
    rig.last(&pod, "liveness", "success").await?;
    let pod_sandbox_id = pod.id.to_string();
    rig.client.stop_pod_sandbox(pb::StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() }).await?;
    rig.becomes(&pod, "liveness", "stops", |probe| probe["phase"] == "stopped").await?;
    rig.client.remove_pod_sandbox(pb::RemovePodSandboxRequest { pod_sandbox_id }).await?;
    eventually("its probes are gone", PATIENCE, async || {
        Ok(rig.daemon.probes().await?.is_empty().then_some(()))
    })
    .await?;
    rig.counts(0, PATIENCE).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_containers_annotation_beats_the_pods() -> Result<()> {
    let mut rig = Rig::start().await?;
    let pod = cri::run_pod(&mut rig.client, "shadowed", &[(LIVENESS, LAZY)]).await?;
    let container = Container { annotations: &[(LIVENESS, EAGER)], ..Container::IDLE };
    cri::run_container(&mut rig.client, &pod, &container).await?;
    let probe = rig.last(&pod, "liveness", "success").await?;
    assert_eq!((&probe["periodSeconds"], &probe["shadowed"]), (&json!(0.1), &json!(["pod annotation"])));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_annotation_costs_its_own_probe_and_no_other() -> Result<()> {
    let mut rig = Rig::start().await?;
    let bad = r#"{"exec": {"command": ["true"]}, "periodSeconds": "soon"}"#;
    let http = r#"{"httpGet": {"port": 80, "host": "10.0.0.1"}}"#;
    let annotations = [(LIVENESS, EAGER), (READINESS, bad), (STARTUP, http)];
    let (pod, _) = rig.run("bad", &annotations, &HEALTHY).await?;
    rig.last(&pod, "liveness", "success").await?;
    let reason = async |kind: &str| -> Result<String> {
        let probe = rig.becomes(&pod, kind, "is invalid", |probe| probe["phase"] == "invalid").await?;
        assert_eq!(probe["state"], "unknown");
        Ok(probe["reason"].as_str().unwrap_or_default().to_owned())
    };
    assert!(reason("readiness").await?.contains("periodSeconds"));
    assert!(reason("startup").await?.starts_with("httpGet.host: Forbidden: "));
    let reported = rig.daemon.events().await?;
    let reported: Vec<_> = reported.iter().filter(|event| event["reason"] == "InvalidProbe").collect();
    assert_eq!(reported.len(), 2, "one event each: {reported:?}");
    assert_eq!(rig.daemon.log().matches("probe is invalid").count(), 2, "one line each");
    let probe = rig.daemon.probe(&pod, "app", "readiness").await?.unwrap_or_default();
    assert_eq!((&probe["run"], &probe["periodSeconds"]), (&json!(null), &json!(null)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grpc_probe_asks_and_fails_where_nothing_listens() -> Result<()> {
    let mut rig = Rig::start().await?;
    let probe = "{grpc: {port: 1}, timeout: 200ms, period: 500ms}";
    let (pod, _) = rig.run("grpc", &[(LIVENESS, probe)], &HEALTHY).await?;
    let probe = rig.last(&pod, "liveness", "failure").await?;
    assert_eq!((&probe["handler"], &probe["source"]), (&json!("grpc"), &json!("annotation")));
    let output = probe["last"]["output"].as_str().unwrap_or_default();
    assert!(output.starts_with("timeout: failed to connect service \""), "{output}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_may_turn_its_probes_off() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (_, _) = rig.run("off", &[(LIVENESS, EAGER), ("criprobe.dev/probes", "off")], &HEALTHY).await?;
    let (on, _) = rig.run("on", &[(LIVENESS, EAGER)], &HEALTHY).await?;
    rig.last(&on, "liveness", "success").await?;
    assert_eq!(rig.daemon.probes().await?.len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_of_an_adopted_container_is_expanded_however_the_runtime_shows_it() -> Result<()> {
    let both = [EnvValues::Plain, EnvValues::Base64]
        .into_iter()
        .flat_map(|values| EXEC_MODES.map(|mode| (values, mode)));
    let probe = r#"{"exec": {"command": ["test", "$(FIRST)-$(SECOND)-$(NONE)", "=", "deep-two-$(NONE)"]}, "period": "200ms"}"#;
    for (env_values, mode) in both {
        let (runtime, dir) = runtime(env_values)?;
        let mut past = cri::connect(runtime.socket()).await?;
        let pod = cri::run_pod(&mut past, "expansion", &[(LIVENESS, probe)]).await?;
        let container = Container { env: &[("FIRST", "deep"), ("SECOND", "two")], ..Container::IDLE };
        cri::run_container(&mut past, &pod, &container).await?;

        let rig = Rig::before(runtime, dir, &[exec_mode(mode)]).await?;
        let judged = rig.becomes(&pod, "liveness", "is judged", |probe| !probe["last"].is_null()).await?;
        assert_eq!(judged["last"]["result"], "success", "{env_values:?}, {mode}: {judged}");
        let judged = rig.went_by(&pod, "liveness", mode).await?;
        assert_eq!(judged["last"]["result"], "success", "{env_values:?}, {mode}: {judged}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn startup_releases_the_others() -> Result<()> {
    for mode in EXEC_MODES {
        let mut rig = Rig::in_mode(mode).await?;
        let startup =
            r#"{"exec": {"command": ["test", "-e", "up"]}, "period": "100ms", "failureThreshold": 1000}"#;
        let (pod, id) = rig.run("gate", &[(STARTUP, startup), (LIVENESS, EAGER)], &HEALTHY).await?;
        rig.last(&pod, "startup", "failure").await?;
        rig.went_by(&pod, "startup", mode).await?;
        let gated = rig.daemon.probe(&pod, "app", "liveness").await?.unwrap_or_default();
        assert_eq!((&gated["phase"], &gated["last"]), (&json!("waiting"), &Value::Null));
        cri::exec(&mut rig.client, &id, &["touch", "up"]).await?;
        rig.last(&pod, "liveness", "success").await?;
        let startup = rig.daemon.probe(&pod, "app", "startup").await?.unwrap_or_default();
        assert!(stands(&startup, "success", "held"), "{startup}");
        rig.went_by(&pod, "liveness", mode).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_exec_is_cancelled_after_its_grace_is_an_error_and_holds_nobody_up() -> Result<()> {
    for mode in EXEC_MODES {
        let mut rig = Rig::with(&[("CRIPROBE_PROBER_EXEC_GRACE", "300ms"), exec_mode(mode)]).await?;
        rig.always("ExecSync", FaultKind::Hang);
        let slow = r#"{"exec": {"command": ["true"]}, "periodSeconds": 1, "timeoutSeconds": 1, "failureThreshold": 1}"#;
        let (hung, _) = rig.run("hung", &[(LIVENESS, slow)], &HEALTHY).await?;
        eventually("the runtime was asked", PATIENCE, async || {
            Ok((rig.faults().count("ExecSync") > 0).then_some(()))
        })
        .await?;
        rig.faults().clear();
        let (other, _) = run(&mut rig.client, "other", &[(LIVENESS, EAGER)], &HEALTHY).await?;
        rig.last(&other, "liveness", "success").await?;
        let before = rig.daemon.probe(&hung, "app", "liveness").await?.unwrap_or_default();
        assert!(before["last"].is_null(), "the other probe had to wait for the hung one: {before}");

        let error = rig.last(&hung, "liveness", "error").await?;
        assert_eq!(
            (&error["last"]["output"], &error["state"]),
            (
                &json!(
                    "no answer within 1.3s (timeout 1s, grace 300ms): the command, or a child of it, keeps its output open"
                ),
                &json!("success")
            )
        );
        let took = error["last"]["durationSeconds"].as_f64().unwrap_or_default();
        assert!((1.3..3.0).contains(&took), "{error}");
        assert_eq!(error["counts"], json!({"success": 0, "warning": 0, "failure": 0, "error": 1}));
        assert_eq!(error["periodSeconds"], 2.0, "it is spaced out: {error}");
        let recovered = rig.last(&hung, "liveness", "success").await?;
        assert_eq!(recovered["periodSeconds"], 1.0);
        rig.went_by(&hung, "liveness", mode).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_that_fails_lets_liveness_go_on() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, id) = rig.run("stubborn", &[(LIVENESS, EAGER)], &HEALTHY).await?;
    rig.last(&pod, "liveness", "success").await?;
    rig.once("StopContainer", FaultKind::Delay(Duration::from_millis(500)));
    let request = pb::StopContainerRequest { container_id: id.to_string(), timeout: 0 };
    let mut client = rig.client.clone();
    let stopping = give_up(client.stop_container(request), Duration::from_millis(300));
    let (gave_up, stopped) = tokio::join!(
        stopping,
        rig.becomes(&pod, "liveness", "is stopped", |probe| probe["phase"] == "stopped")
    );
    assert!(gave_up && stopped.is_ok());
    rig.becomes(&pod, "liveness", "goes on", |probe| stands(probe, "success", "probing")).await?;

    let internal = FaultKind::Code(tonic::Code::Internal, "no".into());
    rig.once("StopPodSandbox", internal);
    let request = pb::StopPodSandboxRequest { pod_sandbox_id: pod.id.to_string() };
    assert!(rig.client.stop_pod_sandbox(request).await.is_err());
    let before = rig.daemon.probe(&pod, "app", "liveness").await?.unwrap_or_default();
    let count = before["counts"]["success"].as_u64();
    rig.becomes(&pod, "liveness", "goes on", |probe| {
        stands(probe, "success", "probing") && probe["counts"]["success"].as_u64() > count
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_attempt_is_an_event_in_the_kubelets_words() -> Result<()> {
    for mode in EXEC_MODES {
        let mut rig = Rig::in_mode(mode).await?;
        let probe = r#"{"exec": {"command": ["cat", "nowhere"]}, "period": "100ms", "failureThreshold": 2}"#;
        let (pod, id) = rig.run("events", &[(LIVENESS, probe)], &HEALTHY).await?;
        rig.becomes(&pod, "liveness", "fails", |probe| stands(probe, "failure", "probing")).await?;
        rig.went_by(&pod, "liveness", mode).await?;
        let events = rig.daemon.events().await?;
        let of = |reason: &str| events.iter().filter(|event| event["reason"] == reason).collect::<Vec<_>>();
        let counts: Vec<_> = of("Unhealthy").into_iter().map(|event| event["count"].as_u64()).collect();
        assert!(counts.len() == 1 && counts[0] >= Some(2), "repeats are one event: {events:?}");
        let event = of("Unhealthy")[0];
        assert!(
            event["message"].as_str().is_some_and(|text| text.starts_with("Liveness probe failed: cat: ")),
            "{event}"
        );
        assert_eq!([&event["type"], &event["probe"], &event["pod"]], ["Warning", "liveness", "events"]);
        assert_eq!(event["containerId"], id.as_str());
        assert_eq!(of("VerdictChanged").len(), 1, "{events:?}");
        assert_eq!(rig.daemon.lines("/v1/events?last=1").await?.len(), 1);
        assert_eq!(rig.daemon.lines("/v1/events?pod=nobody").await?.len(), 0);
    }
    Ok(())
}
