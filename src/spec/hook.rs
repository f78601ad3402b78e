//! A container's preStop hook, as the kubelet writes it into an annotation: its text in, what to do or what is wrong with it
//! out. A pod's author writes it, so it is held to the same limits as the definition of a probe.

use std::time::Duration;

use super::{ProbeSpec, definition, policy::Limits, raw::RawProbe, validate::validate};
use crate::{
    document::{self, fault, fields},
    ids::ProbeKind,
};

/// What a hook does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// The same as an attempt of this probe, with exec or httpGet. Its command is literal: the kubelet expands none of a hook.
    Call(Box<ProbeSpec>),
    /// Waits.
    Sleep(Duration),
    /// Nothing, as the kubelet with a tcpSocket.
    Nothing,
}

/// Reads a hook. A text of more than 16 KiB is an error.
///
/// # Errors
/// What is wrong with it or forbidden, in one line.
pub(crate) fn read(text: &str, limits: &Limits) -> Result<Hook, String> {
    let node = document::parse_within(text, &definition::BOUNDS).map_err(|error| error.to_string())?;
    let mut errors = Vec::new();
    let read = fields::read(&node, "", &mut errors, |hook| {
        let sleep = hook.map("sleep", |sleep| sleep.integer("seconds"));
        (sleep, RawProbe::read_hook(hook))
    });
    let Some((sleep, raw)) = read else { return Err(fault::joined(&errors)) };
    match (sleep.value(), raw.handler()) {
        _ if sleep.is_absent() && raw.handler().is_none() && errors.is_empty() => {
            Err("must specify a handler type: exec, httpGet, tcpSocket or sleep".to_owned())
        }
        (Some(_), Some(_)) => Err("may not specify more than 1 handler type".to_owned()),
        (Some(seconds), None) if errors.is_empty() => {
            let seconds = seconds.value().copied().unwrap_or_default();
            let seconds = u64::try_from(seconds).map_err(|_| {
                format!("sleep.seconds: Invalid value: {seconds}: must be greater than or equal to 0")
            })?;
            Ok(Hook::Sleep(Duration::from_secs(seconds)))
        }
        (_, None) => Err(fault::joined(&errors)),
        (None, Some("tcpSocket")) if errors.is_empty() => Ok(Hook::Nothing),
        (None, Some(_)) => {
            // A probe has the same handlers; of its type nothing else is used.
            let spec =
                validate(&raw, ProbeKind::Liveness, "", errors).map_err(|errors| fault::joined(&errors))?;
            match limits.target_refusal(&spec.handler) {
                Some(refusal) => Err(refusal),
                None => Ok(Hook::Call(Box::new(ProbeSpec { is_literal: true, ..spec }))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Handler, PortRef, Reach};

    fn reads(text: &str) -> Result<Hook, String> {
        let limits = Limits {
            allow_hosts: vec!["10.0.0.0/8".parse().unwrap()],
            min_period: Duration::from_secs(60),
            max_timeout: Duration::from_millis(10),
        };
        read(text, &limits)
    }

    #[test]
    fn a_hook_is_read_as_the_kubelet_writes_it() {
        let Ok(Hook::Call(spec)) = reads(r#"{"exec":{"command":["sh","-c","echo $(HOME)"]}}"#) else {
            panic!("it is one");
        };
        let command = ["sh", "-c", "echo $(HOME)"].map(str::to_owned).to_vec();
        assert_eq!(spec.handler, Handler::Exec { command });
        assert_eq!((spec.is_literal, spec.reach), (true, Reach::Declared));
        let text = r#"{"httpGet":{"path":"/stop","port":"web","host":"10.1.2.3","scheme":"HTTP",
            "httpHeaders":[{"name":"X-A","value":"b"}]}}"#;
        let Ok(Hook::Call(spec)) = reads(text) else { panic!("it is one") };
        let Handler::HttpGet(http) = spec.handler else { panic!("it is one") };
        assert_eq!((http.path.as_str(), http.port), ("/stop", PortRef::Name("web".to_owned())));
        assert_eq!(http.headers, [("X-A".to_owned(), "b".to_owned())]);
        for (text, hook) in [
            (r#"{"sleep":{"seconds":7}}"#, Hook::Sleep(Duration::from_secs(7))),
            (r#"{"sleep":{"seconds":0}}"#, Hook::Sleep(Duration::ZERO)),
            (r#"{"tcpSocket":{"port":80}}"#, Hook::Nothing),
        ] {
            assert_eq!(reads(text), Ok(hook), "{text}");
        }
    }

    #[test]
    fn what_is_no_hook_or_forbidden_is_refused_with_the_reason() {
        let long = format!(r#"{{"exec":{{"command":["{}"]}}}}"#, "x".repeat(17 << 10));
        for (text, reason) in [
            ("", "must be a map of keys and values"),
            ("{}", "must specify a handler type: exec, httpGet, tcpSocket or sleep"),
            ("[]", "must be a map of keys and values"),
            (r#"{"exec":{}}"#, "exec.command: Required value"),
            (r#"{"exec":{"command":"x"}}"#, "must be a list of strings"),
            (r#"{"sleep":{"seconds":"7"}}"#, "must be a whole number"),
            (r#"{"sleep":{"seconds":-1}}"#, "must be greater than or equal to 0"),
            (r#"{"sleep":5}"#, "must be a map of keys and values"),
            (
                r#"{"sleep":{"seconds":1},"exec":{"command":["x"]}}"#,
                "may not specify more than 1 handler type",
            ),
            (
                r#"{"httpGet":{"port":80},"exec":{"command":["x"]}}"#,
                "may not specify more than 1 handler type",
            ),
            (r#"{"httpGet":{"port":0}}"#, "httpGet.port: Invalid value: 0"),
            (r#"{"grpc":{"port":80}}"#, "unknown key"),
            (r#"{"httpGet":{"port":80,"host":"127.0.0.1"}}"#, "httpGet.host: Forbidden: loopback"),
            (r#"{"httpGet":{"port":80,"host":"192.0.2.1"}}"#, "must be allowed by the operator"),
            (r#"{"httpGet":{"port":80,"host":"localhost"}}"#, "must be an IP address"),
            ("{exec: {command: [x]", ""),
            (&long, "16"),
        ] {
            let refused = reads(text).unwrap_err();
            assert!(refused.contains(reason), "{text:.60}: {refused}");
        }
    }
}
