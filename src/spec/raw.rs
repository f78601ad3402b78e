//! A probe as it was written: the keys of a Kubernetes v1 `Probe` and ours, each with the right type or reported. Never
//! adds defaults or validates values; `validate` does that.

use crate::document::{
    Node, Place,
    fault::FieldError,
    fields::{self, Field, Fields, NumberOrText},
};

/// Every key that a probe may have.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RawProbe {
    /// Where it starts.
    pub place: Option<Place>,
    pub exec: Field<RawExec>,
    pub http_get: Field<RawHttpGet>,
    pub tcp_socket: Field<RawTcpSocket>,
    pub grpc: Field<RawGrpc>,
    pub initial_delay_seconds: Field<i64>,
    pub timeout_seconds: Field<i64>,
    pub period_seconds: Field<i64>,
    pub success_threshold: Field<i64>,
    pub failure_threshold: Field<i64>,
    pub termination_grace_period_seconds: Field<i64>,
    /// `onFailure` and `onFailureCommand`, ours.
    pub act: RawAct,
    /// `execMode`, ours.
    pub exec_mode: Field<String>,
    /// `initialDelay`, ours.
    pub initial_delay: Field<String>,
    /// `timeout`, ours.
    pub timeout: Field<String>,
    /// `period`, ours.
    pub period: Field<String>,
}

/// What a verdict of failure asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RawAct {
    pub on_failure: Field<String>,
    pub on_failure_command: Field<RawFailureCommand>,
}

/// What a rule says of HEALTHCHECKs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RawHealthcheck {
    /// Where it starts.
    pub place: Option<Place>,
    pub act: RawAct,
    pub termination_grace_period_seconds: Field<i64>,
    pub exec_mode: Field<String>,
}

/// The command before an act.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RawFailureCommand {
    pub command: Field<Vec<String>>,
    pub timeout_seconds: Field<i64>,
    pub timeout: Field<String>,
}

/// A Kubernetes `ExecAction`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RawExec {
    pub command: Field<Vec<String>>,
}

/// A Kubernetes `HTTPGetAction`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RawHttpGet {
    pub path: Field<String>,
    pub port: Field<NumberOrText>,
    pub host: Field<String>,
    pub scheme: Field<String>,
    pub http_headers: Field<Vec<RawHeader>>,
}

/// A Kubernetes `HTTPHeader`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RawHeader {
    pub name: Field<String>,
    pub value: Field<String>,
    /// Where it starts.
    pub place: Option<Place>,
}

/// A Kubernetes `TCPSocketAction`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RawTcpSocket {
    pub port: Field<NumberOrText>,
    pub host: Field<String>,
}

/// A Kubernetes `GRPCAction`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RawGrpc {
    pub port: Field<i64>,
    pub service: Field<String>,
}

impl RawProbe {
    /// Reads a probe; fields that are unknown or of the wrong type are reported under `path`.
    ///
    /// Returns `None` where the node is no map, which is reported too.
    pub(crate) fn read(node: &Node, path: &str, errors: &mut Vec<FieldError>) -> Option<Self> {
        fields::read(node, path, errors, Self::of)
    }

    /// Reads a probe out of a map that holds nothing else.
    pub(crate) fn of(probe: &mut Fields<'_>) -> Self {
        Self {
            place: probe.place(),
            exec: probe.map("exec", exec),
            http_get: probe.map("httpGet", http_get),
            tcp_socket: probe.map("tcpSocket", tcp_socket),
            grpc: probe.map("grpc", grpc),
            initial_delay_seconds: probe.integer("initialDelaySeconds"),
            timeout_seconds: probe.integer("timeoutSeconds"),
            period_seconds: probe.integer("periodSeconds"),
            success_threshold: probe.integer("successThreshold"),
            failure_threshold: probe.integer("failureThreshold"),
            termination_grace_period_seconds: probe.integer("terminationGracePeriodSeconds"),
            initial_delay: probe.duration("initialDelay"),
            timeout: probe.duration("timeout"),
            period: probe.duration("period"),
            act: RawAct::of(probe),
            exec_mode: probe.text("execMode"),
        }
    }

