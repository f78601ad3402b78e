//! Calls that are written to a file, what of them and of everything else is redacted, and what is never recorded.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{ChildStdout, Command, Stdio},
};

use anyhow::{Context as _, Result};
use criprobe::{
    proto::cri::{self as pb, image_service_client::ImageServiceClient},
    runtime,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::{JoinSet, spawn_blocking};

use crate::{
    rig::{LIVENESS, Rig},
    support::{
        PATIENCE,
        cri::{self, Container},
        eventually,
    },
};

/// A folder, and the file of calls in it.
fn place() -> Result<(TempDir, PathBuf)> {
    let dir = tempfile::Builder::new().prefix("criprobe-calls-").tempdir()?;
    let file = dir.path().join("records/calls.jsonl");
    Ok((dir, file))
}

fn setting(file: &Path) -> String {
    file.display().to_string()
}

/// The records of the file and of the one before it, oldest first.
fn records(file: &Path) -> Result<Vec<Value>> {
    let former = fs::read_to_string(file.with_extension("jsonl.1")).unwrap_or_default();
    let text = former + &fs::read_to_string(file)?;
    text.lines().map(|line| serde_json::from_str(line).context("parse a line")).collect()
}

impl Rig {
    /// Waits until the file of calls is as wanted, and returns what the status says of it.
    async fn trace_becomes(&self, what: &str, is_wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        eventually(what, PATIENCE, async || {
            let trace = self.daemon.status().await?["trace"].take();
            Ok(is_wanted(&trace).then_some(trace))
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_is_a_line_of_the_file_as_the_trace_shows_it_also_the_last_one_before_the_end()
-> Result<()> {
    let (_dir, file) = place()?;
    let mut rig = Rig::with(&[("CRIPROBE_TRACE_FILE", &setting(&file))]).await?;
    let (_, id) = rig.run("written", &[], &["sleep", "100000"]).await?;
    let command = ["sh", "-c", "echo out; exit 3"];
    cri::exec(&mut rig.client, &id, &command).await?;
    let shown = eventually("the call is recorded", PATIENCE, async || {
        Ok(rig.daemon.lines("/v1/trace?method=ExecSync").await?.pop())
    })
    .await?;
    rig.trace_becomes("its lines are counted", |trace| trace["written"].as_u64() >= Some(4)).await?;
    let (status, metrics) = rig.daemon.get("/metrics").await?;
    assert!(status == 200 && metrics.contains(r#"criprobe_record_file_ok{file="trace"} 1"#), "{metrics}");
    assert!(metrics.contains(r#"criprobe_records_dropped_total{file="trace"} 0"#), "{metrics}");
    assert!(!metrics.contains(r#"file="attempts""#), "there is no such file");
    let (_, table) = rig.daemon.run(&["status"])?;
    assert!(table.lines().any(|line| line.starts_with("trace") && line.contains(" written; in ")), "{table}");
    cri::version(&mut rig.client).await?;
    eventually("the last call is seen", PATIENCE, async || {
        Ok(rig.daemon.lines("/v1/trace?method=Version").await?.pop())
    })
    .await?;
    rig.daemon.signal(Signal::TERM);
    rig.daemon.ended().await?;
    let records = records(&file)?;
    assert_eq!(fs::metadata(&file)?.mode() & 0o777, 0o600);
    let written = records.iter().find(|record| record["method"] == "ExecSync").context("the call")?;
    assert_eq!(written, &shown, "the same shape");
    assert!(written["exec"].get("stdout").is_none(), "outputs are off by default: {written}");
    assert_eq!(records.last().context("a last call")?["method"], "Version");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn four_thousand_commands_at_once_are_all_in_the_file_and_none_is_missed() -> Result<()> {
    let (_dir, file) = place()?;
    let mut rig = Rig::with(&[("CRIPROBE_TRACE_FILE", &setting(&file))]).await?;
    let mut clients = JoinSet::new();
    for number in 0..16 {
        let mut client = rig.client.clone();
        clients.spawn(async move {
            for call in 0..250 {
                let cmd = vec!["call".to_owned(), format!("{number}-{call}")];
                // Starting processes is not under test: the runtime answers at once.
                let request = pb::ExecSyncRequest { container_id: "nowhere".into(), cmd, timeout: 1 };
                let refused = client.exec_sync(request).await.map_err(|status| status.code());
                assert_eq!(refused.err(), Some(tonic::Code::NotFound));
            }
        });
    }
    clients.join_all().await;
    let trace = rig
        .trace_becomes("all are written or dropped", |trace| {
            let count = |name: &str| trace[name].as_u64().unwrap_or_default();
            count("written") + count("dropped") >= 4_000
        })
        .await?;
    assert_eq!((&trace["dropped"], &trace["trouble"]), (&0.into(), &"".into()), "{trace}");
    assert_eq!(rig.daemon.status().await?["gaps"], 0);
    rig.daemon.signal(Signal::TERM);
    rig.daemon.ended().await?;
    let mut words: Vec<_> = records(&file)?
        .iter()
        .filter(|record| record["method"] == "ExecSync")
        .map(|record| record["exec"]["command"][1].to_string())
        .collect();
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), 4_000, "each is there");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_takes_no_more_than_it_may_and_a_folder_that_vanishes_is_made_again() -> Result<()> {
    let (dir, file) = place()?;
    let settings = [("CRIPROBE_TRACE_FILE", &*setting(&file)), ("CRIPROBE_TRACE_MAX_BYTES", "256KiB")];
    let mut rig = Rig::with(&settings).await?;
    for _ in 0..1_200 {
        cri::version(&mut rig.client).await?;
    }
    rig.trace_becomes("all are written", |trace| trace["written"].as_u64() >= Some(1_200)).await?;
    let former = file.with_extension("jsonl.1");
    let sizes = [&file, &former].map(|file| fs::metadata(file).map_or(0, |file| file.len()));
    assert!(sizes[1] > 0 && sizes.iter().sum::<u64>() <= 256 << 10, "{sizes:?}");
    let kept = records(&file)?;
    assert!(kept.len() < 1_200 && kept.iter().all(|record| record["method"].is_string()), "{}", kept.len());
    fs::remove_dir_all(dir.path().join("records"))?;
    for _ in 0..10 {
        cri::version(&mut rig.client).await?;
    }
    eventually("it is begun again with the first call", PATIENCE, async || {
        Ok(records(&file).ok().filter(|records| records.len() == 10))
    })
    .await?;
    eventually("it is reported", PATIENCE, async || {
        let events = rig.daemon.events().await?;
        let is_it = |event: &Value| {
            event["message"]
                .as_str()
                .is_some_and(|message| message.starts_with("calls are written to a new "))
        };
        Ok(events.iter().any(is_it).then_some(()))
    })
    .await?;
    let trace = rig.daemon.status().await?["trace"].take();
    assert_eq!((&trace["dropped"], &trace["trouble"]), (&0.into(), &"".into()), "{trace}");
    Ok(())
}

/// What must never be seen, in every place where a pod's author or a client may put it.
const SECRET: &str = "hunter2";

#[tokio::test(flavor = "multi_thread")]
async fn what_matches_a_pattern_is_shown_and_written_nowhere() -> Result<()> {
    let (dir, file) = place()?;
    let attempts = dir.path().join("records/attempts.jsonl");
    let settings = [
        ("CRIPROBE_TRACE_FILE", &*setting(&file)),
        ("CRIPROBE_ATTEMPTS_FILE", &setting(&attempts)),
        ("CRIPROBE_TRACE_OUTPUT", "true"),
        ("CRIPROBE_TRACE_REDACT", r"--password[= ](\S+), (?i)(?:token|secret)=(\S+)"),
        ("CRIPROBE_LOG_LEVEL", "debug"),
    ];
    let mut rig = Rig::with(&settings).await?;
    // In a definition, in what its command prints, in a definition that is wrong, and in a hook.
    let failing = format!(
        r#"{{"exec": {{"command": ["sh", "-c", "echo token={SECRET}; exit 1", "--password", "{SECRET}"]}}, "period": "200ms", "failureThreshold": 1}}"#
    );
    let wrong = format!(r#"{{"exec": {{"command": "check --password={SECRET}"}}}}"#);
    let (_, id) = rig
        .run(
            "redacted",
            &[(LIVENESS, &failing), ("readiness.criprobe.dev/app", &wrong)],
            &["sleep", "100000"],
        )
        .await?;
    // In commands of clients, their outputs, and what the runtime says of them.
    let script = format!("echo SECRET={SECRET}; echo Token={SECRET} >&2");
    for command in [
        vec!["sh", "-c", &*script, "--password", SECRET],
        vec!["/nowhere", &format!("--password={SECRET}")],
        vec![&format!("/nowhere/token={SECRET}")],
    ] {
        let cmd = command.into_iter().map(str::to_owned).collect();
        let request = pb::ExecSyncRequest { container_id: id.to_string(), cmd, timeout: 10 };
        let _ = rig.client.exec_sync(request).await;
    }
    let calls = eventually("the calls are recorded", PATIENCE, async || {
        let calls = rig.daemon.lines("/v1/trace?method=ExecSync").await?;
        Ok((calls.len() == 3).then_some(calls))
    })
    .await?;
    let exec = &calls[0]["exec"];
    assert_eq!(exec["command"][4], "***", "{exec}");
    assert_eq!((&exec["stdout"], &exec["stderr"]), (&"SECRET=***\n".into(), &"Token=***\n".into()));
    assert_eq!(calls[1]["exec"]["command"][1], "--password=***");
    eventually("attempts failed", PATIENCE, async || {
        Ok((rig.daemon.events().await?.len() > 3
            && rig.daemon.status().await?["attempts"]["written"].as_u64() > Some(3))
        .then_some(()))
    })
    .await?;
    let (_, described) = rig.daemon.run(&["describe", "default/redacted/app/liveness"])?;
    assert!(described.contains("--password '***'") && described.contains("token=***"), "{described}");
    let mut seen = vec![("describe".to_owned(), described)];
    for path in [
        "/v1/status",
        "/v1/config",
        "/v1/probes",
        "/v1/probes/default/redacted/app/liveness",
        "/v1/pods",
        "/v1/pods/default/redacted",
        "/v1/trace",
        "/v1/events",
        "/metrics",
        "/readyz?verbose",
    ] {
        let (status, text) = rig.daemon.get(path).await?;
        assert_eq!(status, 200, "{path}: {text}");
        seen.push((path.to_owned(), text));
    }
    // A filter does not tell what is not shown.
    assert_eq!(rig.daemon.lines(&format!("/v1/trace?command=*{SECRET}*")).await?.len(), 0);
    assert_eq!(rig.daemon.lines("/v1/trace?command=/nowhere%20--password=***").await?.len(), 1);
    let run = format!(
        r#"{{"container": "default/redacted/app", "probe": {{"exec": {{"command": ["echo", "token={SECRET}"]}}}}}}"#
    );
    seen.push(("/v1/run".to_owned(), rig.daemon.post("/v1/run", &run).await?.1));
    rig.daemon.signal(Signal::TERM);
    rig.daemon.ended().await?;
    seen.push(("log".to_owned(), rig.daemon.log()));
    for file in [&file, &attempts, &rig.daemon.state().join("probes.json")] {
        seen.push((setting(file), fs::read_to_string(file)?));
        assert!(seen.last().is_some_and(|(_, text)| text.contains("***")), "{file:?}: nothing was redacted");
    }
    for (place, text) in seen {
        assert!(!text.contains(SECRET), "{place}: {text}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_and_values_of_variables_are_recorded_nowhere() -> Result<()> {
    let (_dir, file) = place()?;
    let settings = [
        ("CRIPROBE_TRACE_FILE", &*setting(&file)),
        ("CRIPROBE_TRACE_OUTPUT", "true"),
        ("CRIPROBE_LOG_LEVEL", "debug"),
    ];
    let mut rig = Rig::with(&settings).await?;
    let pod = cri::run_pod(&mut rig.client, "secretive", &[]).await?;
    let env: &[(&str, &str)] = &[("PASSWORD", SECRET)];
    let container = Container { env, command: &["sleep", "100000"], ..Container::IDLE };
    let id = cri::run_container(&mut rig.client, &pod, &container).await?;
    let mut images = ImageServiceClient::new(runtime::channel(rig.socket()));
    let auth = pb::AuthConfig { username: SECRET.into(), password: SECRET.into() };
    let image = pb::ImageSpec { image: "registry.example/private:1".into(), ..Default::default() };
    let request = pb::PullImageRequest { image: Some(image), auth: Some(auth), ..Default::default() };
    let _ = images.pull_image(request).await;
    cri::exec(&mut rig.client, &id, &["true"]).await?;
    let trace = eventually("the calls are recorded", PATIENCE, async || {
        let (_, text) = rig.daemon.get("/v1/trace").await?;
        Ok((text.contains("PullImage") && text.contains("ExecSync")).then_some(text))
    })
    .await?;
    rig.daemon.signal(Signal::TERM);
    rig.daemon.ended().await?;
    let written = fs::read_to_string(&file)?;
    assert!(written.contains("PullImage") && written.contains("CreateContainer"), "{written}");
    for (place, text) in [("trace", trace), ("file", written), ("log", rig.daemon.log())] {
        assert!(!text.contains(SECRET), "{place}: {text}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_that_is_added_later_hides_what_was_seen_before_and_a_wrong_one_changes_nothing()
-> Result<()> {
    let dir = tempfile::Builder::new().prefix("criprobe-calls-").tempdir()?;
    let config = dir.path().join("config.yaml");
    fs::write(&config, "# nothing\n")?;
    let mut rig = Rig::with(&[("CRIPROBE_CONFIG", &setting(&config))]).await?;
    let request = |cmd: &[&str]| pb::ExecSyncRequest {
        container_id: "nowhere".into(),
        cmd: cmd.iter().map(ToString::to_string).collect(),
        timeout: 1,
    };
    let _ = rig.client.exec_sync(request(&["login", "--password", SECRET])).await;
    let commands = async |rig: &Rig| {
        let calls = rig.daemon.lines("/v1/trace?method=ExecSync").await?;
        Ok::<_, anyhow::Error>(
            calls.into_iter().map(|call| call["exec"]["command"].clone()).collect::<Vec<_>>(),
        )
    };
    eventually("it is shown as it was", PATIENCE, async || {
        Ok((commands(&rig).await? == [json!(["login", "--password", SECRET])]).then_some(()))
    })
    .await?;
    let mut follower = Command::new(env!("CARGO_BIN_EXE_criprobe"))
        .args(["trace", "-o", "json", "--method", "ExecSync", "--last", "1", "-f", "--api"])
        .arg(rig.daemon.api())
        .stdout(Stdio::piped())
        .spawn()?;
    let lines = follower.stdout.take().context("its output")?;
    let read = |mut lines: BufReader<ChildStdout>| async {
        let mut line = String::new();
        spawn_blocking(move || lines.read_line(&mut line).map(|_| (lines, line)))
            .await?
            .context("read a line")
    };
    let (lines, line) = read(BufReader::new(lines)).await?;
    assert!(line.contains(SECRET), "{line}");
    fs::write(&config, "trace:\n  redact: ['--password (\\S+)']\n")?;
    eventually("it is hidden", PATIENCE, async || {
        Ok((commands(&rig).await? == [json!(["login", "--password", "***"])]).then_some(()))
    })
    .await?;
    fs::write(&config, "trace:\n  redact: ['--password (']\n")?;
    let errors = eventually("the wrong one is refused", PATIENCE, async || {
        let errors = rig.daemon.status().await?["config"]["errors"].take();
        Ok(errors[0].as_str().map(str::to_owned))
    })
    .await?;
    assert!(errors.contains("config.yaml:2:12: trace.redact: not a regular expression: "), "{errors}");
    // Also for one who has followed since before the pattern.
    let _ = rig.client.exec_sync(request(&["again", "--password", SECRET])).await;
    eventually("it is hidden as well", PATIENCE, async || {
        Ok((commands(&rig).await?.last() == Some(&json!(["again", "--password", "***"]))).then_some(()))
    })
    .await?;
    let (_, line) = read(lines).await?;
    assert!(line.contains("again") && line.contains("***") && !line.contains(SECRET), "{line}");
    follower.kill()?;
    follower.wait()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_written_degrades_the_daemon_until_it_can() -> Result<()> {
    let (dir, file) = place()?;
    // In the place of the folder.
    fs::write(dir.path().join("records"), "in the way")?;
    let rig = Rig::with(&[("CRIPROBE_TRACE_FILE", &setting(&file))]).await?;
    let line = format!("calls are not written to {} (trace.file): cannot use its folder: ", file.display());
    let events = async |reason: &str| {
        let events = rig.daemon.events().await?;
        let messages = events.iter().filter(|event| event["reason"] == reason);
        Ok::<_, anyhow::Error>(messages.map(|event| event["message"].to_string()).collect::<Vec<_>>())
    };
    // No call has to come for that.
    eventually("the event", PATIENCE, async || {
        Ok(events("RecordsNotWritten").await?.iter().any(|message| message.contains(&line)).then_some(()))
    })
    .await?;
    let (is_well, printed) = rig.daemon.run(&["status"])?;
    assert!(!is_well && printed.contains(&format!("degraded: {line}")), "{printed}");
    assert!(printed.contains("name another file"), "{printed}");
    fs::remove_file(dir.path().join("records"))?;
    eventually("it is written again", PATIENCE, async || {
        Ok((!events("RecordsWritten").await?.is_empty()).then_some(()))
    })
    .await?;
    let (is_well, printed) = rig.daemon.run(&["status"])?;
    assert!(is_well, "{printed}");
    Ok(())
}
