//! The request for one attempt of an operator: a JSON text in; a container's name and a probe definition out, or all
//! errors. The definition is read and checked like that of a probe, with the same errors.

use std::time::Duration;

use super::{
    ExecMode, ProbeSpec,
    definition::BOUNDS,
    policy::Limits,
    raw::RawProbe,
    validate::{validate, validate_exec_mode, validate_timeout},
};
use crate::{
    document::{
        self,
        fault::{self, FieldError, quoted},
        fields::{self, Field},
    },
    ids::{ProbeKind, ProbeType},
};

/// One attempt as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunRequest {
    /// `NAMESPACE/POD/CONTAINER` or the beginning of an id, as it was written; never empty.
    pub container: String,
    /// What to try.
    pub trial: Trial,
}

/// What to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trial {
    /// The container's own probe.
    Probe {
        /// Of this type.
        kind: ProbeKind,
        /// Instead of the probe's own.
        timeout: Option<Duration>,
        /// Likewise.
        exec_mode: Option<ExecMode>,
    },
    /// A definition of its own. Thresholds and times but the timeout mean nothing to one attempt: they are defaults.
    Own(Box<ProbeSpec>),
}

/// Reads a request, which has the bounds of an annotation. Its timeout and another host than the pod must keep the limits
/// of annotations, too: each attempt holds one of few places.
///
/// # Errors
/// Everything that is wrong, in one line for people.
pub(crate) fn read(text: &str, limits: &Limits) -> Result<RunRequest, String> {
    let node = document::parse_within(text, &BOUNDS).map_err(|error| error.to_string())?;
    let mut errors = Vec::new();
    let raw = fields::read(&node, "", &mut errors, |request| Raw {
        container: request.text("container"),
        probe: request.text("probe"),
        attempt: RawProbe::read_attempt(request),
    });
    let Some(raw) = raw else { return Err(fault::joined(&errors)) };
    let container = container(&raw.container, &mut errors);
    let trial = trial(&raw, errors).map_err(|errors| fault::joined(&errors))?;
    let container = container.expect("that there is none is among the errors");
    let refusal = match &trial {
        // Its period is a default, and means nothing.
        Trial::Own(spec) => Limits { min_period: spec.period, ..limits.clone() }.refusal(spec),
        Trial::Probe { timeout, .. } => timeout.and_then(|timeout| limits.timeout_refusal(timeout)),
    };
    refusal.map_or(Ok(RunRequest { container, trial }), Err)
}

/// The keys as they were found.
struct Raw {
    container: Field<String>,
    probe: Field<String>,
    attempt: RawProbe,
}

fn container(field: &Field<String>, errors: &mut Vec<FieldError>) -> Option<String> {
    let name = field.value().filter(|name| !name.is_empty()).cloned();
    if name.is_none() && !matches!(field, Field::Bad) {
        let detail = "write NAMESPACE/POD/CONTAINER or a container's id";
        errors.push(FieldError::required("container".to_owned(), field.place(), detail));
    }
    name
}

/// What to try, if nothing at all is wrong.
fn trial(raw: &Raw, mut errors: Vec<FieldError>) -> Result<Trial, Vec<FieldError>> {
    let kind = match (&raw.probe, raw.attempt.handler()) {
        // The type decides nothing here: what depends on it is not among the keys.
        (Field::Absent, Some(_)) => {
            return validate(&raw.attempt, ProbeKind::Readiness, "", errors).map(Box::new).map(Trial::Own);
        }
        (Field::Absent, None) => {
            let detail = "must specify what to try: probe, exec, httpGet, tcpSocket or grpc";
            errors.push(FieldError::required(String::new(), raw.attempt.place, detail));
            None
        }
        (Field::Bad | Field::Given(_), handler) => {
            errors.extend(handler.map(|handler| {
                let detail = "may not be set together with probe";
                FieldError::forbidden(handler.to_owned(), raw.probe.place(), detail)
            }));
            kind(&raw.probe, &mut errors)
        }
    };
    let timeout = validate_timeout(&raw.attempt, "", &mut errors);
    let exec_mode = validate_exec_mode(&raw.attempt.exec_mode, &mut errors);
    match kind {
        Some(kind) if errors.is_empty() => Ok(Trial::Probe { kind, timeout, exec_mode }),
        Some(_) | None => Err(errors),
    }
}

