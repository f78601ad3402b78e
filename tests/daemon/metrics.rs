//! What a scrape gets, and what is made of it: both text formats, the alerts and the dashboard. promtool checks them where
//! it is installed or was fetched (`tests/lab/promtool.sh`), and always with CI=true.

use std::{
    collections::BTreeSet,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use criprobe::proto::cri::{RemovePodSandboxRequest, StopContainerRequest};
use http_body_util::BodyExt as _;
use hyper::{Request, header};
use hyper_util::client::legacy::Client;
use hyperlocal::{UnixClientExt as _, UnixConnector};
use serde_json::Value;
use tokio::time::MissedTickBehavior;

use crate::{
    rig::{EAGER, LIVENESS, READINESS, Rig},
    support::{PATIENCE, cri, daemon::Daemon, eventually},
};

const OPENMETRICS: &str =
    "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The metrics, and their content type.
async fn scrape(daemon: &Daemon, accept: &str) -> Result<(String, String)> {
    let client: Client<UnixConnector, String> = Client::unix();
    let url: hyper::Uri = hyperlocal::Uri::new(daemon.api(), "/metrics").into();
    let request = Request::builder().uri(url).header(header::ACCEPT, accept).body(String::new())?;
    let answer = client.request(request).await?;
    ensure!(answer.status().is_success(), "{}", answer.status());
    let kind = answer.headers()[header::CONTENT_TYPE].to_str()?.to_owned();
    Ok((String::from_utf8(answer.into_body().collect().await?.to_bytes().into())?, kind))
}

/// Waits until a series has a value that is wanted; `series` is its line without the value.
async fn becomes(daemon: &Daemon, series: &str, is_wanted: impl Fn(f64) -> bool) -> Result<String> {
    eventually(series, PATIENCE, async || {
        let (text, _) = scrape(daemon, "").await?;
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        Ok(value.and_then(|value| value.parse().ok()).is_some_and(&is_wanted).then_some(text))
    })
    .await
}

/// promtool with these arguments and this input: what it printed. None where it is missing and need not be there.
fn promtool(arguments: &[&str], input: &str) -> Result<Option<String>> {
    let found = Command::new(root().join("tests/lab/promtool.sh")).arg("path").output()?;
    if !found.status.success() {
        ensure!(
            std::env::var("CI").as_deref() != Ok("true"),
            "promtool is missing: tests/lab/promtool.sh fetch"
        );
        eprintln!("promtool is missing, so its part of this test did not run: tests/lab/promtool.sh fetch");
        return Ok(None);
    }
    let path = PathBuf::from(String::from_utf8(found.stdout)?.trim());
    let mut command = Command::new(path);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    child.stdin.take().context("it is piped")?.write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    let printed =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "promtool {}: {printed}", arguments.join(" "));
    Ok(Some(printed))
}