    /// Reads what one attempt needs, handler, timeout and mode, out of a map that may hold other things; all else is absent.
    pub(crate) fn read_attempt(attempt: &mut Fields<'_>) -> Self {
        Self {
            exec: attempt.map("exec", exec),
            http_get: attempt.map("httpGet", http_get),
            tcp_socket: attempt.map("tcpSocket", tcp_socket),
            grpc: attempt.map("grpc", grpc),
            timeout_seconds: attempt.integer("timeoutSeconds"),
            timeout: attempt.duration("timeout"),
            exec_mode: attempt.text("execMode"),
            ..Self::absent(attempt.place())
        }
    }

    /// Reads the handlers that a lifecycle hook shares with a probe, out of a map that may hold others; all else is absent.
    #[allow(dead_code)]
    pub(crate) fn read_hook(hook: &mut Fields<'_>) -> Self {
        Self {
            exec: hook.map("exec", exec),
            http_get: hook.map("httpGet", http_get),
            tcp_socket: hook.map("tcpSocket", tcp_socket),
            ..Self::absent(hook.place())
        }
    }

    /// One without any key.
    fn absent(place: Option<Place>) -> Self {
        Self {
            place,
            exec: Field::Absent,
            http_get: Field::Absent,
            tcp_socket: Field::Absent,
            grpc: Field::Absent,
            initial_delay_seconds: Field::Absent,
            timeout_seconds: Field::Absent,
            period_seconds: Field::Absent,
            success_threshold: Field::Absent,
            failure_threshold: Field::Absent,
            termination_grace_period_seconds: Field::Absent,
            initial_delay: Field::Absent,
            timeout: Field::Absent,
            period: Field::Absent,
            act: RawAct { on_failure: Field::Absent, on_failure_command: Field::Absent },
            exec_mode: Field::Absent,
        }
    }

    /// The first handler that is written, well or badly, in Kubernetes' order: how an invalid probe is listed.
    pub(crate) fn handler(&self) -> Option<&'static str> {
        [
            (self.exec.is_absent(), "exec"),
            (self.http_get.is_absent(), "httpGet"),
            (self.tcp_socket.is_absent(), "tcpSocket"),
            (self.grpc.is_absent(), "grpc"),
        ]
        .into_iter()
        .find_map(|(is_absent, name)| (!is_absent).then_some(name))
    }
}

impl RawAct {
    /// Reads it out of a map that holds other things, too.
    pub(crate) fn of(fields: &mut Fields<'_>) -> Self {
        Self {
            on_failure: fields.text("onFailure"),
            on_failure_command: fields.map("onFailureCommand", |before| RawFailureCommand {
                command: before.texts("command"),
                timeout_seconds: before.integer("timeoutSeconds"),
                timeout: before.duration("timeout"),
            }),
        }
    }
}

impl RawHealthcheck {
    /// Reads it out of a map that holds nothing else.
    pub(crate) fn of(healthcheck: &mut Fields<'_>) -> Self {
        Self {
            place: healthcheck.place(),
            act: RawAct::of(healthcheck),
            termination_grace_period_seconds: healthcheck.integer("terminationGracePeriodSeconds"),
            exec_mode: healthcheck.text("execMode"),
        }
    }
}

fn exec(exec: &mut Fields<'_>) -> RawExec {
    RawExec { command: exec.texts("command") }
}

fn tcp_socket(socket: &mut Fields<'_>) -> RawTcpSocket {
    RawTcpSocket { port: socket.number_or_text("port"), host: socket.text("host") }
}

fn grpc(grpc: &mut Fields<'_>) -> RawGrpc {
    RawGrpc { port: grpc.integer("port"), service: grpc.text("service") }
}

