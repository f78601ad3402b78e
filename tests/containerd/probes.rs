//! Annotations on real containers become probes, and probes become verdicts.

use anyhow::Result;
use criprobe::proto::cri as pb;
use serde_json::Value;

use crate::support::{
    PATIENCE,
    containerd::Lab,
    cri::{self, Container},
    daemon::{Daemon, EXEC_MODES},
    eventually,
};

const LIVENESS: &str = "liveness.criprobe.dev/app";
const READINESS: &str = "readiness.criprobe.dev/app";

/// Whether a probe's verdict and phase are these.
fn stands(probe: &Value, state: &str, phase: &str) -> bool {
    probe["state"] == state && probe["phase"] == phase
}

#[tokio::test]
async fn a_liveness_annotation_leads_to_success_then_to_failure_after_its_threshold_and_goes_on() -> Result<()>
{
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    for mode in EXEC_MODES {
        let daemon = Daemon::in_mode(&lab.socket(), mode).await?;
        let mut client = daemon.client().await?;
        let probe =
            r#"{"exec": {"command": ["cat", "/tmp/healthy"]}, "period": "200ms", "failureThreshold": 3}"#;
        let pod = cri::run_pod(&mut client, "verdicts", &[(LIVENESS, probe)]).await?;
        let command = ["sh", "-c", "echo fine >/tmp/healthy; sleep 100000"];
        let id = cri::run_container(&mut client, &pod, &Container::shell(&command)).await?;
        let liveness = (&pod, "app", "liveness");

        let good = daemon
            .probe_becomes(liveness, "succeeds", PATIENCE, |probe| {
                stands(probe, "success", "probing") && probe["last"]["result"] == "success"
            })
            .await?;
        assert_eq!(good["id"], "default/verdicts/app/liveness");
        assert_eq!(good["containerId"], id.as_str());
        assert_eq!(good["sandboxId"], pod.id.as_str());
        assert_eq!((&good["source"], &good["handler"]), (&"annotation".into(), &"exec".into()));
        assert_eq!((&good["periodSeconds"], &good["onFailure"]), (&0.2.into(), &"report".into()));
        assert_eq!((&good["last"]["exitCode"], &good["last"]["output"]), (&0.into(), &"fine\n".into()));

        daemon
            .probe_becomes(liveness, "goes by its mode", PATIENCE, |probe| probe["last"]["execRoute"] == mode)
            .await?;
        cri::exec(&mut client, &id, &["rm", "/tmp/healthy"]).await?;
        let bad = daemon
            .probe_becomes(liveness, "fails", PATIENCE, |probe| stands(probe, "failure", "probing"))
            .await?;
        assert!(bad["counts"]["failure"].as_u64() >= Some(3), "{bad}");
        assert_eq!((&bad["last"]["result"], &bad["last"]["exitCode"]), (&"failure".into(), &1.into()));
        assert!(
            bad["last"]["output"].as_str().is_some_and(|output| output.contains("No such file")),
            "{bad}"
        );
        daemon
            .probe_becomes(liveness, "goes on", PATIENCE, |probe| {
                stands(probe, "failure", "probing")
                    && probe["counts"]["failure"].as_u64() > bad["counts"]["failure"].as_u64()
            })
            .await?;
        daemon
            .probe_becomes(liveness, "goes by its mode", PATIENCE, |probe| probe["last"]["execRoute"] == mode)
            .await?;
        let turned = daemon.events().await?.into_iter().any(|event| {
            event["containerId"] == id.as_str()
                && event["message"] == "liveness of app is now failure after 3 failures in a row"
        });
        assert!(turned, "the verdict fell after exactly the threshold");
        let reported = daemon.events().await?.into_iter().any(|event| {
            event["containerId"] == id.as_str()
                && event["reason"] == "Unhealthy"
                && event["message"].as_str().is_some_and(|text| text.starts_with("Liveness probe failed: "))
        });
        assert!(reported, "no event reports the failure");

        let pod_sandbox_id = pod.id.to_string();
        client.stop_pod_sandbox(pb::StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() }).await?;
        client.remove_pod_sandbox(pb::RemovePodSandboxRequest { pod_sandbox_id }).await?;
        eventually("the probes of a removed pod go", PATIENCE, async || {
            Ok(daemon.probe(&pod, "app", "liveness").await?.is_none().then_some(()))
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_tcp_readiness_probe_follows_the_server_in_the_container() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let daemon = Daemon::start(&lab.socket()).await?;
    let mut client = daemon.client().await?;
    let probe = r#"{"tcpSocket": {"port": 8080}, "period": "200ms", "failureThreshold": 2}"#;
    let pod = cri::run_pod(&mut client, "tcp", &[]).await?;
    let command = ["sh", "-c", "until [ -e /tmp/go ]; do sleep 0.1; done; exec httpd -f -p 8080"];
    let container = Container { annotations: &[(READINESS, probe)], ..Container::shell(&command) };
    let id = cri::run_container(&mut client, &pod, &container).await?;
    let readiness = (&pod, "app", "readiness");

    let refused = daemon
        .probe_becomes(readiness, "fails while nothing listens", PATIENCE, |probe| {
            probe["state"] == "failure" && probe["counts"]["failure"].as_u64() >= Some(2)
        })
        .await?;
    assert!(refused["last"]["output"].as_str().is_some_and(|output| output.contains("refused")), "{refused}");
    cri::exec(&mut client, &id, &["touch", "/tmp/go"]).await?;
    daemon
        .probe_becomes(readiness, "succeeds", PATIENCE, |probe| stands(probe, "success", "probing"))
        .await?;
    Ok(())
}

#[tokio::test]
async fn the_environment_of_an_adopted_container_is_expanded_in_a_probes_command() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    for mode in EXEC_MODES {
        let probe =
            r#"{"exec": {"command": ["test", "$(FIRST)-$(SECOND)", "=", "one-two"]}, "period": "200ms"}"#;
        let mut runtime = lab.client().await?;
        let pod = cri::run_pod(&mut runtime, "expansion", &[(LIVENESS, probe)]).await?;
        let container = Container { env: &[("FIRST", "one"), ("SECOND", "two")], ..Container::IDLE };
        cri::run_container(&mut runtime, &pod, &container).await?;

        let daemon = Daemon::in_mode(&lab.socket(), mode).await?;
        let judged = daemon
            .probe_becomes((&pod, "app", "liveness"), "is judged", PATIENCE, |probe| !probe["last"].is_null())
            .await?;
        assert_eq!(judged["last"]["result"], "success", "{judged}");
        let judged = daemon
            .probe_becomes((&pod, "app", "liveness"), "goes by its mode", PATIENCE, |probe| {
                probe["last"]["execRoute"] == mode
            })
            .await?;
        assert_eq!(judged["last"]["result"], "success", "{judged}");
    }
    Ok(())
}
