//! A runtime that stands still.

use std::{io::Write, net::Shutdown, os::unix::net::UnixStream, time::Duration};

use anyhow::Result;
use criprobe::clock;

use crate::{
    made_up::{self, DATA, END_HEADERS, FREEZE, HEADERS},
    support::{PATIENCE, daemon::Daemon, eventually, stays},
};

/// A client that has sent to a frozen runtime as much as it could.
fn stuck(daemon: &Daemon) -> Result<UnixStream> {
    let mut client = made_up::connect(&daemon.socket())?;
    client.write_all(&made_up::frame(HEADERS, END_HEADERS, 1, &made_up::call(FREEZE)))?;
    client.set_write_timeout(Some(Duration::from_millis(300)))?;
    let piece = made_up::frame(DATA, 0, 1, &[0; 16_000]);
    for _ in 0..1000 {
        if client.write_all(&piece).is_err() {
            return Ok(client);
        }
    }
    anyhow::bail!("16 MB went to a runtime that reads nothing")
}

#[tokio::test(flavor = "multi_thread")]
async fn row_19a_a_client_that_is_gone_ends_its_connection_while_the_runtime_takes_nothing() -> Result<()> {
    let (socket, _dir) = made_up::start()?;
    let mut daemon = Daemon::spawn(&socket, &[])?;
    eventually("the runtime is there", PATIENCE, async || {
        Ok(daemon.status().await.ok().filter(|status| status["runtime"]["state"] == "ok"))
    })
    .await?;
    let open = async || -> Result<u64> {
        Ok(daemon.status().await?["connections"]["open"].as_u64().unwrap_or_default())
    };
    let half_closed = stuck(&daemon)?;
    half_closed.shutdown(Shutdown::Write)?;
    let gone: Vec<_> = (0..4).map(|_| stuck(&daemon)).collect::<Result<_>>()?;
    eventually("all are open", PATIENCE, async || Ok((open().await? == 5).then_some(()))).await?;
    drop(gone);
    eventually("those that are gone are closed", PATIENCE, async || Ok((open().await? == 1).then_some(())))
        .await?;
    stays("one that can still read an answer is kept", Duration::from_secs(1), async || {
        Ok(open().await? == 1)
    })
    .await?;

    let leaves_during_the_drain = stuck(&daemon)?;
    daemon.terminate();
    let asked = clock::now();
    eventually("it drains", PATIENCE, async || {
        Ok(daemon.status().await.ok().filter(|status| status["draining"] == true))
    })
    .await?;
    drop((half_closed, leaves_during_the_drain));
    assert_eq!(daemon.ended().await?.code(), Some(0));
    assert!(clock::now() - asked < Duration::from_secs(8), "it waited for clients that are gone");
    Ok(())
}

mod handlers {
    use anyhow::Result;
    use criprobe::demo::FaultKind;
    use serde_json::{Value, json};

    use crate::{
        rig::{LIVENESS, Rig},
        support::{PATIENCE, cri::Pod, eventually},
    };

    const TIMEOUTS: [&str; 3] = ["500ms", "900ms", "1500ms"];

    fn probe(command: &[&str], timeout: &str) -> String {
        json!({"exec": {"command": command}, "timeout": timeout, "period": "100ms", "failureThreshold": 1})
            .to_string()
    }

    /// A pod for each timeout.
    async fn pods(rig: &mut Rig, name: &str, command: &[&str]) -> Result<Vec<Pod>> {
        let mut pods = Vec::new();
        for timeout in TIMEOUTS {
            let probe = probe(command, timeout);
            let name = format!("{name}-{timeout}");
            pods.push(rig.run(&name, &[(LIVENESS, &probe)], &["sleep", "100000"]).await?.0);
        }
        Ok(pods)
    }

