//! A definition in words: its view in, text for people out.

use super::super::{span::configured, trace::command};
use crate::report::view::{
    DefinitionView, FailureCommandView, HandlerView, HeaderView, HealthcheckView, PortView, ProbeView,
    Seconds,
};

/// A definition in full, a name and a value each.
pub(super) fn lines(
    definition: &DefinitionView,
    probe: &ProbeView,
) -> impl Iterator<Item = (&'static str, String)> {
    let lines = [
        ("handler", Some(handler(&definition.handler))),
        ("exec mode", definition.exec_mode.clone()),
        ("timing", Some(timing(definition))),
        ("starting", start(definition)),
        ("verdict", Some(thresholds(definition))),
        ("on failure", Some(on_failure(definition, probe))),
    ];
    lines.into_iter().filter_map(|(name, value)| Some((name, value?)))
}

/// What an attempt does: `exec cat /tmp/healthy`, `httpGet port 8080, path /healthz`.
pub(in super::super) fn handler(handler: &HandlerView) -> String {
    let host = |host: &Option<String>| host.as_ref().map(|host| format!(", host {host}")).unwrap_or_default();
    match handler {
        HandlerView::Exec { command: words } => format!("exec {}", command(words)),
        HandlerView::HttpGet { path, port, host: other, scheme, http_headers } => {
            let headers: String = http_headers.iter().map(header).collect();
            let path = if path.is_empty() { "/" } else { path };
            format!("httpGet {scheme} port {}, path {path}{}{headers}", self::port(port), host(other))
        }
        HandlerView::TcpSocket { port, host: other } => {
            format!("tcpSocket port {}{}", self::port(port), host(other))
        }
        HandlerView::Grpc { port, service } if service.is_empty() => format!("grpc port {port}"),
        HandlerView::Grpc { port, service } => format!("grpc port {port}, service {service}"),
    }
}

fn header(HeaderView { name, value }: &HeaderView) -> String {
    format!(", header {name}: {value}")
}

fn port(port: &PortView) -> String {
    match port {
        PortView::Number(number) => number.to_string(),
        PortView::Name(name) => name.clone(),
    }
}

/// When attempts are made, and how long one may take.
pub(in super::super) fn timing(definition: &DefinitionView) -> String {
    let delay = definition.initial_delay_seconds.0;
    let delay = if delay.is_zero() {
        "no start delay".to_owned()
    } else {
        format!("start delay {}", configured(delay))
    };
    let (period, timeout) =
        (configured(definition.period_seconds.0), configured(definition.timeout_seconds.0));
    let capped = definition.timeout_before_cap_seconds.map(|before| {
        format!(" (Docker's default of {}, capped by prober.maxTimeout)", configured(before.0))
    });
    format!("every {period}, timeout {timeout}{}, {delay}", capped.unwrap_or_default())
}

/// The start period, if there is one: failures in it do not count before the first success.
fn start(definition: &DefinitionView) -> Option<String> {
    let length = configured(definition.start_period_seconds?.0);
    let every =
        definition.start_interval_seconds.map(|interval| format!("; every {}", configured(interval.0)));
    let every = every.unwrap_or_default();
    Some(format!("for {length} failures do not count before the first success{every} meanwhile"))
}

/// How many results in a row make a verdict.
fn thresholds(definition: &DefinitionView) -> String {
    let count =
        |count: u32, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    let successes = count(definition.success_threshold, "success", "successes in a row");
    let failures = count(definition.failure_threshold, "failure", "failures in a row");
    format!("success after {successes}, failure after {failures}")
}

/// What a verdict of failure does: `stop, grace period 5s, after sh -c dump (timeout 10s)`.
fn on_failure(definition: &DefinitionView, probe: &ProbeView) -> String {
    match &probe.act_refusal {
        Some(reason) => refused(&definition.on_failure, reason),
        None => act(definition),
    }
}

/// The same of a definition that asks for an act, and only reports.
pub(in super::super) fn refused(asked: &str, reason: &str) -> String {
    format!("report (asked for {asked}: {reason})")
}

/// What its definition asks for: `stop, grace period 5s, after sh -c dump (timeout 10s)`.
pub(in super::super) fn act(definition: &DefinitionView) -> String {
    let DefinitionView { on_failure, on_failure_command, termination_grace_period_seconds, .. } = definition;
    in_full(on_failure, on_failure_command.as_ref(), *termination_grace_period_seconds)
}

