//! Rows 1, 2 and 3: texts that multiply when they are rewritten, that steer what shows them, and commands that grow when
//! they are expanded.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use criprobe::{demo::FaultKind, report::printable::is_steering};
use serde_json::{Value, json};
use tonic::Code;

use crate::{
    rig::{LAZY, LIVENESS, READINESS, Rig, STARTUP},
    support::{
        PATIENCE,
        cri::{self, Container, Pod},
        eventually,
    },
};

/// What no text of a probe may exceed: 10 KiB of output, and the words of an event before it.
const LONGEST: usize = 11 << 10;

/// A running container `app` with these annotations and this environment.
async fn run(rig: &mut Rig, name: &str, annotations: &[(&str, &str)], env: &[(&str, &str)]) -> Result<Pod> {
    let pod = cri::run_pod(&mut rig.client, name, annotations).await?;
    cri::run_container(&mut rig.client, &pod, &Container { env, ..Container::IDLE }).await?;
    Ok(pod)
}

/// The most memory that the daemon ever had, in KiB.
fn peak(rig: &Rig) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", rig.daemon.pid()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

fn refusing(rig: &Rig, message: &str) {
    rig.always("ExecSync", FaultKind::Code(Code::Unknown, message.to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn row_01_an_error_that_echoes_a_command_does_not_multiply() -> Result<()> {
    let mut rig = Rig::start().await?;
    rig.run("ready", &[(LIVENESS, LAZY)], &["sleep", "100000"]).await?;
    let before = peak(&rig)?;
    refusing(&rig, &format!("exec failed: {}", "e".repeat(1500)));
    // Each of these words is run as `e`, and there are two thousand more of that letter in how they are written.
    let word = format!("$(e){}", format!("$({})", "e".repeat(60)).repeat(60));
    let mut command = vec![word.clone(), word.clone(), word];
    command.extend(vec!["$(e)".to_owned(); 500]);
    let probe = json!({"exec": {"command": command}, "period": "100ms"}).to_string();
    ensure!(probe.len() <= 16 << 10, "{} bytes are no annotation", probe.len());
    let pod = run(&mut rig, "bomb", &[(LIVENESS, &probe)], &[("e", "e"), (&"e".repeat(60), "")]).await?;
    let found = rig.last(&pod, "liveness", "error").await?;
    let output = found["last"]["output"].as_str().unwrap_or_default();
    assert!(output.contains(&"e".repeat(1500)) && output.len() <= LONGEST, "{output}");
    assert!(peak(&rig)? < before + (64 << 10), "{} KiB, before that {before}", peak(&rig)?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_01_a_value_is_shown_nowhere_however_the_runtime_writes_it() -> Result<()> {
    let mut rig = Rig::start().await?;
    let probe = r#"{"exec": {"command": ["run", "--token=$(TOKEN)", "$(PIN)"]}, "period": "100ms"}"#;
    let secret = "s3cr3t \"of\" two\nlines";
    let quoted = r#"s3cr3t \"of\" two\nlines"#;
    let message = format!("exec: \"--token={quoted}\" pin 7: {secret}; cut off: s3cr3t \"o");
    refusing(&rig, &message);
    let pod = run(&mut rig, "secret", &[(LIVENESS, probe)], &[("TOKEN", secret), ("PIN", "7")]).await?;
    let found = rig.last(&pod, "liveness", "error").await?;
    assert_eq!(
        found["last"]["output"],
        "rpc error: code = Unknown desc = exec: \"--token=$(TOKEN)\" pin 7: $(TOKEN); cut off: $(TOKEN)"
    );
    let everything = [
        rig.daemon.get("/v1/events").await?.1,
        rig.daemon.get("/v1/probes").await?.1,
        rig.daemon.get(&format!("/v1/probes/{}/app/liveness", pod.uid)).await?.1,
        rig.daemon.log(),
    ];
    for text in everything {
        assert!(!text.contains("s3cr3t"), "{text}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_01_a_value_is_found_in_gos_and_jsons_escapes_and_where_it_was_cut() -> Result<()> {
    let mut rig = Rig::start().await?;
    let probe = r#"{"exec": {"command": ["run", "$(TOKEN)"]}, "period": "100ms"}"#;
    let secret = "pass\u{200d}<word>&\u{1}99 and more";
    let message = r#"exec: "pass\u200d<word>&\x0199 and more": {"args":["pass\u200d\u003cword\u003e\u0026\u000199 and more"]}: "exec: \"pass\\u200d<word>&\\x0199 and more\"": "pass\u200d<w..." "99 and more": not found"#;
    refusing(&rig, message);
    let pod = run(&mut rig, "escaped", &[(LIVENESS, probe)], &[("TOKEN", secret)]).await?;
    let found = rig.last(&pod, "liveness", "error").await?;
    assert_eq!(
        found["last"]["output"],
        r#"rpc error: code = Unknown desc = exec: "$(TOKEN)": {"args":["$(TOKEN)"]}: "exec: \"$(TOKEN)\"": "$(TOKEN)..." "99 and more": not found"#
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_02_no_name_from_outside_steers_a_terminal_or_begins_a_line_of_the_log() -> Result<()> {
    const STEERING: &str = "app\nFAKE line\u{1b}[2J\u{202e}\u{2066}\u{9b}\u{2028}\u{e0041}";
    for format in ["text", "json"] {
        let mut rig = Rig::with(&[("CRIPROBE_LOG_FORMAT", format), ("CRIPROBE_LOG_LEVEL", "debug")]).await?;
        let key = format!("liveness.criprobe.dev/{STEERING}");
        let probe = json!({"exec": {"command": ["sh", "-c", "printf 'said\\342\\200\\256'; exit 1"]},
            "period": "100ms", "failureThreshold": 1});
        let pod = cri::run_pod(&mut rig.client, "steering", &[(&key, &probe.to_string())]).await?;
        let container = Container { name: STEERING, ..Container::IDLE };
        cri::run_container(&mut rig.client, &pod, &container).await?;
        let log = eventually("its verdict is logged", PATIENCE, async || {
            let log = rig.daemon.log();
            Ok(log.contains("is now failure").then_some(log))
        })
        .await?;
        let mut printed = vec![log];
        for arguments in [["probes", "-o", "yaml"], ["pods", "-o", "yaml"], ["events", "-o", "yaml"]] {
            printed.push(rig.daemon.run(&arguments)?.1);
        }
        for text in printed {
            let found = text.chars().find(|letter| *letter != '\n' && is_steering(*letter));
            assert_eq!(found, None, "{text}");
            assert!(text.contains("FAKE line"), "{text}");
            assert!(!text.lines().any(|line| line.starts_with("FAKE")), "{text}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_02_every_text_from_outside_is_bounded_where_it_enters() -> Result<()> {
    let mut rig = Rig::start().await?;
    // Bytes that are not UTF-8 become three each when they are made a text.
    let garbage = r#"{"exec": {"command": ["sh", "-c", "head -c 10240 /dev/zero | tr '\\0' '\\377'; exit 1"]},
        "period": "100ms", "failureThreshold": 1000}"#;
    let key = "k".repeat(7000);
    let invalid = format!(r#"{{"{key}": 1, "{key}": 2}}"#);
    let pod = run(&mut rig, "texts", &[(READINESS, garbage), (STARTUP, &invalid)], &[]).await?;
    rig.last(&pod, "readiness", "failure").await?;
    let startup = rig.becomes(&pod, "startup", "is invalid", |probe| probe["phase"] == "invalid").await?;
    for text in texts(&json!([rig.daemon.events().await?, rig.daemon.probes().await?, startup])) {
        assert!(text.len() <= LONGEST, "{} bytes: {text:.80}", text.len());
    }
    let reason = startup["reason"].as_str().unwrap_or_default();
    assert!(reason.len() < 1 << 10, "{} bytes of a key: {reason:.80}", reason.len());
    Ok(())
}

/// Every text in a document.
fn texts(document: &Value) -> Vec<&str> {
    match document {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(fields) => fields.values().flat_map(texts).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_02_what_is_kept_of_events_is_bounded_in_bytes() -> Result<()> {
    let mut rig = Rig::start().await?;
    // Other words each time, as figures alone would not make a difference.
    let babble = "date +%s%N | tr 0-9 a-j; head -c 10000 /dev/zero | tr '\\\\0' x; false";
    let probe = format!(
        r#"{{"exec": {{"command": ["sh", "-c", "{babble}"]}}, "period": "100ms", "failureThreshold": 1000}}"#
    );
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        run(&mut rig, name, &[(LIVENESS, &probe), (READINESS, &probe)], &[]).await?;
    }
    let mut attempts = 0;
    eventually("600 attempts are made", 2 * PATIENCE, async || {
        attempts = rig.faults().count("ExecSync");
        Ok((attempts >= 600).then_some(()))
    })
    .await
    .with_context(|| format!("{attempts} attempts"))?;
    let (_, events) = rig.daemon.get("/v1/events").await?;
    assert!(events.len() > 1 << 20, "{} bytes", events.len());
    assert!(events.len() <= (2 << 20) + (256 << 10), "{} bytes", events.len());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_03_expanded_commands_take_a_few_megabytes_of_all_attempts_together() -> Result<()> {
    let mut rig = Rig::with(&[("CRIPROBE_PROBER_EXEC_WORKERS", "16")]).await?;
    let long = "x".repeat(120_000);
    let probe = |times: usize| {
        let command = [vec!["true"], vec!["$(X)"; times]].concat();
        json!({"exec": {"command": command}, "period": "100ms"}).to_string()
    };
    let (fits, grows) = (probe(2), probe(17));
    // The environments themselves are kept, which is no matter of commands: they come first.
    let mut pods = Vec::new();
    for n in 0..8 {
        let annotations = [(LIVENESS, LAZY)];
        pods.push(run(&mut rig, &format!("idle-{n}"), &annotations, &[("X", &long)]).await?);
    }
    for pod in &pods {
        rig.last(pod, "liveness", "success").await?;
    }
    let before = peak(&rig)?;
    let mut pods = Vec::new();
    for n in 0..8 {
        let annotations = [(LIVENESS, fits.as_str()), (READINESS, grows.as_str())];
        pods.push(run(&mut rig, &format!("long-{n}"), &annotations, &[("X", &long)]).await?);
    }
    for pod in &pods {
        let ran = rig
            .becomes(pod, "liveness", "ran often", |probe| probe["counts"]["success"].as_u64() >= Some(5))
            .await?;
        assert_eq!(ran["counts"]["failure"], 0, "{}", ran["last"]);
        // On a busy machine, its container's status may come too late for its first attempts.
        let refusal = "the command is longer than 262144 bytes after its variables were expanded";
        rig.becomes(pod, "readiness", "is refused", |probe| probe["last"]["output"] == refusal).await?;
    }
    let grown = peak(&rig)?.saturating_sub(before);
    println!("row 3: {grown} KiB beyond {before}");
    assert!(grown < 32 << 10, "{grown} KiB for commands, beyond {before}");
    let requests = rig.faults().count("ExecSync");
    assert!(requests >= 40, "{requests} requests came");
    Ok(())
}