    fn errors(probe: &Value) -> Option<u64> {
        probe["counts"]["error"].as_u64()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn row_15a_while_the_runtime_stands_still_no_timeout_is_a_failure() -> Result<()> {
        let mut rig = Rig::start().await?;
        let pods = pods(&mut rig, "frozen", &["true"]).await?;
        for pod in &pods {
            rig.last(pod, "liveness", "success").await?;
        }
        rig.always("*", FaultKind::Hang);
        for (pod, timeout) in pods.iter().zip(TIMEOUTS) {
            let found = rig
                .becomes(pod, "liveness", "errs twice", |probe| {
                    errors(probe) >= Some(2) || probe["counts"]["failure"] != 0
                })
                .await?;
            assert_eq!(found["last"]["output"], "the runtime is away: it does not answer", "{timeout}");
            assert_eq!((&found["counts"]["failure"], &found["state"]), (&json!(0), &json!("success")));
        }
        rig.faults().clear();
        for pod in &pods {
            let found = rig.last(pod, "liveness", "success").await?;
            assert_eq!((&found["counts"]["failure"], &found["phase"]), (&json!(0), &json!("probing")));
        }
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn row_15a_while_the_runtime_answers_a_timeout_is_a_failure_and_its_command_ends() -> Result<()> {
        let mut rig = Rig::start().await?;
        // Unlike that of any other test that runs on this machine.
        let seconds = format!("7{}", std::process::id());
        for (pod, timeout) in pods(&mut rig, "hangs", &["sleep", &seconds]).await?.iter().zip(TIMEOUTS) {
            let found = rig.last(pod, "liveness", "failure").await?;
            let output = format!("command timed out: \"sleep {seconds}\" timed out after {}", go(timeout));
            assert_eq!((&found["last"]["output"], &found["phase"]), (&json!(output), &json!("probing")));
            rig.daemon.post(&format!("/v1/probes/{}/app/liveness/pause", pod.uid), "").await?;
        }
        eventually("the commands are ended", PATIENCE, async || {
            let processes = std::fs::read_dir("/proc")?.filter_map(|entry| {
                let command = std::fs::read(entry.ok()?.path().join("cmdline")).ok()?;
                (command == format!("sleep\0{seconds}\0").as_bytes()).then_some(())
            });
            Ok((processes.count() == 0).then_some(()))
        })
        .await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn row_20_a_runtime_that_is_away_is_named_by_its_probes_and_then_they_go_on_at_once() -> Result<()>
    {
        let mut rig = Rig::start().await?;
        let eager = probe(&["true"], "1s");
        let (pod, _) = rig.run("away", &[(LIVENESS, &eager)], &["sleep", "100000"]).await?;
        rig.last(&pod, "liveness", "success").await?;
        rig.runtime.stop_serving().await;
        rig.becomes(&pod, "liveness", "says that the runtime is away", |probe| {
            let output = probe["last"]["output"].as_str().unwrap_or_default();
            output.starts_with("the runtime is away: ") && !output.contains("os error")
        })
        .await?;
        rig.runtime.serve_again(std::time::Duration::ZERO)?;
        rig.last(&pod, "liveness", "success").await?;
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn row_20_after_a_freeze_no_probe_waits_out_its_spaced_interval() -> Result<()> {
        let mut rig = Rig::with(&[("CRIPROBE_PROBER_EXEC_GRACE", "1s")]).await?;
        let slow = json!({"exec": {"command": ["true"]}, "timeoutSeconds": 1, "period": "2s"}).to_string();
        let (pod, _) = rig.run("frozen", &[(LIVENESS, &slow)], &["sleep", "100000"]).await?;
        rig.last(&pod, "liveness", "success").await?;
        rig.always("*", FaultKind::Hang);
        eventually("the next attempt is far away and the runtime counts as away", 4 * PATIENCE, async || {
            let far = rig.daemon.probe(&pod, "app", "liveness").await?;
            let is_far = far.is_some_and(|probe| probe["periodSeconds"].as_f64() >= Some(30.0));
            Ok((is_far && rig.daemon.status().await?["runtime"]["state"] == "away").then_some(()))
        })
        .await?;
        rig.faults().clear();
        // 1 s to see it, 5 s until the question that hangs is given up, 2 s for the spread.
        let back = eventually("it goes on", std::time::Duration::from_secs(15), async || {
            let probe = rig.daemon.probe(&pod, "app", "liveness").await?;
            Ok(probe.filter(|probe| probe["last"]["result"] == "success"))
        })
        .await?;
        assert_eq!(back["periodSeconds"], 2.0);
        Ok(())
    }

    /// A timeout as Go prints it.
    fn go(timeout: &str) -> &str {
        if timeout == "1500ms" { "1.5s" } else { timeout }
    }
}
