//! The name of a probe as users write it, and the common parts of the verbs that change a probe: its path in the API,
//! and the line that reports the new state.

use std::str::FromStr;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::{
    Context, Error, Exit,
    format::{self, Format},
    reason::plain,
    screen::print,
};
use crate::report::{printable::printable, view::ProbeView};

/// `NAMESPACE/POD/CONTAINER/TYPE` or `POD_UID/CONTAINER/TYPE`; names that contain a slash are percent-encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProbeName(Vec<String>);

impl FromStr for ProbeName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split('/').map(|part| percent_decode_str(part).decode_utf8());
        let parts: Result<Vec<_>, _> = parts.map(|part| part.map(String::from)).collect();
        parts
            .ok()
            .filter(|parts| matches!(parts.len(), 3 | 4) && parts.iter().all(|part| !part.is_empty()))
            .map(Self)
            .ok_or_else(|| "write NAMESPACE/POD/CONTAINER/TYPE, or POD_UID/CONTAINER/TYPE".to_owned())
    }
}

impl ProbeName {
    /// Where the API has the probe.
    pub(super) fn path(&self) -> String {
        let parts = self.0.iter().map(|part| format!("/{}", utf8_percent_encode(part, NON_ALPHANUMERIC)));
        format!("/v1/probes{}", parts.collect::<String>())
    }
}

/// Has a command done with a probe, and prints in a line how the probe is then.
pub(super) async fn act(context: &Context, probe: &ProbeName, command: &str) -> Result<Exit, Error> {
    let probe: ProbeView = context.client.post(&format!("{}/{command}", probe.path())).await?;
    print(&match context.format {
        Format::Json => format::json(&probe),
        Format::Yaml => format::yaml(&probe),
        Format::Table | Format::Wide => line(&probe),
    })?;
    Ok(Exit::Fine)
}

/// `default/web/app/liveness: probing, success`, and the reason if there is one.
fn line(probe: &ProbeView) -> String {
    let (phase, state) = (probe.phase.as_str(), probe.state.as_str());
    let reason = if probe.reason.is_empty() { String::new() } else { format!(" ({})", plain(&probe.reason)) };
    format!("{}: {phase}, {state}{}\n", printable(&probe.id), printable(&reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::view::{Phase, sample};

    #[test]
    fn a_name_has_three_or_four_parts_and_finds_its_way() {
        for (text, path) in [
            ("default/web/app/liveness", Some("/v1/probes/default/web/app/liveness")),
            ("uid/app/readiness", Some("/v1/probes/uid/app/readiness")),
            ("a%2Fb/50%25 off/ü/startup", Some("/v1/probes/a%2Fb/50%25%20off/%C3%BC/startup")),
            ("a/b?c=d/e#f/startup", Some("/v1/probes/a/b%3Fc%3Dd/e%23f/startup")),
            ("web/liveness", None),
            ("a/b/c/d/e", None),
            ("default//app/liveness", None),
            ("%FF/b/c", None),
            ("", None),
        ] {
            let found = text.parse::<ProbeName>().ok().map(|name| name.path());
            assert_eq!(found.as_deref(), path, "{text}");
        }
    }

    #[test]
    fn how_a_probe_is_then_takes_a_line() {
        assert_eq!(line(&sample::probe()), "default/web/app/liveness: probing, success\n");
        let reason = "paused by an operator since 2026-11-20T10:00:00.000Z".to_owned();
        let paused = ProbeView { phase: Phase::Paused, reason, ..sample::probe() };
        assert_eq!(
            line(&paused),
            "default/web/app/liveness: paused, success (paused by an operator since 2026-11-20T10:00:00.000Z)\n"
        );
        let nasty = ProbeView { id: "\u{1b}".to_owned(), reason: "a\nb".to_owned(), ..sample::probe() };
        assert_eq!(line(&nasty), "\\u{1b}: probing, success (a\\nb)\n");
    }
}