/// What a rule says of HEALTHCHECKs: `execMode session, on failure stop, grace period 5s`.
pub(in super::super) fn healthcheck(rule: &HealthcheckView) -> String {
    let HealthcheckView { on_failure, on_failure_command, termination_grace_period_seconds, exec_mode } =
        rule;
    let act = on_failure.as_ref().map(|act| {
        let act = in_full(act, on_failure_command.as_ref(), *termination_grace_period_seconds);
        format!("on failure {act}")
    });
    let mode = exec_mode.as_ref().map(|mode| format!("execMode {mode}"));
    mode.into_iter().chain(act).collect::<Vec<_>>().join(", ")
}

/// An act with its grace period, and with the command before it.
fn in_full(act: &str, before: Option<&FailureCommandView>, grace: Option<Seconds>) -> String {
    let grace = grace.map(|grace| format!(", grace period {}", configured(grace.0))).unwrap_or_default();
    let before = before.map(|FailureCommandView { command: words, timeout_seconds }| {
        format!(", after {} (timeout {})", command(words), configured(timeout_seconds.0))
    });
    format!("{act}{grace}{}", before.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::report::view::{Seconds, sample};

    #[test]
    fn a_start_period_is_told_where_there_is_one() {
        let plain = sample::detail().definition.expect("the sample has one");
        assert_eq!(start(&plain), None);
        let of = |seconds| Some(Seconds(Duration::from_secs(seconds)));
        let definition =
            DefinitionView { start_period_seconds: of(90), start_interval_seconds: of(5), ..plain };
        let reported = "for 1m30s failures do not count before the first success; every 5s meanwhile";
        assert_eq!(start(&definition).as_deref(), Some(reported));
    }

    #[test]
    fn a_timeout_that_was_capped_says_so() {
        let plain = sample::detail().definition.expect("the sample has one");
        assert!(!timing(&plain).contains("capped"));
        let seconds = |seconds| Seconds(Duration::from_secs(seconds));
        let capped = DefinitionView {
            timeout_seconds: seconds(10),
            timeout_before_cap_seconds: Some(seconds(30)),
            ..plain
        };
        let shown = timing(&capped);
        assert!(
            shown.contains("timeout 10s (Docker's default of 30s, capped by prober.maxTimeout), "),
            "{shown}"
        );
    }

    #[test]
    fn on_failure_is_what_is_done_or_why_it_is_not() {
        let plain = sample::detail().definition.expect("the sample has one");
        let command = FailureCommandView {
            command: ["/bin/dump", "all of it"].map(str::to_owned).to_vec(),
            timeout_seconds: Seconds(Duration::from_millis(1500)),
        };
        let definition = DefinitionView {
            on_failure: "stop".to_owned(),
            on_failure_command: Some(command),
            termination_grace_period_seconds: Some(Seconds(Duration::from_secs(5))),
            ..plain.clone()
        };
        let asked = HealthcheckView {
            on_failure: Some("stop".to_owned()),
            on_failure_command: definition.on_failure_command.clone(),
            termination_grace_period_seconds: None,
            exec_mode: Some("session".to_owned()),
        };
        let mode = HealthcheckView { on_failure: None, on_failure_command: None, ..asked.clone() };
        assert_eq!(healthcheck(&mode), "execMode session");
        let whole = "execMode session, on failure stop, after /bin/dump 'all of it' (timeout 1s500ms)";
        assert_eq!(healthcheck(&asked), whole);
        let probe = sample::probe();
        assert_eq!(on_failure(&plain, &probe), "report");
        let done = "stop, grace period 5s, after /bin/dump 'all of it' (timeout 1s500ms)";
        assert_eq!(on_failure(&definition, &probe), done);
        let refused =
            ProbeView { act_refusal: Some("acting is not enabled (act.enabled)".to_owned()), ..probe };
        let reason = "report (asked for stop: acting is not enabled (act.enabled))";
        assert_eq!(on_failure(&definition, &refused), reason);
    }

    #[test]
    fn each_handler_is_told_in_words() {
        let reported: Vec<_> = sample::handlers().iter().map(handler).collect();
        assert_eq!(
            reported,
            [
                "exec cat '/tmp/$(FILE)'",
                "httpGet HTTPS port http, path /healthz, header Accept: ",
                "tcpSocket port 80, host 10.0.0.1",
                "grpc port 50051, service cart",
            ]
        );
    }
}
