//! Rules of the operator's reach containers whose manifests ask for nothing; what is in effect can be asked for; what is
//! wrong ends the start.

use std::{fs, path::Path};

use anyhow::Result;
use tempfile::TempDir;

use crate::{
    rig::{LAZY, LIVENESS, READINESS, Rig},
    support::{PATIENCE, daemon::Daemon, eventually},
};

const RULES: &str = r#"
rules:
  - name: must
    match: {pod: "web*", container: app}
    enforce: true
    liveness: {exec: {command: ["true"]}, period: 200ms, execMode: session}
  - name: may
    match: {namespace: default}
    readiness: {exec: {command: ["true"]}, period: 200ms}
"#;

/// A configuration with rules in a file of its folder.
fn configured(rules: &str) -> Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("criprobe-conf-").tempdir()?;
    fs::write(folder.path().join("config.yaml"), "annotations: {namespaces: [default]}\n")?;
    fs::create_dir(folder.path().join("conf.d"))?;
    fs::write(folder.path().join("conf.d/10-rules.yaml"), rules)?;
    Ok(folder)
}

fn file(folder: &TempDir) -> String {
    folder.path().join("config.yaml").display().to_string()
}

const IDLE: [&str; 2] = ["sleep", "100000"];

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_reaches_a_container_without_any_annotation() -> Result<()> {
    let folder = configured(RULES)?;
    let mut rig = Rig::with(&[("CRIPROBE_CONFIG", &file(&folder))]).await?;
    let (plain, _) = rig.run("web", &[], &IDLE).await?;
    for (kind, source) in [("liveness", "rule:must"), ("readiness", "rule:may")] {
        let probe = rig.last(&plain, kind, "success").await?;
        assert_eq!((&probe["source"], &probe["state"]), (&source.into(), &"success".into()));
    }
    rig.went_by(&plain, "liveness", "session").await?;
    rig.went_by(&plain, "readiness", "sync").await?;

    let annotations = [(LIVENESS, LAZY), (READINESS, LAZY)];
    let (annotated, _) = rig.run("web-2", &annotations, &IDLE).await?;
    let liveness = rig.last(&annotated, "liveness", "success").await?;
    assert_eq!(liveness["source"], "rule:must", "enforced");
    assert_eq!(liveness["shadowed"], serde_json::json!(["pod annotation"]));
    let readiness = rig.last(&annotated, "readiness", "success").await?;
    assert_eq!(readiness["source"], "annotation");
    assert_eq!(readiness["shadowed"], serde_json::json!(["rule:may"]));
    let (_, reported) = rig.daemon.run(&["describe", "default/web-2/app/liveness"])?;
    assert!(
        reported.lines().any(|line| line.starts_with("shadows") && line.ends_with("pod annotation")),
        "{reported}"
    );

    let (off, _) = rig.run("web-3", &[("criprobe.dev/probes", "off")], &IDLE).await?;
    rig.last(&off, "liveness", "success").await?;
    assert_eq!(rig.daemon.probe(&off, "app", "readiness").await?, None, "only what is enforced is left");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_force_is_shown_with_where_it_comes_from() -> Result<()> {
    let folder = configured(RULES)?;
    let config = file(&folder);
    let rig = Rig::with(&[("CRIPROBE_CONFIG", &config), ("CRIPROBE_PROBER_WORKERS", "8")]).await?;
    let view = rig.daemon.json("/v1/config").await?;
    let setting = |key: &str| {
        let mut settings = view["settings"].as_array().into_iter().flatten();
        settings.find(|setting| setting["key"] == key).cloned().unwrap_or_default()
    };
    assert_eq!(setting("prober.workers")["from"], "CRIPROBE_PROBER_WORKERS");
    assert_eq!(setting("prober.execWorkers")["value"], "8", "as it is in effect");
    let limited = "limited by prober.workers (CRIPROBE_PROBER_WORKERS)";
    assert_eq!(setting("prober.execWorkers")["from"], limited, "no default is 8");
    assert_eq!(setting("annotations.namespaces")["from"], format!("{config}:1:27"));
    assert_eq!(setting("log.level")["from"], "default");
    let rules = folder.path().join("conf.d/10-rules.yaml").display().to_string();
    assert_eq!(view["rules"][1]["from"], format!("{rules}:7:5"));
    let (is_fine, reported) = rig.daemon.run(&["config", "show", "-o", "wide"])?;
    assert!(is_fine && reported.contains("must (enforced)"), "{reported}");
    assert_eq!(rig.daemon.status().await?["config"]["files"], serde_json::json!([config, rules]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_is_wrong_ends_the_start() -> Result<()> {
    let folder = configured("rules:\n  - name: web\n    match: {pod: x}\n    liveness: {exec: {}}\n")?;
    let dir = tempfile::tempdir()?;
    let output = Daemon::command(dir.path(), Path::new("/nowhere.sock"))
        .args(["--config", &file(&folder)])
        .output()?;
    let reported = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(78), "{reported}");
    assert!(
        reported.ends_with("10-rules.yaml:4:22: rules[0].liveness.exec.command: Required value\n"),
        "{reported}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_the_operator_allows_is_dialled() -> Result<()> {
    let folder = configured("prober: {allowHosts: [192.0.2.0/24]}\n")?;
    let mut rig = Rig::with(&[("CRIPROBE_CONFIG", &file(&folder))]).await?;
    let probe =
        |host: &str| format!("{{tcpSocket: {{port: 9, host: {host}}}, timeout: 100ms, period: 300ms}}");
    let (allowed, forbidden) = (probe("192.0.2.1"), probe("198.51.100.1"));
    let (pod, _) = rig.run("web", &[(LIVENESS, &allowed), (READINESS, &forbidden)], &IDLE).await?;
    rig.becomes(&pod, "liveness", "is dialled", |probe| !probe["last"].is_null()).await?;
    let refused =
        eventually("it is refused", PATIENCE, async || rig.daemon.probe(&pod, "app", "readiness").await);
    assert_eq!(refused.await?["phase"], "invalid");
    Ok(())
}
