//! A definition in words: its view in, text for people out.

use super::super::{span::configured, trace::command};
use crate::report::view::{DefinitionView, HandlerView, HeaderView, PortView};

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
    format!("every {period}, timeout {timeout}, {delay}")
}

/// The start period, if there is one: failures in it do not count before the first success.
pub(super) fn start(definition: &DefinitionView) -> Option<String> {
    let length = configured(definition.start_period_seconds?.0);
    let every =
        definition.start_interval_seconds.map(|interval| format!("; every {}", configured(interval.0)));
    let every = every.unwrap_or_default();
    Some(format!("for {length} failures do not count before the first success{every} meanwhile"))
}

/// How many results in a row make a verdict.
pub(super) fn thresholds(definition: &DefinitionView) -> String {
    let count =
        |count: u32, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    let successes = count(definition.success_threshold, "success", "successes in a row");
    let failures = count(definition.failure_threshold, "failure", "failures in a row");
    format!("success after {successes}, failure after {failures}")
}

/// What a verdict of failure may do.
pub(super) fn on_failure(definition: &DefinitionView) -> String {
    let grace = definition.termination_grace_period_seconds;
    let grace = grace.map(|grace| format!(", grace period {}", configured(grace.0))).unwrap_or_default();
    format!("{}{grace}", definition.on_failure)
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
