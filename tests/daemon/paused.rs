//! Containers that are paused: no attempts, and no verdict changes, also over a restart of criprobe.

use std::time::Duration;

use anyhow::Result;
use criprobe::demo::{EnvValues, FaultKind, InjectedFault, Options};
use hyper::StatusCode;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    rig::{EAGER, LIVENESS, READINESS, Rig},
    support::{
        PATIENCE, cri,
        daemon::{EXEC_MODES, exec_mode},
        eventually, stays,
    },
};

/// Passes while the file `hung` is missing; otherwise runs until its timeout.
const HANGS: &str = r#"{"exec": {"command": ["sh", "-c", "[ ! -e hung ] || exec sleep 100"]}, "period": "100ms",
    "timeout": "500ms", "failureThreshold": 1}"#;

/// In front of a runtime that says that it is containerd.
pub(crate) async fn rig(mode: &str) -> Result<Rig> {
    let dir = tempfile::Builder::new().prefix("criprobe-rt-").tempdir()?;
    let options = Options {
        env_values: EnvValues::default(),
        poses_as_containerd: true,
        ..Options::new(dir.path().join("rt.sock"), dir.path().join("rt"))
    };
    Rig::before(criprobe::demo::EmbeddedRuntime::start(options)?, dir, &[exec_mode(mode)]).await
}

fn is_waiting(probe: &Value) -> bool {
    probe["phase"] == "waiting" && probe["reason"] == "the container is paused" && probe["nextAt"].is_null()
}

/// Whether the runtime has the container paused, as `pods` shows it.
async fn is_shown_paused(rig: &Rig) -> Result<bool> {
    Ok(rig.daemon.json("/v1/pods").await?[0]["containers"][0]["paused"] == true)
}

/// Where the time of an attempt went is known a little after its end.
fn without_phases(mut probes: Vec<Value>) -> Vec<Value> {
    for last in probes.iter_mut().filter_map(|probe| probe["last"].as_object_mut()) {
        for field in ["phases", "phasesUnknown", "culprit"] {
            last.remove(field);
        }
    }
    probes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_container_is_not_probed_and_keeps_its_verdicts_until_it_is_resumed() -> Result<()> {
    for mode in EXEC_MODES {
        let mut rig = rig(mode).await?;
        let (pod, id) =
            rig.run("frozen", &[(LIVENESS, HANGS), (READINESS, EAGER)], &["sleep", "100000"]).await?;
        rig.last(&pod, "liveness", "success").await?;
        rig.last(&pod, "readiness", "success").await?;
        assert!(!is_shown_paused(&rig).await?);
        assert_eq!(rig.daemon.status().await?["runtime"]["eventSource"], "containerd");

        // An attempt that is in flight when the pause begins.
        if mode == "sync" {
            rig.once("ExecSync", FaultKind::Hang);
            let hung = rig.faults().count("ExecSync");
            eventually("an attempt hangs", PATIENCE, async || {
                Ok((rig.faults().count("ExecSync") > hung + 1).then_some(()))
            })
            .await?;
        }
        rig.went_by(&pod, "readiness", mode).await?;
        assert!(rig.runtime.set_paused(&id, true));
        for kind in ["liveness", "readiness"] {
            rig.becomes(&pod, kind, "waits", is_waiting).await?;
        }
        assert!(is_shown_paused(&rig).await?);
        let (is_fine, table) = rig.daemon.run(&["pods"])?;
        assert!(is_fine && table.contains("paused"), "{table}");

        let before = without_phases(rig.daemon.probes().await?);
        let (calls, events) = (rig.faults().count("ExecSync"), rig.daemon.events().await?);
        stays("no attempt is made and nothing changes", Duration::from_secs(2), async || {
            let now = without_phases(rig.daemon.probes().await?);
            Ok(now == before && rig.faults().count("ExecSync") == calls)
        })
        .await?;
        assert_eq!(rig.daemon.events().await?, events);
        for probe in &before {
            assert_eq!(
                (&probe["state"], &probe["counts"]["failure"]),
                (&json!("success"), &json!(0)),
                "{probe}"
            );
        }
        let request = json!({"container": "default/frozen/app", "exec": {"command": ["true"]}}).to_string();
        let (status, refused) = rig.daemon.post("/v1/run", &request).await?;
        assert!(status == StatusCode::CONFLICT && refused.contains("the container is paused"), "{refused}");

        rig.restart(Signal::TERM, async |_| Ok(())).await?;
        let calls = rig.faults().count("ExecSync");
        for kind in ["liveness", "readiness"] {
            let probe = rig.becomes(&pod, kind, "waits again", is_waiting).await?;
            assert_eq!(
                (&probe["state"], &probe["counts"]["failure"]),
                (&json!("success"), &json!(0)),
                "{probe}"
            );
        }
        stays("it is still paused", Duration::from_secs(1), async || {
            Ok(rig.faults().count("ExecSync") == calls)
        })
        .await?;

        assert!(rig.runtime.set_paused(&id, false));
        for kind in ["liveness", "readiness"] {
            let successes = |probe: &Value| probe["counts"]["success"].as_u64().unwrap_or_default();
            let waited = rig.daemon.probe(&pod, "app", kind).await?.unwrap_or_default();
            let goes_on =
                |probe: &Value| probe["phase"] == "probing" && successes(probe) > successes(&waited);
            rig.becomes(&pod, kind, "goes on", goes_on).await?;
            rig.went_by(&pod, kind, mode).await?;
        }
        cri::exec(&mut rig.past, &id, &["touch", "hung"]).await?;
        rig.becomes(&pod, "liveness", "fails", |probe| probe["state"] == "failure").await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_that_no_event_reported_is_found_when_the_runtime_is_back_and_a_failed_list_pauses_nothing()
-> Result<()> {
    for mode in EXEC_MODES {
        let mut rig = rig(mode).await?;
        let (pod, id) = rig.run("unseen", &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
        rig.last(&pod, "liveness", "success").await?;
        rig.runtime.stop_serving().await;
        assert!(rig.runtime.set_paused(&id, true));
        rig.runtime.serve_again(Duration::ZERO)?;
        rig.becomes(&pod, "liveness", "waits", is_waiting).await?;

        rig.faults()
            .add(InjectedFault::always("List", FaultKind::Code(tonic::Code::Unknown, "broken".into())));
        rig.runtime.stop_serving().await;
        assert!(rig.runtime.set_paused(&id, false));
        rig.runtime.serve_again(Duration::ZERO)?;
        rig.becomes(&pod, "liveness", "goes on", |probe| probe["phase"] == "probing").await?;
    }
    Ok(())
}
