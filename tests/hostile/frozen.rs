//! Rows 15a and 19a: a runtime that stands still.

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
            assert_eq!(found["last"]["output"], "runtime did not answer", "{timeout}");
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
            assert_eq!((&found["last"]["output"], &found["phase"]), (&json!(output), &json!("held")));
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

    /// A timeout as Go prints it.
    fn go(timeout: &str) -> &str {
        if timeout == "1500ms" { "1.5s" } else { timeout }
    }
}