fn kind(field: &Field<String>, errors: &mut Vec<FieldError>) -> Option<ProbeKind> {
    let text = field.value()?;
    match text.parse() {
        Ok(ProbeType::Kind(kind)) => return Some(kind),
        Ok(ProbeType::Observed(_)) => {
            let detail = "a client runs this probe, criprobe only watches it";
            errors.push(FieldError::invalid("probe".to_owned(), field.place(), quoted(text), detail));
        }
        Err(_) => {
            let known = ProbeKind::ALL.map(ProbeKind::as_str);
            errors.push(FieldError::unsupported("probe".to_owned(), field.place(), text, &known));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Handler;

    fn read(text: &str) -> Result<RunRequest, String> {
        super::read(text, &Limits::default())
    }

    #[test]
    fn a_definition_is_that_of_a_probe_and_gets_its_defaults() {
        let asked = read(r#"{"container": "a/b/c", "exec": {"command": ["true"]}}"#).unwrap();
        let Trial::Own(spec) = asked.trial else { panic!("{asked:?}") };
        assert_eq!((&*asked.container, spec.timeout), ("a/b/c", Duration::from_secs(1)));
        assert_eq!(spec.handler, Handler::Exec { command: vec!["true".to_owned()] });
        for (timeout, read_as) in [
            (r#""timeout": "250ms""#, 250),
            (r#""timeoutSeconds": 3"#, 3_000),
            (r#""timeoutSeconds": 0"#, 1_000),
        ] {
            let text = format!(r#"{{"container": "c", "tcpSocket": {{"port": "web"}}, {timeout}}}"#);
            let Trial::Own(spec) = read(&text).unwrap().trial else { panic!("{text}") };
            assert_eq!(spec.timeout, Duration::from_millis(read_as), "{text}");
        }
    }

    #[test]
    fn a_probe_keeps_its_timeout_unless_another_is_given() {
        for (text, timeout) in [
            (r#"{"container": "c", "probe": "liveness"}"#, None),
            (r#"{"container": "c", "probe": "liveness", "timeoutSeconds": 0}"#, None),
            (
                r#"{"container": "c", "probe": "liveness", "timeout": "2500ms"}"#,
                Some(Duration::from_millis(2500)),
            ),
            (r#"{"container": "c", "probe": "liveness", "timeoutSeconds": 2}"#, Some(Duration::from_secs(2))),
        ] {
            let trial = Trial::Probe { kind: ProbeKind::Liveness, timeout, exec_mode: None };
            assert_eq!(read(text), Ok(RunRequest { container: "c".to_owned(), trial }), "{text}");
        }
    }

    #[test]
    fn a_probe_and_a_command_may_be_tried_in_either_mode() {
        for (what, is_own) in [(r#""probe": "startup""#, false), (r#""exec": {"command": ["x"]}"#, true)] {
            for (mode, expected) in [
                ("", None),
                (r#", "execMode": null"#, None),
                (r#", "execMode": "sync""#, Some(ExecMode::Sync)),
                (r#", "execMode": "session""#, Some(ExecMode::Session)),
            ] {
                let text = format!(r#"{{"container": "c", {what}{mode}}}"#);
                let found = match read(&text).unwrap().trial {
                    Trial::Own(spec) => (true, spec.exec_mode),
                    Trial::Probe { exec_mode, .. } => (false, exec_mode),
                };
                assert_eq!(found, (is_own, expected), "{text}");
            }
        }
    }

    #[test]
    fn a_host_is_tried_that_the_operator_allows_to_annotations() {
        let allowed = ["10.1.0.0/16".parse().unwrap(), "127.0.0.0/8".parse().unwrap()];
        let limits = Limits { allow_hosts: allowed.to_vec(), ..Limits::default() };
        for (host, is_allowed) in
            [("10.1.2.3", true), ("10.2.0.1", false), ("127.0.0.1", false), ("example.org", false)]
        {
            let text = format!(r#"{{"container": "c", "httpGet": {{"port": 80, "host": "{host}"}}}}"#);
            assert_eq!(super::read(&text, &limits).is_ok(), is_allowed, "{host}");
        }
    }

    #[test]
    fn row_20_a_run_holds_its_place_no_longer_than_the_operator_allows() {
        let hour = Duration::from_secs(3600);
        let limits = Limits { max_timeout: Duration::from_secs(60), min_period: hour, ..Limits::default() };
        for what in [r#""exec": {"command": ["true"]}"#, r#""probe": "liveness""#] {
            let read = |timeout: &str| {
                let text = format!(r#"{{"container": "c", {what}, "timeout": "{timeout}"}}"#);
                super::read(&text, &limits)
            };
            assert!(read("60s").is_ok());
            let reported = read("61s").unwrap_err();
            assert_eq!(reported, "timeout: Forbidden: the operator's maximum is 1m0s (prober.maxTimeout)");
        }
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once_with_kubernetes_paths_and_words() {
        for (text, reported) in [
            (
                r#"{"httpGet": {"path": "/"}, "timeout": "0s", "command": []}"#,
                "unknown key \"command\": known keys are container, probe, exec, httpGet, tcpSocket, grpc, timeoutSeconds, \
                 timeout, execMode; container: Required value: write NAMESPACE/POD/CONTAINER or a container's id; httpGet.port: \
                 Invalid value: 0: must be between 1 and 65535, inclusive; timeout: Invalid value: \"0s\": must be at least 1ms",
            ),
            (
                r#"{"container": "", "timeoutSeconds": -1}"#,
                "container: Required value: write NAMESPACE/POD/CONTAINER or a container's id; Required value: must \
                 specify what to try: probe, exec, httpGet, tcpSocket or grpc; timeoutSeconds: Invalid value: -1: must \
                 be greater than or equal to 0",
            ),
            (
                r#"{"container": "c", "probe": "live", "exec": {"command": ["x"]}, "timeout": 5}"#,
                "timeout: Invalid value: 5: write a duration such as 250ms, 5s or 1m30s; exec: Forbidden: may not be \
                 set together with probe; probe: Unsupported value: \"live\": supported values: \"startup\", \
                 \"readiness\", \"liveness\"",
            ),
            (
                r#"{"container": "c", "probe": "liveness", "execMode": "stream"}"#,
                "execMode: Unsupported value: \"stream\": supported values: \"sync\", \"session\"",
            ),
            (
                r#"{"container": "c", "tcpSocket": {"port": 1}, "execMode": "sync"}"#,
                "execMode: Forbidden: may not be set for tcpSocket probes: they run no command",
            ),
            (
                r#"{"container": "c", "probe": "observed-1"}"#,
                "probe: Invalid value: \"observed-1\": a client runs this probe, criprobe only watches \
                 it",
            ),
            (
                r#"{"container": "c", "probe": "liveness", "timeout": "1s", "timeoutSeconds": 1}"#,
                "timeout: Forbidden: may not be set together with timeoutSeconds",
            ),
            (
                r#"{"container": "c", "exec": {}, "grpc": {"port": 0}}"#,
                "exec.command: Required value; grpc: Forbidden: may not specify more than 1 handler type",
            ),
            (
                r#"{"container": "c", "httpGet": {"port": 80, "host": "10.0.0.1"}}"#,
                "httpGet.host: Forbidden: a host other than the pod must be allowed by the operator (prober.allowHosts)",
            ),
            (
                r#"{"container": 5, "probe": 5}"#,
                "container: Invalid value: 5: must be a string: put it in quotes; \
              probe: Invalid value: 5: must be a string: put it in quotes",
            ),
            ("[]", "Invalid value: a list: must be a map of keys and values"),
            ("", "Invalid value: null: must be a map of keys and values"),
        ] {
            assert_eq!(read(text).unwrap_err(), reported, "{text}");
        }
        assert!(read("{").unwrap_err().starts_with("not valid YAML or JSON (line 1"));
        assert!(read(&" ".repeat((16 << 10) + 1)).unwrap_err().ends_with("at most 16384 are allowed"));
        let words =
            |count| format!(r#"{{"container": "c", "exec": {{"command": [{}0]}}}}"#, "0,".repeat(count));
        assert!(read(&words(1_100)).unwrap_err().contains("too many values"));
    }
}