/// The names of all metrics that a scrape shows, with those of the parts of histograms.
fn names(text: &str) -> BTreeSet<String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    types
        .flat_map(|(name, kind)| {
            let parts: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            parts.iter().map(move |part| format!("{name}{part}"))
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scrape_shows_probes_calls_and_the_relay_in_both_formats() -> Result<()> {
    let mut rig = Rig::start().await?;
    let failing = r#"{"exec": {"command": ["false"]}, "period": "100ms", "failureThreshold": 1}"#;
    let annotations = [(LIVENESS, EAGER), (READINESS, failing)];
    let (pod, id) = rig.run("web", &annotations, &["sleep", "100000"]).await?;
    cri::exec(&mut rig.client, &id, &["true"]).await?;

    let daemon = &rig.daemon;
    let names_of_pod = format!("container=\"app\",pod=\"web\",namespace=\"default\",pod_uid=\"{}\"", pod.uid);
    let of_kubelet = |kind: &str, result: &str| {
        format!("prober_probe_total{{probe_type=\"{kind}\",result=\"{result}\",{names_of_pod}}}")
    };
    becomes(daemon, &of_kubelet("Liveness", "successful"), |count| count >= 2.0).await?;
    let text = becomes(daemon, &of_kubelet("Readiness", "failed"), |count| count >= 2.0).await?;
    let has = |line: &str| text.lines().any(|each| each.starts_with(line));
    let duration = "prober_probe_duration_seconds_bucket{probe_type=\"Liveness\",container=\"app\",pod=\"web\",namespace=\"default\",le=";
    ensure!(has(&format!("{duration}\"0.005\"}} ")) && has(&format!("{duration}\"10\"}} ")), "{text}");
    ensure!(!has(&format!("{duration}\"30\"}}")), "it has the kubelet's buckets: {text}");
    ensure!(
        !has("prober_probe_duration_seconds_bucket{probe_type=\"Readiness\""),
        "of successes only: {text}"
    );
    let of_ours = format!("namespace=\"default\",pod=\"web\",pod_uid=\"{}\",container=\"app\"", pod.uid);
    for line in [
        &*format!(
            "criprobe_probe_state{{{of_ours},type=\"readiness\",source=\"annotation\",state=\"failure\",phase=\"probing\"}} 1"
        ),
        "criprobe_probes{state=\"success\",phase=\"probing\"} 1",
        "criprobe_probe_attempt_duration_seconds_count{type=\"readiness\",handler=\"exec\",result=\"failure\"} ",
        "criprobe_probe_lag_seconds_count{type=\"liveness\"} ",
        "criprobe_exec_attempts_total{route=\"sync\"} ",
        "criprobe_calls_total{method=\"ExecSync\",code=\"OK\"} 1",
        "criprobe_call_duration_seconds_bucket{method=\"ExecSync\",le=\"300\"} 1",
        "criprobe_connections_open 1",
        "criprobe_runtime_up 1",
        "criprobe_stage_answers{stage=\"prober\"} 1",
        "criprobe_pods 1",
        "criprobe_containers_running 1",
        "criprobe_config_last_reload_successful 1",
    ] {
        ensure!(has(line), "{line} is missing:\n{text}");
    }
    let above_zero = |name: &str| {
        let value =
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<f64>().ok());
        value.is_some_and(|value| value > 0.0)
    };
    for name in [
        "criprobe_relayed_bytes_total{direction=\"to_runtime\"}",
        "criprobe_relayed_bytes_total{direction=\"to_client\"}",
        "process_open_fds",
        "process_max_fds",
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
    ] {
        ensure!(above_zero(name), "{name}:\n{text}");
    }

    let (text, kind) = scrape(daemon, "text/plain").await?;
    ensure!(kind == "text/plain; version=0.0.4; charset=utf-8" && !text.contains("# EOF"), "{kind}");
    let printed = promtool(&["check", "metrics"], &text)?;
    ensure!(printed.as_deref().unwrap_or_default().is_empty(), "{printed:?}");

    let (text, kind) = scrape(daemon, OPENMETRICS).await?;
    ensure!(kind == "application/openmetrics-text; version=1.0.0; charset=utf-8", "{kind}");
    ensure!(text.contains("# TYPE prober_probe counter\n") && text.ends_with("\n# EOF\n"), "{text}");
    // `check metrics` reads only the other format. Prometheus' parser of this one reads samples to be stored, with times.
    let timed: String = text
        .lines()
        .map(|line| if line.starts_with('#') { format!("{line}\n") } else { format!("{line} 1795168800\n") })
        .collect();
    let dir = tempfile::tempdir()?;
    let (file, blocks) = (dir.path().join("metrics"), dir.path().join("blocks"));
    std::fs::write(&file, timed)?;
    let paths = [&file, &blocks].map(|path| path.to_string_lossy());
    promtool(&["tsdb", "create-blocks-from", "openmetrics", &paths[0], &paths[1]], "")?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_series_of_a_pod_end_with_it_and_no_name_breaks_the_text() -> Result<()> {
    let mut rig = Rig::start().await?;
    let hostile = "web\"} 1\nup{x=\"\\\u{1b}[2J\u{202e}";
    let (pod, id) = rig.run(hostile, &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
    let shown = r#"pod="web\"} 1\\nup{x=\"\\\\u{1b}[2J\\u{202e}""#;
    let series = |text: &str| text.lines().filter(|line| line.contains(shown)).count();
    // 10 KiB of what has to be escaped.
    let (endless, escaped) = ("\"\\\n".repeat(3_413), r#"\"\\\\n"#.repeat(50));
    rig.run(&endless, &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
    eventually("it has series", PATIENCE, async || {
        let (text, _) = scrape(&rig.daemon, "").await?;
        let has_all =
            text.lines().any(|line| line.starts_with("prober_probe_total{") && line.contains(shown));
        let has_endless =
            text.lines().any(|line| line.starts_with("prober_probe_total{") && line.contains(&escaped));
        Ok((has_all && has_endless).then_some(()))
    })
    .await?;
    let (text, _) = scrape(&rig.daemon, "").await?;
    // The state, the count of successes, and a histogram of eleven buckets and three lines more.
    ensure!(series(&text) == 16, "{}", series(&text));
    ensure!(text.lines().all(|line| line.len() < 4 << 10), "a label has an end");
    promtool(&["check", "metrics"], &text)?;

    rig.client.stop_container(StopContainerRequest { container_id: id.to_string(), timeout: 0 }).await?;
    rig.client.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: pod.id.to_string() }).await?;
    eventually("its series are gone", PATIENCE, async || {
        Ok((series(&scrape(&rig.daemon, "").await?.0) == 0).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_no_longer_probes_a_running_container_is_shown_until_the_container_is_stopped()
-> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, id) = rig.run("watched", &[], &["sleep", "100000"]).await?;
    let (mut client, probed) = (rig.client.clone(), id.clone());
    let probing = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            // How it ends is of no interest.
            let _ = cri::exec(&mut client, &probed, &["true"]).await;
        }
    });
    becomes(&rig.daemon, "criprobe_observed_probes", |count| count > 0.0).await?;
    probing.abort();
    let of_pod = format!("namespace=\"default\",pod=\"watched\",pod_uid=\"{}\",container=\"app\"", pod.uid);
    let series = format!("criprobe_observed_probe_silent{{{of_pod},type=\"observed-1\",client=");
    let is_shown =
        async || anyhow::Ok(scrape(&rig.daemon, "").await?.0.lines().any(|line| line.starts_with(&series)));
    eventually("it is silent", PATIENCE, async || Ok(is_shown().await?.then_some(()))).await?;
    let stop = StopContainerRequest { container_id: id.to_string(), timeout: 0 };
    rig.client.clone().stop_container(stop).await?;
    eventually("it ended with its container", PATIENCE, async || Ok((!is_shown().await?).then_some(()))).await
}

#[test]
fn promtool_accepts_the_alerts_and_their_tests() -> Result<()> {
    let folder = root().join("packaging/prometheus");
    promtool(&["check", "rules", &folder.join("rules.yaml").to_string_lossy()], "")?;
    promtool(&["test", "rules", &folder.join("rules_test.yaml").to_string_lossy()], "")?;
    Ok(())
}

/// A YAML file as JSON.
fn yaml(path: &str) -> Result<Value> {
    let text = std::fs::read_to_string(root().join(path))?;
    serde_saphyr::from_str(&text).with_context(|| path.to_owned())
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn alerts(rules: &Value) -> impl Iterator<Item = &Value> {
    array(&rules["groups"]).flat_map(|group| array(&group["rules"]))
}

#[test]
fn each_alert_says_how_bad_what_and_what_next_and_is_tested_both_ways() -> Result<()> {
    let (rules, tests) =
        (yaml("packaging/prometheus/rules.yaml")?, yaml("packaging/prometheus/rules_test.yaml")?);
    let cases: Vec<_> = array(&tests["tests"]).flat_map(|test| array(&test["alert_rule_test"])).collect();
    let mut count = 0;
    for alert in alerts(&rules) {
        count += 1;
        let name = alert["alert"].as_str().context("a rule that is no alert")?;
        let severity = alert["labels"]["severity"].as_str().unwrap_or_default();
        ensure!(["info", "warning", "critical"].contains(&severity), "{name}: {severity}");
        for key in ["summary", "description", "runbook"] {
            ensure!(alert["annotations"][key].as_str().is_some_and(|text| !text.is_empty()), "{name}: {key}");
        }
        let of_it = || cases.iter().filter(|case| case["alertname"] == name);
        let fires = |case: &Value| array(&case["exp_alerts"]).next().is_some();
        ensure!(of_it().any(|case| fires(case)), "{name} fires in no test");
        ensure!(of_it().any(|case| !fires(case)), "no test shows when {name} does not fire");

        // The command exists: without a daemon it fails for want of one, not for how it is written.
        let mut runbook = alert["annotations"]["runbook"].as_str().unwrap_or_default().to_owned();
        for (label, value) in [("namespace", "a"), ("pod", "b"), ("container", "c"), ("type", "liveness")] {
            runbook = runbook.replace(&format!("{{{{ $labels.{label} }}}}"), value);
        }
        if let Some(arguments) = runbook.strip_prefix("criprobe ") {
            let mut command = Command::new(env!("CARGO_BIN_EXE_criprobe"));
            command.args(arguments.split(' ')).stdin(Stdio::null());
            let output = command.env("CRIPROBE_API", "unix:///nonexistent/api.sock").output()?;
            let reported = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.code() == Some(3), "{name}: {runbook}: {reported}");
        }
    }
    ensure!(count >= 15, "{count} alerts");
    Ok(())
}

/// All texts under keys of this name.
fn texts<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get(key).and_then(Value::as_str));
            fields.values().for_each(|value| texts(value, key, found));
        }
        Value::Array(values) => values.iter().for_each(|value| texts(value, key, found)),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_and_dashboard_ask_only_for_metrics_that_exist() -> Result<()> {
    let rig = Rig::start().await?;
    let known = names(&scrape(&rig.daemon, "").await?.0);
    ensure!(known.len() > 40, "{known:?}");
    let rules = yaml("packaging/prometheus/rules.yaml")?;
    let dashboard = std::fs::read_to_string(root().join("packaging/grafana/criprobe.json"))?;
    let dashboard: Value = serde_json::from_str(&dashboard)?;
    let (mut expressions, mut variables) = (Vec::new(), Vec::new());
    texts(&rules, "expr", &mut expressions);
    ensure!(expressions.len() >= 15);
    texts(&dashboard, "expr", &mut expressions);
    texts(&dashboard["templating"], "query", &mut variables);
    ensure!(expressions.len() >= 30 && !variables.is_empty());
    for expression in expressions.into_iter().chain(variables) {
        let words = expression.split(|c: char| !c.is_alphanumeric() && c != '_');
        let asked: Vec<_> = words
            .filter(|word| ["criprobe_", "prober_", "process_"].iter().any(|prefix| word.starts_with(prefix)))
            .collect();
        let is_foreign = expression.contains("up{") || expression == "prometheus";
        ensure!(!asked.is_empty() || is_foreign, "{expression} asks for no metric of ours");
        for name in asked {
            ensure!(known.contains(name), "{name} does not exist: {expression}");
        }
    }
    Ok(())
}