fn http_get(http: &mut Fields<'_>) -> RawHttpGet {
    RawHttpGet {
        path: http.text("path"),
        port: http.number_or_text("port"),
        host: http.text("host"),
        scheme: http.text("scheme"),
        http_headers: http.maps("httpHeaders", |header| RawHeader {
            place: header.place(),
            name: header.text("name"),
            value: header.text("value"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{fault, parse};

    fn read(text: &str) -> (Option<RawProbe>, String) {
        let mut errors = Vec::new();
        let raw = RawProbe::read(&parse(text, 1 << 14).unwrap(), "", &mut errors);
        (raw, fault::joined(&errors))
    }

    #[test]
    fn a_key_of_the_wrong_type_is_told_with_what_to_write() {
        for (text, reported) in [
            ("{exec: {command: cat}}", r#"exec.command: Invalid value: "cat": must be a list of strings"#),
            (
                "{exec: {command: [sleep, 10, true, [x]]}}",
                "exec.command[1]: Invalid value: 10: must be a string: put it in quotes; \
                 exec.command[2]: Invalid value: true: must be a string: put it in quotes; \
                 exec.command[3]: Invalid value: a list: must be a string",
            ),
            ("{exec: cat}", r#"exec: Invalid value: "cat": must be a map of keys and values"#),
            (
                "{periodSeconds: '10'}",
                r#"periodSeconds: Invalid value: "10": must be a whole number: write it without quotes"#,
            ),
            ("{periodSeconds: 10s}", r#"periodSeconds: Invalid value: "10s": must be a whole number"#),
            ("{periodSeconds: 1.5}", "periodSeconds: Invalid value: 1.5: must be a whole number"),
            ("{period: 10}", "period: Invalid value: 10: write a duration such as 250ms, 5s or 1m30s"),
            (
                "{tcpSocket: {port: [80]}}",
                "tcpSocket.port: Invalid value: a list: must be a whole number or a string",
            ),
            ("{execMode: true}", "execMode: Invalid value: true: must be a string: put it in quotes"),
            ("{grpc: {port: http}}", r#"grpc.port: Invalid value: "http": must be a whole number"#),
            (
                "{httpGet: {httpHeaders: [{name: 5}]}}",
                "httpGet.httpHeaders[0].name: Invalid value: 5: must be a string: put it in quotes",
            ),
            (
                "{httpGet: {httpHeaders: {name: x}}}",
                "httpGet.httpHeaders: Invalid value: a map: must be a list of maps",
            ),
            ("[exec]", "Invalid value: a list: must be a map of keys and values"),
            ("exec", r#"Invalid value: "exec": must be a map of keys and values"#),
        ] {
            assert_eq!(read(text).1, reported, "{text}");
        }
    }

    #[test]
    fn an_unknown_key_is_told_with_the_one_that_was_meant() {
        for (text, reported) in [
            ("{periodSecond: 1}", r#"unknown key "periodSecond": did you mean "periodSeconds"?"#),
            ("{Exec: {}}", r#"unknown key "Exec": did you mean "exec"?"#),
            ("{execmode: sync}", r#"unknown key "execmode": did you mean "execMode"?"#),
            ("{exec: {cmd: [x]}}", r#"exec: unknown key "cmd": known keys are command"#),
            (
                "{tcpSocket: {prot: 1}, \"\\e[2J\": 2}",
                "tcpSocket: unknown key \"prot\": did you mean \"port\"?; unknown key \"??2J\": known keys are exec, \
                 httpGet, tcpSocket, grpc, initialDelaySeconds, timeoutSeconds, periodSeconds, successThreshold, \
                 failureThreshold, terminationGracePeriodSeconds, initialDelay, timeout, period, onFailure, onFailureCommand, \
                 execMode",
            ),
            (
                "{onFailureCommand: [dump]}",
                "onFailureCommand: Invalid value: a list: must be a map of keys and values",
            ),
            (
                "{onFailureCommand: {command: dump, timout: 5s}}",
                "onFailureCommand.command: Invalid value: \"dump\": must be a list of strings; \
                 onFailureCommand: unknown key \"timout\": did you mean \"timeout\"?",
            ),
        ] {
            assert_eq!(read(text).1, reported, "{text}");
        }
    }

    #[test]
    fn null_is_as_if_the_key_were_not_there() {
        let (raw, reported) =
            read("{exec: null, httpGet: ~, periodSeconds: , onFailure: null, execMode: null}");
        assert_eq!(reported, "");
        let raw = raw.unwrap();
        assert!(raw.exec.is_absent() && raw.period_seconds.is_absent() && raw.handler().is_none());
    }

    #[test]
    fn the_first_handler_names_the_probe_even_when_it_is_bad() {
        for (text, handler) in [
            ("{}", None),
            ("{grpc: {port: 1}}", Some("grpc")),
            ("{httpGet: {}, exec: 5}", Some("exec")),
            ("{tcpSocket: {port: x}}", Some("tcpSocket")),
        ] {
            assert_eq!(read(text).0.unwrap().handler(), handler, "{text}");
        }
    }
}
